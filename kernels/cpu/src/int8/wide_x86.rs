//! [`Wide`] and [`Narrow`] in AVX2 and in AVX-512 with VNNI.
//!
//! The types are tokens: [`Avx2::for_isa`] and [`Avx512::for_isa`] make one only after detection, so
//! holding one proves that its instructions exist. That is what every `unsafe` block here rests on; loads
//! go through arrays of the length they read.

use std::arch::x86_64 as x86;
use std::arch::x86_64::{__m256, __m256i, __m512, __m512i};

use super::row::Narrow;
use super::wide::Wide;
use crate::Isa;

/// Proof of AVX2, FMA and F16C.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(());

/// Proof of AVX-512 F, BW, VL, DQ, VBMI and VNNI, and of what [`Avx2`] proves.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(());

impl Avx2 {
    pub(super) fn for_isa(isa: Isa) -> Option<Self> {
        (isa >= Isa::Avx2 && Isa::best() >= Isa::Avx2).then_some(Self(()))
    }
}

impl Avx512 {
    pub(super) fn for_isa(isa: Isa) -> Option<Self> {
        (isa >= Isa::Avx512 && Isa::best() >= Isa::Avx512).then_some(Self(()))
    }
}

/// Runs intrinsics of the features that the token proves.
macro_rules! simd {
    ($($body:tt)*) => {{
        // SAFETY: `self` exists only where these instructions were detected; pointers come from
        // references to arrays of exactly the bytes that are read or written.
        unsafe { $($body)* }
    }};
}

#[inline(always)]
fn word(mask: u32) -> i32 {
    mask.cast_signed()
}

impl Wide for Avx512 {
    type I = __m512i;
    type F = __m512;
    const SIGNED_BIAS: i32 = 128;

    #[inline(always)]
    fn load(self, bytes: &[u8; 64]) -> __m512i {
        simd!(x86::_mm512_loadu_si512(bytes.as_ptr().cast()))
    }

    #[inline(always)]
    fn splat(self, word: i32) -> __m512i {
        simd!(x86::_mm512_set1_epi32(word))
    }

    #[inline(always)]
    fn bits(self, v: __m512i, shift: u32, mask: u32) -> __m512i {
        simd!({
            let moved = x86::_mm512_srl_epi32(v, x86::_mm_cvtsi32_si128(word(shift)));
            x86::_mm512_and_si512(moved, x86::_mm512_set1_epi32(word(mask)))
        })
    }

    #[inline(always)]
    fn up4(self, v: __m512i) -> __m512i {
        simd!(x86::_mm512_slli_epi32::<4>(v))
    }

    #[inline(always)]
    fn or(self, a: __m512i, b: __m512i) -> __m512i {
        simd!(x86::_mm512_or_si512(a, b))
    }

    #[inline(always)]
    fn lookup(self, table: &[i8; 16], codes: __m512i) -> __m512i {
        simd!({
            let table = x86::_mm_loadu_si128(table.as_ptr().cast());
            x86::_mm512_shuffle_epi8(x86::_mm512_broadcast_i32x4(table), codes)
        })
    }

    #[inline(always)]
    fn dot(self, acc: __m512i, codes: __m512i, q: [u8; 4]) -> __m512i {
        simd!(x86::_mm512_dpbusd_epi32(
            acc,
            codes,
            x86::_mm512_set1_epi32(i32::from_le_bytes(q))
        ))
    }

    #[inline(always)]
    fn dot_signed(self, acc: __m512i, codes: __m512i, q: [u8; 4]) -> __m512i {
        // code xor 0x80 is code + 128 as unsigned.
        let codes = simd!(x86::_mm512_xor_si512(codes, x86::_mm512_set1_epi8(-128)));
        Wide::dot(self, acc, codes, q)
    }

    #[inline(always)]
    fn add(self, a: __m512i, b: __m512i) -> __m512i {
        simd!(x86::_mm512_add_epi32(a, b))
    }

    #[inline(always)]
    fn mul(self, a: __m512i, b: __m512i) -> __m512i {
        simd!(x86::_mm512_mullo_epi32(a, b))
    }

    #[inline(always)]
    fn unsigned(self, bytes: &[u8; 16]) -> __m512i {
        simd!(x86::_mm512_cvtepu8_epi32(x86::_mm_loadu_si128(
            bytes.as_ptr().cast()
        )))
    }

