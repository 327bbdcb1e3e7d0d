// kda_chunk's tensor-core class, launch (1): what a chunk's rows do to each other (see kda_chunk.cu).
//
// A block per chunk and value head, a warp per 16 rows. A decay between two rows is a product of single
// rows' e^g, so no factor exceeds 1, whatever g is, and no sums are subtracted. L and P, whose decays
// differ by channel, are products of decayed rows that are rounded to bf16: of two rows, the later is
// decayed from a border between them, the earlier to it. Within a warp's rows that border is where a
// half of 16, 8, 4 or 2 rows ends; left of its diagonal block, where the column's block ends, and the
// blocks between are a factor of their own. T is made as gdn_chunk's (gdn_chunk_intra.cuh), and every
// row that the second launch takes is rounded once.
//
// A lane has four neighbouring channels of rows r and r + 8 of its warp's, r = lane / 4, as the
// products' operands want them: which channel is which place of a sum is one for both sides.
#pragma once

#include "gdn_chunk_intra.cuh"
#include "kda_chunk_f32.cuh"

constexpr int kOwnChannels = 4;                  // of a lane
constexpr int kStepChannels = 4 * kOwnChannels;  // of a warp
constexpr int kLaterBlocks = kRowBlocks - 1;     // that have blocks before them

using Own = float[2][kOwnChannels];  // rows r and r + 8

// One row's channels as a product's operand: the same for left and right.
struct RowWords {
  unsigned low, high;
};
template <typename T>
__device__ __forceinline__ RowWords row_words(const float (&x)[kOwnChannels]) {
  return {packed<T>(x[0], x[1]), packed<T>(x[2], x[3])};
}

// d += left right^T over a step's channels: rows r of `upper` and of `lower`, columns of `right`.
template <typename T>
__device__ __forceinline__ void multiply_rows(float (&d)[4], RowWords upper, RowWords lower,
                                              RowWords right) {
  const unsigned left[4] = {upper.low, lower.low, upper.high, lower.high};
  multiply<T>(d, left, right.low, right.high);
}

// What a warp's rows do to each other: `near` of halves of 2, 4 and 8 rows, for either block of eight
// on the diagonal, `far` of the halves of 16; K K^T in the upper rows of a product, Q K^T in the lower.
// `self`: P_ii, a quarter of the channels a lane.
struct BlockSums {
  float near[3][2][4] = {}, far[4] = {}, self[2] = {};
};

// One warp's rows as they come, four channels a lane.
template <typename T>
struct RowPieces {
  float4 g[2];
  uint2 k[2], q[2];

  __device__ __forceinline__ void load(const WyRows<T>& rows, int row, int channel) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const bool live = row + 8 * half < rows.n;
      const i64 at = live ? row + 8 * half : 0;
      g[half] = live ? load4(rows.g + at * rows.g_stride + channel) : zero4();
      k[half] = live ? __ldg(reinterpret_cast<const uint2*>(rows.k + at * rows.k_stride + channel))
                     : make_uint2(0, 0);
      q[half] = live ? __ldg(reinterpret_cast<const uint2*>(rows.q + at * rows.q_stride + channel))
                     : make_uint2(0, 0);
    }
  }
};

template <typename T>
__device__ __forceinline__ void widen4(float (&out)[kOwnChannels], uint2 words) {
  const float2 low = unpack2(words.x, static_cast<const T*>(nullptr));
  const float2 high = unpack2(words.y, static_cast<const T*>(nullptr));
  out[0] = low.x, out[1] = low.y, out[2] = high.x, out[3] = high.y;
}

__device__ __forceinline__ void spread(float (&out)[kOwnChannels], float4 four) {
  out[0] = four.x, out[1] = four.y, out[2] = four.z, out[3] = four.w;
}
__device__ __forceinline__ float4 gathered(const float (&x)[kOwnChannels]) {
  return make_float4(x[0], x[1], x[2], x[3]);
}

