//! What the pseudocode vectors do not hold: registers relative to M0, 8-bit and brain floats, flat,
//! scratch and buffer memory, exchanges in LDS, hardware registers.

use super::{Machine, everywhere, lanes, random_row, v};
use crate::exec::context::Fault;
use crate::exec::flat::{PRIVATE_APERTURE, SHARED_APERTURE};
use crate::exec::moded::ORDINARY;
use crate::exec::uop::Flow;
use crate::exec::wave::Row;
use crate::isa::operand::{M0, NULL};
use crate::isa::{Generation, Target};
use crate::memory::{AddressSpace, Kind, Rights};

fn refused(m: &mut Machine, inst: &crate::isa::Inst) {
    assert_eq!(m.step(inst), Flow::FAULT, "{}", inst.row.mnemonic);
    assert!(
        matches!(m.fault, Some(Fault::Unsupported(_))),
        "{:?}",
        m.fault
    );
}

#[test]
fn relative_registers() {
    everywhere(|m| {
        m.w.vgprs = 16;
        let reset = |m: &mut Machine| {
            for k in 0..16 {
                m.w.v[k] = lanes(|i| 1000 * k as u32 + i);
            }
        };
        // M0, instruction, destination and source named, register written, value's register.
        let two = 2 | 5 << 16;
        for (m0, name, dst, src, to, from) in [
            (3, "v_movrels_b32", 1, 4, 1, 7),
            (3, "v_movreld_b32", 1, 4, 4, 4),
            (3, "v_movrelsd_b32", 1, 4, 4, 7),
            (two, "v_movrelsd_2_b32", 1, 4, 6, 6),
        ] {
            reset(m);
            m.exec(0x0000_ffff);
            m.w.s[usize::from(M0)] = m0;
            m.ok(&m.inst(name, v(dst), &[v(src)]));
            let old = |k: u32, i: u32| 1000 * k + i;
            let want = lanes(|i| if i < 16 { old(from, i) } else { old(to, i) });
            assert_eq!(m.w.v[to as usize], want, "{name}");
        }
        reset(m);
        m.exec(u32::MAX);
        m.w.s[usize::from(M0)] = two;
        m.ok(&m.inst("v_swaprel_b32", v(1), &[v(4)]));
        // Both offsets lead to v6: it stays as it is.
        assert_eq!(m.w.v[6], lanes(|i| 6000 + i));
        m.w.s[usize::from(M0)] = 12;
        let beyond = m.inst("v_movrels_b32", v(1), &[v(4)]);
        refused(m, &beyond);
        // Scalar registers.
        m.w.s[20] = 7;
        m.w.s[21] = 8;
        m.w.s[usize::from(M0)] = 4;
        m.ok(&m.inst("s_movrels_b32", 30, &[16]));
        m.ok(&m.inst("s_movrels_b64", 32, &[16]));
        m.ok(&m.inst("s_movreld_b32", 40, &[20]));
        assert_eq!([m.w.s[30], m.w.s[32], m.w.s[33], m.w.s[44]], [7, 7, 8, 7]);
        m.w.s[usize::from(M0)] = 200;
        let beyond = m.inst("s_movrels_b32", 30, &[16]);
        refused(m, &beyond);
    });
}

#[test]
fn halves_trade_places() {
    everywhere(|m| {
        for (opsel, low, high) in [
            (0, 0x1111_4444, 0x3333_2222),
            (9, 0x3333_2222, 0x1111_4444),
            (1, 0x1111_3333, 0x2222_4444),
        ] {
            m.w.v[1] = [0x1111_2222; 32];
            m.w.v[2] = [0x3333_4444; 32];
            let mut inst = m.inst("v_swap_b16", v(1), &[v(2)]);
            inst.mods.opsel = opsel;
            m.ok(&inst);
            assert_eq!((m.w.v[1][3], m.w.v[2][3]), (low, high), "{opsel}");
        }
    });
}

