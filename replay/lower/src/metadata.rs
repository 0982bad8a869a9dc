//! What a code object's NT_AMDGPU_METADATA note says of its kernels (LLVM AMDGPUUsage, "Code Object
//! V3 and Above Metadata"), as the facts that the packet linter asks for.
//!
//! The note is read here once more, apart from the software GPU's loader: the linter shall not judge
//! by what another part believes. Descriptors are left to the caller.

use object::LittleEndian;
use object::read::elf::{ElfFile64, FileHeader, SectionHeader};
use refrain_packet::kd::KernelFacts;
use refrain_packet::target::Gfx;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Owner and type of the note.
const NOTE_OWNER: &[u8] = b"AMDGPU";
const NT_AMDGPU_METADATA: u32 = 32;
/// Hidden arguments whose services a retained dispatch does not provide.
const SERVICES: [&str; 5] = [
    "hidden_hostcall_buffer",
    "hidden_heap_v1",
    "hidden_default_queue",
    "hidden_completion_action",
    "hidden_multigrid_sync_arg",
];

#[derive(Debug, Deserialize)]
struct Note {
    #[serde(rename = "amdhsa.target", default)]
    target: Option<String>,
    #[serde(rename = "amdhsa.printf", default)]
    printf: Option<Vec<String>>,
    #[serde(rename = "amdhsa.kernels")]
    kernels: Vec<Kernel>,
}

#[derive(Debug, Deserialize)]
struct Kernel {
    #[serde(rename = ".name")]
    name: String,
    #[serde(rename = ".kind", default)]
    kind: Option<String>,
    #[serde(rename = ".args", default)]
    args: Vec<Argument>,
    #[serde(rename = ".uses_dynamic_stack", default)]
    dynamic_stack: bool,
    #[serde(rename = ".max_flat_workgroup_size", default)]
    max_flat_workgroup_size: u32,
    #[serde(rename = ".reqd_workgroup_size", default)]
    reqd_workgroup_size: Option<[u32; 3]>,
    #[serde(rename = ".vgpr_count", default)]
    vgpr_count: u32,
    #[serde(rename = ".cluster_dims", default)]
    cluster_dims: Option<Vec<u32>>,
}

#[derive(Debug, Deserialize)]
struct Argument {
    #[serde(rename = ".value_kind", default)]
    kind: String,
}

/// Facts by kernel name. `mach` is the low byte of `e_flags`; a note that names another target than
/// it is an error. Empty when the object has no note.
pub(crate) fn facts(
    file: &ElfFile64<'_, LittleEndian>,
    mach: u32,
) -> Result<BTreeMap<String, KernelFacts>, String> {
    let target = u8::try_from(mach).ok().and_then(Gfx::from_elf_mach);
    let Some(note) = note(file)? else {
        return Ok(BTreeMap::new());
    };
    let named = note.target.as_deref().and_then(Gfx::from_name);
    if let (Some(flags), Some(named)) = (target, named)
        && flags != named
    {
        return Err(format!("e_flags say {flags}, the metadata note {named}"));
    }
    let printf = note.printf.is_some_and(|formats| !formats.is_empty());
    let row = |kernel: Kernel| {
        let mut services = kernel.args.iter().map(|row| row.kind.as_str());
        let facts = KernelFacts {
            target,
            normal: kernel.kind.is_none_or(|kind| kind == "normal"),
            printf,
            dynamic_stack: kernel.dynamic_stack,
            hidden_services: services.any(|kind| SERVICES.contains(&kind)),
            cooperative: false,
            clusters: kernel.cluster_dims.is_some(),
            vgpr_count: kernel.vgpr_count,
            max_flat_workgroup_size: kernel.max_flat_workgroup_size,
            reqd_workgroup_size: kernel.reqd_workgroup_size,
        };
        (kernel.name, facts)
    };
    Ok(note.kernels.into_iter().map(row).collect())
}

fn note(file: &ElfFile64<'_, LittleEndian>) -> Result<Option<Note>, String> {
    let (header, data) = (file.elf_header(), file.data());
    let wrong = |error: object::Error| format!("notes: {error}");
    let sections = header.sections(LittleEndian, data).map_err(wrong)?;
    for section in sections.iter() {
        let Some(mut notes) = section.notes(LittleEndian, data).map_err(wrong)? else {
            continue;
        };
        while let Some(row) = notes.next().map_err(wrong)? {
            if row.name() == NOTE_OWNER && row.n_type(LittleEndian).0 == NT_AMDGPU_METADATA {
                let note = rmp_serde::from_slice(row.desc());
                return note
                    .map(Some)
                    .map_err(|error| format!("metadata note: {error}"));
            }
        }
    }
    Ok(None)
}
