//! Kernel images: what lowering needs to know about a kernel, read from plain code-object bytes.
//!
//! Nothing here comes from a loaded handle, so an encoding can be recomputed on any machine. What a
//! retained dispatch may not use (scratch, dynamic stack, hidden arguments, other user SGPRs than
//! the kernarg pointer) is refused when a kernel is looked up, with the name of the property.
//! Loading code onto a device is left to others.

use object::{Object, ObjectSegment, ObjectSymbol};
use refrain_kernels::Target;
use refrain_packet::kd::{KernelDescriptor, KernelFacts, Refusal};
use refrain_packet::target::Gfx;
use refrain_planner::identity::hex;
use refrain_planner::plan::{Digest, Kernel};
use std::collections::BTreeMap;

/// ELF machine number of AMD GPUs (`EM_AMDGPU`, LLVM AMDGPUUsage).
const EM_AMDGPU: u16 = 224;
/// Why a code object or one of its kernels cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// Not an AMD GPU code object.
    #[error("code object of {bytes} bytes: {what}; rebuild the kernels")]
    Object {
        /// Its length.
        bytes: usize,
        /// What is wrong.
        what: String,
    },
    /// The plan names a code object that was not given.
    #[error("code object {object} with kernel {symbol} is absent; {given} given: {have}")]
    ObjectAbsent {
        /// Kernel.
        symbol: String,
        /// Digest that the plan names, hex.
        object: String,
        /// How many code objects were given.
        given: usize,
        /// Their digests, hex.
        have: String,
    },
    /// The code object has no such kernel.
    #[error("kernel {symbol} is not in code object {object}")]
    KernelAbsent {
        /// Kernel.
        symbol: String,
        /// Digest, hex.
        object: String,
    },
    /// The code object was built for another target than the plan.
    #[error(
        "kernel {symbol}: code object is for ELF machine {found:#x}, the plan is for {target} ({expected:#x})"
    )]
    Target {
        /// Kernel.
        symbol: String,
        /// The plan's target.
        target: &'static str,
        /// Its `EF_AMDGPU_MACH`.
        expected: u32,
        /// The object's.
        found: u32,
    },
    /// The kernel uses what a retained dispatch does not provide.
    #[error("kernel {symbol} {reason}")]
    Refused {
        /// Kernel.
        symbol: String,
        /// What it uses.
        reason: Refusal,
    },
    /// The kernarg segment is longer than the declared arguments.
    #[error(
        "kernel {symbol} takes {found} kernarg bytes, {expected} are declared: the rest are hidden arguments; rebuild it without"
    )]
    HiddenArguments {
        /// Kernel.
        symbol: String,
        /// Bytes of the declared arguments.
        expected: u32,
        /// Bytes that the descriptor asks for.
        found: u32,
    },
    /// Plan and descriptor disagree.
    #[error(
        "kernel {symbol}: {field} is {found} in the code object, {expected} in the plan; make the plan again"
    )]
    Differs {
        /// Kernel.
        symbol: String,
        /// Which fact.
        field: &'static str,
        /// The plan's value.
        expected: u64,
        /// The object's value.
        found: u64,
    },
}

/// One kernel of a code object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelImage {
    /// Its descriptor.
    pub descriptor: KernelDescriptor,
    /// `EF_AMDGPU_MACH` of the code object.
    pub mach: u32,
    /// What the metadata note says; `None` when the object has no note for it.
    pub facts: Option<KernelFacts>,
}

/// Code objects by digest, and their kernels by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelImages {
    pub(crate) objects: BTreeMap<Digest, BTreeMap<String, KernelImage>>,
}

impl KernelImages {
    /// No code object yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads a code object and returns the digest under which plans name it.
    ///
    /// # Errors
    /// [`ImageError::Object`] with what is wrong with the ELF file.
    pub fn add(&mut self, bytes: &[u8]) -> Result<Digest, ImageError> {
        let digest = *blake3::hash(bytes).as_bytes();
        let kernels = parse(bytes).map_err(|what| ImageError::Object {
            bytes: bytes.len(),
            what,
        })?;
        self.objects.insert(digest, kernels);
        Ok(digest)
    }

