// Rows of a table, copied and weighted: the kernel on which clauses about one run are shown.
//
//   y[n, h, c] = x[id_n, h, c]          z[n, h, c] = a w[c] x[id_n, h, c]
//
// and zeros where id_n is outside the table, the first such n in `status` (0, or 1 + n). Layouts: x
// [R, H, C] with any strides, ids i64 [N], w f32 [C], a f32 [1], y and z [N, H, C] with rows y_stride and z_stride
// apart, status i32 [1]. One warp of a block of two does it all.
//
// RIGHT where `fault` is 0. Every other value plants one fault. Values 1 to 99 must be found, each by its
// own clause alone; 100 and up are near-misses, which no clause may report. A fault that the machine
// stops at stands after all stores. Nothing but the search may launch it.
#include "element.cuh"

namespace {

enum Fault {
  kNone = 0,
  kSignOfZero = 1,         // y loses the sign of -0
  kWeightOfFirst = 2,      // z with the first column's weight in the last column
  kLeans = 3,              // z larger by five unit roundoffs, always
  kNanDropped = 4,         // y of a NaN is 0
  kSaturates = 6,          // z past the largest number stops there where it should not
  kOverflows = 7,          // z past the largest number is infinite where it should stop
  kPastTheIds = 8,         // reads the id after the last
  kStaleShared = 9,        // reads shared memory nobody stored to
  kNoBarrier = 10,         // two warps store to one place of shared memory, no barrier between
  kAbsentLane = 11,        // a shuffle reads a lane that takes no part in it
  kEndless = 12,           // never ends where a row has 17 columns
  kStoresWeight = 13,      // stores a weight it read
  kStoresPad = 14,         // stores behind a row of y
  kMaskedRow = 15,         // reads every row of the table, times 0 where it is not asked for
  kSkipsLast = 16,         // leaves the last column of y
  kDenseRows = 17,         // takes rows of x for dense where they are a little apart
  kDenseInner = 18,        // takes the inner axes of x for dense
  kStrideOfOne = 19,       // adds the stride of an axis of one index
  kOffsetIgnored = 20,     // rounds the base of x down to 16 elements
  kIndex32 = 21,           // offsets in 32 bits
  kDenseOut = 22,          // takes rows of z for dense
  kPoisonRead = 23,        // one result depends on what dead rows hold
  kPackedRows = 26,        // takes rows of z for dense where another tensor lies between them
  kPastStatus = 27,        // stores behind the status
  kQuietOnly = 28,         // y of a signalling NaN is 0
  kNanOtherHead = 25,      // z of a NaN makes the same column of the next head NaN
  kNanPayload = 100,       // y of a NaN has another payload
  kTruncates = 101,        // z rounded toward zero
  kNanWholeRow = 102,      // z of a NaN makes its row NaN
  kWithBarrier = 103,      // the exchange through shared memory, with its barrier
  kPresentLane = 104,      // a shuffle of half a warp
  kEndsLate = 105,         // a thousand idle rounds
  kReadsBack = 106,        // reads y after it stored it
  kStoresTwice = 107,      // stores y twice
  kAskedRows = 108,        // reads the rows asked for again
};

constexpr unsigned kFull = 0xffffffffu;

template <typename T>
__device__ __forceinline__ float largest();
template <>
__device__ __forceinline__ float largest<float>() { return 3.402823466e38f; }
template <>
__device__ __forceinline__ float largest<__half>() { return 65504.0f; }
template <>
__device__ __forceinline__ float largest<__nv_bfloat16>() { return 3.3895314e38f; }

template <typename T>
__device__ __forceinline__ float unit();
template <>
__device__ __forceinline__ float unit<float>() { return 0x1p-24f; }
template <>
__device__ __forceinline__ float unit<__half>() { return 0x1p-11f; }
template <>
__device__ __forceinline__ float unit<__nv_bfloat16>() { return 0x1p-8f; }

// Whether the bits are a NaN without the bit that makes it quiet.
__device__ __forceinline__ bool is_signalling(float x) {
  return isnan(x) && !(__float_as_uint(x) & 0x400000u);
}
__device__ __forceinline__ bool is_signalling(__half x) {
  return (__half_as_ushort(x) & 0x7fffu) > 0x7c00u && !(__half_as_ushort(x) & 0x200u);
}
__device__ __forceinline__ bool is_signalling(__nv_bfloat16 x) {
  return (__bfloat16_as_ushort(x) & 0x7fffu) > 0x7f80u && !(__bfloat16_as_ushort(x) & 0x40u);
}

// Toward zero.
__device__ __forceinline__ float toward_zero(float x, float*) { return x; }
__device__ __forceinline__ __half toward_zero(float x, __half*) { return __float2half_rz(x); }
__device__ __forceinline__ __nv_bfloat16 toward_zero(float x, __nv_bfloat16*) {
  return __float2bfloat16_rz(x);
}

struct Call {
  i64 x_row, x_head, x_column, y_row, z_row, count, rows, heads, columns;
  int saturates, fault;
};

// One rounding of a product; past the largest number it stops there where the call says so, unless the
// value it is made of is infinite itself.
template <typename T>
__device__ __forceinline__ T weighted(float product, float value, const Call& call) {
  const bool stops = call.fault == kSaturates || (call.saturates && call.fault != kOverflows);
  if (stops && !isinf(value) && fabsf(product) > largest<T>()) {
    product = copysignf(largest<T>(), product);
  }
  const bool plain = fabsf(product) > 1.0e-4f && fabsf(product) < largest<T>();
  return call.fault == kTruncates && plain ? toward_zero(product, static_cast<T*>(nullptr))
                                           : narrow<T>(product);
}

// As a plain store is, which a volatile one is not: two of those do not race.
__device__ __forceinline__ void store_weakly(volatile int* place, int value) {
  asm volatile("st.u32 [%0], %1;" ::"l"(place), "r"(value) : "memory");
}

template <typename T>
__device__ void rows_of(const T* x, const i64* ids, float* w, const float* a, T* y, T* z, int* status,
                        const Call& call) {
  __shared__ volatile int shared[2];
  const int lane = threadIdx.x & 31, fault = call.fault;
  // The second warp only takes part in what passes through shared memory.
  if (threadIdx.x >= 32) {
    if (fault == kWithBarrier) __syncthreads();
    if (fault == kWithBarrier && lane == 0) shared[1] = shared[0];
    if (fault == kNoBarrier && lane == 0) store_weakly(shared, 9);
    return;
  }
  const i64 row_elements = call.heads * call.columns;
  const bool apart = call.x_row > row_elements && call.x_row < row_elements + 64;
  const i64 row_stride = fault == kDenseRows && apart ? row_elements : call.x_row;
  const i64 head_stride = fault == kDenseInner ? call.columns : call.x_head;
  const i64 column_stride = fault == kDenseInner ? 1 : call.x_column;
  if (fault == kOffsetIgnored) {
    x = reinterpret_cast<const T*>(reinterpret_cast<unsigned long long>(x) & ~(16 * sizeof(T) - 1));
  }
  if (fault == kStrideOfOne && call.heads == 1 && call.x_head > call.columns) x += 1;
  int first_bad = 0;
  for (i64 n = call.count - 1; n >= 0; --n) {
    if (ids[n] < 0 || ids[n] >= call.rows) first_bad = static_cast<int>(n) + 1;
  }
  if (lane == 0) *status = first_bad;
  float unasked = 0.0f;
  for (i64 n = 0; n < call.count; ++n) {
    const i64 id = ids[n];
    const bool bad = id < 0 || id >= call.rows;
    bool any_nan = false;
    for (i64 at = lane; at < row_elements; at += 32) {
      const i64 head = at / call.columns, column = at % call.columns;
      i64 from = id * row_stride + head * head_stride + column * column_stride;
      if (fault == kIndex32) from = static_cast<int>(from);
      const T given = bad ? narrow<T>(0.0f) : x[from];
      const float value = widen(given);
      T copied = given;
      if (fault == kSignOfZero && value == 0.0f) copied = narrow<T>(0.0f);
      if (fault == kNanDropped && isnan(value)) copied = narrow<T>(0.0f);
      if (fault == kQuietOnly && is_signalling(given)) copied = narrow<T>(0.0f);
      if (fault == kNanPayload && isnan(value)) copied = narrow<T>(__uint_as_float(0x7fffffffu));
      any_nan |= isnan(value);
      const i64 weight = fault == kWeightOfFirst && column == call.columns - 1 ? 0 : column;
      float product = bad ? 0.0f : *a * w[weight] * value;
      if (fault == kLeans) product *= 1.0f + 5.0f * unit<T>();
      if (!(fault == kSkipsLast && at == row_elements - 1 && row_elements > 1)) {
        y[n * call.y_row + at] = copied;
        if (fault == kStoresTwice) y[n * call.y_row + at] = copied;
      }
      const bool packed = call.z_row >= 2 * row_elements;
      const bool dense = packed ? fault == kPackedRows && row_elements > 32 : fault == kDenseOut;
      const i64 z_row = dense ? row_elements : call.z_row;
      z[n * z_row + at] = weighted<T>(product, value, call);
    }
    any_nan = __any_sync(kFull, any_nan);
    __syncwarp();
    const T nan = narrow<T>(__uint_as_float(0x7fffffffu));
    if (any_nan && fault == kNanWholeRow) {
      for (i64 at = lane; at < row_elements; at += 32) {
        const i64 head = at / call.columns;
        bool here = false;
        for (i64 c = 0; c < call.columns; ++c) {
          here |= isnan(widen(x[id * row_stride + head * head_stride + c * column_stride]));
        }
        if (here) z[n * call.z_row + at] = nan;
      }
    }
    if (any_nan && fault == kNanOtherHead && lane == 0) z[n * call.z_row + row_elements - 1] = nan;
  }
  __syncwarp();
  // From here on everything is stored.
  if (fault == kPastTheIds && lane == 0) unasked += 0.0f * static_cast<float>(((volatile const i64*)ids)[call.count]);
  if (fault == kStaleShared && lane == 0) unasked += 0.0f * static_cast<float>(shared[1]);
  if (fault == kReadsBack && lane == 0 && call.count > 0) unasked += 0.0f * widen(*(volatile T*)y);
  if (fault == kNoBarrier || fault == kWithBarrier) {
    if (lane == 0) store_weakly(shared, 7);
    if (fault == kWithBarrier) __syncthreads();
  }
  if ((fault == kAbsentLane || fault == kPresentLane) && lane < 16) {
    unasked += 0.0f * __shfl_sync(0xffffu, static_cast<float>(lane), fault == kAbsentLane ? 20 : 5);
  }
  if (fault == kEndless && call.columns == 17) {
    while (*(volatile int*)status >= 0) {
    }
  }
  if (fault == kEndsLate) {
    for (int round = 0; round < 1000 && *(volatile int*)status >= 0; ++round) {
    }
  }
  if (fault == kPastStatus && lane == 0) *(volatile int*)(status + 1) = first_bad;
  if (fault == kStoresWeight && lane == 0) *(volatile float*)w = *(volatile float*)w;
  if (fault == kStoresPad && lane == 0 && call.count > 1 && call.y_row > row_elements &&
      call.y_row < 2 * row_elements) {
    *(volatile T*)(y + row_elements) = narrow<T>(0.0f);
  }
  if ((fault == kMaskedRow || fault == kPoisonRead || fault == kAskedRows) && lane == 0) {
    for (i64 row = 0; row < call.rows && row < 16; ++row) {
      bool asked = false;
      for (i64 n = 0; n < call.count; ++n) asked |= ids[n] == row;
      if (fault == kAskedRows && !asked) continue;
      const float held = widen(*(volatile const T*)(x + row * row_stride));
      unasked += 0.0f * held;
      // One unit in the last place, within every tolerance: a NaN in the dead row does nothing.
      if (fault == kPoisonRead && !asked && held > 1.0e3f && call.count > 0) {
        z[0] = narrow<T>(widen(z[0]) * (1.0f + 2.0f * unit<T>()));
        break;
      }
    }
  }
  if (unasked == 12345.0f) *status = -1;
}

}  // namespace

#define CANARY_ROWS(name, T)                                                                      \
  extern "C" __global__ void __launch_bounds__(64) canary_rows_##name(                            \
      const T* x, const i64* ids, float* w, const float* a, T* y, T* z, int* status, i64 x_row,   \
      i64 x_head, i64 x_column, i64 y_row, i64 z_row, i64 count, i64 rows, i64 heads,             \
      i64 columns, int saturates, int fault) {                                                    \
    const Call call{x_row, x_head, x_column, y_row,     z_row,    count,                          \
                    rows,  heads,  columns,  saturates, fault};                                   \
    rows_of<T>(x, ids, w, a, y, z, status, call);                                                 \
  }

CANARY_ROWS(f32, float)
CANARY_ROWS(f16, __half)
CANARY_ROWS(bf16, __nv_bfloat16)
