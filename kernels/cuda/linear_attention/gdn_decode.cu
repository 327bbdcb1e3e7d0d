// Gated delta rule, one token a sequence, state updated in place; gates, the norms of q and k and the
// gated norm of the output fused where the call asks for them.
//
// Per sequence n and value head hv, with S the [Dv, Dk] block of slot slot_of[n]:
//
//   S~ = alpha S    m = S~ k    delta = beta (v - m)    S' = S~ + delta k^T    o = scale S' q
//
// (specification: linear attention, section 1; decay first, output from the updated state).
// Layouts, strides in elements of the tensor's own type:
//   q, k    [N, Hk, Dk]  io     heads and channels contiguous in a row, 16-byte aligned rows
//   v, z, o [N, Hv, Dv]  io     likewise
//   s       [slots, Hv, Dv, Dk] f32 or f16, a slot's block contiguous, slots s_stride apart
//   snap    [N, Hv, Dv, Dk]     as s: what each sequence's slot now holds; may be null
//   slot_of [N] i64             negative: padding, neither state nor any row is touched
// Gates: decay [N, Hv] f32 is e^g's exponent (log) or e^g itself (alpha), beta [N, Hv] f32; or raw, from
//   a, b [N, Hv] io and dt_bias, a_log [Hv] f32:
//   g = -e^a_log softplus(a + dt_bias), beta = sigmoid(b), softplus exact for every argument.
// Norms of q and k: l2: x / sqrt(sum x^2 + eps); rms_scaled: x / sqrt(mean x^2 + eps) times Dk^-1/2 for
//   k and 1/Dk for q, which holds the output's scale already: `scale` is then not used.
// Entries: plain (gates as log or alpha, nothing else fused), `_fused` (any gates, norms of q and k, clamp,
//   snapshots, and f32 outputs for a norm that follows), `_gated` (those, and the output's gated norm),
//   `_shared` (as `_fused`, state rows kept in shared memory). All are one function; what a plain step does
//   not need is not in its code, because a short kernel begins sooner.
// Promises: f32 arithmetic with accurate expf; each (n, hv) reads and writes its own block alone, so
// a launch of N sequences equals N launches bit for bit. What is stored of S' is what o is computed
// from. Two sequences in one launch do not share a slot, and a slot lies below `slots`: the caller's
// obligations.
//
// The work is one read and one write of the state. Eight lanes hold a state row, so a warp's accesses
// cover whole lines of four rows and a reduction takes three shuffles; each warp keeps eight rows in
// flight, sixteen of a narrow state. A block has 32 rows of a head, or with a gated norm all of them:
// the norm needs the whole head. Between its two uses a row stays in registers, or in shared memory
// that only its own thread reads: the same values either way.
#include "element.cuh"
#include "gated_norm.cuh"
#include "gates.cuh"
#include "sequences.cuh"
#include "state.cuh"

constexpr int kLanesPerRow = 8;
constexpr int kRowsPerPass = 32 / kLanesPerRow;
constexpr int kTileValues = 32;   // rows of a plain block
constexpr int kGatedThreads = 256;
constexpr int kMostValues = 128;  // Dv

enum GateForm { kLogGates, kAlphaGates, kRawGates };
enum QkNorm { kNoNorm, kL2Norm, kRmsScaledNorm };
enum Inputs { kPlainInputs, kFusedInputs };
enum Epilogue { kPlainOutput, kGatedOutput };
enum Retention { kInRegisters, kInShared };

// Passes of four rows a warp keeps in flight; threads of a plain block; blocks of a multiprocessor, as
// many as registers allow without spilling.
template <typename S, Epilogue EPILOGUE>
constexpr int kPassesOf = sizeof(S) == 4 || EPILOGUE == kGatedOutput ? 2 : 4;
template <typename S, Epilogue EPILOGUE>
constexpr int kThreadsOf = EPILOGUE == kGatedOutput
                               ? kGatedThreads
                               : 32 * kTileValues / (kRowsPerPass * kPassesOf<S, EPILOGUE>);
template <typename S, Epilogue EPILOGUE>
constexpr int kBlocksOf = EPILOGUE == kGatedOutput ? (sizeof(S) == 4 ? 2 : 3)
                                                   : (sizeof(S) == 4 ? 5 : 10);

