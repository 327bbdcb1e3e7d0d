// gdn_chunk's tensor-core class, launch (2): the state along a sequence, and o (see gdn_chunk.cu).
//
// A block per sequence, value head and up to 64 value channels. A warp for every 16 of them carries
// their state, all key channels in f32, in the accumulators of its products: packed, they are the
// next product's operand, so the recurrence passes through no memory and no other warp. A warp for
// every 32, a chunk behind, makes o of what those hand it: the entering state and delta, as operands.
// Four more warps bring tiles in, a chunk ahead. One barrier a chunk.
//
// f16 has little room: the operands made here, S, X and delta, are scaled by a power of two for each
// value channel, so that the largest is near 2^14, and the results are scaled back in f32.
#pragma once

#include "gdn_chunk_intra.cuh"

constexpr int kWarpValues = 16;
constexpr int kMostValues = 64;  // value channels of a block
constexpr int kMostCarriers = kMostValues / kWarpValues;
constexpr int kValueChunks = kMostValues / kCopyElements;
constexpr int kBringers = 128;  // threads
constexpr int kInterThreads = 48 * kMostCarriers + kBringers;

// Dynamic shared memory, in bytes. Everything is there twice, by the parity of its chunk.
template <int DK>
struct InterTiles {
  static constexpr int kKeyChunks = DK / kCopyElements;
  static constexpr int kRowsBytes = kMostChunkRows * DK * 2;
  static constexpr int kDecaysBytes = kMostChunkRows * 8;
  // What the state needs.
  static constexpr int kKeys = 0;
  static constexpr int kValues = kRowsBytes;
  static constexpr int kT = kValues + kMostChunkRows * kMostValues * 2;
  static constexpr int kCarryDecays = kT + kSquareBytes;
  static constexpr int kCarryBytes = kCarryDecays + kDecaysBytes;
  // What o needs besides.
  static constexpr int kQueries = 2 * kCarryBytes;
  static constexpr int kP = kQueries + kRowsBytes;
  static constexpr int kReadDecays = kP + kSquareBytes;
  static constexpr int kReadBytes = kReadDecays + kDecaysBytes - kQueries;
  // What one warp hands the other: operands, 16 bytes a lane and block, and scales.
  static constexpr int kEntering = kQueries + 2 * kReadBytes;
  static constexpr int kDelta = kEntering + DK / 16 * 512;
  static constexpr int kScales = kDelta + kRowBlocks * 512;
  static constexpr int kHandBytes = kScales + 512 - kEntering;
  static constexpr int kBytes = kEntering + 2 * kMostCarriers * kHandBytes;
};

// One sequence and value head.
template <typename T>
struct InterSources {
  const T *keys, *queries, *values, *t, *p;  // of the sequence's first row or chunk
  const float2* decays;
  i64 k_stride, q_stride, v_stride, square_stride;  // square_stride: from chunk to chunk
  i64 rows;
  int chunk_rows, value_chunk_bits, thread;

  __device__ __forceinline__ int rows_of(int chunk) const {
    const i64 left = rows - static_cast<i64>(chunk) * chunk_rows;
    return static_cast<int>(left < chunk_rows ? left : chunk_rows);
  }
};

// What a block is for: one sequence, value head and stretch of value channels.
template <typename T>
struct InterBlock {
  InterSources<T> from;
  int chunks;
  i64 slot, first_row, value_column;  // value_column: of v's, o's and the state's rows
};

