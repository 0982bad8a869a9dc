//! The plan file: a versioned container around the plan's tables.
//!
//! Layout, little endian. Header, 64 bytes: magic `REFRPLAN`, u16 format major, u16 minor,
//! u32 section count, u64 file length, 8 zero bytes, 32-byte file digest. The file digest is BLAKE3
//! over everything else (header up to it, then table and sections) and is the plan's id. Section
//! table, 64 bytes a row, tags ascending: tag `[u8; 4]`, u16 section version, 2 zero bytes,
//! u64 offset, u64 length, 8 zero bytes, 32-byte BLAKE3 of the body. Bodies follow in table order,
//! each at the next multiple of 64, with zero bytes between and none after the last.
//!
//! A tag that starts with a capital is critical: unknown means refused. Others are carried along.
//! Bodies are written by `records` with the codec of `codec`. Whether the plan makes sense is
//! decided by [`CheckedPlan`], the only type that the rest of Refrain accepts.

pub mod codec;
pub mod limits;

mod check;
mod error;
mod records;

pub use check::{CheckError, CheckedPlan, LoadError, Place};
pub use error::ContainerError;

use crate::plan::{Digest, Plan};

/// First bytes of every plan file.
pub const MAGIC: [u8; 8] = *b"REFRPLAN";
/// Format version written by this build; it reads every minor of the same major.
pub const FORMAT: (u16, u16) = (4, 0);
/// Alignment of sections, and bytes of the header and of a table row.
const UNIT: usize = 64;
/// Offset of the file digest in the header.
const DIGEST_AT: usize = 32;

/// A section as it lies in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawSection {
    /// Four ASCII letters or digits; a capital first letter means critical.
    pub tag: [u8; 4],
    /// Version of the body's layout.
    pub version: u16,
    /// Body.
    pub body: Vec<u8>,
}

/// A decoded file: the plan and the non-critical sections that this build does not know.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanFile {
    /// Minor format version of the file; a newer minor only adds non-critical sections.
    pub minor: u16,
    /// The plan.
    pub plan: Plan,
    /// Carried along unread, so that encoding gives the same bytes again.
    pub unknown: Vec<RawSection>,
}

/// Encodes a plan with no further sections.
pub fn encode(plan: &Plan) -> Vec<u8> {
    encode_sections(FORMAT.1, records::sections(plan))
}

/// Encodes a file; for every accepted input, `encode_file(&decode(x)?) == x`.
pub fn encode_file(file: &PlanFile) -> Vec<u8> {
    let mut sections = records::sections(&file.plan);
    sections.extend(file.unknown.iter().cloned());
    encode_sections(file.minor, sections)
}

/// Lays sections out in canonical form.
pub fn encode_sections(minor: u16, mut sections: Vec<RawSection>) -> Vec<u8> {
    sections.sort_by_key(|section| section.tag);
    let table_end = UNIT * (1 + sections.len());
    let mut rows = Vec::with_capacity(table_end - UNIT);
    let mut bodies = Vec::new();
    for section in &sections {
        bodies.resize(bodies.len().next_multiple_of(UNIT), 0);
        rows.extend_from_slice(&section.tag);
        rows.extend_from_slice(&section.version.to_le_bytes());
        rows.extend_from_slice(&[0; 2]);
        rows.extend_from_slice(&((table_end + bodies.len()) as u64).to_le_bytes());
        rows.extend_from_slice(&(section.body.len() as u64).to_le_bytes());
        rows.extend_from_slice(&[0; 8]);
        rows.extend_from_slice(blake3::hash(&section.body).as_bytes());
        bodies.extend_from_slice(&section.body);
    }
    let mut file = Vec::with_capacity(table_end + bodies.len());
    file.extend_from_slice(&MAGIC);
    file.extend_from_slice(&FORMAT.0.to_le_bytes());
    file.extend_from_slice(&minor.to_le_bytes());
    file.extend_from_slice(&(sections.len() as u32).to_le_bytes());
    file.extend_from_slice(&((table_end + bodies.len()) as u64).to_le_bytes());
    file.extend_from_slice(&[0; 8 + size_of::<Digest>()]);
    file.extend_from_slice(&rows);
    file.extend_from_slice(&bodies);
    let digest = file_digest(&file);
    file[DIGEST_AT..UNIT].copy_from_slice(&digest);
    file
}

/// Digest of a file of at least a header, without its digest field: the plan id.
fn file_digest(file: &[u8]) -> Digest {
    let mut hasher = blake3::Hasher::new_derive_key("refrain.plan-file.v1");
    hasher.update(&file[..DIGEST_AT]);
    hasher.update(&file[UNIT..]);
    *hasher.finalize().as_bytes()
}

/// Decodes a file: integrity and canonical form, not yet sense (see [`CheckedPlan`]).
pub fn decode(bytes: &[u8]) -> Result<PlanFile, ContainerError> {
    let sections = split(bytes)?;
    let (plan, unknown) = records::plan(sections)?;
    let file = PlanFile {
        minor: u16_at(bytes, 10),
        plan,
        unknown,
    };
    // Belt and braces: every rule above implies this, and it is what callers rely on.
    let again = encode_file(&file);
    if again != bytes {
        return Err(ContainerError::NotCanonical {
            section: first_difference(&again, bytes),
        });
    }
    Ok(file)
}

