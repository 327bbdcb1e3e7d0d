__device__ float carried() { return 1.0f; }
