// Kernels whose machine code exercises what the shipped kernels do not: IEEE division, hardware
// transcendentals, integer division, 64-bit and double arithmetic, dot products, ballots, LDS trees,
// global fences, atomics, and work-group and work-item ids in three dimensions.
// Built by hand into <target>/coverage.co:
//   clang-19 -x hip --offload-arch=TARGET --offload-device-only --no-gpu-bundle-output -nogpulib
//     -nogpuinc -fuse-cuid=none -std=c++17 -O3 -ffp-contract=off -mllvm -disable-machine-sink

#define DEVICE static __attribute__((device, always_inline))
#define SHARED static __attribute__((shared))
#define KERNEL(threads) \
  extern "C" __attribute__((global, amdgpu_flat_work_group_size(threads, threads))) void

using u8 = unsigned char;
using i8 = signed char;
using u16 = unsigned short;
using i16 = short;
using u32 = unsigned int;
using i32 = int;
using u64 = unsigned long long;
using i64 = long long;

DEVICE u32 item() { return __builtin_amdgcn_workitem_id_x(); }
DEVICE u32 group() { return __builtin_amdgcn_workgroup_id_x(); }
DEVICE u32 index() { return group() * 256 + item(); }

// A work-group barrier with the full fence: cache writebacks and invalidates around it.
DEVICE void barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

KERNEL(256) ids(u32 *out, u32 width, u32 height) {
  u32 x = index();
  u32 y = __builtin_amdgcn_workgroup_id_y();
  u32 z = __builtin_amdgcn_workgroup_id_z();
  if (x < width) out[(z * height + y) * width + x] = x + 1000 * y + 1000000 * z;
}

KERNEL(64) items(u32 *out) {
  u32 x = __builtin_amdgcn_workitem_id_x();
  u32 y = __builtin_amdgcn_workitem_id_y();
  u32 z = __builtin_amdgcn_workitem_id_z();
  out[x + 4 * (y + 4 * z)] = x | y << 8 | z << 16;
}

KERNEL(256) divide(const float *a, const float *b, float *out, u32 n) {
  u32 i = index();
  if (i < n) out[i] = a[i] / b[i];
}

KERNEL(256) integers(const i32 *a, const i32 *b, i32 *out, u32 n) {
  u32 i = index();
  if (i >= n) return;
  i32 x = a[i];
  i32 y = b[i];
  i32 *o = out + i * 12;
  o[0] = x / y;
  o[1] = (i32)((u32)x % (u32)y);
  o[2] = x < 0 ? -x : x;
  o[3] = __builtin_popcount((u32)x);
  o[4] = __builtin_clz((u32)x | 1u);
  o[5] = __builtin_ctz((u32)x | 0x80000000u);
  o[6] = x > y ? x : y;
  o[7] = (i32)((u32)x < (u32)y ? (u32)x : (u32)y);
  o[8] = (i32)((u32)x >> 3 | (u32)x << 29);
  o[9] = (i32)((u64)(i64)x * (u64)(u32)y >> 32);
  o[10] = (i16)(x * 3) >> 2;
  o[11] = (i32)(((i64)x * y + ((i64)y << 7)) >> 5);
}

KERNEL(256) floats(const float *a, float *out, u32 n) {
  u32 i = index();
  if (i >= n) return;
  float x = a[i];
  float *o = out + i * 10;
  o[0] = __builtin_floorf(x);
  o[1] = __builtin_ceilf(x);
  o[2] = __builtin_truncf(x);
  o[3] = __builtin_rintf(x);
  o[4] = __builtin_sqrtf(__builtin_fabsf(x));
  o[5] = __builtin_amdgcn_fmed3f(x, -1.0f, 1.0f);
  o[6] = (float)(_Float16)x;
  o[7] = (float)(i32)x;
  o[8] = __builtin_fminf(x, 2.0f) + __builtin_fmaxf(x, -2.0f);
  o[9] = __builtin_ldexpf(x, (i32)i - 20);
}