// One step of channels through the borders within a warp's rows. `prefix`, at first each row's own
// decay, ends as the decay from the 16 rows' start to the row; `suffix`, at first 1, as that from the
// row to their end. A product has every pair of rows; those with no border between are not looked at.
template <typename T>
__device__ __forceinline__ void add_within(BlockSums& sums, const Own& key, const Own& query,
                                           Own& prefix, Own& suffix) {
  const int lane = threadIdx.x & 31;
#pragma unroll
  for (int level = 0; level < 3; ++level) {
    const int rows = 1 << level;  // of a half
    const bool later = (lane >> 2 & rows) != 0;
    const int border = (lane ^ 4 * rows) | 4 * (rows - 1);  // the other half's last row
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float decayed_key[kOwnChannels], decayed_query[kOwnChannels];
#pragma unroll
      for (int e = 0; e < kOwnChannels; ++e) {
        const float decay = later ? prefix[half][e] : suffix[half][e];
        decayed_key[e] = decay * key[half][e], decayed_query[e] = decay * query[half][e];
        const float other = __shfl_sync(kFullWarp, prefix[half][e], border);
        if (later) {
          prefix[half][e] *= other;
        } else {
          suffix[half][e] *= other;
        }
      }
      const RowWords keys = row_words<T>(decayed_key);
      multiply_rows<T>(sums.near[level][half], keys, row_words<T>(decayed_query), keys);
    }
  }
  float later_key[kOwnChannels], later_query[kOwnChannels], earlier_key[kOwnChannels];
#pragma unroll
  for (int e = 0; e < kOwnChannels; ++e) {
    later_key[e] = prefix[1][e] * key[1][e], later_query[e] = prefix[1][e] * query[1][e];
    earlier_key[e] = suffix[0][e] * key[0][e];
    const int last = lane | 28;
    const float upper = __shfl_sync(kFullWarp, prefix[0][e], last);
    const float lower = __shfl_sync(kFullWarp, prefix[1][e], last);
    prefix[1][e] *= upper, suffix[0][e] *= lower;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      sums.self[half] = fmaf(query[half][e], key[half][e], sums.self[half]);
    }
  }
  multiply_rows<T>(sums.far, row_words<T>(later_key), row_words<T>(later_query),
                   row_words<T>(earlier_key));
}

// Shared memory: the decayed rows a later step takes, four floats a lane, step after step; then the
// square and the triangles. Rows of the first warp have no earlier block, of the last no later.
struct IntraPlaces {
  float4* earlier;  // [3][steps][4][32]: k, then q, from their block's start
  float4* later;    // [3][steps][2][32]: k to its block's end
  int steps;

  __device__ __forceinline__ float4* from_start(int block, int step) const {
    return earlier + ((block - 1) * steps + step) * 128;
  }
  __device__ __forceinline__ float4* to_end(int block, int step) const {
    return later + (block * steps + step) * 64;
  }
};

// Four channels of two rows, rounded, to a scratch of rows.
template <typename R>
__device__ __forceinline__ void give_rows(R* to, const WyRows<R>& rows, int row, int channel,
                                          const Own& x, const float (&factor)[kOwnChannels]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (row + 8 * half < rows.n) {
      store4(to + (row + 8 * half) * rows.key_dim + channel,
             make_float4(factor[0] * x[half][0], factor[1] * x[half][1], factor[2] * x[half][2],
                         factor[3] * x[half][3]));
    }
  }
}

