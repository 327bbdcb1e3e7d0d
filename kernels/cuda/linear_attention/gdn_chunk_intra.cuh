// gdn_chunk's tensor-core class, launch (1): what a chunk's rows do to each other (see gdn_chunk.cu).
//
// A block per chunk and key head, a warp per 16 rows. K K^T and Q K^T are made once and shared by the
// key head's value heads. Then, for each of them, T = (I + L)^-1 by 16x16 blocks: a diagonal block is
// solved in f32, and a warp goes along its own row of blocks away from the diagonal,
//
//   T_ij = -(sum of T_ik L_kj, j < k <= i) T_jj,
//
// whose left factors are results it already holds. These products take both operands as two bf16
// each, value and rounding error (2^-16 together), so that T is as good as its one rounding to T.
#pragma once

#include "gdn_chunk_common.cuh"
#include "tensor_core.cuh"

constexpr int kBlockRows = 16;
constexpr int kRowBlocks = kMostChunkRows / kBlockRows;
constexpr int kIntraThreads = 32 * kRowBlocks;
constexpr int kSquareChunks = kMostChunkRows / kCopyElements;             // of a row of T or P
constexpr int kSquareBytes = kMostChunkRows * kMostChunkRows * 2;         // one 16-bit T or P
constexpr int kMostKeyDim = 128;

// f16 has no room below 2^-14: T and P, at most about 1, are stored that much larger.
template <typename T>
__device__ constexpr float kSquareScale = 1.0f;
template <>
__device__ constexpr float kSquareScale<__half> = 4096.0f;

// Two bf16 registers that together hold a pair of f32 to 2^-16.
struct SplitPair {
  unsigned high, low;
};
__device__ __forceinline__ float2 widened(unsigned pair) {
  return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
}
__device__ __forceinline__ SplitPair split_pair(float x, float y) {
  const unsigned high = packed<__nv_bfloat16>(x, y);
  const float2 kept = widened(high);
  return {high, packed<__nv_bfloat16>(x - kept.x, y - kept.y)};
}

// A 16x16 block as the left operand of a product, in two parts.
struct SplitBlock {
  unsigned high[4], low[4];
};

// d += left right, both in two parts; right the block's own b fragments.
__device__ __forceinline__ void multiply_split(float (&d)[2][4], const SplitBlock& left,
                                               const SplitBlock& right) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    multiply<__nv_bfloat16>(d[half], left.low, right.high[2 * half], right.high[2 * half + 1]);
    multiply<__nv_bfloat16>(d[half], left.high, right.low[2 * half], right.low[2 * half + 1]);
    multiply<__nv_bfloat16>(d[half], left.high, right.high[2 * half], right.high[2 * half + 1]);
  }
}

// factor times a product's result, as a left operand.
__device__ __forceinline__ void split_block(SplitBlock& to, const float (&d)[2][4], float factor) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const SplitPair pair =
        split_pair(factor * d[i >> 1][2 * (i & 1)], factor * d[i >> 1][2 * (i & 1) + 1]);
    to.high[i] = pair.high, to.low[i] = pair.low;
  }
}

// One value head's L and diagonal blocks of T, each in two parts: rows of 64.
struct SplitSquare {
  unsigned high, low;  // shared addresses
  __device__ __forceinline__ void load_right(SplitBlock& to, const TileLane<kSquareChunks>& lane,
                                             int block_row, int block_column) const {
    lane.load_right(to.high, high, block_row, block_column);
    lane.load_right(to.low, low, block_row, block_column);
  }
};

// T of one 16x16 unit lower triangle, from its strictly lower entries: lane l has column l % 16.
__device__ __forceinline__ void invert_triangle(float (&x)[kBlockRows], const float* lower,
                                                int column) {
#pragma unroll
  for (int i = 0; i < kBlockRows; ++i) {
    x[i] = i == column ? 1.0f : 0.0f;
#pragma unroll
    for (int j = 0; j < i; j += 4) {
      const float4 row = shared4(lower + i * kBlockRows + j);
      x[i] = fmaf(-row.x, x[j], x[i]);
      if (j + 1 < i) x[i] = fmaf(-row.y, x[j + 1], x[i]);
      if (j + 2 < i) x[i] = fmaf(-row.z, x[j + 2], x[i]);
      if (j + 3 < i) x[i] = fmaf(-row.w, x[j + 3], x[i]);
    }
  }
}

