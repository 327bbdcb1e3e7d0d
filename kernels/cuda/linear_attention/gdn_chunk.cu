// Gated delta rule over whole sequences, C = 64 or 32 rows at a time (chunked WY form), in two classes.
//
// Per sequence, value head and chunk of n <= C rows, S the state entering the chunk, G the chunk-local
// inclusive sum of g (specification: linear attention, section 2):
//
//   L_ij = beta_i e^(G_i - G_j) (k_i . k_j), j < i       T = (I + L)^-1
//   P_ij = e^(G_i - G_j) (q_i . k_j), j <= i             u = T diag(beta) V, w = T diag(beta e^G) K
//   delta = u - w S^T = T diag(beta) (V - diag(e^G) K S^T)
//   S <- e^(G_n) S + delta^T diag(e^(G_n - G)) K
//   o = scale (diag(e^G) Q S^T + P delta)
//
// io f32, the exact class, arithmetic in f32 (gdn_chunk_f32.cuh), three launches:
//   (1) recompute_wu   u, w                 a block per chunk and value head
//   (2) chunk_delta_h  delta, S             a block per sequence, value head and 32 value channels
//   (3) chunk_fwd_o    o                    a block per chunk and value head
// io f16 and bf16, products on tensor cores with operands of that type and f32 sums, two launches:
//   (1) chunk_intra    T diag(beta), P      a block per chunk and key head (gdn_chunk_intra.cuh)
//   (2) chunk_inter    delta, S, o          a block per sequence, value head and at most 64 value
//                                           channels (gdn_chunk_inter.cuh)
// In both S is carried in f32, G is summed in f64, and what a launch rounds it rounds once.
//
// Layouts, strides in elements of the tensor's own type:
//   q, k       [rows, Hk, Dk]  io   heads and channels contiguous in a row, 16-byte aligned rows
//   v, o       [rows, Hv, Dv]  io   likewise
//   g, beta    [rows, Hv]      f32  g is the log decay, finite and <= 0; row strides of their own
//   s          [slots, Hv, Dv, Dk] f32, in place; slots s_stride apart, 16-byte aligned
//   cu_seqlens [N + 1] i32 or i64; slot_of [N] i64, negative: padding
// Scratch, dense, chunk the compact index of include/sequences.cuh; f32 class, all f32:
//   g_sum [rows, Hv, 2]   G as the rounded sum and what the rounding lost
//   u, delta [chunks, Hv, C, Dv]   w [chunks, Hv, C, Dk]
//   s_chunk [chunks, Hv, Dv, Dk]   the state entering each chunk
// tensor-core class:
//   decays [chunks, Hv, C, 2] f32  e^G and e^(G_n - G)
//   t, p [chunks, Hv, C, C] io     T diag(beta) and P, blocks above the diagonal never written; f16:
//                                  4096 times as large
// Dk and Dv are 32, 64 or 128.
// Promises: exponents are taken where j <= i alone, so none is positive; rows past a chunk's end are
// zero where they are loaded and are neither read from nor written to any tensor, scratch included;
// no chunk straddles a sequence; a padding sequence touches neither state nor o; with initial_zero
// the old state is never read and an empty sequence leaves a zero state, otherwise an empty sequence
// leaves its state as it is. A sequence's results do not depend on its neighbours, bit for bit.
#include "gdn_chunk_f32.cuh"
#include "gdn_chunk_inter.cuh"

extern "C" __global__ void __launch_bounds__(kWuThreads, 2) gdn_chunk_recompute_wu_f32(
    const float* __restrict__ k, const float* __restrict__ v, const float* __restrict__ g,
    const float* __restrict__ beta, const void* __restrict__ cu_seqlens,
    const i64* __restrict__ slot_of, float2* __restrict__ g_sum, float* __restrict__ u,
    float* __restrict__ w, i64 k_stride, i64 v_stride, i64 g_stride, i64 beta_stride,
    int chunk_rows, int sequences, int key_heads, int value_heads, int key_dim, int value_dim,
    int cu_is_i64, int head_map_cyclic) {
  recompute_wu(k, v, g, beta, cu_seqlens, slot_of, g_sum, u, w, k_stride, v_stride, g_stride,
               beta_stride, chunk_rows, sequences, key_heads, value_heads, key_dim, value_dim,
               cu_is_i64, head_map_cyclic);
}

