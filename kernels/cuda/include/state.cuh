// The recurrent state as kernels keep it: f32, or f16 under f32 arithmetic.
//
// A narrow element widens exactly. What is stored is rounded once, to nearest even; a finite value
// beyond the largest f16 is stored as that largest (65504), infinities and NaN stay what they are.
// Whoever uses a value it has stored uses the rounded one, so state and outputs never part.
#pragma once

#include "element.cuh"

__device__ __forceinline__ float saturated(float x) {
  constexpr float kLargest = 65504.0f;
  return fabsf(x) < __int_as_float(0x7f800000) ? fminf(fmaxf(x, -kLargest), kLargest) : x;
}

// N consecutive elements of a state row, as one access of 16 or 8 bytes.
template <typename S, int N>
struct StateVector {
  static constexpr int kWords = N * static_cast<int>(sizeof(S)) / 4;
  static_assert(kWords == 4 || kWords == 2, "one access");
  unsigned word[kWords];

  __device__ __forceinline__ void load(const S* at) {
    if constexpr (kWords == 4) {
      const uint4 words = *reinterpret_cast<const uint4*>(at);
      word[0] = words.x, word[1] = words.y, word[2] = words.z, word[3] = words.w;
    } else {
      const uint2 words = *reinterpret_cast<const uint2*>(at);
      word[0] = words.x, word[1] = words.y;
    }
  }

  __device__ __forceinline__ void store(S* at) const {
    if constexpr (kWords == 4) {
      *reinterpret_cast<uint4*>(at) = make_uint4(word[0], word[1], word[2], word[3]);
    } else {
      *reinterpret_cast<uint2*>(at) = make_uint2(word[0], word[1]);
    }
  }

  // Of what this launch does not read.
  __device__ __forceinline__ void stream(S* at) const {
    if constexpr (kWords == 4) {
      __stcs(reinterpret_cast<uint4*>(at), make_uint4(word[0], word[1], word[2], word[3]));
    } else {
      __stcs(reinterpret_cast<uint2*>(at), make_uint2(word[0], word[1]));
    }
  }

  __device__ __forceinline__ void widen_to(float* out) const {
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      if constexpr (sizeof(S) == 4) {
        out[i] = __uint_as_float(word[i]);
      } else {
        const float2 pair = unpack2(word[i], static_cast<const S*>(nullptr));
        out[2 * i] = pair.x, out[2 * i + 1] = pair.y;
      }
    }
  }

  // Rounds x to the state's type.
  __device__ __forceinline__ void narrow_from(const float* x) {
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      if constexpr (sizeof(S) == 4) {
        word[i] = __float_as_uint(x[i]);
      } else {
        word[i] = pack2(saturated(x[2 * i]), saturated(x[2 * i + 1]), static_cast<const S*>(nullptr));
      }
    }
  }

  // The same of what the state's type holds without saturating. `watch`, at first zero, is not when
  // something is beyond that, or infinite or no number already: then narrow_from has the last word.
  __device__ __forceinline__ void narrow_within(const float* x, unsigned& watch) {
    if constexpr (sizeof(S) == 4) {
      narrow_from(x);
    } else {
#pragma unroll
      for (int i = 0; i < kWords; ++i) {
        word[i] = pack2(x[2 * i], x[2 * i + 1], static_cast<const S*>(nullptr));
        // Zero times what is finite is zero, and no number otherwise.
        asm("fma.rn.f16x2 %0, %1, %2, %0;" : "+r"(watch) : "r"(word[i]), "r"(0u));
      }
    }
  }
};
