/* formats/apr/apr.h: what is written is read back, byte for byte, and means the same to others. */
#include "tests/support/apr_fixture.h"

/* --- equality --- */

static void assert_same_text(const char *a, const char *b)
{
    if (a == NULL || b == NULL) assert_ptr_equal(a, b);
    else assert_string_equal(a, b);
}

static void assert_same_str(apr_str a, apr_str b)
{
    assert_int_equal(a.n_bytes, b.n_bytes);
    if (a.n_bytes > 0) assert_memory_equal(a.text, b.text, a.n_bytes);
}

static void assert_same_tensors(const apr_model *a, const apr_model *b)
{
    assert_int_equal(a->n_tensors, b->n_tensors);
    for (size_t i = 0; i < a->n_tensors; i++) {
        const apr_tensor *const s = &a->tensors[i], *const t = &b->tensors[i];
        assert_string_equal(s->name, t->name);
        assert_int_equal(s->dtype, t->dtype);
        assert_int_equal(s->rank, t->rank);
        assert_memory_equal(s->dims, t->dims, (size_t)s->rank * sizeof *s->dims);
        assert_int_equal(s->n_bytes, t->n_bytes);
        if (s->n_bytes > 0) assert_memory_equal(s->data, t->data, s->n_bytes);
        assert_same_text(s->origin_name, t->origin_name);
        assert_true(apr_chain_equal(&s->origin_chain, &t->origin_chain));
        assert_same_text(s->scale != NULL ? s->scale->name : NULL, t->scale != NULL ? t->scale->name : NULL);
        assert_int_equal(s->scale_rows, t->scale_rows);
        assert_int_equal(s->scale_columns, t->scale_columns);
        assert_ptr_equal(apr_model_find(b, s->name), t);
    }
}

static void assert_same_hparams(apr_hparams a, apr_hparams b)
{
    assert_same_text(a.architecture, b.architecture);
    assert_same_text(a.hf_class, b.hf_class);
    assert_same_text(a.torch_dtype, b.torch_dtype);
    for (size_t i = 0; i < apr_n_hparam_fields; i++) {
        const apr_hparam_field *const f = &apr_hparam_fields[i];
        if (f->is_int) assert_int_equal(*apr_hparam_int(&a, f), *apr_hparam_int(&b, f));
        else assert_true(*apr_hparam_real(&a, f) == *apr_hparam_real(&b, f));
    }
    assert_int_equal(a.rope.kind, b.rope.kind);
    assert_true(a.rope.factor == b.rope.factor && a.rope.low_freq_factor == b.rope.low_freq_factor &&
                a.rope.high_freq_factor == b.rope.high_freq_factor);
    assert_true(a.rope.beta_fast == b.rope.beta_fast && a.rope.beta_slow == b.rope.beta_slow &&
                a.rope.attention_factor == b.rope.attention_factor);
    assert_int_equal(a.rope.original_context, b.rope.original_context);
    assert_int_equal(a.rope.no_truncate, b.rope.no_truncate);
    assert_int_equal(a.tie_word_embeddings, b.tie_word_embeddings);
    assert_int_equal(a.attention_bias, b.attention_bias);
    assert_int_equal(a.norm_topk_prob, b.norm_topk_prob);
    assert_int_equal(a.layer_kinds != NULL, b.layer_kinds != NULL);
    if (a.layer_kinds != NULL) assert_memory_equal(a.layer_kinds, b.layer_kinds, (size_t)a.num_layers);
}

