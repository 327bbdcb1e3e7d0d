// The functions gates are made of, in f32, exact to rounding for every argument.
#pragma once

// ln(1 + e^p) without overflow, and exact to rounding where e^p is tiny.
__device__ __forceinline__ float softplus(float p) {
  return fmaxf(p, 0.0f) + log1pf(expf(-fabsf(p)));
}

__device__ __forceinline__ float sigmoid(float b) { return 1.0f / (1.0f + expf(-b)); }
