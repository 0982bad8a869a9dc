//! Lowering of a real plan for every target and transport, and mutations that read-back must catch.

use super::{
    KernelImages, LowerError, Lowered, Policy, Transport, kernel_images, lint, lower,
    lower_segment, read_back, whole,
};
use crate::image::ImageError;
use refrain_kernels::{Target, code_object};
use refrain_packet::kd::property;
use refrain_packet::launch::EncodeError;
use refrain_packet::packet::Packet;
use refrain_packet::reloc::RelocationKind;
use refrain_planner::ModelSource;
use refrain_planner::machine::Machine;
use refrain_planner::plan::{Plan, StepBody};
use refrain_planner::{CheckedPlan, CompileOptions, compile};

fn plan(target: Target) -> CheckedPlan {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/models/nano-qwen3.bf16.gguf"
    );
    let file = ModelSource::open(path).unwrap();
    let machine = Machine::load(target.name()).unwrap();
    compile(&file, &machine, &CompileOptions::default()).unwrap()
}

fn images(target: Target) -> KernelImages {
    let mut images = KernelImages::new();
    let digest = images.add(code_object(target).bytes()).unwrap();
    assert_eq!(digest, code_object(target).digest);
    images
}

fn lowered(plan: &CheckedPlan, target: Target, transport: Transport) -> Lowered {
    lower(plan, &images(target), transport, Policy::default()).unwrap()
}

#[test]
fn every_target_and_transport_lowers_the_same_way_twice() {
    let mut digests = Vec::new();
    for target in Target::ALL {
        let plan = plan(target);
        for transport in Transport::ALL {
            let first = lowered(&plan, target, transport);
            assert_eq!(first, lowered(&plan, target, transport));
            assert_eq!(first.encoded().launches.len(), plan.steps.len());
            let ring = first.ring_packets();
            match transport {
                Transport::Aql => assert!(ring == plan.steps.len() || ring == plan.steps.len() + 1),
                Transport::Pm4 => assert_eq!(ring, 1),
            }
            digests.push(*first.digest());
        }
    }
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(
        digests.len(),
        6,
        "each target and transport has its own encoding"
    );
}

#[test]
fn arena_slots_are_disjoint_cache_lines_with_the_kernargs_of_their_step() {
    let plan = plan(Target::Gfx1201);
    let lowered = lowered(&plan, Target::Gfx1201, Transport::Aql);
    let base = |buffer: u32| 0x1_0000_0000 * (u64::from(buffer) + 1);
    let bytes = lowered.arena().fill(&whole(&plan).unwrap(), &base).unwrap();
    assert_eq!(bytes.len() as u64, lowered.arena().bytes());
    let mut end = 0;
    for (index, step) in plan.steps.iter().enumerate() {
        let StepBody::Launch(launch) = &step.body else {
            panic!("a launch")
        };
        let length = plan.kernels[launch.kernel as usize].kernarg_bytes as usize;
        let offset = lowered.arena().offset(index).unwrap() as usize;
        assert!(offset >= end && offset.is_multiple_of(64), "{}", step.name);
        let mut want = vec![0; length];
        plan.write_kernargs(index as u32, &base, &mut want).unwrap();
        assert_eq!(bytes[offset..offset + length], want, "{}", step.name);
        end = offset + length;
    }
}

/// Every single bit of every word that carries no relocation: flipping it must be caught, or
/// stand in the list of bits that a plan leaves open.
#[test]
fn flipped_bits_are_caught() {
    for (target, transport) in [
        (Target::Gfx1201, Transport::Aql),
        (Target::Gfx1201, Transport::Pm4),
        (Target::Gfx1100, Transport::Pm4),
    ] {
        // A few steps hold every kind of packet and are quick to read back thousands of times.
        let mut plan: Plan = (*plan(target)).clone();
        plan.steps.truncate(6);
        plan.schedule.waits.retain(|wait| wait.before < 6);
        let kernels = kernel_images(&plan, &images(target)).unwrap();
        let clean = lower_segment(
            &whole(&plan).unwrap(),
            &images(target),
            transport,
            Policy::default(),
        )
        .unwrap();
        for word in 0..clean.encoded.words.len() {
            if clean
                .encoded
                .relocations
                .iter()
                .any(|row| row.word as usize == word)
            {
                continue;
            }
            for bit in 0..32 {
                let mut bad = clean.clone();
                bad.encoded.words[word] ^= 1 << bit;
                if read_back(&whole(&plan).unwrap(), &kernels, &bad).is_ok() {
                    let open = match transport {
                        Transport::Aql => open_aql(word, bit),
                        Transport::Pm4 => open_pm4(&clean.encoded.words, word, bit),
                    };
                    assert!(
                        open,
                        "{target} {transport}: word {word} bit {bit} was not caught"
                    );
                }
            }
        }
    }
}

