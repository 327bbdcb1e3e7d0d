// Causal depthwise convolution of width W over sequences of any length: one step, the rows of a
// speculative round and a prefill give the same bits, and so do two ways to walk the rows.
//
// Per sequence n, its rows t = cu_seqlens[n] to cu_seqlens[n + 1] in order and each channel, with the
// W - 1 inputs before row t, oldest first, at first those slot slot_of[n] holds:
//
//   acc = bias;  acc += weight[j] x[t - W + 1 + j] for j = 0 to W - 1      (f32, fused, oldest first)
//   y = acc, or acc sigmoid(acc);  of a normed channel then y * 1 / sqrt(sum over its head of y^2 + eps)
//
// (specification: linear attention, section 6).
// Layouts, strides in elements of the tensor's own type:
//   x, out  [rows, channels]       a row contiguous; each f32, f16 or bf16
//   weight  [channels, W]          of x's type, dense; weight[., 0] is on the oldest input
//   bias    [channels] f32         may be null
//   state   [slots, channels, kept] f32    a slot contiguous, slots state_stride apart: inputs of f16
//                                  and bf16 are held exactly. kept is W - 1, or W: then the oldest is
//                                  one no tap reads, carried along all the same
//   snap    [rows, channels, kept] f32     the slot as it would be after row t; may be null
//   slot_of [N] i64                negative: padding, neither state nor any row is touched
// Channels below norm_channels, whole heads of head_dim, are normed.
// `keeps`: the slot is read alone, and the window after the last row is in snap alone.
// Obligations of the caller: as in gdn_verify.
//
// Row by row: a thread owns a channel from a sequence's first row to its last, window and weights in
// registers; a block owns 128 channels, so whole heads. By tiles: a thread owns four channels of 32 rows
// of one sequence; the window is the rows before the tile, before the first tile the slot. The blocks of
// the first tile alone read the slot, and they alone write it, afterwards.
// The sum of squares has one order: a butterfly over 32 channels, neighbours first, then those sums in
// turn.
#include "element.cuh"
#include "sequences.cuh"

constexpr int kThreads = 128;
constexpr int kOwn = 4;  // channels of a thread of a tile
constexpr int kTileRows = 32;
template <typename X>
constexpr int kRowsInFlight = 16 / static_cast<int>(sizeof(X));
constexpr float kLog2E = 1.44269504f;

template <typename X, typename Y>
struct Arguments {
  const X* x;
  const X* weight;
  const float* bias;
  float* state;
  float* snap;
  const void* cu_seqlens;
  const i64* slot_of;
  Y* out;
  i64 x_stride, state_stride, snap_stride, out_stride;
  int cu_is_i64, sequences, channels, kept, applies_silu, norm_channels, head_dim, keeps;
  float eps;
};

// acc sigmoid(acc) as (acc / 4) / (1/4 + e^-acc / 4), so that what is inverted stays within the normal
// numbers until e^-acc itself is past f32: then -0. NaN at -infinity.
__device__ __forceinline__ float silu(float acc) {
  float power, inverse;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(fmaf(acc, -kLog2E, -2.0f)));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(0.25f + power));
  return __fmul_rn(__fmul_rn(0.25f, acc), inverse);
}

__device__ __forceinline__ float inverse_length(float square, float eps) {
  return 1.0f / sqrtf(square + eps);
}

// Block-collective: the sum of y^2 over the head of this thread's channel.
__device__ __forceinline__ float head_square(float y, int head_dim) {
  __shared__ float s_square[kThreads / 32];
  float square = __fmul_rn(y, y);
#pragma unroll
  for (int step = 1; step < 32; step *= 2) square += __shfl_xor_sync(kFullWarp, square, step);
  if ((threadIdx.x & 31) == 0) s_square[threadIdx.x >> 5] = square;
  __syncthreads();  // every warp's sum is there
  const int first = threadIdx.x / head_dim * head_dim / 32;
  float sum = s_square[first];
  for (int warp = first + 1; warp < first + head_dim / 32; ++warp) sum += s_square[warp];
  __syncthreads();  // every warp has read them; the next row's may take their place
  return sum;
}

