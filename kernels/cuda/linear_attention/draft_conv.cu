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
//   parts [parts, all rows, side * tap * groups] f32, dense: sums of w x over a part of the channels
//                                            each; null where coefficients are given
// Arithmetic is f32. Coefficients are rounded when they are stored, and the stored are used; base +
// coef, the first product and the second's fused sum round in f32, and y once, when it is stored.
//
// The projection leaves parts, of f32 a single one; the convolution adds them in turn where it needs a
// coefficient, and blocks of its own store them all. What follows is not seen in the bits: which rows
// are in a launch, and whether elements of a row travel together, as they do where rows are whole pieces.
// A thread of the convolution owns a piece of a row.
#include "element.cuh"
#include "sequences.cuh"
#include "tensor_core.cuh"

constexpr int kThreads = 128;
constexpr int kSides = 2;
constexpr int kTaps = 2;
constexpr int kRows = 8;  // of a projection's block at a time
constexpr int kPartsAsked = 5;

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

// Coefficients of rows, outputs as w has them: given, or to be summed.
template <typename T>
struct Coefficients {
  T* given;
  const float* parts;
  i64 stride, all_rows;
  int rows, outputs, count;  // of parts

  __device__ __forceinline__ T* place(i64 row) const {
    return given + Place(row, rows).at(stride, outputs);
  }
  // N coefficients `apart` from one another, as they are stored; parts are asked for several at a time.
  template <int N>
  __device__ __forceinline__ void sum(float (&whole)[N], i64 row, int output, int apart) const {
    const float* const first = parts + row * outputs + output;
    if constexpr (sizeof(T) == sizeof(float)) {  // a single part
#pragma unroll
      for (int i = 0; i < N; ++i) whole[i] = __ldg(first + i * apart);
      return;
    }
#pragma unroll
    for (int i = 0; i < N; ++i) whole[i] = 0.0f;
#pragma unroll 1
    for (int part = 0; part < count; part += kPartsAsked) {
      float asked[kPartsAsked][N];
#pragma unroll
      for (int j = 0; j < kPartsAsked; ++j) {
        const float* const from = first + (part + j) * all_rows * outputs;
#pragma unroll
        for (int i = 0; i < N; ++i) asked[j][i] = part + j < count ? __ldg(from + i * apart) : 0.0f;
      }
#pragma unroll
      for (int j = 0; j < kPartsAsked; ++j) {
#pragma unroll
        for (int i = 0; i < N; ++i) whole[i] += asked[j][i];
      }
    }
#pragma unroll
    for (int i = 0; i < N; ++i) whole[i] = widen(narrow<T>(whole[i]));
  }
  // Of the taps of a group, of which this is the first.
  __device__ __forceinline__ void taps(float (&said)[kTaps], i64 row, const T* of_row, int output,
                                       int of_tap) const {
    if (parts == nullptr) {
#pragma unroll
      for (int tap = 0; tap < kTaps; ++tap) said[tap] = widen(__ldg(of_row + output + tap * of_tap));
    } else {
      sum(said, row, output, of_tap);
    }
  }
};

template <int N, typename T>
__device__ __forceinline__ void draft_conv(const T* __restrict__ x, const T* __restrict__ base,
                                           const Coefficients<T>& coef,
                                           const T* __restrict__ residual, T* __restrict__ y,
                                           i64 x_stride, i64 residual_stride, i64 y_stride,
                                           int channels, int group, int side) {
  const int c = (static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x)) * N;
  const int groups = channels / group;
  const int of_side = kTaps * groups, of_tap = groups;
  const int own_blocks = (channels + kThreads * N - 1) / (kThreads * N);
  if (static_cast<int>(blockIdx.x) >= own_blocks) {
    const int output = c / N - own_blocks * kThreads;
    if (output >= coef.outputs) return;
    for (i64 at = blockIdx.y; at < coef.all_rows; at += gridDim.y) {
      float whole[1];
      coef.sum(whole, at, output, 0);
      coef.place(at)[output] = narrow<T>(whole[0]);
    }
    return;
  }
  if (c >= channels) return;
  float own[kTaps][N];
