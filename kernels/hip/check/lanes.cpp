// Runs the kernels' own source on the host, one fiber per lane, and compares every kernel with its
// formula in f64. `cargo xtask kernels --numerics` runs it.
//
// It checks formulas, indexing, tails and barriers. It cannot see what the compiler makes of the
// source (the lint and the software GPU do) and assumes, as the source must, that all lanes of a
// wave reach each cross-lane operation.

#include <ucontext.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>
#include <random>
#include <string>
#include <vector>

// ---- the lanes ----------------------------------------------------------------------------------

namespace lanes {
constexpr unsigned MAX_THREADS = 1024;
constexpr size_t STACK_BYTES = 65536;

struct Fiber {
  ucontext_t context;
  std::vector<char> stack = std::vector<char>(STACK_BYTES);
  bool done = false;
};

// A point that all of a wave or a work-group must reach; then each reads what the others brought.
struct Meeting {
  unsigned arrived = 0, phase = 0;
  unsigned brought[MAX_THREADS], result[MAX_THREADS];
};

std::vector<Fiber> fibers(MAX_THREADS);
Meeting waves[MAX_THREADS / 32], group;
ucontext_t scheduler;
std::function<void()> body;
unsigned current, group_index, threads;

void yield() { swapcontext(&fibers[current].context, &scheduler); }

void meet(Meeting &m, unsigned size, unsigned index, unsigned value) {
  unsigned phase = m.phase;
  m.brought[index] = value;
  if (++m.arrived == size) {
    m.arrived = 0;
    memcpy(m.result, m.brought, sizeof m.result);
    m.phase++;
  } else {
    while (m.phase == phase) yield();
  }
}

unsigned from_lane(unsigned value, unsigned lane) {
  Meeting &wave = waves[current >> 5];
  meet(wave, 32, current & 31, value);
  return wave.result[lane & 31];
}

void entry() {
  body();
  fibers[current].done = true;
  for (;;) yield();
}

void launch(unsigned groups, unsigned block, std::function<void()> kernel) {
  body = kernel;
  threads = block;
  for (group_index = 0; group_index < groups; group_index++) {
    for (unsigned t = 0; t < block; t++) {
      Fiber &fiber = fibers[t];
      getcontext(&fiber.context);
      fiber.context.uc_stack.ss_sp = fiber.stack.data();
      fiber.context.uc_stack.ss_size = fiber.stack.size();
      fiber.context.uc_link = &scheduler;
      fiber.done = false;
      makecontext(&fiber.context, entry, 0);
    }
    for (bool running = true; running;) {
      running = false;
      for (current = 0; current < block; current++) {
        if (fibers[current].done) continue;
        swapcontext(&scheduler, &fibers[current].context);
        running |= !fibers[current].done;
      }
    }
  }
}
}  // namespace lanes
using lanes::launch;

// The builtins that refrain.hpp uses, for these lanes.
unsigned __builtin_amdgcn_workitem_id_x() { return lanes::current; }
unsigned __builtin_amdgcn_workgroup_id_x() { return lanes::group_index; }
unsigned __builtin_amdgcn_readfirstlane(unsigned value) { return value; }
int __builtin_amdgcn_update_dpp(int, int value, int control, int, int, bool) {
  return (int)lanes::from_lane((unsigned)value, lanes::current ^ (control & 15));
}
int __builtin_amdgcn_permlanex16(int, int value, int, int, bool, bool) {
  return (int)lanes::from_lane((unsigned)value, lanes::current ^ 16);
}
int __builtin_amdgcn_readlane(int value, int lane) {
  return (int)lanes::from_lane((unsigned)value, (unsigned)lane);
}
unsigned __builtin_amdgcn_perm(unsigned high, unsigned low, unsigned selectors) {
  unsigned long long bytes = (unsigned long long)high << 32 | low;
  unsigned out = 0;
  for (int i = 0; i < 4; i++) out |= (unsigned)(bytes >> 8 * (selectors >> 8 * i & 7) & 255) << 8 * i;
  return out;
}
int __builtin_amdgcn_sudot4(bool a_signed, int a, bool b_signed, int b, int sum, bool) {
  for (int i = 0; i < 4; i++) {
    int x = a >> 8 * i & 255, y = b >> 8 * i & 255;
    sum += (a_signed ? (signed char)x : x) * (b_signed ? (signed char)y : y);
  }
  return sum;
}
void __builtin_amdgcn_s_barrier() { lanes::meet(lanes::group, lanes::threads, lanes::current, 0); }
#define __builtin_amdgcn_fence(...) (void)0
#define __builtin_amdgcn_sched_barrier(mask) (void)0
#define __hip_atomic_store(pointer, value, order, scope) (*(pointer) = (value))
#define __hip_atomic_fetch_add(pointer, value, order, scope) (*(pointer) += (value))
#define amdgpu_flat_work_group_size(low, high) used
#pragma clang diagnostic ignored "-Wignored-attributes"
#pragma clang diagnostic ignored "-Wunknown-attributes"
#include "../refrain.hip"

