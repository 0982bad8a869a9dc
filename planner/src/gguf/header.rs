//! Parses everything of a GGUF file before the tensor data: versions 2 and 3, little-endian.

use std::collections::HashMap;

use super::error::GgufError;
use super::limits::{
    MAX_ALIGNMENT, MAX_ARRAY_ELEMENTS, MAX_DIMENSIONS, MAX_FILE_BYTES, MAX_KEY_BYTES,
    MAX_KEY_VALUES, MAX_STRING_BYTES, MAX_TENSOR_ELEMENTS, MAX_TENSOR_NAME_BYTES, MAX_TENSORS,
};
use super::source::Source;
use super::types::{GgmlType, REMOVED_TYPES};
use super::value::{Array, Metadata, Value};

/// Alignment of the tensor data where the file does not say.
const DEFAULT_ALIGNMENT: u64 = 32;

/// Smallest record of a key with its value: length, one byte of key, type, one byte of value.
const MIN_KEY_VALUE_BYTES: u64 = 14;
/// Smallest tensor record: length, one byte of name, dimension count, one dimension, type, offset.
const MIN_TENSOR_BYTES: u64 = 33;

/// First bytes of formats that are often mistaken for GGUF, and what to say about them.
const OTHER_MAGICS: &[(&[u8; 4], &str)] = &[
    (
        b"FUGG",
        " (byte-swapped); the file was mangled, fetch it again",
    ),
    (
        b"lmgg",
        ": a GGML file from before GGUF; convert the model again",
    ),
    (
        b"tjgg",
        ": a GGJT file from before GGUF; convert the model again",
    ),
    (
        b"fmgg",
        ": a GGMF file from before GGUF; convert the model again",
    ),
    (
        b"PK\x03\x04",
        ": a ZIP archive, perhaps a PyTorch checkpoint; convert it with convert_hf_to_gguf.py",
    ),
    (
        b"vers",
        ": a Git LFS pointer instead of the model; run git lfs pull",
    ),
    (
        b"<!DO",
        ": an HTML page instead of the model; download it again",
    ),
];

/// What a GGUF file says about one tensor. All checks have passed: the bytes lie inside the file,
/// aligned and disjoint from every other tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// Name, unique in the file.
    pub name: String,
    /// Dimensions in elements, the contiguous one first: a weight `[in, out]`.
    pub dims: Vec<u64>,
    /// Element type.
    pub ty: GgmlType,
    /// Offset of the first byte from the start of the file.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Where the tensor's record stands in the header.
    pub record_offset: u64,
}

impl TensorInfo {
    /// Number of elements.
    #[must_use]
    pub fn elements(&self) -> u64 {
        self.dims.iter().product()
    }

    /// Elements of a row: the contiguous dimension.
    #[must_use]
    pub fn row_elements(&self) -> u64 {
        self.dims.first().copied().unwrap_or(1)
    }

    /// Number of rows: the product of all other dimensions.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.dims.iter().skip(1).product()
    }
}

/// How much of a file must be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// All tensors.
    Whole,
    /// Everything before the tensor data.
    HeaderOnly,
}

/// The head of a GGUF file: all that planning needs.
#[derive(Debug, Clone, PartialEq)]
pub struct GgufHeader {
    /// Format version, 2 or 3.
    pub version: u32,
    /// Metadata.
    pub metadata: Metadata,
    /// Tensors in file order.
    pub tensors: Vec<TensorInfo>,
    /// Alignment of tensors in bytes, a power of two.
    pub alignment: u64,
    /// Offset of the tensor data from the start of the file.
    pub data_offset: u64,
    /// Length of the whole file in bytes.
    pub file_bytes: u64,
    by_name: HashMap<String, usize>,
}

impl GgufHeader {
    /// Parses the head of a file. `bytes` are its first bytes, at least the whole header, or all of it;
    /// `file_bytes` is the length of the whole file, against which tensor offsets are checked.
    ///
    /// # Errors
    /// [`GgufError`]: [`GgufError::HeaderIncomplete`] if more bytes would help, any other variant if not.
    pub fn parse(bytes: &[u8], file_bytes: u64) -> Result<GgufHeader, GgufError> {
        let source = &mut Source::slice(bytes, file_bytes.max(bytes.len() as u64));
        Self::read(source, Extent::Whole)
    }

