//! Judges recordings against the plan: same launches, same bytes, nothing else.
//!
//! The plan is the truth and a recording is evidence, so every difference is an error that names
//! the step, the field, its offset and both values; nothing is repaired or learned from a tape.

use crate::expected::{Expectation, ExpectedCopy, ExpectedLaunch};
use crate::tape::{Entry, Place, Pointer, Recording, RingLaunch, Tape, TapeLaunch};
use refrain_planner::identity::hex;
use refrain_planner::plan::Digest;

/// Fewest distinct positions that a recording must cover, where the context has as many.
pub const MIN_POSITIONS: usize = 3;
/// Fewest fresh executors that a recording must come from.
pub const MIN_EXECUTORS: usize = 2;

/// Which tape an error is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TapeId {
    /// Executor, from 0.
    pub executor: u32,
    /// Position of the token.
    pub position: u32,
}

impl std::fmt::Display for TapeId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "executor {}, position {}", self.executor, self.position)
    }
}

/// A step by number and name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepRef {
    /// Index in the plan.
    pub step: u32,
    /// Its name.
    pub name: String,
}

impl std::fmt::Display for StepRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "step {} ({})", self.step, self.name)
    }
}

/// Proof that recordings and plan agree; only [`reconcile`] makes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reconciled {
    sequence: Digest,
    positions: Vec<u32>,
    executors: usize,
    ring_tapes: usize,
}

impl Reconciled {
    /// Sequence digest of the plan that the recordings agree with.
    pub const fn sequence(&self) -> &Digest {
        &self.sequence
    }

    /// Positions recorded, ascending.
    pub fn positions(&self) -> &[u32] {
        &self.positions
    }

    /// Fresh executors that agreed.
    pub const fn executors(&self) -> usize {
        self.executors
    }

    /// Tapes that were also decoded from the packet ring; 0 where the device keeps no log.
    pub const fn ring_tapes(&self) -> usize {
        self.ring_tapes
    }
}

