//! AQL rings and PM4 indirect buffers, through the packet processor's own thread.

use crate::mutate::{Outcome, Random, fixture, inputs};
use refrain_softgpu::isa::Target;
use refrain_softgpu::memory::{Kind, Rights};
use refrain_softgpu::object::LoadedObject;
use refrain_softgpu::strict::StrictConfig;
use refrain_softgpu::{Condition, SoftConfig, SoftGpu, SoftQueue};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// A processor that does not answer within this time hangs.
const HANGS: Duration = Duration::from_secs(20);
/// A sentinel that is not served within this time was damaged, or the processor hangs.
const DAMAGED: Duration = Duration::from_secs(1);
/// Barrier-and without dependencies, with a completion signal.
const NOTHING: u32 = 3 | 2 << 9 | 2 << 11;

type Packet = [u8; 64];

struct Bench {
    gpu: Arc<SoftGpu>,
    strict: Option<StrictConfig>,
    object: Arc<LoadedObject>,
    /// A healthy queue, made first: what it has done says how far the processor has come.
    sentinel: Arc<SoftQueue>,
    done: u64,
    data: u64,
    kernarg: u64,
    ib: u64,
    signal: u64,
}

fn put(packet: &mut Packet, offset: usize, bytes: &[u8]) {
    packet[offset..offset + bytes.len()].copy_from_slice(bytes);
}

impl Bench {
    /// Both generations, fast and strict.
    fn all() -> [Self; 4] {
        let strict = || Some(StrictConfig::default());
        [
            Self::new(Target::Gfx1100, None),
            Self::new(Target::Gfx1201, None),
            Self::new(Target::Gfx1100, strict()),
            Self::new(Target::Gfx1201, strict()),
        ]
    }

    fn new(target: Target, strict: Option<StrictConfig>) -> Self {
        let gpu = SoftGpu::new(SoftConfig {
            strict,
            threads: 1,
            wave_budget: 20_000,
            group_budget: 16,
            ..SoftConfig::new(target)
        })
        .unwrap();
        let object = fixture(&format!("tests/fixtures/probe.{target}.co"));
        let object = gpu.load_code_object(&object).unwrap();
        let sentinel = gpu.create_queue(64, Arc::new(|_| {})).unwrap();
        let rights = Rights::SHARED.union(Rights::EXECUTE);
        let memory = gpu.memory();
        let buffer = |name, bytes| memory.alloc(name, bytes, 4096, rights, Kind::Host).unwrap();
        let (data, kernarg, ib) = (
            buffer("data", 4096),
            buffer("kernargs", 4096),
            buffer("ib", 4096),
        );
        let done = gpu.create_signal(0).unwrap();
        let signal = gpu.create_signal(i64::MAX).unwrap();
        Self {
            gpu,
            strict,
            object,
            sentinel,
            done,
            data,
            kernarg,
            ib,
            signal,
        }
    }

    fn write(&self, va: u64, words: &[u32]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.gpu.memory().write_bytes(va, &bytes).unwrap();
    }

    fn arguments(&self) {
        self.write(
            self.kernarg,
            &[self.data as u32, (self.data >> 32) as u32, 64, 0],
        );
        self.gpu.memory().fill(self.data, 4096, 1).unwrap();
    }

    fn dispatch(&self, name: &str) -> Packet {
        let kernel = self.object.find(name).unwrap();
        let group = kernel.metadata.max_flat_workgroup_size;
        let mut packet = [0; 64];
        put(
            &mut packet,
            0,
            &(2_u32 | 1 << 8 | 2 << 9 | 2 << 11 | 1 << 16).to_le_bytes(),
        );
        put(&mut packet, 4, &(group as u16).to_le_bytes());
        put(&mut packet, 6, &[1, 0, 1, 0]);
        for (offset, n) in [(12, 2 * group), (16, 1), (20, 1)] {
            put(&mut packet, offset, &n.to_le_bytes());
        }
        put(
            &mut packet,
            28,
            &kernel.descriptor.group_segment_fixed_size.to_le_bytes(),
        );
        put(&mut packet, 32, &kernel.descriptor_va.to_le_bytes());
        put(&mut packet, 40, &self.kernarg.to_le_bytes());
        put(&mut packet, 56, &self.signal.to_le_bytes());
        packet
    }

