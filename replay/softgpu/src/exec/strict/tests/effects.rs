//! What `effects` says an instruction reads and writes, against what executing it does: nothing
//! else changes, and nothing else matters. Every row of both tables that touches registers only.

use crate::exec::level::Speed;
use crate::exec::strict::effects::{Effects, effects};
use crate::exec::strict::regs::code;
use crate::exec::tests::Machine;
use crate::exec::uop::Flow;
use crate::exec::wave::{SCC_SLOT, Wave};
use crate::isa::operand::{EXEC, NULL, SCC, VGPR};
use crate::isa::shape::Ty;
use crate::isa::{Format, Generation, Inst, Row, Target, table};

/// A register's contents, all lanes of a vector register.
fn contents(w: &Wave, number: u16) -> [u32; 32] {
    match code(number) {
        SCC => [w.s[usize::from(SCC_SLOT)]; 32],
        c if c >= VGPR => w.v[usize::from(c - VGPR)],
        c => [w.s[usize::from(c)]; 32],
    }
}

struct Noise(u64);

impl Noise {
    fn word(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        // Small and equal values decide comparisons, shifts and selections.
        match self.0 >> 60 {
            0..3 => (self.0 >> 8) as u32 & 3,
            3..5 => 0x3f80_0000 | (self.0 >> 9) as u32 & 0x80ff_ffff,
            _ => (self.0 >> 11) as u32,
        }
    }

    /// Gives a register new contents; EXEC and NULL stay.
    fn replace(&mut self, w: &mut Wave, number: u16) {
        match code(number) {
            SCC => w.s[usize::from(SCC_SLOT)] = self.word() & 1,
            c if c >= VGPR => {
                for lane in &mut w.v[usize::from(c - VGPR)] {
                    *lane = self.word();
                }
            }
            EXEC | NULL => {}
            c => w.s[usize::from(c)] = self.word(),
        }
    }
}

/// An instruction of this row on registers that do not overlap, where its format can name such.
fn instance(m: &Machine, row: &'static Row) -> Inst {
    let vector = matches!(
        row.format,
        Format::Vop1
            | Format::Vop2
            | Format::Vopc
            | Format::Vop3
            | Format::Vop3sd
            | Format::Vop3p
            | Format::Vopd
            | Format::Ds
    );
    let mut inst = m.inst(row.mnemonic, 0, &[0; 3]);
    inst.row = row;
    inst.format = row.format;
    let place = |ty: Ty, k: u16| match ty {
        Ty::None | Ty::Imm16 => 0,
        Ty::Mask | Ty::Sgpr => 20 + 8 * k,
        _ if vector => VGPR + 20 + 8 * k,
        _ => 20 + 8 * k,
    };
    inst.src = std::array::from_fn(|k| place(row.shape.src[k], k as u16));
    inst.dst = match row.shape.dst {
        Ty::None => NULL,
        ty => place(ty, 4),
    };
    inst.sdst = 60;
    inst.imm = 12;
    inst
}

fn random(m: &mut Machine, noise: &mut Noise) {
    for number in 0..384 {
        noise.replace(&mut m.w, number);
    }
}

fn check(m: &mut Machine, inst: &Inst, e: &Effects, noise: &mut Noise) -> Result<bool, String> {
    random(m, noise);
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
    let partial = matches!(inst.row.shape.dst, Ty::F16 | Ty::B16)
        || matches!(
            inst.row.mnemonic,
            "v_writelane_b32" | "v_permlane16_b32" | "v_permlanex16_b32"
        )
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
                Format::Smem | Format::Global | Format::Mubuf | Format::Sopp
            ) {
                continue;
            }
            let mut m = Machine::new(target, Speed::detect());
            m.lds = vec![0; 64];
            let inst = instance(&m, row);
            let e = effects(target.generation(), &inst);
            let mut noise = Noise(0x1234_5678_9abc ^ u64::from(row.opcode) << 20);
            let mut ran = false;
            for _ in 0..24 {
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
        assert!(checked > 550, "{target}: {checked}");
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
