//! From instruction words to [`Inst`]. Never panics, whatever the words. Fields that no executor here
//! honours (GDS, an address field that an opcode lacks) are refused here, so that nothing is executed
//! as something else.

use super::Target;
use super::absent::FAMILIES;
use super::op::Op;
use super::operand::{LITERAL, NULL, VCC, VGPR, scalar_problem, source_problem};
use super::row::{Format, Row, find};
use super::shape::Ty;

/// Why words are not an instruction.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The leading bits name no encoding family that is modelled.
    #[error("no instruction format begins with these bits")]
    Format,
    /// An encoding family that is not modelled.
    #[error("{family} instructions are not modelled")]
    Family {
        /// Name of the family in the ISA documents.
        family: &'static str,
    },
    /// The format is known, the opcode is not in the table.
    #[error("{format:?} opcode {opcode} is not in the table")]
    Opcode {
        /// The encoding family.
        format: Format,
        /// Opcode number within it.
        opcode: u32,
    },
    /// The code ends inside the instruction.
    #[error("the code ends inside this instruction")]
    Truncated,
    /// An operand that cannot be.
    #[error("{mnemonic} has {what}")]
    Operand {
        /// Mnemonic of the instruction.
        mnemonic: &'static str,
        /// What is wrong.
        what: &'static str,
    },
}

/// Cross-lane source selection of a vector instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dpp {
    None,
    Row16 {
        ctrl: u16,
        fetch_inactive: bool,
        bound_ctrl: bool,
        row_mask: u8,
        bank_mask: u8,
    },
    Row8 {
        select: u32,
        fetch_inactive: bool,
    },
}

/// Input and output modifiers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mods {
    /// Bit k negates source k; on packed instructions its low half.
    pub(crate) neg: u8,
    /// Bit k takes the magnitude of source k; on packed instructions it negates the high half.
    pub(crate) abs: u8,
    /// Bit k reads the high half of source k, bit 3 writes the high half.
    pub(crate) opsel: u8,
    pub(crate) opsel_hi: u8,
    pub(crate) clamp: bool,
    /// 1: times 2, 2: times 4, 3: half.
    pub(crate) omod: u8,
}

/// The Y half of a VOPD instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Half {
    pub(crate) row: &'static Row,
    pub(crate) dst: u16,
    pub(crate) src: [u16; 3],
}

/// One decoded instruction. Operand codes are those of `isa::operand`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inst {
    pub(crate) row: &'static Row,
    /// The encoding found; differs from the row's for long forms.
    pub(crate) format: Format,
    /// Length in dwords.
    pub(crate) dwords: u8,
    pub(crate) dst: u16,
    pub(crate) sdst: u16,
    pub(crate) src: [u16; 3],
    /// Scalar address of memory instructions; NULL when there is none. A scratch instruction without
    /// lane address has NULL in `src[0]`.
    pub(crate) saddr: u16,
    pub(crate) literal: u32,
    pub(crate) mods: Mods,
    pub(crate) dpp: Dpp,
    /// 16-bit immediate, or byte offset.
    pub(crate) imm: i32,
    /// Second offset of two-address LDS instructions; length field of a prefetch.
    pub(crate) imm2: u32,
    /// gfx11: bit 0 GLC, 1 SLC, 2 DLC. gfx12: [1:0] scope, [4:2] temporal hint.
    pub(crate) cache: u8,
    pub(crate) second: Option<Half>,
}

/// Bits `lo..lo+n` of a word.
const fn bits(word: u32, lo: u32, n: u32) -> u32 {
    (word >> lo) & ((1 << n) - 1)
}

const fn code(word: u32, lo: u32, n: u32) -> u16 {
    bits(word, lo, n) as u16
}

const fn vgpr(word: u32, lo: u32) -> u16 {
    VGPR + code(word, lo, 8)
}

