// Activations as int8: the planar buffers that integer products read, and how they are made.
//
// Layout for n elements (refrain_kernels, Habit): i8 q[n]; then Q8_0: f16 d[n/32]; Q8_1: f16 d[n/32],
// f16 s[n/32], s = d * sum of q; Q8_K: f32 d[n/256], i16 sums[n/16] of q. The numbers are ggml's.
#pragma once

#include "refrain.hpp"

// Codes of 32 elements.
struct Codes32 {
  u32 q[8];
  MEMBER explicit Codes32(const u8 *codes) {
    u32x4 low = *(const u32x4 *)codes, high = *(const u32x4 *)(codes + 16);
#pragma unroll
    for (u32 i = 0; i < 8; i++) q[i] = i < 4 ? low[i & 3] : high[i & 3];
  }
  MEMBER i32 sum16(u32 half) const {
    i32 sum = 0;
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
      sum = __builtin_amdgcn_sudot4(true, 0x01010101, true, (i32)q[4 * half + i], sum, false);
    }
    return sum;
  }
  MEMBER i32 sum() const { return sum16(0) + sum16(1); }
};

// Each form reads the blocks of elements first.. of a buffer for n, both multiples of the block.
struct ActivationQ8_0 {
  const u8 *q;
  const f16 *d;
  MEMBER ActivationQ8_0(const u8 *x, u32 first, u32 n)
      : q(x + first), d((const f16 *)(x + n) + (first >> 5)) {}
  struct Block : Codes32 {
    float d;
    MEMBER Block(const ActivationQ8_0 &x, u32 b) : Codes32(x.q + b * 32), d((float)x.d[b]) {}
  };
};

struct ActivationQ8_1 {
  const u8 *q;
  const f16 *d, *s;
  MEMBER ActivationQ8_1(const u8 *x, u32 first, u32 n)
      : q(x + first), d((const f16 *)(x + n) + (first >> 5)), s(d + (n >> 5)) {}
  struct Block : Codes32 {
    float d, s;
    MEMBER Block(const ActivationQ8_1 &x, u32 b)
        : Codes32(x.q + b * 32), d((float)x.d[b]), s((float)x.s[b]) {}
    MEMBER float scaled_sum() const { return s; }
  };
};

struct ActivationQ8_K {
  const u8 *q;
  const float *d;
  const u32 *sums;
  MEMBER ActivationQ8_K(const u8 *x, u32 first, u32 n)
      : q(x + first), d((const float *)(x + n) + (first >> 8)),
        sums((const u32 *)(x + n + (n >> 6)) + (first >> 5)) {}
  struct Block : Codes32 {
    float d;
    u32 sums;
    MEMBER Block(const ActivationQ8_K &x, u32 b)
        : Codes32(x.q + b * 32), d(x.d[b >> 3]), sums(x.sums[b]) {}
    MEMBER i32 sum16(u32 half) const {
      return half ? (i32)sums >> 16 : (i32)(sums << 16) >> 16;
    }
    MEMBER i32 sum() const { return sum16(0) + sum16(1); }
    MEMBER float scaled_sum() const { return d * (float)sum(); }
  };
};

// ---- making them --------------------------------------------------------------------------------

// a/b rounded to nearest for 1 <= a, b < 256: of the quotient and its neighbours the one whose
// remainder, which fma gives exactly, is the smallest.
DEVICE float nearest_div(float a, float b) {
  float best = exact_div(a, b);
  float error = as_float(as_bits(fmadd(-b, best, a)) & 0x7FFFFFFFu);
#pragma unroll
  for (u32 i = 0; i < 2; i++) {
    float other = as_float(as_bits(best) + (i ? 1u : ~0u));
    float its = as_float(as_bits(fmadd(-b, other, a)) & 0x7FFFFFFFu);
    best = its < error ? other : best;
    error = its < error ? its : error;
  }
  return best;
}

// A normal |x| as mantissa in [1, 2) and 2^exponent; 2^e for -149 < e <= 127.
DEVICE float mantissa(float x) { return as_float((as_bits(x) & 0x007FFFFFu) | 0x3F800000u); }
DEVICE i32 exponent(float x) { return (i32)(as_bits(x) >> 23 & 255u) - 127; }
DEVICE float power_of_two(i32 e) {
  return as_float(e < -126 ? 0x00400000u >> (-127 - e) : (u32)(e + 127) << 23);
}

// 127/x and x/127 for x >= 0, rounded as IEEE division does (x/127 twice where it is subnormal).
DEVICE float inverse127(float x) {
  if (x < 0x1p-126f) return __builtin_inff();
  return nearest_div(127.0f, mantissa(x)) * power_of_two(-exponent(x));
}
DEVICE float over127(float x) {
  return nearest_div(mantissa(x), 127.0f) * power_of_two(exponent(x));
}

DEVICE bool is_finite(float x) { return (as_bits(x) & 0x7F800000u) != 0x7F800000u; }
DEVICE u32 pack4(const i32 *q) {
  return (q[0] & 255u) | (q[1] & 255u) << 8 | (q[2] & 255u) << 16 | (u32)q[3] << 24;
}

