// Gated delta rule over the few rows of a speculative round: row after row from one state, every row's
// output and the state after every row, so that any prefix of the rows can be kept.
//
// Per sequence n and value head hv, with S the [Dv, Dk] block of slot slot_of[n] and t its rows
// cu_seqlens[n] to cu_seqlens[n + 1] in order:
//
//   S~ = alpha_t S    m = S~ k_t    delta = beta_t (v_t - m)    S = S~ + delta k_t^T    o_t = scale S q_t
//   snap[t] = S
//
// (specification: linear attention, sections 1 and 3, the resident form: one read of the state).
// Layouts, strides in elements of the tensor's own type:
//   q, k    [rows, Hk, Dk]     io   heads and channels contiguous in a row, 16-byte aligned rows
//   v, o    [rows, Hv, Dv]     io   likewise
//   s       [slots, Hv, Dv, Dk] f32 or f16, a slot's block contiguous, slots s_stride apart
//   snap    [rows, Hv, Dv, Dk] as s: the state after row t, rows snap_stride apart
//   slot_of [N] i64            negative: padding, neither state nor any row is touched
// Gates: decay [rows, Hv] f32 is e^g's exponent (log) or e^g itself (alpha), beta [rows, Hv] f32.
// `keeps`: the slot is read alone, and the state after the last row is in snap alone.
// Promises: the arithmetic, and so the bits, of as many steps of gdn_decode; a row reads nothing of a
// later one; an f16 state is rounded after every row, and what is stored of it is what is read and
// carried. Two sequences in one launch do not share a slot, a slot lies below `slots`, cu_seqlens
// begins with 0, never decreases and ends within the rows: the caller's obligations.
//
// Eight lanes hold a state row and a block 32 rows of a head, as in gdn_decode: a row of the state never
// meets another, so it stays in registers from the first row of the round to the last.
#include "gdn_rows.cuh"

template <typename T, typename S>
struct Arguments {
  const T* q;
  const T* k;
  const T* v;
  const float* decay;
  const float* beta;
  S* s;
  S* snap;
  const void* cu_seqlens;
  const i64* slot_of;
  T* o;
  i64 q_stride, k_stride, v_stride, decay_stride, beta_stride, s_stride, snap_stride, o_stride;
  int cu_is_i64, sequences, key_heads, value_heads, value_dim, head_map_cyclic, gate_is_alpha, keeps;
  float scale;
};

template <typename T, typename S, int DK>
__device__ __forceinline__ void gdn_verify(const Arguments<T, S>& call) {
  using R = Rows<T, S, DK>;
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  const int head = blockIdx.y;
  const int key_head =
      key_head_of(head, call.key_heads, call.value_heads, call.head_map_cyclic);
  const int first_value =
      blockIdx.x * kTileValues + warp * kRowsPerPass * kPasses + lane / kLanesPerRow;
  const i64 head_block = static_cast<i64>(head) * call.value_dim * DK;
  const i64 own_row = head_block + static_cast<i64>(first_value) * DK;
  constexpr i64 kNextPass = static_cast<i64>(kRowsPerPass) * DK;

  for (i64 n = blockIdx.z; n < call.sequences; n += gridDim.z) {
    const i64 slot = __ldg(call.slot_of + n);
    if (slot < 0) continue;
    const i64 begin = row_offset(call.cu_seqlens, call.cu_is_i64, n);
    const i64 end = row_offset(call.cu_seqlens, call.cu_is_i64, n + 1);
    S* const live = call.s + slot * call.s_stride + own_row;
    float state[kPasses][R::kShare];
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) R::load(state[pass], live + pass * kNextPass);

    for (i64 row = begin; row < end; ++row) {
      float key[R::kShare], query[R::kShare];
      R::load_key(key, call.k + row * call.k_stride + static_cast<i64>(key_head) * DK);
      R::load_key(query, call.q + row * call.q_stride + static_cast<i64>(key_head) * DK);
      const float decay = __ldg(call.decay + row * call.decay_stride + head);
      const float rate = __ldg(call.beta + row * call.beta_stride + head);
      const float alpha = call.gate_is_alpha ? decay : expf(decay);
      const i64 channel = static_cast<i64>(head) * call.value_dim + first_value;
#pragma unroll
      for (int pass = 0; pass < kPasses; ++pass) {
        const i64 value = channel + pass * kRowsPerPass;
        const float own = widen(__ldg(call.v + row * call.v_stride + value));
        const float memory = sum_over_row_lanes(R::recall(state[pass], key, alpha));
        R::write(state[pass], key, rate * (own - memory));
        const float output = sum_over_row_lanes(R::read(state[pass], query));
        R::store(state[pass], call.snap + row * call.snap_stride + own_row + pass * kNextPass);
        if (lane % kLanesPerRow == 0) {
          call.o[row * call.o_stride + value] = narrow<T>(call.scale * output);
        }
      }
    }
    if (!call.keeps) {
#pragma unroll
      for (int pass = 0; pass < kPasses; ++pass) R::store(state[pass], live + pass * kNextPass);
    }
  }
}

#define GDN_VERIFY(NAME, T, S, DK)                                                                \
  extern "C" __global__ void __launch_bounds__(kThreads, 3)                                      \
      NAME(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,            \
           const float* __restrict__ decay, const float* __restrict__ beta, S* s, S* snap,       \
           const void* __restrict__ cu_seqlens, const i64* __restrict__ slot_of, T* o,           \
           i64 q_stride, i64 k_stride, i64 v_stride, i64 decay_stride, i64 beta_stride,          \
           i64 s_stride, i64 snap_stride, i64 o_stride, int cu_is_i64, int sequences,            \
           int key_heads, int value_heads, int value_dim, int head_map_cyclic,                   \
           int gate_is_alpha, int keeps, float scale) {                                          \
    gdn_verify<T, S, DK>({q, k, v, decay, beta, s, snap, cu_seqlens, slot_of, o, q_stride,       \
                          k_stride, v_stride, decay_stride, beta_stride, s_stride, snap_stride,  \
                          o_stride, cu_is_i64, sequences, key_heads, value_heads, value_dim,     \
                          head_map_cyclic, gate_is_alpha, keeps, scale});                        \
  }

#define GDN_VERIFY_DIMS(IO, STATE, T, S)              \
  GDN_VERIFY(gdn_verify_##IO##_##STATE##_k32, T, S, 32) \
  GDN_VERIFY(gdn_verify_##IO##_##STATE##_k64, T, S, 64) \
  GDN_VERIFY(gdn_verify_##IO##_##STATE##_k128, T, S, 128)

#define GDN_VERIFY_IO(IO, T)           \
  GDN_VERIFY_DIMS(IO, f32, T, float)   \
  GDN_VERIFY_DIMS(IO, f16, T, __half)

GDN_VERIFY_IO(f32, float)
GDN_VERIFY_IO(f16, __half)
GDN_VERIFY_IO(bf16, __nv_bfloat16)
