// Rows of an E4M3 table times one bf16 scale, gathered by id.
//
//   out[i, c] = cast(decode(codes[ids[i], c]) * f32(scale)),  c < 160
//
// (specification: quantised embeddings, section 2a).
// Layouts, strides in elements:
//   codes  [R, 160] u8   rows codes_stride apart; base and stride multiples of 16 bytes
//   scale  [1]      bf16 finite, not zero, at least 2^-100 in magnitude
//   ids    [n]      i64  any order, repeats allowed
//   out    [n, 160]      f32, f16 or bf16, rows out_stride apart, 16-byte aligned rows
//   status [1]      i32  0, or 1 + the lowest position of an invalid id; written by every launch
// Promises: the decode is exact (codes 7f and ff are NaN) and the product is exact in f32, so the
// store's rounding to nearest even is the only one; f16 overflows to infinity. An id below 0 or not
// below R yields a row of +0 and reads nothing of the table.
//
// Block 0 scans the ids for the status word; nothing is carried between launches and no order of
// blocks shows. The others store 16 bytes a thread, so both sides of the copy are whole lines.
#include "element.cuh"
#include "sequences.cuh"

constexpr int kWidth = 160;
constexpr int kMaxWarps = 16;
constexpr int kScanLoads = 16;  // ids a thread of the scanning block has in flight

// 1 + lowest invalid position, or 0. The result is thread 0's.
__device__ __forceinline__ int first_invalid(const i64* __restrict__ ids, i64 count, i64 table_rows,
                                             int* warp_lowest) {
  constexpr int kNone = 0x7fffffff;
  int lowest = kNone;
  const auto look = [&](i64 id, i64 at) {
    if (id < 0 || id >= table_rows) lowest = min(lowest, static_cast<int>(at));
  };
  const i64 threads = blockDim.x;
  i64 at = threadIdx.x;
  for (; at + (kScanLoads - 1) * threads < count; at += kScanLoads * threads) {
    i64 id[kScanLoads];
#pragma unroll
    for (int load = 0; load < kScanLoads; ++load) id[load] = __ldg(ids + at + load * threads);
#pragma unroll
    for (int load = 0; load < kScanLoads; ++load) look(id[load], at + load * threads);
  }
  for (; at < count; at += threads) look(__ldg(ids + at), at);
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    lowest = min(lowest, __shfl_xor_sync(kFullWarp, lowest, step));
  }
  if ((threadIdx.x & 31) == 0) warp_lowest[threadIdx.x >> 5] = lowest;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int warp = 1; warp < static_cast<int>(blockDim.x >> 5); ++warp) {
      lowest = min(lowest, warp_lowest[warp]);
    }
  }
  return lowest == kNone ? 0 : lowest + 1;
}

// Four codes of one word, lowest byte first.
__device__ __forceinline__ float4 decode4(unsigned word, float scale) {
  return make_float4(__fmul_rn(decode_e4m3(word & 0xffu), scale),
                     __fmul_rn(decode_e4m3(word >> 8 & 0xffu), scale),
                     __fmul_rn(decode_e4m3(word >> 16 & 0xffu), scale),
                     __fmul_rn(decode_e4m3(word >> 24), scale));
}

// Sixteen bytes of output: four f32 from one word of codes, eight narrow elements from two.
__device__ __forceinline__ void decode_piece(float* out, const unsigned char* codes, float scale) {
  store4(out, decode4(__ldg(reinterpret_cast<const unsigned*>(codes)), scale));
}
template <typename T>
__device__ __forceinline__ void decode_piece(T* out, const unsigned char* codes, float scale) {
  const uint2 words = __ldg(reinterpret_cast<const uint2*>(codes));
  const float4 low = decode4(words.x, scale), high = decode4(words.y, scale);
  *reinterpret_cast<uint4*>(out) =
      make_uint4(pack2(low.x, low.y, out), pack2(low.z, low.w, out), pack2(high.x, high.y, out),
                 pack2(high.z, high.w, out));
}

template <typename T>
__device__ __forceinline__ void ple_gather(const unsigned char* __restrict__ codes,
                                           const __nv_bfloat16* __restrict__ scale,
                                           const i64* __restrict__ ids, T* __restrict__ out,
                                           int* __restrict__ status, i64 codes_stride,
                                           i64 out_stride, i64 table_rows, i64 count) {
  __shared__ int warp_lowest[kMaxWarps];
  if (blockIdx.x == 0) {
    const int first = first_invalid(ids, count, table_rows, warp_lowest);
    if (threadIdx.x == 0) *status = first;
    return;
  }
  constexpr int kElements = 16 / static_cast<int>(sizeof(T));
  constexpr int kPieces = kWidth / kElements;
  const i64 pieces = count * kPieces;
  const float factor = widen(*scale);
  const i64 stride = static_cast<i64>(gridDim.x - 1) * blockDim.x;
  for (i64 piece = static_cast<i64>(blockIdx.x - 1) * blockDim.x + threadIdx.x; piece < pieces;
       piece += stride) {
    const i64 position = piece / kPieces;
    const int column = static_cast<int>(piece - position * kPieces) * kElements;
    const i64 id = __ldg(ids + position);
    T* const to = out + position * out_stride + column;
    if (id < 0 || id >= table_rows) {
      *reinterpret_cast<uint4*>(to) = make_uint4(0u, 0u, 0u, 0u);
    } else {
      decode_piece(to, codes + id * codes_stride + column, factor);
    }
  }
}

#define PLE_GATHER(NAME, T)                                                                      \
  extern "C" __global__ void __launch_bounds__(32 * kMaxWarps)                                   \
      NAME(const unsigned char* __restrict__ codes, const __nv_bfloat16* __restrict__ scale,     \
           const i64* __restrict__ ids, T* __restrict__ out, int* __restrict__ status,           \
           i64 codes_stride, i64 out_stride, i64 table_rows, i64 count) {                        \
    ple_gather<T>(codes, scale, ids, out, status, codes_stride, out_stride, table_rows, count);  \
  }

PLE_GATHER(ple_gather_f32, float)
PLE_GATHER(ple_gather_f16, __half)
PLE_GATHER(ple_gather_bf16, __nv_bfloat16)
