//! MODE: rounding, denormals, output scaling, clamping; and integer results that saturate.

use super::{Machine, everywhere, v};
use crate::exec::level::Speed;
use crate::exec::moded::ORDINARY;
use crate::exec::softfloat::{DOUBLE, HALF, Round, Rule, SINGLE, add, convert, fma, mul};
use crate::exec::uop::Flow;
use crate::exec::wave::{MODE_DX10_CLAMP, MODE_FP16_OVFL, MODE_IEEE};
use crate::isa::operand::NULL;
use crate::isa::{Generation, Mods, Target};

const TINY: u32 = 0x0000_1234;
const ROUNDS: [Round; 4] = [Round::Nearest, Round::Up, Round::Down, Round::Zero];

/// Runs one instruction on broadcast sources, 64-bit ones in register pairs; gives the result pair.
fn one(m: &mut Machine, name: &str, src: &[u64], mods: Mods) -> u64 {
    let codes: Vec<u16> = (0..src.len() as u16).map(|k| v(10 + 2 * k)).collect();
    for (k, value) in src.iter().enumerate() {
        m.w.v[10 + 2 * k] = [*value as u32; 32];
        m.w.v[11 + 2 * k] = [(value >> 32) as u32; 32];
    }
    (m.w.v[4], m.w.v[5]) = ([0; 32], [0; 32]);
    let mut inst = m.inst(name, v(4), &codes);
    inst.mods = Mods {
        opsel_hi: inst.mods.opsel_hi,
        ..mods
    };
    m.ok(&inst);
    u64::from(m.w.v[4][7]) | u64::from(m.w.v[5][7]) << 32
}

#[test]
fn every_rounding_mode_of_every_format() {
    let (a, b, c) = (0x3f80_0001u64, 0xbf7f_fff3u64, 0x3300_0001u64);
    let (ha, hb, hc) = (0x3c01u64, 0xbbf3u64, 0x0401u64);
    let (da, db) = (0x3ff0_0000_0000_0001u64, 0x3cb0_0000_0000_0003u64);
    everywhere(|m| {
        for (k, round) in ROUNDS.into_iter().enumerate() {
            let k = k as u32;
            let r = Rule::new(round);
            // Singles by bits [1:0], halves and doubles by [3:2]; the other field is another mode.
            m.w.mode = ORDINARY | MODE_DX10_CLAMP | k | (k ^ 1) << 2;
            for (name, src, want) in [
                ("v_add_f32", vec![a, c], add(SINGLE, r, a, c)),
                ("v_mul_f32", vec![a, b], mul(SINGLE, r, a, b)),
                ("v_fma_f32", vec![a, b, c], fma(SINGLE, r, a, b, c)),
                (
                    "v_cvt_f32_u32",
                    vec![0xffff_ff81],
                    0x4f7f_ffff + u64::from(k == 1),
                ),
                ("v_cvt_f32_f64", vec![da], convert(DOUBLE, SINGLE, r, da)),
            ] {
                let want = if name == "v_cvt_f32_u32" && k == 0 {
                    0x4f7f_ffff + 1
                } else {
                    want
                };
                let name = m.spelled(name);
                assert_eq!(
                    one(m, &name, &src, Mods::default()),
                    want,
                    "{name} {round:?}"
                );
            }
            m.w.mode = ORDINARY | MODE_DX10_CLAMP | (k ^ 1) | k << 2;
            for (name, src, want) in [
                ("v_add_f16", vec![ha, hc], add(HALF, r, ha, hc)),
                ("v_mul_f16", vec![ha, hb], mul(HALF, r, ha, hb)),
                (
                    "v_cvt_f16_f32",
                    vec![c << 1],
                    convert(SINGLE, HALF, r, c << 1),
                ),
                ("v_add_f64", vec![da, db], add(DOUBLE, r, da, db)),
                ("v_mul_f64", vec![da, db], mul(DOUBLE, r, da, db)),
            ] {
                let name = m.spelled(name);
                assert_eq!(
                    one(m, &name, &src, Mods::default()),
                    want,
                    "{name} {round:?}"
                );
            }
            let both = |x: u64| x | x << 16;
            let got = one(m, "v_pk_mul_f16", &[both(ha), both(hb)], Mods::default());
            assert_eq!(got, both(mul(HALF, r, ha, hb)), "{round:?}");
        }
    });
}