// Everything an entry may be given; the parameters of a fused one, in their order.
template <typename T, typename S>
struct Arguments {
  const T* q;
  const T* k;
  const T* v;
  const float* decay;
  const float* beta;
  const T* a;
  const T* b;
  const float* dt_bias;
  const float* a_log;
  const T* z;
  const T* w;
  S* s;
  S* snap;
  const i64* slot_of;
  T* o;
  float* wide_o;  // [N, Hv, Dv] f32, dense; takes the output's place where it is not null
  i64 q_stride, k_stride, v_stride, decay_stride, beta_stride, a_stride, b_stride, z_stride;
  i64 s_stride, snap_stride, o_stride;
  int sequences, key_heads, value_heads, value_dim, head_map_cyclic;
  int gate_form, qk_norm, clamps_alpha;
  float scale, qk_eps, norm_eps, alpha_low, alpha_high;
};

__device__ __forceinline__ float sum_over_row_lanes(float x) {
#pragma unroll
  for (int step = kLanesPerRow / 2; step > 0; step /= 2) x += __shfl_xor_sync(kFullWarp, x, step);
  return x;
}

// What the gates of one row and head are made from: loaded long before it is used.
struct GateInputs {
  float decay, beta;            // or a and b
  float dt_bias, a_log;         // raw gates alone
};

template <Inputs INPUTS, typename T, typename S>
__device__ __forceinline__ GateInputs load_gates(const Arguments<T, S>& call, i64 n, int head) {
  if (INPUTS == kFusedInputs && call.gate_form == kRawGates) {
    return {widen(__ldg(call.a + n * call.a_stride + head)),
            widen(__ldg(call.b + n * call.b_stride + head)), __ldg(call.dt_bias + head),
            __ldg(call.a_log + head)};
  }
  return {__ldg(call.decay + n * call.decay_stride + head),
          __ldg(call.beta + n * call.beta_stride + head), 0.0f, 0.0f};
}

// The decay of the state and the strength of the write.
template <Inputs INPUTS, typename T, typename S>
__device__ __forceinline__ float2 gates_of(const Arguments<T, S>& call, const GateInputs& in) {
  float alpha = in.decay, beta = in.beta;
  if (INPUTS == kFusedInputs && call.gate_form == kRawGates) {
    alpha = expf(-expf(in.a_log) * softplus(in.decay + in.dt_bias));
    beta = sigmoid(in.beta);
  } else if (call.gate_form == kLogGates) {
    alpha = expf(in.decay);
  }
  if (INPUTS == kFusedInputs && call.clamps_alpha) {  // NaN passes
    if (alpha < call.alpha_low) alpha = call.alpha_low;
    if (alpha > call.alpha_high) alpha = call.alpha_high;
  }
  return make_float2(alpha, beta);
}

// One row that eight lanes share, to unit norm or, for rms_scaled, to norm `length`.
template <int DK, int N>
__device__ __forceinline__ void normalise(float (&row)[N], int kind, float eps, float length) {
  float square = 0.0f;
#pragma unroll
  for (int i = 0; i < N; ++i) square = fmaf(row[i], row[i], square);
  square = sum_over_row_lanes(square);
  const float factor = kind == kL2Norm ? 1.0f / sqrtf(square + eps)
                                       : length / sqrtf(square / static_cast<float>(DK) + eps);
#pragma unroll
  for (int i = 0; i < N; ++i) row[i] *= factor;
}

// 16 bytes of global memory to shared memory, past the registers, and back by the thread that asked.
__device__ __forceinline__ void stage16(unsigned* shared, const void* global) {
  const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
}
__device__ __forceinline__ void wait_for_staged() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}
template <typename Vector>
__device__ __forceinline__ void load_staged(Vector& out, const unsigned* shared) {
  const unsigned from = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(out.word[0]), "=r"(out.word[1]), "=r"(out.word[2]), "=r"(out.word[3])
               : "r"(from)
               : "memory");
}

