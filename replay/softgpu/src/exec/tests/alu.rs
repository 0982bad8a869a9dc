//! Modifiers, DPP, cross-lane, packed, division, carries, dual issue.

use super::{Machine, dpp, everywhere, lanes, random_row, v};
use crate::exec::context::Fault;
use crate::exec::level::Speed;
use crate::exec::uop::Flow;
use crate::exec::wave::Row;
use crate::isa::operand::{NULL, VCC, VGPR};
use crate::isa::shape::Ty;
use crate::isa::{Dpp, Format, Mods, Target, table};
use std::sync::Arc;

#[test]
fn dpp_moves_lanes_within_rows() {
    // Control, and the lane that lane i of a row of 16 reads; None keeps the old value.
    type From = fn(u32) -> Option<u32>;
    let cases: [(u16, From); 12] = [
        (0b00_01_10_11, |i| Some(i & !3 | (3 - (i & 3)))),
        (0x101, |i| (i + 1 < 16).then_some(i + 1)),
        (0x10f, |i| (i + 15 < 16).then_some(15)),
        (0x112, |i| (i >= 2).then(|| i - 2)),
        (0x123, |i| Some((i + 13) % 16)),
        (0x140, |i| Some(15 - i)),
        (0x141, |i| Some(i & 8 | (7 - (i & 7)))),
        (0x150, |_| Some(0)),
        (0x157, |_| Some(7)),
        (0x161, |i| Some(i ^ 1)),
        (0x168, |i| Some(i ^ 8)),
        (0x16f, |i| Some(i ^ 15)),
    ];
    everywhere(|m| {
        for (ctrl, from) in cases {
            m.w.v[1] = lanes(|i| 100 + i);
            m.w.v[0] = lanes(|i| 900 + i);
            let mut inst = m.inst("v_mov_b32", v(0), &[v(1)]);
            inst.dpp = dpp(ctrl);
            m.ok(&inst);
            let want = lanes(|i| from(i & 15).map_or(900 + i, |s| 100 + (i & 16 | s)));
            assert_eq!(m.w.v[0], want, "{ctrl:#x}");
        }
    });
}

#[test]
fn dpp_respects_exec_masks_and_bounds() {
    everywhere(|m| {
        let start = |m: &mut Machine| {
            m.w.v[1] = lanes(|i| 100 + i);
            m.w.v[0] = lanes(|i| 900 + i);
        };
        let mut inst = m.inst("v_mov_b32", v(0), &[v(1)]);
        // Lanes whose source is inactive keep their value, or read zero with bound_ctrl.
        for (bound, fetch) in [(false, false), (true, false), (false, true)] {
            start(m);
            m.exec(0x0f0f_0f0f);
            inst.dpp = Dpp::Row16 {
                ctrl: 0x164,
                fetch_inactive: fetch,
                bound_ctrl: bound,
                row_mask: 15,
                bank_mask: 15,
            };
            m.ok(&inst);
            let want = lanes(|i| match 0x0f0f_0f0f >> i & 1 {
                0 => 900 + i,
                _ if fetch => 100 + (i ^ 4),
                _ if bound => 0,
                _ => 900 + i,
            });
            assert_eq!(m.w.v[0], want, "bound {bound} fetch {fetch}");
            assert_eq!(m.w.exec(), 0x0f0f_0f0f, "EXEC is restored");
        }
        // Row and bank masks.
        start(m);
        m.exec(u32::MAX);
        inst.dpp = Dpp::Row16 {
            ctrl: 0x161,
            fetch_inactive: false,
            bound_ctrl: true,
            row_mask: 0b10,
            bank_mask: 0b0101,
        };
        m.ok(&inst);
        let want = lanes(|i| {
            let enabled = i >= 16 && matches!(i % 16 / 4, 0 | 2);
            if enabled { 100 + (i ^ 1) } else { 900 + i }
        });
        assert_eq!(m.w.v[0], want);
        // DPP8 reverses groups of eight.
        start(m);
        let select = (0..8).fold(0, |s, k| s | (7 - k) << (3 * k));
        inst.dpp = Dpp::Row8 {
            select,
            fetch_inactive: false,
        };
        m.ok(&inst);
        assert_eq!(m.w.v[0], lanes(|i| 100 + (i & !7 | (7 - (i & 7)))));
        // In place, and in an arithmetic operation.
        m.w.v[2] = lanes(|i| (i as f32).to_bits());
        let mut add = m.inst("v_add_f32", v(2), &[v(2), v(2)]);
        add.dpp = dpp(0x168);
        m.ok(&add);
        assert_eq!(m.w.v[2], lanes(|i| ((i ^ 8) as f32 + i as f32).to_bits()));
    });
}