#[test]
fn denormals_are_flushed_as_mode_says() {
    let one_ = 1.0f32.to_bits();
    everywhere(|m| {
        // Field, what v_add_f32 (+0) makes of a denormal source, what v_mul_f32 makes of a denormal
        // result.
        for (field, source, result) in [
            (0, false, false),
            (1, true, false),
            (2, false, true),
            (3, true, true),
        ] {
            m.w.mode = MODE_DX10_CLAMP | field << 4 | 3 << 6;
            let sum = one(m, "v_add_f32", &[TINY.into(), 0], Mods::default());
            let kept = source && result;
            assert_eq!(sum, if kept { TINY.into() } else { 0 }, "sum {field}");
            let half = u64::from(0x0080_0000u32);
            let product = one(m, "v_mul_f32", &[half, 0xbf00_0000], Mods::default());
            let want = if result { 0x8040_0000 } else { 0x8000_0000 };
            assert_eq!(product, want, "product {field}: sign stays");
            // A source that is flushed compares equal to zero.
            let mut cmp = m.inst("v_cmp_eq_f32", 40, &[v(10), v(11)]);
            m.w.v[10] = [TINY; 32];
            m.w.v[11] = [0; 32];
            cmp.dst = 40;
            m.ok(&cmp);
            assert_eq!(
                m.w.s[40],
                if source { 0 } else { u32::MAX },
                "compare {field}"
            );
            // Selections and moves pass denormals on; halves have a field of their own.
            assert_eq!(
                one(m, "v_mov_b32", &[TINY.into()], Mods::default()),
                TINY.into()
            );
            assert_eq!(one(m, "v_add_f16", &[0x0011, 0], Mods::default()), 0x0011);
            m.w.mode = MODE_DX10_CLAMP | 3 << 4 | field << 6;
            let sum = one(m, "v_add_f16", &[0x0011, 0], Mods::default());
            assert_eq!(sum, if kept { 0x0011 } else { 0 }, "half {field}");
            let sum = one(m, "v_add_f64", &[0x1_0000_0001, 0], Mods::default());
            assert_eq!(sum, if kept { 0x1_0000_0001 } else { 0 }, "double {field}");
            assert_eq!(
                one(m, "v_add_f32", &[TINY.into(), 0], Mods::default()),
                TINY.into()
            );
            let packed = one(m, "v_pk_add_f16", &[0x3c00_0011, 0], Mods::default());
            assert_eq!(packed, if kept { 0x3c00_0011 } else { 0x3c00_0000 });
        }
        m.w.mode = MODE_DX10_CLAMP;
        let scaled = one(m, "v_mul_f32", &[one_.into(), TINY.into()], Mods::default());
        assert_eq!(scaled, 0);
    });
}

#[test]
fn output_scaling_needs_flushed_results_and_no_ieee_mode() {
    let scale = |omod| Mods {
        omod,
        ..Mods::default()
    };
    let f = |x: f32| u64::from(x.to_bits());
    everywhere(|m| {
        for (mode, applies) in [
            (ORDINARY, false),
            (ORDINARY | MODE_IEEE, false),
            (0, true),
            (MODE_IEEE, false),
            (1 << 4, true),
        ] {
            m.w.mode = mode | MODE_DX10_CLAMP;
            for (omod, factor) in [(1, 2.0), (2, 4.0), (3, 0.5)] {
                let want = if applies { 3.5 * factor } else { 3.5 };
                let got = one(m, "v_add_f32", &[f(1.5), f(2.0)], scale(omod));
                assert_eq!(got, f(want), "mode {mode:#x} omod {omod}");
            }
            let zero = one(m, "v_mul_f32", &[f(-0.0), f(1.0)], scale(1));
            assert_eq!(zero, f(if applies { 0.0 } else { -0.0 }));
        }
    });
}

#[test]
fn clamping_a_nan_follows_dx10_clamp() {
    let clamp = Mods {
        clamp: true,
        ..Mods::default()
    };
    everywhere(|m| {
        let nan = u64::from(f32::NAN.to_bits());
        for (mode, want) in [(ORDINARY | MODE_DX10_CLAMP, 0), (ORDINARY, 0x7fc0_0000)] {
            m.w.mode = mode;
            assert_eq!(one(m, "v_add_f32", &[nan, 0], clamp), want);
        }
    });
}

#[test]
fn halves_overflow_to_the_largest_finite_value_if_asked() {
    everywhere(|m| {
        for (mode, want) in [(ORDINARY, 0x7c00), (ORDINARY | MODE_FP16_OVFL, 0x7bff)] {
            m.w.mode = mode | MODE_DX10_CLAMP;
            assert_eq!(
                one(m, "v_add_f16", &[0x7bff, 0x7bff], Mods::default()),
                want
            );
            assert_eq!(
                one(m, "v_add_f16", &[0x7c00, 0x3c00], Mods::default()),
                0x7c00
            );
        }
    });
}

