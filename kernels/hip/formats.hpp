// Weight formats: where the codes and scales of a row lie, what a code stands for, and the two inner
// loops over them: f32 activations 16 elements at a time, int8 activations 32 at a time.
//
// Device layout: planes one after the other without gaps, each [rows][bytes of a row]: codes (or
// their low nibbles), higher bits, then scales (refrain_kernels, format). Codes come as words of four
// bytes, one byte per element in order. x = a * v, or fma(a, v, b) with minimums, v an integer.
//
// Integer products are exact in i32. The sum over a row in f32, per block of 32 ascending and in this
// order: acc = fma(d * dx, sum, acc), and with minimums acc = fma(m, dx * sum of x, acc) after it.
#pragma once

#include "activation.hpp"

using f16x2 = f16 __attribute__((ext_vector_type(2)));

struct Chunk {
  float4v x[4];
};
DEVICE Chunk load_chunk(const float *x) {
  const float4v *v = (const float4v *)x;
  return Chunk{{v[0], v[1], v[2], v[3]}};
}

// ---- plain floats -------------------------------------------------------------------------------

struct WeightsF32 {
  const u8 *row;
  MEMBER WeightsF32(const u8 *w, u32 r, u32 k, u32) : row(w + (u64)r * k * 4) {}
  MEMBER float dot(u32 chunk, const Chunk &x, float acc) const {
    const float4v *w = (const float4v *)(row + chunk * 64);
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
      float4v v = w[i];
#pragma unroll
      for (u32 j = 0; j < 4; j++) acc = fmadd(v[j], x.x[i][j], acc);
    }
    return acc;
  }
};

struct WeightsF16 {
  using f16x8 = f16 __attribute__((ext_vector_type(8)));
  const u8 *row;
  MEMBER WeightsF16(const u8 *w, u32 r, u32 k, u32) : row(w + (u64)r * k * 2) {}
  MEMBER float dot(u32 chunk, const Chunk &x, float acc) const {
    const f16x8 *w = (const f16x8 *)(row + chunk * 32);
#pragma unroll
    for (u32 i = 0; i < 2; i++) {
      f16x8 v = w[i];
#pragma unroll
      for (u32 j = 0; j < 8; j++) acc = fmadd((float)v[j], x.x[i * 2 + (j >> 2)][j & 3], acc);
    }
    return acc;
  }
};

struct WeightsBf16 {
  const u8 *row;
  MEMBER WeightsBf16(const u8 *w, u32 r, u32 k, u32) : row(w + (u64)r * k * 2) {}
  MEMBER float dot(u32 chunk, const Chunk &x, float acc) const {
    const u32x4 *w = (const u32x4 *)(row + chunk * 32);
#pragma unroll
    for (u32 i = 0; i < 2; i++) {
      u32x4 v = w[i];
#pragma unroll
      for (u32 j = 0; j < 8; j++) {
        u32 pair = v[j >> 1];
        float weight = as_float((j & 1) ? pair & 0xFFFF0000u : pair << 16);
        acc = fmadd(weight, x.x[i * 2 + (j >> 2)][j & 3], acc);
      }
    }
    return acc;
  }
};

// ---- codes --------------------------------------------------------------------------------------

// Codes of 16 and of 32 consecutive elements.
struct Words4 {
  u32 w[4];
};
struct Words8 {
  u32 w[8];
};

// A byte per element.
struct Bytes {
  static constexpr u32 BITS = 8;
  const u8 *row;
  MEMBER Bytes(const u8 *w, u32 r, u32 k, u32) : row(w + (u64)r * k) {}
  MEMBER Words4 chunk(u32 c) const {
    u32x4 v = *(const u32x4 *)(row + c * 16);
    return Words4{{v[0], v[1], v[2], v[3]}};
  }
  MEMBER Words8 block(u32 b) const {
    u32x4 v = *(const u32x4 *)(row + b * 32);
    u32x4 u = *(const u32x4 *)(row + b * 32 + 16);
    return Words8{{v[0], v[1], v[2], v[3], u[0], u[1], u[2], u[3]}};
  }
};

// Per 32 elements 16 bytes: element j low, j + 16 high in byte j.
struct Nibbles {
  static constexpr u32 BITS = 4;
  const u8 *row;
  MEMBER Nibbles(const u8 *w, u32 r, u32 k, u32) : row(w + (u64)r * (k >> 1)) {}
  MEMBER Words4 chunk(u32 c) const {
    u32x4 v = *(const u32x4 *)(row + (c >> 1) * 16) >> ((c & 1) * 4) & 0x0F0F0F0Fu;
    return Words4{{v[0], v[1], v[2], v[3]}};
  }
  MEMBER Words8 block(u32 b) const {
    u32x4 v = *(const u32x4 *)(row + b * 16);
    u32x4 low = v & 0x0F0F0F0Fu, high = v >> 4 & 0x0F0F0F0Fu;
    return Words8{{low[0], low[1], low[2], low[3], high[0], high[1], high[2], high[3]}};
  }
};

