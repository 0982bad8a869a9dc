//! Loader tests on the committed kernel objects and on a probe object with refused kernels.

use super::{KernelRefusal, LoadedObject, ObjectError, Registry};
use crate::isa::Target;
use crate::memory::{Access, AddressSpace};
use refrain_packet::kd::Refusal;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn path(relative: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(relative)
}

fn probe(target: Target) -> Vec<u8> {
    std::fs::read(path(&format!("tests/fixtures/probe.{target}.co"))).unwrap()
}

fn catalog(target: Target) -> Vec<u8> {
    let target = refrain_kernels::Target::parse(target.name()).unwrap();
    refrain_kernels::code_object(target).bytes().to_vec()
}

struct Loader {
    memory: Arc<AddressSpace>,
    registry: Arc<Registry>,
    target: Target,
}

impl Loader {
    fn new(target: Target) -> Self {
        Self {
            memory: Arc::default(),
            registry: Arc::default(),
            target,
        }
    }

    fn load(&self, bytes: &[u8]) -> Result<Arc<LoadedObject>, ObjectError> {
        LoadedObject::load(
            &self.memory,
            &self.registry,
            self.target,
            bytes,
            "code object 1",
        )
    }
}

#[test]
fn every_catalog_object_loads_and_every_kernel_is_accepted() {
    for target in Target::ALL {
        let loader = Loader::new(target);
        let object = loader.load(&catalog(target)).unwrap();
        assert!(
            object.kernels().len() >= 20,
            "{target}: {}",
            object.kernels().len()
        );
        for kernel in object.kernels() {
            assert_eq!(kernel.refusal, None, "{target} {}", kernel.name);
            assert!(kernel.entry_va.is_multiple_of(256));
            assert!(
                loader
                    .registry
                    .by_descriptor(kernel.descriptor_va)
                    .is_some()
            );
            assert!(loader.registry.by_entry(kernel.entry_va).is_some());
        }
        let descriptor = object.kernels()[0].descriptor_va;
        drop(object);
        assert_eq!(loader.memory.total_bytes(), 0);
        assert!(loader.registry.by_descriptor(descriptor).is_none());
    }
}

#[test]
fn rights_and_room_past_the_code() {
    let loader = Loader::new(Target::Gfx1201);
    let object = loader.load(&probe(Target::Gfx1201)).unwrap();
    let kernel = object.find("add_one.kd").unwrap();
    let memory = &loader.memory;
    let code = memory.find(kernel.entry_va).unwrap();
    assert_eq!(&*code.name, "code object 1 code");
    memory.check(kernel.entry_va, 4, Access::Execute).unwrap();
    assert!(memory.check(kernel.entry_va, 4, Access::Write).is_err());
    assert!(
        memory
            .check(kernel.descriptor_va, 64, Access::Write)
            .is_err()
    );
    assert!(
        memory
            .check(kernel.descriptor_va, 64, Access::Execute)
            .is_err()
    );
    let end = code.base + code.len;
    for back in (4..=256).step_by(4) {
        assert_eq!(
            memory.read_u32(end - back).unwrap(),
            0xBF9F_0000,
            "{back} bytes before the end"
        );
    }
}

#[test]
fn relocations_are_applied() {
    let loader = Loader::new(Target::Gfx1100);
    let object = loader.load(&probe(Target::Gfx1100)).unwrap();
    // The probe's one relocation makes table_pointer point at table[2] = 33.
    let data = loader.memory.allocations();
    let data = data
        .iter()
        .rfind(|part| &*part.name == "code object 1 data")
        .unwrap();
    let pointer = loader.memory.read_u64(data.base + 16).unwrap();
    assert_eq!(pointer, data.base + 8);
    assert_eq!(loader.memory.read_u32(pointer).unwrap(), 33);
    drop(object);
}

