// One row of a weight times a vector: the loads and the written order that every GEMV shares.
//
// Written order, the same for every dtype and on every engine: a row is cut into chunks of 16
// elements. Chunk c belongs to partial sum c mod 32. A partial starts from +0 and goes over its
// chunks in ascending order and over the 16 elements of each in ascending order, acc = fma(w, x,
// acc), with w the weight widened to f32 (Q8_0: the product d * q, exact in f32). Then the partials
// are added pairwise, i with i xor 16, 8, 4, 2, 1. Each of the 16 lanes of a row keeps two partials,
// its own number and 16 more, so the first of these additions is inside the lane and the others are
// sum16. So the result depends neither on the row range nor on the grid.
//
// Two rows to a wave, eight waves to a block: 16 rows a block. Rows past the end are clamped to
// the last one, and only the store is predicated, so the cross-lane sum runs under full EXEC.
// k is a multiple of 16 (Q8_0: of 32); w is 16-byte aligned, x 16-byte aligned.
#pragma once

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

// Chunk c of each row, added to one partial sum of each.
template <u32 COUNT, typename Weights>
DEVICE void add_chunk(const Weights (&rows)[COUNT], const float *x, u32 c, float (&acc)[COUNT]) {
  Chunk chunk = load_chunk(x + c * 16);
#pragma unroll
  for (u32 i = 0; i < COUNT; i++) acc[i] = rows[i].dot(c, chunk, acc[i]);
}

// The row of each of COUNT weights times x, all read in one pass over x.
template <u32 COUNT, typename Weights>
DEVICE void dot_rows(const Weights (&rows)[COUNT], const float *x, u32 k, float (&out)[COUNT]) {
  u32 lane = thread_id() & 15u;
  u32 chunks = k >> 4;
  u32 whole = chunks & ~31u;
  float low[COUNT] = {}, high[COUNT] = {};
#pragma nounroll
  for (u32 base = 0; base < whole; base += 32) {
    add_chunk(rows, x, base + lane, low);
    add_chunk(rows, x, base + lane + 16, high);
  }
  u32 c = whole + lane;
  if (c < chunks) add_chunk(rows, x, c, low);
  if (c + 16 < chunks) add_chunk(rows, x, c + 16, high);
#pragma unroll
  for (u32 i = 0; i < COUNT; i++) out[i] = sum16(low[i] + high[i]);
}

template <typename Weights>
DEVICE float dot_row(const Weights &row, const float *x, u32 k) {
  const Weights rows[1] = {row};
  float out[1];
  dot_rows(rows, x, k, out);
  return out[0];
}

// Row of the launch that this lane's half-wave works on.
DEVICE u32 launch_row() { return group_id() * 16 + (thread_id() >> 4); }
DEVICE bool stores_row() { return (thread_id() & 15u) == 0; }
