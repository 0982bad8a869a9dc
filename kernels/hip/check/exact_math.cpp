// Sweeps the exact arithmetic of refrain.hpp, compiled for the host, against libm in f64.
// `cargo xtask kernels --numerics` runs it; docs/measurements/exact-math.md holds its figures.
// Argument: step through the 2^32 f32 patterns (default 61; 1 visits all).

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define REFRAIN_HOST
#include "../refrain.hpp"

static const double TWO_PI = 6.283185307179586476925286766559;

// Distance in units of the last place of an f32 as large as `want`.
static double ulps(float got, double want) {
  if (isnan(got)) return isnan(want) ? 0 : INFINITY;
  if (fabs(want) > 3.4028235677973366e38) return isinf(got) ? 0 : INFINITY;
  int exponent;
  frexp(want, &exponent);
  int place = exponent - 24;
  return fabs((double)got - want) / ldexp(1.0, place < -149 ? -149 : place);
}

struct Worst {
  const char *name;
  const char *unit;
  double bound;
  double error = 0;
  double at = 0;
  void see(double e, double x) {
    if (!(e <= error)) {
      error = e;
      at = x;
    }
  }
};

static u64 state = 1;
static u32 random_bits() {
  state = state * 6364136223846793005ull + 1442695040888963407ull;
  return (u32)(state >> 32);
}
// Mantissa at random, exponent in [-20, 20].
static float random_float() {
  return as_float((random_bits() & 0x7FFFFFu) | ((107 + random_bits() % 41) << 23));
}

int main(int argc, char **argv) {
  u64 step = argc > 1 ? strtoull(argv[1], nullptr, 10) : 61;
  Worst exp_ = {"exp", "ulp", 1.2};
  Worst rcp = {"rcp, 2^-125 <= |x| <= 2^125", "ulp", 0.5001};
  Worst rsqrt = {"rsqrt, normal x > 0", "ulp", 0.5001};
  Worst silu = {"silu, x > -87", "ulp", 4};
  Worst sigmoid = {"sigmoid, x > -87", "ulp", 3};
  Worst softplus = {"softplus, x > -87", "ulp", 3};
  for (u64 bits = 0; bits <= 0xFFFFFFFFull; bits += step) {
    float x = as_float((u32)bits);
    if (isnan(x)) continue;
    exp_.see(ulps(exact_exp(x), exp((double)x)), x);
    float a = fabsf(x);
    if (a >= 0x1p-125f && a <= 0x1p125f) rcp.see(ulps(exact_rcp(x), 1.0 / x), x);
    if (x >= 0x1p-126f && isfinite(x)) rsqrt.see(ulps(exact_rsqrt(x), 1.0 / sqrt((double)x)), x);
    if (x > -87.0f && isfinite(x)) silu.see(ulps(exact_silu(x), x / (1.0 + exp(-(double)x))), x);
    if (x > -87.0f && isfinite(x)) {
      sigmoid.see(ulps(exact_sigmoid(x), 1.0 / (1.0 + exp(-(double)x))), x);
      double positive = x > 0 ? x : 0.0;
      softplus.see(ulps(exact_softplus(x), positive + log1p(exp(-fabs((double)x)))), x);
    }
  }
  Worst div = {"div, exponents -20..20", "ulp", 0.5001};
  for (int i = 0; i < 20000000; i++) {
    float a = random_float(), b = random_float();
    div.see(ulps(exact_div(a, b), (double)a / b), a);
  }
  Worst sincos = {"sincos, |t| <= 0.75 turn", "abs", 2e-7};
  for (int i = -(1 << 23); i <= 1 << 23; i++) {
    float t = (float)i * 0x1.8p-24f;
    SinCos got = exact_sincos_turns(t);
    double angle = TWO_PI * (double)t;
    sincos.see(fmax(fabs(got.sin - sin(angle)), fabs(got.cos - cos(angle))), t);
  }
  Worst rope = {"rope angle, positions < 10^6", "abs", 2e-7};
  const double thetas[] = {1e4, 1e5, 5e5, 1e6, 1e7};
  for (double theta : thetas) {
    for (int rot = 32; rot <= 256; rot *= 2) {
      for (int j = 0; j < rot / 2; j++) {
        double frequency = pow(theta, -2.0 * j / rot) / TWO_PI;
        float hi = (float)frequency, lo = (float)(frequency - hi);
        for (u32 p = 0; p < 1000000; p += p < 4096 ? 1 : 977) {
          SinCos got = exact_sincos_turns(exact_turns(p, hi, lo));
          long double turns = (long double)p * frequency;
          double angle = (double)((turns - roundl(turns)) * (long double)TWO_PI);
          rope.see(fmax(fabs(got.sin - sin(angle)), fabs(got.cos - cos(angle))), p);
        }
      }
    }
  }
  int failures = 0;
  const Worst *all[] = {&exp_, &rcp, &rsqrt, &div, &silu, &sigmoid, &softplus, &sincos, &rope};
  for (const Worst *w : all) {
    bool ok = w->error <= w->bound;
    failures += !ok;
    printf("%-4s %-30s %.3g %s (bound %.3g) at %g\n", ok ? "ok" : "FAIL", w->name, w->error,
           w->unit, w->bound, w->at);
  }
  SinCos none = exact_sincos_turns(0.0f), quarter = exact_sincos_turns(0.25f);
  struct {
    const char *name;
    bool holds;
  } edges[] = {
      {"exp(-inf) = 0", exact_exp(-INFINITY) == 0.0f},
      {"exp(-104) = 0", exact_exp(-104.0f) == 0.0f},
      {"exp(0) = 1", exact_exp(0.0f) == 1.0f},
      {"exp(89) = inf", isinf(exact_exp(89.0f)) != 0},
      {"exp(inf) = inf", isinf(exact_exp(INFINITY)) != 0},
      {"exp(NaN) is NaN", isnan(exact_exp(NAN)) != 0},
      {"silu(NaN) is NaN", isnan(exact_silu(NAN)) != 0},
      {"silu(inf) = inf", isinf(exact_silu(INFINITY)) != 0},
      {"sincos(0) = (0, 1)", none.sin == 0 && none.cos == 1},
      {"sincos(1/4) = (1, 0)", quarter.sin == 1 && quarter.cos == 0},
  };
  for (auto &edge : edges) {
    failures += !edge.holds;
    printf("%-4s %s\n", edge.holds ? "ok" : "FAIL", edge.name);
  }
  return failures != 0;
}
