// Gated delta rule, one token a sequence, state updated in place.
//
// Per sequence n and value head hv, with S the [Dv, Dk] f32 block of slot slot_of[n]:
//
//   S~ = e^g S    m = S~ k    delta = beta (v - m)    S' = S~ + delta k^T    o = scale S' q
//
// (specification: linear attention, section 1; decay first, output from the updated state).
// Layouts, strides in elements of the tensor's own type:
//   q, k   [N, Hk, Dk]  io     heads and channels contiguous in a row, 16-byte aligned rows
//   v, o   [N, Hv, Dv]  io     likewise, element aligned
//   g      [N, Hv]      f32    log decay; beta likewise
//   s      [slots, Hv, Dv, Dk] f32, a slot's block contiguous, slots s_stride apart; 16-byte aligned
//   slot_of [N] i64            negative: padding, neither state nor o is touched
// Promises: f32 arithmetic with accurate expf; each (n, hv) reads and writes its own block alone, so
// a launch of N sequences equals N launches bit for bit. Two sequences in one launch do not share a
// slot, and a slot lies below `slots`: the caller's obligations.
//
// The work is one read and one write of the state. Eight lanes hold a state row, so a warp's 16-byte
// accesses cover whole 128-byte lines of four rows and a reduction takes three shuffles; each warp
// keeps eight rows in flight.
#include "element.cuh"
#include "sequences.cuh"

constexpr int kWarps = 4;
constexpr int kLanesPerRow = 8;
constexpr int kRowsPerPass = 32 / kLanesPerRow;
constexpr int kPasses = 2;
constexpr int kRowsPerWarp = kRowsPerPass * kPasses;  // 4 warps: a value tile of 32 rows

__device__ __forceinline__ float sum_over_row_lanes(float x) {
#pragma unroll
  for (int step = kLanesPerRow / 2; step > 0; step /= 2) x += __shfl_xor_sync(kFullWarp, x, step);
  return x;
}

template <typename T, int DK>
__device__ __forceinline__ void gdn_decode(
    const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,
    const float* __restrict__ g, const float* __restrict__ beta, float* s,
    const i64* __restrict__ slot_of, T* __restrict__ o, i64 q_stride, i64 k_stride, i64 v_stride,
    i64 g_stride, i64 beta_stride, i64 s_stride, i64 o_stride, int sequences, int key_heads,
    int value_heads, int value_dim, int head_map_cyclic, float scale) {
  constexpr int kPieces = DK / (4 * kLanesPerRow);  // 16-byte pieces of a row a lane holds
  const int lane = threadIdx.x & 31;
  const int piece_lane = lane % kLanesPerRow;
  const int head = blockIdx.y;
  const int key_head = key_head_of(head, key_heads, value_heads, head_map_cyclic);
  const int first_value = (blockIdx.x * kWarps + (threadIdx.x >> 5)) * kRowsPerWarp +
                          lane / kLanesPerRow;

  for (i64 n = blockIdx.z; n < sequences; n += gridDim.z) {
    const i64 slot = __ldg(slot_of + n);
    if (slot < 0) continue;
    float* const block = s + slot * s_stride + static_cast<i64>(head) * value_dim * DK;

    float4 state[kPasses][kPieces];
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const float* const row = block + static_cast<i64>(first_value + pass * kRowsPerPass) * DK;
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece) {
        state[pass][piece] = *reinterpret_cast<const float4*>(
            row + (piece * kLanesPerRow + piece_lane) * 4);
      }
    }
    float4 key[kPieces], query[kPieces];
    const T* const key_row = k + n * k_stride + static_cast<i64>(key_head) * DK;
    const T* const query_row = q + n * q_stride + static_cast<i64>(key_head) * DK;
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      key[piece] = load4(key_row + (piece * kLanesPerRow + piece_lane) * 4);
      query[piece] = load4(query_row + (piece * kLanesPerRow + piece_lane) * 4);
    }
    const float alpha = expf(__ldg(g + n * g_stride + head));
    const float rate = __ldg(beta + n * beta_stride + head);
    const i64 value_row = n * v_stride + static_cast<i64>(head) * value_dim;
    const i64 output_row = n * o_stride + static_cast<i64>(head) * value_dim;

#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const int value = first_value + pass * kRowsPerPass;
      float memory = 0.0f;
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece) {
        state[pass][piece] = scale4(alpha, state[pass][piece]);
        memory = dot4(state[pass][piece], key[piece], memory);
      }
      memory = sum_over_row_lanes(memory);
      const float delta = rate * (widen(v[value_row + value]) - memory);
      float output = 0.0f;
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece) {
        state[pass][piece] = axpy4(delta, key[piece], state[pass][piece]);
        output = dot4(state[pass][piece], query[piece], output);
      }
      output = sum_over_row_lanes(output);
      float* const row = block + static_cast<i64>(value) * DK;
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece) {
        store4(row + (piece * kLanesPerRow + piece_lane) * 4, state[pass][piece]);
      }
      if (piece_lane == 0) o[output_row + value] = narrow<T>(scale * output);
    }
  }
}

#define GDN_DECODE(NAME, T, DK)                                                                  \
  extern "C" __global__ void __launch_bounds__(32 * kWarps, 4) NAME(                             \
      const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,                 \
      const float* __restrict__ g, const float* __restrict__ beta, float* s,                     \
      const i64* __restrict__ slot_of, T* __restrict__ o, i64 q_stride, i64 k_stride,            \
      i64 v_stride, i64 g_stride, i64 beta_stride, i64 s_stride, i64 o_stride, int sequences,    \
      int key_heads, int value_heads, int value_dim, int head_map_cyclic, float scale) {         \
    gdn_decode<T, DK>(q, k, v, g, beta, s, slot_of, o, q_stride, k_stride, v_stride, g_stride,   \
                      beta_stride, s_stride, o_stride, sequences, key_heads, value_heads,        \
                      value_dim, head_map_cyclic, scale);                                        \
  }

GDN_DECODE(gdn_decode_f32_k32, float, 32)
GDN_DECODE(gdn_decode_f32_k64, float, 64)
GDN_DECODE(gdn_decode_f32_k128, float, 128)
GDN_DECODE(gdn_decode_f16_k32, __half, 32)
GDN_DECODE(gdn_decode_f16_k64, __half, 64)
GDN_DECODE(gdn_decode_f16_k128, __half, 128)
GDN_DECODE(gdn_decode_bf16_k32, __nv_bfloat16, 32)
GDN_DECODE(gdn_decode_bf16_k64, __nv_bfloat16, 64)
GDN_DECODE(gdn_decode_bf16_k128, __nv_bfloat16, 128)
