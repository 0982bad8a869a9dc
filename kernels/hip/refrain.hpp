// Types, cross-lane operations and exact arithmetic shared by every kernel. No system header is
// used: the same text compiles for the GPU and, with REFRAIN_HOST, for the host, where
// check/exact_math.cpp sweeps it against libm (docs/measurements/exact-math.md) and
// check/lanes.cpp runs whole kernels lane by lane against f64 formulas.
//
// Exact arithmetic: exp, rsqrt, rcp and sincos are written only from fma, correctly rounded mul and
// add, round-to-nearest-even and integer bit operations, in one order. So their bits do not depend
// on a card's transcendental unit. v_rcp, v_rsq, v_sqrt, v_exp, v_log, v_sin, v_cos and v_div_*
// must not appear in any object; `cargo xtask kernels --lint` checks it.
#pragma once

#ifdef REFRAIN_HOST
#define DEVICE static inline
#else
#define DEVICE static __attribute__((device, always_inline))
#define MEMBER __attribute__((device, always_inline))
#define KERNEL(threads) \
  extern "C" __attribute__((global, amdgpu_flat_work_group_size(threads, threads))) void
#define SHARED static __attribute__((shared))
#endif

using u8 = unsigned char;
using i8 = signed char;
using u16 = unsigned short;
using i16 = short;
using u32 = unsigned int;
using i32 = int;
using u64 = unsigned long long;
using f16 = _Float16;

