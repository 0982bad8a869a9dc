//! Global memory, scalar loads, LDS, atomics, and their faults.

use super::{Machine, everywhere, lanes, random_row, v};
use crate::exec::context::Fault;
use crate::exec::uop::Flow;
use crate::isa::Target;
use crate::isa::operand::NULL;
use crate::memory::{AddressSpace, Kind, Rights};

/// A machine with one buffer of `len` bytes, filled with its offsets' low bytes.
fn with_buffer(m: &mut Machine, len: u64) -> (AddressSpace, u64) {
    let memory = AddressSpace::new();
    let base = memory
        .alloc("buffer", len, 1, Rights::READ_WRITE, Kind::Device)
        .unwrap();
    let bytes: Vec<u8> = (0..len).map(|i| (i * 7 + i / 256) as u8).collect();
    memory.write_bytes(base, &bytes).unwrap();
    m.view = memory.view();
    (memory, base)
}

fn dword(bytes: &[u8]) -> u32 {
    let mut word = [0; 4];
    word[..bytes.len().min(4)].copy_from_slice(&bytes[..bytes.len().min(4)]);
    u32::from_le_bytes(word)
}

/// What a load of a name brings from memory `b`, given the old register.
fn loaded(name: &str, b: &[u8], old: u32) -> Vec<u32> {
    let half = u32::from(u16::from_le_bytes([b[0], b[1]]));
    let high = |x: u32| vec![old & 0xffff | x << 16];
    let low = |x: u32| vec![old & 0xffff_0000 | x & 0xffff];
    let sbyte = i32::from(b[0] as i8) as u32;
    match name {
        "load_u8" => vec![b[0].into()],
        "load_i8" => vec![sbyte],
        "load_u16" => vec![half],
        "load_i16" => vec![i32::from(half as i16) as u32],
        "load_d16_u8" | "load_u8_d16" => low(b[0].into()),
        "load_d16_i8" | "load_i8_d16" => low(sbyte),
        "load_d16_b16" | "load_u16_d16" => low(half),
        "load_d16_hi_u8" | "load_u8_d16_hi" => high(b[0].into()),
        "load_d16_hi_i8" | "load_i8_d16_hi" => high(sbyte),
        "load_d16_hi_b16" | "load_u16_d16_hi" => high(half),
        _ => {
            let bits: usize = name.trim_start_matches("load_b").parse().unwrap();
            b[..bits / 8].chunks(4).map(dword).collect()
        }
    }
}

const GLOBAL_LOADS: [&str; 14] = [
    "load_u8",
    "load_i8",
    "load_u16",
    "load_i16",
    "load_b32",
    "load_b64",
    "load_b96",
    "load_b128",
    "load_d16_u8",
    "load_d16_i8",
    "load_d16_b16",
    "load_d16_hi_u8",
    "load_d16_hi_i8",
    "load_d16_hi_b16",
];

