// Append the step's key and value to the cache: row control.pos of [ctx][kv_dim].

#include "activation.hpp"

template <typename T>
DEVICE void kv_write(const float *k, const float *v, T *kcache, T *vcache, const Control *control,
                     u32 kv_dim) {
  if (control->done != 0) return;
  u64 row = (u64)control->pos * kv_dim;
  u32 i = group_id() * 256 + thread_id();
  if (i < kv_dim) {
    kcache[row + i] = (T)k[i];
    vcache[row + i] = (T)v[i];
  }
}

KERNEL(256) kv_write_f32(const float *__restrict k, const float *__restrict v,
                         float *__restrict kcache, float *__restrict vcache,
                         const Control *__restrict control, u32 kv_dim) {
  kv_write(k, v, kcache, vcache, control, kv_dim);
}
KERNEL(256) kv_write_f16(const float *__restrict k, const float *__restrict v,
                         f16 *__restrict kcache, f16 *__restrict vcache,
                         const Control *__restrict control, u32 kv_dim) {
  kv_write(k, v, kcache, vcache, control, kv_dim);
}

// The same into Q8_0: each wave makes the block of 32 that its lanes hold, by the numbers of ggml's
// activations (activation.hpp). Blocks with a NaN or an infinity have a NaN for d.
DEVICE void kv_block(float v, i8 *q, f16 *d) {
  u32 bad = is_finite(v) ? 0 : 1;
  float amax = max32(as_float(as_bits(v) & 0x7FFFFFFFu));
  bad |= lane_xor16(bad);
  bad |= lane_xor<8>(bad);
  bad |= lane_xor<4>(bad);
  bad |= lane_xor<2>(bad);
  bad |= lane_xor<1>(bad);
  amax = bad ? 1.0f : amax;
  float inverse = inverse127(amax);
  bool good = !bad && is_finite(inverse);
  *q = good ? (i8)(i32)__builtin_rintf(v * inverse) : (i8)0;
  if (lane_id() == 0) *d = (f16)(bad ? as_float(0x7FC00000u) : good ? over127(amax) : 0.0f);
}

KERNEL(256) kv_write_q8_0(const float *__restrict k, const float *__restrict v,
                          u8 *__restrict kcache, u8 *__restrict vcache,
                          const Control *__restrict control, u32 kv_dim, u32 ctx) {
  if (control->done != 0) return;
  u64 row = control->pos;
  u32 first = (group_id() * 8 + wave_id()) * 32;
  if (first >= kv_dim) return;
  u32 i = first + lane_id();
  u64 scales = (u64)ctx * kv_dim, at = row * (kv_dim >> 5) + (first >> 5);
  kv_block(k[i], (i8 *)kcache + row * kv_dim + i, (f16 *)(kcache + scales) + at);
  kv_block(v[i], (i8 *)vcache + row * kv_dim + i, (f16 *)(vcache + scales) + at);
}
