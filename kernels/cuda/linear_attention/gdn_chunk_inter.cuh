// gdn_chunk's tensor-core class, launch (2): the state along a sequence, and o (see gdn_chunk.cu).
//
// A block per sequence, value head and up to 64 value channels. A working warp has 16 of them and
// keeps their state, all key channels in f32, in the accumulators of its products: packed, they are
// the next product's operand, so the recurrence passes through no memory and no other warp. As many
// further warps bring the next chunk's tiles in meanwhile; one barrier a chunk.
//
// f16 has little room: the operands made here, S, X and delta, are scaled by a power of two for each
// value channel, so that the largest is near 2^14, and the results are scaled back in f32.
#pragma once

#include "gdn_chunk_intra.cuh"

constexpr int kWarpValues = 16;
constexpr int kMostValues = 64;  // value channels of a block

// Offsets into dynamic shared memory of what one chunk needs, in bytes; two chunks are there.
template <int DK>
struct InterTiles {
  static constexpr int kKeyChunks = DK / kCopyElements;
  static constexpr int kRowsBytes = kMostChunkRows * DK * 2;
  static constexpr int kKeys = 0;
  static constexpr int kQueries = kRowsBytes;
  static constexpr int kValues = 2 * kRowsBytes;
  static constexpr int kT = kValues + kMostChunkRows * kMostValues * 2;
  static constexpr int kP = kT + kSquareBytes;
  static constexpr int kDecays = kP + kSquareBytes;
  static constexpr int kBytes = kDecays + kMostChunkRows * 8;
};
constexpr int kValueChunks = kMostValues / kCopyElements;

// Where one chunk's tensors begin in global memory.
template <typename T>
struct ChunkSources {
  const T *keys, *queries, *values, *t, *p;
  const float2* decays;
  i64 k_stride, q_stride, v_stride;
  int square_stride;
};

// Brings one chunk's tiles in: n rows and, up to a multiple of 16, zeros; of T and P what lies on or
// below the blocks of the diagonal. `thread` of `threads` take part.
template <typename T, int DK>
__device__ __forceinline__ void bring_chunk(unsigned to, const ChunkSources<T>& from, int n,
                                            int value_chunk_bits, int thread, int threads) {
  using Tiles = InterTiles<DK>;
  const int rows = (n + kBlockRows - 1) & -kBlockRows;
#pragma unroll 2
  for (int at = thread; at < rows * Tiles::kKeyChunks; at += threads) {
    const int row = at / Tiles::kKeyChunks, chunk = at % Tiles::kKeyChunks;
    const int bytes = row < n ? kCopyBytes : 0;
    const i64 from_row = row < n ? row : 0;
    const unsigned place = to + chunk_offset<Tiles::kKeyChunks>(row, chunk);
    copy_async(place + Tiles::kKeys, from.keys + from_row * from.k_stride + chunk * kCopyElements,
               bytes);
    copy_async(place + Tiles::kQueries,
               from.queries + from_row * from.q_stride + chunk * kCopyElements, bytes);
  }
#pragma unroll 2
  for (int at = thread; at < rows << value_chunk_bits; at += threads) {
    const int row = at >> value_chunk_bits, chunk = at - (row << value_chunk_bits);
    const i64 from_row = row < n ? row : 0;
    copy_async(to + Tiles::kValues + chunk_offset<kValueChunks>(row, chunk),
               from.values + from_row * from.v_stride + chunk * kCopyElements,
               row < n ? kCopyBytes : 0);
  }
#pragma unroll 2
  for (int at = thread; at < rows * kSquareChunks; at += threads) {
    const int row = at / kSquareChunks, chunk = at % kSquareChunks;
    if (chunk < 2 * (row / kBlockRows + 1)) {
      const int bytes = row < n ? kCopyBytes : 0;
      const int from_at = (row < n ? row : 0) * from.square_stride + chunk * kCopyElements;
      const unsigned place = to + chunk_offset<kSquareChunks>(row, chunk);
      copy_async(place + Tiles::kT, from.t + from_at, bytes);
      copy_async(place + Tiles::kP, from.p + from_at, bytes);
    }
  }
  for (int at = thread; at < rows / 2; at += threads) {
    const int bytes = min(max(n - 2 * at, 0), 2) * 8;
    copy_async(to + Tiles::kDecays + at * kCopyBytes, from.decays + (bytes > 0 ? 2 * at : 0), bytes);
  }
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

// Of the value channels that are columns of o: what this lane's rows are scaled down by.
struct ColumnScales {
  float of[2][2];
  __device__ __forceinline__ explicit ColumnScales(const Scales& scales) {
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        of[half][e] = __shfl_sync(kFullWarp, scales.down[half], 4 * (2 * (lane & 3) + e));
      }
    }
  }
};

