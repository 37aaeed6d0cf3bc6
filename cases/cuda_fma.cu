// nvcc --ptx --gpu-architecture=compute_75 cuda_fma.cu -o cuda_fma.ptx
extern "C" __global__ void fused(const float *x, const float *y, const float *z, float *d, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) d[i] = fmaf(x[i], y[i], z[i]);
}
