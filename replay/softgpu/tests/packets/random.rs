//! Seeded noise: random slots and random indirect buffers never panic, hang or go unreported.

use crate::harness::{Ib, Rig};
use refrain_softgpu::isa::Target;
use refrain_softgpu::{Condition, SoftConfig};
use std::time::Duration;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 33) as usize % limit
    }
}

fn rig() -> Rig {
    Rig::with(SoftConfig {
        threads: 1,
        wave_budget: 100_000,
        group_budget: 256,
        ..SoftConfig::new(Target::Gfx1201)
    })
}

/// Gives `rig` a fresh queue, so that one GPU serves thousands of faults.
fn renew(rig: &mut Rig) {
    rig.faults.lock().unwrap().clear();
    let sink = std::sync::Arc::clone(&rig.faults);
    let sink =
        move |fault: &refrain_softgpu::cp::QueueFault| sink.lock().unwrap().push(fault.clone());
    rig.queue = rig.gpu.create_queue(64, std::sync::Arc::new(sink)).unwrap();
}

#[test]
fn random_slots() {
    let mut rig = rig();
    let mut random = Random(1);
    let data = rig.memory("data", &[0; 4096]);
    let kernarg = rig.memory("kernargs", &[data as u32, (data >> 32) as u32, 64, 0]);
    let signal = rig.gpu.create_signal(i64::MAX).unwrap();
    let mut faults = 0;
    for _ in 0..3_000 {
        renew(&mut rig);
        // Half start from a good packet, so that deep checks are reached.
        let mut packet = match random.below(4) {
            0 => rig.dispatch("add_one", 2, kernarg, signal),
            1 => Rig::vendor(data, 16, signal),
            _ => std::array::from_fn(|_| random.next() as u8),
        };
        for _ in 0..random.below(3) {
            packet[random.below(64)] ^= 1 << random.below(8);
        }
        // Byte 0 = 1 would be an empty slot, for which a processor waits forever.
        packet[0] = if random.below(8) > 0 {
            [0, 2, 3, 5][random.below(4)]
        } else {
            packet[0]
        };
        if packet[0] == 1 {
            packet[0] = 9;
        }
        rig.submit(&[packet]);
        faults += u32::from(settle(&rig));
    }
    assert!(
        faults > 2_000,
        "only {faults} of 3000 random packets were refused"
    );
}

#[test]
fn random_indirect_buffers() {
    let mut rig = rig();
    let mut random = Random(2);
    let data = rig.memory("data", &[0; 4096]);
    let kernarg = rig.memory("kernargs", &[data as u32, (data >> 32) as u32, 64, 0]);
    let signal = rig.gpu.create_signal(i64::MAX).unwrap();
    let mut good = Ib::default();
    good.acquire(0x1_C1C1)
        .state(&rig, "add_one", kernarg)
        .launch(2)
        .flush()
        .acquire(0x180)
        .launch(1)
        .flush();
    let room = rig.memory("ib", &vec![0; 4 * good.0.len()]);
    let mut faults = 0;
    for _ in 0..3_000 {
        renew(&mut rig);
        let mut ib = good.0.clone();
        match random.below(3) {
            0 => ib.iter_mut().for_each(|word| *word = random.next() as u32),
            1 => {
                let opcode = [0x10, 0x15, 0x46, 0x58, 0x76, 0x3F, 0x49][random.below(7)];
                ib.iter_mut()
                    .for_each(|word| *word = random.next() as u32 >> random.below(32));
                ib[0] = 0xC000_0000 | (random.below(8) as u32) << 16 | opcode << 8;
            }
            _ => {
                let at = random.below(ib.len());
                ib[at] ^= 1 << random.below(32);
            }
        }
        rig.write(room, &ib);
        rig.submit(&[Rig::vendor(room, ib.len(), signal)]);
        faults += u32::from(settle(&rig));
    }
    assert!(
        faults > 2_000,
        "only {faults} of 3000 random buffers were refused"
    );
}

/// Waits until the packet was taken or refused; true when it was refused.
fn settle(rig: &Rig) -> bool {
    let start = std::time::Instant::now();
    loop {
        if rig.queue.is_poisoned() {
            rig.fault();
            return true;
        }
        // A barrier packet on a live signal may wait forever; that is no fault.
        let waited = start.elapsed() > Duration::from_millis(200);
        if waited || rig.gpu.counters().packets > 0 && rig.queue.load_read_index() > 0 {
            // Let what it launched end.
            let idle = rig.gpu.create_signal(1).unwrap();
            rig.gpu
                .wait_signal(idle, Condition::Lt, 1, Duration::from_micros(200))
                .unwrap();
            rig.gpu.destroy_signal(idle).unwrap();
            return rig.queue.is_poisoned();
        }
        std::thread::yield_now();
    }
}