#[test]
fn lanes_named_by_vectors() {
    let mut m = Machine::new(Target::Gfx1201, crate::exec::level::Speed::detect());
    m.w.v[1] = lanes(|i| 100 + i);
    m.w.v[2] = lanes(|i| i * 7 + 3);
    m.ok(&m.inst("v_permlane16_var_b32", v(0), &[v(1), v(2)]));
    assert_eq!(m.w.v[0], lanes(|i| 100 + (i & 16 | (i * 7 + 3) & 15)));
    m.ok(&m.inst("v_permlanex16_var_b32", v(0), &[v(1), v(2)]));
    assert_eq!(
        m.w.v[0],
        lanes(|i| 100 + ((i & 16) ^ 16 | (i * 7 + 3) & 15))
    );
    m.w.v[0] = [5; 32];
    m.ok(&m.inst("v_permlane64_b32", v(0), &[v(1)]));
    assert_eq!(m.w.v[0], [5; 32], "nothing happens in a wave32");
    m.w.v[2] = lanes(|i| 4 * ((i + 5) % 32));
    m.exec(1);
    m.ok(&m.inst("ds_bpermute_fi_b32", v(0), &[v(2), v(1)]));
    assert_eq!(m.w.v[0], lanes(|i| if i == 0 { 105 } else { 5 }));
}

#[test]
fn eight_bit_floats() {
    let mut m = Machine::new(Target::Gfx1201, crate::exec::level::Speed::detect());
    // Bytes 1.0, 2.0, -0.5, 448.0 of fp8; their places are named with the bits of op_sel swapped.
    m.w.v[1] = [0x7e_b0_40_38; 32];
    for (opsel, want) in [(0, 1.0f32), (2, 2.0), (1, -0.5), (3, 448.0)] {
        let mut inst = m.inst("v_cvt_f32_fp8", v(0), &[v(1)]);
        inst.mods.opsel = opsel;
        m.ok(&inst);
        assert_eq!(m.w.v[0][9], want.to_bits(), "{opsel}");
    }
    for (opsel, want) in [(0, [1.0f32, 2.0]), (1, [-0.5, 448.0])] {
        let mut inst = m.inst("v_cvt_pk_f32_fp8", v(4), &[v(1)]);
        inst.mods.opsel = opsel;
        m.ok(&inst);
        assert_eq!([m.w.v[4][0], m.w.v[5][0]], want.map(f32::to_bits));
    }
    m.w.v[2] = [1.0f32.to_bits(); 32];
    m.w.v[3] = [(-2.0f32).to_bits(); 32];
    for (name, opsel, want) in [
        ("v_cvt_pk_fp8_f32", 0, 0x1111_c038),
        ("v_cvt_pk_fp8_f32", 8, 0xc038_2222),
        ("v_cvt_pk_bf8_f32", 0, 0x1111_c03c),
    ] {
        m.w.v[0] = [0x1111_2222; 32];
        let mut inst = m.inst(name, v(0), &[v(2), v(3)]);
        inst.mods.opsel = opsel;
        m.ok(&inst);
        assert_eq!(m.w.v[0][31], want, "{name} {opsel}");
    }
    for (name, opsel, random, want) in [
        ("v_cvt_sr_fp8_f32", 0, 0, 0x1111_2238),
        ("v_cvt_sr_fp8_f32", 4, 0, 0x1111_3822),
        ("v_cvt_sr_bf8_f32", 12, 0, 0x3c11_2222),
        // 0.75 of a unit in the last place added.
        ("v_cvt_sr_fp8_f32", 0, 0xc000_0000, 0x1111_2239),
    ] {
        m.w.v[0] = [0x1111_2222; 32];
        m.w.v[3] = [random; 32];
        let mut inst = m.inst(name, v(0), &[v(2), v(3)]);
        inst.mods.opsel = opsel;
        m.ok(&inst);
        assert_eq!(m.w.v[0][0], want, "{name} {opsel}");
    }
    m.w.v[3] = [10.0f32.to_bits(); 32];
    m.w.v[2] = [0x3838_3838; 32];
    m.ok(&m.inst("v_dot4_f32_fp8_fp8", v(0), &[v(1), v(2), v(3)]));
    assert_eq!(m.w.v[0][0], 460.5f32.to_bits());
}