/// Decodes the instruction at the start of `words`.
pub(crate) fn decode(target: Target, words: &[u32]) -> Result<Inst, DecodeError> {
    let reader = Reader {
        target,
        words,
        w0: *words.first().ok_or(DecodeError::Truncated)?,
    };
    let w = reader.w0;
    let gfx12 = matches!(target.generation(), super::Generation::Gfx12);
    let inst = match w >> 26 {
        0b00_0000..=0b01_1111 => match bits(w, 25, 6) {
            0x3f => reader.vop1(),
            0x3e => reader.vopc(),
            _ => reader.vop2(),
        },
        0b10_0000..=0b10_1111 => match bits(w, 23, 9) {
            0b1_0111_1101 => reader.sop1(),
            0b1_0111_1110 => reader.sopc(),
            0b1_0111_1111 => reader.sopp(),
            0b1_0110_0000..=0b1_0111_1100 => reader.sopk(),
            _ => reader.sop2(),
        },
        0b11_0010 => reader.vopd(),
        0b11_0011 if bits(w, 24, 2) == 0 => reader.vop3p(),
        0b11_0101 => reader.vop3(),
        0b11_0110 => reader.ds(),
        0b11_0111 if !gfx12 => reader.flat11(),
        0b11_1000 if !gfx12 => reader.mubuf(),
        0b11_1011 if gfx12 => reader.flat12(),
        0b11_1101 if gfx12 => reader.smem12(),
        0b11_1101 => reader.smem11(),
        _ => Err(other_family(gfx12, w)),
    }?;
    check(&inst)?;
    Ok(inst)
}

fn other_family(gfx12: bool, word: u32) -> DecodeError {
    let top = word >> 24;
    let found = FAMILIES.iter().find(|family| {
        let (mask, value) = family.top;
        top & mask == value && family.opcodes[usize::from(gfx12)] > 0
    });
    found.map_or(DecodeError::Format, |found| DecodeError::Family {
        family: found.name,
    })
}

struct Reader<'a> {
    target: Target,
    words: &'a [u32],
    w0: u32,
}

