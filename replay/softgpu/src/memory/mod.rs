//! Guest memory: named, bounded allocations with rights, in one address space.
//!
//! Guest address = host address, so a pointer handed out by the HIP or HSA table works on both
//! sides; what makes it a guest's is that every access by a wave, by the packet processor or by
//! `AddressSpace` itself is checked against the allocation table. Fresh memory holds
//! [`POISON_BYTE`], never zero. Freed allocations leave a tombstone, so that a late use says
//! "freed" and names the buffer. What a byte means to a plan is left to the callers, who name
//! allocations.
//!
//! What strict mode knows about bytes (ever written, last writer) is its own; it is told of
//! allocations and of the host's accesses through an [`Observer`].

mod backing;
mod fault;
mod image;
mod view;

pub use fault::{Access, AllocError, FaultReason, MemoryFault, Nearest};
pub use image::Part;
pub(crate) use view::LastHit;
pub use view::View;

use backing::Backing;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};
use view::Span;

/// Every byte of a fresh allocation. As f32 0xA5A5A5A5 is -2.87e-16, as i32 -1515870811: neither
/// an innocent zero nor a NaN that would hide in a maximum.
pub const POISON_BYTE: u8 = 0xA5;

/// Mapped bytes after the end of a code allocation. Hardware fetches instructions ahead; AMD's
/// loader pads code by 256 bytes for that (LLVM AMDGPUUsage, instruction prefetch).
pub const CODE_ROOM: u64 = 256;

/// Bytes of a page: the least alignment of every allocation.
pub const PAGE: u64 = 4096;

const MAX_LEN: u64 = 1 << 46;
const MAX_ALIGN: u64 = 1 << 30;
/// Freed allocations that are remembered for messages.
const TOMBSTONES: usize = 4096;

/// What an allocation may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rights(u8);

impl Rights {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// The device may load.
    pub const READ: Self = Self(1);
    /// The device may store.
    pub const WRITE: Self = Self(2);
    /// The device may fetch instructions.
    pub const EXECUTE: Self = Self(4);
    /// Host code may dereference the address.
    pub const HOST: Self = Self(8);
    /// Load and store.
    pub const READ_WRITE: Self = Self(3);
    /// Load, store, and host access.
    pub const SHARED: Self = Self(11);
    /// Load and fetch: loaded machine code.
    pub const CODE: Self = Self(5);

    /// Whether all rights of `other` are granted.
    #[inline(always)]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The rights of both.
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl Access {
    /// The rights that an access of this kind needs.
    pub const fn needs(self) -> Rights {
        match self {
            Self::Read => Rights::READ,
            Self::Write => Rights::WRITE,
            Self::Atomic => Rights::READ_WRITE,
            Self::Execute => Rights::EXECUTE,
            Self::HostRead | Self::HostWrite => Rights::HOST,
        }
    }
}

/// What an allocation is for; a label for messages and for later cache rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Device memory.
    Device,
    /// Host memory mapped to the device, coherent (fine-grained).
    Host,
    /// Host memory mapped to the device, cached there (coarse-grained).
    HostCoarse,
    /// Kernel arguments.
    Kernarg,
    /// Machine code of a loaded object.
    Code,
    /// An AQL ring.
    Ring,
    /// A PM4 indirect buffer.
    IndirectBuffer,
    /// HSA signals.
    Signal,
}

/// One allocation as seen from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocInfo {
    /// Its name.
    pub name: Arc<str>,
    /// First byte.
    pub base: u64,
    /// Length in bytes, without [`CODE_ROOM`].
    pub len: u64,
    /// Granted rights.
    pub rights: Rights,
    /// What it is for.
    pub kind: Kind,
}

#[derive(Debug)]
struct Allocation {
    info: AllocInfo,
    backing: Arc<Backing>,
}

#[derive(Debug, Default)]
struct Table {
    live: BTreeMap<u64, Allocation>,
    freed: VecDeque<AllocInfo>,
    total: u64,
    epoch: u64,
    view: Option<Arc<View>>,
}