// Nibbles, then bit 4: per 32 elements a word, element 4 w + b in bit 8 b + w.
struct Codes5 {
  static constexpr u32 BITS = 5;
  Nibbles low;
  const u8 *high;
  MEMBER Codes5(const u8 *w, u32 r, u32 k, u32 rows)
      : low(w, r, k, rows), high(w + (u64)rows * (k >> 1) + (u64)r * (k >> 3)) {}
  MEMBER Words4 chunk(u32 c) const {
    Words4 v = low.chunk(c);
    u32 h = *(const u32 *)(high + (c >> 1) * 4) >> ((c & 1) * 4);
#pragma unroll
    for (u32 i = 0; i < 4; i++) v.w[i] |= (h >> i & 0x01010101u) << 4;
    return v;
  }
  MEMBER Words8 block(u32 b) const {
    Words8 v = low.block(b);
    u32 h = *(const u32 *)(high + b * 4);
#pragma unroll
    for (u32 i = 0; i < 8; i++) v.w[i] |= (h >> i & 0x01010101u) << 4;
    return v;
  }
};

// Nibbles, then bits 4 and 5: per 16 elements a word, element 4 w + b in bits 8 b + 2 w and up.
struct Codes6 {
  static constexpr u32 BITS = 6;
  Nibbles low;
  const u8 *high;
  MEMBER Codes6(const u8 *w, u32 r, u32 k, u32 rows)
      : low(w, r, k, rows), high(w + (u64)rows * (k >> 1) + (u64)r * (k >> 2)) {}
  MEMBER Words4 chunk(u32 c) const {
    Words4 v = low.chunk(c);
    u32 h = *(const u32 *)(high + c * 4);
#pragma unroll
    for (u32 i = 0; i < 4; i++) v.w[i] |= (h >> (2 * i) & 0x03030303u) << 4;
    return v;
  }
  MEMBER Words8 block(u32 b) const {
    Words8 v = low.block(b);
    u32x2 h = *(const u32x2 *)(high + b * 8);
#pragma unroll
    for (u32 i = 0; i < 8; i++) v.w[i] |= (h[i >> 2] >> (2 * (i & 3)) & 0x03030303u) << 4;
    return v;
  }
};

// ---- levels -------------------------------------------------------------------------------------

// The code as i8.
struct Signed {
  static constexpr bool SIGNED = true;
  static constexpr i32 ZERO = 0;
  DEVICE u32 levels(u32 word) { return word; }
};
// The code less a number.
template <i32 OFFSET>
struct Unsigned {
  static constexpr bool SIGNED = false;
  static constexpr i32 ZERO = OFFSET;
  DEVICE u32 levels(u32 word) { return word; }
};
// Entry of a table of 16 i8, given as four words.
template <u32 T0, u32 T1, u32 T2, u32 T3>
struct Table {
  static constexpr bool SIGNED = true;
  static constexpr i32 ZERO = 0;
  DEVICE u32 levels(u32 word) {
    u32 entry = word & 0x07070707u;
    u32 low = __builtin_amdgcn_perm(T1, T0, entry);
    u32 high = __builtin_amdgcn_perm(T3, T2, entry);
    u32 upper = word >> 3 & 0x01010101u;
    u32 mask = (upper << 8) - upper;
    return (high & mask) | (low & ~mask);
  }
};

template <typename Levels>
DEVICE float level(u32 levels, u32 j) {
  if constexpr (Levels::SIGNED) return (float)((i32)(levels << (24 - 8 * j)) >> 24);
  float code = (float)(levels >> (8 * j) & 255u);
  return Levels::ZERO == 0 ? code : code - (float)Levels::ZERO;
}

// ---- scales -------------------------------------------------------------------------------------

struct Affine {
  float a, b;
};

DEVICE const u8 *after_codes(const u8 *w, u32 k, u32 rows, u32 bits) {
  return w + (u64)rows * (k >> 3) * bits;
}

// f16 d per 32 elements.
template <u32 BITS>
struct HalfScales {
  static constexpr bool MINS = false, BY_16 = false;
  const f16 *d;
  MEMBER HalfScales(const u8 *w, u32 r, u32 k, u32 rows)
      : d((const f16 *)after_codes(w, k, rows, BITS) + (u64)r * (k >> 5)) {}
  MEMBER Affine chunk(u32 c) const { return Affine{(float)d[c >> 1], 0.0f}; }
  template <typename X>
  MEMBER float add(u32 b, i32 sum, i32, const X &x, float acc) const {
    return fmadd((float)d[b] * x.d, (float)sum, acc);
  }
};