#[test]
fn brain_floats() {
    everywhere(|m| {
        // (3, 2) . (4, 0.5) + 1
        m.w.v[1] = [0x4000_4040; 32];
        m.w.v[2] = [0x3f00_4080; 32];
        m.w.v[3] = [1.0f32.to_bits(); 32];
        m.ok(&m.inst("v_dot2_f32_bf16", v(0), &[v(1), v(2), v(3)]));
        assert_eq!(m.w.v[0][1], 14.0f32.to_bits());
        m.w.v[3] = [0x3f80; 32];
        m.w.v[0] = [0x7777_0000; 32];
        m.ok(&m.inst("v_dot2_bf16_bf16", v(0), &[v(1), v(2), v(3)]));
        assert_eq!(m.w.v[0][1], 0x7777_4160);
        if m.target.generation() == Generation::Gfx12 {
            m.lds[..4].copy_from_slice(&0x3f80_4000u32.to_le_bytes());
            m.exec(1);
            m.w.v[1] = [0; 32];
            m.w.v[2] = [0x3f80_4040; 32];
            m.ok(&m.inst("ds_pk_add_bf16", NULL, &[v(1), v(2)]));
            assert_eq!(m.lds[..4], 0x4000_40a0u32.to_le_bytes());
            m.exec(u32::MAX);
        }
    });
}

#[test]
fn four_sums() {
    everywhere(|m| {
        let bytes = |x: u64, k: u32| (x >> (8 * k)) as u8;
        let (a, b) = (0x0102_0304_05ff_0709u64, 0x0010_ff03u32);
        (m.w.v[10], m.w.v[11]) = ([a as u32; 32], [(a >> 32) as u32; 32]);
        m.w.v[20] = [b; 32];
        for k in 0..4 {
            m.w.v[30 + k] = [100 + k as u32; 32];
        }
        m.ok(&m.inst("v_mqsad_u32_u8", v(40), &[v(10), v(20), v(30)]));
        for k in 0..4u32 {
            let want = (0..4).fold(100 + k, |sum, j| {
                let (p, q) = (bytes(a, k + j), bytes(b.into(), j));
                sum + if q == 0 { 0 } else { u32::from(p.abs_diff(q)) }
            });
            assert_eq!(m.w.v[40 + k as usize][5], want, "{k}");
        }
    });
}

#[test]
fn argument_reduction() {
    everywhere(|m| {
        for (x, segment) in [(1.0f64, 0), (1.0e300, 0), (3.5, 1), (1.0e30, 3)] {
            (m.w.v[1], m.w.v[2]) = ([x.to_bits() as u32; 32], [(x.to_bits() >> 32) as u32; 32]);
            m.w.v[3] = [segment; 32];
            m.ok(&m.inst("v_trig_preop_f64", v(4), &[v(1), v(3)]));
            let got = f64::from_bits(u64::from(m.w.v[4][0]) | u64::from(m.w.v[5][0]) << 32);
            if (x, segment) == (1.0, 0) {
                let error = (got - std::f64::consts::FRAC_2_PI).abs();
                assert!(error < 2.0e-16, "{got}");
            }
            // 53 bits from somewhere behind the point.
            assert!((0.0..1.0e40).contains(&got), "{x} {segment}: {got}");
        }
    });
}

/// A machine with one page of global memory that holds its own offsets.
fn with_memory(m: &mut Machine) -> (AddressSpace, u64) {
    let memory = AddressSpace::new();
    let base = memory
        .alloc("page", 4096, 256, Rights::READ_WRITE, Kind::Device)
        .unwrap();
    let words: Vec<u8> = (0..1024u32).flat_map(u32::to_le_bytes).collect();
    memory.write_bytes(base, &words).unwrap();
    m.view = memory.view();
    (memory, base)
}

