//! Launches on the CPU: bad input is an error with a name, and no input panics.
#![expect(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

use proptest::prelude::{ProptestConfig, any, prop_assert, proptest};
use refrain_cpu::decode::{DecodeError, Memory, Program, supports};
use refrain_cpu::{Engine, Isa};
use refrain_kernels::{
    ArgKind, ArgValue, CatalogError, Dtype, KernelRow, Op, Word, WordValues, catalog, find,
};

/// Bytes of each buffer of a test.
const BYTES: u64 = 1 << 18;

/// A memory with `count` buffers.
fn memory(count: usize) -> Memory {
    let mut memory = Memory::default();
    for _ in 0..count {
        memory.add(BYTES).unwrap();
    }
    memory
}

/// Kernel arguments with pointer `i` at the start of buffer `i`.
fn kernarg(row: &KernelRow, memory: &Memory, imms: &[u32]) -> Vec<u8> {
    let (mut buffers, mut imms) = (0.., imms.iter());
    let values = row.args.iter().map(|arg| match arg.kind {
        ArgKind::Pointer(_) => ArgValue::Pointer(memory.base(buffers.next().unwrap())),
        ArgKind::U32 | ArgKind::F32Bits => ArgValue::Imm(*imms.next().unwrap()),
    });
    row.pack(&values.collect::<Vec<_>>()).unwrap()
}

fn words(pairs: &[(Word, u32)]) -> WordValues {
    let mut values = WordValues::default();
    for (word, value) in pairs {
        values.set(*word, *value);
    }
    values
}

/// Loads one launch.
fn push(symbol: &str, imms: &[u32], memory: &Memory, most: u32) -> Result<Program, DecodeError> {
    let row = find(symbol).unwrap();
    let mut program = Program::default();
    let most = words(&[(Word::Pos, most), (Word::Token, most)]);
    program.push(row, &kernarg(row, memory, imms), memory, &most)?;
    Ok(program)
}

#[test]
fn shapes_that_the_catalog_does_not_admit_are_refused_at_load() {
    let memory = memory(12);
    let cases: &[(&str, &[u32], &str)] = &[
        ("attn_decode_f32_d32", &[5, 2, 0], "heads"),
        ("attn_decode_f32_d32", &[0, 1, 0], "heads"),
        ("attn_split_f16_d64", &[4, 2, 3, 0], "splits"),
        ("qk_norm", &[3, 1, 40, 0], "head_dim"),
        ("gemv_f32", &[0, 4, 24], "k"),
        ("gemv_q8_0", &[0, 4, 48, 4], "k"),
        ("gemv_f32", &[4, 4, 16], "r0"),
        ("moe_route", &[8, 9, 0], "top_k"),
        ("delta_net_d64", &[4, 6, 0, 0, 0, 0], "nv"),
        ("rmsnorm", &[0, 0], "n"),
    ];
    for (symbol, imms, name) in cases {
        match push(symbol, imms, &memory, 0) {
            Err(DecodeError::Catalog(CatalogError::Need { imm, .. })) => {
                assert_eq!(imm, *name, "{symbol}");
            }
            other => panic!("{symbol} {imms:?}: {other:?}"),
        }
    }
}

#[test]
fn arguments_outside_the_buffers_or_over_each_other_are_refused_at_load() {
    let memory = memory(4);
    let row = find("gemv_f32").unwrap();
    let most = WordValues::default();
    let mut program = Program::default();
    let good = kernarg(row, &memory, &[0, 4, 16]);
    let short = program.push(row, &good[1..], &memory, &most);
    assert!(matches!(short, Err(DecodeError::Kernarg { given, .. }) if given + 1 == good.len()));
    // More rows than the buffer holds.
    let rows = u32::try_from(BYTES / 64).unwrap() + 1;
    let long = push("gemv_f32", &[0, rows, 16], &memory, 0);
    assert!(matches!(long, Err(DecodeError::Address { arg: "w", .. })));
    let mut same = good.clone();
    same.copy_within(8..16, 16);
    let same = program.push(row, &same, &memory, &most);
    assert!(matches!(same, Err(DecodeError::Overlap { .. })), "{same:?}");
    assert!(program.is_empty());
    assert_eq!(program.push(row, &good, &memory, &most).unwrap(), 0);
}

