/* small_gemm_epilogue.cuh - small GEMMs whose stream-K fix-up is part of another kernel, their epilogue. */
#ifndef APR_KERNELS_CUDA_SMALL_GEMM_EPILOGUE_CUH
#define APR_KERNELS_CUDA_SMALL_GEMM_EPILOGUE_CUH

#include "kernels/cuda/small_gemm/small_gemm_kernel.cuh"

/* An epilogue, which replaces the fix-up kernel after a launch: gets the call as launched, its number of thread blocks, and the rows of a
 * row block. */
typedef cudaError_t gemm_epilogue(const void *what, const gemm_call &call, int n_blocks, int rows_of_block, cudaStream_t stream);
/* small_gemm.cu: dense products. Each launch, of at most APR_SMALL_GEMM_MAX_TILES tiles of tokens, is followed by the epilogue. */
cudaError_t apr_cuda_small_gemm_with_epilogue(const apr_small_gemm_args *args, int n_multiprocessors, gemm_epilogue *epilogue,
                                              const void *what, cudaStream_t stream);

/* qkv_epilogue.cu: for three parts that are the queries, keys and values of a QKV epilogue, which includes the fix-up. The first function: whether
 * there is a kernel. */
bool apr_cuda_has_small_gemm_qkv(const apr_qkv_epilogue_args *qkv, const apr_small_gemm_args *args);
cudaError_t apr_cuda_small_gemm_qkv(const apr_qkv_epilogue_args *qkv, const gemm_call &call, int n_blocks, int rows_of_block,
                                    cudaStream_t stream);

#endif
