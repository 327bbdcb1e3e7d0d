// State between its two widths, f16 and f32, slot by slot.
//
//   dst[r, i] = cast(src[r, i]),  i < count
//
// (specification: linear attention, section 10).
// Widening is exact, subnormals included. Narrowing rounds once, to nearest even; beyond the range of
// f16 it gives infinity, not the largest number as the kernels that keep an f16 state do; NaN stays
// NaN, zeros keep their sign.
// Layouts, strides in elements of the tensor's own type:
//   src [slots, count]  slots src_pitch apart
//   dst [slots, count]  slots dst_pitch apart: a narrow pool's slots are not a wide pool's
// src and dst share no byte: narrowing in place would race.
//
// A thread converts eight elements at a time where slots begin at multiples of them, else one. Counts
// and offsets have 64 bits; blocks take further elements of a slot, and further slots, in turn.
#include "element.cuh"

constexpr int kThreads = 256;
constexpr int kPiece = 8;

__device__ __forceinline__ void load_piece(const float* at, float4& low, float4& high) {
  low = load4(at), high = load4(at + 4);
}
__device__ __forceinline__ void load_piece(const __half* at, float4& low, float4& high) {
  const uint4 raw = __ldg(reinterpret_cast<const uint4*>(at));
  const float2 a = unpack2(raw.x, at), b = unpack2(raw.y, at);
  const float2 c = unpack2(raw.z, at), d = unpack2(raw.w, at);
  low = make_float4(a.x, a.y, b.x, b.y), high = make_float4(c.x, c.y, d.x, d.y);
}

__device__ __forceinline__ void store_piece(float* at, float4 low, float4 high) {
  store4(at, low), store4(at + 4, high);
}
__device__ __forceinline__ void store_piece(__half* at, float4 low, float4 high) {
  *reinterpret_cast<uint4*>(at) = make_uint4(pack2(low.x, low.y, at), pack2(low.z, low.w, at),
                                             pack2(high.x, high.y, at), pack2(high.z, high.w, at));
}

// `units` of a slot: pieces, or elements.
template <bool kPieces, typename S, typename D>
__device__ __forceinline__ void state_convert(const S* __restrict__ src, D* __restrict__ dst,
                                              i64 src_pitch, i64 dst_pitch, i64 slots, i64 units) {
  const i64 step = static_cast<i64>(gridDim.x) * kThreads;
  const i64 first = static_cast<i64>(blockIdx.x) * kThreads + threadIdx.x;
  for (i64 slot = blockIdx.y; slot < slots; slot += gridDim.y) {
    const S* const from = src + slot * src_pitch;
    D* const to = dst + slot * dst_pitch;
    for (i64 at = first; at < units; at += step) {
      if constexpr (kPieces) {
        float4 low, high;
        load_piece(from + at * kPiece, low, high);
        store_piece(to + at * kPiece, low, high);
      } else {
        to[at] = narrow<D>(widen(__ldg(from + at)));
      }
    }
  }
}

#define STATE_CONVERT(NAME, PIECES, S, D)                                                       \
  extern "C" __global__ void __launch_bounds__(kThreads)                                        \
      NAME(const S* __restrict__ src, D* __restrict__ dst, i64 src_pitch, i64 dst_pitch,        \
           i64 slots, i64 units) {                                                              \
    state_convert<PIECES, S, D>(src, dst, src_pitch, dst_pitch, slots, units);                  \
  }

STATE_CONVERT(state_convert_f16_f32, true, __half, float)
STATE_CONVERT(state_convert_f32_f16, true, float, __half)
STATE_CONVERT(state_convert_f16_f32_single, false, __half, float)
STATE_CONVERT(state_convert_f32_f16_single, false, float, __half)
