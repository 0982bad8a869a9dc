//! Integer mode: codes of the weights times int8 codes of the activation, summed exactly in i32, then
//! scaled in f32.
//!
//! A row is cut into *units*: 32 elements for formats in blocks of 32, 128 for MQ4_G256_V2, 256 for the
//! others. With v the integer that a code stands for ([`refrain_kernels::format::Levels`]) and q the
//! activation's code, a unit has the integers
//!
//! | formats | isum | msum |
//! |---|---|---|
//! | blocks of 32 | sum v q | - |
//! | Q4_K, Q5_K | sum over groups of 32 of scale * sum v q | sum over groups of min * sum q |
//! | Q6_K | sum over groups of 16 of scale * sum v q | - |
//! | HFQ, MQ | sum v q | sum q |
//!
//! which are the same in every engine. None can overflow: |isum| is at most 63 * 256 * 31 * 127.
//!
//! Written order of the f32 part, the same for every instruction set, layout and split: unit u adds to
//! partial p[u mod 8], units ascending, from +0, every operation rounded once: p = fma(a * d, isum, p),
//! then where the format has minimums p = fma(m, s, p) (Q4_1, Q5_1, with s of the activation),
//! p = fma(-(dmin * d), msum, p) (Q4_K, Q5_K) or p = fma(zero * d, msum, p) (HFQ, MQ). d is the
//! activation's scale; a the format's (d, or 2^(e - 128), or scale). i32 becomes f32 by rounding to
//! nearest. Then p[i] = p[i] + p[i xor t] for t = 4, 2, 1; p[0] is the row's result, to which a residual
//! is added last. NaN and infinite scales follow IEEE 754 from there.

mod activation;
mod group;
mod packed;
mod row;
mod wide;
#[cfg(target_arch = "x86_64")]
mod wide_x86;

pub use activation::Activation;
pub(crate) use group::e8m0;
pub use packed::{Packed16, ROWS};

use std::ops::Range;

use refrain_kernels::format::{Blocks, Coding, Levels, Plane, PlaneKind};
use refrain_kernels::{Dtype, Habit};

use crate::{CpuError, Isa, Matrix};

/// Partials of the written order.
pub(crate) const PARTIALS: usize = 8;

/// The integers of one unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Sum over scaled codes.
    pub isum: i32,
    /// Sum over minimums; 0 where the format's integers have none.
    pub msum: i32,
}

/// What the result of a row is added to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// y = W x.
    Set,
    /// y = y + W x.
    Add,
}

/// How codes lie in a format's planes and what they stand for: one value per inner loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// i8.
    Bytes,
    /// Nibbles less an offset.
    Four,
    /// Nibbles by a table.
    Table,
    /// Five bits less an offset.
    Five,
    /// Six bits less an offset.
    Six,
}

/// What scales a unit's integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scaling {
    /// f16 d per 32.
    D,
    /// f16 d and m per 32.
    DM,
    /// u8 exponent per 32.
    E8m0,
    /// Integer scale and minimum per 32, f16 d and dmin per 256.
    KMins,
    /// Integer scale per 16, f16 d per 256.
    KSigned,
    /// f32 scale and zero per 256.
    Singles,
    /// f16 scale and zero per unit of 128 or 256.
    Halves,
}

/// A format as the loops see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub kind: Kind,
    pub scaling: Scaling,
    /// Elements of a unit.
    pub unit: usize,
    /// Elements of a block.
    pub block: usize,
    /// Number that is taken from unsigned codes.
    pub zero: i32,
    /// Levels of table formats.
    pub table: [i8; 16],
    /// Bytes of a block and row, over all planes.
    pub block_bytes: usize,
    /// log2 of the units that share a scale of the activation.
    pub units_per_d: u32,
}

impl Layout {
    /// `None` for types without integer codes.
    pub(crate) fn of(dtype: Dtype) -> Option<Self> {
        let format = dtype.format();
        let Coding::Blocks(blocks) = &format.coding else {
            return None;
        };
        let high = blocks
            .planes
            .iter()
            .any(|plane| plane.kind == PlaneKind::Bit4);
        let higher = blocks
            .planes
            .iter()
            .any(|plane| plane.kind == PlaneKind::Bits45);
        let (kind, zero, table) = match (blocks.levels, high, higher) {
            (Levels::Signed, ..) => (Kind::Bytes, 0, [0; 16]),
            (Levels::Table(table), ..) => (Kind::Table, 0, *table),
            (Levels::Offset(zero), true, _) => (Kind::Five, zero, [0; 16]),
            (Levels::Offset(zero), _, true) => (Kind::Six, zero, [0; 16]),
            (Levels::Offset(zero), ..) => (Kind::Four, zero, [0; 16]),
        };
        let params = bytes(blocks, |kind| kind == PlaneKind::Params);
        let singles = |plane: &Plane| plane.kind == PlaneKind::Params && plane.unit_bytes == 4;
        let scaling = match (format.block, params, blocks.mins) {
            (32, 1, _) => Scaling::E8m0,
            (32, _, false) => Scaling::D,
            (32, ..) => Scaling::DM,
            (_, 20, _) => Scaling::KMins,
            (_, 18, _) => Scaling::KSigned,
            _ if blocks.planes.iter().any(singles) => Scaling::Singles,
            _ => Scaling::Halves,
        };
        let unit = match scaling {
            Scaling::Halves => blocks.group,
            _ => format.block,
        };
        Some(Self {
            kind,
            scaling,
            unit,
            block: format.block,
            zero: i32::from(zero),
            table,
            block_bytes: blocks.device_bytes(),
            units_per_d: (format.habit?.block() / unit).trailing_zeros(),
        })
    }
}

