/* code.cuh - the architecture that the running code was compiled for. A library without code for a device also runs there, if the driver
 * can compile the PTX of an older architecture. The kernels then do what __CUDA_ARCH__ said, whatever the device supports. */
#ifndef APR_KERNELS_CUDA_CODE_CUH
#define APR_KERNELS_CUDA_CODE_CUH

/* For the current device: 80 for 8.0; queried once per device. 0: there is no device, or no code that runs on it. */
int apr_cuda_code_architecture(void);

static inline int apr_cuda_code_major(void) { return apr_cuda_code_architecture() / 10; }

#endif
