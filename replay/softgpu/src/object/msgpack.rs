//! A bounded MessagePack reader for the AMDGPU metadata note. It builds a small borrowed tree and
//! refuses extension types, floats and anything deeper or larger than a compiler writes. What the
//! keys mean is left to `metadata`.

use super::error::ObjectError;

/// Deepest nesting accepted; LLVM writes five levels (map, kernels, kernel, args, arg).
const MAX_DEPTH: u32 = 12;
/// Most values accepted in one note: about 1,000 kernels of 20 arguments each.
const MAX_VALUES: u32 = 400_000;

/// One value of the note, borrowing strings from it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value<'a> {
    Nil,
    Bool(bool),
    Uint(u64),
    Int(i64),
    Str(&'a str),
    Bin,
    Array(Vec<Value<'a>>),
    Map(Vec<(Value<'a>, Value<'a>)>),
}

impl<'a> Value<'a> {
    /// The value of string key `key` when this is a map that has it.
    pub(crate) fn get(&self, key: &str) -> Option<&Value<'a>> {
        match self {
            Value::Map(entries) => entries
                .iter()
                .find(|(k, _)| matches!(k, Value::Str(s) if *s == key))
                .map(|(_, v)| v),
            _ => None,
        }
    }

    /// The elements when this is an array.
    pub(crate) fn as_array(&self) -> Option<&[Value<'a>]> {
        if let Value::Array(items) = self {
            Some(items)
        } else {
            None
        }
    }

    /// The text when this is a string.
    pub(crate) fn as_str(&self) -> Option<&'a str> {
        if let Value::Str(text) = self {
            Some(text)
        } else {
            None
        }
    }

    /// The number when this is a non-negative integer.
    pub(crate) fn as_u64(&self) -> Option<u64> {
        if let Value::Uint(number) = self {
            Some(*number)
        } else {
            None
        }
    }

    /// The flag when this is a boolean; LLVM also writes 0 and 1.
    pub(crate) fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(flag) => Some(*flag),
            Value::Uint(0) => Some(false),
            Value::Uint(1) => Some(true),
            _ => None,
        }
    }
}

/// Reads the single value that `bytes` holds; trailing zero padding is allowed, other bytes are
/// not.
pub(crate) fn parse(bytes: &[u8]) -> Result<Value<'_>, ObjectError> {
    let mut reader = Reader {
        bytes,
        at: 0,
        values: 0,
    };
    let value = reader.value(0)?;
    if bytes.iter().skip(reader.at).any(|&byte| byte != 0) {
        return Err(reader.error("bytes follow the metadata map"));
    }
    Ok(value)
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    values: u32,
}

impl<'a> Reader<'a> {
    fn error(&self, what: &'static str) -> ObjectError {
        ObjectError::Metadata {
            offset: self.at,
            what: what.to_owned(),
        }
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], ObjectError> {
        let end = self
            .at
            .checked_add(len)
            .ok_or_else(|| self.error("a length overflows"))?;
        let slice = self
            .bytes
            .get(self.at..end)
            .ok_or_else(|| self.error("the note ends inside a value"))?;
        self.at = end;
        Ok(slice)
    }

    fn uint(&mut self, len: usize) -> Result<u64, ObjectError> {
        Ok(self
            .take(len)?
            .iter()
            .fold(0, |number, &byte| (number << 8) | u64::from(byte)))
    }

    fn len(&mut self, width: usize) -> Result<usize, ObjectError> {
        let len = self.uint(width)?;
        usize::try_from(len).map_err(|_| self.error("a length overflows"))
    }

