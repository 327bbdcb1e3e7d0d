// A running sum of products with a carried state: the kernel on which relations between runs are shown.
//
//   s_t = s_(t-1) + k_t v_t          o_t = scale s_t          snap = s after the last row
//
// per sequence n, value head h of key head h / (Hv / Hk) and column d. Layouts: cu i64 [N + 1], slot i64
// [N] (-1: a sequence without rows or state), k f32 [rows, Hk, D], v and o f32 [rows, Hv, D] with rows
// k_stride, v_stride and o_stride apart, s f32 [slots, Hv, D], snap f32 [N, Hv, D], bound i64
// [1], the first sequence's rows under a tag.
// One block a sequence and value head, one warp a block.
//
// RIGHT where `fault` is 0. Every other value plants one fault, most of them another rounding of one
// product (`a b + c` in two steps, within every tolerance) in the one situation that one relation looks
// at. Values 1 to 99 must be found, each by its own clause alone; 100 and up are near-misses, which no
// clause may report. Nothing but the search may launch it.
#include "element.cuh"

namespace {

enum Fault {
  kNone = 0,
  kBatchVariant = 1,       // the rounding depends on how many sequences there are
  kChunkVariant = 2,       // on whether a row is among the first two of its call
  kParityOfRow = 3,        // on the parity of a row within its call
  kPlaceOfState = 4,       // on the slot's number
  kHeadsBeyondTwo = 5,     // on a value head's number
  kPitchOfRows = 6,        // on the distance between rows
  kAboveTwo = 7,           // on the size of a value
  kSecondVariant = 8,      // on a variant that should not matter
  kSnapshotApart = 9,      // the snapshot is computed apart from the state
  kOrderOfBlocks = 10,     // on whether blocks arrive by number
  kTicketKept = 11,        // the counter of blocks is not cleared
  kBoundKept = 12,         // rows are bounded by what an earlier launch stored
  kExactIgnored = 13,      // two roundings a product where one is promised
  kNanBefore = 14,         // NaN reaches the outputs of the two rows before its own two
  kTicketCleared = 100,    // counts blocks, and clears the counter
  kBoundRenewed = 101,     // stores the bound, and reads its own
  kOtherRounding = 102,    // two roundings a product, wherever one is not promised
  kNanOfChunk = 103,       // NaN reaches the outputs of its own two rows
  kNanInSecond = 104,      // so it does in one variant alone
};

// What tells a stored bound from anything else in its place.
constexpr i64 kBoundTag = 0x5a5a40;

// What the call chose.
constexpr int kFour = 1, kSecond = 2, kExact = 4, kWhole = 8;

}  // namespace

extern "C" __global__ void __launch_bounds__(32) canary_steps_f32(
    const i64* __restrict__ cu, const i64* __restrict__ slots, const float* __restrict__ k,
    const float* __restrict__ v, float* s, float* o, float* snap, i64* bound, unsigned* tickets,
    i64 k_stride, i64 v_stride, i64 o_stride, int sequences, int key_heads, int value_heads,
    int columns, float scale, int variant, int fault) {
  const int n = blockIdx.x / value_heads, head = blockIdx.x % value_heads;
  const int key_head = head / (value_heads / key_heads);
  unsigned ticket = blockIdx.x;
  if (fault == kOrderOfBlocks || fault == kTicketKept || fault == kTicketCleared) {
    if (threadIdx.x == 0) {
      ticket = fault == kTicketKept ? atomicAdd(tickets, 1u) : atomicInc(tickets, gridDim.x - 1);
    }
    ticket = __shfl_sync(0xffffffffu, ticket, 0);
  }
  const i64 slot = slots[n];
  i64 rows = cu[n + 1] - cu[n];
  if (fault == kBoundKept || fault == kBoundRenewed) {
    // A bound kept from the first launch on: only the first block's sequence has one.
    if (blockIdx.x == 0) {
      const bool is_kept = (*bound & ~63ll) == kBoundTag;
      __syncwarp();
      if (threadIdx.x == 0 && (fault == kBoundRenewed || !is_kept)) *bound = kBoundTag | rows;
      __syncwarp();
      rows = *bound & 63;
    }
  } else if (blockIdx.x == 0 && threadIdx.x == 0) {
    *bound = kBoundTag | rows;
  }
  for (int d = threadIdx.x; d < columns; d += 32) {
    float state = slot < 0 ? 0.0f : s[(slot * value_heads + head) * columns + d];
    float apart = state;
    for (i64 t = 0; t < rows; ++t) {
      const i64 row = cu[n] + t;
      const float key = k[row * k_stride + key_head * columns + d];
      const float value = v[row * v_stride + head * columns + d];
      const bool otherwise = fault == kOtherRounding || (fault == kBatchVariant && sequences > 1) ||
                             (fault == kChunkVariant && (variant & kFour) && t < 2) ||
                             (fault == kParityOfRow && !(variant & (kFour | kWhole)) && (t & 1)) ||
                             (fault == kPlaceOfState && (slot & 1)) ||
                             (fault == kHeadsBeyondTwo && head >= 2) ||
                             (fault == kPitchOfRows && v_stride > value_heads * columns + 17) ||
                             (fault == kAboveTwo && fabsf(value) > 2.0f) ||
                             (fault == kSecondVariant && (variant & kSecond)) ||
                             (fault == kOrderOfBlocks && ticket != blockIdx.x);
      const bool other = variant & kExact ? fault == kExactIgnored : otherwise;
      state = other ? __fadd_rn(__fmul_rn(key, value), state) : fmaf(key, value, state);
      apart = __fadd_rn(__fmul_rn(key, value), apart);
      float out = scale * state;
      const bool nan_reaches = fault == kNanBefore || fault == kNanOfChunk ||
                               (fault == kNanInSecond && (variant & kSecond));
      if (nan_reaches && (variant & kWhole) && !(variant & kExact)) {
        const i64 last = (t | 1) + (fault == kNanBefore ? 2 : 0);
        for (i64 later = t + 1; later <= last && later < rows; ++later) {
          const float then = v[(cu[n] + later) * v_stride + head * columns + d];
          if (isnan(then)) out = then;
        }
      }
      if (slot >= 0) o[row * o_stride + head * columns + d] = out;
    }
    snap[(static_cast<i64>(n) * value_heads + head) * columns + d] =
        slot < 0 ? 0.0f : fault == kSnapshotApart ? apart : state;
    if (slot >= 0) s[(slot * value_heads + head) * columns + d] = state;
  }
}