// Products within the warp's rows; their decayed rows to shared memory or, where no other block's decay
// is to come, to their places; and the whole block's decay.
template <typename T>
__device__ __forceinline__ void within_block(BlockSums& sums, const WyRows<T>& rows,
                                             const WyPlaces<T>& to, const IntraPlaces& places,
                                             float* totals, int warp) {
  constexpr float kOnes[kOwnChannels] = {1.0f, 1.0f, 1.0f, 1.0f};
  const int lane = threadIdx.x & 31, row = kBlockRows * warp + (lane >> 2);
  const int channel0 = kOwnChannels * (lane & 3);
  RowPieces<T> ahead;
  ahead.load(rows, row, channel0);
  for (int step = 0; step < places.steps; ++step) {
    const RowPieces<T> here = ahead;
    const int channel = kStepChannels * step + channel0;
    if (step + 1 < places.steps) ahead.load(rows, row, channel + kStepChannels);
    Own key, query, prefix, suffix, from_start_key, from_start_query, to_end;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      widen4<T>(key[half], here.k[half]), widen4<T>(query[half], here.q[half]);
      float g[kOwnChannels];
      spread(g, here.g[half]);
#pragma unroll
      for (int e = 0; e < kOwnChannels; ++e) {
        prefix[half][e] = exp_fast(clamped_decay(g[e], rows.least)), suffix[half][e] = 1.0f;
      }
    }
    add_within<T>(sums, key, query, prefix, suffix);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int e = 0; e < kOwnChannels; ++e) {
        from_start_key[half][e] = prefix[half][e] * key[half][e];
        from_start_query[half][e] = prefix[half][e] * query[half][e];
        to_end[half][e] = suffix[half][e] * key[half][e];
      }
    }
    if (warp > 0) {
      float4* const at = places.from_start(warp, step) + lane;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        at[32 * half] = gathered(from_start_key[half]);
        at[64 + 32 * half] = gathered(from_start_query[half]);
      }
    } else {
      give_rows(to.w, rows, row, channel, from_start_key, kOnes);
      give_rows(to.qd, rows, row, channel, from_start_query, kOnes);
    }
    if (warp < kLaterBlocks) {
      float4* const at = places.to_end(warp, step) + lane;
      at[0] = gathered(to_end[0]), at[32] = gathered(to_end[1]);
    } else {
      give_rows(to.kd, rows, row, channel, to_end, kOnes);
    }
    if (lane >= 28) store4(totals + warp * kMostKeyDim + channel, gathered(prefix[1]));
  }
}

// A warp's products with the blocks before its own, the nearest first.
struct EarlierSums {
  float kk[kLaterBlocks][2][4] = {}, qk[kLaterBlocks][2][4] = {};
};

// Products with the blocks before the warp's own, and its rows for the second launch.
template <typename T>
__device__ __forceinline__ void across_blocks(EarlierSums& sums, const WyRows<T>& rows,
                                              const IntraPlaces& places, const float* totals,
                                              const WyPlaces<T>& to, int warp) {
  const int lane = threadIdx.x & 31, row = kBlockRows * warp + (lane >> 2);
  const int channel0 = kOwnChannels * (lane & 3);
  for (int step = 0; step < places.steps; ++step) {
    const int channel = kStepChannels * step + channel0;
    const float* const total = totals + channel;
    if (warp > 0) {
      Own key, query;
      RowWords left_key[2], left_query[2];
      const float4* const own = places.from_start(warp, step) + lane;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        spread(key[half], own[32 * half]), spread(query[half], own[64 + 32 * half]);
        left_key[half] = row_words<T>(key[half]), left_query[half] = row_words<T>(query[half]);
      }
      float between[kOwnChannels] = {1.0f, 1.0f, 1.0f, 1.0f};  // the decay of the blocks between
#pragma unroll
      for (int distance = 1; distance <= kLaterBlocks; ++distance) {
        if (distance > warp) break;
        const int block = warp - distance;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float column[kOwnChannels];
          spread(column, places.to_end(block, step)[32 * half + lane]);
#pragma unroll
          for (int e = 0; e < kOwnChannels; ++e) column[e] = between[e] * column[e];
          const RowWords right = row_words<T>(column);
          multiply_rows<T>(sums.kk[distance - 1][half], left_key[0], left_key[1], right);
          multiply_rows<T>(sums.qk[distance - 1][half], left_query[0], left_query[1], right);
        }
        float of_block[kOwnChannels];
        spread(of_block, shared4(total + block * kMostKeyDim));
#pragma unroll
        for (int e = 0; e < kOwnChannels; ++e) between[e] *= of_block[e];
      }
      give_rows(to.w, rows, row, channel, key, between);
      give_rows(to.qd, rows, row, channel, query, between);
    }
    if (warp < kLaterBlocks) {
      float after[kOwnChannels] = {1.0f, 1.0f, 1.0f, 1.0f};
      for (int block = warp + 1; block < kRowBlocks; ++block) {
        float of_block[kOwnChannels];
        spread(of_block, shared4(total + block * kMostKeyDim));
#pragma unroll
        for (int e = 0; e < kOwnChannels; ++e) after[e] *= of_block[e];
      }
      Own key;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        spread(key[half], places.to_end(warp, step)[32 * half + lane]);
      }
      give_rows(to.kd, rows, row, channel, key, after);
    }
  }
}

