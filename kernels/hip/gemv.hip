// Matrix times vector, y[r] = dot(W[r], x), for rows [r0, r1), plain or with one thing added: a
// residual, a bias, a gate. Order within a row: gemv.hpp. What is added comes last, by
// residual + acc, acc + bias and fma(sigmoid(gate), acc, residual).

#include "gemv.hpp"

enum class Then { STORE, ADD, BIAS, GATED_ADD };

template <typename Dot, Then THEN>
DEVICE void gemv(const u8 *w, const typename Dot::X *x, const float *gate, const float *added,
                 float *y, u32 r0, u32 r1, u32 k, u32 rows) {
  using Row = typename Dot::Row;
  u32 r = r0 + launch_row();
  bool in_range = r < r1;
  float acc = dot_row<Dot>(Row(w, in_range ? r : r1 - 1, k, rows), x, 0, k, k);
  float sigmoid = THEN == Then::GATED_ADD ? exact_sigmoid(*gate) : 0.0f;
  if (in_range && stores_row()) {
    if constexpr (THEN == Then::STORE) y[r] = acc;
    if constexpr (THEN == Then::ADD) y[r] = added[r] + acc;
    if constexpr (THEN == Then::BIAS) y[r] = acc + added[r];
    if constexpr (THEN == Then::GATED_ADD) y[r] = fmadd(sigmoid, acc, added[r]);
  }
}

// y = silu(Wg x) * (Wu x) for rows [r0, r1).
template <typename Dot>
DEVICE void gemv_silu(const u8 *wg, const u8 *wu, const typename Dot::X *x, float *y, u32 r0,
                      u32 r1, u32 k, u32 rows) {
  using Row = typename Dot::Row;
  u32 r = r0 + launch_row();
  bool in_range = r < r1;
  u32 row = in_range ? r : r1 - 1;
  const Row pair[2] = {Row(wg, row, k, rows), Row(wu, row, k, rows)};
  float dots[2];
  Dot::dots(pair, x, 0, k, k, dots);
  float value = exact_silu(dots[0]) * dots[1];
  if (in_range && stores_row()) y[r] = value;
}

// A whole matrix of a launch over several.
struct Part {
  const u8 *w;
  const float *bias;
  float *y;
  u32 rows;
};

// Rows of all matrices one after another; each half-wave picks the matrix of its row.
template <typename Dot, u32 COUNT>
DEVICE void gemv_several(const Part (&parts)[COUNT], const typename Dot::X *x, u32 k) {
  u32 r = launch_row();
  Part part = parts[0];
  u32 start = 0;
  u32 end = parts[0].rows;
#pragma unroll
  for (u32 i = 1; i < COUNT; i++) {
    bool past = r >= end;
    part.w = past ? parts[i].w : part.w;
    part.bias = past ? parts[i].bias : part.bias;
    part.y = past ? parts[i].y : part.y;
    part.rows = past ? parts[i].rows : part.rows;
    start = past ? end : start;
    end += parts[i].rows;
  }
  bool in_range = r < end;
  u32 row = in_range ? r - start : part.rows - 1;
  float acc = dot_row<Dot>(typename Dot::Row(part.w, row, k, part.rows), x, 0, k, k);
  if (in_range && stores_row()) part.y[row] = part.bias ? acc + part.bias[row] : acc;
}