    #[inline(always)]
    fn signed(self, bytes: &[u8; 16]) -> __m512i {
        simd!(x86::_mm512_cvtepi8_epi32(x86::_mm_loadu_si128(
            bytes.as_ptr().cast()
        )))
    }

    #[inline(always)]
    fn ints(self, v: __m512i) -> [i32; 16] {
        let mut out = [0; 16];
        simd!(x86::_mm512_storeu_si512(out.as_mut_ptr().cast(), v));
        out
    }

    #[inline(always)]
    fn fsplat(self, x: f32) -> __m512 {
        simd!(x86::_mm512_set1_ps(x))
    }

    #[inline(always)]
    fn halves(self, bytes: &[u8; 32]) -> __m512 {
        simd!(x86::_mm512_cvtph_ps(x86::_mm256_loadu_si256(
            bytes.as_ptr().cast()
        )))
    }

    #[inline(always)]
    fn singles(self, bytes: &[u8; 64]) -> __m512 {
        simd!(x86::_mm512_loadu_ps(bytes.as_ptr().cast()))
    }

    #[inline(always)]
    fn floats(self, x: [f32; 16]) -> __m512 {
        simd!(x86::_mm512_loadu_ps(x.as_ptr()))
    }

    #[inline(always)]
    fn float(self, v: __m512i) -> __m512 {
        simd!(x86::_mm512_cvtepi32_ps(v))
    }

    #[inline(always)]
    fn fmul(self, a: __m512, b: __m512) -> __m512 {
        simd!(x86::_mm512_mul_ps(a, b))
    }

    #[inline(always)]
    fn fadd(self, a: __m512, b: __m512) -> __m512 {
        simd!(x86::_mm512_add_ps(a, b))
    }

    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        simd!(x86::_mm512_fmadd_ps(a, b, c))
    }

    #[inline(always)]
    fn array(self, x: __m512) -> [f32; 16] {
        let mut out = [0.0; 16];
        simd!(x86::_mm512_storeu_ps(out.as_mut_ptr(), x));
        out
    }
}

impl Avx2 {
    /// acc + the four products of each lane: codes unsigned, below 128, so that no i16 saturates.
    #[inline(always)]
    fn dot8(self, acc: __m256i, codes: __m256i, q: __m256i) -> __m256i {
        simd!({
            let pairs = x86::_mm256_maddubs_epi16(codes, q);
            let fours = x86::_mm256_madd_epi16(pairs, x86::_mm256_set1_epi16(1));
            x86::_mm256_add_epi32(acc, fours)
        })
    }

    /// The same for signed codes: |code| times q with the code's sign. |code| is at most 128 and |q| at
    /// most 127, so no i16 saturates: 2 * 128 * 127 is 32512.
    #[inline(always)]
    fn dot8_signed(self, acc: __m256i, codes: __m256i, q: __m256i) -> __m256i {
        let (size, q) = simd!((x86::_mm256_abs_epi8(codes), x86::_mm256_sign_epi8(q, codes)));
        self.dot8(acc, size, q)
    }
}

impl Wide for Avx2 {
    type I = [__m256i; 2];
    type F = [__m256; 2];
    const SIGNED_BIAS: i32 = 0;

    #[inline(always)]
    fn load(self, bytes: &[u8; 64]) -> [__m256i; 2] {
        simd!([
            x86::_mm256_loadu_si256(bytes.as_ptr().cast()),
            x86::_mm256_loadu_si256(bytes.as_ptr().add(32).cast()),
        ])
    }

    #[inline(always)]
    fn splat(self, word: i32) -> [__m256i; 2] {
        simd!([x86::_mm256_set1_epi32(word); 2])
    }

    #[inline(always)]
    fn bits(self, v: [__m256i; 2], shift: u32, mask: u32) -> [__m256i; 2] {
        simd!({
            let (count, mask) = (
                x86::_mm_cvtsi32_si128(word(shift)),
                x86::_mm256_set1_epi32(word(mask)),
            );
            [
                x86::_mm256_and_si256(x86::_mm256_srl_epi32(v[0], count), mask),
                x86::_mm256_and_si256(x86::_mm256_srl_epi32(v[1], count), mask),
            ]
        })
    }