/// Calls a function with the layout's kind and scaling as constants, so that its loop has no branch.
macro_rules! specialise {
    ($layout:expr, $f:ident::<$t:ty>($($arg:expr),* $(,)?)) => {{
        use $crate::int8::{Kind, Scaling};
        match ($layout.kind, $layout.scaling) {
            (Kind::Bytes, _) => $f::<$t, { Kind::Bytes as u8 }, { Scaling::D as u8 }>($($arg),*),
            (Kind::Four, Scaling::D) => $f::<$t, { Kind::Four as u8 }, { Scaling::D as u8 }>($($arg),*),
            (Kind::Four, Scaling::DM) => $f::<$t, { Kind::Four as u8 }, { Scaling::DM as u8 }>($($arg),*),
            (Kind::Four, Scaling::KMins) => $f::<$t, { Kind::Four as u8 }, { Scaling::KMins as u8 }>($($arg),*),
            (Kind::Four, Scaling::Halves) => $f::<$t, { Kind::Four as u8 }, { Scaling::Halves as u8 }>($($arg),*),
            (Kind::Four, _) => $f::<$t, { Kind::Four as u8 }, { Scaling::Singles as u8 }>($($arg),*),
            (Kind::Table, Scaling::D) => $f::<$t, { Kind::Table as u8 }, { Scaling::D as u8 }>($($arg),*),
            (Kind::Table, _) => $f::<$t, { Kind::Table as u8 }, { Scaling::E8m0 as u8 }>($($arg),*),
            (Kind::Five, Scaling::D) => $f::<$t, { Kind::Five as u8 }, { Scaling::D as u8 }>($($arg),*),
            (Kind::Five, Scaling::DM) => $f::<$t, { Kind::Five as u8 }, { Scaling::DM as u8 }>($($arg),*),
            (Kind::Five, _) => $f::<$t, { Kind::Five as u8 }, { Scaling::KMins as u8 }>($($arg),*),
            (Kind::Six, Scaling::KSigned) => $f::<$t, { Kind::Six as u8 }, { Scaling::KSigned as u8 }>($($arg),*),
            (Kind::Six, _) => $f::<$t, { Kind::Six as u8 }, { Scaling::Singles as u8 }>($($arg),*),
        }
    }};
}
use specialise;

fn bytes(blocks: &Blocks, of: impl Fn(PlaneKind) -> bool) -> usize {
    let planes = blocks.planes.iter().filter(|plane| of(plane.kind));
    planes.map(|plane| plane.block_bytes).sum()
}

/// Elements of a unit of the integer sums; `None` for types that are not multiplied as integers.
#[must_use]
pub fn unit(dtype: Dtype) -> Option<usize> {
    Layout::of(dtype).map(|layout| layout.unit)
}

/// The layout of a weight that meets this activation.
fn meet(dtype: Dtype, k: usize, x: &Activation<'_>) -> Result<Layout, CpuError> {
    let habit: Option<Habit> = dtype.format().habit;
    let layout = Layout::of(dtype).filter(|_| habit == Some(x.habit()));
    let layout = layout.ok_or(CpuError::Habit {
        dtype: dtype.name(),
        expected: habit.map_or("f32 (exact mode)", Habit::name),
        given: x.habit().name(),
    })?;
    if x.k() != k {
        return Err(CpuError::Length {
            what: "x",
            expected: k,
            given: x.k(),
        });
    }
    Ok(layout)
}

/// Rows of a weight in device layout times an activation; `y` has one element per row of the range.
/// A set that this machine lacks is replaced by its best: the results are the same.
///
/// # Errors
/// [`CpuError::Habit`] if the activation has another form than the format multiplies with,
/// [`CpuError::Length`] or [`CpuError::Rows`] if shapes do not fit.
pub fn gemv_int8(
    isa: Isa,
    w: &Matrix<'_>,
    x: &Activation<'_>,
    rows: Range<usize>,
    write: Write,
    y: &mut [f32],
) -> Result<(), CpuError> {
    let layout = meet(w.dtype(), w.k(), x)?;
    w.check(&rows, y)?;
    row::gemv(isa, (w, &layout), x, rows, write, y);
    Ok(())
}

/// The integers of one row in device layout: one entry per unit. For tests of an engine.
///
/// # Errors
/// As [`gemv_int8`].
pub fn row_sums(
    isa: Isa,
    w: &Matrix<'_>,
    x: &Activation<'_>,
    row: usize,
) -> Result<Vec<Sums>, CpuError> {
    let layout = meet(w.dtype(), w.k(), x)?;
    w.check(&(row..row.saturating_add(1)), &[0.0])?;
    Ok(row::sums(isa, (w, &layout), x, row))
}