#pragma unroll
  for (int tap = 0; tap < kTaps; ++tap) {
    load(own[tap], base + static_cast<i64>(side * kTaps + tap) * channels + c);
  }
  for (i64 at = blockIdx.y; at < coef.all_rows; at += gridDim.y) {
    const Place place(at, coef.rows);
    const bool is_first = place.row == 0;
    const T* const in = x + place.at(x_stride, channels) + c;
    const T* const of_row = coef.place(at);
    float now[N], before[N] = {}, kept[N] = {}, out[N], said[kTaps];
    load(now, in);
    if (!is_first) load(before, in - channels);
    if (residual != nullptr) load(kept, residual + place.at(residual_stride, channels) + c);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (i == 0 || (c + i) % group == 0) {
        coef.taps(said, at, of_row, side * of_side + (c + i) / group, of_tap);
      }
      out[i] = __fmul_rn(own[0][i] + said[0], now[i]);
      if (!is_first) out[i] = fmaf(own[1][i] + said[1], before[i], out[i]);
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

// The projection of f32, to a single part. Four warps share four outputs of eight rows and take a fourth
// of the products each: every weight is read once for eight rows. Block-collective. One order of a sum:
// a thread's fours in turn, elements in order, a butterfly over the warp, then the warps' sums in turn.
template <bool kWhole>
__device__ __forceinline__ void project_f32(const float* __restrict__ x,
                                                   const float* __restrict__ w, float* __restrict__ parts,
                                                   i64 x_stride, i64 w_stride,
                                                   i64 all_rows, int rows, int channels,
                                                   int outputs) {
  constexpr int kWarps = kThreads / 32;
  constexpr int kOutputs = kSides * kTaps;  // whole groups of them
  __shared__ float s_sum[kWarps][kOutputs][kRows];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int first_output = blockIdx.x * kOutputs;
  for (i64 first = static_cast<i64>(blockIdx.y) * kRows; first < all_rows;
       first += static_cast<i64>(gridDim.y) * kRows) {
    const float* of[kRows];
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
      parts[(first + r) * outputs + first_output + o] = whole;
    }
    __syncthreads();  // all are read; the next rows' may take their place
  }
}

// The projection of 16-bit types, by tensor cores. A warp has a slab of the weights, 32 outputs by 128
// columns, in registers, and all rows go by it, 32 at a time from shared memory: every weight is read
// once. A block's warps are two slabs of outputs by eight of columns, and those are a part. An output's
// sum has one order: its slab's products, sixteen columns each, in turn, then the slabs' sums, then the
// parts'.
constexpr int kSlabTiles = 2;  // of outputs, as many as a product has
constexpr int kTileOutputs = 16;
constexpr int kSlabPieces = 4;  // of columns, a lane's eight and its three neighbours'
constexpr int kPieceColumns = 32;
constexpr int kOutputSlabs = 2, kColumnSlabs = 8;  // of a block
constexpr int kSlabOutputs = kSlabTiles * kTileOutputs;
constexpr int kSlabColumns = kSlabPieces * kPieceColumns;
constexpr int kPartOutputs = kOutputSlabs * kSlabOutputs;
constexpr int kPartColumns = kColumnSlabs * kSlabColumns;
constexpr int kProjectWarps = kOutputSlabs * kColumnSlabs;
constexpr int kProjectThreads = 32 * kProjectWarps;
constexpr int kRowTiles = 4, kStepRows = kRowTiles * kRows;
static_assert(kProjectThreads == kRows * kPartOutputs, "a thread has a sum of every tile of rows");

// Dynamic: a step's rows of x, then its sums of every slab. Half a line more than a row's columns, and
// four more than outputs, for other banks.
constexpr unsigned kStagedRowBytes = kPartColumns * 2 + 64;
using SlabSums = float[kStepRows][kPartOutputs + 4];
extern __shared__ __align__(16) unsigned char s_project[];

