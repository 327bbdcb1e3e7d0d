// kda_chunk's tensor-core class, launch (2): the state along a sequence, and o (see kda_chunk.cu).
//
// As gdn_chunk_inter.cuh, whose division of work and whose operands it takes: a block per sequence, value
// head and up to 64 value channels; a warp for every 16 of them carries their state in the accumulators
// of its products, a warp for every 32, a chunk behind, makes o, and four more bring tiles in, a chunk
// ahead; one barrier a chunk. Decays of key channels are in the rows that the first launch left, so
// nothing is scaled here but the state's columns, and delta is one operand for both who use it.
#pragma once

#include "gdn_chunk_inter.cuh"

// Dynamic shared memory, in bytes. Everything is there twice, by the parity of its chunk.
template <int DK>
struct KdaTiles {
  static constexpr int kKeyChunks = DK / kCopyElements;
  static constexpr int kRowsBytes = kMostChunkRows * DK * 2;
  // What the state needs: K e^G, K e^(G_n - G), V, T diag(beta), e^(G_n).
  static constexpr int kEarlier = 0;
  static constexpr int kLater = kRowsBytes;
  static constexpr int kValues = kLater + kRowsBytes;
  static constexpr int kT = kValues + kMostChunkRows * kMostValues * 2;
  static constexpr int kDecay = kT + kSquareBytes;
  static constexpr int kCarryBytes = kDecay + 512;
  // What o needs besides: Q e^G and P.
  static constexpr int kQueries = 2 * kCarryBytes;
  static constexpr int kP = kQueries + kRowsBytes;
  static constexpr int kReadBytes = kP + kSquareBytes - kQueries;
  // What one warp hands the other: operands, 16 bytes a lane and block.
  static constexpr int kEntering = kQueries + 2 * kReadBytes;
  static constexpr int kDelta = kEntering + DK / 16 * 512;
  static constexpr int kHandBytes = kDelta + kRowBlocks * 512 - kEntering;
  static constexpr int kBytes = kEntering + 2 * kMostCarriers * kHandBytes;
};

// One sequence and value head; all but the values are scratch, chunk after chunk.
template <typename T>
struct KdaSources {
  const T *earlier, *later, *queries, *t, *p;
  const float* decay;
  const T* values;
  i64 v_stride, rows;
  int value_heads, value_chunk_bits, thread;

  __device__ __forceinline__ int rows_of(int chunk) const {
    const i64 left = rows - static_cast<i64>(chunk) * kMostChunkRows;
    return static_cast<int>(left < kMostChunkRows ? left : kMostChunkRows);
  }
};

template <typename T, int DK, bool FULL>
__device__ __forceinline__ void bring_kda_carried(unsigned base, const KdaSources<T>& from,
                                                  int chunk, int n) {
  using Tiles = KdaTiles<DK>;
  const unsigned to = base + (chunk & 1) * Tiles::kCarryBytes;
  const i64 place = static_cast<i64>(chunk) * from.value_heads;
  const i64 keys = place * (kMostChunkRows * DK);
  bring_rows<Tiles::kKeyChunks, kBringers, FULL, false>(
      to + Tiles::kEarlier, from.earlier + keys, DK, n, kKeyChunkBits<DK>, from.thread);
  bring_rows<Tiles::kKeyChunks, kBringers, FULL, false>(
      to + Tiles::kLater, from.later + keys, DK, n, kKeyChunkBits<DK>, from.thread);
  bring_rows<kValueChunks, kBringers, FULL, false>(
      to + Tiles::kValues, from.values + chunk * (kMostChunkRows * from.v_stride), from.v_stride,
      n, from.value_chunk_bits, from.thread);
  bring_rows<kSquareChunks, kBringers, FULL, true>(
      to + Tiles::kT, from.t + place * (kMostChunkRows * kMostChunkRows), kMostChunkRows, n,
      kSquareChunkBits, from.thread);
  if (from.thread < DK / 4) {
    copy_async(to + Tiles::kDecay + from.thread * kCopyBytes,
               from.decay + place * DK + 4 * from.thread, kCopyBytes);
  }
}

