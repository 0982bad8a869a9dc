//! Every operation that AMD's pseudocode can be evaluated for, against that pseudocode:
//! `tests/vectors/*.txt`, made by the script beside them. Both speeds are checked.

use super::context::{Ctx, HITS};
use super::level::Speed;
use super::lower::Lowering;
use super::program::Program;
use super::wave::{SCC_SLOT, Wave};
use crate::isa::operand::{EXEC, NULL, VCC, VGPR};
use crate::isa::shape::Ty;
use crate::isa::{Dpp, Format, Generation, Inst, Mods, Row as TableRow, Target, table};
use crate::memory::{LastHit, View};
use std::sync::atomic::AtomicBool;

/// One line of a vector file.
struct Case {
    sources: [u64; 3],
    old: u64,
    scc: u32,
    vcc: u32,
    /// Result, mask, SCC, EXEC; `None` where the operation writes nothing.
    want: [Option<u64>; 4],
}

fn parse(line: &str) -> (String, Case) {
    let mut words = line.split(' ');
    let name = words.next().unwrap().to_owned();
    let hex = |w: &str| u64::from_str_radix(w, 16).ok();
    let values: Vec<u64> = words
        .by_ref()
        .take_while(|w| *w != "=")
        .map(|w| hex(w).unwrap())
        .collect();
    let want: Vec<Option<u64>> = words.map(hex).collect();
    let case = Case {
        sources: [values[0], values[1], values[2]],
        old: values[3],
        scc: values[4] as u32,
        vcc: values[5] as u32,
        want: want.try_into().unwrap(),
    };
    (name, case)
}

/// A register form of the instruction: sources in v10, v20, v30 or s10, s20, s30, destination v40
/// or s40, masks in s50 and VCC.
fn instruction(row: &'static TableRow, case: &Case) -> Inst {
    let scalar = matches!(
        row.format,
        Format::Sop1 | Format::Sop2 | Format::Sopc | Format::Sopk
    );
    let base = if scalar { 0 } else { VGPR };
    let mut src = [base + 10, base + 20, base + 30];
    for (code, ty) in src.iter_mut().zip(row.shape.src) {
        match ty {
            Ty::Mask => *code = VCC,
            Ty::None | Ty::Imm16 => *code = 0,
            _ => {}
        }
    }
    let scalar_result = matches!(row.shape.dst, Ty::Mask | Ty::Sgpr);
    if matches!(row.shape.dst, Ty::Sgpr) && !scalar {
        src[0] = 10;
    }
    let dst = match row.shape.dst {
        Ty::None => NULL,
        _ if scalar || scalar_result => 40,
        _ => VGPR + 40,
    };
    let imm_at = row.shape.src.iter().position(|t| *t == Ty::Imm16);
    Inst {
        row,
        format: row.format,
        dwords: 1,
        dst,
        sdst: 50,
        src,
        saddr: NULL,
        literal: 0,
        mods: Mods::default(),
        dpp: Dpp::None,
        imm: imm_at.map_or(0, |k| i32::from(case.sources[k] as u16 as i16)),
        imm2: 0,
        cache: 0,
        second: None,
    }
}

/// What the executor makes of a case: result, mask, SCC, EXEC.
fn run(target: Target, speed: Speed, row: &'static TableRow, case: &Case) -> [u64; 4] {
    let inst = instruction(row, case);
    let mut lowering = Lowering::new(target, speed);
    lowering.push(&inst);
    let program = Program::decode(target, 0, &[]).unwrap();
    let mut w = Wave::new();
    let scalar = inst.dst < VGPR && inst.src[0] < VGPR;
    for (k, value) in case.sources.into_iter().enumerate() {
        let at = 10 * (k + 1);
        w.v[at] = [value as u32; 32];
        w.v[at + 1] = [(value >> 32) as u32; 32];
        w.s[at] = value as u32;
        w.s[at + 1] = (value >> 32) as u32;
    }
    w.v[40] = [case.old as u32; 32];
    w.v[41] = [(case.old >> 32) as u32; 32];
    w.s[40] = case.old as u32;
    w.s[41] = (case.old >> 32) as u32;
    w.s[usize::from(SCC_SLOT)] = case.scc;
    w.s[usize::from(VCC)] = case.vcc & 1;
    w.s[usize::from(EXEC)] = 1;
    w.mode = 1 << 8 | u32::from(target.generation() == Generation::Gfx11) << 9;
    let mut x = Ctx {
        program: &program,
        constants: &lowering.constants,
        view: &View::default(),
        stop: &AtomicBool::new(false),
        lds: &mut [],
        hits: &mut [LastHit::default(); HITS],
        fault: None,
        alive: 1,
        signals: 0,
        completed: false,
    };
    for u in &lowering.uops {
        // SAFETY: `speed` was detected, or is the baseline.
        unsafe { (u.run)(&mut w, u, &mut x) };
    }
    assert!(x.fault.is_none(), "{}: {:?}", row.mnemonic, x.fault);
    let wide = row.shape.dst.regs() == 2;
    let (low, high) = if inst.dst >= VGPR && !scalar {
        (w.v[40][0], w.v[41][0])
    } else {
        (w.s[40], w.s[41])
    };
    if inst.dst >= VGPR {
        // Inactive lanes keep what they had.
        assert_eq!(
            w.v[40][1], case.old as u32,
            "{} wrote an inactive lane",
            row.mnemonic
        );
    }
    let result = u64::from(low) | if wide { u64::from(high) << 32 } else { 0 };
    let mask = match row.format {
        Format::Vopc if matches!(row.op, crate::isa::op::Op::VCmpx(..)) => w.exec(),
        Format::Vopc => w.s[40],
        _ => w.s[50],
    };
    [
        result,
        u64::from(mask & 1),
        u64::from(w.s[usize::from(SCC_SLOT)]),
        u64::from(w.exec()),
    ]
}

