//! Launches as plain data: kernel image, dispatch, and what stands before it.
//!
//! A kernel is described by its descriptor and symbol, never by a loaded handle, so that the
//! same packets can be computed on a machine without a GPU.

use crate::aql::encode::AqlError;
use crate::kd::{KernelDescriptor, KernelFacts, Refusal};
use crate::pm4::PacketError;
use crate::tables::gcr;
use crate::target::Gfx;

/// A kernel as the encoders need it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelImage {
    /// Symbol name; part of the address-independent form.
    pub symbol: String,
    /// Its descriptor.
    pub descriptor: KernelDescriptor,
    /// Metadata and code-object facts, for the linter; encoders do not look at them.
    pub facts: Option<KernelFacts>,
    /// Entry address (256-byte aligned), when the code is already loaded.
    pub entry_va: Option<u64>,
}

impl KernelImage {
    /// Entry addresses for [`crate::Bindings::entries`]; `None` when a kernel is not loaded.
    pub fn entries(kernels: &[Self]) -> Option<Vec<u64>> {
        kernels.iter().map(|kernel| kernel.entry_va).collect()
    }
}

/// What must happen between everything before and this dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Before {
    /// Independent of everything since the last wait.
    Nothing,
    /// All earlier waves finished (write after read, write after write).
    Wait,
    /// All earlier waves finished, then the caches of this GCR word are invalidated.
    WaitAcquire(u32),
}

/// One launch of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DispatchDesc {
    /// Index into the kernel list.
    pub kernel: u32,
    /// Work-groups in x, y, z; none zero.
    pub groups: [u32; 3],
    /// Work-items per group in x, y, z; product 1 to 1024.
    pub group_size: [u32; 3],
    /// Whole LDS of a group in bytes, static and dynamic.
    pub lds_bytes: u32,
    /// Offset of the kernargs in the kernarg arena, 16-byte aligned.
    pub kernarg_offset: u64,
    /// Ordering against earlier launches.
    pub before: Before,
}

