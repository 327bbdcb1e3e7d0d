// Tiles of wmma in every shape and layout, and atomics wider or narrower than a word.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>
using namespace nvcuda;

template <int M, int N, int K, class In, class Sum, class A, class B>
__device__ void tile(const In *a, const In *b, const Sum *c, Sum *d, wmma::layout_t out) {
  wmma::fragment<wmma::matrix_a, M, N, K, In, A> fa;
  wmma::fragment<wmma::matrix_b, M, N, K, In, B> fb;
  wmma::fragment<wmma::accumulator, M, N, K, Sum> fc;
  // Leading dimensions with room.
  wmma::load_matrix_sync(fa, a, 40);
  wmma::load_matrix_sync(fb, b, 48);
  wmma::load_matrix_sync(fc, c, 32, out);
  wmma::mma_sync(fc, fa, fb, fc);
  for (int i = 0; i < fc.num_elements; i++) fc.x[i] = fc.x[i] + fc.x[i];
  wmma::store_matrix_sync(d, fc, 32, out);
}

#define TILE(name, M, N, K, In, Sum, A, B, out)                                                      \
  extern "C" __global__ void name(const In *a, const In *b, const Sum *c, Sum *d) {                  \
    tile<M, N, K, In, Sum, wmma::A, wmma::B>(a, b, c, d, wmma::out);                                 \
  }
TILE(half_16x16_rr, 16, 16, 16, half, float, row_major, row_major, mem_row_major)
TILE(half_16x16_cc, 16, 16, 16, half, float, col_major, col_major, mem_col_major)
TILE(half_32x8_rc, 32, 8, 16, half, float, row_major, col_major, mem_row_major)
TILE(half_8x32_cr, 8, 32, 16, half, float, col_major, row_major, mem_row_major)
TILE(short_16x16_rc, 16, 16, 16, half, half, row_major, col_major, mem_row_major)
TILE(brain_16x16_rc, 16, 16, 16, __nv_bfloat16, float, row_major, col_major, mem_row_major)
TILE(brain_8x32_rr, 8, 32, 16, __nv_bfloat16, float, row_major, row_major, mem_col_major)
TILE(byte_16x16_rc, 16, 16, 16, signed char, int, row_major, col_major, mem_row_major)

extern "C" __global__ void atomics(float *f, double *d, half2 *h, __nv_bfloat162 *b, unsigned short *s, unsigned *u,
                                   int *i, unsigned long long *l) {
  unsigned t = threadIdx.x;
  atomicAdd(f, 1.f + t);
  atomicAdd(d, 0.5 * t);
  atomicAdd(h, __halves2half2(__float2half(1.f), __float2half(t)));
  atomicAdd(b, __halves2bfloat162(__float2bfloat16(1.f), __float2bfloat16(-1.f)));
  atomicAdd((half *)h + 2, __float2half(2.f));
  atomicAdd((__nv_bfloat16 *)b + 2, __float2bfloat16(4.f));
  unsigned short seen = *(volatile unsigned short *)s, before;
  do {
    before = seen;
    seen = atomicCAS(s, before, (unsigned short)(before + 3));
  } while (seen != before);
  atomicInc(u, 20);
  atomicDec(u + 1, 20);
  atomicMin(u + 2, t);
  atomicMax(u + 3, t);
  atomicAnd(u + 4, ~(1u << t));
  atomicOr(u + 5, 1u << t);
  atomicXor(u + 6, t);
  atomicExch(u + 7, 77);
  atomicMin(i, -(int)t);
  atomicMax(i + 1, (int)t);
  atomicMin((long long *)l, -(long long)t << 40);
  atomicMax(l + 1, (unsigned long long)t << 40);
  atomicCAS(l + 2, (unsigned long long)t, (unsigned long long)t + 1);
  atomicAnd(l + 3, ~(3ull << 2 * t));
}

#if __CUDA_ARCH__ >= 900
extern "C" __global__ void vectors(float4 *f, float2 *g, ulonglong2 *q) {
  unsigned t = threadIdx.x;
  float4 old = atomicAdd(f, make_float4(1, t, 0.5f, -1));
  f[1 + t] = old;
  atomicAdd(g, make_float2(t, 2));
  asm volatile("red.global.v2.f16x2.add.noftz [%0], {%1, %1};" ::"l"(g + 1), "r"(0x3c003c00) : "memory");
  asm volatile("red.global.v4.bf16.add.noftz [%0], {%1, %1, %1, %1};" ::"l"(g + 2), "h"((short)0x3f80) : "memory");
  unsigned long long low, high;
  // Each thread adds one to the upper and takes one from the lower half.
  asm volatile("{.reg .b128 o, n; .reg .pred p; .reg .b64 a, b, c, e;\n"
               "ld.global.b64 a, [%2]; ld.global.b64 b, [%2+8];\n"
               "L: add.u64 c, a, -1; add.u64 e, b, 1; mov.b128 o, {a, b}; mov.b128 n, {c, e};\n"
               "mov.b64 %0, a; mov.b64 %1, b; atom.global.cas.b128 o, [%2], o, n; mov.b128 {a, b}, o;\n"
               "setp.ne.u64 p, a, %0; @p bra L; setp.ne.u64 p, b, %1; @p bra L;}"
               : "=&l"(low), "=&l"(high)
               : "l"(q)
               : "memory");
  asm volatile("{.reg .b128 o, n; mov.b128 n, {%2, %3}; atom.global.exch.b128 o, [%1], n; mov.b128 {%0, _}, o;}"
               : "=l"(low)
               : "l"(q + 1), "l"((unsigned long long)t), "l"(high)
               : "memory");
}
#endif