#[test]
fn flat_addresses_pick_their_memory() {
    everywhere(|m| {
        let (memory, base) = with_memory(m);
        m.w.private.reset(64, 0x7fa5_0001);
        for (k, chunk) in m.lds.chunks_mut(4).enumerate() {
            chunk.copy_from_slice(&(50_000 + k as u32).to_le_bytes());
        }
        // Lane 3k global, 3k + 1 LDS, 3k + 2 scratch, all at offset 4 * lane mod 64.
        let offset = |i: u32| 4 * i % 64;
        let address = |i: u32| match i % 3 {
            0 => base + u64::from(offset(i)),
            1 => u64::from(SHARED_APERTURE) << 32 | u64::from(offset(i)),
            _ => u64::from(PRIVATE_APERTURE) << 32 | u64::from(offset(i)),
        };
        m.w.v[1] = lanes(|i| address(i) as u32);
        m.w.v[2] = lanes(|i| (address(i) >> 32) as u32);
        m.ok(&m.inst("flat_load_b32", v(4), &[v(1)]));
        let want = lanes(|i| match i % 3 {
            0 => offset(i) / 4,
            1 => 50_000 + offset(i) / 4,
            _ => 0x7fa5_0001,
        });
        assert_eq!(m.w.v[4], want);
        m.w.v[5] = lanes(|i| 900 + i);
        m.ok(&m.inst("flat_store_b32", NULL, &[v(1), v(5)]));
        m.ok(&m.inst("flat_load_b32", v(4), &[v(1)]));
        // Lanes 16 apart share an offset, but only in their own kind of memory, where the later wins.
        let want = lanes(|i| {
            let shares = i < 16 && (i + 16) % 3 == i % 3 && i % 3 != 2;
            900 + if shares { i + 16 } else { i }
        });
        assert_eq!(m.w.v[4], want);
        let mut word = [0; 4];
        memory.read_bytes(base, &mut word).unwrap();
        assert_eq!(u32::from_le_bytes(word), 900);
        // Atomics: global and LDS have them, scratch has not.
        m.exec(0b11);
        let mut add = m.inst("flat_atomic_add_u32", v(6), &[v(1), v(5)]);
        add.cache = if m.target.generation() == Generation::Gfx11 {
            1
        } else {
            4
        };
        m.ok(&add);
        assert_eq!([m.w.v[6][0], m.w.v[6][1]], [900, 901]);
        m.ok(&m.inst("flat_load_b32", v(4), &[v(1)]));
        assert_eq!([m.w.v[4][0], m.w.v[4][1]], [1800, 1802]);
        m.exec(0b100);
        refused(m, &add);
        m.exec(u32::MAX);
    });
}

#[test]
fn aperture_registers_are_wide() {
    everywhere(|m| {
        m.ok(&m.inst("s_mov_b64", 8, &[235]));
        m.ok(&m.inst("s_mov_b64", 10, &[238]));
        m.ok(&m.inst("s_mov_b32", 12, &[235]));
        let want = [0, SHARED_APERTURE, u32::MAX, PRIVATE_APERTURE, 0];
        assert_eq!(m.w.s[8..13], want);
    });
}

