// Blocks that work together, right and wrong: the look-alikes of races and hangs.

extern "C" {

__device__ unsigned int finished = 0;

// Each block adds up its part; the last to finish adds up the parts.
__global__ void last_block_sum(const float* x, float* parts, float* out, int n) {
    __shared__ float sums[256];
    __shared__ bool last;
    float sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        sum += x[i];
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = sums[0];
#ifndef NO_FENCE
        __threadfence();
#endif
        last = atomicInc(&finished, gridDim.x) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        float all = 0;
        for (int i = 0; i < gridDim.x; i++) {
            all += parts[i];
        }
        *out = all;
        finished = 0;
    }
}

// A barrier of the grid; `arrived` counts on from launch to launch.
__device__ unsigned int arrived = 0;

__device__ void meet(unsigned int& phase) {
    __syncthreads();
    if (threadIdx.x == 0) {
        phase += gridDim.x;
        __threadfence();
        atomicAdd(&arrived, 1);
        while (*(volatile unsigned int*)&arrived < phase) {
        }
        __threadfence();
    }
    __syncthreads();
}

// Steps of a stencil on a ring, two buffers in turn.
__global__ void ring(float* a, float* b, int n, int steps) {
    unsigned int phase = 0;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int step = 0; step < steps; step++) {
        b[i] = a[(i + 1) % n] + a[(i + n - 1) % n];
        meet(phase);
        float* swap = a;
        a = b;
        b = swap;
    }
}

// A running sum over blocks: each waits for the one before.
__global__ void look_back(const int* x, volatile int* sums, volatile int* ready, int* out) {
    __shared__ int before;
    int lane = threadIdx.x & 31;
    int sum = x[blockIdx.x * 32 + lane];
    for (int d = 1; d < 32; d *= 2) {
        int other = __shfl_up_sync(0xffffffff, sum, d);
        if (lane >= d) sum += other;
    }
    if (lane == 31) {
        int base = 0;
        if (blockIdx.x > 0) {
            while (ready[blockIdx.x - 1] == 0) {
            }
            __threadfence();
            base = sums[blockIdx.x - 1];
        }
        sums[blockIdx.x] = base + sum;
        __threadfence();
        ready[blockIdx.x] = 1;
        before = base;
    }
    __syncwarp();
    out[blockIdx.x * 32 + lane] = before + sum;
}

// Two halves of a product's depth: the first block of a pair adds what the second leaves for it.
__global__ void fix_up(const float* x, float* left, int* flags, float* out, int depth) {
    int tile = blockIdx.x / 2;
    int part = blockIdx.x % 2;
    float sum = 0;
    for (int k = part * depth / 2; k < (part + 1) * depth / 2; k++) {
        sum += x[(tile * depth + k) * blockDim.x + threadIdx.x];
    }
    if (part == 1) {
        left[tile * blockDim.x + threadIdx.x] = sum;
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) atomicExch(&flags[tile], 1);
    } else {
        if (threadIdx.x == 0) {
            while (atomicAdd(&flags[tile], 0) == 0) {
            }
        }
        __syncthreads();
        out[tile * blockDim.x + threadIdx.x] =
            sum + *(volatile float*)&left[tile * blockDim.x + threadIdx.x];
    }
}

// Tiles in shared memory, two in turn, and a sum of each warp through shared memory.
__global__ void double_buffer(const float* x, float* out, int tiles) {
    __shared__ float tile[2][128];
    __shared__ float sums[128];
    float sum = 0;
    tile[0][threadIdx.x] = x[threadIdx.x];
    for (int t = 0; t < tiles; t++) {
        __syncthreads();
        if (t + 1 < tiles) {
            tile[(t + 1) & 1][threadIdx.x] = x[(t + 1) * 128 + threadIdx.x];
        }
        sum += tile[t & 1][127 - threadIdx.x];
    }
    sums[threadIdx.x] = sum;
    int lane = threadIdx.x & 31;
    for (int half = 16; half > 0; half /= 2) {
        __syncwarp();
        float other = lane < half ? sums[threadIdx.x + half] : 0;
        __syncwarp();
        sums[threadIdx.x] += other;
    }
    if (lane == 0) out[threadIdx.x / 32] = sums[threadIdx.x];
}

// Every block says that it found something; lanes of a warp take a lock in turn.
__global__ void found(const int* x, int* any, int* lock, int* count) {
    if (x[blockIdx.x * blockDim.x + threadIdx.x] < 0) *any = 1;
    bool done = threadIdx.x >= 4;
    while (!done) {
        if (atomicCAS(lock, 0, 1) == 0) {
            __threadfence();
            *(volatile int*)count = *(volatile int*)count + 1;
            __threadfence();
            atomicExch(lock, 0);
            done = true;
        }
    }
}

}