// Warp-collective: the same sum, of a thread's channels, which lie in one head.
__device__ __forceinline__ float head_square(const float (&y)[kOwn], int head_dim) {
  constexpr int kLanes = 32 / kOwn;  // of 32 channels
  float of_32 = __fadd_rn(__fadd_rn(__fmul_rn(y[0], y[0]), __fmul_rn(y[1], y[1])),
                          __fadd_rn(__fmul_rn(y[2], y[2]), __fmul_rn(y[3], y[3])));
#pragma unroll
  for (int step = 1; step < kLanes; step *= 2) of_32 += __shfl_xor_sync(kFullWarp, of_32, step);
  const int lane = threadIdx.x & 31, lanes = head_dim / kOwn;
  const int first = lane / lanes * lanes;
  float sum = __shfl_sync(kFullWarp, of_32, first);
  for (int at = kLanes; at < lanes; at += kLanes) {
    sum += __shfl_sync(kFullWarp, of_32, first + at);
  }
  return sum;
}

template <typename X, typename Y, int W>
__device__ __forceinline__ void by_rows(const Arguments<X, Y>& call) {
  constexpr int kHeld = W - 1;
  const int channel = blockIdx.x * kThreads + threadIdx.x;
  const bool own = channel < call.channels;
  const bool block_norms = static_cast<int>(blockIdx.x) * kThreads < call.norm_channels;
  const bool keeps_older = call.kept > kHeld;
  const i64 own_window = static_cast<i64>(channel) * call.kept + (keeps_older ? 1 : 0);

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
    float window[kHeld] = {}, older = 0.0f;
    if (own) {
#pragma unroll
      for (int j = 0; j < kHeld; ++j) window[j] = live[j];
      if (keeps_older) older = live[-1];
    }
    for (i64 row = begin; row < end; ++row) {
      const float x = own ? widen(__ldg(call.x + row * call.x_stride + channel)) : 0.0f;
      float acc = bias;
#pragma unroll
      for (int j = 0; j < kHeld; ++j) acc = fmaf(weight[j], window[j], acc);
      acc = fmaf(weight[kHeld], x, acc);
      older = window[0];
#pragma unroll
      for (int j = 0; j + 1 < kHeld; ++j) window[j] = window[j + 1];
      window[kHeld - 1] = x;
      float y = call.applies_silu ? silu(acc) : acc;
      if (block_norms) {
        const float square = head_square(own ? y : 0.0f, call.head_dim);
        if (channel < call.norm_channels) y *= inverse_length(square, call.eps);
      }
      if (own) {
        call.out[row * call.out_stride + channel] = narrow<Y>(y);
        if (call.snap != nullptr) {
          float* const after = call.snap + row * call.snap_stride + own_window;
#pragma unroll
          for (int j = 0; j < kHeld; ++j) after[j] = window[j];
          if (keeps_older) after[-1] = older;
        }
      }
    }
    if (own && !call.keeps) {
#pragma unroll
      for (int j = 0; j < kHeld; ++j) live[j] = window[j];
      if (keeps_older) live[-1] = older;
    }
  }
}

// Four elements as they lie in memory: half as many registers, of 16-bit types, until they are used.
template <typename X>
struct Four {
  static constexpr int kWords = static_cast<int>(sizeof(X));
  unsigned word[kWords];

  __device__ __forceinline__ void load(const X* at) {
    if constexpr (kWords == 4) {
      const uint4 words = __ldg(reinterpret_cast<const uint4*>(at));
      word[0] = words.x, word[1] = words.y, word[2] = words.z, word[3] = words.w;
    } else {
      const uint2 words = __ldg(reinterpret_cast<const uint2*>(at));
      word[0] = words.x, word[1] = words.y;
    }
  }

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < kWords; ++i) word[i] = 0;
  }

  __device__ __forceinline__ void widen_to(float (&out)[kOwn]) const {
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      if constexpr (kWords == 4) {
        out[i] = __uint_as_float(word[i]);
      } else {
        const float2 pair = unpack2(word[i], static_cast<const X*>(nullptr));
        out[2 * i] = pair.x, out[2 * i + 1] = pair.y;
      }
    }
  }
};

// Four floats as an array, so that loops over channels unroll.
__device__ __forceinline__ void spread(float (&out)[kOwn], float4 four) {
  out[0] = four.x, out[1] = four.y, out[2] = four.z, out[3] = four.w;
}

// A thread's channels of a sequence: input i is, of the first `kept`, what the slot holds, then x.
template <typename X>
struct History {
  const float* live;
  const X* x;
  i64 x_stride;
  int kept;

