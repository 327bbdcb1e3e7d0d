// gdn_chunk's exact class: f32 storage, f32 arithmetic, in three launches (see gdn_chunk.cu).
//
// Matrix tiles sit in shared memory as rows of 16-byte chunks, permuted within a row by the row's
// group of four: a thread's 4x4 outer products then read both operands in 16-byte loads without
// bank conflicts and without padding.
#pragma once

#include "gdn_chunk_common.cuh"

constexpr int kSliceColumns = 32;                            // channels of one shared slice
constexpr int kSliceFloats = kMostChunkRows * kSliceColumns;     // 8 KiB
constexpr int kSliceChunks = kSliceColumns / 4;

// Offset of 16-byte chunk `chunk` of row `row` in a permuted tile of `columns` floats a row.
__device__ __forceinline__ int tile_at(int row, int chunk, int columns) {
  return row * columns + ((chunk ^ ((row >> 2) & 7)) << 2);
}

// acc[a][b] += row a of the left tile's row group . row b of the right one's, over 32 channels that
// begin at 16-byte chunk left_chunk and right_chunk of a row.
__device__ __forceinline__ void accumulate_dots(const float* left_tile, int left_group,
                                                int left_columns, int left_chunk,
                                                const float* right_tile, int right_group,
                                                int right_columns, int right_chunk,
                                                float (&acc)[4][4]) {
  const float* const left = left_tile + 4 * left_group * left_columns;
  const float* const right = right_tile + 4 * right_group * right_columns;
#pragma unroll 2
  for (int chunk = 0; chunk < kSliceChunks; ++chunk) {
    const float* const left_at = left + (((left_chunk + chunk) ^ (left_group & 7)) << 2);
    const float* const right_at = right + (((right_chunk + chunk) ^ (right_group & 7)) << 2);
    float4 l[4], r[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      l[i] = shared4(left_at + i * left_columns);
      r[i] = shared4(right_at + i * right_columns);
    }
#pragma unroll
    for (int a = 0; a < 4; ++a) {
#pragma unroll
      for (int b = 0; b < 4; ++b) acc[a][b] = dot4(l[a], r[b], acc[a][b]);
    }
  }
}

// The lower triangle in 4x4 tiles, row by row: tile -> (row group, column group <= row group).
__device__ __forceinline__ int2 triangle_tile(int tile) {
  const int row = static_cast<int>((sqrtf(8.0f * static_cast<float>(tile) + 1.0f) - 1.0f) * 0.5f);
  return make_int2(row, tile - row * (row + 1) / 2);
}

__device__ __forceinline__ int triangle_tiles_of(int rows) {
  const int groups = (rows + 3) / 4;
  return groups * (groups + 1) / 2;
}

// ---- (1) recompute_wu: a block per chunk and value head ----

// Forward substitution for one column: (I + L) x = factor b, x given as b, n rows of it to `to`.
__device__ __forceinline__ void substitute_forward(float (&x)[kMostChunkRows],
                                                   const float* s_minus_lower, const float* factor,
                                                   int n, float* to, int width) {
#pragma unroll
  for (int first = 0; first < kMostChunkRows; first += 8) {
    if (first < n) {
#pragma unroll
      for (int i = first; i < first + 8; ++i) x[i] *= factor[i];
#pragma unroll
      for (int j = 0; j < first; j += 4) {
        const float4 solved = make_float4(x[j], x[j + 1], x[j + 2], x[j + 3]);
#pragma unroll
        for (int i = first; i < first + 8; ++i) {
          x[i] = dot4(shared4(s_minus_lower + i * kMostChunkRows + j), solved, x[i]);
        }
      }
#pragma unroll
      for (int i = first + 1; i < first + 8; ++i) {
#pragma unroll
        for (int j = first; j < i; ++j) x[i] = fmaf(s_minus_lower[i * kMostChunkRows + j], x[j], x[i]);
      }
#pragma unroll
      for (int i = first; i < first + 8; ++i, to += width) {
        if (i < n) *to = x[i];
      }
    }
  }
}

