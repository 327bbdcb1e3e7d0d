// What a warp does with tensor cores: 16-bit tiles in shared memory, matrix loads, m16n8k16 products
// with an f32 accumulator, and asynchronous copies that bring tiles in.
//
// A tile is rows of 16-byte chunks, permuted within a row by the row's number, so that the eight rows
// a matrix load reads lie in different banks without padding. Fragments, of lane l with r = l / 4 and
// c = 2 (l % 4), two packed elements a register, the lower one first:
//   a (16x16)  [0] row r, columns c c+1   [1] row r+8   [2] row r, columns c+8 c+9   [3] both
//   b (16x8)   [0] rows c c+1, column r   [1] rows c+8 c+9
//   d (16x8)   [0] [1] row r, columns c c+1   [2] [3] row r+8
// Two neighbouring d, packed, are therefore an a; and of an a that holds X, registers 0 and 2 are the
// b of the transpose of X's upper rows, 1 and 3 of its lower ones.
#pragma once

#include "element.cuh"

constexpr int kCopyBytes = 16;
constexpr int kCopyElements = kCopyBytes / 2;  // of a 16-bit type

__device__ __forceinline__ unsigned shared_address(const void* at) {
  return static_cast<unsigned>(__cvta_generic_to_shared(at));
}

// What the permutation of a tile of CHUNKS 16-byte chunks a row adds to a chunk of `row`: rows that
// share a 128-byte line of banks share it.
template <int CHUNKS>
__device__ __forceinline__ int chunk_turn(int row) {
  static_assert(CHUNKS == 4 || CHUNKS % 8 == 0, "a row is half a line of banks or whole ones");
  return CHUNKS == 4 ? row >> 1 & 3 : row & 7;
}

__device__ __forceinline__ void load_matrices(unsigned (&x)[4], unsigned at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(at)
               : "memory");
}
__device__ __forceinline__ void load_transposed_matrices(unsigned (&x)[4], unsigned at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(at)
               : "memory");
}

// Byte offset of a chunk in a permuted tile.
template <int CHUNKS>
__device__ __forceinline__ unsigned chunk_offset(int row, int chunk) {
  return static_cast<unsigned>(row * CHUNKS + (chunk ^ chunk_turn<CHUNKS>(row))) * kCopyBytes;
}

// One lane's places in the matrix loads of a permuted tile. A matrix load of four takes one row's
// address from each lane, eight lanes a matrix.
template <int CHUNKS>
struct TileLane {
  unsigned across_rows, across_turn;  // matrices: upper left, lower left, upper right, lower right
  unsigned down_rows, down_turn;      // upper left, upper right, lower left, lower right
  __device__ __forceinline__ explicit TileLane(int lane)
      : across_rows((lane & 15) * CHUNKS * kCopyBytes),
        across_turn(((lane >> 4) ^ chunk_turn<CHUNKS>(lane & 15)) * kCopyBytes) {
    const int row = (lane & 7) + (lane >> 4) * 8;
    down_rows = row * CHUNKS * kCopyBytes;
    down_turn = ((lane >> 3 & 1) ^ chunk_turn<CHUNKS>(row)) * kCopyBytes;
  }
  // 16x16 block: rows 16 block_row and on, columns 16 block_column and on.
  __device__ __forceinline__ unsigned across(unsigned tile, int block_row, int block_column) const {
    return tile + block_row * (16 * CHUNKS * kCopyBytes) + across_rows +
           (across_turn ^ static_cast<unsigned>(block_column) * (2 * kCopyBytes));
  }
  __device__ __forceinline__ unsigned down(unsigned tile, int block_row, int block_column) const {
    return tile + block_row * (16 * CHUNKS * kCopyBytes) + down_rows +
           (down_turn ^ static_cast<unsigned>(block_column) * (2 * kCopyBytes));
  }
  // The block as an a fragment.
  __device__ __forceinline__ void load_left(unsigned (&a)[4], unsigned tile, int block_row,
                                            int block_column) const {
    load_matrices(a, across(tile, block_row, block_column));
  }
  // The block's transpose as b fragments: [0] [1] of its upper rows, [2] [3] of its lower ones. A
  // fragment's registers are neighbours, as the product wants them.
  __device__ __forceinline__ void load_right_of_transpose(unsigned (&b)[4], unsigned tile,
                                                          int block_row, int block_column) const {
    load_matrices(b, down(tile, block_row, block_column));
  }
  // The block as b fragments: [0] [1] of its left columns, [2] [3] of its right ones.
  __device__ __forceinline__ void load_right(unsigned (&b)[4], unsigned tile, int block_row,
                                             int block_column) const {
    load_transposed_matrices(b, across(tile, block_row, block_column));
  }
  // The block's transpose as two packed d, [0] [2] of its upper rows and [1] [3] of its lower ones.
  __device__ __forceinline__ void load_transpose(unsigned (&d)[4], unsigned tile, int block_row,
                                                 int block_column) const {
    load_transposed_matrices(d, across(tile, block_row, block_column));
  }
};

