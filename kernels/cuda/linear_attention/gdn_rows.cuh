// Rows of the state as the warps of a speculative round hold them: eight lanes a row, in registers,
// from the first row of the round to the last. Whoever advances a state by these functions in this
// order gives the same bits as whoever else does: the round, and the fold of what it stashed.
#pragma once

#include "element.cuh"
#include "sequences.cuh"
#include "state.cuh"

constexpr int kLanesPerRow = 8;
constexpr int kRowsPerPass = 32 / kLanesPerRow;
constexpr int kTileValues = 32;
constexpr int kPasses = 2;
constexpr int kThreads = 32 * kTileValues / (kRowsPerPass * kPasses);

__device__ __forceinline__ float sum_over_row_lanes(float x) {
#pragma unroll
  for (int step = kLanesPerRow / 2; step > 0; step /= 2) x += __shfl_xor_sync(kFullWarp, x, step);
  return x;
}

template <typename T, typename S, int DK>
struct Rows {
  static constexpr int kShare = DK / kLanesPerRow;  // elements of a state row a lane holds
  static constexpr int kVector = sizeof(S) == 2 && kShare % 8 == 0 ? 8 : 4;
  static constexpr int kPieces = kShare / kVector;
  using Vector = StateVector<S, kVector>;

  __device__ __forceinline__ static int column(int piece) {
    return (piece * kLanesPerRow + static_cast<int>(threadIdx.x) % kLanesPerRow) * kVector;
  }

  __device__ __forceinline__ static void load_key(float (&out)[kShare], const T* row) {
#pragma unroll
    for (int i = 0; i < kShare; i += 4) {
      const float4 four = load4(row + column(i / kVector) + i % kVector);
      out[i] = four.x, out[i + 1] = four.y, out[i + 2] = four.z, out[i + 3] = four.w;
    }
  }

  // A lane's share of a key as f32, whoever of a row's lanes holds it.
  __device__ __forceinline__ static void store_key(const float (&key)[kShare], float* row) {
#pragma unroll
    for (int i = 0; i < kShare; i += 4) {
      store4(row + column(i / kVector) + i % kVector,
             make_float4(key[i], key[i + 1], key[i + 2], key[i + 3]));
    }
  }

  __device__ __forceinline__ static void load(float (&state)[kShare], const S* row) {
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      Vector held;
      held.load(row + column(piece));
      held.widen_to(state + piece * kVector);
    }
  }

  __device__ __forceinline__ static void store(const float (&state)[kShare], S* row) {
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      Vector held;
      held.narrow_from(state + piece * kVector);
      held.store(row + column(piece));
    }
  }

  // Decays a row of the state; what it then holds at the key, this lane's share.
  __device__ __forceinline__ static float recall(float (&state)[kShare], const float (&key)[kShare],
                                                 float alpha) {
    float memory = 0.0f;
#pragma unroll
    for (int i = 0; i < kShare; ++i) {
      state[i] *= alpha;
      memory = fmaf(state[i], key[i], memory);
    }
    return memory;
  }

  // Writes delta along the key and rounds to the state's type: what is stored is what is carried.
  __device__ __forceinline__ static void write(float (&state)[kShare], const float (&key)[kShare],
                                               float delta) {
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      float* const part = state + piece * kVector;
#pragma unroll
      for (int i = 0; i < kVector; ++i) part[i] = fmaf(delta, key[piece * kVector + i], part[i]);
      Vector held;
      held.narrow_from(part);
      held.widen_to(part);  // what is stored is what is read and carried
    }
  }

  // The product with the query, this lane's share.
  __device__ __forceinline__ static float read(const float (&state)[kShare],
                                               const float (&query)[kShare]) {
    float output = 0.0f;
#pragma unroll
    for (int i = 0; i < kShare; ++i) output = fmaf(state[i], query[i], output);
    return output;
  }
};
