// gdn_chunk's launch (2) for Hopper (sm_90a): bf16, 128 key channels (see gdn_chunk.cu for the rule, the
// layouts and the promises, gdn_chunk_inter.cuh for the portable launch with the same roundings).
//
// A block per sequence, value head and 64 value channels, in three warpgroups that meet at mbarriers
// alone:
//   carriers  S in f32 as the sums of their products, 64 values by 128 key channels: packed, it is
//             their next left factor. A chunk is three products one after another,
//             S K^T, T X and S + delta^T K, all other factors in shared memory.
//   readers   o of what the carriers hand them, S as it entered the chunk and delta, in bf16.
//   bringers  a pair of warps for the carriers' tiles, chunks ahead, and a pair for the readers'.
// Rows of a tile past a chunk's end, and blocks of T and P above the diagonal, are zeros: products are
// always of 64 rows.
#include "gdn_chunk_inter.cuh"
#include "warpgroup.cuh"

constexpr int kKeyChannels = 128;
constexpr int kHopperThreads = 3 * kGroupThreads;
constexpr int kPairThreads = 64;
constexpr int kCarryPlaces = 3, kReadPlaces = 2, kHandPlaces = 2;

// Registers a thread after the roles have parted; 512 for one of each role there are.
constexpr int kCarrierRegisters = 232, kBringerRegisters = 72;  // a reader keeps its 168

// Dynamic shared memory, in bytes.
struct HopperTiles {
  static constexpr int kDecaysBytes = kMostChunkRows * 8;
  // What the state needs; the decays of every place after all tiles, which want 1,024-byte borders.
  static constexpr int kKeys = 0;
  static constexpr int kValues = 2 * kSwizzledTileBytes;
  static constexpr int kT = 3 * kSwizzledTileBytes;
  static constexpr int kCarryBytes = 4 * kSwizzledTileBytes;
  // What o needs besides.
  static constexpr int kRead = kCarryPlaces * kCarryBytes;
  static constexpr int kQueries = 0;
  static constexpr int kP = 2 * kSwizzledTileBytes;
  static constexpr int kReadBytes = 3 * kSwizzledTileBytes;
  // What carriers hand to readers: S, 64 values by 128 key channels, and delta, by 64 rows.
  static constexpr int kHand = kRead + kReadPlaces * kReadBytes;
  static constexpr int kEntering = 0;
  static constexpr int kDelta = 2 * kSwizzledTileBytes;
  static constexpr int kHandBytes = 3 * kSwizzledTileBytes;

  // o on its way out, rows padded against bank conflicts.
  static constexpr int kOut = kHand + kHandPlaces * kHandBytes;
  static constexpr int kOutRowBytes = (kMostValues + kCopyElements) * 2;

  static constexpr int kCarryDecays = kOut + kMostChunkRows * kOutRowBytes;
  static constexpr int kReadDecays = kCarryDecays + kCarryPlaces * kDecaysBytes;
  // mbarriers: a ring's places are full, then empty.
  static constexpr int kCarryFull = kReadDecays + kReadPlaces * kDecaysBytes;
  static constexpr int kCarryEmpty = kCarryFull + 8 * kCarryPlaces;
  static constexpr int kReadFull = kCarryEmpty + 8 * kCarryPlaces;
  static constexpr int kReadEmpty = kReadFull + 8 * kReadPlaces;
  static constexpr int kHandFull = kReadEmpty + 8 * kReadPlaces;
  static constexpr int kHandEmpty = kHandFull + 8 * kHandPlaces;
  static constexpr int kBytes = kHandEmpty + 8 * kHandPlaces;
};

template <int REGISTERS>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
template <int REGISTERS>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

// Once its lanes are done, a warp's one arrival of the four of its warpgroup.
__device__ __forceinline__ void warp_arrives(unsigned mbarrier) {
  __syncwarp();
  if ((threadIdx.x & 31) == 0) mbarrier_arrive(mbarrier);
}

// A tile of n rows and zeros below them, in the background.
template <bool TRIANGLE, typename T>
__device__ __forceinline__ void bring_tile(unsigned tile, const T* from, i64 stride, int n,
                                           int thread) {
  if (n == kMostChunkRows) {
    bring_rows<kSquareChunks, kPairThreads, true, TRIANGLE>(tile, from, stride, n,
                                                            kSquareChunkBits, thread);
    return;
  }
  bring_rows<kSquareChunks, kPairThreads, false, TRIANGLE>(tile, from, stride, n, kSquareChunkBits,
                                                           thread);
  const int brought = (n + kBlockRows - 1) & -kBlockRows;
#pragma unroll 1
  for (int at = brought * kSquareChunks + thread; at < kMostChunkRows * kSquareChunks;
       at += kPairThreads) {
    copy_async(tile + at * kCopyBytes, from, 0);
  }
}

