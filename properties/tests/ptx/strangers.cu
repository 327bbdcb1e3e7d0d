// Kernels of somebody who knows nothing of contracts. Compiled with
//   nvcc --ptx -arch=sm_80 -lineinfo strangers.cu      (CUDA 13.0)

// The bound is one too far: i == n reads past the end of x.
extern "C" __global__ void saxpy(int n, float a, const float* x, float* y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i <= n) {
    y[i] = a * x[i] + y[i];
  }
}

extern "C" __global__ void fill16(unsigned short value, unsigned short* out, long long n) {
  const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) {
    out[i] = value;
  }
}

struct Affine {
  double a;
  double b;
  int n;
};

extern "C" __global__ void affine(Affine f, const double* x, double* y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < f.n) {
    y[i] = f.a * x[i] + f.b;
  } else if (f.n < 0) {
    y[0] = 0.0;
  }
}

// A sum per block, in dynamic shared memory; `count` gets the blocks that are done.
extern "C" __global__ void block_sum(const float* x, float* out, int* count) {
  extern __shared__ float part[];
  const int t = threadIdx.x;
  part[t] = x[blockIdx.x * blockDim.x + t];
  __syncthreads();
  for (int half = blockDim.x / 2; half > 0; half /= 2) {
    if (t < half) {
      part[t] += part[t + half];
    }
    __syncthreads();
  }
  if (t == 0) {
    out[blockIdx.x] = part[0];
    atomicAdd(count, 1);
  }
}

extern "C" __global__ void wait_for(volatile int* flag) {
  while (*flag == 0) {
  }
}
