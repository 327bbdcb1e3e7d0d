// The rows of a speculative round without a write to the state: what each row would do to it is stashed,
// and the rows that were accepted are folded into the state once it is known how many they are.
//
// clear, before every round in the same graph: engaged[n] = 0 for every sequence n.
//
// verify, per sequence n and value head hv, with S the [Dv, Dk] block of slot slot_of[n], which it
// only reads, and t its rows cu_seqlens[n] to cu_seqlens[n + 1] in order:
//
//   S~ = alpha_t S    m = S~ k_t    delta_t = beta_t (v_t - m)    S = S~ + delta_t k_t^T    o_t = scale S q_t
//
// and alpha_t, delta_t and k_t, in f32 as they were used, go to the stash; engaged[n] = 1.
//
// fold, with c = min(accepted[n], rows of n): if engaged[n], S = alpha_t S + delta_t k_t^T over the first
// c rows; if not, the round left its states in snap and has the last in the slot, and the slot gets the
// state after row c - 1 unless that is the last. With c = 0 the slot stays.
//
// (specification: linear attention, section 3, write-on-accept.)
// Layouts, strides in elements of the tensor's own type:
//   q, k        [rows, Hk, Dk]      io   heads and channels contiguous in a row, 16-byte aligned rows
//   v, o        [rows, Hv, Dv]      io   likewise
//   s           [slots, Hv, Dv, Dk] f32 or f16, a slot's block contiguous, slots s_stride apart
//   snap        [rows, Hv, Dv, Dk]  as s: the state after row t; null where every round is stashed
//   stash_alpha [rows, Hv] f32, stash_delta [rows, Hv, Dv] f32, stash_key [rows, Hk, Dk] f32
//   slot_of     [N] i64             negative: padding, neither state nor any row is touched
//   engaged, accepted [N] i32
// Promises: outputs, and after the fold the state, have the bits of gdn_verify; a row reads nothing of a
// later one; an f16 state is rounded after every row, in the verify as in the fold. To fold one round
// twice is the caller's to avoid; his other obligations are those of gdn_verify.
#include "gdn_rows.cuh"

template <typename T, typename S>
struct VerifyArguments {
  const T* q;
  const T* k;
  const T* v;
  const float* decay;
  const float* beta;
  const S* s;
  const void* cu_seqlens;
  const i64* slot_of;
  T* o;
  float* stash_alpha;
  float* stash_delta;
  float* stash_key;
  int* engaged;
  i64 q_stride, k_stride, v_stride, decay_stride, beta_stride, s_stride, o_stride;
  i64 stash_alpha_stride, stash_delta_stride, stash_key_stride;
  int cu_is_i64, sequences, key_heads, value_heads, value_dim, head_map_cyclic, gate_is_alpha;
  float scale;
};

template <typename S>
struct FoldArguments {
  S* s;
  const S* snap;
  const void* cu_seqlens;
  const i64* slot_of;
  const int* accepted;
  const int* engaged;
  const float* stash_alpha;
  const float* stash_delta;
  const float* stash_key;
  i64 s_stride, snap_stride, stash_alpha_stride, stash_delta_stride, stash_key_stride;
  int cu_is_i64, sequences, key_heads, value_heads, value_dim, head_map_cyclic;
};

// The value channels a thread's lanes hold rows of, and where those rows lie in a slot.
template <int DK>
struct Place {
  static constexpr i64 kNextPass = static_cast<i64>(kRowsPerPass) * DK;
  int head, key_head;
  i64 channel;  // of [Hv, Dv], the first pass's
  i64 own_row;

  __device__ __forceinline__ Place(int key_heads, int value_heads, int value_dim, int cyclic)
      : head(blockIdx.y), key_head(key_head_of(head, key_heads, value_heads, cyclic)) {
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    const int value =
        blockIdx.x * kTileValues + warp * kRowsPerPass * kPasses + lane / kLanesPerRow;
    channel = static_cast<i64>(head) * value_dim + value;
    own_row = channel * DK;
  }
};

