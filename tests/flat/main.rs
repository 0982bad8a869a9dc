//! A million replays of a small tape leave resident memory flat, as AQL packets and as one PM4
//! indirect buffer, through the HSA table. In a process of its own: other tests would count too.
//!
//! 20,000 replays; 1,000,000 of each transport with `REFRAIN_LONG=1`.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of tests may panic as tests do, and the rates are printed"
)]

use refrain_device::{Buffer, Device, MemoryKind, Queue, Signal};
use refrain_kernels::Target;
use refrain_lower::kernel_images;
use refrain_packet::aql::encode::pm4_ib;
use refrain_packet::aql::{Header, PacketType, Pm4Ib};
use refrain_packet::launch::{Before, DispatchDesc};
use refrain_packet::pm4::{Policy, encode_ib};
use refrain_packet::reloc::Bindings;
use refrain_recorder::EmbeddedObjects;
use refrain_replay::lifecycle;
use refrain_softgpu::{SoftConfig, SoftGpu};
use refrain_tests::subject::{Copying, GROUP, KERNEL, Subject, WAIT, soft_target};
use refrain_tests::{Setup, long, plan, repository};
use std::time::Instant;

/// Growth that counts as flat: what the allocator may keep for itself.
const BOUND: u64 = 1 << 20;
/// Replays before the first look, in which buffers reach their sizes.
const WARM_UP: u64 = 10_000;
/// Replays in flight.
const IN_FLIGHT: u64 = 8;

/// Resident bytes of this process (second field of `statm`, in pages of 4,096 bytes on the machines
/// that this project runs on), or `None` where the system does not say.
fn resident() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    text.split(' ')
        .nth(1)?
        .parse::<u64>()
        .ok()
        .map(|pages| pages * 4096)
}

fn subject() -> Subject {
    let target = Target::Gfx1201;
    let config = SoftConfig {
        threads: 1,
        ..SoftConfig::new(soft_target(target))
    };
    let gpu = SoftGpu::new(config).unwrap();
    let device = Device::open(refrain_softgpu::runtime(gpu.clone()), 0).unwrap();
    Subject {
        device,
        target,
        soft: Some(gpu),
    }
}

/// Replays `packets`, one per slot in flight, as often as asked for.
fn replay(queue: &Queue, slots: &[(Signal, Vec<[u8; 64]>)], from: u64, to: u64) {
    for number in from..to {
        let (signal, packets) = &slots[(number % IN_FLIGHT) as usize];
        signal.wait_lt(1, WAIT).unwrap();
        signal.store(1);
        queue.submit(packets).unwrap();
    }
    for (signal, _) in slots {
        signal.wait_lt(1, WAIT).unwrap();
    }
}

fn flat(name: &str, subject: &Subject, packets: impl Fn(&Signal) -> Vec<[u8; 64]>) {
    let count = if long() { 1_000_000 } else { 20_000 };
    let queue = Queue::new(&subject.device, 64).unwrap();
    let slots: Vec<_> = (0..IN_FLIGHT)
        .map(|_| {
            let signal = Signal::new(&subject.device, 0).unwrap();
            let packets = packets(&signal);
            (signal, packets)
        })
        .collect();
    replay(&queue, &slots, 0, WARM_UP);
    let Some(before) = resident() else {
        println!("{name}: this system does not tell resident memory");
        return;
    };
    let guest = subject.soft.as_ref().unwrap().memory().total_bytes();
    let start = Instant::now();
    replay(&queue, &slots, WARM_UP, WARM_UP + count);
    let took = start.elapsed().as_secs_f64();
    let after = resident().unwrap();
    let grown = after.saturating_sub(before);
    println!(
        "{name}: {count} replays in {took:.1} s ({:.0}/s), resident {before} bytes before, {after} after",
        count as f64 / took
    );
    assert!(
        grown <= BOUND,
        "{name}: resident memory grew by {grown} bytes"
    );
    assert_eq!(subject.soft.as_ref().unwrap().memory().total_bytes(), guest);
}

/// Two launches, the second behind a barrier.
#[test]
fn replays_leave_memory_flat() {
    let subject = subject();
    let copying = Copying::new(&subject, 7).unwrap();
    let header = Header::system(PacketType::KernelDispatch);
    let kernarg = copying.kernarg.va();
    flat("AQL", &subject, |signal| {
        vec![
            copying.packet(header, kernarg, None).unwrap(),
            copying.packet(header, kernarg, Some(signal)).unwrap(),
        ]
    });
    let ib = indirect_buffer(&subject, &copying);
    flat("PM4", &subject, |signal| {
        let packet = Pm4Ib {
            address: ib.va(),
            dwords: (ib.len() / 4) as u32,
            policy: 0,
            completion_signal: signal.handle(),
        };
        let header = Header::system(PacketType::VendorSpecific);
        vec![pm4_ib(header, &packet).unwrap().bytes()]
    });
    assert!(copying.check(7, &[0]).is_ok());
}

fn indirect_buffer(subject: &Subject, copying: &Copying) -> Buffer {
    let model = repository("tests/models/nano-qwen3.bf16.gguf");
    // Fused plans have no kernel this plain.
    let setup = Setup {
        fused: false,
        ..Setup::on(subject.target)
    };
    let plan = plan(&model, setup).unwrap();
    let images = lifecycle::images(&plan, &EmbeddedObjects).unwrap();
    let images = kernel_images(&plan, &images).unwrap();
    let image = images
        .into_iter()
        .find(|image| image.symbol == KERNEL)
        .unwrap();
    let object = copying.executable.kernel(KERNEL).unwrap().kernel_object;
    let entry = image.descriptor.entry_va(object);
    let gfx = refrain_lower::gfx(subject.target);
    let launch = DispatchDesc {
        kernel: 0,
        groups: [1, 1, 1],
        group_size: [GROUP, 1, 1],
        lds_bytes: image.descriptor.group_segment_fixed_size,
        kernarg_offset: 0,
        before: Before::WaitAcquire(gfx.capability().head_acquire.value),
    };
    let encoded = encode_ib(gfx, Policy::DEFAULT, &[image], &[launch; 2]).unwrap();
    let bindings = Bindings {
        entries: &[entry],
        objects: &[object],
        kernarg_base: copying.kernarg.va(),
        signals: &[],
        ibs: &[],
    };
    let words = encoded.resolve(&bindings).unwrap();
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let kind = MemoryKind::Executable;
    let buffer = subject
        .device
        .alloc(kind, "ib", bytes.len() as u64, 4096)
        .unwrap();
    buffer.write(0, &bytes).unwrap();
    buffer
}
