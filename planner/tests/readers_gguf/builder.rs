//! A small GGUF writer that can also write what no writer should: every field is free.
//! It remembers where each field went, so that tests can check the offsets of errors.

use std::collections::HashMap;

/// One metadata entry as raw parts.
#[derive(Debug, Clone)]
pub struct RawEntry {
    pub key: Vec<u8>,
    pub ty: u32,
    pub payload: Vec<u8>,
}

/// One tensor record as raw parts.
#[derive(Debug, Clone)]
pub struct RawTensor {
    pub name: Vec<u8>,
    pub dims: Vec<u64>,
    pub ty: u32,
    /// Offset from the start of the data.
    pub offset: u64,
}

#[derive(Debug, Clone)]
pub struct Builder {
    pub magic: [u8; 4],
    pub version: u32,
    /// Written instead of the true counts, where given.
    pub tensor_count: Option<u64>,
    pub entry_count: Option<u64>,
    pub entries: Vec<RawEntry>,
    pub tensors: Vec<RawTensor>,
    /// Where the data starts, as a multiple.
    pub alignment: u64,
    pub data: Vec<u8>,
}

/// A finished file and where its fields stand.
pub struct Built {
    pub bytes: Vec<u8>,
    pub marks: HashMap<String, u64>,
}

pub fn string(text: &[u8]) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text].concat()
}

/// Payload of an array: element type, count, elements.
pub fn array(ty: u32, count: u64, elements: &[u8]) -> Vec<u8> {
    [&ty.to_le_bytes()[..], &count.to_le_bytes(), elements].concat()
}

impl Default for Builder {
    fn default() -> Self {
        Builder {
            magic: *b"GGUF",
            version: 3,
            tensor_count: None,
            entry_count: None,
            entries: Vec::new(),
            tensors: Vec::new(),
            alignment: 32,
            data: Vec::new(),
        }
    }
}

impl Builder {
    /// A small valid file: three entries, two tensors.
    pub fn small() -> Builder {
        let mut builder = Builder::default();
        builder.entry("general.architecture", 8, &string(b"qwen3"));
        builder.entry("flag", 7, &[1]);
        builder.entry("list", 9, &array(4, 2, &[1, 0, 0, 0, 2, 0, 0, 0]));
        builder.tensor("a", &[64, 2], 8, 0);
        builder.tensor("b", &[5], 0, 160);
        builder.data = (0..180u8).collect();
        builder
    }

    pub fn entry(&mut self, key: &str, ty: u32, payload: &[u8]) -> &mut Builder {
        self.entries.push(RawEntry {
            key: key.into(),
            ty,
            payload: payload.to_vec(),
        });
        self
    }

    pub fn tensor(&mut self, name: &str, dims: &[u64], ty: u32, offset: u64) -> &mut Builder {
        self.tensors.push(RawTensor {
            name: name.into(),
            dims: dims.to_vec(),
            ty,
            offset,
        });
        self
    }

    pub fn build(&self) -> Built {
        let mut bytes = Vec::new();
        let mut marks = HashMap::new();
        bytes.extend(self.magic);
        bytes.extend(self.version.to_le_bytes());
        marks.insert("tensor count".to_owned(), bytes.len() as u64);
        bytes.extend(
            self.tensor_count
                .unwrap_or(self.tensors.len() as u64)
                .to_le_bytes(),
        );
        marks.insert("entry count".to_owned(), bytes.len() as u64);
        bytes.extend(
            self.entry_count
                .unwrap_or(self.entries.len() as u64)
                .to_le_bytes(),
        );
        marks.insert("entries".to_owned(), bytes.len() as u64);
        for (index, entry) in self.entries.iter().enumerate() {
            let mut mark = |field: &str, at: usize| {
                marks.insert(format!("entry {index} {field}"), at as u64);
            };
            mark("key", bytes.len());
            bytes.extend(string(&entry.key));
            mark("type", bytes.len());
            bytes.extend(entry.ty.to_le_bytes());
            mark("value", bytes.len());
            bytes.extend(&entry.payload);
        }
        for (index, tensor) in self.tensors.iter().enumerate() {
            let mut mark = |field: &str, at: usize| {
                marks.insert(format!("tensor {index} {field}"), at as u64);
            };
            mark("record", bytes.len());
            bytes.extend(string(&tensor.name));
            mark("dimension count", bytes.len());
            bytes.extend((tensor.dims.len() as u32).to_le_bytes());
            mark("dims", bytes.len());
            for dim in &tensor.dims {
                bytes.extend(dim.to_le_bytes());
            }
            mark("type", bytes.len());
            bytes.extend(tensor.ty.to_le_bytes());
            mark("offset", bytes.len());
            bytes.extend(tensor.offset.to_le_bytes());
        }
        marks.insert("header end".to_owned(), bytes.len() as u64);
        bytes.resize(bytes.len().next_multiple_of(self.alignment as usize), 0);
        marks.insert("data".to_owned(), bytes.len() as u64);
        bytes.extend(&self.data);
        Built { bytes, marks }
    }
}
