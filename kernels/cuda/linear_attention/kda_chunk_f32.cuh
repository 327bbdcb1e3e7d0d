// kda_chunk's exact class: arithmetic in f32 whatever the storage, in two launches (see kda_chunk.cu).
//
// A decay between two rows is a product of factors that are all at most 1, each the exponential of a
// sum of few log decays: from the column's row to the end of its group of four rows, over the groups
// between, and from the group before the row's to the row. Within a group the difference itself is
// raised. So nothing grows, whatever the decays, and no two large sums are subtracted.
#pragma once

#include "gdn_chunk_f32.cuh"
#include "key_rows.cuh"

constexpr int kGroupRows = 4;
constexpr int kGroups = kMostChunkRows / kGroupRows;
constexpr int kChannels = 16;  // of one slice
constexpr int kWyThreads = kGroups * kChannels;
constexpr int kWyTileFloats = kMostChunkRows * kChannels;
constexpr int kBridges = (kGroups - 1) * (kGroups - 2) / 2;

// Offset of 16-byte chunk `chunk` of row `row` in a slice: a tile's four rows are one group.
__device__ __forceinline__ int slice_at(int row, int chunk) {
  return row * kChannels + ((chunk ^ ((row >> 2) & 3)) << 2);
}

// The place of the groups strictly between two, nearer > farther + 1.
__device__ __forceinline__ int bridge_of(int later, int earlier) {
  return (later - 1) * (later - 2) / 2 + earlier;
}

__device__ __forceinline__ float4 multiply4(float4 a, float4 b) {
  return make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w);
}

__device__ __forceinline__ float4 raised_difference4(float4 later, float4 earlier) {
  return make_float4(expf(later.x - earlier.x), expf(later.y - earlier.y),
                     expf(later.z - earlier.z), expf(later.w - earlier.w));
}

// One slice of a chunk's rows. G is summed within a group of rows, from its first.
struct WySlice {
  float k[kWyTileFloats], q[kWyTileFloats];                // as they are
  float k_before[kWyTileFloats], q_before[kWyTileFloats];  // times e^G
  float k_after[kWyTileFloats];                            // times e^(G to the end of the group)
  float sums[kWyTileFloats];                               // G
  float bridge[kBridges * kChannels];                      // e^(totals of the groups between)
};

// A 4x4 tile of K K^T and Q K^T, each product's every channel decayed from column to row.
__device__ __forceinline__ void accumulate_decayed(const WySlice& slice, int2 tile,
                                                   float (&kk)[4][4], float (&qk)[4][4]) {
  const bool adjacent = tile.x == tile.y + 1;
  const float* const bridge =
      slice.bridge + (adjacent ? 0 : bridge_of(tile.x, tile.y)) * kChannels;
#pragma unroll 1
  for (int chunk = 0; chunk < kChannels / 4; ++chunk) {
    const float4 between =
        adjacent ? make_float4(1.0f, 1.0f, 1.0f, 1.0f) : shared4(bridge + 4 * chunk);
    float4 column[4];
#pragma unroll
    for (int b = 0; b < 4; ++b) {
      column[b] = multiply4(between, shared4(slice.k_after + slice_at(4 * tile.y + b, chunk)));
    }
#pragma unroll
    for (int a = 0; a < 4; ++a) {
      const float4 key = shared4(slice.k_before + slice_at(4 * tile.x + a, chunk));
      const float4 query = shared4(slice.q_before + slice_at(4 * tile.x + a, chunk));
#pragma unroll
      for (int b = 0; b < 4; ++b) {
        kk[a][b] = dot4(key, column[b], kk[a][b]);
        qk[a][b] = dot4(query, column[b], qk[a][b]);
      }
    }
  }
}

// The same on the diagonal, columns up to the row.
__device__ __forceinline__ void accumulate_diagonal(const WySlice& slice, int group,
                                                    float (&kk)[4][4], float (&qk)[4][4]) {
#pragma unroll 1
  for (int chunk = 0; chunk < kChannels / 4; ++chunk) {
    float4 sums[4], keys[4];
#pragma unroll
    for (int a = 0; a < 4; ++a) {
      const int at = slice_at(4 * group + a, chunk);
      sums[a] = shared4(slice.sums + at), keys[a] = shared4(slice.k + at);
      const float4 query = shared4(slice.q + at);
      qk[a][a] = dot4(query, keys[a], qk[a][a]);
#pragma unroll
      for (int b = 0; b < a; ++b) {
        const float4 column = multiply4(raised_difference4(sums[a], sums[b]), keys[b]);
        kk[a][b] = dot4(keys[a], column, kk[a][b]);
        qk[a][b] = dot4(query, column, qk[a][b]);
      }
    }
  }
}