__device__ __forceinline__ void bring_all_decays(unsigned to, const float2* from, int n,
                                                 int thread) {
  if (2 * thread < kMostChunkRows) {
    const int bytes = min(max(n - 2 * thread, 0), 2) * 8;
    copy_async(to + thread * kCopyBytes, from + (bytes > 0 ? 2 * thread : 0), bytes);
  }
}

template <typename T>
__device__ __forceinline__ void bring_carried(unsigned base, const InterSources<T>& from,
                                              int chunks) {
  RingPlace<kCarryPlaces> ring;
  for (int chunk = 0; chunk < chunks; ++chunk, ring.next()) {
    const int n = from.rows_of(chunk);
    const unsigned to = base + ring.place * HopperTiles::kCarryBytes;
    const i64 row0 = static_cast<i64>(chunk) * from.chunk_rows;
    const i64 square = chunk * from.square_stride;
    const T* const keys = from.keys + row0 * from.k_stride;
    mbarrier_wait(base + HopperTiles::kCarryEmpty + 8 * ring.place, ring.parity ^ 1);
    bring_tile<false>(to + HopperTiles::kKeys, keys, from.k_stride, n, from.thread);
    bring_tile<false>(to + HopperTiles::kKeys + kSwizzledTileBytes, keys + 64, from.k_stride, n,
                      from.thread);
    bring_tile<false>(to + HopperTiles::kValues, from.values + row0 * from.v_stride, from.v_stride,
                      n, from.thread);
    bring_tile<true>(to + HopperTiles::kT, from.t + square, from.chunk_rows, n, from.thread);
    bring_all_decays(base + HopperTiles::kCarryDecays + ring.place * HopperTiles::kDecaysBytes,
                     from.decays + square / from.chunk_rows, n, from.thread);
    mbarrier_arrive_after_copies(base + HopperTiles::kCarryFull + 8 * ring.place);
  }
}

template <typename T>
__device__ __forceinline__ void bring_read(unsigned base, const InterSources<T>& from, int chunks) {
  RingPlace<kReadPlaces> ring;
  for (int chunk = 0; chunk < chunks; ++chunk, ring.next()) {
    const int n = from.rows_of(chunk);
    const unsigned to = base + HopperTiles::kRead + ring.place * HopperTiles::kReadBytes;
    const i64 row0 = static_cast<i64>(chunk) * from.chunk_rows;
    const i64 square = chunk * from.square_stride;
    const T* const queries = from.queries + row0 * from.q_stride;
    mbarrier_wait(base + HopperTiles::kReadEmpty + 8 * ring.place, ring.parity ^ 1);
    bring_tile<false>(to + HopperTiles::kQueries, queries, from.q_stride, n, from.thread);
    bring_tile<false>(to + HopperTiles::kQueries + kSwizzledTileBytes, queries + 64, from.q_stride,
                      n, from.thread);
    bring_tile<true>(to + HopperTiles::kP, from.p + square, from.chunk_rows, n, from.thread);
    bring_all_decays(base + HopperTiles::kReadDecays + ring.place * HopperTiles::kDecaysBytes,
                     from.decays + square / from.chunk_rows, n, from.thread);
    mbarrier_arrive_after_copies(base + HopperTiles::kReadFull + 8 * ring.place);
  }
}