// u8 e per 32 elements: 2^(e - 128).
template <u32 BITS>
struct ExponentScales {
  static constexpr bool MINS = false, BY_16 = false;
  const u8 *e;
  MEMBER ExponentScales(const u8 *w, u32 r, u32 k, u32 rows)
      : e(after_codes(w, k, rows, BITS) + (u64)r * (k >> 5)) {}
  MEMBER float scale(u32 b) const {
    u32 v = e[b];
    return as_float(v < 2 ? 0x00200000u << v : (v - 1) << 23);
  }
  MEMBER Affine chunk(u32 c) const { return Affine{scale(c >> 1), 0.0f}; }
  template <typename X>
  MEMBER float add(u32 b, i32 sum, i32, const X &x, float acc) const {
    return fmadd(scale(b) * x.d, (float)sum, acc);
  }
};

// f16 scale and f16 minimum per 2^LOG elements.
template <u32 BITS, u32 LOG>
struct HalfPairs {
  static constexpr bool MINS = true, BY_16 = false;
  const f16x2 *pairs;
  MEMBER HalfPairs(const u8 *w, u32 r, u32 k, u32 rows)
      : pairs((const f16x2 *)after_codes(w, k, rows, BITS) + (u64)r * (k >> LOG)) {}
  MEMBER Affine chunk(u32 c) const {
    f16x2 p = pairs[c >> (LOG - 4)];
    return Affine{(float)p.x, (float)p.y};
  }
  template <typename X>
  MEMBER float add(u32 b, i32 sum, i32, const X &x, float acc) const {
    f16x2 p = pairs[b >> (LOG - 5)];
    acc = fmadd((float)p.x * x.d, (float)sum, acc);
    return fmadd((float)p.y, x.scaled_sum(), acc);
  }
};

// f32 scale and f32 zero per 256 elements.
template <u32 BITS>
struct SinglePairs {
  static constexpr bool MINS = true, BY_16 = false;
  const float2v *pairs;
  MEMBER SinglePairs(const u8 *w, u32 r, u32 k, u32 rows)
      : pairs((const float2v *)after_codes(w, k, rows, BITS) + (u64)r * (k >> 8)) {}
  MEMBER Affine chunk(u32 c) const {
    float2v p = pairs[c >> 4];
    return Affine{p.x, p.y};
  }
  template <typename X>
  MEMBER float add(u32 b, i32 sum, i32, const X &x, float acc) const {
    float2v p = pairs[b >> 3];
    acc = fmadd(p.x * x.d, (float)sum, acc);
    return fmadd(p.y, x.scaled_sum(), acc);
  }
};

// (u8 scale, u8 minimum) per 32 elements, then f16 d and f16 dmin per 256.
template <u32 BITS>
struct KMins {
  static constexpr bool MINS = true, BY_16 = false;
  const u16 *scales;
  const f16x2 *pairs;
  MEMBER KMins(const u8 *w, u32 r, u32 k, u32 rows) {
    const u8 *plane = after_codes(w, k, rows, BITS);
    u32 blocks = k >> 8;
    scales = (const u16 *)plane + (u64)r * blocks * 8;
    pairs = (const f16x2 *)(plane + (u64)rows * blocks * 16) + (u64)r * blocks;
  }
  MEMBER Affine chunk(u32 c) const {
    u32 s = scales[c >> 1];
    f16x2 p = pairs[c >> 4];
    return Affine{(float)p.x * (float)(s & 255u), -((float)p.y * (float)(s >> 8))};
  }
  template <typename X>
  MEMBER float add(u32 b, i32 sum, i32, const X &x, float acc) const {
    u32 s = scales[b];
    f16x2 p = pairs[b >> 3];
    acc = fmadd((float)p.x * x.d, (float)((i32)(s & 255u) * sum), acc);
    return fmadd((float)p.y * x.d, (float)(-(i32)(s >> 8) * x.sum()), acc);
  }
};

