// Elements as kernels see them: storage types, four-wide access, exact decodes.
//
// Storage is f32, f16 or bf16; arithmetic is f32. A narrow element widens exactly and a result is
// rounded once, to nearest even, when it is stored. Four consecutive elements travel together:
// 16 bytes of f32, 8 bytes of f16 or bf16, so such an address is a multiple of that.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

using i64 = long long;

__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ float widen(__half x) { return __half2float(x); }
__device__ __forceinline__ float widen(__nv_bfloat16 x) { return __bfloat162float(x); }

template <typename T>
__device__ __forceinline__ T narrow(float x);
template <>
__device__ __forceinline__ float narrow<float>(float x) { return x; }
template <>
__device__ __forceinline__ __half narrow<__half>(float x) { return __float2half_rn(x); }
template <>
__device__ __forceinline__ __nv_bfloat16 narrow<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

// Two packed narrow elements, lower address in the lower half of the word.
__device__ __forceinline__ float2 unpack2(unsigned word, const __half*) {
  return __half22float2(
      __halves2half2(__ushort_as_half(static_cast<unsigned short>(word & 0xffffu)),
                     __ushort_as_half(static_cast<unsigned short>(word >> 16))));
}
__device__ __forceinline__ float2 unpack2(unsigned word, const __nv_bfloat16*) {
  return make_float2(__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u));
}
__device__ __forceinline__ unsigned pack2(float low, float high, const __half*) {
  const __half2 pair = __floats2half2_rn(low, high);
  return static_cast<unsigned>(__half_as_ushort(__low2half(pair))) |
         static_cast<unsigned>(__half_as_ushort(__high2half(pair))) << 16;
}
__device__ __forceinline__ unsigned pack2(float low, float high, const __nv_bfloat16*) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return static_cast<unsigned>(__bfloat16_as_ushort(__low2bfloat16(pair))) |
         static_cast<unsigned>(__bfloat16_as_ushort(__high2bfloat16(pair))) << 16;
}

// Read-only global loads: nothing a launch reads through these is written by that launch.
__device__ __forceinline__ float4 load4(const float* at) {
  return __ldg(reinterpret_cast<const float4*>(at));
}
template <typename T>
__device__ __forceinline__ float4 load4(const T* at) {
  const uint2 words = __ldg(reinterpret_cast<const uint2*>(at));
  const float2 low = unpack2(words.x, at), high = unpack2(words.y, at);
  return make_float4(low.x, low.y, high.x, high.y);
}

__device__ __forceinline__ void store4(float* at, float4 x) {
  *reinterpret_cast<float4*>(at) = x;
}
template <typename T>
__device__ __forceinline__ void store4(T* at, float4 x) {
  *reinterpret_cast<uint2*>(at) = make_uint2(pack2(x.x, x.y, at), pack2(x.z, x.w, at));
}

__device__ __forceinline__ float4 zero4() { return make_float4(0.0f, 0.0f, 0.0f, 0.0f); }

__device__ __forceinline__ float4 scale4(float a, float4 x) {
  return make_float4(a * x.x, a * x.y, a * x.z, a * x.w);
}

// acc + a x, one fused rounding an element.
__device__ __forceinline__ float4 axpy4(float a, float4 x, float4 acc) {
  return make_float4(fmaf(a, x.x, acc.x), fmaf(a, x.y, acc.y), fmaf(a, x.z, acc.z),
                     fmaf(a, x.w, acc.w));
}

// acc + a.b, elements in address order.
__device__ __forceinline__ float dot4(float4 a, float4 b, float acc) {
  return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, acc))));
}

// E4M3 (FN): s eeee mmm, no infinity, 7f and ff are NaN. The seven magnitude bits placed at the top
// of an f32 fraction are the value times 2^-120, subnormals included, so one exact multiplication
// decodes every code (it relies on -ftz=false).
__device__ __forceinline__ float decode_e4m3(unsigned code) {
  const unsigned magnitude = code & 0x7fu;
  const float value = __uint_as_float((code & 0x80u) << 24 | magnitude << 20) * 0x1p120f;
  return magnitude == 0x7fu ? __uint_as_float(0x7fffffffu) : value;
}