constexpr int kWuThreads = 256;  // one a column of [V | K] in the solve

__device__ __forceinline__ void recompute_wu(
    const float* __restrict__ k, const float* __restrict__ v, const float* __restrict__ g,
    const float* __restrict__ beta, const void* __restrict__ cu_seqlens,
    const i64* __restrict__ slot_of, float2* __restrict__ g_sum, float* __restrict__ u,
    float* __restrict__ w, i64 k_stride, i64 v_stride, i64 g_stride, i64 beta_stride,
    int chunk_rows, int sequences, int key_heads, int value_heads, int key_dim, int value_dim,
    int cu_is_i64, int head_map_cyclic) {
  __shared__ __align__(128) float s_keys[2][kSliceFloats];
  __shared__ __align__(128) float s_minus_lower[kMostChunkRows * kMostChunkRows];  // -L
  __shared__ float2 s_g[kMostChunkRows];
  __shared__ float s_beta[kMostChunkRows], s_beta_decay[kMostChunkRows];

  const int chunk = blockIdx.x / value_heads;
  const int head = blockIdx.x - chunk * value_heads;
  const ChunkPlace place = locate_chunk(cu_seqlens, cu_is_i64, sequences, chunk_rows, chunk);
  if (place.sequence < 0) return;
  if (__ldg(slot_of + place.sequence) < 0) return;
  const int n = place.rows;
  const i64 row0 = place.first_row;
  const int thread = threadIdx.x;
  const int key_head = key_head_of(head, key_heads, value_heads, head_map_cyclic);
  const float* const keys = k + row0 * k_stride + static_cast<i64>(key_head) * key_dim;

  if (thread < 32) {  // two rows a lane
    const int row = 2 * thread;
    const float first = row < n ? __ldg(g + (row0 + row) * g_stride + head) : 0.0f;
    const float second = row + 1 < n ? __ldg(g + (row0 + row + 1) * g_stride + head) : 0.0f;
    float2 sums[2];
    chunk_sums(first, second, sums);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const bool live = row + half < n;
      const float rate = live ? __ldg(beta + (row0 + row + half) * beta_stride + head) : 0.0f;
      s_g[row + half] = sums[half];
      s_beta[row + half] = rate;
      s_beta_decay[row + half] = rate * expf(sums[half].x);
      if (live) g_sum[(row0 + row + half) * value_heads + head] = sums[half];
    }
  }

  // K K^T, lower triangle. Each thread brings two 16-byte chunks of a slice, rows 32 apart.
  const int load_row = thread >> 3, load_chunk = thread & 7;
  float4 staged[2];
  const auto stage = [&](int slice) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = load_row + 32 * half;
      staged[half] = row < n ? load4(keys + row * k_stride + slice * kSliceColumns + load_chunk * 4)
                             : zero4();
    }
  };
  const int2 tile = triangle_tile(thread);
  // The solve goes by eight rows, so the last eight of L are all written.
  const bool has_tile = thread < triangle_tiles_of((n + 7) & ~7);
  float dots[4][4] = {};
  const int slices = key_dim / kSliceColumns;
  stage(0);
  for (int slice = 0; slice < slices; ++slice) {
    float* const buffer = s_keys[slice & 1];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      store4(buffer + tile_at(load_row + 32 * half, load_chunk, kSliceColumns), staged[half]);
    }
    __syncthreads();
    if (slice + 1 < slices) stage(slice + 1);
    if (has_tile) {
      accumulate_dots(buffer, tile.x, kSliceColumns, 0, buffer, tile.y, kSliceColumns, 0, dots);
    }
  }
  if (has_tile) {
#pragma unroll
    for (int a = 0; a < 4; ++a) {
      const int i = 4 * tile.x + a;
      float minus[4];
#pragma unroll
      for (int b = 0; b < 4; ++b) {
        const int j = 4 * tile.y + b;
        minus[b] = 0.0f;
        if (j < i && i < n) minus[b] = -(s_beta[i] * decay_between(s_g[i], s_g[j]) * dots[a][b]);
      }
      store4(s_minus_lower + i * kMostChunkRows + 4 * tile.y,
             make_float4(minus[0], minus[1], minus[2], minus[3]));
    }
  }
  __syncthreads();

  // Forward substitution, (I + L) x = b, a thread a column of b = [beta V | beta e^G K].
  if (thread >= value_dim + key_dim) return;
  const bool is_value = thread < value_dim;
  const int column = is_value ? thread : thread - value_dim;
  const float* from =
      is_value ? v + row0 * v_stride + static_cast<i64>(head) * value_dim + column : keys + column;
  const i64 from_stride = is_value ? v_stride : k_stride;
  const float* const factor = is_value ? s_beta : s_beta_decay;
  const i64 place_of = static_cast<i64>(chunk) * value_heads + head;
  const int width = is_value ? value_dim : key_dim;
  float* to = (is_value ? u : w) + place_of * chunk_rows * width + column;

  float x[kMostChunkRows];
