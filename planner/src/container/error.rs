//! Errors of the plan file: each names the section and the byte.

use super::codec::CodecError;

/// Why bytes are not a plan file of this format. Offsets are bytes from the start of the file
/// except inside [`CodecError`], whose offsets start at the section.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContainerError {
    /// Shorter than a header, or the magic is another one.
    #[error("header: not a plan file: it starts with {found}, a plan starts with \"REFRPLAN\"")]
    Magic {
        /// First bytes, escaped.
        found: String,
    },
    /// Made by another version of the format.
    #[error(
        "header: made by plan format {major}.{minor}, this build reads {reads}.x: \
         re-run `refrain plan`"
    )]
    Version {
        /// Major version in the file.
        major: u16,
        /// Minor version in the file.
        minor: u16,
        /// Major version this build reads.
        reads: u16,
    },
    /// The file ends early or goes on after its stated end.
    #[error("header: states {stated} bytes, the file has {found}: it was cut or appended to")]
    Length {
        /// Length in the header.
        stated: u64,
        /// Length of the input.
        found: u64,
    },
    /// A size above its limit.
    #[error("{section}: {what} is {found}, the limit is {limit}")]
    Limit {
        /// Section, `header` or `section table`.
        section: String,
        /// What is too large.
        what: &'static str,
        /// Value in the file.
        found: u64,
        /// Largest accepted value.
        limit: u64,
    },
    /// A reserved field that is not zero.
    #[error("{section}: reserved bytes at {at} are not zero")]
    Reserved {
        /// Section, `header` or `section table`.
        section: String,
        /// Offset in the file.
        at: u64,
    },
    /// A section is not where the canonical layout puts it (64-byte aligned, no gap, no overlap).
    #[error("section table: section {section} is at byte {found}, it must be at {expected}")]
    Layout {
        /// Tag of the section.
        section: String,
        /// Offset in the table.
        found: u64,
        /// Only accepted offset.
        expected: u64,
    },
    /// A section reaches past the end of the file.
    #[error(
        "section table: section {section} has {len} bytes from {offset}, the file ends at {end}"
    )]
    PastEnd {
        /// Tag of the section.
        section: String,
        /// Offset in the table.
        offset: u64,
        /// Length in the table.
        len: u64,
        /// Length of the file.
        end: u64,
    },
    /// Tags out of order or twice.
    #[error("section table: {second} follows {first}; tags must be ascending and unique")]
    Order {
        /// Earlier tag.
        first: String,
        /// Later tag.
        second: String,
    },
    /// A tag that is not four ASCII letters.
    #[error("section table: tag {tag} is not four ASCII letters or digits")]
    Tag {
        /// Escaped tag.
        tag: String,
    },
    /// A critical section (capital first letter) that this build does not know.
    #[error(
        "section {section} version {version} is needed to use this plan and unknown to this build: use a newer refrain"
    )]
    UnknownSection {
        /// Tag.
        section: String,
        /// Version in the table.
        version: u16,
    },
    /// A required section is absent.
    #[error("section {section} is missing: re-run `refrain plan`")]
    MissingSection {
        /// Tag.
        section: String,
    },
    /// Bytes between sections that are not zero.
    #[error("section {section}: padding byte {at} is not zero")]
    Padding {
        /// Section before the padding.
        section: String,
        /// Offset in the file.
        at: u64,
    },
    /// A digest that does not belong to its bytes.
    #[error(
        "section {section}: its bytes do not match its digest: the file was changed or damaged"
    )]
    SectionDigest {
        /// Tag.
        section: String,
    },
    /// The whole-file digest does not belong to the file.
    #[error(
        "header: the file digest does not match: header or section table was changed or damaged"
    )]
    FileDigest,
    /// A section body that cannot be read.
    #[error("section {section}: {source}")]
    Body {
        /// Tag.
        section: String,
        /// Cause.
        source: CodecError,
    },
    /// The accepted values have another encoding than the file's.
    #[error("section {section}: not in canonical form")]
    NotCanonical {
        /// Tag.
        section: String,
    },
}

impl ContainerError {
    /// Section that the error is about: a tag, `header` or `section table`.
    pub fn section(&self) -> &str {
        match self {
            Self::Magic { .. } | Self::Version { .. } | Self::Length { .. } | Self::FileDigest => {
                "header"
            }
            Self::Layout { .. } | Self::PastEnd { .. } | Self::Order { .. } | Self::Tag { .. } => {
                "section table"
            }
            Self::Limit { section, .. }
            | Self::Reserved { section, .. }
            | Self::UnknownSection { section, .. }
            | Self::MissingSection { section }
            | Self::Padding { section, .. }
            | Self::SectionDigest { section }
            | Self::Body { section, .. }
            | Self::NotCanonical { section } => section,
        }
    }
}