    pub(super) fn read(source: &mut Source<'_>, extent: Extent) -> Result<GgufHeader, GgufError> {
        let version = read_version(source)?;
        let tensor_count = source.count("tensor count", MAX_TENSORS)?;
        let key_count = source.count("metadata entry count", MAX_KEY_VALUES)?;
        let least = key_count * MIN_KEY_VALUE_BYTES + tensor_count * MIN_TENSOR_BYTES;
        source.check_left(least, "metadata and tensor records")?;
        let metadata = read_metadata(source, key_count)?;
        let alignment = alignment(&metadata)?;
        let (records, by_name) = read_records(source, tensor_count)?;
        let data_offset = source.offset().next_multiple_of(alignment);
        let limit = match extent {
            Extent::Whole => source.file_bytes(),
            Extent::HeaderOnly => MAX_FILE_BYTES,
        };
        let tensors = place(records, alignment, data_offset, limit)?;
        let end = tensors.iter().map(|t| t.offset + t.bytes).max();
        let file_bytes = source.file_bytes().max(end.unwrap_or(0));
        Ok(GgufHeader {
            version,
            metadata,
            tensors,
            alignment,
            data_offset,
            file_bytes,
            by_name,
        })
    }

    /// The tensor called `name`.
    ///
    /// # Errors
    /// [`GgufError::MissingTensor`].
    pub fn tensor(&self, name: &str) -> Result<&TensorInfo, GgufError> {
        self.find_tensor(name)
            .ok_or_else(|| GgufError::MissingTensor {
                tensor: name.to_owned(),
            })
    }

    /// The tensor called `name`, if there is one.
    #[must_use]
    pub fn find_tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.get(*self.by_name.get(name)?)
    }

    /// `general.architecture`, for example `qwen3`.
    ///
    /// # Errors
    /// [`GgufError::MissingKey`], [`GgufError::KeyType`].
    pub fn architecture(&self) -> Result<&str, GgufError> {
        self.metadata.get("general.architecture")
    }
}

fn read_version(source: &mut Source<'_>) -> Result<u32, GgufError> {
    let mut found = [0; 4];
    found.copy_from_slice(source.take(4, "magic")?);
    if &found != b"GGUF" {
        let hint = OTHER_MAGICS.iter().find(|(magic, _)| **magic == found);
        let hint = hint.map_or(
            "; give the path of a GGUF or HFQ file, or of a Hugging Face folder",
            |(_, hint)| hint,
        );
        return Err(GgufError::Magic { found, hint });
    }
    let raw = source.u32("version")?;
    let swapped = raw.swap_bytes();
    match raw {
        2 | 3 => Ok(raw),
        1 => Err(GgufError::VersionOne),
        // A version is a small number, so its bytes are in the other half when the order is swapped.
        _ if raw & 0xffff == 0 && raw != 0 => Err(GgufError::BigEndian { raw, swapped }),
        _ => Err(GgufError::Version { found: raw }),
    }
}

fn read_metadata(source: &mut Source<'_>, count: u64) -> Result<Metadata, GgufError> {
    let mut metadata = Metadata::default();
    for _ in 0..count {
        let offset = source.offset();
        let key = source.string("metadata key", MAX_KEY_BYTES)?.to_owned();
        if key.is_empty() {
            return Err(GgufError::EmptyName {
                offset,
                what: "metadata key",
            });
        }
        let type_offset = source.offset();
        let ty = source.u32("value type")?;
        let value = read_value(source, &key, ty, type_offset)?;
        if let Err(first) = metadata.insert(key.clone(), offset, value) {
            return Err(GgufError::DuplicateKey { offset, key, first });
        }
    }
    Ok(metadata)
}

fn read_value(
    source: &mut Source<'_>,
    key: &str,
    ty: u32,
    type_offset: u64,
) -> Result<Value, GgufError> {
    if ty == 9 {
        return read_array(source, key).map(Value::Array);
    }
    if ty == 8 {
        return Ok(Value::String(
            source.string("string value", MAX_STRING_BYTES)?.to_owned(),
        ));
    }
    // A scalar is an array of one without its count.
    let one = read_elements(source, key, ty, type_offset, 1)?;
    let scalar = match one {
        Array::U8(v) => v.first().copied().map(Value::U8),
        Array::I8(v) => v.first().copied().map(Value::I8),
        Array::U16(v) => v.first().copied().map(Value::U16),
        Array::I16(v) => v.first().copied().map(Value::I16),
        Array::U32(v) => v.first().copied().map(Value::U32),
        Array::I32(v) => v.first().copied().map(Value::I32),
        Array::F32(v) => v.first().copied().map(Value::F32),
        Array::Bool(v) => v.first().copied().map(Value::Bool),
        Array::U64(v) => v.first().copied().map(Value::U64),
        Array::I64(v) => v.first().copied().map(Value::I64),
        Array::F64(v) => v.first().copied().map(Value::F64),
        Array::String(_) => None,
    };
    scalar.ok_or_else(|| GgufError::ValueType {
        offset: type_offset,
        key: key.to_owned(),
        found: ty,
    })
}

