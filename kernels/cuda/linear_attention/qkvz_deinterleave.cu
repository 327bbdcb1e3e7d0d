// Rows that hold, for every key head, its [q | k | v | z] become rows of all q, all k, all v and all z.
//
// Per row and key head h, with r = Hv / Hk value heads to a key head:
//   mixed [rows, Hk, 2 Dk + 2 r Dv]: q of h (Dk), k of h (Dk), v of heads h r to h r + r - 1 (Dv each), z
//   q, k  [rows, Hk, Dk]     v, z  [rows, Hv, Dv]
//
// Nothing is computed: bits are copied. Extents and row strides are in units of 16, 4 or 2 bytes, the
// largest that divides every extent, stride and address, which the caller has found: a row of q, k, v or z
// may be a slice of a wider one.
using i64 = long long;

struct Arguments {
  i64 mixed_stride, q_stride, k_stride, v_stride, z_stride, rows;
  int key_heads, key_units, value_units;  // of one key head: q or k, and v or z of its group
};

template <typename Unit>
__device__ __forceinline__ void qkvz_deinterleave(const Unit* mixed, Unit* q, Unit* k, Unit* v,
                                                  Unit* z, const Arguments& call) {
  const int of_head = 2 * (call.key_units + call.value_units);
  const int column = blockIdx.x * blockDim.x + threadIdx.x;
  if (column >= call.key_heads * of_head) return;
  const int head = column / of_head;
  int within = column - head * of_head;
  Unit* to;
  i64 stride;
  if (within < 2 * call.key_units) {
    const bool is_q = within < call.key_units;
    within -= is_q ? 0 : call.key_units;
    to = (is_q ? q : k) + static_cast<i64>(head) * call.key_units + within;
    stride = is_q ? call.q_stride : call.k_stride;
  } else {
    within -= 2 * call.key_units;
    const bool is_v = within < call.value_units;
    within -= is_v ? 0 : call.value_units;
    to = (is_v ? v : z) + static_cast<i64>(head) * call.value_units + within;
    stride = is_v ? call.v_stride : call.z_stride;
  }
  for (i64 row = blockIdx.y; row < call.rows; row += gridDim.y) {
    to[row * stride] = __ldg(mixed + row * call.mixed_stride + column);
  }
}

#define QKVZ_DEINTERLEAVE(NAME, UNIT)                                                            \
  extern "C" __global__ void __launch_bounds__(256)                                             \
      NAME(const UNIT* __restrict__ mixed, UNIT* q, UNIT* k, UNIT* v, UNIT* z, i64 mixed_stride, \
           i64 q_stride, i64 k_stride, i64 v_stride, i64 z_stride, i64 rows, int key_heads,      \
           int key_units, int value_units) {                                                    \
    qkvz_deinterleave(mixed, q, k, v, z,                                                        \
                      {mixed_stride, q_stride, k_stride, v_stride, z_stride, rows, key_heads,   \
                       key_units, value_units});                                                \
  }

QKVZ_DEINTERLEAVE(qkvz_deinterleave_16, uint4)
QKVZ_DEINTERLEAVE(qkvz_deinterleave_4, unsigned)
QKVZ_DEINTERLEAVE(qkvz_deinterleave_2, unsigned short)
