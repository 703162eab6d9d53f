/* convert/naming.h on consolidated files: canonical names and orders, with the scales of FP8, and what a checkpoint of it says. */
#define _GNU_SOURCE /* nftw, mkdtemp */
#include "convert/naming.h"
#include "formats/base/bytes.h"
#include "formats/hf/safetensors.h"
#include "formats/shape/hf_config.h"
#include "kernels/rows.h"
#include "tests/support/work_folder.h"

/* --- helpers --- */

/* wq [8, 2] of two heads, each row the FP8 number of its index; one scale of 0.5 for all of them, and one of activations. */
static void write_consolidated(void)
{
    static const char header[] = "{\"layers.0.attention.wq.weight\":{\"dtype\":\"F8_E4M3\",\"shape\":[8,2],\"data_offsets\":[0,16]},"
                                 "\"layers.0.attention.wq.qscale_weight\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[16,20]},"
                                 "\"layers.0.attention.wq.qscale_act\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[20,24]},"
                                 "\"tok_embeddings.weight\":{\"dtype\":\"F16\",\"shape\":[3,2],\"data_offsets\":[24,36]}}";
    static const char params[] =
        "{\"dim\":2,\"n_layers\":1,\"n_heads\":2,\"n_kv_heads\":1,\"head_dim\":4,\"hidden_dim\":4,\"norm_eps\":1e-5,"
        "\"vocab_size\":3,\"tied_embeddings\":true,\"quantization\":{\"qformat_weight\":\"fp8_e4m3\"}}";
    static const uint8_t numbers[8] = {0x00, 0x38, 0x40, 0x44, 0x48, 0x4a, 0x4c, 0x4e}; /* 0 to 7 */
    uint8_t file[8 + sizeof header - 1 + 36] = {0}, *const data = file + 8 + sizeof header - 1;
    const float scales[] = {0.5f, 0.25f};

    apr_store_le64(file, sizeof header - 1);
    memcpy(file + 8, header, sizeof header - 1);
    for (int i = 0; i < 16; i++) data[i] = numbers[i / 2];
    memcpy(data + 16, scales, sizeof scales);
    write_file(in_work("consolidated.safetensors"), file, sizeof file);
    write_file(in_work("params.json"), params, sizeof params - 1);
}

static int start(void **state)
{
    const int failed = make_work(state);
    if (failed == 0) write_consolidated();
    return failed;
}

/* --- tests --- */

static void a_reader_returns_what_is_there(void **state)
{
    apr_model m;
    apr_error err = {0};

    (void)state;
    if (apr_model_open(&m, work, &err) != APR_OK) fail_msg("%s", err.text);
    assert_int_equal(m.naming, APR_NAMING_META);
    assert_int_equal(m.origin.format, APR_FORMAT_CONSOLIDATED);
    assert_true(m.hparams.tie_word_embeddings);
    assert_null(m.hparams.refusal);
    assert_null(m.not_copied);
    const apr_tensor *const q = apr_model_find(&m, "layers.0.attention.wq.weight");
    assert_non_null(q);
    assert_ptr_equal(q->scale, apr_model_find(&m, "layers.0.attention.wq.qscale_weight"));
    apr_model_close(&m);
}

/* Pairs 0 1 | 2 3 of a head become halves 0 2 | 1 3, each number times its scale. */
static void fp8_rows_keep_their_scale_in_another_order(void **state)
{
    static const float wanted[] = {0, 1, 0.5f, 1.5f, 2, 3, 2.5f, 3.5f};
    apr_model m, canonical;
    apr_error err = {0};
    float row[2];

    (void)state;
    if (apr_model_open(&m, work, &err) != APR_OK || apr_canonical(&canonical, &m, &err) != APR_OK) fail_msg("%s", err.text);
    assert_int_equal(canonical.naming, APR_NAMING_HF);
    const apr_tensor *const q = apr_model_find(&canonical, "model.layers.0.self_attn.q_proj.weight");
    assert_non_null(q);
    assert_ptr_equal(q->scale, apr_model_find(&canonical, "model.layers.0.self_attn.q_proj.weight_scale_inv"));
    assert_non_null(apr_model_find(&canonical, "model.layers.0.self_attn.q_proj.activation_scale"));
    assert_non_null(apr_model_find(&canonical, "model.embed_tokens.weight"));
    assert_string_equal(q->origin_name, "layers.0.attention.wq.weight");
    for (int64_t r = 0; r < 8; r++) {
        apr_decode_rows(q, r, 1, row);
        assert_true(row[0] == wanted[r] && row[1] == wanted[r]);
    }
    apr_model_close(&canonical);
    apr_model_close(&m);
}

static void a_written_config_names_the_scheme(void **state)
{
    apr_model m, canonical;
    apr_error err = {0};

    (void)state;
    if (apr_model_open(&m, work, &err) != APR_OK || apr_canonical(&canonical, &m, &err) != APR_OK) fail_msg("%s", err.text);
    char *const text = apr_hf_config_make(&canonical);
    assert_non_null(
        strstr(text, "\"quantization_config\":{\"quant_method\":\"fp8\",\"activation_scheme\":\"static\",\"weight_block_size\":null"));
    const apr_attachment config = {"config.json", (const uint8_t *)text, strlen(text)};
    apr_hparams again;
    if (apr_hf_config_read(&config, &again, &canonical.arena, "test", &err) != APR_OK) fail_msg("%s", err.text);
    assert_null(again.refusal);
    free(text);
    apr_model_close(&canonical);
    apr_model_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reader_returns_what_is_there),
        cmocka_unit_test(fp8_rows_keep_their_scale_in_another_order),
        cmocka_unit_test(a_written_config_names_the_scheme),
    };
    return cmocka_run_group_tests_name("meta_dialect", tests, start, remove_work);
}