#pragma unroll
  for (int i = 0; i < kMostChunkRows; ++i, from += from_stride) x[i] = i < n ? *from : 0.0f;
  substitute_forward(x, s_minus_lower, factor, n, to, width);
}

// ---- (2) chunk_delta_h: a block per sequence, value head and 32 value channels ----

constexpr int kDeltaThreads = 128;
constexpr int kTileValues = 32;
constexpr int kStaged = kSliceFloats / (4 * kDeltaThreads);  // 16-byte chunks a thread brings
constexpr int kValueGroups = kTileValues / 4;
constexpr int kWarpRows = 4 * 32 / kValueGroups;  // rows of w S^T a warp has

// How the threads share the [kTileValues, DK] state tile in the rank-64 update.
template <int DK>
struct StateShare {
  static constexpr int kKeyLanes = DK == 32 ? 8 : 16;
  static constexpr int kKeyPieces = DK / (4 * kKeyLanes);              // 16-byte chunks a row
  static constexpr int kValues = kTileValues * kKeyLanes / kDeltaThreads;  // rows: 4, or 2 at DK 32
  static_assert(kValues == 4 || kValues == 2, "changes are read in 8 or 16 bytes");
};

template <int DK>
__device__ __forceinline__ void chunk_delta_h(
    const float* __restrict__ k, const float2* __restrict__ g_sum, const float* __restrict__ u,
    const float* __restrict__ w, const void* __restrict__ cu_seqlens,
    const i64* __restrict__ slot_of, float* s, float* __restrict__ s_chunk,
    float* __restrict__ delta, i64 k_stride, i64 s_stride, int chunk_rows, int key_heads,
    int value_heads, int value_dim, int cu_is_i64, int head_map_cyclic, int initial_zero) {
  using Share = StateShare<DK>;
  constexpr int kSlices = DK / kSliceColumns;           // of w, and as many of k
  constexpr int kKeyRows = kSliceFloats / DK;           // rows of k in a slice
  constexpr int kChunksPerKeyRow = DK / 4;
  __shared__ __align__(128) float s_state[kTileValues * DK];
  __shared__ __align__(128) float s_slice[2][kSliceFloats];
  __shared__ __align__(128) float s_delta[kMostChunkRows * kTileValues];
  __shared__ float2 s_g[kMostChunkRows];

  const int thread = threadIdx.x;
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
  const int chunks = chunks_of(rows, chunk_rows);
  const int first_chunk = chunks_before(cu_seqlens, cu_is_i64, chunk_rows, sequence);
  const int key_head = key_head_of(head, key_heads, value_heads, head_map_cyclic);
  const float* const keys = k + begin * k_stride + static_cast<i64>(key_head) * DK;

  // This thread's part of the state: rows own_value + a, chunks own_chunk + kKeyLanes p.
  const int own_value = thread / Share::kKeyLanes * Share::kValues;
  const int own_chunk = thread % Share::kKeyLanes;
  float* const own_slot =
      s + slot * s_stride + (static_cast<i64>(head) * value_dim + value0 + own_value) * DK;
#pragma unroll
  for (int a = 0; a < Share::kValues; ++a) {
#pragma unroll
    for (int p = 0; p < Share::kKeyPieces; ++p) {
      const int piece = own_chunk + Share::kKeyLanes * p;
      const float4 initial =
          initial_zero ? zero4() : *reinterpret_cast<const float4*>(own_slot + a * DK + piece * 4);
      store4(s_state + tile_at(own_value + a, piece, DK), initial);
    }
  }

  // Slices stream through two buffers, one barrier each: w's channel slices, then k's row slices.
  // The next slice's global loads are in flight while the current one is used.
  float4 staged[kStaged];
  const auto stage = [&](int chunk, int slice) {
    const i64 first_row = static_cast<i64>(chunk) * chunk_rows;
    const int n = static_cast<int>(min(rows - first_row, static_cast<i64>(chunk_rows)));
    if (slice < kSlices) {
      const int row = thread / kSliceChunks;
      const i64 place_of = static_cast<i64>(first_chunk + chunk) * value_heads + head;
      const i64 w_row = place_of * chunk_rows + row;
      const float* const from = w + w_row * DK + slice * kSliceColumns + thread % kSliceChunks * 4;
#pragma unroll
      for (int part = 0; part < kStaged; ++part) {
        constexpr int kStep = kDeltaThreads / kSliceChunks;
        staged[part] = row + kStep * part < n ? load4(from + kStep * part * DK) : zero4();
      }
    } else {
      const int row = (slice - kSlices) * kKeyRows + thread / kChunksPerKeyRow;
      const float* const from = keys + (first_row + row) * k_stride + thread % kChunksPerKeyRow * 4;
#pragma unroll
      for (int part = 0; part < kStaged; ++part) {
        constexpr int kStep = kDeltaThreads / kChunksPerKeyRow;
        staged[part] = row + kStep * part < n ? load4(from + kStep * part * k_stride) : zero4();
      }
    }
  };
  int buffer = 0;

  // In the product w S^T a warp has kWarpRows rows and all values, a thread four of each.
  const int row_group = thread / kValueGroups, value_group = thread % kValueGroups;
  const int warp_first_row = (thread >> 5) * kWarpRows;

  if (chunks > 0) stage(0, 0);
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const i64 row0 = begin + static_cast<i64>(chunk) * chunk_rows;
    const int n = static_cast<int>(min(begin + rows - row0, static_cast<i64>(chunk_rows)));
    const i64 place_of = static_cast<i64>(first_chunk + chunk) * value_heads + head;
    if (thread < kMostChunkRows) {
      s_g[thread] = thread < n ? __ldg(g_sum + (row0 + thread) * value_heads + head)
                               : make_float2(0.0f, 0.0f);
    }
    float4 u_row[4];
#pragma unroll
    for (int a = 0; a < 4; ++a) {
      const int row = 4 * row_group + a;
      u_row[a] = row < n ? load4(u + (place_of * chunk_rows + row) * value_dim + value0 +
                                 4 * value_group)
                         : zero4();
    }

    float carried[4][4] = {};  // w S^T
    for (int slice = 0; slice < kSlices; ++slice) {
      float* const tile = s_slice[buffer];
      buffer ^= 1;
#pragma unroll
      for (int part = 0; part < kStaged; ++part) {
        const int at = thread + kDeltaThreads * part;
        store4(tile + tile_at(at / kSliceChunks, at % kSliceChunks, kSliceColumns), staged[part]);
      }
      __syncthreads();
      stage(chunk, slice + 1);
      if (warp_first_row < n) {
        accumulate_dots(tile, row_group, kSliceColumns, 0, s_state, value_group, DK,
                        slice * kSliceChunks, carried);
      }
    }

    // The chunk's own decay ends at its last valid row, not at row 63.
    const float2 g_last = s_g[n - 1];
#pragma unroll
    for (int a = 0; a < 4; ++a) {
      const int row = 4 * row_group + a;
      float4 decayed = zero4();
      if (row < n) {
        const float4 difference =
            make_float4(u_row[a].x - carried[a][0], u_row[a].y - carried[a][1],
                        u_row[a].z - carried[a][2], u_row[a].w - carried[a][3]);
        store4(delta + (place_of * chunk_rows + row) * value_dim + value0 + 4 * value_group,
               difference);
        decayed = scale4(decay_between(g_last, s_g[row]), difference);
      }
      store4(s_delta + row * kTileValues + 4 * value_group, decayed);
    }

    const float decay = expf(g_last.x);
    float4 state[Share::kValues][Share::kKeyPieces];
    float* const entering =
        s_chunk + (place_of * value_dim + value0 + own_value) * static_cast<i64>(DK);
#pragma unroll
    for (int a = 0; a < Share::kValues; ++a) {
#pragma unroll
      for (int p = 0; p < Share::kKeyPieces; ++p) {
        const int piece = own_chunk + Share::kKeyLanes * p;
        const float4 before = shared4(s_state + tile_at(own_value + a, piece, DK));
        store4(entering + a * DK + piece * 4, before);
        state[a][p] = scale4(decay, before);
      }
    }
    for (int first = 0; first < n; first += kKeyRows) {
      float* const tile = s_slice[buffer];
      buffer ^= 1;
#pragma unroll
      for (int part = 0; part < kStaged; ++part) {
        store4(tile + (thread + kDeltaThreads * part) * 4, staged[part]);
      }
      __syncthreads();  // also publishes delta, and ends every read of the entering state
      if (first + kKeyRows < n) {
        stage(chunk, kSlices + first / kKeyRows + 1);
      } else if (chunk + 1 < chunks) {
        stage(chunk + 1, 0);
      }
      const int live = min(kKeyRows, n - first);
#pragma unroll 4
      for (int row = 0; row < live; ++row) {
        float change[Share::kValues];
        const float* const change_row = s_delta + (first + row) * kTileValues + own_value;
        if constexpr (Share::kValues == 4) {
          const float4 four = shared4(change_row);
          change[0] = four.x, change[1] = four.y, change[2] = four.z, change[3] = four.w;
        } else {
          const float2 two = *reinterpret_cast<const float2*>(change_row);
          change[0] = two.x, change[1] = two.y;
        }
#pragma unroll
        for (int p = 0; p < Share::kKeyPieces; ++p) {
          const float4 key = shared4(tile + row * DK + (own_chunk + Share::kKeyLanes * p) * 4);
#pragma unroll
          for (int a = 0; a < Share::kValues; ++a) state[a][p] = axpy4(change[a], key, state[a][p]);
        }
      }
    }
#pragma unroll
    for (int a = 0; a < Share::kValues; ++a) {
#pragma unroll
      for (int p = 0; p < Share::kKeyPieces; ++p) {
        const int piece = own_chunk + Share::kKeyLanes * p;
        store4(s_state + tile_at(own_value + a, piece, DK), state[a][p]);
      }
    }
  }

