// Barriers in shared memory as the C++ library writes them: phases, asynchronous copies, and on
// sm_90 bulk copies with their bytes counted.
#include <cooperative_groups.h>
#include <cuda/barrier>
#if __CUDA_ARCH__ >= 900
#include <cuda/ptx>
#endif
namespace cg = cooperative_groups;
using Barrier = cuda::barrier<cuda::thread_scope_block>;

// out[i] is the sum over rounds of what the next thread stored in the round.
extern "C" __global__ void rounds(const float *x, float *out, int count) {
  __shared__ Barrier written, read;
  __shared__ float shelf[128];
  int t = threadIdx.x, n = blockDim.x;
  if (t == 0) {
    init(&written, n);
    init(&read, n);
  }
  __syncthreads();
  float sum = 0;
  for (int r = 0; r < count; r++) {
    shelf[t] = x[r * n + t];
#ifndef NO_WAIT
    written.arrive_and_wait();
#else
    (void)written.arrive();
#endif
    sum += shelf[(t + 1) % n];
    read.wait(read.arrive());
  }
  out[t] = sum;
}

// A row copied by all, summed by all.
extern "C" __global__ void copied(const float *x, float *out) {
  __shared__ alignas(16) float shelf[512];
  __shared__ Barrier here;
  auto block = cg::this_thread_block();
  if (block.thread_rank() == 0)
    init(&here, block.size());
  block.sync();
  cuda::memcpy_async(block, shelf, x, cuda::aligned_size_t<16>(sizeof(shelf)), here);
  here.arrive_and_wait();
  float sum = 0;
  for (int i = 0; i < 512; i++)
    sum += shelf[i];
  out[threadIdx.x] = sum;
}

#if __CUDA_ARCH__ >= 900
extern "C" __global__ void bulk(const float *x, float *out) {
  namespace ptx = cuda::ptx;
  __shared__ alignas(128) float shelf[512];
  __shared__ uint64_t here;
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&here, blockDim.x);
    ptx::fence_proxy_async(ptx::space_shared);
  }
  __syncthreads();
  uint64_t token;
  if (threadIdx.x == 0) {
    ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, shelf, x + blockIdx.x * 512, sizeof(shelf), &here);
    token = ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &here, sizeof(shelf));
  } else {
    token = ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &here);
  }
  while (!ptx::mbarrier_try_wait(ptx::sem_acquire, ptx::scope_cta, &here, token))
    ;
  for (int i = threadIdx.x; i < 512; i += blockDim.x)
    shelf[i] += 1;
  ptx::fence_proxy_async(ptx::space_shared);
  __syncthreads();
  if (threadIdx.x == 0) {
    ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, out + blockIdx.x * 512, shelf, sizeof(shelf));
    ptx::cp_async_bulk_commit_group();
    ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
  }
}
#endif
