//! PM4 indirect buffers behind a vendor packet, encoded by the packet crate.

use super::sessions::model_plan;
use super::{case, soft_only};
use refrain_device::{Buffer, MemoryKind, Queue, Signal};
use refrain_lower::kernel_images;
use refrain_packet::aql::encode::pm4_ib;
use refrain_packet::aql::{Header, PacketType, Pm4Ib};
use refrain_packet::launch::{Before, DispatchDesc, KernelImage};
use refrain_packet::pm4::{Policy as IbPolicy, encode_ib};
use refrain_packet::reloc::Bindings;
use refrain_recorder::EmbeddedObjects;
use refrain_replay::lifecycle;
use refrain_tests::conformance::{Case, Done, Trouble, ensure};
use refrain_tests::subject::{Copying, GROUP, KERNEL, Subject, WAIT, arguments, complete};

pub(super) const CASES: &[Case<Subject>] = &[
    case("pm4/one-launch", one_launch),
    case("pm4/chain", chain),
    case("pm4/again", again),
    case("pm4/unpadded", unpadded),
    case("pm4/missing-wait", missing_wait),
    case("pm4/unknown-opcode", unknown_opcode),
    case("pm4/stale-register", stale_register),
];

/// The kernel as the encoder needs it; plans carry it.
fn image(subject: &Subject) -> Result<KernelImage, Trouble> {
    let failed = |text: String| Trouble::Failed(text);
    let plan = model_plan(subject)?;
    let images = lifecycle::images(&plan, &EmbeddedObjects)?;
    let images = kernel_images(&plan, &images)?;
    let found = images.into_iter().find(|image| image.symbol == KERNEL);
    found.ok_or_else(|| failed(format!("the plan does not use {KERNEL}")))
}

/// Words of a buffer that launches the kernel with the arguments at each of `offsets` of the arena.
fn words(
    subject: &Subject,
    copying: &Copying,
    policy: &IbPolicy,
    offsets: &[u64],
) -> Result<Vec<u32>, Trouble> {
    let gfx = refrain_lower::gfx(subject.target);
    let image = image(subject)?;
    let object = copying.executable.kernel(KERNEL)?.kernel_object;
    let entry = image.descriptor.entry_va(object);
    let before = Before::WaitAcquire(gfx.capability().head_acquire.value);
    let launch = |&kernarg_offset| DispatchDesc {
        kernel: 0,
        groups: [1, 1, 1],
        group_size: [GROUP, 1, 1],
        lds_bytes: image.descriptor.group_segment_fixed_size,
        kernarg_offset,
        before,
    };
    let launches: Vec<DispatchDesc> = offsets.iter().map(launch).collect();
    let encoded = encode_ib(gfx, policy, std::slice::from_ref(&image), &launches)?;
    let bindings = Bindings {
        entries: &[entry],
        objects: &[object],
        kernarg_base: copying.kernarg.va(),
        signals: &[],
        ibs: &[],
    };
    Ok(encoded.resolve(&bindings)?)
}

fn buffer(subject: &Subject, words: &[u32]) -> Result<Buffer, Trouble> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let buffer = subject
        .device
        .alloc(MemoryKind::Executable, "ib", bytes.len() as u64, 4096)?;
    buffer.write(0, &bytes)?;
    Ok(buffer)
}

fn vendor(ib: &Buffer, dwords: usize, signal: &Signal) -> Result<[u8; 64], Trouble> {
    let packet = Pm4Ib {
        address: ib.va(),
        dwords: dwords as u32,
        policy: 0,
        completion_signal: signal.handle(),
    };
    Ok(pm4_ib(Header::system(PacketType::VendorSpecific), &packet)?.bytes())
}

fn run(subject: &Subject, words: &[u32]) -> Done {
    let ib = buffer(subject, words)?;
    let queue = Queue::new(&subject.device, 64)?;
    let signal = Signal::new(&subject.device, 1)?;
    complete(&queue, &[vendor(&ib, words.len(), &signal)?], &signal)?;
    Ok(())
}

