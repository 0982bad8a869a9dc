//! Operand types of a table row, written as `"dst=sources"` with one letter per operand.
//! The type decides how many registers an operand spans, how an inline constant or literal is
//! widened, and which input and output modifiers make sense.

/// Type of one operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ty {
    /// No operand.
    None,
    /// 32 bits, integer or untyped.
    B32,
    /// IEEE single.
    F32,
    /// 16 bits, integer.
    B16,
    /// IEEE half.
    F16,
    /// 64 bits; a literal is zero-extended.
    B64,
    /// 64 bits; a literal is sign-extended.
    I64,
    /// IEEE double; a literal is the high half.
    F64,
    /// 3, 4, 8 and 16 registers.
    B96,
    B128,
    B256,
    B512,
    /// A lane mask in a scalar register.
    Mask,
    /// A scalar destination of a vector instruction.
    Sgpr,
    /// A vector register that is read across lanes.
    Vgpr,
    /// 16-bit immediate of the instruction word.
    Imm16,
    /// Two IEEE halves.
    Packed,
    /// bfloat16.
    Bf16,
    /// Two bfloat16.
    PackedBf16,
    /// Half or single as `op_sel_hi` says.
    Mix,
}

impl Ty {
    const fn of(letter: u8) -> Self {
        match letter {
            b'b' => Self::B32,
            b'f' => Self::F32,
            b'w' => Self::B16,
            b'h' => Self::F16,
            b'q' => Self::B64,
            b'j' => Self::I64,
            b'd' => Self::F64,
            b'3' => Self::B96,
            b'4' => Self::B128,
            b'8' => Self::B256,
            b'g' => Self::B512,
            b'm' => Self::Mask,
            b's' => Self::Sgpr,
            b'v' => Self::Vgpr,
            b'k' => Self::Imm16,
            b'p' => Self::Packed,
            b'u' => Self::Bf16,
            b't' => Self::PackedBf16,
            b'x' => Self::Mix,
            _ => Self::None,
        }
    }

    /// Registers that an operand of this type spans.
    pub(crate) const fn regs(self) -> u32 {
        match self {
            Self::None | Self::Imm16 => 0,
            Self::B64 | Self::I64 | Self::F64 => 2,
            Self::B96 => 3,
            Self::B128 => 4,
            Self::B256 => 8,
            Self::B512 => 16,
            _ => 1,
        }
    }

    /// Whether `neg` and `abs` apply.
    pub(crate) const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::F64)
    }

    /// Whether sources of this type have `neg` and `abs`.
    pub(crate) const fn takes_sign(self) -> bool {
        self.is_float()
            || matches!(
                self,
                Self::Bf16 | Self::Packed | Self::PackedBf16 | Self::Mix
            )
    }

    /// Whether the operand is one half of a 32-bit register.
    pub(crate) const fn is_half(self) -> bool {
        matches!(self, Self::F16 | Self::B16 | Self::Bf16)
    }
}

/// Operand types of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) dst: Ty,
    pub(crate) src: [Ty; 3],
}

impl Shape {
    /// Reads `"dst=sources"`; evaluated at compile time.
    pub(crate) const fn parse(text: &str) -> Self {
        let bytes = text.as_bytes();
        let mut shape = Self {
            dst: Ty::None,
            src: [Ty::None; 3],
        };
        let mut i = 0;
        if bytes[0] != b'=' {
            shape.dst = Ty::of(bytes[0]);
            i = 1;
        }
        i += 1;
        let mut n = 0;
        while i < bytes.len() {
            shape.src[n] = Ty::of(bytes[i]);
            n += 1;
            i += 1;
        }
        shape
    }

    /// Number of sources.
    pub(crate) fn sources(&self) -> usize {
        self.src.iter().filter(|t| **t != Ty::None).count()
    }
}