template <typename T, int DK, bool FULL>
__device__ __forceinline__ void bring_kda_read(unsigned base, const KdaSources<T>& from, int chunk,
                                               int n) {
  using Tiles = KdaTiles<DK>;
  const unsigned to = base + (chunk & 1) * Tiles::kReadBytes;
  const i64 place = static_cast<i64>(chunk) * from.value_heads;
  bring_rows<Tiles::kKeyChunks, kBringers, FULL, false>(
      to + Tiles::kQueries, from.queries + place * (kMostChunkRows * DK), DK, n,
      kKeyChunkBits<DK>, from.thread);
  bring_rows<kSquareChunks, kBringers, FULL, true>(
      to + Tiles::kP, from.p + place * (kMostChunkRows * kMostChunkRows), kMostChunkRows, n,
      kSquareChunkBits, from.thread);
}

// One warp's 16 value channels over one chunk of n rows; FULL: n is 64. `state` is S of the channels
// and all key channels, a row a value; `tiles` and `hand` are the chunk's own.
template <typename T, int DK, bool FULL>
__device__ __forceinline__ void carry_kda_chunk(float (&state)[DK / 8][4], unsigned tiles,
                                                const float* decay, unsigned hand, int n,
                                                int value_block) {
  using Tiles = KdaTiles<DK>;
  constexpr float kUnscaled[2] = {1.0f, 1.0f};
  const int lane = threadIdx.x & 31, column0 = 2 * (lane & 3);
  const int blocks = FULL ? kRowBlocks : (n + kBlockRows - 1) / kBlockRows;
  const TileLane<Tiles::kKeyChunks> key_lane(lane);
  const TileLane<kSquareChunks> square_lane(lane);

  // S (K e^G)^T.
  float memory[2 * kRowBlocks][4] = {};
#pragma unroll
  for (int step = 0; step < DK / 16; ++step) {
    unsigned entering[4];
    pack_block<T>(entering, state[2 * step], state[2 * step + 1], kUnscaled);
    hand_block(hand + Tiles::kEntering + step * 512, entering, lane);
#pragma unroll
    for (int block = 0; block < kRowBlocks; ++block) {
      if (block < blocks) {
        unsigned keys[4];
        key_lane.load_right_of_transpose(keys, tiles + Tiles::kEarlier, block, step);
        multiply<T>(memory[2 * block], entering, keys[0], keys[1]);
        multiply<T>(memory[2 * block + 1], entering, keys[2], keys[3]);
      }
    }
  }

  // X = V - (K e^G) S^T, values by rows.
#pragma unroll
  for (int block = 0; block < kRowBlocks; ++block) {
    if (block < blocks) {
      unsigned values[4];
      square_lane.load_transpose(values, tiles + Tiles::kValues, block, value_block);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float(&x)[4] = memory[2 * block + half];
        const float2 upper = unpacked<T>(values[half]), lower = unpacked<T>(values[2 + half]);
        x[0] = upper.x - x[0], x[1] = upper.y - x[1];
        x[2] = lower.x - x[2], x[3] = lower.y - x[3];
      }
    }
  }

  // delta = T diag(beta) X.
  float delta[2 * kRowBlocks][4] = {};
#pragma unroll
  for (int step = 0; step < kRowBlocks; ++step) {
    unsigned change[4];
    pack_block<T>(change, memory[2 * step], memory[2 * step + 1], kUnscaled);
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
  unsigned changes[kRowBlocks][4];
#pragma unroll
  for (int block = 0; block < kRowBlocks; ++block) {
    if (block < blocks) {
      pack_block<T>(changes[block], delta[2 * block], delta[2 * block + 1], kUnscaled);
      hand_block(hand + Tiles::kDelta + block * 512, changes[block], lane);
    }
  }

  // S <- S diag(e^(G_n)) + delta^T (K e^(G_n - G)).
#pragma unroll
  for (int pair = 0; pair < DK / 16; ++pair) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float(&to)[4] = state[2 * pair + half];
      const float2 kept =
          *reinterpret_cast<const float2*>(decay + 16 * pair + 8 * half + column0);
      to[0] *= kept.x, to[1] *= kept.y, to[2] *= kept.x, to[3] *= kept.y;
    }
