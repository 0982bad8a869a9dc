//! Machine profiles: what a plan must know about the GPU, its host and the link between them.
//!
//! A profile is a text file or one of three built-in reference cards from public data. Probing a real machine
//! is left to the command line, deciding where weights go to placement.

mod error;
mod profile;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

pub use error::MachineError;
pub use profile::PROFILE_VERSION;

/// Longest profile that is read, in bytes.
const MAX_PROFILE_BYTES: u64 = 64 << 10;

/// Built-in reference cards: name and text.
const BUILT_IN: &[(&str, &str)] = &[
    ("gfx1100", include_str!("../../machines/gfx1100.toml")),
    ("gfx1151", include_str!("../../machines/gfx1151.toml")),
    ("gfx1201", include_str!("../../machines/gfx1201.toml")),
];

macro_rules! named {
    ($(#[$doc:meta])* $type:ident { $($variant:ident = $id:literal, $name:literal, $what:literal;)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $type {
            $(#[doc = concat!("`", $name, "`: ", $what)] $variant,)*
        }

        impl $type {
            /// All of them, in the order of their numbers.
            pub const ALL: &'static [$type] = &[$($type::$variant),*];

            /// Name in a profile.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $($type::$variant => $name,)* }
            }

            /// Number in the canonical form; never given to another meaning.
            #[must_use]
            pub const fn id(self) -> u8 {
                match self { $($type::$variant => $id,)* }
            }
        }
    };
}

named! {
    /// How GPU and host memory are connected.
    LinkKind {
        Unified = 0, "unified", "one memory for both.";
        Pcie3x4 = 1, "pcie3x4", "PCI Express 3.0, 4 lanes.";
        Pcie3x8 = 2, "pcie3x8", "PCI Express 3.0, 8 lanes.";
        Pcie3x16 = 3, "pcie3x16", "PCI Express 3.0, 16 lanes.";
        Pcie4x4 = 4, "pcie4x4", "PCI Express 4.0, 4 lanes.";
        Pcie4x8 = 5, "pcie4x8", "PCI Express 4.0, 8 lanes.";
        Pcie4x16 = 6, "pcie4x16", "PCI Express 4.0, 16 lanes.";
        Pcie5x4 = 7, "pcie5x4", "PCI Express 5.0, 4 lanes.";
        Pcie5x8 = 8, "pcie5x8", "PCI Express 5.0, 8 lanes.";
        Pcie5x16 = 9, "pcie5x16", "PCI Express 5.0, 16 lanes.";
    }
}

named! {
    /// Instruction-set extensions of the host that CPU kernels may use.
    Feature {
        Avx2 = 0, "avx2", "x86 AVX2.";
        Fma = 1, "fma", "x86 FMA3.";
        F16c = 2, "f16c", "x86 F16C.";
        Avx512f = 3, "avx512f", "x86 AVX-512 foundation.";
        Avx512bw = 4, "avx512bw", "x86 AVX-512 byte and word.";
        Avx512vl = 5, "avx512vl", "x86 AVX-512 vector length.";
        Avx512vnni = 6, "avx512vnni", "x86 AVX-512 VNNI.";
        AvxVnni = 7, "avxvnni", "x86 AVX-VNNI.";
        Avx512bf16 = 8, "avx512bf16", "x86 AVX-512 BF16.";
        Neon = 9, "neon", "Arm Advanced SIMD.";
        Dotprod = 10, "dotprod", "Arm dot product.";
        I8mm = 11, "i8mm", "Arm int8 matrix multiply.";
    }
}

/// The host side of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Physical cores.
    pub cores: u32,
    /// Memory in bytes; on unified memory all of it, the share of the GPU included.
    pub memory_bytes: u64,
    /// Most bytes that may be pinned for the GPU.
    pub pinned_bytes: u64,
    /// Extensions, ascending, each once.
    pub features: Vec<Feature>,
}

/// The link between GPU and host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Kind of link.
    pub kind: LinkKind,
    /// Peak in one direction, in 10^6 bytes per second.
    pub mb_per_s: u64,
}

/// A machine that plans are made for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Short name.
    pub name: String,
    /// Product name of the card.
    pub card: String,
    /// LLVM target, for example `gfx1201`.
    pub target: String,
    /// Work-items of a wave that kernels are built for.
    pub wave_size: u32,
    /// Compute units.
    pub compute_units: u32,
    /// Most LDS bytes of one work-group.
    pub lds_bytes_per_group: u32,
    /// Memory that the GPU can own, in bytes.
    pub vram_bytes: u64,
    /// Peak of that memory, in 10^6 bytes per second.
    pub vram_mb_per_s: u64,
    /// Whether GPU and host share one memory.
    pub unified_memory: bool,
    /// Host.
    pub host: Host,
    /// Link.
    pub link: Link,
    /// Where each fact comes from: field name to source.
    pub provenance: BTreeMap<String, String>,
}

