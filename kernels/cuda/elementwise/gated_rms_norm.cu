// RMS norm of rows, a weight, then a gate:
//
//   n = x / sqrt(mean(x^2) + eps)    y = n * (w or 1 + w) * phi(z),   phi(z) = z sigmoid(z) or sigmoid(z)
//
// (specification: linear attention, section 7). All f32; y is rounded once, and out_f32, where it is
// given, holds it unrounded. `rounds_norm`: n is rounded to the type of x before the weight.
// Layouts, strides in elements of the tensor's own type:
//   x, z, out  [rows, channels] io   channels contiguous; out_f32 likewise, f32, may be null
//   w          [channels] io
// `vectors`: every row begins on 16 bytes and has whole pieces (piece.cuh); the bits do not depend on it.
//
// A group of `lanes` threads, a power of two in a warp or the whole block, has a row: a thread takes
// every lanes-th piece, keeps the first HELD of x, and asks for x, z and w of those before it sums. A
// row that is not of whole aligned pieces goes one element after another and is read twice.
// The order of a row's sum follows from its channels and type alone.
#include "gated_norm.cuh"
#include "piece.cuh"

constexpr int kBlockThreads = 256;
constexpr unsigned kAllLanes = 0xffffffffu;

template <typename T>
struct Arguments {
  const T* x;
  const T* z;
  const T* w;
  T* out;
  float* out_f32;
  i64 x_stride, z_stride, out_stride, out_f32_stride, rows;
  int channels, lanes, vectors, gate_is_sigmoid, weight_is_offset, rounds_norm;
  float eps;
};

// One row as a thread sees it.
template <typename T>
struct Row {
  using P = Piece<T>;
  const Arguments<T>& call;
  i64 row;

  __device__ __forceinline__ const T* x() const { return call.x + row * call.x_stride; }
  __device__ __forceinline__ const T* z() const { return call.z + row * call.z_stride; }
  __device__ __forceinline__ T* out() const { return call.out + row * call.out_stride; }
  __device__ __forceinline__ float* out_f32() const {
    return call.out_f32 + row * call.out_f32_stride;
  }
  // Where the piece that begins at a channel ends.
  __device__ __forceinline__ int end_of(int at) const {
    return min(at + P::kCount, call.channels);
  }

  // A piece as it lies in memory: half as many registers, of 16-bit types, until it is used.
  __device__ __forceinline__ static uint4 load(const T* at) {
    return __ldg(reinterpret_cast<const uint4*>(at));
  }

  // square + the sum of the piece's squares.
  __device__ __forceinline__ static float add_squares(uint4 words, float square) {
    P x;
    x.widen_from(words);
#pragma unroll
    for (int i = 0; i < P::kCount; ++i) square = fmaf(x.x[i], x.x[i], square);
    return square;
  }
  __device__ __forceinline__ float add_squares_singly(int at, float square) const {
#pragma unroll 1
    for (int c = at; c < end_of(at); ++c) {
      const float x_c = widen(__ldg(x() + c));
      square = fmaf(x_c, x_c, square);
    }
    return square;
  }

  template <int N, typename DO>
  __device__ __forceinline__ static void each(DO element) {
#pragma unroll
    for (int i = 0; i < N; ++i) element(i);
  }

  // y and w hold x and the weight before, y the result and w nothing of use afterwards. An option is
  // asked for once for all N elements.
  template <int N>
  __device__ __forceinline__ void gate(float (&y)[N], const float (&z)[N], float (&w)[N],
                                       float inverse) const {
    each<N>([&](int i) { y[i] *= inverse; });
    if (call.rounds_norm) each<N>([&](int i) { y[i] = widen(narrow<T>(y[i])); });
    if (call.weight_is_offset) each<N>([&](int i) { w[i] = 1.0f + w[i]; });
    if (call.gate_is_sigmoid) {
      each<N>([&](int i) { y[i] = y[i] * w[i] * sigmoid_gate(z[i]); });
    } else {
      each<N>([&](int i) { y[i] = y[i] * w[i] * silu(z[i]); });
    }
  }

  __device__ __forceinline__ void finish(uint4 x_words, uint4 z_words, uint4 w_words, int at,
                                         float inverse) const {
    P y, z, w;
    y.widen_from(x_words), z.widen_from(z_words), w.widen_from(w_words);
    gate(y.x, z.x, w.x, inverse);
    y.store(out() + at);
    if (call.out_f32 == nullptr) return;
#pragma unroll
    for (int i = 0; i < P::kCount; i += 4) {
      store4(out_f32() + at + i, make_float4(y.x[i], y.x[i + 1], y.x[i + 2], y.x[i + 3]));
    }
  }
  __device__ __forceinline__ void finish_singly(int at, float inverse) const {
#pragma unroll 1
    for (int c = at; c < end_of(at); ++c) {
      float y[1] = {widen(__ldg(x() + c))}, w[1] = {widen(__ldg(call.w + c))};
      const float z_c[1] = {widen(__ldg(z() + c))};
      gate(y, z_c, w, inverse);
      out()[c] = narrow<T>(y[0]);
      if (call.out_f32 != nullptr) out_f32()[c] = y[0];
    }
  }
};

