#include "rows.cuh"
__global__ void scale_rows(float* y) { y[0] = row(); }