template <typename T, typename S, int DK, Inputs INPUTS, Epilogue EPILOGUE, Retention RETENTION>
__device__ __forceinline__ void gdn_decode(const Arguments<T, S>& call) {
  constexpr bool kFused = INPUTS == kFusedInputs, kGated = EPILOGUE == kGatedOutput;
  constexpr int kPasses = kPassesOf<S, EPILOGUE>, kRowsPerWarp = kRowsPerPass * kPasses;
  constexpr int kThreads = kThreadsOf<S, EPILOGUE>;
  constexpr bool kAhead = !kGated || sizeof(S) == 4;  // where registers allow it
  constexpr int kShare = DK / kLanesPerRow;  // elements of a row a lane holds
  constexpr int kVector = sizeof(S) == 2 && kShare % 8 == 0 ? 8 : 4;
  constexpr int kPieces = kShare / kVector;
  using Vector = StateVector<S, kVector>;
  static_assert(RETENTION == kInRegisters || Vector::kWords == 4, "rows are staged by 16 bytes");
  constexpr float kKeyLength = DK == 32 ? 0.17677669529663687f : DK == 64 ? 0.125f : 0.08838834764831845f;
  const int warps = kGated ? blockDim.x / 32 : kThreads / 32;
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  const int piece_lane = lane % kLanesPerRow;
  const int head = blockIdx.y;
  const int key_head =
      key_head_of(head, call.key_heads, call.value_heads, call.head_map_cyclic);
  const auto column = [&](int piece) { return (piece * kLanesPerRow + piece_lane) * kVector; };

  __shared__ float s_o[kGated ? kMostValues : 1];
  __shared__ __align__(16) unsigned
      s_state[RETENTION == kInShared ? kPasses * kPieces * kThreads * Vector::kWords : 4];
  const auto staged = [&](int pass, int piece) {
    return s_state + ((pass * kPieces + piece) * kThreads + threadIdx.x) * Vector::kWords;
  };

  for (i64 n = blockIdx.z; n < call.sequences; n += gridDim.z) {
    const i64 slot = __ldg(call.slot_of + n);
    if (slot < 0) continue;
    const i64 head_block = static_cast<i64>(head) * call.value_dim * DK;
    int first_value = (blockIdx.x * warps + warp) * kRowsPerWarp + lane / kLanesPerRow;

    // Everything else is asked for before the state, and used while the state comes.
    float key[kShare], query[kShare];
    const T* const key_row = call.k + n * call.k_stride + static_cast<i64>(key_head) * DK;
    const T* const query_row = call.q + n * call.q_stride + static_cast<i64>(key_head) * DK;
#pragma unroll
    for (int i = 0; i < kShare; i += 4) {
      const int at = column(i / kVector) + i % kVector;
      const float4 key4 = load4(key_row + at), query4 = load4(query_row + at);
      key[i] = key4.x, key[i + 1] = key4.y, key[i + 2] = key4.z, key[i + 3] = key4.w;
      query[i] = query4.x, query[i + 1] = query4.y, query[i + 2] = query4.z, query[i + 3] = query4.w;
    }
    const GateInputs gate_inputs = load_gates<INPUTS>(call, n, head);
    const T* const values = call.v + n * call.v_stride + static_cast<i64>(head) * call.value_dim;
    float own_value[kPasses];
    const auto fetch_values = [&]() {
#pragma unroll
      for (int pass = 0; pass < kPasses; ++pass) {
        own_value[pass] = widen(__ldg(values + first_value + pass * kRowsPerPass));
      }
    };
    if constexpr (kAhead) fetch_values();

    float weight = 0.0f, z = 0.0f;
    const auto fetch_gate = [&]() {
      if (threadIdx.x < call.value_dim) {
        weight = widen(__ldg(call.w + threadIdx.x));
        z = widen(__ldg(call.z + n * call.z_stride + static_cast<i64>(head) * call.value_dim +
                        threadIdx.x));
      }
    };
    if constexpr (kGated && kAhead) fetch_gate();

    S* const block = call.s + slot * call.s_stride + head_block;
    Vector held[kPasses][kPieces];
    const auto fetch_rows = [&]() {
#pragma unroll
      for (int pass = 0; pass < kPasses; ++pass) {
        const S* const row = block + static_cast<i64>(first_value + pass * kRowsPerPass) * DK;
#pragma unroll
        for (int piece = 0; piece < kPieces; ++piece) {
          if constexpr (RETENTION == kInShared) {
            stage16(staged(pass, piece), row + column(piece));
          } else {
            held[pass][piece].load(row + column(piece));
          }
        }
      }
    };
    const auto take = [&](int pass, int piece, float* out) {
      if constexpr (RETENTION == kInShared) load_staged(held[pass][piece], staged(pass, piece));
      held[pass][piece].widen_to(out);
    };
    fetch_rows();
    if (kFused && call.qk_norm != kNoNorm) {
      normalise<DK>(key, call.qk_norm, call.qk_eps, kKeyLength);
      normalise<DK>(query, call.qk_norm, call.qk_eps, 1.0f / DK);
    }
    const float2 gates = gates_of<INPUTS>(call, gate_inputs);
    const float alpha = gates.x, rate = gates.y;
    const float scale = kFused && call.qk_norm == kRmsScaledNorm ? 1.0f : call.scale;
    const i64 output_row = n * call.o_stride + static_cast<i64>(head) * call.value_dim;
    const i64 wide_row = (n * call.value_heads + head) * call.value_dim;
    if constexpr (RETENTION == kInShared) wait_for_staged();

    for (;;) {
#pragma unroll
      for (int pass = 0; pass < kPasses; ++pass) {
        const int value = first_value + pass * kRowsPerPass;
        float state[kShare];
        float memory = 0.0f;
#pragma unroll
        for (int piece = 0; piece < kPieces; ++piece) {
          take(pass, piece, state + piece * kVector);
#pragma unroll
          for (int i = piece * kVector; i < (piece + 1) * kVector; ++i) {
            state[i] *= alpha;
            memory = fmaf(state[i], key[i], memory);
          }
        }
        memory = sum_over_row_lanes(memory);
        const float own = kAhead ? own_value[pass] : widen(__ldg(values + value));
        const float delta = rate * (own - memory);
        float output = 0.0f;
#pragma unroll
        for (int piece = 0; piece < kPieces; ++piece) {
          float* const part = state + piece * kVector;
          if constexpr (RETENTION == kInShared) {
            take(pass, piece, part);
#pragma unroll
            for (int i = 0; i < kVector; ++i) part[i] *= alpha;
          }
#pragma unroll
          for (int i = 0; i < kVector; ++i) part[i] = fmaf(delta, key[piece * kVector + i], part[i]);
          held[pass][piece].narrow_from(part);
          held[pass][piece].widen_to(part);  // what is stored is what is read
#pragma unroll
          for (int i = 0; i < kVector; ++i) {
            output = fmaf(part[i], query[piece * kVector + i], output);
          }
        }
        output = sum_over_row_lanes(output);
        const i64 row = static_cast<i64>(value) * DK;
#pragma unroll
        for (int piece = 0; piece < kPieces; ++piece) {
          held[pass][piece].store(block + row + column(piece));
          if (kFused && call.snap != nullptr) {
            held[pass][piece].store(call.snap + n * call.snap_stride + head_block + row +
                                    column(piece));
          }
        }
        if (piece_lane == 0) {
          const float scaled = scale * output;
          if constexpr (kGated) {
            s_o[value] = scaled;
          } else if (kFused && call.wide_o != nullptr) {
            call.wide_o[wide_row + value] = scaled;
          } else {
            call.o[output_row + value] = narrow<T>(scaled);
          }
        }
      }
      if constexpr (!kGated) break;
      first_value += warps * kRowsPerWarp;
      if (first_value >= call.value_dim) break;
      fetch_rows();
      if constexpr (kAhead) fetch_values();
    }
    if constexpr (kGated) {
      if constexpr (!kAhead) fetch_gate();
      __syncthreads();  // the head's outputs are complete
      const float inverse = inverse_rms(s_o, call.value_dim, call.norm_eps);
      if (threadIdx.x < call.value_dim) {
        call.o[output_row + threadIdx.x] =
            narrow<T>(gated_norm(s_o[threadIdx.x], inverse, weight, z));
      }
      __syncthreads();  // every warp has read them; the next sequence's may take their place
    }
  }
}