/// Results that AMD documents to one unit in the last place only.
fn approximate(name: &str) -> bool {
    ["exp", "log", "rcp", "rsq", "sqrt", "sin", "cos"]
        .iter()
        .any(|f| name.contains(&format!("_{f}_")))
}

/// Whether two results are the same value: equal bits, both NaN, or close where only that is
/// documented.
fn same(row: &TableRow, got: u64, want: u64) -> bool {
    if got == want {
        return true;
    }
    match row.shape.dst {
        Ty::F32 | Ty::Sgpr => {
            let (g, w) = (f32::from_bits(got as u32), f32::from_bits(want as u32));
            let near = approximate(row.mnemonic) && (got as u32).abs_diff(want as u32) <= 1;
            // Sine and cosine near a zero: the argument's rounding dominates.
            let small = (row.mnemonic.contains("_sin_") || row.mnemonic.contains("_cos_"))
                && (g - w).abs() < 1e-6;
            (g.is_nan() && w.is_nan()) || near || small
        }
        Ty::F64 => {
            let (g, w) = (f64::from_bits(got), f64::from_bits(want));
            (g.is_nan() && w.is_nan()) || (approximate(row.mnemonic) && got.abs_diff(want) <= 1)
        }
        Ty::F16 => {
            let nan = |v: u64| v & 0x7fff > 0x7c00;
            let near = approximate(row.mnemonic) && (got & 0xffff).abs_diff(want & 0xffff) <= 1;
            got >> 16 == want >> 16 && ((nan(got) && nan(want)) || near)
        }
        _ => false,
    }
}

fn check(target: Target, text: &str) -> usize {
    let generation = target.generation();
    let mut failures = Vec::new();
    let mut names = std::collections::BTreeSet::new();
    for line in text
        .lines()
        .filter(|l| !l.starts_with('#') && !l.is_empty())
    {
        let (name, case) = parse(line);
        for row in table(generation).iter().filter(|r| r.mnemonic == name) {
            for speed in [Speed::Base, Speed::detect()] {
                let got = run(target, speed, row, &case);
                for (k, want) in case.want.iter().enumerate() {
                    let Some(want) = *want else { continue };
                    let good = if k == 0 {
                        same(row, got[0], want)
                    } else {
                        got[k] == want
                    };
                    if !good {
                        let part = ["result", "mask", "scc", "exec"][k];
                        failures.push(format!("{line}\n    {speed:?} {part} {:x}", got[k]));
                    }
                }
            }
        }
        names.insert(name);
    }
    assert!(
        failures.is_empty(),
        "{target}: {} wrong, first:\n{}",
        failures.len(),
        failures[..failures.len().min(60)].join("\n")
    );
    names.len()
}

#[test]
fn gfx11_follows_the_pseudocode() {
    assert_eq!(Target::Gfx1151.generation(), Generation::Gfx11);
    let names = check(
        Target::Gfx1151,
        include_str!("../../tests/vectors/gfx11.txt"),
    );
    assert!(names > 500, "{names}");
}

#[test]
fn gfx12_follows_the_pseudocode() {
    let names = check(
        Target::Gfx1201,
        include_str!("../../tests/vectors/gfx12.txt"),
    );
    assert!(names > 20, "{names}");
}