static void assert_same_vocab(const apr_vocab *a, const apr_vocab *b)
{
    assert_int_equal(a->kind, b->kind);
    assert_int_equal(a->n_tokens, b->n_tokens);
    for (size_t i = 0; i < a->n_tokens; i++) assert_same_str(a->tokens[i], b->tokens[i]);
    assert_memory_equal(a->types, b->types, a->n_tokens);
    assert_int_equal(a->added != NULL, b->added != NULL);
    if (a->added != NULL) assert_memory_equal(a->added, b->added, a->n_tokens);
    assert_int_equal(a->scores != NULL, b->scores != NULL);
    if (a->scores != NULL) assert_memory_equal(a->scores, b->scores, a->n_tokens * sizeof *a->scores);
    assert_int_equal(a->n_merges, b->n_merges);
    for (size_t i = 0; i < 2 * a->n_merges; i++) assert_same_str(a->merges[i], b->merges[i]);
    assert_same_text(a->pre, b->pre);
    assert_same_text(a->pattern, b->pattern);
    assert_int_equal(a->prefix_unless_space, b->prefix_unless_space);
    assert_int_equal(a->n_splits, b->n_splits);
    for (size_t i = 0; i < a->n_splits; i++) {
        assert_same_text(a->splits[i].pattern, b->splits[i].pattern);
        assert_int_equal(a->splits[i].behavior, b->splits[i].behavior);
        assert_true(a->splits[i].invert == b->splits[i].invert && a->splits[i].letters == b->splits[i].letters);
    }
    assert_same_text(a->chat_template, b->chat_template);
    const bool flags_a[] = {a->nfc, a->ignore_merges, a->byte_fallback, a->add_space_prefix, a->escape_spaces, a->add_bos, a->add_eos};
    const bool flags_b[] = {b->nfc, b->ignore_merges, b->byte_fallback, b->add_space_prefix, b->escape_spaces, b->add_bos, b->add_eos};
    assert_memory_equal(flags_a, flags_b, sizeof flags_a);
    const int32_t ids_a[] = {a->bos_id, a->eos_id, a->pad_id, a->unk_id}, ids_b[] = {b->bos_id, b->eos_id, b->pad_id, b->unk_id};
    assert_memory_equal(ids_a, ids_b, sizeof ids_a);
    assert_int_equal(a->n_stop_ids, b->n_stop_ids);
    assert_memory_equal(a->stop_ids, b->stop_ids, a->n_stop_ids * sizeof *a->stop_ids);
}

static void assert_same_kv(const apr_kv_list *a, const apr_kv_list *b)
{
    const size_t n = (size_t)apr_kv_bytes(a);
    uint8_t *const bytes_a = malloc(n + 1), *const bytes_b = malloc(n + 1);

    assert_int_equal(a->n_items, b->n_items);
    assert_int_equal(apr_kv_bytes(b), n);
    apr_kv_write(a, bytes_a);
    apr_kv_write(b, bytes_b);
    assert_memory_equal(bytes_a, bytes_b, n);
    free(bytes_a);
    free(bytes_b);
}

static void assert_same_files(const apr_model *a, const apr_model *b)
{
    assert_int_equal(a->n_attachments, b->n_attachments);
    for (size_t i = 0; i < a->n_attachments; i++) {
        assert_string_equal(a->attachments[i].name, b->attachments[i].name);
        assert_int_equal(a->attachments[i].n_bytes, b->attachments[i].n_bytes);
        if (a->attachments[i].n_bytes > 0) assert_memory_equal(a->attachments[i].data, b->attachments[i].data, a->attachments[i].n_bytes);
    }
}

/* --- round trips --- */

static void everything_in_a_model_comes_back(void **state)
{
    (void)state;
    static const size_t pieces[] = {1, 63, 100000};
    apr_model m, back;
    apr_error err = {0};
    char *const path = make_path();

    make_full_model(&m);
    for (size_t i = 0; i < COUNT(pieces); i++) {
        if (write_model(&m, path, &(apr_sink_options){.overwrite = true}, pieces[i], &err) != APR_OK) fail_msg("%s", err.text);
        if (apr_apr_open(&back, path, &err) != APR_OK) fail_msg("%s", err.text);
        assert_int_equal(back.format, APR_FORMAT_APR);
        assert_int_equal(back.naming, APR_NAMING_HF);
        assert_int_equal(back.origin.format, APR_FORMAT_GGUF);
        assert_int_equal(back.origin.gguf_version, 2);
        assert_true(back.origin.requantized);
        assert_int_equal(back.origin.n_order, m.origin.n_order);
        for (size_t k = 0; k < m.origin.n_order; k++) assert_string_equal(back.origin.order[k], m.origin.order[k]);
        assert_same_tensors(&m, &back);
        assert_same_hparams(m.hparams, back.hparams);
        assert_same_vocab(&m.vocab, &back.vocab);
        assert_same_kv(&m.kv, &back.kv);
        assert_same_files(&m, &back);
        assert_int_equal(apr_apr_check_footer(&back), APR_FOOTER_GOOD);
        for (size_t k = 0; k < m.n_tensors; k++) {
            uint32_t crc = 1;
            assert_true(apr_apr_stated_crc(&back, m.tensors[k].name, &crc));
            assert_int_equal(crc, apr_crc32(0, m.tensors[k].data, m.tensors[k].n_bytes));
        }
        apr_model_close(&back);
    }
    drop_path(path);
    apr_model_close(&m);
}