fn first_difference(again: &[u8], bytes: &[u8]) -> String {
    let at = again
        .iter()
        .zip(bytes)
        .position(|(a, b)| a != b)
        .unwrap_or(again.len());
    match split(bytes) {
        Ok(sections) if at >= UNIT * (1 + sections.len()) => {
            let mut end = UNIT * (1 + sections.len());
            for section in &sections {
                end = (end + section.body.len()).next_multiple_of(UNIT);
                if at < end {
                    return tag_text(section.tag);
                }
            }
            "section table".to_owned()
        }
        _ => "section table".to_owned(),
    }
}

/// Splits a file into sections after checking header, table, padding and every digest.
pub fn split(bytes: &[u8]) -> Result<Vec<RawSection>, ContainerError> {
    let count = header(bytes)?;
    let table_end = UNIT * (1 + count);
    if table_end > bytes.len() {
        return Err(ContainerError::Length {
            stated: table_end as u64,
            found: bytes.len() as u64,
        });
    }
    let mut sections: Vec<RawSection> = Vec::with_capacity(count);
    let mut end = table_end;
    for row in 0..count {
        let (section, section_end) = section(bytes, UNIT * (1 + row), end, sections.last())?;
        sections.push(section);
        end = section_end;
    }
    if end != bytes.len() {
        return Err(ContainerError::Length {
            stated: end as u64,
            found: bytes.len() as u64,
        });
    }
    if file_digest(bytes)[..] != bytes[DIGEST_AT..UNIT] {
        return Err(ContainerError::FileDigest);
    }
    Ok(sections)
}

/// Checks the header and gives the section count.
fn header(bytes: &[u8]) -> Result<usize, ContainerError> {
    if bytes.len() < MAGIC.len() || bytes[..MAGIC.len()] != MAGIC {
        let start = &bytes[..bytes.len().min(MAGIC.len())];
        return Err(ContainerError::Magic {
            found: format!("\"{}\"", start.escape_ascii()),
        });
    }
    if bytes.len() < UNIT {
        return Err(ContainerError::Length {
            stated: UNIT as u64,
            found: bytes.len() as u64,
        });
    }
    let (major, minor) = (u16_at(bytes, 8), u16_at(bytes, 10));
    if major != FORMAT.0 {
        return Err(ContainerError::Version {
            major,
            minor,
            reads: FORMAT.0,
        });
    }
    let stated = u64_at(bytes, 16);
    if stated != bytes.len() as u64 {
        return Err(ContainerError::Length {
            stated,
            found: bytes.len() as u64,
        });
    }
    if stated > limits::FILE_BYTES {
        return Err(limit("header", "file length", stated, limits::FILE_BYTES));
    }
    zero("header", bytes, 24, DIGEST_AT)?;
    let count = u32_at(bytes, 12);
    if count > limits::SECTIONS {
        let most = u64::from(limits::SECTIONS);
        return Err(limit("header", "section count", u64::from(count), most));
    }
    Ok(count as usize)
}

/// Reads the table row at `row` whose section must start at the next unit after `end`.
fn section(
    bytes: &[u8],
    row: usize,
    end: usize,
    before: Option<&RawSection>,
) -> Result<(RawSection, usize), ContainerError> {
    let mut tag = [0; 4];
    tag.copy_from_slice(&bytes[row..row + 4]);
    let name = tag_text(tag);
    if !tag.iter().all(u8::is_ascii_alphanumeric) {
        return Err(ContainerError::Tag { tag: name });
    }
    if let Some(before) = before.filter(|before| before.tag >= tag) {
        return Err(ContainerError::Order {
            first: tag_text(before.tag),
            second: name,
        });
    }
    zero("section table", bytes, row + 6, row + 8)?;
    zero("section table", bytes, row + 24, row + 32)?;
    let (offset, len) = (u64_at(bytes, row + 8), u64_at(bytes, row + 16));
    let start = end.next_multiple_of(UNIT);
    if offset != start as u64 {
        return Err(ContainerError::Layout {
            section: name,
            found: offset,
            expected: start as u64,
        });
    }
    let file_end = bytes.len() as u64;
    let Some(stop) = offset.checked_add(len).filter(|stop| *stop <= file_end) else {
        return Err(ContainerError::PastEnd {
            section: name,
            offset,
            len,
            end: file_end,
        });
    };
    if let Some(at) = bytes[end..start].iter().position(|byte| *byte != 0) {
        let section = before.map_or_else(|| "section table".to_owned(), |b| tag_text(b.tag));
        return Err(ContainerError::Padding {
            section,
            at: (end + at) as u64,
        });
    }
    let body = &bytes[start..stop as usize];
    if blake3::hash(body).as_bytes()[..] != bytes[row + 32..row + UNIT] {
        return Err(ContainerError::SectionDigest { section: name });
    }
    let section = RawSection {
        tag,
        version: u16_at(bytes, row + 4),
        body: body.to_vec(),
    };
    Ok((section, stop as usize))
}

/// Tag as text, escaped where it is not printable.
pub(crate) fn tag_text(tag: [u8; 4]) -> String {
    tag.escape_ascii().to_string()
}

fn limit(section: &str, what: &'static str, found: u64, limit: u64) -> ContainerError {
    ContainerError::Limit {
        section: section.to_owned(),
        what,
        found,
        limit,
    }
}

fn zero(section: &str, bytes: &[u8], from: usize, to: usize) -> Result<(), ContainerError> {
    if bytes[from..to].iter().all(|byte| *byte == 0) {
        return Ok(());
    }
    Err(ContainerError::Reserved {
        section: section.to_owned(),
        at: from as u64,
    })
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}
