/* code.cuh - the architecture that the running code was made for. A library without code for a device runs there as well, made by the
 * driver of PTX of an older one: what kernels then do is what __CUDA_ARCH__ said, whatever the device could. */
#ifndef APR_KERNELS_CUDA_CODE_CUH
#define APR_KERNELS_CUDA_CODE_CUH

/* Of the current device, 80 for 8.0; asked once for each. 0: there is no device, or no code that it runs. */
int apr_cuda_code_architecture(void);

static inline int apr_cuda_code_major(void) { return apr_cuda_code_architecture() / 10; }

#endif
