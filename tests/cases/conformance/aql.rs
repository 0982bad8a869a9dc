//! AQL queues and signals: order, barriers, several queues, and packets that are none.

use super::{case, soft_only};
use refrain_device::{DeviceError, Queue, Signal};
use refrain_packet::aql::encode::barrier;
use refrain_packet::aql::{Barrier, Header, PacketType, Scope};
use refrain_tests::conformance::{Case, Done, Trouble, ensure};
use refrain_tests::subject::{Copying, GROUP, Subject, WAIT, arguments, complete};
use std::time::{Duration, Instant};

pub(super) const CASES: &[Case<Subject>] = &[
    case("aql/dispatch", dispatch),
    case("aql/barrier-bit", barrier_bit),
    case("aql/barrier-and", barrier_and),
    case("aql/barrier-or", barrier_or),
    case("aql/signal-counts", signal_counts),
    case("aql/wrap-around", wrap_around),
    case("aql/several-queues", several_queues),
    case("aql/several-producers", several_producers),
    case("aql/ring-sizes", ring_sizes),
    case("aql/wait-deadline", wait_deadline),
    case("aql/bad-packet", bad_packet),
    case("aql/destroyed-while-blocked", destroyed_while_blocked),
    Case {
        expected_failures: &[(
            "soft:",
            "partial work-groups are not executed, by decision: no plan has one",
        )],
        ..case("aql/partial-group", partial_group)
    },
];

const DISPATCH: Header = Header::system(PacketType::KernelDispatch);

fn dispatch(subject: &Subject) -> Done {
    let copying = Copying::new(subject, 7)?;
    let queue = Queue::new(&subject.device, 64)?;
    for position in 0..3 {
        copying.position(position)?;
        let signal = Signal::new(&subject.device, 1)?;
        let packet = copying.packet(DISPATCH, copying.kernarg.va(), Some(&signal))?;
        complete(&queue, &[packet], &signal)?;
        ensure(signal.load() == 0, || {
            format!("the signal is {}", signal.load())
        })?;
    }
    copying.check(7, &[0, 1, 2])
}

/// The second launch reads what the first wrote; its barrier bit and fences order them.
fn barrier_bit(subject: &Subject) -> Done {
    let first = Copying::new(subject, 11)?;
    let second = Copying::new(subject, 80)?;
    let queue = Queue::new(&subject.device, 64)?;
    let signal = Signal::new(&subject.device, 1)?;
    let [_, _, kcache, vcache] = first.buffers.each_ref().map(refrain_device::Buffer::va);
    let [_, _, kcache2, vcache2] = second.buffers.each_ref().map(refrain_device::Buffer::va);
    let args = arguments([kcache, vcache, kcache2, vcache2, first.control.va()]);
    first.kernarg.write(256, &args)?;
    let agent = Header {
        acquire: Scope::Agent,
        release: Scope::Agent,
        ..DISPATCH
    };
    let packets = [
        first.packet(agent, first.kernarg.va(), None)?,
        first.packet(DISPATCH, first.kernarg.va() + 256, Some(&signal))?,
    ];
    complete(&queue, &packets, &signal)?;
    second.check(11, &[0])
}

fn waits(kind: PacketType, signals: &[&Signal], done: &Signal) -> Result<[u8; 64], Trouble> {
    let mut packet = Barrier {
        completion_signal: done.handle(),
        ..Barrier::default()
    };
    for (slot, signal) in packet.dep_signal.iter_mut().zip(signals) {
        *slot = signal.handle();
    }
    Ok(barrier(Header::system(kind), &packet)?.bytes())
}

fn held_until(subject: &Subject, kind: PacketType, stores: usize) -> Done {
    let queue = Queue::new(&subject.device, 64)?;
    let (a, b) = (
        Signal::new(&subject.device, 1)?,
        Signal::new(&subject.device, 1)?,
    );
    let done = Signal::new(&subject.device, 1)?;
    queue.submit(&[waits(kind, &[&a, &b], &done)?])?;
    for (index, signal) in [&a, &b].into_iter().take(stores).enumerate() {
        let early = done.wait_lt(1, Duration::from_millis(20));
        let held = matches!(early, Err(DeviceError::DeadlineExceeded { .. }));
        ensure(held, || {
            format!("the barrier passed after {index} of {stores} signals")
        })?;
        signal.store(0);
    }
    Ok(done.wait_lt(1, WAIT)?)
}

fn barrier_and(subject: &Subject) -> Done {
    held_until(subject, PacketType::BarrierAnd, 2)
}

fn barrier_or(subject: &Subject) -> Done {
    held_until(subject, PacketType::BarrierOr, 1)
}

fn signal_counts(subject: &Subject) -> Done {
    let queue = Queue::new(&subject.device, 64)?;
    let signal = Signal::new(&subject.device, 5)?;
    let packet = waits(PacketType::BarrierAnd, &[], &signal)?;
    queue.submit(&[packet; 4])?;
    let start = Instant::now();
    while signal.load() != 1 && start.elapsed() < WAIT {
        std::thread::yield_now();
    }
    ensure(signal.load() == 1, || {
        format!("5 less 4 packets is {}", signal.load())
    })?;
    complete(&queue, &[packet], &signal)?;
    Ok(())
}