#[test]
fn global_loads_bring_every_width_from_every_layout() {
    everywhere(|m| {
        let (memory, base) = with_buffer(m, 8192);
        let mut bytes = vec![0; 8192];
        memory.read_bytes(base, &mut bytes).unwrap();
        for name in GLOBAL_LOADS {
            let width = loaded(name, &[0; 16], 0).len();
            let size = match name {
                n if n.ends_with('8') && !n.ends_with("128") => 1,
                n if n.ends_with("16") => 2,
                _ => 4 * width as u32,
            };
            // Consecutive, strided and unaligned, uniform, backwards; full and partial EXEC.
            let layouts: [&dyn Fn(u32) -> u32; 4] =
                [&|i| 64 + i * size, &|i| 3 + i * 67, &|_| 129, &|i| {
                    4000 - i * size
                }];
            for (k, layout) in layouts.iter().enumerate() {
                for exec in [u32::MAX, 0x8001_0ff0] {
                    for by_scalar in [false, true] {
                        m.exec(exec);
                        let offset = 16;
                        for r in 0..4 {
                            m.w.v[40 + r] = [0xa1b2_c3d4; 32];
                        }
                        let mut inst = m.inst(&format!("global_{name}"), v(40), &[v(10)]);
                        inst.imm = offset;
                        if by_scalar {
                            m.w.v[10] = lanes(layout);
                            inst.saddr = 20;
                            m.w.s[20] = base as u32;
                            m.w.s[21] = (base >> 32) as u32;
                        } else {
                            m.w.v[10] = lanes(|i| (base + u64::from(layout(i))) as u32);
                            m.w.v[11] = lanes(|i| ((base + u64::from(layout(i))) >> 32) as u32);
                        }
                        m.ok(&inst);
                        for i in 0..32u32 {
                            let at = (layout(i) + offset as u32) as usize;
                            let want = loaded(name, &bytes[at..], 0xa1b2_c3d4);
                            for (r, want) in want.into_iter().enumerate() {
                                let active = exec >> i & 1 == 1;
                                let want = if active { want } else { 0xa1b2_c3d4 };
                                let got = m.w.v[40 + r][i as usize];
                                assert_eq!(got, want, "{name} layout {k} lane {i} register {r}");
                            }
                        }
                    }
                }
            }
        }
    });
}

#[test]
fn global_stores_write_every_width() {
    everywhere(|m| {
        for (name, size, shift) in [
            ("store_b8", 1, 0),
            ("store_b16", 2, 0),
            ("store_b32", 4, 0),
            ("store_b64", 8, 0),
            ("store_b96", 12, 0),
            ("store_b128", 16, 0),
            ("store_d16_hi_b8", 1, 2),
            ("store_d16_hi_b16", 2, 2),
        ] {
            for step in [size, 40] {
                for exec in [u32::MAX, 0x0000_fff1] {
                    let (memory, base) = with_buffer(m, 2048);
                    let mut want = vec![0; 2048];
                    memory.read_bytes(base, &mut want).unwrap();
                    let mut seed = 31;
                    for r in 0..4 {
                        m.w.v[30 + r] = random_row(&mut seed);
                    }
                    m.exec(exec);
                    m.w.v[10] = lanes(|i| i * step + 8);
                    let mut inst = m.inst(&format!("global_{name}"), NULL, &[v(10), v(30)]);
                    inst.saddr = 20;
                    inst.imm = -4;
                    m.w.s[20] = base as u32;
                    m.w.s[21] = (base >> 32) as u32;
                    m.ok(&inst);
                    for i in (0..32usize).filter(|i| exec >> i & 1 == 1) {
                        let data: Vec<u8> = (0..4)
                            .flat_map(|r| m.w.v[30 + r][i].to_le_bytes())
                            .collect();
                        let at = i * step as usize + 4;
                        want[at..at + size as usize]
                            .copy_from_slice(&data[shift..shift + size as usize]);
                    }
                    let mut got = vec![0; 2048];
                    memory.read_bytes(base, &mut got).unwrap();
                    assert!(got == want, "{name} step {step} exec {exec:x}");
                }
            }
        }
    });
}

