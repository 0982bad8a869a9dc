//! Reads a code object's header and its NT_AMDGPU_METADATA note (LLVM AMDGPUUsage, "Code Object V3
//! and Above Metadata"): what the compiler says of each kernel.
//!
//! The software GPU has its own loader; this reader serves the lint and the generated table only.

use anyhow::{Context, Result, bail, ensure};
use object::elf::FileHeader64;
use object::read::elf::{ElfFile64, FileHeader, SectionHeader};
use object::{Endianness, Object, ObjectSection};
use serde::Deserialize;

/// Owner and type of the note.
const NOTE_OWNER: &[u8] = b"AMDGPU";
const NT_AMDGPU_METADATA: u32 = 32;

/// What a code object says of itself.
#[derive(Debug)]
pub(crate) struct ObjectFacts {
    /// Low byte of `e_flags`.
    pub(crate) mach: u32,
    /// The compiler's version line, from `.comment`.
    pub(crate) compiler: String,
    /// By ascending symbol.
    pub(crate) kernels: Vec<Kernel>,
}

#[derive(Debug, Deserialize)]
struct Note {
    #[serde(rename = "amdhsa.kernels")]
    kernels: Vec<Kernel>,
}

/// One kernel's metadata.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Kernel {
    #[serde(rename = ".name")]
    pub(crate) name: String,
    #[serde(rename = ".args", default)]
    pub(crate) args: Vec<KernelArg>,
    #[serde(rename = ".kernarg_segment_size")]
    pub(crate) kernarg_bytes: u32,
    #[serde(rename = ".group_segment_fixed_size")]
    pub(crate) lds_bytes: u32,
    #[serde(rename = ".private_segment_fixed_size")]
    pub(crate) scratch_bytes: u32,
    #[serde(rename = ".uses_dynamic_stack", default)]
    pub(crate) dynamic_stack: bool,
    #[serde(rename = ".max_flat_workgroup_size")]
    pub(crate) block: u32,
    #[serde(rename = ".wavefront_size")]
    pub(crate) wave: u32,
    #[serde(rename = ".sgpr_count")]
    pub(crate) sgprs: u32,
    #[serde(rename = ".vgpr_count")]
    pub(crate) vgprs: u32,
    #[serde(rename = ".sgpr_spill_count", default)]
    pub(crate) sgpr_spills: u32,
    #[serde(rename = ".vgpr_spill_count", default)]
    pub(crate) vgpr_spills: u32,
}

/// One argument's metadata.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct KernelArg {
    #[serde(rename = ".offset")]
    pub(crate) offset: u32,
    #[serde(rename = ".size")]
    pub(crate) size: u32,
    #[serde(rename = ".value_kind")]
    pub(crate) kind: String,
}

/// Reads a code object.
pub(crate) fn read(bytes: &[u8]) -> Result<ObjectFacts> {
    let file = ElfFile64::<Endianness>::parse(bytes).context("not an ELF64 file")?;
    let header: &FileHeader64<Endianness> = file.elf_header();
    let endian = header.endian()?;
    let mut kernels = None;
    for section in file.sections() {
        let Some(mut notes) = section.elf_section_header().notes(endian, bytes)? else {
            continue;
        };
        while let Some(note) = notes.next()? {
            if note.name() == NOTE_OWNER && note.n_type(endian).0 == NT_AMDGPU_METADATA {
                let parsed: Note = rmp_serde::from_slice(note.desc())
                    .context("the metadata note is not the MessagePack map expected")?;
                kernels = Some(parsed.kernels);
            }
        }
    }
    let Some(mut kernels) = kernels else {
        bail!("no NT_AMDGPU_METADATA note")
    };
    kernels.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(ObjectFacts {
        mach: header.e_flags(endian).0 & 0xFF,
        compiler: compiler(&file)?,
        kernels,
    })
}

/// `.comment` holds one NUL-terminated line per tool; the compiler's is the one with "clang".
fn compiler(file: &ElfFile64<'_, Endianness>) -> Result<String> {
    let section = file
        .section_by_name(".comment")
        .context("no .comment section")?;
    let text = String::from_utf8_lossy(section.data()?).into_owned();
    let line = text.split('\0').find(|line| line.contains("clang version"));
    let line = line.context(".comment names no clang version")?;
    ensure!(
        !line.contains(['"', '\\', '\n']),
        "odd compiler version line {line:?}"
    );
    Ok(line.to_owned())
}

#[cfg(test)]
mod tests {
    use refrain_kernels::{Target, code_object};

    use super::read;

    #[test]
    fn committed_objects_parse() {
        for target in Target::ALL {
            let facts = read(code_object(target).bytes()).unwrap();
            assert_eq!(facts.mach, target.mach(), "{target}");
            assert!(
                facts.compiler.contains("clang version"),
                "{}",
                facts.compiler
            );
        }
    }

    #[test]
    fn damaged_objects_are_errors() {
        let good = code_object(Target::Gfx1100).bytes();
        assert!(read(&[]).is_err());
        assert!(read(&good[..good.len() / 2]).is_err());
        let mut no_note = good.to_vec();
        for at in 0..no_note.len() - 6 {
            if no_note[at..].starts_with(b"AMDGPU\0") {
                no_note[at] = b'X';
            }
        }
        assert!(read(&no_note).is_err());
    }
}
