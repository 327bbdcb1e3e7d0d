// The gates of the gated delta rule from what the model's projections give, or from the rows they project.
//
//   p = a + dt_bias    g = -e^a_log ln(1 + e^p)    alpha = e^g    beta = sigmoid(b)
//
// (specification: linear attention, section 4), softplus exact for every p, all f32. A row of the output
// holds g or alpha, and beta, of every value head.
// Layouts, strides in elements of the tensor's own type:
//   a, b            [rows, Hv] io      or both in one row [rows, 2 Hv]
//   x               [rows, hidden] io  projected: a = x . w_a, b = x . w_b, summed in f32 and not rounded
//   w_a, w_b        [Hv, hidden] io    or both in one matrix [2 Hv, hidden]
//   dt_bias, a_log  [Hv] f32
//   decay, beta     [rows, Hv] f32
// Where a and b share a row (or w_a and w_b a matrix) value head h has column h / group * 2 group +
// h % group, plus a_at or b_at: with group = Hv one after the other, with group = Hv / Hk the r of a key
// head and then its other r.
// `vectors`: heads (or hidden) go by whole vectors; the bits do not depend on it.
//
// Given gates: a thread has four heads of a row, or one. Projected: a block has one head and up to four
// rows, a thread every 128th piece of them and of both weights; the order of a sum follows from `hidden`
// and the type alone, so a row alone and among others, and both forms of the weights, give the same bits.
#include "gates.cuh"
#include "piece.cuh"

constexpr int kThreads = 128;
constexpr int kTileRows = 4;

struct Head {
  float dt_bias, a_log;
};

struct Gates {
  float decay, beta;
};

__device__ __forceinline__ Gates gates_of(float a, float b, Head head, int gives_alpha) {
  const float g = -expf(head.a_log) * softplus(a + head.dt_bias);
  return {gives_alpha ? expf(g) : g, sigmoid(b)};
}

template <typename T>
struct Given {
  const T* a;
  const T* b;
  const float* dt_bias;
  const float* a_log;
  float* decay;
  float* beta;
  i64 a_stride, b_stride, decay_stride, beta_stride, rows;
  int heads, group, a_at, b_at, vectors, gives_alpha;
};

__device__ __forceinline__ int column_of(int head, int group) {
  return head / group * 2 * group + head % group;
}

template <typename T>
__device__ __forceinline__ void given(const Given<T>& call) {
  const int width = call.vectors ? 4 : 1;
  const int a_row = call.heads / width;  // threads a row
  const i64 at = static_cast<i64>(blockIdx.x) * kThreads + threadIdx.x;
  const i64 row = at / a_row;
  if (row >= call.rows) return;
  const int head = static_cast<int>(at % a_row) * width;
  const int column = column_of(head, call.group);
  const T* const a = call.a + row * call.a_stride + call.a_at + column;
  const T* const b = call.b + row * call.b_stride + call.b_at + column;
  float* const decay = call.decay + row * call.decay_stride + head;
  float* const beta = call.beta + row * call.beta_stride + head;
  if (call.vectors) {
    const float4 a4 = load4(a), b4 = load4(b);
    const float4 bias = load4(call.dt_bias + head), log = load4(call.a_log + head);
    const Gates x = gates_of(a4.x, b4.x, {bias.x, log.x}, call.gives_alpha);
    const Gates y = gates_of(a4.y, b4.y, {bias.y, log.y}, call.gives_alpha);
    const Gates z = gates_of(a4.z, b4.z, {bias.z, log.z}, call.gives_alpha);
    const Gates w = gates_of(a4.w, b4.w, {bias.w, log.w}, call.gives_alpha);
    store4(decay, make_float4(x.decay, y.decay, z.decay, w.decay));
    store4(beta, make_float4(x.beta, y.beta, z.beta, w.beta));
  } else {
    const Head own{__ldg(call.dt_bias + head), __ldg(call.a_log + head)};
    const Gates x = gates_of(widen(__ldg(a)), widen(__ldg(b)), own, call.gives_alpha);
    *decay = x.decay;
    *beta = x.beta;
  }
}

template <typename T>
struct Projected {
  const T* x;
  const T* w_a;
  const T* w_b;
  const float* dt_bias;
  const float* a_log;
  float* decay;
  float* beta;
  i64 x_stride, w_a_stride, w_b_stride, decay_stride, beta_stride, rows;
  int hidden, group, a_at, b_at, vectors, gives_alpha;
};