#define GDN_CHUNK_DELTA_H(DK)                                                                   \
  extern "C" __global__ void __launch_bounds__(kDeltaThreads, 4) gdn_chunk_delta_h_f32_k##DK(   \
      const float* __restrict__ k, const float2* __restrict__ g_sum,                            \
      const float* __restrict__ u, const float* __restrict__ w,                                 \
      const void* __restrict__ cu_seqlens, const i64* __restrict__ slot_of, float* s,           \
      float* __restrict__ s_chunk, float* __restrict__ delta, i64 k_stride, i64 s_stride,       \
      int chunk_rows, int key_heads, int value_heads, int value_dim, int cu_is_i64,             \
      int head_map_cyclic, int initial_zero) {                                                  \
    chunk_delta_h<DK>(k, g_sum, u, w, cu_seqlens, slot_of, s, s_chunk, delta, k_stride,         \
                      s_stride, chunk_rows, key_heads, value_heads, value_dim, cu_is_i64,       \
                      head_map_cyclic, initial_zero);                                           \
  }

extern "C" __global__ void __launch_bounds__(kOutputThreads, 2) gdn_chunk_fwd_o_f32(
    const float* __restrict__ q, const float* __restrict__ k, const float2* __restrict__ g_sum,
    const float* __restrict__ s_chunk, const float* __restrict__ delta,
    const void* __restrict__ cu_seqlens, const i64* __restrict__ slot_of, float* __restrict__ o,
    i64 q_stride, i64 k_stride, i64 o_stride, int chunk_rows, int sequences, int key_heads,
    int value_heads, int key_dim, int value_dim, int cu_is_i64, int head_map_cyclic, float scale) {
  chunk_fwd_o(q, k, g_sum, s_chunk, delta, cu_seqlens, slot_of, o, q_stride, k_stride, o_stride,
              chunk_rows, sequences, key_heads, value_heads, key_dim, value_dim, cu_is_i64,
              head_map_cyclic, scale);
}

#define GDN_CHUNK_INTRA(SUFFIX, T)                                                              \
  extern "C" __global__ void __launch_bounds__(kIntraThreads, 4) gdn_chunk_intra_##SUFFIX(      \
      const T* __restrict__ q, const T* __restrict__ k, const float* __restrict__ g,            \
      const float* __restrict__ beta, const void* __restrict__ cu_seqlens,                      \
      const i64* __restrict__ slot_of, float2* __restrict__ decays, T* __restrict__ t,          \
      T* __restrict__ p, i64 q_stride, i64 k_stride, i64 g_stride, i64 beta_stride,             \
      int chunk_rows, int sequences, int key_heads, int value_heads, int key_dim,               \
      int cu_is_i64, int head_map_cyclic) {                                                     \
    chunk_intra<T>(q, k, g, beta, cu_seqlens, slot_of, decays, t, p, q_stride, k_stride,        \
                   g_stride, beta_stride, chunk_rows, sequences, key_heads, value_heads,        \
                   key_dim, cu_is_i64, head_map_cyclic);                                        \
  }

#define GDN_CHUNK_INTER(SUFFIX, T, DK)                                                          \
  extern "C" __global__ void __launch_bounds__(kInterThreads, 1) gdn_chunk_inter_##SUFFIX##_k##DK(\
      const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,                \
      const float2* __restrict__ decays, const T* __restrict__ t, const T* __restrict__ p,      \
      const void* __restrict__ cu_seqlens, const i64* __restrict__ slot_of, float* s,           \
      T* __restrict__ o, i64 q_stride, i64 k_stride, i64 v_stride, i64 s_stride, i64 o_stride,  \
      int chunk_rows, int key_heads, int value_heads, int value_dim, int cu_is_i64,             \
      int head_map_cyclic, int initial_zero, float scale) {                                     \
    chunk_inter<T, DK>(q, k, v, decays, t, p, cu_seqlens, slot_of, s, o, q_stride, k_stride,    \
                       v_stride, s_stride, o_stride, chunk_rows, key_heads, value_heads,        \
                       value_dim, cu_is_i64, head_map_cyclic, initial_zero, scale);             \
  }

GDN_CHUNK_DELTA_H(32)
GDN_CHUNK_DELTA_H(64)
GDN_CHUNK_DELTA_H(128)

GDN_CHUNK_INTRA(f16, __half)
GDN_CHUNK_INTRA(bf16, __nv_bfloat16)

GDN_CHUNK_INTER(f16, __half, 32)
GDN_CHUNK_INTER(f16, __half, 64)
GDN_CHUNK_INTER(f16, __half, 128)
GDN_CHUNK_INTER(bf16, __nv_bfloat16, 32)
GDN_CHUNK_INTER(bf16, __nv_bfloat16, 64)
GDN_CHUNK_INTER(bf16, __nv_bfloat16, 128)