// T of a warp's diagonal block, from its strictly lower entries, to its place in the square.
__device__ __forceinline__ void store_inverse(const SplitSquare& square, const float* triangle,
                                              int warp, int lane) {
  float x[kBlockRows];
  const int own = lane & 15;
  invert_triangle(x, triangle, own);
  // The lower half of the warp stores the values, the upper half what their rounding lost.
#pragma unroll
  for (int i = 0; i < kBlockRows; ++i) {
    const SplitPair pair = split_pair(x[i], 0.0f);
    const unsigned at =
        chunk_offset<kSquareChunks>(kBlockRows * warp + i, 2 * warp + (own >> 3)) +
        2 * (own & 7);
    store_shared_half((lane < 16 ? square.high : square.low) + at,
                      lane < 16 ? pair.high : pair.low);
  }
}

// A warp's row of blocks of T, from the diagonal away: `give` gets each block's column and the block.
template <typename GIVE>
__device__ __forceinline__ void solve_blocks(const SplitSquare& square,
                                             const TileLane<kSquareChunks>& tile_lane, int warp,
                                             GIVE give) {
  SplitBlock solved[kRowBlocks];  // T_(warp, warp - distance)
  tile_lane.load_left(solved[0].high, square.high, warp, warp);
  tile_lane.load_left(solved[0].low, square.low, warp, warp);
#pragma unroll
  for (int distance = 0; distance < kRowBlocks; ++distance) {
    if (distance <= warp) {
      const int block = warp - distance;
      if (distance > 0) {
        float sum[2][4] = {}, result[2][4] = {};
        SplitBlock right, left;
#pragma unroll
        for (int nearer = 0; nearer < distance; ++nearer) {
          square.load_right(right, tile_lane, warp - nearer, block);
          multiply_split(sum, solved[nearer], right);
        }
        split_block(left, sum, -1.0f);
        square.load_right(right, tile_lane, block, block);
        multiply_split(result, left, right);
        split_block(solved[distance], result, 1.0f);
      }
      give(block, solved[distance]);
    }
  }
}

