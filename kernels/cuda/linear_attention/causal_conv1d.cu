// Causal depthwise convolution of width W over sequences of any length: one step, the rows of a
// speculative round and a prefill are one kernel and give the same bits.
//
// Per sequence n, its rows t = cu_seqlens[n] to cu_seqlens[n + 1] in order and each channel, with the
// window of the W - 1 inputs before row t, oldest first, at first what slot slot_of[n] holds:
//
//   acc = bias;  acc += weight[j] x[t - W + 1 + j] for j = 0 to W - 1      (f32, fused, oldest first)
//   y = acc, or acc / (1 + e^-acc);  of a normed channel then y / sqrt(sum over its head of y^2 + eps)
//
// (specification: linear attention, section 6).
// Layouts, strides in elements of the tensor's own type:
//   x, out  [rows, channels] io    a row contiguous
//   weight  [channels, W] io       dense; weight[., 0] is on the oldest input
//   bias    [channels] f32         may be null
//   state   [slots, channels, W - 1] f32   a slot contiguous, slots state_stride apart: inputs of f16
//                                  and bf16 are held exactly
//   snap    [rows, channels, W - 1] f32    the window after row t; may be null
//   slot_of [N] i64                negative: padding, neither state nor any row is touched
// Channels below norm_channels, whole heads of head_dim, are normed.
// `keeps`: the slot is read alone, and the window after the last row is in snap alone.
// Obligations of the caller: as in gdn_verify.
//
// A thread owns a channel and holds its window and weights in registers; a block owns 128 channels, so
// whole heads. The sum of squares has one order: a butterfly over 32 channels, then those sums in turn.
#include "element.cuh"
#include "gated_norm.cuh"
#include "sequences.cuh"

constexpr int kThreads = 128;

template <typename T>
struct Arguments {
  const T* x;
  const T* weight;
  const float* bias;
  float* state;
  float* snap;
  const void* cu_seqlens;
  const i64* slot_of;
  T* out;
  i64 x_stride, state_stride, snap_stride, out_stride;
  int cu_is_i64, sequences, channels, applies_silu, norm_channels, head_dim, keeps;
  float eps;
};

// Block-collective: the sum of y^2 over the head of this thread's channel.
__device__ __forceinline__ float head_square(float y, int head_dim) {
  __shared__ float s_square[kThreads / 32];
  float square = y * y;
#pragma unroll
  for (int step = 16; step > 0; step /= 2) square += __shfl_xor_sync(kFullWarp, square, step);
  if ((threadIdx.x & 31) == 0) s_square[threadIdx.x >> 5] = square;
  __syncthreads();  // every warp's sum is there
  const int first = threadIdx.x / head_dim * head_dim / 32;
  float sum = s_square[first];
  for (int warp = first + 1; warp < first + head_dim / 32; ++warp) sum += s_square[warp];
  __syncthreads();  // every warp has read them; the next row's may take their place
  return sum;
}

template <typename T, int W>
__device__ __forceinline__ void causal_conv1d(const Arguments<T>& call) {
  constexpr int kHeld = W - 1;
  const int channel = blockIdx.x * kThreads + threadIdx.x;
  const bool own = channel < call.channels;
  const bool block_norms = static_cast<int>(blockIdx.x) * kThreads < call.norm_channels;
  const i64 own_window = static_cast<i64>(channel) * kHeld;

  float weight[W] = {}, bias = 0.0f;
  if (own) {
#pragma unroll
    for (int j = 0; j < W; ++j) {
      weight[j] = widen(__ldg(call.weight + static_cast<i64>(channel) * W + j));
    }
    if (call.bias != nullptr) bias = __ldg(call.bias + channel);
  }

  for (i64 n = blockIdx.y; n < call.sequences; n += gridDim.y) {
    const i64 slot = __ldg(call.slot_of + n);
    if (slot < 0) continue;
    const i64 begin = row_offset(call.cu_seqlens, call.cu_is_i64, n);
    const i64 end = row_offset(call.cu_seqlens, call.cu_is_i64, n + 1);
    float* const live = call.state + slot * call.state_stride + own_window;
    float window[kHeld] = {};
    if (own) {
#pragma unroll
      for (int j = 0; j < kHeld; ++j) window[j] = live[j];
    }
    for (i64 row = begin; row < end; ++row) {
      const float x = own ? widen(__ldg(call.x + row * call.x_stride + channel)) : 0.0f;
      float acc = bias;
#pragma unroll
      for (int j = 0; j < kHeld; ++j) acc = fmaf(weight[j], window[j], acc);
      acc = fmaf(weight[kHeld], x, acc);
#pragma unroll
      for (int j = 0; j + 1 < kHeld; ++j) window[j] = window[j + 1];
      window[kHeld - 1] = x;
      float y = call.applies_silu ? silu(acc) : acc;
      if (block_norms) {
        const float square = head_square(own ? y : 0.0f, call.head_dim);
        if (channel < call.norm_channels) y = y / sqrtf(square + call.eps);
      }
      if (own) {
        call.out[row * call.out_stride + channel] = narrow<T>(y);
        if (call.snap != nullptr) {
          float* const after = call.snap + row * call.snap_stride + own_window;
#pragma unroll
          for (int j = 0; j < kHeld; ++j) after[j] = window[j];
        }
      }
    }
    if (own && !call.keeps) {
#pragma unroll
      for (int j = 0; j < kHeld; ++j) live[j] = window[j];
    }
  }
}

#define CAUSAL_CONV1D(NAME, T, W)                                                                \
  extern "C" __global__ void __launch_bounds__(kThreads)                                         \
      NAME(const T* __restrict__ x, const T* __restrict__ weight, const float* __restrict__ bias, \
           float* state, float* snap, const void* __restrict__ cu_seqlens,                       \
           const i64* __restrict__ slot_of, T* out, i64 x_stride, i64 state_stride,              \
           i64 snap_stride, i64 out_stride, int cu_is_i64, int sequences, int channels,          \
           int applies_silu, int norm_channels, int head_dim, int keeps, float eps) {            \
    causal_conv1d<T, W>({x, weight, bias, state, snap, cu_seqlens, slot_of, out, x_stride,       \
                         state_stride, snap_stride, out_stride, cu_is_i64, sequences, channels,  \
                         applies_silu, norm_channels, head_dim, keeps, eps});                    \
  }

#define CAUSAL_CONV1D_IO(IO, T)               \
  CAUSAL_CONV1D(causal_conv1d_##IO##_w2, T, 2) \
  CAUSAL_CONV1D(causal_conv1d_##IO##_w3, T, 3) \
  CAUSAL_CONV1D(causal_conv1d_##IO##_w4, T, 4)

CAUSAL_CONV1D_IO(f32, float)
CAUSAL_CONV1D_IO(f16, __half)
CAUSAL_CONV1D_IO(bf16, __nv_bfloat16)