// What the second launch takes of a chunk and value head, dense: w, qd, kd [C, Dk] and p [C, C] of one
// type, decay [Dk] in f32.
template <typename R>
struct WyPlaces {
  R *w, *p, *qd, *kd;
  float* decay;
  __device__ __forceinline__ WyPlaces at(i64 place, int key_dim) const {
    const i64 rows = place * kMostChunkRows;
    return {w + rows * key_dim, p + rows * kMostChunkRows, qd + rows * key_dim,
            kd + rows * key_dim, decay + place * key_dim};
  }
};

// One chunk and value head of the row tensors.
template <typename T>
struct WyRows {
  const T *q, *k;  // of the first row and the head's first channel
  const float* g;
  i64 q_stride, k_stride, g_stride;
  int n, key_dim;
  float least;
};

// This thread's group of rows and its channel of every slice: the decayed rows go out, K e^G to w,
// Q e^G and K e^(G_n - G), and `tile` of both products is summed. `totals`: G of every group and channel,
// in f64, as all sums longer than a group are.
template <typename T>
__device__ __forceinline__ void decayed_products(WySlice& slice, double* totals,
                                                 const WyRows<T>& rows,
                                                 const WyPlaces<float>& to, int2 tile,
                                                 bool has_tile, float (&kk)[4][4],
                                                 float (&qk)[4][4]) {
  const int thread = threadIdx.x, group = thread / kChannels, channel = thread % kChannels;
  const int first = kGroupRows * group;
  for (int column = channel; column < rows.key_dim; column += kChannels) {
    float key[kGroupRows], query[kGroupRows], sums[kGroupRows];
    double through = 0.0;
#pragma unroll
    for (int a = 0; a < kGroupRows; ++a) {
      const bool live = first + a < rows.n;
      const i64 row = live ? first + a : 0;
      key[a] = live ? widen(__ldg(rows.k + row * rows.k_stride + column)) : 0.0f;
      query[a] = live ? widen(__ldg(rows.q + row * rows.q_stride + column)) : 0.0f;
      if (live) {
        through += clamped_decay(__ldg(rows.g + row * rows.g_stride + column), rows.least);
      }
      sums[a] = static_cast<float>(through);
    }
    const float sum = sums[kGroupRows - 1];
    totals[thread] = through;
    __syncthreads();  // totals are there; the slice before is read

    // Log decays of the rows before and after the group: the chunk ends at its last valid row.
    double before = 0.0, after = 0.0, between = 0.0;
    for (int other = 0; other < group; ++other) before += totals[other * kChannels + channel];
    for (int other = kGroups - 1; other > group; --other) {
      after += totals[other * kChannels + channel];
    }
    if (group == 0) to.decay[column] = expf(static_cast<float>(through + after));
    for (int other = group - 2; other >= 0; --other) {
      between += totals[(other + 1) * kChannels + channel];
      slice.bridge[bridge_of(group, other) * kChannels + channel] =
          expf(static_cast<float>(between));
    }
#pragma unroll
    for (int a = 0; a < kGroupRows; ++a) {
      const int row = first + a;
      const int at = slice_at(row, channel >> 2) + (channel & 3);
      const float since = expf(sums[a]), until = expf(sum - sums[a]);
      slice.k[at] = key[a], slice.q[at] = query[a], slice.sums[at] = sums[a];
      slice.k_before[at] = since * key[a], slice.q_before[at] = since * query[a];
      slice.k_after[at] = until * key[a];
      if (row < rows.n) {
        const float entering = expf(static_cast<float>(before + sums[a]));
        to.w[row * rows.key_dim + column] = entering * key[a];
        to.qd[row * rows.key_dim + column] = entering * query[a];
        to.kd[row * rows.key_dim + column] =
            expf(static_cast<float>((through - sums[a]) + after)) * key[a];
      }
    }
    __syncthreads();  // the slice is there
    if (has_tile) {
      if (tile.x == tile.y) {
        accumulate_diagonal(slice, tile.x, kk, qk);
      } else {
        accumulate_decayed(slice, tile, kk, qk);
      }
    }
  }
}

