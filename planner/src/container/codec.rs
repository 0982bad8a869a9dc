//! Fixed-width little-endian codec for the bodies of plan sections.
//!
//! One field list per type (`record!`, `choice!`) expands into its writer and its reader, so the
//! two cannot disagree. Every value has exactly one encoding: integers have fixed width, floats are
//! their bits (NaN refused), strings and lists carry a u32 count, options and enums a u32 tag.
//! A count is compared with the bytes that are left before anything is allocated. Sections, digests
//! and padding are `super`'s concern.

use super::limits;

/// Why a section body could not be read; offsets are bytes from the start of the section.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The section ends inside a value.
    #[error("ends at byte {at}, where {need} more bytes belong to {what}")]
    Truncated {
        /// Offset at which the value starts.
        at: usize,
        /// Bytes the value still needs.
        need: usize,
        /// Type being read.
        what: &'static str,
    },
    /// An enum or option tag that this build does not know.
    #[error("byte {at}: {what} has tag {tag}, which this build does not know")]
    UnknownTag {
        /// Offset of the tag.
        at: usize,
        /// Type being read.
        what: &'static str,
        /// The tag.
        tag: u32,
    },
    /// A list or string longer than the section or than its limit.
    #[error("byte {at}: {count} x {what} where at most {limit} can follow")]
    TooMany {
        /// Offset of the count.
        at: usize,
        /// Type of the items.
        what: &'static str,
        /// Count in the file.
        count: u64,
        /// Most items that are accepted here.
        limit: u64,
    },
    /// A float that is not a number.
    #[error("byte {at}: float {bits:#010x} is not a number")]
    Nan {
        /// Offset of the float.
        at: usize,
        /// Its bits.
        bits: u32,
    },
    /// Text that is not UTF-8.
    #[error("byte {at}: text is not UTF-8")]
    Utf8 {
        /// Offset of the text.
        at: usize,
    },
    /// A value outside the range of its type.
    #[error("byte {at}: {what}: {reason}")]
    Value {
        /// Offset of the value.
        at: usize,
        /// Type being read.
        what: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// Bytes after the last value.
    #[error("{extra} bytes follow the last value, which ends at byte {at}")]
    Trailing {
        /// End of the last value.
        at: usize,
        /// Bytes after it.
        extra: usize,
    },
}