// ---- comparing ----------------------------------------------------------------------------------

template <typename T>
struct Aligned {
  using value_type = T;
  Aligned() = default;
  template <typename U>
  Aligned(const Aligned<U> &) {}
  T *allocate(size_t n) { return (T *)::operator new(n * sizeof(T), std::align_val_t(256)); }
  void deallocate(T *p, size_t) { ::operator delete(p, std::align_val_t(256)); }
  bool operator==(const Aligned &) const { return true; }
  bool operator!=(const Aligned &) const { return false; }
};
template <typename T>
using Buffer = std::vector<T, Aligned<T>>;
using Floats = Buffer<float>;

static std::mt19937 rng(1);
static Floats random_floats(size_t n, float scale = 1) {
  std::normal_distribution<float> normal(0, scale);
  Floats v(n);
  for (float &x : v) x = normal(rng);
  return v;
}

static int cases, failures;
static void expect(const std::string &name, bool holds) {
  cases++;
  failures += !holds;
  if (!holds) printf("FAIL %s\n", name.c_str());
}
// |got - want| <= tolerance everywhere; NaN fails.
static void expect_near(const std::string &name, const float *got, const std::vector<double> &want,
                        double tolerance) {
  double worst = 0;
  for (size_t i = 0; i < want.size(); i++) {
    double error = std::fabs(got[i] - want[i]);
    if (!(error <= worst)) worst = error;
  }
  if (!(worst <= tolerance)) printf("%s: %g > %g\n", name.c_str(), worst, tolerance);
  expect(name, worst <= tolerance);
}
static std::string label(const char *name, std::initializer_list<u32> numbers) {
  std::string text = name;
  for (u32 n : numbers) text += " " + std::to_string(n);
  return text;
}

// ---- kernels ------------------------------------------------------------------------------------

static void check_norms() {
  for (u32 n : {4u, 64u, 576u, 1024u, 4100u}) {
    Floats x = random_floats(n), w = random_floats(n), y(n, NAN);
    launch(1, 256, [&] { rmsnorm(x.data(), w.data(), y.data(), n, 1e-6f); });
    double sum = 0;
    for (float v : x) sum += (double)v * v;
    std::vector<double> want(n);
    for (u32 i = 0; i < n; i++) want[i] = x[i] / std::sqrt(sum / n + 1e-6) * w[i];
    expect_near(label("rmsnorm", {n}), y.data(), want, 2e-6);
  }
  for (u32 d : {32u, 64u, 128u, 256u}) {
    u32 heads = 4, kv_heads = 2;
    Floats q = random_floats(heads * d), k = random_floats(kv_heads * d), q0 = q, k0 = k;
    Floats weights[] = {random_floats(d), random_floats(d)};
    launch(heads + kv_heads, 32, [&] {
      qk_norm(q.data(), k.data(), weights[0].data(), weights[1].data(), heads, kv_heads, d, 1e-6f);
    });
    for (u32 h = 0; h < heads + kv_heads; h++) {
      const float *x = h < heads ? &q0[h * d] : &k0[(h - heads) * d];
      const float *got = h < heads ? &q[h * d] : &k[(h - heads) * d];
      double sum = 0;
      for (u32 i = 0; i < d; i++) sum += (double)x[i] * x[i];
      std::vector<double> want(d);
      const Floats &w = weights[h >= heads];
      for (u32 i = 0; i < d; i++) want[i] = x[i] / std::sqrt(sum / d + 1e-6) * w[i];
      expect_near(label("qk_norm", {d, h}), got, want, 2e-6);
    }
  }
}