#[test]
fn kernels_that_need_more_than_a_packet_are_refused_by_name() {
    let loader = Loader::new(Target::Gfx1201);
    let object = loader.load(&probe(Target::Gfx1201)).unwrap();
    let refusal = |name| object.find(name).unwrap().refusal.clone();
    assert_eq!(refusal("add_one"), None);
    assert_eq!(
        refusal("needs_scratch"),
        Some(Refusal::Scratch { bytes: 272 }.into())
    );
    assert_eq!(
        refusal("needs_dispatch_ptr"),
        Some(Refusal::DispatchPtr.into())
    );
    let hidden = KernelRefusal::HiddenArgument {
        value_kind: "hidden_hostcall_buffer".to_owned(),
    };
    assert_eq!(refusal("needs_hostcall"), Some(hidden));
}

#[test]
fn an_object_for_another_target_names_both() {
    for (has, wants) in [
        (Target::Gfx1100, Target::Gfx1201),
        (Target::Gfx1201, Target::Gfx1151),
    ] {
        let error = Loader::new(wants).load(&catalog(has)).unwrap_err();
        assert_eq!(
            error,
            ObjectError::Target {
                found: has.name().to_owned(),
                expected: wants.name().to_owned()
            }
        );
    }
}

/// (offset in the file, bytes written there, text that the error must contain)
const HEADER_ROWS: &[(usize, &[u8], &str)] = &[
    (0, b"\x7fELG", "Unsupported ELF header"),
    (4, &[1], "ELF"),
    (5, &[2], "big-endian"),
    (7, &[0], "EI_OSABI is 0"),
    (8, &[1], "EI_ABIVERSION is 1"),
    (8, &[5], "EI_ABIVERSION is 5"),
    (16, &[1, 0], "e_type is 1"),
    (18, &[62, 0], "e_machine is 62"),
    (48, &[0x36], "for gfx1030, this GPU is gfx1201"),
    (48, &[0xfe], "EF_AMDGPU_MACH 0xfe"),
    (49, &[3], "XNACK"),
    (32, &[0xff; 8], "program header"),
    (40, &[0xff; 8], "section header"),
];

#[test]
fn damaged_headers_are_named() {
    let good = probe(Target::Gfx1201);
    for (offset, bytes, text) in HEADER_ROWS {
        let mut bad = good.clone();
        bad[*offset..offset + bytes.len()].copy_from_slice(bytes);
        let error = Loader::new(Target::Gfx1201)
            .load(&bad)
            .unwrap_err()
            .to_string();
        assert!(error.contains(text), "byte {offset} = {bytes:x?}: {error}");
    }
}

/// File offset of a program header's field: (index among the PT_LOAD headers, offset of the field).
fn load_field(bytes: &[u8], load: usize, field: usize) -> usize {
    let headers = (0..)
        .map(|index| 64 + 56 * index)
        .filter(|&at| bytes[at..at + 4] == [1, 0, 0, 0]);
    headers.clone().nth(load).unwrap() + field
}

