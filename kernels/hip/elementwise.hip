// Elementwise steps of the feed-forward block.

#include "refrain.hpp"

// out = silu(gate) * up. out may be gate or up: each element belongs to one thread.
KERNEL(256) silu_mul(const float *gate, const float *up, float *out, u32 n) {
  u32 i = group_id() * 256 + thread_id();
  if (i < n) out[i] = exact_silu(gate[i]) * up[i];
}