/// Who is told of what happens to memory outside waves. Called without the table's lock; rings,
/// signals and queues are the packet processor's own and not told of.
pub(crate) trait Observer: std::fmt::Debug + Send + Sync {
    /// Fresh memory.
    fn allocated(&self, base: u64, len: u64, rights: Rights);
    /// Memory that is given back.
    fn freed(&self, base: u64, len: u64);
    /// The host wrote through a call.
    fn host_wrote(&self, va: u64, len: u64);
    /// The host is about to read through a call.
    fn host_reads(&self, va: u64, len: u64);
}

/// The address space of one software GPU. Shared by `Arc`; all methods take `&self`.
#[derive(Debug, Default)]
pub struct AddressSpace {
    table: RwLock<Table>,
    observer: OnceLock<Weak<dyn Observer>>,
}

impl AddressSpace {
    /// An empty address space.
    pub fn new() -> Self {
        Self::default()
    }

    fn read(&self) -> RwLockReadGuard<'_, Table> {
        self.table
            .read()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Sets the one observer.
    pub(crate) fn observe(&self, observer: Weak<dyn Observer>) {
        // Set once, when the software GPU is made.
        let _ = self.observer.set(observer);
    }

    fn tell(&self, what: impl FnOnce(&dyn Observer)) {
        if let Some(observer) = self.observer.get().and_then(Weak::upgrade) {
            what(&*observer);
        }
    }

    /// Tells of host access to memory that is not the packet processor's own.
    fn tell_of(&self, va: u64, what: impl FnOnce(&dyn Observer)) {
        if self.observer.get().is_some()
            && self
                .find(va)
                .is_some_and(|info| !matches!(info.kind, Kind::Ring | Kind::Signal))
        {
            self.tell(what);
        }
    }

    fn write(&self) -> RwLockWriteGuard<'_, Table> {
        self.table
            .write()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Allocates `len` bytes at a multiple of `align` (at least [`PAGE`]), filled with
    /// [`POISON_BYTE`]. Returns the first address. Code gets [`CODE_ROOM`] bytes of mapped room
    /// after its end.
    pub fn alloc(
        &self,
        name: &str,
        len: u64,
        align: u64,
        rights: Rights,
        kind: Kind,
    ) -> Result<u64, AllocError> {
        if len == 0 || len > MAX_LEN {
            return Err(AllocError::Size {
                name: name.to_owned(),
                len,
                max: MAX_LEN,
            });
        }
        if !align.max(1).is_power_of_two() || align > MAX_ALIGN {
            return Err(AllocError::Align {
                name: name.to_owned(),
                align,
                max: MAX_ALIGN,
            });
        }
        let room = if kind == Kind::Code { CODE_ROOM } else { 0 };
        let short = |total| AllocError::HostMemory {
            name: name.to_owned(),
            len,
            total,
        };
        let bytes = usize::try_from(len + room).map_err(|_| short(0))?;
        let align = align.max(PAGE) as usize;
        let Some(backing) = Backing::new(bytes, align, POISON_BYTE) else {
            return Err(short(self.total_bytes()));
        };
        let base = backing.address();
        let info = AllocInfo {
            name: Arc::from(name),
            base,
            len,
            rights,
            kind,
        };
        let mut table = self.write();
        let end = base + len;
        table
            .freed
            .retain(|dead| dead.base >= end || dead.base + dead.len <= base);
        table.total += len;
        table.live.insert(
            base,
            Allocation {
                info,
                backing: Arc::new(backing),
            },
        );
        table.changed();
        drop(table);
        self.tell(|observer| observer.allocated(base, len, rights));
        Ok(base)
    }

    /// Frees the allocation that begins at `base` and keeps its name for later messages.
    pub fn free(&self, base: u64) -> Result<(), AllocError> {
        let mut table = self.write();
        let dead = table
            .live
            .remove(&base)
            .ok_or(AllocError::NotABase { base })?;
        table.total -= dead.info.len;
        if table.freed.len() == TOMBSTONES {
            table.freed.pop_front();
        }
        let (base, len) = (dead.info.base, dead.info.len);
        table.freed.push_back(dead.info);
        table.changed();
        drop(table);
        self.tell(|observer| observer.freed(base, len));
        Ok(())
    }

    /// Gives the allocation that begins at `base` another name.
    pub fn rename(&self, base: u64, name: &str) -> Result<(), AllocError> {
        let mut table = self.write();
        let found = table
            .live
            .get_mut(&base)
            .ok_or(AllocError::NotABase { base })?;
        found.info.name = Arc::from(name);
        Ok(())
    }