impl Reader<'_> {
    fn word(&self, i: usize) -> Result<u32, DecodeError> {
        self.words.get(i).copied().ok_or(DecodeError::Truncated)
    }

    fn inst(&self, format: Format, opcode: u32, dwords: u8) -> Result<Inst, DecodeError> {
        let row =
            find(self.target, format, opcode).ok_or(DecodeError::Opcode { format, opcode })?;
        Ok(Inst::new(row, format, dwords))
    }

    /// Appends the literal word if a source asks for one.
    fn literal(&self, mut inst: Inst) -> Result<Inst, DecodeError> {
        let second = inst.second.map_or([0; 3], |h| h.src);
        if inst.src.contains(&LITERAL) || second.contains(&LITERAL) {
            inst.literal = self.word(usize::from(inst.dwords))?;
            inst.dwords += 1;
        }
        Ok(inst)
    }

    fn sop1(&self) -> Result<Inst, DecodeError> {
        let w = self.w0;
        let mut i = self.inst(Format::Sop1, bits(w, 8, 8), 1)?;
        i.dst = code(w, 16, 7);
        i.src[0] = code(w, 0, 8);
        i.imm = i32::from(i.src[0]);
        self.literal(i.trim())
    }

    fn sop2(&self) -> Result<Inst, DecodeError> {
        let w = self.w0;
        let mut i = self.inst(Format::Sop2, bits(w, 23, 7), 1)?;
        i.dst = code(w, 16, 7);
        let (a, b) = (code(w, 0, 8), code(w, 8, 8));
        i.src = match i.row.op {
            Op::SFmaakF32 => [a, b, LITERAL],
            Op::SFmamkF32 => [a, LITERAL, b],
            _ => [a, b, 0],
        };
        self.literal(i)
    }

    fn sopc(&self) -> Result<Inst, DecodeError> {
        let w = self.w0;
        let mut i = self.inst(Format::Sopc, bits(w, 16, 7), 1)?;
        i.src = [code(w, 0, 8), code(w, 8, 8), 0];
        self.literal(i)
    }

    fn sopk(&self) -> Result<Inst, DecodeError> {
        let w = self.w0;
        let mut i = self.inst(Format::Sopk, bits(w, 23, 5), 1)?;
        // Compares and waits read the register that others write.
        let register = code(w, 16, 7);
        if i.row.shape.dst == Ty::None {
            i.src[0] = register;
        } else {
            i.dst = register;
        }
        i.imm = i32::from(w as u16 as i16);
        if i.row.op == Op::SSetregImm32B32 {
            i.literal = self.word(1)?;
            i.dwords = 2;
        }
        Ok(i.trim())
    }

    fn sopp(&self) -> Result<Inst, DecodeError> {
        let mut i = self.inst(Format::Sopp, bits(self.w0, 16, 7), 1)?;
        i.imm = i32::from(self.w0 as u16 as i16);
        Ok(i)
    }

    fn smem11(&self) -> Result<Inst, DecodeError> {
        let (w, v) = (self.w0, self.word(1)?);
        let mut i = self.inst(Format::Smem, bits(w, 18, 8), 2)?;
        i.src[0] = code(w, 0, 6) * 2;
        i.dst = code(w, 6, 7);
        i.imm2 = bits(w, 6, 7);
        i.saddr = code(v, 25, 7);
        i.imm = ((bits(v, 0, 21) << 11) as i32) >> 11;
        i.cache = (bits(w, 14, 1) | bits(w, 13, 1) << 2) as u8;
        Ok(i.trim())
    }

    fn smem12(&self) -> Result<Inst, DecodeError> {
        let (w, v) = (self.w0, self.word(1)?);
        let mut i = self.inst(Format::Smem, bits(w, 13, 6), 2)?;
        i.src[0] = code(w, 0, 6) * 2;
        i.dst = code(w, 6, 7);
        i.imm2 = bits(w, 6, 7);
        i.saddr = code(v, 25, 7);
        i.imm = ((bits(v, 0, 24) << 8) as i32) >> 8;
        i.cache = (bits(w, 21, 2) | bits(w, 23, 2) << 2) as u8;
        Ok(i.trim())
    }

    fn vop1(&self) -> Result<Inst, DecodeError> {
        let w = self.w0;
        let mut i = self.inst(Format::Vop1, bits(w, 9, 8), 1)?;
        i.dst = i.vector_or_scalar(code(w, 17, 8));
        i.src[0] = code(w, 0, 9);
        self.literal(self.dpp_short(i)?.trim().split_halves())
    }

    fn vop2(&self) -> Result<Inst, DecodeError> {
        let w = self.w0;
        let mut i = self.inst(Format::Vop2, bits(w, 25, 6), 1)?;
        i.dst = vgpr(w, 17);
        let (a, b) = (code(w, 0, 9), vgpr(w, 9));
        i.src = match i.row.op {
            Op::VFmaakF32 | Op::VFmaakF16 => [a, b, LITERAL],
            Op::VFmamkF32 | Op::VFmamkF16 => [a, LITERAL, b],
            // The mask operand, and the carry out, are VCC in the short form.
            _ => [
                a,
                b,
                if i.row.shape.src[2] == Ty::Mask {
                    VCC
                } else {
                    0
                },
            ],
        };
        i.sdst = VCC;
        self.literal(self.dpp_short(i)?.split_halves())
    }

    fn vopc(&self) -> Result<Inst, DecodeError> {
        let w = self.w0;
        let mut i = self.inst(Format::Vopc, bits(w, 17, 8), 1)?;
        i.dst = VCC;
        i.src = [code(w, 0, 9), vgpr(w, 9), 0];
        self.literal(self.dpp_short(i)?.split_halves())
    }

    /// Replaces a DPP marker in source 0 of a one-word instruction.
    fn dpp_short(&self, mut i: Inst) -> Result<Inst, DecodeError> {
        let marker = i.src[0];
        if !matches!(marker, 233 | 234 | 250) {
            return Ok(i);
        }
        let w = self.word(1)?;
        i.dwords = 2;
        i.src[0] = vgpr(w, 0);
        if marker == 250 {
            i.mods.neg = (bits(w, 20, 1) | bits(w, 22, 1) << 1) as u8;
            i.mods.abs = (bits(w, 21, 1) | bits(w, 23, 1) << 1) as u8;
        }
        i.dpp = Self::dpp_word(marker, w);
        Ok(i)
    }

    fn dpp_word(marker: u16, w: u32) -> Dpp {
        match marker {
            250 => Dpp::Row16 {
                ctrl: code(w, 8, 9),
                fetch_inactive: bits(w, 18, 1) == 1,
                bound_ctrl: bits(w, 19, 1) == 1,
                bank_mask: bits(w, 24, 4) as u8,
                row_mask: bits(w, 28, 4) as u8,
            },
            _ => Dpp::Row8 {
                select: w >> 8,
                fetch_inactive: marker == 234,
            },
        }
    }

    fn vop3(&self) -> Result<Inst, DecodeError> {
        let (w, v) = (self.w0, self.word(1)?);
        let op = bits(w, 16, 10);
        // Carry-in forms of VOP2 and a block of their own have a scalar destination.
        let scalar_out = matches!(op, 0x120..=0x122 | 0x2fc..=0x302);
        let mut i = match op {
            0x000..=0x0ff => self.inst(Format::Vopc, op, 2)?,
            0x2fc..=0x302 => self.inst(Format::Vop3sd, op, 2)?,
            0x100..=0x13f => self.inst(Format::Vop2, op - 0x100, 2)?,
            0x180..=0x1ff => self.inst(Format::Vop1, op - 0x180, 2)?,
            _ => self.inst(Format::Vop3, op, 2)?,
        };
        if only_short(i.row.op) {
            return Err(DecodeError::Opcode {
                format: Format::Vop3,
                opcode: op,
            });
        }
        i.dst = i.vector_or_scalar(code(w, 0, 8));
        i.src = [code(v, 0, 9), code(v, 9, 9), code(v, 18, 9)];
        i.mods.neg = bits(v, 29, 3) as u8;
        i.mods.omod = bits(v, 27, 2) as u8;
        i.mods.clamp = bits(w, 15, 1) == 1;
        if scalar_out {
            i.format = Format::Vop3sd;
            i.sdst = code(w, 8, 7);
        } else {
            i.format = Format::Vop3;
            i.mods.abs = bits(w, 8, 3) as u8;
            i.mods.opsel = bits(w, 11, 4) as u8;
            i.accumulate();
        }
        self.literal(self.dpp_long(i)?.trim())
    }

    fn vop3p(&self) -> Result<Inst, DecodeError> {
        let (w, v) = (self.w0, self.word(1)?);
        let mut i = self.inst(Format::Vop3p, bits(w, 16, 7), 2)?;
        i.dst = vgpr(w, 0);
        i.src = [code(v, 0, 9), code(v, 9, 9), code(v, 18, 9)];
        i.mods = Mods {
            neg: bits(v, 29, 3) as u8,
            abs: bits(w, 8, 3) as u8,
            opsel: bits(w, 11, 3) as u8,
            opsel_hi: (bits(v, 27, 2) | bits(w, 14, 1) << 2) as u8,
            clamp: bits(w, 15, 1) == 1,
            omod: 0,
        };
        self.literal(self.dpp_long(i)?.trim())
    }

    /// Replaces a DPP marker in source 0 of a two-word instruction.
    fn dpp_long(&self, mut i: Inst) -> Result<Inst, DecodeError> {
        let marker = i.src[0];
        if !matches!(marker, 233 | 234 | 250) {
            return Ok(i);
        }
        let w = self.word(2)?;
        i.dwords = 3;
        i.src[0] = vgpr(w, 0);
        i.dpp = Self::dpp_word(marker, w);
        Ok(i)
    }

    fn vopd(&self) -> Result<Inst, DecodeError> {
        let (w, v) = (self.w0, self.word(1)?);
        let mut i = self.inst(Format::Vopd, bits(w, 22, 4), 2)?;
        let opcode = bits(w, 17, 5);
        let format = Format::Vopd;
        let row =
            find(self.target, format, opcode).ok_or(DecodeError::Opcode { format, opcode })?;
        i.dst = vgpr(v, 24);
        let y = (bits(v, 17, 7) << 1) | (bits(v, 24, 1) ^ 1);
        i.src = dual_sources(i.row, code(w, 0, 9), vgpr(w, 9));
        i.second = Some(Half {
            row,
            dst: VGPR + y as u16,
            src: dual_sources(row, code(v, 0, 9), vgpr(v, 9)),
        });
        self.literal(i)
    }

    fn ds(&self) -> Result<Inst, DecodeError> {
        let (w, v) = (self.w0, self.word(1)?);
        let mut i = self.inst(Format::Ds, bits(w, 18, 8), 2)?;
        if bits(w, 17, 1) == 1 {
            return Err(i.bad("the GDS bit; there is no global data share here"));
        }
        i.src = match i.row.op {
            Op::DsStoreAddtidB32 => [vgpr(v, 8), 0, 0],
            _ => [vgpr(v, 0), vgpr(v, 8), vgpr(v, 16)],
        };
        i.dst = vgpr(v, 24);
        match i.row.op {
            Op::DsLoad2(..) | Op::DsStore2(..) | Op::DsSwap2(..) => {
                i.imm = bits(w, 0, 8) as i32;
                i.imm2 = bits(w, 8, 8);
            }
            _ => i.imm = bits(w, 0, 16) as i32,
        }
        Ok(i.trim())
    }

    fn flat11(&self) -> Result<Inst, DecodeError> {
        let (w, v) = (self.w0, self.word(1)?);
        let mut i = self.inst(segment(bits(w, 16, 2))?, bits(w, 18, 7), 2)?;
        i.imm = ((bits(w, 0, 13) << 19) as i32) >> 19;
        i.cache = (bits(w, 14, 1) | bits(w, 15, 1) << 1 | bits(w, 13, 1) << 2) as u8;
        i.saddr = code(v, 16, 7);
        i.dst = vgpr(v, 24);
        i.addresses(vgpr(v, 0), vgpr(v, 8), bits(v, 23, 1) == 1)
    }

    fn flat12(&self) -> Result<Inst, DecodeError> {
        let (w, v, x) = (self.w0, self.word(1)?, self.word(2)?);
        let mut i = self.inst(segment(bits(w, 24, 2))?, bits(w, 14, 8), 3)?;
        i.imm = (x as i32) >> 8;
        i.cache = (bits(v, 18, 2) | bits(v, 20, 3) << 2) as u8;
        i.saddr = code(w, 0, 7);
        i.dst = vgpr(v, 0);
        i.addresses(vgpr(x, 0), vgpr(v, 23), bits(v, 17, 1) == 1)
    }

    fn mubuf(&self) -> Result<Inst, DecodeError> {
        self.word(1)?;
        Ok(self.inst(Format::Mubuf, bits(self.w0, 18, 8), 2)?.trim())
    }
}