#[test]
fn damaged_segments_are_named() {
    let good = probe(Target::Gfx1201);
    // Fields of a program header: flags 4, offset 8, vaddr 16, filesz 32, memsz 40.
    for (load, field, value, text) in [
        (1, 4, 7_u64, "both writable and executable"),
        (1, 8, 1 << 40, "past the end of the file"),
        (1, 32, 1 << 40, "past the end of the file"),
        (0, 40, 1, "more bytes in the file than in memory"),
        (1, 40, 1 << 40, "256 MiB"),
        (1, 16, u64::MAX - 4, "256 MiB"),
        (1, 16, 0x100, "overlaps"),
    ] {
        let mut bad = good.clone();
        let at = load_field(&bad, load, field);
        let width = if field == 4 { 4 } else { 8 };
        bad[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
        let error = Loader::new(Target::Gfx1201)
            .load(&bad)
            .unwrap_err()
            .to_string();
        assert!(error.contains(text), "load {load} field {field}: {error}");
    }
}

#[test]
fn damaged_descriptors_and_metadata_are_named() {
    let good = probe(Target::Gfx1201);
    let loader = Loader::new(Target::Gfx1201);
    let object = loader.load(&good).unwrap();
    // Read-only data is loaded at its file offset in these objects.
    let descriptor = (object.find("add_one").unwrap().descriptor_va - object.base()) as usize;
    for (offset, value, text) in [
        (12, 1_u8, "byte 12 is reserved"),
        (0, 4, ".group_segment_fixed_size is 0 in the metadata but 4"),
        (8, 99, ".kernarg_segment_size"),
        (17, 0xf0, "outside the code segments"),
        (16, 4, "not 256-byte aligned"),
        (57, 0, ".wavefront_size is 32 in the metadata but 64"),
    ] {
        let mut bad = good.clone();
        bad[descriptor + offset] = value;
        if offset == 17 {
            bad[descriptor + 22] = 0x7f;
        }
        let error = loader.load(&bad).unwrap_err().to_string();
        assert!(
            error.contains(text) && error.contains("add_one"),
            "{offset}: {error}"
        );
    }
    let mut bad = good.clone();
    let at = bad
        .windows(14)
        .position(|window| window == b"amdhsa.kernels")
        .unwrap();
    bad[at + 14] = 0xc1;
    let error = loader.load(&bad).unwrap_err().to_string();
    assert!(error.contains("NT_AMDGPU_METADATA at byte"), "{error}");
}

/// xorshift64*, so that the damaged inputs are the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % below
    }
}

#[test]
fn truncations_and_bit_flips_never_panic() {
    let mut random = Random(0x5eed);
    for good in [probe(Target::Gfx1201), catalog(Target::Gfx1201)] {
        let loader = Loader::new(Target::Gfx1201);
        let mut refused = 0;
        for round in 0..1_500 {
            let mut bad = good.clone();
            if round % 3 == 0 {
                bad.truncate(random.next(good.len()));
            }
            // Half of the damage goes into the headers, note and tables at the front.
            let reach = if round % 2 == 0 {
                bad.len().min(0x2000)
            } else {
                bad.len()
            };
            for _ in 0..=random.next(4) {
                if reach > 0 {
                    let at = random.next(reach);
                    bad[at] ^= 1 << random.next(8);
                }
            }
            refused += usize::from(loader.load(&bad).is_err());
        }
        assert!(
            refused > 300,
            "only {refused} of 1500 damaged objects were refused"
        );
        assert_eq!(
            loader.memory.total_bytes(),
            0,
            "a refused object left memory behind"
        );
    }
}

/// 200,000 notes per target in the long form (`REFRAIN_LONG=1`).
#[test]
fn random_metadata_notes_never_panic() {
    let rounds = if std::env::var_os("REFRAIN_LONG").is_some_and(|value| value == "1") {
        200_000
    } else {
        5_000
    };
    for target in [Target::Gfx1100, Target::Gfx1151, Target::Gfx1201] {
        let object = catalog(target);
        let parsed = super::elf::parse(&object, target.elf_mach() as u8, target.name()).unwrap();
        let good = &object[parsed.note];
        assert!(!super::metadata::parse(good).unwrap().kernels.is_empty());
        let mut random = Random(0xa11ce);
        let mut refused = 0;
        for round in 0..rounds {
            let note: Vec<u8> = match round % 3 {
                0 => (0..random.next(96))
                    .map(|_| random.next(256) as u8)
                    .collect(),
                // Markers of maps, lists and long strings, so that depth and lengths are reached.
                1 => (0..random.next(96))
                    .map(|_| 0x80 | random.next(128) as u8)
                    .collect(),
                _ => {
                    let mut note = good.to_vec();
                    for _ in 0..=random.next(3) {
                        let at = random.next(note.len());
                        note[at] ^= 1 << random.next(8);
                    }
                    note.truncate(note.len() - random.next(2) * random.next(good.len()));
                    note
                }
            };
            refused += usize::from(super::metadata::parse(&note).is_err());
        }
        assert!(
            refused * 2 > rounds,
            "only {refused} of {rounds} notes were refused"
        );
    }
}
