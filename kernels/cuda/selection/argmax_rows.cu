// Index and value of the largest element of each row.
//
//   ids[r] = the lowest i with x[r, i] = max x[r, .]      values[r] = x[r, ids[r]]
//
// (specification: selection, section 8). The order is total, so the result depends on neither the
// number of threads nor of blocks: larger first, -0 equals +0, equal values by lower index, NaN
// below everything. A row of -inf alone yields 0. A row of NaN alone, or an empty one, yields id -1
// and the canonical NaN 7fffffff. The value is the chosen element itself, its sign of zero included.
// Layouts, strides in elements:
//   x      [R, V]  f32, f16 or bf16; rows x_stride >= V apart, element aligned; V < 2^31
//   ids    [R]     i32
//   values [R]     f32, or null
//   partial_values [R, parts] f32, partial_ids [R, parts] i32: scratch of the split form
//
// argmax_rows_* takes a row in one block. For few long rows argmax_rows_split_* gives each of
// `parts` blocks a stretch of the row and argmax_rows_combine folds the parts. Inside a stretch the
// unaligned head and tail are peeled and the body is read 16 bytes at a time.
#include "element.cuh"
#include "sequences.cuh"

constexpr int kMaxWarps = 16;
constexpr int kNoIndex = 0x7fffffff;

struct Best {
  float value;
  int index;
};

// Nothing chosen yet: loses to -inf by its index and to everything but NaN by its value.
__device__ __forceinline__ Best nothing() { return {__uint_as_float(0xff800000u), kNoIndex}; }

__device__ __forceinline__ bool beats(float value, int index, const Best& best) {
  return value > best.value || (value == best.value && index < best.index);
}

__device__ __forceinline__ void offer(Best& best, float value, int index) {
  if (beats(value, index, best)) best = {value, index};
}

// Four elements whose indices are above every earlier one of this thread, so that an equal value
// cannot win and most vectors cost one comparison.
__device__ __forceinline__ void offer4(Best& best, float4 x, int index) {
  const float largest = fmaxf(fmaxf(x.x, x.y), fmaxf(x.z, x.w));  // of the numbers; NaN if none
  if (!(largest > best.value || best.index == kNoIndex)) return;
  offer(best, x.x, index);
  offer(best, x.y, index + 1);
  offer(best, x.z, index + 2);
  offer(best, x.w, index + 3);
}

// One 16-byte vector whose first element has the given index.
__device__ __forceinline__ void offer_vector(Best& best, uint4 raw, int index, const float*) {
  offer4(best,
         make_float4(__uint_as_float(raw.x), __uint_as_float(raw.y), __uint_as_float(raw.z),
                     __uint_as_float(raw.w)),
         index);
}
template <typename T>
__device__ __forceinline__ void offer_vector(Best& best, uint4 raw, int index, const T* type) {
  const float2 a = unpack2(raw.x, type), b = unpack2(raw.y, type);
  const float2 c = unpack2(raw.z, type), d = unpack2(raw.w, type);
  offer4(best, make_float4(a.x, a.y, b.x, b.y), index);
  offer4(best, make_float4(c.x, c.y, d.x, d.y), index + 4);
}

// This thread's share of row[begin, end).
template <typename T>
__device__ __forceinline__ Best best_of_stretch(const T* __restrict__ row, int begin, int end) {
  constexpr int kElements = 16 / static_cast<int>(sizeof(T));
  constexpr int kInFlight = 4;
  Best best = nothing();
  const unsigned long long address = reinterpret_cast<unsigned long long>(row + begin);
  const int past = static_cast<int>(address & 15u) / static_cast<int>(sizeof(T));
  const int to_aligned = (kElements - past) % kElements;
  const int body = begin + min(to_aligned, end - begin);
  const int vectors = (end - body) / kElements;
  const int tail = body + vectors * kElements;

  // Head and tail are shorter than a vector, so a block has a thread for each of their elements.
  const int thread = threadIdx.x;
  if (thread < body - begin) offer(best, widen(row[begin + thread]), begin + thread);
  const uint4* const body_vectors = reinterpret_cast<const uint4*>(row + body);
  int vector = thread;
  for (; vector + (kInFlight - 1) * static_cast<int>(blockDim.x) < vectors;
       vector += kInFlight * blockDim.x) {
    uint4 raw[kInFlight];
#pragma unroll
    for (int load = 0; load < kInFlight; ++load) {
      raw[load] = __ldg(body_vectors + vector + load * blockDim.x);
    }
#pragma unroll
    for (int load = 0; load < kInFlight; ++load) {
      offer_vector(best, raw[load],
                   body + (vector + load * static_cast<int>(blockDim.x)) * kElements, row);
    }
  }
  for (; vector < vectors; vector += blockDim.x) {
    offer_vector(best, __ldg(body_vectors + vector), body + vector * kElements, row);
  }
  if (thread < end - tail) offer(best, widen(row[tail + thread]), tail + thread);
  return best;
}

