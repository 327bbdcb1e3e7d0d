// Rows from one pool to places of another: to[to_of[i]] = from[from_of[i]].
//
// What a speculative round moves: the state after the last kept row to its slot, a slot to its
// checkpoint and back, new rows of keys and values to their places in the cache.
// Layouts, strides in elements of the tensors' one type:
//   from    [rows, width]   rows from_stride apart
//   to      [slots, width]  rows to_stride apart
//   from_of, to_of [n] i64  a negative to_of: padding, nothing is read or written
// Rows begin at multiples of 16 bytes and are whole vectors of 16 bytes: a copy is of bits, whatever
// the type. No two i share a place; from_of lies below rows and to_of below slots: the caller's
// obligations.
#include "element.cuh"

constexpr int kThreads = 128;

extern "C" __global__ void __launch_bounds__(kThreads)
    state_scatter(const uint4* __restrict__ from, const i64* __restrict__ from_of,
                  const i64* __restrict__ to_of, uint4* to, i64 from_pitch, i64 to_pitch,
                  i64 vectors, i64 count) {
  // Pitches in vectors.
  for (i64 i = blockIdx.y; i < count; i += gridDim.y) {
    const i64 place = __ldg(to_of + i);
    if (place < 0) continue;
    const uint4* const source = from + __ldg(from_of + i) * from_pitch;
    uint4* const target = to + place * to_pitch;
    const i64 step = static_cast<i64>(gridDim.x) * kThreads;
    for (i64 at = static_cast<i64>(blockIdx.x) * kThreads + threadIdx.x; at < vectors; at += step) {
      target[at] = __ldg(source + at);
    }
  }
}
