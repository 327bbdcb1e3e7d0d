// Which rows a block owns when sequences of different lengths share one tensor.
//
// cu_seqlens holds N + 1 row offsets, first 0, never decreasing, i32 or i64. Chunks of 64 or 32 rows
// are counted within a sequence, from its own start: a chunk never straddles two sequences. The
// compact chunk index numbers the chunks of all sequences one after another, padding sequences
// included, so it depends on nothing but cu_seqlens and the chunk's rows.
#pragma once

#include "element.cuh"

constexpr int kMostChunkRows = 64;
constexpr unsigned kFullWarp = 0xffffffffu;

__device__ __forceinline__ i64 row_offset(const void* cu_seqlens, int cu_is_i64, i64 at) {
  return cu_is_i64 ? __ldg(static_cast<const i64*>(cu_seqlens) + at)
                   : static_cast<i64>(__ldg(static_cast<const int*>(cu_seqlens) + at));
}

__device__ __forceinline__ int chunks_of(i64 rows, int chunk_rows) {
  return static_cast<int>((rows + (chunk_rows - 1)) >> (chunk_rows == kMostChunkRows ? 6 : 5));
}

struct ChunkPlace {
  int sequence;  // -1: the compact index lies past the last chunk
  int rows;      // 1..chunk_rows
  i64 first_row;
};

// Warp-collective: 32 sequences a step, every lane gets the same answer.
__device__ __forceinline__ ChunkPlace locate_chunk(const void* cu_seqlens, int cu_is_i64,
                                                   int sequences, int chunk_rows, int chunk) {
  const int lane = threadIdx.x & 31;
  int earlier = 0;  // chunks of the sequences before this step's
  for (int first = 0; first < sequences; first += 32) {
    int own = 0;
    if (first + lane < sequences) {
      own = chunks_of(row_offset(cu_seqlens, cu_is_i64, first + lane + 1) -
                          row_offset(cu_seqlens, cu_is_i64, first + lane),
                      chunk_rows);
    }
    int through = own;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int below = __shfl_up_sync(kFullWarp, through, step);
      if (lane >= step) through += below;
    }
    const int local = chunk - earlier - (through - own);
    const unsigned holder = __ballot_sync(kFullWarp, local >= 0 && local < own);
    if (holder != 0) {
      const int from = __ffs(holder) - 1;
      const int sequence = first + from;
      const i64 first_row = row_offset(cu_seqlens, cu_is_i64, sequence) +
                            static_cast<i64>(__shfl_sync(kFullWarp, local, from)) * chunk_rows;
      const i64 left = row_offset(cu_seqlens, cu_is_i64, sequence + 1) - first_row;
      return {sequence, static_cast<int>(left < chunk_rows ? left : chunk_rows), first_row};
    }
    earlier += __shfl_sync(kFullWarp, through, 31);
  }
  return {-1, 0, 0};
}

// Warp-collective: compact index of a sequence's first chunk.
__device__ __forceinline__ int chunks_before(const void* cu_seqlens, int cu_is_i64, int chunk_rows,
                                             int sequence) {
  const int lane = threadIdx.x & 31;
  int sum = 0;
  for (int at = lane; at < sequence; at += 32) {
    sum += chunks_of(row_offset(cu_seqlens, cu_is_i64, at + 1) -
                         row_offset(cu_seqlens, cu_is_i64, at),
                     chunk_rows);
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(kFullWarp, sum, step);
  return sum;
}

// block: value heads of one key head are neighbours; cyclic: they are Hk apart.
__device__ __forceinline__ int key_head_of(int value_head, int key_heads, int value_heads,
                                           int head_map_cyclic) {
  return head_map_cyclic ? value_head % key_heads : value_head / (value_heads / key_heads);
}

// The same map read from the key head: its member-th value head of value_heads / key_heads.
__device__ __forceinline__ int value_head_of(int key_head, int member, int key_heads,
                                             int value_heads, int head_map_cyclic) {
  return head_map_cyclic ? key_head + key_heads * member
                         : key_head * (value_heads / key_heads) + member;
}
