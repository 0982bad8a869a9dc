//! Steps of the host: which rows of which matrices it multiplies, and every byte that crosses the
//! link for it.
//!
//! A host step reads and writes pinned memory alone; what lies on the device is copied by the
//! transfers that it lists. Who runs it is the recorder's and replay's business, how a row is summed
//! `refrain_cpu`'s.

use super::{BufferId, Extent, Launch, Region, Tensor};
use std::fmt;

/// Rows of the GPU's part of a matrix are a multiple of this: what one work-group of a GEMV covers.
pub const ROW_ALIGN: u32 = 16;
/// Bytes of an activation: all are f32.
pub const ACTIVATION_BYTES: u64 = 4;

/// The GPU's part of the rows of a spilled matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Share {
    /// Chosen by measurement while the plan runs; the plan's rows are those of [`Share::SEED`].
    Auto,
    /// Fixed, in millionths, 0 to 1,000,000; part of identity.
    Pinned {
        /// Millionths.
        millionths: u32,
    },
}

impl Share {
    /// Where an automatic share starts, in millionths.
    pub const SEED: u32 = 500_000;
    /// All rows, in millionths.
    pub const WHOLE: u32 = 1_000_000;

    /// The pinned share nearest to a fraction; outside 0 to 1 the nearer end.
    pub fn pinned(fraction: f32) -> Self {
        // At most 1,000,000 after the clamp; NaN becomes 0.
        let millionths =
            (f64::from(fraction.clamp(0.0, 1.0)) * f64::from(Self::WHOLE)).round() as u32;
        Self::Pinned { millionths }
    }

    /// Millionths of the rows.
    pub const fn millionths(self) -> u32 {
        match self {
            Self::Auto => Self::SEED,
            Self::Pinned { millionths } => millionths,
        }
    }

    /// Rows of the GPU out of `rows`: the nearest multiple of [`ROW_ALIGN`], or all of them.
    pub fn gpu_rows(self, rows: u32) -> u32 {
        if self.millionths() >= Self::WHOLE {
            return rows;
        }
        let unit = u64::from(Self::WHOLE) * u64::from(ROW_ALIGN);
        let blocks = (u64::from(rows) * u64::from(self.millionths()) + unit / 2) / unit;
        u32::try_from(blocks * u64::from(ROW_ALIGN)).map_or(rows, |found| found.min(rows))
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Pinned { millionths } => {
                write!(f, "{}", f64::from(*millionths) / f64::from(Self::WHOLE))
            }
        }
    }
}

/// A byte of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct At {
    /// Buffer.
    pub buffer: BufferId,
    /// Byte offset.
    pub offset: u64,
}

impl At {
    /// The `bytes` bytes from here.
    pub const fn region(self, bytes: u64) -> Region {
        Region {
            buffer: self.buffer,
            offset: self.offset,
            extent: Extent::Fixed { bytes },
        }
    }
}

/// A copy over the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    /// First byte read.
    pub from: At,
    /// First byte written.
    pub to: At,
    /// Length in bytes.
    pub bytes: u64,
}

/// What is added to a dot product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostAdd {
    /// Nothing.
    Nothing,
    /// The f32 of the same row, from here on: a residual or a bias.
    Rows(At),
}

/// Why rows are the host's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostWhy {
    /// The execution asked for gives all rows to the host.
    Asked,
    /// The share gives these rows to the host and the others to the GPU.
    Shared,
    /// The matrix is too small to be worth dividing.
    TooSmall,
}

impl HostWhy {
    /// Every reason.
    pub const ALL: [Self; 3] = [Self::Asked, Self::Shared, Self::TooSmall];

    /// Name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Shared => "shared",
            Self::TooSmall => "too_small",
        }
    }
}

/// Rows `[first, end)` of one matrix times a vector: `y[r] = dot(W[r], x) (+ added[r])`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostGemv {
    /// The matrix: index into the model's tensors. It lies in pinned memory.
    pub tensor: u32,
    /// First row.
    pub first: u32,
    /// Row after the last.
    pub end: u32,
    /// The vector, f32, as many as the matrix has columns; in the hand-off buffer.
    pub x: At,
    /// What is added; for row `first` at the place given, in pinned memory.
    pub add: HostAdd,
    /// Result of row `first`, f32; the others follow. In the hand-off buffer.
    pub y: At,
    /// Why these rows are the host's.
    pub why: HostWhy,
}

impl HostGemv {
    /// Rows.
    pub const fn rows(&self) -> u32 {
        self.end.saturating_sub(self.first)
    }

    /// Bytes of its results.
    pub fn y_bytes(&self) -> u64 {
        u64::from(self.rows()) * ACTIVATION_BYTES
    }