// y may be the residual itself: each element is read and written by one lane.
#define GEMV_CORE(name, dot, more)                                                                \
  KERNEL(256) gemv_##name(const u8 *__restrict w, const dot::X *__restrict x,                     \
                          float *__restrict y, u32 r0, u32 r1, u32 k DECLARE_##more) {            \
    gemv<dot, Then::STORE>(w, x, nullptr, nullptr, y, r0, r1, k PASS_##more);                     \
  }                                                                                               \
  KERNEL(256) gemv_add_##name(const u8 *__restrict w, const dot::X *__restrict x,                 \
                              const float *residual, float *y, u32 r0, u32 r1,                    \
                              u32 k DECLARE_##more) {                                             \
    gemv<dot, Then::ADD>(w, x, nullptr, residual, y, r0, r1, k PASS_##more);                      \
  }                                                                                               \
  KERNEL(256) gemv_bias_##name(const u8 *__restrict w, const dot::X *__restrict x,                \
                               const float *__restrict bias, float *__restrict y, u32 r0,         \
                               u32 r1, u32 k DECLARE_##more) {                                    \
    gemv<dot, Then::BIAS>(w, x, nullptr, bias, y, r0, r1, k PASS_##more);                         \
  }                                                                                               \
  KERNEL(256) gemv_silu_##name(const u8 *__restrict wg, const u8 *__restrict wu,                  \
                               const dot::X *__restrict x, float *__restrict y, u32 r0,           \
                               u32 r1, u32 k DECLARE_##more) {                                    \
    gemv_silu<dot>(wg, wu, x, y, r0, r1, k PASS_##more);                                          \
  }

#define GEMV_FULL(name, dot, more)                                                                \
  GEMV_CORE(name, dot, more)                                                                      \
  KERNEL(256) gemv_gated_add_##name(const u8 *__restrict w, const dot::X *__restrict x,           \
                                    const float *__restrict gate, const float *residual,          \
                                    float *y, u32 r0, u32 r1, u32 k DECLARE_##more) {             \
    gemv<dot, Then::GATED_ADD>(w, x, gate, residual, y, r0, r1, k PASS_##more);                   \
  }                                                                                               \
  KERNEL(256) gemv2_##name(const u8 *__restrict w0, const u8 *__restrict w1,                      \
                           const dot::X *__restrict x, float *__restrict y0,                      \
                           float *__restrict y1, u32 m0, u32 m1, u32 k) {                         \
    const Part parts[2] = {{w0, nullptr, y0, m0}, {w1, nullptr, y1, m1}};                         \
    gemv_several<dot>(parts, x, k);                                                               \
  }                                                                                               \
  KERNEL(256) gemv3_##name(const u8 *__restrict w0, const u8 *__restrict w1,                      \
                           const u8 *__restrict w2, const dot::X *__restrict x,                   \
                           float *__restrict y0, float *__restrict y1, float *__restrict y2,      \
                           u32 m0, u32 m1, u32 m2, u32 k) {                                       \
    const Part parts[3] = {{w0, nullptr, y0, m0}, {w1, nullptr, y1, m1}, {w2, nullptr, y2, m2}};  \
    gemv_several<dot>(parts, x, k);                                                               \
  }                                                                                               \
  KERNEL(256) gemv4_##name(const u8 *__restrict w0, const u8 *__restrict w1,                      \
                           const u8 *__restrict w2, const u8 *__restrict w3,                      \
                           const dot::X *__restrict x, float *__restrict y0,                      \
                           float *__restrict y1, float *__restrict y2, float *__restrict y3,      \
                           u32 m0, u32 m1, u32 m2, u32 m3, u32 k) {                               \
    const Part parts[4] = {{w0, nullptr, y0, m0}, {w1, nullptr, y1, m1}, {w2, nullptr, y2, m2},   \
                           {w3, nullptr, y3, m3}};                                                \
    gemv_several<dot>(parts, x, k);                                                               \
  }                                                                                               \
  KERNEL(256) gemv3_bias_##name(const u8 *__restrict w0, const u8 *__restrict w1,                 \
                                const u8 *__restrict w2, const dot::X *__restrict x,              \
                                const float *__restrict b0, const float *__restrict b1,           \
                                const float *__restrict b2, float *__restrict y0,                 \
                                float *__restrict y1, float *__restrict y2, u32 m0, u32 m1,       \
                                u32 m2, u32 k) {                                                  \
    const Part parts[3] = {{w0, b0, y0, m0}, {w1, b1, y1, m1}, {w2, b2, y2, m2}};                 \
    gemv_several<dot>(parts, x, k);                                                               \
  }

FULL_FORMATS(GEMV_FULL)
CORE_FORMATS(GEMV_CORE)
