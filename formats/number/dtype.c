/* dtype.c - the table of number formats, and lookups in it. */
#include "formats/number/dtype.h"

#include <stddef.h>
#include <strings.h>

const apr_dtype_facts apr_dtypes[APR_DTYPE_COUNT] = {
#define X(id, name, class_of, elems, bytes, scales, flat, ggml, apr, st) \
    [APR_##id] = {name, APR_CLASS_##class_of, elems, bytes, APR_SCALES_##scales, flat, ggml, apr, st},
    APR_DTYPE_LIST(X)
#undef X
};

/* Checks the columns of a line: only blocks have scales inside, and one scale in front implies flat. */
#define X(id, name, class_of, elems, bytes, scales, flat, ggml, apr, st)                                                       \
    _Static_assert((APR_SCALES_##scales == APR_SCALES_INSIDE) <= (APR_CLASS_##class_of == APR_CLASS_BLOCK), name);             \
    _Static_assert((APR_CLASS_##class_of == APR_CLASS_BLOCK) <= (APR_SCALES_##scales != APR_SCALES_NONE), name " has scales"); \
    _Static_assert((APR_SCALES_##scales == APR_SCALES_FIRST) <= (flat), name ": one scale in front needs a flat type");        \
    _Static_assert((elems) > 0 && (bytes) > 0 && (apr) >= 0 && (ggml) >= -1, name);
APR_DTYPE_LIST(X)
#undef X

apr_dtype apr_dtype_by_name(const char *name)
{
    for (int d = 0; d < APR_DTYPE_COUNT; d++)
        if (strcasecmp(apr_dtypes[d].name, name) == 0) return (apr_dtype)d;
    return APR_DTYPE_COUNT;
}

apr_dtype apr_dtype_by_ggml_id(uint32_t id)
{
    for (int d = 0; d < APR_DTYPE_COUNT; d++)
        if (apr_dtypes[d].ggml_id >= 0 && (uint32_t)apr_dtypes[d].ggml_id == id) return (apr_dtype)d;
    return APR_DTYPE_COUNT;
}

apr_dtype apr_dtype_by_apr_id(uint32_t id)
{
    for (int d = 0; d < APR_DTYPE_COUNT; d++)
        if ((uint32_t)apr_dtypes[d].apr_id == id) return (apr_dtype)d;
    return APR_DTYPE_COUNT;
}

apr_dtype apr_dtype_by_safetensors_name(const char *name)
{
    for (int d = 0; d < APR_DTYPE_COUNT; d++)
        if (apr_dtypes[d].safetensors_name != NULL && strcasecmp(apr_dtypes[d].safetensors_name, name) == 0) return (apr_dtype)d;
    return APR_DTYPE_COUNT;
}

const char *apr_ggml_id_reason(uint32_t id)
{
    static const struct {
        uint32_t first, last;
        const char *story;
    } stories[] = {
        {4, 5, "Q4_2/Q4_3, removed from ggml in 2023"},
        {31, 33, "Q4_0_4_4 and its variants, removed from ggml in 2024; they are Q4_0 repacked for one CPU"},
        {36, 36, "removed from ggml; I2_S in ik_llama.cpp and BitNet"},
        {37, 38, "IQ4_NL_4_4 and its variants, removed from ggml in 2024"},
        {97, 99, "a Q8_0 variant of ik_llama.cpp"},
        {133, 133, "Q6_0 of ik_llama.cpp"},
        {134, 135, "IQ1_BN/IQ2_BN of ik_llama.cpp"},
        {137, 141, "IQ2_K to IQ6_K of ik_llama.cpp"},
        {144, 146, "IQ4_KS/IQ2_KS/IQ4_KSS of ik_llama.cpp"},
        {152, 158, "a KS, KT or KL type of ik_llama.cpp"},
        {200, 399, "a row-interleaved type of ik_llama.cpp"},
    };

    for (size_t i = 0; i < sizeof stories / sizeof *stories; i++)
        if (id >= stories[i].first && id <= stories[i].last) return stories[i].story;
    return "not a type of ggml";
}

int64_t apr_row_bytes(apr_dtype dtype, int64_t n_elems)
{
    if ((unsigned)dtype >= APR_DTYPE_COUNT || n_elems < 0) return -1;
    const apr_dtype_facts *const facts = &apr_dtypes[dtype];
    int64_t n_blocks = n_elems / facts->elems_per_block;
    int64_t n_bytes;

    if (n_elems % facts->elems_per_block != 0) {
        if (!facts->flat) return -1;
        n_blocks++; /* flat over the tensor: the last block is padded */
    }
    if (__builtin_mul_overflow(n_blocks, (int64_t)facts->bytes_per_block, &n_bytes)) return -1;
    if (facts->scales == APR_SCALES_FIRST && n_elems > 0 && __builtin_add_overflow(n_bytes, 4, &n_bytes))
        return -1; /* one f32 scale first */
    return n_bytes;
}

static bool is_of(apr_dtype dtype, apr_dtype_class class_of)
{
    return (unsigned)dtype < APR_DTYPE_COUNT && apr_dtypes[dtype].class_of == class_of;
}

bool apr_dtype_is_float(apr_dtype dtype) { return is_of(dtype, APR_CLASS_FLOAT); }
bool apr_dtype_is_quantized(apr_dtype dtype) { return is_of(dtype, APR_CLASS_MINIFLOAT) || is_of(dtype, APR_CLASS_BLOCK); }
bool apr_dtype_is_weights(apr_dtype dtype) { return apr_dtype_is_float(dtype) || apr_dtype_is_quantized(dtype); }

double apr_dtype_bits(apr_dtype dtype) { return 8.0 * apr_dtypes[dtype].bytes_per_block / apr_dtypes[dtype].elems_per_block; }

bool apr_dtype_precedes(apr_dtype a, apr_dtype b)
{
    const bool a_is_block = apr_dtypes[a].class_of == APR_CLASS_BLOCK, b_is_block = apr_dtypes[b].class_of == APR_CLASS_BLOCK;
    const unsigned a_id = (unsigned)apr_dtypes[a].ggml_id, b_id = (unsigned)apr_dtypes[b].ggml_id; /* -1 comes last */

    if (a_is_block != b_is_block) return b_is_block;
    return a_id != b_id ? a_id < b_id : apr_dtypes[a].apr_id < apr_dtypes[b].apr_id;
}

apr_dtype apr_dtype_most_common(const int64_t n_elems[APR_DTYPE_COUNT])
{
    apr_dtype most = APR_DTYPE_COUNT;
    for (int d = 0; d < APR_DTYPE_COUNT; d++) {
        if (n_elems[d] <= 0) continue;
        const bool is_more = most == APR_DTYPE_COUNT || n_elems[d] > n_elems[most] ||
                             (n_elems[d] == n_elems[most] && apr_dtype_precedes((apr_dtype)d, most));
        if (is_more) most = (apr_dtype)d;
    }
    return most;
}
