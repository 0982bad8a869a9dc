// Forms of an activation that weights ask for: int8 codes, and the rotation of hipfire's MQ types.

#include "activation.hpp"

#define QUANTISE(name, habit)                                                                     \
  KERNEL(256) quantise_##name(const float *__restrict x, u8 *__restrict q, u32 n) {               \
    u32 first = (group_id() * 8 + wave_id()) * 256;                                               \
    if (first >= n) return;                                                                       \
    float v[8];                                                                                   \
    load8(x, first, n, v);                                                                        \
    quantise256<habit>(v, first, n, q);                                                           \
  }

QUANTISE(q8_0, Habit::Q8_0)
QUANTISE(q8_1, Habit::Q8_1)
QUANTISE(q8_k, Habit::Q8_K)

// A lane's eight sign bits, set for minus, out of 256 in order.
DEVICE u32 signs_of_lane(const u32 (&bits)[8]) {
  u32 word = bits[0];
#pragma unroll
  for (u32 i = 1; i < 8; i++) word = (lane_id() >> 2) == i ? bits[i] : word;
  return word >> ((lane_id() & 3) * 8);
}
DEVICE float with_sign(float v, u32 bits, u32 i) {
  return as_float(as_bits(v) ^ (bits >> i & 1u) << 31);
}

template <u32 MASK>
DEVICE void butterfly_lanes(float (&v)[8]) {
  bool upper = (lane_id() & MASK) != 0;
#pragma unroll
  for (u32 i = 0; i < 8; i++) {
    float other = MASK == 16 ? lane_xor16(v[i]) : lane_xor<MASK & 15>(v[i]);
    v[i] = upper ? other - v[i] : v[i] + other;
  }
}
template <u32 STRIDE>
DEVICE void butterfly(float (&v)[8]) {
#pragma unroll
  for (u32 i = 0; i < 8; i++) {
    if ((i & STRIDE) == 0) {
      float a = v[i], b = v[i + STRIDE];
      v[i] = a + b;
      v[i + STRIDE] = a - b;
    }
  }
}

// y = R x per 256 elements: signs, butterflies (a, b) -> (a + b, a - b) of strides 1, 2, ... 128,
// signs over 16. Eight elements to a lane, one wave to 256. Signs: bit 16 of the states of the 31-bit
// generator s * 1103515245 + 12345 from 42 and from 1042, minus where it is 0.
KERNEL(256) rotate_256(const float *__restrict x, float *__restrict y, u32 n) {
  u32 first = (group_id() * 8 + wave_id()) * 256;
  if (first >= n) return;
  const u32 before[8] = {0x81E0BC90u, 0x82335B24u, 0x9A9ECD08u, 0xCB9E15CEu,
                         0xC0700753u, 0xA878CFC7u, 0xC06C6277u, 0xBF71DA5Cu};
  const u32 after[8] = {0x9EA14C9Eu, 0x71547B5Bu, 0xDB7E3FC4u, 0xAEE3399Eu,
                        0xC52BE647u, 0x410C136Cu, 0x11C5BD8Eu, 0xC6F05016u};
  float v[8];
  load8(x, first, n, v);
  u32 minus = signs_of_lane(before);
#pragma unroll
  for (u32 i = 0; i < 8; i++) v[i] = with_sign(v[i], minus, i);
  butterfly<1>(v);
  butterfly<2>(v);
  butterfly<4>(v);
  butterfly_lanes<1>(v);
  butterfly_lanes<2>(v);
  butterfly_lanes<4>(v);
  butterfly_lanes<8>(v);
  butterfly_lanes<16>(v);
  minus = signs_of_lane(after);
#pragma unroll
  for (u32 i = 0; i < 8; i++) v[i] = with_sign(v[i] * 0.0625f, minus, i);
  u32 at = first + lane_id() * 8;
  *(float4v *)(y + at) = float4v{v[0], v[1], v[2], v[3]};
  *(float4v *)(y + at + 4) = float4v{v[4], v[5], v[6], v[7]};
}
