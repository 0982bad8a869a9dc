//! Own reader of the head of hipfire's HFQ container, version 1: which tensors of which type lie
//! where, under Hugging Face names, and the Hugging Face configuration in its metadata.
//!
//! Layout, little endian: magic `HFQM`, u32 version, u32 architecture, u32 tensors, u64 metadata
//! offset, u64 data offset. One JSON object without a stored length, then the index. Tensor data
//! follows the data offset without gaps, in index order. Nothing in the file is checksummed.
//! Decoding the types is left to the kernels that know them; one without a kernel is refused by
//! name when the model is planned.

mod error;

pub use error::HfqError;

use crate::hf::{self, Json};
use crate::source::{FileHead, Format, ModelTable, OpenOptions, ReadError, SourceFile, TensorType};
use std::path::Path;

/// First bytes of a file.
pub const MAGIC: [u8; 4] = *b"HFQM";
const VERSION: u32 = 1;
const FIXED_BYTES: u64 = 32;
/// Longest part before the tensor data that is read, in bytes.
pub const MAX_HEAD_BYTES: u64 = 64 << 20;
/// Tensor data starts at a multiple of this many bytes.
const DATA_ALIGNMENT: u64 = 4096;
/// Fewest bytes of an index entry: name length, type, dimension count, group size, byte size.
const MIN_ENTRY_BYTES: u64 = 2 + 1 + 1 + 4 + 8;

/// Element types: number in the file, name, elements and bytes of a group.
pub const TYPES: &[(u8, TensorType)] = &[
    (1, TensorType::new("F16", 1, 2)),
    (2, TensorType::new("F32", 1, 4)),
    (3, TensorType::new("Q8_0", 32, 34)),
    (4, TensorType::new("Q4_K", 256, 144)),
    (6, TensorType::new("HFQ4_G256", 256, 136)),
    (7, TensorType::new("HFQ4_G128", 128, 72)),
    (8, TensorType::new("HFQ6_G256", 256, 200)),
    (9, TensorType::new("HFQ2_G256", 256, 72)),
    (10, TensorType::new("HFQ2_G128", 128, 40)),
    (11, TensorType::new("HFQ3_G256", 256, 104)),
    (12, TensorType::new("HFQ3_G128", 128, 56)),
    (13, TensorType::new("MQ4_G256", 256, 136)),
    (15, TensorType::new("MQ6_G256", 256, 200)),
    (16, TensorType::new("BF16", 1, 2)),
    (17, TensorType::new("MQ3_G256", 256, 104)),
    (18, TensorType::new("MQ2_G256", 256, 72)),
    (19, TensorType::new("MQ2_G256_LLOYD", 256, 72)),
    (20, TensorType::new("MQ3_G256_LLOYD", 256, 112)),
    (30, TensorType::new("MQ4_G256_LLOYD", 256, 160)),
    (31, TensorType::new("MQ5_G256", 256, 168)),
    (40, TensorType::new("TQ2_G128", 128, 34)),
    (41, TensorType::new("BQ1_G128", 128, 18)),
    (44, TensorType::new("MQ4_G256_V2", 256, 136)),
    (45, TensorType::new("MQ4C_G256", 256, 136)),
    (47, TensorType::new("MQ6_G256_V2", 256, 200)),
    (48, TensorType::new("MQ5_G256_V2", 256, 168)),
    (49, TensorType::new("MQ3_G256_V2", 256, 104)),
    (50, TensorType::new("MQ2_G256_V2", 256, 72)),
    (51, TensorType::new("MQ2_G256_LLOYD_U", 256, 72)),
];

/// Types whose size is no matter of groups alone, or that are no weights: number and name. They are
/// refused by name.
pub const UNSIZED_TYPES: &[(u8, &str)] = &[
    (0, "Q4F16_G64"),
    (5, "Q8HFQ"),
    (14, "MQ8"),
    (21, "HFP4_G32"),
    (22, "TID_I32"),
    (24, "MFP4_G32"),
    (28, "PARO4_G128"),
    (29, "PARO4_G128_T"),
    (38, "MQ2_G256_GL"),
    (39, "MQ3_G256_GL"),
];

/// Architectures: number in the file, and the `model_type`s of the configuration that it goes with.
/// 1 was also written for Qwen2 before it had a number of its own.
pub const ARCHITECTURES: &[(u32, &[&str])] = &[
    (1, &["qwen3", "qwen2"]),
    (5, &["qwen3_5", "qwen3_5_text"]),
    (7, &["qwen2"]),
    (11, &["lfm2"]),
];

/// What a file says about one tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// Hugging Face name.
    pub name: String,
    /// Element type.
    pub ty: TensorType,
    /// Dimensions, the contiguous one last.
    pub shape: Vec<u64>,
    /// First byte, from the start of the file.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
}

