// Unit length for the rows of q and of k, in one launch and into two outputs, each its input's place or
// its own:
//
//   y = x / sqrt(sum x^2 + eps)
//
// eps is added, not a floor: a row shorter than its root shrinks, and a row of zeros stays zero. No
// constant of the output is in it (specification: linear attention, section 5b).
// Layouts, strides in elements of the tensor's own type:
//   q, k, q_out, k_out [rows, heads, D] io, D 32, 64 or 128; heads and channels contiguous in a row,
//                                           16-byte aligned rows
// Promises: f32 sums and one rounding when y is stored; q_out depends on q alone and k_out on k alone,
// row by row; q_out may be q and k_out k, exactly.
//
// A lane holds four channels, so a head's row is one access of D / 4 lanes; nothing is shared.
#include "element.cuh"

constexpr int kThreads = 256;
constexpr int kLaneChannels = 4;

// Four elements of a tensor that this launch may write, at the same place, later.
__device__ __forceinline__ float4 load_own4(const float* at) {
  return *reinterpret_cast<const float4*>(at);
}
template <typename T>
__device__ __forceinline__ float4 load_own4(const T* at) {
  const uint2 words = *reinterpret_cast<const uint2*>(at);
  const float2 low = unpack2(words.x, at), high = unpack2(words.y, at);
  return make_float4(low.x, low.y, high.x, high.y);
}

template <typename T, int D>
__device__ __forceinline__ void unit_rows(const T* x, T* y, i64 x_stride, i64 y_stride,
                                          unsigned count, unsigned heads, float eps) {
  constexpr unsigned kLanes = D / kLaneChannels, kRows = kThreads / kLanes;
  const unsigned channel = threadIdx.x % kLanes * kLaneChannels;
  const unsigned at = blockIdx.x * kRows + threadIdx.x / kLanes;
  const bool live = at < count;  // whole warps sum together: a row past the last is zero
  const unsigned row = at / heads, head = at - row * heads;
  const i64 column = static_cast<i64>(head) * D + channel;
  float4 own = zero4();
  if (live) own = load_own4(x + row * x_stride + column);
  float square = dot4(own, own, 0.0f);
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) {
    square += __shfl_xor_sync(0xffffffffu, square, step);
  }
  const float length = sqrtf(square + eps);
  if (live) {
    store4(y + row * y_stride + column,
           make_float4(own.x / length, own.y / length, own.z / length, own.w / length));
  }
}

#define KDA_QK_NORM(NAME, T, D)                                                                   \
  extern "C" __global__ void __launch_bounds__(kThreads)                                         \
      NAME(const T* q, const T* k, T* q_out, T* k_out, i64 q_stride, i64 k_stride,               \
           i64 q_out_stride, i64 k_out_stride, int count, int heads, float eps) {                \
    const bool is_key = blockIdx.y == 1;                                                         \
    unit_rows<T, D>(is_key ? k : q, is_key ? k_out : q_out, is_key ? k_stride : q_stride,        \
                    is_key ? k_out_stride : q_out_stride, static_cast<unsigned>(count),          \
                    static_cast<unsigned>(heads), eps);                                          \
  }

#define KDA_QK_NORM_IO(IO, T)                \
  KDA_QK_NORM(kda_qk_norm_##IO##_d32, T, 32) \
  KDA_QK_NORM(kda_qk_norm_##IO##_d64, T, 64) \
  KDA_QK_NORM(kda_qk_norm_##IO##_d128, T, 128)

KDA_QK_NORM_IO(f32, float)
KDA_QK_NORM_IO(f16, __half)
KDA_QK_NORM_IO(bf16, __nv_bfloat16)