// Finds it; false where there is nothing to do. A block has `block_values` channels, `thread` is this
// thread among those that bring tiles in.
template <typename T, int DK>
__device__ __forceinline__ bool locate_block(
    InterBlock<T>& block, const T* q, const T* k, const T* v, const float2* decays, const T* t,
    const T* p, const void* cu_seqlens, const i64* slot_of, i64 q_stride, i64 k_stride, i64 v_stride,
    int chunk_rows, int key_heads, int value_heads, int value_dim, int cu_is_i64,
    int head_map_cyclic, int initial_zero, int block_values, int thread) {
  const int value_blocks = value_dim / block_values;
  const int sequence_head = blockIdx.x / value_blocks;
  const int value0 = (blockIdx.x - sequence_head * value_blocks) * block_values;
  const int sequence = sequence_head / value_heads;
  const int head = sequence_head - sequence * value_heads;
  const i64 slot = __ldg(slot_of + sequence);
  if (slot < 0) return false;
  const i64 begin = row_offset(cu_seqlens, cu_is_i64, sequence);
  const i64 rows = row_offset(cu_seqlens, cu_is_i64, sequence + 1) - begin;
  if (rows == 0 && !initial_zero) return false;
  block.chunks = chunks_of(rows, chunk_rows);
  const i64 first_place =
      static_cast<i64>(chunks_before(cu_seqlens, cu_is_i64, chunk_rows, sequence)) * value_heads +
      head;
  const int key_head = key_head_of(head, key_heads, value_heads, head_map_cyclic);
  const i64 value_column = static_cast<i64>(head) * value_dim + value0;
  block.slot = slot, block.first_row = begin, block.value_column = value_column;
  block.from = {k + begin * k_stride + static_cast<i64>(key_head) * DK,
                q + begin * q_stride + static_cast<i64>(key_head) * DK,
                v + begin * v_stride + value_column,
                t + first_place * chunk_rows * chunk_rows,
                p + first_place * chunk_rows * chunk_rows,
                decays + first_place * chunk_rows,
                k_stride, q_stride, v_stride,
                static_cast<i64>(value_heads) * chunk_rows * chunk_rows, rows,
                chunk_rows, block_values == kMostValues ? 3 : 2, thread};
  return true;
}

// A lane's part of the state: values lane / 4 and 8 more of a warp's 16, key channels in pairs. Its
// first pair:
template <int DK>
__device__ __forceinline__ float* own_state(float* s, i64 value_column, int value_block) {
  const int lane = threadIdx.x & 31;
  const int own_value = kWarpValues * value_block + (lane >> 2);
  return s + (value_column + own_value) * DK + 2 * (lane & 3);
}
template <int DK>
__device__ __forceinline__ void load_state(float (&state)[DK / 8][4], const float* own,
                                           int initial_zero) {
#pragma unroll
  for (int i = 0; i < DK / 8; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float2* const at = reinterpret_cast<const float2*>(own + 8 * half * DK + 8 * i);
      const float2 initial = initial_zero ? make_float2(0.0f, 0.0f) : *at;
      state[i][2 * half] = initial.x, state[i][2 * half + 1] = initial.y;
    }
  }
}
template <int DK>
__device__ __forceinline__ void store_state(const float (&state)[DK / 8][4], float* own) {
#pragma unroll
  for (int i = 0; i < DK / 8; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      *reinterpret_cast<float2*>(own + 8 * half * DK + 8 * i) =
          make_float2(state[i][2 * half], state[i][2 * half + 1]);
    }
  }
}

// Two rows' decays a thread.
__device__ __forceinline__ void bring_decays(unsigned to, const float2* from, int n, int thread) {
  if (2 * thread < ((n + kBlockRows - 1) & -kBlockRows)) {
    const int bytes = min(max(n - 2 * thread, 0), 2) * 8;
    copy_async(to + thread * kCopyBytes, from + (bytes > 0 ? 2 * thread : 0), bytes);
  }
}

template <int DK>
constexpr int kKeyChunkBits = DK == 128 ? 4 : DK == 64 ? 3 : 2;
constexpr int kSquareChunkBits = 3;

template <typename T, int DK, bool FULL>
__device__ __forceinline__ void bring_carried(unsigned base, const InterSources<T>& from, int chunk,
                                              int n) {
  using Tiles = InterTiles<DK>;
  const unsigned to = base + (chunk & 1) * Tiles::kCarryBytes;
  const i64 row0 = static_cast<i64>(chunk) * from.chunk_rows;
  const i64 square = chunk * from.square_stride;
  bring_rows<Tiles::kKeyChunks, kBringers, FULL, false>(
      to + Tiles::kKeys, from.keys + row0 * from.k_stride, from.k_stride, n, kKeyChunkBits<DK>,
      from.thread);
  bring_rows<kValueChunks, kBringers, FULL, false>(
      to + Tiles::kValues, from.values + row0 * from.v_stride, from.v_stride, n,
      from.value_chunk_bits, from.thread);
  bring_rows<kSquareChunks, kBringers, FULL, true>(to + Tiles::kT, from.t + square, from.chunk_rows,
                                                   n, kSquareChunkBits, from.thread);
  bring_decays(to + Tiles::kCarryDecays, from.decays + square / from.chunk_rows, n, from.thread);
}