#[test]
fn a_kernel_without_a_function_is_refused_by_name() {
    for row in catalog() {
        let cache = matches!(row.op, Op::KvWrite | Op::AttnDecode | Op::AttnSplit);
        match supports(row) {
            Ok(()) => assert!(!(cache && row.dtype == Some(Dtype::Q8_0)), "{}", row.symbol),
            Err(DecodeError::NoFunction { symbol, op }) => {
                assert_eq!(symbol, row.symbol);
                assert!(cache && op.contains("Q8_0 cache"), "{symbol}: {op}");
            }
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn a_residual_that_is_the_output_is_added_once() {
    let mut memory = memory(4);
    let engine = Engine::with(Isa::Scalar, 1).unwrap();
    let row = find("gemv_add_f32").unwrap();
    let mut bytes = kernarg(row, &memory, &[1, 3, 16]);
    // y is the residual.
    bytes.copy_within(16..24, 24);
    let ones: Vec<u8> = [1.0f32; 64].iter().flat_map(|v| v.to_le_bytes()).collect();
    for buffer in 0..3 {
        memory.write(buffer, 0, &ones).unwrap();
    }
    let mut program = Program::default();
    program
        .push(row, &bytes, &memory, &WordValues::default())
        .unwrap();
    program.run(0, &mut memory, &engine).unwrap();
    let y: Vec<f32> = memory.bytes(2)[..16]
        .as_chunks::<4>()
        .0
        .iter()
        .map(|v| f32::from_le_bytes(*v))
        .collect();
    assert_eq!(y, [1.0, 17.0, 17.0, 1.0]);
}

#[test]
fn words_past_the_buffers_are_errors_of_the_step() {
    let engine = Engine::with(Isa::Scalar, 1).unwrap();
    // Position and token that the buffers have room for, by what was promised at load; then more.
    let cases: &[(&str, &[u32], usize, Word, u32)] = &[
        ("attn_decode_f32_d32", &[2, 1, 0], 3, Word::Pos, 1),
        ("kv_write_f16", &[64], 4, Word::Pos, 1),
        ("embed_f32", &[64], 1, Word::Token, 1),
        ("embed_q8_0", &[64, 2], 1, Word::Token, 1),
    ];
    for (symbol, imms, control, word, most) in cases {
        for (value, fits) in [
            (0, true),
            (*most, true),
            (most + 1, false),
            (u32::MAX, false),
        ] {
            let mut memory = memory(6);
            let mut program = push(symbol, imms, &memory, *most).unwrap();
            let block = words(&[(*word, value)]).to_bytes();
            memory.write(*control, 0, &block).unwrap();
            let done = program.run(0, &mut memory, &engine);
            assert_eq!(done.is_ok(), fits, "{symbol}, {word:?} {value}: {done:?}");
        }
    }
}

/// Cases of the property: REFRAIN_LONG=1 runs a hundred times as many.
fn cases() -> u32 {
    let long = std::env::var_os("REFRAIN_LONG").is_some_and(|value| value == "1");
    if long { 400 } else { 4 }
}

/// A number from a seed, as splitmix64 goes on.
fn next(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *seed;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Immediates that rows may admit, now and then any.
fn some_imm(seed: &mut u64) -> u32 {
    const LIKELY: [u32; 12] = [0, 1, 1, 2, 2, 4, 16, 32, 64, 256, 256, 512];
    let pick = next(seed);
    if pick.is_multiple_of(61) {
        return next(seed) as u32;
    }
    LIKELY[(pick / 61) as usize % LIKELY.len()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    /// Any kernel, any arguments, any bytes, any words: a result or an error.
    #[test]
    fn nothing_panics(seed in any::<u64>()) {
        let mut seed = seed;
        let mut memory = memory(14);
        for buffer in 0..14 {
            for word in memory.bytes_mut(buffer).chunks_exact_mut(8) {
                word.copy_from_slice(&next(&mut seed).to_le_bytes());
            }
        }
        let engine = Engine::with(Isa::best(), 1).unwrap();
        let most = words(&[(Word::Pos, 3), (Word::Token, 3), (Word::PromptLen, 4), (Word::RingMask, 3),
            (Word::Seq, u32::MAX)]);
        let (mut tried, mut ran) = (0, 0);
        for row in catalog() {
            for _ in 0..2 {
                let imms: Vec<u32> = row.imms().map(|_| some_imm(&mut seed)).collect();
                let mut bytes = kernarg(row, &memory, &imms);
                if next(&mut seed).is_multiple_of(16) {
                    let at = next(&mut seed) as usize % bytes.len();
                    bytes[at] ^= 1 << (next(&mut seed) % 8);
                }
                tried += 1;
                let mut program = Program::default();
                if program.push(row, &bytes, &memory, &most).is_err() {
                    continue;
                }
                // The control block is one of the pointers: small numbers in all.
                for buffer in 0..14 {
                    for word in [Word::Pos, Word::Token, Word::Done, Word::Seq] {
                        let value = (next(&mut seed) % 6) as u32;
                        let at = u64::from(word.offset());
                        memory.write(buffer, at, &value.to_le_bytes()).unwrap();
                    }
                }
                ran += usize::from(program.run(0, &mut memory, &engine).is_ok());
            }
        }
        prop_assert!(ran * 40 > tried, "{ran} of {tried} ran");
    }
}
