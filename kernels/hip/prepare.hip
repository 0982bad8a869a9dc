// Between projections and attention in one launch: per-head RMS normalisation, rotary embedding,
// append to the cache. One wave per head, query heads first; a key head's wave also appends the
// value head. Orders are those of qk_norm (norm.hip) and rope (rope.hip), so the bits are too.
// Nothing is written once control.done is set.

#include "refrain.hpp"

struct Heads {
  u32 head_dim, rot_dim, interleaved, position;
  float eps;
};

template <bool NORM>
DEVICE float normed(const float *x, const float *w, float scale, u32 i) {
  return NORM ? (x[i] * scale) * w[i] : x[i];
}

template <bool NORM, typename Out>
DEVICE void prepare_head(const float *x, const float *w, const float2v *table, Out *out,
                         const Heads &s) {
  u32 lane = lane_id();
  float scale = 1.0f;
  if constexpr (NORM) {
    float acc = 0.0f;
    u32 rounds = s.head_dim >> 5;
    for (u32 n = 0; n < rounds; n++) {
      float v = x[n * 32 + lane];
      acc = fmadd(v, v, acc);
    }
    scale = exact_rsqrt(exact_div(sum32(acc), (float)s.head_dim) + s.eps);
  }
  u32 half = s.rot_dim >> 1;
  for (u32 j = lane; j < half; j += 32) {
    float2v frequency = table[j];
    SinCos angle = exact_sincos_turns(exact_turns(s.position, frequency.x, frequency.y));
    u32 first = s.interleaved ? 2 * j : j;
    u32 second = s.interleaved ? 2 * j + 1 : j + half;
    float a = normed<NORM>(x, w, scale, first);
    float b = normed<NORM>(x, w, scale, second);
    out[first] = (Out)fmadd(-b, angle.sin, a * angle.cos);
    out[second] = (Out)fmadd(a, angle.sin, b * angle.cos);
  }
  for (u32 i = s.rot_dim + lane; i < s.head_dim; i += 32) {
    out[i] = (Out)normed<NORM>(x, w, scale, i);
  }
}

template <bool NORM, typename T>
DEVICE void prepare(const float *q, const float *k, const float *v, const float *qw,
                    const float *kw, const float2v *table, const Control *control, float *q_out,
                    T *kcache, T *vcache, u32 heads, u32 kv_heads, u32 head_dim, u32 q_stride,
                    u32 rot_dim, u32 interleaved, float eps) {
  if (control->done != 0) return;
  u32 h = group_id();
  Heads shape{head_dim, rot_dim, interleaved, control->pos, eps};
  if (h < heads) {
    prepare_head<NORM>(q + h * q_stride, qw, table, q_out + h * head_dim, shape);
    return;
  }
  u32 g = h - heads;
  u64 row = ((u64)shape.position * kv_heads + g) * head_dim;
  prepare_head<NORM>(k + g * head_dim, kw, table, kcache + row, shape);
  for (u32 i = lane_id(); i < head_dim; i += 32) vcache[row + i] = (T)v[g * head_dim + i];
}

#define PREPARE(name, T)                                                                           \
  KERNEL(32) qk_norm_rope_kv_##name(                                                               \
      const float *__restrict q, const float *__restrict k, const float *__restrict v,             \
      const float *__restrict qw, const float *__restrict kw, const float2v *__restrict table,     \
      const Control *__restrict control, float *__restrict q_out, T *__restrict kcache,            \
      T *__restrict vcache, u32 heads, u32 kv_heads, u32 head_dim, u32 q_stride, u32 rot_dim,      \
      u32 interleaved, float eps) {                                                                \
    prepare<true>(q, k, v, qw, kw, table, control, q_out, kcache, vcache, heads, kv_heads,         \
                  head_dim, q_stride, rot_dim, interleaved, eps);                                  \
  }                                                                                                \
  KERNEL(32) rope_kv_##name(const float *__restrict q, const float *__restrict k,                  \
                            const float *__restrict v, const float2v *__restrict table,            \
                            const Control *__restrict control, float *__restrict q_out,            \
                            T *__restrict kcache, T *__restrict vcache, u32 heads, u32 kv_heads,   \
                            u32 head_dim, u32 q_stride, u32 rot_dim, u32 interleaved) {            \
    prepare<false, T>(q, k, v, nullptr, nullptr, table, control, q_out, kcache, vcache, heads,     \
                      kv_heads, head_dim, q_stride, rot_dim, interleaved, 0.0f);                   \
  }

PREPARE(f32, float)
PREPARE(f16, f16)

// Heads of [query, gate] apart: one wave per head.
KERNEL(32) q_gate_split(const float *__restrict qg, float *__restrict q, float *__restrict gate,
                        [[maybe_unused]] u32 heads, u32 head_dim) {
  u32 h = group_id();
  for (u32 i = lane_id(); i < head_dim; i += 32) {
    q[h * head_dim + i] = qg[2 * h * head_dim + i];
    gate[h * head_dim + i] = qg[(2 * h + 1) * head_dim + i];
  }
}