    /// Replaces the rights of the allocation that begins at `base`; a loader writes code first
    /// and takes the write right away afterwards.
    pub fn set_rights(&self, base: u64, rights: Rights) -> Result<(), AllocError> {
        let mut table = self.write();
        let found = table
            .live
            .get_mut(&base)
            .ok_or(AllocError::NotABase { base })?;
        found.info.rights = rights;
        table.changed();
        Ok(())
    }

    /// The live allocation that holds `va`.
    pub fn find(&self, va: u64) -> Option<AllocInfo> {
        self.read().holding(va).map(|a| a.info.clone())
    }

    /// All live allocations by address.
    pub fn allocations(&self) -> Vec<AllocInfo> {
        self.read().live.values().map(|a| a.info.clone()).collect()
    }

    /// Bytes of all live allocations.
    pub fn total_bytes(&self) -> u64 {
        self.read().total
    }

    /// Number that grows with every alloc, free and change of rights.
    pub fn epoch(&self) -> u64 {
        self.read().epoch
    }

    /// A snapshot for running waves. Unchanged tables share one snapshot.
    pub fn view(&self) -> Arc<View> {
        if let Some(view) = &self.read().view {
            return Arc::clone(view);
        }
        let mut table = self.write();
        if let Some(view) = &table.view {
            return Arc::clone(view);
        }
        let spans = table.live.values().map(Allocation::span).collect();
        let view = Arc::new(View {
            spans,
            epoch: table.epoch,
        });
        table.view = Some(Arc::clone(&view));
        view
    }

    /// Checks that `[va, va+len)` lies in one allocation that grants `access`.
    pub fn check(&self, va: u64, len: u64, access: Access) -> Result<(), MemoryFault> {
        self.read().check(va, len, access).map(|_| ())
    }

    /// The fault that an access is, for callers who found it forbidden.
    pub fn fault(&self, va: u64, len: u64, access: Access, reason: FaultReason) -> MemoryFault {
        self.read().fault(va, len, access, reason)
    }

    /// Copies `out.len()` bytes from `va`, as the host does.
    pub fn read_bytes(&self, va: u64, out: &mut [u8]) -> Result<(), MemoryFault> {
        self.tell_of(va, |observer| observer.host_reads(va, out.len() as u64));
        self.peek(va, out)
    }

    /// Copies `out.len()` bytes from `va`, as the packet processor does.
    pub(crate) fn peek(&self, va: u64, out: &mut [u8]) -> Result<(), MemoryFault> {
        let table = self.read();
        table.check(va, out.len() as u64, Access::Read)?;
        // SAFETY: `check` found all bytes in one live allocation, and the read guard keeps it
        // alive; `out` is a Rust slice, so it overlaps no guest memory that is being written.
        unsafe { std::ptr::copy(pointer(va).cast_const(), out.as_mut_ptr(), out.len()) };
        Ok(())
    }

    /// Copies `bytes` to `va`.
    pub fn write_bytes(&self, va: u64, bytes: &[u8]) -> Result<(), MemoryFault> {
        let table = self.read();
        table.check(va, bytes.len() as u64, Access::Write)?;
        // SAFETY: as in `read_bytes`, with the write right checked.
        unsafe { std::ptr::copy(bytes.as_ptr(), pointer(va), bytes.len()) };
        drop(table);
        self.tell_of(va, |observer| observer.host_wrote(va, bytes.len() as u64));
        Ok(())
    }

    /// Copies `len` bytes from `src` to `dst`; the ranges may overlap.
    pub fn copy(&self, dst: u64, src: u64, len: u64) -> Result<(), MemoryFault> {
        self.tell_of(src, |observer| observer.host_reads(src, len));
        let table = self.read();
        table.check(src, len, Access::Read)?;
        table.check(dst, len, Access::Write)?;
        // SAFETY: both ranges were found in live allocations that the guard keeps alive, and
        // `copy` allows overlap.
        unsafe { std::ptr::copy(pointer(src).cast_const(), pointer(dst), len as usize) };
        drop(table);
        self.tell_of(dst, |observer| observer.host_wrote(dst, len));
        Ok(())
    }