// One weight matrix in every dtype, and its values.
struct Weights {
  Floats f32;
  Buffer<f16> half;
  Buffer<bf16> brain;
  Buffer<u8> q8_0;
  std::vector<double> value[4];
  Weights(u32 m, u32 k)
      : f32(random_floats(m * k)), half(m * k), brain(m * k), q8_0(m * k / 32 * 34) {
    i8 *quants = (i8 *)q8_0.data();
    f16 *scales = (f16 *)(q8_0.data() + m * k);
    for (u32 i = 0; i < m * k / 32; i++) scales[i] = (f16)(0.001f + (rng() % 1000) * 1e-5f);
    for (u32 i = 0; i < m * k; i++) {
      half[i] = (f16)f32[i];
      brain[i].bits = (u16)(as_bits(f32[i]) >> 16);
      quants[i] = (i8)((int)(rng() % 255) - 127);
      value[0].push_back(f32[i]);
      value[1].push_back((float)half[i]);
      value[2].push_back(widen(brain[i]));
      value[3].push_back((double)(float)scales[i / 32] * quants[i]);
    }
  }
};

static void check_gemv(u32 m, u32 k) {
  Weights w(m, k);
  Floats x = random_floats(k), residual = random_floats(m);
  u32 r0 = m > 20 ? 5 : 0;
  const u8 *bytes[] = {(u8 *)w.f32.data(), (u8 *)w.half.data(), (u8 *)w.brain.data(),
                       w.q8_0.data()};
  for (u32 type = 0; type < 4; type++) {
    for (bool add : {false, true}) {
      Floats y = residual;
      const u8 *b = bytes[type];
      launch((m - r0 + 15) / 16, 256, [&] {
        float *o = y.data();
        const float *in = x.data();
        if (type == 0 && !add) gemv_f32(b, in, o, r0, m, k);
        if (type == 1 && !add) gemv_f16(b, in, o, r0, m, k);
        if (type == 2 && !add) gemv_bf16(b, in, o, r0, m, k);
        if (type == 3 && !add) gemv_q8_0(b, in, o, r0, m, k, m);
        if (type == 0 && add) gemv_add_f32(b, in, o, o, r0, m, k);
        if (type == 1 && add) gemv_add_f16(b, in, o, o, r0, m, k);
        if (type == 2 && add) gemv_add_bf16(b, in, o, o, r0, m, k);
        if (type == 3 && add) gemv_add_q8_0(b, in, o, o, r0, m, k, m);
      });
      std::vector<double> want(m);
      for (u32 r = 0; r < m; r++) {
        // Rows before r0 keep what they held.
        want[r] = r < r0 || add ? residual[r] : 0;
        for (u32 i = 0; r >= r0 && i < k; i++) want[r] += w.value[type][r * k + i] * x[i];
      }
      expect_near(label("gemv type add m k", {type, add, m, k}), y.data(), want, 5e-5);
    }
    Floats out(k, NAN);
    Control control{};
    control.token = m - 1;
    launch((k + 255) / 256, 256, [&] {
      float *o = out.data();
      if (type == 0) embed_f32(w.f32.data(), &control, o, k);
      if (type == 1) embed_f16(w.half.data(), &control, o, k);
      if (type == 2) embed_bf16(w.brain.data(), &control, o, k);
      if (type == 3) embed_q8_0(w.q8_0.data(), &control, o, k, m);
    });
    std::vector<double> row(w.value[type].end() - k, w.value[type].end());
    expect_near(label("embed type m k", {type, m, k}), out.data(), row, 0);
  }
}

static void check_rope(u32 d, u32 rot, u32 interleaved, u32 position) {
  u32 heads = 4, kv_heads = 2;
  Floats q = random_floats(heads * d), k = random_floats(kv_heads * d), q0 = q, k0 = k;
  Buffer<float2v> table(rot / 2);
  std::vector<double> frequency(rot / 2);
  for (u32 j = 0; j < rot / 2; j++) {
    frequency[j] = std::pow(1e6, -2.0 * j / rot);
    double turns = frequency[j] / 6.283185307179586476925;
    table[j].x = (float)turns;
    table[j].y = (float)(turns - table[j].x);
  }
  Control control{};
  control.pos = position;
  launch(heads + kv_heads, 32, [&] {
    rope(q.data(), k.data(), table.data(), &control, heads, kv_heads, d, rot, interleaved);
  });
  for (u32 h = 0; h < heads + kv_heads; h++) {
    const float *x = h < heads ? &q0[h * d] : &k0[(h - heads) * d];
    const float *got = h < heads ? &q[h * d] : &k[(h - heads) * d];
    std::vector<double> want(x, x + d);
    for (u32 j = 0; j < rot / 2; j++) {
      u32 a = interleaved ? 2 * j : j, b = interleaved ? 2 * j + 1 : j + rot / 2;
      double c = std::cos(frequency[j] * position), s = std::sin(frequency[j] * position);
      want[a] = x[a] * c - x[b] * s;
      want[b] = x[b] * c + x[a] * s;
    }
    expect_near(label("rope d rot interleaved pos head", {d, rot, interleaved, position, h}), got,
                want, 2e-6);
  }
}