/// How a recording differs from its plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReconcileError {
    /// The recording is of another plan.
    #[error("recording belongs to sequence {found}, the plan is {expected}; record this plan")]
    OtherPlan {
        /// The plan's sequence digest, hex.
        expected: String,
        /// The recording's, hex.
        found: String,
    },
    /// Too little evidence.
    #[error(
        "{positions} positions in {executors} executors recorded; at least {MIN_POSITIONS} (or the whole context) and {MIN_EXECUTORS} are needed"
    )]
    TooFew {
        /// Distinct positions.
        positions: usize,
        /// Distinct executors.
        executors: usize,
    },
    /// A position that one executor recorded and another did not.
    #[error(
        "{tape}: not recorded, though other executors recorded this position; record every position with every executor"
    )]
    NotRecorded {
        /// The absent tape.
        tape: TapeId,
    },
    /// A launch that no step accounts for.
    #[error("{tape}: launch {ordinal} ({symbol}) belongs to no step; expected {before}")]
    ExtraLaunch {
        /// Tape.
        tape: TapeId,
        /// Launch number in the tape, from 0.
        ordinal: usize,
        /// Its kernel.
        symbol: String,
        /// The step expected in its place, or the end.
        before: String,
    },
    /// A step that was not launched.
    #[error("{tape}: {step} ({symbol}) was not launched; launch {ordinal} is {found}")]
    MissingLaunch {
        /// Tape.
        tape: TapeId,
        /// The step.
        step: StepRef,
        /// Its kernel.
        symbol: String,
        /// Launch number where it should be.
        ordinal: usize,
        /// What is there instead.
        found: String,
    },
    /// Two steps ran in the other order.
    #[error("{tape}: {first} and {second} ran in swapped order")]
    Swapped {
        /// Tape.
        tape: TapeId,
        /// Earlier step of the plan.
        first: StepRef,
        /// Later step of the plan.
        second: StepRef,
    },
    /// A memset passed.
    #[error(
        "{tape}: memset of {bytes} bytes to value {value:#04x} at {place} before {before}; the plan has none"
    )]
    Memset {
        /// Tape.
        tape: TapeId,
        /// Where.
        place: String,
        /// Length.
        bytes: u64,
        /// Value.
        value: u8,
        /// The step that had not yet run.
        before: String,
    },
    /// A copy passed.
    #[error(
        "{tape}: copy ({direction}) of {bytes} bytes from {src} to {dst} before {before}; the plan has none there"
    )]
    Copy {
        /// Tape.
        tape: TapeId,
        /// Direction.
        direction: &'static str,
        /// Source.
        src: String,
        /// Destination.
        dst: String,
        /// Length.
        bytes: u64,
        /// The step that had not yet run.
        before: String,
    },
    /// A copy of a step of the host did not pass where the plan has it.
    #[error("{tape}: {step}: copy ({direction}) of {bytes} bytes from {src} to {dst} did not pass")]
    MissingCopy {
        /// Tape.
        tape: TapeId,
        /// The step.
        step: StepRef,
        /// Direction.
        direction: &'static str,
        /// Source.
        src: String,
        /// Destination.
        dst: String,
        /// Length.
        bytes: u64,
    },
    /// Another launch parameter than planned.
    #[error("{tape}: {step}: {field} is {found}, the plan says {expected}")]
    Field {
        /// Tape.
        tape: TapeId,
        /// The step.
        step: StepRef,
        /// Which parameter.
        field: &'static str,
        /// The plan's value.
        expected: String,
        /// The recorded value.
        found: String,
    },
    /// Another kernarg byte than planned.
    #[error(
        "{tape}: {step}: kernarg byte {offset} (argument {argument}) is {found:#04x}, the plan says {expected:#04x}"
    )]
    Kernarg {
        /// Tape.
        tape: TapeId,
        /// The step.
        step: StepRef,
        /// Argument that owns the byte, or `padding`.
        argument: String,
        /// Byte offset in the kernarg segment.
        offset: u32,
        /// The plan's value.
        expected: u8,
        /// The recorded value.
        found: u8,
    },
    /// A pointer argument to another place than planned.
    #[error(
        "{tape}: {step}: argument {argument} at kernarg offset {offset} points to {found}, the plan says {expected}"
    )]
    Pointer {
        /// Tape.
        tape: TapeId,
        /// The step.
        step: StepRef,
        /// Argument.
        argument: String,
        /// Byte offset in the kernarg segment.
        offset: u32,
        /// The plan's region.
        expected: String,
        /// The recorded region.
        found: String,
    },
    /// A pointer argument to no plan buffer.
    #[error(
        "{tape}: {step}: argument {argument} at kernarg offset {offset} is {address:#x}, inside no plan buffer; the plan says {expected}"
    )]
    PointerOutside {
        /// Tape.
        tape: TapeId,
        /// The step.
        step: StepRef,
        /// Argument.
        argument: String,
        /// Byte offset in the kernarg segment.
        offset: u32,
        /// The recorded address.
        address: u64,
        /// The plan's region.
        expected: String,
    },
    /// An argument that changes with the position.
    #[error(
        "{step}: argument {argument} at kernarg offset {offset} is {first} at position {first_position} and {second} at position {second_position}; a retained kernarg may not change"
    )]
    PositionDependent {
        /// The step.
        step: StepRef,
        /// Argument.
        argument: String,
        /// Byte offset in the kernarg segment.
        offset: u32,
        /// One position.
        first_position: u32,
        /// Its value.
        first: String,
        /// Another position.
        second_position: u32,
        /// Its value.
        second: String,
    },
    /// An argument that differs between two fresh executors at one position.
    #[error(
        "{step}: argument {argument} at kernarg offset {offset}, position {position}: executor {first_executor} has {first}, executor {second_executor} has {second}"
    )]
    ExecutorsDisagree {
        /// The step.
        step: StepRef,
        /// Argument.
        argument: String,
        /// Byte offset in the kernarg segment.
        offset: u32,
        /// The position.
        position: u32,
        /// One executor.
        first_executor: u32,
        /// Its value.
        first: String,
        /// Another executor.
        second_executor: u32,
        /// Its value.
        second: String,
    },
    /// The packets in the ring are not the launches that were observed.
    #[error("{tape}: packet {ordinal} in the ring: {what}")]
    Ring {
        /// Tape.
        tape: TapeId,
        /// Packet number among the token's dispatch packets, from 0.
        ordinal: usize,
        /// What differs, with both values.
        what: String,
    },
}

