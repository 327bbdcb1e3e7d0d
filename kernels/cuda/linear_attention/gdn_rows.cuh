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
constexpr int kMostTiles = 4;  // of a head
constexpr int kStagedRows = 16;

// Rows of the state a lane of a round advances at a time, and the warps that share a tile so. Of an f32
// state so many that eight sequences' fit the registers of a GPU at a time.
template <typename S>
constexpr int kRoundPasses = sizeof(S) == 4 ? 8 : 4;
template <typename S>
constexpr int kRoundWarps = kTileValues / (kRowsPerPass * kRoundPasses<S>);

// Sums of every pass over the eight lanes of a row, each lane left with its own pass's: halves are
// exchanged while more than one is held. The order is that of a butterfly, farthest lanes first.
template <int PASSES>
__device__ __forceinline__ float sum_over_row_lanes(float (&x)[PASSES]) {
  int held = PASSES;
#pragma unroll
  for (int step = kLanesPerRow / 2; step > 0; step /= 2) {
    const bool upper = (threadIdx.x & step) != 0;
    if (held == 1) {
      x[0] += __shfl_xor_sync(kFullWarp, x[0], step);
      continue;
    }
    held /= 2;
#pragma unroll
    for (int i = 0; i < PASSES / 2; ++i) {
      if (i >= held) break;
      const float given = upper ? x[i] : x[i + held], kept = upper ? x[i + held] : x[i];
      x[i] = kept + __shfl_xor_sync(kFullWarp, given, step);
    }
  }
  return x[0];
}

// What is read of a staged row, by its shared address and where it says so: a key is read again rather
// than kept.
__device__ __forceinline__ float4 staged4(unsigned at, const float*) {
  float4 x;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
               : "r"(at)
               : "memory");
  return x;
}
template <typename T>
__device__ __forceinline__ float4 staged4(unsigned at, const T* type) {
  uint2 words;
  asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];"
               : "=r"(words.x), "=r"(words.y)
               : "r"(at)
               : "memory");
  const float2 low = unpack2(words.x, type), high = unpack2(words.y, type);
  return make_float4(low.x, low.y, high.x, high.y);
}

// One element of several at `at`.
template <typename T>
__device__ __forceinline__ float staged_value(unsigned at, int index) {
  if constexpr (sizeof(T) == 4) {
    float x;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(at + 4 * index) : "memory");
    return x;
  } else {
    unsigned short x;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(x) : "r"(at + 2 * index) : "memory");
    return unpack2(x, static_cast<const T*>(nullptr)).x;
  }
}

// Rows of the state, PASSES of them a lane's: the more, the fewer instructions a row costs.
template <typename S, int DK, int PASSES>
struct Rows {
  static constexpr int kPasses = PASSES;
  static constexpr int kWarpRows = kRowsPerPass * kPasses;
  static constexpr int kLanesPerPass = kLanesPerRow / kPasses;
  static constexpr int kShare = DK / kLanesPerRow;  // elements of a state row a lane holds
  static constexpr int kVector = sizeof(S) == 2 && kShare % 8 == 0 ? 8 : 4;
  static constexpr int kPieces = kShare / kVector;
  static constexpr i64 kNextPass = static_cast<i64>(kRowsPerPass) * DK;
  static constexpr i64 kNextHalf = static_cast<i64>(kWarpRows) * DK;
  using Vector = StateVector<S, kVector>;
  using Held = Vector[kPasses][kPieces];  // as stored

  // Of a tile: the row of this lane's first pass, and of the pass it speaks for.
  __device__ __forceinline__ static int first_row() {
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    return warp * kWarpRows + lane / kLanesPerRow;
  }
  __device__ __forceinline__ static int own_row() {
    const int lane = threadIdx.x & 31;
    return first_row() + lane % kLanesPerRow / kLanesPerPass * kRowsPerPass;
  }
  __device__ __forceinline__ static bool speaks() { return threadIdx.x % kLanesPerPass == 0; }

  // What the lane that speaks for `pass` has.
  __device__ __forceinline__ static float of_pass(float x, int pass) {
    return __shfl_sync(kFullWarp, x, pass * kLanesPerPass, kLanesPerRow);
  }

  __device__ __forceinline__ static int column(int piece) {
    return (piece * kLanesPerRow + static_cast<int>(threadIdx.x) % kLanesPerRow) * kVector;
  }

