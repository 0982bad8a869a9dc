//! HSA signals as `amd_signal_t` in guest memory: the handle is the structure's address, the value
//! lives 8 bytes into it, so that the packet processor, kernels and the host see one and the same
//! word. Waiting spins briefly, then sleeps on a condition variable that every store and completion
//! rings.

use super::config::SoftError;
use crate::memory::{AddressSpace, Kind, Rights};
use refrain_packet::tables::objects::signal as at;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Signals per guest allocation; one page of 64-byte structures.
const SLAB_SIGNALS: u64 = 64;
/// Loads before a waiter goes to sleep, about 20 microseconds.
const SPINS: u32 = 400;
/// Longest sleep between two looks; covers values that a kernel stored, which rings no bell.
const NAP: Duration = Duration::from_millis(2);

/// `amd_signal_t.kind` of a user signal.
const KIND_USER: u64 = 1;
/// `amd_signal_t.kind` of a doorbell: the word at 8 is the doorbell's address, not a value.
const KIND_DOORBELL: u64 = (-1_i64).cast_unsigned();

/// A condition on a signal value (`hsa_signal_condition_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Condition {
    /// value == operand
    Eq,
    /// value != operand
    Ne,
    /// value < operand
    Lt,
    /// value >= operand
    Gte,
}

impl Condition {
    /// Whether `value` satisfies the condition against `operand`.
    pub fn holds(self, value: i64, operand: i64) -> bool {
        match self {
            Self::Eq => value == operand,
            Self::Ne => value != operand,
            Self::Lt => value < operand,
            Self::Gte => value >= operand,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Value,
    /// The number is the queue's id.
    Doorbell(u64),
}

/// All signals of one software GPU.
#[derive(Debug)]
pub(crate) struct Signals {
    memory: Arc<AddressSpace>,
    live: RwLock<HashMap<u64, Use>>,
    /// Oldest first, so that a destroyed handle stays invalid for long.
    free: Mutex<VecDeque<u64>>,
    sleepers: AtomicUsize,
    bed: Mutex<()>,
    bell: Condvar,
}

/// What a store did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stored {
    /// The value of a user signal changed.
    Value,
    /// The doorbell of this queue rang.
    Doorbell(u64),
}

impl Signals {
    pub(crate) fn new(memory: Arc<AddressSpace>) -> Self {
        Self {
            memory,
            live: RwLock::default(),
            free: Mutex::default(),
            sleepers: AtomicUsize::new(0),
            bed: Mutex::new(()),
            bell: Condvar::new(),
        }
    }

    fn slot(&self) -> Result<u64, SoftError> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(handle) = free.pop_front() {
            return Ok(handle);
        }
        let bytes = SLAB_SIGNALS * at::BYTES as u64;
        let rights = Rights::SHARED;
        let slab = self
            .memory
            .alloc("signals", bytes, 64, rights, Kind::Signal)?;
        free.extend((1..SLAB_SIGNALS).map(|index| slab + index * at::BYTES as u64));
        Ok(slab)
    }

    fn make(&self, kind: u64, word: u64, usage: Use) -> Result<u64, SoftError> {
        let handle = self.slot()?;
        let mut bytes = [0; at::BYTES];
        bytes[at::KIND..at::KIND + 8].copy_from_slice(&kind.to_le_bytes());
        bytes[at::VALUE..at::VALUE + 8].copy_from_slice(&word.to_le_bytes());
        self.memory
            .write_bytes(handle, &bytes)
            .map_err(|fault| SoftError::Memory {
                what: "initialising a signal",
                fault,
            })?;
        self.live
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(handle, usage);
        Ok(handle)
    }

    pub(crate) fn create(&self, initial: i64) -> Result<u64, SoftError> {
        self.make(KIND_USER, initial.cast_unsigned(), Use::Value)
    }

    /// A doorbell whose hardware address is `doorbell_va` (8 bytes).
    pub(crate) fn create_doorbell(&self, queue: u64, doorbell_va: u64) -> Result<u64, SoftError> {
        self.make(KIND_DOORBELL, doorbell_va, Use::Doorbell(queue))
    }

