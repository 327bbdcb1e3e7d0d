// One row of the running sum of canary_steps.cu: what a kernel over rows is held against, row by row, and
// the kernel on which the choice between entries is shown.
//
//   s = s + k v          o = scale s
//
// per sequence n, value head h of key head h / (Hv / Hk) and column d, one rounding a product. Layouts:
// slot i64 [N] (-1: a sequence without state, whose o stays as it is), k f32 [N, Hk, D], v f32 [N, Hv, D]
// with rows v_row apart, o f32 [N, Hv, D], s f32 [slots, Hv, D]. One block a sequence and value head, one
// warp a block. Three entries that differ in how many columns are loaded and stored together; D and the
// place of every row are multiples of them. Nothing but the search may launch it.
#include "element.cuh"

namespace {

template <int kColumns>
struct alignas(4 * kColumns) Piece {
  float of[kColumns];
};

template <int kColumns>
__device__ __forceinline__ void step(const i64* __restrict__ slots, const float* __restrict__ k,
                                     const float* __restrict__ v, float* s, float* o, i64 v_row,
                                     int key_heads, int value_heads, int columns, float scale) {
  using Columns = Piece<kColumns>;
  const int n = blockIdx.x / value_heads, head = blockIdx.x % value_heads;
  const int key_head = head / (value_heads / key_heads);
  const i64 slot = slots[n];
  if (slot < 0) return;
#pragma unroll 1
  for (int d = kColumns * threadIdx.x; d < columns; d += kColumns * 32) {
    const Columns key = *reinterpret_cast<const Columns*>(
        k + (static_cast<i64>(n) * key_heads + key_head) * columns + d);
    const Columns value =
        *reinterpret_cast<const Columns*>(v + n * v_row + static_cast<i64>(head) * columns + d);
    Columns* place = reinterpret_cast<Columns*>(s + (slot * value_heads + head) * columns + d);
    Columns state = *place, out;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      state.of[c] = fmaf(key.of[c], value.of[c], state.of[c]);
      out.of[c] = scale * state.of[c];
    }
    *place = state;
    *reinterpret_cast<Columns*>(o + (static_cast<i64>(n) * value_heads + head) * columns + d) = out;
  }
}

}  // namespace

#define CANARY_STEP(name, columns_together)                                                       \
  extern "C" __global__ void __launch_bounds__(32) canary_step_f32_##name(                        \
      const i64* __restrict__ slots, const float* __restrict__ k, const float* __restrict__ v,    \
      float* s, float* o, i64 v_row, int key_heads, int value_heads, int columns, float scale) {  \
    step<columns_together>(slots, k, v, s, o, v_row, key_heads, value_heads, columns, scale);     \
  }

CANARY_STEP(single, 1)
CANARY_STEP(pairs, 2)
CANARY_STEP(fours, 4)
