//! The speeds that handlers are compiled for. All give the same bits; only instructions differ.

use super::float::soft_fma;
use super::global::gather_wide;
use super::wave::Row;
#[cfg(target_arch = "x86_64")]
use crate::memory::pointer;

/// A set of CPU features that handlers may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speed {
    /// What every CPU of the architecture has.
    Base,
    /// AVX2 and FMA.
    Avx2,
}

impl Speed {
    /// The best speed of this CPU.
    pub(crate) fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma")
        {
            return Self::Avx2;
        }
        Self::Base
    }
}

/// Primitives that need other instructions at other speeds.
pub(crate) trait Level {
    /// Its name.
    const SPEED: Speed;
    /// `a * b + c`, rounded once.
    fn fma(a: f32, b: f32, c: f32) -> f32;
    /// Bit i of the result is the sign bit of lane i.
    fn pack(row: &Row) -> u32;
    /// Lane i of the result is lane `from[i]` (below 16) of i's own row of 16.
    fn permute(row: &Row, from: &Row) -> Row;
    /// Loads 16 bytes per lane into four rows.
    ///
    /// # Safety
    /// 16 bytes at each address were checked for reading.
    unsafe fn gather_wide(at: &[u64; 32], rows: &mut [Row; 4]);
    /// Sum of four byte products per lane plus `c`, wrapping. `SA`/`SB`: bytes are signed.
    fn dot4<const SA: bool, const SB: bool>(a: &Row, b: &Row, c: &Row) -> Row;
}

/// No feature beyond the architecture's baseline.
pub(crate) struct Base;

impl Level for Base {
    const SPEED: Speed = Speed::Base;

    #[inline(always)]
    fn fma(a: f32, b: f32, c: f32) -> f32 {
        soft_fma(a, b, c)
    }

    #[inline(always)]
    fn pack(row: &Row) -> u32 {
        let mut mask = 0;
        for (i, lane) in row.iter().enumerate() {
            mask |= (lane >> 31) << i;
        }
        mask
    }

    #[inline(always)]
    fn permute(row: &Row, from: &Row) -> Row {
        std::array::from_fn(|i| row[(i & 16) | (from[i] & 15) as usize])
    }

    #[inline(always)]
    unsafe fn gather_wide(at: &[u64; 32], rows: &mut [Row; 4]) {
        // SAFETY: the caller's promise.
        unsafe { gather_wide(at, rows) }
    }

    #[inline(always)]
    fn dot4<const SA: bool, const SB: bool>(a: &Row, b: &Row, c: &Row) -> Row {
        std::array::from_fn(|i| dot4_lane::<SA, SB>(a[i], b[i], c[i]))
    }
}

/// One lane of [`Level::dot4`].
#[inline(always)]
pub(crate) fn dot4_lane<const SA: bool, const SB: bool>(a: u32, b: u32, c: u32) -> u32 {
    c.wrapping_add(dot4_terms(a, b, SA, SB) as u32)
}

/// The sum of four byte products.
#[inline(always)]
pub(crate) fn dot4_terms(a: u32, b: u32, a_signed: bool, b_signed: bool) -> i32 {
    let byte = |v: u32, k: u32, signed: bool| -> i32 {
        let raw = (v >> (8 * k)) as u8;
        if signed {
            i32::from(raw as i8)
        } else {
            i32::from(raw)
        }
    };
    let product = |k| byte(a, k, a_signed) * byte(b, k, b_signed);
    product(0) + product(1) + product(2) + product(3)
}

/// AVX2 and FMA. Only reachable through handlers that were chosen after detection.
pub(crate) struct Avx2;

#[cfg(target_arch = "x86_64")]
impl Level for Avx2 {
    const SPEED: Speed = Speed::Avx2;

    #[inline(always)]
    fn fma(a: f32, b: f32, c: f32) -> f32 {
        // Compiled inside functions that have FMA, this is one instruction.
        a.mul_add(b, c)
    }

    #[inline(always)]
    fn pack(row: &Row) -> u32 {
        use std::arch::x86_64::{__m256, _mm256_loadu_ps, _mm256_movemask_ps};
        let base = row.as_ptr().cast::<f32>();
        // SAFETY: 4 loads of 8 floats each stay inside the 32 lanes; handlers of this level run
        // only on CPUs with AVX2.
        unsafe {
            let part = |k: usize| -> __m256 { _mm256_loadu_ps(base.add(8 * k)) };
            let bits = |k: usize| _mm256_movemask_ps(part(k)) as u32;
            bits(0) | bits(1) << 8 | bits(2) << 16 | bits(3) << 24
        }
    }