// Eight elements of a row as words, of which the row may have only so many left: then the others are
// zeros. Those of a whole row are all there or none is.
template <bool kWhole, typename T>
__device__ __forceinline__ uint4 load_eight(const T* at, int left) {
  if constexpr (kWhole) {
    return left > 0 ? __ldg(reinterpret_cast<const uint4*>(at)) : make_uint4(0, 0, 0, 0);
  } else {
    unsigned words[4] = {};
#pragma unroll
    for (int i = 0; i < kCopyElements; ++i) {
      if (i < left) words[i / 2] |= __ldg(reinterpret_cast<const unsigned short*>(at) + i)
                                   << i % 2 * 16;
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
  }
}

// A warp's rows of a step, up to a whole tile of rows and so many columns; zeros for what there is not.
template <bool kWhole, typename T>
struct RowsOfX {
  const T* x;
  i64 stride, all_rows;
  int rows, channels, first_column, columns;

  __device__ __forceinline__ void stage(unsigned to, i64 row) const {
    const bool is_live = row < all_rows;
    const T* const from = x + Place(is_live ? row : 0, rows).at(stride, channels) + first_column;
    const int left = is_live ? channels - first_column : 0;
    if constexpr (kWhole) {
      for (int k = threadIdx.x % 32 * kCopyElements; k < columns; k += 32 * kCopyElements) {
        copy_async(to + k * 2, k < left ? from + k : x, k < left ? kCopyBytes : 0);
      }
    } else {
      for (int k = threadIdx.x % 32; k < columns; k += 32) {
        const auto* const element = reinterpret_cast<const unsigned short*>(from) + k;
        store_shared_half(to + k * 2, k < left ? __ldg(element) : 0);
      }
    }
  }
  __device__ __forceinline__ void stage_step(unsigned to, i64 first) const {
    for (int row = threadIdx.x / 32; row < kStepRows; row += kProjectWarps) {
      if (first + row / kRows * kRows < all_rows) stage(to + row * kStagedRowBytes, first + row);
    }
  }
};

template <bool kWhole, typename T>
__device__ __forceinline__ void project(const T* __restrict__ x, const T* __restrict__ w,
                                        float* __restrict__ parts, i64 x_stride, i64 w_stride,
                                        i64 all_rows, int rows, int channels, int outputs) {
  SlabSums* const s_sum = reinterpret_cast<SlabSums*>(s_project + kStepRows * kStagedRowBytes);
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int own_row = lane / 4, own_column = lane % 4 * kCopyElements;
  const int part_output = blockIdx.y * kPartOutputs, part_column = blockIdx.x * kPartColumns;
  const int slab_output = warp % kOutputSlabs * kSlabOutputs, slab = warp / kOutputSlabs;
  const unsigned left = channels - part_column;
  const int slabs = min((left + kSlabColumns - 1) / kSlabColumns, static_cast<unsigned>(kColumnSlabs));
  const bool has_slab = slab < slabs && part_output + slab_output < outputs;
  const RowsOfX<kWhole, T> staged{x,    x_stride, all_rows,    rows,
                                  channels, part_column, slabs * kSlabColumns};
  const unsigned s_rows = shared_address(s_project);
  staged.stage_step(s_rows, 0);

  // Words of a lane's eight columns: the first product's columns are those of the first two words, the
  // second's those of the others, of weights and rows alike.
  uint4 upper[kSlabTiles][kSlabPieces], lower[kSlabTiles][kSlabPieces];
  const int slab_column = slab * kSlabColumns + own_column;
  if (has_slab) {
#pragma unroll
    for (int tile = 0; tile < kSlabTiles; ++tile) {
      const int output = part_output + slab_output + tile * kTileOutputs + own_row;
      const T* const from = w + output * w_stride;
#pragma unroll
      for (int piece = 0; piece < kSlabPieces; ++piece) {
        const int k = part_column + slab_column + piece * kPieceColumns;
        upper[tile][piece] = load_eight<kWhole>(from + k, output < outputs ? channels - k : 0);
        lower[tile][piece] = load_eight<kWhole>(from + kRows * w_stride + k,
                                                output + kRows < outputs ? channels - k : 0);
      }
    }
  }

  for (i64 first = 0; first < all_rows; first += kStepRows) {
    copies_arrive();
    __syncthreads();  // the rows are there, and the sums before are read
    if (has_slab) {
      float sum[kRowTiles][kSlabTiles][4] = {};
      const unsigned own_rows = s_rows + own_row * kStagedRowBytes + slab_column * 2;
#pragma unroll
      for (int piece = 0; piece < kSlabPieces; ++piece) {
#pragma unroll
        for (int at = 0; at < kRowTiles; ++at) {
          if (first + at * kRows >= all_rows) break;
          unsigned right[4];
          load_shared4(right, own_rows + at * kRows * kStagedRowBytes + piece * kPieceColumns * 2);
#pragma unroll
          for (int tile = 0; tile < kSlabTiles; ++tile) {
            const uint4 above = upper[tile][piece], below = lower[tile][piece];
            multiply<T>(sum[at][tile], {above.x, below.x, above.y, below.y}, right[0], right[1]);
            multiply<T>(sum[at][tile], {above.z, below.z, above.w, below.w}, right[2], right[3]);
          }
        }
      }
#pragma unroll
      for (int at = 0; at < kRowTiles; ++at) {
        if (first + at * kRows >= all_rows) break;
        const int row = at * kRows + lane % 4 * 2;
#pragma unroll
        for (int tile = 0; tile < kSlabTiles; ++tile) {
          const int output = slab_output + tile * kTileOutputs + own_row;
          s_sum[slab][row][output] = sum[at][tile][0];
          s_sum[slab][row + 1][output] = sum[at][tile][1];
          s_sum[slab][row][output + kRows] = sum[at][tile][2];
          s_sum[slab][row + 1][output + kRows] = sum[at][tile][3];
        }
      }
    }
    __syncthreads();  // the slabs' sums are there, and the rows are read
    if (first + kStepRows < all_rows) staged.stage_step(s_rows, first + kStepRows);
    const int output = threadIdx.x % kPartOutputs;
    if (part_output + output >= outputs) continue;
#pragma unroll
    for (int at = 0; at < kRowTiles; ++at) {
      const int row = at * kRows + threadIdx.x / kPartOutputs;
      if (first + row >= all_rows) break;
      float whole = s_sum[0][row][output];
      for (int other = 1; other < slabs; ++other) whole += s_sum[other][row][output];
      parts[(blockIdx.x * all_rows + first + row) * outputs + part_output + output] = whole;
    }
  }
}

#define DRAFT_CONV(SUFFIX, T, N)                                                                  \
  extern "C" __global__ void __launch_bounds__(kThreads)                                          \
      draft_conv_##SUFFIX(const T* __restrict__ x, const T* __restrict__ base, T* coef,           \
                          const float* __restrict__ parts, const T* __restrict__ residual,        \
                          T* __restrict__ y, i64 x_stride, i64 coef_stride, i64 residual_stride,  \
                          i64 y_stride, i64 all_rows, int rows, int channels, int group,          \
                          int side, int count) {                                                  \
    const int outputs = kSides * kTaps * (channels / group);                                      \
    draft_conv<N, T>(x, base, {coef, parts, coef_stride, all_rows, rows, outputs, count},         \
                     residual, y, x_stride, residual_stride, y_stride, channels, group, side);    \
  }

