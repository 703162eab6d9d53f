/* dtype.h - the one list of number formats. Enum, facts, block-size asserts, codec tables and test loops expand it.
 *
 * X(id, printed name, elements per block, bytes per block, GGUF type id or -1, APR type id, safetensors name or NULL)
 *
 * GGUF ids are ggml's. APR ids: the seven both public readers agree on (0, 1, 12, 14, 30, 128, 129), aprender's plain
 * types (3 to 7), 192 + the GGUF id for every other ggml type, and 144 upwards for types outside ggml.
 * Rows (the last dimension) are whole blocks, except for APR_Q4 and APR_Q8, which run flat over the whole tensor. */
#ifndef APR_FORMATS_DTYPE_H
#define APR_FORMATS_DTYPE_H

#include <stdbool.h>
#include <stdint.h>

#define APR_DTYPE_LIST(X)                           \
    X(F32, "f32", 1, 4, 0, 0, "F32")                \
    X(F16, "f16", 1, 2, 1, 1, "F16")                \
    X(BF16, "bf16", 1, 2, 30, 30, "BF16")           \
    X(F64, "f64", 1, 8, 28, 3, "F64")               \
    X(I8, "i8", 1, 1, 24, 6, "I8")                  \
    X(I16, "i16", 1, 2, 25, 147, "I16")             \
    X(I32, "i32", 1, 4, 26, 4, "I32")               \
    X(I64, "i64", 1, 8, 27, 5, "I64")               \
    X(U8, "u8", 1, 1, -1, 7, "U8")                  \
    X(U16, "u16", 1, 2, -1, 148, "U16")             \
    X(U32, "u32", 1, 4, -1, 149, "U32")             \
    X(U64, "u64", 1, 8, -1, 150, "U64")             \
    X(BOOL, "bool", 1, 1, -1, 151, "BOOL")          \
    X(C64, "c64", 1, 8, -1, 152, "C64")             \
    X(F8_E4M3, "fp8", 1, 1, -1, 144, "F8_E4M3")     \
    X(F8_E5M2, "f8_e5m2", 1, 1, -1, 145, "F8_E5M2") \
    X(E8M0, "e8m0", 1, 1, -1, 146, "F8_E8M0")       \
    X(F4, "f4", 2, 1, -1, 153, "F4")                \
    X(F6_E2M3, "f6_e2m3", 4, 3, -1, 154, "F6_E2M3") \
    X(F6_E3M2, "f6_e3m2", 4, 3, -1, 155, "F6_E3M2") \
    X(Q4_0, "q4_0", 32, 18, 2, 194, NULL)           \
    X(Q4_1, "q4_1", 32, 20, 3, 195, NULL)           \
    X(Q5_0, "q5_0", 32, 22, 6, 198, NULL)           \
    X(Q5_1, "q5_1", 32, 24, 7, 199, NULL)           \
    X(Q8_0, "q8_0", 32, 34, 8, 200, NULL)           \
    X(Q8_1, "q8_1", 32, 36, 9, 201, NULL)           \
    X(Q2_K, "q2_k", 256, 84, 10, 202, NULL)         \
    X(Q3_K, "q3_k", 256, 110, 11, 203, NULL)        \
    X(Q4_K, "q4_k", 256, 144, 12, 12, NULL)         \
    X(Q5_K, "q5_k", 256, 176, 13, 205, NULL)        \
    X(Q6_K, "q6_k", 256, 210, 14, 14, NULL)         \
    X(Q8_K, "q8_k", 256, 292, 15, 207, NULL)        \
    X(IQ2_XXS, "iq2_xxs", 256, 66, 16, 208, NULL)   \
    X(IQ2_XS, "iq2_xs", 256, 74, 17, 209, NULL)     \
    X(IQ3_XXS, "iq3_xxs", 256, 98, 18, 210, NULL)   \
    X(IQ1_S, "iq1_s", 256, 50, 19, 211, NULL)       \
    X(IQ4_NL, "iq4_nl", 32, 18, 20, 212, NULL)      \
    X(IQ3_S, "iq3_s", 256, 110, 21, 213, NULL)      \
    X(IQ2_S, "iq2_s", 256, 82, 22, 214, NULL)       \
    X(IQ4_XS, "iq4_xs", 256, 136, 23, 215, NULL)    \
    X(IQ1_M, "iq1_m", 256, 56, 29, 221, NULL)       \
    X(TQ1_0, "tq1_0", 256, 54, 34, 226, NULL)       \
    X(TQ2_0, "tq2_0", 256, 66, 35, 227, NULL)       \
    X(MXFP4, "mxfp4", 32, 17, 39, 231, NULL)        \
    X(NVFP4, "nvfp4", 64, 36, 40, 232, NULL)        \
    X(Q1_0, "q1_0", 128, 18, 41, 233, NULL)         \
    X(Q2_0, "q2_0", 64, 18, 42, 234, NULL)          \
    X(APR_Q4, "apr_q4", 32, 18, -1, 128, NULL)      \
    X(APR_Q8, "apr_q8", 1, 1, -1, 129, NULL)

typedef enum {
#define X(id, name, elems, bytes, ggml, apr, st) APR_##id,
    APR_DTYPE_LIST(X)
#undef X
        APR_DTYPE_COUNT
} apr_dtype;

typedef struct apr_dtype_facts {
    const char *name;
    int elems_per_block;
    int bytes_per_block;
    int ggml_id; /* -1: not a ggml type */
    int apr_id;
    const char *safetensors_name; /* NULL: safetensors has no such type */
} apr_dtype_facts;

extern const apr_dtype_facts apr_dtypes[APR_DTYPE_COUNT];

/* Lookups answer APR_DTYPE_COUNT when there is no such type. Names are matched without regard to case. */
apr_dtype apr_dtype_by_name(const char *name);
apr_dtype apr_dtype_by_ggml_id(uint32_t id);
apr_dtype apr_dtype_by_apr_id(uint32_t id);
apr_dtype apr_dtype_by_safetensors_name(const char *name);

/* Why a GGUF type id that is not in the list is refused: removed from ggml, of ik_llama.cpp, or unknown. Never NULL. */
const char *apr_ggml_id_story(uint32_t id);

/* Bytes of one row of n_elems, or -1 when n_elems is no whole number of blocks (or the size overflows). For the flat
 * types this is the size of a tensor with n_elems elements. */
int64_t apr_row_bytes(apr_dtype dtype, int64_t n_elems);

/* True for f32, f16, bf16, f64: a plain array of floating-point numbers. */
bool apr_dtype_is_float(apr_dtype dtype);
/* True for block formats and FP8/FP6/FP4: numbers that came out of a quantizer. */
bool apr_dtype_is_quantized(apr_dtype dtype);
/* Bits per weight as stored, scales of the block included. */
double apr_dtype_bits(apr_dtype dtype);

#endif