    #[inline(always)]
    fn permute(row: &Row, from: &Row) -> Row {
        use std::arch::x86_64::{
            __m256i, _mm256_blendv_epi8, _mm256_loadu_si256, _mm256_permutevar8x32_epi32,
            _mm256_slli_epi32, _mm256_srai_epi32, _mm256_storeu_si256,
        };
        let mut out = [0; 32];
        for k in 0..4 {
            // SAFETY: loads and stores of 8 lanes at multiples of 8 below 32; AVX2 as in `pack`.
            unsafe {
                let load =
                    |r: &Row, at: usize| _mm256_loadu_si256(r.as_ptr().add(at).cast::<__m256i>());
                // The row of 16 is two registers; bit 3 of the index picks one.
                let first = 16 * (k / 2);
                let index = load(from, 8 * k);
                let low = _mm256_permutevar8x32_epi32(load(row, first), index);
                let high = _mm256_permutevar8x32_epi32(load(row, first + 8), index);
                let upper = _mm256_srai_epi32(_mm256_slli_epi32(index, 28), 31);
                let lanes = _mm256_blendv_epi8(low, high, upper);
                _mm256_storeu_si256(out.as_mut_ptr().add(8 * k).cast::<__m256i>(), lanes);
            }
        }
        out
    }

    #[inline(always)]
    unsafe fn gather_wide(at: &[u64; 32], rows: &mut [Row; 4]) {
        use std::arch::x86_64::{
            __m128i, __m256i, _mm_loadu_si128, _mm256_castsi128_si256, _mm256_inserti128_si256,
            _mm256_storeu_si256, _mm256_unpackhi_epi32, _mm256_unpackhi_epi64,
            _mm256_unpacklo_epi32, _mm256_unpacklo_epi64,
        };
        let [r0, r1, r2, r3] = rows.each_mut().map(|r| r.as_mut_ptr());
        for k in (0..32).step_by(8) {
            // SAFETY: the eight loads are the caller's promise; the stores cover lanes k..k+8 of
            // rows of 32; AVX2 as in `pack`.
            unsafe {
                let load = |i: usize| _mm_loadu_si128(pointer(at[k + i]).cast::<__m128i>());
                // Lane i in the lower half, lane i + 4 in the upper one.
                let pair = |i: usize| {
                    _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(load(i)), load(i + 4))
                };
                let (a, b, c, d) = (pair(0), pair(1), pair(2), pair(3));
                let (ab, cd) = (_mm256_unpacklo_epi32(a, b), _mm256_unpacklo_epi32(c, d));
                let (ef, gh) = (_mm256_unpackhi_epi32(a, b), _mm256_unpackhi_epi32(c, d));
                let put = |row: *mut u32, v| _mm256_storeu_si256(row.add(k).cast::<__m256i>(), v);
                put(r0, _mm256_unpacklo_epi64(ab, cd));
                put(r1, _mm256_unpackhi_epi64(ab, cd));
                put(r2, _mm256_unpacklo_epi64(ef, gh));
                put(r3, _mm256_unpackhi_epi64(ef, gh));
            }
        }
    }

    #[inline(always)]
    fn dot4<const SA: bool, const SB: bool>(a: &Row, b: &Row, c: &Row) -> Row {
        use std::arch::x86_64::{
            __m256i, _mm256_add_epi32, _mm256_loadu_si256, _mm256_madd_epi16, _mm256_slli_epi16,
            _mm256_srai_epi16, _mm256_srli_epi16, _mm256_storeu_si256,
        };
        let mut out = [0; 32];
        for k in 0..4 {
            // SAFETY: each load and store covers 8 of the 32 lanes; AVX2 as in `pack`.
            unsafe {
                let load = |r: &Row| _mm256_loadu_si256(r.as_ptr().add(8 * k).cast::<__m256i>());
                // Even and odd bytes, widened to 16 bits each.
                let split = |v: __m256i, signed: bool| {
                    let even = _mm256_slli_epi16(v, 8);
                    if signed {
                        (_mm256_srai_epi16(even, 8), _mm256_srai_epi16(v, 8))
                    } else {
                        (_mm256_srli_epi16(even, 8), _mm256_srli_epi16(v, 8))
                    }
                };
                let (ae, ao) = split(load(a), SA);
                let (be, bo) = split(load(b), SB);
                let sum = _mm256_add_epi32(_mm256_madd_epi16(ae, be), _mm256_madd_epi16(ao, bo));
                let sum = _mm256_add_epi32(sum, load(c));
                _mm256_storeu_si256(out.as_mut_ptr().add(8 * k).cast::<__m256i>(), sum);
            }
        }
        out
    }
}

#[cfg(not(target_arch = "x86_64"))]
impl Level for Avx2 {
    const SPEED: Speed = Speed::Avx2;

    fn fma(a: f32, b: f32, c: f32) -> f32 {
        Base::fma(a, b, c)
    }

    fn pack(row: &Row) -> u32 {
        Base::pack(row)
    }

    fn permute(row: &Row, from: &Row) -> Row {
        Base::permute(row, from)
    }

    unsafe fn gather_wide(at: &[u64; 32], rows: &mut [Row; 4]) {
        // SAFETY: the caller's promise.
        unsafe { Base::gather_wide(at, rows) }
    }

    fn dot4<const SA: bool, const SB: bool>(a: &Row, b: &Row, c: &Row) -> Row {
        Base::dot4::<SA, SB>(a, b, c)
    }
}
