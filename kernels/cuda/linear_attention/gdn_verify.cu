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
// meets another, so it stays in registers from the first row of the round to the last. What the round's
// rows bring is staged before the first is used, and a row's output is summed when the next one begins.
// A tile of an f16 state is two warps', a half each, or one warp's, which takes the halves in turn: the
// second is on its way from memory while the rows go through the first. The bits are the same.
#include "gdn_rows.cuh"

constexpr int kWarps = 12;  // of a multiprocessor

template <typename T, typename S>
struct Arguments {
  RowInputs<T> inputs;
  S* s;
  S* snap;
  const void* cu_seqlens;
  const i64* slot_of;
  T* o;
  i64 s_stride, snap_stride, o_stride;
  int cu_is_i64, sequences, key_heads, value_heads, value_dim, head_map_cyclic, keeps;
  float scale;
};

template <typename T, typename S, int DK>
__device__ __forceinline__ void gdn_verify(const Arguments<T, S>& call) {
  using R = Rows<S, DK, kRoundPasses<S>>;
  using Row = StagedRow<T, DK>;
  __shared__ __align__(16) Row s_rows[kStagedRows];
  const int head = blockIdx.y;
  const int key_head =
      key_head_of(head, call.key_heads, call.value_heads, call.head_map_cyclic);
  const i64 tile = static_cast<i64>(head) * call.value_dim + blockIdx.x * kTileValues;
  const i64 own_row = (tile + R::first_row()) * DK;
  const RowsOfHead<T, DK, Row> brought{call.inputs, head, 1, static_cast<i64>(key_head) * DK,
                                       tile};

  // Halves of the tile that are a warp's.
  const int halves = kRoundWarps<S> == 1 || blockDim.x > 32 ? 1 : kRoundWarps<S>;

  for (i64 n = blockIdx.z; n < call.sequences; n += gridDim.z) {
    const i64 slot = __ldg(call.slot_of + n);
    const i64 begin = row_offset(call.cu_seqlens, call.cu_is_i64, n);
    const i64 end = row_offset(call.cu_seqlens, call.cu_is_i64, n + 1);
    if (slot < 0) continue;
    const int count = static_cast<int>(end - begin);
    if (count == 0) continue;
    S* live = call.s + slot * call.s_stride + own_row;
    typename R::Held held, next;
    const auto gates = brought.ask(s_rows, begin, staged_rows(count));
    R::load(held, live);
    if (halves == 2) R::load(next, live + R::kNextHalf);
    brought.settle(s_rows, gates, staged_rows(count));

#pragma unroll 1
    for (int half = 0; half < halves; ++half) {
      float state[R::kPasses][R::kShare];
      R::widen(state, held);
      const int first_value = half * R::kWarpRows;
      for (int first = 0; first < count; first += kStagedRows) {
        const int rows = staged_rows(count - first);
        const i64 row = begin + first;
        copies_arrive();
        __syncthreads();  // the rows are there
        S* after = call.snap + row * call.snap_stride + own_row + half * R::kNextHalf;
        T* out = call.o + row * call.o_stride + tile + first_value + R::own_row();
        run_rows<T, R, Row>(
            held, state, shared_address(s_rows), rows, first_value,
            [&](float) {
              R::stream(held, after);
              after += call.snap_stride;
            },
            [&](float output) {
              if (R::speaks()) *out = narrow<T>(call.scale * output);
              out += call.o_stride;
            });
        __syncthreads();  // they are read; others may take their place
        brought.bring(s_rows, begin, first + kStagedRows, count);
      }
      if (!call.keeps) {
        R::round(held, state);
        R::store(held, live);
        live += R::kNextHalf;
      }
      if (half + 1 < halves) {
        R::take(held, next);
        // The first rows again, unless they are there still.
        if (count > kStagedRows) brought.bring(s_rows, begin, 0, count);
      }
    }
  }
}

#define GDN_VERIFY(NAME, T, S, DK)                                                                \
  extern "C" __global__ void __launch_bounds__(32 * kRoundWarps<S>, kWarps / kRoundWarps<S>)     \
      NAME(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,            \
           const float* __restrict__ decay, const float* __restrict__ beta, S* s, S* snap,       \
           const void* __restrict__ cu_seqlens, const i64* __restrict__ slot_of, T* o,           \
           i64 q_stride, i64 k_stride, i64 v_stride, i64 decay_stride, i64 beta_stride,          \
           i64 s_stride, i64 snap_stride, i64 o_stride, int cu_is_i64, int sequences,            \
           int key_heads, int value_heads, int value_dim, int head_map_cyclic,                   \
           int gate_is_alpha, int keeps, float scale) {                                          \
    gdn_verify<T, S, DK>({{q, k, v, decay, beta, q_stride, k_stride, v_stride, decay_stride,     \
                           beta_stride, gate_is_alpha},                                          \
                          s, snap, cu_seqlens, slot_of, o, s_stride, snap_stride, o_stride,      \
                          cu_is_i64, sequences, key_heads, value_heads, value_dim,               \
                          head_map_cyclic, keeps, scale});                                       \
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
