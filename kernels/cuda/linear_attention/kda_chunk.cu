// Gated delta rule with a decay for each key channel (KDA) over whole sequences, 64 rows at a time.
//
// Per sequence, value head and chunk of n <= 64 rows, S the state entering the chunk, G the chunk-local
// inclusive sum of g for each key channel (specification: linear attention, section 5d):
//
//   L_ij = beta_i sum_c k_ic k_jc e^(G_ic - G_jc), j < i      T = (I + L)^-1
//   P_ij = sum_c q_ic k_jc e^(G_ic - G_jc), j <= i
//   u = T diag(beta) V    w = T diag(beta) (K e^G)    delta = u - w S^T
//   S <- S diag(e^(G_n)) + delta^T (K e^(G_n - G))
//   o = scale ((Q e^G) S^T + P delta)
//
// g is first held between `least` and zero. No factor of a decay exceeds 1, whatever g is. Two launches,
// arithmetic in f32 (kda_chunk_f32.cuh):
//   (1) chunk_wy      u, w, P, the decayed rows of q and k      a block per chunk and value head
//   (2) chunk_carry   delta, S, o            a block per sequence, value head and 32 value channels
//
// Layouts, strides in elements of the tensor's own type:
//   q, k       [rows, Hk, Dk]  io   heads and channels contiguous in a row, 16-byte aligned rows
//   v, o       [rows, Hv, Dv]  io   likewise
//   g          [rows, Hv, Dk]  f32  log decay of each key channel, finite; likewise
//   beta       [rows, Hv]      f32
//   s          [slots, Hv, Dv, Dk] f32, in place; slots s_stride apart, 16-byte aligned
//   cu_seqlens [N + 1] i32 or i64; slot_of [N] i64, negative: padding
// Scratch, dense, f32, chunk the compact index of include/sequences.cuh:
//   u [chunks, Hv, 64, Dv]   w, qd, kd [chunks, Hv, 64, Dk]: qd = Q e^G, kd = K e^(G_n - G)
//   p [chunks, Hv, 64, 64], 4x4 tiles above the diagonal never written   decay [chunks, Hv, Dk]
// Dk and Dv are 32, 64 or 128.
// Promises: rows past a chunk's end are zero where they are loaded and are neither read from nor
// written to any tensor, scratch included; no chunk straddles a sequence; a padding sequence touches
// neither state nor o; with initial_zero the old state is never read and an empty sequence leaves a
// zero state, otherwise an empty sequence leaves its state as it is. A sequence's results do not depend
// on its neighbours, bit for bit.
#include "kda_chunk_f32.cuh"

#define KDA_CHUNK_WY(IO, T)                                                                     \
  extern "C" __global__ void __launch_bounds__(kWyThreads, 2) kda_chunk_wy_##IO(                \
      const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,                \
      const float* __restrict__ g, const float* __restrict__ beta,                              \
      const void* __restrict__ cu_seqlens, const i64* __restrict__ slot_of, float* u, float* w, \
      float* p, float* qd, float* kd, float* decay, i64 q_stride, i64 k_stride, i64 v_stride,   \
      i64 g_stride, i64 beta_stride, int sequences, int key_heads, int value_heads,             \
      int key_dim, int value_dim, int cu_is_i64, int head_map_cyclic, float least) {            \
    chunk_wy<T>(q, k, v, g, beta, cu_seqlens, slot_of, u, w, p, qd, kd, decay, q_stride,        \
                k_stride, v_stride, g_stride, beta_stride, sequences, key_heads, value_heads,   \
                key_dim, value_dim, cu_is_i64, head_map_cyclic, least);                         \
  }

#define KDA_CHUNK_CARRY(IO, T, DK)                                                              \
  extern "C" __global__ void __launch_bounds__(kCarryThreads, 2) kda_chunk_carry_##IO##_k##DK(  \
      const float* u, const float* w, const float* p, const float* qd, const float* kd,         \
      const float* decay, const void* __restrict__ cu_seqlens, const i64* __restrict__ slot_of, \
      float* s, T* __restrict__ o, i64 s_stride, i64 o_stride, int value_heads, int value_dim,  \
      int cu_is_i64, int initial_zero, float scale) {                                           \
    chunk_carry<T, DK>(u, w, p, qd, kd, decay, cu_seqlens, slot_of, s, o, s_stride, o_stride,   \
                       value_heads, value_dim, cu_is_i64, initial_zero, scale);                 \
  }

#define KDA_CHUNK(IO, T)      \
  KDA_CHUNK_WY(IO, T)         \
  KDA_CHUNK_CARRY(IO, T, 32)  \
  KDA_CHUNK_CARRY(IO, T, 64)  \
  KDA_CHUNK_CARRY(IO, T, 128)

KDA_CHUNK(f32, float)
KDA_CHUNK(f16, __half)
KDA_CHUNK(bf16, __nv_bfloat16)
