//! Counts events and hands out the faults that are due, each once; remembers what was injected and
//! whether the device is lost.

use super::{Event, Fault, FaultScript};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// A fault that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InjectedFault {
    /// The entry of the script.
    pub fault: Fault,
    /// What it did, with the packet, launch, call or bits concerned.
    pub what: String,
}

/// The faults of one software GPU.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// Whether any fault is left; without one nothing is counted.
    armed: AtomicBool,
    script: Mutex<Script>,
    lost: OnceLock<String>,
}

#[derive(Debug, Default)]
struct Script {
    left: Vec<Fault>,
    counts: [u64; Event::COUNT],
    injected: Vec<InjectedFault>,
}

impl Faults {
    pub(crate) fn new(script: &FaultScript) -> Self {
        let faults = Self::default();
        faults.arm(script);
        faults
    }

    fn script(&self) -> std::sync::MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces what is left of the script; events are counted from here.
    pub(crate) fn arm(&self, script: &FaultScript) {
        let mut state = self.script();
        state.left = script.faults().to_vec();
        state.counts = [0; Event::COUNT];
        self.armed.store(!state.left.is_empty(), Ordering::Release);
    }

    /// Whether any fault is left to happen.
    pub(crate) fn is_armed(&self) -> bool {
        self.armed.load(Ordering::Acquire)
    }

    /// Counts an event and takes the faults that are due at it.
    pub(crate) fn due(&self, event: Event) -> Vec<Fault> {
        if !self.is_armed() {
            return Vec::new();
        }
        let mut state = self.script();
        let count = &mut state.counts[event as usize];
        *count += 1;
        let count = *count;
        let due = |fault: &mut Fault| fault.kind.row().event == event && fault.nth == count;
        let due = state.left.extract_if(.., due).collect();
        self.armed.store(!state.left.is_empty(), Ordering::Release);
        due
    }

    /// Records that a fault happened, and gives its text back for messages.
    pub(crate) fn note(&self, fault: Fault, what: &str) -> String {
        let what = what.to_owned();
        let text = format!("{what} (injected: {fault})");
        self.script().injected.push(InjectedFault { fault, what });
        text
    }

    /// Counts an event whose only fault is that the call fails; the text says why it must.
    pub(crate) fn refuse(&self, event: Event, call: &str) -> Option<String> {
        let mut text = None;
        for fault in self.due(event) {
            text = Some(self.note(fault, &format!("{call} fails")));
        }
        text
    }

    /// The device is lost, for good.
    pub(crate) fn lose(&self, text: String) {
        // The first loss counts.
        let _ = self.lost.set(text);
    }

    /// Why the device is lost, if it is.
    pub(crate) fn lost(&self) -> Option<&str> {
        self.lost.get().map(String::as_str)
    }

    pub(crate) fn injected(&self) -> Vec<InjectedFault> {
        self.script().injected.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::{Event, Faults};

    #[test]
    fn a_fault_is_due_once_at_its_event_and_arming_counts_afresh() {
        let faults = Faults::new(&"hang@launch:2,lost@launch:2,lost@packet:1".parse().unwrap());
        assert!(faults.due(Event::Launch).is_empty());
        assert!(faults.due(Event::Submit).is_empty());
        assert_eq!(faults.due(Event::Launch).len(), 2);
        assert!(faults.due(Event::Launch).is_empty());
        assert_eq!(faults.due(Event::Packet).len(), 1);
        faults.arm(&"hang@launch:1".parse().unwrap());
        let due = faults.due(Event::Launch);
        assert_eq!(
            faults.note(due[0], "it hangs"),
            "it hangs (injected: hang@launch:1)"
        );
        assert_eq!(faults.injected()[0].what, "it hangs");
    }
}
