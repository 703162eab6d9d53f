/* formats/hf/lora.h: an adapter of PEFT is read whole, by what its configuration says, or ends in a sentence that names what is wrong. */
#define _XOPEN_SOURCE 700
#include "formats/hf/lora.h"
#include "formats/tensor/composed.h"
#include "tests/support/work_folder.h"

#include <math.h>

#define DATA "tests/data/lora/"

/* ---- adapters of a few tensors ---- */

static const char plain_config[] = "{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":6,\"base_model_name_or_path\":\"us/base\"}";

/* "NAME DTYPE 2,3;NAME ..." as a safetensors file whose bytes count up. */
static void write_weights(const char *path, const char *tensors)
{
    char header[4096] = "{";
    size_t at = 1, n_data = 0;
    uint8_t file[8 + sizeof header + 4096];

    for (const char *t = tensors; *t != '\0';) {
        char name[200], dtype[8], dims[40];
        int used = 0, a = 1, b = 1, c = 1;
        assert_int_equal(sscanf(t, "%199s %7s %39[0-9,]%n", name, dtype, dims, &used), 3);
        const int rank = sscanf(dims, "%d,%d,%d", &a, &b, &c);
        const size_t n = (size_t)(rank > 0 ? a : 1) * (size_t)(rank > 1 ? b : 1) * (size_t)(rank > 2 ? c : 1) *
                         (strcmp(dtype, "F32") == 0 || strcmp(dtype, "I32") == 0 ? 4 : 2);
        at += (size_t)snprintf(header + at, sizeof header - at, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
                               at > 1 ? "," : "", name, dtype, dims, n_data, n_data + n);
        n_data += n;
        t += used + (t[used] == ';');
    }
    at += (size_t)snprintf(header + at, sizeof header - at, "}");
    assert_true(at < sizeof header && n_data <= 4096);
    apr_store_le64(file, at);
    memcpy(file + 8, header, at);
    for (size_t i = 0; i < n_data; i++) file[8 + at + i] = (uint8_t)(i % 60);
    write_file(path, file, 8 + at + n_data);
}

static void write_adapter(const char *config, const char *tensors)
{
    char path[200];

    mkdir(in_work("adapter"), 0777);
    snprintf(path, sizeof path, "%s/%s", in_work("adapter"), APR_LORA_CONFIG);
    remove(path);
    if (config != NULL) write_file(path, config, strlen(config));
    snprintf(path, sizeof path, "%s/%s", in_work("adapter"), APR_LORA_WEIGHTS);
    remove(path);
    if (tensors != NULL) write_weights(path, tensors);
}

#define PAIR(module) "base_model.model." module ".lora_A.weight F32 2,3;base_model.model." module ".lora_B.weight F32 4,2"

static void open_ok(apr_adapter *adapter, const char *path)
{
    apr_error err = {0};
    if (apr_adapter_open(adapter, path, &err) != APR_OK) fail_msg("%s", err.text);
}

/* Refused with that status, in a sentence that has these words. */
static void assert_refused(const char *config, const char *tensors, apr_status status, const char *words)
{
    apr_adapter adapter;
    apr_error err = {0};

    write_adapter(config, tensors);
    const apr_status answer = apr_adapter_open(&adapter, in_work("adapter"), &err);
    if (answer != status || strstr(err.text, words) == NULL)
        fail_msg("status %d instead of %d, '%s' is not in '%s'", (int)answer, (int)status, words, err.text);
}

static const apr_adapter_change *change_of(const apr_adapter *adapter, const char *name)
{
    for (size_t i = 0; i < adapter->n_changes; i++)
        if (strcmp(adapter->changes[i].name, name) == 0) return &adapter->changes[i];
    fail_msg("'%s' is not changed", name);
    return NULL;
}

/* ---- what PEFT saved ---- */

