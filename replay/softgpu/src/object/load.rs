//! Places a parsed code object in GPU memory: segments with their rights, relocations, room past
//! the code for the instruction prefetch, and the table of its kernels.

use super::elf::{Parsed, Segment, Symbol};
use super::error::ObjectError;
use super::kernel::{self, Kernel};
use super::metadata::{self, KernelMetadata, ObjectMetadata};
use super::relocate;
use crate::exec::Program;
use crate::isa::Target;
use crate::memory::{AddressSpace, CODE_ROOM, Kind, Part, Rights};
use refrain_packet::kd::KernelDescriptor;
use std::sync::Arc;

/// `s_code_end`, what an assembler writes after the last instruction (gfx10 and later).
const S_CODE_END: u32 = 0xBF9F_0000;

/// A code object in GPU memory, before it gets its name table.
pub(crate) struct Placed {
    /// Address of file address `origin`.
    pub base: u64,
    /// First addresses of its allocations.
    pub allocations: Vec<u64>,
    /// Kernels in metadata order.
    pub kernels: Vec<Arc<Kernel>>,
}

/// Loads `bytes` for `target`; `label` names the image in messages.
pub(crate) fn load(
    memory: &AddressSpace,
    target: Target,
    bytes: &[u8],
    label: &str,
) -> Result<Placed, ObjectError> {
    let parsed = super::elf::parse(bytes, (target.elf_mach() & 0xff) as u8, target.name())?;
    let note = bytes.get(parsed.note.clone()).unwrap_or_default();
    let metadata = metadata::parse(note)?;
    let image = Image::build(&parsed, bytes);
    let (base, allocations) = image.reserve(memory, &parsed, label)?;
    let file = File {
        parsed: &parsed,
        metadata: &metadata,
        digest: *blake3::hash(bytes).as_bytes(),
    };
    let placed = finish(memory, target, file, image, base);
    match placed {
        Ok(kernels) => Ok(Placed {
            base,
            allocations,
            kernels,
        }),
        Err(error) => {
            for allocation in allocations {
                // The allocation was just made and nobody else knows its address.
                let _ = memory.free(allocation);
            }
            Err(error)
        }
    }
}

/// The bytes of all segments, the room after code included.
struct Image {
    /// File address of byte 0, a multiple of the page size.
    origin: u64,
    bytes: Vec<u8>,
    /// (index into `Parsed::segments`, start in `bytes`, length with room).
    parts: Vec<(usize, usize, usize)>,
}

impl Image {
    fn build(parsed: &Parsed, file: &[u8]) -> Self {
        let origin = parsed
            .segments
            .first()
            .map_or(0, |segment| segment.address & !4095);
        let mut parts = Vec::new();
        let mut end = 0;
        for (index, segment) in parsed.segments.iter().enumerate() {
            let start = (segment.address - origin) as usize;
            let mut len = segment.memory_size as usize;
            if segment.executable {
                // The next segment, which is readable too, may begin inside the room.
                let next = parsed
                    .segments
                    .get(index + 1)
                    .map_or(usize::MAX, |next| (next.address - origin) as usize);
                len = (len + CODE_ROOM as usize).min(next - start);
            }
            parts.push((index, start, len));
            end = start + len;
        }
        let mut bytes = vec![0; end];
        for &(index, start, len) in &parts {
            let Some(segment) = parsed.segments.get(index) else {
                continue;
            };
            let source = file.get(segment.file.clone()).unwrap_or_default();
            bytes[start..start + source.len()].copy_from_slice(source);
            if segment.executable {
                fill_code_end(&mut bytes[start..start + len], segment.memory_size as usize);
            }
        }
        Self {
            origin,
            bytes,
            parts,
        }
    }

    fn reserve(
        &self,
        memory: &AddressSpace,
        parsed: &Parsed,
        label: &str,
    ) -> Result<(u64, Vec<u64>), ObjectError> {
        let role = |segment: &Segment| match (segment.executable, segment.writable) {
            (true, _) => "code",
            (false, true) => "data",
            (false, false) => "constants",
        };
        let names: Vec<String> = self
            .parts
            .iter()
            .filter_map(|&(index, ..)| parsed.segments.get(index))
            .map(|segment| format!("{label} {}", role(segment)))
            .collect();
        let parts: Vec<Part<'_>> = self
            .parts
            .iter()
            .zip(&names)
            .map(|(&(_, start, len), name)| Part {
                name,
                offset: start as u64,
                len: len as u64,
                rights: Rights::READ_WRITE,
                kind: Kind::Code,
            })
            .collect();
        let failed = |error: crate::memory::AllocError| ObjectError::Memory {
            what: error.to_string(),
        };
        let base = memory
            .alloc_image(self.bytes.len() as u64, &parts)
            .map_err(failed)?;
        Ok((base, parts.iter().map(|part| base + part.offset).collect()))
    }

    /// Copies the bytes in and sets the final rights.
    fn write(&self, memory: &AddressSpace, parsed: &Parsed, base: u64) -> Result<(), ObjectError> {
        for &(index, start, len) in &self.parts {
            let Some(segment) = parsed.segments.get(index) else {
                continue;
            };
            let va = base + start as u64;
            let rights = match (segment.executable, segment.writable) {
                (true, _) => Rights::CODE,
                (false, true) => Rights::READ_WRITE,
                (false, false) => Rights::READ,
            };
            memory
                .write_bytes(va, &self.bytes[start..start + len])
                .map_err(|error| ObjectError::Memory {
                    what: error.to_string(),
                })?;
            memory
                .set_rights(va, rights)
                .map_err(|error| ObjectError::Memory {
                    what: error.to_string(),
                })?;
        }
        Ok(())
    }
}

