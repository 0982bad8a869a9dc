//! The 64-byte kernel descriptor: checked parsing, user-SGPR layout, and what is refused.
//!
//! Source: LLVM AMDGPUUsage (kernel descriptor, user SGPRs). Metadata notes are read elsewhere;
//! the facts of them that matter here arrive as [`KernelFacts`].

use crate::tables::objects::{PROPERTIES, descriptor as at};
use crate::tables::registers::{RSRC1_FIELDS, RSRC2_FIELDS, RSRC3_FIELDS, rsrc1, rsrc2};
use crate::tables::reserved_mask;
use crate::target::{Generation, Gfx};

/// Property bits of `kernel_code_properties`.
pub mod property {
    /// Four user SGPRs with the scratch buffer descriptor.
    pub const PRIVATE_SEGMENT_BUFFER: u16 = 1;
    /// Two user SGPRs with the AQL packet's address.
    pub const DISPATCH_PTR: u16 = 1 << 1;
    /// Two user SGPRs with the queue's address.
    pub const QUEUE_PTR: u16 = 1 << 2;
    /// Two user SGPRs with the kernarg address.
    pub const KERNARG_SEGMENT_PTR: u16 = 1 << 3;
    /// Two user SGPRs with the packet id.
    pub const DISPATCH_ID: u16 = 1 << 4;
    /// Two user SGPRs with the scratch base.
    pub const FLAT_SCRATCH_INIT: u16 = 1 << 5;
    /// One user SGPR with the scratch bytes per lane.
    pub const PRIVATE_SEGMENT_SIZE: u16 = 1 << 6;
    /// Waves have 32 lanes.
    pub const WAVEFRONT_SIZE32: u16 = 1 << 10;
    /// The kernel needs a stack of unknown size.
    pub const USES_DYNAMIC_STACK: u16 = 1 << 11;
    /// The kernel needs wave groups.
    pub const ENABLE_WAVEGROUP: u16 = 1 << 12;
    /// Bits that a hand-made dispatch accepts.
    pub const ACCEPTED: u16 = PRIVATE_SEGMENT_BUFFER | KERNARG_SEGMENT_PTR | WAVEFRONT_SIZE32;
    /// Bits with a refusal of their own.
    pub const NAMED: u16 = 0x1C7F;
}

/// A kernel descriptor as numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct KernelDescriptor {
    /// Static LDS in bytes.
    pub group_segment_fixed_size: u32,
    /// Scratch in bytes per work-item.
    pub private_segment_fixed_size: u32,
    /// Kernarg segment in bytes; 0 when unknown or none.
    pub kernarg_size: u32,
    /// Entry address minus descriptor address, in bytes.
    pub entry_byte_offset: i64,
    /// COMPUTE_PGM_RSRC1.
    pub rsrc1: u32,
    /// COMPUTE_PGM_RSRC2, LDS_SIZE zero.
    pub rsrc2: u32,
    /// COMPUTE_PGM_RSRC3.
    pub rsrc3: u32,
    /// `kernel_code_properties`.
    pub properties: u16,
    /// Kernarg preload length and offset; zero up to gfx12.0.
    pub kernarg_preload: u16,
}

/// Why 64 bytes are not a kernel descriptor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DescriptorError {
    /// Too few bytes.
    #[error(
        "kernel descriptor needs 64 bytes, found {found}; read it from the symbol that ends in .kd"
    )]
    TooShort {
        /// Bytes given.
        found: usize,
    },
    /// A reserved byte is not zero.
    #[error(
        "kernel descriptor byte {offset} is reserved and must be 0, found {value:#04x}; the symbol is not a descriptor or the code object version is unknown"
    )]
    Reserved {
        /// Byte offset inside the descriptor.
        offset: usize,
        /// The value found.
        value: u8,
    },
}

/// Where user SGPRs go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserSgprs {
    /// First SGPR of the private segment buffer (four SGPRs).
    pub private_segment_buffer: Option<u8>,
    /// First SGPR of the kernarg pointer (two SGPRs).
    pub kernarg_segment_ptr: Option<u8>,
    /// SGPRs that the enabled properties take.
    pub used: u8,
    /// RSRC2.USER_SGPR; the rest after `used` is padding and written as zero.
    pub count: u8,
}

/// Facts about a kernel that stand in the metadata note and in the code object's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelFacts {
    /// Target of the code object, when it is a known one.
    pub target: Option<Gfx>,
    /// `.kind` is `normal` or absent.
    pub normal: bool,
    /// `amdhsa.printf` is present.
    pub printf: bool,
    /// `.uses_dynamic_stack`.
    pub dynamic_stack: bool,
    /// Needs hidden arguments of the refused set (hostcall, heap, default queue, completion
    /// action, multigrid).
    pub hidden_services: bool,
    /// Launched cooperatively.
    pub cooperative: bool,
    /// `.cluster_dims` is present.
    pub clusters: bool,
    /// `.vgpr_count`; 0 when unknown.
    pub vgpr_count: u32,
    /// `.max_flat_workgroup_size`; 0 when unknown.
    pub max_flat_workgroup_size: u32,
    /// `.reqd_workgroup_size`.
    pub reqd_workgroup_size: Option<[u32; 3]>,
}

