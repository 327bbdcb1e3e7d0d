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

__device__ __forceinline__ float silu(float z) { return z / (1.0f + expf(-z)); }

__device__ __forceinline__ float gated_norm(float o, float inverse, float weight, float z) {
  return o * inverse * weight * silu(z);
}