    #[inline(always)]
    fn up4(self, v: [__m256i; 2]) -> [__m256i; 2] {
        simd!([
            x86::_mm256_slli_epi32::<4>(v[0]),
            x86::_mm256_slli_epi32::<4>(v[1])
        ])
    }

    #[inline(always)]
    fn or(self, a: [__m256i; 2], b: [__m256i; 2]) -> [__m256i; 2] {
        simd!([
            x86::_mm256_or_si256(a[0], b[0]),
            x86::_mm256_or_si256(a[1], b[1])
        ])
    }

    #[inline(always)]
    fn lookup(self, table: &[i8; 16], codes: [__m256i; 2]) -> [__m256i; 2] {
        let table = simd!({
            x86::_mm256_broadcastsi128_si256(x86::_mm_loadu_si128(table.as_ptr().cast()))
        });
        simd!([
            x86::_mm256_shuffle_epi8(table, codes[0]),
            x86::_mm256_shuffle_epi8(table, codes[1]),
        ])
    }

    #[inline(always)]
    fn dot(self, acc: [__m256i; 2], codes: [__m256i; 2], q: [u8; 4]) -> [__m256i; 2] {
        let q = simd!(x86::_mm256_set1_epi32(i32::from_le_bytes(q)));
        [
            self.dot8(acc[0], codes[0], q),
            self.dot8(acc[1], codes[1], q),
        ]
    }

    #[inline(always)]
    fn dot_signed(self, acc: [__m256i; 2], codes: [__m256i; 2], q: [u8; 4]) -> [__m256i; 2] {
        let q = simd!(x86::_mm256_set1_epi32(i32::from_le_bytes(q)));
        [
            self.dot8_signed(acc[0], codes[0], q),
            self.dot8_signed(acc[1], codes[1], q),
        ]
    }

    #[inline(always)]
    fn add(self, a: [__m256i; 2], b: [__m256i; 2]) -> [__m256i; 2] {
        simd!([
            x86::_mm256_add_epi32(a[0], b[0]),
            x86::_mm256_add_epi32(a[1], b[1])
        ])
    }

    #[inline(always)]
    fn mul(self, a: [__m256i; 2], b: [__m256i; 2]) -> [__m256i; 2] {
        simd!([
            x86::_mm256_mullo_epi32(a[0], b[0]),
            x86::_mm256_mullo_epi32(a[1], b[1])
        ])
    }

    #[inline(always)]
    fn unsigned(self, bytes: &[u8; 16]) -> [__m256i; 2] {
        simd!({
            let bytes = x86::_mm_loadu_si128(bytes.as_ptr().cast());
            let high = x86::_mm_unpackhi_epi64(bytes, bytes);
            [
                x86::_mm256_cvtepu8_epi32(bytes),
                x86::_mm256_cvtepu8_epi32(high),
            ]
        })
    }

    #[inline(always)]
    fn signed(self, bytes: &[u8; 16]) -> [__m256i; 2] {
        simd!({
            let bytes = x86::_mm_loadu_si128(bytes.as_ptr().cast());
            let high = x86::_mm_unpackhi_epi64(bytes, bytes);
            [
                x86::_mm256_cvtepi8_epi32(bytes),
                x86::_mm256_cvtepi8_epi32(high),
            ]
        })
    }

    #[inline(always)]
    fn ints(self, v: [__m256i; 2]) -> [i32; 16] {
        let mut out = [0; 16];
        simd!({
            x86::_mm256_storeu_si256(out.as_mut_ptr().cast(), v[0]);
            x86::_mm256_storeu_si256(out.as_mut_ptr().add(8).cast(), v[1]);
        });
        out
    }

    #[inline(always)]
    fn fsplat(self, x: f32) -> [__m256; 2] {
        simd!([x86::_mm256_set1_ps(x); 2])
    }

    #[inline(always)]
    fn halves(self, bytes: &[u8; 32]) -> [__m256; 2] {
        simd!([
            x86::_mm256_cvtph_ps(x86::_mm_loadu_si128(bytes.as_ptr().cast())),
            x86::_mm256_cvtph_ps(x86::_mm_loadu_si128(bytes.as_ptr().add(16).cast())),
        ])
    }