#[test]
fn mode_is_changed_by_scalar_instructions() {
    everywhere(|m| {
        for (name, imm, want) in [
            ("s_round_mode", 0b0110, 0xf6),
            ("s_denorm_mode", 0b0011, 0x36),
        ] {
            let mut inst = m.inst(name, NULL, &[]);
            inst.imm = imm;
            if name == "s_round_mode" {
                m.w.mode = ORDINARY;
            }
            assert_eq!(m.step(&inst), Flow::MODE);
            assert_eq!(m.w.mode, want, "{name}");
        }
        m.w.mode = ORDINARY | 1;
        if m.target != Target::Gfx1100 {
            (m.w.s[4], m.w.s[5]) = (1.0f32.to_bits(), 1.0e-9f32.to_bits());
            m.ok(&m.inst("s_add_f32", 6, &[4, 5]));
            assert_eq!(m.w.s[6], 0x3f80_0001, "scalar arithmetic follows MODE");
        }
    });
}

#[test]
fn integer_clamp_saturates() {
    let max = u32::MAX;
    let (high, low) = (i32::MAX as u32, i32::MIN as u32);
    let clamp = Mods {
        clamp: true,
        ..Mods::default()
    };
    everywhere(|m| {
        let cases: [(&str, &[u32], u32); 22] = [
            ("v_add_nc_u32", &[max, 2], max),
            ("v_add_nc_u32", &[1, 2], 3),
            ("v_sub_nc_u32", &[1, 2], 0),
            ("v_subrev_nc_u32", &[2, 1], 0),
            ("v_add_nc_i32", &[high, 1], high),
            ("v_sub_nc_i32", &[low, 1], low),
            ("v_add_nc_u16", &[0xffff, 3], 0xffff),
            ("v_sub_nc_u16", &[3, 4], 0),
            ("v_add_nc_i16", &[0x7fff, 1], 0x7fff),
            ("v_sub_nc_i16", &[0x8000, 1], 0x8000),
            ("v_mad_u16", &[0x100, 0x100, 0], 0xffff),
            ("v_mad_i16", &[0xff00, 0x100, 0], 0x8000),
            ("v_mad_u32_u16", &[0xffff, 0xffff, max], max),
            ("v_mad_i32_i16", &[0x7fff, 0x7fff, high], high),
            ("v_mad_u32_u24", &[0xff_ffff, 0xff_ffff, 0], max),
            ("v_mad_i32_i24", &[0x80_0000, 0x7f_ffff, 0], low),
            ("v_sad_u8", &[max, 0, max], max),
            ("v_sad_u32", &[max, 0, 1], max),
            ("v_add_co_u32", &[max, 1], max),
            ("v_sub_co_u32", &[0, 1], 0),
            ("v_dot4_u32_u8", &[max, max, max], max),
            ("v_dot8_u32_u4", &[max, max, max], max),
        ];
        for (name, src, want) in cases {
            let src: Vec<u64> = src.iter().map(|v| u64::from(*v)).collect();
            assert_eq!(one(m, name, &src, clamp) as u32, want, "{name} {src:x?}");
        }
        let signed = Mods { neg: 3, ..clamp };
        let most = [0x8080_8080, 0x8080_8080, u64::from(high)];
        assert_eq!(one(m, "v_dot4_i32_iu8", &most, signed) as u32, high);
        let least = [0x8080_8080, 0x7f7f_7f7f, u64::from(low)];
        assert_eq!(one(m, "v_dot4_i32_iu8", &least, signed) as u32, low);
        let wide = [u64::from(max), u64::from(max), u64::MAX];
        let name = m.spelled("v_mad_u64_u32");
        assert_eq!(one(m, &name, &wide, clamp), u64::MAX);
    });
}

#[test]
fn singles_and_the_integer_implementation_agree_in_the_ordinary_mode() {
    let mut seed = 5u64;
    let mut m = Machine::new(Target::Gfx1201, Speed::detect());
    for _ in 0..2000 {
        let mut next = || {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(99);
            seed >> 32
        };
        let (a, b, c) = (next(), next(), next());
        m.w.mode = ORDINARY | MODE_DX10_CLAMP;
        let plain = one(&mut m, "v_fma_f32", &[a, b, c], Mods::default());
        let rule = Rule::new(Round::Nearest);
        assert_eq!(plain, fma(SINGLE, rule, a, b, c), "{a:x} {b:x} {c:x}");
    }
    assert_eq!(m.target.generation(), Generation::Gfx12);
}
