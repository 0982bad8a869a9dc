// Elementwise steps of the feed-forward block, and gates.

#include "refrain.hpp"

// out = silu(gate) * up. out may be gate or up: each element belongs to one thread.
KERNEL(256) silu_mul(const float *gate, const float *up, float *out, u32 n) {
  u32 i = group_id() * 256 + thread_id();
  if (i < n) out[i] = exact_silu(gate[i]) * up[i];
}

// out = x * sigmoid(gate). out may be x or gate.
KERNEL(256) sigmoid_mul(const float *x, const float *gate, float *out, u32 n) {
  u32 i = group_id() * 256 + thread_id();
  if (i < n) out[i] = x[i] * exact_sigmoid(gate[i]);
}

// y = residual + sigmoid(gate) * x, one gate for all elements. y may be residual or x.
KERNEL(256) gated_add(const float *x, const float *__restrict gate, const float *residual,
                      float *y, u32 e) {
  u32 i = group_id() * 256 + thread_id();
  float sigmoid = exact_sigmoid(*gate);
  if (i < e) y[i] = fmadd(sigmoid, x[i], residual[i]);
}