    #[inline(always)]
    fn singles(self, bytes: &[u8; 64]) -> [__m256; 2] {
        simd!([
            x86::_mm256_loadu_ps(bytes.as_ptr().cast()),
            x86::_mm256_loadu_ps(bytes.as_ptr().add(32).cast()),
        ])
    }

    #[inline(always)]
    fn floats(self, x: [f32; 16]) -> [__m256; 2] {
        simd!([
            x86::_mm256_loadu_ps(x.as_ptr()),
            x86::_mm256_loadu_ps(x.as_ptr().add(8)),
        ])
    }

    #[inline(always)]
    fn float(self, v: [__m256i; 2]) -> [__m256; 2] {
        simd!([x86::_mm256_cvtepi32_ps(v[0]), x86::_mm256_cvtepi32_ps(v[1])])
    }

    #[inline(always)]
    fn fmul(self, a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
        simd!([
            x86::_mm256_mul_ps(a[0], b[0]),
            x86::_mm256_mul_ps(a[1], b[1])
        ])
    }

    #[inline(always)]
    fn fadd(self, a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
        simd!([
            x86::_mm256_add_ps(a[0], b[0]),
            x86::_mm256_add_ps(a[1], b[1])
        ])
    }

    #[inline(always)]
    fn fma(self, a: [__m256; 2], b: [__m256; 2], c: [__m256; 2]) -> [__m256; 2] {
        simd!([
            x86::_mm256_fmadd_ps(a[0], b[0], c[0]),
            x86::_mm256_fmadd_ps(a[1], b[1], c[1]),
        ])
    }

    #[inline(always)]
    fn array(self, x: [__m256; 2]) -> [f32; 16] {
        let mut out = [0.0; 16];
        simd!({
            x86::_mm256_storeu_ps(out.as_mut_ptr(), x[0]);
            x86::_mm256_storeu_ps(out.as_mut_ptr().add(8), x[1]);
        });
        out
    }
}