/// Stronger fences and barriers than planned are allowed; so is a profiler's correlation id on
/// barrier packets.
fn open_aql(word: usize, bit: u32) -> bool {
    word.is_multiple_of(16) && (8..13).contains(&bit) || matches!(word % 16, 12 | 13)
}

fn open_pm4(words: &[u32], word: usize, bit: u32) -> bool {
    let mut packets = refrain_packet::decode::packets(words).map(Result::unwrap);
    let packet = packets
        .find(|p| (p.offset as usize..p.offset as usize + p.words.len()).contains(&word))
        .unwrap();
    let within = word - packet.offset as usize;
    // The shader-type bit of any header is ignored by the packet processor.
    if within == 0 && bit == 1 {
        return true;
    }
    match packet.packet {
        Packet::Nop { .. } | Packet::Filler => true,
        // A stronger acquire, another poll interval, and accepted ways to say "everything".
        Packet::AcquireMem(_) => matches!(within, 3 | 6 | 7),
        Packet::EventWrite { .. } => within == 1 && bit == 31,
        // RSRC1.PRIV is policy.
        Packet::SetShReg { offset, .. } => offset == 0x212 && within == 2 && bit == 20,
        _ => false,
    }
}

#[test]
fn a_dropped_wait_is_caught_and_named() {
    let target = Target::Gfx1201;
    let plan = plan(target);
    let kernels = kernel_images(&plan, &images(target)).unwrap();
    let clean = lowered(&plan, target, Transport::Pm4);
    let nop = 0xFFFF_1000;
    let located: Vec<_> = refrain_packet::decode::packets(&clean.encoded.words)
        .map(Result::unwrap)
        .collect();
    let mut waits = 0;
    for packet in located.iter().filter(|p| p.packet.is_wait()) {
        let mut bad = clean.clone();
        let at = packet.offset as usize;
        bad.encoded.words[at..at + packet.words.len()].fill(nop);
        let error = read_back(&whole(&plan).unwrap(), &kernels, &bad).unwrap_err();
        assert!(error.what.contains("no wait"), "{error}");
        assert!(!error.name.is_empty());
        waits += 1;
    }
    assert_eq!(waits, plan.schedule.waits.len() + 1);
    let mut acquires = 0;
    for packet in located
        .iter()
        .filter(|p| matches!(p.packet, Packet::AcquireMem(_)))
    {
        let mut bad = clean.clone();
        let at = packet.offset as usize;
        bad.encoded.words[at..at + packet.words.len()].fill(nop);
        let error = read_back(&whole(&plan).unwrap(), &kernels, &bad).unwrap_err();
        assert!(error.what.contains("invalidates"), "{error}");
        acquires += 1;
    }
    assert!(acquires > 1);
}

#[test]
fn a_dropped_barrier_bit_is_caught() {
    let target = Target::Gfx1201;
    let plan = plan(target);
    let kernels = kernel_images(&plan, &images(target)).unwrap();
    let clean = lowered(&plan, target, Transport::Aql);
    for wait in &plan.schedule.waits {
        let mut bad = clean.clone();
        bad.encoded.words[wait.before as usize * 16] &= !(1 << 8);
        let error = read_back(&whole(&plan).unwrap(), &kernels, &bad).unwrap_err();
        assert_eq!(error.step, wait.before as usize);
        assert_eq!(error.name, plan.steps[error.step].name);
        assert!(error.what.contains("barrier"), "{error}");
    }
}

