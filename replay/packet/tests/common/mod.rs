//! A consistent world for tests: kernels, launches, memory, ring. As built it lints clean; each
//! test breaks one thing.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::too_many_lines,
    reason = "tests fail by panicking, and their tables are long"
)]
#![allow(dead_code, reason = "each test binary uses a part of this module")]

use refrain_packet::aql::{self, Header, PacketType, Pm4Ib};
use refrain_packet::decode::packets;
use refrain_packet::kd::{KernelDescriptor, KernelFacts, property};
use refrain_packet::lint::{
    Allocation, Context, Event, Holds, HostContract, IbInfo, InFlight, KnownKernel, Node,
    QueueInfo, Range, Region, Report, SignalInfo, lint_ib, lint_ring,
};
use refrain_packet::packet::Packet;
use refrain_packet::pm4::{Policy, encode_ib};
use refrain_packet::{AddressFree, Before, Bindings, DispatchDesc, Gfx, KernelImage};

pub const CODE: u64 = 0x7F10_0000_0000;
pub const KERNARG: u64 = 0x7F20_0000_0000;
pub const IB: u64 = 0x7F30_0000_0000;
pub const RING: u64 = 0x7F40_0000_0000;
pub const DATA: u64 = 0x7F50_0000_0000;
pub const SIGNAL: u64 = 0x7F60_0000_0000;
/// Bytes of one data buffer.
pub const BUFFER: u64 = 4096;

/// RSRC1 as a compiler writes it for a generation: FWD and MEM_ORDERED, denormals on.
pub fn rsrc1(target: Gfx) -> u32 {
    if target.capability().glm.value {
        0x60AF_0001
    } else {
        0x600F_0001
    }
}

pub fn descriptor(target: Gfx, index: usize) -> KernelDescriptor {
    let buffer = !target.capability().architected_flat_scratch.value;
    let mut properties = property::KERNARG_SEGMENT_PTR | property::WAVEFRONT_SIZE32;
    let mut sgprs = 2;
    if buffer {
        properties |= property::PRIVATE_SEGMENT_BUFFER;
        sgprs = 6;
    }
    KernelDescriptor {
        group_segment_fixed_size: 1024 * index as u32,
        private_segment_fixed_size: 0,
        kernarg_size: 48,
        entry_byte_offset: 0x1000 * (index as i64 + 1) - 64 * index as i64,
        rsrc1: rsrc1(target) + index as u32,
        rsrc2: 0x80 | sgprs << 1,
        rsrc3: 0,
        properties,
        kernarg_preload: 0,
    }
}

pub fn images(target: Gfx, count: usize) -> Vec<KernelImage> {
    (0..count)
        .map(|index| KernelImage {
            symbol: format!("kernel_{index}"),
            descriptor: descriptor(target, index),
            facts: None,
            entry_va: Some(CODE + 0x1000 * (index as u64 + 1)),
        })
        .collect()
}

pub fn launches(target: Gfx, kernels: usize, count: usize) -> Vec<DispatchDesc> {
    let gcr = target.capability().agent_acquire.value;
    (0..count)
        .map(|i| DispatchDesc {
            kernel: (i % kernels) as u32,
            groups: [96 + (i % 5) as u32, 1, 1],
            group_size: [if i % 3 == 0 { 256 } else { 128 }, 1, 1],
            lds_bytes: 1536 + 1024 * (i % kernels) as u32,
            kernarg_offset: 64 * i as u64,
            before: if i == 0 {
                Before::Nothing
            } else {
                Before::WaitAcquire(gcr)
            },
        })
        .collect()
}

pub fn range(name: &str, base: u64, bytes: u64, holds: Holds) -> Allocation {
    Allocation {
        name: name.to_owned(),
        range: Range::new(base, bytes),
        holds,
        executable: matches!(holds, Holds::Ib | Holds::Code),
        gpu_visible: true,
        live: true,
        generation: 0,
    }
}

pub struct World {
    pub target: Gfx,
    pub policy: &'static Policy,
    pub bug_compatible: bool,
    pub images: Vec<KernelImage>,
    pub launches: Vec<DispatchDesc>,
    pub free: AddressFree,
    pub words: Vec<u32>,
    pub kernels: Vec<KnownKernel>,
    pub allocations: Vec<Allocation>,
    pub nodes: Vec<Node>,
    pub ib: IbInfo,
    pub header: Option<Header>,
    pub host: HostContract,
    pub in_flight: Vec<InFlight>,
    pub reference: Vec<u32>,
    pub queue: QueueInfo,
    pub ring: Vec<[u8; 64]>,
    pub signals: Vec<SignalInfo>,
    pub events: Vec<Event>,
    pub peers: Vec<Vec<[u8; 64]>>,
}

