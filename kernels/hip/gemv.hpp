// One row of a weight times a vector: the written orders that every GEMV shares.
//
// f32 activations, the same for every format and on every engine: a row is cut into chunks of 16
// elements. Chunk c belongs to partial sum c mod 32. A partial starts from +0 and goes over its
// chunks in ascending order and over the 16 elements of each in ascending order, acc = fma(w, x,
// acc), with w the weight widened to f32 as formats.hpp says. Then the partials are added pairwise, i
// with i xor 16, 8, 4, 2, 1. Each of the 16 lanes of a row keeps two partials, its own number and 16
// more, so the first of these additions is inside the lane and the others are sum16.
//
// int8 activations: block b of 32 elements belongs to partial b mod 16, one a lane; blocks ascending,
// each as formats.hpp says; then sum16.
//
// So results depend neither on the row range nor on the grid. Two rows to a wave, eight waves to a
// block: 16 rows a block. Rows past the end are clamped to the last one, and only the store is
// predicated, so the cross-lane sum runs under full EXEC. k is a multiple of 16 and of the format's
// block; w and x are 16-byte aligned.
#pragma once

#include "formats.hpp"

// Rows of a format times f32.
template <typename Weights>
struct Exact {
  using X = float;
  using Row = Weights;

  // Chunk c of each row, added to one partial sum of each.
  template <u32 COUNT>
  DEVICE void add(const Row (&rows)[COUNT], const float *x, u32 c, float (&acc)[COUNT]) {
    Chunk chunk = load_chunk(x + c * 16);
#pragma unroll
    for (u32 i = 0; i < COUNT; i++) acc[i] = rows[i].dot(c, chunk, acc[i]);
  }

  // Each of COUNT rows times elements first .. first + k of x, in one pass over x.
  template <u32 COUNT>
  DEVICE void dots(const Row (&rows)[COUNT], const float *x, u32 first, u32 k, u32,
                   float (&out)[COUNT]) {
    u32 lane = thread_id() & 15u;
    u32 chunks = k >> 4;
    u32 whole = chunks & ~31u;
    float low[COUNT] = {}, high[COUNT] = {};
    x += first;
#pragma nounroll
    for (u32 base = 0; base < whole; base += 32) {
      add(rows, x, base + lane, low);
      add(rows, x, base + lane + 16, high);
    }
    u32 c = whole + lane;
    if (c < chunks) add(rows, x, c, low);
    if (c + 16 < chunks) add(rows, x, c + 16, high);
#pragma unroll
    for (u32 i = 0; i < COUNT; i++) out[i] = sum16(low[i] + high[i]);
  }
};

// Rows of a format times int8 activations in the format's form.
template <typename Weights>
struct Int8 {
  using X = u8;
  using Row = Weights;
  using Activation = typename Weights::Activation;

  template <u32 COUNT>
  DEVICE void add(const Row (&rows)[COUNT], const Activation &x, u32 b, float (&acc)[COUNT]) {
    typename Activation::Block block(x, b);
#pragma unroll
    for (u32 i = 0; i < COUNT; i++) acc[i] = rows[i].dot(b, block, acc[i]);
  }

  // As Exact, x being a buffer of n elements.
  template <u32 COUNT>
  DEVICE void dots(const Row (&rows)[COUNT], const u8 *buffer, u32 first, u32 k, u32 n,
                   float (&out)[COUNT]) {
    Activation x(buffer, first, n);
    u32 lane = thread_id() & 15u;
    u32 blocks = k >> 5;
    u32 whole = blocks & ~15u;
    float acc[COUNT] = {};
#pragma unroll 2
    for (u32 base = 0; base < whole; base += 16) add(rows, x, base + lane, acc);
    u32 b = whole + lane;
    if (b < blocks) add(rows, x, b, acc);
#pragma unroll
    for (u32 i = 0; i < COUNT; i++) out[i] = sum16(acc[i]);
  }
};