// One chunk's part of the recurrence, but for the wait for its last products, those with S; a thread's
// part of S is that of its products' sums. `tiles` and `decays` are there, and `hand` is from the phase
// before `hand_parity` of its mbarrier on.
template <typename T>
__device__ __forceinline__ void carry_chunk_hopper(float (&state)[16][4], unsigned tiles,
                                                   const float2* decays, unsigned hand,
                                                   unsigned hand_empty, int hand_parity, int n) {
  constexpr float kPlain[2] = {1.0f, 1.0f};
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, column0 = 2 * (lane & 3);
  const TileLane<kSquareChunks> tile_lane(lane);

  // S K^T; meanwhile S goes to the readers.
  unsigned entering[8][4];
#pragma unroll
  for (int step = 0; step < 8; ++step) {
    pack_block<T>(entering[step], state[2 * step], state[2 * step + 1], kPlain);
  }
  float memory[8][4];
  products_may_start();
#pragma unroll
  for (int step = 0; step < 8; ++step) {
    const unsigned keys =
        tiles + HopperTiles::kKeys + (step >> 2) * kSwizzledTileBytes + (step & 3) * 32;
    group_multiply(memory, entering[step], rows_factor(keys), step > 0);
  }
  close_products();
  mbarrier_wait(hand_empty, hand_parity ^ 1);
#pragma unroll
  for (int step = 0; step < 8; ++step) {
    const unsigned half = hand + HopperTiles::kEntering + (step >> 2) * kSwizzledTileBytes;
    store_matrices(tile_lane.across(half, warp, step & 3), entering[step]);
  }
  const float decay = decays[n - 1].x;
#pragma unroll
  for (int i = 0; i < 16; ++i) {
#pragma unroll
    for (int e = 0; e < 4; ++e) state[i][e] *= decay;
  }
  // What comes between the products is loaded beside the first.
  unsigned values[kRowBlocks][4];
  float4 pair_decays[2 * kRowBlocks];  // of two rows
#pragma unroll
  for (int block = 0; block < kRowBlocks; ++block) {
    tile_lane.load_transpose(values[block], tiles + HopperTiles::kValues, block, warp);
  }
#pragma unroll
  for (int i = 0; i < 2 * kRowBlocks; ++i) {
    pair_decays[i] = shared4(reinterpret_cast<const float*>(decays + 8 * i + column0));
  }
  products_arrive(memory);

  // X = V - e^G (K S^T), values by rows.
  unsigned change[kRowBlocks][4];
#pragma unroll
  for (int block = 0; block < kRowBlocks; ++block) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float(&x)[4] = memory[2 * block + half];
      const float4 two = pair_decays[2 * block + half];
      const float2 upper = unpacked<T>(values[block][half]);
      const float2 lower = unpacked<T>(values[block][2 + half]);
      x[0] = fmaf(-two.x, x[0], upper.x);
      x[1] = fmaf(-two.z, x[1], upper.y);
      x[2] = fmaf(-two.x, x[2], lower.x);
      x[3] = fmaf(-two.z, x[3], lower.y);
    }
    pack_block<T>(change[block], memory[2 * block], memory[2 * block + 1], kPlain);
  }

  // delta = T X.
  float delta[8][4];
  products_may_start();
#pragma unroll
  for (int step = 0; step < kRowBlocks; ++step) {
    group_multiply(delta, change[step], rows_factor(tiles + HopperTiles::kT + step * 32), step > 0);
  }
  close_products();
  products_arrive(delta);

  // S <- e^(G_n) S + (decayed delta)^T K; meanwhile delta goes to the readers.
  unsigned plain[kRowBlocks][4], decayed[kRowBlocks][4];
#pragma unroll
  for (int block = 0; block < kRowBlocks; ++block) {
    pack_block<T>(plain[block], delta[2 * block], delta[2 * block + 1], kPlain);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float(&d)[4] = delta[2 * block + half];
      const float4 two = pair_decays[2 * block + half];
      d[0] *= two.y, d[1] *= two.w, d[2] *= two.y, d[3] *= two.w;
    }
    pack_block<T>(decayed[block], delta[2 * block], delta[2 * block + 1], kPlain);
  }
  products_may_start();
#pragma unroll
  for (int step = 0; step < kRowBlocks; ++step) {
    group_multiply_columns(state, decayed[step],
                           columns_factor(tiles + HopperTiles::kKeys + step * 2048));
  }
  close_products();
#pragma unroll
  for (int block = 0; block < kRowBlocks; ++block) {
    store_matrices(tile_lane.across(hand + HopperTiles::kDelta, warp, block), plain[block]);
  }
  show_to_products();
}

template <typename T>
__device__ __forceinline__ void carry(float (&state)[16][4], unsigned base,
                                      const unsigned char* shared, const InterSources<T>& from,
                                      int chunks) {
  RingPlace<kCarryPlaces> ring;
  RingPlace<kHandPlaces> hands;
  for (int chunk = 0; chunk < chunks; ++chunk, ring.next(), hands.next()) {
    const int decays = HopperTiles::kCarryDecays + ring.place * HopperTiles::kDecaysBytes;
    mbarrier_wait(base + HopperTiles::kCarryFull + 8 * ring.place, ring.parity);
    show_to_products();  // the copies
    carry_chunk_hopper<T>(state, base + ring.place * HopperTiles::kCarryBytes,
                          reinterpret_cast<const float2*>(shared + decays),
                          base + HopperTiles::kHand + hands.place * HopperTiles::kHandBytes,
                          base + HopperTiles::kHandEmpty + 8 * hands.place, hands.parity,
                          from.rows_of(chunk));
    warp_arrives(base + HopperTiles::kHandFull + 8 * hands.place);
    products_arrive(state);
    warp_arrives(base + HopperTiles::kCarryEmpty + 8 * ring.place);
  }
}