#[test]
fn scalar_loads_fill_consecutive_registers() {
    everywhere(|m| {
        let (memory, base) = with_buffer(m, 256);
        let mut names = vec![
            ("s_load_b32", 1),
            ("s_load_b64", 2),
            ("s_load_b128", 4),
            ("s_load_b256", 8),
            ("s_load_b512", 16),
        ];
        if m.target == Target::Gfx1201 {
            names.push(("s_load_b96", 3));
        }
        for (name, n) in names {
            m.w.s[8] = base as u32;
            m.w.s[9] = (base >> 32) as u32;
            m.w.s[12] = 32;
            let mut inst = m.inst(name, 40, &[8]);
            inst.imm = 8;
            inst.saddr = 12;
            m.w.s[40 + n] = 0x5a5a;
            m.ok(&inst);
            for k in 0..n {
                assert_eq!(
                    m.w.s[40 + k],
                    memory.read_u32(base + 40 + 4 * k as u64).unwrap()
                );
            }
            assert_eq!(m.w.s[40 + n], 0x5a5a, "{name} wrote too much");
        }
        if m.target == Target::Gfx1201 {
            for (name, want) in [
                ("s_load_u8", 0x15),
                ("s_load_i8", 0x15),
                ("s_load_u16", 0x150e),
                ("s_load_i16", 0x150e),
            ] {
                let mut inst = m.inst(name, 40, &[8]);
                inst.imm = if name.ends_with('8') { 3 } else { 2 };
                m.ok(&inst);
                assert_eq!(m.w.s[40], want, "{name}");
            }
        }
    });
}

#[test]
fn lds_loads_and_stores_move_every_width() {
    everywhere(|m| {
        let names = [
            "load_u8",
            "load_i8",
            "load_u16",
            "load_i16",
            "load_b32",
            "load_b64",
            "load_b96",
            "load_b128",
            "load_u8_d16",
            "load_i8_d16",
            "load_u16_d16",
            "load_u8_d16_hi",
            "load_i8_d16_hi",
            "load_u16_d16_hi",
        ];
        m.lds = (0..1024u32).map(|i| (i * 7 + i / 256) as u8).collect();
        for name in names {
            for exec in [u32::MAX, 0x7000_0003] {
                m.exec(exec);
                m.w.v[10] = lanes(|i| i * 20);
                for r in 0..4 {
                    m.w.v[40 + r] = [0xa1b2_c3d4; 32];
                }
                let mut inst = m.inst(&format!("ds_{name}"), v(40), &[v(10)]);
                inst.imm = 12;
                m.ok(&inst);
                for i in 0..32 {
                    let want = loaded(name, &m.lds[i * 20 + 12..], 0xa1b2_c3d4);
                    for (r, want) in want.into_iter().enumerate() {
                        let want = if exec >> i & 1 == 1 {
                            want
                        } else {
                            0xa1b2_c3d4
                        };
                        assert_eq!(m.w.v[40 + r][i], want, "{name} lane {i} register {r}");
                    }
                }
            }
        }
        for (name, size, shift) in [
            ("store_b8", 1, 0),
            ("store_b16", 2, 0),
            ("store_b32", 4, 0),
            ("store_b64", 8, 0),
            ("store_b96", 12, 0),
            ("store_b128", 16, 0),
            ("store_b8_d16_hi", 1, 2),
            ("store_b16_d16_hi", 2, 2),
        ] {
            let mut seed = 3;
            for r in 0..4 {
                m.w.v[30 + r] = random_row(&mut seed);
            }
            m.exec(0xffff_00ff);
            let mut want = m.lds.clone();
            let mut inst = m.inst(&format!("ds_{name}"), NULL, &[v(10), v(30)]);
            inst.imm = 4;
            m.ok(&inst);
            for i in (0..32).filter(|i| 0xffff_00ffu32 >> i & 1 == 1) {
                let data: Vec<u8> = (0..4)
                    .flat_map(|r| m.w.v[30 + r][i].to_le_bytes())
                    .collect();
                want[i * 20 + 4..][..size].copy_from_slice(&data[shift..shift + size]);
            }
            assert!(m.lds == want, "{name}");
        }
    });
}