#[test]
fn scratch_is_private_and_bounded() {
    everywhere(|m| {
        m.w.private.reset(32, 0x7fa5_0001);
        m.w.v[1] = lanes(|i| i % 4);
        m.w.v[2] = lanes(|i| 0x8000_0000 + i);
        m.w.s[8] = 12;
        let mut store = m.inst("scratch_store_b32", NULL, &[v(1), v(2)]);
        store.saddr = 8;
        store.imm = 4;
        m.ok(&store);
        let mut load = m.inst("scratch_load_b32", v(3), &[v(1)]);
        load.saddr = 8;
        load.imm = 4;
        m.ok(&load);
        assert_eq!(m.w.v[3], m.w.v[2]);
        // Without a lane address, by the immediate alone.
        let mut byte = m.inst("scratch_load_i8", v(3), &[NULL]);
        byte.imm = 19;
        m.ok(&byte);
        assert_eq!(
            m.w.v[3],
            lanes(|i| if i % 4 == 0 { 0xffff_ff80 } else { byte_of(i) })
        );
        let mut high = m.inst("scratch_load_d16_hi_b16", v(3), &[NULL]);
        high.imm = 0;
        m.w.v[3] = [0x1111_2222; 32];
        m.ok(&high);
        assert_eq!(
            m.w.v[3], [0x0001_2222; 32],
            "poison, where nothing was written"
        );
        let mut wide = m.inst("scratch_load_b128", v(4), &[NULL]);
        wide.imm = 16;
        m.ok(&wide);
        wide.imm = 20;
        assert_eq!(m.step(&wide), Flow::FAULT);
        let want = Fault::Scratch {
            lane: 0,
            address: 20,
            length: 16,
            size: 32,
        };
        assert_eq!(m.fault, Some(want));
    });
}

/// Byte 19 of a lane whose word was stored at 16 + lane mod 4, sign-extended.
fn byte_of(i: u32) -> u32 {
    let word = (0x8000_0000 + i).to_le_bytes();
    let byte = word[(3 - i % 4) as usize] as i8;
    i32::from(byte) as u32
}

#[test]
fn scalar_buffers() {
    everywhere(|m| {
        let (_memory, base) = with_memory(m);
        m.w.s[8] = base as u32;
        m.w.s[9] = (base >> 32) as u32;
        m.w.s[10] = 64;
        m.w.s[11] = 0;
        let mut load = m.inst("s_buffer_load_b128", 20, &[8]);
        load.imm = 52;
        m.ok(&load);
        assert_eq!(
            m.w.s[20..24],
            [13, 14, 15, 0],
            "past the end of the buffer is zero"
        );
        // With a stride the size counts records.
        m.w.s[9] |= 16 << 16;
        m.ok(&load);
        assert_eq!(m.w.s[20..24], [13, 14, 15, 16]);
    });
}

#[test]
fn by_lane_addresses() {
    everywhere(|m| {
        let (memory, base) = with_memory(m);
        (m.w.s[8], m.w.s[9]) = (base as u32, (base >> 32) as u32);
        let mut load = m.inst("global_load_addtid_b32", v(1), &[]);
        load.saddr = 8;
        load.imm = 8;
        m.ok(&load);
        assert_eq!(m.w.v[1], lanes(|i| 2 + i));
        m.w.v[2] = lanes(|i| 70 + i);
        let mut store = m.inst("global_store_addtid_b32", NULL, &[v(2)]);
        store.saddr = 8;
        m.ok(&store);
        let mut word = [0; 4];
        memory.read_bytes(base + 12, &mut word).unwrap();
        assert_eq!(u32::from_le_bytes(word), 73);
        m.w.s[usize::from(M0)] = 64;
        m.ok(&m.inst("ds_store_addtid_b32", NULL, &[v(2)]));
        m.ok(&m.inst("ds_load_addtid_b32", v(3), &[]));
        assert_eq!(m.w.v[3], m.w.v[2]);
        assert_eq!(m.lds[64..68], 70u32.to_le_bytes());
    });
}