impl Default for KernelFacts {
    fn default() -> Self {
        Self {
            target: None,
            normal: true,
            printf: false,
            dynamic_stack: false,
            hidden_services: false,
            cooperative: false,
            clusters: false,
            vgpr_count: 0,
            max_flat_workgroup_size: 0,
            reqd_workgroup_size: None,
        }
    }
}

/// Why a kernel is not dispatched by hand.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each variant's message says what it means")]
pub enum Refusal {
    #[error("uses a dynamic stack; compile without recursion and indirect calls")]
    DynamicStack,
    #[error(
        "kernarg preload word is {word:#06x}; preload does not exist up to gfx12.0, compile for the device"
    )]
    KernargPreload { word: u16 },
    #[error("wants the queue pointer; compile without device libraries that need it")]
    QueuePtr,
    #[error("wants the dispatch pointer; use grid constants instead of blockDim queries")]
    DispatchPtr,
    #[error("wants the dispatch id; remove indirect calls")]
    DispatchId,
    #[error("wants flat scratch; compile without spills and stack arrays")]
    FlatScratchInit,
    #[error("wants the private segment size; compile without spills and stack arrays")]
    PrivateSegmentSize,
    #[error(
        "wants a private segment buffer on a target with architected flat scratch; compile for the device"
    )]
    PrivateSegmentBuffer,
    #[error("needs wave groups; compile for the device")]
    Wavegroup,
    #[error("has unknown property bits {bits:#06x}; the code object is newer than this reader")]
    UnknownProperty { bits: u16 },
    #[error(
        "needs {bytes} bytes of scratch per work-item; compile without spills and stack arrays"
    )]
    Scratch { bytes: u32 },
    #[error(
        "RSRC2 expects {expected} user SGPRs but its properties take {used}; at most 16 and never fewer than used"
    )]
    UserSgprCount { expected: u8, used: u8 },
    #[error(
        "descriptor sets RSRC bits that belong to the dispatcher: RSRC{word} bits {bits:#010x}; they must be 0"
    )]
    DispatcherBits { word: u8, bits: u32 },
    #[error("static LDS of {bytes} bytes exceeds {limit}")]
    Lds { bytes: u32, limit: u32 },
    #[error(
        "entry at descriptor + {offset:#x} is not 256-byte aligned with a 64-byte aligned descriptor"
    )]
    EntryMisaligned { offset: i64 },
    #[error("kernel kind is not normal; init and fini kernels are not launched")]
    KindNotNormal,
    #[error("uses printf; compile without it")]
    Printf,
    #[error("uses hidden services (hostcall, heap, default queue, completion action or multigrid)")]
    HiddenServices,
    #[error("is launched cooperatively; retained dispatches cannot reserve global wave sync")]
    Cooperative,
    #[error("uses clusters; no supported target has them")]
    Clusters,
    #[error("was compiled for {code} but the device is {device}; compile for the device")]
    Target { code: Gfx, device: Gfx },
    #[error("group size {found:?} differs from the required {required:?}")]
    RequiredGroupSize { found: [u32; 3], required: [u32; 3] },
    #[error("group of {found} work-items exceeds the kernel's maximum {limit}")]
    MaxFlatGroupSize { found: u64, limit: u32 },
    #[error("grid {grid:?} is not a multiple of group {group:?}; pad the grid")]
    PartialGroups { grid: [u32; 3], group: [u32; 3] },
}

fn u32_at(bytes: &[u8; 64], offset: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[offset..offset + 4]);
    u32::from_le_bytes(word)
}

fn u16_at(bytes: &[u8; 64], offset: usize) -> u16 {
    u16::from_le_bytes([bytes[offset], bytes[offset + 1]])
}

impl KernelDescriptor {
    /// Reads a descriptor from the first 64 bytes of `bytes`.
    ///
    /// # Errors
    /// Too few bytes, or a reserved byte that is not zero.
    pub fn parse(bytes: &[u8]) -> Result<Self, DescriptorError> {
        let Some(raw) = bytes.first_chunk::<64>() else {
            return Err(DescriptorError::TooShort { found: bytes.len() });
        };
        for slot in crate::tables::objects::DESCRIPTOR.slots {
            if slot.kind != crate::tables::objects::Kind::Reserved {
                continue;
            }
            let first = usize::from(slot.offset);
            for (i, value) in raw[first..first + usize::from(slot.bytes)]
                .iter()
                .enumerate()
            {
                if *value != 0 {
                    return Err(DescriptorError::Reserved {
                        offset: first + i,
                        value: *value,
                    });
                }
            }
        }
        Ok(Self::read(raw))
    }

