/* apr_fixture.h - a small model with everything an APR file can carry, and ways to write it and to have its bytes. */
#ifndef TESTS_APR_FIXTURE_H
#define TESTS_APR_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "formats/apr/apr.h"
#include "formats/base/bytes.h"
#include "formats/base/crc32.h"
#include "formats/files/map.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

static inline apr_tensor tensor_of(const char *name, apr_dtype dtype, int rank, int64_t d0, int64_t d1)
{
    apr_tensor t = {.name = name, .dtype = dtype, .rank = rank, .dims = {d0, d1}};
    assert_int_equal(apr_tensor_size(&t, "fixture", NULL), APR_OK);
    return t;
}

static inline const uint8_t *noise(apr_arena *arena, size_t n_bytes)
{
    uint8_t *const bytes = apr_arena_alloc(arena, n_bytes + 1);
    uint32_t x = 2463534242u;
    assert_non_null(bytes);
    for (size_t i = 0; i < n_bytes; i++) {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        bytes[i] = (uint8_t)x;
    }
    return bytes;
}

static inline void add_tensors(apr_model *m)
{
    const apr_tensor tensors[] = {
        tensor_of("model.embed_tokens.weight", APR_F16, 2, 7, 32),
        tensor_of("z.empty", APR_F32, 2, 0, 8),
        tensor_of("model.layers.0.self_attn.q_proj.weight", APR_Q4_K, 2, 8, 256),
        tensor_of("a.scalar", APR_F32, 0, 0, 0),
        tensor_of("model.layers.0.mlp.up_proj.weight", APR_F8_E4M3, 2, 5, 6),
        tensor_of("model.layers.0.mlp.up_proj.weight_scale_inv", APR_F32, 2, 3, 2),
        tensor_of("model.layers.0.self_attn.q_proj.bias", APR_BF16, 1, 8, 0),
        tensor_of("odd", APR_Q8_0, 2, 3, 32),
        tensor_of("last.empty", APR_I8, 1, 0, 0),
    };

    m->n_tensors = COUNT(tensors);
    m->tensors = apr_arena_array(&m->arena, COUNT(tensors), sizeof *m->tensors);
    assert_non_null(m->tensors);
    memcpy(m->tensors, tensors, sizeof tensors);
    for (size_t i = 0; i < m->n_tensors; i++) m->tensors[i].data = noise(&m->arena, (size_t)m->tensors[i].n_bytes);
    m->tensors[2].origin_name = "blk.0.attn_q.weight";
    m->tensors[2].origin_chain = (apr_chain){1, {{APR_STEP_PAIRS_TO_HALVES, {2}}}};
    m->tensors[6].origin_chain = (apr_chain){1, {{APR_STEP_HALVES_TO_PAIRS, {4}}}};
    m->tensors[4].scale = &m->tensors[5];
    m->tensors[4].scale_rows = 2;
    m->tensors[4].scale_columns = 3;
}

static inline void add_hparams(apr_hparams *h)
{
    static const uint8_t kinds[] = {APR_LAYER_SLIDING, APR_LAYER_FULL, APR_LAYER_LINEAR},
                         ffn[] = {APR_FFN_DENSE, APR_FFN_NONE, APR_FFN_EXPERTS}, no_rope[] = {0, 0, 1};

    *h = (apr_hparams){.architecture = "gpt_oss", .hf_class = "GptOssForCausalLM", .torch_dtype = "bfloat16", .layer_kinds = kinds};
    for (size_t i = 0; i < apr_n_hparam_fields; i++) {
        if (apr_hparam_fields[i].is_int) *apr_hparam_int(h, &apr_hparam_fields[i]) = (int64_t)(1000 + i);
        else *apr_hparam_real(h, &apr_hparam_fields[i]) = 1.0 / (double)(3 + i);
    }
    h->num_layers = 3;
    h->num_heads = 4;
    h->num_kv_heads = 2;
    h->head_dim = 64;
    h->rotary_dim = 32;
    h->vocab_size = 7;
    h->num_global_kv_heads = 1;
    h->global_head_dim = 96;
    h->num_experts = 2048;
    h->num_expert_groups = h->num_expert_groups_used = 4;
    h->linear_num_key_heads = h->linear_num_value_heads;
    h->num_kv_shared_layers = 2;
    h->rope = (apr_rope_scaling){.kind = APR_ROPE_YARN,
                                 .factor = 8.1,
                                 .original_context = 128,
                                 .beta_fast = 32.0,
                                 .beta_slow = 1.0,
                                 .attention_factor = 0.7,
                                 .mscale = 0.9,
                                 .mscale_all_dim = 0.8,
                                 .no_truncate = true};
    h->rope_local = (apr_rope_scaling){.kind = APR_ROPE_LINEAR, .factor = 2.5};
    h->ffn_kinds = ffn;
    h->no_rope = no_rope;
    for (size_t i = 0; i < apr_n_hflag_fields; i++) *apr_hflag(h, &apr_hflag_fields[i]) = true;
}