/// Compares every tape with the plan and the tapes with each other.
pub fn reconcile(
    expectation: &Expectation,
    recording: &Recording,
) -> Result<Reconciled, ReconcileError> {
    if recording.sequence != expectation.sequence {
        return Err(ReconcileError::OtherPlan {
            expected: hex(&expectation.sequence),
            found: hex(&recording.sequence),
        });
    }
    for tape in &recording.tapes {
        Judge {
            expectation,
            recording,
            tape,
        }
        .tape()?;
    }
    let (positions, executors) = (recording.positions(), recording.executors());
    if positions.len() < expectation.positions || executors < MIN_EXECUTORS {
        return Err(ReconcileError::TooFew {
            positions: positions.len(),
            executors,
        });
    }
    if let Some(tape) = not_recorded(recording) {
        return Err(ReconcileError::NotRecorded { tape });
    }
    let ring_tapes = recording
        .tapes
        .iter()
        .filter(|tape| tape.ring.is_some())
        .count();
    Ok(Reconciled {
        sequence: expectation.sequence,
        positions,
        executors,
        ring_tapes,
    })
}

/// The first tape that is absent although its position was recorded by another executor.
fn not_recorded(recording: &Recording) -> Option<TapeId> {
    let (positions, tapes) = (recording.positions(), &recording.tapes);
    let absent = |executor| {
        let mut positions = positions.iter().copied();
        let position = positions.find(|position| {
            let recorded = |tape: &Tape| (tape.executor, tape.position) == (executor, *position);
            !tapes.iter().any(recorded)
        });
        position.map(|position| TapeId { executor, position })
    };
    tapes.iter().find_map(|tape| absent(tape.executor))
}

struct Judge<'a> {
    expectation: &'a Expectation,
    recording: &'a Recording,
    tape: &'a Tape,
}

