// Rotary position embedding of queries and keys, in place, at position control.pos.

#include "refrain.hpp"

// One wave per head, query heads first; lane l rotates pairs l, l + 32, ... of rot_dim / 2.
// table: (hi, lo) per pair, the frequency in turns per position. interleaved 0 rotates (j, j +
// rot_dim/2), 1 rotates (2j, 2j + 1). Elements from rot_dim on are left alone.
// kv_heads only sizes the grid and the catalog's effects.
// Order: first = fma(-b, sin, a * cos), second = fma(a, sin, b * cos).
KERNEL(32) rope(float *q, float *k, const float2v *__restrict table,
                const Control *__restrict control, u32 heads, [[maybe_unused]] u32 kv_heads,
                u32 head_dim, u32 rot_dim, u32 interleaved) {
  u32 h = group_id();
  float *x = h < heads ? q + h * head_dim : k + (h - heads) * head_dim;
  u32 position = control->pos;
  u32 half = rot_dim >> 1;
  for (u32 j = lane_id(); j < half; j += 32) {
    float2v frequency = table[j];
    SinCos angle = exact_sincos_turns(exact_turns(position, frequency.x, frequency.y));
    u32 first = interleaved ? 2 * j : j;
    u32 second = interleaved ? 2 * j + 1 : j + half;
    float a = x[first];
    float b = x[second];
    x[first] = fmadd(-b, angle.sin, a * angle.cos);
    x[second] = fmadd(a, angle.sin, b * angle.cos);
  }
}
