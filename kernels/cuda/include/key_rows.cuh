// How eight lanes share a row of key channels, and the log decays of such a row.
//
// A lane holds pieces of four neighbouring channels, eight lanes' pieces side by side, so four rows
// fill a warp's access with whole lines.
#pragma once

#include "element.cuh"

constexpr int kLanesPerRow = 8;
constexpr int kRowsPerPass = 32 / kLanesPerRow;

__device__ __forceinline__ float sum_over_row_lanes(float x) {
#pragma unroll
  for (int step = kLanesPerRow / 2; step > 0; step /= 2) {
    x += __shfl_xor_sync(0xffffffffu, x, step);
  }
  return x;
}

template <int DK>
struct KeyRow {
  static constexpr int kShare = DK / kLanesPerRow;  // channels a lane holds
  static constexpr int kVector = 4;
  static constexpr int kPieces = kShare / kVector;

  __device__ __forceinline__ static int column(int piece) {
    return (piece * kLanesPerRow + static_cast<int>(threadIdx.x) % kLanesPerRow) * kVector;
  }

  template <typename T>
  __device__ __forceinline__ static void load(float (&out)[kShare], const T* row) {
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      const float4 four = load4(row + column(piece));
      float* const to = out + piece * kVector;
      to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
    }
  }
};

// A log decay between `least` and zero; NaN passes.
__device__ __forceinline__ float clamped_decay(float g, float least) {
  if (g < least) g = least;
  if (g > 0.0f) g = 0.0f;
  return g;
}