    fn barrier(&self) -> Packet {
        let mut packet = [0; 64];
        put(&mut packet, 0, &NOTHING.to_le_bytes());
        put(&mut packet, 8, &self.done.to_le_bytes());
        put(&mut packet, 56, &self.signal.to_le_bytes());
        packet
    }

    fn vendor(&self, dwords: usize) -> Packet {
        let mut packet = [0; 64];
        put(
            &mut packet,
            0,
            &(1_u32 << 8 | 2 << 9 | 2 << 11 | 1 << 16).to_le_bytes(),
        );
        let jump = [
            0xC002_3F00,
            self.ib as u32,
            (self.ib >> 32) as u32,
            dwords as u32 | 1 << 23,
            10,
        ];
        for (at, word) in (4..).step_by(4).zip(jump) {
            put(&mut packet, at, &word.to_le_bytes());
        }
        put(&mut packet, 56, &self.signal.to_le_bytes());
        packet
    }

    /// A good buffer that launches twice.
    fn buffer(&self) -> Vec<u32> {
        let kernel = self.object.find("add_one").unwrap();
        let mut words = Vec::new();
        let mut packet = |opcode: u32, body: &[u32]| {
            words.push(0xC000_0000 | (body.len() as u32 - 1) << 16 | opcode << 8);
            words.extend_from_slice(body);
        };
        packet(0x58, &[0, u32::MAX, 0x00FF_FFFF, 0, 0, 0xA, 0x1_C1C1]);
        packet(
            0x76,
            &[
                0x204,
                0,
                0,
                0,
                kernel.metadata.max_flat_workgroup_size,
                1,
                1,
            ],
        );
        packet(
            0x76,
            &[
                0x20C,
                (kernel.entry_va >> 8) as u32,
                (kernel.entry_va >> 40) as u32,
            ],
        );
        packet(
            0x76,
            &[0x212, kernel.descriptor.rsrc1, kernel.descriptor.rsrc2],
        );
        packet(0x76, &[0x228, kernel.descriptor.rsrc3]);
        packet(0x76, &[0x215, 0]);
        let mut user = vec![0x240];
        user.resize(1 + usize::from(kernel.user_sgprs.count), 0);
        let pair = 1 + usize::from(kernel.user_sgprs.kernarg_segment_ptr.unwrap());
        (user[pair], user[pair + 1]) = (self.kernarg as u32, (self.kernarg >> 32) as u32);
        packet(0x76, &user);
        for groups in [2, 1] {
            packet(0x15, &[groups, 1, 1, 0x8005]);
            packet(0x46, &[0x407]);
        }
        words
    }

    fn publish(&self, queue: &SoftQueue, packets: &[Packet]) -> u64 {
        let first = queue.add_write_index(packets.len() as u64);
        for (id, packet) in (first..).zip(packets) {
            let slot = queue.ring_va() + id % u64::from(queue.packets()) * 64;
            self.gpu
                .memory()
                .write_bytes(slot + 4, &packet[4..])
                .unwrap();
            let header = u32::from_le_bytes(packet[..4].try_into().unwrap());
            self.gpu
                .memory()
                .store_u32(slot, header, Ordering::Release)
                .unwrap();
        }
        first + packets.len() as u64 - 1
    }

    /// Waits until the processor has looked at every queue whose doorbell rang before. False when
    /// the input has damaged the sentinel, which is guest memory like any other.
    fn pass(&self) -> bool {
        // The sentinel is served first in a pass: its second packet says that the pass with its
        // first one has ended.
        (0..2).all(|_| self.turn(&self.sentinel, self.done, DAMAGED) || self.damaged_but_alive())
    }

    /// Has `queue` complete `signal` within `limit`.
    fn turn(&self, queue: &SoftQueue, signal: u64, limit: Duration) -> bool {
        self.gpu.store_signal(signal, 1).unwrap();
        let mut packet = [0; 64];
        put(&mut packet, 0, &NOTHING.to_le_bytes());
        put(&mut packet, 56, &signal.to_le_bytes());
        let last = self.publish(queue, &[packet]);
        let doorbell = queue.doorbell_signal();
        self.gpu.store_signal(doorbell, last as i64).unwrap();
        let start = Instant::now();
        let slice = Duration::from_millis(5);
        loop {
            let value = self.gpu.wait_signal(signal, Condition::Lt, 1, slice);
            match value.unwrap() {
                value if value < 1 => return true,
                _ if start.elapsed() > limit || queue.is_poisoned() => return false,
                _ => {}
            }
        }
    }

