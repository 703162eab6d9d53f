/* simd_codecs.h - the tables of codecs that files compiled for each CPU level export. Their names end in the level's. */
#ifndef APR_KERNELS_HOST_SIMD_CODECS_H
#define APR_KERNELS_HOST_SIMD_CODECS_H

#include "kernels/host/codecs/levels.h"

/* What a file has; functions that are NULL are another file's, or the reference's. */
#define APR_SIMD_TABLES(level)                                                                                                      \
    extern const apr_host_codecs_table apr_simd_floats_##level, apr_simd_simple_##level, apr_simd_k_##level, apr_simd_q2_k_##level, \
        apr_simd_steps_##level, apr_simd_lookup_##level, apr_simd_iq_##level;
APR_SIMD_TABLES(plain)
APR_SIMD_TABLES(avx2)
APR_SIMD_TABLES(avx512)
#undef APR_SIMD_TABLES

#endif
