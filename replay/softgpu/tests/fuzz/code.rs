//! Machine code: words of real kernels, damaged, moved and mixed with noise, executed by one
//! work-group under a small instruction budget.

use crate::mutate::{Random, fixture, inputs, shipped};
use object::{Object, ObjectSection};
use refrain_softgpu::exec::{Dispatch, Program, RunConfig, run_batch};
use refrain_softgpu::isa::Target;
use refrain_softgpu::memory::{AddressSpace, Kind, Rights};
use std::sync::Arc;

/// Words of one input.
const WORDS: usize = 48;
const CODE_VA: u64 = 0x7000_0000_0000;

fn words(relative: &str) -> Vec<u32> {
    words_of(&fixture(relative))
}

fn words_of(file: &[u8]) -> Vec<u32> {
    let elf = object::File::parse(file).unwrap();
    let text = elf.section_by_name(".text").unwrap().data().unwrap();
    text.as_chunks::<4>()
        .0
        .iter()
        .map(|word| u32::from_le_bytes(*word))
        .collect()
}

/// A window of real code with changes, and an end of the program that it mostly reaches.
fn program(real: &[u32], random: &mut Random) -> Vec<u32> {
    let start = random.below(real.len() - WORDS);
    let mut code = real[start..start + WORDS].to_vec();
    for _ in 0..random.below(6) {
        let at = random.below(WORDS);
        match random.below(4) {
            0 => code[at] ^= 1 << random.below(32),
            1 => code[at] = real[random.below(real.len())],
            // The same format with other fields.
            2 => code[at] = code[at] & 0xff80_0000 | random.next() as u32 & 0x007f_ffff,
            _ => code[at] = random.next() as u32,
        }
    }
    // s_endpgm: SOPP opcode 48 on gfx11 and gfx12.
    code.extend([0xBFB0_0000; 4]);
    code
}

#[test]
fn machine_code() {
    let sources = [
        (Target::Gfx1100, words("tests/objects/gfx1100/coverage.co")),
        (Target::Gfx1100, words_of(shipped(Target::Gfx1100))),
        (Target::Gfx1151, words("tests/objects/gfx1151/coverage.co")),
        (Target::Gfx1201, words("tests/objects/gfx1201/coverage.co")),
        (Target::Gfx1201, words_of(shipped(Target::Gfx1201))),
    ];
    let memory = AddressSpace::new();
    let rights = Rights::READ_WRITE.union(Rights::HOST);
    let data = memory
        .alloc("data", 1 << 16, 4096, rights, Kind::Device)
        .unwrap();
    let name: Arc<str> = Arc::from("noise");
    inputs("machine code", |index, random| {
        let (target, real) = &sources[index as usize % sources.len()];
        let code = program(real, random);
        let bytes: Vec<u8> = code.iter().flat_map(|word| word.to_le_bytes()).collect();
        let Ok(program) = Program::decode(*target, CODE_VA, &bytes) else {
            return false.into();
        };
        let mut user_sgprs = [0; 16];
        for pair in user_sgprs.chunks_exact_mut(2) {
            // Mostly addresses inside the data, so that loads and stores go through.
            let va = data + random.below(1 << 15) as u64 * 2;
            pair.copy_from_slice(&[va as u32, (va >> 32) as u32]);
        }
        let dispatch = Dispatch {
            program: Arc::new(program),
            entry_va: CODE_VA,
            name: Arc::clone(&name),
            // 256 VGPRs, denormals kept, IEEE mode off.
            rsrc1: 0x3f | 15 << 16,
            rsrc2: 16 << 1 | 1 << 7,
            rsrc3: 0,
            user_sgprs,
            user_sgpr_count: 16,
            groups: [1, 1, 1],
            group_size: [[32, 1, 1], [64, 1, 1], [8, 4, 1]][random.below(3)],
            lds_bytes: [0, 512, 4096][random.below(3)],
            scratch_bytes: [0, 16, 256][random.below(3)],
            tag: index,
        };
        let config = RunConfig {
            seed: index,
            threads: 1,
            wave_budget: 2_000,
        };
        match run_batch(&memory, &[dispatch], &config) {
            Ok(stats) => {
                assert!(stats.instructions <= 2 * 2_000 + 128, "{stats:?}");
                true.into()
            }
            Err(error) => {
                assert!(!error.to_string().is_empty());
                false.into()
            }
        }
    });
}
