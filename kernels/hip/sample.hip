// Greedy sampling and the advance of the step's words. Both change nothing once control.done is
// set.

#include "refrain.hpp"

// control.sampled = index of the largest logit, NOT_A_TOKEN if no logit is above -inf.
KERNEL(1024) argmax(const float *__restrict logits, Control *control, u32 n) {
  SHARED float values[32];
  SHARED u32 indices[32];
  if (control->done != 0) return;
  u32 t = thread_id();
  Best best{-__builtin_inff(), NOT_A_TOKEN};
  for (u32 i = t; i < n; i += 1024) {
    float v = logits[i];
    bool take = v > best.value;
    best.value = take ? v : best.value;
    best.index = take ? i : best.index;
  }
  best = best32(best);
  u32 wave = wave_id();
  u32 lane = lane_id();
  if (lane == 0) {
    values[wave] = best.value;
    indices[wave] = best.index;
  }
  lds_barrier();
  if (wave == 0) {
    best = best32(Best{values[lane], indices[lane]});
    if (lane == 0) control->sampled = best.index;
  }
}

// Moves to the next prompt token, or takes the sampled one and publishes it in the token ring.
// A ring entry is one 8-byte store at system scope: sequence (from 1) << 32 | reason << 24 | token.
// Reasons: 0 goes on, 1 end-of-sequence token, 2 limit of generated tokens, 3 end of the context,
// 4 no comparable logit; of several the order is 4, 1, 2, 3. The last entry carries its reason.
KERNEL(32) advance(Control *control, const u32 *__restrict prompt, u64 *ring) {
  if (thread_id() != 0) return;
  Control c = *control;
  if (c.done != 0) return;
  u32 next = c.pos + 1;
  if (next < c.prompt_len) {
    if (next >= c.ctx_len) {
      control->done = 3;
      return;
    }
    control->token = prompt[next];
    control->pos = next;
    return;
  }
  u32 token = c.sampled;
  u32 generated = c.generated + 1;
  u32 seq = c.seq + 1;
  u32 reason = token == NOT_A_TOKEN     ? 4
               : token == c.eos         ? 1
               : generated >= c.gen_limit ? 2
               : next >= c.ctx_len      ? 3
                                        : 0;
  control->generated = generated;
  control->seq = seq;
  if (reason != 0) {
    control->done = reason;
  } else {
    control->token = token;
    control->pos = next;
  }
  u64 entry = (u64)seq << 32 | (u64)reason << 24 | (token & 0x00FFFFFFu);
  __hip_atomic_store(ring + ((seq - 1) & c.ring_mask), entry, __ATOMIC_RELAXED,
                     __HIP_MEMORY_SCOPE_SYSTEM);
}
