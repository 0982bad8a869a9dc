//! Own reader of the head of a safetensors file: u64 length, a JSON object, then tensor data.
//!
//! The format as its README states it: every byte of the data belongs to exactly one tensor, in any
//! order. What the names mean is left to `hf`.

mod error;

pub use error::SafetensorsError;

use crate::hf::Json;
use crate::source::{ReadError, SourceFile, TensorType};

/// Longest header that is read, in bytes. Published shards have a few MiB at most.
pub const MAX_HEADER_BYTES: u64 = 32 << 20;
/// Bytes of the length before the header.
const LENGTH_BYTES: u64 = 8;
/// Most elements of a tensor.
const MAX_ELEMENTS: u64 = 1 << 40;
/// Most dimensions of a tensor.
const MAX_DIMENSIONS: usize = 8;

/// The element types of the format (safetensors, `Dtype`): name and bytes of an element.
pub const TYPES: &[TensorType] = &[
    TensorType::new("BOOL", 1, 1),
    TensorType::new("U8", 1, 1),
    TensorType::new("I8", 1, 1),
    TensorType::new("F8_E5M2", 1, 1),
    TensorType::new("F8_E4M3", 1, 1),
    TensorType::new("F8_E8M0", 1, 1),
    TensorType::new("I16", 1, 2),
    TensorType::new("U16", 1, 2),
    TensorType::new("F16", 1, 2),
    TensorType::new("BF16", 1, 2),
    TensorType::new("I32", 1, 4),
    TensorType::new("U32", 1, 4),
    TensorType::new("F32", 1, 4),
    TensorType::new("C64", 1, 8),
    TensorType::new("F64", 1, 8),
    TensorType::new("I64", 1, 8),
    TensorType::new("U64", 1, 8),
];

/// What a file says about one tensor. All checks have passed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// Name, unique in the file.
    pub name: String,
    /// Element type.
    pub ty: TensorType,
    /// Dimensions as written, the contiguous one last.
    pub shape: Vec<u64>,
    /// First byte, from the start of the file.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
}

/// The head of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SafetensorsHeader {
    /// Tensors in the order of the header.
    pub tensors: Vec<TensorInfo>,
    /// Offset of the tensor data.
    pub data_offset: u64,
    /// Length of the file; where it may end early, at least what the tensors need.
    pub file_bytes: u64,
}

impl SafetensorsHeader {
    /// Reads the head of an open file. With `header_only` the file may end anywhere after it.
    ///
    /// # Errors
    /// [`SafetensorsError`], or that the file cannot be read.
    pub fn read(file: &SourceFile, header_only: bool) -> Result<Self, ReadError> {
        let have = file.bytes();
        let mut length = [0; LENGTH_BYTES as usize];
        if have < LENGTH_BYTES {
            return Err(SafetensorsError::Short { have }.into());
        }
        file.read_at(0, &mut length)?;
        let length = Self::length(u64::from_le_bytes(length), have)?;
        let mut header = vec![0; length as usize];
        file.read_at(LENGTH_BYTES, &mut header)?;
        Ok(Self::parse(&header, have, header_only)?)
    }

    /// The length of the header, checked against limit and file.
    fn length(stated: u64, have: u64) -> Result<u64, SafetensorsError> {
        if stated > MAX_HEADER_BYTES {
            return Err(SafetensorsError::HeaderLimit {
                found: stated,
                limit: MAX_HEADER_BYTES,
            });
        }
        if stated > have - LENGTH_BYTES {
            return Err(SafetensorsError::HeaderCut {
                stated,
                have: have - LENGTH_BYTES,
            });
        }
        Ok(stated)
    }