#[test]
fn modifiers_change_sources_and_results() {
    everywhere(|m| {
        let f = |x: f32| [x.to_bits(); 32];
        let cases = [
            // neg, abs, clamp, a, b, result of v_add_f32.
            (0b01, 0, false, 1.5, 2.0, 0.5),
            (0b10, 0b10, false, 1.5, -2.0, -0.5),
            (0, 0b01, false, -1.5, 2.0, 3.5),
            (0, 0, true, 1.5, 2.0, 1.0),
            (0b11, 0, true, 1.5, 2.0, 0.0),
            (0, 0, true, f32::NAN, 2.0, 0.0),
        ];
        for (neg, abs, clamp, a, b, want) in cases {
            m.w.v[1] = f(a);
            m.w.v[2] = f(b);
            let mut inst = m.inst("v_add_f32", v(0), &[v(1), v(2)]);
            inst.mods = Mods {
                neg,
                abs,
                clamp,
                ..Mods::default()
            };
            m.ok(&inst);
            assert_eq!(
                m.w.v[0],
                f(want),
                "{a} {b} neg {neg} abs {abs} clamp {clamp}"
            );
        }
        // Half selection: high of source 1 into the high half of the destination.
        m.w.v[0] = [0x1111_2222; 32];
        m.w.v[1] = [4; 32];
        m.w.v[2] = [0xf00f_0000; 32];
        let mut inst = m.inst("v_lshrrev_b16", v(0), &[v(1), v(2)]);
        inst.mods.opsel = 0b1010;
        m.ok(&inst);
        assert_eq!(m.w.v[0], [0x0f00_2222; 32]);
        // f64 negation touches the high word only.
        let d = 2.5f64.to_bits();
        m.w.v[2] = [d as u32; 32];
        m.w.v[3] = [(d >> 32) as u32; 32];
        let mut inst = m.inst("v_add_f64", v(4), &[v(2), v(2)]);
        inst.mods.neg = 0b10;
        m.ok(&inst);
        assert_eq!((m.w.v[4][0], m.w.v[5][0]), (0, 0));
        // A selection with a negated source, by VCC.
        m.w.v[1] = f(1.0);
        m.w.v[2] = f(2.0);
        m.w.s[usize::from(VCC)] = 0xffff_0000;
        let mut inst = m.inst("v_cndmask_b32", v(0), &[v(1), v(2), VCC]);
        inst.mods.neg = 0b10;
        m.ok(&inst);
        assert_eq!(
            m.w.v[0],
            lanes(|i| if i < 16 { 1.0f32 } else { -2.0 }.to_bits())
        );
    });
}

#[test]
fn modifiers_without_a_meaning_are_refused() {
    let mut m = Machine::new(Target::Gfx1100, Speed::detect());
    let mut clamp = m.inst("v_and_b32", v(0), &[v(1), v(2)]);
    clamp.mods.clamp = true;
    let mut opsel = m.inst("v_add_f32", v(0), &[v(1), v(2)]);
    opsel.mods.opsel = 1;
    let mut ctrl = m.inst("v_mov_b32", v(0), &[v(1)]);
    ctrl.dpp = dpp(0x130);
    let mut dot = m.inst("v_dot4_i32_iu8", v(0), &[v(1), v(2), v(3)]);
    dot.mods.abs = 1;
    for inst in [clamp, opsel, ctrl, dot] {
        assert_eq!(m.step(&inst), Flow::FAULT);
        assert!(
            matches!(m.fault, Some(Fault::Unsupported(_))),
            "{:?}",
            m.fault
        );
    }
}