    /// Always false, which says that the sentinel is damaged; panics if the processor hangs.
    fn damaged_but_alive(&self) -> bool {
        let queue = self.gpu.create_queue(64, Arc::new(|_| {})).unwrap();
        let signal = self.gpu.create_signal(1).unwrap();
        let alive = self.turn(&queue, signal, HANGS);
        assert!(alive, "the packet processor hangs");
        false
    }

    /// Gives packets to a fresh queue, waits until the processor is through with them and destroys
    /// it.
    fn run(&mut self, packets: &[Packet], rung: Option<i64>) -> Outcome {
        let queue = self.gpu.create_queue(64, Arc::new(|_| {})).unwrap();
        let last = self.publish(&queue, packets);
        let doorbell = rung.unwrap_or(last as i64);
        self.gpu
            .store_signal(queue.doorbell_signal(), doorbell)
            .unwrap();
        if !self.pass() {
            *self = Self::new(self.gpu.target(), self.strict);
            return Outcome::Accepted;
        }
        let refused = queue.is_poisoned();
        queue.destroy();
        (!refused).into()
    }
}

/// Packets that start from good ones, and rings used against their rules.
#[test]
fn rings() {
    let mut benches = Bench::all();
    inputs("rings", |index, random| {
        let bench = &mut benches[index as usize % 4];
        bench.arguments();
        bench.write(bench.ib, &bench.buffer());
        let packets: Vec<Packet> = (0..=random.below(3))
            .map(|_| {
                let mut packet = match random.below(6) {
                    0 | 1 => bench.dispatch("add_one"),
                    2 => bench.dispatch("lds_reverse"),
                    3 => bench.vendor(bench.buffer().len()),
                    4 => bench.barrier(),
                    _ => std::array::from_fn(|_| random.next() as u8),
                };
                if random.below(3) > 0 {
                    random.damage(&mut packet, 0, 64);
                }
                packet
            })
            .collect();
        let rung = (random.below(16) == 0).then(|| random.word() as i32 as i64);
        bench.run(&packets, rung)
    });
}

/// Words of indirect buffers: damaged good ones, noise behind good headers, pieces moved about.
#[test]
fn indirect_buffers() {
    let mut benches = Bench::all();
    inputs("indirect buffers", |index, random| {
        let bench = &mut benches[index as usize % 4];
        bench.arguments();
        let good = bench.buffer();
        let mut words = good.clone();
        match random.below(8) {
            0 => words = noise(random),
            1 => {
                let (from, to) = (random.below(good.len()), random.below(good.len()));
                let len = random.below(16).min(good.len() - from.max(to));
                words[to..to + len].copy_from_slice(&good[from..from + len]);
            }
            2 => words.truncate(1 + random.below(good.len())),
            _ => {
                for _ in 0..=random.below(3) {
                    let at = random.below(words.len());
                    words[at] = match random.below(3) {
                        0 => random.word(),
                        _ => words[at] ^ 1 << random.below(32),
                    };
                }
            }
        }
        bench.write(bench.ib, &words);
        bench.run(&[bench.vendor(words.len())], None)
    });
}

/// Well-formed headers of opcodes that exist, with any body.
fn noise(random: &mut Random) -> Vec<u32> {
    const OPCODES: [u32; 12] = [
        0x10, 0x15, 0x16, 0x37, 0x3C, 0x3F, 0x40, 0x46, 0x49, 0x58, 0x76, 0x79,
    ];
    let mut words = Vec::new();
    while words.len() < 64 {
        let opcode = OPCODES[random.below(OPCODES.len())];
        let body = 1 + random.below(8);
        words.push(0xC000_0000 | (body as u32 - 1) << 16 | opcode << 8);
        words.extend((0..body).map(|_| random.word()));
    }
    words
}