    /// The image of a plan's kernel, after checking that both agree and that a retained dispatch
    /// can provide all it uses.
    ///
    /// # Errors
    /// Any [`ImageError`] but `Object`.
    pub fn get(&self, kernel: &Kernel) -> Result<&KernelImage, ImageError> {
        let symbol = || kernel.symbol.clone();
        let object = || hex(&kernel.object);
        let kernels = self
            .objects
            .get(&kernel.object)
            .ok_or_else(|| ImageError::ObjectAbsent {
                symbol: symbol(),
                object: object(),
                given: self.objects.len(),
                have: self
                    .objects
                    .keys()
                    .map(|key| hex(key))
                    .collect::<Vec<_>>()
                    .join(", "),
            })?;
        let image = kernels
            .get(&kernel.symbol)
            .ok_or_else(|| ImageError::KernelAbsent {
                symbol: symbol(),
                object: object(),
            })?;
        let mach = kernel.target.mach();
        if image.mach != mach {
            let (target, found) = (kernel.target.name(), image.mach);
            return Err(ImageError::Target {
                symbol: symbol(),
                target,
                expected: mach,
                found,
            });
        }
        image.agrees(kernel)?;
        Ok(image)
    }
}

impl KernelImage {
    /// Refuses what a retained dispatch cannot provide, and facts that the plan has otherwise.
    fn agrees(&self, kernel: &Kernel) -> Result<(), ImageError> {
        let symbol = || kernel.symbol.clone();
        let descriptor = &self.descriptor;
        let gfx = gfx(kernel.target);
        descriptor
            .check(gfx)
            .map_err(|reason| ImageError::Refused {
                symbol: symbol(),
                reason,
            })?;
        if descriptor.kernarg_size > kernel.kernarg_bytes.next_multiple_of(8) {
            let (expected, found) = (kernel.kernarg_bytes, descriptor.kernarg_size);
            return Err(ImageError::HiddenArguments {
                symbol: symbol(),
                expected,
                found,
            });
        }
        let facts = [
            (
                "kernarg bytes",
                kernel.kernarg_bytes,
                descriptor.kernarg_size,
            ),
            (
                "LDS bytes",
                kernel.lds_bytes,
                descriptor.group_segment_fixed_size,
            ),
        ];
        for (field, expected, found) in facts {
            if expected != found {
                let (expected, found) = (u64::from(expected), u64::from(found));
                return Err(ImageError::Differs {
                    symbol: symbol(),
                    field,
                    expected,
                    found,
                });
            }
        }
        Ok(())
    }
}

/// The packet crate's name of a catalog target.
pub const fn gfx(target: Target) -> Gfx {
    match target {
        Target::Gfx1100 => Gfx::Gfx1100,
        Target::Gfx1151 => Gfx::Gfx1151,
        Target::Gfx1201 => Gfx::Gfx1201,
    }
}

fn parse(bytes: &[u8]) -> Result<BTreeMap<String, KernelImage>, String> {
    let file = object::read::elf::ElfFile64::<object::LittleEndian>::parse(bytes)
        .map_err(|error| format!("not a 64-bit little-endian ELF file ({error})"))?;
    let header = file.elf_header();
    let machine = header.e_machine.get(object::LittleEndian).0;
    if machine != EM_AMDGPU {
        return Err(format!(
            "ELF machine {machine}, expected {EM_AMDGPU} (AMD GPU)"
        ));
    }
    let mach = header.e_flags.get(object::LittleEndian).0 & 0xFF;
    let mut facts = crate::metadata::facts(&file, mach)?;
    let mut kernels = BTreeMap::new();
    for symbol in file.dynamic_symbols() {
        let name = symbol
            .name()
            .map_err(|error| format!("symbol name: {error}"))?;
        let Some(name) = name.strip_suffix(".kd") else {
            continue;
        };
        let bytes = at(&file, symbol.address())
            .ok_or_else(|| format!("descriptor of {name} lies outside every segment"))?;
        let descriptor =
            KernelDescriptor::parse(&bytes).map_err(|error| format!("{name}: {error}"))?;
        let entry = descriptor.entry_va(symbol.address());
        if !entry.is_multiple_of(256) {
            return Err(format!(
                "entry of {name} at {entry:#x} is not 256-byte aligned"
            ));
        }
        let facts = facts.remove(name);
        let image = KernelImage {
            descriptor,
            mach,
            facts,
        };
        kernels.insert(name.to_owned(), image);
    }
    if kernels.is_empty() {
        return Err("no kernel descriptor among its dynamic symbols".into());
    }
    Ok(kernels)
}

fn at(
    file: &object::read::elf::ElfFile64<'_, object::LittleEndian>,
    address: u64,
) -> Option<[u8; 64]> {
    file.segments().find_map(|segment| {
        let data = segment.data_range(address, 64).ok()??;
        data.try_into().ok()
    })
}