template <typename T, int DK, bool FULL>
__device__ __forceinline__ void bring_read(unsigned base, const InterSources<T>& from, int chunk,
                                           int n) {
  using Tiles = InterTiles<DK>;
  const unsigned to = base + (chunk & 1) * Tiles::kReadBytes;
  const i64 row0 = static_cast<i64>(chunk) * from.chunk_rows;
  const i64 square = chunk * from.square_stride;
  bring_rows<Tiles::kKeyChunks, kBringers, FULL, false>(
      to + Tiles::kQueries, from.queries + row0 * from.q_stride, from.q_stride, n,
      kKeyChunkBits<DK>, from.thread);
  bring_rows<kSquareChunks, kBringers, FULL, true>(to + Tiles::kP, from.p + square, from.chunk_rows,
                                                   n, kSquareChunkBits, from.thread);
  bring_decays(to + Tiles::kReadDecays, from.decays + square / from.chunk_rows, n, from.thread);
}

// A power of two for each of a lane's two value channels, and its inverse.
struct Scales {
  float up[2], down[2];
};

// Brings the largest of a channel's magnitudes, of which this lane has seen `largest`, near 2^14.
__device__ __forceinline__ Scales scales_of(float (&largest)[2]) {
  Scales scales;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    largest[half] = fmaxf(largest[half], __shfl_xor_sync(kFullWarp, largest[half], 1));
    largest[half] = fmaxf(largest[half], __shfl_xor_sync(kFullWarp, largest[half], 2));
    const unsigned exponent = max(__float_as_uint(largest[half]) >> 23, 14u);
    scales.up[half] = __uint_as_float((267u - exponent) << 23);
    scales.down[half] = __uint_as_float((exponent - 13u) << 23);
  }
  return scales;
}

template <int COUNT>
__device__ __forceinline__ Scales scales_for(const float (&x)[COUNT][4]) {
  float largest[2] = {0.0f, 0.0f};
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
#pragma unroll
    for (int e = 0; e < 4; ++e) largest[e >> 1] = fmaxf(largest[e >> 1], fabsf(x[i][e]));
  }
  return scales_of(largest);
}

// Two neighbouring accumulators of a product as a left operand, rows scaled.
template <typename T>
__device__ __forceinline__ void pack_block(unsigned (&to)[4], const float (&left)[4],
                                           const float (&right)[4], const float (&up)[2]) {
  to[0] = packed<T>(up[0] * left[0], up[0] * left[1]);
  to[1] = packed<T>(up[1] * left[2], up[1] * left[3]);
  to[2] = packed<T>(up[0] * right[0], up[0] * right[1]);
  to[3] = packed<T>(up[1] * right[2], up[1] * right[3]);
}

template <typename T>
__device__ __forceinline__ float2 unpacked(unsigned pair);
template <>
__device__ __forceinline__ float2 unpacked<__nv_bfloat16>(unsigned pair) {
  return widened(pair);
}
template <>
__device__ __forceinline__ float2 unpacked<__half>(unsigned pair) {
  __half2 halves;
  *reinterpret_cast<unsigned*>(&halves) = pair;
  return __half22float2(halves);
}

// An operand handed on: 16 values by 16 columns, whose transpose the other warp multiplies by.
__device__ __forceinline__ void hand_block(unsigned at, const unsigned (&a)[4], int lane) {
  store_shared4(at + lane * 16, a[0], a[1], a[2], a[3]);
}