template <typename T>
using Attention = void (*)(const float *, const T *, const T *, const Control *, float *, u32, u32,
                           float);

template <typename T>
static void check_attention(Attention<T> kernel, u32 d, u32 length, u32 heads, u32 kv_heads) {
  u32 rows = length + 3;
  Floats q = random_floats(heads * d), out(heads * d, NAN);
  Floats k = random_floats(rows * kv_heads * d), v = random_floats(rows * kv_heads * d);
  Buffer<T> kcache(k.size()), vcache(v.size());
  for (size_t i = 0; i < k.size(); i++) {
    // Rows past the end hold NaN: reading one into the result shows.
    bool valid = i < (size_t)length * kv_heads * d;
    kcache[i] = (T)(valid ? k[i] : NAN);
    vcache[i] = (T)(valid ? v[i] : NAN);
  }
  Control control{};
  control.pos = length - 1;
  float scale = 1 / std::sqrt((float)d);
  launch(heads, 256, [&] {
    kernel(q.data(), kcache.data(), vcache.data(), &control, out.data(), heads, kv_heads, scale);
  });
  std::vector<double> want(heads * d, 0.0);
  for (u32 h = 0; h < heads; h++) {
    u32 base = h / (heads / kv_heads) * d, stride = kv_heads * d;
    std::vector<double> p(length);
    double top = -1e300, total = 0;
    for (u32 s = 0; s < length; s++) {
      const T *key = &kcache[s * stride + base];
      for (u32 i = 0; i < d; i++) p[s] += (double)q[h * d + i] * (double)key[i];
      p[s] *= scale;
      top = std::fmax(top, p[s]);
    }
    for (double &x : p) total += x = std::exp(x - top);
    for (u32 s = 0; s < length; s++)
      for (u32 i = 0; i < d; i++)
        want[h * d + i] += p[s] / total * (double)vcache[s * stride + base + i];
  }
  u32 bytes = sizeof(T);
  expect_near(label("attention bytes d length heads kv", {bytes, d, length, heads, kv_heads}),
              out.data(), want, 4e-6);
}

static void check_elementwise() {
  Floats gate = random_floats(1000, 5), up = random_floats(1000), out = gate;
  launch(4, 256, [&] { silu_mul(out.data(), up.data(), out.data(), 1000); });
  std::vector<double> want(1000);
  for (u32 i = 0; i < 1000; i++) want[i] = gate[i] / (1 + std::exp(-(double)gate[i])) * up[i];
  expect_near("silu_mul", out.data(), want, 1e-5);

  u32 d = 300;
  Floats k = random_floats(d), v = random_floats(d), kcache(d * 4, 1), vcache(d * 4, 1);
  Control control{};
  control.pos = 2;
  auto write = [&] {
    kv_write_f32(k.data(), v.data(), kcache.data(), vcache.data(), &control, d);
  };
  launch(2, 256, write);
  std::vector<double> wantk(d * 4, 1), wantv(d * 4, 1);
  for (u32 i = 0; i < d; i++) {
    wantk[2 * d + i] = k[i];
    wantv[2 * d + i] = v[i];
  }
  control.done = 1;
  control.pos = 0;
  launch(2, 256, write);
  expect_near("kv_write keys", kcache.data(), wantk, 0);
  expect_near("kv_write values", vcache.data(), wantv, 0);
}

static void check_argmax() {
  auto sampled = [](Floats logits, u32 done = 0) {
    Control control{};
    control.sampled = 5;
    control.done = done;
    launch(1, 1024, [&] { argmax(logits.data(), &control, (u32)logits.size()); });
    return control.sampled;
  };
  Floats logits = random_floats(5000);
  for (float &x : logits) x = -std::fabs(x) - 1;
  logits[3000] = 2;
  expect("argmax", sampled(logits) == 3000);
  logits[4999] = 2;
  expect("argmax tie, later", sampled(logits) == 3000);
  logits[2999] = 2;
  expect("argmax tie, earlier", sampled(logits) == 2999);
  logits[7] = NAN;
  expect("argmax beside NaN", sampled(logits) == 2999);
  logits[4998] = INFINITY;
  expect("argmax infinity", sampled(logits) == 4998);
  expect("argmax once done", sampled(logits, 1) == 5);
  expect("argmax all NaN", sampled(Floats(100, NAN)) == NOT_A_TOKEN);
  expect("argmax all -inf", sampled(Floats(100, -INFINITY)) == NOT_A_TOKEN);
  expect("argmax one", sampled(Floats(1, -5)) == 0);
  expect("argmax all equal", sampled(Floats(3000, 0)) == 0);
  Floats zeros(40, 0.0f);
  zeros[0] = -0.0f;
  expect("argmax signed zeros", sampled(zeros) == 0);
}

