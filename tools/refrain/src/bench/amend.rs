//! Reports as files, and their amendments: dated notes behind the report, which itself never
//! changes. Each note carries the digest of everything before the amendments, so that an edited
//! report is found.

use super::report::{Amendment, Report, SCHEMA};
use refrain_planner::identity::hex;

/// Where the amendments begin: the last key of a report. Inside a string the quotes would be escaped.
const KEY: &str = ",\"amendments\":[";

/// Why a report cannot be read or amended.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// Not a report.
    #[error("not a {SCHEMA} report: {0}; make one with refrain bench --output")]
    Parse(#[from] serde_json::Error),
    /// A report of another version.
    #[error("a report of schema {found:?}, this program reads {SCHEMA}; make it again")]
    Schema {
        /// Schema in the file.
        found: String,
    },
    /// The report was edited after an amendment.
    #[error(
        "the report was edited after its amendment of {date}: its digest is {found}, the amendment says {expected}; restore it"
    )]
    Edited {
        /// Date of the first amendment that does not agree.
        date: String,
        /// Digest found.
        found: String,
        /// Digest stated.
        expected: String,
    },
    /// A report whose text was laid out anew.
    #[error(
        "the report was rewritten (it is no longer one line as refrain wrote it); amend the original"
    )]
    Rewritten,
    /// A note without words.
    #[error("an amendment needs words: give --note TEXT")]
    EmptyNote,
}

/// The text of a report, one line.
///
/// # Errors
/// None in practice: a report has string keys only.
pub fn write(report: &Report) -> Result<String, ReportError> {
    Ok(serde_json::to_string(report)? + "\n")
}

/// Digest of everything before the amendments.
fn original(text: &str) -> String {
    let body = text.split_once(KEY).map_or(text, |(body, _)| body);
    hex(blake3::hash(body.as_bytes()).as_bytes())
}

/// Reads a report and checks that its amendments are about it.
///
/// # Errors
/// [`ReportError`].
pub fn read(text: &str) -> Result<Report, ReportError> {
    let value: serde_json::Value = serde_json::from_str(text)?;
    let schema = value.get("schema").and_then(serde_json::Value::as_str);
    if let Some(found) = schema.filter(|schema| *schema != SCHEMA) {
        let found = found.to_owned();
        return Err(ReportError::Schema { found });
    }
    let report: Report = serde_json::from_value(value)?;
    let found = original(text);
    match report.amendments.iter().find(|row| row.original != found) {
        None => Ok(report),
        Some(row) => Err(ReportError::Edited {
            date: row.date.clone(),
            expected: row.original.clone(),
            found,
        }),
    }
}

/// The report with one more amendment; everything before the amendments keeps its bytes.
///
/// # Errors
/// [`ReportError`].
pub fn amend(text: &str, note: &str, date: &str) -> Result<String, ReportError> {
    if note.trim().is_empty() {
        return Err(ReportError::EmptyNote);
    }
    let mut report = read(text)?;
    report.amendments.push(Amendment {
        date: date.to_owned(),
        note: note.to_owned(),
        original: original(text),
    });
    let Some((body, _)) = text.split_once(KEY) else {
        return Err(ReportError::Rewritten);
    };
    let rows = serde_json::to_string(&report.amendments)?;
    let rows = rows.strip_prefix('[').unwrap_or(&rows);
    Ok(format!("{body}{KEY}{rows}}}\n"))
}

#[cfg(test)]
mod tests {
    use super::super::judge::tests::sample;
    use super::{ReportError, amend, read, write};

    #[test]
    fn amendments_stand_behind_an_unchanged_report() {
        let text = write(&sample()).unwrap();
        let once = amend(&text, "the card was \"warm\"", "2026-11-30T00:00:00Z").unwrap();
        let twice = amend(&once, "and so was the room", "2026-12-01T00:00:00Z").unwrap();
        let body = |text: &str| text.split(",\"amendments\":").next().unwrap().to_owned();
        assert_eq!(body(&text), body(&twice));
        let report = read(&twice).unwrap();
        assert_eq!(report.amendments.len(), 2);
        assert_eq!(report.amendments[0].note, "the card was \"warm\"");
        assert_eq!(report.amendments[0].original, report.amendments[1].original);
        let laid_out: serde_json::Value = serde_json::from_str(&text).unwrap();
        let laid_out = serde_json::to_string_pretty(&laid_out).unwrap();
        assert!(matches!(
            amend(&laid_out, "n", "d"),
            Err(ReportError::Rewritten)
        ));
        assert!(matches!(
            amend(&text, " ", "x"),
            Err(ReportError::EmptyNote)
        ));
    }

    #[test]
    fn an_edited_report_is_found() {
        let text = write(&sample()).unwrap();
        let amended = amend(&text, "note", "2026-11-30T00:00:00Z").unwrap();
        let edited = amended.replacen("\"host_us\":100.0", "\"host_us\":90.0", 1);
        assert_ne!(edited, amended);
        assert!(matches!(read(&edited), Err(ReportError::Edited { .. })));
        assert!(matches!(
            amend(&edited, "n", "d"),
            Err(ReportError::Edited { .. })
        ));
    }

    #[test]
    fn what_is_no_report_is_refused() {
        assert!(matches!(read("{"), Err(ReportError::Parse(_))));
        assert!(matches!(read("{}"), Err(ReportError::Parse(_))));
        let other = write(&sample()).unwrap().replace("bench.v1", "bench.v2");
        let Err(ReportError::Schema { found }) = read(&other) else {
            panic!("accepted")
        };
        assert_eq!(found, "refrain.bench.v2");
    }
}