impl Machine {
    /// Names of the built-in reference cards.
    pub fn built_in_names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }

    /// The built-in card called `name`, else the profile at that path.
    ///
    /// # Errors
    /// [`MachineError`].
    pub fn load(name_or_path: &str) -> Result<Machine, MachineError> {
        if let Some((name, text)) = BUILT_IN.iter().find(|(name, _)| *name == name_or_path) {
            return profile::parse(name, text);
        }
        let path = Path::new(name_or_path);
        let looks_like_path = name_or_path.contains(['/', '\\']) || name_or_path.ends_with(".toml");
        if !looks_like_path && !path.exists() {
            let known: Vec<&str> = Self::built_in_names().collect();
            return Err(MachineError::Unknown {
                name: name_or_path.to_owned(),
                known: known.join(", "),
            });
        }
        Self::open(path)
    }

    /// The profile at `path`.
    ///
    /// # Errors
    /// [`MachineError`].
    pub fn open(path: &Path) -> Result<Machine, MachineError> {
        let io = |source| MachineError::Io {
            path: path.to_owned(),
            source,
        };
        let file = File::open(path).map_err(io)?;
        let mut bytes = Vec::new();
        file.take(MAX_PROFILE_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(io)?;
        let found = bytes.len() as u64;
        if found > MAX_PROFILE_BYTES {
            let (path, limit) = (path.to_owned(), MAX_PROFILE_BYTES);
            return Err(MachineError::TooLong { path, found, limit });
        }
        let origin = path.display().to_string();
        match std::str::from_utf8(&bytes) {
            Ok(text) => profile::parse(&origin, text),
            Err(error) => Err(MachineError::Utf8 {
                origin,
                offset: error.valid_up_to(),
            }),
        }
    }

    /// Parses a profile from text; `origin` names it in errors.
    ///
    /// # Errors
    /// [`MachineError`].
    pub fn parse(origin: &str, text: &str) -> Result<Machine, MachineError> {
        profile::parse(origin, text)
    }

    /// The profile as text: what [`Machine::parse`] reads as this machine.
    #[must_use]
    pub fn to_toml(&self) -> String {
        profile::write(self)
    }

    /// The facts that a plan depends on, as bytes: little-endian, fixed order. Left out are the names and the
    /// provenance, which are there for people: two profiles of the same facts are the same machine.
    ///
    /// Layout: u32 form version (1); u32 length and bytes of `target`; u32 wave size; u32 compute units; u32 LDS bytes;
    /// u64 VRAM bytes; u64 VRAM MB/s; u8 unified; u32 cores; u64 host bytes; u64 pinned bytes; u32 feature count and
    /// one u8 each, ascending; u8 link kind; u64 link MB/s.
    #[must_use]
    pub fn canonical_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(96);
        let mut put = |bytes: &[u8]| out.extend_from_slice(bytes);
        put(&PROFILE_VERSION.to_le_bytes());
        put(&(self.target.len() as u32).to_le_bytes());
        put(self.target.as_bytes());
        put(&self.wave_size.to_le_bytes());
        put(&self.compute_units.to_le_bytes());
        put(&self.lds_bytes_per_group.to_le_bytes());
        put(&self.vram_bytes.to_le_bytes());
        put(&self.vram_mb_per_s.to_le_bytes());
        put(&[u8::from(self.unified_memory)]);
        put(&self.host.cores.to_le_bytes());
        put(&self.host.memory_bytes.to_le_bytes());
        put(&self.host.pinned_bytes.to_le_bytes());
        let features: std::collections::BTreeSet<u8> = self
            .host
            .features
            .iter()
            .map(|feature| feature.id())
            .collect();
        put(&(features.len() as u32).to_le_bytes());
        for feature in features {
            put(&[feature]);
        }
        put(&[self.link.kind.id()]);
        put(&self.link.mb_per_s.to_le_bytes());
        out
    }

    /// BLAKE3 digest of [`Machine::canonical_bytes`], in a domain of its own.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        blake3::derive_key("refrain machine profile v1", &self.canonical_bytes())
    }
}
