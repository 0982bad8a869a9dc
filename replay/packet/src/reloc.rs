//! The address-independent form of encoded packets.
//!
//! Words that depend on an address hold 0 and have a relocation; what is left is the same on
//! every machine and is what gets hashed. [`AddressFree::resolve`] fills the words in.

use crate::target::Gfx;

/// How a relocation turns an address into a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RelocationKind {
    /// Bits 39:8 of a kernel's entry address (PGM_LO).
    EntryLo,
    /// Bits 47:40 of a kernel's entry address (PGM_HI).
    EntryHi,
    /// Low half of an address in the kernarg arena.
    KernargLo,
    /// High half of an address in the kernarg arena.
    KernargHi,
    /// Low half of a kernel descriptor's address (AQL kernel_object).
    ObjectLo,
    /// High half of a kernel descriptor's address.
    ObjectHi,
    /// Low half of a completion signal's handle.
    SignalLo,
    /// High half of a completion signal's handle.
    SignalHi,
    /// Low half of an indirect buffer's address.
    IbLo,
    /// High half of an indirect buffer's address.
    IbHi,
}

impl RelocationKind {
    /// All kinds, in encoding order.
    pub const ALL: [Self; 10] = [
        Self::EntryLo,
        Self::EntryHi,
        Self::KernargLo,
        Self::KernargHi,
        Self::ObjectLo,
        Self::ObjectHi,
        Self::SignalLo,
        Self::SignalHi,
        Self::IbLo,
        Self::IbHi,
    ];

    /// Name used in dumps.
    pub const fn name(self) -> &'static str {
        match self {
            Self::EntryLo => "entry>>8",
            Self::EntryHi => "entry>>40",
            Self::KernargLo => "kernarg.lo",
            Self::KernargHi => "kernarg.hi",
            Self::ObjectLo => "kernel_object.lo",
            Self::ObjectHi => "kernel_object.hi",
            Self::SignalLo => "signal.lo",
            Self::SignalHi => "signal.hi",
            Self::IbLo => "ib.lo",
            Self::IbHi => "ib.hi",
        }
    }
}

/// One word that waits for an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Relocation {
    /// Index of the word.
    pub word: u32,
    /// How the address becomes a word.
    pub kind: RelocationKind,
    /// Which kernel, signal or buffer; 0 for the kernarg arena.
    pub symbol: u32,
    /// Added to the symbol's address, in bytes.
    pub addend: u64,
}

/// Addresses for [`AddressFree::resolve`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Bindings<'a> {
    /// Entry address per kernel.
    pub entries: &'a [u64],
    /// Descriptor address per kernel.
    pub objects: &'a [u64],
    /// Base of the kernarg arena.
    pub kernarg_base: u64,
    /// Completion signal handles.
    pub signals: &'a [u64],
    /// Indirect buffer addresses.
    pub ibs: &'a [u64],
}

/// Why words could not be filled in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// No address for a symbol.
    #[error("word {word}: no address bound for {kind} of symbol {symbol}")]
    Unbound {
        /// Word index.
        word: u32,
        /// Relocation kind.
        kind: &'static str,
        /// Symbol index.
        symbol: u32,
    },
    /// An address that does not fit or is misaligned.
    #[error(
        "word {word}: address {address:#x} for {kind} must be a multiple of {align} and below 2^48"
    )]
    Address {
        /// Word index.
        word: u32,
        /// Relocation kind.
        kind: &'static str,
        /// The address.
        address: u64,
        /// Alignment in bytes.
        align: u64,
    },
    /// A relocation that points past the words.
    #[error("relocation names word {word}, there are {words}")]
    OutOfRange {
        /// Word index.
        word: u32,
        /// Words present.
        words: usize,
    },
}

/// What a word is there for, for the report of dwords by cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// Acquire at the head.
    Head,
    /// START, once.
    Start,
    /// RESOURCE_LIMITS, once.
    Limits,
    /// Group shape.
    NumThread,
    /// Program address.
    Program,
    /// RSRC1, RSRC2, RSRC3.
    Resources,
    /// User SGPRs.
    UserData,
    /// DISPATCH_DIRECT, or one AQL packet.
    Dispatch,
    /// CS_PARTIAL_FLUSH before a dispatch.
    Wait,
    /// ACQUIRE_MEM before a dispatch.
    Acquire,
    /// NOP after a dispatch.
    Pacing,
    /// Wait at the end.
    Terminal,
    /// NOP to a multiple of 8.
    Padding,
}

impl Cause {
    /// All causes in stream order.
    pub const ALL: [Self; 13] = [
        Self::Head,
        Self::Start,
        Self::Limits,
        Self::NumThread,
        Self::Program,
        Self::Resources,
        Self::UserData,
        Self::Dispatch,
        Self::Wait,
        Self::Acquire,
        Self::Pacing,
        Self::Terminal,
        Self::Padding,
    ];

    /// Name used in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Head => "head acquire",
            Self::Start => "start",
            Self::Limits => "resource limits",
            Self::NumThread => "group shape",
            Self::Program => "program address",
            Self::Resources => "resource words",
            Self::UserData => "user data",
            Self::Dispatch => "dispatch",
            Self::Wait => "wait",
            Self::Acquire => "acquire",
            Self::Pacing => "pacing",
            Self::Terminal => "terminal wait",
            Self::Padding => "padding",
        }
    }

    /// True for causes that belong to a launch itself, before waits.
    pub const fn per_launch(self) -> bool {
        matches!(
            self,
            Self::NumThread | Self::Program | Self::Resources | Self::UserData | Self::Dispatch
        )
    }
}

