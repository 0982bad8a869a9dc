//! A software GPU with one queue and the probe kernels, and builders for packets and indirect
//! buffers. The builders know the layouts by heart, so that they are no copy of the code under
//! test.

use refrain_softgpu::cp::QueueFault;
use refrain_softgpu::isa::Target;
use refrain_softgpu::memory::{Kind, Rights};
use refrain_softgpu::object::LoadedObject;
use refrain_softgpu::{Condition, SoftConfig, SoftGpu, SoftQueue};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub type Packet = [u8; 64];

pub const DEADLINE: Duration = Duration::from_secs(20);

pub const DISPATCH: u16 = 2;
pub const BARRIER_AND: u16 = 3;
pub const BARRIER_OR: u16 = 5;
pub const BARRIER_BIT: u16 = 0x100;

pub struct Rig {
    pub gpu: Arc<SoftGpu>,
    pub object: Arc<LoadedObject>,
    pub queue: Arc<SoftQueue>,
    pub faults: Arc<Mutex<Vec<QueueFault>>>,
}

pub fn fixture(relative: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(relative)).unwrap()
}

/// The shipped code object of a target.
pub fn shipped(target: Target) -> &'static [u8] {
    let target = refrain_kernels::Target::parse(target.name()).unwrap();
    refrain_kernels::code_object(target).bytes()
}

pub fn put(packet: &mut Packet, offset: usize, bytes: &[u8]) {
    packet[offset..offset + bytes.len()].copy_from_slice(bytes);
}

impl Rig {
    pub fn new(target: Target) -> Self {
        Self::with(SoftConfig {
            threads: 2,
            ..SoftConfig::new(target)
        })
    }

    pub fn with(config: SoftConfig) -> Self {
        let bytes = fixture(&format!("tests/fixtures/probe.{}.co", config.target));
        Self::load(config, &bytes)
    }

    pub fn load(config: SoftConfig, object: &[u8]) -> Self {
        let gpu = SoftGpu::new(config).unwrap();
        let object = gpu.load_code_object(object).unwrap();
        let faults: Arc<Mutex<Vec<QueueFault>>> = Arc::default();
        let sink = Arc::clone(&faults);
        let queue = gpu
            .create_queue(
                1024,
                Arc::new(move |fault| sink.lock().unwrap().push(fault.clone())),
            )
            .unwrap();
        Self {
            gpu,
            object,
            queue,
            faults,
        }
    }

    /// A named buffer that host, kernels and, with `EXECUTE`, the packet processor may use.
    pub fn memory(&self, name: &str, words: &[u32]) -> u64 {
        let rights = Rights::SHARED.union(Rights::EXECUTE);
        let va = self
            .gpu
            .memory()
            .alloc(name, 4 * words.len() as u64, 4096, rights, Kind::Host)
            .unwrap();
        self.write(va, words);
        va
    }

    pub fn write(&self, va: u64, words: &[u32]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.gpu.memory().write_bytes(va, &bytes).unwrap();
    }

    pub fn read(&self, va: u64, count: usize) -> Vec<u32> {
        (0..count as u64)
            .map(|index| self.gpu.memory().read_u32(va + 4 * index).unwrap())
            .collect()
    }

    /// A kernel dispatch of `groups` x 1 x 1 groups with a completion signal.
    pub fn dispatch(&self, name: &str, groups: u32, kernarg: u64, signal: u64) -> Packet {
        let kernel = self.object.find(name).unwrap();
        let mut packet = [0; 64];
        let group = kernel.metadata.max_flat_workgroup_size as u16;
        put(
            &mut packet,
            0,
            &(DISPATCH | BARRIER_BIT | 2 << 9 | 2 << 11).to_le_bytes(),
        );
        put(&mut packet, 2, &1_u16.to_le_bytes());
        for (offset, n) in [(4, group), (6, 1), (8, 1)] {
            put(&mut packet, offset, &n.to_le_bytes());
        }
        for (offset, n) in [(12, groups * u32::from(group)), (16, 1), (20, 1)] {
            put(&mut packet, offset, &n.to_le_bytes());
        }
        put(
            &mut packet,
            28,
            &kernel.descriptor.group_segment_fixed_size.to_le_bytes(),
        );
        put(&mut packet, 32, &kernel.descriptor_va.to_le_bytes());
        put(&mut packet, 40, &kernarg.to_le_bytes());
        put(&mut packet, 56, &signal.to_le_bytes());
        packet
    }

    pub fn barrier(header: u16, deps: &[u64], signal: u64) -> Packet {
        let mut packet = [0; 64];
        put(&mut packet, 0, &header.to_le_bytes());
        for (index, dep) in deps.iter().enumerate() {
            put(&mut packet, 8 + 8 * index, &dep.to_le_bytes());
        }
        put(&mut packet, 56, &signal.to_le_bytes());
        packet
    }