// One warp's 16 value channels over one chunk of n rows; FULL: n is 64. `state` is S of the channels
// and all key channels, a row a value; `tiles` and `hand` are the chunk's own.
template <typename T, int DK, bool FULL>
__device__ __forceinline__ void carry_chunk(float (&state)[DK / 8][4], unsigned tiles,
                                            const float2* decays, unsigned hand, int n,
                                            int value_block) {
  using Tiles = InterTiles<DK>;
  constexpr bool kScaled = kSquareScale<T> != 1.0f;
  const int lane = threadIdx.x & 31, column0 = 2 * (lane & 3);
  const int blocks = FULL ? kRowBlocks : (n + kBlockRows - 1) / kBlockRows;
  const TileLane<Tiles::kKeyChunks> key_lane(lane);
  const TileLane<kSquareChunks> square_lane(lane);
  Scales scales = {{1.0f, 1.0f}, {1.0f, 1.0f}};

  // S K^T.
  if constexpr (kScaled) scales = scales_for(state);
  float memory[2 * kRowBlocks][4] = {};
#pragma unroll
  for (int step = 0; step < DK / 16; ++step) {
    unsigned entering[4];
    pack_block<T>(entering, state[2 * step], state[2 * step + 1], scales.up);
    hand_block(hand + Tiles::kEntering + step * 512, entering, lane);
#pragma unroll
    for (int block = 0; block < kRowBlocks; ++block) {
      if (block < blocks) {
        unsigned keys[4];
        key_lane.load_right_of_transpose(keys, tiles + Tiles::kKeys, block, step);
        multiply<T>(memory[2 * block], entering, keys[0], keys[1]);
        multiply<T>(memory[2 * block + 1], entering, keys[2], keys[3]);
      }
    }
  }

  // X = V - e^G (K S^T), values by rows.
  const float2 entering_down = make_float2(scales.down[0], scales.down[1]);
#pragma unroll
  for (int block = 0; block < kRowBlocks; ++block) {
    if (block < blocks) {
      unsigned values[4];
      square_lane.load_transpose(values, tiles + Tiles::kValues, block, value_block);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float(&x)[4] = memory[2 * block + half];
        const float4 two = shared4(
            reinterpret_cast<const float*>(decays + kBlockRows * block + 8 * half + column0));
        const float2 upper = unpacked<T>(values[half]), lower = unpacked<T>(values[2 + half]);
        x[0] = fmaf(-two.x * entering_down.x, x[0], upper.x);
        x[1] = fmaf(-two.z * entering_down.x, x[1], upper.y);
        x[2] = fmaf(-two.x * entering_down.y, x[2], lower.x);
        x[3] = fmaf(-two.z * entering_down.y, x[3], lower.y);
      }
    }
  }

  // delta = T X.
  if constexpr (kScaled) scales = scales_for(memory);
  float delta[2 * kRowBlocks][4] = {};
#pragma unroll
  for (int step = 0; step < kRowBlocks; ++step) {
    unsigned change[4];
    pack_block<T>(change, memory[2 * step], memory[2 * step + 1], scales.up);
#pragma unroll
    for (int block = step; block < kRowBlocks; ++block) {
      if (block < blocks) {
        unsigned t[4];
        square_lane.load_right_of_transpose(t, tiles + Tiles::kT, block, step);
        multiply<T>(delta[2 * block], change, t[0], t[1]);
        multiply<T>(delta[2 * block + 1], change, t[2], t[3]);
      }
    }
  }
  if constexpr (kScaled) {
#pragma unroll
    for (int i = 0; i < 2 * kRowBlocks; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) delta[i][e] *= scales.down[e >> 1] * (1.0f / kSquareScale<T>);
    }
    scales = scales_for(delta);
    store_shared4(hand + Tiles::kScales + lane * 16, __float_as_uint(entering_down.x),
                  __float_as_uint(entering_down.y), __float_as_uint(scales.down[0]),
                  __float_as_uint(scales.down[1]));
  }
#pragma unroll
  for (int block = 0; block < kRowBlocks; ++block) {
    if (block < blocks) {
      unsigned plain[4];
      pack_block<T>(plain, delta[2 * block], delta[2 * block + 1], scales.up);
      hand_block(hand + Tiles::kDelta + block * 512, plain, lane);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float(&d)[4] = delta[2 * block + half];
        const float4 two = shared4(
            reinterpret_cast<const float*>(decays + kBlockRows * block + 8 * half + column0));
        d[0] *= two.y, d[1] *= two.w, d[2] *= two.y, d[3] *= two.w;
      }
    }
  }

  // S <- e^(G_n) S + (decayed delta)^T K: the chunk ends at its last valid row, not at row 63.
  if constexpr (kScaled) scales = scales_for(delta);
  unsigned decayed[kRowBlocks][4];
#pragma unroll
  for (int block = 0; block < kRowBlocks; ++block) {
    pack_block<T>(decayed[block], delta[2 * block], delta[2 * block + 1], scales.up);
  }
  const float decay = decays[n - 1].x;
#pragma unroll
  for (int i = 0; i < DK / 8; ++i) {
#pragma unroll
    for (int e = 0; e < 4; ++e) state[i][e] *= decay;
  }
#pragma unroll
  for (int pair = 0; pair < DK / 16; ++pair) {
    float scaled[2][4] = {};
#pragma unroll
    for (int step = 0; step < kRowBlocks; ++step) {
      if (step < blocks) {
        unsigned keys[4];
        key_lane.load_right(keys, tiles + Tiles::kKeys, step, pair);
        multiply<T>(kScaled ? scaled[0] : state[2 * pair], decayed[step], keys[0], keys[1]);
        multiply<T>(kScaled ? scaled[1] : state[2 * pair + 1], decayed[step], keys[2], keys[3]);
      }
    }
    if constexpr (kScaled) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float(&to)[4] = state[2 * pair + half];
#pragma unroll
        for (int e = 0; e < 4; ++e) to[e] = fmaf(scaled[half][e], scales.down[e >> 1], to[e]);
      }
    }
  }
}