  __device__ __forceinline__ float input(int c, i64 i) const {
    return i < kept ? live[c * kept + i] : widen(__ldg(x + (i - kept) * x_stride + c));
  }
  // What the slot would hold after so many rows. In place, too: an input moves towards older places,
  // and none is read after its place was written.
  __device__ __forceinline__ void slot_after(i64 rows, float* to) const {
#pragma unroll 1
    for (int c = 0; c < kOwn; ++c) {
#pragma unroll 1
      for (int j = 0; j < kept; ++j) to[c * kept + j] = input(c, rows + j);
    }
  }
};

// A thread's channels of a tile: weights, the window, and the next group of rows, which are asked for
// before those of the group before are used.
template <typename X, typename Y, int W>
struct TileWalk {
  static constexpr int kHeld = W - 1;
  const X* in;
  int rows;
  Four<X> ahead[kRowsInFlight<X>];
  float weight[W][kOwn] = {}, bias[kOwn] = {}, window[kHeld][kOwn] = {};

  // `own`: the channels are there; a thread without still takes part in the sums of a block that norms.
  __device__ __forceinline__ void bring(int group, i64 stride, bool own) {
#pragma unroll
    for (int i = 0; i < kRowsInFlight<X>; ++i) {
      if (own && group + i < rows) {
        ahead[i].load(in);
      } else {
        ahead[i].clear();
      }
      in += stride;
    }
  }

  // A block that does not norm has loops of its own, with what else is asked of every row known.
  template <bool NORMS>
  __device__ __forceinline__ void run(const Arguments<X, Y>& call, Y* out, bool own, bool normed,
                                      bool activates) {
    for (int group = 0; group < rows; group += kRowsInFlight<X>) {
      Four<X> here[kRowsInFlight<X>];
#pragma unroll
      for (int i = 0; i < kRowsInFlight<X>; ++i) here[i] = ahead[i];
      bring(group + kRowsInFlight<X>, call.x_stride, own);
#pragma unroll
      for (int i = 0; i < kRowsInFlight<X>; ++i) {
        float x[kOwn], y[kOwn];
        here[i].widen_to(x);
#pragma unroll
        for (int c = 0; c < kOwn; ++c) {
          float acc = bias[c];
#pragma unroll
          for (int j = 0; j < kHeld; ++j) acc = fmaf(weight[j][c], window[j][c], acc);
          acc = fmaf(weight[kHeld][c], x[c], acc);
#pragma unroll
          for (int j = 0; j + 1 < kHeld; ++j) window[j][c] = window[j + 1][c];
          window[kHeld - 1][c] = x[c];
          y[c] = activates ? silu(acc) : acc;
        }
        if constexpr (NORMS) {
          const float square = head_square(y, call.head_dim);
          const float inverse = normed ? inverse_length(square, call.eps) : 1.0f;
#pragma unroll
          for (int c = 0; c < kOwn; ++c) y[c] *= inverse;
        }
        if (own && group + i < rows) store4(out, make_float4(y[0], y[1], y[2], y[3]));
        out += call.out_stride;
      }
    }
  }
};

