// RMS norm of one row with a plain weight, then a silu gate:
//
//   y = o * 1 / sqrt(mean(o^2) + eps) * w * silu(z),   silu(z) = z / (1 + e^-z)
//
// All f32 with one rounding when y is stored. The sum of squares has one order for every caller (a
// lane takes every 32nd element, then a butterfly), so a fused norm and one that stands alone give
// the same bits.
#pragma once

#include "element.cuh"

// Warp-collective; every lane gets 1 / sqrt(mean + eps) of n elements in shared memory.
__device__ __forceinline__ float inverse_rms(const float* row, int n, float eps) {
  float square = 0.0f;
  for (int i = threadIdx.x & 31; i < n; i += 32) square = fmaf(row[i], row[i], square);
#pragma unroll
  for (int step = 16; step > 0; step /= 2) square += __shfl_xor_sync(0xffffffffu, square, step);
  return 1.0f / sqrtf(square / static_cast<float>(n) + eps);
}

// x / (1 + e^-z) as (x / 4) / (1/4 + e^-z / 4), so that what is inverted, to the last bit but one, stays
// within the normal numbers until e^-z itself is infinite.
__device__ __forceinline__ float over_one_plus_exp(float x, float z) {
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(fmaf(0.25f, expf(-z), 0.25f)));
  return __fmul_rn(__fmul_rn(0.25f, x), inverse);
}

__device__ __forceinline__ float silu(float z) { return over_one_plus_exp(z, z); }
__device__ __forceinline__ float sigmoid_gate(float z) { return over_one_plus_exp(1.0f, z); }

__device__ __forceinline__ float gated_norm(float o, float inverse, float weight, float z) {
  return o * inverse * weight * silu(z);
}