fn read_array(source: &mut Source<'_>, key: &str) -> Result<Array, GgufError> {
    let type_offset = source.offset();
    let ty = source.u32("array element type")?;
    if ty == 9 {
        return Err(GgufError::NestedArray {
            offset: type_offset,
            key: key.to_owned(),
        });
    }
    let count = source.count("array length", MAX_ARRAY_ELEMENTS)?;
    read_elements(source, key, ty, type_offset, count)
}

fn read_elements(
    source: &mut Source<'_>,
    key: &str,
    ty: u32,
    type_offset: u64,
    count: u64,
) -> Result<Array, GgufError> {
    Ok(match ty {
        0 => Array::U8(source.numbers(count, u8::from_le_bytes)?),
        1 => Array::I8(source.numbers(count, i8::from_le_bytes)?),
        2 => Array::U16(source.numbers(count, u16::from_le_bytes)?),
        3 => Array::I16(source.numbers(count, i16::from_le_bytes)?),
        4 => Array::U32(source.numbers(count, u32::from_le_bytes)?),
        5 => Array::I32(source.numbers(count, i32::from_le_bytes)?),
        6 => Array::F32(source.numbers(count, f32::from_le_bytes)?),
        7 => Array::Bool(read_bools(source, key, count)?),
        8 => Array::String(source.strings(count, MAX_STRING_BYTES)?),
        10 => Array::U64(source.numbers(count, u64::from_le_bytes)?),
        11 => Array::I64(source.numbers(count, i64::from_le_bytes)?),
        12 => Array::F64(source.numbers(count, f64::from_le_bytes)?),
        found => {
            return Err(GgufError::ValueType {
                offset: type_offset,
                key: key.to_owned(),
                found,
            });
        }
    })
}

fn read_bools(source: &mut Source<'_>, key: &str, count: u64) -> Result<Vec<bool>, GgufError> {
    let offset = source.offset();
    let bytes = source.numbers(count, u8::from_le_bytes)?;
    if let Some(index) = bytes.iter().position(|byte| *byte > 1) {
        let found = bytes.get(index).copied().unwrap_or_default();
        return Err(GgufError::Bool {
            offset: offset + index as u64,
            key: key.to_owned(),
            found,
        });
    }
    Ok(bytes.into_iter().map(|byte| byte == 1).collect())
}

fn alignment(metadata: &Metadata) -> Result<u64, GgufError> {
    const KEY: &str = "general.alignment";
    let Some(found) = metadata.opt::<u64>(KEY)? else {
        return Ok(DEFAULT_ALIGNMENT);
    };
    if !found.is_power_of_two() || found > MAX_ALIGNMENT {
        let offset = metadata.entry(KEY).map_or(0, |entry| entry.offset);
        return Err(GgufError::Alignment {
            offset,
            found,
            limit: MAX_ALIGNMENT,
        });
    }
    Ok(found)
}

/// A tensor record before its offset is resolved.
struct Record {
    info: TensorInfo,
    /// Where the offset field stands.
    offset_at: u64,
    /// Offset from the start of the data.
    relative: u64,
}

fn read_records(
    source: &mut Source<'_>,
    count: u64,
) -> Result<(Vec<Record>, HashMap<String, usize>), GgufError> {
    let mut records: Vec<Record> = Vec::with_capacity(count as usize);
    let mut by_name = HashMap::with_capacity(count as usize);
    for _ in 0..count {
        let record = read_record(source)?;
        let (name, offset) = (record.info.name.clone(), record.info.record_offset);
        if let Some(first) = by_name.insert(name.clone(), records.len()) {
            let first = records
                .get(first)
                .map_or(0, |record| record.info.record_offset);
            return Err(GgufError::DuplicateTensor {
                offset,
                tensor: name,
                first,
            });
        }
        records.push(record);
    }
    Ok((records, by_name))
}