// Two neighbouring accumulators of a product as a left operand, rows scaled.
template <typename T>
__device__ __forceinline__ void pack_block(unsigned (&to)[4], const float (&left)[4],
                                           const float (&right)[4], const float (&up)[2]) {
  to[0] = packed<T>(up[0] * left[0], up[0] * left[1]);
  to[1] = packed<T>(up[1] * left[2], up[1] * left[3]);
  to[2] = packed<T>(up[0] * right[0], up[0] * right[1]);
  to[3] = packed<T>(up[1] * right[2], up[1] * right[3]);
}

__device__ __forceinline__ float2 unpacked(unsigned pair, const __nv_bfloat16*) {
  return widened(pair);
}
__device__ __forceinline__ float2 unpacked(unsigned pair, const __half*) {
  __half2 halves;
  *reinterpret_cast<unsigned*>(&halves) = pair;
  return __half22float2(halves);
}

// One warp's 16 value channels over one chunk of n rows; FULL: n is 64. `state` is S of the channels
// and all key channels: a row is a value. o_rows: row 0 of the chunk, this warp's first channel.
template <typename T, int DK, bool FULL>
__device__ __forceinline__ void advance_chunk(float (&state)[DK / 8][4], unsigned tiles,
                                              const float2* decays, int n, int value_block,
                                              T* o_rows, i64 o_stride, float scale) {
  using Tiles = InterTiles<DK>;
  constexpr bool kScaled = kSquareScale<T> != 1.0f;
  const int lane = threadIdx.x & 31;
  const int column0 = 2 * (lane & 3), row0 = lane >> 2;
  const int blocks = FULL ? kRowBlocks : (n + kBlockRows - 1) / kBlockRows;
  const TileLane<Tiles::kKeyChunks> key_lane(lane);
  const TileLane<kSquareChunks> square_lane(lane);
  Scales scales = {{1.0f, 1.0f}, {1.0f, 1.0f}};

  // S as an operand: rows values, columns key channels.
  if constexpr (kScaled) scales = scales_for(state);
  unsigned entering[DK / 16][4];
#pragma unroll
  for (int step = 0; step < DK / 16; ++step) {
    pack_block<T>(entering[step], state[2 * step], state[2 * step + 1], scales.up);
  }

  // S K^T.
  float memory[2 * kRowBlocks][4] = {};
#pragma unroll
  for (int step = 0; step < DK / 16; ++step) {
#pragma unroll
    for (int block = 0; block < kRowBlocks; ++block) {
      if (block < blocks) {
        unsigned keys[4];
        load_block(keys, key_lane.at(tiles + Tiles::kKeys, block, step));
        multiply<T>(memory[2 * block], entering[step], keys[0], keys[2]);
        multiply<T>(memory[2 * block + 1], entering[step], keys[1], keys[3]);
      }
    }
  }

  // X = V - e^G (K S^T), values by rows.
#pragma unroll
  for (int block = 0; block < kRowBlocks; ++block) {
    if (block < blocks) {
      unsigned values[4];
      load_block_transposed(values, square_lane.at(tiles + Tiles::kValues, block, value_block));
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float(&x)[4] = memory[2 * block + half];
        const float4 two = shared4(
            reinterpret_cast<const float*>(decays + kBlockRows * block + 8 * half + column0));
        const float2 low = unpacked(values[half], o_rows);
        const float2 high = unpacked(values[2 + half], o_rows);
        x[0] = fmaf(-two.x * scales.down[0], x[0], low.x);
        x[1] = fmaf(-two.z * scales.down[0], x[1], low.y);
        x[2] = fmaf(-two.x * scales.down[1], x[2], high.x);
        x[3] = fmaf(-two.z * scales.down[1], x[3], high.y);
      }
    }
  }
  const ColumnScales entering_scales(scales);
  if constexpr (kScaled) scales = scales_for(memory);
  unsigned change[kRowBlocks][4];