template <typename T, typename S, int DK>
__device__ __forceinline__ void verify(const VerifyArguments<T, S>& call) {
  using R = Rows<T, S, DK>;
  using P = Place<DK>;
  const P place(call.key_heads, call.value_heads, call.value_dim, call.head_map_cyclic);
  const bool leads_row = threadIdx.x % kLanesPerRow == 0;
  // One block of a key head stashes its key, one of a value head its decay.
  const bool stashes_gate = blockIdx.x == 0 && threadIdx.x == 0;
  const bool stashes_key =
      blockIdx.x == 0 && threadIdx.x < kLanesPerRow &&
      place.head == value_head_of(place.key_head, 0, call.key_heads, call.value_heads,
                                  call.head_map_cyclic);

  for (i64 n = blockIdx.z; n < call.sequences; n += gridDim.z) {
    const i64 slot = __ldg(call.slot_of + n);
    if (slot < 0) continue;
    if (stashes_gate && place.head == 0) call.engaged[n] = 1;
    const i64 begin = row_offset(call.cu_seqlens, call.cu_is_i64, n);
    const i64 end = row_offset(call.cu_seqlens, call.cu_is_i64, n + 1);
    const S* const live = call.s + slot * call.s_stride + place.own_row;
    float state[kPasses][R::kShare];
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) R::load(state[pass], live + pass * P::kNextPass);

    for (i64 row = begin; row < end; ++row) {
      const i64 key_channel = static_cast<i64>(place.key_head) * DK;
      float key[R::kShare], query[R::kShare];
      R::load_key(key, call.k + row * call.k_stride + key_channel);
      R::load_key(query, call.q + row * call.q_stride + key_channel);
      const float decay = __ldg(call.decay + row * call.decay_stride + place.head);
      const float rate = __ldg(call.beta + row * call.beta_stride + place.head);
      const float alpha = call.gate_is_alpha ? decay : expf(decay);
      if (stashes_gate) call.stash_alpha[row * call.stash_alpha_stride + place.head] = alpha;
      if (stashes_key) R::store_key(key, call.stash_key + row * call.stash_key_stride + key_channel);
#pragma unroll
      for (int pass = 0; pass < kPasses; ++pass) {
        const i64 value = place.channel + pass * kRowsPerPass;
        const float own = widen(__ldg(call.v + row * call.v_stride + value));
        const float memory = sum_over_row_lanes(R::recall(state[pass], key, alpha));
        const float delta = rate * (own - memory);
        R::write(state[pass], key, delta);
        const float output = sum_over_row_lanes(R::read(state[pass], query));
        if (leads_row) {
          call.stash_delta[row * call.stash_delta_stride + value] = delta;
          call.o[row * call.o_stride + value] = narrow<T>(call.scale * output);
        }
      }
    }
  }
}

template <typename S, int DK>
__device__ __forceinline__ void fold(const FoldArguments<S>& call) {
  using R = Rows<float, S, DK>;
  using P = Place<DK>;
  const P place(call.key_heads, call.value_heads, call.value_dim, call.head_map_cyclic);

  for (i64 n = blockIdx.z; n < call.sequences; n += gridDim.z) {
    const i64 slot = __ldg(call.slot_of + n);
    if (slot < 0) continue;
    const i64 begin = row_offset(call.cu_seqlens, call.cu_is_i64, n);
    const i64 end = row_offset(call.cu_seqlens, call.cu_is_i64, n + 1);
    const i64 kept_end = min(end, begin + max(__ldg(call.accepted + n), 0));
    if (kept_end == begin) continue;
    S* const live = call.s + slot * call.s_stride + place.own_row;
    float state[kPasses][R::kShare];
    if (__ldg(call.engaged + n) != 0) {
#pragma unroll
      for (int pass = 0; pass < kPasses; ++pass) R::load(state[pass], live + pass * P::kNextPass);
      for (i64 row = begin; row < kept_end; ++row) {
        float key[R::kShare];
        R::load_key(key, call.stash_key + row * call.stash_key_stride +
                             static_cast<i64>(place.key_head) * DK);
        const float alpha = __ldg(call.stash_alpha + row * call.stash_alpha_stride + place.head);
        const float* const deltas = call.stash_delta + row * call.stash_delta_stride + place.channel;
#pragma unroll
        for (int pass = 0; pass < kPasses; ++pass) {
          const float delta = __ldg(deltas + pass * kRowsPerPass);
          R::recall(state[pass], key, alpha);
          R::write(state[pass], key, delta);
        }
      }
    } else {
      if (kept_end == end || call.snap == nullptr) continue;
      const S* const after = call.snap + (kept_end - 1) * call.snap_stride + place.own_row;
#pragma unroll
      for (int pass = 0; pass < kPasses; ++pass) R::load(state[pass], after + pass * P::kNextPass);
    }
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) R::store(state[pass], live + pass * P::kNextPass);
  }
}