// A warp's 16 rows of o, of which `live` are in the chunk, from products' sums: through shared memory, so
// that each row goes out as one line. `row_at`: the first of them.
template <typename T>
__device__ __forceinline__ void write_rows(unsigned staged, const unsigned (&rows)[4][4], int live,
                                           T* row_at, i64 o_stride) {
  const int lane = threadIdx.x & 31;
#pragma unroll
  for (int pair = 0; pair < 4; ++pair) {
    const int chunk = 2 * pair + (lane >> 4);
    store_matrices(staged + (lane & 15) * HopperTiles::kOutRowBytes + chunk * kCopyBytes, rows[pair]);
  }
  __syncwarp();
#pragma unroll
  for (int pass = 0; pass < 4; ++pass) {
    const int row = 4 * pass + (lane >> 3), chunk = lane & 7;
    unsigned x[4];
    load_shared4(x, staged + row * HopperTiles::kOutRowBytes + chunk * kCopyBytes);
    if (row < live) {
      *reinterpret_cast<uint4*>(row_at + row * o_stride + chunk * kCopyElements) =
          make_uint4(x[0], x[1], x[2], x[3]);
    }
  }
  __syncwarp();  // the next chunk's rows may take their place
}

// o = scale (e^G Q S^T + P delta), rows by values.
template <typename T>
__device__ __forceinline__ void read(unsigned base, const unsigned char* shared,
                                     const InterSources<T>& from, int chunks, T* o, i64 o_stride,
                                     float scale) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5 & 3;
  const int own_row = kBlockRows * warp + (lane >> 2);
  T* o_at = o + kBlockRows * warp * o_stride;
  const unsigned staged =
      base + HopperTiles::kOut + kBlockRows * warp * HopperTiles::kOutRowBytes;
  RingPlace<kReadPlaces> ring;
  RingPlace<kHandPlaces> hands;
  for (int chunk = 0; chunk < chunks; ++chunk, ring.next(), hands.next()) {
    const int n = from.rows_of(chunk);
    const unsigned tiles = base + HopperTiles::kRead + ring.place * HopperTiles::kReadBytes;
    const unsigned hand = base + HopperTiles::kHand + hands.place * HopperTiles::kHandBytes;
    const float2* const decays = reinterpret_cast<const float2*>(
        shared + HopperTiles::kReadDecays + ring.place * HopperTiles::kDecaysBytes);
    mbarrier_wait(base + HopperTiles::kReadFull + 8 * ring.place, ring.parity);
    const float before[2] = {scale * decays[own_row].x, scale * decays[own_row + 8].x};
    show_to_products();  // the copies
    mbarrier_wait(base + HopperTiles::kHandFull + 8 * hands.place, hands.parity);

    float out[8][4], within[8][4];
    products_may_start();
#pragma unroll
    for (int step = 0; step < 8; ++step) {
      const int at = (step >> 2) * kSwizzledTileBytes + (step & 3) * 32;
      group_multiply(out, rows_factor(tiles + HopperTiles::kQueries + at),
                     rows_factor(hand + HopperTiles::kEntering + at), step > 0);
    }
#pragma unroll
    for (int step = 0; step < kRowBlocks; ++step) {
      group_multiply(within, rows_factor(tiles + HopperTiles::kP + step * 32),
                     rows_factor(hand + HopperTiles::kDelta + step * 32), step > 0);
    }
    close_products();
    products_arrive(out);
    products_arrive(within);
    warp_arrives(base + HopperTiles::kHandEmpty + 8 * hands.place);
    warp_arrives(base + HopperTiles::kReadEmpty + 8 * ring.place);

    unsigned rows[4][4];
#pragma unroll
    for (int tile = 0; tile < 8; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float x[2];
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          x[e] = fmaf(before[half], out[tile][2 * half + e], scale * within[tile][2 * half + e]);
        }
        rows[tile >> 1][2 * (tile & 1) + half] = packed<T>(x[0], x[1]);
      }
    }
    write_rows(staged, rows, n - kBlockRows * warp, o_at, o_stride);
    o_at += from.chunk_rows * o_stride;
  }
}