#[test]
fn lanes_are_read_and_written_across() {
    everywhere(|m| {
        m.w.v[1] = lanes(|i| 100 + i);
        m.exec(0xffff_ff00);
        m.ok(&m.inst("v_readfirstlane_b32", 8, &[v(1)]));
        assert_eq!(m.w.s[8], 108);
        m.exec(0);
        m.ok(&m.inst("v_readfirstlane_b32", 8, &[v(1)]));
        assert_eq!(m.w.s[8], 100, "no active lane: lane 0");
        m.w.s[9] = 37;
        m.ok(&m.inst("v_readlane_b32", 8, &[v(1), 9]));
        assert_eq!(m.w.s[8], 105, "lane select is modulo 32, EXEC is ignored");
        m.w.s[10] = 7;
        m.ok(&m.inst("v_writelane_b32", v(1), &[10, 9]));
        assert_eq!(m.w.v[1][5], 7);
        m.exec(0x0000_ffff);
        m.w.v[2] = lanes(|i| 200 + i);
        m.w.v[3] = lanes(|i| 300 + i);
        m.ok(&m.inst("v_swap_b32", v(2), &[v(3)]));
        assert_eq!(m.w.v[2], lanes(|i| if i < 16 { 300 + i } else { 200 + i }));
        assert_eq!(m.w.v[3], lanes(|i| if i < 16 { 200 + i } else { 300 + i }));
        m.exec(u32::MAX);
        m.w.s[11] = 0x8421_0f03;
        m.w.v[4] = [1000; 32];
        m.ok(&m.inst("v_mbcnt_lo_u32_b32", v(5), &[11, v(4)]));
        let below = |i: u32| (0x8421_0f03u32 & ((1u64 << i) - 1) as u32).count_ones();
        assert_eq!(m.w.v[5], lanes(|i| 1000 + below(i)));
        m.ok(&m.inst("v_mbcnt_hi_u32_b32", v(5), &[11, v(4)]));
        assert_eq!(m.w.v[5], [1000; 32]);
    });
}

#[test]
fn permlane_picks_from_own_or_other_row() {
    everywhere(|m| {
        // Lane k of a row reads lane 15 - k.
        (m.w.s[8], m.w.s[9]) = (0x89ab_cdef, 0x0123_4567);
        for (name, cross) in [("v_permlane16_b32", 0), ("v_permlanex16_b32", 16)] {
            m.exec(u32::MAX);
            m.w.v[1] = lanes(|i| 100 + i);
            m.w.v[0] = lanes(|i| 900 + i);
            let mut inst = m.inst(name, v(0), &[v(1), 8, 9]);
            m.ok(&inst);
            let from = |i: u32| (i & 16 ^ cross) | (15 - (i & 15));
            assert_eq!(m.w.v[0], lanes(|i| 100 + from(i)));
            // Under a narrowed EXEC a lane does not see inactive ones, unless told to.
            for (opsel, outside) in [(0, 900), (1, 100), (2, 0)] {
                m.w.v[0] = lanes(|i| 900 + i);
                m.exec(1);
                inst.mods.opsel = opsel;
                m.ok(&inst);
                let want = match outside {
                    900 => 900,
                    100 => 100 + from(0),
                    _ => 0,
                };
                assert_eq!(
                    m.w.v[0],
                    lanes(|i| if i == 0 { want } else { 900 + i }),
                    "{opsel}"
                );
            }
        }
    });
}

#[test]
fn lds_crossbar_permutes_and_swizzles() {
    everywhere(|m| {
        m.exec(0xffff_fffe);
        m.w.v[1] = lanes(|i| 4 * ((i + 1) % 32) + 128);
        m.w.v[2] = lanes(|i| 100 + i);
        m.w.v[0] = lanes(|i| 900 + i);
        m.ok(&m.inst("ds_bpermute_b32", v(0), &[v(1), v(2)]));
        // Lane 31 reads lane 0, which is inactive; lane 0 is not written.
        let want = lanes(|i| match i {
            0 => 900,
            31 => 0,
            _ => 101 + i,
        });
        assert_eq!(m.w.v[0], want);
        m.exec(u32::MAX);
        m.ok(&m.inst("ds_permute_b32", v(0), &[v(1), v(2)]));
        assert_eq!(m.w.v[0], lanes(|i| 100 + (i + 31) % 32));
        for (pattern, from) in [
            (0x801b, (|i| i & !3 | (3 - (i & 3))) as fn(u32) -> u32),
            (0x041f, |i| i ^ 1),
            (0x0018, |i| i & 24),
            (0x00e0 | 0x18, |i| i & 24 | 7),
            (0xe000, |i| i.reverse_bits() >> 27),
            (0xc020, |i| (i + 1) & 31),
            (0xc420, |i| i.wrapping_sub(1) & 31),
        ] {
            let mut inst = m.inst("ds_swizzle_b32", v(0), &[v(2)]);
            inst.imm = pattern;
            m.ok(&inst);
            assert_eq!(m.w.v[0], lanes(|i| 100 + from(i)), "{pattern:#x}");
        }
    });
}

