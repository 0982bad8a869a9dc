//! A work-group under strict mode: its waves, LDS and barrier.

use super::code::Code;
use super::shadow::Shadow;
use super::track::Track;
use super::turn::{Outcome, Turn};
use crate::exec::context::{Ctx, Fault, HITS};
use crate::exec::group::{Cause, MAX_WAVES, Stopped};
use crate::exec::init::Start;
use crate::exec::wave::{State, Wave};
use crate::memory::{LastHit, View};
use crate::strict::hook::{Watch, WaveFinding, Who};
use std::sync::atomic::AtomicBool;

/// The barrier of a work-group.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Barrier {
    /// Waves that have not ended.
    pub(super) alive: u32,
    /// Signals since it last completed.
    pub(super) signals: u32,
    /// Times that it completed.
    pub(super) phase: u32,
}

impl Barrier {
    /// One wave signals; returns the phase that its wait is for.
    pub(super) fn signal(&mut self) -> u32 {
        let target = self.phase + 1;
        self.signals += 1;
        self.settle();
        target
    }

    fn settle(&mut self) {
        if self.signals > 0 && self.signals >= self.alive {
            self.signals = 0;
            self.phase += 1;
        }
    }
}

/// A wave and what strict mode knows of it.
pub(super) struct Member {
    pub(super) w: Box<Wave>,
    pub(super) t: Box<Track>,
}

impl Member {
    fn new() -> Self {
        Self {
            w: Wave::new(),
            t: Box::new(Track::new()),
        }
    }
}

/// A work-group that runs.
#[derive(Default)]
pub(super) struct Active {
    pub(super) launch: usize,
    /// Linear number in its launch, and the same by dimension.
    pub(super) number: u32,
    pub(super) at: [u32; 3],
    members: Vec<Member>,
    waves: usize,
    lds: Vec<u8>,
    lds_bytes: usize,
    shadow: Shadow,
    barrier: Barrier,
    /// Phase whose completion was taken note of.
    noted: u32,
    /// LDS instructions per wave that the last completed barrier orders.
    published: [u32; MAX_WAVES],
    /// Waves that can run.
    ready: Vec<u8>,
    /// Divergence was reported.
    diverged: bool,
}

/// What the scheduler lends to a slice.
pub(super) struct Lent<'a, W: ?Sized> {
    pub(super) code: &'a Code,
    pub(super) view: &'a View,
    pub(super) hits: &'a mut [LastHit; HITS],
    pub(super) stop: &'a AtomicBool,
    pub(super) watch: &'a mut W,
    pub(super) limit: u32,
    pub(super) budget: u64,
}

impl Active {
    /// Sets up work-group `number` of a launch.
    pub(super) fn start(&mut self, start: &Start<'_>, launch: usize, number: u32, at: [u32; 3]) {
        self.launch = launch;
        self.number = number;
        self.at = at;
        self.waves = start.waves as usize;
        while self.members.len() < self.waves {
            self.members.push(Member::new());
        }
        for (i, m) in self.members.iter_mut().take(self.waves).enumerate() {
            start.wave(&mut m.w, at, i as u32);
            m.t.start(start);
        }
        self.lds_bytes = start.dispatch.lds_bytes as usize;
        if self.lds.len() < self.lds_bytes {
            self.lds.resize(self.lds_bytes, 0);
        }
        let (words, rest) = self.lds[..self.lds_bytes].as_chunks_mut::<4>();
        words.fill(start.poison.to_le_bytes());
        rest.fill(start.poison as u8);
        self.shadow.start(start.dispatch.lds_bytes);
        self.barrier = Barrier {
            alive: start.waves,
            ..Barrier::default()
        };
        self.noted = 0;
        self.published = [0; MAX_WAVES];
        self.ready.clear();
        self.ready.extend(0..self.waves as u8);
        self.diverged = false;
    }

    /// Whether all waves have ended.
    pub(super) fn finished(&self) -> bool {
        self.barrier.alive == 0
    }

    /// Instructions of all waves.
    pub(super) fn instructions(&self) -> u64 {
        self.members
            .iter()
            .take(self.waves)
            .map(|m| m.w.count)
            .sum()
    }