#pragma unroll
    for (int step = 0; step < kRowBlocks; ++step) {
      if (step < blocks) {
        unsigned keys[4];
        key_lane.load_right(keys, tiles + Tiles::kLater, step, pair);
        multiply<T>(state[2 * pair], changes[step], keys[0], keys[1]);
        multiply<T>(state[2 * pair + 1], changes[step], keys[2], keys[3]);
      }
    }
  }
}

// o = scale ((Q e^G) S^T + P delta) of one chunk of n rows and two carriers' value channels, so that
// each matrix load of q and P serves four products. `hand` is the first carrier's; o_at: this lane's
// first row and channels.
template <typename T, int DK, bool FULL>
__device__ __forceinline__ void read_kda_chunk(unsigned tiles, unsigned hand, int n, T* o_at,
                                               i64 o_stride, float scale) {
  using Tiles = KdaTiles<DK>;
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
#pragma unroll
  for (int step = 0; step < kRowBlocks; ++step) {
    if (step < blocks) {
      unsigned delta[2][4];
#pragma unroll
      for (int carrier = 0; carrier < 2; ++carrier) {
        load_shared4(delta[carrier], hand + carrier * Tiles::kHandBytes + Tiles::kDelta +
                                         step * 512 + lane * 16);
      }
#pragma unroll
      for (int block = step; block < kRowBlocks; ++block) {
        if (block < blocks) {
          unsigned p[4];
          square_lane.load_left(p, tiles + Tiles::kP, block, step);
#pragma unroll
          for (int tile = 0; tile < 4; ++tile) {
            const unsigned(&right)[4] = delta[tile >> 1];
            multiply<T>(out[block][tile], p, right[tile & 1], right[2 + (tile & 1)]);
          }
        }
      }
    }
  }
#pragma unroll
  for (int block = 0; block < kRowBlocks; ++block) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = kBlockRows * block + 8 * half;
      if (FULL || row + row0 < n) {
#pragma unroll
        for (int tile = 0; tile < 4; ++tile) {
          *reinterpret_cast<unsigned*>(o_at + row * o_stride + 8 * tile) =
              packed<T>(scale * out[block][tile][2 * half], scale * out[block][tile][2 * half + 1]);
        }
      }
    }
  }
}

