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
// g is first held between `least` and zero. No factor of a decay exceeds 1, whatever g is. Two launches:
// io f32 and f16, the exact class, arithmetic in f32 (kda_chunk_f32.cuh):
//   (1) chunk_wy    u, w, P, the decayed rows of q and k        a block per chunk and value head
//   (2) chunk_carry delta, S, o              a block per sequence, value head and 32 value channels
// io bf16, products on tensor cores, bf16 operands and f32 sums (kda_chunk_intra.cuh, kda_chunk_inter.cuh):
//   (1) chunk_intra T diag(beta), P, the decayed rows           likewise
//   (2) chunk_inter delta, S, o              a block per sequence, value head and at most 64 channels
// In both S is carried in f32, and what a launch rounds it rounds once.
//
// Layouts, strides in elements of the tensor's own type:
//   q, k       [rows, Hk, Dk]  io   heads and channels contiguous in a row, 16-byte aligned rows
//   v, o       [rows, Hv, Dv]  io   likewise
//   g          [rows, Hv, Dk]  f32  log decay of each key channel, finite; likewise
//   beta       [rows, Hv]      f32
//   s          [slots, Hv, Dv, Dk] f32, in place; slots s_stride apart, 16-byte aligned
//   cu_seqlens [N + 1] i32 or i64; slot_of [N] i64, negative: padding
// Scratch, dense, chunk the compact index of include/sequences.cuh; f32, in the bf16 class all but decay
// bf16:
//   u [chunks, Hv, 64, Dv], or t = T diag(beta) [chunks, Hv, 64, 64]
//   w, qd, kd [chunks, Hv, 64, Dk]: w, or K e^G for bf16, Q e^G, K e^(G_n - G)
//   p [chunks, Hv, 64, 64], as t by blocks of 16, those above the diagonal never written
//   decay [chunks, Hv, Dk] f32: e^(G_n)
// Dk and Dv are 32, 64 or 128.
// Promises: rows past a chunk's end are zero where they are loaded and are neither read from nor
// written to any tensor, scratch included; no chunk straddles a sequence; a padding sequence touches
// neither state nor o; with initial_zero the old state is never read and an empty sequence leaves a
// zero state, otherwise an empty sequence leaves its state as it is. A sequence's results do not depend
// on its neighbours, bit for bit.
#include "kda_chunk_f32.cuh"
#include "kda_chunk_inter.cuh"
#include "kda_chunk_intra.cuh"

#define KDA_CHUNK_WY(IO, T)                                                                     \
  extern "C" __global__ void __launch_bounds__(kWyThreads, 2) kda_chunk_wy_##IO(                \
      const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,                \
      const float* __restrict__ g, const float* __restrict__ beta,                              \
      const void* __restrict__ cu_seqlens, const i64* __restrict__ slot_of, float* u, float* w, \
      float* p, float* qd, float* kd, float* decay, i64 q_stride, i64 k_stride, i64 v_stride,   \
      i64 g_stride, i64 beta_stride, int sequences, int key_heads, int value_heads,             \
      int key_dim, int value_dim, int cu_is_i64, int head_map_cyclic, float least) {            \
    chunk_wy<T>({q, k, v, g, beta, cu_seqlens, slot_of, q_stride, k_stride, v_stride,           \
                 g_stride, beta_stride, sequences, key_heads, value_heads, key_dim, value_dim,  \
                 cu_is_i64, head_map_cyclic, least},                                            \
                u, {w, p, qd, kd, decay});                                                      \
  }

#define KDA_CHUNK_INTRA(IO, T)                                                                  \
  extern "C" __global__ void __launch_bounds__(kIntraThreads, 3) kda_chunk_intra_##IO(          \
      const T* __restrict__ q, const T* __restrict__ k, const float* __restrict__ g,            \
      const float* __restrict__ beta, const void* __restrict__ cu_seqlens,                      \
      const i64* __restrict__ slot_of, T* t, T* w, T* p, T* qd, T* kd, float* decay,            \
      i64 q_stride, i64 k_stride, i64 g_stride, i64 beta_stride, int sequences, int key_heads,  \
      int value_heads, int key_dim, int cu_is_i64, int head_map_cyclic, float least) {          \
    kda_chunk_intra<T>({q, k, nullptr, g, beta, cu_seqlens, slot_of, q_stride, k_stride, 0,     \
                        g_stride, beta_stride, sequences, key_heads, value_heads, key_dim, 0,   \
                        cu_is_i64, head_map_cyclic, least},                                     \
                       t, {w, p, qd, kd, decay});                                               \
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

#define KDA_CHUNK_INTER(IO, T, DK)                                                              \
  extern "C" __global__ void __launch_bounds__(kInterThreads, 1) kda_chunk_inter_##IO##_k##DK(  \
      const T* __restrict__ v, const T* __restrict__ earlier, const T* __restrict__ later,      \
      const T* __restrict__ queries, const T* __restrict__ t, const T* __restrict__ p,          \
      const float* __restrict__ decay, const void* __restrict__ cu_seqlens,                     \
      const i64* __restrict__ slot_of, float* s, T* __restrict__ o, i64 v_stride, i64 s_stride, \
      i64 o_stride, int value_heads, int value_dim, int cu_is_i64, int initial_zero,            \
      float scale) {                                                                            \
    kda_chunk_inter<T, DK>(v, earlier, later, queries, t, p, decay, cu_seqlens, slot_of, s, o,  \
                           v_stride, s_stride, o_stride, value_heads, value_dim, cu_is_i64,     \
                           initial_zero, scale);                                                \
  }

#define KDA_CHUNK_EXACT(IO, T)   \
  KDA_CHUNK_WY(IO, T)            \
  KDA_CHUNK_CARRY(IO, T, 32)     \
  KDA_CHUNK_CARRY(IO, T, 64)     \
  KDA_CHUNK_CARRY(IO, T, 128)

KDA_CHUNK_EXACT(f32, float)
KDA_CHUNK_EXACT(f16, __half)

KDA_CHUNK_INTRA(bf16, __nv_bfloat16)
KDA_CHUNK_INTER(bf16, __nv_bfloat16, 32)
KDA_CHUNK_INTER(bf16, __nv_bfloat16, 64)
KDA_CHUNK_INTER(bf16, __nv_bfloat16, 128)