#[test]
fn dot_products_match_their_sums() {
    everywhere(|m| {
        let mut seed = 77;
        for round in 0..50 {
            let (a, b, c) = (
                random_row(&mut seed),
                random_row(&mut seed),
                random_row(&mut seed),
            );
            (m.w.v[1], m.w.v[2], m.w.v[3]) = (a, b, c);
            let neg = (round % 4) as u8;
            let field = |x: u32, k: u32, bits: u32, signed: bool| {
                let raw = i64::from(x >> (bits * k) & ((1 << bits) - 1));
                if signed && raw >> (bits - 1) == 1 {
                    raw - (1 << bits)
                } else {
                    raw
                }
            };
            for (name, bits, sa, sb) in [
                ("v_dot4_i32_iu8", 8, neg & 1 == 1, neg & 2 == 2),
                ("v_dot4_u32_u8", 8, false, false),
                ("v_dot8_i32_iu4", 4, neg & 1 == 1, neg & 2 == 2),
                ("v_dot8_u32_u4", 4, false, false),
            ] {
                let mut inst = m.inst(name, v(0), &[v(1), v(2), v(3)]);
                inst.mods.neg = if name.contains("_i") { neg } else { 0 };
                m.ok(&inst);
                let want = lanes(|i| {
                    let i = i as usize;
                    let sum: i64 = (0..32 / bits)
                        .map(|k| field(a[i], k, bits, sa) * field(b[i], k, bits, sb))
                        .sum();
                    (i64::from(c[i] as i32) + sum) as u32
                });
                assert_eq!(m.w.v[0], want, "{name} neg {neg}");
            }
        }
    });
}

#[test]
fn mixed_and_packed_halves() {
    use half::f16;
    let h = |x: f32| u32::from(f16::from_f32(x).to_bits());
    everywhere(|m| {
        m.w.v[1] = [h(1.5) | h(-2.0) << 16; 32];
        m.w.v[2] = [3.0f32.to_bits(); 32];
        m.w.v[3] = [h(0.25) | h(8.0) << 16; 32];
        // Halves of v1 and v3, single in v2.
        for (opsel, neg, abs, want) in [
            (0b000, 0, 0, 1.5 * 3.0 + 0.25),
            (0b001, 0, 0, -2.0 * 3.0 + 0.25),
            (0b101, 0, 0, -2.0 * 3.0 + 8.0),
            (0b001, 0, 1, 2.0 * 3.0 + 0.25),
            (0b001, 0b100, 1, 2.0 * 3.0 - 0.25),
        ] {
            let mut inst = m.inst("v_fma_mix_f32", v(0), &[v(1), v(2), v(3)]);
            inst.mods = Mods {
                neg,
                abs,
                opsel,
                opsel_hi: 0b101,
                ..Mods::default()
            };
            m.ok(&inst);
            assert_eq!(
                m.w.v[0],
                [f32::to_bits(want); 32],
                "{opsel:b} {neg:b} {abs:b}"
            );
        }
        m.w.v[0] = [0xaaaa_bbbb; 32];
        let mut inst = m.inst("v_fma_mixlo_f16", v(0), &[v(1), v(2), v(3)]);
        inst.mods.opsel_hi = 0b101;
        m.ok(&inst);
        assert_eq!(m.w.v[0], [0xaaaa_0000 | h(4.75); 32]);
        let mut inst = m.inst("v_fma_mixhi_f16", v(0), &[v(1), v(2), v(3)]);
        inst.mods.opsel_hi = 0b101;
        m.ok(&inst);
        assert_eq!(m.w.v[0], [h(4.75) << 16 | h(4.75); 32]);
        for (name, low, high) in [
            ("v_pk_add_f16", 1.5 + 0.25, -2.0 + 8.0),
            ("v_pk_mul_f16", 1.5 * 0.25, -2.0 * 8.0),
        ] {
            m.ok(&m.inst(name, v(0), &[v(1), v(3)]));
            assert_eq!(m.w.v[0], [h(low) | h(high) << 16; 32], "{name}");
        }
        let mut inst = m.inst("v_pk_fma_f16", v(0), &[v(1), v(3), v(3)]);
        inst.mods.neg = 0b100;
        m.ok(&inst);
        assert_eq!(
            m.w.v[0],
            [h(1.5 * 0.25 - 0.25) | h(-2.0 * 8.0 + 8.0) << 16; 32]
        );
        m.ok(&m.inst("v_dot2_f32_f16", v(0), &[v(1), v(3), v(2)]));
        assert_eq!(m.w.v[0], [(3.0f32 + 1.5 * 0.25 - 2.0 * 8.0).to_bits(); 32]);
    });
}