/// The SEG field of the FLAT formats.
const fn segment(field: u32) -> Result<Format, DecodeError> {
    match field {
        0 => Ok(Format::Flat),
        1 => Ok(Format::Scratch),
        2 => Ok(Format::Global),
        _ => Err(DecodeError::Format),
    }
}

/// Whether a VOP1 or VOP2 instruction has no long form (LLVM VOP1Instructions, VOP2Instructions).
pub(super) const fn only_short(op: Op) -> bool {
    matches!(
        op,
        Op::VFmaakF32
            | Op::VFmamkF32
            | Op::VFmaakF16
            | Op::VFmamkF16
            | Op::VSwapB32
            | Op::VSwapB16
            | Op::VSwaprelB32
            | Op::VPermlane64B32
            | Op::VReadfirstlaneB32
            | Op::VPkFmacF16
            | Op::VDot2accF32F16
    )
}

fn dual_sources(row: &Row, a: u16, b: u16) -> [u16; 3] {
    match row.op {
        Op::VFmaakF32 => [a, b, LITERAL],
        Op::VFmamkF32 => [a, LITERAL, b],
        Op::VCndmaskB32 => [a, b, VCC],
        Op::VMovB32 => [a, 0, 0],
        _ => [a, b, 0],
    }
}

impl Inst {
    fn new(row: &'static Row, format: Format, dwords: u8) -> Self {
        Self {
            row,
            format,
            dwords,
            dst: NULL,
            sdst: NULL,
            src: [0; 3],
            saddr: NULL,
            literal: 0,
            mods: Mods::default(),
            dpp: Dpp::None,
            imm: 0,
            imm2: 0,
            cache: 0,
            second: None,
        }
    }