template <typename T>
__device__ __forceinline__ void chunk_intra(
    const T* __restrict__ q, const T* __restrict__ k, const float* __restrict__ g,
    const float* __restrict__ beta, const void* __restrict__ cu_seqlens,
    const i64* __restrict__ slot_of, float2* __restrict__ decays, T* __restrict__ t,
    T* __restrict__ p, i64 q_stride, i64 k_stride, i64 g_stride, i64 beta_stride, int chunk_rows,
    int sequences, int key_heads, int value_heads, int key_dim, int cu_is_i64,
    int head_map_cyclic) {
  // Rows of q and k; once their products are made, two heads' squares.
  __shared__ __align__(128) unsigned char s_tiles[2 * kMostChunkRows * kMostKeyDim * 2];
  __shared__ __align__(16) float s_triangle[kRowBlocks][kBlockRows * kBlockRows];
  __shared__ __align__(16) float2 s_g[kRowBlocks][kMostChunkRows];  // of four value heads
  __shared__ __align__(16) float2 s_columns[kRowBlocks][kMostChunkRows];
  static_assert(4 * kSquareBytes <= sizeof s_tiles, "two squares in two parts fit");

  const int chunk = blockIdx.x / key_heads;
  const int key_head = blockIdx.x - chunk * key_heads;
  const ChunkPlace place = locate_chunk(cu_seqlens, cu_is_i64, sequences, chunk_rows, chunk);
  if (place.sequence < 0) return;
  if (__ldg(slot_of + place.sequence) < 0) return;
  const int n = place.rows;
  const i64 row0 = place.first_row;
  const int thread = threadIdx.x, warp = thread >> 5, lane = thread & 31;
  const int live_blocks = (n + kBlockRows - 1) / kBlockRows;
  const bool live = warp < live_blocks;  // this warp's rows
  const unsigned tiles = shared_address(s_tiles);
  const int row = kBlockRows * warp + (lane >> 2), column0 = 2 * (lane & 3);

  // Tiles of 8 chunks a row each: channels beyond 64 make a second tile.
  constexpr int kTileBytes = kMostChunkRows * kSquareChunks * kCopyBytes;
  const int key_tiles = (key_dim + 63) / 64;
  {
    const T* const queries = q + row0 * q_stride + static_cast<i64>(key_head) * key_dim;
    const T* const keys = k + row0 * k_stride + static_cast<i64>(key_head) * key_dim;
    for (int half = 0; half < key_tiles; ++half) {
      const unsigned to = tiles + half * kTileBytes;
      const int bits = key_dim == 32 ? 2 : 3;
      bring_rows<kSquareChunks, kIntraThreads, false, false>(to, keys + half * 64, k_stride, n, bits,
                                                             thread);
      bring_rows<kSquareChunks, kIntraThreads, false, false>(
          to + key_tiles * kTileBytes, queries + half * 64, q_stride, n, bits, thread);
    }
  }

  // Gates of up to four value heads, a warp each: G, and for a column the decay to the end of its
  // block of rows and beta.
  const int group = value_heads / key_heads;
  const auto prepare_gates = [&](int first) {
    if (first + warp >= group) return;
    const int head = value_head_of(key_head, first + warp, key_heads, value_heads, head_map_cyclic);
    const int gate_row = 2 * lane;
    float gates[2], rates[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const i64 at = row0 + gate_row + half;
      gates[half] = gate_row + half < n ? __ldg(g + at * g_stride + head) : 0.0f;
      rates[half] = gate_row + half < n ? __ldg(beta + at * beta_stride + head) : 0.0f;
    }
    float2 sums[2];
    chunk_sums(gates[0], gates[1], sums);
    s_g[warp][gate_row] = sums[0], s_g[warp][gate_row + 1] = sums[1];
    __syncwarp();
    const float2 g_edge = s_g[warp][gate_row | (kBlockRows - 1)];
    const float2 g_last = s_g[warp][n - 1];  // the chunk ends at its last valid row
    float2* const to =
        decays + (static_cast<i64>(chunk) * value_heads + head) * chunk_rows + gate_row;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      s_columns[warp][gate_row + half] = make_float2(decay_fast(g_edge, sums[half]), rates[half]);
      if (gate_row + half < n) {
        to[half] = make_float2(exp_fast(sums[half].x), decay_fast(g_last, sums[half]));
      }
    }
  };
  prepare_gates(0);

  copies_arrive();
  __syncthreads();

  // K K^T and Q K^T, this warp's rows, columns up to the diagonal block.
  const TileLane<kSquareChunks> tile_lane(lane);
  float kk[2 * kRowBlocks][4] = {}, qk[2 * kRowBlocks][4] = {};
  if (live) {
    for (int step = 0; step < key_dim / kBlockRows; ++step) {
      const unsigned key_tile = tiles + (step >> 2) * kTileBytes;
      const unsigned query_tile = key_tile + key_tiles * kTileBytes;
      unsigned key[4], query[4], other[4];
      tile_lane.load_left(key, key_tile, warp, step & 3);
      tile_lane.load_left(query, query_tile, warp, step & 3);
#pragma unroll
      for (int block = 0; block < kRowBlocks; ++block) {
        if (block <= warp) {
          tile_lane.load_right_of_transpose(other, key_tile, block, step & 3);
          multiply<T>(kk[2 * block], key, other[0], other[1]);
          multiply<T>(kk[2 * block + 1], key, other[2], other[3]);
          multiply<T>(qk[2 * block], query, other[0], other[1]);
          multiply<T>(qk[2 * block + 1], query, other[2], other[3]);
        }
      }
    }
  }
  __syncthreads();  // q and k are read; squares may take their place

  float* const triangle = s_triangle[warp];
  for (int member = 0; member < group; ++member) {
    const int head = value_head_of(key_head, member, key_heads, value_heads, head_map_cyclic);
    const i64 place_of = static_cast<i64>(chunk) * value_heads + head;
    const unsigned square_at = tiles + (member & 1) * (2 * kSquareBytes);
    const SplitSquare square = {square_at, square_at + kSquareBytes};
    T* const t_rows = t + place_of * chunk_rows * chunk_rows;
    T* const p_rows = p + place_of * chunk_rows * chunk_rows;

    if (member > 0 && (member & 3) == 0) {
      __syncthreads();  // the last four heads' gates are read
      prepare_gates(member);
      __syncthreads();
    }
    const float2* const g_rows = s_g[member & 3];
    const float2* const columns = s_columns[member & 3];

    if (live) {
      const float2 g_own[2] = {g_rows[row], g_rows[row + 8]};
      const float beta_own[2] = {columns[row].y, columns[row + 8].y};
      const int own_at[2] = {row * chunk_rows + column0, (row + 8) * chunk_rows + column0};
      const unsigned lower_at = chunk_offset<kSquareChunks>(row, 0) + 2 * column0;
#pragma unroll
      for (int block = 0; block < kRowBlocks; ++block) {
        if (block <= warp) {
          // Left of the diagonal block the decay goes by way of the end of the column's block; both
          // parts are at most 1. Within it there is no such place for all pairs.
          const bool diagonal = block == warp;
          const float2 g_edge_of = g_rows[kBlockRows * block + kBlockRows - 1];
          const float since_edge[2] = {decay_fast(g_own[0], g_edge_of),
                                       decay_fast(g_own[1], g_edge_of)};
#pragma unroll
          for (int side = 0; side < 2; ++side) {
            const int tile = 2 * block + side, j = 8 * tile + column0;
            const float4 two = shared4(reinterpret_cast<const float*>(columns + j));
            const float to_edge[2] = {two.x, two.z};
#pragma unroll
            for (int half = 0; half < 2; ++half) {
              const int i = row + 8 * half;
              float lower[2], product[2];
#pragma unroll
              for (int e = 0; e < 2; ++e) {
                float decay = since_edge[half] * to_edge[e];
                if (diagonal) decay = j + e <= i ? decay_fast(g_own[half], g_rows[j + e]) : 0.0f;
                product[e] = decay * qk[tile][2 * half + e];
                lower[e] = beta_own[half] * decay * kk[tile][2 * half + e];
                if (diagonal) {
                  product[e] = j + e <= i ? product[e] : 0.0f;
                  lower[e] = j + e < i ? lower[e] : 0.0f;
                }
              }
              if (i < n) {
                *reinterpret_cast<unsigned*>(p_rows + own_at[half] + 8 * tile) =
                    packed<T>(kSquareScale<T> * product[0], kSquareScale<T> * product[1]);
              }
              if (diagonal) {
                float* const at = triangle + (i & 15) * kBlockRows + (j & 15);
                at[0] = lower[0], at[1] = lower[1];
              } else {
                const SplitPair pair = split_pair(lower[0], lower[1]);
                const unsigned at =
                    (lower_at ^ tile * kCopyBytes) + 8 * half * kSquareChunks * kCopyBytes;
                store_shared(square.high + at, pair.high);
                store_shared(square.low + at, pair.low);
              }
            }
          }
        }
      }
      __syncwarp();
      store_inverse(square, triangle, warp, lane);
    }
    __syncthreads();  // every warp's L and diagonal of T are there

    if (live) {
      const int own_at[2] = {row * chunk_rows + column0, (row + 8) * chunk_rows + column0};
      solve_blocks(square, tile_lane, warp, [&](int block, const SplitBlock& solved) {
        // The factor beta_j of the right-hand side goes with the columns.
#pragma unroll
        for (int side = 0; side < 2; ++side) {
          const int j = kBlockRows * block + 8 * side + column0;
          const float4 two = shared4(reinterpret_cast<const float*>(columns + j));
          const float beta_scaled[2] = {kSquareScale<T> * two.y, kSquareScale<T> * two.w};
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const float2 high = widened(solved.high[2 * side + half]);
            const float2 low = widened(solved.low[2 * side + half]);
            if (row + 8 * half < n) {
              *reinterpret_cast<unsigned*>(t_rows + own_at[half] + 16 * block + 8 * side) =
                  packed<T>(beta_scaled[0] * (high.x + low.x), beta_scaled[1] * (high.y + low.y));
            }
          }
        }
      });
    }
  }
}