/// The head of a file.
#[derive(Debug)]
pub struct HfqHeader {
    /// Architecture number.
    pub architecture: u32,
    /// Tensors in index order.
    pub tensors: Vec<TensorInfo>,
    /// Offset of the tensor data.
    pub data_offset: u64,
    /// Length of the file; where it may end early, at least what the tensors need.
    pub file_bytes: u64,
    metadata: Json,
}

/// Opens a file as a model.
///
/// # Errors
/// [`HfqError`], or what is wrong with the configuration in it.
pub(crate) fn open(
    path: &Path,
    options: OpenOptions,
) -> Result<(SourceFile, ModelTable), ReadError> {
    let file = SourceFile::open(path)?;
    let header = HfqHeader::read(&file, options.header_only)?;
    let table = header.table(options)?;
    Ok((file, table))
}

impl HfqHeader {
    /// Reads the head of an open file. With `header_only` the file may end anywhere after it.
    ///
    /// # Errors
    /// [`HfqError`], or that the file cannot be read.
    pub fn read(file: &SourceFile, header_only: bool) -> Result<Self, ReadError> {
        let have = file.bytes();
        let mut fixed = vec![0; FIXED_BYTES.min(have) as usize];
        file.read_at(0, &mut fixed)?;
        let (_, data_offset) = offsets(&fixed, have)?;
        let mut head = vec![0; data_offset as usize];
        file.read_at(0, &mut head)?;
        Ok(Self::parse(&head, have, header_only)?)
    }

    /// Parses everything before the data of a file of `file_bytes`.
    ///
    /// # Errors
    /// [`HfqError`].
    pub fn parse(head: &[u8], file_bytes: u64, header_only: bool) -> Result<Self, HfqError> {
        let (metadata_at, data_offset) = offsets(head, file_bytes)?;
        let mut at = Cursor { head, at: 4 };
        let version = at.u32("version")?;
        if version != VERSION {
            return Err(HfqError::Version { found: version });
        }
        let architecture = at.u32("architecture")?;
        let count = at.u32("tensor count")?;
        at.at = metadata_at as usize;
        let metadata = at.json()?;
        let index_at = at.at;
        let again = at.u32("tensor count of the index")?;
        if again != count {
            return Err(HfqError::Count {
                header: count,
                offset: index_at as u64,
                index: again,
            });
        }
        at.need(u64::from(count) * MIN_ENTRY_BYTES, "tensor index")?;
        let mut tensors = Vec::with_capacity(count as usize);
        let mut end = data_offset;
        for _ in 0..count {
            let tensor = at.tensor(end)?;
            end = tensor.offset + tensor.bytes;
            if end > file_bytes && !header_only {
                return Err(HfqError::PastEnd {
                    tensor: tensor.name,
                    end,
                    file_bytes,
                });
            }
            tensors.push(tensor);
        }
        if at.at as u64 > data_offset {
            return Err(HfqError::IndexEnd {
                end: at.at as u64,
                data_offset,
            });
        }
        if file_bytes > end && !header_only {
            return Err(HfqError::Trailing { end, file_bytes });
        }
        Ok(Self {
            architecture,
            tensors,
            data_offset,
            file_bytes: file_bytes.max(end),
            metadata,
        })
    }

    fn table(&self, options: OpenOptions) -> Result<ModelTable, ReadError> {
        let config = self.metadata.some("config").ok_or(HfqError::NoConfig)?;
        let found = self.architecture;
        let Some((_, kinds)) = ARCHITECTURES.iter().find(|row| row.0 == found) else {
            let known = ARCHITECTURES.iter().map(|row| row.0.to_string());
            let known = known.collect::<Vec<_>>().join(", ");
            return Err(HfqError::Architecture { found, known }.into());
        };
        let model_type = config.some("model_type").and_then(Json::text);
        if let Some(stated) = model_type.filter(|stated| !kinds.contains(stated)) {
            return Err(HfqError::OtherArchitecture {
                found,
                kinds: kinds.join(" or "),
                model_type: stated.to_owned(),
            }
            .into());
        }
        let tensors = self.tensors.iter().map(|tensor| hf::Stored {
            name: tensor.name.clone(),
            ty: tensor.ty,
            shape: tensor.shape.clone(),
            offset: tensor.offset,
            bytes: tensor.bytes,
        });
        let files = vec![FileHead {
            bytes: self.file_bytes,
            header_bytes: self.data_offset,
        }];
        let tensors = tensors.collect();
        hf::table(Format::Hfq, config, None, tensors, files, options)
    }
}

