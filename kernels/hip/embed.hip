// Token embedding: row control.token of the table, widened to f32.

#include "refrain.hpp"

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
// Planar Q8_0 (gemv.hip): quants [rows][e], then scales [rows][e/32].
KERNEL(256) embed_q8_0(const u8 *__restrict table, const Control *__restrict control,
                       float *__restrict out, u32 e, u32 rows) {
  u32 i = group_id() * 256 + thread_id();
  u64 token = control->token;
  const i8 *quants = (const i8 *)table + token * e;
  const f16 *scales = (const f16 *)(table + (u64)rows * e) + token * (e >> 5);
  if (i < e) out[i] = (float)scales[i >> 5] * (float)quants[i];
}