#[test]
fn lds_two_address_forms_scale_their_offsets() {
    everywhere(|m| {
        for (suffix, size, stride) in [
            ("b32", 4, 1),
            ("b64", 8, 1),
            ("stride64_b32", 4, 64),
            ("stride64_b64", 8, 64),
        ] {
            m.lds = (0..8192u32).map(|i| (i * 11 + i / 256) as u8).collect();
            m.exec(u32::MAX);
            m.w.v[10] = lanes(|i| i * 8);
            let name = |what: &str| match suffix.strip_prefix("stride64_") {
                Some(width) => format!("ds_{what}_2addr_stride64_{width}"),
                None => format!("ds_{what}_2addr_{suffix}"),
            };
            let mut inst = m.inst(&name("load"), v(40), &[v(10)]);
            (inst.imm, inst.imm2) = (3, 9);
            m.ok(&inst);
            let words = size / 4;
            for i in 0..32 {
                for (half, offset) in [3, 9].into_iter().enumerate() {
                    for r in 0..words {
                        let at = i * 8 + offset * size * stride + 4 * r;
                        let got = m.w.v[40 + half * words + r][i];
                        assert_eq!(got, dword(&m.lds[at..at + 4]), "{suffix} lane {i}");
                    }
                }
            }
            let mut want = m.lds.clone();
            let mut seed = 13;
            for r in 0..4 {
                m.w.v[20 + r] = random_row(&mut seed);
            }
            m.exec(1 << 5);
            let mut inst = m.inst(&name("store"), NULL, &[v(10), v(20), v(22)]);
            (inst.imm, inst.imm2) = (3, 9);
            m.ok(&inst);
            for (data, offset) in [(20, 3), (22, 9)] {
                for r in 0..words {
                    let at = 5 * 8 + offset * size * stride + 4 * r;
                    want[at..at + 4].copy_from_slice(&m.w.v[data + r][5].to_le_bytes());
                }
            }
            assert!(m.lds == want, "{suffix}");
        }
    });
}

/// What a read-modify-write leaves, for 32 or 64 bits.
fn next(name: &str, bits: u32, old: u64, data: u64, compare: u64) -> u64 {
    let mask = if bits == 32 {
        u64::from(u32::MAX)
    } else {
        u64::MAX
    };
    let signed = |x: u64| {
        if bits == 32 {
            i64::from(x as u32 as i32)
        } else {
            x as i64
        }
    };
    mask & match name {
        "add" => old.wrapping_add(data),
        "sub" => old.wrapping_sub(data),
        "rsub" => data.wrapping_sub(old),
        "inc" => {
            if old >= data {
                0
            } else {
                old + 1
            }
        }
        "dec" => {
            if old == 0 || old > data {
                data
            } else {
                old - 1
            }
        }
        "min_i" => {
            if signed(data) < signed(old) {
                data
            } else {
                old
            }
        }
        "max_i" => {
            if signed(data) > signed(old) {
                data
            } else {
                old
            }
        }
        "min_u" => old.min(data),
        "max_u" => old.max(data),
        "and" => old & data,
        "or" => old | data,
        "xor" => old ^ data,
        "swap" => data,
        _ => {
            if old == compare {
                data
            } else {
                old
            }
        }
    }
}

const ATOMICS: [(&str, &str); 14] = [
    ("add", "add_u"),
    ("sub", "sub_u"),
    ("rsub", "rsub_u"),
    ("inc", "inc_u"),
    ("dec", "dec_u"),
    ("min_i", "min_i"),
    ("max_i", "max_i"),
    ("min_u", "min_u"),
    ("max_u", "max_u"),
    ("and", "and_b"),
    ("or", "or_b"),
    ("xor", "xor_b"),
    ("swap", "swap_b"),
    ("cmp", "cmpswap_b"),
];