template <typename Dot>
DEVICE float dot_row(const typename Dot::Row &row, const typename Dot::X *x, u32 first, u32 k,
                     u32 n) {
  const typename Dot::Row rows[1] = {row};
  float out[1];
  Dot::dots(rows, x, first, k, n, out);
  return out[0];
}

// Row of the launch that this lane's half-wave works on.
DEVICE u32 launch_row() { return group_id() * 16 + (thread_id() >> 4); }
DEVICE bool stores_row() { return (thread_id() & 15u) == 0; }

// Every format: symbol, weights, what it takes more. The first have every kernel, with f32
// activations and, from q8_0 on, with int8 ones; the others those that a model cannot do without.
// The plain types take no `rows`; the others take it last.
#define FULL_FORMATS(WITH)                                                                        \
  WITH(f32, Exact<WeightsF32>, NONE)                                                              \
  WITH(f16, Exact<WeightsF16>, NONE)                                                              \
  WITH(bf16, Exact<WeightsBf16>, NONE)                                                            \
  WITH(q8_0, Exact<WeightsQ8_0>, ROWS)                                                            \
  WITH(q4_0, Exact<WeightsQ4_0>, ROWS)                                                            \
  WITH(q4_k, Exact<WeightsQ4_K>, ROWS)                                                            \
  WITH(q6_k, Exact<WeightsQ6_K>, ROWS)                                                            \
  WITH(q8_0_i8, Int8<WeightsQ8_0>, ROWS)                                                          \
  WITH(q4_0_i8, Int8<WeightsQ4_0>, ROWS)                                                          \
  WITH(q4_k_i8, Int8<WeightsQ4_K>, ROWS)                                                          \
  WITH(q6_k_i8, Int8<WeightsQ6_K>, ROWS)
#define CORE_FORMATS(WITH)                                                                        \
  WITH(q4_1, Exact<WeightsQ4_1>, ROWS)                                                            \
  WITH(q5_0, Exact<WeightsQ5_0>, ROWS)                                                            \
  WITH(q5_1, Exact<WeightsQ5_1>, ROWS)                                                            \
  WITH(q5_k, Exact<WeightsQ5_K>, ROWS)                                                            \
  WITH(iq4_nl, Exact<WeightsIq4_nl>, ROWS)                                                        \
  WITH(mxfp4, Exact<WeightsMxfp4>, ROWS)                                                          \
  WITH(hfq4_g256, Exact<WeightsHfq4>, ROWS)                                                       \
  WITH(mq4_g256_v2, Exact<WeightsMq4_v2>, ROWS)                                                   \
  WITH(mq4c_g256, Exact<WeightsMq4c>, ROWS)                                                       \
  WITH(hfq6_g256, Exact<WeightsHfq6>, ROWS)                                                       \
  WITH(q4_1_i8, Int8<WeightsQ4_1>, ROWS)                                                          \
  WITH(q5_0_i8, Int8<WeightsQ5_0>, ROWS)                                                          \
  WITH(q5_1_i8, Int8<WeightsQ5_1>, ROWS)                                                          \
  WITH(q5_k_i8, Int8<WeightsQ5_K>, ROWS)                                                          \
  WITH(iq4_nl_i8, Int8<WeightsIq4_nl>, ROWS)                                                      \
  WITH(mxfp4_i8, Int8<WeightsMxfp4>, ROWS)                                                        \
  WITH(hfq4_g256_i8, Int8<WeightsHfq4>, ROWS)                                                     \
  WITH(mq4_g256_v2_i8, Int8<WeightsMq4_v2>, ROWS)                                                 \
  WITH(mq4c_g256_i8, Int8<WeightsMq4c>, ROWS)                                                     \
  WITH(hfq6_g256_i8, Int8<WeightsHfq6>, ROWS)
#define DECLARE_NONE
#define DECLARE_ROWS , u32 rows
#define PASS_NONE , 0
#define PASS_ROWS , rows
