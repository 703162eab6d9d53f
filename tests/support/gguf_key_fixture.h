/* gguf_key_fixture.h - metadata of a GGUF, set key by key, and what the readers make of it. */
#ifndef APR_TESTS_GGUF_KEY_FIXTURE_H
#define APR_TESTS_GGUF_KEY_FIXTURE_H

#include "formats/gguf/gguf.h"
#include "formats/shape/gguf_hparams.h"
#include "formats/vocab/gguf_vocab.h"
#include "tests/support/kv_fixture.h"

#define S(text)                \
    {                          \
        text, sizeof(text) - 1 \
    }

static inline void set_u32(fixture *f, const char *key, uint32_t value)
{
    assert_int_equal(apr_kv_set_int(&f->kv, key, APR_KV_U32, value, &f->err), APR_OK);
}
static inline void set_f32(fixture *f, const char *key, float value)
{
    assert_int_equal(apr_kv_set_f32(&f->kv, key, value, &f->err), APR_OK);
}
static inline void set_text(fixture *f, const char *key, const char *text)
{
    assert_int_equal(apr_kv_set_string(&f->kv, key, apr_str_of(text), &f->err), APR_OK);
}
static inline void set_numbers(fixture *f, const char *key, apr_kv_type type, size_t n, const void *numbers)
{
    const apr_kv item = {.key = apr_str_of(key), .type = APR_KV_ARRAY, .elem_type = type, .n_elems = n, .value.numbers = numbers};
    assert_int_equal(apr_kv_set(&f->kv, &item, &f->err), APR_OK);
}
static inline void set_strings(fixture *f, const char *key, size_t n, const apr_str *strings)
{
    const apr_kv item = {.key = apr_str_of(key), .type = APR_KV_ARRAY, .elem_type = APR_KV_STRING, .n_elems = n, .value.strings = strings};
    assert_int_equal(apr_kv_set(&f->kv, &item, &f->err), APR_OK);
}

static inline apr_status read_hparams(fixture *f) { return apr_gguf_hparams(&f->kv, &f->h, &f->arena, "keys.gguf", &f->err); }
static inline apr_status read_vocab(fixture *f) { return apr_gguf_vocab(&f->kv, &f->v, &f->arena, "keys.gguf", &f->err); }

#endif