impl Judge<'_> {
    fn id(&self) -> TapeId {
        TapeId {
            executor: self.tape.executor,
            position: self.tape.position,
        }
    }

    fn step(&self, index: usize) -> StepRef {
        let name = self
            .expectation
            .launches
            .get(index)
            .map(|l| l.name.clone())
            .unwrap_or_default();
        let step = self.expectation.launches.get(index).map_or(0, |l| l.step);
        StepRef { step, name }
    }

    fn step_or_end(&self, index: usize) -> String {
        if index < self.expectation.launches.len() {
            self.step(index).to_string()
        } else {
            "the end of the token".into()
        }
    }

    fn tape(&self) -> Result<(), ReconcileError> {
        let mut launches = Vec::with_capacity(self.tape.entries.len());
        let mut copies = self.expectation.copies.iter();
        for entry in &self.tape.entries {
            match entry {
                Entry::Launch(launch) => launches.push(launch),
                other => {
                    let planned = copies.clone().next();
                    if !planned.is_some_and(|copy| is_copy(other, copy, launches.len())) {
                        return Err(self.foreign(other, launches.len()));
                    }
                    copies.next();
                }
            }
        }
        let absent = copies.next();
        let expected = &self.expectation.launches;
        for (index, want) in expected.iter().enumerate() {
            match launches.get(index) {
                Some(have) if want.launch == **have => {}
                have => return Err(self.diagnose(index, have.copied(), &launches)),
            }
        }
        if let Some(extra) = launches.get(expected.len()) {
            return Err(self.extra(expected.len(), extra));
        }
        if let Some(copy) = absent {
            return Err(self.missing_copy(copy));
        }
        match &self.tape.ring {
            Some(ring) => self.ring(ring),
            None => Ok(()),
        }
    }

    fn missing_copy(&self, copy: &ExpectedCopy) -> ReconcileError {
        let (step, name) = (copy.step, copy.name.clone());
        ReconcileError::MissingCopy {
            tape: self.id(),
            step: StepRef { step, name },
            direction: copy.direction.name(),
            src: self.expectation.place(copy.src),
            dst: self.expectation.place(copy.dst),
            bytes: copy.bytes,
        }
    }

    fn foreign(&self, entry: &Entry, before: usize) -> ReconcileError {
        let (tape, before) = (self.id(), self.step_or_end(before));
        let place = |place| self.expectation.place(place);
        match entry {
            Entry::Copy {
                dst,
                src,
                bytes,
                direction,
            } => ReconcileError::Copy {
                tape,
                direction: direction.name(),
                src: place(*src),
                dst: place(*dst),
                bytes: *bytes,
                before,
            },
            Entry::Memset { dst, value, bytes } => ReconcileError::Memset {
                tape,
                place: place(*dst),
                bytes: *bytes,
                value: *value,
                before,
            },
            Entry::Launch(launch) => ReconcileError::ExtraLaunch {
                tape,
                ordinal: 0,
                symbol: launch.symbol.clone(),
                before,
            },
        }
    }

    fn extra(&self, ordinal: usize, launch: &TapeLaunch) -> ReconcileError {
        ReconcileError::ExtraLaunch {
            tape: self.id(),
            ordinal,
            symbol: launch.symbol.clone(),
            before: self.step_or_end(ordinal),
        }
    }

    /// Names the first difference: an inserted, lost or moved launch if the rest of the tape says
    /// so, otherwise the field of this launch.
    fn diagnose(
        &self,
        index: usize,
        have: Option<&TapeLaunch>,
        launches: &[&TapeLaunch],
    ) -> ReconcileError {
        let expected = &self.expectation.launches;
        let Some(have) = have else {
            return self.missing(index, "the end of the token".into());
        };
        let at = |tape: usize, step: usize| {
            launches
                .get(tape)
                .zip(expected.get(step))
                .is_some_and(|(a, b)| **a == b.launch)
        };
        // Another length is an insertion or a loss wherever the shorter rest still lines up.
        if launches.len() > expected.len() && at(index + 1, index) {
            return self.extra(index, have);
        }
        if launches.len() < expected.len() && at(index, index + 1) {
            return self.missing(index, have.symbol.clone());
        }
        let other = (index + 1..expected.len()).find(|j| at(index, *j) && at(*j, index));
        if let Some(other) = other {
            let (first, second) = (self.step(index), self.step(other));
            return ReconcileError::Swapped {
                tape: self.id(),
                first,
                second,
            };
        }
        match expected.get(index) {
            Some(want) => self.field(index, want, have),
            None => self.extra(index, have),
        }
    }

    fn missing(&self, index: usize, found: String) -> ReconcileError {
        let symbol = self
            .expectation
            .launches
            .get(index)
            .map(|l| l.launch.symbol.clone());
        ReconcileError::MissingLaunch {
            tape: self.id(),
            step: self.step(index),
            symbol: symbol.unwrap_or_default(),
            ordinal: index,
            found,
        }
    }

    fn field(&self, index: usize, want: &ExpectedLaunch, have: &TapeLaunch) -> ReconcileError {
        let plan = &want.launch;
        let rows = [
            ("kernel", plan.symbol.clone(), have.symbol.clone()),
            ("code object", hex(&plan.object), hex(&have.object)),
            (
                "grid",
                format!("{:?}", plan.grid),
                format!("{:?}", have.grid),
            ),
            (
                "block",
                format!("{:?}", plan.block),
                format!("{:?}", have.block),
            ),
            ("LDS bytes", plan.lds.to_string(), have.lds.to_string()),
            (
                "kernarg bytes",
                plan.kernarg.len().to_string(),
                have.kernarg.len().to_string(),
            ),
        ];
        for (field, expected, found) in rows {
            if expected != found {
                let (tape, step) = (self.id(), self.step(index));
                return ReconcileError::Field {
                    tape,
                    step,
                    field,
                    expected,
                    found,
                };
            }
        }
        self.kernarg(index, want, have)
    }

    /// The first differing kernarg byte or pointer. If another tape has another value there, the
    /// difference is between positions or executors, which says more than "differs from the plan".
    fn kernarg(&self, index: usize, want: &ExpectedLaunch, have: &TapeLaunch) -> ReconcileError {
        let plan = &want.launch;
        let byte = (0..plan.kernarg.len()).find(|i| plan.kernarg[*i] != have.kernarg[*i]);
        let pointer = plan
            .pointers
            .iter()
            .map(|p| p.at)
            .chain(have.pointers.iter().map(|p| p.at))
            .find(|at| find(&plan.pointers, *at) != find(&have.pointers, *at));
        let offset = pointer.unwrap_or_else(|| byte.map_or(0, |at| at as u32));
        let (argument, start) = want.argument(offset);
        // A pointer to nowhere is worse than one that moves, and may well do both.
        let outside = matches!(find(&have.pointers, offset), Some(Place::Outside(_)));
        let between = self.between_tapes(index, &argument, start, want, have);
        if let (Some(error), false) = (between, outside) {
            return error;
        }
        let (tape, step) = (self.id(), self.step(index));
        match pointer {
            None => ReconcileError::Kernarg {
                tape,
                step,
                argument,
                offset,
                expected: byte.map_or(0, |at| plan.kernarg[at]),
                found: byte.map_or(0, |at| have.kernarg[at]),
            },
            Some(at) => {
                let place = |list: &[Pointer]| {
                    find(list, at).map_or("no pointer".into(), |p| self.expectation.place(p))
                };
                let (expected, found) = (place(&plan.pointers), place(&have.pointers));
                match find(&have.pointers, at) {
                    Some(Place::Outside(address)) => ReconcileError::PointerOutside {
                        tape,
                        step,
                        argument,
                        offset,
                        address,
                        expected,
                    },
                    _ => ReconcileError::Pointer {
                        tape,
                        step,
                        argument,
                        offset,
                        expected,
                        found,
                    },
                }
            }
        }
    }

    fn between_tapes(
        &self,
        index: usize,
        argument: &str,
        start: u32,
        want: &ExpectedLaunch,
        have: &TapeLaunch,
    ) -> Option<ReconcileError> {
        let mine = self.value(have, start, want);
        let others = self.recording.tapes.iter().filter_map(|tape| {
            let mut launches = tape.entries.iter().filter_map(|entry| match entry {
                Entry::Launch(launch) => Some(launch),
                _ => None,
            });
            let value = self.value(launches.nth(index)?, start, want);
            (value != mine).then_some((tape, value))
        });
        let others: Vec<_> = others.collect();
        let same_executor = others
            .iter()
            .find(|(tape, _)| tape.executor == self.tape.executor);
        let (step, argument) = (self.step(index), argument.to_owned());
        if let Some((tape, value)) = same_executor {
            return Some(ReconcileError::PositionDependent {
                step,
                argument,
                offset: start,
                first_position: self.tape.position,
                first: mine,
                second_position: tape.position,
                second: value.clone(),
            });
        }
        let (tape, value) = others
            .iter()
            .find(|(tape, _)| tape.position == self.tape.position)?;
        Some(ReconcileError::ExecutorsDisagree {
            step,
            argument,
            offset: start,
            position: self.tape.position,
            first_executor: self.tape.executor,
            first: mine,
            second_executor: tape.executor,
            second: value.clone(),
        })
    }

    /// The value of the argument at `start`, as text.
    fn value(&self, launch: &TapeLaunch, start: u32, want: &ExpectedLaunch) -> String {
        if let Some(place) = find(&launch.pointers, start) {
            return self.expectation.place(place);
        }
        let bytes = want
            .arguments
            .iter()
            .find(|a| a.at == start)
            .map_or(1, |a| a.bytes) as usize;
        let bytes = launch.kernarg.iter().skip(start as usize).take(bytes);
        let digits: String = bytes.rev().map(|byte| format!("{byte:02x}")).collect();
        format!("0x{digits}")
    }

    /// The dispatch packets of the ring must be the observed launches, in order.
    fn ring(&self, ring: &[RingLaunch]) -> Result<(), ReconcileError> {
        let error = |ordinal, what| {
            Err(ReconcileError::Ring {
                tape: self.id(),
                ordinal,
                what,
            })
        };
        for (ordinal, want) in self.expectation.launches.iter().enumerate() {
            let plan = &want.launch;
            let Some(have) = ring.get(ordinal) else {
                return error(
                    ordinal,
                    format!("absent; {} was launched", self.step(ordinal)),
                );
            };
            let rows = [
                ("kernel", plan.symbol.clone(), have.symbol.clone()),
                ("code object", hex(&plan.object), hex(&have.object)),
                (
                    "grid",
                    format!("{:?}", plan.grid),
                    format!("{:?}", have.grid),
                ),
                (
                    "block",
                    format!("{:?}", plan.block),
                    format!("{:?}", have.block),
                ),
                (
                    "LDS bytes",
                    want.packet_lds.to_string(),
                    have.lds.to_string(),
                ),
                ("kernarg", hex(&plan.kernarg), hex(&have.kernarg)),
                (
                    "pointers",
                    format!("{:?}", plan.pointers),
                    format!("{:?}", have.pointers),
                ),
            ];
            for (field, launched, packet) in rows {
                if launched != packet {
                    let step = self.step(ordinal);
                    return error(
                        ordinal,
                        format!("{step}: {field} {packet}, launched {launched}"),
                    );
                }
            }
            if let Some(what) = unordered(have.header) {
                return error(ordinal, format!("{}: {what}", self.step(ordinal)));
            }
        }
        match ring.get(self.expectation.launches.len()) {
            Some(extra) => {
                let what = format!("{} was dispatched but never launched", extra.symbol);
                error(self.expectation.launches.len(), what)
            }
            None => Ok(()),
        }
    }
}