// Rows, weights and bias are whole pieces of four elements at addresses of such.
template <typename X, typename Y, int W>
__device__ __forceinline__ void by_tiles(const Arguments<X, Y>& call, int channel_blocks) {
  constexpr int kHeld = W - 1;
  const int tile_index = static_cast<int>(blockIdx.x) / channel_blocks;
  const int block = static_cast<int>(blockIdx.x) - tile_index * channel_blocks;
  const ChunkPlace tile =
      locate_chunk(call.cu_seqlens, call.cu_is_i64, call.sequences, kTileRows, tile_index);
  if (tile.sequence < 0) return;
  const i64 slot = __ldg(call.slot_of + tile.sequence);
  if (slot < 0) return;
  const i64 begin = row_offset(call.cu_seqlens, call.cu_is_i64, tile.sequence);
  const i64 before = tile.first_row - begin;  // rows of the sequence
  const int first_channel = block * (kThreads * kOwn);
  const int channel = first_channel + static_cast<int>(threadIdx.x) * kOwn;
  const bool own = channel < call.channels;
  const bool block_norms = first_channel < call.norm_channels;
  const i64 own_window = static_cast<i64>(channel) * call.kept;
  float* const live = call.state + slot * call.state_stride + own_window;
  const History<X> history{live, call.x + begin * call.x_stride + channel, call.x_stride, call.kept};

  TileWalk<X, Y, W> walk;
  walk.in = call.x + tile.first_row * call.x_stride + channel, walk.rows = tile.rows;
  walk.bring(0, call.x_stride, own);

  if (own) {
#pragma unroll
    for (int piece = 0; piece < W; ++piece) {  // W pieces hold the weights of four channels
      float of_piece[kOwn];
      spread(of_piece, load4(call.weight + static_cast<i64>(channel) * W + piece * kOwn));
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        walk.weight[(piece * kOwn + i) % W][(piece * kOwn + i) / W] = of_piece[i];
      }
    }
    if (call.bias != nullptr) spread(walk.bias, load4(call.bias + channel));
#pragma unroll
    for (int j = 0; j < kHeld; ++j) {
      if (before > 0) {
        spread(walk.window[j], load4(call.x + (tile.first_row - kHeld + j) * call.x_stride + channel));
      } else {
#pragma unroll
        for (int c = 0; c < kOwn; ++c) walk.window[j][c] = history.input(c, call.kept - kHeld + j);
      }
    }
  }

  Y* const out = call.out + tile.first_row * call.out_stride + channel;
  if (block_norms) {
    walk.template run<true>(call, out, own, channel < call.norm_channels, call.applies_silu);
  } else if (own && call.applies_silu) {
    walk.template run<false>(call, out, true, false, true);
  } else if (own) {
    walk.template run<false>(call, out, true, false, false);
  }

  if (!own) return;
  if (call.snap != nullptr) {
    float* after = call.snap + tile.first_row * call.snap_stride + own_window;
    for (int row = 1; row <= tile.rows; ++row) {
      history.slot_after(before + row, after);
      after += call.snap_stride;
    }
  }
  if (before == 0 && !call.keeps) {
    const i64 end = row_offset(call.cu_seqlens, call.cu_is_i64, tile.sequence + 1);
    history.slot_after(end - begin, live);
  }
}

#define PARAMETERS(X, Y)                                                                           \
  const X *__restrict__ x, const X *__restrict__ weight, const float *__restrict__ bias,           \
      float *state, float *snap, const void *__restrict__ cu_seqlens,                              \
      const i64 *__restrict__ slot_of, Y *out, i64 x_stride, i64 state_stride, i64 snap_stride,    \
      i64 out_stride, int cu_is_i64, int sequences, int channels, int kept, int applies_silu,      \
      int norm_channels, int head_dim, int keeps, float eps
#define ARGUMENTS                                                                                  \
  {x,        weight,       bias,         state,       snap,       cu_seqlens, slot_of,             \
   out,      x_stride,     state_stride, snap_stride, out_stride, cu_is_i64,  sequences,           \
   channels, kept,         applies_silu, norm_channels, head_dim, keeps,      eps}

#define CAUSAL_CONV1D(X_NAME, X, Y_NAME, Y, W)                                              \
  extern "C" __global__ void __launch_bounds__(kThreads)                                    \
      causal_conv1d_##X_NAME##_##Y_NAME##_w##W(PARAMETERS(X, Y)) {                          \
    by_rows<X, Y, W>(ARGUMENTS);                                                            \
  }                                                                                         \
  extern "C" __global__ void __launch_bounds__(kThreads, sizeof(X) + sizeof(Y) > 4 ? 4 : 5) \
      causal_conv1d_tiles_##X_NAME##_##Y_NAME##_w##W(PARAMETERS(X, Y),                      \
                                                     int channel_blocks) {                  \
    by_tiles<X, Y, W>(ARGUMENTS, channel_blocks);                                           \
  }

#define CAUSAL_CONV1D_TYPES(X_NAME, X, Y_NAME, Y) \
  CAUSAL_CONV1D(X_NAME, X, Y_NAME, Y, 2)          \
  CAUSAL_CONV1D(X_NAME, X, Y_NAME, Y, 3)          \
  CAUSAL_CONV1D(X_NAME, X, Y_NAME, Y, 4)

#define CAUSAL_CONV1D_INPUT(X_NAME, X)                     \
  CAUSAL_CONV1D_TYPES(X_NAME, X, f32, float)               \
  CAUSAL_CONV1D_TYPES(X_NAME, X, f16, __half)              \
  CAUSAL_CONV1D_TYPES(X_NAME, X, bf16, __nv_bfloat16)

CAUSAL_CONV1D_INPUT(f32, float)
CAUSAL_CONV1D_INPUT(f16, __half)
CAUSAL_CONV1D_INPUT(bf16, __nv_bfloat16)