static void a_file_written_again_from_what_was_read_is_the_same(void **state)
{
    (void)state;
    apr_model m, back;
    apr_error err = {0};
    size_t n_first, n_second;

    make_full_model(&m);
    uint8_t *const first = bytes_of(&m, &n_first);
    if (apr_apr_read(&back, first, n_first, "first", &err) != APR_OK) fail_msg("%s", err.text);
    uint8_t *const second = bytes_of(&back, &n_second);
    assert_int_equal(n_first, n_second);
    assert_memory_equal(first, second, n_first);
    apr_model_close(&back);
    apr_model_close(&m);
    free(first);
    free(second);
}

static void a_model_in_ggml_naming_without_an_origin_keeps_its_keys(void **state)
{
    (void)state;
    apr_model m, back;
    apr_error err = {0};
    int64_t integer;
    double real;
    size_t n_bytes;

    make_golden_model(&m);
    m.naming = APR_NAMING_GGML;
    m.hparams.architecture = "llama";
    assert_int_equal(apr_kv_set_int(&m.kv, "epochs", APR_KV_I64, 12, NULL), APR_OK);
    const double loss = 0.25;
    apr_kv item = {.key = apr_str_of("loss"), .type = APR_KV_F64};
    memcpy(&item.value.bits, &loss, sizeof loss);
    assert_int_equal(apr_kv_set(&m.kv, &item, NULL), APR_OK);
    uint8_t *const bytes = bytes_of(&m, &n_bytes);
    if (apr_apr_read(&back, bytes, n_bytes, "x", &err) != APR_OK) fail_msg("%s", err.text);
    assert_int_equal(back.naming, APR_NAMING_GGML);
    assert_int_equal(back.origin.format, APR_FORMAT_NONE);
    assert_true(apr_kv_get_int(&back.kv, "epochs", &integer) && integer == 12);
    assert_true(apr_kv_get_real(&back.kv, "loss", &real) && real == loss);
    assert_int_equal(back.vocab.kind, APR_VOCAB_NONE);
    assert_int_equal(back.vocab.bos_id, -1);
    apr_model_close(&back);
    apr_model_close(&m);
    free(bytes);
}

static void the_bundled_model_comes_back_from_both_formats(void **state)
{
    (void)state;
    static const char *const paths[] = {"tests/data/tiny-qwen2", "tests/data/tiny-qwen2/tiny-qwen2-Q4_K_M.gguf"};
    apr_model m, back;
    apr_error err = {0};
    size_t n_bytes;

    for (size_t i = 0; i < COUNT(paths); i++) {
        if (apr_model_open(&m, paths[i], &err) != APR_OK) fail_msg("%s", err.text);
        uint8_t *const bytes = bytes_of(&m, &n_bytes);
        if (apr_apr_read(&back, bytes, n_bytes, "bundled", &err) != APR_OK) fail_msg("%s", err.text);
        assert_int_equal(back.naming, m.naming);
        assert_int_equal(back.origin.format, m.format);
        assert_int_equal(back.vocab.n_tokens, 2048);
        assert_same_tensors(&m, &back);
        assert_same_hparams(m.hparams, back.hparams);
        assert_same_vocab(&m.vocab, &back.vocab);
        assert_same_kv(&m.kv, &back.kv);
        assert_same_files(&m, &back);
        apr_model_close(&back);
        apr_model_close(&m);
        free(bytes);
    }
}

/* --- the vector of apr-format.md, 1.9 --- */

static const char golden_json[] =
    "{\"model_type\":\"linear_regression\",\"name\":\"golden-v2\",\"license\":null,\"data_source\":null,\"data_license\":null,"
    "\"version\":\"0.0.0-golden\",\"created_at\":\"1700000000\",\"total_size\":0,\"param_count\":8}";
static const uint8_t golden_header[] = {0x41, 0x50, 0x52, 0, 2, 0, 0, 4, 2, 0, 0,    0, 0x40, 0, 0, 0, 0, 0, 0,    0,    0xbd, 0,
                                        0,    0,    0,    1, 0, 0, 0, 0, 0, 0, 0x80, 1, 0,    0, 0, 0, 0, 0, 0x02, 0x8c, 0xc0, 0x3b};
static const uint8_t golden_index[] = {4, 0, 'b', 'i', 'a', 's',  0, 1, 1, 0, 0, 0,   0,   0,    0,   0,   0,   0,   0, 0, 0, 0, 0,
                                       0, 4, 0,   0,   0,   0,    0, 0, 0, 7, 0, 'w', 'e', 'i',  'g', 'h', 't', 's', 0, 1, 8, 0, 0,
                                       0, 0, 0,   0,   0,   0x40, 0, 0, 0, 0, 0, 0,   0,   0x20, 0,   0,   0,   0,   0, 0, 0};