#[test]
fn global_atomics_update_lane_by_lane() {
    everywhere(|m| {
        for (function, stem) in ATOMICS.into_iter().filter(|(f, _)| *f != "rsub") {
            for bits in [32u32, 64] {
                for returns in [false, true] {
                    let (memory, base) = with_buffer(m, 256);
                    let size = u64::from(bits / 8);
                    let words = (bits / 32) as usize;
                    let mut seed = 41;
                    for r in 0..4 {
                        m.w.v[30 + r] = random_row(&mut seed);
                    }
                    // Small values, so that inc and dec wrap and compares hit; four cells.
                    for i in 0..32 {
                        m.w.v[30][i] %= 5;
                        if words == 2 {
                            m.w.v[31][i] = 0;
                        }
                        m.w.v[30 + words][i] %= 5;
                        if words == 2 {
                            m.w.v[33][i] = 0;
                        }
                    }
                    let mut cells = [3u64, 0, 2, 1];
                    for (k, cell) in cells.iter().enumerate() {
                        let at = base + size * k as u64;
                        memory
                            .write_bytes(at, &cell.to_le_bytes()[..size as usize])
                            .unwrap();
                    }
                    m.exec(0xfff0_ffff);
                    m.w.v[40] = [0x77; 32];
                    m.w.v[41] = [0x77; 32];
                    m.w.v[10] = lanes(|i| (i % 4) * size as u32);
                    (m.w.s[20], m.w.s[21]) = (base as u32, (base >> 32) as u32);
                    let mut inst = m.inst(
                        &format!("global_atomic_{stem}{bits}"),
                        v(40),
                        &[v(10), v(30)],
                    );
                    inst.saddr = 20;
                    inst.cache = if m.target == Target::Gfx1201 {
                        u8::from(returns) << 2
                    } else {
                        u8::from(returns)
                    };
                    m.ok(&inst);
                    for i in (0..32usize).filter(|i| 0xfff0_ffffu32 >> i & 1 == 1) {
                        let get = |r: usize| {
                            let high = if words == 2 { m.w.v[r + 1][i] } else { 0 };
                            u64::from(m.w.v[r][i]) | u64::from(high) << 32
                        };
                        let old = cells[i % 4];
                        cells[i % 4] = next(function, bits, old, get(30), get(30 + words));
                        let want = if returns { old as u32 } else { 0x77 };
                        assert_eq!(m.w.v[40][i], want, "{stem}{bits} lane {i}");
                    }
                    for (k, cell) in cells.iter().enumerate() {
                        let mut got = [0; 8];
                        memory
                            .read_bytes(base + size * k as u64, &mut got[..size as usize])
                            .unwrap();
                        assert_eq!(u64::from_le_bytes(got), *cell, "{stem}{bits} cell {k}");
                    }
                }
            }
        }
    });
}

#[test]
fn lds_atomics_update_lane_by_lane() {
    everywhere(|m| {
        for (function, stem) in ATOMICS {
            for bits in [32u32, 64] {
                for returns in [false, true] {
                    let (base, kind) = stem.rsplit_once('_').unwrap();
                    let base = match base {
                        "swap" => "storexchg",
                        "cmpswap" => "cmpstore",
                        other => other,
                    };
                    if base == "storexchg" && !returns {
                        continue;
                    }
                    let rtn = if returns { "_rtn" } else { "" };
                    let words = (bits / 32) as usize;
                    let size = 4 * words;
                    m.lds = vec![0; 64];
                    let mut cells = [3u64, 0, 2, 1];
                    for (k, cell) in cells.iter().enumerate() {
                        m.lds[k * size..][..size].copy_from_slice(&cell.to_le_bytes()[..size]);
                    }
                    let mut seed = 43;
                    m.w.v[30] = random_row(&mut seed).map(|x| x % 5);
                    m.w.v[32] = random_row(&mut seed).map(|x| x % 5);
                    m.w.v[31] = [0; 32];
                    m.w.v[33] = [0; 32];
                    m.w.v[10] = lanes(|i| (i % 4) * size as u32);
                    m.exec(0x0fff_ffff);
                    let name = format!("ds_{base}{rtn}_{kind}{bits}");
                    m.ok(&m.inst(&name, v(40), &[v(10), v(30), v(32)]));
                    for i in 0..28 {
                        let old = cells[i % 4];
                        let (data, compare) = (m.w.v[30][i].into(), m.w.v[32][i].into());
                        cells[i % 4] = next(function, bits, old, data, compare);
                        if returns {
                            assert_eq!(m.w.v[40][i], old as u32, "{name} lane {i}");
                        }
                    }
                    for (k, cell) in cells.iter().enumerate() {
                        assert_eq!(
                            m.lds[k * size..][..size],
                            cell.to_le_bytes()[..size],
                            "{name}"
                        );
                    }
                }
            }
        }
        m.lds = 1.5f32.to_le_bytes().to_vec();
        m.exec(0b111);
        m.w.v[10] = [0; 32];
        m.w.v[30] = [2.0f32.to_bits(); 32];
        m.ok(&m.inst("ds_add_f32", NULL, &[v(10), v(30)]));
        assert_eq!(m.lds, 7.5f32.to_le_bytes());
    });
}

