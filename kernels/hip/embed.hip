// Token embedding: row control.token of the table, widened to f32.

#include "formats.hpp"

template <typename T>
DEVICE void embed_row(const T *table, const Control *control, float *out, u32 e) {
  u32 i = group_id() * 256 + thread_id();
  const T *row = table + (u64)control->token * e;
  if (i < e) out[i] = widen(row[i]);
}

KERNEL(256) embed_f32(const float *__restrict table, const Control *__restrict control,
                      float *__restrict out, u32 e) {
  embed_row(table, control, out, e);
}
KERNEL(256) embed_f16(const f16 *__restrict table, const Control *__restrict control,
                      float *__restrict out, u32 e) {
  embed_row(table, control, out, e);
}
KERNEL(256) embed_bf16(const bf16 *__restrict table, const Control *__restrict control,
                       float *__restrict out, u32 e) {
  embed_row(table, control, out, e);
}
// The other formats: a chunk of 16 elements a thread. Rotated ones have no table.
template <typename Weights>
DEVICE void embed_chunk(const u8 *table, const Control *control, float *out, u32 e, u32 rows) {
  u32 c = group_id() * 256 + thread_id();
  if (c >= e >> 4) return;
  float values[16];
  Weights(table, control->token, e, rows).values(c, values);
  float4v *to = (float4v *)(out + c * 16);
#pragma unroll
  for (u32 i = 0; i < 4; i++) {
    to[i] = float4v{values[4 * i], values[4 * i + 1], values[4 * i + 2], values[4 * i + 3]};
  }
}

#define EMBED(name, weights)                                                                      \
  KERNEL(256) embed_##name(const u8 *__restrict table, const Control *__restrict control,         \
                           float *__restrict out, u32 e, u32 rows) {                              \
    embed_chunk<weights>(table, control, out, e, rows);                                           \
  }

EMBED(q8_0, WeightsQ8_0)
EMBED(q4_0, WeightsQ4_0)
EMBED(q4_1, WeightsQ4_1)
EMBED(q5_0, WeightsQ5_0)
EMBED(q5_1, WeightsQ5_1)
EMBED(q4_k, WeightsQ4_K)
EMBED(q5_k, WeightsQ5_K)
EMBED(q6_k, WeightsQ6_K)
EMBED(iq4_nl, WeightsIq4_nl)
EMBED(mxfp4, WeightsMxfp4)
EMBED(hfq4_g256, WeightsHfq4)
EMBED(hfq6_g256, WeightsHfq6)