#[test]
fn lds_exchanges() {
    everywhere(|m| {
        let mut seed = 3;
        m.w.v[1] = lanes(|i| 16 * i);
        (m.w.v[2], m.w.v[3]) = (random_row(&mut seed), random_row(&mut seed));
        for (k, byte) in m.lds.iter_mut().enumerate() {
            *byte = k as u8;
        }
        let word = |at: usize| (at as u8 as u32) * 0x0101_0101 + 0x0302_0100;
        let mut swap = m.inst("ds_storexchg_2addr_rtn_b32", v(4), &[v(1), v(2), v(3)]);
        (swap.imm, swap.imm2) = (0, 2);
        m.ok(&swap);
        assert_eq!([m.w.v[4][3], m.w.v[5][3]], [word(48), word(56)]);
        let at = |m: &Machine, k: usize| u32::from_le_bytes(m.lds[k..k + 4].try_into().unwrap());
        assert_eq!([at(m, 48), at(m, 56)], [m.w.v[2][3], m.w.v[3][3]]);
        // Only dwords whose top bit is set are exchanged, without that bit.
        m.w.v[2] = [0x8000_0005; 32];
        m.w.v[3] = [0x0000_0006; 32];
        let before = [at(m, 16), at(m, 20)];
        m.ok(&m.inst("ds_condxchg32_rtn_b64", v(4), &[v(1), v(2)]));
        assert_eq!([m.w.v[4][1], m.w.v[5][1]], before);
        assert_eq!([at(m, 16), at(m, 20)], [5, before[1]]);
    });
}

#[test]
fn wide_compare_and_swap() {
    everywhere(|m| {
        let (memory, base) = with_memory(m);
        m.w.v[1] = lanes(|i| (base as u32) + 8 * i);
        m.w.v[2] = [(base >> 32) as u32; 32];
        // New value 77 where the cell holds (4, 5): lane 2.
        let rows: [Row; 4] = [[77; 32], [0; 32], [4; 32], [5; 32]];
        m.w.v[10..14].copy_from_slice(&rows);
        let mut swap = m.inst("global_atomic_cmpswap_b64", v(20), &[v(1), v(10)]);
        swap.cache = if m.target.generation() == Generation::Gfx11 {
            1
        } else {
            4
        };
        m.ok(&swap);
        assert_eq!(m.w.v[20], lanes(|i| 2 * i));
        let mut bytes = [0; 32];
        memory.read_bytes(base, &mut bytes).unwrap();
        let words: Vec<u32> = bytes
            .as_chunks::<4>()
            .0
            .iter()
            .map(|c| u32::from_le_bytes(*c))
            .collect();
        assert_eq!(words, [0, 1, 2, 3, 77, 0, 6, 7]);
    });
}

#[test]
fn barrier_state() {
    let mut m = Machine::new(Target::Gfx1201, crate::exec::level::Speed::detect());
    let inst = m.inst("s_get_barrier_state", 8, &[193]);
    m.ok(&inst);
    assert_eq!(m.w.s[8], 1 << 4 | 1, "one member, none has signalled");
}

#[test]
fn hardware_registers() {
    // Register, first bit, number of bits.
    let field = |id: i32, first: i32, bits: i32| id | first << 6 | (bits - 1) << 11;
    everywhere(|m| {
        let mut get = m.inst("s_getreg_b32", 8, &[]);
        get.imm = field(1, 4, 4);
        m.w.mode = ORDINARY;
        m.ok(&get);
        assert_eq!(m.w.s[8], 15);
        let mut set = m.inst("s_setreg_imm32_b32", NULL, &[]);
        (set.imm, set.literal) = (field(1, 4, 2), 0);
        assert_eq!(m.step(&set), Flow::MODE);
        assert_eq!(m.w.mode, 0xc0);
        let mut set = m.inst("s_setreg_b32", NULL, &[9]);
        set.imm = field(1, 0, 8);
        m.w.s[9] = 0xf3;
        assert_eq!(m.step(&set), Flow::MODE);
        assert_eq!(m.w.mode, 0xf3);
        set.imm = field(1, 12, 5);
        m.w.s[9] = 1;
        refused(m, &set);
        for clock in [29, 23, 2, 60] {
            get.imm = field(clock, 0, 32);
            refused(m, &get);
        }
    });
}