static void the_golden_vector_is_written_exactly(void **state)
{
    (void)state;
    apr_model m;
    size_t n_bytes;

    make_golden_model(&m);
    uint8_t *const bytes = bytes_of(&m, &n_bytes);
    assert_int_equal(n_bytes, 516);
    assert_memory_equal(bytes, golden_header, sizeof golden_header);
    assert_memory_equal(bytes + 64, golden_json, 189);
    assert_memory_equal(bytes + 256, golden_index, sizeof golden_index);
    assert_memory_equal(bytes + 384, m.tensors[0].data, 4);
    assert_memory_equal(bytes + 448, m.tensors[1].data, 32);
    assert_int_equal(apr_load_le32(bytes + 512), 0x550f3f35);
    apr_model_close(&m);
    free(bytes);
}

static void the_golden_vector_is_read(void **state)
{
    (void)state;
    apr_model m, back;
    apr_error err = {0};
    apr_str text;
    int64_t n;
    uint32_t crc;
    size_t n_bytes, n_again;

    make_golden_model(&m);
    uint8_t *const bytes = bytes_of(&m, &n_bytes);
    if (apr_apr_read(&back, bytes, n_bytes, "golden", &err) != APR_OK) fail_msg("%s", err.text);
    assert_same_tensors(&m, &back);
    assert_true(apr_kv_get_string(&back.kv, "created_at", &text) && apr_str_is(text, "1700000000"));
    assert_true(apr_kv_get_int(&back.kv, "param_count", &n) && n == 8);
    assert_null(apr_kv_find(&back.kv, "license"));
    assert_false(apr_apr_stated_crc(&back, "bias", &crc));
    uint8_t *const again = bytes_of(&back, &n_again);
    assert_int_equal(n_again, n_bytes);
    assert_memory_equal(again, bytes, n_bytes);
    apr_model_close(&back);
    apr_model_close(&m);
    free(bytes);
    free(again);
}

/* --- files of others --- */

static void write_bytes(const char *path, const uint8_t *bytes, size_t n_bytes)
{
    FILE *const f = fopen(path, "wb");
    assert_true(f != NULL && fwrite(bytes, 1, n_bytes, f) == n_bytes && fclose(f) == 0);
}

/* As aprender or realizar leave them: no footer, no aprkit. Returns the bytes that were used. */
typedef struct foreign {
    uint8_t *bytes;
    size_t n_bytes;
} foreign;

typedef struct foreign_tensor {
    const char *name;
    uint8_t type_id, rank;
    uint64_t dims[3], n_bytes;
} foreign_tensor;

static foreign make_foreign(const char *json, const foreign_tensor *tensors, size_t n_tensors, uint16_t flags)
{
    const size_t n_json = strlen(json), index_at = 64 + (n_json + 63) / 64 * 64;
    size_t n_index = 0, n_data = 0;
    for (size_t i = 0; i < n_tensors; i++) {
        n_index += 20 + strlen(tensors[i].name) + 8u * tensors[i].rank;
        n_data += (tensors[i].n_bytes + 63) / 64 * 64;
    }
    const size_t data_at = index_at + (n_index + 63) / 64 * 64;
    foreign f = {calloc(1, data_at + n_data), data_at + n_data};
    uint8_t *p = f.bytes + index_at;
    uint64_t offset = 0;

    assert_non_null(f.bytes);
    memcpy(f.bytes, "APR\0\2\0", 6);
    apr_store_le16(f.bytes + 6, flags);
    apr_store_le32(f.bytes + 8, (uint32_t)n_tensors);
    apr_store_le64(f.bytes + 12, 64);
    apr_store_le32(f.bytes + 20, (uint32_t)n_json);
    apr_store_le64(f.bytes + 24, index_at);
    apr_store_le64(f.bytes + 32, data_at);
    fix_header_crc(f.bytes);
    memcpy(f.bytes + 64, json, n_json);
    for (size_t i = 0; i < n_tensors; i++) {
        const size_t n = strlen(tensors[i].name);
        apr_store_le16(p, (uint16_t)n);
        memcpy(p + 2, tensors[i].name, n);
        p += 2 + n;
        *p++ = tensors[i].type_id;
        *p++ = tensors[i].rank;
        for (int d = 0; d < tensors[i].rank; d++, p += 8) apr_store_le64(p, tensors[i].dims[d]);
        apr_store_le64(p, offset);
        apr_store_le64(p + 8, tensors[i].n_bytes);
        p += 16;
        offset += (tensors[i].n_bytes + 63) / 64 * 64;
    }
    return f;
}