#[test]
fn wrong_relocations_are_caught() {
    let target = Target::Gfx1201;
    let plan = plan(target);
    let kernels = kernel_images(&plan, &images(target)).unwrap();
    for transport in Transport::ALL {
        let clean = lowered(&plan, target, transport);
        for index in 0..clean.encoded.relocations.len() {
            let mut bad = clean.clone();
            let row = &mut bad.encoded.relocations[index];
            match row.kind {
                // The high halves of all made-up kernarg addresses are equal.
                RelocationKind::KernargLo => row.addend += 64,
                RelocationKind::ObjectLo | RelocationKind::EntryLo => {
                    row.symbol = (row.symbol + 1) % kernels.len() as u32;
                }
                RelocationKind::SignalLo => row.kind = RelocationKind::SignalHi,
                _ => continue,
            }
            assert!(
                read_back(&whole(&plan).unwrap(), &kernels, &bad).is_err(),
                "{transport} {index}"
            );
        }
        let mut bad = clean.clone();
        bad.encoded.relocations.remove(0);
        assert!(
            read_back(&whole(&plan).unwrap(), &kernels, &bad).is_err(),
            "{transport}: relocation removed"
        );
    }
}

#[test]
fn lost_and_extra_packets_are_caught() {
    let target = Target::Gfx1201;
    let plan = plan(target);
    let kernels = kernel_images(&plan, &images(target)).unwrap();
    let clean = lowered(&plan, target, Transport::Aql);
    let mut short = clean.clone();
    short.encoded.words.truncate(clean.encoded.words.len() - 16);
    short
        .encoded
        .relocations
        .retain(|row| (row.word as usize) < short.encoded.words.len());
    assert!(read_back(&whole(&plan).unwrap(), &kernels, &short).is_err());
    let mut long = clean.clone();
    let last = clean.encoded.words[clean.encoded.words.len() - 16..].to_vec();
    long.encoded.words.extend(last);
    assert!(read_back(&whole(&plan).unwrap(), &kernels, &long).is_err());
    let mut fewer: Plan = (*plan).clone();
    fewer.steps.pop();
    assert!(read_back(&whole(&fewer).unwrap(), &kernels, &clean).is_err());
    let pm4 = lowered(&plan, target, Transport::Pm4);
    assert!(read_back(&whole(&fewer).unwrap(), &kernels, &pm4).is_err());
}

#[test]
fn the_plan_says_exactly_how_many_bytes_the_retained_form_takes() {
    for target in Target::ALL {
        let plan = plan(target);
        let pm4 = lowered(&plan, target, Transport::Pm4);
        let found = (pm4.arena().bytes(), 4 * pm4.dwords() as u64);
        assert_eq!(found, (plan.memory.kernarg, plan.memory.ib), "{target}");
    }
}

#[test]
fn the_linter_has_nothing_to_say_and_says_what_it_did_not_check() {
    for target in Target::ALL {
        let plan = plan(target);
        let kernels = kernel_images(&plan, &images(target)).unwrap();
        for transport in Transport::ALL {
            let report = lint(
                &whole(&plan).unwrap(),
                &kernels,
                &lowered(&plan, target, transport),
            )
            .unwrap();
            assert_eq!(report.findings, [], "{target} {transport}");
            let missing: Vec<&str> = report
                .not_checked
                .iter()
                .map(|row| row.0.row().id)
                .collect();
            let expected: &[&str] = match transport {
                // Order of the producer's stores.
                Transport::Aql => &["A02", "A03"],
                // An elided stream's reference, other buffers in flight.
                Transport::Pm4 => &["H07", "H09"],
            };
            assert_eq!(missing, expected, "{target} {transport}");
        }
    }
}

#[test]
fn facts_come_from_the_code_object() {
    for target in Target::ALL {
        let plan = plan(target);
        let table = code_object(target);
        let kernels = kernel_images(&plan, &images(target)).unwrap();
        for kernel in &kernels {
            let facts = kernel.facts.unwrap();
            assert_eq!(facts.target, Some(super::gfx(target)));
            assert_eq!(
                facts.vgpr_count,
                table.kernel(&kernel.symbol).unwrap().vgprs
            );
            assert!(facts.max_flat_workgroup_size >= 32 && facts.normal && !facts.printf);
        }
    }
}