fn read_record(source: &mut Source<'_>) -> Result<Record, GgufError> {
    let record_offset = source.offset();
    let name = source
        .string("tensor name", MAX_TENSOR_NAME_BYTES)?
        .to_owned();
    if name.is_empty() {
        return Err(GgufError::EmptyName {
            offset: record_offset,
            what: "tensor name",
        });
    }
    let offset = source.offset();
    let found = source.u32("dimension count")?;
    if found == 0 || found > MAX_DIMENSIONS {
        return Err(GgufError::DimensionCount {
            offset,
            tensor: name,
            found,
            limit: MAX_DIMENSIONS,
        });
    }
    let dims_at = source.offset();
    let dims = source.numbers(u64::from(found), u64::from_le_bytes)?;
    let elements = element_count(&name, &dims, dims_at)?;
    let type_at = source.offset();
    let ty = tensor_type(source.u32("tensor type")?, &name, type_at)?;
    let row = dims.first().copied().unwrap_or(1);
    let bytes = match ty.row_bytes(row) {
        // At most 2^40 elements of at most 8 bytes: no overflow.
        Some(row_bytes) => row_bytes * (elements / row),
        None => {
            let (block, ty) = (ty.block_elements(), ty.name());
            return Err(GgufError::RowBlocks {
                offset: dims_at,
                tensor: name,
                row,
                block,
                ty,
            });
        }
    };
    let offset_at = source.offset();
    let relative = source.u64("tensor offset")?;
    let info = TensorInfo {
        name,
        dims,
        ty,
        offset: 0,
        bytes,
        record_offset,
    };
    Ok(Record {
        info,
        offset_at,
        relative,
    })
}

fn element_count(tensor: &str, dims: &[u64], dims_at: u64) -> Result<u64, GgufError> {
    if let Some(zero) = dims.iter().position(|dim| *dim == 0) {
        let offset = dims_at + 8 * zero as u64;
        return Err(GgufError::ZeroDimension {
            offset,
            tensor: tensor.to_owned(),
            dims: dims.to_vec(),
        });
    }
    let product = dims
        .iter()
        .try_fold(1u64, |product, dim| product.checked_mul(*dim));
    product
        .filter(|product| *product <= MAX_TENSOR_ELEMENTS)
        .ok_or_else(|| GgufError::ElementCount {
            offset: dims_at,
            tensor: tensor.to_owned(),
            dims: dims.to_vec(),
            limit: MAX_TENSOR_ELEMENTS,
        })
}

fn tensor_type(found: u32, tensor: &str, offset: u64) -> Result<GgmlType, GgufError> {
    GgmlType::from_id(found).ok_or_else(|| {
        let tensor = tensor.to_owned();
        match REMOVED_TYPES.iter().find(|(id, ..)| *id == found) {
            Some((_, name, instead)) => GgufError::RemovedType {
                offset,
                tensor,
                found,
                name,
                instead,
            },
            None => GgufError::UnknownType {
                offset,
                tensor,
                found,
            },
        }
    })
}

/// Resolves every offset and refuses tensors that are misaligned, outside the file, or overlapping.
fn place(
    records: Vec<Record>,
    alignment: u64,
    data_offset: u64,
    file_bytes: u64,
) -> Result<Vec<TensorInfo>, GgufError> {
    let mut tensors = Vec::with_capacity(records.len());
    let mut order = Vec::with_capacity(records.len());
    for (
        index,
        Record {
            mut info,
            offset_at,
            relative,
        },
    ) in records.into_iter().enumerate()
    {
        if !relative.is_multiple_of(alignment) {
            let (offset, tensor) = (offset_at, info.name);
            return Err(GgufError::Misaligned {
                offset,
                tensor,
                found: relative,
                alignment,
            });
        }
        let start = data_offset.saturating_add(relative);
        let end = start.saturating_add(info.bytes);
        if end > file_bytes {
            return Err(GgufError::PastEnd {
                offset: offset_at,
                tensor: info.name,
                end,
                file_bytes,
            });
        }
        info.offset = start;
        order.push((start, end, index, offset_at));
        tensors.push(info);
    }
    order.sort_unstable();
    for pair in order.windows(2) {
        let [(_, other_end, other, _), (start, _, index, offset)] = *pair else {
            continue;
        };
        if start < other_end {
            let name = |index: usize| {
                tensors
                    .get(index)
                    .map_or(String::new(), |t: &TensorInfo| t.name.clone())
            };
            let (tensor, other) = (name(index), name(other));
            return Err(GgufError::Overlap {
                offset,
                tensor,
                start,
                other,
                other_end,
            });
        }
    }
    Ok(tensors)
}
