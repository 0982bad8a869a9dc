//! Every way a code object can be refused, with the offset or name at fault and what to do about
//! it.

/// Why a code object was not loaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// The bytes are not an ELF file that the reader can walk.
    #[error(
        "code object: not a usable ELF file ({what}); pass the bytes of one AMDGPU code object, not a bundle"
    )]
    Elf {
        /// What the reader could not follow.
        what: String,
    },
    /// An identification field has another value than an AMDGPU HSA code object's.
    #[error("code object: ELF {field} is {found}, expected {expected}")]
    Header {
        /// Name of the field, as in the ELF specification.
        field: &'static str,
        /// Value in the file.
        found: u64,
        /// Accepted value or range.
        expected: &'static str,
    },
    /// Compiled for another processor than the one it is loaded on.
    #[error(
        "code object is for {found}, this GPU is {expected}: compile the kernels for {expected} or open a {found} device"
    )]
    Target {
        /// Processor named by `e_flags`.
        found: String,
        /// Processor of the software GPU.
        expected: String,
    },
    /// `e_flags` has bits outside the machine field that this target does not have.
    #[error(
        "code object: e_flags {flags:#x} asks for XNACK, SRAMECC or a generic version, which {target} does not have"
    )]
    Flags {
        /// The whole `e_flags` word.
        flags: u32,
        /// Processor of the software GPU.
        target: String,
    },
    /// A loadable segment is out of bounds, overlapping or too large.
    #[error("code object: PT_LOAD {index} ({address:#x}+{size:#x}): {what}")]
    Segment {
        /// Index among the program headers.
        index: usize,
        /// Virtual address in the file.
        address: u64,
        /// Size in memory, bytes.
        size: u64,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A relocation cannot be applied.
    #[error("code object: relocation {name} at {offset:#x} (symbol {symbol}): {what}")]
    Relocation {
        /// `R_AMDGPU_*` name, or its number when it has none.
        name: String,
        /// Address of the patched field in the file's address space.
        offset: u64,
        /// Symbol that it refers to, `-` for none.
        symbol: String,
        /// Why it is refused.
        what: &'static str,
    },
    /// The metadata note cannot be read.
    #[error("code object: NT_AMDGPU_METADATA at byte {offset} of the note: {what}")]
    Metadata {
        /// Byte offset inside the note's descriptor.
        offset: usize,
        /// What is wrong.
        what: String,
    },
    /// A kernel's symbol, descriptor and metadata contradict each other or a rule.
    #[error("code object: kernel `{kernel}`: {what}")]
    Kernel {
        /// Kernel name.
        kernel: String,
        /// What is wrong.
        what: String,
    },
    /// The software GPU's memory refused the image.
    #[error("code object: cannot place its image in GPU memory: {what}")]
    Memory {
        /// The memory's own words.
        what: String,
    },
    /// A code segment could not be decoded for the target.
    #[error("code object: code at {address:#x} of the file's address space: {what}")]
    Code {
        /// Address of the segment in the file's address space.
        address: u64,
        /// The decoder's own words.
        what: String,
    },
}

/// Why a kernel of a loadable object is not run: what its descriptor asks for, and what only its
/// metadata says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KernelRefusal {
    /// The rules that hold for every hand-made dispatch.
    #[error(transparent)]
    Dispatch(#[from] refrain_packet::kd::Refusal),
    /// A hidden argument that only a host service can fill.
    #[error(
        "takes the hidden argument {value_kind}, which needs a host service that is not there; compile at -O1 or higher without printf, malloc and assert"
    )]
    HiddenArgument {
        /// `.value_kind` of the argument.
        value_kind: String,
    },
    /// Compiled for 64 lanes.
    #[error("is compiled for wave64; only wave32 is executed, compile with -mno-wavefrontsize64")]
    Wave64,
}