impl World {
    pub fn new(target: Gfx) -> Self {
        Self::with(target, Policy::DEFAULT, 4)
    }

    pub fn with(target: Gfx, policy: &'static Policy, count: usize) -> Self {
        let images = images(target, 2);
        let launches = launches(target, 2, count);
        let free = encode_ib(target, policy, &images, &launches).unwrap();
        let objects: Vec<u64> = (0..2).map(|k| CODE + 64 * k).collect();
        let bindings = Bindings {
            entries: &KernelImage::entries(&images).unwrap(),
            objects: &objects,
            kernarg_base: KERNARG,
            signals: &[SIGNAL],
            ibs: &[IB],
        };
        let words = free.resolve(&bindings).unwrap();
        let kernels = images
            .iter()
            .zip(&objects)
            .zip([16, 24])
            .map(|((image, object), vgpr_count)| KnownKernel {
                symbol: image.symbol.clone(),
                descriptor_va: *object,
                descriptor: image.descriptor,
                reserved_zero: true,
                facts: Some(KernelFacts {
                    target: Some(target),
                    vgpr_count,
                    max_flat_workgroup_size: 256,
                    ..KernelFacts::default()
                }),
            })
            .collect();
        let nodes: Vec<Node> = launches
            .iter()
            .enumerate()
            .map(|(i, launch)| Node {
                kernel: Some(launch.kernel as usize),
                groups: launch.groups,
                group_size: launch.group_size,
                lds_bytes: launch.lds_bytes,
                kernarg: Range::new(KERNARG + launch.kernarg_offset, 48),
                reads: vec![Region::new(DATA + BUFFER * i as u64, BUFFER)],
                writes: vec![Region::new(DATA + BUFFER * (i as u64 + 1), BUFFER)],
                declared_self_modifying: false,
            })
            .collect();
        let bytes = words.len() as u64 * 4;
        let reference = encode_ib(target, Policy::DEFAULT, &images, &launches)
            .unwrap()
            .resolve(&bindings)
            .unwrap();
        let aql = aql::encode_segment(target, aql::AqlPolicy::Schedule, &images, &launches)
            .unwrap()
            .resolve(&bindings)
            .unwrap();
        let mut ring: Vec<[u8; 64]> = aql
            .chunks_exact(16)
            .map(|chunk| aql::EncodedPacket::from_words(chunk.try_into().unwrap()).bytes())
            .collect();
        let vendor = Pm4Ib {
            address: IB,
            dwords: words.len() as u32,
            policy: 0,
            completion_signal: SIGNAL + 64,
        };
        let header = Header::system(PacketType::VendorSpecific);
        ring.push(aql::encode::pm4_ib(header, &vendor).unwrap().bytes());
        let signals = (0..4)
            .map(|i| SignalInfo {
                handle: SIGNAL + 64 * i,
                kind: 1,
                value: 1,
                live: true,
            })
            .collect();
        let events = log(ring.len() as u64);
        Self {
            target,
            policy,
            bug_compatible: false,
            images,
            launches,
            free,
            kernels,
            allocations: vec![
                range("code", CODE, 0x10_0000, Holds::Code),
                range("kernargs", KERNARG, 64 * 1024 * 16, Holds::Kernarg),
                range("ib", IB, bytes.next_multiple_of(4096), Holds::Ib),
                range("ring", RING, 64 * 64, Holds::Ring),
                range("data", DATA, BUFFER * 1024, Holds::Data),
            ],
            nodes,
            ib: IbInfo {
                range: Range::new(IB, bytes),
                declared: words.len() as u32,
            },
            header: None,
            host: HostContract {
                writes: vec![Range::new(DATA, BUFFER)],
                reads: vec![],
                signals: vec![],
                targets: vec![],
            },
            in_flight: vec![],
            reference,
            queue: QueueInfo {
                base: RING,
                size: 64,
                ..QueueInfo::default()
            },
            ring,
            signals,
            events,
            peers: vec![],
            words,
        }
    }