    fn str(&mut self, len: usize) -> Result<Value<'a>, ObjectError> {
        let bytes = self.take(len)?;
        std::str::from_utf8(bytes)
            .map(Value::Str)
            .map_err(|_| self.error("a string is not UTF-8"))
    }

    fn array(&mut self, len: usize, depth: u32) -> Result<Value<'a>, ObjectError> {
        let mut items = Vec::new();
        for _ in 0..len {
            items.push(self.value(depth + 1)?);
        }
        Ok(Value::Array(items))
    }

    fn map(&mut self, len: usize, depth: u32) -> Result<Value<'a>, ObjectError> {
        let mut entries = Vec::new();
        for _ in 0..len {
            let key = self.value(depth + 1)?;
            entries.push((key, self.value(depth + 1)?));
        }
        Ok(Value::Map(entries))
    }

    fn signed(&mut self, width: u32) -> Result<Value<'a>, ObjectError> {
        let raw = self.uint(width as usize)?;
        let shift = 64 - 8 * width;
        let number = ((raw << shift) as i64) >> shift;
        Ok(u64::try_from(number).map_or(Value::Int(number), Value::Uint))
    }

    // Depth is bounded by MAX_DEPTH, so this recursion cannot exhaust the stack.
    fn value(&mut self, depth: u32) -> Result<Value<'a>, ObjectError> {
        self.values += 1;
        if depth > MAX_DEPTH {
            return Err(self.error("nesting is deeper than 12 levels"));
        }
        if self.values > MAX_VALUES {
            return Err(self.error("more than 400000 values"));
        }
        let tag = self.uint(1)?;
        match tag {
            0x00..=0x7f => Ok(Value::Uint(tag)),
            0x80..=0x8f => self.map((tag & 0xf) as usize, depth),
            0x90..=0x9f => self.array((tag & 0xf) as usize, depth),
            0xa0..=0xbf => self.str((tag & 0x1f) as usize),
            0xc0 => Ok(Value::Nil),
            0xc2 | 0xc3 => Ok(Value::Bool(tag == 0xc3)),
            0xc4..=0xc6 => {
                let len = self.len(1 << (tag - 0xc4))?;
                self.take(len).map(|_| Value::Bin)
            }
            0xcc..=0xcf => self.uint(1 << (tag - 0xcc)).map(Value::Uint),
            0xd0..=0xd3 => self.signed(1 << (tag - 0xd0)),
            0xd9..=0xdb => {
                let len = self.len(1 << (tag - 0xd9))?;
                self.str(len)
            }
            0xdc | 0xdd => {
                let len = self.len(2 << (tag - 0xdc))?;
                self.array(len, depth)
            }
            0xde | 0xdf => {
                let len = self.len(2 << (tag - 0xde))?;
                self.map(len, depth)
            }
            0xe0..=0xff => Ok(Value::Int(i64::from(tag as u8 as i8))),
            _ => Err(self.error("a float, extension or reserved tag")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_kind_llvm_writes() {
        // {"a": [1, 300, -2, true, nil, "xy"]}
        let bytes = [
            0x81, 0xa1, b'a', 0x96, 0x01, 0xcd, 0x01, 0x2c, 0xfe, 0xc3, 0xc0, 0xa2, b'x', b'y',
        ];
        let value = parse(&bytes).unwrap();
        let items = value.get("a").unwrap().as_array().unwrap();
        assert_eq!(items[1].as_u64(), Some(300));
        assert_eq!(items[2], Value::Int(-2));
        assert_eq!(items[3].as_bool(), Some(true));
        assert_eq!(items[5].as_str(), Some("xy"));
    }

    #[test]
    fn refuses_depth_length_and_tags() {
        let rows: &[(&[u8], &str)] = &[
            (&[0x91; 40], "deeper"),
            (&[0xdd, 0xff, 0xff, 0xff, 0xff, 0x01], "ends inside"),
            (&[0xdb, 0xff, 0xff, 0xff, 0xff], "ends inside"),
            (&[0xca, 0, 0, 0, 0], "float"),
            (&[0xc1], "reserved"),
            (&[0xa1, 0xff], "UTF-8"),
            (&[0x01, 0x02], "follow"),
            (&[], "ends inside"),
        ];
        for (bytes, text) in rows {
            let error = parse(bytes).unwrap_err().to_string();
            assert!(error.contains(text), "{bytes:x?}: {error}");
        }
    }
}
