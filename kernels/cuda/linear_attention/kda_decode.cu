// Gated delta rule with a decay for each key channel (KDA), one token a sequence, state in place.
//
// Per sequence n and value head hv, with S the [Dv, Dk] block of slot slot_of[n]:
//
//   S~ = S diag(a)    m = S~ k    delta = beta (v - m)    S' = S~ + delta k^T    o = scale S' q
//   a[c] = e^min(max(g[c], least), 0)
//
// (specification: linear attention, section 5a; decay first, output from the updated state). q and k
// come with unit length; `scale` is the output's own constant, Dk^-1/2 in models, and no norm holds it.
// Layouts, strides in elements of the tensor's own type:
//   q, k    [N, Hk, Dk]  io     heads and channels contiguous in a row, 16-byte aligned rows
//   v, o    [N, Hv, Dv]  io     likewise
//   g       [N, Hv, Dk]  f32    log decay of each key channel, likewise; least: -5, or -inf for none
//   beta    [N, Hv]      f32
//   s       [slots, Hv, Dv, Dk] f32, a slot's block contiguous, slots s_stride apart
//   slot_of [N] i64             negative: padding, neither state nor any row is touched
// Promises: f32 arithmetic with accurate expf; a NaN gate stays NaN; each (n, hv) reads and writes its
// own block alone, so a launch of N sequences equals N launches bit for bit. Two sequences in one
// launch do not share a slot, and a slot lies below `slots`: the caller's obligations.
//
// The work is one read and one write of the state. Eight lanes hold a state row, so a warp's accesses
// cover whole lines of four rows and a reduction takes three shuffles; each warp keeps eight rows in
// flight and a block has 32 rows of a head. What a step reads besides is asked for before the state,
// and the decays are raised while the state comes.
#include "element.cuh"
#include "key_rows.cuh"
#include "sequences.cuh"
#include "state.cuh"

constexpr int kTileValues = 32;
constexpr int kPasses = 2;
constexpr int kThreads = 32 * kTileValues / (kRowsPerPass * kPasses);
constexpr int kBlocks = 4;  // of a multiprocessor, as many as registers allow without spilling

template <typename T>
struct Arguments {
  const T* q;
  const T* k;
  const T* v;
  const float* g;
  const float* beta;
  float* s;
  const i64* slot_of;
  T* o;
  i64 q_stride, k_stride, v_stride, g_stride, beta_stride, s_stride, o_stride;
  int sequences, key_heads, value_heads, value_dim, head_map_cyclic;
  float least, scale;
};

template <typename T, int DK>
__device__ __forceinline__ void kda_decode(const Arguments<T>& call) {
  using Row = KeyRow<DK>;
  constexpr int kShare = Row::kShare, kPieces = Row::kPieces, kVector = Row::kVector;
  using Vector = StateVector<float, kVector>;
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  const int head = blockIdx.y;
  const int key_head =
      key_head_of(head, call.key_heads, call.value_heads, call.head_map_cyclic);
  const int first_value =
      blockIdx.x * kTileValues + warp * kRowsPerPass * kPasses + lane / kLanesPerRow;
  const i64 value_column = static_cast<i64>(head) * call.value_dim + first_value;

  for (i64 n = blockIdx.z; n < call.sequences; n += gridDim.z) {
    const i64 slot = __ldg(call.slot_of + n);
    if (slot < 0) continue;
    float key[kShare], query[kShare], decay[kShare], own_value[kPasses];
    Row::load(decay, call.g + n * call.g_stride + static_cast<i64>(head) * DK);
    Row::load(key, call.k + n * call.k_stride + static_cast<i64>(key_head) * DK);
    Row::load(query, call.q + n * call.q_stride + static_cast<i64>(key_head) * DK);
    const float rate = __ldg(call.beta + n * call.beta_stride + head);
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      own_value[pass] =
          widen(__ldg(call.v + n * call.v_stride + value_column + pass * kRowsPerPass));
    }
    float* const rows = call.s + slot * call.s_stride + value_column * DK;
    Vector held[kPasses][kPieces];
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece) {
        held[pass][piece].load(rows + pass * kRowsPerPass * DK + Row::column(piece));
      }
    }
#pragma unroll
    for (int i = 0; i < kShare; ++i) decay[i] = expf(clamped_decay(decay[i], call.least));

#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      float state[kShare], memory = 0.0f;
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece) {
        held[pass][piece].widen_to(state + piece * kVector);
#pragma unroll
        for (int i = piece * kVector; i < (piece + 1) * kVector; ++i) {
          state[i] *= decay[i];
          memory = fmaf(state[i], key[i], memory);
        }
      }
      const float delta = rate * (own_value[pass] - sum_over_row_lanes(memory));
      float output = 0.0f;
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece) {
#pragma unroll
        for (int i = piece * kVector; i < (piece + 1) * kVector; ++i) {
          state[i] = fmaf(delta, key[i], state[i]);
          output = fmaf(state[i], query[i], output);
        }
        held[pass][piece].narrow_from(state + piece * kVector);
        held[pass][piece].store(rows + pass * kRowsPerPass * DK + Row::column(piece));
      }
      output = sum_over_row_lanes(output);
      if (lane % kLanesPerRow == 0) {
        call.o[n * call.o_stride + value_column + pass * kRowsPerPass] =
            narrow<T>(call.scale * output);
      }
    }
  }
}

#define KDA_DECODE(NAME, T, DK)                                                                   \
  extern "C" __global__ void __launch_bounds__(kThreads, kBlocks)                                \
      NAME(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,            \
           const float* __restrict__ g, const float* __restrict__ beta, float* s,                \
           const i64* __restrict__ slot_of, T* o, i64 q_stride, i64 k_stride, i64 v_stride,      \
           i64 g_stride, i64 beta_stride, i64 s_stride, i64 o_stride, int sequences,             \
           int key_heads, int value_heads, int value_dim, int head_map_cyclic, float least,      \
           float scale) {                                                                        \
    kda_decode<T, DK>({q, k, v, g, beta, s, slot_of, o, q_stride, k_stride, v_stride, g_stride,  \
                       beta_stride, s_stride, o_stride, sequences, key_heads, value_heads,       \
                       value_dim, head_map_cyclic, least, scale});                               \
  }

#define KDA_DECODE_IO(IO, T)               \
  KDA_DECODE(kda_decode_##IO##_k32, T, 32) \
  KDA_DECODE(kda_decode_##IO##_k64, T, 64) \
  KDA_DECODE(kda_decode_##IO##_k128, T, 128)

KDA_DECODE_IO(f32, float)
KDA_DECODE_IO(f16, __half)
KDA_DECODE_IO(bf16, __nv_bfloat16)
