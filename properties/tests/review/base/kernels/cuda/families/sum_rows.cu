#include "rows.cuh"
__global__ void sum_rows(float* y) { y[0] = row() + 1; }
