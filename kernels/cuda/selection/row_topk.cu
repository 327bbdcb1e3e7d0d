// The k largest elements of each row, in order.
//
//   ids[r, j] = the index of the (j+1)-th element of x[r, .] by the order of order.cuh
//   values[r, j] = x[r, ids[r, j]]
//
// (specification: selection, section 8). The order is total, so the result depends on neither the
// number of threads nor of blocks. NaN is never chosen; where a row has fewer than k numbers the
// rest is id -1 and value -inf. A value is the element itself, its sign of zero included.
// Layouts, strides in elements:
//   x        [R, V]  f32, f16 or bf16; rows x_stride >= V apart, element aligned; 1 <= V < 2^31
//   ids      [R, k]  i32, 1 <= k <= 64
//   values   [R, k]  f32
//   partials [R, pool, parts] u64, finished [R] u32, zero before the first launch: scratch, null
//                    where a row has one part
//
// Each of `parts` blocks takes a stretch of a row. Of the largest keys of its threads the few best
// of every warp are ranked, and the k-th of them is a floor: k elements reach it, and of scattered
// values hardly more. The threads that have such elements look for them again and put them into a
// pool. Where more reach the floor than the pool holds (equal or nearly equal values, runs of large
// ones) it is raised by bisection over the candidates, which are all different, until they fit: no
// answer depends on the pool's size. The block that finishes last pools the parts' pools in the same
// way, ranks what is left, and leaves the row's counter at zero, as it found it.
#include "element.cuh"
#include "order.cuh"
#include "sequences.cuh"
#include "stretch.cuh"

constexpr int kMaxThreads = 512;
constexpr int kMaxWarps = kMaxThreads / 32;
constexpr int kMost = 64;     // largest k
constexpr int kPool = 128;    // candidates of the largest pool
constexpr int kInFlight = 5;  // loads of a thread before it looks at the first

struct Shared {
  u64 pool[kPool];
  u64 tops[kMost + 2 * kMaxWarps];  // a key, then a number of its own
  unsigned floor_key;
  unsigned top_key;
  int pooled;
  int tally;
  int is_last;
};

// What a launch decides once.
struct Shape {
  int k;
  int pool;  // candidates that are pooled at most; at least k
  int tops;  // of every warp's largest keys, at most one a lane, are ranked; together at least k
};

// What a thread remembers of its elements.
struct Largest {
  unsigned key;     // of the largest, not below that of -inf
  unsigned second;  // of the largest in other vectors than `number`
  int number;       // of the vector that holds the largest
};

// A stretch of a row.
template <typename T>
struct Elements {
  Stretch<T> stretch;

  __device__ __forceinline__ Largest largest() const {
    float first = value_of(kLowestKey), second = first;
    int own = kLastIndex;  // none: no vector holds more than -inf
    stretch.template each_vector<kInFlight>([&](float of_vector, int number) {
      second = fmaxf(second, fminf(first, of_vector));
      if (of_vector > first) {
        first = of_vector;
        own = number;
      }
    });
    const unsigned key = number_key(first);
    const int end = stretch.end_index;
    const unsigned end_key = end < 0 ? 0u : key_of(widen(stretch.row[end]));
    return {max(key, end_key), number_key(second), own};
  }

  // Calls f with those of the thread's candidates that are at or above the bound.
  template <typename F>
  __device__ __forceinline__ void each_from(u64 bound, const Largest& largest, F f) const {
    const unsigned least_key = key_part(bound);
    if (largest.key < least_key) return;
    const float least = value_of(least_key);
    const auto offer = [&](float x, int index) {
      if (x >= least) {
        const u64 candidate = candidate_of(x, index);
        if (candidate >= bound) f(candidate);
      }
    };
    if (stretch.end_index >= 0) offer(widen(stretch.row[stretch.end_index]), stretch.end_index);
    const bool in_one = largest.second < least_key;
    const int step = in_one ? stretch.vectors : static_cast<int>(blockDim.x);
    for (int own = in_one ? largest.number : static_cast<int>(threadIdx.x); own < stretch.vectors;
         own += step) {
      each_of(offer, stretch.vector(own), stretch.index_of(own), stretch.row);
    }
  }
};

// The candidates that a row's blocks left, the first of them more likely there than the last: warps
// take turns, so that each has its share. A thread keeps its first few.
struct Partials {
  static constexpr int kHeld = 4;
  const u64* candidates;
  int count;
  u64 held[kHeld];