    /// Gives the `choice`-th of the waves that can run a slice.
    pub(super) fn slice<W: Watch + ?Sized>(
        &mut self,
        choice: u64,
        lent: Lent<'_, W>,
    ) -> Result<(), Stopped> {
        let Some(count) = std::num::NonZeroU64::new(self.ready.len() as u64) else {
            return Err(self.deadlock());
        };
        let place = (choice % count) as usize;
        let index = usize::from(self.ready[place]);
        let mut x = Ctx {
            program: &lent.code.program,
            constants: &lent.code.program.constants,
            view: lent.view,
            stop: lent.stop,
            lds: &mut self.lds[..self.lds_bytes],
            hits: lent.hits,
            fault: None,
            alive: self.barrier.alive,
            signals: self.barrier.signals,
            completed: false,
        };
        let Member { w, t } = &mut self.members[index];
        let outcome = Turn {
            w,
            t,
            x: &mut x,
            shadow: &mut self.shadow,
            barrier: &mut self.barrier,
            code: lent.code,
            watch: &mut *lent.watch,
            launch: self.launch as u32,
            group: self.number,
            alone: self.waves == 1,
            generation: lent.code.program.target().generation(),
        }
        .run(lent.limit, lent.budget);
        match outcome {
            Outcome::Slice => {}
            Outcome::End => {
                self.ready.swap_remove(place);
                self.members[index].w.state = State::Ended;
                self.barrier.alive -= 1;
                self.barrier.settle();
            }
            Outcome::Barrier => {
                self.ready.swap_remove(place);
                self.members[index].w.state = State::AtBarrier;
            }
            Outcome::Fault => {
                let fault = x.fault.take().unwrap_or(Fault::Undecodable);
                return Err(Stopped {
                    wave: index as u32,
                    uop: self.members[index].w.pc,
                    cause: Cause::Fault(fault),
                });
            }
        }
        if self.barrier.phase != self.noted {
            self.completed(lent.code, &mut *lent.watch);
        }
        if outcome != Outcome::Slice {
            self.release();
        }
        Ok(())
    }

    /// The barrier completed: what the waves had finished before they signalled is now ordered
    /// before what each does after its wait.
    fn completed<W: Watch + ?Sized>(&mut self, code: &Code, watch: &mut W) {
        self.noted = self.barrier.phase;
        watch.completed(self.launch as u32, self.number);
        let mut first: Option<usize> = None;
        let mut other = None;
        for (i, m) in self.members.iter().take(self.waves).enumerate() {
            let took_part = m.t.signalled == Some(self.noted);
            self.published[i] = if took_part {
                m.t.signal_done
            } else {
                m.t.lds_done
            };
            match first {
                None if took_part => first = Some(i),
                Some(f) if took_part && m.t.signal_uop == self.members[f].t.signal_uop => {}
                Some(_) if took_part => other = other.or(Some((i, m.t.signal_uop))),
                _ => other = other.or(Some((i, m.w.pc))),
            }
        }
        if let (Some(first), Some((wave, uop)), false) = (first, other, self.diverged) {
            self.diverged = true;
            let at = self.members[first].t.signal_uop;
            let who = Who {
                launch: self.launch as u32,
                group: self.number,
                wave: first as u32,
                pc: code.program.address_of(at),
            };
            watch.found(
                who,
                WaveFinding::BarrierDivergence {
                    other_wave: wave as u32,
                    other_pc: code.program.address_of(uop),
                },
            );
        }
    }

    /// Lets waves pass whose phase is complete.
    fn release(&mut self) {
        for (i, m) in self.members.iter_mut().take(self.waves).enumerate() {
            let done =
                m.t.signalled
                    .is_some_and(|target| self.barrier.phase >= target);
            if m.w.state == State::AtBarrier && done {
                m.w.state = State::Ready;
                m.t.signalled = None;
                m.t.seen = self.published;
                self.ready.push(i as u8);
            }
        }
    }

    fn deadlock(&self) -> Stopped {
        let members = &self.members[..self.waves];
        let count = |state| members.iter().filter(|m| m.w.state == state).count() as u32;
        let waiting = members
            .iter()
            .position(|m| m.w.state == State::AtBarrier)
            .unwrap_or(0);
        Stopped {
            wave: waiting as u32,
            // The barrier itself: waves resume after it.
            uop: members.get(waiting).map_or(0, |m| m.w.pc.saturating_sub(1)),
            cause: Cause::Deadlock {
                waiting: count(State::AtBarrier),
                ended: count(State::Ended),
            },
        }
    }
}