    /// Reads the fields of a descriptor and ignores reserved bytes.
    pub fn read(raw: &[u8; 64]) -> Self {
        let entry = u64::from(u32_at(raw, at::KERNEL_CODE_ENTRY_BYTE_OFFSET))
            | u64::from(u32_at(raw, at::KERNEL_CODE_ENTRY_BYTE_OFFSET + 4)) << 32;
        Self {
            group_segment_fixed_size: u32_at(raw, at::GROUP_SEGMENT_FIXED_SIZE),
            private_segment_fixed_size: u32_at(raw, at::PRIVATE_SEGMENT_FIXED_SIZE),
            kernarg_size: u32_at(raw, at::KERNARG_SIZE),
            entry_byte_offset: entry.cast_signed(),
            rsrc1: u32_at(raw, at::COMPUTE_PGM_RSRC1),
            rsrc2: u32_at(raw, at::COMPUTE_PGM_RSRC2),
            rsrc3: u32_at(raw, at::COMPUTE_PGM_RSRC3),
            properties: u16_at(raw, at::KERNEL_CODE_PROPERTIES),
            kernarg_preload: u16_at(raw, at::KERNARG_PRELOAD),
        }
    }

    /// The descriptor's 64 bytes, reserved bytes zero.
    pub fn to_bytes(&self) -> [u8; 64] {
        let mut out = [0; 64];
        let mut put = |offset: usize, value: &[u8]| {
            out[offset..offset + value.len()].copy_from_slice(value);
        };
        put(
            at::GROUP_SEGMENT_FIXED_SIZE,
            &self.group_segment_fixed_size.to_le_bytes(),
        );
        put(
            at::PRIVATE_SEGMENT_FIXED_SIZE,
            &self.private_segment_fixed_size.to_le_bytes(),
        );
        put(at::KERNARG_SIZE, &self.kernarg_size.to_le_bytes());
        put(
            at::KERNEL_CODE_ENTRY_BYTE_OFFSET,
            &self.entry_byte_offset.to_le_bytes(),
        );
        put(at::COMPUTE_PGM_RSRC1, &self.rsrc1.to_le_bytes());
        put(at::COMPUTE_PGM_RSRC2, &self.rsrc2.to_le_bytes());
        put(at::COMPUTE_PGM_RSRC3, &self.rsrc3.to_le_bytes());
        put(at::KERNEL_CODE_PROPERTIES, &self.properties.to_le_bytes());
        put(at::KERNARG_PRELOAD, &self.kernarg_preload.to_le_bytes());
        out
    }

    /// True when waves have 32 lanes.
    pub const fn wave32(&self) -> bool {
        self.properties & property::WAVEFRONT_SIZE32 != 0
    }

    /// Entry address for a descriptor at `descriptor_va`.
    pub const fn entry_va(&self, descriptor_va: u64) -> u64 {
        descriptor_va.wrapping_add_signed(self.entry_byte_offset)
    }

    /// Where the enabled user SGPRs go, in the order of LLVM AMDGPUUsage.
    pub fn user_sgprs(&self) -> UserSgprs {
        let mut next = 0_u8;
        let mut layout = UserSgprs {
            private_segment_buffer: None,
            kernarg_segment_ptr: None,
            used: 0,
            count: 0,
        };
        for row in PROPERTIES {
            let bit = 1_u16 << row.bit;
            if self.properties & bit == 0 {
                continue;
            }
            match bit {
                property::PRIVATE_SEGMENT_BUFFER => layout.private_segment_buffer = Some(next),
                property::KERNARG_SEGMENT_PTR => layout.kernarg_segment_ptr = Some(next),
                _ => {}
            }
            next += row.sgprs;
        }
        layout.used = next;
        // Five bits, so the cast keeps the value.
        layout.count = rsrc2::user_sgprs(self.rsrc2) as u8;
        layout
    }