/// Fills `code[from..]` with `s_code_end`, counted from the segment's start so that words stay
/// aligned.
fn fill_code_end(code: &mut [u8], from: usize) {
    for (index, byte) in code.iter_mut().enumerate().skip(from) {
        *byte = S_CODE_END.to_le_bytes()[index % 4];
    }
}

/// What the bytes of a code object say.
#[derive(Clone, Copy)]
struct File<'a> {
    parsed: &'a Parsed,
    metadata: &'a ObjectMetadata,
    /// BLAKE3 of the bytes.
    digest: [u8; 32],
}

fn finish(
    memory: &AddressSpace,
    target: Target,
    file: File<'_>,
    mut image: Image,
    base: u64,
) -> Result<Vec<Arc<Kernel>>, ObjectError> {
    let parsed = file.parsed;
    let bias = base.wrapping_sub(image.origin);
    for relocation in &parsed.relocations {
        relocate::apply(
            relocation,
            &parsed.symbols,
            &mut image.bytes,
            image.origin,
            bias,
        )?;
    }
    image.write(memory, parsed, base)?;
    let mut programs = Vec::new();
    for &(index, start, _) in &image.parts {
        let Some(segment) = parsed
            .segments
            .get(index)
            .filter(|segment| segment.executable)
        else {
            continue;
        };
        let code = &image.bytes[start..start + segment.memory_size as usize];
        let va = base + start as u64;
        let program = Program::decode(target, va, code).map_err(|error| ObjectError::Code {
            address: segment.address,
            what: error.to_string(),
        })?;
        programs.push((va, va + segment.memory_size, Arc::new(program)));
    }
    let kernels = file.metadata.kernels.iter().map(|meta| {
        let context = Context {
            target,
            file,
            image: &image,
            bias,
            programs: &programs,
        };
        context.kernel(meta).map(Arc::new)
    });
    let kernels: Vec<Arc<Kernel>> = kernels.collect::<Result<_, _>>()?;
    for (from, to, program) in &programs {
        let inside = kernels
            .iter()
            .filter(|kernel| (*from..*to).contains(&kernel.entry_va));
        program.name_entries(
            inside
                .map(|kernel| (kernel.entry_va, Arc::clone(&kernel.name)))
                .collect(),
        );
    }
    Ok(kernels)
}

struct Context<'a> {
    target: Target,
    file: File<'a>,
    image: &'a Image,
    bias: u64,
    programs: &'a [(u64, u64, Arc<Program>)],
}

impl Context<'_> {
    fn kernel(&self, meta: &KernelMetadata) -> Result<Kernel, ObjectError> {
        let fail = |what: String| ObjectError::Kernel {
            kernel: meta.name.clone(),
            what,
        };
        let symbol = self.symbol(meta, &fail)?;
        let start = symbol
            .address
            .checked_sub(self.image.origin)
            .and_then(|start| usize::try_from(start).ok());
        let bytes = start
            .filter(|&start| self.in_constants(start))
            .and_then(|start| self.image.bytes.get(start..start.checked_add(64)?))
            .and_then(|bytes| bytes.first_chunk::<64>());
        let bytes = bytes
            .ok_or_else(|| fail("descriptor lies outside the read-only segments".to_owned()))?;
        let descriptor = KernelDescriptor::parse(bytes).map_err(|error| fail(error.to_string()))?;
        let descriptor_va = symbol.address.wrapping_add(self.bias);
        let entry_va = descriptor.entry_va(descriptor_va);
        let program = self
            .programs
            .iter()
            .find(|(start, end, _)| (*start..*end).contains(&entry_va));
        let (_, _, program) = program.ok_or_else(|| {
            fail(format!(
                "entry {entry_va:#x} lies outside the code segments"
            ))
        })?;
        if !entry_va.is_multiple_of(256) {
            return Err(fail(format!("entry {entry_va:#x} is not 256-byte aligned")));
        }
        if let Some(what) = kernel::contradiction(&descriptor, meta) {
            return Err(fail(what));
        }
        Ok(Kernel {
            name: Arc::from(meta.name.as_str()),
            object: self.file.digest,
            descriptor_va,
            entry_va,
            user_sgprs: descriptor.user_sgprs(),
            refusal: kernel::refusal(
                &descriptor,
                meta,
                self.file.metadata.uses_printf,
                self.target,
            ),
            descriptor,
            metadata: meta.clone(),
            program: Arc::clone(program),
        })
    }

    /// The symbol of a kernel's descriptor.
    fn symbol(
        &self,
        meta: &KernelMetadata,
        fail: &dyn Fn(String) -> ObjectError,
    ) -> Result<&Symbol, ObjectError> {
        let symbol = self
            .file
            .parsed
            .symbols
            .iter()
            .find(|symbol| symbol.name == meta.symbol && symbol.defined);
        let symbol = symbol.ok_or_else(|| {
            fail(format!(
                "descriptor symbol `{}` is not defined",
                meta.symbol
            ))
        })?;
        if symbol.size != 64 {
            return Err(fail(format!(
                "descriptor symbol has {} bytes instead of 64",
                symbol.size
            )));
        }
        if !symbol.address.is_multiple_of(64) {
            return Err(fail(format!(
                "descriptor at {:#x} is not 64-byte aligned",
                symbol.address
            )));
        }
        Ok(symbol)
    }

    /// Whether 64 bytes at image offset `start` lie in a segment that is neither code nor writable.
    fn in_constants(&self, start: usize) -> bool {
        self.image.parts.iter().any(|&(index, first, len)| {
            let constants = self
                .file
                .parsed
                .segments
                .get(index)
                .is_some_and(|s| !s.writable && !s.executable);
            constants && start >= first && start - first <= len.saturating_sub(64)
        })
    }
}