    /// An instruction of a row with the first registers as operands and no modifiers.
    pub(crate) fn sample(row: &'static Row) -> Self {
        let scalar = matches!(
            row.format,
            Format::Sop1 | Format::Sop2 | Format::Sopc | Format::Sopk | Format::Sopp | Format::Smem
        );
        let register = |ty: Ty| match ty {
            Ty::None | Ty::Imm16 | Ty::Sgpr | Ty::Mask => 0,
            _ if scalar => 0,
            _ => VGPR,
        };
        let mut inst = Self::new(row, row.format, 1);
        inst.dst = register(row.shape.dst);
        inst.src = row.shape.src.map(register);
        if row.shape.dst == Ty::Sgpr && row.shape.src[0] != Ty::Vgpr {
            inst.src = [0; 3];
        }
        if row.format == Format::Vopd {
            inst.second = Some(Half {
                row,
                dst: VGPR + 1,
                src: inst.src,
            });
        }
        inst
    }

    fn bad(&self, what: &'static str) -> DecodeError {
        DecodeError::Operand {
            mnemonic: self.row.mnemonic,
            what,
        }
    }

    /// Whether the address of a global access comes from a scalar pair plus a 32-bit lane offset.
    pub(crate) fn scalar_address(&self) -> bool {
        self.saddr != NULL
    }