KERNEL(256) transcendentals(const float *a, float *out, u32 n) {
  u32 i = index();
  if (i >= n) return;
  float x = a[i];
  float *o = out + i * 4;
  o[0] = __builtin_expf(x);
  o[1] = __builtin_log2f(__builtin_fabsf(x) + 1.0f);
  o[2] = __builtin_sinf(x);
  o[3] = __builtin_cosf(x);
}

KERNEL(256) doubles(const double *a, const i64 *b, double *out, i64 *whole, u32 n) {
  u32 i = index();
  if (i >= n) return;
  out[i] = a[i] * a[i] + 1.0;
  whole[i] = b[i] * 3 + (b[i] >> 5) + ((double)(i32)b[i] < a[i] ? 1 : 2);
}

KERNEL(256) dots(const u32 *a, const u32 *b, i32 *out, u32 n) {
  u32 i = index();
  if (i >= n) return;
  out[i * 2] = __builtin_amdgcn_sudot4(true, a[i], true, b[i], 5, false);
  out[i * 2 + 1] = __builtin_amdgcn_sudot4(false, a[i], true, b[i], -7, false);
}

// Softmax of one row: LDS trees with the full fence.
KERNEL(256) softmax(float *x, u32 n) {
  SHARED float tree[256];
  float top = -1e30f;
  for (u32 i = item(); i < n; i += 256) top = __builtin_fmaxf(top, x[i]);
  tree[item()] = top;
  barrier();
  for (u32 s = 128; s; s >>= 1) {
    if (item() < s) tree[item()] = __builtin_fmaxf(tree[item()], tree[item() + s]);
    barrier();
  }
  top = tree[0];
  barrier();
  float sum = 0.0f;
  for (u32 i = item(); i < n; i += 256) {
    float e = __builtin_expf(x[i] - top);
    x[i] = e;
    sum += e;
  }
  tree[item()] = sum;
  barrier();
  for (u32 s = 128; s; s >>= 1) {
    if (item() < s) tree[item()] += tree[item() + s];
    barrier();
  }
  float scale = 1.0f / tree[0];
  for (u32 i = item(); i < n; i += 256) x[i] *= scale;
}

DEVICE u64 mix(u64 x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdull;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ull;
  return x ^ x >> 33;
}

// The first index whose inclusive prefix sum exceeds a random share of the total 1.
KERNEL(32) sample(const float *p, u32 n, u64 seed, u32 *out) {
  float r = (float)(u32)(mix(seed) >> 40) * 0x1p-24f;
  float base = 0.0f;
  u32 found = n - 1;
  for (u32 i = 0; i < n; i += 32) {
    float c = i + item() < n ? p[i + item()] : 0.0f;
    for (u32 d = 1; d < 32; d <<= 1) {
      i32 from = (i32)(item() - d) * 4;
      i32 got = __builtin_amdgcn_ds_bpermute(from, __builtin_bit_cast(i32, c));
      if (item() >= d) c += __builtin_bit_cast(float, got);
    }
    u32 over = __builtin_amdgcn_ballot_w32(base + c > r);
    if (over) {
      found = i + (u32)__builtin_ctz(over);
      break;
    }
    i32 last = __builtin_amdgcn_readlane(__builtin_bit_cast(i32, c), 31);
    base += __builtin_bit_cast(float, last);
  }
  if (item() == 0) *out = found;
}

KERNEL(256) atomics(u32 *counters, u32 *most, u64 *wide, float *sum) {
  u32 old = __hip_atomic_fetch_add(counters + (item() & 7), item(), __ATOMIC_RELAXED,
                                   __HIP_MEMORY_SCOPE_AGENT);
  __hip_atomic_fetch_max(most, old, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
  __hip_atomic_fetch_add(wide, (u64)item() << 20, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
  __hip_atomic_fetch_add(sum, 1.0f, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

// Every wave counts, all wait, every wave reads the count, all wait: four times over.
KERNEL(256) phases(u32 *out) {
  SHARED u32 count;
  if (item() == 0) count = 0;
  barrier();
  for (u32 phase = 0; phase < 4; phase++) {
    if ((item() & 31) == 0) {
      __hip_atomic_fetch_add(&count, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
    }
    barrier();
    if ((item() & 31) == 0) out[phase * 8 + (item() >> 5)] = count;
    barrier();
  }
}