// o = scale (e^G Q S^T + P delta) of one chunk of n rows and two carriers' value channels, so that
// each matrix load of q and P serves four products. `hand` is the first carrier's; o_at: this lane's
// first row and channels.
template <typename T, int DK, bool FULL>
__device__ __forceinline__ void read_chunk(unsigned tiles, const float2* decays, unsigned hand,
                                           int n, T* o_at, i64 o_stride, float scale) {
  using Tiles = InterTiles<DK>;
  constexpr bool kScaled = kSquareScale<T> != 1.0f;
  const int lane = threadIdx.x & 31, row0 = lane >> 2;
  const int blocks = FULL ? kRowBlocks : (n + kBlockRows - 1) / kBlockRows;
  const TileLane<Tiles::kKeyChunks> key_lane(lane);
  const TileLane<kSquareChunks> square_lane(lane);

  float out[kRowBlocks][4][4] = {};  // eight value channels a tile
#pragma unroll
  for (int step = 0; step < DK / 16; ++step) {
    unsigned entering[2][4];
#pragma unroll
    for (int carrier = 0; carrier < 2; ++carrier) {
      load_shared4(entering[carrier], hand + carrier * Tiles::kHandBytes + Tiles::kEntering +
                                          step * 512 + lane * 16);
    }
#pragma unroll
    for (int block = 0; block < kRowBlocks; ++block) {
      if (block < blocks) {
        unsigned queries[4];
        key_lane.load_left(queries, tiles + Tiles::kQueries, block, step);
#pragma unroll
        for (int tile = 0; tile < 4; ++tile) {
          const unsigned(&right)[4] = entering[tile >> 1];
          multiply<T>(out[block][tile], queries, right[tile & 1], right[2 + (tile & 1)]);
        }
      }
    }
  }
  unsigned delta[2][kRowBlocks][4];
#pragma unroll
  for (int block = 0; block < kRowBlocks; ++block) {
    if (block < blocks) {
#pragma unroll
      for (int carrier = 0; carrier < 2; ++carrier) {
        load_shared4(delta[carrier][block], hand + carrier * Tiles::kHandBytes + Tiles::kDelta +
                                                block * 512 + lane * 16);
      }
    }
  }

  // A value is a column here: its scales are with the lane that has it as a row.
  float carried[4][2], own[4][2];
#pragma unroll
  for (int tile = 0; tile < 4; ++tile) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      carried[tile][e] = own[tile][e] = scale;
      if constexpr (kScaled) {
        unsigned down[4];
        load_shared4(down, hand + (tile >> 1) * Tiles::kHandBytes + Tiles::kScales +
                               4 * (2 * (lane & 3) + e) * 16);
        carried[tile][e] *= __uint_as_float(down[tile & 1]);
        own[tile][e] *= __uint_as_float(down[2 + (tile & 1)]) * (1.0f / kSquareScale<T>);
      }
    }
  }
#pragma unroll
  for (int block = 0; block < kRowBlocks; ++block) {
    if (block < blocks) {
      float within[4][4] = {};
#pragma unroll
      for (int step = 0; step <= block; ++step) {
        unsigned p[4];
        square_lane.load_left(p, tiles + Tiles::kP, block, step);
#pragma unroll
        for (int tile = 0; tile < 4; ++tile) {
          const unsigned(&right)[4] = delta[tile >> 1][step];
          multiply<T>(within[tile], p, right[tile & 1], right[2 + (tile & 1)]);
        }
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = kBlockRows * block + 8 * half;
        if (FULL || row + row0 < n) {
          const float before = decays[row + row0].x;
#pragma unroll
          for (int tile = 0; tile < 4; ++tile) {
            float x[2];
#pragma unroll
            for (int e = 0; e < 2; ++e) {
              x[e] = fmaf(carried[tile][e] * before, out[block][tile][2 * half + e],
                          own[tile][e] * within[tile][2 * half + e]);
            }
            *reinterpret_cast<unsigned*>(o_at + row * o_stride + 8 * tile) = packed<T>(x[0], x[1]);
          }
        }
      }
    }
  }
}