/// Reads values from one section body.
#[derive(Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Starts at the first byte.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Bytes that have not been read.
    pub fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Offset of the next byte.
    pub fn at(&self) -> usize {
        self.at
    }

    /// The next `n` bytes.
    pub fn take(&mut self, n: usize, what: &'static str) -> Result<&'a [u8], CodecError> {
        let end = self
            .at
            .checked_add(n)
            .filter(|end| *end <= self.bytes.len());
        let Some(end) = end else {
            return Err(CodecError::Truncated {
                at: self.at,
                need: n - self.left(),
                what,
            });
        };
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    /// A u32 count of items of at least `min_bytes` each, checked against what is left.
    fn count(&mut self, min_bytes: usize, what: &'static str) -> Result<usize, CodecError> {
        let at = self.at;
        let count = u32::get(self)? as usize;
        let limit = (self.left() / min_bytes.max(1)).min(limits::LIST_ITEMS);
        if count > limit {
            return Err(CodecError::TooMany {
                at,
                what,
                count: count as u64,
                limit: limit as u64,
            });
        }
        Ok(count)
    }

    /// Demands that every byte was read.
    pub fn finish(self) -> Result<(), CodecError> {
        match self.left() {
            0 => Ok(()),
            extra => Err(CodecError::Trailing { at: self.at, extra }),
        }
    }
}

/// A value with exactly one encoding.
pub trait Codec: Sized {
    /// Name used in errors.
    const NAME: &'static str;
    /// Fewest bytes a value takes.
    const MIN_BYTES: usize;
    /// Appends the encoding.
    fn put(&self, out: &mut Vec<u8>);
    /// Reads one value.
    fn get(from: &mut Reader<'_>) -> Result<Self, CodecError>;
}

/// The encoding of `value` on its own.
pub fn to_vec<T: Codec>(value: &T) -> Vec<u8> {
    let mut out = Vec::new();
    value.put(&mut out);
    out
}

/// Reads a value that fills `bytes` exactly.
pub fn from_slice<T: Codec>(bytes: &[u8]) -> Result<T, CodecError> {
    let mut from = Reader::new(bytes);
    let value = T::get(&mut from)?;
    from.finish()?;
    Ok(value)
}

macro_rules! integer {
    ($($int:ty),*) => {$(
        impl Codec for $int {
            const NAME: &'static str = stringify!($int);
            const MIN_BYTES: usize = size_of::<$int>();
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn get(from: &mut Reader<'_>) -> Result<Self, CodecError> {
                let bytes = from.take(size_of::<$int>(), Self::NAME)?;
                let mut le = [0; size_of::<$int>()];
                le.copy_from_slice(bytes);
                Ok(Self::from_le_bytes(le))
            }
        }
    )*};
}
integer!(u16, u32, u64);

impl Codec for f32 {
    const NAME: &'static str = "f32";
    const MIN_BYTES: usize = 4;
    fn put(&self, out: &mut Vec<u8>) {
        self.to_bits().put(out);
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, CodecError> {
        let at = from.at();
        let bits = u32::get(from)?;
        let value = Self::from_bits(bits);
        if value.is_nan() {
            Err(CodecError::Nan { at, bits })
        } else {
            Ok(value)
        }
    }
}

impl Codec for f64 {
    const NAME: &'static str = "f64";
    const MIN_BYTES: usize = 8;
    fn put(&self, out: &mut Vec<u8>) {
        self.to_bits().put(out);
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, CodecError> {
        let at = from.at();
        let value = Self::from_bits(u64::get(from)?);
        if value.is_nan() {
            return Err(CodecError::Value {
                at,
                what: "f64",
                reason: "not a number".to_owned(),
            });
        }
        Ok(value)
    }
}

impl Codec for bool {
    const NAME: &'static str = "bool";
    const MIN_BYTES: usize = 4;
    fn put(&self, out: &mut Vec<u8>) {
        u32::from(*self).put(out);
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, CodecError> {
        let at = from.at();
        match u32::get(from)? {
            0 => Ok(false),
            1 => Ok(true),
            tag => Err(CodecError::UnknownTag {
                at,
                what: Self::NAME,
                tag,
            }),
        }
    }
}

impl<const N: usize> Codec for [u8; N] {
    const NAME: &'static str = "digest";
    const MIN_BYTES: usize = N;
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, CodecError> {
        let mut value = [0; N];
        value.copy_from_slice(from.take(N, Self::NAME)?);
        Ok(value)
    }
}

impl Codec for [u32; 3] {
    const NAME: &'static str = "extent of three dimensions";
    const MIN_BYTES: usize = 12;
    fn put(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|v| v.put(out));
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, CodecError> {
        Ok([u32::get(from)?, u32::get(from)?, u32::get(from)?])
    }
}

impl Codec for String {
    const NAME: &'static str = "text";
    const MIN_BYTES: usize = 4;
    fn put(&self, out: &mut Vec<u8>) {
        put_count(self.len(), out);
        out.extend_from_slice(self.as_bytes());
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, CodecError> {
        let count = from.count(1, "byte of text")?;
        let at = from.at();
        let bytes = from.take(count, Self::NAME)?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err(CodecError::Utf8 { at }),
        }
    }
}

impl<T: Codec> Codec for Option<T> {
    const NAME: &'static str = T::NAME;
    const MIN_BYTES: usize = 4;
    fn put(&self, out: &mut Vec<u8>) {
        u32::from(self.is_some()).put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, CodecError> {
        Ok(if bool::get(from)? {
            Some(T::get(from)?)
        } else {
            None
        })
    }
}

impl<T: Codec> Codec for Vec<T> {
    const NAME: &'static str = T::NAME;
    const MIN_BYTES: usize = 4;
    fn put(&self, out: &mut Vec<u8>) {
        put_count(self.len(), out);
        self.iter().for_each(|item| item.put(out));
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, CodecError> {
        let count = from.count(T::MIN_BYTES, T::NAME)?;
        (0..count).map(|_| T::get(from)).collect()
    }
}

/// Raw bytes with a u32 count.
impl Codec for Vec<u8> {
    const NAME: &'static str = "bytes";
    const MIN_BYTES: usize = 4;
    fn put(&self, out: &mut Vec<u8>) {
        put_count(self.len(), out);
        out.extend_from_slice(self);
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, CodecError> {
        let count = from.count(1, "byte")?;
        Ok(from.take(count, Self::NAME)?.to_vec())
    }
}

/// Lists longer than u32 cannot be built: `check` bounds every list by `limits::LIST_ITEMS`.
fn put_count(len: usize, out: &mut Vec<u8>) {
    u32::try_from(len).unwrap_or(u32::MAX).put(out);
}

/// Codec of a struct from its field list, in that order.
macro_rules! record {
    ($ty:ty { $($field:ident: $fty:ty),* $(,)? }) => {
        impl $crate::container::codec::Codec for $ty {
            const NAME: &'static str = stringify!($ty);
            const MIN_BYTES: usize =
                0 $(+ <$fty as $crate::container::codec::Codec>::MIN_BYTES)*;
            fn put(&self, out: &mut Vec<u8>) {
                $(<$fty as $crate::container::codec::Codec>::put(&self.$field, out);)*
            }
            fn get(
                from: &mut $crate::container::codec::Reader<'_>,
            ) -> Result<Self, $crate::container::codec::CodecError> {
                Ok(Self { $($field: <$fty as $crate::container::codec::Codec>::get(from)?,)* })
            }
        }
    };
}
pub(crate) use record;

/// Codec of an enum: u32 tag, then the fields of the variant. Tags are never reused.
macro_rules! choice {
    ($ty:ident { $($tag:literal => $variant:ident
        $(($inner:ty))? $({ $($field:ident: $fty:ty),* $(,)? })?),* $(,)? }) => {
        impl $crate::container::codec::Codec for $ty {
            const NAME: &'static str = stringify!($ty);
            const MIN_BYTES: usize = 4;
            fn put(&self, out: &mut Vec<u8>) {
                use $crate::container::codec::Codec;
                match self {
                    $(choice!(@pattern $variant $(($inner) value)? $({ $($field),* })?) => {
                        <u32 as Codec>::put(&$tag, out);
                        $(<$inner as Codec>::put(value, out);)?
                        $($(<$fty as Codec>::put($field, out);)*)?
                    })*
                }
            }
            fn get(
                from: &mut $crate::container::codec::Reader<'_>,
            ) -> Result<Self, $crate::container::codec::CodecError> {
                use $crate::container::codec::{Codec, CodecError};
                let at = from.at();
                match <u32 as Codec>::get(from)? {
                    $($tag => Ok(choice!(@build from $variant
                        $(($inner))? $({ $($field: $fty),* })?)),)*
                    tag => Err(CodecError::UnknownTag { at, what: stringify!($ty), tag }),
                }
            }
        }
    };
    (@pattern $variant:ident) => { Self::$variant };
    (@pattern $variant:ident ($inner:ty) $value:ident) => { Self::$variant($value) };
    (@pattern $variant:ident { $($field:ident),* }) => { Self::$variant { $($field),* } };
    (@build $from:ident $variant:ident) => { Self::$variant };
    (@build $from:ident $variant:ident ($inner:ty)) => {
        Self::$variant(<$inner as Codec>::get($from)?)
    };
    (@build $from:ident $variant:ident { $($field:ident: $fty:ty),* }) => {
        Self::$variant { $($field: <$fty as Codec>::get($from)?),* }
    };
}
pub(crate) use choice;