/// What the code object says of a kernel is judged, and what it does not say is reported.
#[test]
fn the_linter_judges_what_the_code_object_says() {
    use refrain_packet::kd::KernelFacts;
    type Edit = fn(&mut KernelFacts);
    let rows: [(&str, &str, Edit); 4] = [
        ("A06", "D12", |facts| {
            facts.target = Some(refrain_packet::Gfx::Gfx1100)
        }),
        ("A05", "D05", |facts| facts.max_flat_workgroup_size = 1),
        ("", "D10", |facts| facts.printf = true),
        ("", "D04", |facts| facts.vgpr_count = 200),
    ];
    let target = Target::Gfx1201;
    let plan = plan(target);
    let clean = kernel_images(&plan, &images(target)).unwrap();
    for transport in Transport::ALL {
        let lowered = lowered(&plan, target, transport);
        for (aql, pm4, edit) in rows {
            let mut kernels = clean.clone();
            kernels
                .iter_mut()
                .for_each(|row| edit(row.facts.as_mut().unwrap()));
            let report = lint(&whole(&plan).unwrap(), &kernels, &lowered).unwrap();
            let rule = match transport {
                Transport::Aql => aql,
                Transport::Pm4 => pm4,
            };
            let hit = report.findings.iter().any(|row| row.rule.row().id == rule);
            assert!(
                hit || rule.is_empty(),
                "{transport} {rule}: {:?}",
                report.findings
            );
        }
        let mut kernels = clean.clone();
        kernels[0].facts = None;
        let report = lint(&whole(&plan).unwrap(), &kernels, &lowered).unwrap();
        let partly: Vec<&str> = report
            .partly_checked
            .iter()
            .map(|row| row.1.name())
            .collect();
        assert!(partly.contains(&"kernel metadata"), "{partly:?}");
    }
}

/// The linter compares with the plan, not with the lowering.
#[test]
fn lds_and_kernarg_slots_are_the_plans() {
    let target = Target::Gfx1201;
    let clean = plan(target);
    let kernels = kernel_images(&clean, &images(target)).unwrap();
    let lowered = lowered(&clean, target, Transport::Pm4);
    let ids = |plan: &Plan| {
        let report = lint(&whole(plan).unwrap(), &kernels, &lowered).unwrap();
        let mut ids: Vec<_> = report
            .findings
            .iter()
            .map(|row| row.rule.row().id)
            .collect();
        ids.dedup();
        ids
    };
    assert_eq!(ids(&clean), [""; 0]);
    let mut plan: Plan = (*clean).clone();
    plan.kernels
        .iter_mut()
        .for_each(|row| row.lds_bytes += 8192);
    assert!(ids(&plan).contains(&"D07"));
    let mut plan: Plan = (*clean).clone();
    plan.kernels
        .iter_mut()
        .for_each(|row| row.kernarg_bytes += 64);
    assert!(ids(&plan).contains(&"D08"));
    let aql = super::tests::lowered(&clean, target, Transport::Aql);
    let report = lint(&whole(&plan).unwrap(), &kernels, &aql).unwrap();
    assert!(report.has(refrain_packet::lint::Rule::A08));
}

#[test]
fn a_plan_without_one_of_its_waits_is_refused() {
    let target = Target::Gfx1201;
    let clean = plan(target);
    for transport in Transport::ALL {
        for index in 0..clean.schedule.waits.len() {
            let mut bad: Plan = (*clean).clone();
            let wait = bad.schedule.waits.remove(index);
            let lowered = lower_segment(
                &whole(&bad).unwrap(),
                &images(target),
                transport,
                Policy::default(),
            );
            let error = lowered.map(|_| ()).unwrap_err();
            assert!(
                matches!(&error, LowerError::Lint { .. }),
                "{transport}: wait before {}: {error}",
                clean.steps[wait.before as usize].name
            );
        }
    }
}