// The sum over a row's threads, to each of them.
template <bool BLOCK>
__device__ __forceinline__ float row_sum(float x, int lanes) {
  for (int step = (BLOCK ? 32 : lanes) / 2; step > 0; step /= 2) {
    x += __shfl_xor_sync(kAllLanes, x, step);
  }
  if constexpr (BLOCK) {
    __shared__ float s_sum[kBlockThreads / 32];
    if ((threadIdx.x & 31) == 0) s_sum[threadIdx.x >> 5] = x;
    __syncthreads();  // every warp's sum is there
    x = 0.0f;
#pragma unroll
    for (int warp = 0; warp < kBlockThreads / 32; ++warp) x += s_sum[warp];
  }
  return x;
}

template <typename T, bool BLOCK, int HELD>
__device__ __forceinline__ void gated_rms_norm(const Arguments<T>& call) {
  using P = Piece<T>;
  const int lanes = BLOCK ? kBlockThreads : call.lanes, bits = __ffs(lanes) - 1;
  const int lane = threadIdx.x & (lanes - 1);
  const int step = lanes * P::kCount;
  const Row<T> row{call, static_cast<i64>(blockIdx.x) * (kBlockThreads >> bits) + (threadIdx.x >> bits)};
  const bool own = row.row < call.rows;
  const int channels = own ? call.channels : 0;
  const int first = lane * P::kCount;

  uint4 x[HELD], z[HELD], w[HELD];
  float square = 0.0f;
  if (call.vectors) {
#pragma unroll
    for (int held = 0; held < HELD; ++held) {
      const int at = first + held * step;
      if (at >= channels) continue;
      x[held] = row.load(row.x() + at), z[held] = row.load(row.z() + at);
      w[held] = row.load(call.w + at);
    }
#pragma unroll
    for (int held = 0; held < HELD; ++held) {
      if (first + held * step < channels) square = row.add_squares(x[held], square);
    }
    for (int at = first + HELD * step; at < channels; at += step) {
      square = row.add_squares(row.load(row.x() + at), square);
    }
  } else {
    for (int at = first; at < channels; at += step) square = row.add_squares_singly(at, square);
  }
  square = row_sum<BLOCK>(square, lanes);
  const float inverse = 1.0f / sqrtf(square / static_cast<float>(call.channels) + call.eps);
  if (call.vectors) {
#pragma unroll
    for (int held = 0; held < HELD; ++held) {
      const int at = first + held * step;
      if (at < channels) row.finish(x[held], z[held], w[held], at, inverse);
    }
    for (int at = first + HELD * step; at < channels; at += step) {
      row.finish(row.load(row.x() + at), row.load(row.z() + at), row.load(call.w + at), at, inverse);
    }
  } else {
    for (int at = first; at < channels; at += step) row.finish_singly(at, inverse);
  }
}

#define GATED_RMS_NORM(NAME, T, BLOCK, HELD)                                                     \
  extern "C" __global__ void __launch_bounds__(kBlockThreads)                                   \
      NAME(const T* __restrict__ x, const T* __restrict__ z, const T* __restrict__ w, T* out,   \
           float* out_f32, i64 x_stride, i64 z_stride, i64 out_stride, i64 out_f32_stride,      \
           i64 rows, int channels, int lanes, int vectors, int gate_is_sigmoid,                 \
           int weight_is_offset, int rounds_norm, float eps) {                                  \
    gated_rms_norm<T, BLOCK, HELD>({x, z, w, out, out_f32, x_stride, z_stride, out_stride,      \
                                    out_f32_stride, rows, channels, lanes, vectors,             \
                                    gate_is_sigmoid, weight_is_offset, rounds_norm, eps});      \
  }

// `_part`: a part of a warp has a row; `_block`: a block has one.
#define GATED_RMS_NORM_IO(IO, T)                           \
  GATED_RMS_NORM(gated_rms_norm_##IO##_part, T, false, 2)  \
  GATED_RMS_NORM(gated_rms_norm_##IO##_block, T, true, 3)

GATED_RMS_NORM_IO(f32, float)
GATED_RMS_NORM_IO(f16, __half)
GATED_RMS_NORM_IO(bf16, __nv_bfloat16)