// Left of the diagonal block: L to the square, P to its place.
template <typename T>
__device__ __forceinline__ void store_earlier(const SplitSquare& square, T* p,
                                              const EarlierSums& sums, const float (&beta)[2],
                                              int warp, int n) {
  const int lane = threadIdx.x & 31, row = kBlockRows * warp + (lane >> 2);
#pragma unroll
  for (int distance = 1; distance <= kLaterBlocks; ++distance) {
    if (distance > warp) break;
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const int tile = 2 * (warp - distance) + side, column = 8 * tile + 2 * (lane & 3);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int i = row + 8 * half;
        const float* const qk = sums.qk[distance - 1][side] + 2 * half;
        const float* const kk = sums.kk[distance - 1][side] + 2 * half;
        if (i < n) {
          *reinterpret_cast<unsigned*>(p + i * kMostChunkRows + column) = packed<T>(qk[0], qk[1]);
        }
        const SplitPair pair = split_pair(beta[half] * kk[0], beta[half] * kk[1]);
        const unsigned at = chunk_offset<kSquareChunks>(i, tile) + 4 * (lane & 3);
        store_shared(square.high + at, pair.high);
        store_shared(square.low + at, pair.low);
      }
    }
  }
}

// The warp's diagonal block: L to its triangle, P to its place, both with zeros above the diagonal.
template <typename T>
__device__ __forceinline__ void store_diagonal(float* triangle, T* p, BlockSums& sums,
                                               const float (&beta)[2], int warp, int n) {
  const int lane = threadIdx.x & 31, r = lane >> 2, column0 = 2 * (lane & 3);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float& self = sums.self[half];
    self += __shfl_xor_sync(kFullWarp, self, 1);
    self += __shfl_xor_sync(kFullWarp, self, 2);
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      float lower[2], product[2];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int j = column0 + e;
        if (side == half) {
          const int apart = r ^ j;  // its highest bit tells the halves that the two rows are of
          const int level = apart >= 4 ? 2 : apart >= 2 ? 1 : 0;
          const auto of_level = [&](int at) {
            const float(&near)[3][2][4] = sums.near;
            return level == 2   ? near[2][half][at]
                   : level == 1 ? near[1][half][at]
                                : near[0][half][at];
          };
          lower[e] = j < r ? beta[half] * of_level(e) : 0.0f;
          product[e] = j < r ? of_level(2 + e) : j == r ? self : 0.0f;
        } else {
          lower[e] = side < half ? beta[half] * sums.far[e] : 0.0f;
          product[e] = side < half ? sums.far[2 + e] : 0.0f;
        }
      }
      const int i = r + 8 * half, j = 8 * side + column0;
      float* const to = triangle + i * kBlockRows + j;
      to[0] = lower[0], to[1] = lower[1];
      const int row = kBlockRows * warp + i;
      if (row < n) {
        *reinterpret_cast<unsigned*>(p + row * kMostChunkRows + kBlockRows * warp + j) =
            packed<T>(product[0], product[1]);
      }
    }
  }
}

// Dynamic shared memory, by the channels of a key.
__device__ __forceinline__ IntraPlaces intra_places(unsigned char* shared, int key_dim) {
  const int steps = key_dim / kStepChannels;
  float4* const earlier = reinterpret_cast<float4*>(shared);
  return {earlier, earlier + kLaterBlocks * steps * 128, steps};
}

