// Recurrent mixers: the gated delta rule, in five plain kernels and in one, and the short
// convolution. Nothing is written to a state once control.done is set.
//
// Convolution state: a ring [4][channels] of past inputs, column pos & 3 being this step's. It is
// read at pos - 1, pos - 2 (and pos - 3) and written at pos, so no column is both read and written
// in a launch, and work-groups that share a key head may each convolve it. Taps before position 0
// are zero; at position 0 the recurrent state counts as zero: stale bytes never matter.

#include "refrain.hpp"

// The input of channel c `back` steps ago; meaningless before position `back`.
DEVICE float past(const float *ring, u32 channels, u32 c, u32 position, u32 back) {
  return ring[((position - back) & 3u) * channels + c];
}
// What a loaded past input counts as. A branch around the load instead would make the waits behind
// it cover loads that are not needed yet.
DEVICE float tap(float input, u32 position, u32 back) { return position >= back ? input : 0.0f; }

// What one channel's convolution reads: this step's input, weights, and the inputs one to three
// steps ago. Loaded apart from its use, so that other loads can be issued in between.
struct Taps {
  float m;
  float4v w;
  float s1, s2, s3;
};
DEVICE Taps load_taps(const float *m, const float4v *w, const float *ring, u32 channels, u32 c,
                      u32 position) {
  return Taps{m[c],
              w[c],
              past(ring, channels, c, position, 1),
              past(ring, channels, c, position, 2),
              past(ring, channels, c, position, 3)};
}

// Order: oldest tap first, w0 * s3, then fma.
DEVICE float conv4_silu(const Taps &taps, u32 position) {
  float acc = taps.w.x * tap(taps.s3, position, 3);
  acc = fmadd(taps.w.y, tap(taps.s2, position, 2), acc);
  acc = fmadd(taps.w.z, tap(taps.s1, position, 1), acc);
  return exact_silu(fmadd(taps.w.w, taps.m, acc));
}

KERNEL(256) conv_silu_k4(const float *__restrict m, const float4v *__restrict conv_w,
                         float *__restrict conv_state, const Control *__restrict control,
                         float *__restrict u, u32 channels) {
  if (control->done != 0) return;
  u32 position = control->pos;
  u32 c = group_id() * 256 + thread_id();
  if (c < channels) {
    Taps taps = load_taps(m, conv_w, conv_state, channels, c, position);
    u[c] = conv4_silu(taps, position);
    conv_state[(position & 3u) * channels + c] = taps.m;
  }
}

// bcx is [3][e]: B, C, x. s = B * x; out = C * (w0 s2 + w1 s1 + w2 s), in this order.
KERNEL(256) short_conv_k3(const float *__restrict bcx, const float *__restrict conv_w,
                          float *__restrict conv_state, const Control *__restrict control,
                          float *__restrict out, u32 e) {
  if (control->done != 0) return;
  u32 position = control->pos;
  u32 c = group_id() * 256 + thread_id();
  if (c < e) {
    float s = bcx[c] * bcx[2 * e + c];
    float acc = conv_w[3 * c] * tap(past(conv_state, e, c, position, 2), position, 2);
    acc = fmadd(conv_w[3 * c + 1], tap(past(conv_state, e, c, position, 1), position, 1), acc);
    out[c] = bcx[e + c] * fmadd(conv_w[3 * c + 2], s, acc);
    conv_state[(position & 3u) * e + c] = s;
  }
}

// ---- heads --------------------------------------------------------------------------------------

// Dot product over one wave: lane l takes elements l, l + 32, ... by fma, then sum32. dim is a
// multiple of 32, so that every lane takes as many and the sum runs under full EXEC.
DEVICE float dot_head(const float *a, const float *b, u32 dim) {
  float acc = 0.0f;
  u32 rounds = dim >> 5;
  for (u32 n = 0; n < rounds; n++) {
    u32 i = n * 32 + lane_id();
    acc = fmadd(a[i], b[i], acc);
  }
  return sum32(acc);
}

// x * rsqrt(sum x^2 + eps), queries times `scale` after that.
DEVICE void l2_head(float *x, u32 dim, float eps, float scale) {
  float inverse = exact_rsqrt(dot_head(x, x, dim) + eps);
  u32 rounds = dim >> 5;
  for (u32 n = 0; n < rounds; n++) {
    u32 i = n * 32 + lane_id();
    x[i] = (x[i] * inverse) * scale;
  }
}

// (x * rsqrt(mean x^2 + eps)) * w * silu(z).
DEVICE float gated(float x, float scale, float w, float z) {
  return ((x * scale) * w) * exact_silu(z);
}
DEVICE float rms_scale(const float *x, u32 dim, float eps) {
  return exact_rsqrt(exact_div(dot_head(x, x, dim), (float)dim) + eps);
}

// One wave per head: nk query heads, then nk key heads, in place at the front of u.
KERNEL(32) l2_norm(float *u, u32 nk, u32 head_dim, float eps, float scale) {
  u32 h = group_id();
  l2_head(u + h * head_dim, head_dim, eps, h < nk ? scale : 1.0f);
}