  // Of a staged key at `key`, widened: four of this lane's channels, from the i-th of its share.
  template <typename T>
  __device__ __forceinline__ static void load4_of(float (&out)[4], unsigned key, int i) {
    const unsigned at = key + (column(i / kVector) + i % kVector) * static_cast<int>(sizeof(T));
    const float4 four = staged4(at, static_cast<const T*>(nullptr));
    out[0] = four.x, out[1] = four.y, out[2] = four.z, out[3] = four.w;
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

  __device__ __forceinline__ static void take(Held& held, const Held& next) {
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece) held[pass][piece] = next[pass][piece];
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

  // The same, of a state this launch does not read.
  __device__ __forceinline__ static void stream(const Held& held, S* row) {
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece) {
        held[pass][piece].stream(row + pass * kNextPass + column(piece));
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
  template <typename T>
  __device__ __forceinline__ static void recall(float (&memory)[kPasses],
                                                float (&state)[kPasses][kShare], unsigned key,
                                                float alpha) {
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) memory[pass] = 0.0f;
#pragma unroll
    for (int i = 0; i < kShare; i += 4) {
      float four[4];
      load4_of<T>(four, key, i);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
#pragma unroll
        for (int pass = 0; pass < kPasses; ++pass) {
          state[pass][i + j] *= alpha;
          memory[pass] = fmaf(state[pass][i + j], four[j], memory[pass]);
        }
      }
    }
  }

  __device__ __forceinline__ static void decay(float (&state)[kPasses][kShare], float alpha) {
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
#pragma unroll
      for (int i = 0; i < kShare; ++i) state[pass][i] *= alpha;
    }
  }

  // Writes each row's delta along the key; what the state's type holds of it is carried on.
  template <typename T>
  __device__ __forceinline__ static void write(Held& held, float (&state)[kPasses][kShare],
                                               unsigned key, float own_delta) {
    float delta[kPasses];
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) delta[pass] = of_pass(own_delta, pass);
#pragma unroll
    for (int i = 0; i < kShare; i += 4) {
      float four[4];
      load4_of<T>(four, key, i);
#pragma unroll
      for (int pass = 0; pass < kPasses; ++pass) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          state[pass][i + j] = fmaf(delta[pass], four[j], state[pass][i + j]);
        }
      }
    }
    round(held, state);
  }

  // The products with the query, this lane's share.
  template <typename T>
  __device__ __forceinline__ static void read(float (&output)[kPasses],
                                              const float (&state)[kPasses][kShare],
                                              unsigned query) {
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) output[pass] = 0.0f;
#pragma unroll
    for (int i = 0; i < kShare; i += 4) {
      float four[4];
      load4_of<T>(four, query, i);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
#pragma unroll
        for (int pass = 0; pass < kPasses; ++pass) {
          output[pass] = fmaf(state[pass][i + j], four[j], output[pass]);
        }
      }
    }
  }
};

// A row of a round in shared memory; all a block needs of it, asked for before any is used, so that no
// row waits for memory. Keys and queries are of type K, as they come or f32: then they come into the
// upper part of their place and are widened there.
template <typename T, int DK, int QUERY = DK, int TILES = 1, typename K = T>
struct StagedRow {
  using Key = K;
  Key key[DK];
  Key query[QUERY];
  T value[TILES * kTileValues];
  float alpha, beta;
  float unused[2];  // the next row begins on 16 bytes

  static constexpr unsigned kQuery = DK * sizeof(Key);
  static constexpr unsigned kValue = kQuery + QUERY * sizeof(Key);
  static constexpr unsigned kAlpha = kValue + TILES * kTileValues * sizeof(T), kBeta = kAlpha + 4;

  // Where `count` elements come to that will be keys from `at`.
  __device__ __forceinline__ static T* raw(Key* at, int count) {
    return reinterpret_cast<T*>(at + count) - count;
  }
  // Warp-collective.
  __device__ __forceinline__ static void widen(Key* at, int count) {
    const int own = static_cast<int>(threadIdx.x % 32) * 4;
    float4 four = zero4();
    if (own < count) {
      four = staged4(shared_address(raw(at, count) + own), static_cast<const T*>(nullptr));
    }
    __syncwarp();
    if (own < count) store4(at + own, four);
  }
  // Of rows that have come. Block-collective, and a row is a warp's.
  __device__ __forceinline__ static void widen_rows(StagedRow* rows, int count) {
    if constexpr (sizeof(Key) != sizeof(T)) {
#pragma unroll 1
      for (int row = threadIdx.x / 32; row < count; row += blockDim.x / 32) {
        widen(rows[row].key, DK);
        widen(rows[row].query, QUERY);
      }
      __syncthreads();  // the rows are widened
    }
  }
};

