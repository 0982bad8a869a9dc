//! Faults as reports: which launch of the batch stopped, which argument its access follows, and what
//! would help. What a fault is, and its own text, are left to `cp` and `exec`.

use super::model::{Model, Pending};
use super::report::{Bytes, Instruction, Party, Report, ReportKind};
use crate::cp::{Cause, PacketError, Pm4Error, Pm4Reason, QueueFault, RingError};
use crate::exec::{ExecError, LaunchProblem, WaveError, WaveFault};
use crate::memory::{Access, FaultReason, Kind, MemoryFault, Nearest};
use std::sync::Arc;

/// A pointer argument: its address, its name, and the allocation that it points into.
struct Pointer {
    va: u64,
    argument: String,
    into: Extent,
}

/// An allocation, live or freed.
#[derive(Clone)]
struct Extent {
    name: Arc<str>,
    base: u64,
    len: u64,
}

impl Extent {
    fn holds(&self, va: u64) -> bool {
        va.checked_sub(self.base)
            .is_some_and(|offset| offset < self.len)
    }

    /// Where an access outside lies, in words; empty for one inside.
    fn distance(&self, va: u64, len: u64) -> String {
        let (end, stop) = (self.base.saturating_add(self.len), va.saturating_add(len));
        if va < self.base {
            format!(": it begins {} bytes before the start", self.base - va)
        } else if stop > end {
            format!(": it reaches {} bytes past the end", stop - end)
        } else {
            String::new()
        }
    }
}

impl From<&Nearest> for Extent {
    fn from(near: &Nearest) -> Self {
        Self {
            name: Arc::clone(&near.name),
            base: near.base,
            len: near.len,
        }
    }
}

impl Model {
    /// The running batch stopped at the launch of this index ([`ExecError::tag`]), whose queue will
    /// report the fault.
    pub(crate) fn failed(&mut self, tag: u64) {
        let index = usize::try_from(tag).ok();
        if let Some(pending) = index.and_then(|index| self.running.get(index)) {
            self.failed.insert(pending.who.queue, pending.clone());
        }
    }

    /// A queue stopped.
    pub(crate) fn fault(&mut self, fault: &QueueFault) {
        let failed = self.failed.remove(&fault.queue);
        let unnamed = Party {
            step: None,
            kernel: fault.kernel.clone().unwrap_or_else(|| "".into()),
            queue: fault.queue,
            packet: fault.packet,
            dword: None,
            processor: false,
        };
        let text = || fault.cause.to_string();
        let report = match &fault.cause {
            Cause::Strict(_) => return,
            Cause::Exec(error) => {
                let who = failed.as_ref().map_or(unnamed, |launch| launch.who.clone());
                match error {
                    ExecError::Wave(wave) => self.wave_fault(who, failed.as_ref(), wave),
                    ExecError::Launch { problem, .. } => {
                        let mut report = Report::new(ReportKind::WaveStopped, who, text());
                        report.remedy = launch_remedy(problem).to_owned();
                        report
                    }
                }
            }
            Cause::Pm4(Pm4Error::Packet { dword, reason, .. }) => {
                let who = Party {
                    dword: Some(*dword),
                    ..unnamed
                };
                packet_fault(who, *dword, reason, text())
            }
            cause => {
                let mut report = Report::new(ReportKind::PacketRejected, unnamed, text());
                report.remedy = packet_remedy(cause).to_owned();
                report
            }
        };
        self.log.add(report);
    }

    fn wave_fault(&self, who: Party, launch: Option<&Pending>, wave: &WaveError) -> Report {
        let kernel = self.registry.at(&who.kernel, wave.pc);
        let entry = kernel.map_or(0, |kernel| kernel.entry_va);
        let instruction = Instruction {
            offset: wave.pc.wrapping_sub(entry),
            text: wave.instruction.clone(),
            group: wave.group[0],
            wave: wave.wave,
            left_out: false,
        };
        let mut report = match &wave.fault {
            WaveFault::Memory { lane, fault } => self.memory_fault(who, launch, *lane, fault),
            other => {
                let mut report = Report::new(ReportKind::WaveStopped, who, other.to_string());
                report.remedy = wave_remedy(other).to_owned();
                report
            }
        };
        report.instruction = Some(instruction);
        report
    }

