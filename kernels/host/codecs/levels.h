/* kernels/host/codecs/levels.h - CPU levels, and the codecs compiled for each.
 *
 * A level is a set of instructions: plain (what every CPU of the architecture has, with SSE2 or NEON vectors of four), avx2 (with FMA
 * and F16C: x86-64-v3), avx512 (F, BW, CD, DQ, VL: x86-64-v4). All levels give the bytes of kernels/ref. The tables are filled before
 * main begins; the best level of the machine is used unless apr_use_cpu_level selects another. */
#ifndef APR_KERNELS_HOST_LEVELS_H
#define APR_KERNELS_HOST_LEVELS_H

#include "formats/base/status.h"
#include "kernels/rows.h"

typedef enum apr_cpu_level { APR_CPU_PLAIN, APR_CPU_AVX2, APR_CPU_AVX512, APR_CPU_LEVELS } apr_cpu_level;

/* Names in the order of the enum, as an option's choices. */
#define APR_CPU_LEVEL_NAMES "plain|avx2|avx512"

typedef struct apr_host_codecs_table {
    const char *name;
    apr_codec codecs[APR_DTYPE_COUNT];
    void (*encode_fp8_row)(const float *src, uint8_t *dst, float *scale, int64_t n_elems);
    bool (*all_within)(const float *x, int64_t n_elems, float low, float high); /* false for NaN */
} apr_host_codecs_table;

/* NULL: the machine or the build lacks that level. */
const apr_host_codecs_table *apr_cpu_level_table(apr_cpu_level level);
/* The table in use, and its level. */
const apr_host_codecs_table *apr_host_table(void);
apr_cpu_level apr_host_level(void);
/* Call it before the first thread starts. APR_E_UNSUPPORTED: this machine lacks that level. */
apr_status apr_use_cpu_level(apr_cpu_level level, apr_error *err);

#endif
