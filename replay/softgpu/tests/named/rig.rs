//! A strict software GPU with the named kernels, device buffers, and the two verdicts.

use crate::harness::{BARRIER_AND, BARRIER_BIT, Ib, Packet, Rig, fixture, put};
use refrain_softgpu::SoftConfig;
use refrain_softgpu::isa::Target;
use refrain_softgpu::memory::{Kind, Rights};
use refrain_softgpu::strict::{Report, ReportKind, StrictConfig};

pub const TARGETS: [Target; 2] = [Target::Gfx1100, Target::Gfx1201];
/// Header scopes.
pub const ACQUIRE_AGENT: u16 = 1 << 9;
pub const ACQUIRE_SYSTEM: u16 = 2 << 9;
pub const RELEASE_AGENT: u16 = 1 << 11;
pub const RELEASE_SYSTEM: u16 = 2 << 11;
pub const SYSTEM: u16 = ACQUIRE_SYSTEM | RELEASE_SYSTEM;
/// GCR_CNTL: scalar, L0 and L1, as public encoders send it.
pub const AGENT_GCR: u32 = 0x380;
pub const GL2_WB: u32 = 0x8000;

pub struct Named {
    pub rig: Rig,
}

pub fn config(target: Target) -> SoftConfig {
    SoftConfig {
        strict: Some(StrictConfig::default()),
        seed: 1,
        ..SoftConfig::new(target)
    }
}

impl Named {
    pub fn new(target: Target) -> Self {
        let object = fixture(&format!("tests/fixtures/named.{target}.co"));
        Self::with(config(target), &object)
    }

    pub fn with(config: SoftConfig, object: &[u8]) -> Self {
        Self {
            rig: Rig::load(config, object),
        }
    }

    /// A device buffer that nobody has written.
    pub fn empty(&self, name: &str, words: u64) -> u64 {
        let memory = self.rig.gpu.memory();
        memory
            .alloc(name, 4 * words, 256, Rights::READ_WRITE, Kind::Device)
            .unwrap()
    }

    /// A device buffer of words `0, 1, 2, …`.
    pub fn buffer(&self, name: &str, words: u64) -> u64 {
        let va = self.empty(name, words);
        let values: Vec<u32> = (0..words as u32).collect();
        self.rig.write(va, &values);
        va
    }

    /// Kernel arguments in memory of their own: pointers, then 32-bit values.
    pub fn args(&self, pointers: &[u64], values: &[u32]) -> u64 {
        let rights = Rights::SHARED;
        let memory = self.rig.gpu.memory();
        let va = memory
            .alloc("arguments", 64, 64, rights, Kind::Kernarg)
            .unwrap();
        self.set_args(va, pointers, values);
        va
    }

    pub fn set_args(&self, va: u64, pointers: &[u64], values: &[u32]) {
        let mut words: Vec<u32> = pointers
            .iter()
            .flat_map(|pointer| [*pointer as u32, (*pointer >> 32) as u32])
            .chain(values.iter().copied())
            .collect();
        words.resize(16, 0);
        self.rig.write(va, &words);
    }

    /// A dispatch packet with other header bits than the harness gives.
    pub fn packet(&self, kernel: &str, groups: u32, args: u64, header: u16) -> Packet {
        let mut packet = self.rig.dispatch(kernel, groups, args, 0);
        put(&mut packet, 0, &(2 | header).to_le_bytes());
        packet
    }

    /// Runs packets to their end: a barrier packet after them tells the host.
    pub fn run(&self, packets: &[Packet]) {
        let signal = self.rig.gpu.create_signal(1).unwrap();
        let mut all = packets.to_vec();
        all.push(Rig::barrier(
            BARRIER_AND | BARRIER_BIT | SYSTEM,
            &[],
            signal,
        ));
        self.rig.run(&all, signal);
    }

    /// As [`Self::run`] without a release fence of system scope at the end.
    pub fn run_quietly(&self, packets: &[Packet]) {
        let signal = self.rig.gpu.create_signal(1).unwrap();
        let mut all = packets.to_vec();
        let header = BARRIER_AND | BARRIER_BIT | ACQUIRE_AGENT;
        all.push(Rig::barrier(header, &[], signal));
        self.rig.run(&all, signal);
    }

    /// An indirect buffer in memory of its own.
    pub fn ib(&self, words: &Ib) -> u64 {
        self.rig.memory("ib", &words.0)
    }

    /// A vendor packet with these header bits.
    pub fn vendor(&self, words: &Ib, header: u16, signal: u64) -> Packet {
        let mut packet = Rig::vendor(self.ib(words), words.0.len(), signal);
        put(&mut packet, 0, &(BARRIER_BIT | header).to_le_bytes());
        packet
    }

    /// Runs one indirect buffer with system fences.
    pub fn run_ib(&self, words: &Ib) {
        let signal = self.rig.gpu.create_signal(1).unwrap();
        self.rig.run(&[self.vendor(words, SYSTEM, signal)], signal);
    }

    /// A barrier packet that waits until the host stores 0 to the signal.
    pub fn gate(&self) -> (Packet, u64) {
        let signal = self.rig.gpu.create_signal(1).unwrap();
        (
            Rig::barrier(BARRIER_AND | BARRIER_BIT, &[signal], 0),
            signal,
        )
    }

    /// Submits packets behind a gate, lets `meanwhile` happen, opens the gate and waits.
    pub fn gated(&self, packets: &[Packet], meanwhile: impl FnOnce()) {
        let (gate, open) = self.gate();
        self.rig.submit(&[gate]);
        let signal = self.rig.gpu.create_signal(1).unwrap();
        let mut all = packets.to_vec();
        all.push(Rig::barrier(
            BARRIER_AND | BARRIER_BIT | SYSTEM,
            &[],
            signal,
        ));
        self.rig.submit(&all);
        meanwhile();
        self.rig.gpu.store_signal(open, 0).unwrap();
        self.rig.wait(signal);
    }

    pub fn reports(&self) -> Vec<Report> {
        self.rig.gpu.take_reports().reports
    }
}

/// With the fault there are reports, all of this kind, and the first names all of `names`; without
/// it there is none.
pub fn verdict(what: &str, fault: bool, reports: &[Report], kind: ReportKind, names: &[&str]) {
    let texts: Vec<String> = reports.iter().map(ToString::to_string).collect();
    if !fault {
        assert!(reports.is_empty(), "{what}, the twin: {texts:#?}");
        return;
    }
    let Some(first) = texts.first() else {
        panic_with(what, "no report at all");
    };
    assert!(
        reports.iter().all(|report| report.kind == kind),
        "{what}: {texts:#?}"
    );
    for name in names {
        assert!(
            first.contains(name),
            "{what}: `{name}` is missing in: {first}"
        );
    }
    for report in reports {
        assert!(
            report.json().contains(&format!("\"kind\":\"{kind}\"")),
            "{what}"
        );
    }
}

#[expect(clippy::panic, reason = "this is how a test fails")]
fn panic_with(what: &str, why: &str) -> ! {
    panic!("{what}: {why}")
}

/// Both targets, with the fault and without.
pub fn both(check: impl Fn(Target, bool)) {
    for target in TARGETS {
        for fault in [true, false] {
            check(target, fault);
        }
    }
}