#pragma unroll
  for (int block = 0; block < kRowBlocks; ++block) {
    pack_block<T>(change[block], memory[2 * block], memory[2 * block + 1], scales.up);
  }

  // delta = T X.
  float delta[2 * kRowBlocks][4] = {};
#pragma unroll
  for (int step = 0; step < kRowBlocks; ++step) {
#pragma unroll
    for (int block = step; block < kRowBlocks; ++block) {
      if (block < blocks) {
        unsigned t[4];
        load_block(t, square_lane.at(tiles + Tiles::kT, block, step));
        multiply<T>(delta[2 * block], change[step], t[0], t[2]);
        multiply<T>(delta[2 * block + 1], change[step], t[1], t[3]);
      }
    }
  }

  // Q S^T: needs nothing of delta.
  float out[kRowBlocks][2][4] = {};
#pragma unroll
  for (int step = 0; step < DK / 16; ++step) {
#pragma unroll
    for (int block = 0; block < kRowBlocks; ++block) {
      if (block < blocks) {
        unsigned queries[4];
        load_block(queries, key_lane.at(tiles + Tiles::kQueries, block, step));
        multiply<T>(out[block][0], queries, entering[step][0], entering[step][2]);
        multiply<T>(out[block][1], queries, entering[step][1], entering[step][3]);
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
  }
  unsigned plain[kRowBlocks][4], decayed[kRowBlocks][4];
#pragma unroll
  for (int block = 0; block < kRowBlocks; ++block) {
    pack_block<T>(plain[block], delta[2 * block], delta[2 * block + 1], scales.up);
    if (block < blocks) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float(&d)[4] = delta[2 * block + half];
        const float4 two = shared4(
            reinterpret_cast<const float*>(decays + kBlockRows * block + 8 * half + column0));
        d[0] *= two.y, d[1] *= two.w, d[2] *= two.y, d[3] *= two.w;
      }
    }
  }
  const ColumnScales delta_scales(scales);
  if constexpr (kScaled) scales = scales_for(delta);
#pragma unroll
  for (int block = 0; block < kRowBlocks; ++block) {
    pack_block<T>(decayed[block], delta[2 * block], delta[2 * block + 1], scales.up);
  }

  // S <- e^(G_n) S + (decayed delta)^T K: the chunk ends at its last valid row, not at row 63.
  const float decay = decays[n - 1].x;
#pragma unroll
  for (int pair = 0; pair < DK / 16; ++pair) {
    float added[2][4] = {};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int e = 0; e < 4; ++e) state[2 * pair + half][e] *= decay;
    }
#pragma unroll
    for (int step = 0; step < kRowBlocks; ++step) {
      if (step < blocks) {
        unsigned keys[4];
        load_block_transposed(keys, key_lane.at(tiles + Tiles::kKeys, step, pair));
        if constexpr (kScaled) {
          multiply<T>(added[0], decayed[step], keys[0], keys[1]);
          multiply<T>(added[1], decayed[step], keys[2], keys[3]);
        } else {
          multiply<T>(state[2 * pair], decayed[step], keys[0], keys[1]);
          multiply<T>(state[2 * pair + 1], decayed[step], keys[2], keys[3]);
        }
      }
    }
    if constexpr (kScaled) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          state[2 * pair + half][e] = fmaf(added[half][e], scales.down[e >> 1], state[2 * pair + half][e]);
        }
      }
    }
  }

  // o = scale (e^G Q S^T + P delta).