    /// The vendor packet that runs the indirect buffer at `va`.
    pub fn vendor(va: u64, dwords: usize, signal: u64) -> Packet {
        let mut packet = [0; 64];
        put(
            &mut packet,
            0,
            &(BARRIER_BIT | 2 << 9 | 2 << 11).to_le_bytes(),
        );
        put(&mut packet, 2, &1_u16.to_le_bytes());
        put(&mut packet, 4, &0xC002_3F00_u32.to_le_bytes());
        put(&mut packet, 8, &(va as u32).to_le_bytes());
        put(&mut packet, 12, &((va >> 32) as u32).to_le_bytes());
        put(&mut packet, 16, &(dwords as u32 | 1 << 23).to_le_bytes());
        put(&mut packet, 20, &10_u32.to_le_bytes());
        put(&mut packet, 56, &signal.to_le_bytes());
        packet
    }

    /// Publishes packets as a producer must: bodies, then headers with release, then the doorbell.
    pub fn submit(&self, packets: &[Packet]) -> u64 {
        let count = packets.len() as u64;
        let size = u64::from(self.queue.packets());
        let first = self.queue.add_write_index(count);
        let start = Instant::now();
        for (id, packet) in (first..).zip(packets) {
            while id - self.queue.load_read_index() >= size {
                if id > first {
                    self.ring(id - 1);
                }
                assert!(
                    start.elapsed() < DEADLINE && !self.queue.is_poisoned(),
                    "no room: {:?}",
                    self.gpu.fault()
                );
                std::thread::yield_now();
            }
            let slot = self.queue.ring_va() + (id & (size - 1)) * 64;
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
        self.ring(first + count - 1);
        first
    }

    pub fn ring(&self, id: u64) {
        self.gpu
            .store_signal(self.queue.doorbell_signal(), id as i64)
            .unwrap();
    }

    /// Waits for `signal` to fall below 1; panics with the GPU's fault text if it does not.
    pub fn wait(&self, signal: u64) {
        let start = Instant::now();
        while self
            .gpu
            .wait_signal(signal, Condition::Lt, 1, Duration::from_millis(20))
            .unwrap()
            >= 1
        {
            assert!(
                start.elapsed() < DEADLINE && self.gpu.fault().is_none(),
                "{:?}",
                self.gpu.fault()
            );
        }
    }

    /// Runs packets whose last one decrements `signal`.
    pub fn run(&self, packets: &[Packet], signal: u64) {
        self.submit(packets);
        self.wait(signal);
    }

    /// Waits for the queue's error.
    pub fn fault(&self) -> QueueFault {
        let start = Instant::now();
        loop {
            if let Some(fault) = self.faults.lock().unwrap().first() {
                return fault.clone();
            }
            assert!(start.elapsed() < DEADLINE, "no fault was reported");
            std::thread::yield_now();
        }
    }
}

/// Words of an indirect buffer.
#[derive(Default, Clone)]
pub struct Ib(pub Vec<u32>);

impl Ib {
    pub fn packet(&mut self, opcode: u32, body: &[u32]) -> &mut Self {
        self.0
            .push(0xC000_0000 | (body.len() as u32 - 1) << 16 | opcode << 8);
        self.0.extend_from_slice(body);
        self
    }

    pub fn set(&mut self, register: u32, values: &[u32]) -> &mut Self {
        let body: Vec<u32> = [register]
            .into_iter()
            .chain(values.iter().copied())
            .collect();
        self.packet(0x76, &body)
    }

    /// All state of a one-dimensional dispatch.
    pub fn state(&mut self, rig: &Rig, name: &str, kernarg: u64) -> &mut Self {
        let kernel = rig.object.find(name).unwrap();
        let descriptor = &kernel.descriptor;
        let lds = descriptor.group_segment_fixed_size.div_ceil(512) << 15;
        self.set(0x204, &[0, 0, 0]);
        self.set(0x207, &[kernel.metadata.max_flat_workgroup_size, 1, 1]);
        self.set(
            0x20C,
            &[
                (kernel.entry_va >> 8) as u32,
                (kernel.entry_va >> 40) as u32,
            ],
        );
        self.set(0x212, &[descriptor.rsrc1, descriptor.rsrc2 | lds]);
        self.set(0x228, &[descriptor.rsrc3]);
        self.set(0x215, &[0]);
        let mut user = vec![0; usize::from(kernel.user_sgprs.count)];
        let pair = usize::from(kernel.user_sgprs.kernarg_segment_ptr.unwrap());
        user[pair] = kernarg as u32;
        user[pair + 1] = (kernarg >> 32) as u32;
        self.set(0x240, &user)
    }

    pub fn launch(&mut self, groups: u32) -> &mut Self {
        self.packet(0x15, &[groups, 1, 1, 0x8005])
    }

    pub fn flush(&mut self) -> &mut Self {
        self.packet(0x46, &[0x407])
    }

    pub fn acquire(&mut self, gcr: u32) -> &mut Self {
        self.packet(0x58, &[0, 0xFFFF_FFFF, 0x00FF_FFFF, 0, 0, 0xA, gcr])
    }
}