extern "C" __global__ void __launch_bounds__(kThreads)
    gdn_write_on_accept_clear(int* engaged, int sequences) {
  for (int n = blockIdx.x * kThreads + threadIdx.x; n < sequences; n += gridDim.x * kThreads) {
    engaged[n] = 0;
  }
}

#define VERIFY(NAME, T, S, DK)                                                                     \
  extern "C" __global__ void __launch_bounds__(kThreads, 3)                                       \
      NAME(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,             \
           const float* __restrict__ decay, const float* __restrict__ beta,                       \
           const S* __restrict__ s, const void* __restrict__ cu_seqlens,                          \
           const i64* __restrict__ slot_of, T* o, float* stash_alpha, float* stash_delta,         \
           float* stash_key, int* engaged, i64 q_stride, i64 k_stride, i64 v_stride,              \
           i64 decay_stride, i64 beta_stride, i64 s_stride, i64 o_stride,                         \
           i64 stash_alpha_stride, i64 stash_delta_stride, i64 stash_key_stride, int cu_is_i64,   \
           int sequences, int key_heads, int value_heads, int value_dim, int head_map_cyclic,     \
           int gate_is_alpha, float scale) {                                                      \
    verify<T, S, DK>({q, k, v, decay, beta, s, cu_seqlens, slot_of, o, stash_alpha, stash_delta,  \
                      stash_key, engaged, q_stride, k_stride, v_stride, decay_stride,             \
                      beta_stride, s_stride, o_stride, stash_alpha_stride, stash_delta_stride,    \
                      stash_key_stride, cu_is_i64, sequences, key_heads, value_heads, value_dim,  \
                      head_map_cyclic, gate_is_alpha, scale});                                    \
  }

#define FOLD(NAME, S, DK)                                                                          \
  extern "C" __global__ void __launch_bounds__(kThreads, 3)                                       \
      NAME(S* s, const S* __restrict__ snap, const void* __restrict__ cu_seqlens,                 \
           const i64* __restrict__ slot_of, const int* __restrict__ accepted,                     \
           const int* __restrict__ engaged, const float* __restrict__ stash_alpha,                \
           const float* __restrict__ stash_delta, const float* __restrict__ stash_key,            \
           i64 s_stride, i64 snap_stride, i64 stash_alpha_stride, i64 stash_delta_stride,         \
           i64 stash_key_stride, int cu_is_i64, int sequences, int key_heads, int value_heads,    \
           int value_dim, int head_map_cyclic) {                                                  \
    fold<S, DK>({s, snap, cu_seqlens, slot_of, accepted, engaged, stash_alpha, stash_delta,       \
                 stash_key, s_stride, snap_stride, stash_alpha_stride, stash_delta_stride,        \
                 stash_key_stride, cu_is_i64, sequences, key_heads, value_heads, value_dim,       \
                 head_map_cyclic});                                                               \
  }

#define VERIFY_STATES(IO, T, DK)                                       \
  VERIFY(gdn_write_on_accept_verify_##IO##_f32_k##DK, T, float, DK)   \
  VERIFY(gdn_write_on_accept_verify_##IO##_f16_k##DK, T, __half, DK)

#define DIMS(DK)                                             \
  VERIFY_STATES(f32, float, DK)                              \
  VERIFY_STATES(f16, __half, DK)                             \
  VERIFY_STATES(bf16, __nv_bfloat16, DK)                     \
  FOLD(gdn_write_on_accept_fold_f32_k##DK, float, DK)        \
  FOLD(gdn_write_on_accept_fold_f16_k##DK, __half, DK)

DIMS(32)
DIMS(64)
DIMS(128)