static void an_adapter_says_what_it_changes(void **state)
{
    apr_adapter adapter;
    apr_arena arena = {0};

    (void)state;
    open_ok(&adapter, DATA "llama");
    assert_int_equal(adapter.n_changes, 8);
    assert_string_equal(adapter.base, "llama");
    assert_null(adapter.unknown_fields);
    const apr_adapter_change *const q = change_of(&adapter, "model.layers.2.self_attn.q_proj.weight");
    assert_int_equal(q->a->dims[0], 4);
    assert_int_equal(q->a->dims[1], 32);
    assert_int_equal(q->b->dims[0], 48);
    assert_true(q->scale == 2.0);
    assert_string_equal(apr_adapter_text(&adapter, 1.0, &arena), "rank 4, alpha 8, scale 2, 8 targets (q_proj, v_proj in 4 layers)");
    assert_string_equal(apr_adapter_text(&adapter, -0.5, &arena),
                        "rank 4, alpha 8, scale 2 times -0.5, 8 targets (q_proj, v_proj in 4 layers)");
    apr_arena_close(&arena);
    apr_adapter_close(&adapter);
    open_ok(&adapter, DATA "llama/adapter_model.safetensors"); /* or by the file's name */
    assert_int_equal(adapter.n_changes, 8);
    apr_adapter_close(&adapter);
}

static void patterns_give_modules_ranks_and_alphas_of_their_own(void **state)
{
    apr_adapter adapter;

    (void)state;
    open_ok(&adapter, DATA "llama-second"); /* r 2, alpha 3, by the root of the rank */
    assert_int_equal(change_of(&adapter, "model.layers.3.self_attn.k_proj.weight")->a->dims[0], 3);
    assert_int_equal(change_of(&adapter, "model.layers.1.mlp.up_proj.weight")->a->dims[0], 5);
    assert_int_equal(change_of(&adapter, "model.layers.2.mlp.up_proj.weight")->a->dims[0], 2);
    assert_true(change_of(&adapter, "model.layers.1.mlp.up_proj.weight")->scale == 3.0 / sqrt(5.0));
    assert_true(change_of(&adapter, "model.layers.0.self_attn.o_proj.weight")->scale == 1.5 / sqrt(2.0));
    apr_adapter_close(&adapter);
}

static void magnitudes_biases_and_saved_modules_are_taken(void **state)
{
    apr_adapter adapter;

    (void)state;
    open_ok(&adapter, DATA "qwen2-dora");
    const apr_adapter_range r = apr_adapter_ranges(&adapter);
    assert_int_equal(r.n_low_rank, 12);
    assert_int_equal(r.n_magnitudes, 12);
    assert_int_equal(r.n_whole, 22);
    assert_non_null(change_of(&adapter, "lm_head.weight")->whole);
    assert_non_null(change_of(&adapter, "model.layers.0.self_attn.k_proj.bias")->whole); /* of a plain layer */
    assert_non_null(change_of(&adapter, "model.layers.0.self_attn.q_proj.bias")->whole); /* of a wrapped one */
    assert_int_equal(apr_tensor_elems(change_of(&adapter, "model.layers.1.mlp.down_proj.weight")->magnitudes), 32);
    apr_adapter_close(&adapter);
}

static void an_embeddings_matrices_are_transposed(void **state)
{
    apr_adapter adapter;
    size_t n = 0;

    (void)state;
    open_ok(&adapter, DATA "phi3-fused");
    for (size_t i = 0; i < adapter.n_changes; i++) {
        const apr_adapter_change *const c = &adapter.changes[i];
        if (strcmp(c->name, "model.embed_tokens.weight") != 0) continue;
        if (n++ == 0) {
            assert_non_null(c->whole); /* the base's own, saved along: first, so that the sum is on top of it */
            continue;
        }
        assert_int_equal(c->b->dims[0], 148);
        assert_int_equal(c->b->dims[1], 3);
        assert_int_equal(c->a->dims[0], 3);
        assert_int_equal(c->a->dims[1], 32);
    }
    assert_int_equal(n, 2);
    apr_adapter_close(&adapter);
}

/* ---- spellings ---- */