#[test]
fn float_atomics_add_and_compare() {
    everywhere(|m| {
        let (memory, base) = with_buffer(m, 64);
        let extreme = if m.target == Target::Gfx1201 {
            "num_f32"
        } else {
            "f32"
        };
        for (name, want) in [
            ("global_atomic_add_f32".to_owned(), 1.0 + 3.0 * 2.5),
            (format!("global_atomic_min_{extreme}"), 1.0),
            (format!("global_atomic_max_{extreme}"), 2.5),
        ] {
            memory.write_bytes(base, &1.0f32.to_le_bytes()).unwrap();
            m.exec(0b1011);
            m.w.v[10] = [0; 32];
            m.w.v[30] = [2.5f32.to_bits(); 32];
            (m.w.s[20], m.w.s[21]) = (base as u32, (base >> 32) as u32);
            let mut inst = m.inst(&name, v(40), &[v(10), v(30)]);
            inst.saddr = 20;
            m.ok(&inst);
            assert_eq!(memory.read_u32(base).unwrap(), f32::to_bits(want), "{name}");
        }
    });
}

#[test]
fn faults_name_the_first_bad_lane() {
    everywhere(|m| {
        let (_memory, base) = with_buffer(m, 256);
        m.exec(u32::MAX);
        (m.w.s[20], m.w.s[21]) = (base as u32, (base >> 32) as u32);
        // Lanes 0..=15 fit; 16 does not.
        m.w.v[10] = lanes(|i| i * 16);
        for (name, dst, src) in [
            ("global_load_b128", v(40), vec![v(10)]),
            ("global_store_b128", NULL, vec![v(10), v(30)]),
            ("global_atomic_add_u32", v(40), vec![v(10), v(30)]),
        ] {
            let mut inst = m.inst(name, dst, &src);
            inst.saddr = 20;
            assert_eq!(m.step(&inst), Flow::FAULT, "{name}");
            let Some(Fault::Memory { lane, address, .. }) = m.fault.clone() else {
                panic!("{:?}", m.fault);
            };
            assert_eq!((lane, address), (16, base + 256), "{name}");
        }
        m.lds = vec![0; 64];
        m.w.v[10] = lanes(|i| 4 * i);
        for (name, dst, src) in [
            ("ds_load_b32", v(40), vec![v(10)]),
            ("ds_store_b32", NULL, vec![v(10), v(30)]),
            ("ds_add_u32", NULL, vec![v(10), v(30)]),
        ] {
            assert_eq!(m.step(&m.inst(name, dst, &src)), Flow::FAULT);
            let want = Fault::Lds {
                lane: 16,
                address: 64,
                length: 4,
            };
            assert_eq!(m.fault, Some(want), "{name}");
        }
        // The last byte of an allocation is reachable, the next is not.
        m.exec(1);
        m.w.v[10] = [255; 32];
        let mut inst = m.inst("global_load_u8", v(40), &[v(10)]);
        inst.saddr = 20;
        m.ok(&inst);
        inst.imm = 1;
        assert_eq!(m.step(&inst), Flow::FAULT);
    });
}
