//! Metadata values of a GGUF file and the typed getters over them.

use std::collections::BTreeMap;

use super::error::GgufError;

/// A list of strings in one allocation: a vocabulary has some 250,000.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StringList {
    text: String,
    ends: Vec<usize>,
}

impl StringList {
    /// Appends one string.
    pub fn push(&mut self, text: &str) {
        self.text.push_str(text);
        self.ends.push(self.text.len());
    }

    /// Number of strings.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no string.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The string at `index`.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&str> {
        let end = *self.ends.get(index)?;
        let start = match index {
            0 => 0,
            _ => *self.ends.get(index - 1)?,
        };
        self.text.get(start..end)
    }

    /// The strings in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).filter_map(|index| self.get(index))
    }
}

impl<'a> FromIterator<&'a str> for StringList {
    fn from_iter<I: IntoIterator<Item = &'a str>>(strings: I) -> Self {
        let mut list = StringList::default();
        for string in strings {
            list.push(string);
        }
        list
    }
}

macro_rules! value_types {
    ($(($id:literal, $variant:ident, $rust:ty, $name:literal, $array:literal)),* $(,)?) => {
        /// One metadata value.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Value {
            $(#[doc = concat!("GGUF value type ", stringify!($id), ", ", $name, ".")] $variant($rust),)*
            /// GGUF value type 8, a UTF-8 string.
            String(String),
            /// GGUF value type 9, elements of one type.
            Array(Array),
        }

        /// The elements of an array value.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Array {
            $(#[doc = concat!("Elements of GGUF value type ", stringify!($id), ", ", $name, ".")] $variant(Vec<$rust>),)*
            /// Strings.
            String(StringList),
        }

        impl Value {
            /// Name of the value's type, for messages.
            #[must_use]
            pub const fn type_name(&self) -> &'static str {
                match self {
                    $(Value::$variant(_) => $name,)*
                    Value::String(_) => "string",
                    Value::Array(array) => array.type_name(),
                }
            }
        }

        impl Array {
            /// Name of the array's type, for messages.
            #[must_use]
            pub const fn type_name(&self) -> &'static str {
                match self {
                    $(Array::$variant(_) => $array,)*
                    Array::String(_) => "array of string",
                }
            }

            /// Number of elements.
            #[must_use]
            pub fn len(&self) -> usize {
                match self {
                    $(Array::$variant(elements) => elements.len(),)*
                    Array::String(list) => list.len(),
                }
            }

            /// Whether there is no element.
            #[must_use]
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }
        }
    };
}

value_types! {
    (0, U8, u8, "u8", "array of u8"),
    (1, I8, i8, "i8", "array of i8"),
    (2, U16, u16, "u16", "array of u16"),
    (3, I16, i16, "i16", "array of i16"),
    (4, U32, u32, "u32", "array of u32"),
    (5, I32, i32, "i32", "array of i32"),
    (6, F32, f32, "f32", "array of f32"),
    (7, Bool, bool, "bool", "array of bool"),
    (10, U64, u64, "u64", "array of u64"),
    (11, I64, i64, "i64", "array of i64"),
    (12, F64, f64, "f64", "array of f64"),
}

impl Value {
    /// The value as a wide integer, if it is any of the integer types.
    #[must_use]
    pub fn as_integer(&self) -> Option<i128> {
        Some(match self {
            Value::U8(v) => i128::from(*v),
            Value::I8(v) => i128::from(*v),
            Value::U16(v) => i128::from(*v),
            Value::I16(v) => i128::from(*v),
            Value::U32(v) => i128::from(*v),
            Value::I32(v) => i128::from(*v),
            Value::U64(v) => i128::from(*v),
            Value::I64(v) => i128::from(*v),
            _ => return None,
        })
    }
}

impl Array {
    /// The elements as wide integers, if they are of any of the integer types.
    #[must_use]
    pub fn to_integers(&self) -> Option<Vec<i128>> {
        fn wide<T: Copy + Into<i128>>(elements: &[T]) -> Vec<i128> {
            elements.iter().map(|v| (*v).into()).collect()
        }
        Some(match self {
            Array::U8(v) => wide(v),
            Array::I8(v) => wide(v),
            Array::U16(v) => wide(v),
            Array::I16(v) => wide(v),
            Array::U32(v) => wide(v),
            Array::I32(v) => wide(v),
            Array::U64(v) => wide(v),
            Array::I64(v) => wide(v),
            _ => return None,
        })
    }
}

/// A metadata value and where its key stands in the file.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Byte offset of the key's length field; 0 for metadata that was not read from a file.
    pub offset: u64,
    /// The value.
    pub value: Value,
}

/// The metadata of a file, ordered by key.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Metadata {
    entries: BTreeMap<String, Entry>,
}

/// A Rust type that a metadata value can be read as.
pub trait FromValue<'a>: Sized {
    /// Name of the type in messages.
    const EXPECTED: &'static str;

    /// Reads `value`.
    ///
    /// # Errors
    /// [`Mismatch`] if the value has another type or does not fit.
    fn from_value(value: &'a Value) -> Result<Self, Mismatch>;
}

/// Why [`FromValue::from_value`] refused a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mismatch {
    /// The value has another type.
    Type,
    /// The integer does not fit.
    Range(i128),
}