/// Dwords by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dwords([u32; 13]);

impl Dwords {
    /// Adds words to a cause.
    pub fn add(&mut self, cause: Cause, words: u32) {
        self.0[cause as usize] += words;
    }

    /// Words of a cause.
    pub const fn get(&self, cause: Cause) -> u32 {
        self.0[cause as usize]
    }

    /// All words.
    pub fn total(&self) -> u32 {
        self.0.iter().sum()
    }

    /// Words of launches themselves, before waits.
    pub fn launches(&self) -> u32 {
        Cause::ALL
            .iter()
            .filter(|cause| cause.per_launch())
            .map(|cause| self.get(*cause))
            .sum()
    }
}

/// Encoded packets without addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressFree {
    /// Target.
    pub target: Gfx,
    /// `pm4` or `aql`.
    pub transport: &'static str,
    /// Name of the policy row.
    pub policy: &'static str,
    /// Kernel symbols in relocation order.
    pub symbols: Vec<String>,
    /// The words; 0 where a relocation stands.
    pub words: Vec<u32>,
    /// Relocations by word.
    pub relocations: Vec<Relocation>,
    /// Word index of each launch's dispatch packet.
    pub launches: Vec<u32>,
    /// Dwords by cause.
    pub dwords: Dwords,
}

/// Tag and version of [`AddressFree::canonical_bytes`].
pub const CANONICAL_TAG: &[u8; 24] = b"refrain.encoding.v1\0\0\0\0\0";

impl AddressFree {
    /// The bytes to hash: tag, target, transport, policy, symbols, words, relocations. Strings
    /// are length-prefixed; integers are little-endian.
    pub fn canonical_bytes(&self) -> Vec<u8> {
        fn text(out: &mut Vec<u8>, value: &str) {
            out.extend_from_slice(&(value.len() as u64).to_le_bytes());
            out.extend_from_slice(value.as_bytes());
        }
        let mut out = Vec::with_capacity(64 + self.words.len() * 4 + self.relocations.len() * 20);
        out.extend_from_slice(CANONICAL_TAG);
        text(&mut out, self.target.name());
        text(&mut out, self.transport);
        text(&mut out, self.policy);
        out.extend_from_slice(&(self.symbols.len() as u64).to_le_bytes());
        for symbol in &self.symbols {
            text(&mut out, symbol);
        }
        out.extend_from_slice(&(self.words.len() as u64).to_le_bytes());
        for word in &self.words {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(&(self.relocations.len() as u64).to_le_bytes());
        for row in &self.relocations {
            out.extend_from_slice(&row.word.to_le_bytes());
            out.extend_from_slice(&(row.kind as u32).to_le_bytes());
            out.extend_from_slice(&row.symbol.to_le_bytes());
            out.extend_from_slice(&row.addend.to_le_bytes());
        }
        out
    }

    /// The words with every address filled in.
    ///
    /// # Errors
    /// A symbol without an address, or an address that is misaligned or above 48 bits.
    pub fn resolve(&self, bindings: &Bindings<'_>) -> Result<Vec<u32>, ResolveError> {
        let mut words = self.words.clone();
        self.resolve_into(bindings, &mut words)?;
        Ok(words)
    }

    /// Fills addresses into `words`, which holds a copy of [`Self::words`].
    ///
    /// # Errors
    /// As [`Self::resolve`]; `words` is then partly filled.
    pub fn resolve_into(
        &self,
        bindings: &Bindings<'_>,
        words: &mut [u32],
    ) -> Result<(), ResolveError> {
        let count = words.len();
        for row in &self.relocations {
            let value = row.value(bindings)?;
            let slot = words
                .get_mut(row.word as usize)
                .ok_or(ResolveError::OutOfRange {
                    word: row.word,
                    words: count,
                })?;
            *slot = value;
        }
        Ok(())
    }
}

impl Relocation {
    /// The word for these bindings.
    ///
    /// # Errors
    /// As [`AddressFree::resolve`].
    pub fn value(&self, bindings: &Bindings<'_>) -> Result<u32, ResolveError> {
        use RelocationKind as Kind;
        let index = self.symbol as usize;
        let (base, align) = match self.kind {
            Kind::EntryLo | Kind::EntryHi => (bindings.entries.get(index).copied(), 256),
            Kind::ObjectLo | Kind::ObjectHi => (bindings.objects.get(index).copied(), 64),
            Kind::KernargLo | Kind::KernargHi => (Some(bindings.kernarg_base), 16),
            Kind::SignalLo | Kind::SignalHi => (bindings.signals.get(index).copied(), 64),
            Kind::IbLo | Kind::IbHi => (bindings.ibs.get(index).copied(), 4),
        };
        let kind = self.kind.name();
        let Some(base) = base else {
            return Err(ResolveError::Unbound {
                word: self.word,
                kind,
                symbol: self.symbol,
            });
        };
        let address = base.wrapping_add(self.addend);
        if !address.is_multiple_of(align) || address >> 48 != 0 || address < base {
            return Err(ResolveError::Address {
                word: self.word,
                kind,
                address,
                align,
            });
        }
        // Truncation is the point: each kind takes its own 32 bits.
        Ok(match self.kind {
            Kind::EntryLo => (address >> 8) as u32,
            Kind::EntryHi => (address >> 40) as u32,
            Kind::KernargLo | Kind::ObjectLo | Kind::SignalLo | Kind::IbLo => address as u32,
            Kind::KernargHi | Kind::ObjectHi | Kind::SignalHi | Kind::IbHi => {
                (address >> 32) as u32
            }
        })
    }
}