// Eight elements of a lane as codes, by their inverse scale. Nothing is left of a block that holds a
// NaN or an infinity, or that is too small for an inverse.
DEVICE i32 encode8(const float (&v)[8], float inverse, bool good, float top, u32 (&packed)[2]) {
  i32 q[8];
  i32 sum = 0;
#pragma unroll
  for (u32 i = 0; i < 8; i++) {
    float scaled = __builtin_rintf(v[i] * inverse);
    scaled = scaled < top ? scaled : top;
    q[i] = good ? (i32)scaled : 0;
    sum += q[i];
  }
  packed[0] = pack4(q);
  packed[1] = pack4(q + 4);
  return sum;
}

enum class Habit { Q8_0, Q8_1, Q8_K };

// One wave writes 256 elements from `first` on of a buffer for n: eight to a lane. Lanes past n hold
// anything and store nothing; they fill whole blocks.
template <Habit HABIT>
DEVICE void quantise256(const float (&v)[8], u32 first, u32 n, u8 *out) {
  u32 at = first + lane_id() * 8;
  Best best{-1.0f, 0};
  bool finite = true;
#pragma unroll
  for (u32 i = 0; i < 8; i++) {
    float size = as_float(as_bits(v[i]) & 0x7FFFFFFFu);
    finite = finite && is_finite(v[i]);
    best.index = size > best.value ? as_bits(v[i]) : best.index;
    best.value = size > best.value ? size : best.value;
  }
  // The largest of the block; of equal sizes the sign of the first element.
  u32 bad = finite ? 0 : 1;
  constexpr bool LONG = HABIT == Habit::Q8_K;
  auto join = [&](float value, u32 signed_bits, u32 other_bad, u32 mask) {
    bool lower = (lane_id() & mask) != 0;
    bool take = value > best.value || (value == best.value && lower);
    best.value = take ? value : best.value;
    best.index = take ? signed_bits : best.index;
    bad |= other_bad;
  };
  join(lane_xor<1>(best.value), lane_xor<1>(best.index), lane_xor<1>(bad), 1);
  join(lane_xor<2>(best.value), lane_xor<2>(best.index), lane_xor<2>(bad), 2);
  if constexpr (LONG) {
    join(lane_xor<4>(best.value), lane_xor<4>(best.index), lane_xor<4>(bad), 4);
    join(lane_xor<8>(best.value), lane_xor<8>(best.index), lane_xor<8>(bad), 8);
    join(lane_xor16(best.value), lane_xor16(best.index), lane_xor16(bad), 16);
  }
  float amax = bad ? 1.0f : best.value;
  float inverse = inverse127(amax);
  bool good = !bad && is_finite(inverse);
  float quiet_nan = as_float(0x7FC00000u);
  u32 packed[2];
  if constexpr (LONG) {
    // ggml's i = -127 / max, and d = 1 / i.
    u32 sign = (best.index & 0x80000000u) ^ 0x80000000u;
    float i = as_float(as_bits(good ? inverse : 1.0f) | sign);
    i32 sum = encode8(v, i, good, 127.0f, packed);
    sum += (i32)lane_xor<1>((u32)sum);
    float d = nearest_div(1.0f, mantissa(i)) * power_of_two(-exponent(i));
    d = as_float(as_bits(d) | (as_bits(i) & 0x80000000u));
    d = bad ? quiet_nan : good ? d : 0.0f;
    if (at < n) {
      *(u32x2 *)(out + at) = u32x2{packed[0], packed[1]};
      u8 *scales = out + n;
      if ((lane_id() & 1) == 0) ((i16 *)(scales + (n >> 6)))[at >> 4] = (i16)sum;
      if (lane_id() == 0) ((float *)scales)[at >> 8] = d;
    }
  } else {
    i32 sum = encode8(v, good ? inverse : 1.0f, good, 127.0f, packed);
    sum += (i32)lane_xor<1>((u32)sum);
    sum += (i32)lane_xor<2>((u32)sum);
    float d = bad ? quiet_nan : good ? over127(amax) : 0.0f;
    if (at < n) {
      *(u32x2 *)(out + at) = u32x2{packed[0], packed[1]};
      f16 *scales = (f16 *)(out + n);
      if ((lane_id() & 3) == 0) {
        scales[at >> 5] = (f16)d;
        if constexpr (HABIT == Habit::Q8_1) scales[(n >> 5) + (at >> 5)] = (f16)(d * (float)sum);
      }
    }
  }
}

// Elements first + 8 lane .. of a vector of n, the last eight again past its end.
DEVICE void load8(const float *x, u32 first, u32 n, float (&v)[8]) {
  u32 at = first + lane_id() * 8;
  const float4v *from = (const float4v *)(x + (at < n ? at : n - 8));
  float4v low = from[0], high = from[1];
#pragma unroll
  for (u32 i = 0; i < 8; i++) v[i] = i < 4 ? low[i & 3] : high[i & 3];
}
