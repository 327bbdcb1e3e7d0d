#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cooperative_groups.h>
__constant__ float tab[4]={1.f,2.f,3.f,4.f};
__device__ int gl[3]={1,2};
__device__ unsigned char ctr[7] = {1,2,3};
struct P{int a; float b[3]; double d;};
__device__ __noinline__ float f(float x,int* p){ if(x>1.f) *p=3; return x*2.f+__sinf(x); }
extern "C" __global__ void k1(P p, float* o, half* h, __nv_bfloat16* b, unsigned char* e8, int n, unsigned long long* u){
  extern __shared__ float dyn[];
  int i=threadIdx.x; int tmp[8]; for(int j=0;j<n;j++) tmp[j&7]=o[j]; 
  dyn[i]=tmp[i&7]; __syncthreads();
  o[i]=f(dyn[(i+1)%n],&tmp[n&7])+tab[i&3]+gl[i%3]+ctr[i%7]+tmp[i&7];
  h[i]=__hadd(h[i],__float2half(p.b[i%3])); b[i]=__hfma(b[i],b[i+1],b[i+2]);
  __nv_fp8_e4m3 q(o[i]); e8[i]=*(unsigned char*)&q;
  switch(n){case 0:o[i]=1;break;case 1:o[i]=sinf(o[i]);break;case 2:o[i]=powf(o[i],2.5f);break;case 3:o[i]=tanhf(o[i]);break;case 4:o[i]=o[i]/3.f;break;case 5:o[i]=sqrtf(o[i]);break; case 6: o[i]=fmodf(o[i],p.b[1]);}
  atomicAdd(o,1.f); atomicMax((int*)o+1,n); atomicCAS(u,1ull,2ull); atomicExch((int*)o+3,n);
  u[i]=u[i]/u[i+1]+u[i]%7+__popcll(u[i])+__clzll(u[i])+__brevll(u[i])+__ffsll(u[i])+__umul64hi(u[i],u[i+1]);
  double d=p.d*exp(p.d)/3.0; u[i]+=(unsigned long long)d + __double2ll_rn(d);
  ((int*)o)[i]=__any_sync(~0u,n>i)+__reduce_add_sync(~0u,n)+__match_any_sync(~0u,n)+__shfl_sync(~0u,n,3,8)+__funnelshift_l(n,i,3)+__byte_perm(n,i,0x1234)+__vadd4(n,i)+ __dp4a(n,i,n);
  __threadfence(); if(n==99) __trap(); 
}
namespace cg=cooperative_groups;
extern "C" __global__ void k2(float4*o, const uint4* __restrict__ in, half2* h, __nv_bfloat162* b, int*q){
  auto t=cg::tiled_partition<16>(cg::this_thread_block());
  uint4 v=in[t.thread_rank()]; o[threadIdx.x]=make_float4(v.x,v.y,v.z,v.w);
  h[0]=__hfma2(h[1],h[2],h[3]); b[0]=__hmul2(b[0],b[1]); b[1]=__hmax2(b[2],b[3]); h[4]=h2exp(h[5]); b[5]=__float22bfloat162_rn(make_float2(v.x,v.y)); h[6]=__float22half2_rn(make_float2(v.x,v.y));
  if(__hgt(h[0].x,h[1].x)) q[0]=1; q[1]=__half2int_rz(h[1].x); q[2]=__float2int_rn(o[3].x); q[3]=__float2uint_ru(o[4].y); h[7].x=hsqrt(h[8].x); h[8].x=h[9].x/h[10].y;
  long long l=q[0]; l*=q[1]; q[5]=l>>7; q[6]=__mulhi(q[1],q[2]); q[7]=q[1]/q[2]; q[8]=q[3]%q[2]; ((unsigned short*)q)[33]=((short*)q)[44]+ ((char*)q)[77];
  if (threadIdx.x<5) t.sync(); __syncwarp(0xff); q[9]=__syncthreads_count(q[1]); q[10]=__syncthreads_or(q[2]);
}
