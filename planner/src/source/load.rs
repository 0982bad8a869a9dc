//! What is done to a tensor between the file and the plan: the differences of Hugging Face files to
//! GGUF files, as data that a plan can hold.
//!
//! Arithmetic is in f32 and each element is computed alone, so the result is the same everywhere.
//! Which tensor needs what is decided by `hf`.

use super::TensorType;

/// One change. Row and column counts are those of the loaded tensor, `[rows][columns]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LoadOp {
    /// In each head of `head_rows` rows, row `half * head_rows/2 + i` moves to `2 i + half`:
    /// rotation then turns adjacent elements (models.md 2.4, GGUF `llama`).
    PairRows {
        /// Rows of a head, even.
        head_rows: u32,
    },
    /// From row `from` on there are `keys * per_key` blocks of `size` rows; block
    /// `key * per_key + value` moves to `value * keys + key` (GGUF's tiled value heads).
    TileRows {
        /// First row that moves.
        from: u32,
        /// Key heads.
        keys: u32,
        /// Value heads per key head.
        per_key: u32,
        /// Rows of a block.
        size: u32,
    },
    /// The same with columns, which are all part of it.
    TileColumns {
        /// Key heads.
        keys: u32,
        /// Value heads per key head.
        per_key: u32,
        /// Columns of a block.
        size: u32,
    },
    /// `x + 1`: a zero-centred norm weight.
    AddOne,
    /// `-exp(x)`: a decay stored as its logarithm.
    NegExp,
}

/// Why a tensor cannot be loaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The stored bytes are not those of the shape.
    #[error("{found} bytes for {rows} rows of {columns} {ty}: make the plan again")]
    Bytes {
        /// Bytes.
        found: u64,
        /// Rows.
        rows: u64,
        /// Columns.
        columns: u64,
        /// Type.
        ty: &'static str,
    },
    /// A change of type that is not known.
    #[error(
        "stored as {stored}, wanted as {wanted}: f16, bf16 and f32 can become f32; convert the model"
    )]
    Conversion {
        /// Type in the file.
        stored: &'static str,
        /// Type wanted.
        wanted: &'static str,
    },
    /// A change of order that does not fit the shape or would cut through a block.
    #[error(
        "{op} does not fit {rows} rows of {columns} {ty}: take the GGUF file of this model, or quantise it otherwise"
    )]
    Order {
        /// The change.
        op: String,
        /// Rows.
        rows: u64,
        /// Columns.
        columns: u64,
        /// Type.
        ty: &'static str,
    },
    /// Arithmetic on a type that is not f32.
    #[error("{op} is defined for f32, the tensor is {ty}: convert the model")]
    Arithmetic {
        /// The change.
        op: String,
        /// Type.
        ty: &'static str,
    },
}

/// Whether the changes fit the shape and types, without the bytes.
///
/// # Errors
/// As [`apply`], but for [`LoadError::Bytes`].
pub fn check(
    ops: &[LoadOp],
    (stored, wanted): (TensorType, TensorType),
    (rows, columns): (u64, u64),
) -> Result<(), LoadError> {
    if stored != wanted && widening(stored, wanted).is_none() {
        return Err(LoadError::Conversion {
            stored: stored.name(),
            wanted: wanted.name(),
        });
    }
    for op in ops {
        match op {
            LoadOp::AddOne | LoadOp::NegExp if !is(wanted, "F32") => {
                return Err(LoadError::Arithmetic {
                    op: format!("{op:?}"),
                    ty: wanted.name(),
                });
            }
            LoadOp::AddOne | LoadOp::NegExp => {}
            order if order.fits(wanted, rows, columns) => {}
            order => {
                return Err(LoadError::Order {
                    op: format!("{order:?}"),
                    rows,
                    columns,
                    ty: wanted.name(),
                });
            }
        }
    }
    Ok(())
}

