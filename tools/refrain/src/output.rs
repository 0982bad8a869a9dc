//! Printing: results on stdout, everything else on stderr. The only place that writes to either.

use crate::exit::{self, CliError};
use std::io::{self, Write};
use tracing_subscriber::EnvFilter;

/// Sends `tracing` events to stderr; `REFRAIN_LOG` overrides the level.
pub fn start_logging(verbose: u8) {
    let level = match verbose {
        0 => "warn",
        1 => "info",
        _ => "debug",
    };
    let filter = EnvFilter::try_from_env("REFRAIN_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    // A second call (in tests) keeps the first subscriber.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .without_time()
        .try_init();
}

/// Writes to stdout at once.
///
/// # Errors
/// [`CliError::Io`]; a closed pipe is not an error.
pub fn result(text: &str) -> Result<(), CliError> {
    stream(text).map(drop)
}

/// As [`result`], and says whether anybody still reads.
///
/// # Errors
/// [`CliError::Io`].
pub fn stream(text: &str) -> Result<bool, CliError> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(source) => Err(CliError::Io {
            path: "stdout".to_owned(),
            source,
        }),
    }
}

/// Writes a line to stderr. If that fails there is nowhere left to say so.
pub fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", printable(text));
}

/// Control characters escaped, line breaks kept: names from files must not steer a terminal.
fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() && c != '\n' {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// Writes an error with its causes to stderr, each cause once; a refusal with its code.
pub fn error(error: &anyhow::Error) {
    if let Some(refusal) = exit::refusal_of(error) {
        let remedy = refusal.code.row().remedy;
        note(&format!("refrain: refused: {refusal}. {remedy}"));
        return;
    }
    let mut said = String::new();
    for cause in error.chain() {
        let text = cause.to_string();
        if !said.contains(&text) {
            said.push_str(if said.is_empty() { "refrain: " } else { ": " });
            said.push_str(&text);
        }
    }
    note(&said);
}

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn escapes_cannot_reach_a_terminal() {
        assert_eq!(printable("a\x1b[31mb\u{7}\nµ"), "a\\u{1b}[31mb\\u{7}\nµ");
    }
}
