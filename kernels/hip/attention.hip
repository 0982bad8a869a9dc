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
//
// Split over the context: a work-group per head and part, part s of S taking the tiles with
// (t / 8) mod S = s, wave t mod 8 as above. It stores M, L and O; a second launch merges the parts
// ascending in the same way. So one part gives the bits of the unsplit kernel. Parts without a tile
// store nothing and are not read.

#include "refrain.hpp"

template <typename T, u32 COUNT>
struct alignas(sizeof(T) * COUNT) Run {
  T v[COUNT];
};

// Keys or values [ctx][kv_heads][D] as plain floats: the part of one kv head.
template <typename T, u32 D>
struct PlainCache {
  static constexpr u32 OWN = D / 32;
  using Part = Run<T, OWN>;
  const T *head;
  u64 stride;
  MEMBER PlainCache(const u8 *cache, u32 kv_head, u32 kv_heads, u32)
      : head((const T *)cache + kv_head * D), stride((u64)kv_heads * D) {}

  MEMBER float score(const float *q, u32 position) const {
    constexpr u32 PER_LOAD = 16 / sizeof(T);
    using Load = T __attribute__((ext_vector_type(PER_LOAD)));
    const T *key = head + position * stride;
    float acc = 0.0f;
#pragma nounroll
    for (u32 base = 0; base < D; base += 32) {
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

  // The dims that this lane owns, at a position.
  MEMBER Part own(u32 position) const {
    return *(const Part *)(head + position * stride + lane_id() * OWN);
  }
  MEMBER static float value(const Part &part, u32 i) { return (float)part.v[i]; }
};

// The same as Q8_0: i8 [ctx][kv_dim], then f16 [ctx][kv_dim/32]; an element is d * q.
template <u32 D>
struct Q8Cache {
  static constexpr u32 OWN = D / 32;
  struct Part {
    Run<i8, OWN> q;
    f16 d;
  };
  const i8 *head;
  const f16 *scales;
  u64 stride;
  MEMBER Q8Cache(const u8 *cache, u32 kv_head, u32 kv_heads, u32 ctx)
      : head((const i8 *)cache + kv_head * D), stride((u64)kv_heads * D) {
    scales = (const f16 *)(cache + ctx * stride) + kv_head * OWN;
  }

  MEMBER float score(const float *q, u32 position) const {
    const u32x4 *codes = (const u32x4 *)(head + position * stride);
    const f16 *d = scales + position * (stride >> 5);
    float acc = 0.0f;
#pragma nounroll
    for (u32 block = 0; block < OWN; block++) {
      u32x4 words[2] = {codes[2 * block], codes[2 * block + 1]};
      float scale = (float)d[block];
#pragma unroll
      for (u32 i = 0; i < 32; i++) {
        u32 word = words[i >> 4][i >> 2 & 3];
        float code = (float)((i32)(word << (24 - 8 * (i & 3))) >> 24);
        acc = fmadd(q[block * 32 + i], scale * code, acc);
      }
    }
    return acc;
  }

  MEMBER Part own(u32 position) const {
    u32 first = lane_id() * OWN;
    return Part{*(const Run<i8, OWN> *)(head + position * stride + first),
                scales[position * (stride >> 5) + (first >> 5)]};
  }
  MEMBER static float value(const Part &part, u32 i) { return (float)part.d * (float)part.q.v[i]; }
};

template <typename Cache>
DEVICE void add_weighted(float (&o)[Cache::OWN], float weight, const typename Cache::Part &part) {
#pragma unroll
  for (u32 i = 0; i < Cache::OWN; i++) o[i] = fmadd(weight, Cache::value(part, i), o[i]);
}

// What a work-group found over its tiles, for one dim: the maximum score, and sum and weighted
// value relative to it.
struct Partial {
  float top, total, value;
};

template <u32 D>
struct Merge {
  float value[8][D];
  float top[8];
  float total[8];
};

// Tiles first + wave, stepping by 8 * parts, of one query head; then the merge of the eight waves.
// Threads below D return their dim's result.
template <typename Cache, u32 D>
DEVICE Partial attend(const float *q, const u8 *kcache, const u8 *vcache, u32 kv_len, u32 h,
                      u32 heads, u32 kv_heads, u32 ctx, u32 first, u32 parts, float scale,
                      Merge<D> &merge) {
  constexpr u32 OWN = Cache::OWN;
  u32 wave = wave_id();
  u32 lane = lane_id();
  // floor(h * kv_heads / heads) without an integer division, which would go through v_rcp_iflag.
  u32 kv_head = 0;
  for (u32 next = heads; next <= h * kv_heads; next += heads) kv_head++;
  u32 tiles = (kv_len + 31) >> 5;
  const Cache keys(kcache, kv_head, kv_heads, ctx);
  const Cache values(vcache, kv_head, kv_heads, ctx);
  const float *query = q + h * D;

  float m = -__builtin_inff();
  float l = 0.0f;
  float o[OWN] = {};
  for (u32 tile = first + wave; tile < tiles; tile += 8 * parts) {
    u32 start = tile * 32;
    u32 valid = kv_len - start < 32 ? kv_len - start : 32;
    u32 position = start + (lane < valid ? lane : valid - 1);
    float s = keys.score(query, position) * scale;
    s = lane < valid ? s : -__builtin_inff();
    float m_next = larger(m, max32(s));
    float c = exact_exp(m - m_next);
    float p = exact_exp(s - m_next);
    l = fmadd(l, c, sum32(p));
    m = m_next;
#pragma unroll
    for (u32 i = 0; i < OWN; i++) o[i] = o[i] * c;
    // Four rows are loaded before they are added, so that their latencies overlap.
    u32 n = 0;
    for (; n + 4 <= valid; n += 4) {
      typename Cache::Part rows[4];
#pragma unroll
      for (u32 j = 0; j < 4; j++) rows[j] = values.own(start + n + j);
#pragma unroll
      for (u32 j = 0; j < 4; j++) add_weighted<Cache>(o, read_lane(p, n + j), rows[j]);
    }
    for (; n < valid; n++) add_weighted<Cache>(o, read_lane(p, n), values.own(start + n));
  }
#pragma unroll
  for (u32 i = 0; i < OWN; i++) merge.value[wave][lane * OWN + i] = o[i];
  if (lane == 0) {
    merge.top[wave] = m;
    merge.total[wave] = l;
  }
  lds_barrier();
  Partial out{};
  u32 d = thread_id();
  if (d < D) {
    u32 waves = tiles - first < 8 ? tiles - first : 8;
    float top = merge.top[0];
    for (u32 i = 1; i < waves; i++) top = larger(top, merge.top[i]);
    float total = 0.0f;
    float value = 0.0f;
    for (u32 i = 0; i < waves; i++) {
      float w = exact_exp(merge.top[i] - top);
      total = fmadd(w, merge.total[i], total);
      value = fmadd(w, merge.value[i][d], value);
    }
    out = Partial{top, total, value};
  }
  return out;
}

template <typename Cache, u32 D>
DEVICE void attention(const float *q, const u8 *kcache, const u8 *vcache, const Control *control,
                      float *out, u32 heads, u32 kv_heads, u32 ctx, float scale, Merge<D> &merge) {
  u32 h = group_id();
  Partial all = attend<Cache, D>(q, kcache, vcache, control->pos + 1, h, heads, kv_heads, ctx, 0, 1,
                                 scale, merge);
  u32 d = thread_id();
  if (d < D) out[h * D + d] = all.value * exact_rcp(all.total);
}

// part: [heads][splits][D]; stats: [heads][splits] of (maximum, sum). splits is a power of two.
template <typename Cache, u32 D>
DEVICE void attention_split(const float *q, const u8 *kcache, const u8 *vcache,
                            const Control *control, float *part, float2v *stats, u32 heads,
                            u32 kv_heads, u32 splits, u32 ctx, float scale, Merge<D> &merge) {
  u32 h = group_id() >> __builtin_ctz(splits);
  u32 first = (group_id() & (splits - 1)) * 8;
  u32 kv_len = control->pos + 1;
  if (first >= (kv_len + 31) >> 5) return;
  Partial mine =
      attend<Cache, D>(q, kcache, vcache, kv_len, h, heads, kv_heads, ctx, first, splits, scale,
                       merge);
  u32 d = thread_id();
  if (d < D) part[(u64)group_id() * D + d] = mine.value;
  if (d == 0) stats[group_id()] = float2v{mine.top, mine.total};
}

// One work-group per head. The gate of a head lies behind its query: qg is [heads][2][head_dim].
template <bool GATED>
DEVICE void attention_merge(const float *part, const float2v *stats, const float *qg,
                            const Control *control, float *out, u32 head_dim, u32 splits) {
  u32 h = group_id();
  // Parts with a tile: one per 256 positions.
  u32 parts = (control->pos + 256) >> 8;
  parts = parts < splits ? parts : splits;
  const float2v *stat = stats + h * splits;
  float top = stat[0].x;
  for (u32 i = 1; i < parts; i++) top = larger(top, stat[i].x);
  for (u32 d = thread_id(); d < head_dim; d += 256) {
    float total = 0.0f;
    float value = 0.0f;
    for (u32 i = 0; i < parts; i++) {
      float w = exact_exp(stat[i].x - top);
      total = fmadd(w, stat[i].y, total);
      value = fmadd(w, part[((u64)h * splits + i) * head_dim + d], value);
    }
    float result = value * exact_rcp(total);
    if constexpr (GATED) result = result * exact_sigmoid(qg[(2 * h + 1) * head_dim + d]);
    out[h * head_dim + d] = result;
  }
}

// heads only sizes the grids of the merges and the catalog's effects.
KERNEL(256) attn_merge(const float *__restrict part, const float2v *__restrict stats,
                       const Control *__restrict control, float *__restrict out,
                       [[maybe_unused]] u32 heads, u32 head_dim, u32 splits) {
  attention_merge<false>(part, stats, nullptr, control, out, head_dim, splits);
}
KERNEL(256) attn_merge_gated(const float *__restrict part, const float2v *__restrict stats,
                             const float *__restrict qg, const Control *__restrict control,
                             float *__restrict out, [[maybe_unused]] u32 heads, u32 head_dim,
                             u32 splits) {
  attention_merge<true>(part, stats, qg, control, out, head_dim, splits);
}

// A cache of several planes takes its shape; kv_dim only sizes the catalog's effects.
#define DECLARE_PLAIN
#define DECLARE_PLANES u32 ctx, [[maybe_unused]] u32 kv_dim,
#define PASS_PLAIN 0
#define PASS_PLANES ctx
#define ATTENTION(name, Cache, D, more)                                                           \
  KERNEL(256) attn_decode_##name##_d##D(                                                          \
      const float *__restrict q, const u8 *__restrict kcache, const u8 *__restrict vcache,        \
      const Control *__restrict control, float *__restrict out, u32 heads, u32 kv_heads,          \
      DECLARE_##more float scale) {                                                               \
    SHARED Merge<D> merge;                                                                        \
    attention<Cache, D>(q, kcache, vcache, control, out, heads, kv_heads, PASS_##more, scale,     \
                        merge);                                                                   \
  }                                                                                               \
  KERNEL(256) attn_split_##name##_d##D(                                                           \
      const float *__restrict q, const u8 *__restrict kcache, const u8 *__restrict vcache,        \
      const Control *__restrict control, float *__restrict part, float2v *__restrict stats,       \
      u32 heads, u32 kv_heads, u32 splits, DECLARE_##more float scale) {                          \
    SHARED Merge<D> merge;                                                                        \
    attention_split<Cache, D>(q, kcache, vcache, control, part, stats, heads, kv_heads, splits,   \
                              PASS_##more, scale, merge);                                         \
  }
#define ATTENTIONS(D)                                                                             \
  using PlainF32D##D = PlainCache<float, D>;                                                      \
  using PlainF16D##D = PlainCache<f16, D>;                                                        \
  ATTENTION(f32, PlainF32D##D, D, PLAIN)                                                          \
  ATTENTION(f16, PlainF16D##D, D, PLAIN)                                                          \
  ATTENTION(q8_0, Q8Cache<D>, D, PLANES)

ATTENTIONS(32)
ATTENTIONS(64)
ATTENTIONS(128)
ATTENTIONS(256)