DEVICE float as_float(u32 bits) { return __builtin_bit_cast(float, bits); }
DEVICE u32 as_bits(float value) { return __builtin_bit_cast(u32, value); }
DEVICE float fmadd(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

// ---- exact arithmetic ---------------------------------------------------------------------------

// Adding and subtracting 1.5 * 2^23 rounds to the nearest integer; the sum's low bits hold that
// integer in two's complement.
constexpr u32 ROUND_BITS = 0x4B400000u;

// e^x. 0 below -104, infinity above 89 (both are what rounding gives there), NaN for NaN.
// x = n ln2 + r, |r| <= ln2/2; ln2 in two parts (fdlibm's split); Taylor to r^7 (next term 5e-9).
DEVICE float exact_exp(float x) {
  x = x < -104.0f ? -104.0f : x;
  x = x > 89.0f ? 89.0f : x;
  float shifted = fmadd(x, 0x1.715476p+0f, as_float(ROUND_BITS));
  i32 n = (i32)(as_bits(shifted) - ROUND_BITS);
  float nf = shifted - as_float(ROUND_BITS);
  float r = fmadd(nf, -0x1.62e400p-1f, x);
  r = fmadd(nf, -0x1.7f7d1cp-20f, r);
  float p = 0x1.a01a02p-13f;       // 1/5040
  p = fmadd(p, r, 0x1.6c16c2p-10f);  // 1/720
  p = fmadd(p, r, 0x1.111112p-7f);   // 1/120
  p = fmadd(p, r, 0x1.555556p-5f);   // 1/24
  p = fmadd(p, r, 0x1.555556p-3f);   // 1/6
  p = fmadd(p, r, 0.5f);
  p = fmadd(p * r, r, r);
  p = p + 1.0f;
  // 2^n in two factors, so that n = 128 overflows and n < -126 becomes subnormal by one rounding.
  i32 low = n >> 1;
  i32 high = n - low;
  p = p * as_float((u32)(low + 127) << 23);
  return p * as_float((u32)(high + 127) << 23);
}

// 1/x for 2^-125 <= |x| <= 2^125. Integer start (error 12 %), four Newton steps.
DEVICE float exact_rcp(float x) {
  u32 sign = as_bits(x) & 0x80000000u;
  float a = as_float(as_bits(x) ^ sign);
  float y = as_float(0x7EF311C7u - as_bits(a));
  y = fmadd(y, fmadd(-a, y, 1.0f), y);
  y = fmadd(y, fmadd(-a, y, 1.0f), y);
  y = fmadd(y, fmadd(-a, y, 1.0f), y);
  y = fmadd(y, fmadd(-a, y, 1.0f), y);
  return as_float(as_bits(y) ^ sign);
}

// a/b with b in exact_rcp's range: quotient, then one correction by the exact remainder.
DEVICE float exact_div(float a, float b) {
  float y = exact_rcp(b);
  float q = a * y;
  return fmadd(fmadd(-b, q, a), y, q);
}

// 1/sqrt(x) for normal x > 0. Integer start (error 3.5 %), three Newton steps and a last one whose
// residual 1 - x y^2 is taken from the two-part product x*y.
DEVICE float exact_rsqrt(float x) {
  float y = as_float(0x5F3759DFu - (as_bits(x) >> 1));
  float h = 0.5f * x;
  y = y * fmadd(-(h * y), y, 1.5f);
  y = y * fmadd(-(h * y), y, 1.5f);
  y = y * fmadd(-(h * y), y, 1.5f);
  float t = x * y;
  float t_low = fmadd(x, y, -t);
  float e = fmadd(-t, y, 1.0f);
  e = fmadd(-t_low, y, e);
  return fmadd(0.5f * y, e, y);
}

// 1 / (1 + exp(-z)), from e = exp(-|z|) so that the denominator stays in [1, 2].
DEVICE float exact_sigmoid(float z) {
  float e = exact_exp(-as_float(as_bits(z) & 0x7FFFFFFFu));
  float inverse = exact_rcp(1.0f + e);
  return z < 0.0f ? e * inverse : inverse;
}

// z * sigmoid(z).
DEVICE float exact_silu(float z) { return z * exact_sigmoid(z); }

// log(1 + e^z) = max(z, 0) + log(1 + e), e = exp(-|z|). log(1 + e) = 2 atanh(s) with
// s = e / (2 + e) <= 1/3; the series to s^15 (next term 2e-9 of the sum).
DEVICE float exact_softplus(float z) {
  float e = exact_exp(-as_float(as_bits(z) & 0x7FFFFFFFu));
  float s = exact_div(e, 2.0f + e);
  float x = s * s;
  float p = 0x1.111112p-3f;         // 2/15
  p = fmadd(p, x, 0x1.3b13b2p-3f);  // 2/13
  p = fmadd(p, x, 0x1.745d18p-3f);  // 2/11
  p = fmadd(p, x, 0x1.c71c72p-3f);  // 2/9
  p = fmadd(p, x, 0x1.24924ap-2f);  // 2/7
  p = fmadd(p, x, 0x1.99999ap-2f);  // 2/5
  p = fmadd(p, x, 0x1.555556p-1f);  // 2/3
  float log1p = fmadd(p, s * x, 2.0f * s);
  return (z > 0.0f ? z : 0.0f) + log1p;
}

struct SinCos {
  float sin, cos;
};

// Sine and cosine of 2 pi t for |t| <= 2^20, t in turns. Quarter turns are taken off first
// (exactly), then |y| <= pi/4; Taylor to y^9 and y^10 (next terms 2e-9).
DEVICE SinCos exact_sincos_turns(float t) {
  float shifted = fmadd(t, 4.0f, as_float(ROUND_BITS));
  u32 quarter = as_bits(shifted) & 3u;
  float f = fmadd(shifted - as_float(ROUND_BITS), -0.25f, t);
  float y = f * 0x1.921fb6p+2f;
  float z = y * y;
  float s = 0x1.71de3ap-19f;        // 1/9!
  s = fmadd(s, z, -0x1.a01a02p-13f);  // 1/7!
  s = fmadd(s, z, 0x1.111112p-7f);    // 1/5!
  s = fmadd(s, z, -0x1.555556p-3f);   // 1/3!
  s = fmadd(s * z, y, y);
  float c = -0x1.27e4fcp-22f;       // 1/10!
  c = fmadd(c, z, 0x1.a01a02p-16f);   // 1/8!
  c = fmadd(c, z, -0x1.6c16c2p-10f);  // 1/6!
  c = fmadd(c, z, 0x1.555556p-5f);    // 1/4!
  c = fmadd(c, z, -0.5f);
  c = fmadd(c, z, 1.0f);
  SinCos out;
  float a = (quarter & 1u) ? c : s;
  float b = (quarter & 1u) ? s : c;
  out.sin = as_float(as_bits(a) ^ ((quarter & 2u) << 30));
  out.cos = as_float(as_bits(b) ^ (((quarter + 1u) & 2u) << 30));
  return out;
}

// The angle position * (hi + lo) turns, less its nearest integer. The product with hi is taken in
// two parts, so the error stays below 2^-24 turn at every position below 2^24.
DEVICE float exact_turns(u32 position, float hi, float lo) {
  float p = (float)position;
  float whole = p * hi;
  float rest = fmadd(p, hi, -whole);
  float turns = whole - __builtin_rintf(whole);
  return turns + fmadd(p, lo, rest);
}

#ifndef REFRAIN_HOST

// ---- control block ------------------------------------------------------------------------------

// The words that change from token to token. Offsets and writers: refrain_kernels, control.rs.
struct Control {
  u32 token;
  u32 pos;
  u32 done;
  u32 prompt_len;
  u32 generated;
  u32 gen_limit;
  u32 ctx_len;
  u32 eos;
  u32 seq;
  u32 ring_mask;
  u32 sampled;
  u32 seed_lo;
  u32 seed_hi;
};

constexpr u32 NOT_A_TOKEN = 0xFFFFFFFFu;

// ---- lanes --------------------------------------------------------------------------------------

using float2v = float __attribute__((ext_vector_type(2)));
using float4v = float __attribute__((ext_vector_type(4)));
using u32x2 = u32 __attribute__((ext_vector_type(2)));
using u32x4 = u32 __attribute__((ext_vector_type(4)));

DEVICE u32 thread_id() { return __builtin_amdgcn_workitem_id_x(); }
DEVICE u32 group_id() { return __builtin_amdgcn_workgroup_id_x(); }
// The wave's index as a scalar: without it every branch on it would be an EXEC mask.
DEVICE u32 wave_id() { return __builtin_amdgcn_readfirstlane(thread_id() >> 5); }
DEVICE u32 lane_id() { return thread_id() & 31u; }

// The value of lane (i xor MASK), MASK < 16: one DPP row_xmask.
template <u32 MASK>
DEVICE u32 lane_xor(u32 value) {
  return (u32)__builtin_amdgcn_update_dpp((i32)value, (i32)value, 0x160 | MASK, 0xF, 0xF, true);
}
// The value of lane (i xor 16).
DEVICE u32 lane_xor16(u32 value) {
  return (u32)__builtin_amdgcn_permlanex16((i32)value, (i32)value, 0x76543210, (i32)0xFEDCBA98,
                                           false, false);
}
template <u32 MASK>
DEVICE float lane_xor(float value) {
  return as_float(lane_xor<MASK>(as_bits(value)));
}
DEVICE float lane_xor16(float value) { return as_float(lane_xor16(as_bits(value))); }
DEVICE float read_lane(float value, u32 lane) {
  return as_float((u32)__builtin_amdgcn_readlane((i32)as_bits(value), (i32)lane));
}

// Sum over 16 lanes: xor 8, 4, 2, 1. Every lane gets the same bits (addition commutes).
DEVICE float sum16(float value) {
  value = value + lane_xor<8>(value);
  value = value + lane_xor<4>(value);
  value = value + lane_xor<2>(value);
  return value + lane_xor<1>(value);
}
// Sum over the wave: xor 16, 8, 4, 2, 1.
DEVICE float sum32(float value) { return sum16(value + lane_xor16(value)); }

DEVICE float larger(float a, float b) { return a > b ? a : b; }
DEVICE float max32(float value) {
  value = larger(value, lane_xor16(value));
  value = larger(value, lane_xor<8>(value));
  value = larger(value, lane_xor<4>(value));
  value = larger(value, lane_xor<2>(value));
  return larger(value, lane_xor<1>(value));
}

// A candidate: the larger value wins, of equal ones the lower index. NaN never wins.
struct Best {
  float value;
  u32 index;
};
DEVICE Best better(Best a, Best b) {
  bool take = b.value > a.value || (b.value == a.value && b.index < a.index);
  return Best{take ? b.value : a.value, take ? b.index : a.index};
}
DEVICE Best best32(Best a) {
  a = better(a, Best{lane_xor16(a.value), lane_xor16(a.index)});
  a = better(a, Best{lane_xor<8>(a.value), lane_xor<8>(a.index)});
  a = better(a, Best{lane_xor<4>(a.value), lane_xor<4>(a.index)});
  a = better(a, Best{lane_xor<2>(a.value), lane_xor<2>(a.index)});
  return better(a, Best{lane_xor<1>(a.value), lane_xor<1>(a.index)});
}

// A work-group barrier that orders LDS only: global memory is not shared inside these kernels, and
// the full fence would invalidate caches in WGP mode.
DEVICE void lds_barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local");
}

// ---- element types ------------------------------------------------------------------------------

DEVICE float widen(float value) { return value; }
DEVICE float widen(f16 value) { return (float)value; }
struct bf16 {
  u16 bits;
};
DEVICE float widen(bf16 value) { return as_float((u32)value.bits << 16); }

#endif