KERNEL(32) gated_norm(const float *__restrict o, const float *__restrict norm_w,
                      const float *__restrict z, float *__restrict y, [[maybe_unused]] u32 heads,
                      u32 head_dim, float norm_eps) {
  u32 base = group_id() * head_dim;
  float scale = rms_scale(o + base, head_dim, norm_eps);
  for (u32 i = lane_id(); i < head_dim; i += 32) {
    y[base + i] = gated(o[base + i], scale, norm_w[i], z[base + i]);
  }
}

struct Gates {
  float decay, beta;
};
// decay = exp(-exp(A_log) * softplus(a + dt_bias)), a_log holding -exp(A_log); beta = sigmoid(b).
DEVICE Gates delta_gates_of(float a, float b, float a_log, float dt_bias) {
  return Gates{exact_exp(a_log * exact_softplus(a + dt_bias)), exact_sigmoid(b)};
}

KERNEL(32) delta_gates(const float *__restrict a, const float *__restrict b,
                       const float *__restrict a_log, const float *__restrict dt_bias,
                       float *__restrict decay, float *__restrict beta, u32 nv) {
  u32 j = group_id() * 32 + thread_id();
  if (j < nv) {
    Gates gates = delta_gates_of(a[j], b[j], a_log[j], dt_bias[j]);
    decay[j] = gates.decay;
    beta[j] = gates.beta;
  }
}

// ---- the recurrence -----------------------------------------------------------------------------

// S is [D key][D value] per value head, one work-group of 256 each. A row of D values is D/4 lanes
// of float4, so a work-group holds ROWS = 1024/D rows at once: thread t takes columns
// 4 (t mod D/4) .. +3 of the rows i = t / (D/4), i + ROWS, ... and keeps them in registers from the
// one read to the one write.
//
// Order per column: each thread sums S k and S q over its rows ascending, by fma from +0; the ROWS
// sums are added ascending. qk = dot_head(q, k). d = beta * fma(-decay, S k, v);
// o = fma(qk, d, decay * (S q)); S' = fma(k, d, decay * S).
template <u32 D>
struct alignas(16) DeltaLds {
  static constexpr u32 ROWS = 1024 / D;
  // Query, key and value head.
  float u[3 * D];
  float sk[ROWS][D], sq[ROWS][D];
  float d[D], o[D];
};

template <u32 D>
struct State {
  static constexpr u32 ROWS = 1024 / D;
  static constexpr u32 OWN = D / ROWS;
  static constexpr u32 LANES = D / 4;
  float4v s[OWN];
  float4v *at;
  u32 row, column, position;

  // Issues the loads. What they bring is first looked at in `step`.
  MEMBER State(float *state, u32 head, u32 pos)
      : at((float4v *)(state + (u64)head * D * D) + thread_id()),
        row(thread_id() / LANES),
        column(thread_id() % LANES * 4),
        position(pos) {
#pragma unroll
    for (u32 n = 0; n < OWN; n++) s[n] = at[n * 256];
  }

  MEMBER void step(DeltaLds<D> &lds, Gates gates) {
    float4v sk{0, 0, 0, 0}, sq{0, 0, 0, 0};
#pragma unroll
    for (u32 n = 0; n < OWN; n++) {
      s[n] = position != 0 ? s[n] : float4v{0, 0, 0, 0};
      float q = lds.u[row + n * ROWS], k = lds.u[D + row + n * ROWS];
#pragma unroll
      for (u32 c = 0; c < 4; c++) {
        sk[c] = fmadd(s[n][c], k, sk[c]);
        sq[c] = fmadd(s[n][c], q, sq[c]);
      }
    }
    *(float4v *)&lds.sk[row][column] = sk;
    *(float4v *)&lds.sq[row][column] = sq;
    float qk = dot_head(lds.u, lds.u + D, D);
    lds_barrier();
    u32 t = thread_id();
    if (t < D) {
      float p = lds.sk[0][t], y = lds.sq[0][t];
#pragma unroll
      for (u32 i = 1; i < ROWS; i++) {
        p = p + lds.sk[i][t];
        y = y + lds.sq[i][t];
      }
      float d = gates.beta * fmadd(-gates.decay, p, lds.u[2 * D + t]);
      lds.d[t] = d;
      lds.o[t] = fmadd(qk, d, gates.decay * y);
    }
    lds_barrier();
    float4v d = *(const float4v *)&lds.d[column];
#pragma unroll
    for (u32 n = 0; n < OWN; n++) {
      float k = lds.u[D + row + n * ROWS];
      float4v next;
#pragma unroll
      for (u32 c = 0; c < 4; c++) next[c] = fmadd(k, d[c], gates.decay * s[n][c]);
      at[n * 256] = next;
    }
  }
};

// The key head of value head j, and whether j is the first that uses it.
struct KeyHead {
  u32 index;
  bool first;
};
// tiled: j mod nk. Otherwise floor(j * nk / nv), without an integer division.
DEVICE KeyHead key_head(u32 j, u32 nk, u32 nv, u32 tiled) {
  u32 kh = 0;
  if (tiled) {
    for (kh = j; kh >= nk; kh -= nk) {
    }
    return KeyHead{kh, j < nk};
  }
  for (u32 next = nv; next <= j * nk; next += nv) kh++;
  return KeyHead{kh, j * nk == kh * nv};
}

