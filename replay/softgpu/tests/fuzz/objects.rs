//! Code objects and kernel descriptors.

use crate::mutate::{Outcome, Random, fixture, inputs, shipped};
use object::{Object, ObjectSection, ObjectSymbol};
use refrain_packet::Gfx;
use refrain_packet::kd::KernelDescriptor;
use refrain_softgpu::isa::Target;
use refrain_softgpu::{SoftConfig, SoftGpu};

/// The part of an ELF file where a change reaches another check: file, program and section headers
/// and notes come first; the rest is code and tables.
fn part(bytes: &[u8], random: &mut Random) -> (usize, usize) {
    match random.below(4) {
        0 => (0, 64),
        1 => (64, 1024),
        2 => (bytes.len().saturating_sub(2048), bytes.len()),
        _ => (0, bytes.len()),
    }
}

fn damaged(good: &[u8], random: &mut Random) -> Vec<u8> {
    if random.below(16) == 0 {
        let mut noise: Vec<u8> = (0..random.below(256))
            .map(|_| random.next() as u8)
            .collect();
        // Half of it passes the first look.
        if random.below(2) == 0 && noise.len() > 8 {
            noise[..8].copy_from_slice(&good[..8]);
        }
        return noise;
    }
    let mut bytes = good.to_vec();
    let (from, to) = part(&bytes, random);
    random.damage(&mut bytes, from, to);
    match random.below(12) {
        0 => bytes.truncate(random.below(good.len())),
        1 => {
            // A piece of the file somewhere else.
            let (from, to) = (random.below(good.len()), random.below(good.len()));
            let len = random.below(64).min(good.len() - from.max(to));
            bytes[to..to + len].copy_from_slice(&good[from..from + len]);
        }
        _ => {}
    }
    bytes
}

/// A damaged object is refused, leaving no memory behind, or loads and unloads.
#[test]
fn code_objects() {
    let probes = [
        (Target::Gfx1100, fixture("tests/fixtures/probe.gfx1100.co")),
        (Target::Gfx1201, fixture("tests/fixtures/probe.gfx1201.co")),
        (
            Target::Gfx1151,
            fixture("tests/objects/gfx1151/coverage.co"),
        ),
    ];
    let gpus = probes
        .each_ref()
        .map(|(target, _)| SoftGpu::new(SoftConfig::new(*target)).unwrap());
    inputs("code objects", |index, random| {
        let which = index as usize % probes.len();
        let bytes = damaged(&probes[which].1, random);
        let loaded = gpus[which].load_code_object(&bytes);
        if let Ok(object) = &loaded {
            for kernel in object.kernels() {
                assert!(object.find(&kernel.name).is_some());
            }
        }
        let accepted = loaded.is_ok();
        drop(loaded);
        assert_eq!(
            gpus[which].memory().total_bytes(),
            0,
            "memory is left behind"
        );
        accepted.into()
    });
}

/// Descriptors of the shipped kernels, damaged: parsed, judged and written back without loss.
#[test]
fn descriptors() {
    let file = shipped(Target::Gfx1201);
    let elf = object::File::parse(file).unwrap();
    let rodata = elf.section_by_name(".rodata").unwrap();
    let (base, data) = (rodata.address(), rodata.data().unwrap());
    let good: Vec<&[u8]> = elf
        .dynamic_symbols()
        .filter(|symbol| symbol.name().is_ok_and(|name| name.ends_with(".kd")))
        .map(|symbol| &data[(symbol.address() - base) as usize..][..64])
        .collect();
    inputs("descriptors", |index, random| {
        let mut bytes = good[index as usize % good.len()].to_vec();
        let len = bytes.len();
        random.damage(&mut bytes, 0, len);
        if random.below(16) == 0 {
            bytes.truncate(random.below(64));
        }
        let Ok(descriptor) = KernelDescriptor::parse(&bytes) else {
            return Outcome::Refused;
        };
        assert_eq!(
            descriptor.to_bytes()[..],
            bytes[..],
            "what was parsed is written back"
        );
        let group = [random.word(), random.word(), random.word()];
        let grid = [random.word(), random.word(), random.word()];
        let _ = descriptor.user_sgprs();
        let mut refusals = 0;
        for gfx in [Gfx::Gfx1100, Gfx::Gfx1151, Gfx::Gfx1201] {
            refusals += descriptor.refusals(gfx).len();
        }
        let _ = (group, grid, descriptor.entry_va(random.next()));
        (refusals == 0).into()
    });
}