fn one_launch(subject: &Subject) -> Done {
    let copying = Copying::new(subject, 19)?;
    run(subject, &words(subject, &copying, IbPolicy::DEFAULT, &[0])?)?;
    copying.check(19, &[0])
}

/// Each launch reads what the one before wrote.
fn chain(subject: &Subject) -> Done {
    let copying = Copying::new(subject, 23)?;
    let second = Copying::new(subject, 90)?;
    let [_, _, kcache, vcache] = copying.buffers.each_ref().map(Buffer::va);
    let [_, _, kcache2, vcache2] = second.buffers.each_ref().map(Buffer::va);
    let control = copying.control.va();
    copying
        .kernarg
        .write(256, &arguments([kcache, vcache, kcache2, vcache2, control]))?;
    run(
        subject,
        &words(subject, &copying, IbPolicy::DEFAULT, &[0, 256])?,
    )?;
    second.check(23, &[0])
}

/// One buffer, many times, with the position moved between them.
fn again(subject: &Subject) -> Done {
    let copying = Copying::new(subject, 29)?;
    let words = words(subject, &copying, IbPolicy::DEFAULT, &[0])?;
    let ib = buffer(subject, &words)?;
    let queue = Queue::new(&subject.device, 64)?;
    let signal = Signal::new(&subject.device, 0)?;
    for round in 0..200 {
        copying.position(round % 3)?;
        signal.store(1);
        complete(&queue, &[vendor(&ib, words.len(), &signal)?], &signal)?;
    }
    copying.check(29, &[0, 1, 2])
}

fn unpadded(subject: &Subject) -> Done {
    let copying = Copying::new(subject, 31)?;
    let policy = IbPolicy::named("static-unpadded");
    let policy = policy.ok_or_else(|| Trouble::Failed("no such policy".to_owned()))?;
    run(subject, &words(subject, &copying, policy, &[0])?)?;
    copying.check(31, &[0])
}

/// Runs words that must be refused, with a sentence that says `part`.
fn refused(subject: &Subject, words: &[u32], part: &str) -> Done {
    let gpu = soft_only!(subject);
    let ib = buffer(subject, words)?;
    let queue = Queue::new(&subject.device, 64)?;
    let signal = Signal::new(&subject.device, 1)?;
    queue.submit(&[vendor(&ib, words.len(), &signal)?])?;
    let error = signal.wait_lt(1, WAIT).err();
    ensure(error.is_some(), || "the buffer ran".to_owned())?;
    let text = gpu.fault().unwrap_or_default();
    ensure(text.contains(part), || text)
}

/// Without its last packet, a terminal wait, the completion signal says nothing.
fn missing_wait(subject: &Subject) -> Done {
    let _ = soft_only!(subject);
    let copying = Copying::new(subject, 1)?;
    let policy = IbPolicy::named("static-unpadded");
    let policy = policy.ok_or_else(|| Trouble::Failed("no such policy".to_owned()))?;
    let words = words(subject, &copying, policy, &[0])?;
    // EVENT_WRITE is two dwords.
    refused(subject, &words[..words.len() - 2], "CS_PARTIAL_FLUSH")
}

fn unknown_opcode(subject: &Subject) -> Done {
    // Opcode 0xFE, one dword of body.
    refused(subject, &[0xC000_FE00, 0], "opcode 0xfe is not known")
}

/// Registers that an earlier buffer wrote guarantee nothing: a dispatch alone is refused.
fn stale_register(subject: &Subject) -> Done {
    let _ = soft_only!(subject);
    let copying = Copying::new(subject, 37)?;
    run(subject, &words(subject, &copying, IbPolicy::DEFAULT, &[0])?)?;
    // DISPATCH_DIRECT of one group, wave32.
    let words = [0xC003_1500, 1, 1, 1, 0x8005, 0xC000_4600, 0x407];
    refused(subject, &words, "before the first write of the IB")
}
