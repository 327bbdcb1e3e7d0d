// Rows of the state as the warps of a speculative round hold them: eight lanes a row, in registers,
// from the first row of the round to the last, and the rows of the round as a block stages them.
// Whoever advances a state by these functions in this order gives the same bits as whoever else does:
// the round, and the fold of what it stashed.
#pragma once

#include "element.cuh"
#include "sequences.cuh"
#include "state.cuh"
#include "tensor_core.cuh"

constexpr int kLanesPerRow = 8;
constexpr int kRowsPerPass = 32 / kLanesPerRow;
constexpr int kTileValues = 32;
constexpr int kPasses = 4;  // rows of the state a lane holds a share of
constexpr int kLanesPerPass = kLanesPerRow / kPasses;
constexpr int kThreads = 32 * kTileValues / (kRowsPerPass * kPasses);
template <typename S>
constexpr int kBlocks = sizeof(S) == 4 ? 8 : 6;  // of a multiprocessor, which registers and shared memory allow
constexpr int kStagedRows = 16;

// Sums of every pass over the eight lanes of a row, each lane left with its own pass's: halves are
// exchanged while more than one is held. The order is that of a butterfly, farthest lanes first.
__device__ __forceinline__ float sum_over_row_lanes(float (&x)[kPasses]) {
  int held = kPasses;
#pragma unroll
  for (int step = kLanesPerRow / 2; step > 0; step /= 2) {
    const bool upper = (threadIdx.x & step) != 0;
    if (held == 1) {
      x[0] += __shfl_xor_sync(kFullWarp, x[0], step);
      continue;
    }
    held /= 2;
#pragma unroll
    for (int i = 0; i < kPasses / 2; ++i) {
      if (i >= held) break;
      const float given = upper ? x[i] : x[i + held], kept = upper ? x[i + held] : x[i];
      x[i] = kept + __shfl_xor_sync(kFullWarp, given, step);
    }
  }
  return x[0];
}

// Which row of a state's tile this lane speaks for, and who speaks for the row of another pass.
struct RowLane {
  int first, own;  // of the tile: the first pass's row, and that of this lane's own pass
  bool leads;      // the first lane of its pass

  __device__ __forceinline__ RowLane() {
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    first = warp * kRowsPerPass * kPasses + lane / kLanesPerRow;
    own = first + lane % kLanesPerRow / kLanesPerPass * kRowsPerPass;
    leads = lane % kLanesPerPass == 0;
  }

  // What the lane of `pass` has.
  __device__ __forceinline__ static float of_pass(float x, int pass) {
    const int lane = threadIdx.x & (32 - kLanesPerRow);
    return __shfl_sync(kFullWarp, x, lane + pass * kLanesPerPass);
  }
};

template <typename S, int DK>
struct Rows {
  static constexpr int kShare = DK / kLanesPerRow;  // elements of a state row a lane holds
  static constexpr int kVector = sizeof(S) == 2 && kShare % 8 == 0 ? 8 : 4;
  static constexpr int kPieces = kShare / kVector;
  static constexpr i64 kNextPass = static_cast<i64>(kRowsPerPass) * DK;
  using Vector = StateVector<S, kVector>;
  using Held = Vector[kPasses][kPieces];  // as stored

  __device__ __forceinline__ static int column(int piece) {
    return (piece * kLanesPerRow + static_cast<int>(threadIdx.x) % kLanesPerRow) * kVector;
  }

  // Where four channels of a staged key lie: what a row's lanes read together is contiguous.
  __device__ __forceinline__ static int staged(int column) {
    constexpr int kFours = kVector / 4;
    const int four = column / 4, lane = four / kFours % kLanesPerRow;
    return (four / (kFours * kLanesPerRow) * kFours + four % kFours) * kLanesPerRow * 4 + lane * 4;
  }

  __device__ __forceinline__ static void load_key(float (&out)[kShare], const float* row) {
#pragma unroll
    for (int i = 0; i < kShare; i += 4) {
      const float4 four =
          *reinterpret_cast<const float4*>(row + staged(column(i / kVector) + i % kVector));
      out[i] = four.x, out[i + 1] = four.y, out[i + 2] = four.z, out[i + 3] = four.w;
    }
  }

