// Calls of every kind: through pointers, recursive, guarded, and those of the runtime.
typedef float (*Function)(float, float);

__device__ __noinline__ float add(float a, float b) { return a + b; }
__device__ __noinline__ float multiply(float a, float b) { return a * b; }
__device__ __noinline__ float power(float a, float n) { return n <= 0.f ? 1.f : a * power(a, n - 1.f); }
__device__ Function table[3] = {add, multiply, power};

__device__ __noinline__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

extern "C" __global__ void through_pointers(const int *which, const float *a, const float *b, float *out) {
  int i = threadIdx.x;
  Function f = table[which[i]];
  if (a[i] > 0.f)
    f = i % 2 ? add : multiply;
  out[i] = f(a[i], b[i]);
}

extern "C" __global__ void recursive(const int *n, int *out) {
  int i = threadIdx.x;
  if (n[i] >= 0)
    out[i] = fibonacci(n[i]);
}

extern "C" __global__ void prints(const int *n, const double *x, int *out) {
  int i = threadIdx.x;
  out[i] = printf("%3d|%-4u|%#x|%5.2f|%e|%g|%c|%s|%lld|%p|%%\n", n[i], n[i], n[i], x[i], x[i], x[i], 'a' + i,
                  i ? "odd" : "even", 1ll << 40, (void *)0x10);
}

extern "C" __global__ void asserts(const int *n) {
  if (!(n[threadIdx.x] < 7))
    __assertfail("n < 7", "calls.cu", 42, "asserts", 1);
}