static void a_foreign_file_with_aliases_nulls_and_no_footer_is_read(void **state)
{
    (void)state;
    static const char json[] =
        "{\"model_type\":\"Qwen2\",\"name\":null,\"architecture\":\"qwen2\",\"hidden_size\":null,\"hidden_dim\":32,\"n_layer\":2,\"num_"
        "heads\":4,"
        "\"n_kv_heads\":2,\"n_vocab\":3,\"ffn_dim\":48.0,\"n_ctx\":128,\"norm_eps\":1e-6,\"rope_theta\":10000,\"rope_type\":2,\"custom\":7,"
        "\"quantization\":null,\"tensor_shapes\":{\"a\":[1]},\"tokenizer.vocabulary\":[\"a\",\"b\",\"<|end|>\"],\"tokenizer.merges\":[\"a "
        "b\"],"
        "\"tokenizer.eos_token_id\":2,\"chat_template\":\"hi\"}";
    static const foreign_tensor tensors[] = {
        {"lm_head.weight", 0, 2, {3, 32}, 0},  {"model.embed_tokens.weight", 1, 2, {3, 32}, 192},
        {"q4_0", 2, 2, {3, 32}, 54},           {"q4_1", 3, 2, {3, 32}, 60},
        {"q4_1.or.f64", 3, 2, {3, 32}, 768},   {"q5_0", 6, 1, {32}, 22},
        {"q5_0.or.i8", 6, 1, {32}, 32},        {"q8_0", 8, 2, {3, 32}, 102},
        {"q8_0.or.apr_q4", 8, 2, {3, 30}, 54}, {"u.apr_q8", 9, 2, {3, 5}, 19},
        {"v.apr_q4", 128, 1, {33}, 36},
    };
    static const apr_dtype expected[] = {APR_F16, APR_Q4_0, APR_Q4_1,   APR_F64,    APR_Q5_0,
                                         APR_I8,  APR_Q8_0, APR_APR_Q4, APR_APR_Q8, APR_APR_Q4};
    apr_model m;
    apr_error err = {0};
    int64_t custom;

    const foreign f = make_foreign(json, tensors, COUNT(tensors), 0x0020);
    if (apr_apr_read(&m, f.bytes, f.n_bytes, "foreign", &err) != APR_OK) fail_msg("%s", err.text);
    assert_int_equal(m.n_tensors, COUNT(expected)); /* the head of no bytes is gone: it is tied */
    assert_true(m.hparams.tie_word_embeddings);
    for (size_t i = 0; i < COUNT(expected); i++) assert_int_equal(m.tensors[i].dtype, expected[i]);
    assert_int_equal(m.hparams.hidden_size, 32);
    assert_int_equal(m.hparams.num_layers, 2);
    assert_int_equal(m.hparams.num_kv_heads, 2);
    assert_int_equal(m.hparams.vocab_size, 3);
    assert_int_equal(m.hparams.intermediate_size, 48);
    assert_int_equal(m.hparams.max_position_embeddings, 128);
    assert_true(m.hparams.rms_norm_eps == 1e-6);
    assert_string_equal(m.hparams.architecture, "qwen2");
    assert_true(apr_kv_get_int(&m.kv, "custom", &custom) && custom == 7);
    assert_int_equal(m.origin.format, APR_FORMAT_NONE);
    assert_int_equal(m.vocab.kind, APR_VOCAB_BPE);
    assert_int_equal(m.vocab.n_tokens, 3);
    assert_int_equal(m.vocab.types[2], APR_TOKEN_CONTROL);
    assert_int_equal(m.vocab.eos_id, 2);
    assert_string_equal(m.vocab.pre, "qwen2");
    assert_string_equal(m.vocab.chat_template, "hi");
    apr_model_close(&m);
    free(f.bytes);
}

