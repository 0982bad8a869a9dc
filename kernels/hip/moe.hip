// Mixture of experts: the router, and GEMVs over the experts that it chose. Weights of all experts
// are one matrix [experts * m][k]; order within a row: gemv.hpp.

#include "gemv.hpp"

// Softmax over n <= 1024 logits, then the top_k by descending probability and ascending index.
//
// Order: M = max; thread t takes experts t, t + 256, ... : e = exp(x - M), summed ascending; lanes
// by sum32; the eight waves ascending; p = e * rcp(sum). Then one wave takes the best, top_k times.
// A NaN probability counts as -1, below every other, so ids are always distinct and in range. With
// `normalize`, weights are divided by their sum, taken from the best on.
KERNEL(256) moe_route(const float *__restrict logits, u32 *__restrict ids,
                      float *__restrict weights, u32 n, u32 top_k, u32 normalize) {
  SHARED float keys[1024];
  SHARED float sorted[1024];
  SHARED float partial_max[8];
  SHARED float partial_sum[8];
  u32 t = thread_id();
  float top = -__builtin_inff();
  for (u32 i = t; i < n; i += 256) top = larger(logits[i], top);
  top = max32(top);
  if (lane_id() == 0) partial_max[wave_id()] = top;
  lds_barrier();
  top = partial_max[0];
#pragma unroll
  for (u32 i = 1; i < 8; i++) top = larger(partial_max[i], top);
  float sum = 0.0f;
  for (u32 i = t; i < n; i += 256) {
    float e = exact_exp(logits[i] - top);
    keys[i] = e;
    sum = sum + e;
  }
  sum = sum32(sum);
  if (lane_id() == 0) partial_sum[wave_id()] = sum;
  lds_barrier();
  sum = partial_sum[0];
#pragma unroll
  for (u32 i = 1; i < 8; i++) sum = sum + partial_sum[i];
  float inverse = exact_rcp(sum);
  // Padded to whole waves, with keys that are worse than any expert's.
  u32 padded = (n + 31) & ~31u;
  for (u32 i = t; i < padded; i += 256) {
    float p = i < n ? keys[i] * inverse : -2.0f;
    keys[i] = p == p ? p : -1.0f;
  }
  lds_barrier();
  if (wave_id() == 0) {
    u32 lane = lane_id();
    u32 rounds = padded >> 5;
    for (u32 j = 0; j < top_k; j++) {
      Best best{-4.0f, NOT_A_TOKEN};
      for (u32 round = 0; round < rounds; round++) {
        u32 i = round * 32 + lane;
        float key = keys[i];
        bool take = key > best.value;
        best.value = take ? key : best.value;
        best.index = take ? i : best.index;
      }
      best = best32(best);
      // An expert is only ever looked at by this lane.
      if ((best.index & 31u) == lane) keys[best.index] = -3.0f;
      if (lane == 0) {
        ids[j] = best.index;
        sorted[j] = best.value < 0.0f ? __builtin_nanf("") : best.value;
      }
    }
  }
  lds_barrier();
  float total = sorted[0];
  for (u32 i = 1; i < top_k; i++) total = total + sorted[i];
  for (u32 i = t; i < top_k; i += 256) {
    weights[i] = normalize ? exact_div(sorted[i], total) : sorted[i];
  }
}

// The expert of slot j. Clamped, so that no id can lead outside the weights.
DEVICE u32 expert_of(const u32 *ids, u32 j, u32 experts) {
  u32 id = ids[j];
  return id < experts ? id : experts - 1;
}

// The slot of a work-group of 16 rows, m being a multiple of 16, and its first row in the expert.
struct Slot {
  u32 index, first;
};
DEVICE Slot slot_of_group(u32 m) {
  Slot slot{0, group_id() * 16};
  for (; slot.first >= m; slot.first -= m) slot.index++;
  return slot;
}

template <typename Dot>
DEVICE void moe_gemv(const u8 *w, const typename Dot::X *x, const u32 *ids, float *y, u32 experts,
                     u32 m, u32 k) {
  Slot slot = slot_of_group(m);
  u32 r = slot.first + (thread_id() >> 4);
  u32 expert = expert_of(ids, slot.index, experts);
  typename Dot::Row row(w, expert * m + r, k, experts * m);
  float acc = dot_row<Dot>(row, x, 0, k, k);
  if (stores_row()) y[launch_row()] = acc;
}

template <typename Dot>
DEVICE void moe_gate_up(const u8 *wg, const u8 *wu, const typename Dot::X *x, const u32 *ids,
                        float *y, u32 experts, u32 m, u32 k) {
  using Row = typename Dot::Row;
  Slot slot = slot_of_group(m);
  u32 row = expert_of(ids, slot.index, experts) * m + slot.first + (thread_id() >> 4);
  const Row pair[2] = {Row(wg, row, k, experts * m), Row(wu, row, k, experts * m)};
  float dots[2];
  Dot::dots(pair, x, 0, k, k, dots);
  float value = exact_silu(dots[0]) * dots[1];
  if (stores_row()) y[launch_row()] = value;
}

// Order: slots ascending, total = fma(weight, dot, total) from +0; then residual + total. x holds
// top_k vectors of k, int8 ones as one buffer.
template <typename Dot>
DEVICE void moe_down_add(const u8 *w, const typename Dot::X *x, const u32 *ids,
                         const float *weights, const float *residual, float *y, u32 r0, u32 r1,
                         u32 experts, u32 top_k, u32 m, u32 k) {
  u32 r = r0 + launch_row();
  bool in_range = r < r1;
  u32 row = in_range ? r : r1 - 1;
  float total = 0.0f;
  for (u32 j = 0; j < top_k; j++) {
    u32 expert = expert_of(ids, j, experts);
    typename Dot::Row down(w, expert * m + row, k, experts * m);
    float acc = dot_row<Dot>(down, x, j * k, k, top_k * k);
    total = fmadd(weights[j], acc, total);
  }
  if (in_range && stores_row()) y[r] = residual[r] + total;
}

#define MOE(name, dot, more)                                                                      \
  KERNEL(256) moe_gemv_##name(const u8 *__restrict w, const dot::X *__restrict x,                 \
                              const u32 *__restrict ids, float *__restrict y, u32 experts,        \
                              [[maybe_unused]] u32 top_k, u32 m, u32 k) {                         \
    moe_gemv<dot>(w, x, ids, y, experts, m, k);                                                   \
  }                                                                                               \
  KERNEL(256) moe_gate_up_##name(const u8 *__restrict wg, const u8 *__restrict wu,                \
                                 const dot::X *__restrict x, const u32 *__restrict ids,           \
                                 float *__restrict y, u32 experts, [[maybe_unused]] u32 top_k,    \
                                 u32 m, u32 k) {                                                  \
    moe_gate_up<dot>(wg, wu, x, ids, y, experts, m, k);                                           \
  }                                                                                               \
  KERNEL(256) moe_down_add_##name(const u8 *__restrict w, const dot::X *__restrict x,             \
                                  const u32 *__restrict ids, const float *__restrict weights,     \
                                  const float *residual, float *y, u32 r0, u32 r1,                \
                                  u32 experts, u32 top_k, u32 m, u32 k) {                         \
    moe_down_add<dot>(w, x, ids, weights, residual, y, r0, r1, experts, top_k, m, k);             \
  }

FULL_FORMATS(MOE)
CORE_FORMATS(MOE)