    fn vector_or_scalar(&self, field: u16) -> u16 {
        match self.row.shape.dst {
            Ty::Sgpr | Ty::Mask => field,
            _ => VGPR + field,
        }
    }

    /// Splits the 8-bit register numbers of 16-bit operands in one-word vector instructions: bit 7
    /// selects the high half (LLVM `VGPR_16_Lo128`).
    fn split_halves(mut self) -> Self {
        for (k, ty) in self.row.shape.src.into_iter().enumerate() {
            if ty.is_half() && self.src[k] >= VGPR + 128 {
                self.src[k] -= 128;
                self.mods.opsel |= 1 << k;
            }
        }
        if self.row.shape.dst.is_half() && self.dst >= VGPR + 128 {
            self.dst -= 128;
            self.mods.opsel |= 8;
        }
        self.accumulate();
        self
    }

    /// The accumulator of `v_fmac_f16` is the half that the destination names.
    fn accumulate(&mut self) {
        if self.row.op == Op::VFmacF16 {
            self.mods.opsel = (self.mods.opsel & 0b1011) | (self.mods.opsel >> 1 & 0b100);
        }
    }

    /// Fills the address and data operands of FLAT formats. `lane` is the SVE bit: a scratch
    /// instruction with lane address.
    fn addresses(mut self, vaddr: u16, data: u16, lane: bool) -> Result<Self, DecodeError> {
        self.src = match self.row.op {
            Op::GStoreAddtid => [data, 0, 0],
            _ => [vaddr, data, 0],
        };
        match self.format {
            Format::Scratch if !lane => self.src[0] = NULL,
            Format::Scratch => {}
            _ if lane => return Err(self.bad("the SVE bit, which is for scratch")),
            Format::Flat if self.dwords == 2 && self.imm < 0 => {
                return Err(self.bad("a negative offset, which flat addresses lack"));
            }
            Format::Flat if self.saddr != NULL => {
                return Err(self.bad("a scalar address, which flat addresses lack"));
            }
            _ => {}
        }
        Ok(self.trim())
    }