static inline void add_vocab(apr_vocab *v)
{
    static const apr_str tokens[] = {{"a\xc4\xa0", 3}, {"\xff\xfe", 2},        {"n\0l", 3}, {"", 0}, {"\"\\\n\x01", 4},
                                     {"sp ace", 6},    {"\xf0\x9f\x98\x80", 4}};
    static const apr_str merges[] = {{"a", 1}, {"b", 1}, {"sp ", 3}, {"ace", 3}, {"\xff", 1}, {"c", 1}, {"\xc4\xa0", 2}, {"t", 1}};
    static const uint8_t types[] = {1, 6, 3, 4, 5, 2, 1},
                         added[] = {0, 0, APR_ADDED | APR_ADDED_LSTRIP, 0, 0, APR_ADDED | APR_ADDED_NORMALIZED, 0};
    static const float scores[] = {-1.5f, 0.1f, -3.4028e30f, 0.0f, 1e-20f, -7.0f, 3.0f};

    *v = (apr_vocab){.kind = APR_VOCAB_SPM, .n_tokens = COUNT(tokens), .tokens = tokens, .types = types, .added = added, .scores = scores};
    v->n_merges = COUNT(merges) / 2;
    v->merges = merges;
    v->pre = "qwen2";
    v->pattern = "\\p{L}+|\\s+(?!\\S)|[^\r\n]\"";
    static const apr_split splits[] = {{.pattern = "a b", .behavior = APR_SPLIT_REMOVED, .invert = true},
                                       {.pattern = "\xe2\x9c\x93\\n", .behavior = APR_SPLIT_CONTIGUOUS, .letters = true}};
    v->splits = splits;
    v->n_splits = COUNT(splits);
    v->prefix_unless_space = true;
    v->nfc = v->byte_fallback = v->escape_spaces = v->add_bos = true;
    v->bos_id = 0;
    v->eos_id = 6;
    v->pad_id = -1;
    v->unk_id = 3;
    v->stop_ids[0] = 6;
    v->stop_ids[1] = 2;
    v->n_stop_ids = 2;
    v->chat_template = "{% for m in messages %}\n{{ m['content'] }}\t{% endfor %} \xe2\x9c\x93";
}

static inline void add_kv(apr_model *m)
{
    static const apr_str strings[] = {{"x\0y", 3}, {"\xff", 1}, {"", 0}};
    static const uint8_t numbers[] = {1, 0, 0, 0, 255, 255, 255, 255};

    m->kv.arena = &m->arena;
    assert_int_equal(apr_kv_set_string(&m->kv, "general.name", apr_str_of("Fixture \xe2\x9c\x93"), NULL), APR_OK);
    assert_int_equal(apr_kv_set_f32(&m->kv, "f32", 0.1f, NULL), APR_OK);
    assert_int_equal(apr_kv_set_int(&m->kv, "u16", APR_KV_U16, 65535, NULL), APR_OK);
    assert_int_equal(apr_kv_set_bool(&m->kv, "bool", true, NULL), APR_OK);
    const apr_kv list = {
        .key = apr_str_of("strings"), .type = APR_KV_ARRAY, .elem_type = APR_KV_STRING, .n_elems = 3, .value.strings = strings};
    const apr_kv array = {.key = apr_str_of("i32s"), .type = APR_KV_ARRAY, .elem_type = APR_KV_I32, .n_elems = 2, .value.numbers = numbers};
    assert_int_equal(apr_kv_set(&m->kv, &list, NULL), APR_OK);
    assert_int_equal(apr_kv_set(&m->kv, &array, NULL), APR_OK);
}

static inline void add_files(apr_model *m)
{
    static const char config[] = "{\"model_type\": \"gpt_oss\",\r\n \"x\": \"\\u00e9\x7f\"}\n";
    enum { BIG = 100000 };
    uint8_t *const big = apr_arena_alloc(&m->arena, BIG);
    apr_attachment *const files = apr_arena_array(&m->arena, 4, sizeof *files);

    assert_non_null(big);
    assert_non_null(files);
    for (size_t i = 0; i < BIG; i++) big[i] = (uint8_t) "tokenizer "[i * i % 10];
    files[0] = (apr_attachment){"config.json", (const uint8_t *)config, sizeof config - 1};
    files[1] = (apr_attachment){"tokenizer.json", big, BIG};
    files[2] = (apr_attachment){"bytes.bin", noise(&m->arena, 300), 300};
    files[3] = (apr_attachment){"empty.txt", NULL, 0};
    m->attachments = files;
    m->n_attachments = 4;
}

