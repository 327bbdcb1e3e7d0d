// What both classes of gdn_chunk share: the chunk-local sums of g, and vector loads.
#pragma once

#include "element.cuh"
#include "sequences.cuh"

// One vector load, spelled out: the compiler takes a float4 apart and may join it again in one way or
// another from run to run, and the checked-in PTX must be the same bytes on every machine.
__device__ __forceinline__ float4 shared4(const float* at) {
  float4 x;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(at)))
               : "memory");
  return x;
}

// G of one row: x the f32 nearest the sum, y the rest. Between neighbours of a strongly decaying
// chunk the sums nearly cancel; with the rest, their difference stays accurate however large they
// are.
__device__ __forceinline__ float2 split_sum(double sum) {
  const float nearest = static_cast<float>(sum);
  return make_float2(nearest, static_cast<float>(sum - static_cast<double>(nearest)));
}

// e^(G_later - G_earlier), at most 1.
__device__ __forceinline__ float decay_between(float2 later, float2 earlier) {
  return expf((later.x - earlier.x) + (later.y - earlier.y));
}

// e^x, x <= 0, to 2^-17 of itself; zero below 2^-126. For results that are rounded to 16 bits.
__device__ __forceinline__ float exp_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 0x1.715476p+0f));
  return y;
}
__device__ __forceinline__ float decay_fast(float2 later, float2 earlier) {
  return exp_fast((later.x - earlier.x) + (later.y - earlier.y));
}

// G of rows 2 l and 2 l + 1 of a chunk, for lane l, from their g: pair sums, then a scan over the warp.
__device__ __forceinline__ void chunk_sums(float first, float second, float2 (&sums)[2]) {
  const int lane = threadIdx.x & 31;
  double through = static_cast<double>(first) + second;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const double below = __shfl_up_sync(kFullWarp, through, step);
    if (lane >= step) through += below;
  }
  const double before = __shfl_up_sync(kFullWarp, through, 1);
  sums[0] = split_sum(lane == 0 ? first : before + first);
  sums[1] = split_sum(through);
}
