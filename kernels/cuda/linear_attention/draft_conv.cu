// The grouped dynamic convolution of a drafting model: two taps, whose weights are a channel's own and
// what the row says for the channel's group.
//
//   coef[row, side, tap, g] = sum over k of w[(side, tap, g), k] x[row, k]
//   y[row, c] = sum over tap = 0, 1 with tap <= row of
//               (base[side, tap, c] + coef[row, side, tap, c / group]) x[row - tap, c]   (+ residual)
//
// for the rows of a block, the first of which is row 0: blocks know nothing of each other. Side 0 comes
// before the sublayer, on its input, and side 1 after it, on its output, with the coefficients of the
// same row's input (specification: linear attention, section 8).
// Layouts, strides in elements; everything of one type, f32, f16 or bf16:
//   x, y, residual [blocks, rows, channels]  a block contiguous, blocks *_stride apart; residual may be
//                                            null
//   base [side, tap, channels]               dense
//   coef [blocks, rows, side, tap, groups]   a block contiguous, blocks coef_stride apart
//   w    [side * tap * groups, channels]     rows w_stride apart
// Arithmetic is f32. Coefficients are rounded when they are stored, and the stored are used; base +
// coef, the first product and the second's fused sum round in f32, and y once, when it is stored.
//
// Four elements of a row travel together where rows are whole pieces of four, else one does; no sum's
// order depends on it. A thread of the convolution owns a piece of a row. Four warps of the projection
// share four outputs of eight rows and take a fourth of the products each: every weight is read once
// for eight rows.
#include "element.cuh"
#include "sequences.cuh"

constexpr int kThreads = 128;
constexpr int kSides = 2;
constexpr int kTaps = 2;
constexpr int kWarps = kThreads / 32;
constexpr int kOutputs = kSides * kTaps;  // whole groups of them
constexpr int kRows = 8;

template <int N, typename T>
__device__ __forceinline__ void load(float (&x)[N], const T* at) {
  if constexpr (N == 4) {
    const float4 four = load4(at);
    x[0] = four.x, x[1] = four.y, x[2] = four.z, x[3] = four.w;
  } else {
    x[0] = widen(__ldg(at));
  }
}

// Four elements, of which the row may have only so many left: then the others are zeros.
template <bool kWhole, typename T>
__device__ __forceinline__ void load_four(float (&x)[4], const T* at, int left) {
  if constexpr (kWhole) {
    load(x, at);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = i < left ? widen(__ldg(at + i)) : 0.0f;
  }
}

// Row `row` of all blocks' rows, one after another, in a tensor whose blocks lie `stride` apart.
struct Place {
  i64 block;
  int row;
  __device__ __forceinline__ Place(i64 row_of_all, int rows)
      : block(row_of_all / rows), row(static_cast<int>(row_of_all - block * rows)) {}
  __device__ __forceinline__ i64 at(i64 stride, int width) const {
    return block * stride + static_cast<i64>(row) * width;
  }
};

template <int N, typename T>
__device__ __forceinline__ void draft_conv(const T* __restrict__ x, const T* __restrict__ base,
                                           const T* __restrict__ coef,
                                           const T* __restrict__ residual, T* __restrict__ y,
                                           i64 x_stride, i64 coef_stride, i64 residual_stride,
                                           i64 y_stride, i64 all_rows, int rows, int channels,
                                           int group, int side) {
  const int c = (static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x)) * N;
  if (c >= channels) return;
  const int groups = channels / group;
  const int of_side = kTaps * groups, of_tap = groups;
  float own[kTaps][N];
#pragma unroll
  for (int tap = 0; tap < kTaps; ++tap) {
    load(own[tap], base + static_cast<i64>(side * kTaps + tap) * channels + c);
  }
  for (i64 at = blockIdx.y; at < all_rows; at += gridDim.y) {
    const Place place(at, rows);
    const bool is_first = place.row == 0;
    const T* const in = x + place.at(x_stride, channels) + c;
    const T* const of_row = coef + place.at(coef_stride, kSides * kTaps * groups) + side * of_side;
    float now[N], before[N] = {}, kept[N] = {}, out[N];
    load(now, in);
    if (!is_first) load(before, in - channels);
    if (residual != nullptr) load(kept, residual + place.at(residual_stride, channels) + c);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const T* const of_group = of_row + (c + i) / group;
      out[i] = __fmul_rn(own[0][i] + widen(__ldg(of_group)), now[i]);
      if (!is_first) out[i] = fmaf(own[1][i] + widen(__ldg(of_group + of_tap)), before[i], out[i]);
      if (residual != nullptr) out[i] += kept[i];
    }
    T* const to = y + place.at(y_stride, channels) + c;
    if constexpr (N == 4) {
      store4(to, make_float4(out[0], out[1], out[2], out[3]));
    } else {
      *to = narrow<T>(out[0]);
    }
  }
}

