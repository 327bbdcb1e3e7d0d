// A stretch of a row as the threads of a block share it: whole 16-byte vectors, every blockDim.x-th
// a thread's, and the elements of the unaligned ends, which are fewer than a vector's at each end
// and so at most one a thread. A block has at least 32 threads.
#pragma once

#include "element.cuh"

// The largest number among a vector's elements; NaN if it has none.
__device__ __forceinline__ float largest_of(uint4 raw, const float*) {
  return fmaxf(fmaxf(__uint_as_float(raw.x), __uint_as_float(raw.y)),
               fmaxf(__uint_as_float(raw.z), __uint_as_float(raw.w)));
}
template <typename T>
__device__ __forceinline__ float largest_of(uint4 raw, const T* type) {
  const float2 a = unpack2(raw.x, type), b = unpack2(raw.y, type);
  const float2 c = unpack2(raw.z, type), d = unpack2(raw.w, type);
  return fmaxf(fmaxf(fmaxf(a.x, a.y), fmaxf(b.x, b.y)), fmaxf(fmaxf(c.x, c.y), fmaxf(d.x, d.y)));
}

// Calls f(element, index) for a vector's elements, the first of which has the given index.
template <typename F>
__device__ __forceinline__ void each_of(F& f, uint4 raw, int index, const float*) {
  f(__uint_as_float(raw.x), index);
  f(__uint_as_float(raw.y), index + 1);
  f(__uint_as_float(raw.z), index + 2);
  f(__uint_as_float(raw.w), index + 3);
}
template <typename F, typename T>
__device__ __forceinline__ void each_of(F& f, uint4 raw, int index, const T* type) {
  const unsigned words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
  for (int word = 0; word < 4; ++word) {
    const float2 two = unpack2(words[word], type);
    f(two.x, index + 2 * word);
    f(two.y, index + 2 * word + 1);
  }
}

template <typename T>
struct Stretch {
  static constexpr int kElements = 16 / static_cast<int>(sizeof(T));
  const T* row;
  int body;       // first element of a whole vector
  int vectors;    // how many
  int end_index;  // of the unaligned ends' elements this thread's, or -1

  // Elements begin to end of a row.
  __device__ __forceinline__ Stretch(const T* row, int begin, int end) : row(row) {
    const unsigned long long address = reinterpret_cast<unsigned long long>(row + begin);
    const int past = static_cast<int>(address & 15u) / static_cast<int>(sizeof(T));
    body = begin + min((kElements - past) % kElements, end - begin);
    vectors = static_cast<int>(static_cast<unsigned>(end - body) / kElements);  // not negative
    const int tail = body + vectors * kElements;
    const int head_thread = threadIdx.x, tail_thread = static_cast<int>(threadIdx.x) - 16;
    end_index = -1;
    if (head_thread < body - begin) end_index = begin + head_thread;
    if (tail_thread >= 0 && tail_thread < end - tail) end_index = tail + tail_thread;
  }

  __device__ __forceinline__ uint4 vector(int number) const {
    return __ldg(reinterpret_cast<const uint4*>(row + body) + number);
  }
  __device__ __forceinline__ int index_of(int number) const { return body + number * kElements; }

  // Calls f(largest element, number) for this thread's vectors in order, IN_FLIGHT of them loaded
  // before the first is looked at.
  template <int IN_FLIGHT, typename F>
  __device__ __forceinline__ void each_vector(F f) const {
    const int threads = blockDim.x;
    for (int first = threadIdx.x; first < vectors; first += IN_FLIGHT * threads) {
      uint4 raw[IN_FLIGHT];
#pragma unroll
      for (int load = 0; load < IN_FLIGHT; ++load) {
        const int number = first + load * threads;
        raw[load] = make_uint4(~0u, ~0u, ~0u, ~0u);  // NaN in every type
        if (number < vectors) raw[load] = vector(number);
      }
#pragma unroll
      for (int load = 0; load < IN_FLIGHT; ++load) {
        f(largest_of(raw[load], row), first + load * threads);
      }
    }
  }
};