/// Operations on 32 consecutive elements that both sets share; they differ in the dot product.
macro_rules! narrow {
    ($token:ty, $bias:literal, $dot:ident, $dot_signed:ident) => {
        impl Narrow for $token {
            type V = __m256i;
            const SIGNED_BIAS: i32 = $bias;

            #[inline(always)]
            fn zero(self) -> __m256i {
                simd!(x86::_mm256_setzero_si256())
            }

            #[inline(always)]
            fn bytes(self, bytes: &[u8; 32]) -> __m256i {
                simd!(x86::_mm256_loadu_si256(bytes.as_ptr().cast()))
            }

            #[inline(always)]
            fn nibbles(self, bytes: &[u8; 16]) -> __m256i {
                simd!({
                    let low = x86::_mm_loadu_si128(bytes.as_ptr().cast());
                    let pair = x86::_mm256_set_m128i(x86::_mm_srli_epi16::<4>(low), low);
                    x86::_mm256_and_si256(pair, x86::_mm256_set1_epi8(15))
                })
            }

            #[inline(always)]
            fn bit4(self, h: u32) -> __m256i {
                simd!({
                    let places = x86::_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
                    let moved = x86::_mm256_srlv_epi32(x86::_mm256_set1_epi32(word(h)), places);
                    let ones = x86::_mm256_and_si256(moved, x86::_mm256_set1_epi8(1));
                    x86::_mm256_slli_epi32::<4>(ones)
                })
            }

            #[inline(always)]
            fn bits45(self, h: [u32; 2]) -> __m256i {
                simd!({
                    let h = [
                        x86::_mm_set1_epi32(word(h[0])),
                        x86::_mm_set1_epi32(word(h[1])),
                    ];
                    let places = x86::_mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6);
                    let moved = x86::_mm256_srlv_epi32(x86::_mm256_set_m128i(h[1], h[0]), places);
                    let twos = x86::_mm256_and_si256(moved, x86::_mm256_set1_epi8(3));
                    x86::_mm256_slli_epi32::<4>(twos)
                })
            }

            #[inline(always)]
            fn or(self, a: __m256i, b: __m256i) -> __m256i {
                simd!(x86::_mm256_or_si256(a, b))
            }

            #[inline(always)]
            fn lookup(self, table: &[i8; 16], codes: __m256i) -> __m256i {
                simd!({
                    let table = x86::_mm_loadu_si128(table.as_ptr().cast());
                    x86::_mm256_shuffle_epi8(x86::_mm256_broadcastsi128_si256(table), codes)
                })
            }

            #[inline(always)]
            fn dot(self, codes: __m256i, q: &[u8; 32]) -> __m256i {
                let q = self.bytes(q);
                self.$dot(self.zero(), codes, q)
            }

            #[inline(always)]
            fn dot_signed(self, codes: __m256i, q: &[u8; 32]) -> __m256i {
                let q = self.bytes(q);
                self.$dot_signed(self.zero(), codes, q)
            }

            #[inline(always)]
            fn reduce(self, v: __m256i) -> i32 {
                simd!({
                    let pairs = x86::_mm256_hadd_epi32(v, v);
                    let sums = x86::_mm256_hadd_epi32(pairs, pairs);
                    x86::_mm256_extract_epi32::<0>(sums) + x86::_mm256_extract_epi32::<4>(sums)
                })
            }

            #[inline(always)]
            fn add_scaled(self, acc: __m256i, v: __m256i, scales: &[u8; 16], j: usize) -> __m256i {
                let [a, b] = [scales[2 * j], scales[2 * j + 1]].map(|s| i32::from(s.cast_signed()));
                simd!({
                    let (a, b) = (x86::_mm_set1_epi32(a), x86::_mm_set1_epi32(b));
                    let scale = x86::_mm256_set_m128i(b, a);
                    x86::_mm256_add_epi32(acc, x86::_mm256_mullo_epi32(v, scale))
                })
            }

            #[inline(always)]
            fn add_times(self, acc: __m256i, v: __m256i, scale: i32) -> __m256i {
                simd!({
                    let scale = x86::_mm256_set1_epi32(scale);
                    x86::_mm256_add_epi32(acc, x86::_mm256_mullo_epi32(v, scale))
                })
            }

            #[inline(always)]
            fn scale8(self, scales: &[u8; 16], d: &[f32; 8], isum: &[i32; 8], p: &mut [f32; 8]) {
                simd!({
                    let scales = x86::_mm_loadu_si128(scales.as_ptr().cast());
                    let d = x86::_mm256_loadu_ps(d.as_ptr());
                    let a = x86::_mm256_mul_ps(x86::_mm256_cvtph_ps(scales), d);
                    let isum = x86::_mm256_loadu_si256(isum.as_ptr().cast());
                    let old = x86::_mm256_loadu_ps(p.as_ptr());
                    let new = x86::_mm256_fmadd_ps(a, x86::_mm256_cvtepi32_ps(isum), old);
                    x86::_mm256_storeu_ps(p.as_mut_ptr(), new);
                });
            }

            #[inline(always)]
            fn reduce8(self, v: [__m256i; 8]) -> [i32; 8] {
                let mut out = [0; 8];
                simd!({
                    let a = x86::_mm256_hadd_epi32(v[0], v[1]);
                    let b = x86::_mm256_hadd_epi32(v[2], v[3]);
                    let c = x86::_mm256_hadd_epi32(v[4], v[5]);
                    let d = x86::_mm256_hadd_epi32(v[6], v[7]);
                    let ab = x86::_mm256_hadd_epi32(a, b);
                    let cd = x86::_mm256_hadd_epi32(c, d);
                    let low = x86::_mm256_permute2x128_si256::<0x20>(ab, cd);
                    let high = x86::_mm256_permute2x128_si256::<0x31>(ab, cd);
                    let sums = x86::_mm256_add_epi32(low, high);
                    x86::_mm256_storeu_si256(out.as_mut_ptr().cast(), sums);
                });
                out
            }
        }
    };
}

impl Avx512 {
    #[inline(always)]
    fn vnni8(self, acc: __m256i, codes: __m256i, q: __m256i) -> __m256i {
        simd!(x86::_mm256_dpbusd_epi32(acc, codes, q))
    }

    #[inline(always)]
    fn vnni8_signed(self, acc: __m256i, codes: __m256i, q: __m256i) -> __m256i {
        let codes = simd!(x86::_mm256_xor_si256(codes, x86::_mm256_set1_epi8(-128)));
        self.vnni8(acc, codes, q)
    }
}

narrow!(Avx2, 0, dot8, dot8_signed);
narrow!(Avx512, 128, vnni8, vnni8_signed);