#[test]
fn a_buffer_beyond_twenty_bits_is_refused() {
    let target = Target::Gfx1201;
    let mut long: Plan = (*plan(target)).clone();
    let steps = long.steps.clone();
    while long.steps.len() < 60_000 {
        long.steps.extend(steps.iter().cloned());
    }
    let images = images(target);
    let error = lower_segment(
        &whole(&long).unwrap(),
        &images,
        Transport::Pm4,
        Policy::default(),
    )
    .map(|_| ())
    .unwrap_err();
    let LowerError::Encode {
        source: EncodeError::TooLong { dwords, limit },
        ..
    } = error
    else {
        panic!("{error}");
    };
    assert!(dwords > limit as usize && limit == 0xF_FFFF);
}

/// A change to a descriptor or to the plan, and the words that the refusal must contain.
type Row = (
    &'static str,
    fn(&mut Plan, &mut super::KernelImage),
    &'static [&'static str],
);

const ROWS: &[Row] = &[
    (
        "scratch",
        |_, i| i.descriptor.private_segment_fixed_size = 16,
        &["16 bytes of scratch"],
    ),
    (
        "stack",
        |_, i| i.descriptor.properties |= property::USES_DYNAMIC_STACK,
        &["dynamic stack"],
    ),
    (
        "queue",
        |_, i| i.descriptor.properties |= property::QUEUE_PTR,
        &["queue pointer"],
    ),
    (
        "dispatch",
        |_, i| i.descriptor.properties |= property::DISPATCH_PTR,
        &["dispatch pointer"],
    ),
    (
        "preload",
        |_, i| i.descriptor.kernarg_preload = 2,
        &["preload"],
    ),
    (
        "hidden",
        |_, i| i.descriptor.kernarg_size += 256,
        &["hidden arguments"],
    ),
    (
        "other lds",
        |_, i| i.descriptor.group_segment_fixed_size += 4,
        &["LDS bytes", "in the plan"],
    ),
    (
        "shorter kernargs",
        |_, i| i.descriptor.kernarg_size -= 4,
        &["kernarg bytes", "in the plan"],
    ),
    ("target", |_, i| i.mach = 0x41, &["0x41", "gfx1201", "0x4e"]),
    (
        "object",
        |p, _| p.kernels[0].object[0] ^= 1,
        &["is absent", "1 given"],
    ),
    (
        "symbol",
        |p, _| p.kernels[0].symbol.push('x'),
        &["is not in code object"],
    ),
];

#[test]
fn unusable_kernels_are_refused_by_name() {
    let target = Target::Gfx1201;
    let clean = plan(target);
    for (name, change, words) in ROWS {
        let mut plan: Plan = (*clean).clone();
        let mut images = images(target);
        let symbol = plan.kernels[0].symbol.clone();
        let object = images.objects.get_mut(&plan.kernels[0].object).unwrap();
        change(&mut plan, object.get_mut(&symbol).unwrap());
        let error = lower_segment(
            &whole(&plan).unwrap(),
            &images,
            Transport::Aql,
            Policy::default(),
        )
        .map(|_| ())
        .expect_err(name);
        assert!(matches!(error, LowerError::Image(_)), "{name}: {error}");
        let error = error.to_string();
        assert!(error.contains(&symbol), "{name}: {error}");
        for word in *words {
            assert!(error.contains(word), "{name}: `{word}` not in `{error}`");
        }
    }
}

proptest::proptest! {
    /// Damaged code objects are an error or parse; they never panic.
    #[test]
    fn damaged_code_objects_do_not_panic(at in 0usize..4096, value: u8, cut in 0usize..20_000) {
        let mut bytes = code_object(Target::Gfx1201).bytes().to_vec();
        let length = bytes.len();
        bytes[at % length] = value;
        let _ = KernelImages::new().add(&bytes);
        let result = KernelImages::new().add(&bytes[..cut % length]);
        let refused = matches!(result, Err(ImageError::Object { .. }));
        proptest::prop_assert!(refused || result.is_ok());
    }
}
