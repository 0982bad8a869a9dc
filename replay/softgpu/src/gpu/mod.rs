//! The software GPU as a value: memory, loaded objects, signals and queues, and the one thread that
//! processes packets. Reading packets is left to `cp`, running waves to `exec`, and the HIP and HSA
//! function tables to `api`.

mod config;
pub mod faults;
mod log;
mod queue;
mod signal;
mod worker;

pub use config::{SoftConfig, SoftError};
pub use log::{LoggedDispatch, LoggedPacket, PacketLog};
pub use queue::{ErrorSink, SoftQueue, queue_error_name};
pub(crate) use queue::{INVALID_SLOT, QueueState};
pub use signal::Condition;
pub(crate) use signal::Signals;

use crate::isa::Target;
use crate::memory::AddressSpace;
use crate::object::{KernelSymbol, LoadedObject, Registry};
use crate::strict::{Declarations, Footprint, Report, Reports, Strict, TracedLaunch};
use faults::{Event, FaultKind, FaultScript, Faults, InjectedFault};
use log::LogBuffer;
use signal::Stored;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

/// What has been executed since the GPU was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets taken from rings.
    pub packets: u64,
    /// Kernel launches, by AQL packet or by DISPATCH_DIRECT.
    pub launches: u64,
    /// PM4 indirect buffers run to their end.
    pub indirect_buffers: u64,
    /// Sets of launches that ran without a wait between them.
    pub batches: u64,
    /// Cache operations requested by ACQUIRE_MEM packets.
    pub acquires: u64,
    /// Wave instructions executed.
    pub wave_instructions: u64,
    /// Waves executed.
    pub waves: u64,
    /// Work-groups executed.
    pub groups: u64,
}

/// [`Counters`] while they are being counted.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub packets: AtomicU64,
    pub launches: AtomicU64,
    pub indirect_buffers: AtomicU64,
    pub batches: AtomicU64,
    pub acquires: AtomicU64,
    pub wave_instructions: AtomicU64,
    pub waves: AtomicU64,
    pub groups: AtomicU64,
}

/// Adds to a counter that only the packet processor writes.
pub(crate) fn count(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}

/// What the handles and the packet processor share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub config: SoftConfig,
    pub memory: Arc<AddressSpace>,
    pub registry: Arc<Registry>,
    pub signals: Signals,
    pub queues: Mutex<Vec<Arc<QueueState>>>,
    pub next_queue: AtomicU64,
    pub log: Mutex<LogBuffer>,
    pub tally: Tally,
    /// Strict mode, if it is on.
    pub strict: Option<Arc<Strict>>,
    pub faults: Faults,
    fault: Mutex<Option<String>>,
    objects: AtomicU64,
    /// Grows with every event that the packet processor must look at.
    events: AtomicU64,
    /// Whether a queue waits for the value of a signal.
    waits_for_signal: AtomicBool,
    stop: AtomicBool,
    thread: OnceLock<Thread>,
}