/// What in a packet's header does not keep it behind the launch before it, as a stream promises:
/// another type, no barrier bit, or a fence narrower than the device (HSA Platform System
/// Architecture 1.2, "AQL packet header").
fn unordered(header: u16) -> Option<String> {
    const FENCES: [&str; 4] = ["none", "agent", "system", "reserved"];
    let fence = |shift: u16| usize::from(header >> shift & 3);
    let name = |value: usize| FENCES.get(value).copied().unwrap_or("?");
    let (kind, acquire, release) = (header & 0xff, fence(9), fence(11));
    if kind != 2 {
        return Some(format!(
            "packet type {kind}, a launch is a kernel dispatch (2)"
        ));
    }
    if header & 1 << 8 == 0 {
        return Some("barrier bit 0, launches of one stream have 1".into());
    }
    for (what, value) in [("acquire", acquire), ("release", release)] {
        if !matches!(value, 1 | 2) {
            let value = name(value);
            return Some(format!(
                "{what} fence {value}, launched with agent or system"
            ));
        }
    }
    None
}

/// Whether an entry is the planned copy, after as many launches.
fn is_copy(entry: &Entry, planned: &ExpectedCopy, launches: usize) -> bool {
    let Entry::Copy {
        dst,
        src,
        bytes,
        direction,
    } = entry
    else {
        return false;
    };
    let found = (*dst, *src, *bytes, *direction, launches);
    let ExpectedCopy {
        dst,
        src,
        bytes,
        direction,
        after,
        ..
    } = planned;
    found == (*dst, *src, *bytes, *direction, *after)
}

fn find(pointers: &[Pointer], at: u32) -> Option<Place> {
    pointers
        .iter()
        .find(|pointer| pointer.at == at)
        .map(|pointer| pointer.place)
}

#[cfg(test)]
mod tests;