    /// Sets `len` bytes at `va` to `value`.
    pub fn fill(&self, va: u64, len: u64, value: u8) -> Result<(), MemoryFault> {
        let table = self.read();
        table.check(va, len, Access::Write)?;
        // SAFETY: as in `write_bytes`.
        unsafe { pointer(va).write_bytes(value, len as usize) };
        drop(table);
        self.tell_of(va, |observer| observer.host_wrote(va, len));
        Ok(())
    }

    /// A 32-bit little-endian load at `va`, which must be 4-aligned.
    pub fn read_u32(&self, va: u64) -> Result<u32, MemoryFault> {
        self.load_u32(va, Ordering::Relaxed)
    }

    /// A 64-bit little-endian load at `va`, which must be 8-aligned.
    pub fn read_u64(&self, va: u64) -> Result<u64, MemoryFault> {
        self.load_u64(va, Ordering::Relaxed)
    }

    /// Atomic load; `order` as for `AtomicU32::load` (release orders act as acquire).
    pub fn load_u32(&self, va: u64, order: Ordering) -> Result<u32, MemoryFault> {
        self.with_u32(va, Access::Read, |cell| cell.load(for_load(order)))
    }

    /// Atomic store; `order` as for `AtomicU32::store` (acquire orders act as release).
    pub fn store_u32(&self, va: u64, value: u32, order: Ordering) -> Result<(), MemoryFault> {
        self.with_u32(va, Access::Write, |cell| {
            cell.store(value, for_store(order))
        })
    }

    /// Atomic wrapping add; returns the value before.
    pub fn fetch_add_u32(&self, va: u64, value: u32, order: Ordering) -> Result<u32, MemoryFault> {
        self.with_u32(va, Access::Atomic, |cell| cell.fetch_add(value, order))
    }

    /// Atomic load; orders as in [`Self::load_u32`].
    pub fn load_u64(&self, va: u64, order: Ordering) -> Result<u64, MemoryFault> {
        self.with_u64(va, Access::Read, |cell| cell.load(for_load(order)))
    }

    /// Atomic store; orders as in [`Self::store_u32`].
    pub fn store_u64(&self, va: u64, value: u64, order: Ordering) -> Result<(), MemoryFault> {
        self.with_u64(va, Access::Write, |cell| {
            cell.store(value, for_store(order))
        })
    }

    /// Atomic wrapping add; returns the value before.
    pub fn fetch_add_u64(&self, va: u64, value: u64, order: Ordering) -> Result<u64, MemoryFault> {
        self.with_u64(va, Access::Atomic, |cell| cell.fetch_add(value, order))
    }

    fn with_u32<T>(
        &self,
        va: u64,
        access: Access,
        act: impl FnOnce(&AtomicU32) -> T,
    ) -> Result<T, MemoryFault> {
        let done = self.cell_u32(va, access, act)?;
        self.tell_stored(va, 4, access);
        Ok(done)
    }

    /// Without telling of it: the packet processor's accesses are not the host's.
    pub(crate) fn cell_u32<T>(
        &self,
        va: u64,
        access: Access,
        act: impl FnOnce(&AtomicU32) -> T,
    ) -> Result<T, MemoryFault> {
        let table = self.read();
        table.check_aligned(va, 4, access)?;
        // SAFETY: 4 aligned bytes of a live allocation that the guard keeps alive; other users of
        // such a cell are atomics too, or a guest's own data race.
        let done = act(unsafe { AtomicU32::from_ptr(pointer(va).cast()) });
        drop(table);
        Ok(done)
    }

    fn with_u64<T>(
        &self,
        va: u64,
        access: Access,
        act: impl FnOnce(&AtomicU64) -> T,
    ) -> Result<T, MemoryFault> {
        let done = self.cell_u64(va, access, act)?;
        self.tell_stored(va, 8, access);
        Ok(done)
    }

    /// Without telling of it: the packet processor's accesses are not the host's.
    pub(crate) fn cell_u64<T>(
        &self,
        va: u64,
        access: Access,
        act: impl FnOnce(&AtomicU64) -> T,
    ) -> Result<T, MemoryFault> {
        let table = self.read();
        table.check_aligned(va, 8, access)?;
        // SAFETY: as in `with_u32`, with 8 bytes.
        let done = act(unsafe { AtomicU64::from_ptr(pointer(va).cast()) });
        drop(table);
        Ok(done)
    }