impl Shared {
    /// Makes the packet processor look at its queues.
    pub(crate) fn wake(&self) {
        self.events.fetch_add(1, Ordering::Release);
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Keeps the first fault's text.
    pub(crate) fn record_fault(&self, text: String) {
        let mut fault = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        fault.get_or_insert(text);
    }

    /// Shows the live queue of that id to `act`.
    pub(crate) fn with_queue(&self, id: u64, act: impl FnOnce(&QueueState)) {
        let queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(queue) = queues.iter().find(|state| state.id == id) {
            act(queue);
        }
    }

    /// Counts a submission, named `call`. An error says why it does not reach the device.
    pub(crate) fn submit(&self, call: &str) -> Result<(), String> {
        let mut result = Ok(());
        for fault in self.faults.due(Event::Submit) {
            let text = if fault.kind == FaultKind::LostAtSubmit {
                let text = self
                    .faults
                    .note(fault, &format!("the device was lost at {call}"));
                self.faults.lose(text.clone());
                self.wake();
                text
            } else {
                self.faults.note(fault, &format!("{call} fails"))
            };
            self.record_fault(text.clone());
            result = Err(text);
        }
        result
    }

    fn rang(&self, queue: u64, packet: i64) {
        self.with_queue(queue, |queue| {
            if let Some(strict) = &self.strict {
                let slot = |id| queue.slot(id);
                strict.model().rang(queue.id, packet, queue.packets, &slot);
            }
            // Doorbells of several producers may arrive out of order; the largest id counts.
            queue.rung.fetch_max(packet, Ordering::AcqRel);
        });
        self.wake();
    }
}

/// A GPU in software. Shared by `Arc`; dropping the last handle stops its thread.
#[derive(Debug)]
pub struct SoftGpu {
    shared: Arc<Shared>,
    worker: Option<JoinHandle<()>>,
}

impl SoftGpu {
    /// Builds a GPU and starts its packet processor.
    pub fn new(config: SoftConfig) -> Result<Arc<Self>, SoftError> {
        let memory = Arc::new(AddressSpace::new());
        let registry: Arc<Registry> = Arc::default();
        let strict = config.strict.map(|strict| {
            let strict = Strict::new(strict, config.target, &memory, &registry);
            let observer = Arc::downgrade(&strict);
            memory.observe(observer);
            strict
        });
        let shared = Arc::new(Shared {
            signals: Signals::new(Arc::clone(&memory)),
            log: Mutex::new(LogBuffer::new(config.packet_log_bytes)),
            faults: Faults::new(&config.faults),
            config,
            memory,
            registry,
            queues: Mutex::default(),
            next_queue: AtomicU64::new(1),
            tally: Tally::default(),
            strict,
            fault: Mutex::default(),
            objects: AtomicU64::new(1),
            events: AtomicU64::new(0),
            waits_for_signal: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            thread: OnceLock::new(),
        });
        let worker = worker::start(Arc::clone(&shared))?;
        // The worker's handle is set once, here.
        let _ = shared.thread.set(worker.thread().clone());
        Ok(Arc::new(Self {
            shared,
            worker: Some(worker),
        }))
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The address space that kernels, packets and the host share.
    pub fn memory(&self) -> &Arc<AddressSpace> {
        &self.shared.memory
    }

    /// The processor whose code is executed.
    pub fn target(&self) -> Target {
        self.shared.config.target
    }

    /// The settings that the GPU was built with.
    pub fn config(&self) -> &SoftConfig {
        &self.shared.config
    }

    /// Loads a code object from its ELF bytes. Dropping the handle unloads it.
    pub fn load_code_object(&self, bytes: &[u8]) -> Result<Arc<LoadedObject>, SoftError> {
        let shared = &self.shared;
        let label = format!(
            "code object {}",
            shared.objects.fetch_add(1, Ordering::Relaxed)
        );
        Ok(LoadedObject::load(
            &shared.memory,
            &shared.registry,
            shared.config.target,
            bytes,
            &label,
        )?)
    }

    /// Creates a signal and returns its handle, the address of an `amd_signal_t`.
    pub fn create_signal(&self, initial: i64) -> Result<u64, SoftError> {
        let handle = self.shared.signals.create(initial)?;
        self.strictly(|strict| strict.model().order.host_store(handle, initial));
        Ok(handle)
    }

    /// Destroys a signal; its handle is invalid from then on.
    pub fn destroy_signal(&self, handle: u64) -> Result<(), SoftError> {
        self.strictly(|strict| strict.model().order.forget_signal(handle));
        let destroyed = self.shared.signals.destroy(handle);
        self.signal_changed();
        destroyed
    }

    /// The value of a signal (acquire); of a doorbell, the last packet id stored to it.
    pub fn load_signal(&self, handle: u64) -> Result<i64, SoftError> {
        let value = self.shared.signals.load(handle)?;
        self.strictly(|strict| strict.model().order.host_acquire(handle, value));
        Ok(value)
    }

    /// Stores a value (release), wakes waiters and, for a doorbell, the packet processor.
    pub fn store_signal(&self, handle: u64, value: i64) -> Result<(), SoftError> {
        if self.shared.signals.is_value(handle) {
            self.strictly(|strict| strict.model().order.host_store(handle, value));
        }
        match self.shared.signals.store(handle, value)? {
            Stored::Doorbell(queue) => {
                let call = || format!("doorbell of queue {queue}, packet {value}");
                // A store has no answer: a doorbell that a fault script loses is silent.
                if !self.shared.faults.is_armed() || self.shared.submit(&call()).is_ok() {
                    self.shared.rang(queue, value);
                }
            }
            Stored::Value => self.signal_changed(),
        }
        Ok(())
    }

    /// Rings the doorbell for a submission that was counted already.
    pub(crate) fn ring_doorbell(&self, handle: u64, value: i64) -> Result<(), SoftError> {
        if let Stored::Doorbell(queue) = self.shared.signals.store(handle, value)? {
            self.shared.rang(queue, value);
        }
        Ok(())
    }

    /// Arms a fault script in place of what is left of an earlier one; its events are counted from
    /// this call on. A device that a script has lost stays lost.
    pub fn arm_faults(&self, script: &FaultScript) {
        self.shared.faults.arm(script);
    }

    /// The faults that were injected so far, in order.
    pub fn injected_faults(&self) -> Vec<InjectedFault> {
        self.shared.faults.injected()
    }

    /// Why the device is lost, if it is.
    pub fn lost(&self) -> Option<String> {
        self.shared.faults.lost().map(str::to_owned)
    }

    /// Adds to a signal's value (acquire and release) and returns the value before.
    pub fn add_signal(&self, handle: u64, amount: i64) -> Result<i64, SoftError> {
        self.strictly(|strict| strict.model().order.host_add(handle, amount));
        let before = self.shared.signals.add(handle, amount)?;
        let after = before.wrapping_add(amount);
        self.strictly(|strict| strict.model().order.host_acquire(handle, after));
        self.signal_changed();
        Ok(before)
    }

    /// Waits until `condition` holds between the signal's value and `operand`, or `timeout` has
    /// passed; returns the last value seen, which the caller checks.
    pub fn wait_signal(
        &self,
        handle: u64,
        condition: Condition,
        operand: i64,
        timeout: Duration,
    ) -> Result<i64, SoftError> {
        let seen = self
            .shared
            .signals
            .wait(handle, condition, operand, timeout)?;
        self.strictly(|strict| strict.model().order.host_acquire(handle, seen));
        Ok(seen)
    }

    fn strictly(&self, act: impl FnOnce(&Strict)) {
        if let Some(strict) = &self.shared.strict {
            act(strict);
        }
    }

    /// Declares what the launches of a token touch, for strict mode: each queue repeats the token
    /// from its next launch on. Empty declarations end the checks.
    pub fn declare(&self, declarations: Declarations) {
        self.strictly(|strict| strict.model().declare(declarations));
    }

    /// What strict mode has found so far, in the order of finding; empty in the fast mode.
    pub fn reports(&self) -> Vec<Report> {
        let strict = self.shared.strict.as_ref();
        strict.map_or_else(Vec::new, |strict| strict.reports())
    }

    /// Takes what strict mode has found and the number of reports dropped for want of room.
    pub fn take_reports(&self) -> Reports {
        let strict = self.shared.strict.as_ref();
        strict.map_or_else(Reports::default, |strict| strict.take_reports())
    }

    /// Takes the footprints of the last launches, oldest first; empty unless strict mode keeps them.
    pub fn take_footprints(&self) -> Vec<Footprint> {
        let strict = self.shared.strict.as_ref();
        strict.map_or_else(Vec::new, |strict| strict.take_footprints())
    }

    /// Takes the traces of the last launches, oldest first; empty unless strict mode keeps them.
    pub fn take_traces(&self) -> Vec<TracedLaunch> {
        let strict = self.shared.strict.as_ref();
        strict.map_or_else(Vec::new, |strict| strict.take_traces())
    }

    fn signal_changed(&self) {
        if self.shared.waits_for_signal.load(Ordering::Acquire) {
            self.shared.wake();
        }
    }

    /// The packets logged so far, oldest first; empty unless `keep_packet_log` is set.
    pub fn packet_log(&self) -> Vec<LoggedPacket> {
        self.shared
            .log
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .copy()
    }

    /// Takes the packets logged so far and the number of those dropped for want of room.
    pub fn take_packet_log(&self) -> PacketLog {
        self.shared
            .log
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    /// Text of the first error that stopped a queue.
    pub fn fault(&self) -> Option<String> {
        self.shared
            .fault
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// What has been executed so far.
    pub fn counters(&self) -> Counters {
        let tally = &self.shared.tally;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counters {
            packets: read(&tally.packets),
            launches: read(&tally.launches),
            indirect_buffers: read(&tally.indirect_buffers),
            batches: read(&tally.batches),
            acquires: read(&tally.acquires),
            wave_instructions: read(&tally.wave_instructions),
            waves: read(&tally.waves),
            groups: read(&tally.groups),
        }
    }
}

impl LoadedObject {
    /// The kernel called `name` (with or without `.kd`).
    pub fn kernel(&self, name: &str) -> Result<KernelSymbol, SoftError> {
        let Some(kernel) = self.find(name) else {
            let known: Vec<&str> = self.kernels().iter().map(|kernel| &*kernel.name).collect();
            return Err(SoftError::NoKernel {
                name: name.to_owned(),
                known: known.join(", "),
            });
        };
        match &kernel.refusal {
            Some(reason) => Err(SoftError::KernelRefused {
                name: name.to_owned(),
                reason: reason.clone(),
            }),
            None => Ok(KernelSymbol::from(&**kernel)),
        }
    }
}

impl Drop for SoftGpu {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        let queues = &self.shared.queues;
        for queue in &*queues.lock().unwrap_or_else(PoisonError::into_inner) {
            queue.killed.store(true, Ordering::Release);
        }
        self.shared.wake();
        if let Some(worker) = self.worker.take()
            && worker.thread().id() != std::thread::current().id()
        {
            // The worker never panics; a join error has nobody to be told to.
            let _ = worker.join();
        }
    }
}