// -L to shared memory and P to its place.
__device__ __forceinline__ void store_products(float* s_minus_lower, float* p, int2 tile,
                                               const float* beta, int n, const float (&kk)[4][4],
                                               const float (&qk)[4][4]) {
#pragma unroll
  for (int a = 0; a < 4; ++a) {
    const int i = 4 * tile.x + a;
    float minus[4], products[4];
#pragma unroll
    for (int b = 0; b < 4; ++b) {
      const int j = 4 * tile.y + b;
      minus[b] = j < i && i < n ? -(beta[i] * kk[a][b]) : 0.0f;
      products[b] = j <= i ? qk[a][b] : 0.0f;
    }
    store4(s_minus_lower + i * kMostChunkRows + 4 * tile.y,
           make_float4(minus[0], minus[1], minus[2], minus[3]));
    if (i < n) {
      store4(p + i * kMostChunkRows + 4 * tile.y,
             make_float4(products[0], products[1], products[2], products[3]));
    }
  }
}

// ---- (1) chunk_wy: a block per chunk and value head, a thread per group of rows and channel ----
//
// u = T diag(beta) V and w = T diag(beta) (K e^G) are solved for.

template <typename T>
struct WyCall {
  const T *q, *k, *v;
  const float *g, *beta;
  const void* cu_seqlens;
  const i64* slot_of;
  i64 q_stride, k_stride, v_stride, g_stride, beta_stride;
  int sequences, key_heads, value_heads, key_dim, value_dim, cu_is_i64, head_map_cyclic;
  float least;
};

template <typename T>
__device__ __forceinline__ WyRows<T> rows_of_chunk(const WyCall<T>& call, i64 row0, int head,
                                                   int key_head, int n) {
  const i64 key_column = static_cast<i64>(key_head) * call.key_dim;
  return {call.q + row0 * call.q_stride + key_column,
          call.k + row0 * call.k_stride + key_column,
          call.g + row0 * call.g_stride + static_cast<i64>(head) * call.key_dim,
          call.q_stride, call.k_stride, call.g_stride, n, call.key_dim, call.least};
}

template <typename T>
__device__ __forceinline__ void chunk_wy(const WyCall<T>& call, float* u,
                                         const WyPlaces<float>& all) {
  __shared__ __align__(128) WySlice s_slice;
  __shared__ __align__(128) float s_minus_lower[kMostChunkRows * kMostChunkRows];  // -L
  __shared__ float s_beta[kMostChunkRows];

  const int chunk = blockIdx.x / call.value_heads;
  const int head = blockIdx.x - chunk * call.value_heads;
  const ChunkPlace place =
      locate_chunk(call.cu_seqlens, call.cu_is_i64, call.sequences, kMostChunkRows, chunk);
  if (place.sequence < 0) return;
  if (__ldg(call.slot_of + place.sequence) < 0) return;
  const int n = place.rows, thread = threadIdx.x;
  const i64 row0 = place.first_row;
  const int key_head =
      key_head_of(head, call.key_heads, call.value_heads, call.head_map_cyclic);
  const WyRows<T> rows = rows_of_chunk(call, row0, head, key_head, n);
  const i64 place_of = static_cast<i64>(chunk) * call.value_heads + head;
  const WyPlaces<float> to = all.at(place_of, call.key_dim);
  if (thread < kMostChunkRows) {
    s_beta[thread] =
        thread < n ? __ldg(call.beta + (row0 + thread) * call.beta_stride + head) : 0.0f;
  }

  const int2 tile = triangle_tile(thread);
  // The solve goes by eight rows of L: the last eight are all written.
  const bool has_tile = thread < triangle_tiles_of((n + 7) & ~7);
  float kk[4][4] = {}, qk[4][4] = {};
  decayed_products(s_slice, reinterpret_cast<double*>(s_minus_lower), rows, to, tile, has_tile, kk, qk);
  if (has_tile) store_products(s_minus_lower, to.p, tile, s_beta, n, kk, qk);
  __syncthreads();  // L is there, and what other threads left in w; the slice is read

  float x[kMostChunkRows];
  // A thread a column of [beta V | beta e^G K]; w holds its own right-hand side.
  if (thread >= call.value_dim + call.key_dim) return;
  const bool is_value = thread < call.value_dim;
  const int width = is_value ? call.value_dim : call.key_dim;
  float* const solution = is_value ? u + place_of * kMostChunkRows * call.value_dim + thread
                                   : to.w + (thread - call.value_dim);
  if (is_value) {
    const T* from =
        call.v + row0 * call.v_stride + static_cast<i64>(head) * call.value_dim + thread;
#pragma unroll
    for (int i = 0; i < kMostChunkRows; ++i, from += call.v_stride) {
      x[i] = i < n ? widen(*from) : 0.0f;
    }
  } else {
#pragma unroll
    for (int i = 0; i < kMostChunkRows; ++i) x[i] = i < n ? solution[i * width] : 0.0f;
  }
  substitute_forward(x, s_minus_lower, s_beta, n, solution, width);
}

