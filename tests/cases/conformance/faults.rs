//! Injected faults, seen through the device crate; whole sessions are in `replay/tests/faults.rs`.

use super::{case, soft_only};
use refrain_device::{DeviceError, MemoryKind, Queue, Signal};
use refrain_packet::aql::{Header, PacketType};
use refrain_tests::conformance::{Case, Done, Trouble, ensure};
use refrain_tests::subject::{Copying, Subject};
use std::time::{Duration, Instant};

pub(super) const CASES: &[Case<Subject>] = &[
    case("fault/device-lost", device_lost),
    case("fault/hang", hang),
    case("fault/stuck-signal", stuck_signal),
    case("fault/rejected-packet", rejected_packet),
    case("fault/allocations", allocations),
    case("fault/flipped-ring-bit", flipped_ring_bit),
    case("fault/flipped-kernarg-bit", flipped_kernarg_bit),
];

const SHORT: Duration = Duration::from_millis(60);

/// Arms `script`, submits one dispatch and waits shortly.
fn dispatch(
    subject: &Subject,
    script: &str,
) -> Result<(Copying, Result<(), DeviceError>), Trouble> {
    let Some(gpu) = &subject.soft else {
        return Err(Trouble::Unsupported(
            "hardware fails when it likes".to_owned(),
        ));
    };
    let copying = Copying::new(subject, 3)?;
    let queue = Queue::new(&subject.device, 64)?;
    let signal = Signal::new(&subject.device, 1)?;
    let header = Header::system(PacketType::KernelDispatch);
    let packet = copying.packet(header, copying.kernarg.va(), Some(&signal))?;
    gpu.arm_faults(&script.parse()?);
    queue.submit(&[packet])?;
    let waited = signal.wait_lt(1, SHORT);
    let start = Instant::now();
    drop(queue);
    ensure(start.elapsed() < Duration::from_secs(2), || {
        "the queue is not destroyed".to_owned()
    })?;
    ensure(gpu.injected_faults().len() == 1, || {
        format!("{script} was not injected")
    })?;
    Ok((copying, waited))
}

fn status(result: &Result<(), DeviceError>) -> Option<u32> {
    result.as_ref().err().and_then(DeviceError::status)
}

/// HSA_STATUS_ERROR_FATAL is 0x1026, hipErrorLaunchFailure 719.
fn device_lost(subject: &Subject) -> Done {
    for script in ["lost@packet:1", "lost@launch:1", "lost@submit:1"] {
        let subject = match subject.soft {
            Some(_) => Subject::soft(subject.target).map_err(Trouble::Failed)?,
            None => return refrain_tests::conformance::unsupported("hardware fails when it likes"),
        };
        let (copying, waited) = dispatch(&subject, script)?;
        ensure(status(&waited) == Some(0x1026), || {
            format!("{script}: {waited:?}")
        })?;
        let launched = copying.launch(&copying.args);
        ensure(status(&launched) == Some(719), || {
            format!("{script}: {launched:?}")
        })?;
        let allocated = subject
            .device
            .alloc(MemoryKind::Kernarg, "late", 64, 64)
            .map(drop);
        ensure(status(&allocated) == Some(0x1026), || {
            format!("{script}: {allocated:?}")
        })?;
    }
    Ok(())
}

fn deadline(subject: &Subject, script: &str, written: &[u64]) -> Done {
    let (copying, waited) = dispatch(subject, script)?;
    let right = matches!(waited, Err(DeviceError::DeadlineExceeded { last: 1, .. }));
    ensure(right, || format!("{script}: {waited:?}"))?;
    copying.check(3, written)
}

fn hang(subject: &Subject) -> Done {
    deadline(subject, "hang@launch:1", &[])
}

fn stuck_signal(subject: &Subject) -> Done {
    deadline(subject, "stuck@completion:1", &[0])
}

fn rejected_packet(subject: &Subject) -> Done {
    let (copying, waited) = dispatch(subject, "reject@packet:1")?;
    ensure(status(&waited) == Some(0x1009), || format!("{waited:?}"))?;
    // Another queue of the device is not concerned.
    let queue = Queue::new(&subject.device, 64)?;
    let header = Header::system(PacketType::KernelDispatch);
    queue.submit(&[copying.packet(header, copying.kernarg.va(), None)?])?;
    let start = Instant::now();
    while queue.read_index() == 0 && start.elapsed() < Duration::from_secs(2) {
        std::thread::yield_now();
    }
    ensure(queue.check().is_ok() && queue.read_index() == 1, || {
        format!("{queue:?}")
    })
}

/// hipErrorOutOfMemory is 2, HSA_STATUS_ERROR_OUT_OF_RESOURCES 0x1008.
fn allocations(subject: &Subject) -> Done {
    let gpu = soft_only!(subject);
    let rows = [
        ("fail@hip-alloc:2", MemoryKind::Device, 2),
        ("fail@hip-alloc:1", MemoryKind::HostCoherent, 2),
        ("fail@kernarg-alloc:2", MemoryKind::Kernarg, 0x1008),
        ("fail@pool-alloc:1", MemoryKind::Executable, 0x1008),
    ];
    for (script, kind, expected) in rows {
        gpu.arm_faults(&script.parse()?);
        let mut failed = Vec::new();
        for round in 1..=3 {
            if let Err(error) = subject.device.alloc(kind, "maybe", 4096, 256) {
                failed.push((round, error.status()));
            }
        }
        let nth = u32::from(script.ends_with('2')) + 1;
        ensure(failed == [(nth, Some(expected))], || {
            format!("{script}: {failed:?}")
        })?;
    }
    gpu.arm_faults(&"fail@queue:1,fail@signal:1".parse()?);
    let queue = Queue::new(&subject.device, 64).map(drop);
    let signal = Signal::new(&subject.device, 1).map(drop);
    ensure(
        status(&queue) == Some(0x1008) && status(&signal) == Some(0x1008),
        || format!("{queue:?}, {signal:?}"),
    )?;
    Queue::new(&subject.device, 64)?;
    Ok(())
}

/// Header bit 14 is reserved.
fn flipped_ring_bit(subject: &Subject) -> Done {
    let (copying, waited) = dispatch(subject, "flip@ring:1.14")?;
    ensure(status(&waited) == Some(0x1009), || format!("{waited:?}"))?;
    copying.check(3, &[])
}

/// Bit 46 of the first pointer leads nowhere: HSA_STATUS_ERROR_MEMORY_FAULT is 43. The bit stays
/// inverted in memory, and inverting it again repairs the arguments.
fn flipped_kernarg_bit(subject: &Subject) -> Done {
    let (copying, waited) = dispatch(subject, "flip@kernarg:1.46")?;
    ensure(status(&waited) == Some(43), || format!("{waited:?}"))?;
    copying.kernarg.write(0, &copying.args)?;
    let queue = Queue::new(&subject.device, 64)?;
    let header = Header::system(PacketType::KernelDispatch);
    let signal = Signal::new(&subject.device, 1)?;
    let packet = copying.packet(header, copying.kernarg.va(), Some(&signal))?;
    // Waits on the device go on telling of the first queue's error, so the host looks itself.
    queue.submit(&[packet])?;
    let start = Instant::now();
    while signal.load() > 0 && start.elapsed() < Duration::from_secs(2) {
        std::thread::yield_now();
    }
    copying.check(3, &[0])
}