// WIDTH elements of each of `rows` rows, in the background and by whole pieces of 16 bytes: to `first`
// of the first staged row, and the same place of the others.
template <typename ROW, int WIDTH, typename T>
__device__ __forceinline__ void ask_rows(T* first, const T* from, i64 stride, int rows) {
  constexpr int kCount = kCopyBytes / static_cast<int>(sizeof(T)), kCopies = WIDTH / kCount;
  const unsigned to = shared_address(first);
#pragma unroll 1
  for (int copy = threadIdx.x; copy < rows * kCopies; copy += blockDim.x) {
    const int row = copy / kCopies, piece = copy % kCopies;
    copy_async(to + row * static_cast<int>(sizeof(ROW)) + piece * kCopyBytes,
               from + row * stride + piece * kCount, kCopyBytes);
  }
}

// Of so many rows that are left, those that are staged at a time.
__device__ __forceinline__ int staged_rows(i64 left) {
  return static_cast<int>(min(left, static_cast<i64>(kStagedRows)));
}

// What the rows of rounds bring, strides in elements of the tensor's own type.
template <typename T>
struct RowInputs {
  const T* q;
  const T* k;
  const T* v;
  const float* decay;
  const float* beta;
  i64 q_stride, k_stride, v_stride, decay_stride, beta_stride;
  int gate_is_alpha;
};

// What a block, of some tiles of one head, stages of them; a thread brings one row's gates.
template <typename T, int DK, typename Row>
struct RowsOfHead {
  struct Gates {
    float decay, beta;
  };
  RowInputs<T> inputs;
  int head, tiles;
  i64 key_channel, value_channel;

  // Asks for rows; they are there when `settle` has returned, the copies have arrived and the block met.
  __device__ __forceinline__ Gates ask(Row* rows, i64 first, int count) const {
    Gates gates = {};
    if (static_cast<int>(threadIdx.x) < count) {
      const i64 row = first + threadIdx.x;
      gates.decay = __ldg(inputs.decay + row * inputs.decay_stride + head);
      gates.beta = __ldg(inputs.beta + row * inputs.beta_stride + head);
    }
    ask_rows<Row, DK>(Row::raw(rows->key, DK), inputs.k + first * inputs.k_stride + key_channel,
                               inputs.k_stride, count);
    ask_rows<Row, DK>(Row::raw(rows->query, DK), inputs.q + first * inputs.q_stride + key_channel,
                               inputs.q_stride, count);
    for (int tile = 0; tile < tiles; ++tile) {
      const i64 channel = value_channel + tile * kTileValues;
      ask_rows<Row, kTileValues>(rows->value + tile * kTileValues,
                                 inputs.v + first * inputs.v_stride + channel, inputs.v_stride,
                                 count);
    }
    return gates;
  }
  __device__ __forceinline__ void settle(Row* rows, Gates gates, int count) const {
    if (static_cast<int>(threadIdx.x) < count) {
      Row& row = rows[threadIdx.x];
      row.alpha = inputs.gate_is_alpha ? gates.decay : expf(gates.decay);
      row.beta = gates.beta;
    }
  }

  // Of a sequence of `count` rows from `begin`, those from `first` on.
  __device__ __forceinline__ void bring(Row* rows, i64 begin, int first, int count) const {
    const int staged = staged_rows(count - first);
    if (staged > 0) settle(rows, ask(rows, begin + first, staged), staged);
  }
};

// Runs staged rows from `at` through the rows of the state a lane holds, the first of which is
// `first_value` of the tile: wrote(delta) once a row's delta is in them, give(output) once its output is
// summed, which is together with the next row's memory.
template <typename T, typename R, typename Row, typename Wrote, typename Give>
__device__ __forceinline__ void run_rows(typename R::Held& held,
                                         float (&state)[R::kPasses][R::kShare], unsigned at,
                                         int rows, int first_value, const Wrote& wrote,
                                         const Give& give) {
  float output[R::kPasses] = {};  // of the row before, still to be summed
#pragma unroll 1
  for (int row = 0; row < rows; ++row) {
    const float own_output = sum_over_row_lanes(output);
    if (row > 0) give(own_output);
    float memory[R::kPasses];
    R::template recall<typename Row::Key>(memory, state, at, staged_value<float>(at + Row::kAlpha, 0));
    const float own = staged_value<T>(at + Row::kValue, first_value + R::own_row());
    const float beta = staged_value<float>(at + Row::kBeta, 0);
    const float delta = beta * (own - sum_over_row_lanes(memory));
    R::template write<typename Row::Key>(held, state, at, delta);
    wrote(delta);
    R::template read<typename Row::Key>(output, state, at + Row::kQuery);
    at += sizeof(Row);
  }
  give(sum_over_row_lanes(output));
}