    pub(crate) fn destroy(&self, handle: u64) -> Result<(), SoftError> {
        let removed = self
            .live
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&handle);
        removed.ok_or(SoftError::Signal { handle })?;
        // Kind 0 is AMD_SIGNAL_KIND_INVALID, so that a stale handle is recognisable in memory.
        let fault = |fault| SoftError::Memory {
            what: "destroying a signal",
            fault,
        };
        self.memory
            .store_u64(handle, 0, Ordering::Release)
            .map_err(fault)?;
        self.free
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push_back(handle);
        self.ring();
        Ok(())
    }

    fn usage(&self, handle: u64) -> Result<Use, SoftError> {
        let live = self.live.read().unwrap_or_else(PoisonError::into_inner);
        live.get(&handle)
            .copied()
            .ok_or(SoftError::Signal { handle })
    }

    /// Whether `handle` is a live signal with a value (not a doorbell).
    pub(crate) fn is_value(&self, handle: u64) -> bool {
        self.usage(handle) == Ok(Use::Value)
    }

    fn word(&self, handle: u64, usage: Use) -> Result<u64, SoftError> {
        let word = handle + at::VALUE as u64;
        match usage {
            Use::Value => Ok(word),
            Use::Doorbell(_) => self
                .memory
                .load_u64(word, Ordering::Relaxed)
                .map_err(|fault| SoftError::Memory {
                    what: "reading a doorbell's address",
                    fault,
                }),
        }
    }

    /// The value (acquire); of a doorbell, the last packet id rung.
    pub(crate) fn load(&self, handle: u64) -> Result<i64, SoftError> {
        let word = self.word(handle, self.usage(handle)?)?;
        let value = self.memory.load_u64(word, Ordering::Acquire);
        value
            .map(u64::cast_signed)
            .map_err(|fault| SoftError::Memory {
                what: "loading a signal",
                fault,
            })
    }

    /// Stores a value (release) and wakes waiters.
    pub(crate) fn store(&self, handle: u64, value: i64) -> Result<Stored, SoftError> {
        let usage = self.usage(handle)?;
        let word = self.word(handle, usage)?;
        let stored = self
            .memory
            .store_u64(word, value.cast_unsigned(), Ordering::Release);
        stored.map_err(|fault| SoftError::Memory {
            what: "storing a signal",
            fault,
        })?;
        match usage {
            Use::Value => {
                self.ring();
                Ok(Stored::Value)
            }
            Use::Doorbell(queue) => Ok(Stored::Doorbell(queue)),
        }
    }

    /// Adds to the value (acquire and release), wakes waiters, returns the value before.
    pub(crate) fn add(&self, handle: u64, amount: i64) -> Result<i64, SoftError> {
        let usage = self.usage(handle)?;
        if usage != Use::Value {
            return Err(SoftError::Signal { handle });
        }
        let word = self.word(handle, usage)?;
        let before = self
            .memory
            .fetch_add_u64(word, amount.cast_unsigned(), Ordering::AcqRel);
        let before = before.map_err(|fault| SoftError::Memory {
            what: "adding to a signal",
            fault,
        })?;
        self.ring();
        Ok(before.cast_signed())
    }

    /// Waits until the condition holds or `timeout` has passed; returns the last value seen.
    pub(crate) fn wait(
        &self,
        handle: u64,
        condition: Condition,
        operand: i64,
        timeout: Duration,
    ) -> Result<i64, SoftError> {
        for _ in 0..SPINS {
            let value = self.load(handle)?;
            if condition.holds(value, operand) {
                return Ok(value);
            }
            std::hint::spin_loop();
        }
        let start = Instant::now();
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let result = self.sleep(handle, condition, operand, timeout, start);
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        result
    }

    fn sleep(
        &self,
        handle: u64,
        condition: Condition,
        operand: i64,
        timeout: Duration,
        start: Instant,
    ) -> Result<i64, SoftError> {
        let mut bed = self.bed.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            // Pairs with the fence in `ring`: either the ringer sees this sleeper, or this load
            // sees the value that the ringer stored.
            fence(Ordering::SeqCst);
            let value = self.load(handle)?;
            let left = timeout.saturating_sub(start.elapsed());
            if condition.holds(value, operand) || left.is_zero() {
                return Ok(value);
            }
            let woken = self.bell.wait_timeout(bed, left.min(NAP));
            bed = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Wakes everybody who waits for a signal.
    pub(crate) fn ring(&self) {
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            drop(self.bed.lock().unwrap_or_else(PoisonError::into_inner));
            self.bell.notify_all();
        }
    }
}