/// The sequence that LLVM emits for an IEEE division, which must round correctly.
#[test]
fn the_division_sequence_is_exact() {
    everywhere(|m| {
        let mut seed = 5;
        for _ in 0..300 {
            let edge = |x: &mut u32, k: usize| match k {
                0 => *x = 0,
                1 => *x = 0x7f80_0000,
                2 => *x = 1,
                3 => *x = 0x7f7f_ffff,
                4 => *x = 0x0080_0000,
                5 => *x = 0xff7f_ffff,
                _ => {}
            };
            let (mut a, mut b) = (random_row(&mut seed), random_row(&mut seed));
            for i in 0..32 {
                edge(&mut a[i], (i * 7 + seed as usize) % 23);
                edge(&mut b[i], (i * 5 + seed as usize / 3) % 19);
            }
            (m.w.v[1], m.w.v[2]) = (a, b);
            let fused = |m: &mut Machine, dst, a, b, c, neg: u8| {
                let mut inst = m.inst("v_fma_f32", dst, &[a, b, c]);
                inst.mods.neg = neg;
                m.ok(&inst);
            };
            let mut scale = m.inst("v_div_scale_f32", v(3), &[v(2), v(2), v(1)]);
            scale.sdst = NULL;
            m.ok(&scale);
            m.ok(&m.inst("v_rcp_f32", v(4), &[v(3)]));
            fused(m, v(5), v(3), v(4), 242, 0b001);
            fused(m, v(4), v(5), v(4), v(4), 0);
            let mut scale = m.inst("v_div_scale_f32", v(6), &[v(1), v(2), v(1)]);
            scale.sdst = VCC;
            m.ok(&scale);
            m.ok(&m.inst("v_mul_f32", v(7), &[v(6), v(4)]));
            fused(m, v(8), v(3), v(7), v(6), 0b001);
            fused(m, v(7), v(8), v(4), v(7), 0);
            fused(m, v(8), v(3), v(7), v(6), 0b001);
            m.ok(&m.inst("v_div_fmas_f32", v(8), &[v(8), v(4), v(7)]));
            m.ok(&m.inst("v_div_fixup_f32", v(9), &[v(8), v(2), v(1)]));
            for i in 0..32 {
                let want = f32::from_bits(a[i]) / f32::from_bits(b[i]);
                let got = f32::from_bits(m.w.v[9][i]);
                let same = got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
                // Quotients that are denormal may round twice in this sequence.
                let tiny =
                    want.abs() < f32::MIN_POSITIVE && (got - want).abs() <= f32::from_bits(1);
                assert!(same || tiny, "{:x} / {:x}: {got} {want}", a[i], b[i]);
            }
        }
    });
}