  __device__ __forceinline__ static void load(Held& held, const S* row) {
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece) {
        held[pass][piece].load(row + pass * kNextPass + column(piece));
      }
    }
  }

  __device__ __forceinline__ static void widen(float (&state)[kPasses][kShare],
                                               const Held& held) {
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece) {
        held[pass][piece].widen_to(state[pass] + piece * kVector);
      }
    }
  }

  __device__ __forceinline__ static void store(const Held& held, S* row) {
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece) {
        held[pass][piece].store(row + pass * kNextPass + column(piece));
      }
    }
  }

  // Rounds to the state's type: what is stored is what is read and carried.
  __device__ __forceinline__ static void round(Held& held,
                                               float (&state)[kPasses][kShare]) {
    unsigned watch = 0;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece) {
        held[pass][piece].narrow_within(state[pass] + piece * kVector, watch);
      }
    }
    if (watch != 0) {
#pragma unroll
      for (int pass = 0; pass < kPasses; ++pass) {
#pragma unroll
        for (int piece = 0; piece < kPieces; ++piece) {
          held[pass][piece].narrow_from(state[pass] + piece * kVector);
        }
      }
    }
    widen(state, held);  // what is stored is what is read and carried
  }

  // Decays the rows of the state; what each then holds at the key, this lane's share.
  __device__ __forceinline__ static void recall(float (&memory)[kPasses],
                                                float (&state)[kPasses][kShare],
                                                const float (&key)[kShare], float alpha) {
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) memory[pass] = 0.0f;
#pragma unroll
    for (int i = 0; i < kShare; ++i) {
#pragma unroll
      for (int pass = 0; pass < kPasses; ++pass) {
        state[pass][i] *= alpha;
        memory[pass] = fmaf(state[pass][i], key[i], memory[pass]);
      }
    }
  }

  // Writes each row's delta along the key; what the state's type holds of it is carried on.
  __device__ __forceinline__ static void write(Held& held,
                                               float (&state)[kPasses][kShare],
                                               const float (&key)[kShare], float own_delta) {
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const float delta = RowLane::of_pass(own_delta, pass);
#pragma unroll
      for (int i = 0; i < kShare; ++i) state[pass][i] = fmaf(delta, key[i], state[pass][i]);
    }
    round(held, state);
  }

  // The products with the query, this lane's share.
  __device__ __forceinline__ static void read(float (&output)[kPasses],
                                              const float (&state)[kPasses][kShare],
                                              const float (&query)[kShare]) {
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) output[pass] = 0.0f;
#pragma unroll
    for (int i = 0; i < kShare; ++i) {
#pragma unroll
      for (int pass = 0; pass < kPasses; ++pass) {
        output[pass] = fmaf(state[pass][i], query[i], output[pass]);
      }
    }
  }
};

struct InOrder {
  __device__ __forceinline__ static int staged(int column) { return column; }
};

// WIDTH channels of a round's rows in shared memory as f32, asked for in the background: whole pieces of
// 16 bytes. ORDER::staged says where in a row a channel lies.
template <typename T, int WIDTH, typename ORDER>
struct StagedChannels {
  static constexpr bool kNarrow = sizeof(T) == 2;
  static constexpr int kCount = kCopyBytes / static_cast<int>(sizeof(T));  // elements of a copy
  static constexpr int kCopies = WIDTH / kCount;                           // of a row

  float wide[kStagedRows * WIDTH];
  T narrow[kNarrow ? kStagedRows * WIDTH : kCount];  // as they came

  __device__ __forceinline__ static int at(int row, int column) {
    return row * WIDTH + ORDER::staged(column);
  }

  __device__ __forceinline__ void ask(const T* from, i64 stride, int rows) {
#pragma unroll 1
    for (int copy = threadIdx.x; copy < rows * kCopies; copy += kThreads) {
      const int row = copy / kCopies, column = copy % kCopies * kCount;
      const void* const to = kNarrow ? static_cast<const void*>(narrow + copy * kCount)
                                     : static_cast<const void*>(wide + at(row, column));
      copy_async(shared_address(to), from + row * stride + column, kCopyBytes);
    }
  }

  // Widens what this thread asked for and has.
  __device__ __forceinline__ void take(int rows) {
    if constexpr (kNarrow) {
#pragma unroll 1
      for (int copy = threadIdx.x; copy < rows * kCopies; copy += kThreads) {
        const int row = copy / kCopies, column = copy % kCopies * kCount;
        unsigned word[4];
        load_shared4(word, shared_address(narrow + copy * kCount));
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
          const float2 low = unpack2(word[i], narrow), high = unpack2(word[i + 1], narrow);
          store4(wide + at(row, column + 2 * i), make_float4(low.x, low.y, high.x, high.y));
        }
      }
    }
  }

  // The rows to where they lie in f32.
  __device__ __forceinline__ void give(float* to, i64 stride, int rows) const {
#pragma unroll 1
    for (int four = threadIdx.x; four < rows * (WIDTH / 4); four += kThreads) {
      const int row = four / (WIDTH / 4), column = four % (WIDTH / 4) * 4;
      store4(to + row * stride + column, *reinterpret_cast<const float4*>(wide + at(row, column)));
    }
  }
};

__device__ __forceinline__ int staged_rows(i64 first, i64 end) {
  return static_cast<int>(min(end - first, static_cast<i64>(kStagedRows)));
}