template <typename T, int DK>
__device__ __forceinline__ void chunk_inter(
    const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,
    const float2* __restrict__ decays, const T* __restrict__ t, const T* __restrict__ p,
    const void* __restrict__ cu_seqlens, const i64* __restrict__ slot_of, float* s,
    T* __restrict__ o, i64 q_stride, i64 k_stride, i64 v_stride, i64 s_stride, i64 o_stride,
    int chunk_rows, int key_heads, int value_heads, int value_dim, int cu_is_i64,
    int head_map_cyclic, int initial_zero, float scale) {
  using Tiles = InterTiles<DK>;
  extern __shared__ __align__(128) unsigned char s_chunks[];

  const int carriers = (blockDim.x - kBringers) / 48;  // warps; then half as many that read
  const int thread = threadIdx.x, lane = thread & 31;
  const bool carries = thread < 32 * carriers, brings = thread >= 48 * carriers;
  const int value_block = carries ? thread >> 5 : 2 * ((thread >> 5) - carriers);
  InterBlock<T> block;
  if (!locate_block<T, DK>(block, q, k, v, decays, t, p, cu_seqlens, slot_of, q_stride,
                           k_stride, v_stride, chunk_rows, key_heads, value_heads, value_dim,
                           cu_is_i64, head_map_cyclic, initial_zero, carriers * kWarpValues,
                           thread - 48 * carriers)) {
    return;
  }
  const InterSources<T>& from = block.from;
  const int chunks = block.chunks;
  const unsigned base = shared_address(s_chunks);
  const auto hand_of = [&](int chunk) {
    return base + (kMostCarriers * (chunk & 1) + value_block) * Tiles::kHandBytes;
  };
  const auto decays_at = [&](int offset) {
    return reinterpret_cast<const float2*>(s_chunks + offset);
  };

  if (carries) {
    float state[DK / 8][4];
    float* const own = own_state<DK>(s + block.slot * s_stride, block.value_column, value_block);
    load_state<DK>(state, own, initial_zero);
    __syncthreads();
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const int n = from.rows_of(chunk), parity = chunk & 1;
      const unsigned tiles = base + parity * Tiles::kCarryBytes, hand = hand_of(chunk);
      const float2* const here = decays_at(parity * Tiles::kCarryBytes + Tiles::kCarryDecays);
      if (n == kMostChunkRows) {
        carry_chunk<T, DK, true>(state, tiles, here, hand, n, value_block);
      } else {
        carry_chunk<T, DK, false>(state, tiles, here, hand, n, value_block);
      }
      __syncthreads();  // hands the chunk on; the next one's tiles are there
    }
    store_state<DK>(state, own);
    return;
  }

  if (brings) {
    for (int chunk = -1; chunk < chunks; ++chunk) {
      const int next = chunk + 1;
      const int carried_rows = next < chunks ? from.rows_of(next) : 0;
      const int read_rows = chunk >= 0 ? from.rows_of(chunk) : 0;
      if (carried_rows == kMostChunkRows) {
        bring_carried<T, DK, true>(base, from, next, carried_rows);
      } else if (carried_rows > 0) {
        bring_carried<T, DK, false>(base, from, next, carried_rows);
      }
      if (read_rows == kMostChunkRows) {
        bring_read<T, DK, true>(base, from, chunk, read_rows);
      } else if (read_rows > 0) {
        bring_read<T, DK, false>(base, from, chunk, read_rows);
      }
      copies_arrive();
      __syncthreads();
    }
    return;
  }

  T* const o_own = o + block.first_row * o_stride + block.value_column + kWarpValues * value_block + 2 * (lane & 3);
  __syncthreads();
  for (int chunk = 0; chunk < chunks; ++chunk) {
    __syncthreads();  // the chunk is handed over
    const int n = from.rows_of(chunk), parity = chunk & 1;
    const unsigned tiles = base + parity * Tiles::kReadBytes, hand = hand_of(chunk);
    const float2* const here = decays_at(parity * Tiles::kReadBytes + Tiles::kReadDecays);
    T* const o_at = o_own + (static_cast<i64>(chunk) * chunk_rows + (lane >> 2)) * o_stride;
    if (n == kMostChunkRows) {
      read_chunk<T, DK, true>(tiles, here, hand, n, o_at, o_stride, scale);
    } else {
      read_chunk<T, DK, false>(tiles, here, hand, n, o_at, o_stride, scale);
    }
  }
}
