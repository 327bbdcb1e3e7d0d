// The rows of a speculative round without a write to the state: what each row would do to it is stashed,
// and the rows that were accepted are folded into the state once it is known how many they are.
//
// verify, per sequence n and value head hv, with S the [Dv, Dk] block of slot slot_of[n], which it
// only reads, and t its rows cu_seqlens[n] to cu_seqlens[n + 1] in order:
//
//   S~ = alpha_t S    m = S~ k_t    delta_t = beta_t (v_t - m)    S = S~ + delta_t k_t^T    o_t = scale S q_t
//
// and alpha_t, delta_t and k_t, in f32 as they were used, go to the stash; engaged[n] = 1, and 0 for
// padding, so that no word is left from the round before.
//
// clear, before a round that gdn_verify runs instead: engaged[n] = 0 for every sequence n.
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

constexpr int kClearThreads = 128;
template <typename S>
constexpr int kVerifyThreads = 32 * kRoundWarps<S> * kMostTiles;
template <typename S>
constexpr int kVerifyBlocks = sizeof(S) == 4 ? 3 : 2;  // of a multiprocessor
constexpr int kFoldPasses = 4;
constexpr int kFoldThreads = 32 * kTileValues / (kRowsPerPass * kFoldPasses);
constexpr int kFoldBlocks = 8;

template <typename T, typename S>
struct VerifyArguments {
  RowInputs<T> inputs;
  const S* s;
  const void* cu_seqlens;
  const i64* slot_of;
  T* o;
  float* stash_alpha;
  float* stash_delta;
  float* stash_key;
  int* engaged;
  i64 s_stride, o_stride, stash_alpha_stride, stash_delta_stride, stash_key_stride;
  int cu_is_i64, sequences, key_heads, value_heads, value_dim, head_map_cyclic;
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

// The tiles of a block, 32 value channels of a head each, and where its rows of the state lie in a slot.
template <typename R, int DK>
struct Tile {
  int head, key_head;
  i64 channel;  // of [Hv, Dv], its first
  i64 own_row;  // of this lane's first pass

