//! Memory: kinds, alignment, copies, fills, bounds, and running out of it.

use super::case;
use refrain_device::{DeviceError, MemoryKind};
use refrain_tests::conformance::{Case, Done, ensure};
use refrain_tests::subject::Subject;

const KINDS: [MemoryKind; 4] = [
    MemoryKind::Device,
    MemoryKind::HostCoherent,
    MemoryKind::Kernarg,
    MemoryKind::Executable,
];

pub(super) const CASES: &[Case<Subject>] = &[
    case("memory/alignment", alignment),
    case("memory/copy-round-trip", copy_round_trip),
    case("memory/fill", fill),
    case("memory/host-access", host_access),
    case("memory/bounds", bounds),
    case("memory/bad-sizes", bad_sizes),
    case("memory/out-of-memory", out_of_memory),
    case("memory/freed-again", freed_again),
];

fn alignment(subject: &Subject) -> Done {
    for kind in KINDS {
        for align in [64, 256, 4096, 65_536, 2 << 20] {
            let buffer = subject.device.alloc(kind, "aligned", 1000, align)?;
            ensure(buffer.va() % align == 0, || {
                format!("{kind} at {:#x}, not a multiple of {align}", buffer.va())
            })?;
        }
    }
    Ok(())
}

fn copy_round_trip(subject: &Subject) -> Done {
    let stream = subject.device.stream();
    let buffer = subject
        .device
        .alloc(MemoryKind::Device, "copied", 100_000, 256)?;
    for (offset, len) in [(0, 1), (3, 5), (4095, 4097), (0, 100_000), (99_999, 1)] {
        let bytes: Vec<u8> = (0..len).map(|at| (at * 7 + offset) as u8).collect();
        stream.copy_to_device(&buffer, offset as u64, &bytes)?;
        let mut found = vec![0; len];
        stream.copy_from_device(&buffer, offset as u64, &mut found)?;
        ensure(found == bytes, || format!("{len} bytes at {offset} differ"))?;
    }
    Ok(())
}

fn fill(subject: &Subject) -> Done {
    let stream = subject.device.stream();
    let buffer = subject
        .device
        .alloc(MemoryKind::Device, "filled", 1000, 256)?;
    stream.memset(&buffer, 0, 0x11, 1000)?;
    stream.memset(&buffer, 333, 0xEE, 333)?;
    let mut found = vec![0; 1000];
    stream.copy_from_device(&buffer, 0, &mut found)?;
    let right = (0..)
        .zip(&found)
        .all(|(at, &byte)| byte == if (333..666).contains(&at) { 0xEE } else { 0x11 });
    ensure(right, || "a byte is not what it was filled with".to_owned())
}

fn host_access(subject: &Subject) -> Done {
    for kind in KINDS {
        let buffer = subject.device.alloc(kind, "shared", 4096, 256)?;
        let written = buffer.write(13, &[1, 2, 3]);
        if kind == MemoryKind::Device {
            let refused = matches!(written, Err(DeviceError::NotHostVisible { .. }));
            ensure(refused, || "the host touched device memory".to_owned())?;
            continue;
        }
        written?;
        let mut found = [0; 3];
        buffer.read(13, &mut found)?;
        ensure(found == [1, 2, 3], || format!("{kind}: {found:?}"))?;
    }
    Ok(())
}

fn bounds(subject: &Subject) -> Done {
    let stream = subject.device.stream();
    let buffer = subject
        .device
        .alloc(MemoryKind::Device, "bounded", 1000, 256)?;
    for (offset, len) in [(1000, 1), (999, 2), (0, 1001), (u64::MAX, 1)] {
        let result = stream.copy_to_device(&buffer, offset, &vec![0; len]);
        let refused = matches!(result, Err(DeviceError::OutOfBounds { .. }));
        ensure(refused, || {
            format!("{len} bytes at {offset} of 1000 were copied")
        })?;
    }
    Ok(())
}

fn bad_sizes(subject: &Subject) -> Done {
    for (bytes, align) in [(0, 256), (1, 0), (1, 3), (1, 4 << 20), (u64::MAX, 4096)] {
        let result = subject
            .device
            .alloc(MemoryKind::Device, "bad", bytes, align);
        let refused = matches!(result, Err(DeviceError::BadAllocation { .. }));
        ensure(refused, || format!("{bytes} bytes aligned to {align}"))?;
    }
    Ok(())
}

/// hipErrorOutOfMemory is 2.
fn out_of_memory(subject: &Subject) -> Done {
    let bytes = subject.device.info().vram_bytes + (1 << 30);
    let result = subject
        .device
        .alloc(MemoryKind::Device, "whale", bytes, 256);
    let status = result.err().and_then(|error| error.status());
    ensure(status == Some(2), || {
        format!("more memory than there is: {status:?}")
    })
}

fn freed_again(subject: &Subject) -> Done {
    let before = subject.device.memory_info()?.0;
    for _ in 0..4 {
        let buffer = subject
            .device
            .alloc(MemoryKind::Device, "held", 64 << 20, 256)?;
        let during = subject.device.memory_info()?.0;
        ensure(during < before, || {
            format!("{during} bytes free of {before}, with 64 MiB held")
        })?;
        drop(buffer);
    }
    let after = subject.device.memory_info()?.0;
    ensure(after == before, || {
        format!("{after} bytes free, {before} before")
    })
}