    fn tell_stored(&self, va: u64, len: u64, access: Access) {
        if access != Access::Read {
            self.tell_of(va, |observer| observer.host_wrote(va, len));
        }
    }
}

impl Allocation {
    fn span(&self) -> Span {
        let AllocInfo {
            base, len, rights, ..
        } = self.info;
        Span {
            base,
            end: base + len,
            rights,
            _keep: Arc::clone(&self.backing),
        }
    }
}

impl Table {
    fn changed(&mut self) {
        self.epoch += 1;
        self.view = None;
    }

    fn holding(&self, va: u64) -> Option<&Allocation> {
        let (_, found) = self.live.range(..=va).next_back()?;
        (va - found.info.base < found.info.len).then_some(found)
    }

    fn check(&self, va: u64, len: u64, access: Access) -> Result<&Allocation, MemoryFault> {
        let deny = |reason| Err(self.fault(va, len, access, reason));
        let Some(found) = self.holding(va) else {
            return deny(FaultReason::OutOfBounds);
        };
        if found.info.len - (va - found.info.base) < len {
            return deny(FaultReason::OutOfBounds);
        }
        if !found.info.rights.contains(access.needs()) {
            return deny(FaultReason::Rights);
        }
        Ok(found)
    }

    fn check_aligned(&self, va: u64, len: u64, access: Access) -> Result<(), MemoryFault> {
        self.check(va, len, access)?;
        if !va.is_multiple_of(len) {
            return Err(self.fault(va, len, access, FaultReason::Misaligned));
        }
        Ok(())
    }

    /// Builds the fault; an out-of-bounds access that hits a tombstone becomes `Freed`.
    fn fault(&self, va: u64, length: u64, access: Access, reason: FaultReason) -> MemoryFault {
        let dead = self
            .freed
            .iter()
            .rev()
            .find(|d| va >= d.base && va - d.base < d.len);
        let mut reason = reason;
        let nearest = match (dead, self.holding(va)) {
            (Some(d), None) => {
                reason = FaultReason::Freed;
                Some(nearest(d, va, true))
            }
            (_, Some(found)) => Some(nearest(&found.info, va, false)),
            (None, None) => self.closest(va),
        };
        MemoryFault {
            address: va,
            length,
            access,
            reason,
            nearest,
        }
    }

    /// The allocation that an access outside all of them most likely left: the one below, unless the one
    /// above is [`OVERRUN_ODDS`] times nearer, since kernels run past ends far oftener than before starts.
    fn closest(&self, va: u64) -> Option<Nearest> {
        let below = self
            .live
            .range(..=va)
            .next_back()
            .map(|(_, a)| nearest(&a.info, va, false));
        let above = self
            .live
            .range(va..)
            .next()
            .map(|(_, a)| nearest(&a.info, va, false));
        below
            .into_iter()
            .chain(above)
            .min_by_key(|n| match n.distance {
                past @ 0.. => past.unsigned_abs(),
                before => before.unsigned_abs().saturating_mul(OVERRUN_ODDS),
            })
    }
}

/// How much nearer an allocation above must be to be named instead of the one below.
const OVERRUN_ODDS: u64 = 64;

fn nearest(info: &AllocInfo, va: u64, freed: bool) -> Nearest {
    let end = info.base + info.len;
    let distance = if va < info.base {
        -i64::try_from(info.base - va).unwrap_or(i64::MAX)
    } else if va >= end {
        i64::try_from(va - end).unwrap_or(i64::MAX)
    } else {
        0
    };
    // The first byte past the end is "0 bytes past"; report the allocation's end instead of inside.
    let distance = if va == end { 1 } else { distance };
    Nearest {
        name: Arc::clone(&info.name),
        base: info.base,
        len: info.len,
        distance,
        freed,
    }
}

/// The host pointer of a guest address. Guest memory is exposed at allocation.
#[inline(always)]
pub(crate) fn pointer(va: u64) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(va as usize)
}

fn for_load(order: Ordering) -> Ordering {
    match order {
        Ordering::Release | Ordering::AcqRel => Ordering::Acquire,
        other => other,
    }
}

fn for_store(order: Ordering) -> Ordering {
    match order {
        Ordering::Acquire | Ordering::AcqRel => Ordering::Release,
        other => other,
    }
}

#[cfg(test)]
mod tests;