  __device__ __forceinline__ Tile(int tiles, int key_heads, int value_heads, int value_dim,
                                  int cyclic)
      : head(blockIdx.y), key_head(key_head_of(head, key_heads, value_heads, cyclic)) {
    channel = static_cast<i64>(head) * value_dim + blockIdx.x * tiles * kTileValues;
    own_row = (channel + R::first_row()) * DK;
  }
};

// The decays and the keys of staged rows, in f32 as they were used.
template <typename Row>
__device__ __forceinline__ void stash_decays(float* to, i64 stride, const Row* rows, int count) {
  if (static_cast<int>(threadIdx.x) < count) to[threadIdx.x * stride] = rows[threadIdx.x].alpha;
}
template <int DK, typename Row>
__device__ __forceinline__ void stash_keys(float* to, i64 stride, const Row* rows, int count) {
#pragma unroll 1
  for (int four = threadIdx.x; four < count * (DK / 4); four += blockDim.x) {
    const int row = four / (DK / 4), column = four % (DK / 4) * 4;
    store4(to + row * stride + column,
           staged4(shared_address(rows[row].key + column), static_cast<const float*>(nullptr)));
  }
}

template <typename T, typename S, int DK>
__device__ __forceinline__ void verify(const VerifyArguments<T, S>& call) {
  using R = Rows<S, DK, kRoundPasses<S>>;
  using Row = StagedRow<T, DK, DK, kMostTiles, float>;
  __shared__ __align__(16) Row s_rows[kStagedRows];
  // Of many sequences a block has all tiles of a head, whose warps share the rows of the round.
  const int tiles = blockDim.x / (32 * kRoundWarps<S>);
  const Tile<R, DK> tile(tiles, call.key_heads, call.value_heads, call.value_dim, call.head_map_cyclic);
  const i64 key_channel = static_cast<i64>(tile.key_head) * DK;
  const RowsOfHead<T, DK, Row> brought{call.inputs, tile.head, tiles, key_channel, tile.channel};
  // One block of a value head stashes its decays, one of a key head its keys.
  const bool stashes_gates = blockIdx.x == 0;
  const bool stashes_keys =
      blockIdx.x == 0 &&
      tile.head == value_head_of(tile.key_head, 0, call.key_heads, call.value_heads,
                                 call.head_map_cyclic);

  for (i64 n = blockIdx.z; n < call.sequences; n += gridDim.z) {
    const i64 slot = __ldg(call.slot_of + n);
    const i64 begin = row_offset(call.cu_seqlens, call.cu_is_i64, n);
    const i64 end = row_offset(call.cu_seqlens, call.cu_is_i64, n + 1);
    if (stashes_gates && tile.head == 0 && threadIdx.x == 0) call.engaged[n] = slot >= 0;
    if (slot < 0) continue;
    const int count = static_cast<int>(end - begin);
    if (count == 0) continue;
    const S* const live = call.s + slot * call.s_stride + tile.own_row;
    typename R::Held held;
    const auto gates = brought.ask(s_rows, begin, staged_rows(count));
    R::load(held, live);
    brought.settle(s_rows, gates, staged_rows(count));
    float state[R::kPasses][R::kShare];
    R::widen(state, held);

    for (int first = 0; first < count; first += kStagedRows) {
      const int rows = staged_rows(count - first);
      const i64 row = begin + first;
      copies_arrive();
      __syncthreads();  // the rows are there
      Row::widen_rows(s_rows, rows);
      if (stashes_gates) {
        stash_decays(call.stash_alpha + row * call.stash_alpha_stride + tile.head,
                     call.stash_alpha_stride, s_rows, rows);
      }
      if (stashes_keys) {
        stash_keys<DK>(call.stash_key + row * call.stash_key_stride + key_channel,
                   call.stash_key_stride, s_rows, rows);
      }
      const i64 value = tile.channel + R::own_row();
      float* deltas = call.stash_delta + row * call.stash_delta_stride + value;
      T* out = call.o + row * call.o_stride + value;
      run_rows<T, R, Row>(
          held, state, shared_address(s_rows), rows, 0,
          [&](float delta) {
            if (R::speaks()) *deltas = delta;
            deltas += call.stash_delta_stride;
          },
          [&](float output) {
            if (R::speaks()) *out = narrow<T>(call.scale * output);
            out += call.o_stride;
          });
      __syncthreads();  // they are read; others may take their place
      brought.bring(s_rows, begin, first + kStagedRows, count);
    }
  }
}

template <typename S, int DK>
__device__ __forceinline__ void fold(const FoldArguments<S>& call) {
  using R = Rows<S, DK, kFoldPasses>;
  using Row = StagedRow<float, DK, 4>;  // no queries
  __shared__ __align__(16) Row s_rows[kStagedRows];
  const Tile<R, DK> tile(1, call.key_heads, call.value_heads, call.value_dim, call.head_map_cyclic);
  const i64 key_channel = static_cast<i64>(tile.key_head) * DK;

  for (i64 n = blockIdx.z; n < call.sequences; n += gridDim.z) {
    const i64 slot = __ldg(call.slot_of + n);
    if (slot < 0) continue;
    const i64 begin = row_offset(call.cu_seqlens, call.cu_is_i64, n);
    const i64 end = row_offset(call.cu_seqlens, call.cu_is_i64, n + 1);
    const i64 kept_end = min(end, begin + max(__ldg(call.accepted + n), 0));
    if (kept_end == begin) continue;
    S* const live = call.s + slot * call.s_stride + tile.own_row;
    typename R::Held held;
    if (__ldg(call.engaged + n) != 0) {
      const auto bring = [&](i64 first) {
        const int rows = staged_rows(kept_end - first);
        ask_rows<Row, DK>(
            s_rows->key, call.stash_key + first * call.stash_key_stride + key_channel,
            call.stash_key_stride, rows);
        if (static_cast<int>(threadIdx.x) < rows) {
          s_rows[threadIdx.x].alpha =
              __ldg(call.stash_alpha + (first + threadIdx.x) * call.stash_alpha_stride + tile.head);
        }
        const float* const deltas =
            call.stash_delta + first * call.stash_delta_stride + tile.channel;
#pragma unroll 4
        for (int at = threadIdx.x; at < rows * kTileValues; at += kFoldThreads) {
          const int row = at / kTileValues, value = at % kTileValues;
          s_rows[row].value[value] = __ldg(deltas + row * call.stash_delta_stride + value);
        }
      };
      bring(begin);
      R::load(held, live);
      float state[R::kPasses][R::kShare];
      R::widen(state, held);
      for (i64 first = begin; first < kept_end; first += kStagedRows) {
        const int rows = staged_rows(kept_end - first);
        copies_arrive();
        __syncthreads();  // the rows are there
#pragma unroll 1
        for (int row = 0; row < rows; ++row) {
          R::decay(state, s_rows[row].alpha);
          R::template write<float>(held, state, shared_address(s_rows[row].key),
                                   s_rows[row].value[R::own_row()]);
        }
        __syncthreads();  // they are read; others may take their place
        bring(first + kStagedRows);
      }
      R::round(held, state);
    } else {
      if (kept_end == end || call.snap == nullptr) continue;
      R::load(held, call.snap + (kept_end - 1) * call.snap_stride + tile.own_row);
    }
    R::store(held, live);
  }
}

extern "C" __global__ void __launch_bounds__(kClearThreads)
    gdn_write_on_accept_clear(int* engaged, int sequences) {
  for (int n = blockIdx.x * kClearThreads + threadIdx.x; n < sequences;
       n += gridDim.x * kClearThreads) {
    engaged[n] = 0;
  }
}

#define VERIFY(NAME, T, S, DK)                                                                     \
  extern "C" __global__ void __launch_bounds__(kVerifyThreads<S>, kVerifyBlocks<S>)               \
      NAME(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,             \
           const float* __restrict__ decay, const float* __restrict__ beta,                       \
           const S* __restrict__ s, const void* __restrict__ cu_seqlens,                          \
           const i64* __restrict__ slot_of, T* o, float* stash_alpha, float* stash_delta,         \
           float* stash_key, int* engaged, i64 q_stride, i64 k_stride, i64 v_stride,              \
           i64 decay_stride, i64 beta_stride, i64 s_stride, i64 o_stride,                         \
           i64 stash_alpha_stride, i64 stash_delta_stride, i64 stash_key_stride, int cu_is_i64,   \
           int sequences, int key_heads, int value_heads, int value_dim, int head_map_cyclic,     \
           int gate_is_alpha, float scale) {                                                      \
    verify<T, S, DK>({{q, k, v, decay, beta, q_stride, k_stride, v_stride, decay_stride,          \
                       beta_stride, gate_is_alpha},                                               \
                      s, cu_seqlens, slot_of, o, stash_alpha, stash_delta, stash_key, engaged,    \
                      s_stride, o_stride, stash_alpha_stride, stash_delta_stride,                 \
                      stash_key_stride, cu_is_i64, sequences, key_heads, value_heads, value_dim,  \
                      head_map_cyclic, scale});                                                   \
  }

#define FOLD(NAME, S, DK)                                                                          \
  extern "C" __global__ void __launch_bounds__(kFoldThreads, kFoldBlocks)                         \
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
