// Sixteen bytes of a row as floats: four elements of f32, eight of f16 or bf16. A row that is aligned goes
// by whole pieces, any other element by element; which elements make a piece is the same, so a sum over
// pieces has one order, and its bits do not tell how the row was read.
#pragma once

#include "element.cuh"

template <typename T>
struct Piece {
  static constexpr int kCount = 16 / static_cast<int>(sizeof(T));
  float x[kCount];

  __device__ __forceinline__ void load(const T* at) {
    widen_from(__ldg(reinterpret_cast<const uint4*>(at)));
  }

  __device__ __forceinline__ void widen_from(uint4 words) {
    const unsigned word[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (sizeof(T) == 4) {
        x[i] = __uint_as_float(word[i]);
      } else {
        const float2 pair = unpack2(word[i], static_cast<const T*>(nullptr));
        x[2 * i] = pair.x, x[2 * i + 1] = pair.y;
      }
    }
  }

  // The first `count` elements, zeros after them.
  __device__ __forceinline__ void load_some(const T* at, int count) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) x[i] = i < count ? widen(__ldg(at + i)) : 0.0f;
  }

  __device__ __forceinline__ void store(T* at) const {
    *reinterpret_cast<uint4*>(at) = narrowed();
  }

  __device__ __forceinline__ uint4 narrowed() const {
    unsigned word[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (sizeof(T) == 4) {
        word[i] = __float_as_uint(x[i]);
      } else {
        word[i] = pack2(x[2 * i], x[2 * i + 1], static_cast<const T*>(nullptr));
      }
    }
    return make_uint4(word[0], word[1], word[2], word[3]);
  }
};