// d += a b.
template <typename T>
__device__ __forceinline__ void multiply(float (&d)[4], const unsigned (&a)[4], unsigned b0,
                                         unsigned b1);
template <>
__device__ __forceinline__ void multiply<__nv_bfloat16>(float (&d)[4], const unsigned (&a)[4],
                                                        unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ __forceinline__ void multiply<__half>(float (&d)[4], const unsigned (&a)[4],
                                                 unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two elements rounded to nearest even into one register.
template <typename T>
__device__ __forceinline__ unsigned packed(float low, float high);
template <>
__device__ __forceinline__ unsigned packed<__nv_bfloat16>(float low, float high) {
  unsigned word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}
template <>
__device__ __forceinline__ unsigned packed<__half>(float low, float high) {
  unsigned word;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}

__device__ __forceinline__ void store_shared(unsigned at, unsigned word) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(at), "r"(word) : "memory");
}
__device__ __forceinline__ void store_shared_half(unsigned at, unsigned word) {
  asm volatile("st.shared.b16 [%0], %1;" ::"r"(at), "h"(static_cast<unsigned short>(word))
               : "memory");
}
__device__ __forceinline__ void store_shared4(unsigned at, unsigned x, unsigned y, unsigned z,
                                              unsigned w) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(x), "r"(y), "r"(z), "r"(w)
               : "memory");
}
__device__ __forceinline__ void load_shared4(unsigned (&x)[4], unsigned at) {
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(at)
               : "memory");
}

// 16 bytes from global to shared memory in the background, the last 16 - `bytes` of them zero; of
// `from` nothing past `bytes` is read. Both addresses are multiples of 16.
__device__ __forceinline__ void copy_async(unsigned to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}

// Waits for this thread's copies; a barrier then shows them to the block.
__device__ __forceinline__ void copies_arrive() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

// n rows of a permuted tile and, up to the next multiple of 16, zeros, in the background. ALL: n is
// 64. Rows are 2^chunk_bits chunks long, and `threads`, all of which take part, are whole groups of
// eight rows. TRIANGLE: 16x16 blocks above the diagonal are left out.
template <int CHUNKS, int THREADS, bool ALL, bool TRIANGLE, typename T>
__device__ __forceinline__ void bring_rows(unsigned tile, const T* from, i64 stride, int n,
                                           int chunk_bits, int thread) {
  const int chunk = thread & ((1 << chunk_bits) - 1), step = THREADS >> chunk_bits;
  const int most = (n + 15) & -16;
  const T* at = from + (thread >> chunk_bits) * stride + chunk * kCopyElements;
  unsigned to = tile + chunk_offset<CHUNKS>(thread >> chunk_bits, chunk);
#pragma unroll
  for (int pass = 0; pass < 64 * CHUNKS / THREADS; ++pass) {
    const int row = (thread >> chunk_bits) + pass * step;
    if ((ALL ? pass * step < 64 : row < most) && (!TRIANGLE || chunk < 2 * (row / 16 + 1))) {
      const bool live = ALL || row < n;
      copy_async(to, live ? at : from, live ? kCopyBytes : 0);
    }
    at += step * stride;
    to += step * (CHUNKS * kCopyBytes);
  }
}
