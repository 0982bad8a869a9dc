//! What `effects` says an instruction reads and writes, against what executing it does: nothing
//! else changes, and nothing else matters. Every row of both tables that touches registers only.

use super::noise::{Noise, instance, rounds};
use crate::exec::level::Speed;
use crate::exec::strict::code::relative;
use crate::exec::strict::effects::{Effects, effects};
use crate::exec::strict::regs::code;
use crate::exec::tests::Machine;
use crate::exec::uop::Flow;
use crate::exec::wave::{SCC_SLOT, Wave};
use crate::isa::operand::{EXEC, SCC, VGPR};
use crate::isa::{Format, Generation, Inst, Target, table};

/// A register's contents, all lanes of a vector register.
fn contents(w: &Wave, number: u16) -> [u32; 32] {
    match code(number) {
        SCC => [w.s[usize::from(SCC_SLOT)]; 32],
        c if c >= VGPR => w.v[usize::from(c - VGPR)],
        c => [w.s[usize::from(c)]; 32],
    }
}

fn check(m: &mut Machine, inst: &Inst, e: &Effects, noise: &mut Noise) -> Result<bool, String> {
    noise.fill(&mut m.w, 0..384);
    let before = m.w.clone();
    if m.step(inst) != Flow::NEXT {
        return Ok(false);
    }
    let after = m.w.clone();
    let exec = EXEC + 256;
    for number in (0..384).filter(|n| *n != exec) {
        let same = contents(&before, number) == contents(&after, number);
        if !same && !e.writes.contains(number) {
            return Err(format!("changes register {number}"));
        }
    }
    // Other registers and the old destinations do not matter, unless they are listed as read.
    let partial = inst.row.shape.dst.is_half()
        || matches!(
            inst.row.mnemonic,
            "v_writelane_b32" | "v_permlane16_b32" | "v_permlanex16_b32"
        )
        || inst.row.mnemonic.contains("cvt_sr_")
        || inst.row.mnemonic.contains("mix");
    m.w = before;
    for number in (0..384).filter(|n| !e.reads.contains(*n)) {
        if !(partial && e.writes.contains(number)) {
            noise.replace(&mut m.w, number);
        }
    }
    m.step(inst);
    for number in (0..384).filter(|n| e.writes.contains(*n)) {
        if contents(&m.w, number) != contents(&after, number) {
            return Err(format!("register {number} depends on something unlisted"));
        }
    }
    if m.w.exec() != after.exec() {
        return Err("EXEC depends on something unlisted".to_owned());
    }
    Ok(true)
}

#[test]
fn declared_effects_are_the_real_ones() {
    for target in [Target::Gfx1151, Target::Gfx1201] {
        let mut checked = 0;
        let mut wrong = Vec::new();
        for row in table(target.generation()) {
            if matches!(
                row.format,
                Format::Smem
                    | Format::Flat
                    | Format::Global
                    | Format::Scratch
                    | Format::Mubuf
                    | Format::Sopp
            ) {
                continue;
            }
            // Registers that M0 names are found when the instruction runs.
            if relative(row.op).is_some() {
                continue;
            }
            let mut m = Machine::new(target, Speed::detect());
            m.lds = vec![0; 64];
            let inst = instance(&m, row);
            let e = effects(target.generation(), &inst);
            let mut noise = Noise(
                0x1234_5678_9abc ^ u64::from(row.opcode(target.generation()).unwrap_or(0)) << 20,
            );
            let mut ran = false;
            for _ in 0..rounds() {
                match check(&mut m, &inst, &e, &mut noise) {
                    Ok(done) => ran |= done,
                    Err(why) => {
                        wrong.push(format!("{target} {:?} {}: {why}", row.format, row.mnemonic));
                        break;
                    }
                }
                m.exec(u32::MAX);
            }
            checked += usize::from(ran);
        }
        assert!(wrong.is_empty(), "{}\n{}", wrong.len(), wrong.join("\n"));
        assert!(checked > 530, "{target}: {checked}");
    }
}

#[test]
fn memory_instructions_name_their_registers() {
    let m = Machine::new(Target::Gfx1100, Speed::Base);
    let mut load = m.inst("global_load_b128", VGPR + 4, &[VGPR + 10]);
    load.format = Format::Global;
    let e = effects(Generation::Gfx11, &load);
    let numbers = |set: &crate::exec::strict::regs::RegSet| {
        (0..384).filter(|n| set.contains(*n)).collect::<Vec<_>>()
    };
    assert_eq!(numbers(&e.reads), [10, 11]);
    assert_eq!(numbers(&e.writes), [4, 5, 6, 7]);
    load.saddr = 8;
    let e = effects(Generation::Gfx11, &load);
    assert_eq!(numbers(&e.reads), [10, 256 + 8, 256 + 9]);
    let mut atomic = m.inst("global_atomic_add_u32", VGPR + 4, &[VGPR + 10, VGPR + 12]);
    let e = effects(Generation::Gfx11, &atomic);
    assert_eq!(numbers(&e.reads), [10, 11, 12]);
    assert_eq!(numbers(&e.writes), [] as [u16; 0]);
    atomic.cache = 1;
    let e = effects(Generation::Gfx11, &atomic);
    assert_eq!(numbers(&e.writes), [4]);
    let scalar = m.inst("s_load_b128", 8, &[4]);
    let e = effects(Generation::Gfx11, &scalar);
    assert_eq!(numbers(&e.reads), [260, 261]);
    assert_eq!(numbers(&e.writes), [264, 265, 266, 267]);
}
