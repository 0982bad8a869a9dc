//! The seam between waves and the memory model of strict mode.
//!
//! Waves know lanes, registers and counters; the memory model knows launches, buffers, caches and
//! order. An [`Access`] is one instruction of one wave; the answer is the set of lanes whose bytes
//! are uninitialised, which the wave then carries as poison.

/// The wave that accesses, and from where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Who {
    /// Index of the launch in its batch.
    pub(crate) launch: u32,
    /// Linear number of the work-group in its launch.
    pub(crate) group: u32,
    /// Wave in the work-group.
    pub(crate) wave: u32,
    /// Guest address of the instruction.
    pub(crate) pc: u64,
}

/// The way that an access takes through the caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// Scalar load through the K$. `cache` as below; gfx11 has no SCOPE there.
    Scalar { cache: u8 },
    /// Vector access through L0, and L1 where there is one. `cache` are the instruction's cache
    /// bits: GLC, SLC, DLC from bit 0 on gfx11; SCOPE in bits 1:0 and TH in bits 4:2 on gfx12.
    Vector { cache: u8 },
}

/// How a wave stands to the others of its work-group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Company {
    /// There are none.
    Alone,
    /// Nothing orders them before the next barrier.
    Among,
    /// It has signalled at the barrier and not waited, so that neither what the others do before the
    /// barrier nor what they do after it is ordered.
    Between,
}

/// One memory instruction of one wave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access<'a> {
    pub(crate) who: Who,
    /// Address per lane; only lanes of `lanes` count. A scalar access is lane 0.
    pub(crate) at: &'a [u64; 32],
    /// Active lanes.
    pub(crate) lanes: u32,
    /// Bytes per lane.
    pub(crate) bytes: u32,
    pub(crate) path: Path,
    pub(crate) company: Company,
}

/// What an atomic does to its cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AtomicKind {
    /// The result depends on the order of contenders (float sums, swaps, compare-and-swap).
    pub(crate) ordered: bool,
    /// The old value is returned to the wave.
    pub(crate) returns: bool,
}

/// Caches that an instruction of a wave invalidates for its own compute unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaveInvalidate {
    /// `buffer_gl0_inv`; `global_inv` of any scope also reaches this one.
    L0,
    /// `buffer_gl1_inv`; `global_inv` from SCOPE_SE up.
    L1,
    /// `s_dcache_inv`.
    Scalar,
}

/// Something that the wave side found by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WaveFinding {
    /// A register was touched while the load that fills it may still be in flight.
    MissingWait {
        /// Register as in a listing, for example `v7` or `s12`.
        register: String,
        /// Counter that would have had to reach `at_most`.
        counter: &'static str,
        at_most: u32,
        /// Guest address of the load.
        load: u64,
    },
    /// A value that nothing defined reached a place where it decides.
    Poison {
        register: String,
        /// `address`, `EXEC`, `branch`, `stored data`, ...
        place: &'static str,
        lanes: u32,
    },
    /// Two waves of a group used the same LDS bytes without a barrier between.
    LdsRace {
        /// First byte in the group's LDS.
        address: u32,
        bytes: u32,
        other_wave: u32,
        other_pc: u64,
        /// `read after write`, `write after read` or `write after write`.
        what: &'static str,
    },
    /// Waves of one group wait at different barriers, or some never arrive.
    BarrierDivergence { other_wave: u32, other_pc: u64 },
}

/// The memory side as waves see it. Implementations never stop a wave: they keep reports.
pub(crate) trait Watch {
    /// A load, after it was found allowed. Returns the lanes that read an uninitialised byte.
    fn load(&mut self, access: &Access<'_>) -> u32;
    /// Asks the same as [`Watch::load`] without being a load: nothing is recorded. A wave asks per
    /// dword (`bytes` up to 4) after a wider load had uninitialised bytes, to know which registers
    /// are undefined.
    fn undefined(&mut self, access: &Access<'_>) -> u32;
    /// A store, after it was found allowed. `poison` are the lanes whose data is undefined; the
    /// wave side reports them itself.
    fn store(&mut self, access: &Access<'_>, poison: u32);
    /// An atomic; both a load and a store. Returns the lanes that read an uninitialised byte.
    fn atomic(&mut self, access: &Access<'_>, kind: AtomicKind, poison: u32) -> u32;
    /// A cache invalidation by a wave.
    fn invalidate(&mut self, who: Who, what: WaveInvalidate);
    /// A finding of the wave side.
    fn found(&mut self, who: Who, finding: WaveFinding);
    /// The barrier of a work-group, by launch and number, has completed.
    fn completed(&mut self, _launch: u32, _group: u32) {}
    /// All waves of a work-group have ended.
    fn ended(&mut self, _launch: u32, _group: u32) {}
}