static void dims_in_ggufs_order_are_reversed(void **state)
{
    (void)state;
    static const char json[] =
        "{\"architecture\":\"llama\",\"hidden_size\":256,\"num_layers\":1,\"num_heads\":4,\"vocab_size\":3,\"num_experts\":5}";
    static const foreign_tensor tensors[] = {
        {"blk.0.ffn_up.weight", 12, 2, {256, 2}, 288},
        {"blk.0.ffn_up_exps.weight", 0, 3, {2, 3, 5}, 120},
        {"token_embd.weight", 1, 2, {256, 3}, 1536},
    };
    static const int64_t expected[][3] = {{2, 256}, {5, 3, 2}, {3, 256}};
    apr_model m;
    apr_error err = {0};

    const foreign f = make_foreign(json, tensors, COUNT(tensors), 0);
    if (apr_apr_read(&m, f.bytes, f.n_bytes, "foreign", &err) != APR_OK) fail_msg("%s", err.text);
    assert_int_equal(m.naming, APR_NAMING_GGML);
    for (size_t i = 0; i < COUNT(tensors); i++) assert_memory_equal(m.tensors[i].dims, expected[i], tensors[i].rank * sizeof **expected);
    apr_model_close(&m);
    free(f.bytes);
}

static void rows_padded_to_blocks_are_refused_by_name(void **state)
{
    (void)state;
    static const foreign_tensor tensors[] = {{"ragged.weight", 12, 2, {2, 300}, 2 * 2 * 144}};
    apr_model m;
    apr_error err = {0};

    const foreign f = make_foreign("{}", tensors, COUNT(tensors), 0);
    assert_int_equal(apr_apr_read(&m, f.bytes, f.n_bytes, "foreign", &err), APR_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "ragged.weight"));
    free(f.bytes);
}

/* aprender's serve: no checksum, nothing sorted or padded, no footer, names and types of ggml. */
static void what_serve_writes_is_read_and_reported(void **state)
{
    static const struct {
        uint8_t id;
        apr_dtype dtype;
    } types[] = {{8, APR_Q8_0},   {16, APR_IQ2_XXS}, {17, APR_IQ2_XS}, {18, APR_IQ3_XXS}, {19, APR_IQ1_S}, {20, APR_IQ4_NL},
                 {21, APR_IQ3_S}, {22, APR_IQ2_S},   {23, APR_IQ4_XS}, {29, APR_IQ1_M},   {34, APR_TQ1_0}, {35, APR_TQ2_0},
                 {39, APR_MXFP4}, {40, APR_NVFP4},   {41, APR_Q1_0},   {42, APR_Q2_0}};
    (void)state;
    for (size_t i = 0; i < COUNT(types); i++) {
        const uint64_t n = (uint64_t)apr_row_bytes(types[i].dtype, 256);
        const foreign_tensor tensors[] = {{"output_norm.weight", 0, 1, {3}, 12},
                                          {"blk.0.attn_q.weight", types[i].id, 2, {2, 256}, 2 * n},
                                          {"blk.0.attn_k.weight", types[i].id, 2, {1, 256}, n}};
        foreign f = make_foreign("{\"model_type\":\"transformer_lm\",\"context_length\":77}", tensors, COUNT(tensors), 0);
        char *const path = make_path(), text[96];
        apr_model m;
        apr_error err = {0};
        apr_store_le32(f.bytes + 40, 0);
        write_bytes(path, f.bytes, f.n_bytes);
        if (apr_apr_open(&m, path, &err) != APR_OK) fail_msg("type %u: %s", types[i].id, err.text);
        assert_int_equal(apr_model_find(&m, "blk.0.attn_q.weight")->dtype, types[i].dtype);
        assert_int_equal(apr_model_find(&m, "blk.0.attn_k.weight")->n_bytes, n);
        assert_int_equal(m.hparams.max_position_embeddings, 77);
        assert_int_equal(apr_apr_check_footer(&m), APR_FOOTER_MISSING);
        assert_string_equal(apr_apr_missing(&m, text, sizeof text), "the header's checksum, a sorted index");
        apr_model_close(&m);
        drop_path(path);
        free(f.bytes);
    }
}