#define PROJECT(NAME, FUNCTION, THREADS, T)                                                       \
  extern "C" __global__ void __launch_bounds__(THREADS)                                           \
      NAME(const T* __restrict__ x, const T* __restrict__ w, float* __restrict__ parts,           \
           i64 x_stride, i64 w_stride, i64 all_rows, int rows, int channels, int outputs) {       \
    FUNCTION(x, w, parts, x_stride, w_stride, all_rows, rows, channels, outputs);                 \
  }

DRAFT_CONV(f32, float, 4)
DRAFT_CONV(f32_single, float, 1)
DRAFT_CONV(f16, __half, 4)
DRAFT_CONV(f16_single, __half, 1)
DRAFT_CONV(bf16, __nv_bfloat16, 4)
DRAFT_CONV(bf16_single, __nv_bfloat16, 1)

PROJECT(draft_conv_project_f32, project_f32<true>, kThreads, float)
PROJECT(draft_conv_project_f32_single, project_f32<false>, kThreads, float)
PROJECT(draft_conv_project_f16, project<true>, kProjectThreads, __half)
PROJECT(draft_conv_project_f16_elements, project<false>, kProjectThreads, __half)
PROJECT(draft_conv_project_bf16, project<true>, kProjectThreads, __nv_bfloat16)
PROJECT(draft_conv_project_bf16_elements, project<false>, kProjectThreads, __nv_bfloat16)
