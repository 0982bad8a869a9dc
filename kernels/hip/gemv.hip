// Matrix times vector, y[r] = dot(W[r], x), optionally plus a residual, for rows [r0, r1).
//
// Written order, the same for every dtype: a row is cut into chunks of 16 elements. Chunk c belongs
// to lane c mod 16 of the 16 lanes of that row. A lane goes over its chunks in ascending order and
// over the 16 elements of each in ascending order, acc = fma(w, x, acc), with one accumulator from
// +0 and w the weight widened to f32 (Q8_0: the product d * q, exact in f32). Then sum16: xor 8, 4,
// 2, 1. A residual is added last. So the result depends neither on the row range nor on the grid.
//
// Two rows to a wave, eight waves to a block: 16 rows a block. Rows past the end are clamped to
// the last one, and only the store is predicated, so the cross-lane sum runs under full EXEC.
// k is a multiple of 16 (Q8_0: of 32); w is 16-byte aligned, x 16-byte aligned.

#include "refrain.hpp"

struct Chunk {
  float4v x[4];
};
DEVICE Chunk load_chunk(const float *x) {
  const float4v *v = (const float4v *)x;
  return Chunk{{v[0], v[1], v[2], v[3]}};
}

struct WeightsF32 {
  static constexpr u32 ELEMENT_BYTES = 4;
  const u8 *row;
  MEMBER WeightsF32(const u8 *w, u32 r, u32 k, u32) : row(w + (u64)r * k * ELEMENT_BYTES) {}
  MEMBER float dot(u32 chunk, const Chunk &x, float acc) const {
    const float4v *w = (const float4v *)(row + chunk * (16 * ELEMENT_BYTES));
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
  static constexpr u32 ELEMENT_BYTES = 2;
  using f16x8 = f16 __attribute__((ext_vector_type(8)));
  const u8 *row;
  MEMBER WeightsF16(const u8 *w, u32 r, u32 k, u32) : row(w + (u64)r * k * ELEMENT_BYTES) {}
  MEMBER float dot(u32 chunk, const Chunk &x, float acc) const {
    const f16x8 *w = (const f16x8 *)(row + chunk * (16 * ELEMENT_BYTES));
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
  static constexpr u32 ELEMENT_BYTES = 2;
  const u8 *row;
  MEMBER WeightsBf16(const u8 *w, u32 r, u32 k, u32) : row(w + (u64)r * k * ELEMENT_BYTES) {}
  MEMBER float dot(u32 chunk, const Chunk &x, float acc) const {
    const u32x4 *w = (const u32x4 *)(row + chunk * (16 * ELEMENT_BYTES));
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

// Planar Q8_0: quants i8 [rows][k], then at byte rows * k the scales f16 [rows][k/32].
struct WeightsQ80 {
  const u8 *row;
  const f16 *scales;
  MEMBER WeightsQ80(const u8 *w, u32 r, u32 k, u32 rows)
      : row(w + (u64)r * k), scales((const f16 *)(w + (u64)rows * k) + (u64)r * (k >> 5)) {}
  MEMBER float dot(u32 chunk, const Chunk &x, float acc) const {
    u32x4 v = *(const u32x4 *)(row + chunk * 16);
    float d = (float)scales[chunk >> 1];
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
#pragma unroll
      for (u32 j = 0; j < 4; j++) {
        float q = (float)((i32)(v[i] << (24 - 8 * j)) >> 24);
        acc = fmadd(d * q, x.x[i][j], acc);
      }
    }
    return acc;
  }
};

template <typename Weights, bool ADD>
DEVICE void gemv(const u8 *w, const float *x, const float *residual, float *y, u32 r0, u32 r1,
                 u32 k, u32 rows) {
  u32 lane = thread_id() & 15u;
  u32 r = r0 + group_id() * 16 + (thread_id() >> 4);
  bool in_range = r < r1;
  Weights weights(w, in_range ? r : r1 - 1, k, rows);
  u32 chunks = k >> 4;
  u32 whole = chunks & ~15u;
  float acc = 0.0f;
#pragma unroll 2
  for (u32 base = 0; base < whole; base += 16) {
    u32 c = base + lane;
    acc = weights.dot(c, load_chunk(x + c * 16), acc);
  }
  u32 c = whole + lane;
  if (c < chunks) acc = weights.dot(c, load_chunk(x + c * 16), acc);
  acc = sum16(acc);
  if (in_range && lane == 0) y[r] = ADD ? residual[r] + acc : acc;
}

// y may be the residual itself: each element is read and written by one lane.
#define GEMV(name, weights)                                                                       \
  KERNEL(256) gemv_##name(const u8 *__restrict w, const float *__restrict x, float *__restrict y, \
                          u32 r0, u32 r1, u32 k) {                                                \
    gemv<weights, false>(w, x, nullptr, y, r0, r1, k, 0);                                         \
  }                                                                                               \
  KERNEL(256) gemv_##name##_add(const u8 *__restrict w, const float *__restrict x,                \
                                const float *residual, float *y, u32 r0, u32 r1, u32 k) {         \
    gemv<weights, true>(w, x, residual, y, r0, r1, k, 0);                                         \
  }

GEMV(f32, WeightsF32)
GEMV(f16, WeightsF16)
GEMV(bf16, WeightsBf16)

KERNEL(256) gemv_q8_0(const u8 *__restrict w, const float *__restrict x, float *__restrict y,
                      u32 r0, u32 r1, u32 k, u32 rows) {
  gemv<WeightsQ80, false>(w, x, nullptr, y, r0, r1, k, rows);
}
KERNEL(256) gemv_q8_0_add(const u8 *__restrict w, const float *__restrict x, const float *residual,
                          float *y, u32 r0, u32 r1, u32 k, u32 rows) {
  gemv<WeightsQ80, true>(w, x, residual, y, r0, r1, k, rows);
}
