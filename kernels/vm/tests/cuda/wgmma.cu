// A product of 64x64 a block by wgmma, one group always under way: what a compiler makes of it must be silent.
// C[m][n] = sum over k of A[m][k] B[n][k]; K is a multiple of 64.
#include <cuda_bf16.h>

constexpr int TILE = 64;

__device__ unsigned shared_address(const void* p) { return static_cast<unsigned>(__cvta_generic_to_shared(p)); }

// 128-byte swizzle: rows of 64 bf16, groups of eight rows 1024 bytes apart.
__device__ unsigned long long descriptor(const void* p) {
    return (unsigned long long)((shared_address(p) & 0x3ffff) >> 4) | 1ull << 62 | 64ull << 32 | 1ull << 16;
}

__device__ void fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> __device__ void wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }

__device__ void product(float (&d)[32], unsigned long long a, unsigned long long b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, 1, 1, 1, 0, 0;"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "l"(a), "l"(b));
}

__device__ void load(__nv_bfloat16* to, const __nv_bfloat16* from, int k, int stride) {
    for (int i = threadIdx.x; i < TILE * 8; i += 128) {
        int row = i / 8, piece = i % 8;
        *reinterpret_cast<uint4*>(to + row * TILE + (piece ^ row % 8) * 8) =
            *reinterpret_cast<const uint4*>(from + row * stride + k + piece * 8);
    }
}

extern "C" __global__ void __launch_bounds__(128)
gemm_wgmma(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int n, int k) {
    __shared__ alignas(1024) __nv_bfloat16 left[2][TILE * TILE];
    __shared__ alignas(1024) __nv_bfloat16 right[2][TILE * TILE];
    a += blockIdx.y * TILE * k;
    b += blockIdx.x * TILE * k;
    float sums[32];
    for (float& x : sums) x = 0.0f;
    load(left[0], a, 0, k);
    load(right[0], b, 0, k);
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    for (int tile = 0; tile < k / TILE; tile++) {
        fence();
        for (int step = 0; step < 4; step++)
            product(sums, descriptor(left[tile % 2]) + 2 * step, descriptor(right[tile % 2]) + 2 * step);
        commit();
#ifndef EARLY
        wait<1>();
        __syncthreads();
#endif
        if (tile + 1 < k / TILE) {
            load(left[(tile + 1) % 2], a, (tile + 1) * TILE, k);
            load(right[(tile + 1) % 2], b, (tile + 1) * TILE, k);
#ifndef NOPROXY
            asm volatile("fence.proxy.async;" ::: "memory");
#endif
        }
        __syncthreads();
    }
#ifndef NOWAIT
    wait<0>();
#endif
    int row = blockIdx.y * TILE + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
    int column = blockIdx.x * TILE + threadIdx.x % 4 * 2;
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 4; j++)
            c[(row + j / 2 * 8) * n + column + 8 * i + j % 2] = sums[4 * i + j];
}