template <typename T>
__device__ __forceinline__ void kda_chunk_intra(const WyCall<T>& call, T* t,
                                                const WyPlaces<T>& all) {
  extern __shared__ __align__(128) unsigned char s_chunks[];
  __shared__ __align__(16) float s_totals[kRowBlocks * kMostKeyDim];
  __shared__ float s_beta[kMostChunkRows];

  const int chunk = blockIdx.x / call.value_heads;
  const int head = blockIdx.x - chunk * call.value_heads;
  const ChunkPlace place =
      locate_chunk(call.cu_seqlens, call.cu_is_i64, call.sequences, kMostChunkRows, chunk);
  if (place.sequence < 0) return;
  if (__ldg(call.slot_of + place.sequence) < 0) return;
  const int n = place.rows, thread = threadIdx.x, warp = thread >> 5, lane = thread & 31;
  const i64 row0 = place.first_row;
  const int key_head =
      key_head_of(head, call.key_heads, call.value_heads, call.head_map_cyclic);
  const WyRows<T> rows = rows_of_chunk(call, row0, head, key_head, n);
  const i64 place_of = static_cast<i64>(chunk) * call.value_heads + head;
  const WyPlaces<T> to = all.at(place_of, call.key_dim);
  const bool live = kBlockRows * warp < n;  // this warp's rows
  const IntraPlaces places = intra_places(s_chunks, call.key_dim);
  if (thread < kMostChunkRows) {
    s_beta[thread] =
        thread < n ? __ldg(call.beta + (row0 + thread) * call.beta_stride + head) : 0.0f;
  }

  BlockSums within;
  if (live) {
    within_block(within, rows, to, places, s_totals, warp);
  } else {
    for (int at = lane; at < call.key_dim; at += 32) s_totals[warp * kMostKeyDim + at] = 1.0f;
  }
  __syncthreads();  // every warp's decayed rows are there

  EarlierSums earlier;
  if (live) across_blocks(earlier, rows, places, s_totals, to, warp);
  for (int at = thread; at < call.key_dim; at += kIntraThreads) {
    float through = s_totals[at];
#pragma unroll
    for (int block = 1; block < kRowBlocks; ++block) through *= s_totals[block * kMostKeyDim + at];
    to.decay[at] = through;
  }
  __syncthreads();  // they are read; the square and the triangles may take their place

  const unsigned square_at = shared_address(s_chunks);
  const SplitSquare square = {square_at, square_at + kSquareBytes};
  float* const triangle = reinterpret_cast<float*>(s_chunks + 2 * kSquareBytes) +
                          warp * (kBlockRows * kBlockRows);
  const int row = kBlockRows * warp + (lane >> 2), column0 = 2 * (lane & 3);
  if (live) {
    const float beta[2] = {s_beta[row], s_beta[row + 8]};
    store_earlier(square, to.p, earlier, beta, warp, n);
    store_diagonal(triangle, to.p, within, beta, warp, n);
    __syncwarp();
    store_inverse(square, triangle, warp, lane);
  }
  __syncthreads();  // every warp's L and diagonal of T are there

  if (live) {
    T* const t_rows = t + (place_of * kMostChunkRows + row) * kMostChunkRows + column0;
    solve_blocks(square, TileLane<kSquareChunks>(lane), warp,
                 [&](int block, const SplitBlock& solved) {
                   // The factor beta_j of the right-hand side goes with the columns.
#pragma unroll
                   for (int side = 0; side < 2; ++side) {
                     const int j = kBlockRows * block + 8 * side;
                     const float rates[2] = {s_beta[j + column0], s_beta[j + column0 + 1]};
#pragma unroll
                     for (int half = 0; half < 2; ++half) {
                       const float2 high = widened(solved.high[2 * side + half]);
                       const float2 low = widened(solved.low[2 * side + half]);
                       if (row + 8 * half < n) {
                         *reinterpret_cast<unsigned*>(t_rows + 8 * half * kMostChunkRows + j) =
                             packed<T>(rates[0] * (high.x + low.x), rates[1] * (high.y + low.y));
                       }
                     }
                   }
                 });
  }
}
