// RMS normalisation of the residual stream, and of each query and key head.

#include "activation.hpp"

// y = x * rsqrt(mean(x^2) + eps) * w, one work-group of 256. n is a multiple of 4.
// Order: thread t squares the 4-element groups t, t + 256, ... by fma, elements ascending; lanes by
// sum32; the eight waves ascending.
DEVICE float rms_scale(const float *x, u32 n, float eps, float (&partial)[8]) {
  u32 t = thread_id();
  u32 groups = n >> 2;
  const float4v *x4 = (const float4v *)x;
  float acc = 0.0f;
  for (u32 g = t; g < groups; g += 256) {
    float4v v = x4[g];
    acc = fmadd(v.x, v.x, acc);
    acc = fmadd(v.y, v.y, acc);
    acc = fmadd(v.z, v.z, acc);
    acc = fmadd(v.w, v.w, acc);
  }
  acc = sum32(acc);
  if (lane_id() == 0) partial[wave_id()] = acc;
  lds_barrier();
  float total = partial[0];
#pragma unroll
  for (u32 i = 1; i < 8; i++) total = total + partial[i];
  return exact_rsqrt(exact_div(total, (float)n) + eps);
}

KERNEL(256) rmsnorm(const float *__restrict x, const float *__restrict w, float *__restrict y,
                    u32 n, float eps) {
  SHARED float partial[8];
  float scale = rms_scale(x, n, eps, partial);
  const float4v *x4 = (const float4v *)x;
  const float4v *w4 = (const float4v *)w;
  float4v *y4 = (float4v *)y;
  for (u32 g = thread_id(); g < n >> 2; g += 256) y4[g] = (x4[g] * scale) * w4[g];
}

// The same, and y once more as int8: each wave takes 256 elements at a time. n is a multiple of the
// form's block.
template <Habit HABIT>
DEVICE void rmsnorm_quantise(const float *x, const float *w, float *y, u8 *q, u32 n, float scale) {
  for (u32 first = wave_id() * 256; first < n; first += 2048) {
    float v[8], weight[8];
    load8(x, first, n, v);
    load8(w, first, n, weight);
#pragma unroll
    for (u32 i = 0; i < 8; i++) v[i] = (v[i] * scale) * weight[i];
    quantise256<HABIT>(v, first, n, q);
    u32 at = first + lane_id() * 8;
    if (at < n) {
      *(float4v *)(y + at) = float4v{v[0], v[1], v[2], v[3]};
      *(float4v *)(y + at + 4) = float4v{v[4], v[5], v[6], v[7]};
    }
  }
}

#define RMSNORM_QUANTISE(name, habit)                                                             \
  KERNEL(256) rmsnorm_quantise_##name(const float *__restrict x, const float *__restrict w,       \
                                      float *__restrict y, u8 *__restrict q, u32 n, float eps) {  \
    SHARED float partial[8];                                                                      \
    rmsnorm_quantise<habit>(x, w, y, q, n, rms_scale(x, n, eps, partial));                        \
  }

RMSNORM_QUANTISE(q8_0, Habit::Q8_0)
RMSNORM_QUANTISE(q8_1, Habit::Q8_1)
RMSNORM_QUANTISE(q8_k, Habit::Q8_K)

// In place per head: x * rsqrt(mean(x^2) + eps) * w. One wave per head, query heads first.
// head_dim is a multiple of 32; kv_heads only sizes the grid and the catalog's effects.
// Order: lane l squares elements l, l + 32, ... by fma; then sum32.
KERNEL(32) qk_norm(float *q, float *k, const float *__restrict qw, const float *__restrict kw,
                   u32 heads, [[maybe_unused]] u32 kv_heads, u32 head_dim, float eps) {
  u32 h = group_id();
  bool is_query = h < heads;
  float *x = is_query ? q + h * head_dim : k + (h - heads) * head_dim;
  const float *w = is_query ? qw : kw;
  u32 lane = lane_id();
  u32 rounds = head_dim >> 5;
  float acc = 0.0f;
  for (u32 i = 0; i < rounds; i++) {
    float v = x[i * 32 + lane];
    acc = fmadd(v, v, acc);
  }
  acc = sum32(acc);
  float scale = exact_rsqrt(exact_div(acc, (float)head_dim) + eps);
  for (u32 i = 0; i < rounds; i++) x[i * 32 + lane] = (x[i * 32 + lane] * scale) * w[i * 32 + lane];
}