#pragma unroll
  for (int block = 0; block < kRowBlocks; ++block) {
    if (block < blocks) {
      float within[2][4] = {};
#pragma unroll
      for (int step = 0; step <= block; ++step) {
        unsigned p[4];
        load_block(p, square_lane.at(tiles + Tiles::kP, block, step));
        multiply<T>(within[0], p, plain[step][0], plain[step][2]);
        multiply<T>(within[1], p, plain[step][1], plain[step][3]);
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = kBlockRows * block + row0 + 8 * half;
        const float before = decays[row].x;
        if (FULL || row < n) {
#pragma unroll
          for (int side = 0; side < 2; ++side) {
            float x[2];
#pragma unroll
            for (int e = 0; e < 2; ++e) {
              const float carried = before * entering_scales.of[side][e];
              const float own = delta_scales.of[side][e] * (1.0f / kSquareScale<T>);
              x[e] = scale * fmaf(carried, out[block][side][2 * half + e],
                                  own * within[side][2 * half + e]);
            }
            *reinterpret_cast<unsigned*>(o_rows + row * o_stride + 8 * side + column0) =
                packed<T>(x[0], x[1]);
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

  const int workers = blockDim.x >> 6;  // warps that compute; as many bring tiles in
  const int thread = threadIdx.x, warp = thread >> 5, lane = thread & 31;
  const int block_values = workers * kWarpValues;
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
  const int chunks = chunks_of(rows, chunk_rows);
  const i64 first_place =
      static_cast<i64>(chunks_before(cu_seqlens, cu_is_i64, chunk_rows, sequence)) * value_heads + head;
  const int key_head = key_head_of(head, key_heads, value_heads, head_map_cyclic);

  const bool works = warp < workers;
  const auto bring = [&](int chunk) {
    const i64 row0 = begin + static_cast<i64>(chunk) * chunk_rows;
    const i64 left = begin + rows - row0;
    const i64 place_of = first_place + static_cast<i64>(chunk) * value_heads;
    const ChunkSources<T> from = {
        k + row0 * k_stride + static_cast<i64>(key_head) * DK,
        q + row0 * q_stride + static_cast<i64>(key_head) * DK,
        v + row0 * v_stride + static_cast<i64>(head) * value_dim + value0,
        t + place_of * chunk_rows * chunk_rows,
        p + place_of * chunk_rows * chunk_rows,
        decays + place_of * chunk_rows,
        k_stride, q_stride, v_stride, chunk_rows};
    bring_chunk<T, DK>(shared_address(s_chunks) + (chunk & 1) * Tiles::kBytes, from,
                       static_cast<int>(left < chunk_rows ? left : chunk_rows),
                       workers == 4 ? 3 : 2, thread - 32 * workers, 32 * workers);
    copies_arrive();
  };

  // This lane's part of the state: values lane / 4 and 8 more, key channels in pairs.
  float state[DK / 8][4];
  float* const own_slot = s + slot * s_stride +
                          (static_cast<i64>(head) * value_dim + value0 + kWarpValues * warp + (lane >> 2)) * DK +
                          2 * (lane & 3);
  if (works) {
#pragma unroll
    for (int i = 0; i < DK / 8; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float2 initial = initial_zero ? make_float2(0.0f, 0.0f)
                                            : *reinterpret_cast<const float2*>(own_slot + 8 * half * DK + 8 * i);
        state[i][2 * half] = initial.x, state[i][2 * half + 1] = initial.y;
      }
    }
  } else if (chunks > 0) {
    bring(0);
  }
  __syncthreads();

  for (int chunk = 0; chunk < chunks; ++chunk) {
    if (works) {
      const i64 row0 = begin + static_cast<i64>(chunk) * chunk_rows;
      const int n = static_cast<int>(min(begin + rows - row0, static_cast<i64>(chunk_rows)));
      const unsigned char* const here = s_chunks + (chunk & 1) * Tiles::kBytes;
      const float2* const chunk_decays = reinterpret_cast<const float2*>(here + Tiles::kDecays);
      T* const o_rows = o + row0 * o_stride + static_cast<i64>(head) * value_dim + value0 + kWarpValues * warp;
      if (n == kMostChunkRows) {
        advance_chunk<T, DK, true>(state, shared_address(here), chunk_decays, n, warp, o_rows, o_stride, scale);
      } else {
        advance_chunk<T, DK, false>(state, shared_address(here), chunk_decays, n, warp, o_rows, o_stride, scale);
      }
    } else if (chunk + 1 < chunks) {
      bring(chunk + 1);
    }
    __syncthreads();  // the next chunk's tiles are there, and this one's are read
  }

  if (works) {
#pragma unroll
    for (int i = 0; i < DK / 8; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        *reinterpret_cast<float2*>(own_slot + 8 * half * DK + 8 * i) =
            make_float2(state[i][2 * half], state[i][2 * half + 1]);
      }
    }
  }
}