// The gated norm of wide outputs by itself: one block a head, one thread a value channel.
template <typename T>
__device__ __forceinline__ void gdn_output_gate(const float* wide_o, const T* z, const T* w,
                                                const i64* slot_of, T* o, i64 z_stride,
                                                i64 o_stride, int sequences, int value_dim,
                                                float norm_eps) {
  __shared__ float s_o[kMostValues];
  const int head = blockIdx.x, value = threadIdx.x;
  const i64 channel = static_cast<i64>(head) * value_dim + value;
  for (i64 n = blockIdx.y; n < sequences; n += gridDim.y) {
    if (__ldg(slot_of + n) < 0) continue;
    s_o[value] = wide_o[n * gridDim.x * value_dim + channel];
    __syncthreads();
    const float inverse = inverse_rms(s_o, value_dim, norm_eps);
    o[n * o_stride + channel] = narrow<T>(
        gated_norm(s_o[value], inverse, widen(w[value]), widen(z[n * z_stride + channel])));
    __syncthreads();
  }
}

#define GDN_PLAIN(NAME, T, S, DK)                                                                 \
  extern "C" __global__ void __launch_bounds__((kThreadsOf<S, kPlainOutput>),                    \
                                               (kBlocksOf<S, kPlainOutput>))                     \
      NAME(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,            \
           const float* __restrict__ decay, const float* __restrict__ beta, S* s,                \
           const i64* __restrict__ slot_of, T* o, i64 q_stride, i64 k_stride, i64 v_stride,      \
           i64 decay_stride, i64 beta_stride, i64 s_stride, i64 o_stride, int sequences,         \
           int key_heads, int value_heads, int value_dim, int head_map_cyclic, int gate_form,    \
           float scale) {                                                                        \
    Arguments<T, S> call = {};                                                                   \
    call.q = q, call.k = k, call.v = v, call.decay = decay, call.beta = beta, call.s = s;        \
    call.slot_of = slot_of, call.o = o, call.q_stride = q_stride, call.k_stride = k_stride;      \
    call.v_stride = v_stride, call.decay_stride = decay_stride;                                  \
    call.beta_stride = beta_stride, call.s_stride = s_stride, call.o_stride = o_stride;          \
    call.sequences = sequences, call.key_heads = key_heads, call.value_heads = value_heads;      \
    call.value_dim = value_dim, call.head_map_cyclic = head_map_cyclic;                          \
    call.gate_form = gate_form, call.scale = scale;                                              \
    gdn_decode<T, S, DK, kPlainInputs, kPlainOutput, kInRegisters>(call);                        \
  }

