// Seeded sampling: temperature, the top_k best logits, of these the smallest front with top_p of
// the mass, one draw. Changes nothing once control.done is set.
//
// The draw is Philox4x32-10 (Salmon et al., SC 2011) with counter (pos, 0, 0, 0) and key (seed_lo,
// seed_hi): word 0 >> 8, times 2^-24. So it depends on seed and position, not on what was drawn
// before.
//
// Order: by descending logit, then ascending index; p_i = exp((x_i - x_0) * inv_temperature); sums
// ascending from the best. The front ends at the first sum of at least top_p * total; the token is
// the first whose sum exceeds draw * (sum of the front). NaN and -inf are never drawn; with +inf
// among the logits, those are drawn with equal weight.

#include "refrain.hpp"

DEVICE u32 philox_word0(u32 counter, u32 key0, u32 key1) {
  u32 c0 = counter, c1 = 0, c2 = 0, c3 = 0;
#pragma unroll
  for (u32 round = 0; round < 10; round++) {
    u64 a = (u64)0xD2511F53u * c0;
    u64 b = (u64)0xCD9E8D57u * c2;
    c0 = (u32)(b >> 32) ^ c1 ^ key0;
    c1 = (u32)b;
    c2 = (u32)(a >> 32) ^ c3 ^ key1;
    c3 = (u32)a;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return c0;
}

// Grows with the logit in the upper half (0 for NaN and -inf, both zeros alike) and falls with the
// index in the lower: no two are equal, and the larger is the better.
DEVICE u64 rank_key(float logit, u32 index) {
  u32 bits = as_bits(logit + 0.0f);
  u32 ordered = bits ^ ((u32)((i32)bits >> 31) | 0x80000000u);
  u32 high = logit > -__builtin_inff() ? ordered : 0;
  return (u64)high << 32 | ~index;
}

constexpr u32 MOST = 256;

struct DrawLds {
  u32 bins[256];
  u32 groups[16];
  u32 counts[1024];
  u32 wave_counts[32];
  u64 keys[MOST];
  u64 sorted[MOST];
  float p[MOST];
};

// The top_k best keys are those that are at least `least` under `mask`.
struct Threshold {
  u64 least, mask;
};

// Radix selection, eight bits a pass from the top; ends when a bin holds just what is still wanted.
// Counting in LDS by integer addition, so in any order the same.
DEVICE Threshold select(const float *logits, u32 n, u32 top_k, DrawLds &lds) {
  u32 t = thread_id();
  Threshold found{0, 0};
  u32 wanted = top_k;
  for (u32 shift = 56;; shift -= 8) {
    if (t < 256) lds.bins[t] = 0;
    lds_barrier();
    for (u32 i = t; i < n; i += 1024) {
      u64 key = rank_key(logits[i], i);
      if ((key & found.mask) == found.least) {
        __hip_atomic_fetch_add(&lds.bins[(key >> shift) & 255], 1u, __ATOMIC_RELAXED,
                               __HIP_MEMORY_SCOPE_WORKGROUP);
      }
    }
    lds_barrier();
    if (t < 16) {
      u32 sum = 0;
      for (u32 i = 0; i < 16; i++) sum += lds.bins[t * 16 + i];
      lds.groups[t] = sum;
    }
    lds_barrier();
    u32 group = 15;
    for (; group > 0 && lds.groups[group] < wanted; group--) wanted -= lds.groups[group];
    u32 bin = group * 16 + 15;
    for (; (bin & 15) > 0 && lds.bins[bin] < wanted; bin--) wanted -= lds.bins[bin];
    bin = __builtin_amdgcn_readfirstlane(bin);
    wanted = __builtin_amdgcn_readfirstlane(wanted);
    found.least |= (u64)bin << shift;
    found.mask |= (u64)255 << shift;
    u32 in_bin = __builtin_amdgcn_readfirstlane(lds.bins[bin]);
    lds_barrier();
    if (in_bin == wanted || shift == 0) return found;
  }
}

DEVICE u32 sum32_u32(u32 value) {
  value += lane_xor16(value);
  value += lane_xor<8>(value);
  value += lane_xor<4>(value);
  value += lane_xor<2>(value);
  return value + lane_xor<1>(value);
}

// Puts the selected keys into lds.keys, thread by thread: every slot has one owner.
DEVICE void gather(const float *logits, u32 n, Threshold from, DrawLds &lds) {
  u32 t = thread_id();
  u32 wave = wave_id();
  u32 lane = lane_id();
  u32 mine = 0;
  for (u32 i = t; i < n; i += 1024) {
    mine += (rank_key(logits[i], i) & from.mask) >= from.least ? 1 : 0;
  }
  lds.counts[t] = mine;
  u32 in_wave = sum32_u32(mine);
  if (lane == 0) lds.wave_counts[wave] = in_wave;
  lds_barrier();
  u32 slot = 0;
  for (u32 i = 0; i < wave; i++) slot += lds.wave_counts[i];
  for (u32 i = 0; i < 32; i++) slot += i < lane ? lds.counts[wave * 32 + i] : 0;
  if (mine != 0) {
    for (u32 i = t; i < n; i += 1024) {
      u64 key = rank_key(logits[i], i);
      if ((key & from.mask) >= from.least) lds.keys[slot++] = key;
    }
  }
  lds_barrier();
}

// Token drawn from the sorted candidates; every lane of the wave computes it.
DEVICE u32 draw(const DrawLds &lds, u32 top_k, float top_p, float uniform) {
  if (lds.sorted[0] >> 32 == 0) return NOT_A_TOKEN;
  float total = 0.0f;
  for (u32 i = 0; i < top_k; i++) total = total + lds.p[i];
  float limit = top_p * total;
  float mass = 0.0f;
  u32 front = 0;
  do {
    mass = mass + lds.p[front];
    front++;
  } while (front < top_k && mass < limit);
  float target = uniform * mass;
  float sum = lds.p[0];
  u32 chosen = 0;
  for (; chosen + 1 < front && !(sum > target); sum = sum + lds.p[chosen]) chosen++;
  return ~(u32)lds.sorted[chosen];
}

KERNEL(1024) sample(const float *__restrict logits, Control *control, u32 n, u32 top_k,
                    float inv_temperature, float top_p) {
  SHARED DrawLds lds;
  if (control->done != 0) return;
  u32 t = thread_id();
  gather(logits, n, select(logits, n, top_k, lds), lds);
  if (t < top_k) {
    u64 key = lds.keys[t];
    u32 rank = 0;
    for (u32 i = 0; i < top_k; i++) rank += lds.keys[i] > key ? 1 : 0;
    lds.sorted[rank] = key;
  }
  lds_barrier();
  if (t < top_k) {
    u64 key = lds.sorted[t];
    float best = logits[~(u32)lds.sorted[0]];
    float value = logits[~(u32)key];
    float p = best == __builtin_inff() ? (value == best ? 1.0f : 0.0f)
                                       : exact_exp((value - best) * inv_temperature);
    lds.p[t] = key >> 32 == 0 ? 0.0f : p;
  }
  lds_barrier();
  if (wave_id() == 0) {
    u32 word = philox_word0(control->pos, control->seed_lo, control->seed_hi);
    u32 token = draw(lds, top_k, top_p, (float)(word >> 8) * 0x1p-24f);
    if (lane_id() == 0) control->sampled = token;
  }
}