#pragma unroll
  for (int a = 0; a < Share::kValues; ++a) {
#pragma unroll
    for (int p = 0; p < Share::kKeyPieces; ++p) {
      const int piece = own_chunk + Share::kKeyLanes * p;
      store4(own_slot + a * DK + piece * 4, shared4(s_state + tile_at(own_value + a, piece, DK)));
    }
  }
}

// ---- (3) chunk_fwd_o: a block per chunk and value head ----

constexpr int kOutputThreads = 256;
constexpr int kOutputValues = 64;  // value channels of one pass

__device__ __forceinline__ void chunk_fwd_o(
    const float* __restrict__ q, const float* __restrict__ k, const float2* __restrict__ g_sum,
    const float* __restrict__ s_chunk, const float* __restrict__ delta,
    const void* __restrict__ cu_seqlens, const i64* __restrict__ slot_of, float* __restrict__ o,
    i64 q_stride, i64 k_stride, i64 o_stride, int chunk_rows, int sequences, int key_heads,
    int value_heads, int key_dim, int value_dim, int cu_is_i64, int head_map_cyclic, float scale) {
  __shared__ __align__(128) float s_tiles[2 * kSliceFloats];  // two slices, or 64 rows of delta
  __shared__ __align__(128) float s_p[kMostChunkRows * kMostChunkRows];
  __shared__ float2 s_g[kMostChunkRows];

  const int chunk = blockIdx.x / value_heads;
  const int head = blockIdx.x - chunk * value_heads;
  const ChunkPlace place = locate_chunk(cu_seqlens, cu_is_i64, sequences, chunk_rows, chunk);
  if (place.sequence < 0) return;
  if (__ldg(slot_of + place.sequence) < 0) return;
  const int n = place.rows;
  const i64 row0 = place.first_row;
  const i64 place_of = static_cast<i64>(chunk) * value_heads + head;
  const int thread = threadIdx.x, warp = thread >> 5, lane = thread & 31;
  const int key_head = key_head_of(head, key_heads, value_heads, head_map_cyclic);
  const float* const queries = q + row0 * q_stride + static_cast<i64>(key_head) * key_dim;
  const float* const keys = k + row0 * k_stride + static_cast<i64>(key_head) * key_dim;
  float* const s_left = s_tiles;
  float* const s_right = s_tiles + kSliceFloats;

  if (thread < kMostChunkRows) {
    s_g[thread] = thread < n ? __ldg(g_sum + (row0 + thread) * value_heads + head)
                             : make_float2(0.0f, 0.0f);
  }

  // Each thread brings two 16-byte chunks of either slice, rows 32 apart.
  const int load_row = thread >> 3, load_chunk = thread & 7;
  float4 left[2], right[2];
  const auto stage_rows = [&](float4(&staged)[2], const float* from, i64 stride, int slice) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = load_row + 32 * half;
      staged[half] = row < n ? load4(from + row * stride + slice * kSliceColumns + load_chunk * 4)
                             : zero4();
    }
  };
  const auto stage_state = [&](int value0, int slice) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int value = value0 + load_row + 32 * half;
      right[half] = value < value_dim
                        ? load4(s_chunk + (place_of * value_dim + value) * key_dim +
                                slice * kSliceColumns + load_chunk * 4)
                        : zero4();
    }
  };
  const auto commit_slices = [&] {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at = tile_at(load_row + 32 * half, load_chunk, kSliceColumns);
      store4(s_left + at, left[half]);
      store4(s_right + at, right[half]);
    }
  };

  // Q K^T, lower triangle.
  const int slices = key_dim / kSliceColumns;
  const int2 tile = triangle_tile(thread);
  const bool has_tile = thread < triangle_tiles_of(n);
  float dots[4][4] = {};
  stage_rows(left, queries, q_stride, 0);
  stage_rows(right, keys, k_stride, 0);
  for (int slice = 0; slice < slices; ++slice) {
    commit_slices();
    __syncthreads();
    if (slice + 1 < slices) {
      stage_rows(left, queries, q_stride, slice + 1);
      stage_rows(right, keys, k_stride, slice + 1);
    } else {
      stage_rows(left, queries, q_stride, 0);
      stage_state(0, 0);
    }
    if (has_tile) {
      accumulate_dots(s_left, tile.x, kSliceColumns, 0, s_right, tile.y, kSliceColumns, 0, dots);
    }
    __syncthreads();  // every thread has read the slices of q and k; others may take their place
  }
  if (has_tile) {
#pragma unroll
    for (int a = 0; a < 4; ++a) {
      const int i = 4 * tile.x + a;
      float p[4];
#pragma unroll
      for (int b = 0; b < 4; ++b) {
        const int j = 4 * tile.y + b;
        p[b] = 0.0f;
        if (j <= i && i < n) p[b] = decay_between(s_g[i], s_g[j]) * dots[a][b];
      }
      store4(s_p + tile_at(i, tile.y, kMostChunkRows), make_float4(p[0], p[1], p[2], p[3]));
      // A warp reads 16 rows and as many columns: the mirror image within them is zero.
      if (tile.x != tile.y && tile.x / 4 == tile.y / 4) {
        store4(s_p + tile_at(4 * tile.y + a, tile.x, kMostChunkRows), zero4());
      }
    }
  }

  // A warp has 16 rows and half of the pass's values, a thread four of each.
  const int row_group = (warp & 3) * 4 + (lane >> 3);
  const int value_group = (warp >> 2) * 8 + (lane & 7);
  for (int value0 = 0; value0 < value_dim; value0 += kOutputValues) {
    const bool active = 4 * row_group < n && value0 + 32 * (warp >> 2) < value_dim;
    float out[4][4] = {};
    for (int slice = 0; slice < slices; ++slice) {
      commit_slices();
      __syncthreads();
      if (slice + 1 < slices) {
        stage_rows(left, queries, q_stride, slice + 1);
        stage_state(value0, slice + 1);
      } else if (value0 + kOutputValues < value_dim) {
        stage_rows(left, queries, q_stride, 0);
        stage_state(value0 + kOutputValues, 0);
      }
      if (active) {
        accumulate_dots(s_left, row_group, kSliceColumns, 0, s_right, value_group, kSliceColumns, 0,
                        out);
      }
      __syncthreads();
    }
    // delta takes the slices' place: [64 rows, 64 values].
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      const int at = thread + kOutputThreads * part;
      const int row = at >> 4, value = value0 + (at & 15) * 4;
      const float4 piece = row < n && value < value_dim
                               ? load4(delta + (place_of * chunk_rows + row) * value_dim + value)
                               : zero4();
      store4(s_tiles + at * 4, piece);
    }
    __syncthreads();
    if (active) {
#pragma unroll
      for (int a = 0; a < 4; ++a) {
        const float decay = expf(s_g[4 * row_group + a].x);
#pragma unroll
        for (int b = 0; b < 4; ++b) out[a][b] *= decay;
      }
      const int last_group = min((warp & 3) * 4 + 4, (n + 3) / 4);  // no later column of P counts
      for (int group = 0; group < last_group; ++group) {
        float4 p[4];
#pragma unroll
        for (int a = 0; a < 4; ++a) {
          p[a] = shared4(s_p + tile_at(4 * row_group + a, group, kMostChunkRows));
        }
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const float4 d = shared4(s_tiles + (4 * group + j) * kOutputValues + 4 * value_group);
#pragma unroll
          for (int a = 0; a < 4; ++a) {
            const float weight = j == 0 ? p[a].x : j == 1 ? p[a].y : j == 2 ? p[a].z : p[a].w;
            out[a][0] = fmaf(weight, d.x, out[a][0]);
            out[a][1] = fmaf(weight, d.y, out[a][1]);
            out[a][2] = fmaf(weight, d.z, out[a][2]);
            out[a][3] = fmaf(weight, d.w, out[a][3]);
          }
        }
      }
#pragma unroll
      for (int a = 0; a < 4; ++a) {
        const int row = 4 * row_group + a;
        if (row < n) {
          store4(o + (row0 + row) * o_stride + static_cast<i64>(head) * value_dim + value0 +
                     4 * value_group,
                 scale4(scale, make_float4(out[a][0], out[a][1], out[a][2], out[a][3])));
        }
      }
    }
    __syncthreads();
  }
}

