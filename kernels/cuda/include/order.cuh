// The total order of selections as unsigned integers, and the meeting of a row's blocks.
//
// Order (specification: selection, section 8): larger first, -0 equals +0, equal values by lower
// index, NaN below everything and never chosen. A key orders values; a candidate orders elements, no
// two of which are equal, so that "the k largest candidates" needs no rule for ties:
//   key        u32  0 for NaN or nothing; otherwise at least kLowestKey, that of -inf
//   candidate  u64  0 for nothing; else key, then 2^31 - 1 - index, then 1 if the element is -0
#pragma once

#include "element.cuh"

using u64 = unsigned long long;

constexpr unsigned kLowestKey = 0x007fffffu;
constexpr unsigned kZeroKey = 0x80000000u;
constexpr unsigned kLastIndex = 0x7fffffffu;

// The key of a number.
__device__ __forceinline__ unsigned number_key(float x) {
  const unsigned bits = __float_as_uint(__fadd_rn(x, 0.0f));  // -0 + 0 = +0
  return bits ^ (static_cast<int>(bits) < 0 ? 0xffffffffu : 0x80000000u);
}

__device__ __forceinline__ unsigned key_of(float x) { return x == x ? number_key(x) : 0u; }

__device__ __forceinline__ float value_of(unsigned key) {
  return __uint_as_float(key ^ (static_cast<int>(key) < 0 ? 0x80000000u : 0xffffffffu));
}

// Index 0 is the largest position, so that equal keys favour the lower index.
__device__ __forceinline__ unsigned position_of(int index) {
  return (kLastIndex - static_cast<unsigned>(index)) << 1;
}

// The candidate of a number.
__device__ __forceinline__ u64 candidate_of(float x, int index) {
  const unsigned sign = __float_as_uint(x) == 0x80000000u ? 1u : 0u;
  return static_cast<u64>(number_key(x)) << 32 | position_of(index) | sign;
}

__device__ __forceinline__ unsigned key_part(u64 candidate) {
  return static_cast<unsigned>(candidate >> 32);
}
__device__ __forceinline__ int index_part(u64 candidate) {
  return static_cast<int>(kLastIndex - (static_cast<unsigned>(candidate) >> 1));
}
// The element's own bits, its sign of zero included.
__device__ __forceinline__ float value_part(u64 candidate) {
  return (candidate & 1u) != 0 ? -0.0f : value_of(key_part(candidate));
}

// Whether this is the last of `arrivals` calls on the counter. What a caller's thread, or threads it
// met at a barrier, stored before is seen by the last caller after. The counter starts at zero and is
// zero again after the last call, so it serves launch after launch, replays of a graph included.
__device__ __forceinline__ bool arrives_last(unsigned* counter, unsigned arrivals) {
  unsigned before;
  asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(__cvta_generic_to_global(counter)), "r"(arrivals - 1)
               : "memory");
  return before == arrivals - 1;
}

// What another block of this launch stored: never through a cache that could be stale.
__device__ __forceinline__ u64 load_shared_by_blocks(const u64* at) { return __ldcg(at); }