    fn memory_fault(
        &self,
        who: Party,
        launch: Option<&Pending>,
        lane: u32,
        fault: &MemoryFault,
    ) -> Report {
        let near = fault.nearest.as_ref();
        let write = matches!(fault.access, Access::Write | Access::Atomic);
        let kind = near
            .and_then(|near| self.memory.find(near.base))
            .map(|info| info.kind);
        let packets = matches!(
            kind,
            Some(Kind::Code | Kind::IndirectBuffer | Kind::Kernarg)
        );
        let kind = if write && fault.reason == FaultReason::Rights && packets {
            ReportKind::PacketMemoryWritten
        } else {
            ReportKind::OutOfBounds
        };
        let pointer = launch.and_then(|launch| self.pointer(launch, fault));
        let (argument, place) = match pointer {
            Some(pointer) => (Some(pointer.argument), Some(pointer.into)),
            None => (None, near.map(Extent::from)),
        };
        // The text of the fault has addresses, which differ from run to run.
        let mut detail = format!("lane {lane}: {} of {} bytes", fault.access, fault.length);
        if let Some(Extent { name, base, len }) = &place {
            let offset = i128::from(fault.address) - i128::from(*base);
            detail += &format!(" at byte {offset} of `{name}`, which has {len} bytes");
        }
        detail += match fault.reason {
            FaultReason::Freed => " and was freed",
            FaultReason::Rights => " and does not allow it",
            _ => "",
        };
        let distance = place
            .as_ref()
            .map(|place| place.distance(fault.address, fault.length));
        detail += &distance.unwrap_or_default();
        let mut report = Report::new(kind, who, detail);
        report.argument = argument;
        report.bytes = place.and_then(|place| {
            Some(Bytes {
                offset: fault.address.checked_sub(place.base)?,
                buffer: place.name,
                len: fault.length,
            })
        });
        report
    }

    /// The argument that a refused access started from, as far as addresses tell: one into the
    /// nearest allocation; else, for an access outside every allocation, the last one before it.
    fn pointer(&self, launch: &Pending, fault: &MemoryFault) -> Option<Pointer> {
        let near = fault.nearest.as_ref().map(Extent::from);
        let into = |va: u64| {
            let near = near.clone().filter(|near| near.holds(va));
            near.or_else(|| {
                let info = self.memory.find(va)?;
                Some(Extent {
                    name: info.name,
                    base: info.base,
                    len: info.len,
                })
            })
        };
        let pointers = self.pointers(launch).into_iter();
        let mut pointers: Vec<Pointer> = pointers
            .filter_map(|(va, argument)| {
                Some(Pointer {
                    va,
                    argument,
                    into: into(va)?,
                })
            })
            .collect();
        let is_near = |pointer: &Pointer| near.as_ref().is_some_and(|near| near.holds(pointer.va));
        if pointers.iter().any(is_near) {
            pointers.retain(is_near);
        } else if near.as_ref().is_some_and(|near| near.holds(fault.address)) {
            return None;
        }
        pointers.sort_by_key(|pointer| pointer.va);
        let before = pointers.partition_point(|pointer| pointer.va <= fault.address);
        if let Some(last) = before.checked_sub(1) {
            return Some(pointers.swap_remove(last));
        }
        // In front of its buffer.
        pointers.into_iter().find(is_near)
    }

    /// A launch's pointer arguments with their names: as declared, else as the compiler's metadata
    /// places them in the kernel arguments. Clang leaves names out; the number stands for one.
    fn pointers(&self, launch: &Pending) -> Vec<(u64, String)> {
        let declared = launch
            .declared
            .and_then(|number| self.declared.launch(number));
        if let Some(declared) = declared {
            let args = declared.args.iter();
            return args.map(|arg| (arg.va, arg.name.to_string())).collect();
        }
        let Some((base, ..)) = launch.kernarg else {
            return Vec::new();
        };
        let args = launch.kernel.metadata.args.iter().enumerate();
        args.filter(|(_, arg)| arg.value_kind == "global_buffer" && arg.size == 8)
            .filter_map(|(number, arg)| {
                let mut bytes = [0; 8];
                let at = base.checked_add(u64::from(arg.offset))?;
                self.memory.peek(at, &mut bytes).ok()?;
                let name = if arg.name.is_empty() {
                    format!("{number} (offset {})", arg.offset)
                } else {
                    arg.name.clone()
                };
                Some((u64::from_le_bytes(bytes), name))
            })
            .collect()
    }
}