// i8 scale per 16 elements, then f16 d per 256.
template <u32 BITS>
struct KSigned {
  static constexpr bool MINS = false, BY_16 = true;
  const i8 *scales;
  const f16 *d;
  MEMBER KSigned(const u8 *w, u32 r, u32 k, u32 rows) {
    const u8 *plane = after_codes(w, k, rows, BITS);
    u32 blocks = k >> 8;
    scales = (const i8 *)plane + (u64)r * blocks * 16;
    d = (const f16 *)(plane + (u64)rows * blocks * 16) + (u64)r * blocks;
  }
  MEMBER Affine chunk(u32 c) const {
    return Affine{(float)d[c >> 4] * (float)scales[c], 0.0f};
  }
  template <typename X>
  MEMBER float add(u32 b, i32 low, i32 high, const X &x, float acc) const {
    i32 s = *(const i16 *)(scales + 2 * b);
    i32 sum = ((i32)((u32)s << 24) >> 24) * low + (s >> 8) * high;
    return fmadd((float)d[b >> 3] * x.d, (float)sum, acc);
  }
};

// ---- a format -----------------------------------------------------------------------------------

template <typename Codes, typename Levels, typename Scales, typename Habit>
struct Packed {
  using Activation = Habit;
  Codes codes;
  Scales scales;
  MEMBER Packed(const u8 *w, u32 r, u32 k, u32 rows)
      : codes(w, r, k, rows), scales(w, r, k, rows) {}

  // Elements of chunk c.
  MEMBER void values(u32 c, float (&out)[16]) const {
    Words4 words = codes.chunk(c);
    Affine affine = scales.chunk(c);
#pragma unroll
    for (u32 i = 0; i < 16; i++) {
      float v = level<Levels>(Levels::levels(words.w[i >> 2]), i & 3);
      out[i] = Scales::MINS ? fmadd(affine.a, v, affine.b) : affine.a * v;
    }
  }

  MEMBER float dot(u32 c, const Chunk &x, float acc) const {
    float weights[16];
    values(c, weights);
#pragma unroll
    for (u32 i = 0; i < 16; i++) acc = fmadd(weights[i], x.x[i >> 2][i & 3], acc);
    return acc;
  }

  MEMBER float dot(u32 b, const typename Habit::Block &x, float acc) const {
    Words8 words = codes.block(b);
    i32 low = 0, high = 0;
#pragma unroll
    for (u32 i = 0; i < 8; i++) {
      i32 &sum = Scales::BY_16 && i >= 4 ? high : low;
      u32 levels = Levels::levels(words.w[i]);
      sum = __builtin_amdgcn_sudot4(Levels::SIGNED, (i32)levels, true, (i32)x.q[i], sum, false);
    }
    if constexpr (Levels::ZERO != 0 && Scales::BY_16) {
      low -= Levels::ZERO * x.sum16(0);
      high -= Levels::ZERO * x.sum16(1);
    } else if constexpr (Levels::ZERO != 0) {
      low -= Levels::ZERO * x.sum();
    }
    return scales.add(b, low, high, x, acc);
  }
};

using LevelsIq4nl = Table<0xBFAD9881u, 0xF6EADDCFu, 0x26190D01u, 0x71594535u>;
using LevelsMxfp4 = Table<0x03020100u, 0x0C080604u, 0xFDFEFF00u, 0xF4F8FAFCu>;

using WeightsQ8_0 = Packed<Bytes, Signed, HalfScales<8>, ActivationQ8_0>;
using WeightsQ4_0 = Packed<Nibbles, Unsigned<8>, HalfScales<4>, ActivationQ8_0>;
using WeightsQ4_1 = Packed<Nibbles, Unsigned<0>, HalfPairs<4, 5>, ActivationQ8_1>;
using WeightsQ5_0 = Packed<Codes5, Unsigned<16>, HalfScales<5>, ActivationQ8_0>;
using WeightsQ5_1 = Packed<Codes5, Unsigned<0>, HalfPairs<5, 5>, ActivationQ8_1>;
using WeightsQ4_K = Packed<Nibbles, Unsigned<0>, KMins<4>, ActivationQ8_K>;
using WeightsQ5_K = Packed<Codes5, Unsigned<0>, KMins<5>, ActivationQ8_K>;
using WeightsQ6_K = Packed<Codes6, Unsigned<32>, KSigned<6>, ActivationQ8_K>;
using WeightsIq4_nl = Packed<Nibbles, LevelsIq4nl, HalfScales<4>, ActivationQ8_0>;
using WeightsMxfp4 = Packed<Nibbles, LevelsMxfp4, ExponentScales<4>, ActivationQ8_0>;
using WeightsHfq4 = Packed<Nibbles, Unsigned<0>, SinglePairs<4>, ActivationQ8_K>;
using WeightsMq4_v2 = Packed<Nibbles, Unsigned<0>, HalfPairs<4, 7>, ActivationQ8_K>;
using WeightsMq4c = Packed<Nibbles, Unsigned<0>, HalfPairs<4, 8>, ActivationQ8_K>;
using WeightsHfq6 = Packed<Codes6, Unsigned<0>, SinglePairs<6>, ActivationQ8_K>;