/// Loads a `[rows][columns]` tensor: first the type, then each change in order.
///
/// # Errors
/// [`LoadError`].
pub fn apply(
    ops: &[LoadOp],
    types: (TensorType, TensorType),
    shape: (u64, u64),
    bytes: Vec<u8>,
) -> Result<Vec<u8>, LoadError> {
    check(ops, types, shape)?;
    let ((stored, wanted), (rows, columns)) = (types, shape);
    let expected = stored.bytes(&[columns, rows]);
    if expected != Some(bytes.len() as u64) {
        return Err(LoadError::Bytes {
            found: bytes.len() as u64,
            rows,
            columns,
            ty: stored.name(),
        });
    }
    let mut bytes = match widening(stored, wanted) {
        Some(widen) if stored != wanted => widen(&bytes),
        _ => bytes,
    };
    // The shape has as many bytes as were given, so its row fits memory.
    let row = wanted.row_bytes(columns).unwrap_or_default() as usize;
    for op in ops {
        bytes = match *op {
            LoadOp::AddOne => map_f32(bytes, |x| x + 1.0),
            // In f64 with libm's own exp, then rounded once.
            LoadOp::NegExp => map_f32(bytes, |x| -(libm::exp(f64::from(x)) as f32)),
            LoadOp::PairRows { head_rows } => {
                let half = head_rows / 2;
                blocks(&bytes, 0, head_rows as usize, row, |to| {
                    (to % 2) * half as usize + to / 2
                })
            }
            LoadOp::TileRows {
                from,
                keys,
                per_key,
                size,
            } => {
                let unit = row * size as usize;
                let count = keys as usize * per_key as usize;
                blocks(
                    &bytes,
                    from as usize * row,
                    count,
                    unit,
                    tiled(keys, per_key),
                )
            }
            LoadOp::TileColumns {
                keys,
                per_key,
                size,
            } => {
                let unit = wanted.row_bytes(u64::from(size)).unwrap_or_default() as usize;
                let count = keys as usize * per_key as usize;
                blocks(&bytes, 0, count, unit, tiled(keys, per_key))
            }
        };
    }
    Ok(bytes)
}

impl LoadOp {
    fn fits(self, ty: TensorType, rows: u64, columns: u64) -> bool {
        let blocks = |keys: u32, per_key: u32, size: u32| {
            u64::from(keys)
                .checked_mul(u64::from(per_key))
                .and_then(|count| count.checked_mul(u64::from(size)))
                .filter(|count| *count > 0)
        };
        match self {
            Self::PairRows { head_rows } => {
                head_rows > 0
                    && head_rows.is_multiple_of(2)
                    && rows.is_multiple_of(u64::from(head_rows))
            }
            Self::TileRows {
                from,
                keys,
                per_key,
                size,
            } => {
                let moved = blocks(keys, per_key, size);
                moved.and_then(|moved| moved.checked_add(u64::from(from))) == Some(rows)
            }
            Self::TileColumns {
                keys,
                per_key,
                size,
            } => {
                blocks(keys, per_key, size) == Some(columns)
                    && u64::from(size).is_multiple_of(ty.block_elements())
            }
            Self::AddOne | Self::NegExp => true,
        }
    }
}

fn tiled(keys: u32, per_key: u32) -> impl Fn(usize) -> usize {
    let (keys, per_key) = (keys as usize, per_key as usize);
    move |to| (to % keys) * per_key + to / keys
}

/// From byte `from` on, in each group of `count` units of `unit` bytes, unit `to` is taken from
/// place `source(to)` of the same group.
fn blocks(
    bytes: &[u8],
    from: usize,
    count: usize,
    unit: usize,
    source: impl Fn(usize) -> usize,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let (kept, moved) = bytes.split_at(from.min(bytes.len()));
    out.extend_from_slice(kept);
    for group in moved.chunks(count.saturating_mul(unit).max(1)) {
        for to in 0..count {
            let at = source(to) * unit;
            out.extend_from_slice(group.get(at..at + unit).unwrap_or_default());
        }
    }
    out
}

fn map_f32(mut bytes: Vec<u8>, change: impl Fn(f32) -> f32) -> Vec<u8> {
    for word in bytes.as_chunks_mut::<4>().0 {
        *word = change(f32::from_le_bytes(*word)).to_le_bytes();
    }
    bytes
}

fn is(ty: TensorType, name: &str) -> bool {
    ty.name().eq_ignore_ascii_case(name)
}

type Widening = fn(&[u8]) -> Vec<u8>;

/// How the stored type becomes the wanted one, where it can.
fn widening(stored: TensorType, wanted: TensorType) -> Option<Widening> {
    if !is(wanted, "F32") {
        return None;
    }
    match stored.name() {
        name if name.eq_ignore_ascii_case("F32") => Some(|bytes| bytes.to_vec()),
        name if name.eq_ignore_ascii_case("BF16") => Some(|bytes| {
            let halves = bytes.as_chunks::<2>().0.iter();
            halves.flat_map(|half| [0, 0, half[0], half[1]]).collect()
        }),
        name if name.eq_ignore_ascii_case("F16") => Some(|bytes| {
            let halves = bytes.as_chunks::<2>().0.iter();
            halves
                .flat_map(|half| half::f16::from_le_bytes(*half).to_f32().to_le_bytes())
                .collect()
        }),
        _ => None,
    }
}