/// A dword of an indirect buffer that the packet processor does not accept.
fn packet_fault(who: Party, dword: u32, reason: &Pm4Reason, detail: String) -> Report {
    let (kind, remedy) = match reason {
        Pm4Reason::Unset { name, .. } => (
            ReportKind::RegisterUnset,
            format!(
                "write {name} with SET_SH_REG in the same indirect buffer, before dword {dword}"
            ),
        ),
        Pm4Reason::MissingWait { dispatch, .. } => (
            ReportKind::PacketRejected,
            format!(
                "put EVENT_WRITE CS_PARTIAL_FLUSH (0x407) behind the dispatch at dword {dispatch}, \
                 before the indirect buffer ends"
            ),
        ),
        Pm4Reason::Memory { .. } => (
            ReportKind::PacketRejected,
            format!("map the memory that the packet at dword {dword} names, with the right to it"),
        ),
        Pm4Reason::Program { .. } => (
            ReportKind::PacketRejected,
            "write the entry of a loaded kernel, shifted right by 8, to PGM_LO and PGM_HI"
                .to_owned(),
        ),
        Pm4Reason::Window { .. }
        | Pm4Reason::NoRegister { .. }
        | Pm4Reason::Forbidden { .. }
        | Pm4Reason::OnlyZero { .. }
        | Pm4Reason::RegisterBits { .. } => (
            ReportKind::PacketRejected,
            format!("correct or leave out the register write at dword {dword}"),
        ),
        _ => (
            ReportKind::PacketRejected,
            format!("correct or leave out the packet at dword {dword}"),
        ),
    };
    let mut report = Report::new(kind, who, detail);
    report.remedy = remedy;
    report
}

fn packet_remedy(cause: &Cause) -> &'static str {
    match cause {
        Cause::Ring(RingError::NotReserved { .. }) => {
            "ring the doorbell with the id of the last published packet"
        }
        Cause::Ring(_) => "publish a packet only while its id is within a ring of the read index",
        Cause::Packet(PacketError::Signal { .. } | PacketError::CompletionSpent { .. }) => {
            "give the packet a live signal whose value is still above 0"
        }
        Cause::Packet(_) => "correct the field of the packet that the detail names",
        Cause::Memory { .. } => "map the memory that the packet names, with the right to it",
        Cause::Lost { .. } => "create the device anew; nothing runs on this one any more",
        Cause::Injected { .. } => "take the fault out of the script if it is not meant",
        _ => "correct the packets of the indirect buffer that the detail names",
    }
}

fn launch_remedy(problem: &LaunchProblem) -> &'static str {
    match problem {
        LaunchProblem::Stopped => "wait for the launches before the queue is destroyed",
        LaunchProblem::Entry { .. } => "take the entry from the kernel descriptor",
        LaunchProblem::GroupSize { .. } => "launch work-groups of 1 to 1024 work-items",
        LaunchProblem::Grid { .. } => "launch a grid within the target's limits, none of it 0",
        LaunchProblem::Lds { .. } => "ask for less LDS, or split the work-group",
        LaunchProblem::Registers { .. } => "take RSRC1 from the kernel descriptor",
        LaunchProblem::UserSgprs { .. } => "take RSRC2 from the kernel descriptor",
        LaunchProblem::Scratch { .. } => "compile the kernel to use less scratch",
    }
}

fn wave_remedy(fault: &WaveFault) -> &'static str {
    match fault {
        WaveFault::Memory { .. } => ReportKind::OutOfBounds.row().remedy,
        WaveFault::Lds { .. } => "raise the launch's group_segment_size, or correct the LDS index",
        WaveFault::Scratch { .. } => {
            "raise the launch's private_segment_size, or correct the scratch index"
        }
        WaveFault::Unsupported(_) => "compile the kernel without this instruction",
        WaveFault::Undecodable(_) => "compile the kernel for this target",
        WaveFault::Jump { .. } => "correct the branch or the return address that led there",
        WaveFault::Budget { .. } => "end the loop, or raise the wave budget if it is meant",
        WaveFault::Stopped => "wait for the launches before the queue is destroyed",
        WaveFault::Deadlock { .. } => "let every wave of the group reach the same barrier",
    }
}