template <typename T>
__device__ __forceinline__ void load_piece(Piece<T>& piece, const T* row, int at, int hidden,
                                           int vectors) {
  if (vectors) {
    piece.load(row + at);
  } else {
    piece.load_some(row + at, hidden - at);
  }
}

template <typename T>
__device__ __forceinline__ void projected(const Projected<T>& call) {
  using P = Piece<T>;
  __shared__ float s_sum[kThreads / 32][2 * kTileRows];
  const int head = blockIdx.x, column = column_of(head, call.group);
  const T* const w_a = call.w_a + (call.a_at + column) * call.w_a_stride;
  const T* const w_b = call.w_b + (call.b_at + column) * call.w_b_stride;
  for (i64 first = static_cast<i64>(blockIdx.y) * kTileRows; first < call.rows;
       first += static_cast<i64>(gridDim.y) * kTileRows) {
    const int rows = static_cast<int>(min(call.rows - first, static_cast<i64>(kTileRows)));
    float sum[2 * kTileRows] = {};
    for (int at = threadIdx.x * P::kCount; at < call.hidden; at += kThreads * P::kCount) {
      P a, b;
      load_piece(a, w_a, at, call.hidden, call.vectors);
      load_piece(b, w_b, at, call.hidden, call.vectors);
#pragma unroll
      for (int row = 0; row < kTileRows; ++row) {
        if (row < rows) {
          P x;
          load_piece(x, call.x + (first + row) * call.x_stride, at, call.hidden, call.vectors);
#pragma unroll
          for (int i = 0; i < P::kCount; ++i) {
            sum[2 * row] = fmaf(x.x[i], a.x[i], sum[2 * row]);
            sum[2 * row + 1] = fmaf(x.x[i], b.x[i], sum[2 * row + 1]);
          }
        }
      }
    }
#pragma unroll
    for (int i = 0; i < 2 * kTileRows; ++i) {
#pragma unroll
      for (int step = 16; step > 0; step /= 2) {
        sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], step);
      }
      if ((threadIdx.x & 31) == 0) s_sum[threadIdx.x >> 5][i] = sum[i];
    }
    __syncthreads();  // every warp's sums are there
    if (threadIdx.x < rows) {
      float a = 0.0f, b = 0.0f;
#pragma unroll
      for (int warp = 0; warp < kThreads / 32; ++warp) {
        a += s_sum[warp][2 * threadIdx.x];
        b += s_sum[warp][2 * threadIdx.x + 1];
      }
      const Head own{__ldg(call.dt_bias + head), __ldg(call.a_log + head)};
      const Gates gates = gates_of(a, b, own, call.gives_alpha);
      call.decay[(first + threadIdx.x) * call.decay_stride + head] = gates.decay;
      call.beta[(first + threadIdx.x) * call.beta_stride + head] = gates.beta;
    }
    __syncthreads();  // the sums are read; the next rows' may take their place
  }
}

#define GDN_GATES(IO, T)                                                                         \
  extern "C" __global__ void __launch_bounds__(kThreads) gdn_gates_given_##IO(                  \
      const T* __restrict__ a, const T* __restrict__ b, const float* __restrict__ dt_bias,      \
      const float* __restrict__ a_log, float* decay, float* beta, i64 a_stride, i64 b_stride,   \
      i64 decay_stride, i64 beta_stride, i64 rows, int heads, int group, int a_at, int b_at,    \
      int vectors, int gives_alpha) {                                                           \
    given<T>({a, b, dt_bias, a_log, decay, beta, a_stride, b_stride, decay_stride, beta_stride, \
              rows, heads, group, a_at, b_at, vectors, gives_alpha});                           \
  }                                                                                             \
  extern "C" __global__ void __launch_bounds__(kThreads) gdn_gates_projected_##IO(              \
      const T* __restrict__ x, const T* __restrict__ w_a, const T* __restrict__ w_b,            \
      const float* __restrict__ dt_bias, const float* __restrict__ a_log, float* decay,         \
      float* beta, i64 x_stride, i64 w_a_stride, i64 w_b_stride, i64 decay_stride,              \
      i64 beta_stride, i64 rows, int hidden, int group, int a_at, int b_at, int vectors,        \
      int gives_alpha) {                                                                        \
    projected<T>({x, w_a, w_b, dt_bias, a_log, decay, beta, x_stride, w_a_stride, w_b_stride,   \
                  decay_stride, beta_stride, rows, hidden, group, a_at, b_at, vectors,          \
                  gives_alpha});                                                                \
  }

GDN_GATES(f32, float)
GDN_GATES(f16, __half)
GDN_GATES(bf16, __nv_bfloat16)