template <typename T, int DK>
__device__ __forceinline__ void kda_chunk_inter(
    const T* __restrict__ v, const T* __restrict__ earlier, const T* __restrict__ later,
    const T* __restrict__ queries, const T* __restrict__ t, const T* __restrict__ p,
    const float* __restrict__ decay, const void* __restrict__ cu_seqlens,
    const i64* __restrict__ slot_of, float* s, T* __restrict__ o, i64 v_stride, i64 s_stride,
    i64 o_stride, int value_heads, int value_dim, int cu_is_i64, int initial_zero, float scale) {
  using Tiles = KdaTiles<DK>;
  extern __shared__ __align__(128) unsigned char s_chunks[];

  const int carriers = (blockDim.x - kBringers) / 48;  // warps; then half as many that read
  const int thread = threadIdx.x, lane = thread & 31;
  const bool carries = thread < 32 * carriers, brings = thread >= 48 * carriers;
  const int value_block = carries ? thread >> 5 : 2 * ((thread >> 5) - carriers);
  const int block_values = carriers * kWarpValues;
  const int value_blocks = value_dim / block_values;
  const int sequence_head = blockIdx.x / value_blocks;
  const int value0 = (blockIdx.x - sequence_head * value_blocks) * block_values;
  const int sequence = sequence_head / value_heads;
  const int head = sequence_head - sequence * value_heads;
  const i64 slot = __ldg(slot_of + sequence);
  if (slot < 0) return;
  const i64 begin = row_offset(cu_seqlens, cu_is_i64, sequence);
  const i64 rows = row_offset(cu_seqlens, cu_is_i64, sequence + 1) - begin;
  if (rows == 0 && !initial_zero) return;
  const int chunks = chunks_of(rows, kMostChunkRows);
  const i64 first_place =
      static_cast<i64>(chunks_before(cu_seqlens, cu_is_i64, kMostChunkRows, sequence)) *
          value_heads + head;
  const unsigned base = shared_address(s_chunks);
  const i64 value_column = static_cast<i64>(head) * value_dim + value0;
  constexpr i64 kKeys = kMostChunkRows * DK, kSquare = kMostChunkRows * kMostChunkRows;
  const KdaSources<T> from = {earlier + first_place * kKeys, later + first_place * kKeys,
                              queries + first_place * kKeys, t + first_place * kSquare,
                              p + first_place * kSquare, decay + first_place * DK,
                              v + begin * v_stride + value_column, v_stride, rows, value_heads,
                              carriers == kMostCarriers ? 3 : 2, thread - 48 * carriers};
  const auto hand_of = [&](int chunk) {
    return base + (kMostCarriers * (chunk & 1) + value_block) * Tiles::kHandBytes;
  };

  if (carries) {
    // This lane's part of the state: values lane / 4 and 8 more, key channels in pairs.
    float state[DK / 8][4];
    const int own_value = value0 + kWarpValues * value_block + (lane >> 2);
    float* const own_slot = s + slot * s_stride +
                            (static_cast<i64>(head) * value_dim + own_value) * DK + 2 * (lane & 3);
#pragma unroll
    for (int i = 0; i < DK / 8; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float2* const at = reinterpret_cast<const float2*>(own_slot + 8 * half * DK + 8 * i);
        const float2 initial = initial_zero ? make_float2(0.0f, 0.0f) : *at;
        state[i][2 * half] = initial.x, state[i][2 * half + 1] = initial.y;
      }
    }
    __syncthreads();
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const int n = from.rows_of(chunk), carried = (chunk & 1) * Tiles::kCarryBytes;
      const float* const kept =
          reinterpret_cast<const float*>(s_chunks + carried + Tiles::kDecay);
      if (n == kMostChunkRows) {
        carry_kda_chunk<T, DK, true>(state, base + carried, kept, hand_of(chunk), n, value_block);
      } else {
        carry_kda_chunk<T, DK, false>(state, base + carried, kept, hand_of(chunk), n, value_block);
      }
      __syncthreads();  // hands the chunk on; the next one's tiles are there
    }
#pragma unroll
    for (int i = 0; i < DK / 8; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        *reinterpret_cast<float2*>(own_slot + 8 * half * DK + 8 * i) =
            make_float2(state[i][2 * half], state[i][2 * half + 1]);
      }
    }
    return;
  }

  if (brings) {
    for (int chunk = -1; chunk < chunks; ++chunk) {
      const int next = chunk + 1;
      const int carried_rows = next < chunks ? from.rows_of(next) : 0;
      const int read_rows = chunk >= 0 ? from.rows_of(chunk) : 0;
      if (carried_rows == kMostChunkRows) {
        bring_kda_carried<T, DK, true>(base, from, next, carried_rows);
      } else if (carried_rows > 0) {
        bring_kda_carried<T, DK, false>(base, from, next, carried_rows);
      }
      if (read_rows == kMostChunkRows) {
        bring_kda_read<T, DK, true>(base, from, chunk, read_rows);
      } else if (read_rows > 0) {
        bring_kda_read<T, DK, false>(base, from, chunk, read_rows);
      }
      copies_arrive();
      __syncthreads();
    }
    return;
  }

  T* const o_own = o + begin * o_stride + value_column + kWarpValues * value_block + 2 * (lane & 3);
  __syncthreads();
  for (int chunk = 0; chunk < chunks; ++chunk) {
    __syncthreads();  // the chunk is handed over
    const int n = from.rows_of(chunk);
    const unsigned tiles = base + (chunk & 1) * Tiles::kReadBytes;
    T* const o_at = o_own + (static_cast<i64>(chunk) * kMostChunkRows + (lane >> 2)) * o_stride;
    if (n == kMostChunkRows) {
      read_kda_chunk<T, DK, true>(tiles, hand_of(chunk), n, o_at, o_stride, scale);
    } else {
      read_kda_chunk<T, DK, false>(tiles, hand_of(chunk), n, o_at, o_stride, scale);
    }
  }
}