#[test]
fn carries_chain_over_wide_numbers() {
    everywhere(|m| {
        let mut seed = 9;
        let rows: [Row; 4] = std::array::from_fn(|_| random_row(&mut seed));
        m.w.v[1..5].copy_from_slice(&rows);
        let wide =
            |low: usize, i: usize| u64::from(rows[low][i]) | u64::from(rows[low + 1][i]) << 32;
        for (first, second, f) in [
            (
                "v_add_co_u32",
                "v_add_co_ci_u32",
                u64::wrapping_add as fn(u64, u64) -> u64,
            ),
            ("v_sub_co_u32", "v_sub_co_ci_u32", u64::wrapping_sub),
            ("v_subrev_co_u32", "v_subrev_co_ci_u32", |a, b| {
                b.wrapping_sub(a)
            }),
        ] {
            let mut inst = m.inst(first, v(6), &[v(1), v(3)]);
            inst.sdst = VCC;
            m.ok(&inst);
            let mut inst = m.inst(second, v(7), &[v(2), v(4), VCC]);
            inst.sdst = VCC;
            m.ok(&inst);
            for i in 0..32 {
                let got = u64::from(m.w.v[6][i]) | u64::from(m.w.v[7][i]) << 32;
                assert_eq!(got, f(wide(0, i), wide(2, i)), "{first} lane {i}");
            }
        }
    });
}

#[test]
fn dual_issue_reads_before_it_writes() {
    everywhere(|m| {
        let rows = table(m.target.generation());
        let row = |name: &str| rows.iter().find(|r| r.mnemonic == name).unwrap();
        // Each half reads what the other writes: a swap, in all three dependence patterns.
        for (x, y, want) in [
            ((2, [v(3), 0, 0]), (3, [v(2), 0, 0]), [33, 22]),
            ((2, [v(3), 0, 0]), (5, [v(2), 0, 0]), [33, 33]),
            ((4, [v(3), 0, 0]), (3, [v(2), 0, 0]), [22, 22]),
        ] {
            m.w.v[2] = [22; 32];
            m.w.v[3] = [33; 32];
            m.w.v[4] = [44; 32];
            m.w.v[5] = [55; 32];
            let mut inst = m.inst("v_dual_mov_b32", v(x.0), &x.1);
            inst.format = Format::Vopd;
            inst.second = Some(crate::isa::Half {
                row: row("v_dual_mov_b32"),
                dst: v(y.0),
                src: y.1,
            });
            m.ok(&inst);
            assert_eq!([m.w.v[2][0], m.w.v[3][0]], want, "{x:?} {y:?}");
        }
        // An accumulating half reads its own destination too.
        m.w.v[2] = [1.0f32.to_bits(); 32];
        m.w.v[3] = [10.0f32.to_bits(); 32];
        let mut inst = m.inst("v_dual_fmac_f32", v(2), &[v(3), v(3)]);
        inst.format = Format::Vopd;
        inst.second = Some(crate::isa::Half {
            row: row("v_dual_fmac_f32"),
            dst: v(3),
            src: [v(2), v(2), 0],
        });
        m.ok(&inst);
        assert_eq!(m.w.v[2][0], 101.0f32.to_bits());
        assert_eq!(m.w.v[3][0], 11.0f32.to_bits());
    });
}

#[test]
fn every_row_has_a_handler() {
    for target in Target::ALL {
        for row in table(target.generation()) {
            let mut m = Machine::new(target, Speed::detect());
            (m.view, m.lds) = (Arc::default(), vec![0; 256]);
            let scalar = !matches!(
                row.format,
                Format::Vop1
                    | Format::Vop2
                    | Format::Vop3
                    | Format::Vop3sd
                    | Format::Vop3p
                    | Format::Vopc
                    | Format::Vopd
                    | Format::Ds
                    | Format::Global
            );
            let base = if scalar { 0 } else { VGPR };
            let code = |ty: Ty, k: u16| match ty {
                Ty::None | Ty::Imm16 => 0,
                Ty::Sgpr | Ty::Mask => 10 + 4 * k,
                _ => base + 10 + 4 * k,
            };
            let src: Vec<u16> = row
                .shape
                .src
                .iter()
                .zip(0..)
                .map(|(ty, k)| code(*ty, k))
                .collect();
            let dst = code(row.shape.dst, 10);
            let mut inst = m.inst(row.mnemonic, dst, &src);
            inst.row = row;
            inst.format = row.format;
            if row.mnemonic.starts_with("v_s_") {
                inst.src[0] = 10;
            }
            m.step(&inst);
            let missing =
                Fault::Unsupported("this operation is in the table but not in the executor");
            assert_ne!(m.fault, Some(missing), "{target} {}", row.mnemonic);
        }
    }
}