/// Why a launch cannot be encoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// Kernel index out of range.
    #[error("launch {launch}: kernel {kernel} does not exist, {kernels} are given")]
    NoKernel {
        /// Launch index.
        launch: usize,
        /// Index asked for.
        kernel: u32,
        /// Kernels given.
        kernels: usize,
    },
    /// The kernel may not be dispatched by hand.
    #[error("launch {launch}: kernel {symbol} {reason}")]
    Refused {
        /// Launch index.
        launch: usize,
        /// Kernel symbol.
        symbol: String,
        /// Why.
        reason: Refusal,
    },
    /// Zero or too many groups.
    #[error(
        "launch {launch}: {groups:?} groups; each must be 1 or more, y and z at most {limit_yz}, and the grid in work-items must fit 32 bits"
    )]
    Groups {
        /// Launch index.
        launch: usize,
        /// Groups asked for.
        groups: [u32; 3],
        /// Largest count in y and z on this target.
        limit_yz: u32,
    },
    /// Bad group shape.
    #[error("launch {launch}: group {size:?}; each must be 1 or more and the product at most 1024")]
    GroupSize {
        /// Launch index.
        launch: usize,
        /// Shape asked for.
        size: [u32; 3],
    },
    /// LDS below the static size or above the limit.
    #[error(
        "launch {launch}: {bytes} bytes of LDS; the kernel has {fixed} static bytes and the limit is {limit}"
    )]
    Lds {
        /// Launch index.
        launch: usize,
        /// Bytes asked for.
        bytes: u32,
        /// Static bytes of the kernel.
        fixed: u32,
        /// Largest allocation.
        limit: u32,
    },
    /// Kernarg offset misaligned.
    #[error("launch {launch}: kernarg offset {offset:#x} is not a multiple of 16")]
    KernargAlign {
        /// Launch index.
        launch: usize,
        /// Offset asked for.
        offset: u64,
    },
    /// A GCR word with bits that do not exist or are never used.
    #[error(
        "launch {launch}: GCR {word:#x} sets bits {bits:#x} that are reserved or unused on {target}; use {suggested:#x}"
    )]
    Gcr {
        /// Launch index.
        launch: usize,
        /// Word asked for.
        word: u32,
        /// Offending bits.
        bits: u32,
        /// Target.
        target: Gfx,
        /// The word of the capability row.
        suggested: u32,
    },
    /// The buffer would be too long.
    #[error("{dwords} dwords exceed the limit of {limit} per indirect buffer; split the segment")]
    TooLong {
        /// Dwords needed.
        dwords: usize,
        /// Field limit.
        limit: u32,
    },
    /// A PM4 packet could not be written.
    #[error(transparent)]
    Packet(#[from] PacketError),
    /// An AQL packet could not be written.
    #[error(transparent)]
    Aql(#[from] AqlError),
    /// No launch at all.
    #[error("a segment needs at least one launch")]
    Empty,
}

/// GCR bits that this project never sends on `target`.
pub fn refused_gcr_bits(target: Gfx) -> u32 {
    let row = target.capability();
    let mut bits = gcr::RESERVED
        | gcr::GL2_DISCARD
        | gcr::GL1_RANGE
        | gcr::GL2_RANGE
        | gcr::RANGE_IS_PA
        | 0b10; // GLI_INV values 2 and 3 are ranged
    if !row.glm.value {
        bits |= gcr::GLM_WB | gcr::GLM_INV;
    }
    if !row.gl1.value {
        bits |= gcr::GL1_INV;
    }
    bits
}

impl DispatchDesc {
    /// Checks everything about the launch that needs no addresses, and returns its kernel.
    ///
    /// # Errors
    /// The first violated limit, with the launch's index and both values.
    pub fn check<'k>(
        &self,
        launch: usize,
        target: Gfx,
        kernels: &'k [KernelImage],
    ) -> Result<&'k KernelImage, EncodeError> {
        self.kernel_of(launch, target, kernels, &mut [])
    }

    /// As [`Self::check`]; a kernel marked in `checked` is not examined again.
    pub(crate) fn kernel_of<'k>(
        &self,
        launch: usize,
        target: Gfx,
        kernels: &'k [KernelImage],
        checked: &mut [bool],
    ) -> Result<&'k KernelImage, EncodeError> {
        let Some(kernel) = kernels.get(self.kernel as usize) else {
            return Err(EncodeError::NoKernel {
                launch,
                kernel: self.kernel,
                kernels: kernels.len(),
            });
        };
        if !checked.get(self.kernel as usize).copied().unwrap_or(false) {
            self.check_kernel(launch, target, kernel)?;
            if let Some(mark) = checked.get_mut(self.kernel as usize) {
                *mark = true;
            }
        }
        self.check_shape(launch, target)?;
        let limit = target.capability().max_lds_bytes.value;
        let fixed = kernel.descriptor.group_segment_fixed_size;
        if self.lds_bytes < fixed || self.lds_bytes > limit {
            return Err(EncodeError::Lds {
                launch,
                bytes: self.lds_bytes,
                fixed,
                limit,
            });
        }
        if !self.kernarg_offset.is_multiple_of(16) {
            return Err(EncodeError::KernargAlign {
                launch,
                offset: self.kernarg_offset,
            });
        }
        if let Before::WaitAcquire(word) = self.before {
            let bits = word & refused_gcr_bits(target);
            if bits != 0 {
                let suggested = target.capability().agent_acquire.value;
                return Err(EncodeError::Gcr {
                    launch,
                    word,
                    bits,
                    target,
                    suggested,
                });
            }
        }
        Ok(kernel)
    }

    fn check_kernel(
        &self,
        launch: usize,
        target: Gfx,
        kernel: &KernelImage,
    ) -> Result<(), EncodeError> {
        kernel
            .descriptor
            .check(target)
            .map_err(|reason| EncodeError::Refused {
                launch,
                symbol: kernel.symbol.clone(),
                reason,
            })
    }

    fn check_shape(&self, launch: usize, target: Gfx) -> Result<(), EncodeError> {
        let size = self.group_size;
        let product = size
            .iter()
            .map(|n| u64::from(*n))
            .fold(1_u64, u64::saturating_mul);
        if !(1..=1024).contains(&product) {
            return Err(EncodeError::GroupSize { launch, size });
        }
        let limit_yz = target.capability().max_groups_yz.value;
        let groups = self.groups;
        let fits = (0..3).all(|i| groups[i] != 0 && groups[i].checked_mul(size[i]).is_some());
        if !fits || groups[1] > limit_yz || groups[2] > limit_yz {
            return Err(EncodeError::Groups {
                launch,
                groups,
                limit_yz,
            });
        }
        Ok(())
    }
}