    pub fn context(&self) -> Context<'_> {
        Context {
            target: self.target,
            bug_compatible: self.bug_compatible,
            policy: Some(self.policy),
            allocations: Some(&self.allocations),
            kernels: Some(&self.kernels),
            nodes: Some(&self.nodes),
            queue: Some(&self.queue),
            events: Some(&self.events),
            signals: Some(&self.signals),
            host: Some(&self.host),
            in_flight: Some(&self.in_flight),
            reference: Some(&self.reference),
            ib: Some(&self.ib),
            header: self.header,
            peers: Some(&self.peers),
        }
    }

    /// The facts of a kernel, to be changed.
    pub fn facts(&mut self, kernel: usize) -> &mut KernelFacts {
        self.kernels[kernel].facts.as_mut().unwrap()
    }

    pub fn lint_ib(&self) -> Report {
        lint_ib(&self.words, &self.context())
    }

    pub fn lint_ring(&self) -> Report {
        lint_ring(&self.ring, &self.context())
    }

    /// Lints without reference stream, for edits that the reference would repeat.
    pub fn lint_alone(&self) -> Report {
        lint_ib(
            &self.words,
            &Context {
                reference: None,
                ..self.context()
            },
        )
    }

    /// Word index of the value that register `reg` holds at dispatch `index`.
    pub fn register_word(&self, index: usize, reg: u16) -> usize {
        let mut found = None;
        let mut seen = 0;
        for item in packets(&self.words) {
            let located = item.unwrap();
            match located.packet {
                Packet::SetShReg { offset, values, .. }
                    if offset <= reg && usize::from(reg - offset) < values.len() =>
                {
                    found = Some(located.offset as usize + 2 + usize::from(reg - offset));
                }
                Packet::DispatchDirect { .. } if seen == index => return found.unwrap(),
                Packet::DispatchDirect { .. } => seen += 1,
                _ => {}
            }
        }
        panic!("dispatch {index} not found");
    }

    pub fn set_register(&mut self, index: usize, reg: u16, value: u32) {
        let at = self.register_word(index, reg);
        self.words[at] = value;
    }

    pub fn get_register(&self, index: usize, reg: u16) -> u32 {
        self.words[self.register_word(index, reg)]
    }

    /// Dword offset of the `nth` packet with an opcode.
    pub fn nth(&self, opcode: u8, nth: usize) -> usize {
        packets(&self.words)
            .map(Result::unwrap)
            .filter(|row| row.packet.opcode() == Some(opcode))
            .nth(nth)
            .unwrap()
            .offset as usize
    }

    /// Replaces the packet at `at` by one-dword NOPs.
    pub fn blank(&mut self, at: usize) {
        let len = packets(&self.words[at..])
            .next()
            .unwrap()
            .unwrap()
            .words
            .len();
        self.words[at..at + len].fill(0xFFFF_1000);
    }

    /// Inserts words and keeps the declared length and padding right.
    pub fn insert(&mut self, at: usize, words: &[u32]) {
        self.words.splice(at..at, words.iter().copied());
        while !self.words.len().is_multiple_of(8) {
            self.words.push(0xFFFF_1000);
        }
        self.ib.declared = self.words.len() as u32;
        self.ib.range.bytes = self.words.len() as u64 * 4;
    }
}

/// A correct log for packets 0 to `count`.
pub fn log(count: u64) -> Vec<Event> {
    let mut events = vec![Event::Reserve { count }];
    for id in 0..count {
        events.push(Event::Body { id });
        events.push(Event::Header {
            id,
            bits: 32,
            release: true,
        });
    }
    events.push(Event::Doorbell { value: count - 1 });
    events.push(Event::Read { index: count });
    events.extend((0..count).map(|id| Event::Complete { id }));
    events
}

/// The number of cases of a random test: `fast`, or `long` with `REFRAIN_LONG` set.
pub fn cases(fast: u32, long: u32) -> u32 {
    if std::env::var_os("REFRAIN_LONG").is_some() {
        long
    } else {
        fast
    }
}

/// A small deterministic generator (xorshift64*), so that failures name their seed.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub fn word(&mut self) -> u32 {
        (self.next() >> 32) as u32
    }

    pub fn below(&mut self, limit: u32) -> u32 {
        self.word() % limit.max(1)
    }
}
