// Log decays of key channels from the forget gate's projection, by one of two laws:
//
//   softplus    g = -e^(a_log[h]) ln(1 + e^p)         p = f + dt_bias[h, c]
//   lb_sigmoid  g = lower_bound sigmoid(e^(a_log[h]) p)
//
// (specification: linear attention, section 5). Softplus is exact for every argument: no threshold.
// Layouts, strides in elements of the tensor's own type:
//   f       [rows, H, D] io   heads and channels contiguous in a row, 16-byte aligned rows
//   g       [rows, H, D] f32  likewise
//   dt_bias [H, D] f32, dense, 16-byte aligned; a_log [H] f32, -inf for no decay
// D is a multiple of four. f32 arithmetic with accurate expf and log1pf; each element depends on its own
// alone.
//
// A thread keeps four channels and goes down the rows, so their bias and rate are read once.
#include "element.cuh"

constexpr int kThreads = 256;

enum GateLaw { kSoftplus, kLowerBoundSigmoid };

template <GateLaw LAW>
__device__ __forceinline__ float log_decay(float p, float rate, float lower_bound) {
  if constexpr (LAW == kSoftplus) {
    return -rate * (fmaxf(p, 0.0f) + log1pf(expf(-fabsf(p))));
  } else {
    return lower_bound / (1.0f + expf(-(rate * p)));
  }
}

template <typename T, GateLaw LAW>
__device__ __forceinline__ void kda_gate(const T* __restrict__ f, const float* __restrict__ dt_bias,
                                         const float* __restrict__ a_log, float* __restrict__ g,
                                         i64 f_stride, i64 g_stride, int rows, int heads, int dim,
                                         float lower_bound) {
  const int column = 4 * (blockIdx.x * kThreads + threadIdx.x);
  if (column >= heads * dim) return;
  const float rate = expf(__ldg(a_log + column / dim));
  const float4 bias = load4(dt_bias + column);
  for (int row = blockIdx.y; row < rows; row += gridDim.y) {
    const float4 own = load4(f + row * f_stride + column);
    store4(g + row * g_stride + column,
           make_float4(log_decay<LAW>(own.x + bias.x, rate, lower_bound),
                       log_decay<LAW>(own.y + bias.y, rate, lower_bound),
                       log_decay<LAW>(own.z + bias.z, rate, lower_bound),
                       log_decay<LAW>(own.w + bias.w, rate, lower_bound)));
  }
}

#define KDA_GATE(NAME, T, LAW)                                                                    \
  extern "C" __global__ void __launch_bounds__(kThreads)                                         \
      NAME(const T* __restrict__ f, const float* __restrict__ dt_bias,                           \
           const float* __restrict__ a_log, float* __restrict__ g, i64 f_stride, i64 g_stride,   \
           int rows, int heads, int dim, float lower_bound) {                                    \
    kda_gate<T, LAW>(f, dt_bias, a_log, g, f_stride, g_stride, rows, heads, dim, lower_bound);   \
  }

#define KDA_GATE_IO(IO, T)                        \
  KDA_GATE(kda_gate_softplus_##IO, T, kSoftplus)  \
  KDA_GATE(kda_gate_lb_sigmoid_##IO, T, kLowerBoundSigmoid)

KDA_GATE_IO(f32, float)
KDA_GATE_IO(f16, __half)
KDA_GATE_IO(bf16, __nv_bfloat16)