    /// Parses the JSON object of a file of `file_bytes`.
    ///
    /// # Errors
    /// [`SafetensorsError`].
    pub fn parse(
        header: &[u8],
        file_bytes: u64,
        header_only: bool,
    ) -> Result<Self, SafetensorsError> {
        let json: Json =
            serde_json::from_slice(header).map_err(|error| SafetensorsError::Json {
                message: error.to_string(),
            })?;
        let Json::Object(fields) = json else {
            let found = json.shown();
            return Err(SafetensorsError::NoObject { found });
        };
        let data_offset = LENGTH_BYTES + header.len() as u64;
        let mut tensors = Vec::with_capacity(fields.len());
        for (name, fields) in fields {
            // Free text about the file; nothing in it changes the tensors.
            if name != "__metadata__" {
                tensors.push(tensor(name, &fields, data_offset)?);
            }
        }
        let end = disjoint(&tensors, data_offset)?;
        let (end, file_bytes) = match header_only {
            true => (end, file_bytes.max(end)),
            false => (end, file_bytes),
        };
        let last = tensors.iter().max_by_key(|t| t.offset + t.bytes);
        if let Some(last) = last.filter(|_| end > file_bytes) {
            return Err(SafetensorsError::PastEnd {
                tensor: last.name.clone(),
                end,
                file_bytes,
            });
        }
        if end < file_bytes && !header_only {
            return Err(SafetensorsError::Unclaimed {
                from: end,
                to: file_bytes,
            });
        }
        Ok(Self {
            tensors,
            data_offset,
            file_bytes,
        })
    }
}

fn tensor(name: String, fields: &Json, data_offset: u64) -> Result<TensorInfo, SafetensorsError> {
    let field = |what: &'static str, rule: &'static str| {
        let found = fields.get(what).map_or("missing".to_owned(), Json::shown);
        SafetensorsError::Field {
            tensor: name.clone(),
            what,
            found,
            rule,
        }
    };
    let dtype = fields.get("dtype").and_then(Json::text);
    let dtype = dtype.ok_or_else(|| field("dtype", "a text"))?;
    let Some(ty) = TYPES.iter().find(|ty| ty.name() == dtype) else {
        let known: Vec<&str> = TYPES.iter().map(|ty| ty.name()).collect();
        return Err(SafetensorsError::Dtype {
            found: dtype.to_owned(),
            known: known.join(", "),
            tensor: name,
        });
    };
    let numbers = |what| {
        let list = fields.get(what).and_then(Json::list)?;
        list.iter()
            .map(Json::unsigned)
            .collect::<Option<Vec<u64>>>()
    };
    let shape = numbers("shape").filter(|shape| shape.len() <= MAX_DIMENSIONS);
    let shape = shape.ok_or_else(|| field("shape", "a list of at most 8 counts"))?;
    let offsets = numbers("data_offsets");
    let Some([begin, end]) = offsets.as_deref() else {
        return Err(field("data_offsets", "two offsets, begin and end"));
    };
    let elements = shape
        .iter()
        .try_fold(1u64, |product, dim| product.checked_mul(*dim));
    let elements = elements.filter(|elements| *elements <= MAX_ELEMENTS);
    let elements = elements.ok_or_else(|| field("shape", "at most 2^40 elements"))?;
    let need = elements * ty.block_bytes();
    if end.checked_sub(*begin) != Some(need) {
        return Err(SafetensorsError::Size {
            tensor: name,
            begin: *begin,
            end: *end,
            need,
            dtype: ty.name(),
            shape,
        });
    }
    let limit = crate::gguf::limits::MAX_FILE_BYTES;
    if *end > limit {
        return Err(SafetensorsError::PastEnd {
            tensor: name,
            end: *end,
            file_bytes: limit,
        });
    }
    Ok(TensorInfo {
        ty: *ty,
        shape,
        offset: data_offset + begin,
        bytes: need,
        name,
    })
}

/// Demands that the tensors follow each other without gap or overlap; gives the end of the last.
fn disjoint(tensors: &[TensorInfo], data_offset: u64) -> Result<u64, SafetensorsError> {
    let mut order: Vec<&TensorInfo> = tensors.iter().collect();
    order.sort_by_key(|tensor| (tensor.offset, tensor.bytes));
    let (mut end, mut before) = (data_offset, "the header");
    for tensor in order {
        if tensor.offset < end {
            return Err(SafetensorsError::Overlap {
                tensor: tensor.name.clone(),
                start: tensor.offset,
                other: before.to_owned(),
                other_end: end,
            });
        }
        if tensor.offset > end {
            return Err(SafetensorsError::Unclaimed {
                from: end,
                to: tensor.offset,
            });
        }
        (end, before) = (tensor.offset + tensor.bytes, &tensor.name);
    }
    Ok(end)
}