#define GDN_FUSED(NAME, T, S, DK, EPILOGUE, RETENTION)                                            \
  extern "C" __global__ void __launch_bounds__((kThreadsOf<S, EPILOGUE>),                        \
                                               (kBlocksOf<S, EPILOGUE>))                         \
      NAME(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,            \
           const float* __restrict__ decay, const float* __restrict__ beta,                      \
           const T* __restrict__ a, const T* __restrict__ b, const float* __restrict__ dt_bias,  \
           const float* __restrict__ a_log, const T* __restrict__ z, const T* __restrict__ w,    \
           S* s, S* snap, const i64* __restrict__ slot_of, T* o, float* wide_o, i64 q_stride,    \
           i64 k_stride, i64 v_stride, i64 decay_stride, i64 beta_stride, i64 a_stride,          \
           i64 b_stride, i64 z_stride, i64 s_stride, i64 snap_stride, i64 o_stride,              \
           int sequences, int key_heads, int value_heads, int value_dim, int head_map_cyclic,    \
           int gate_form, int qk_norm, int clamps_alpha, float scale, float qk_eps,              \
           float norm_eps, float alpha_low, float alpha_high) {                                  \
    const Arguments<T, S> call = {                                                               \
        q, k, v, decay, beta, a, b, dt_bias, a_log, z, w, s, snap, slot_of, o, wide_o, q_stride, \
        k_stride, v_stride, decay_stride, beta_stride, a_stride, b_stride, z_stride, s_stride,   \
        snap_stride, o_stride, sequences, key_heads, value_heads, value_dim, head_map_cyclic,    \
        gate_form, qk_norm, clamps_alpha, scale, qk_eps, norm_eps, alpha_low, alpha_high};       \
    gdn_decode<T, S, DK, kFusedInputs, EPILOGUE, RETENTION>(call);                               \
  }

#define GDN_DECODE_TWINS(NAME, T, S, DK)                        \
  GDN_PLAIN(NAME, T, S, DK)                                     \
  GDN_FUSED(NAME##_fused, T, S, DK, kPlainOutput, kInRegisters) \
  GDN_FUSED(NAME##_gated, T, S, DK, kGatedOutput, kInRegisters)

#define GDN_DECODE_DIMS(IO, STATE, T, S)                      \
  GDN_DECODE_TWINS(gdn_decode_##IO##_##STATE##_k32, T, S, 32) \
  GDN_DECODE_TWINS(gdn_decode_##IO##_##STATE##_k64, T, S, 64) \
  GDN_DECODE_TWINS(gdn_decode_##IO##_##STATE##_k128, T, S, 128) \
  GDN_FUSED(gdn_decode_##IO##_##STATE##_k128_shared, T, S, 128, kPlainOutput, kInShared)

#define GDN_DECODE_IO(IO, T)                                                                      \
  GDN_DECODE_DIMS(IO, f32, T, float)                                                              \
  GDN_DECODE_DIMS(IO, f16, T, __half)                                                             \
  extern "C" __global__ void __launch_bounds__(kMostValues) gdn_output_gate_##IO(                 \
      const float* __restrict__ wide_o, const T* __restrict__ z, const T* __restrict__ w,        \
      const i64* __restrict__ slot_of, T* __restrict__ o, i64 z_stride, i64 o_stride,            \
      int sequences, int value_dim, float norm_eps) {                                            \
    gdn_output_gate<T>(wide_o, z, w, slot_of, o, z_stride, o_stride, sequences, value_dim,       \
                       norm_eps);                                                                \
  }

GDN_DECODE_IO(f32, float)
GDN_DECODE_IO(f16, __half)
GDN_DECODE_IO(bf16, __nv_bfloat16)