    /// Bytes of the vector for a matrix of this shape.
    pub fn x_bytes(tensor: &Tensor) -> u64 {
        u64::from(tensor.cols) * ACTIVATION_BYTES
    }

    /// Weight bytes of its rows, in proportion.
    pub fn weight_bytes(&self, tensor: &Tensor) -> u64 {
        let bytes = u128::from(tensor.bytes) * u128::from(self.rows());
        u64::try_from(bytes / u128::from(tensor.rows.max(1))).unwrap_or(u64::MAX)
    }
}

/// What the host does in a step: copies down, products, copies up.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HostStep {
    /// Copies from device memory to the hand-off buffer, before everything else.
    pub down: Vec<Transfer>,
    /// Products, at least one.
    pub parts: Vec<HostGemv>,
    /// Copies from the hand-off buffer to device memory, after everything else.
    pub up: Vec<Transfer>,
    /// Declared reads: transfers' and products'.
    pub reads: Vec<Region>,
    /// Declared writes.
    pub writes: Vec<Region>,
}

impl HostStep {
    /// Declared reads and writes of these transfers and products. A product reads all of its matrix:
    /// rows of a planar layout lie in several places.
    pub fn effects(&self, tensors: &[Tensor]) -> (Vec<Region>, Vec<Region>) {
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        for transfer in self.down.iter().chain(&self.up) {
            reads.push(transfer.from.region(transfer.bytes));
            writes.push(transfer.to.region(transfer.bytes));
        }
        for part in &self.parts {
            if let Some(tensor) = tensors.get(part.tensor as usize) {
                let Tensor { buffer, offset, .. } = *tensor;
                reads.push(At { buffer, offset }.region(tensor.bytes));
                reads.push(part.x.region(HostGemv::x_bytes(tensor)));
            }
            if let HostAdd::Rows(at) = part.add {
                reads.push(at.region(part.y_bytes()));
            }
            writes.push(part.y.region(part.y_bytes()));
        }
        (reads, writes)
    }

    /// Every place that names a byte of a buffer, to be moved.
    pub fn places_mut(&mut self) -> impl Iterator<Item = &mut At> {
        let transfers = self.down.iter_mut().chain(&mut self.up);
        let ends = transfers.flat_map(|transfer| [&mut transfer.from, &mut transfer.to]);
        let parts = self.parts.iter_mut().flat_map(|part| {
            let added = match &mut part.add {
                HostAdd::Nothing => None,
                HostAdd::Rows(at) => Some(at),
            };
            [Some(&mut part.x), added, Some(&mut part.y)]
        });
        ends.chain(parts.flatten())
    }

    /// Rows of all products.
    pub fn rows(&self) -> u64 {
        self.parts.iter().map(|part| u64::from(part.rows())).sum()
    }

    /// Bytes of all transfers.
    pub fn transfer_bytes(&self) -> u64 {
        let all = self.down.iter().chain(&self.up);
        all.fold(0, |sum, transfer| sum.saturating_add(transfer.bytes))
    }
}

/// Rows divided between GPU and host, at the same time.
#[derive(Debug, Clone, PartialEq)]
pub struct SplitStep {
    /// Rows `[0, g)`, a launch for each matrix of which the GPU has rows. They start when everything
    /// before the step has finished, and need no wait between them.
    pub launches: Vec<Launch>,
    /// Rows `[g, m)`.
    pub host: HostStep,
}

#[cfg(test)]
mod tests {
    use super::{ROW_ALIGN, Share};
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

    #[test]
    fn shares_give_whole_blocks_of_rows() {
        let rows = [
            (0.0, 1000, 0),
            (1.0, 1000, 1000),
            (1.0, 7, 7),
            (0.5, 64, 32),
            (0.25, 256, 64),
            (0.99, 32, 32),
            (0.5, 16, 16),
            (0.01, 64, 0),
        ];
        for (share, all, expected) in rows {
            assert_eq!(
                Share::pinned(share).gpu_rows(all),
                expected,
                "{share} {all}"
            );
        }
        assert_eq!(Share::Auto.gpu_rows(64), 32);
        assert_eq!(Share::pinned(0.25).to_string(), "0.25");
        assert_eq!(Share::pinned(f32::NAN), Share::pinned(0.0));
    }

    proptest! {
        #[test]
        fn rows_of_the_gpu_are_aligned_and_near_the_share(rows in any::<u32>(), millionths in 0..=1_000_000_u32) {
            let found = Share::Pinned { millionths }.gpu_rows(rows);
            prop_assert!(found <= rows);
            prop_assert!(found == rows || found.is_multiple_of(ROW_ALIGN));
            let exact = f64::from(rows) * f64::from(millionths) / 1e6;
            prop_assert!((f64::from(found) - exact).abs() <= f64::from(ROW_ALIGN));
            if millionths == 0 {
                prop_assert_eq!(found, 0);
            }
        }
    }
}