    /// Everything in the descriptor alone that forbids a hand-made dispatch on `target`.
    pub fn refusals(&self, target: Gfx) -> Vec<Refusal> {
        let mut out = Vec::new();
        self.property_refusals(target, &mut out);
        if self.kernarg_preload != 0 {
            out.push(Refusal::KernargPreload {
                word: self.kernarg_preload,
            });
        }
        if self.private_segment_fixed_size != 0 || self.rsrc2 & rsrc2::SCRATCH_EN != 0 {
            out.push(Refusal::Scratch {
                bytes: self.private_segment_fixed_size,
            });
        }
        let limit = target.capability().max_lds_bytes.value;
        if self.group_segment_fixed_size > limit {
            out.push(Refusal::Lds {
                bytes: self.group_segment_fixed_size,
                limit,
            });
        }
        if self.entry_byte_offset % 64 != 0 {
            out.push(Refusal::EntryMisaligned {
                offset: self.entry_byte_offset,
            });
        }
        for (word, bits) in self.dispatcher_bits(target.generation()) {
            if bits != 0 {
                out.push(Refusal::DispatcherBits { word, bits });
            }
        }
        let layout = self.user_sgprs();
        if layout.count < layout.used || layout.count > 16 {
            out.push(Refusal::UserSgprCount {
                expected: layout.count,
                used: layout.used,
            });
        }
        out
    }

    /// The first of [`Self::refusals`].
    ///
    /// # Errors
    /// The first reason why this kernel is not dispatched by hand on `target`.
    pub fn check(&self, target: Gfx) -> Result<(), Refusal> {
        match self.refusals(target).into_iter().next() {
            Some(reason) => Err(reason),
            None => Ok(()),
        }
    }

    fn property_refusals(&self, target: Gfx, out: &mut Vec<Refusal>) {
        const NAMED: [(u16, Refusal); 7] = [
            (property::DISPATCH_PTR, Refusal::DispatchPtr),
            (property::QUEUE_PTR, Refusal::QueuePtr),
            (property::DISPATCH_ID, Refusal::DispatchId),
            (property::FLAT_SCRATCH_INIT, Refusal::FlatScratchInit),
            (property::PRIVATE_SEGMENT_SIZE, Refusal::PrivateSegmentSize),
            (property::USES_DYNAMIC_STACK, Refusal::DynamicStack),
            (property::ENABLE_WAVEGROUP, Refusal::Wavegroup),
        ];
        for (bit, reason) in NAMED {
            if self.properties & bit != 0 {
                out.push(reason);
            }
        }
        if self.properties & property::PRIVATE_SEGMENT_BUFFER != 0
            && target.capability().architected_flat_scratch.value
        {
            out.push(Refusal::PrivateSegmentBuffer);
        }
        let bits = self.properties & !property::NAMED;
        if bits != 0 {
            out.push(Refusal::UnknownProperty { bits });
        }
    }

    /// Bits per RSRC word that a descriptor must leave to the dispatcher, or that are reserved.
    fn dispatcher_bits(&self, generation: Generation) -> [(u8, u32); 3] {
        let own1 = rsrc1::PRIV | 0x0300_0000 | (1 << 22) | (3 << 10);
        let own2 = rsrc2::TRAP_PRESENT | rsrc2::EXCP_EN_MSB | rsrc2::EXCP_EN | rsrc2::LDS_SIZE;
        // Reserved bits must be zero as well: setting them selects behaviour nobody documents.
        [
            (
                1,
                self.rsrc1 & (own1 | reserved_mask(RSRC1_FIELDS, 0, generation)),
            ),
            (
                2,
                self.rsrc2 & (own2 | reserved_mask(RSRC2_FIELDS, 0, generation)),
            ),
            (3, self.rsrc3 & reserved_mask(RSRC3_FIELDS, 0, generation)),
        ]
    }
}

impl KernelFacts {
    /// Everything in metadata and launch shape that forbids a hand-made dispatch: `group` is
    /// the group size, `grid` the grid in work-items.
    pub fn refusals(&self, device: Gfx, group: [u32; 3], grid: [u32; 3]) -> Vec<Refusal> {
        let mut out = Vec::new();
        let flags = [
            (!self.normal, Refusal::KindNotNormal),
            (self.printf, Refusal::Printf),
            (self.dynamic_stack, Refusal::DynamicStack),
            (self.hidden_services, Refusal::HiddenServices),
            (self.cooperative, Refusal::Cooperative),
            (self.clusters, Refusal::Clusters),
        ];
        out.extend(flags.into_iter().filter(|row| row.0).map(|row| row.1));
        if let Some(code) = self.target
            && code != device
        {
            out.push(Refusal::Target { code, device });
        }
        if let Some(required) = self.reqd_workgroup_size
            && required != group
        {
            out.push(Refusal::RequiredGroupSize {
                found: group,
                required,
            });
        }
        let product = group
            .iter()
            .map(|n| u64::from(*n))
            .fold(1_u64, u64::saturating_mul);
        if self.max_flat_workgroup_size != 0 && product > u64::from(self.max_flat_workgroup_size) {
            out.push(Refusal::MaxFlatGroupSize {
                found: product,
                limit: self.max_flat_workgroup_size,
            });
        }
        if (0..3).any(|i| group[i] == 0 || !grid[i].is_multiple_of(group[i])) {
            out.push(Refusal::PartialGroups { grid, group });
        }
        out
    }
}
