// Sum of each row. DELIBERATELY WRONG: the canary of the search.
//
//   y[r] = sum of x[r, c] over c < n
//
// Layouts: x [R, n] f32, rows x_stride >= n elements apart, element aligned; y [R] f32.
// The planted fault: a row of more than 64 elements is summed in groups of four and the last
// n mod 4 elements are left out. Shorter rows are right, and so is every multiple of four. A search
// that does not find this within its stated number of cases is itself broken. Everything else is as
// in the other kernels; nothing but the search may launch it.
#include "element.cuh"
#include "sequences.cuh"

constexpr int kRowsPerBlock = 4;  // one warp a row
constexpr int kShortRow = 64;

extern "C" __global__ void __launch_bounds__(32 * kRowsPerBlock)
    canary_row_sum_f32(const float* __restrict__ x, float* __restrict__ y, i64 x_stride, i64 rows,
                       i64 columns) {
  const int lane = threadIdx.x & 31;
  const i64 row = static_cast<i64>(blockIdx.x) * kRowsPerBlock + (threadIdx.x >> 5);
  if (row >= rows) return;
  const float* const from = x + row * x_stride;
  float sum = 0.0f;
  if (columns <= kShortRow) {
    for (i64 i = lane; i < columns; i += 32) sum += from[i];
  } else {
    const bool aligned = (reinterpret_cast<unsigned long long>(from) & 15u) == 0;
    for (i64 group = lane; group < columns / 4; group += 32) {
      const float* const at = from + group * 4;
      const float4 four = aligned ? load4(at) : make_float4(at[0], at[1], at[2], at[3]);
      sum += (four.x + four.y) + (four.z + four.w);
    }
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(kFullWarp, sum, step);
  if (lane == 0) y[row] = sum;
}
