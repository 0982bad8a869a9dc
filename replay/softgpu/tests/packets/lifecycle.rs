//! Objects, queues and signals come and go: what is refused, what is freed, what stops cleanly.

use crate::harness::{BARRIER_AND, Rig, shipped};
use refrain_softgpu::isa::Target;
use refrain_softgpu::memory::Kind;
use refrain_softgpu::{Condition, SoftConfig, SoftError, SoftGpu};
use std::sync::Arc;
use std::time::Duration;

#[test]
fn kernel_look_ups_say_what_is_there() {
    let rig = Rig::new(Target::Gfx1201);
    let kernel = rig.object.kernel("add_one.kd").unwrap();
    assert_eq!(
        (
            &*kernel.name,
            kernel.kernarg_size,
            kernel.max_flat_workgroup_size
        ),
        ("add_one", 12, 32)
    );
    assert_eq!(rig.object.kernel("lds_reverse").unwrap().group_bytes, 256);
    let words = rig.object.kernel("ad_one").unwrap_err().to_string();
    assert!(
        words.contains("no kernel `ad_one`") && words.contains("add_one, double_add"),
        "{words}"
    );
    let words = rig.object.kernel("needs_scratch").unwrap_err().to_string();
    assert!(
        words.contains("kernel `needs_scratch` needs 272 bytes of scratch"),
        "{words}"
    );
}

#[test]
fn an_unloaded_kernel_cannot_be_dispatched() {
    let mut rig = Rig::new(Target::Gfx1201);
    let kernarg = rig.memory("kernargs", &[0; 4]);
    let packet = rig.dispatch("add_one", 1, kernarg, 0);
    let object = rig.gpu.load_code_object(shipped(Target::Gfx1201));
    let object = object.unwrap();
    drop(std::mem::replace(&mut rig.object, object));
    rig.submit(&[packet]);
    let words = rig.fault().to_string();
    assert!(
        words.contains("not the descriptor of a loaded kernel"),
        "{words}"
    );
}

#[test]
fn ring_sizes() {
    let gpu = SoftGpu::new(SoftConfig::default()).unwrap();
    for (packets, good) in [
        (63, false),
        (64, true),
        (65, false),
        (0, false),
        (131_072, true),
        (262_144, false),
    ] {
        let queue = gpu.create_queue(packets, Arc::new(|_| {}));
        assert_eq!(queue.is_ok(), good, "{packets}");
        if let Err(error) = queue {
            assert_eq!(error, SoftError::RingSize { packets });
        }
    }
}

#[test]
fn a_queue_in_memory_has_the_layout_of_amd_queue_v2_t() {
    let rig = Rig::new(Target::Gfx1201);
    let read = |offset| {
        rig.gpu
            .memory()
            .read_u64(rig.queue.queue_va() + offset)
            .unwrap()
    };
    assert_eq!(read(8), rig.queue.ring_va());
    assert_eq!(read(16), rig.queue.doorbell_signal());
    assert_eq!(read(24), 1024);
    assert_eq!(read(32), rig.queue.id());
    assert_eq!((read(56), read(128)), (0, 0));
    assert_eq!(read(136), 128);
    assert_eq!(read(192), rig.queue.inactive_signal());
    assert_eq!(read(176) >> 32, 2, "queue_properties: 64-bit pointers");
    // The doorbell is an amd_signal_t of kind -1 whose second word is the doorbell's address.
    let doorbell = rig.queue.doorbell_signal();
    assert_eq!(rig.gpu.memory().read_u64(doorbell), Ok(u64::MAX));
    let hardware = rig.gpu.memory().read_u64(doorbell + 8).unwrap();
    let signal = rig.gpu.create_signal(1).unwrap();
    rig.run(&[Rig::barrier(BARRIER_AND, &[], signal)], signal);
    assert_eq!(
        rig.gpu.memory().read_u64(hardware),
        Ok(0),
        "the id rung last"
    );
    assert_eq!(read(128), 1);
    assert_eq!(
        rig.gpu.memory().read_u64(signal),
        Ok(1),
        "amd_signal_t.kind of a user signal"
    );
}

#[test]
fn destroyed_queues_and_signals_are_gone() {
    let rig = Rig::new(Target::Gfx1201);
    let memory = rig.gpu.memory();
    let rings = || {
        memory
            .allocations()
            .iter()
            .filter(|info| info.kind == Kind::Ring)
            .count()
    };
    assert_eq!(rings(), 3, "ring, amd_queue_v2_t and doorbell");
    rig.queue.destroy();
    rig.queue.destroy();
    assert_eq!(rings(), 0);
    let signal = rig.gpu.create_signal(5).unwrap();
    assert_eq!(rig.gpu.add_signal(signal, -2), Ok(5));
    assert_eq!(rig.gpu.load_signal(signal), Ok(3));
    rig.gpu.destroy_signal(signal).unwrap();
    let gone = SoftError::Signal { handle: signal };
    assert_eq!(rig.gpu.load_signal(signal), Err(gone.clone()));
    assert_eq!(rig.gpu.store_signal(signal, 1), Err(gone.clone()));
    assert_eq!(rig.gpu.destroy_signal(signal), Err(gone.clone()));
    assert_eq!(
        rig.gpu
            .wait_signal(signal, Condition::Eq, 0, Duration::ZERO),
        Err(gone)
    );
}

#[test]
fn waits_end_by_store_by_condition_and_by_deadline() {
    let gpu = SoftGpu::new(SoftConfig::default()).unwrap();
    let signal = gpu.create_signal(4).unwrap();
    for (condition, operand) in [
        (Condition::Eq, 4),
        (Condition::Ne, 5),
        (Condition::Lt, 5),
        (Condition::Gte, 4),
    ] {
        assert_eq!(
            gpu.wait_signal(signal, condition, operand, Duration::ZERO),
            Ok(4)
        );
    }
    assert_eq!(
        gpu.wait_signal(signal, Condition::Lt, 4, Duration::from_millis(5)),
        Ok(4)
    );
    let other = Arc::clone(&gpu);
    let thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(5));
        other.store_signal(signal, -3).unwrap();
    });
    assert_eq!(
        gpu.wait_signal(signal, Condition::Lt, 0, Duration::from_secs(20)),
        Ok(-3)
    );
    thread.join().unwrap();
}

#[test]
fn dropping_the_gpu_stops_its_thread_even_with_a_blocked_queue() {
    for _ in 0..20 {
        let rig = Rig::new(Target::Gfx1201);
        let never = rig.gpu.create_signal(1).unwrap();
        rig.submit(&[Rig::barrier(BARRIER_AND, &[never], 0)]);
        drop(rig);
    }
}
