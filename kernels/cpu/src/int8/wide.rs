//! Sixteen rows at a time: what the packed loops ask of an instruction set, and the portable answer.

/// Operations on sixteen 32-bit lanes, one row each. A lane of codes is four bytes, one per column.
///
/// Implementors are tokens: a value exists only where the machine has the instructions.
pub(crate) trait Wide: Copy {
    /// Sixteen lanes of integers or of four bytes.
    type I: Copy;
    /// Sixteen lanes of f32.
    type F: Copy;
    /// What [`Wide::dot_signed`] adds per unit of activation code, to be taken off by the caller.
    const SIGNED_BIAS: i32;

    fn load(self, bytes: &[u8; 64]) -> Self::I;
    /// The same word in every lane.
    fn splat(self, word: i32) -> Self::I;
    /// `v >> shift & mask` in every lane, as unsigned.
    fn bits(self, v: Self::I, shift: u32, mask: u32) -> Self::I;
    /// Each byte four bits up; the upper four bits of each must be zero.
    fn up4(self, v: Self::I) -> Self::I;
    fn or(self, a: Self::I, b: Self::I) -> Self::I;
    /// Table entry of each byte, which is below 16.
    fn lookup(self, table: &[i8; 16], codes: Self::I) -> Self::I;
    /// acc + the four products of each lane; codes are unsigned and below 128, q signed.
    fn dot(self, acc: Self::I, codes: Self::I, q: [u8; 4]) -> Self::I;
    /// The same for signed codes, plus SIGNED_BIAS times the sum of q; no byte of q is -128.
    fn dot_signed(self, acc: Self::I, codes: Self::I, q: [u8; 4]) -> Self::I;
    fn add(self, a: Self::I, b: Self::I) -> Self::I;
    fn mul(self, a: Self::I, b: Self::I) -> Self::I;
    /// Sixteen u8 as integers.
    fn unsigned(self, bytes: &[u8; 16]) -> Self::I;
    /// Sixteen i8 as integers.
    fn signed(self, bytes: &[u8; 16]) -> Self::I;
    fn ints(self, v: Self::I) -> [i32; 16];

    fn fsplat(self, x: f32) -> Self::F;
    /// Sixteen f16 as f32.
    fn halves(self, bytes: &[u8; 32]) -> Self::F;
    fn singles(self, bytes: &[u8; 64]) -> Self::F;
    fn floats(self, x: [f32; 16]) -> Self::F;
    /// Nearest f32.
    fn float(self, v: Self::I) -> Self::F;
    fn fmul(self, a: Self::F, b: Self::F) -> Self::F;
    fn fadd(self, a: Self::F, b: Self::F) -> Self::F;
    /// a * b + c, rounded once.
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    fn array(self, x: Self::F) -> [f32; 16];
}

/// Every machine.
#[derive(Clone, Copy)]
pub(crate) struct Portable;

#[inline(always)]
fn map2<A: Copy, B: Copy, C>(a: [A; 16], b: [B; 16], f: impl Fn(A, B) -> C) -> [C; 16] {
    std::array::from_fn(|lane| f(a[lane], b[lane]))
}

#[inline(always)]
fn products(acc: [i32; 16], codes: [i32; 16], q: [u8; 4], wide: impl Fn(u8) -> i32) -> [i32; 16] {
    map2(acc, codes, |acc, codes| {
        let codes = codes.to_le_bytes();
        (0..4).fold(acc, |acc, i| {
            acc + wide(codes[i]) * i32::from(q[i].cast_signed())
        })
    })
}

impl Wide for Portable {
    type I = [i32; 16];
    type F = [f32; 16];
    const SIGNED_BIAS: i32 = 0;

    fn load(self, bytes: &[u8; 64]) -> [i32; 16] {
        let (words, _) = bytes.as_chunks::<4>();
        std::array::from_fn(|lane| i32::from_le_bytes(words[lane]))
    }

    fn splat(self, word: i32) -> [i32; 16] {
        [word; 16]
    }

    fn bits(self, v: [i32; 16], shift: u32, mask: u32) -> [i32; 16] {
        v.map(|word| (word.cast_unsigned() >> shift & mask).cast_signed())
    }

    fn up4(self, v: [i32; 16]) -> [i32; 16] {
        v.map(|word| word << 4)
    }

    fn or(self, a: [i32; 16], b: [i32; 16]) -> [i32; 16] {
        map2(a, b, |a, b| a | b)
    }

    fn lookup(self, table: &[i8; 16], codes: [i32; 16]) -> [i32; 16] {
        let entry = |code: u8| table[usize::from(code & 15)].cast_unsigned();
        codes.map(|word| i32::from_le_bytes(word.to_le_bytes().map(entry)))
    }

    fn dot(self, acc: [i32; 16], codes: [i32; 16], q: [u8; 4]) -> [i32; 16] {
        products(acc, codes, q, i32::from)
    }

    fn dot_signed(self, acc: [i32; 16], codes: [i32; 16], q: [u8; 4]) -> [i32; 16] {
        products(acc, codes, q, |code| i32::from(code.cast_signed()))
    }

    fn add(self, a: [i32; 16], b: [i32; 16]) -> [i32; 16] {
        map2(a, b, |a, b| a + b)
    }

    fn mul(self, a: [i32; 16], b: [i32; 16]) -> [i32; 16] {
        map2(a, b, |a, b| a * b)
    }

    fn unsigned(self, bytes: &[u8; 16]) -> [i32; 16] {
        bytes.map(i32::from)
    }

    fn signed(self, bytes: &[u8; 16]) -> [i32; 16] {
        bytes.map(|byte| i32::from(byte.cast_signed()))
    }

    fn ints(self, v: [i32; 16]) -> [i32; 16] {
        v
    }

    fn fsplat(self, x: f32) -> [f32; 16] {
        [x; 16]
    }

    fn halves(self, bytes: &[u8; 32]) -> [f32; 16] {
        let (halves, _) = bytes.as_chunks::<2>();
        std::array::from_fn(|lane| crate::exact::half(u16::from_le_bytes(halves[lane])))
    }

    fn singles(self, bytes: &[u8; 64]) -> [f32; 16] {
        let (words, _) = bytes.as_chunks::<4>();
        std::array::from_fn(|lane| f32::from_le_bytes(words[lane]))
    }

    fn floats(self, x: [f32; 16]) -> [f32; 16] {
        x
    }

    fn float(self, v: [i32; 16]) -> [f32; 16] {
        v.map(|v| v as f32)
    }

    fn fmul(self, a: [f32; 16], b: [f32; 16]) -> [f32; 16] {
        map2(a, b, |a, b| a * b)
    }

    fn fadd(self, a: [f32; 16], b: [f32; 16]) -> [f32; 16] {
        map2(a, b, |a, b| a + b)
    }

    fn fma(self, a: [f32; 16], b: [f32; 16], c: [f32; 16]) -> [f32; 16] {
        std::array::from_fn(|lane| a[lane].mul_add(b[lane], c[lane]))
    }

    fn array(self, x: [f32; 16]) -> [f32; 16] {
        x
    }
}