/* Its data section begins anywhere; the last tensor is padded from there, and these bytes are not a footer. */
static void padding_of_an_unaligned_section_is_no_footer(void **state)
{
    static const char json[] = "{}";
    const foreign_tensor tensors[] = {{"bias", 0, 1, {1}, 4}, {"weights", 0, 1, {8}, 32}};
    (void)state;
    foreign f = make_foreign(json, tensors, COUNT(tensors), 0);
    const size_t data_at = (size_t)apr_load_le64(f.bytes + 32), index_at = (size_t)apr_load_le64(f.bytes + 24),
                 n_index = 20 + 4 + 8 + 20 + 7 + 8;
    const size_t moved = index_at + n_index;
    assert_true(moved < data_at && moved % 64 != 0);
    memmove(f.bytes + moved, f.bytes + data_at, f.n_bytes - data_at);
    apr_store_le64(f.bytes + 32, moved);
    fix_header_crc(f.bytes);
    for (int k = 0; k < 3; k++) { /* padded from its beginning; not at all; a byte that is neither */
        const size_t n = k == 0 ? moved + 128 : k == 1 ? moved + 96 : moved + 96 + 5;
        char *const path = make_path(), text[96];
        apr_model m;
        apr_error err = {0};
        write_bytes(path, f.bytes, n);
        if (apr_apr_open(&m, path, &err) != APR_OK) fail_msg("%s", err.text);
        assert_int_equal(apr_apr_check_footer(&m), k < 2 ? APR_FOOTER_MISSING : APR_FOOTER_BAD);
        assert_string_equal(apr_apr_missing(&m, text, sizeof text), "data at a multiple of 64");
        apr_model_close(&m);
        drop_path(path);
    }
    free(f.bytes);
}

/* --- footer --- */

static void the_footer_is_checked(void **state)
{
    (void)state;
    apr_model m, back;
    char *const path = make_path();

    make_golden_model(&m);
    for (int k = 0; k < 3; k++) { /* good, a byte of padding flipped, cut off */
        assert_int_equal(write_model(&m, path, &(apr_sink_options){.overwrite = true}, 1000, NULL), APR_OK);
        FILE *const file = fopen(path, "r+b");
        assert_non_null(file);
        if (k == 1) {
            assert_int_equal(fseek(file, 500, SEEK_SET), 0);
            assert_int_equal(fputc(1, file), 1);
        }
        fclose(file);
        if (k == 2) assert_int_equal(truncate(path, 512), 0);
        assert_int_equal(apr_apr_open(&back, path, NULL), APR_OK);
        assert_int_equal(apr_apr_check_footer(&back), k == 0 ? APR_FOOTER_GOOD : k == 1 ? APR_FOOTER_BAD : APR_FOOTER_MISSING);
        apr_model_close(&back);
    }
    drop_path(path);
    apr_model_close(&m);
}

/* --- the sink --- */

static void a_sink_wants_all_bytes_and_no_more(void **state)
{
    (void)state;
    static const uint8_t zeros[64];
    apr_model m;
    apr_sink *sink;
    char *const path = make_path();

    make_golden_model(&m);
    assert_int_equal(apr_apr_sink_open(&sink, path, &m, NULL, NULL), APR_OK);
    assert_int_equal(apr_sink_total_bytes(sink), 516);
    assert_int_equal(apr_sink_put(sink, zeros, 35, NULL), APR_OK);
    assert_int_equal(apr_sink_finish(sink, NULL), APR_E_USAGE);
    assert_int_equal(apr_apr_sink_open(&sink, path, &m, NULL, NULL), APR_OK);
    assert_int_equal(apr_sink_put(sink, zeros, 37, NULL), APR_E_USAGE);
    apr_sink_abandon(sink);
    assert_int_not_equal(access(path, F_OK), 0);
    drop_path(path);
    apr_model_close(&m);
}

static void what_apr_cannot_hold_is_refused(void **state)
{
    (void)state;
    char long_name[258];
    apr_model m;
    apr_sink *sink;

    memset(long_name, 'x', 257);
    long_name[257] = '\0';
    make_golden_model(&m);
    m.tensors[0].name = long_name;
    assert_int_equal(apr_apr_sink_open(&sink, "/nonexistent/x.apr", &m, NULL, NULL), APR_E_UNSUPPORTED);
    m.tensors[0].name = "weights";
    assert_int_equal(apr_apr_sink_open(&sink, "/nonexistent/x.apr", &m, NULL, NULL), APR_E_USAGE);
    m.tensors[0].name = "bias";
    m.tensors[0].n_bytes++;
    assert_int_equal(apr_apr_sink_open(&sink, "/nonexistent/x.apr", &m, NULL, NULL), APR_E_USAGE);
    m.tensors[0].n_bytes--;
    assert_int_equal(apr_apr_sink_open(&sink, "/nonexistent/x.apr", &m, NULL, NULL), APR_E_IO);
    apr_model_close(&m);
}

/* --- aprender's profile --- */

