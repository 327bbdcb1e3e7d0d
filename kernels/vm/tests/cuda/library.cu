// Kernels whose synchronisation is CUB's and libcu++'s: single-pass scans by decoupled look-back, a
// pipeline with producing and consuming warps, a barrier in phases, a lock, the last block's sum.
// `ptx/library` holds their PTX; its README says by what it is made.

static __device__ inline void cudaTriggerProgrammaticLaunchCompletion() {}
static __device__ inline void cudaGridDependencySynchronize() {}

#include <cub/agent/agent_scan.cuh>
#include <cub/agent/single_pass_scan_operators.cuh>
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/pipeline>

// Too wide for one access: its status is a word apart, released after the sums.
struct Triple {
    int a, b, c;
    __host__ __device__ Triple operator+(const Triple& o) const { return {a + o.a, b + o.b, c + o.c}; }
};

template <class T>
using Policy =
    cub::AgentScanPolicy<64, 2, T, cub::BLOCK_LOAD_WARP_TRANSPOSE, cub::LOAD_DEFAULT,
                                   cub::BLOCK_STORE_WARP_TRANSPOSE, cub::BLOCK_SCAN_WARP_SCANS>;

template <class T, bool ONE_WORD>
__device__ void scan(const T* x, T* y, void* tiles, int n) {
    using Tiles = cub::ScanTileState<T, ONE_WORD>;
    using Agent = cub::detail::scan::AgentScan<Policy<T>, const T*, T*, cuda::std::plus<T>, cub::NullType, int, T>;
    __shared__ typename Agent::TempStorage storage;
    Tiles state;
    state.Init(gridDim.x, tiles, 1 << 16);
    Agent(storage, x, y, cuda::std::plus<T>{}, cub::NullType{}).ConsumeRange(n, state, 0);
}

template <class T, bool ONE_WORD>
__device__ void clear(void* tiles, int count) {
    cub::ScanTileState<T, ONE_WORD> state;
    state.Init(count, tiles, 1 << 16);
    state.InitializeStatus(count);
}

extern "C" __global__ void clear_int(void* tiles, int count) { clear<int, true>(tiles, count); }
extern "C" __global__ void clear_triple(void* tiles, int count) { clear<Triple, false>(tiles, count); }

extern "C" __global__ void __launch_bounds__(64) scan_int(const int* x, int* y, void* tiles, int n) {
    scan<int, true>(x, y, tiles, n);
}

extern "C" __global__ void __launch_bounds__(64) scan_triple(const Triple* x, Triple* y, void* tiles, int n) {
    scan<Triple, false>(x, y, tiles, n);
}

struct Threads {
    unsigned count, rank;
    __device__ unsigned size() const { return count; }
    __device__ unsigned thread_rank() const { return rank; }
    __device__ void sync() const {
        if (count == 32) {
            __syncwarp();
        } else {
            __syncthreads();
        }
    }
};

// The first warp brings tiles of 128 into two buffers, 128 threads add them up in another order.
extern "C" __global__ void roles(const float* x, float* y, int n) {
    __shared__ float buffers[2][128];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> shared;
    const bool produces = threadIdx.x < 32;
    auto pipe = cuda::make_pipeline(Threads{blockDim.x, threadIdx.x}, &shared,
                                    produces ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer);
    if (produces) {
        for (int tile = 0; tile < n / 128; tile++) {
            pipe.producer_acquire();
            cuda::memcpy_async(Threads{32, threadIdx.x}, buffers[tile % 2], x + tile * 128, sizeof(buffers[0]), pipe);
            pipe.producer_commit();
        }
    } else {
        float sum = 0;
        for (int tile = 0; tile < n / 128; tile++) {
            pipe.consumer_wait();
            sum += buffers[tile % 2][(threadIdx.x * 7 + 3) % 128];
            pipe.consumer_release();
        }
        y[threadIdx.x - 32] = sum;
    }
}

// Each round a thread reads what another wrote in it.
extern "C" __global__ void phases(const float* x, float* y) {
    __shared__ cuda::barrier<cuda::thread_scope_block> barrier;
    __shared__ float slots[96];
    if (threadIdx.x == 0) {
        init(&barrier, blockDim.x);
    }
    __syncthreads();
    float sum = 0;
    for (int round = 0; round < 5; round++) {
        slots[threadIdx.x] = x[threadIdx.x] + round;
        barrier.wait(barrier.arrive());
        sum += slots[(threadIdx.x + round) % blockDim.x];
        barrier.arrive_and_wait();
    }
    y[threadIdx.x] = sum;
}

extern "C" __global__ void lock(int* held, int* data) {
    cuda::atomic_ref<int, cuda::thread_scope_device> lock(*held);
    if (threadIdx.x % 32 == 0) {
        int free = 0;
        while (!lock.compare_exchange_weak(free, 1, cuda::memory_order_acquire)) {
            free = 0;
        }
        *data += 1;
        lock.store(0, cuda::memory_order_release);
    }
}

extern "C" __global__ void last_block(const float* x, float* parts, float* y, unsigned* done) {
    cuda::atomic_ref<unsigned, cuda::thread_scope_device> count(*done);
    __shared__ bool is_last;
    parts[blockIdx.x * 64 + threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x] * 2;
    __syncthreads();
    if (threadIdx.x == 0) {
        is_last = count.fetch_add(1, cuda::memory_order_acq_rel) == gridDim.x - 1;
    }
    __syncthreads();
    if (is_last) {
        float sum = 0;
        for (unsigned block = 0; block < gridDim.x; block++) {
            sum += parts[block * 64 + threadIdx.x];
        }
        y[threadIdx.x] = sum;
    }
}