/* Everything at once; close with apr_model_close. */
static inline void make_full_model(apr_model *m)
{
    static const char *const order[] = {"odd", "a.scalar", "last.empty", "model.embed_tokens.weight", "z.empty"};

    *m = (apr_model){.path = "fixture", .origin = {.format = APR_FORMAT_GGUF, .gguf_version = 2, .requantized = true}};
    m->origin.order = order;
    m->origin.n_order = COUNT(order);
    add_tensors(m);
    add_hparams(&m->hparams);
    add_vocab(&m->vocab);
    add_kv(m);
    add_files(m);
}

/* The vector of aprender's golden_fixtures.rs: 516 bytes in its writer. */
static inline void make_golden_model(apr_model *m)
{
    static const float bias[] = {0.125f}, weights[] = {1.0f, 2.0f, 0.5f, -0.5f, 4.0f, -2.0f, 0.25f, 8.0f};
    static const char *const keys[][2] = {
        {"model_type", "linear_regression"}, {"name", "golden-v2"}, {"version", "0.0.0-golden"}, {"created_at", "1700000000"}};

    *m = (apr_model){.path = "golden"};
    m->kv.arena = &m->arena;
    for (size_t i = 0; i < COUNT(keys); i++) assert_int_equal(apr_kv_set_string(&m->kv, keys[i][0], apr_str_of(keys[i][1]), NULL), APR_OK);
    assert_int_equal(apr_kv_set_int(&m->kv, "param_count", APR_KV_I64, 8, NULL), APR_OK);
    m->n_tensors = 2;
    m->tensors = apr_arena_array(&m->arena, 2, sizeof *m->tensors);
    assert_non_null(m->tensors);
    m->tensors[0] = tensor_of("bias", APR_F32, 1, 1, 0);
    m->tensors[1] = tensor_of("weights", APR_F32, 1, 8, 0);
    m->tensors[0].data = (const uint8_t *)bias;
    m->tensors[1].data = (const uint8_t *)weights;
}

/* Writes all tensors in pieces of `n_piece` bytes, as one stream. */
static inline apr_status write_model(const apr_model *m, const char *path, const apr_sink_options *options, size_t n_piece, apr_error *err)
{
    apr_sink *sink;
    APR_TRY(apr_sink_open(&sink, APR_FORMAT_APR, path, m, options, err));
    for (size_t i = 0; i < m->n_tensors; i++) {
        for (uint64_t at = 0; at < m->tensors[i].n_bytes; at += n_piece) {
            const uint64_t left = m->tensors[i].n_bytes - at;
            const apr_status status = apr_sink_put(sink, m->tensors[i].data + at, left < n_piece ? (size_t)left : n_piece, err);
            if (status == APR_OK) continue;
            apr_sink_abandon(sink);
            return status;
        }
    }
    return apr_sink_finish(sink, err);
}

/* A path in a fresh folder; free it with drop_path. */
static inline char *make_path(void)
{
    char folder[] = "/tmp/aprkit-test-XXXXXX";
    char *const path = malloc(sizeof folder + 16);
    assert_non_null(mkdtemp(folder));
    assert_non_null(path);
    snprintf(path, sizeof folder + 16, "%s/model.apr", folder);
    return path;
}

static inline void drop_path(char *path)
{
    unlink(path);
    *strrchr(path, '/') = '\0';
    assert_int_equal(rmdir(path), 0); /* fails where a part file was left */
    free(path);
}

/* The file's bytes, malloc'ed to their exact size: ASan guards the end. */
static inline uint8_t *read_bytes(const char *path, size_t *n_bytes)
{
    apr_map map;
    assert_int_equal(apr_map_open(&map, path, NULL), APR_OK);
    uint8_t *const bytes = malloc(map.n_bytes);
    assert_non_null(bytes);
    memcpy(bytes, map.data, map.n_bytes);
    *n_bytes = map.n_bytes;
    apr_map_close(&map);
    return bytes;
}

static inline uint8_t *bytes_of(const apr_model *m, size_t *n_bytes)
{
    apr_error err = {0};
    char *const path = make_path();
    if (write_model(m, path, NULL, 1000, &err) != APR_OK) fail_msg("%s", err.text);
    uint8_t *const bytes = read_bytes(path, n_bytes);
    drop_path(path);
    return bytes;
}

static inline void fix_header_crc(uint8_t *bytes) { apr_store_le32(bytes + 40, apr_crc32(apr_crc32(0, bytes, 40), bytes + 44, 20)); }

#endif