__device__ __forceinline__ Best best_of_warp(Best best) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    const float value = __shfl_xor_sync(kFullWarp, best.value, step);
    const int index = __shfl_xor_sync(kFullWarp, best.index, step);
    offer(best, value, index);
  }
  return best;
}

// The result is thread 0's.
__device__ __forceinline__ Best best_of_block(Best best) {
  __shared__ Best of_warp[kMaxWarps];
  best = best_of_warp(best);
  if ((threadIdx.x & 31) == 0) of_warp[threadIdx.x >> 5] = best;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int warp = 1; warp < static_cast<int>(blockDim.x >> 5); ++warp) {
      offer(best, of_warp[warp].value, of_warp[warp].index);
    }
  }
  return best;
}

__device__ __forceinline__ void publish(Best best, i64 row, int* __restrict__ ids,
                                        float* __restrict__ values) {
  const bool none = best.index == kNoIndex;
  ids[row] = none ? -1 : best.index;
  if (values != nullptr) values[row] = none ? __uint_as_float(0x7fffffffu) : best.value;
}

template <typename T>
__device__ __forceinline__ void argmax_row(const T* __restrict__ x, int* __restrict__ ids,
                                           float* __restrict__ values, i64 x_stride, int columns) {
  const i64 row = blockIdx.x;
  const Best best = best_of_block(best_of_stretch(x + row * x_stride, 0, columns));
  if (threadIdx.x == 0) publish(best, row, ids, values);
}

// Stretches are part_columns long, the last one shorter or empty.
template <typename T>
__device__ __forceinline__ void argmax_part(const T* __restrict__ x,
                                            float* __restrict__ partial_values,
                                            int* __restrict__ partial_ids, i64 x_stride,
                                            int columns, int part_columns) {
  const i64 row = blockIdx.x;
  const i64 first = static_cast<i64>(blockIdx.y) * part_columns;
  const int begin = static_cast<int>(first < columns ? first : columns);
  const int end = begin + min(part_columns, columns - begin);
  const Best best = best_of_block(best_of_stretch(x + row * x_stride, begin, end));
  if (threadIdx.x == 0) {
    const i64 at = row * gridDim.y + blockIdx.y;
    partial_values[at] = best.value;
    partial_ids[at] = best.index;
  }
}

extern "C" __global__ void __launch_bounds__(32)
    argmax_rows_combine(const float* __restrict__ partial_values,
                        const int* __restrict__ partial_ids, int* __restrict__ ids,
                        float* __restrict__ values, int parts) {
  const i64 row = blockIdx.x;
  Best best = nothing();
  for (int part = threadIdx.x; part < parts; part += 32) {
    const i64 at = row * parts + part;
    offer(best, __ldg(partial_values + at), __ldg(partial_ids + at));
  }
  best = best_of_warp(best);
  if (threadIdx.x == 0) publish(best, row, ids, values);
}

#define ARGMAX_ROWS(SUFFIX, T)                                                                   \
  extern "C" __global__ void __launch_bounds__(32 * kMaxWarps)                                   \
      argmax_rows_##SUFFIX(const T* __restrict__ x, int* __restrict__ ids,                       \
                           float* __restrict__ values, i64 x_stride, int columns) {              \
    argmax_row<T>(x, ids, values, x_stride, columns);                                            \
  }                                                                                              \
  extern "C" __global__ void __launch_bounds__(32 * kMaxWarps)                                   \
      argmax_rows_split_##SUFFIX(const T* __restrict__ x, float* __restrict__ partial_values,    \
                                 int* __restrict__ partial_ids, i64 x_stride, int columns,       \
                                 int part_columns) {                                             \
    argmax_part<T>(x, partial_values, partial_ids, x_stride, columns, part_columns);             \
  }

ARGMAX_ROWS(f32, float)
ARGMAX_ROWS(f16, __half)
ARGMAX_ROWS(bf16, __nv_bfloat16)