  __device__ __forceinline__ Partials(const u64* candidates, int count)
      : candidates(candidates), count(count) {
#pragma unroll
    for (int place = 0; place < kHeld; ++place) held[place] = at(place);
  }
  __device__ __forceinline__ u64 at(int place) const {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    const int number = place * static_cast<int>(blockDim.x) + lane * warps + warp;
    return number < count ? load_shared_by_blocks(candidates + number) : 0;
  }
  template <typename F>
  __device__ __forceinline__ void each(F f) const {
#pragma unroll
    for (int place = 0; place < kHeld; ++place) f(held[place]);
    for (int place = kHeld; place * static_cast<int>(blockDim.x) < count; ++place) f(at(place));
  }

  __device__ __forceinline__ Largest largest() const {
    unsigned largest = kLowestKey;
    each([&](u64 candidate) { largest = max(largest, key_part(candidate)); });
    return {largest, largest, 0};
  }
  template <typename F>
  __device__ __forceinline__ void each_from(u64 bound, const Largest& largest, F f) const {
    if (largest.key < key_part(bound)) return;
    each([&](u64 candidate) {
      if (candidate >= bound) f(candidate);
    });
  }
};

// Calls f(rank, entry) once for every entry of a list in shared memory, all different: rank is how
// many are larger. As many threads share an entry as there are threads for.
template <typename F>
__device__ __forceinline__ void ranked(const u64* list, int count, F f) {
  const int thread = threadIdx.x, threads = blockDim.x;
  const int shift = min(5, 31 - __clz(threads / max(count, 1) | 1));
  const int slices = 1 << shift, slice = thread & (slices - 1);
#pragma unroll 1  // hardly more than once
  for (int base = 0; base < count; base += threads >> shift) {
    const int own = base + (thread >> shift);
    const u64 mine = own < count ? list[own] : 0;
    int rank = 0;
#pragma unroll 4
    for (int other = slice; other < count; other += slices) rank += list[other] > mine;
    for (int step = 1; step < slices; step *= 2) rank += __shfl_xor_sync(kFullWarp, rank, step);
    if (slice == 0 && own < count) f(rank, mine);
  }
}

// floor_key = a key that at least k elements reach, or all; top_key = the largest. No lane's largest is
// below the key of -inf and none is offered twice, so neither key is below it.
__device__ __forceinline__ void find_floor(unsigned largest, const Shape& shape, Shared& shared) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
#pragma unroll 1  // each waits for the one before
  for (int place = 0; place < shape.tops; ++place) {
    const unsigned top = __reduce_max_sync(kFullWarp, largest);
    const int owner = __ffs(__ballot_sync(kFullWarp, largest == top)) - 1;
    if (lane == owner) {
      const int number = warp * shape.tops + place;
      shared.tops[number] = static_cast<u64>(top) << 32 | number;
      largest = 0;
    }
  }
  __syncthreads();
  ranked(shared.tops, warps * shape.tops, [&](int rank, u64 top) {
    if (rank == shape.k - 1) shared.floor_key = key_part(top);
    if (rank == 0) shared.top_key = key_part(top);
  });
  __syncthreads();
}

// How many candidates are at or above the bound; the same in every thread.
template <typename Source>
__device__ __forceinline__ int count_from(const Source& source, const Largest& largest, u64 bound,
                                          Shared& shared) {
  if (threadIdx.x == 0) shared.tally = 0;
  __syncthreads();
  int count = 0;
  source.each_from(bound, largest, [&](u64) { ++count; });
  count = __reduce_add_sync(kFullWarp, count);
  if ((threadIdx.x & 31) == 0 && count != 0) atomicAdd(&shared.tally, count);
  __syncthreads();
  count = shared.tally;
  __syncthreads();  // read by all before the next count
  return count;
}

