/* gguf_builder.h - small GGUF files for tests, every field of which can be made wrong. */
#ifndef APR_TESTS_GGUF_BUILDER_H
#define APR_TESTS_GGUF_BUILDER_H

#include "formats/number/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { BUILT_MAX_BYTES = 8192, BUILT_N_TENSORS = 2 };

/* All fields are uint64_t, so that a test's table can name them by offset. */
typedef struct built_tensor {
    uint64_t name; /* index into built_names */
    uint64_t rank, dims[4], type, offset;
} built_tensor;

typedef struct spec {
    uint64_t version, big_endian;
    uint64_t n_tensors, n_kv; /* as the header says; 0: what is there */
    uint64_t alignment, alignment_type;
    uint64_t padding;                              /* of the header, in bytes per block */
    uint64_t split_no, split_count, split_tensors; /* split_count 0: no such keys */
    uint64_t first, last;                          /* tensors [first, last) are in the file */
    built_tensor tensor[BUILT_N_TENSORS];
    uint64_t n_data;
} spec;

typedef struct built {
    uint8_t bytes[BUILT_MAX_BYTES];
    size_t n_bytes;
    size_t data_at; /* where the data begins */
    bool big_endian;
} built;

static const struct {
    const char *text;
    size_t n_bytes;
} built_names[] = {{"blk.0.attn_q.weight", 19}, {"output_norm.weight", 18}, {"", 0}, {"a\0b", 3}, {"\xff\xfe", 2}};

/* f32 [2, 4] at 0, f32 [5] at 32, data of 64 bytes. */
static inline spec good_spec(void)
{
    return (spec){.version = 3,
                  .alignment = 32,
                  .alignment_type = 4,
                  .padding = 32,
                  .last = BUILT_N_TENSORS,
                  .tensor = {{.name = 0, .rank = 2, .dims = {4, 2}}, {.name = 1, .rank = 1, .dims = {5}, .offset = 32}},
                  .n_data = 64};
}

static inline void put_number(built *b, uint64_t value, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++) b->bytes[b->n_bytes + (b->big_endian ? n_bytes - 1 - i : i)] = (uint8_t)(value >> 8 * i);
    b->n_bytes += n_bytes;
}

static inline void put_bytes(built *b, const char *text, size_t n)
{
    put_number(b, n, 8);
    memcpy(b->bytes + b->n_bytes, text, n);
    b->n_bytes += n;
}

static inline void put_key(built *b, const char *key, uint32_t type)
{
    put_bytes(b, key, strlen(key));
    put_number(b, type, 4);
}

/* One key of each kind that a model needs, and one of each shape. */
static inline uint64_t put_keys(built *b, const spec *s)
{
    uint64_t n = 8;

    put_key(b, "general.architecture", 8);
    put_bytes(b, "llama", 5);
    put_key(b, "general.alignment", (uint32_t)s->alignment_type);
    put_number(b, s->alignment, 4);
    put_key(b, "llama.block_count", 4);
    put_number(b, 1, 4);
    put_key(b, "some.bool", 7);
    put_number(b, 1, 1);
    put_key(b, "some.f64", 12);
    put_number(b, 0x3fd5555555555555, 8);
    put_key(b, "some.shorts", 9);
    put_number(b, 3, 4);
    put_number(b, 2, 8);
    put_number(b, 0xfffe, 2);
    put_number(b, 7, 2);
    put_key(b, "some.bools", 9);
    put_number(b, 7, 4);
    put_number(b, 1, 8);
    put_number(b, 1, 1);
    put_key(b, "some.strings", 9);
    put_number(b, 8, 4);
    put_number(b, 2, 8);
    put_bytes(b, "one", 3);
    put_bytes(b, "", 0);
    if (s->split_count == 0) return n;
    put_key(b, "split.no", 2);
    put_number(b, s->split_no, 2);
    put_key(b, "split.count", 2);
    put_number(b, s->split_count, 2);
    put_key(b, "split.tensors.count", 5);
    put_number(b, s->split_tensors, 4);
    return n + 3;
}

/* Numbers that differ in each byte, in the file's order, at the tensor's offset. */
static inline void fill_tensor(built *b, const built_tensor *t)
{
    const apr_dtype dtype = apr_dtype_by_ggml_id((uint32_t)t->type);
    const size_t n_each = dtype < APR_DTYPE_COUNT && apr_dtypes[dtype].elems_per_block == 1 ? (size_t)apr_dtypes[dtype].bytes_per_block : 1;
    const size_t end = b->n_bytes;
    uint64_t value = 0x0102030405060708;

    if (t->offset >= end - b->data_at) return;
    b->n_bytes = b->data_at + (size_t)t->offset;
    for (uint64_t n = t->rank == 0 ? 1 : t->dims[0] * (t->rank > 1 ? t->dims[1] : 1); n > 0 && end - b->n_bytes >= n_each;
         n--, value += 0x1010101)
        put_number(b, value, n_each);
    b->n_bytes = end;
}

static inline built build(const spec *s)
{
    built b = {.big_endian = s->big_endian != 0};

    memcpy(b.bytes, "GGUF", 4);
    b.n_bytes = 4;
    put_number(&b, s->version, 4);
    put_number(&b, s->n_tensors != 0 ? s->n_tensors : s->last - s->first, 8);
    const size_t n_kv_at = b.n_bytes;
    put_number(&b, 0, 8);
    const uint64_t n_kv = put_keys(&b, s);
    const size_t keys_end = b.n_bytes;
    b.n_bytes = n_kv_at;
    put_number(&b, s->n_kv != 0 ? s->n_kv : n_kv, 8);
    b.n_bytes = keys_end;
    for (uint64_t i = s->first; i < s->last; i++) {
        const built_tensor *const t = &s->tensor[i];
        put_bytes(&b, built_names[t->name].text, built_names[t->name].n_bytes);
        put_number(&b, t->rank, 4);
        for (uint64_t d = 0; d < t->rank && d < 4; d++) put_number(&b, t->dims[d], 8);
        put_number(&b, t->type, 4);
        put_number(&b, t->offset, 8);
    }
    b.n_bytes = (b.n_bytes + s->padding - 1) / s->padding * s->padding;
    b.data_at = b.n_bytes;
    b.n_bytes += (size_t)s->n_data;
    for (uint64_t i = s->first; i < s->last; i++) fill_tensor(&b, &s->tensor[i]);
    return b;
}

#endif
