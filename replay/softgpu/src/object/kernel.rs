//! One kernel of a loaded object: descriptor and metadata checked against each other, and the
//! reason for which it is not run. Packets look kernels up by descriptor address (AQL) or entry
//! (PM4).

use super::error::KernelRefusal;
use super::metadata::KernelMetadata;
use crate::exec::Program;
use crate::isa::Target;
use refrain_packet::Gfx;
use refrain_packet::kd::{KernelDescriptor, Refusal, UserSgprs};
use std::sync::Arc;

/// Argument kinds that only a host service could fill (LLVM AMDGPUUsage, hidden arguments).
const HOST_SERVICE_ARGS: &[&str] = &[
    "hidden_printf_buffer",
    "hidden_hostcall_buffer",
    "hidden_multigrid_sync_arg",
    "hidden_heap_v1",
    "hidden_default_queue",
    "hidden_completion_action",
    "hidden_queue_ptr",
    "hidden_private_base",
    "hidden_shared_base",
];

/// A kernel that a packet can name.
#[derive(Debug)]
pub struct Kernel {
    /// Name as in the metadata, without `.kd`.
    pub name: Arc<str>,
    /// BLAKE3 of the code object that it came from.
    pub object: [u8; 32],
    /// Address of the 64-byte kernel descriptor: AQL's `kernel_object`.
    pub descriptor_va: u64,
    /// Address of the first instruction.
    pub entry_va: u64,
    /// The descriptor as read.
    pub descriptor: KernelDescriptor,
    /// Where its user SGPRs go.
    pub user_sgprs: UserSgprs,
    /// The compiler's metadata.
    pub metadata: KernelMetadata,
    /// The decoded code segment that holds the entry.
    pub program: Arc<Program>,
    /// Why it is not run, if it is not.
    pub refusal: Option<KernelRefusal>,
}

impl Kernel {
    /// Bytes of kernel arguments, from the descriptor or, when that says 0, from the metadata.
    pub fn kernarg_size(&self) -> u32 {
        self.descriptor
            .kernarg_size
            .max(self.metadata.kernarg_segment_size)
    }

    /// Alignment that a kernarg address must have, bytes; at least 16 (HSA).
    pub fn kernarg_align(&self) -> u32 {
        self.metadata.kernarg_segment_align.max(16)
    }
}

/// What `hsa_executable_symbol_get_info` and a launcher need to know about a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelSymbol {
    /// Name without `.kd`.
    pub name: Arc<str>,
    /// Address of the kernel descriptor: AQL's `kernel_object`.
    pub descriptor_va: u64,
    /// Address of the first instruction.
    pub entry_va: u64,
    /// Bytes of kernel arguments, hidden ones included.
    pub kernarg_size: u32,
    /// Alignment of the kernarg address, bytes.
    pub kernarg_align: u32,
    /// Static LDS, bytes per work-group.
    pub group_bytes: u32,
    /// Scratch, bytes per work-item.
    pub private_bytes: u32,
    /// Most work-items per work-group.
    pub max_flat_workgroup_size: u32,
    /// Work-group size that the code insists on.
    pub reqd_workgroup_size: Option<[u32; 3]>,
}

impl From<&Kernel> for KernelSymbol {
    fn from(kernel: &Kernel) -> Self {
        Self {
            name: Arc::clone(&kernel.name),
            descriptor_va: kernel.descriptor_va,
            entry_va: kernel.entry_va,
            kernarg_size: kernel.kernarg_size(),
            kernarg_align: kernel.kernarg_align(),
            group_bytes: kernel.descriptor.group_segment_fixed_size,
            private_bytes: kernel.descriptor.private_segment_fixed_size,
            max_flat_workgroup_size: kernel.metadata.max_flat_workgroup_size,
            reqd_workgroup_size: kernel.metadata.reqd_workgroup_size,
        }
    }
}

/// Where descriptor and metadata contradict each other, in words.
pub(crate) fn contradiction(
    descriptor: &KernelDescriptor,
    meta: &KernelMetadata,
) -> Option<String> {
    let wave = if descriptor.wave32() { 32 } else { 64 };
    let rows = [
        (
            ".group_segment_fixed_size",
            descriptor.group_segment_fixed_size,
            meta.group_segment_fixed_size,
        ),
        (
            ".private_segment_fixed_size",
            descriptor.private_segment_fixed_size,
            meta.private_segment_fixed_size,
        ),
        (".wavefront_size", wave, meta.wavefront_size),
    ];
    // A descriptor's kernarg size of 0 means unknown (LLVM AMDGPUUsage).
    let kernarg = (
        ".kernarg_segment_size",
        descriptor.kernarg_size,
        meta.kernarg_segment_size,
    );
    let kernarg = (descriptor.kernarg_size != 0).then_some(kernarg);
    let row = rows.into_iter().chain(kernarg).find(|row| row.1 != row.2);
    if let Some((field, in_descriptor, in_note)) = row {
        return Some(format!(
            "{field} is {in_note} in the metadata but {in_descriptor} in the descriptor"
        ));
    }
    if !(1..=1024).contains(&meta.max_flat_workgroup_size) {
        return Some(format!(
            ".max_flat_workgroup_size is {}, outside 1..=1024",
            meta.max_flat_workgroup_size
        ));
    }
    if !meta.kernarg_segment_align.is_power_of_two() || meta.kernarg_segment_align > 4096 {
        return Some(format!(
            ".kernarg_segment_align is {}",
            meta.kernarg_segment_align
        ));
    }
    let past = meta.args.iter().find(|arg| {
        arg.offset
            .checked_add(arg.size)
            .is_none_or(|end| end > meta.kernarg_segment_size)
    });
    past.map(|arg| {
        format!(
            "argument at offset {} ends past .kernarg_segment_size",
            arg.offset
        )
    })
}

/// The first reason for which the kernel is not run on `target`.
pub(crate) fn refusal(
    descriptor: &KernelDescriptor,
    meta: &KernelMetadata,
    printf: bool,
    target: Target,
) -> Option<KernelRefusal> {
    let flags = [
        (printf, Refusal::Printf),
        (meta.kind != "normal", Refusal::KindNotNormal),
        (meta.uses_dynamic_stack, Refusal::DynamicStack),
        (meta.has_cluster_dims, Refusal::Clusters),
    ];
    if let Some((_, reason)) = flags.into_iter().find(|row| row.0) {
        return Some(reason.into());
    }
    if let Some(gfx) = gfx(target)
        && let Err(reason) = descriptor.check(gfx)
    {
        return Some(reason.into());
    }
    if !descriptor.wave32() {
        return Some(KernelRefusal::Wave64);
    }
    let hidden = meta
        .args
        .iter()
        .find(|arg| HOST_SERVICE_ARGS.contains(&arg.value_kind.as_str()));
    hidden.map(|arg| KernelRefusal::HiddenArgument {
        value_kind: arg.value_kind.clone(),
    })
}

/// The packet tables' row of a target.
pub(crate) fn gfx(target: Target) -> Option<Gfx> {
    Gfx::from_name(target.name())
}