/// Metadata and data offset of a file, checked.
fn offsets(head: &[u8], file_bytes: u64) -> Result<(u64, u64), HfqError> {
    if head.get(..4) != Some(&MAGIC) {
        let start = head.get(..4.min(head.len())).unwrap_or_default();
        return Err(HfqError::Magic {
            found: start.escape_ascii().to_string(),
        });
    }
    let mut at = Cursor { head, at: 16 };
    let (metadata, data) = (at.u64("metadata offset")?, at.u64("data offset")?);
    let most = MAX_HEAD_BYTES.min(file_bytes);
    if metadata < FIXED_BYTES || metadata > data {
        return Err(HfqError::Offset {
            what: "metadata offset",
            offset: 16,
            found: metadata,
            rule: format!("from {FIXED_BYTES} to the data offset {data}"),
        });
    }
    if data > most || !data.is_multiple_of(DATA_ALIGNMENT) {
        return Err(HfqError::Offset {
            what: "data offset",
            offset: 24,
            found: data,
            rule: format!("a multiple of {DATA_ALIGNMENT} up to {most}"),
        });
    }
    Ok((metadata, data))
}

struct Cursor<'a> {
    head: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn rest(&self) -> &'a [u8] {
        self.head.get(self.at..).unwrap_or_default()
    }

    fn need(&self, need: u64, what: &'static str) -> Result<(), HfqError> {
        let have = self.rest().len() as u64;
        if need <= have {
            return Ok(());
        }
        Err(HfqError::Truncated {
            offset: self.at as u64,
            what,
            need,
            have,
        })
    }

    fn take(&mut self, len: usize, what: &'static str) -> Result<&'a [u8], HfqError> {
        self.need(len as u64, what)?;
        let taken = self.rest().get(..len).unwrap_or_default();
        self.at += len;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], HfqError> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N, what)?);
        Ok(out)
    }

    fn u32(&mut self, what: &'static str) -> Result<u32, HfqError> {
        self.array(what).map(u32::from_le_bytes)
    }

    fn u64(&mut self, what: &'static str) -> Result<u64, HfqError> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// One JSON value, which ends where its top level closes.
    fn json(&mut self) -> Result<Json, HfqError> {
        let mut values = serde_json::Deserializer::from_slice(self.rest()).into_iter();
        let offset = self.at as u64;
        let message = match values.next() {
            Some(Ok(json @ Json::Object(_))) => {
                self.at += values.byte_offset();
                return Ok(json);
            }
            Some(Ok(other)) => format!("{} instead of an object", other.shown()),
            Some(Err(error)) => error.to_string(),
            None => "nothing there".to_owned(),
        };
        Err(HfqError::Json { offset, message })
    }

    /// One entry of the index; its data starts at `start`.
    fn tensor(&mut self, start: u64) -> Result<TensorInfo, HfqError> {
        let offset = self.at as u64;
        let length = u16::from_le_bytes(self.array("name length")?);
        let name = self.take(length.into(), "tensor name")?;
        let Some(name) = std::str::from_utf8(name)
            .ok()
            .filter(|name| !name.is_empty())
        else {
            let found = name.escape_ascii().to_string();
            return Err(HfqError::Name { offset, found });
        };
        let name = name.to_owned();
        let [number, dims] = self.array("type and dimension count")?;
        let Some((_, ty)) = TYPES.iter().find(|row| row.0 == number) else {
            let known = TYPES
                .iter()
                .map(|row| format!("{} {}", row.0, row.1.name()));
            let named = UNSIZED_TYPES.iter().find(|row| row.0 == number);
            return Err(HfqError::Type {
                tensor: name,
                found: match named {
                    Some((number, name)) => format!("{number} {name}"),
                    None => number.to_string(),
                },
                known: known.collect::<Vec<_>>().join(", "),
            });
        };
        let mut shape = Vec::with_capacity(dims.into());
        for _ in 0..dims {
            shape.push(u64::from(self.u32("dimension")?));
        }
        let group = self.u32("group size")?;
        let stated = self.u64("byte size")?;
        let contiguous_first: Vec<u64> = shape.iter().rev().copied().collect();
        let bytes = ty.bytes(&contiguous_first).filter(|_| !shape.contains(&0));
        if bytes != Some(stated) || start.checked_add(stated).is_none() {
            return Err(HfqError::Size {
                tensor: name,
                ty: ty.name(),
                shape,
                stated,
                need: bytes,
            });
        }
        if ty.block_elements() > 1 && u64::from(group) != ty.block_elements() {
            return Err(HfqError::Group {
                tensor: name,
                ty: ty.name(),
                found: group,
                expected: ty.block_elements(),
            });
        }
        Ok(TensorInfo {
            name,
            ty: *ty,
            shape,
            offset: start,
            bytes: stated,
        })
    }
}
