// Append the step's key and value to the cache: row control.pos of [ctx][kv_dim].

#include "refrain.hpp"

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
