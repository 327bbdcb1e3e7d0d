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
//   partials [R, parts] u64, finished [R] u32, zero before the first launch: scratch of the split form
//
// argmax_rows_* takes a row in one block. For few long rows argmax_rows_split_* gives each of
// `parts` blocks a stretch of the row; the block that finishes last folds the parts' bests and
// leaves the row's counter at zero, as it found it. Inside a stretch the unaligned head and tail are
// peeled and the body is read 16 bytes at a time.
#include "element.cuh"
#include "order.cuh"
#include "sequences.cuh"
#include "stretch.cuh"

constexpr int kMaxWarps = 16;
constexpr int kInFlight = 5;  // loads of a thread before it looks at the first
constexpr int kNoIndex = 0x7fffffff;

// The largest key and where it stands: in the vector whose first element has the index, or that
// element alone. Nothing has key 0.
struct Best {
  unsigned key;
  int index;
};

__device__ __forceinline__ Best nothing() { return {0u, kNoIndex}; }

// Where the first -inf of a thread's elements stands: what is left when it has no larger number.
template <typename T>
__device__ __forceinline__ Best lowest_of(const Stretch<T>& stretch) {
  const float lowest = value_of(kLowestKey);
  int index = kNoIndex;
  if (stretch.end_index >= 0 && widen(stretch.row[stretch.end_index]) == lowest) {
    index = stretch.end_index;
  }
  // An element of the tail does not end the look: it stands behind every vector.
  const int threads = blockDim.x;
  for (int own = threadIdx.x; own < stretch.vectors && stretch.index_of(own) < index;
       own += threads) {
    if (largest_of(stretch.vector(own), stretch.row) == lowest) index = stretch.index_of(own);
  }
  if (index == kNoIndex) return nothing();
  return {kLowestKey, index};
}

// This thread's share. Of the vectors only the number of the best is kept: most elements cost one
// comparison, and which of a vector's elements it was is asked of the winner alone.
template <typename T>
__device__ __forceinline__ Best best_of_stretch(const Stretch<T>& stretch) {
  float value = value_of(kLowestKey);
  int own = 0;
  stretch.template each_vector<kInFlight>([&](float largest, int number) {
    if (largest > value) {
      value = largest;
      own = number;
    }
  });
  int index = stretch.index_of(own);
  if (stretch.end_index >= 0) {
    const float x = widen(stretch.row[stretch.end_index]);
    const bool is_first = x == value && stretch.end_index < index;
    if (x > value || is_first) {
      value = x;
      index = stretch.end_index;
    }
  }
  if (value == value_of(kLowestKey)) return lowest_of(stretch);
  return {number_key(value), index};
}

// The result is every lane's.
__device__ __forceinline__ Best best_of_warp(Best mine) {
  const unsigned key = __reduce_max_sync(kFullWarp, mine.key);
  const int index = __reduce_min_sync(kFullWarp, mine.key == key ? mine.index : kNoIndex);
  return {key, index};
}

// The result is warp 0's.
__device__ __forceinline__ Best best_of_block(Best mine) {
  __shared__ Best of_warp[kMaxWarps];
  mine = best_of_warp(mine);
  if (blockDim.x == 32) return mine;
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  if (lane == 0) of_warp[warp] = mine;
  __syncthreads();
  if (warp != 0) return mine;
  mine = nothing();
  if (lane < static_cast<int>(blockDim.x >> 5)) mine = of_warp[lane];
  return best_of_warp(mine);
}

// By warp 0: finds the element in its vector, and writes.
template <typename T>
__device__ __forceinline__ void publish(Best best, const T* __restrict__ x_row, int columns, i64 row,
                                        int* __restrict__ ids, float* __restrict__ values) {
  const bool none = best.key == 0u;
  const int lane = threadIdx.x;
  const int index = none ? -1 : best.index + lane;
  float value = __uint_as_float(0x7fffffffu);
  const bool in_vector = lane < Stretch<T>::kElements && best.index < columns - lane;
  if (in_vector && !none) value = widen(x_row[index]);
  // Of no number any lane may tell.
  const bool is_best = none || (in_vector && key_of(value) == best.key);
  const unsigned found = __ballot_sync(kFullWarp, is_best);
  if (lane != __ffs(found) - 1) return;
  ids[row] = index;
  if (values != nullptr) values[row] = value;
}

template <typename T>
__device__ __forceinline__ void argmax_row(const T* __restrict__ x, int* __restrict__ ids,
                                           float* __restrict__ values, i64 x_stride, int columns) {
  const i64 row = blockIdx.x;
  const Best best = best_of_block(best_of_stretch(Stretch<T>(x + row * x_stride, 0, columns)));
  if (threadIdx.x < 32) publish(best, x + row * x_stride, columns, row, ids, values);
}

// Stretches are part_columns long, the last one shorter or empty.
template <typename T>
__device__ __forceinline__ void argmax_part(const T* __restrict__ x, u64* __restrict__ partials,
                                            unsigned* __restrict__ finished,
                                            int* __restrict__ ids, float* __restrict__ values,
                                            i64 x_stride, int columns, int part_columns) {
  const i64 row = blockIdx.x;
  const int parts = gridDim.y;
  const T* const x_row = x + row * x_stride;
  const i64 first = static_cast<i64>(blockIdx.y) * part_columns;
  const int begin = static_cast<int>(first < columns ? first : columns);
  const int end = begin + min(part_columns, columns - begin);
  const Best own = best_of_block(best_of_stretch(Stretch<T>(x_row, begin, end)));
  if (threadIdx.x >= 32) return;
  u64* const partials_row = partials + row * parts;
  int last = 0;
  if (threadIdx.x == 0) {
    partials_row[blockIdx.y] =
        static_cast<u64>(own.key) << 32 | static_cast<unsigned>(own.index);
    last = arrives_last(finished + row, parts);
  }
  if (!__shfl_sync(kFullWarp, last, 0)) return;
  __syncwarp();  // what thread 0 acquired, its warp sees
  Best best = nothing();
  for (int part = threadIdx.x; part < parts; part += 32) {
    const u64 partial = load_shared_by_blocks(partials_row + part);
    const Best other = {key_part(partial), static_cast<int>(partial)};
    if (other.key > best.key) best = other;  // later parts have higher indices
  }
  best = best_of_warp(best);
  publish(best, x_row, columns, row, ids, values);
}

#define ARGMAX_ROWS(SUFFIX, T)                                                                   \
  extern "C" __global__ void __launch_bounds__(32 * kMaxWarps)                                   \
      argmax_rows_##SUFFIX(const T* __restrict__ x, int* __restrict__ ids,                       \
                           float* __restrict__ values, i64 x_stride, int columns) {              \
    argmax_row<T>(x, ids, values, x_stride, columns);                                            \
  }                                                                                              \
  extern "C" __global__ void __launch_bounds__(32 * kMaxWarps)                                   \
      argmax_rows_split_##SUFFIX(const T* __restrict__ x, u64* __restrict__ partials,            \
                                 unsigned* __restrict__ finished, int* __restrict__ ids,         \
                                 float* __restrict__ values, i64 x_stride, int columns,          \
                                 int part_columns) {                                             \
    argmax_part<T>(x, partials, finished, ids, values, x_stride, columns, part_columns);         \
  }

ARGMAX_ROWS(f32, float)
ARGMAX_ROWS(f16, __half)
ARGMAX_ROWS(bf16, __nv_bfloat16)