static void check_advance() {
  constexpr u32 NONE = NOT_A_TOKEN;
  auto entry = [](u64 seq, u64 reason, u64 token) { return seq << 32 | reason << 24 | token; };
  // token, pos, done, prompt_len, generated, gen_limit, ctx_len, eos, seq, ring_mask, sampled
  struct Case {
    const char *name;
    Control from;
    u32 steps;
    Control to;
    u64 ring[4];
  } table[] = {
      {"prompt", {10, 0, 0, 4, 0, 9, 99, 2, 0, 3, 77}, 3, {13, 3, 0, 4, 0, 9, 99, 2, 0, 3, 77}, {}},
      {"prompt, then sampled", {10, 0, 0, 4, 0, 9, 99, 2, 0, 3, 77}, 5,
       {77, 5, 0, 4, 2, 9, 99, 2, 2, 3, 77}, {entry(1, 0, 77), entry(2, 0, 77)}},
      {"end of sequence", {10, 0, 0, 1, 0, 9, 99, 77, 0, 3, 77}, 5,
       {10, 0, 1, 1, 1, 9, 99, 77, 1, 3, 77}, {entry(1, 1, 77)}},
      {"limit", {10, 0, 0, 1, 0, 2, 99, 2, 0, 3, 77}, 9, {77, 1, 2, 1, 2, 2, 99, 2, 2, 3, 77},
       {entry(1, 0, 77), entry(2, 2, 77)}},
      {"end of context, ring wraps", {10, 0, 0, 1, 0, 99, 6, 2, 0, 3, 77}, 20,
       {77, 5, 3, 1, 6, 99, 6, 2, 6, 3, 77},
       {entry(5, 0, 77), entry(6, 3, 77), entry(3, 0, 77), entry(4, 0, 77)}},
      {"no comparable logit, no eos", {10, 0, 0, 1, 0, 9, 99, NONE, 0, 3, NONE}, 5,
       {10, 0, 4, 1, 1, 9, 99, NONE, 1, 3, NONE}, {entry(1, 4, 0xFFFFFF)}},
      {"prompt past the context", {10, 0, 0, 4, 0, 9, 2, 2, 0, 3, 77}, 5,
       {11, 1, 3, 4, 0, 9, 2, 2, 0, 3, 77}, {}},
  };
  u32 prompt[] = {10, 11, 12, 13};
  for (Case &c : table) {
    u64 ring[4] = {};
    for (u32 i = 0; i < c.steps; i++) launch(1, 32, [&] { advance(&c.from, prompt, ring); });
    expect(std::string("advance ") + c.name + ": words", !memcmp(&c.from, &c.to, sizeof c.to));
    expect(std::string("advance ") + c.name + ": ring", !memcmp(ring, c.ring, sizeof ring));
  }
}

int main() {
  check_norms();
  for (u32 k : {32u, 64u, 192u, 256u, 288u, 576u, 1024u})
    for (u32 m : {1u, 16u, 37u}) check_gemv(m, k);
  for (u32 d : {32u, 64u, 128u, 256u})
    for (u32 rot : {d, d / 4, d / 2})
      for (u32 interleaved : {0u, 1u})
        for (u32 position : {0u, 1u, 77u, 32767u, 262143u})
          check_rope(d, rot, interleaved, position);
  for (u32 length : {1u, 2u, 31u, 32u, 33u, 63u, 64u, 65u, 255u, 256u, 257u, 300u, 513u}) {
    check_attention<float>(attn_decode_f32_d32, 32, length, 4, 2);
    check_attention<float>(attn_decode_f32_d64, 64, length, 6, 3);
    check_attention<float>(attn_decode_f32_d128, 128, length, 4, 1);
    check_attention<float>(attn_decode_f32_d256, 256, length, 2, 2);
    check_attention<f16>(attn_decode_f16_d32, 32, length, 4, 2);
    check_attention<f16>(attn_decode_f16_d64, 64, length, 9, 3);
    check_attention<f16>(attn_decode_f16_d128, 128, length, 4, 1);
    check_attention<f16>(attn_decode_f16_d256, 256, length, 2, 2);
  }
  check_elementwise();
  check_argmax();
  check_advance();
  printf("%d cases, %d failures\n", cases, failures);
  return failures != 0;
}