static void names_come_in_many_spellings(void **state)
{
    static const struct {
        const char *tensors, *name;
    } spellings[] = {
        {"base_model.model.m.q.lora_A.default.weight F32 2,3;base_model.model.m.q.lora_B.default.weight F32 4,2", "m.q.weight"},
        {"m.q.lora_A.weight F16 2,3;m.q.lora_B.weight BF16 4,2", "m.q.weight"},
        {"base_model.model.m.q.lora_embedding_A.mine F32 2,3;base_model.model.m.q.lora_embedding_B.mine F32 4,2", "m.q.weight"},
        {"base_model.model.m.q.modules_to_save.default.weight F32 2,3", "m.q.weight"},
        {"base_model.model.m.q.modules_to_save.weight F32 2,3", "m.q.weight"},
        {"base_model.model.m.q.base_layer.bias F32 3", "m.q.bias"},
        {"base_model.model.m.q.bias F32 3", "m.q.bias"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++) {
        apr_adapter adapter;
        write_adapter(plain_config, spellings[i].tensors);
        open_ok(&adapter, in_work("adapter"));
        assert_int_equal(adapter.n_changes, 1);
        assert_string_equal(adapter.changes[0].name, spellings[i].name);
        apr_adapter_close(&adapter);
    }
}

static void an_unknown_field_is_reported(void **state)
{
    apr_adapter adapter;

    (void)state;
    write_adapter("{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":6,\"use_magic\":true,\"magic_depth\":3,\"off\":false,\"none\":null}",
                  PAIR("m.q"));
    open_ok(&adapter, in_work("adapter"));
    assert_string_equal(adapter.unknown_fields, "use_magic, magic_depth");
    assert_null(adapter.base);
    apr_adapter_close(&adapter);
}

/* PEFT's rule: from a dot or the beginning on, to the end; the first that matches. */
static void patterns_match_as_pefts_do(void **state)
{
    static const char text[] =
        "{\"peft_type\":\"LORA\",\"r\":8,\"lora_alpha\":16,\"rank_pattern\":{\"^model.q\":1,\"layers.[0-3].*q_proj\":2,"
        "\"q_proj\":4},\"alpha_pattern\":{\"_proj\":5,\"k_proj|v_proj\":7}}";
    static const struct {
        const char *module;
        int64_t rank;
        double alpha;
    } modules[] = {{"model.layers.2.attn.q_proj", 2, 16},    {"model.layers.7.attn.q_proj", 4, 16}, {"q_proj", 4, 16}, {"model.q", 1, 16},
                   {"model.layers.7.attn.my_q_proj", 8, 16}, {"model.layers.7.attn.v_proj", 8, 7},  {"k_proj", 8, 7}};
    apr_lora_config config;
    apr_arena arena = {0};

    (void)state;
    assert_int_equal(apr_lora_config_read(&config, (const uint8_t *)text, strlen(text), &arena, "test", NULL), APR_OK);
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++) {
        int64_t rank;
        double alpha, scale;
        assert_int_equal(apr_lora_config_of(&config, modules[i].module, &rank, &alpha, &scale, NULL), APR_OK);
        assert_int_equal(rank, modules[i].rank);
        assert_true(alpha == modules[i].alpha && scale == alpha / (double)rank);
    }
    apr_arena_close(&arena);
}

/* ---- damages and refusals ---- */

