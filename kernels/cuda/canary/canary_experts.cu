// Gate times up of each expert, with one scale for every 128 rows of the two stacked: the kernel on which
// layouts of scales are shown.
//
//   y[e, i] = (w[e, i] s[e, i / 128]) (w[e, I + i] s[e, (I + i) / 128])
//
// Layouts: w f32 [E, 2 I], s f32 [E, ceil(2 I / 128)] with rows s_stride apart, y f32 [E, I]. One warp an
// expert. RIGHT where `fault` is 0; every other value plants one fault. Nothing but the search may launch
// it.
#include "element.cuh"

namespace {

enum Fault {
  kNone = 0,
  kSplitPadded = 1,  // takes up's scales as if gate filled whole blocks of 128 rows
  kScalePad = 2,     // reads the scale behind the last of a row, times 0
};

}  // namespace

extern "C" __global__ void __launch_bounds__(32)
    canary_experts_f32(const float* w, const float* s, float* y, i64 s_stride, int inner,
                       int fault) {
  const i64 expert = blockIdx.x;
  const int blocks = (2 * inner + 127) / 128;
  const float* const scales = s + expert * s_stride;
  const float* const rows = w + expert * 2 * inner;
  for (int i = threadIdx.x; i < inner; i += 32) {
    const int padded = (inner + 127) / 128 + i / 128;
    const int block = fault == kSplitPadded ? min(padded, blocks - 1) : (inner + i) / 128;
    float gate = rows[i] * scales[i / 128];
    if (fault == kScalePad && s_stride > blocks) {
      gate += 0.0f * *(volatile const float*)(scales + blocks);
    }
    y[expert * inner + i] = gate * (rows[inner + i] * scales[block]);
  }
}