// Block-collective. One order of a sum: a thread's fours in turn, elements in order, a butterfly over
// the warp, then the warps' sums in turn.
template <bool kWhole, typename T>
__device__ __forceinline__ void draft_conv_project(const T* __restrict__ x,
                                                   const T* __restrict__ w, T* __restrict__ coef,
                                                   i64 x_stride, i64 w_stride, i64 coef_stride,
                                                   i64 all_rows, int rows, int channels,
                                                   int outputs) {
  __shared__ float s_sum[kWarps][kOutputs][kRows];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int first_output = blockIdx.x * kOutputs;
  for (i64 first = static_cast<i64>(blockIdx.y) * kRows; first < all_rows;
       first += static_cast<i64>(gridDim.y) * kRows) {
    const T* of[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) of[r] = x + Place(first + r, rows).at(x_stride, channels);
    float sum[kOutputs][kRows] = {};
    for (int k = static_cast<int>(threadIdx.x) * 4; k < channels; k += kThreads * 4) {
      float weight[kOutputs][4];
#pragma unroll
      for (int o = 0; o < kOutputs; ++o) {
        load_four<kWhole>(weight[o], w + (first_output + o) * w_stride + k, channels - k);
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (first + r >= all_rows) break;
        float of_row[4];
        load_four<kWhole>(of_row, of[r] + k, channels - k);
#pragma unroll
        for (int o = 0; o < kOutputs; ++o) {
#pragma unroll
          for (int i = 0; i < 4; ++i) sum[o][r] = fmaf(weight[o][i], of_row[i], sum[o][r]);
        }
      }
    }
#pragma unroll
    for (int o = 0; o < kOutputs; ++o) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
#pragma unroll
        for (int step = 16; step > 0; step /= 2) {
          sum[o][r] += __shfl_xor_sync(kFullWarp, sum[o][r], step);
        }
      }
      if (lane == 0) {
#pragma unroll
        for (int r = 0; r < kRows; ++r) s_sum[warp][o][r] = sum[o][r];
      }
    }
    __syncthreads();  // every warp's sums are there
    const int o = static_cast<int>(threadIdx.x) / kRows, r = static_cast<int>(threadIdx.x) % kRows;
    if (o < kOutputs && first + r < all_rows) {
      float whole = s_sum[0][o][r];
#pragma unroll
      for (int other = 1; other < kWarps; ++other) whole += s_sum[other][o][r];
      coef[Place(first + r, rows).at(coef_stride, outputs) + first_output + o] = narrow<T>(whole);
    }
    __syncthreads();  // all are read; the next rows' may take their place
  }
}

#define DRAFT_CONV(SUFFIX, T, N)                                                                  \
  extern "C" __global__ void __launch_bounds__(kThreads)                                          \
      draft_conv_##SUFFIX(const T* __restrict__ x, const T* __restrict__ base,                    \
                          const T* __restrict__ coef, const T* __restrict__ residual,             \
                          T* __restrict__ y, i64 x_stride, i64 coef_stride, i64 residual_stride,  \
                          i64 y_stride, i64 all_rows, int rows, int channels, int group,          \
                          int side) {                                                             \
    draft_conv<N>(x, base, coef, residual, y, x_stride, coef_stride, residual_stride, y_stride,   \
                  all_rows, rows, channels, group, side);                                         \
  }                                                                                               \
  extern "C" __global__ void __launch_bounds__(kThreads)                                          \
      draft_conv_project_##SUFFIX(const T* __restrict__ x, const T* __restrict__ w,               \
                                  T* __restrict__ coef, i64 x_stride, i64 w_stride,               \
                                  i64 coef_stride, i64 all_rows, int rows, int channels,          \
                                  int outputs) {                                                  \
    draft_conv_project<N == 4>(x, w, coef, x_stride, w_stride, coef_stride, all_rows, rows,       \
                               channels, outputs);                                                \
  }

DRAFT_CONV(f32, float, 4)
DRAFT_CONV(f32_single, float, 1)
DRAFT_CONV(f16, __half, 4)
DRAFT_CONV(f16_single, __half, 1)
DRAFT_CONV(bf16, __nv_bfloat16, 4)
DRAFT_CONV(bf16_single, __nv_bfloat16, 1)