impl Metadata {
    /// Adds an entry, or gives back the offset of the one that already has this key.
    ///
    /// # Errors
    /// The offset of the first entry with the same key; the new one is dropped.
    pub fn insert(&mut self, key: String, offset: u64, value: Value) -> Result<(), u64> {
        match self.entries.entry(key) {
            std::collections::btree_map::Entry::Occupied(first) => Err(first.get().offset),
            std::collections::btree_map::Entry::Vacant(free) => {
                free.insert(Entry { offset, value });
                Ok(())
            }
        }
    }

    /// The entry of `key`.
    #[must_use]
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// All entries, ordered by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.entries
            .iter()
            .map(|(key, entry)| (key.as_str(), entry))
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The value of `key` as `T`. Integers are taken from any integer type that fits.
    ///
    /// # Errors
    /// [`GgufError::MissingKey`], [`GgufError::KeyType`], [`GgufError::KeyRange`].
    pub fn get<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<T, GgufError> {
        self.opt(key)?.ok_or_else(|| GgufError::MissingKey {
            key: key.to_owned(),
            expected: T::EXPECTED,
        })
    }

    /// As [`Metadata::get`], `None` if the key is missing.
    ///
    /// # Errors
    /// [`GgufError::KeyType`], [`GgufError::KeyRange`].
    pub fn opt<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<Option<T>, GgufError> {
        let Some(entry) = self.entries.get(key) else {
            return Ok(None);
        };
        match T::from_value(&entry.value) {
            Ok(value) => Ok(Some(value)),
            Err(mismatch) => Err(entry.mismatch(key, T::EXPECTED, mismatch)),
        }
    }

    /// A value per layer: either one number for all, or an array of `layers` numbers
    /// (for example `attention.head_count_kv` of hybrid models).
    ///
    /// # Errors
    /// As [`Metadata::get`], and [`GgufError::KeyLength`].
    pub fn per_layer(&self, key: &str, layers: usize) -> Result<Vec<u32>, GgufError> {
        const EXPECTED: &str = "u32 or array of u32";
        let Some(entry) = self.entries.get(key) else {
            return Err(GgufError::MissingKey {
                key: key.to_owned(),
                expected: EXPECTED,
            });
        };
        if entry.value.as_integer().is_some() {
            return Ok(vec![self.get::<u32>(key)?; layers]);
        }
        let found =
            Vec::<u32>::from_value(&entry.value).map_err(|m| entry.mismatch(key, EXPECTED, m))?;
        if found.len() != layers {
            let (offset, key, found) = (entry.offset, key.to_owned(), found.len());
            return Err(GgufError::KeyLength {
                offset,
                key,
                expected: layers,
                found,
            });
        }
        Ok(found)
    }
}

impl Entry {
    fn mismatch(&self, key: &str, expected: &'static str, mismatch: Mismatch) -> GgufError {
        let (offset, key) = (self.offset, key.to_owned());
        match mismatch {
            Mismatch::Type => GgufError::KeyType {
                offset,
                key,
                expected,
                found: self.value.type_name(),
            },
            Mismatch::Range(found) => GgufError::KeyRange {
                offset,
                key,
                expected,
                found,
            },
        }
    }
}

macro_rules! from_integer {
    ($(($rust:ty, $name:literal, $array:literal)),* $(,)?) => {$(
        impl FromValue<'_> for $rust {
            const EXPECTED: &'static str = $name;
            fn from_value(value: &Value) -> Result<Self, Mismatch> {
                let wide = value.as_integer().ok_or(Mismatch::Type)?;
                wide.try_into().map_err(|_| Mismatch::Range(wide))
            }
        }
        impl FromValue<'_> for Vec<$rust> {
            const EXPECTED: &'static str = $array;
            fn from_value(value: &Value) -> Result<Self, Mismatch> {
                let Value::Array(array) = value else { return Err(Mismatch::Type) };
                let wide = array.to_integers().ok_or(Mismatch::Type)?;
                wide.into_iter().map(|v| v.try_into().map_err(|_| Mismatch::Range(v))).collect()
            }
        }
    )*};
}
from_integer! {
    (u32, "u32", "array of u32"),
    (i32, "i32", "array of i32"),
    (u64, "u64", "array of u64"),
}

macro_rules! from_exact {
    ($(($rust:ty, $name:literal, $pattern:pat => $result:expr)),* $(,)?) => {$(
        impl<'a> FromValue<'a> for $rust {
            const EXPECTED: &'static str = $name;
            fn from_value(value: &'a Value) -> Result<Self, Mismatch> {
                match value {
                    $pattern => Ok($result),
                    _ => Err(Mismatch::Type),
                }
            }
        }
    )*};
}
from_exact! {
    (f32, "f32", Value::F32(v) => *v),
    (bool, "bool", Value::Bool(v) => *v),
    (&'a str, "string", Value::String(v) => v.as_str()),
    (&'a StringList, "array of string", Value::Array(Array::String(v)) => v),
    (&'a [f32], "array of f32", Value::Array(Array::F32(v)) => v.as_slice()),
    (&'a [bool], "array of bool", Value::Array(Array::Bool(v)) => v.as_slice()),
}
