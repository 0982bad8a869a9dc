//! Launches through HIP: results, order, and what a launch may not be.

use super::{case, soft_only};
use refrain_kernels::Word;
use refrain_tests::conformance::{Case, Done, ensure};
use refrain_tests::subject::{Copying, GROUP, KERNEL, ROW, Subject, arguments};

pub(super) const CASES: &[Case<Subject>] = &[
    case("launch/result", result),
    case("launch/in-order", in_order),
    case("launch/shared-memory", shared_memory),
    case("launch/group-too-large", group_too_large),
    case("launch/empty-grid", empty_grid),
    case("launch/short-arguments", short_arguments),
    case("launch/out-of-bounds", out_of_bounds),
];

fn result(subject: &Subject) -> Done {
    let copying = Copying::new(subject, 3)?;
    for position in [0, 2] {
        copying.position(position)?;
        copying.launch(&copying.args)?;
        subject.device.stream().synchronize()?;
    }
    copying.check(3, &[0, 2])
}

/// A hundred launches, each reading what the one before wrote.
fn in_order(subject: &Subject) -> Done {
    let first = Copying::new(subject, 9)?;
    let second = Copying::new(subject, 40)?;
    let [k, v, kcache, vcache] = first.buffers.each_ref().map(refrain_device::Buffer::va);
    let [_, _, kcache2, vcache2] = second.buffers.each_ref().map(refrain_device::Buffer::va);
    let control = first.control.va();
    first.launch(&arguments([k, v, kcache, vcache, control]))?;
    for _ in 0..50 {
        first.launch(&arguments([kcache, vcache, kcache2, vcache2, control]))?;
        first.launch(&arguments([kcache2, vcache2, kcache, vcache, control]))?;
    }
    first.check(9, &[0])?;
    second.check(9, &[0])
}

/// What a kernel writes to memory that it shares with the host is there when the stream has ended.
fn shared_memory(subject: &Subject) -> Done {
    let copying = Copying::new(subject, 5)?;
    let kind = refrain_device::MemoryKind::HostCoherent;
    let shared = subject.device.alloc(kind, "shared", 2 * ROW, 256)?;
    let [k, v, ..] = copying.buffers.each_ref().map(refrain_device::Buffer::va);
    let args = arguments([k, v, shared.va(), shared.va() + ROW, copying.control.va()]);
    copying.launch(&args)?;
    subject.device.stream().synchronize()?;
    let mut found = vec![0; 2 * ROW as usize];
    shared.read(0, &mut found)?;
    let expected = [
        refrain_tests::subject::row(5),
        refrain_tests::subject::row(6),
    ]
    .concat();
    ensure(found == expected, || {
        "the host reads something else".to_owned()
    })
}

fn group_too_large(subject: &Subject) -> Done {
    let copying = Copying::new(subject, 1)?;
    let function = copying.module.function(KERNEL)?;
    for group in [[GROUP + 1, 1, 1], [1025, 1, 1], [32, 32, 2]] {
        let stream = subject.device.stream();
        let launched = stream.launch(&function, [1, 1, 1], group, 0, &copying.args);
        ensure(launched.is_err(), || {
            format!("a group of {group:?} was launched")
        })?;
    }
    copying.check(1, &[])
}

fn empty_grid(subject: &Subject) -> Done {
    let copying = Copying::new(subject, 1)?;
    let function = copying.module.function(KERNEL)?;
    for (grid, group) in [([0, 1, 1], [GROUP, 1, 1]), ([1, 1, 1], [0, 1, 1])] {
        let launched = subject
            .device
            .stream()
            .launch(&function, grid, group, 0, &copying.args);
        ensure(launched.is_err(), || {
            format!("{grid:?} groups of {group:?} were launched")
        })?;
    }
    copying.check(1, &[])
}

fn short_arguments(subject: &Subject) -> Done {
    let _ = soft_only!(subject);
    let copying = Copying::new(subject, 1)?;
    let launched = copying.launch(&copying.args[..copying.args.len() - 8]);
    ensure(launched.is_err(), || {
        "8 bytes of arguments are missing".to_owned()
    })
}

/// hipErrorIllegalAddress is 700; a card answers so only where the address is not mapped at all.
fn out_of_bounds(subject: &Subject) -> Done {
    let gpu = soft_only!(subject);
    let copying = Copying::new(subject, 1)?;
    copying
        .control
        .store_u32_release(u64::from(Word::Pos.offset()), 4)?;
    copying.launch(&copying.args)?;
    let status = subject
        .device
        .stream()
        .synchronize()
        .err()
        .and_then(|error| error.status());
    ensure(status == Some(700), || format!("{status:?}"))?;
    let text = gpu.fault().unwrap_or_default();
    ensure(text.contains(KERNEL) && text.contains("cache`"), || text)
}
