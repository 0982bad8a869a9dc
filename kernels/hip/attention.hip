// Decode attention of one token over the cached positions 0..=control.pos, one work-group of 256
// per query head; grouped queries read kv head floor(h * kv_heads / heads).
//
// Written order. Positions are cut into tiles of 32; tile t belongs to wave t mod 8, ascending. In
// a tile, lane l scores position 32 t + l: fma over the head's dims ascending from +0, times scale;
// lanes past the end score -inf. m' = max(m, tile max); c = exp(m - m'); p = exp(s - m');
// l = fma(l, c, sum32(p)); each lane owns D/32 adjacent dims, o = o * c, then o = fma(p, v, o)
// over the tile's positions ascending. Waves are merged ascending: M = max m; w = exp(m - M);
// L = fma(w, l, L), O = fma(w, o, O); result O * rcp(L). Waves without a tile take no part.
// The grid does not depend on the position, and every loop bound is a scalar.

#include "refrain.hpp"

template <typename T, u32 COUNT>
struct alignas(sizeof(T) * COUNT) Run {
  T v[COUNT];
};

template <typename T>
DEVICE float score(const float *q, const T *key, u32 dims) {
  constexpr u32 PER_LOAD = 16 / sizeof(T);
  using Load = T __attribute__((ext_vector_type(PER_LOAD)));
  float acc = 0.0f;
#pragma nounroll
  for (u32 base = 0; base < dims; base += 32) {
    const Load *loads = (const Load *)(key + base);
    Load part[32 / PER_LOAD];
#pragma unroll
    for (u32 i = 0; i < 32 / PER_LOAD; i++) part[i] = loads[i];
#pragma unroll
    for (u32 i = 0; i < 32; i++) {
      acc = fmadd(q[base + i], (float)part[i / PER_LOAD][i % PER_LOAD], acc);
    }
  }
  return acc;
}

template <typename T, u32 COUNT>
DEVICE void add_weighted(float (&o)[COUNT], float weight, const Run<T, COUNT> &row) {
#pragma unroll
  for (u32 i = 0; i < COUNT; i++) o[i] = fmadd(weight, (float)row.v[i], o[i]);
}

template <typename T, u32 D>
DEVICE void attention(const float *q, const T *kcache, const T *vcache, const Control *control,
                      float *out, u32 heads, u32 kv_heads, float scale, float (*merge)[D],
                      float *merge_max, float *merge_sum) {
  constexpr u32 OWN = D / 32;
  u32 h = group_id();
  u32 wave = wave_id();
  u32 lane = lane_id();
  // floor(h * kv_heads / heads) without an integer division, which would go through v_rcp_iflag.
  u32 kv_head = 0;
  for (u32 next = heads; next <= h * kv_heads; next += heads) kv_head++;
  u32 kv_len = control->pos + 1;
  u32 tiles = (kv_len + 31) >> 5;
  u64 stride = (u64)kv_heads * D;
  const T *keys = kcache + kv_head * D;
  const T *values = vcache + kv_head * D + lane * OWN;
  const float *query = q + h * D;

  float m = -__builtin_inff();
  float l = 0.0f;
  float o[OWN] = {};
  for (u32 tile = wave; tile < tiles; tile += 8) {
    u32 start = tile * 32;
    u32 valid = kv_len - start < 32 ? kv_len - start : 32;
    u32 position = start + (lane < valid ? lane : valid - 1);
    float s = score(query, keys + position * stride, D) * scale;
    s = lane < valid ? s : -__builtin_inff();
    float m_next = larger(m, max32(s));
    float c = exact_exp(m - m_next);
    float p = exact_exp(s - m_next);
    l = fmadd(l, c, sum32(p));
    m = m_next;
#pragma unroll
    for (u32 i = 0; i < OWN; i++) o[i] = o[i] * c;
    const T *value = values + start * stride;
    // Four rows are loaded before they are added, so that their latencies overlap.
    u32 n = 0;
    for (; n + 4 <= valid; n += 4) {
      Run<T, OWN> rows[4];
#pragma unroll
      for (u32 j = 0; j < 4; j++) rows[j] = *(const Run<T, OWN> *)(value + (n + j) * stride);
#pragma unroll
      for (u32 j = 0; j < 4; j++) add_weighted(o, read_lane(p, n + j), rows[j]);
    }
    for (; n < valid; n++) {
      add_weighted(o, read_lane(p, n), *(const Run<T, OWN> *)(value + n * stride));
    }
  }
#pragma unroll
  for (u32 i = 0; i < OWN; i++) merge[wave][lane * OWN + i] = o[i];
  if (lane == 0) {
    merge_max[wave] = m;
    merge_sum[wave] = l;
  }
  lds_barrier();
  u32 d = thread_id();
  if (d < D) {
    u32 waves = tiles < 8 ? tiles : 8;
    float top = merge_max[0];
    for (u32 i = 1; i < waves; i++) top = larger(top, merge_max[i]);
    float total = 0.0f;
    float result = 0.0f;
    for (u32 i = 0; i < waves; i++) {
      float w = exact_exp(merge_max[i] - top);
      total = fmadd(w, merge_sum[i], total);
      result = fmadd(w, merge[i][d], result);
    }
    out[h * D + d] = result * exact_rcp(total);
  }
}

#define ATTENTION(name, T, D)                                                                      \
  KERNEL(256) attn_decode_##name##_d##D(const float *__restrict q, const T *__restrict kcache,     \
                                        const T *__restrict vcache,                                \
                                        const Control *__restrict control, float *__restrict out,  \
                                        u32 heads, u32 kv_heads, float scale) {                    \
    SHARED float merge[8][D];                                                                      \
    SHARED float merge_max[8];                                                                     \
    SHARED float merge_sum[8];                                                                     \
    attention<T, D>(q, kcache, vcache, control, out, heads, kv_heads, scale, merge, merge_max,     \
                    merge_sum);                                                                    \
  }

ATTENTION(f32, float, 32)
ATTENTION(f32, float, 64)
ATTENTION(f32, float, 128)
ATTENTION(f32, float, 256)
ATTENTION(f16, f16, 32)
ATTENTION(f16, f16, 64)
ATTENTION(f16, f16, 128)
ATTENTION(f16, f16, 256)
