//! Bounds on plan files, in one place. Reader and `check` refuse what is above them by name.

/// Bytes of a plan file (256 MiB).
pub const FILE_BYTES: u64 = 256 << 20;
/// Sections of a plan file.
pub const SECTIONS: u32 = 64;
/// Items of any list, and bytes of any text or constant.
pub const LIST_ITEMS: usize = 64 << 20;
/// Steps of a plan.
pub const STEPS: usize = 1 << 20;
/// Buffers of a plan.
pub const BUFFERS: usize = 1 << 20;
/// Kernels of a plan.
pub const KERNELS: usize = 1 << 12;
/// Tensors of a model.
pub const TENSORS: usize = 1 << 20;
/// Bytes of one name.
pub const NAME_BYTES: usize = 1024;
/// Bytes of one buffer (16 TiB), so that sums of offsets and sizes stay far from 2^64.
pub const BUFFER_BYTES: u64 = 1 << 44;
