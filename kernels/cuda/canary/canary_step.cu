// One row of the running sum of canary_steps.cu: what a kernel over rows is held against, row by row.
//
//   s = s + k v          o = scale s
//
// per sequence n, value head h of key head h / (Hv / Hk) and column d, one rounding a product. Layouts:
// slot i64 [N] (-1: a sequence without state, whose o stays as it is), k f32 [N, Hk, D], v and o f32
// [N, Hv, D], s f32 [slots, Hv, D]. One block a sequence and value head, one warp a block. Nothing but
// the search may launch it.
#include "element.cuh"

extern "C" __global__ void __launch_bounds__(32)
    canary_step_f32(const i64* __restrict__ slots, const float* __restrict__ k,
                    const float* __restrict__ v, float* s, float* o, int key_heads,
                    int value_heads, int columns, float scale) {
  const int n = blockIdx.x / value_heads, head = blockIdx.x % value_heads;
  const int key_head = head / (value_heads / key_heads);
  const i64 slot = slots[n];
  if (slot < 0) return;
  for (int d = threadIdx.x; d < columns; d += 32) {
    const i64 at = (static_cast<i64>(n) * value_heads + head) * columns + d;
    const float key = k[(static_cast<i64>(n) * key_heads + key_head) * columns + d];
    float& state = s[(slot * value_heads + head) * columns + d];
    state = fmaf(key, v[at], state);
    o[at] = scale * state;
  }
}