// Zeros where no copy comes: the blocks of T and P above the diagonal, in all places.
__device__ __forceinline__ void clear_upper_blocks(unsigned tile) {
#pragma unroll 1
  for (int at = threadIdx.x; at < kMostChunkRows * kSquareChunks; at += kHopperThreads) {
    const int row = at / kSquareChunks, chunk = at % kSquareChunks;
    if (chunk >= 2 * (row / kBlockRows + 1)) {
      store_shared4(tile + chunk_offset<kSquareChunks>(row, chunk), 0, 0, 0, 0);
    }
  }
}

__device__ __forceinline__ void prepare_shared(unsigned base) {
  using Tiles = HopperTiles;
  for (int place = 0; place < kCarryPlaces; ++place) {
    clear_upper_blocks(base + place * Tiles::kCarryBytes + Tiles::kT);
  }
  for (int place = 0; place < kReadPlaces; ++place) {
    clear_upper_blocks(base + Tiles::kRead + place * Tiles::kReadBytes + Tiles::kP);
  }
  if (threadIdx.x == 0) {
    for (int place = 0; place < kCarryPlaces; ++place) {
      mbarrier_init(base + Tiles::kCarryFull + 8 * place, kPairThreads);
      mbarrier_init(base + Tiles::kCarryEmpty + 8 * place, kGroupThreads / 32);
    }
    for (int place = 0; place < kReadPlaces; ++place) {
      mbarrier_init(base + Tiles::kReadFull + 8 * place, kPairThreads);
      mbarrier_init(base + Tiles::kReadEmpty + 8 * place, kGroupThreads / 32);
    }
    for (int place = 0; place < kHandPlaces; ++place) {
      mbarrier_init(base + Tiles::kHandFull + 8 * place, kGroupThreads / 32);
      mbarrier_init(base + Tiles::kHandEmpty + 8 * place, kGroupThreads / 32);
    }
  }
  show_to_products();
  __syncthreads();
}

extern "C" __global__ void __launch_bounds__(kHopperThreads, 1) gdn_chunk_inter_hopper_bf16_k128(
    const __nv_bfloat16* __restrict__ q, const __nv_bfloat16* __restrict__ k,
    const __nv_bfloat16* __restrict__ v, const float2* __restrict__ decays,
    const __nv_bfloat16* __restrict__ t, const __nv_bfloat16* __restrict__ p,
    const void* __restrict__ cu_seqlens, const i64* __restrict__ slot_of, float* s,
    __nv_bfloat16* __restrict__ o, i64 q_stride, i64 k_stride, i64 v_stride, i64 s_stride,
    i64 o_stride, int chunk_rows, int key_heads, int value_heads, int value_dim, int cu_is_i64,
    int head_map_cyclic, int initial_zero, float scale) {
  using T = __nv_bfloat16;
  extern __shared__ __align__(1024) unsigned char s_hopper[];

  InterBlock<T> block;
  if (!locate_block<T, kKeyChannels>(block, q, k, v, decays, t, p, cu_seqlens, slot_of, q_stride,
                                     k_stride, v_stride, chunk_rows, key_heads, value_heads,
                                     value_dim, cu_is_i64, head_map_cyclic, initial_zero,
                                     kMostValues, static_cast<int>(threadIdx.x) % kPairThreads)) {
    return;
  }
  const InterSources<T>& from = block.from;
  const int chunks = block.chunks;
  const unsigned base = shared_address(s_hopper);
  const int group = __shfl_sync(kFullWarp, threadIdx.x / kGroupThreads, 0);
  prepare_shared(base);

  if (group == 0) {
    take_registers<kCarrierRegisters>();
    float* const own = own_state<kKeyChannels>(s + block.slot * s_stride, block.value_column,
                                               threadIdx.x >> 5);
    float state[16][4];
    load_state<kKeyChannels>(state, own, initial_zero);
    carry(state, base, s_hopper, from, chunks);
    store_state<kKeyChannels>(state, own);
  } else if (group == 1) {
    read(base, s_hopper, from, chunks, o + block.first_row * o_stride + block.value_column, o_stride,
         scale);
  } else {
    give_registers<kBringerRegisters>();
    if (threadIdx.x < 2 * kGroupThreads + kPairThreads) {
      bring_carried(base, from, chunks);
    } else {
      bring_read(base, from, chunks);
    }
  }
}
