// What a warpgroup of Hopper (sm_90a) does: asynchronous products whose right factor, or both, lie in
// shared memory, and mbarriers by which warps of different roles hand tiles to each other.
//
// A tile is 64 rows of 128 bytes, 1,024-byte aligned, its 16-byte chunks permuted as in
// tensor_core.cuh's tiles of eight chunks a row: that is the 128-byte swizzle of the hardware. Sums of
// a 64-row product are laid out as tensor_core.cuh's d, sixteen rows a warp, eight columns a fragment;
// a left factor in registers is its a.
#pragma once

#include "tensor_core.cuh"

constexpr int kGroupThreads = 128;
constexpr int kSwizzledTileBytes = 64 * 128;

// ---- factors in shared memory ----

// A row of the tile is a row of the factor (right factor: of its transpose): 16 columns of it are 32
// bytes further on.
__device__ __forceinline__ unsigned long long rows_factor(unsigned tile) {
  constexpr unsigned long long kEightRows = 1024 >> 4, kSwizzle128 = 1;
  return (tile & 0x3ffffu) >> 4 | 1ull << 16 | kEightRows << 32 | kSwizzle128 << 62;
}

// A row of the tile is a row of the right factor, columns past 64 in the next tile: 16 rows of it are
// 2,048 bytes further on.
__device__ __forceinline__ unsigned long long columns_factor(unsigned tile) {
  constexpr unsigned long long kEightRows = 1024 >> 4, kNextTile = kSwizzledTileBytes >> 4;
  constexpr unsigned long long kSwizzle128 = 1;
  return (tile & 0x3ffffu) >> 4 | kNextTile << 16 | kEightRows << 32 | kSwizzle128 << 62;
}

// ---- products ----

__device__ __forceinline__ void products_may_start() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void close_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits for all products; the sums are not read before.
template <int COUNT>
__device__ __forceinline__ void products_arrive(float (&d)[COUNT][4]) {
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
#pragma unroll
    for (int e = 0; e < 4; ++e) asm volatile("" : "+f"(d[i][e])::"memory");
  }
}

#define GROUP_SUMS4(d, i) "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
#define GROUP_SUMS16(d, i) \
  GROUP_SUMS4(d, i), GROUP_SUMS4(d, i + 1), GROUP_SUMS4(d, i + 2), GROUP_SUMS4(d, i + 3)
#define GROUP_NAMES32                                                                            \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "    \
  "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define GROUP_NAMES64                                                                            \
  GROUP_NAMES32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, "   \
  "%47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

// d (64x64) = left right, or d += left right; 16 columns of left, in registers. `right` as rows.
__device__ __forceinline__ void group_multiply(float (&d)[8][4], const unsigned (&left)[4],
                                               unsigned long long right, bool add) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" GROUP_NAMES32 "}, "
      "{%32, %33, %34, %35}, %36, add, 1, 1, 0;\n}"
      : GROUP_SUMS16(d, 0), GROUP_SUMS16(d, 4)
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right), "r"(int(add)));
}

// The same with left in shared memory, as rows.
__device__ __forceinline__ void group_multiply(float (&d)[8][4], unsigned long long left,
                                               unsigned long long right, bool add) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" GROUP_NAMES32 "}, "
      "%32, %33, add, 1, 1, 0, 0;\n}"
      : GROUP_SUMS16(d, 0), GROUP_SUMS16(d, 4)
      : "l"(left), "l"(right), "r"(int(add)));
}

// d (64x128) += left right, left in registers, `right` as columns.
__device__ __forceinline__ void group_multiply_columns(float (&d)[16][4], const unsigned (&left)[4],
                                                       unsigned long long right) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, 1, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" GROUP_NAMES64 "}, "
      "{%64, %65, %66, %67}, %68, add, 1, 1, 1;\n}"
      : GROUP_SUMS16(d, 0), GROUP_SUMS16(d, 4), GROUP_SUMS16(d, 8), GROUP_SUMS16(d, 12)
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right));
}

// Shows the tensor cores what this thread, or copies it has waited for, stored in shared memory.
__device__ __forceinline__ void show_to_products() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// A 16x16 a fragment into a tile: lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void store_matrices(unsigned at, const unsigned (&x)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at),
               "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
               : "memory");
}

// ---- mbarriers ----

__device__ __forceinline__ void mbarrier_init(unsigned at, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void mbarrier_arrive(unsigned at) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
}
// This thread's arrival, once its copies under way are there.
__device__ __forceinline__ void mbarrier_arrive_after_copies(unsigned at) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(at) : "memory");
}
__device__ __forceinline__ void mbarrier_wait(unsigned at, int parity) {
  unsigned done;
  do {
    asm volatile(
        "{\n.reg .pred done;\nmbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
        "selp.u32 %0, 1, 0, done;\n}"
        : "=r"(done)
        : "r"(at), "r"(parity)
        : "memory");
  } while (!done);
}

// A place in a ring of tiles that one side fills and another empties. Both walk it alike.
template <int PLACES>
struct RingPlace {
  int place = 0, parity = 0;
  __device__ __forceinline__ void next() {
    if (++place == PLACES) place = 0, parity ^= 1;
  }
};