// ---- (2) chunk_carry: a block per sequence, value head and 32 value channels ----
//
// The first half of the threads makes delta and carries the state, the second makes o.

constexpr int kHalfThreads = kDeltaThreads;
constexpr int kCarryThreads = 2 * kHalfThreads;

template <typename T, int DK>
__device__ __forceinline__ void chunk_carry(
    const float* u, const float* w, const float* p, const float* qd, const float* kd,
    const float* decay, const void* __restrict__ cu_seqlens, const i64* __restrict__ slot_of,
    float* s, T* __restrict__ o, i64 s_stride, i64 o_stride, int value_heads, int value_dim,
    int cu_is_i64, int initial_zero, float scale) {
  using Share = StateShare<DK>;
  __shared__ __align__(128) float s_state[kTileValues * DK];
  __shared__ __align__(128) float s_slice[2][kSliceFloats];
  __shared__ __align__(128) float s_delta[kMostChunkRows * kTileValues];

  const int half = threadIdx.x / kHalfThreads, thread = threadIdx.x % kHalfThreads;
  const int tiles = value_dim / kTileValues;
  const int sequence_head = blockIdx.x / tiles;
  const int value0 = (blockIdx.x - sequence_head * tiles) * kTileValues;
  const int sequence = sequence_head / value_heads;
  const int head = sequence_head - sequence * value_heads;
  const i64 slot = __ldg(slot_of + sequence);
  if (slot < 0) return;
  const i64 begin = row_offset(cu_seqlens, cu_is_i64, sequence);
  const i64 rows = row_offset(cu_seqlens, cu_is_i64, sequence + 1) - begin;
  if (rows == 0 && !initial_zero) return;
  const int chunks = chunks_of(rows, kMostChunkRows);
  const int first_chunk = chunks_before(cu_seqlens, cu_is_i64, kMostChunkRows, sequence);

  // The first half's part of the state: rows own_value + a, chunks own_chunk + kKeyLanes p.
  const int own_value = thread / Share::kKeyLanes * Share::kValues;
  const int own_chunk = thread % Share::kKeyLanes;
  float* const own_slot =
      s + slot * s_stride + (static_cast<i64>(head) * value_dim + value0 + own_value) * DK;
  if (half == 0) {
#pragma unroll
    for (int a = 0; a < Share::kValues; ++a) {
#pragma unroll
      for (int piece = own_chunk; piece < DK / 4; piece += Share::kKeyLanes) {
        const float4* const at = reinterpret_cast<const float4*>(own_slot + a * DK + piece * 4);
        store4(s_state + tile_at(own_value + a, piece, DK), initial_zero ? zero4() : *at);
      }
    }
  }

  const int row_group = thread / kValueGroups, value_group = thread % kValueGroups;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const i64 row0 = begin + static_cast<i64>(chunk) * kMostChunkRows;
    const int n = static_cast<int>(min(begin + rows - row0, static_cast<i64>(kMostChunkRows)));
    const i64 place = static_cast<i64>(first_chunk + chunk) * value_heads + head;

    // w S^T and Q S^T, a half each, a slice of channels after another.
    const float* const left = (half == 0 ? w : qd) + place * kMostChunkRows * DK;
    float carried[4][4] = {};
    for (int slice = 0; slice < DK / kSliceColumns; ++slice) {
#pragma unroll
      for (int part = 0; part < kStaged; ++part) {
        const int at = thread + kHalfThreads * part;
        const int row = at / kSliceChunks, piece = at % kSliceChunks;
        store4(s_slice[half] + tile_at(row, piece, kSliceColumns),
               row < n ? load4(left + row * DK + slice * kSliceColumns + piece * 4) : zero4());
      }
      __syncthreads();
      accumulate_dots(s_slice[half], row_group, kSliceColumns, 0, s_state, value_group, DK,
                      slice * kSliceChunks, carried);
      __syncthreads();  // the slices are read; others may take their place
    }

    if (half == 0) {
#pragma unroll
      for (int a = 0; a < 4; ++a) {
        const int row = 4 * row_group + a;
        float4 difference = zero4();
        if (row < n) {
          const float4 own = load4(u + (place * kMostChunkRows + row) * value_dim + value0 +
                                   4 * value_group);
          difference = make_float4(own.x - carried[a][0], own.y - carried[a][1],
                                   own.z - carried[a][2], own.w - carried[a][3]);
        }
        store4(s_delta + row * kTileValues + 4 * value_group, difference);
      }
    }
    __syncthreads();  // delta is there, and the entering state is read

    if (half == 0) {
      const float* const keys = kd + place * kMostChunkRows * DK + own_chunk * 4;
      float4 state[Share::kValues][Share::kKeyPieces];
#pragma unroll
      for (int p_at = 0; p_at < Share::kKeyPieces; ++p_at) {
        const int piece = own_chunk + Share::kKeyLanes * p_at;
        const float4 kept = load4(decay + place * DK + piece * 4);
#pragma unroll
        for (int a = 0; a < Share::kValues; ++a) {
          state[a][p_at] =
              multiply4(kept, shared4(s_state + tile_at(own_value + a, piece, DK)));
        }
      }
#pragma unroll 2
      for (int row = 0; row < n; ++row) {
        float change[Share::kValues];
#pragma unroll
        for (int a = 0; a < Share::kValues; ++a) {
          change[a] = s_delta[row * kTileValues + own_value + a];
        }
#pragma unroll
        for (int p_at = 0; p_at < Share::kKeyPieces; ++p_at) {
          const float4 key = load4(keys + row * DK + Share::kKeyLanes * 4 * p_at);
#pragma unroll
          for (int a = 0; a < Share::kValues; ++a) {
            state[a][p_at] = axpy4(change[a], key, state[a][p_at]);
          }
        }
      }
#pragma unroll
      for (int a = 0; a < Share::kValues; ++a) {
#pragma unroll
        for (int p_at = 0; p_at < Share::kKeyPieces; ++p_at) {
          const int piece = own_chunk + Share::kKeyLanes * p_at;
          const int at = tile_at(own_value + a, piece, DK);
          store4(s_state + at, state[a][p_at]);
        }
      }
    } else {
      const float* const products = p + (place * kMostChunkRows + 4 * row_group) * kMostChunkRows;
      for (int group = 0; group <= row_group && 4 * row_group < n; ++group) {
        float4 weights[4];
#pragma unroll
        for (int a = 0; a < 4; ++a) {
          weights[a] = 4 * row_group + a < n
                           ? load4(products + a * kMostChunkRows + 4 * group)
                           : zero4();
        }
#pragma unroll
        for (int b = 0; b < 4; ++b) {
          const float4 d = shared4(s_delta + (4 * group + b) * kTileValues + 4 * value_group);
#pragma unroll
          for (int a = 0; a < 4; ++a) {
            const float4 all = weights[a];
            const float weight = b == 0 ? all.x : b == 1 ? all.y : b == 2 ? all.z : all.w;
            carried[a][0] = fmaf(weight, d.x, carried[a][0]);
            carried[a][1] = fmaf(weight, d.y, carried[a][1]);
            carried[a][2] = fmaf(weight, d.z, carried[a][2]);
            carried[a][3] = fmaf(weight, d.w, carried[a][3]);
          }
        }
      }
#pragma unroll
      for (int a = 0; a < 4; ++a) {
        const int row = 4 * row_group + a;
        if (row < n) {
          store4(o + (row0 + row) * o_stride + static_cast<i64>(head) * value_dim + value0 +
                     4 * value_group,
                 scale4(scale, make_float4(carried[a][0], carried[a][1], carried[a][2],
                                           carried[a][3])));
        }
      }
    }
    __syncthreads();  // the state has left the chunk; delta is read
  }

  if (half == 0) {
#pragma unroll
    for (int a = 0; a < Share::kValues; ++a) {
#pragma unroll
      for (int piece = own_chunk; piece < DK / 4; piece += Share::kKeyLanes) {
        store4(own_slot + a * DK + piece * 4,
               shared4(s_state + tile_at(own_value + a, piece, DK)));
      }
    }
  }
}