static void make_runnable_model(apr_model *m)
{
    static const apr_str tokens[] = {{"a", 1}, {"b", 1}, {"ab", 2}}, merges[] = {{"a", 1}, {"b", 1}};
    static const uint8_t types[] = {1, 1, 1};
    static const char *const names[] = {"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"};

    *m = (apr_model){.path = "runnable", .origin.format = APR_FORMAT_SAFETENSORS};
    m->n_tensors = COUNT(names);
    m->tensors = apr_arena_array(&m->arena, COUNT(names), sizeof *m->tensors);
    assert_non_null(m->tensors);
    for (size_t i = 0; i < COUNT(names); i++)
        m->tensors[i] = i == 1 ? tensor_of(names[i], APR_F32, 1, 256, 0) : tensor_of(names[i], APR_Q4_K, 2, 3, 256);
    for (size_t i = 0; i < COUNT(names); i++) m->tensors[i].data = noise(&m->arena, (size_t)m->tensors[i].n_bytes);
    m->hparams = (apr_hparams){.architecture = "qwen2",
                               .hidden_size = 256,
                               .num_layers = 1,
                               .num_heads = 4,
                               .num_kv_heads = 2,
                               .vocab_size = 3,
                               .intermediate_size = 512,
                               .max_position_embeddings = 64,
                               .rope_theta = 1e6,
                               .rms_norm_eps = 1e-6,
                               .head_dim = 64};
    m->vocab = (apr_vocab){.kind = APR_VOCAB_BPE,
                           .n_tokens = 3,
                           .tokens = tokens,
                           .types = types,
                           .n_merges = 1,
                           .merges = merges,
                           .bos_id = -1,
                           .eos_id = 2,
                           .pad_id = -1,
                           .unk_id = -1};
}

static void the_profile_names_what_cannot_be_expressed(void **state)
{
    (void)state;
    static const struct {
        apr_dtype dtype;
        const char *nearest;
    } cases[] = {{APR_Q8_0, "is f16"},    {APR_Q5_K, "is q6_k"}, {APR_IQ4_NL, "is q4_k"},
                 {APR_F8_E4M3, "is f16"}, {APR_F64, "is f32"},   {APR_I16, "is f32"}};
    apr_model m;

    make_runnable_model(&m);
    assert_int_equal(apr_check_aprender(&m, NULL), APR_OK);
    const apr_tensor good = m.tensors[2];
    for (size_t i = 0; i < COUNT(cases); i++) {
        apr_error err = {0};
        m.tensors[2].dtype = cases[i].dtype;
        assert_int_equal(apr_check_aprender(&m, &err), APR_E_UNSUPPORTED);
        assert_non_null(strstr(err.text, "lm_head.weight"));
        assert_non_null(strstr(err.text, cases[i].nearest));
    }
    m.tensors[2] = good;
    m.tensors[2].name = "other.weight";
    assert_int_equal(apr_check_aprender(&m, NULL), APR_E_UNSUPPORTED);
    m.tensors[2] = good;
    m.tensors[1].dtype = APR_F16;
    assert_int_equal(apr_check_aprender(&m, NULL), APR_E_UNSUPPORTED);
    m.tensors[1].dtype = APR_F32;
    m.hparams.intermediate_size = 0;
    assert_int_equal(apr_check_aprender(&m, NULL), APR_E_UNSUPPORTED);
    m.hparams.intermediate_size = 512;
    m.vocab.n_merges = 0;
    assert_int_equal(apr_check_aprender(&m, NULL), APR_E_UNSUPPORTED);
    apr_model_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_in_a_model_comes_back),
        cmocka_unit_test(a_file_written_again_from_what_was_read_is_the_same),
        cmocka_unit_test(a_model_in_ggml_naming_without_an_origin_keeps_its_keys),
        cmocka_unit_test(the_bundled_model_comes_back_from_both_formats),
        cmocka_unit_test(the_golden_vector_is_written_exactly),
        cmocka_unit_test(the_golden_vector_is_read),
        cmocka_unit_test(a_foreign_file_with_aliases_nulls_and_no_footer_is_read),
        cmocka_unit_test(dims_in_ggufs_order_are_reversed),
        cmocka_unit_test(rows_padded_to_blocks_are_refused_by_name),
        cmocka_unit_test(what_serve_writes_is_read_and_reported),
        cmocka_unit_test(padding_of_an_unaligned_section_is_no_footer),
        cmocka_unit_test(the_footer_is_checked),
        cmocka_unit_test(a_sink_wants_all_bytes_and_no_more),
        cmocka_unit_test(what_apr_cannot_hold_is_refused),
        cmocka_unit_test(the_profile_names_what_cannot_be_expressed),
    };
    return cmocka_run_group_tests_name("apr", tests, NULL, NULL);
}