static void a_configuration_that_makes_no_sense_is_damaged(void **state)
{
    static const struct {
        const char *config, *words;
    } damages[] = {
        {"{", "JSON"},
        {"[]", "not a JSON object"},
        {"{\"r\":2,\"lora_alpha\":6}", "peft_type is missing"},
        {"{\"peft_type\":\"LORA\",\"lora_alpha\":6}", "r is not a rank"},
        {"{\"peft_type\":\"LORA\",\"r\":0,\"lora_alpha\":6}", "r is not a rank"},
        {"{\"peft_type\":\"LORA\",\"r\":1.5,\"lora_alpha\":6}", "r is not a rank"},
        {"{\"peft_type\":\"LORA\",\"r\":2}", "lora_alpha is not a number"},
        {"{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":NaN}", "lora_alpha is not a number"},
        {"{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":6,\"use_rslora\":1}", "use_rslora is neither true nor false"},
        {"{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":6,\"bias\":\"some\"}", "bias is not"},
        {"{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":6,\"rank_pattern\":[1]}", "rank_pattern is not an object"},
        {"{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":6,\"rank_pattern\":{\"q\":0}}", "rank_pattern of 'q' is not a rank"},
        {"{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":6,\"alpha_pattern\":{\"q\":\"x\"}}", "alpha_pattern of 'q' is not a number"},
        {"{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":6,\"alpha_pattern\":{\"q(\":1}}", "'q(' is not a regular expression"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++)
        assert_refused(damages[i].config, PAIR("m.q"), APR_E_DAMAGED, damages[i].words);
}

static void what_is_not_done_is_refused_by_name(void **state)
{
    static const struct {
        const char *fields, *words;
    } wishes[] = {
        {"\"lora_bias\":true", "lora_bias is set"},
        {"\"target_parameters\":[\"mlp.experts.gate_up_proj\"]", "target_parameters is set"},
        {"\"layer_replication\":[[0,4]]", "layer_replication is set"},
        {"\"trainable_token_indices\":[1]", "trainable_token_indices is set"},
        {"\"alora_invocation_tokens\":[1,2]", "alora_invocation_tokens is set"},
        {"\"init_lora_weights\":\"pissa\"", "init_lora_weights is 'pissa'"},
        {"\"init_lora_weights\":\"loftq\"", "init_lora_weights is 'loftq'"},
        {"\"alpha_pattern\":{\"(.*.*.*.*.*)*[xz]\":1}", "takes too long"},
    };
    char config[300];

    (void)state;
    for (size_t i = 0; i < sizeof wishes / sizeof *wishes; i++) {
        snprintf(config, sizeof config, "{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":6,%s}", wishes[i].fields);
        assert_refused(config, PAIR("model.layers.0.self_attention_of_a_long_name.q"), APR_E_UNSUPPORTED, wishes[i].words);
    }
    assert_refused("{\"peft_type\":\"LOHA\",\"r\":2,\"lora_alpha\":6}", PAIR("m.q"), APR_E_UNSUPPORTED, "peft_type is 'LOHA'");
}

static void tensors_that_do_not_fit_are_named(void **state)
{
    static const char dora[] = "{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":6,\"use_dora\":true}";
    static const struct {
        const char *config, *tensors;
        apr_status status;
        const char *words;
    } damages[] = {
        {plain_config, "m.q.lora_A.weight F32 2,3", APR_E_DAMAGED, "module 'm.q': the matrix B is missing"},
        {plain_config, "m.q.lora_B.weight F32 4,2", APR_E_DAMAGED, "module 'm.q': the matrix A is missing"},
        {plain_config, "m.q.lora_embedding_B F32 4,2", APR_E_DAMAGED, "module 'm.q': the matrix A is missing"},
        {plain_config, "m.q.lora_A.weight F32 3,3;m.q.lora_B.weight F32 4,3", APR_E_DAMAGED, "gives it rank 2"},
        {plain_config, "m.q.lora_A.weight F32 2,3;m.q.lora_B.weight F32 4,3", APR_E_DAMAGED, "A [2, 3] and B [4, 3]"},
        {plain_config, "m.q.lora_A.weight F32 6;m.q.lora_B.weight F32 4,2", APR_E_DAMAGED, "only matrices"},
        {plain_config, "m.q.lora_A.weight F32 0,3;m.q.lora_B.weight F32 4,0", APR_E_DAMAGED, "only matrices"},
        {plain_config, "m.q.lora_A.weight F32 2,3,1;m.q.lora_B.weight F32 4,2,1", APR_E_UNSUPPORTED, "only matrices"},
        {plain_config, "m.q.lora_A.weight I32 2,3;m.q.lora_B.weight F32 4,2", APR_E_UNSUPPORTED, "is i32"},
        {plain_config, "m.q.lora_A.one.weight F32 2,3;m.q.lora_A.two.weight F32 2,3", APR_E_DAMAGED, "are the same part of 'm.q'"},
        {plain_config, "m.q.weight F32 3;m.q.base_layer.weight F32 3", APR_E_DAMAGED, "are the same part of 'm.q.weight'"},
        {plain_config, PAIR("m.q") ";base_model.model.m.q.lora_B.bias F32 4", APR_E_UNSUPPORTED, "'base_model.model.m.q.lora_B.bias'"},
        {plain_config, PAIR("m.q") ";m.q.lora_A.a.b.weight F32 4", APR_E_UNSUPPORTED, "'m.q.lora_A.a.b.weight'"},
        {plain_config, PAIR("m.q") ";m.q.trainable_tokens_delta F32 4", APR_E_UNSUPPORTED, "'m.q.trainable_tokens_delta'"},
        {plain_config, PAIR("m.q") ";m.q.original_module.weight F32 4", APR_E_UNSUPPORTED, "'m.q.original_module.weight'"},
        {plain_config, PAIR("m.q") ";weight F32 4", APR_E_UNSUPPORTED, "'weight'"},
        {plain_config, PAIR("m.q") ";base_model.model.m.q.lora_magnitude_vector F32 4", APR_E_DAMAGED, "use_dora is not set"},
        {plain_config, PAIR("m.q") ";base_model.model.m.q.lora_embedding_A F32 2,3;base_model.model.m.q.lora_embedding_B F32 4,2",
         APR_E_DAMAGED, "those of an embedding"},
        {dora, PAIR("m.q"), APR_E_DAMAGED, "the lora_magnitude_vector is missing"},
        {dora, PAIR("m.q") ";base_model.model.m.q.lora_magnitude_vector F32 3", APR_E_DAMAGED, "a float for each row of B"},
        {dora, PAIR("m.q") ";base_model.model.m.q.lora_magnitude_vector I32 4", APR_E_DAMAGED, "a float for each row of B"},
        {dora, "m.q.lora_embedding_A F32 2,3;m.q.lora_embedding_B F32 4,2;m.q.lora_magnitude_vector F32 4", APR_E_UNSUPPORTED,
         "embedding with DoRA"},
        {plain_config, "", APR_E_DAMAGED, "no tensors"},
        {plain_config, NULL, APR_E_IO, "has no adapter_model.safetensors"},
        {NULL, PAIR("m.q"), APR_E_IO, "has no adapter_config.json"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++)
        assert_refused(damages[i].config, damages[i].tensors, damages[i].status, damages[i].words);
}

/* What PEFT saved with safe_serialization=False: read without executing anything. */
static void a_pickle_holds_the_same_adapter(void **state)
{
    apr_adapter a, b;

    (void)state;
    open_ok(&a, DATA "llama");
    open_ok(&b, DATA "llama-pickle");
    assert_int_equal(a.n_changes, b.n_changes);
    for (size_t i = 0; i < a.n_changes; i++) {
        const apr_adapter_change *const x = &a.changes[i], *const y = &b.changes[i];
        assert_string_equal(x->name, y->name);
        assert_true(x->scale == y->scale);
        assert_int_equal(x->a->n_bytes, y->a->n_bytes);
        assert_int_equal(x->b->n_bytes, y->b->n_bytes);
        assert_memory_equal(x->a->data, y->a->data, x->a->n_bytes);
        assert_memory_equal(x->b->data, y->b->data, x->b->n_bytes);
    }
    apr_adapter_close(&a);
    apr_adapter_close(&b);
    open_ok(&b, DATA "llama-pickle/adapter_model.bin");
    assert_int_equal(b.n_changes, 8);
    apr_adapter_close(&b);
    assert_true(apr_is_adapter(DATA "llama-pickle"));
}

static void a_git_lfs_pointer_is_reported(void **state)
{
    static const char pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:"
                                  "4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n";
    apr_adapter adapter;
    apr_error err = {0};
    char path[200];

    (void)state;
    write_adapter(plain_config, NULL);
    snprintf(path, sizeof path, "%s/%s", in_work("adapter"), APR_LORA_WEIGHTS);
    write_file(path, pointer, sizeof pointer - 1);
    assert_int_not_equal(apr_adapter_open(&adapter, in_work("adapter"), &err), APR_OK);
    assert_non_null(strstr(err.text, "LFS"));
}

static void a_folder_is_an_adapter_when_no_model_is_in_it(void **state)
{
    apr_model model;
    apr_error err = {0};

    (void)state;
    assert_true(apr_is_adapter(DATA "llama"));
    assert_true(apr_is_adapter(DATA "llama/adapter_model.safetensors"));
    assert_false(apr_is_adapter("tests/data/tiny-llama"));
    assert_false(apr_is_adapter("tests/data/tiny-llama/model.safetensors"));
    assert_false(apr_is_adapter("tests/data/nowhere"));
    assert_int_equal(apr_model_open(&model, DATA "llama", &err), APR_E_USAGE);
    assert_non_null(strstr(err.text, "an adapter, not a model"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_adapter_says_what_it_changes),
        cmocka_unit_test(patterns_give_modules_ranks_and_alphas_of_their_own),
        cmocka_unit_test(magnitudes_biases_and_saved_modules_are_taken),
        cmocka_unit_test(an_embeddings_matrices_are_transposed),
        cmocka_unit_test(names_come_in_many_spellings),
        cmocka_unit_test(an_unknown_field_is_reported),
        cmocka_unit_test(patterns_match_as_pefts_do),
        cmocka_unit_test(a_configuration_that_makes_no_sense_is_damaged),
        cmocka_unit_test(what_is_not_done_is_refused_by_name),
        cmocka_unit_test(tensors_that_do_not_fit_are_named),
        cmocka_unit_test(a_pickle_holds_the_same_adapter),
        cmocka_unit_test(a_git_lfs_pointer_is_reported),
        cmocka_unit_test(a_folder_is_an_adapter_when_no_model_is_in_it),
    };
    return cmocka_run_group_tests(tests, make_work, remove_work);
}