template <u32 D>
DEVICE void delta_step(const float *u, const float *decay, const float *beta, float *state,
                       const Control *control, float *o, u32 nk, u32 nv, u32 tiled,
                       DeltaLds<D> &lds) {
  if (control->done != 0) return;
  u32 j = group_id();
  u32 t = thread_id();
  State<D> s(state, j, control->pos);
  u32 kh = key_head(j, nk, nv, tiled).index;
  if (t < D) {
    lds.u[t] = u[kh * D + t];
    lds.u[D + t] = u[(nk + kh) * D + t];
    lds.u[2 * D + t] = u[(2 * nk + j) * D + t];
  }
  lds_barrier();
  s.step(lds, Gates{decay[j], beta[j]});
  if (t < D) o[j * D + t] = lds.o[t];
}

// All inputs of the fused kernel, in kernarg order.
struct DeltaArgs {
  const float *m, *z, *a, *b;
  const float4v *conv_w;
  const float *a_log, *dt_bias, *norm_w;
  float *conv_state, *state;
  const Control *control;
  float *y;
  u32 nk, nv, tiled;
  float eps, scale, norm_eps;
};

template <u32 D>
DEVICE void delta_net(const DeltaArgs &in, DeltaLds<D> &lds) {
  if (in.control->done != 0) return;
  u32 position = in.control->pos;
  u32 j = group_id();
  u32 t = thread_id();
  KeyHead key = key_head(j, in.nk, in.nv, in.tiled);
  u32 channels = (2 * in.nk + in.nv) * D;
  // The small loads are issued before the state's, which are then in flight during the convolution
  // (not longer: a barrier waits for all loads).
  constexpr u32 ROUNDS = (3 * D + 255) / 256;
  Taps taps[ROUNDS];
  u32 channel[ROUNDS];
#pragma unroll
  for (u32 n = 0; n < ROUNDS; n++) {
    u32 i = t + 256 * n < 3 * D ? t + 256 * n : 3 * D - 1;
    u32 head = i < D ? key.index : i < 2 * D ? in.nk + key.index : 2 * in.nk + j;
    channel[n] = head * D + (i & (D - 1));
    taps[n] = load_taps(in.m, in.conv_w, in.conv_state, channels, channel[n], position);
  }
  __builtin_amdgcn_sched_barrier(0);
  State<D> s(in.state, j, position);
#pragma unroll
  for (u32 n = 0; n < ROUNDS; n++) {
    u32 i = t + 256 * n;
    float u = conv4_silu(taps[n], position);
    // Keeps the compiler from moving the taps' loads into the branch, behind the state's.
    asm volatile("" : "+v"(u));
    if (i < 3 * D) {
      lds.u[i] = u;
      bool owner = i >= 2 * D || key.first;
      if (owner) in.conv_state[(position & 3u) * channels + channel[n]] = taps[n].m;
    }
  }
  lds_barrier();
  if (wave_id() == 0) l2_head(lds.u, D, in.eps, in.scale);
  if (wave_id() == 1) l2_head(lds.u + D, D, in.eps, 1.0f);
  lds_barrier();
  s.step(lds, delta_gates_of(in.a[j], in.b[j], in.a_log[j], in.dt_bias[j]));
  float scale = rms_scale(lds.o, D, in.norm_eps);
  if (t < D) in.y[j * D + t] = gated(lds.o[t], scale, in.norm_w[t], in.z[j * D + t]);
}

#define DELTA(D)                                                                                  \
  KERNEL(256) delta_step_d##D(const float *__restrict u, const float *__restrict decay,           \
                              const float *__restrict beta, float *__restrict state,              \
                              const Control *__restrict control, float *__restrict o, u32 nk,     \
                              u32 nv, u32 tiled) {                                                \
    SHARED DeltaLds<D> lds;                                                                       \
    delta_step<D>(u, decay, beta, state, control, o, nk, nv, tiled, lds);                         \
  }                                                                                               \
  KERNEL(256) delta_net_d##D(                                                                     \
      const float *__restrict m, const float *__restrict z, const float *__restrict a,            \
      const float *__restrict b, const float4v *__restrict conv_w,                                \
      const float *__restrict a_log, const float *__restrict dt_bias,                             \
      const float *__restrict norm_w, float *__restrict conv_state, float *__restrict state,      \
      const Control *__restrict control, float *__restrict y, u32 nk, u32 nv, u32 tiled,          \
      float eps, float scale, float norm_eps) {                                                   \
    SHARED DeltaLds<D> lds;                                                                       \
    delta_net<D>(DeltaArgs{m, z, a, b, conv_w, a_log, dt_bias, norm_w, conv_state, state,         \
                           control, y, nk, nv, tiled, eps, scale, norm_eps},                      \
                 lds);                                                                            \
  }

DELTA(32)
DELTA(64)
DELTA(128)
