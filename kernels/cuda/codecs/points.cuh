/* points.cuh - the IQ types, for kernels: what the compiler needs of each, the same in constant memory, and its codebook. */
#ifndef APR_KERNELS_CUDA_POINTS_CUH
#define APR_KERNELS_CUDA_POINTS_CUH

#include "kernels/cuda/codecs/books.cuh"

extern "C" {
#include "kernels/ref/iq_types.h"
}

template <apr_dtype D> struct points_of;
#define X(ID, id, book, ...)                                                                         \
    static __constant__ iq_type id##_in_memory = {__VA_ARGS__};                                      \
    template <> struct points_of<APR_##ID> {                                                         \
        static constexpr book_name BOOK = BOOK_##book;                                               \
        static __device__ constexpr iq_type type(void) { return {__VA_ARGS__}; }                     \
        static __device__ __forceinline__ const iq_type *in_memory(void) { return &id##_in_memory; } \
    };
IQ_TYPES(X)
#undef X

template <apr_dtype D> static __device__ constexpr bool has_shifts(void)
{
    return points_of<D>::type().signs == IQ_SHIFTED_SUBS || points_of<D>::type().signs == IQ_SHIFTED_POINTS;
}

#endif