    /// Clears operand fields that the row does not use, so that they can neither be printed nor read.
    fn trim(mut self) -> Self {
        for (src, ty) in self.src.iter_mut().zip(self.row.shape.src) {
            if matches!(ty, Ty::None | Ty::Imm16) {
                *src = 0;
            }
        }
        if self.row.shape.dst == Ty::None {
            self.dst = NULL;
        }
        self
    }
}

/// Refuses operands that the executor could not honour.
fn check(inst: &Inst) -> Result<(), DecodeError> {
    check_signs(inst)?;
    check_half(inst, inst.row, inst.dst, inst.src)?;
    if let Some(y) = &inst.second {
        check_half(inst, y.row, y.dst, y.src)?;
    }
    let sdst_regs = u32::from(inst.sdst != NULL);
    let fail = |what| inst.bad(what);
    scalar_problem(inst.sdst, sdst_regs).map_or(Ok(()), |p| Err(fail(p)))?;
    match inst.format {
        Format::Global if inst.scalar_address() => {
            scalar_problem(inst.saddr, 2).map_or(Ok(()), |p| Err(fail(p)))
        }
        Format::Smem | Format::Scratch => {
            scalar_problem(inst.saddr, 1).map_or(Ok(()), |p| Err(fail(p)))
        }
        _ => Ok(()),
    }
}

/// Sign modifiers belong to floating-point operands; in packed instructions the fields mean something
/// else.
fn check_signs(inst: &Inst) -> Result<(), DecodeError> {
    let signs = inst.mods.neg | inst.mods.abs;
    let integer =
        |(k, ty): (usize, &Ty)| signs >> k & 1 == 1 && !matches!(ty, Ty::None) && !ty.takes_sign();
    if inst.format != Format::Vop3p && inst.row.shape.src.iter().enumerate().any(integer) {
        return Err(inst.bad("a sign modifier on an operand that is no number with a sign"));
    }
    Ok(())
}

fn check_half(inst: &Inst, row: &Row, dst: u16, src: [u16; 3]) -> Result<(), DecodeError> {
    let fail = |what| {
        Err(DecodeError::Operand {
            mnemonic: row.mnemonic,
            what,
        })
    };
    let shape = &row.shape;
    let dst_regs = shape.dst.regs();
    if dst_regs > 0 {
        let problem = if dst >= VGPR {
            source_problem(dst, dst_regs)
        } else {
            scalar_problem(dst, dst_regs)
        };
        if let Some(p) = problem {
            return fail(p);
        }
    }
    for (k, (&code, ty)) in src.iter().zip(shape.src).enumerate() {
        let regs = match (inst.format, k) {
            // A lane address is 64 bits unless a scalar pair is the base.
            (Format::Global, 0) if row.op != Op::GStoreAddtid => {
                2 - u32::from(inst.scalar_address())
            }
            (Format::Flat, 0) => 2,
            _ => ty.regs(),
        };
        if regs == 0 {
            continue;
        }
        if let Some(p) = source_problem(code, regs) {
            return fail(p);
        }
        if ty == Ty::Vgpr && code < VGPR {
            return fail("a scalar where a vector register is read across lanes");
        }
        if ty == Ty::Sgpr && code >= VGPR {
            return fail("a vector register where a scalar is read");
        }
        if ty == Ty::Mask && code >= 128 {
            return fail("a lane mask that is no scalar register");
        }
    }
    Ok(())
}