// A bound above `low` that at least k candidates reach and no more than the pool holds. Their indices
// are first to last, and more than the pool holds reach `low`.
template <typename Source>
__device__ __forceinline__ u64 raised(u64 low, const Source& source, const Largest& largest,
                                      int first, int last, const Shape& shape, Shared& shared) {
  u64 high = (static_cast<u64>(shared.top_key) + 1) << 32;  // fewer than k reach it
  bool is_first = true;
  for (;;) {
    const unsigned low_key = key_part(low), high_key = key_part(high);
    u64 middle;
    if (high_key - low_key > 1) {
      // The first step asks whether what crowds is one value: a masked row, a constant one.
      const unsigned step = is_first ? 1 : (high_key - low_key) / 2;
      middle = static_cast<u64>(low_key + step) << 32;
    } else {
      // One key is left, at the indices first to last.
      low = max(low, static_cast<u64>(low_key) << 32 | position_of(last));
      high = min(high, (static_cast<u64>(low_key) << 32 | position_of(first)) + 2);
      middle = low + (high - low) / 2;
    }
    is_first = false;
    const int reach = count_from(source, largest, middle, shared);
    if (reach < shape.k) {
      high = middle;
    } else if (reach > shape.pool) {
      low = middle;
    } else {
      return middle;
    }
  }
}

// Puts at most shape.pool candidates into shared.pool, the k largest among them, in no order;
// returns their number. Their indices are first to last.
template <typename Source>
__device__ __forceinline__ int fill_pool(const Source& source, int first, int last,
                                         const Shape& shape, Shared& shared) {
  const Largest largest = source.largest();
  if (threadIdx.x == 0) shared.pooled = 0;
  find_floor(largest.key, shape, shared);
  u64 bound = static_cast<u64>(shared.floor_key) << 32;
  for (;;) {
    source.each_from(bound, largest, [&](u64 candidate) {
      const int at = atomicAdd(&shared.pooled, 1);
      if (at < shape.pool) shared.pool[at] = candidate;
    });
    __syncthreads();
    const int pooled = shared.pooled;
    if (pooled <= shape.pool) return pooled;
    bound = raised(bound, source, largest, first, last, shape, shared);
    if (threadIdx.x == 0) shared.pooled = 0;
    __syncthreads();
  }
}

// Stretches are part_columns long, the last one shorter or empty.
template <typename T>
__device__ __forceinline__ void row_topk(const T* __restrict__ x, int* __restrict__ ids,
                                         float* __restrict__ values, u64* __restrict__ partials,
                                         unsigned* __restrict__ finished, i64 x_stride,
                                         int columns, int part_columns, const Shape& shape) {
  __shared__ Shared shared;
  const i64 row = blockIdx.x;
  const int k = shape.k, parts = gridDim.y, thread = threadIdx.x, threads = blockDim.x;
  const i64 first = static_cast<i64>(blockIdx.y) * part_columns;
  const int begin = static_cast<int>(first < columns ? first : columns);
  const int end = begin + min(part_columns, columns - begin);
  const Elements<T> elements = {{x + row * x_stride, begin, end}};
  int pooled = fill_pool(elements, begin, end - 1, shape, shared);

  if (parts > 1) {
    // The parts' pools alternate, so that what they hold lies together whatever they hold.
    u64* const partials_row = partials + row * parts * shape.pool;
#pragma unroll 1  // hardly more than once
    for (int at = thread; at < shape.pool; at += threads) {
      partials_row[at * parts + blockIdx.y] = at < pooled ? shared.pool[at] : 0;
    }
    __syncthreads();
    if (thread == 0) shared.is_last = arrives_last(finished + row, parts);
    __syncthreads();
    if (!shared.is_last) return;
    pooled = fill_pool(Partials(partials_row, parts * shape.pool), 0, columns - 1, shape, shared);
  }
  int* const ids_row = ids + row * k;
  float* const values_row = values + row * k;
  ranked(shared.pool, pooled, [&](int rank, u64 candidate) {
    if (rank >= k) return;
    ids_row[rank] = index_part(candidate);
    values_row[rank] = value_part(candidate);
  });
#pragma unroll 1
  for (int missing = pooled + thread; missing < k; missing += threads) {
    ids_row[missing] = -1;
    values_row[missing] = value_of(kLowestKey);
  }
}

#define ROW_TOPK(SUFFIX, T)                                                                      \
  extern "C" __global__ void __launch_bounds__(kMaxThreads)                                      \
      row_topk_##SUFFIX(const T* __restrict__ x, int* __restrict__ ids,                          \
                        float* __restrict__ values, u64* __restrict__ partials,                  \
                        unsigned* __restrict__ finished, i64 x_stride, int columns,              \
                        int part_columns, int k, int pool, int tops) {                            \
    row_topk<T>(x, ids, values, partials, finished, x_stride, columns, part_columns,             \
                {k, pool, tops});                                                             \
  }

ROW_TOPK(f32, float)
ROW_TOPK(f16, __half)
ROW_TOPK(bf16, __nv_bfloat16)