fn wrap_around(subject: &Subject) -> Done {
    let queue = Queue::new(&subject.device, 64)?;
    let signal = Signal::new(&subject.device, 1000)?;
    let packet = waits(PacketType::BarrierAnd, &[], &signal)?;
    for id in 0..1000 {
        let found = queue.submit(&[packet])?;
        ensure(found == id, || format!("packet {id} got id {found}"))?;
    }
    Ok(signal.wait_lt(1, WAIT)?)
}

/// One queue waits for what another does.
fn several_queues(subject: &Subject) -> Done {
    let copying = Copying::new(subject, 13)?;
    let (first, second) = (
        Queue::new(&subject.device, 64)?,
        Queue::new(&subject.device, 64)?,
    );
    let (middle, done) = (
        Signal::new(&subject.device, 1)?,
        Signal::new(&subject.device, 1)?,
    );
    let behind = waits(PacketType::BarrierAnd, &[&middle], &done)?;
    second.submit(&[behind])?;
    let early = done.wait_lt(1, Duration::from_millis(20));
    ensure(early.is_err(), || {
        "the second queue did not wait".to_owned()
    })?;
    let packet = copying.packet(DISPATCH, copying.kernarg.va(), Some(&middle))?;
    first.submit(&[packet])?;
    done.wait_lt(1, WAIT)?;
    copying.check(13, &[0])
}

fn several_producers(subject: &Subject) -> Done {
    let queue = Queue::new(&subject.device, 64)?;
    let signal = Signal::new(&subject.device, 400)?;
    let packet = waits(PacketType::BarrierAnd, &[], &signal)?;
    let results: Vec<Result<u64, DeviceError>> = std::thread::scope(|scope| {
        let produce = || (0..100).try_fold(0, |_, _| queue.submit(&[packet]));
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(produce)).collect();
        threads
            .into_iter()
            .filter_map(|thread| thread.join().ok())
            .collect()
    });
    ensure(results.len() == 4, || "a producer panicked".to_owned())?;
    for result in results {
        result?;
    }
    Ok(signal.wait_lt(1, WAIT)?)
}

fn ring_sizes(subject: &Subject) -> Done {
    for (packets, good) in [(64, true), (1024, true), (65, false), (0, false)] {
        let made = Queue::new(&subject.device, packets);
        ensure(made.is_ok() == good, || {
            format!("{packets} packets: {:?}", made.err())
        })?;
    }
    Ok(())
}

fn wait_deadline(subject: &Subject) -> Done {
    let signal = Signal::new(&subject.device, 3)?;
    let start = Instant::now();
    let result = signal.wait_lt(3, Duration::from_millis(30));
    let right = matches!(result, Err(DeviceError::DeadlineExceeded { last: 3, .. }));
    ensure(
        right && start.elapsed() >= Duration::from_millis(30),
        || format!("{result:?}"),
    )?;
    Ok(signal.wait_lt(4, Duration::ZERO)?)
}

/// HSA_STATUS_ERROR_INVALID_PACKET_FORMAT is 0x1009. A card may hang instead.
fn bad_packet(subject: &Subject) -> Done {
    let _ = soft_only!(subject);
    let queue = Queue::new(&subject.device, 64)?;
    let signal = Signal::new(&subject.device, 1)?;
    let mut packet = waits(PacketType::BarrierAnd, &[], &signal)?;
    // Type 9 does not exist.
    packet[0] = 9;
    queue.submit(&[packet])?;
    let status = signal
        .wait_lt(1, WAIT)
        .err()
        .and_then(|error| error.status());
    ensure(status == Some(0x1009), || format!("{status:?}"))?;
    ensure(queue.check().is_err(), || "the queue goes on".to_owned())
}

fn destroyed_while_blocked(subject: &Subject) -> Done {
    let never = Signal::new(&subject.device, 1)?;
    let done = Signal::new(&subject.device, 1)?;
    let queue = Queue::new(&subject.device, 64)?;
    queue.submit(&[waits(PacketType::BarrierAnd, &[&never], &done)?])?;
    let start = Instant::now();
    drop(queue);
    ensure(start.elapsed() < WAIT && done.load() == 1, || {
        format!("{:?}", start.elapsed())
    })
}

/// A grid that does not fill its last work-group: legal in AQL.
fn partial_group(subject: &Subject) -> Done {
    let copying = Copying::new(subject, 17)?;
    let queue = Queue::new(&subject.device, 64)?;
    let signal = Signal::new(&subject.device, 1)?;
    let mut packet = copying.packet(DISPATCH, copying.kernarg.va(), Some(&signal))?;
    // grid_size_x: one work-item fewer than a group.
    packet[12..16].copy_from_slice(&(GROUP - 1).to_le_bytes());
    complete(&queue, &[packet], &signal)?;
    copying.check(17, &[0])
}
