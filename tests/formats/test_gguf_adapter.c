/* formats/gguf/gguf_adapter.c: llama.cpp's adapters are read as pairs of matrices, or end in a sentence that names what is wrong.
 * tests/data/lora/llama-adapter.gguf is PEFT's adapter next to it, as llama.cpp's converter writes it, made with the gguf package. */
#define _XOPEN_SOURCE 700
#include "formats/files/map.h"
#include "formats/gguf/gguf.h"
#include "tests/support/work_folder.h"

static const char good[] = "tests/data/lora/llama-adapter.gguf";

/* The good file with each `from` as `to`, which is as long, in the work folder. */
static const char *with(const char *from, const char *to, size_t n)
{
    apr_map map;
    size_t n_found = 0;

    assert_int_equal(apr_map_open(&map, good, NULL), APR_OK);
    uint8_t *const bytes = malloc(map.n_bytes);
    assert_non_null(bytes);
    memcpy(bytes, map.data, map.n_bytes);
    for (size_t i = 0; i + n <= map.n_bytes; i++) {
        if (memcmp(bytes + i, from, n) != 0) continue;
        memcpy(bytes + i, to, n);
        n_found++;
    }
    assert_true(n_found > 0);
    write_file(in_work("bad.gguf"), bytes, map.n_bytes);
    free(bytes);
    apr_map_close(&map);
    return in_work("bad.gguf");
}

static void pairs_are_changes_under_ggmls_names(void **state)
{
    apr_adapter adapter;
    apr_arena arena = {0};

    (void)state;
    assert_int_equal(apr_adapter_open(&adapter, good, NULL), APR_OK);
    assert_int_equal(adapter.naming, APR_NAMING_GGML);
    assert_string_equal(apr_adapter_text(&adapter, 1.0, &arena), "rank 4, alpha 8, scale 2, 8 targets (attn_q, attn_v in 4 layers)");
    assert_string_equal(adapter.changes[0].name, "blk.0.attn_q.weight");
    assert_int_equal(adapter.changes[0].a->dims[0], 4);
    assert_int_equal(adapter.changes[0].a->dims[1], 32);
    assert_int_equal(adapter.changes[0].b->dims[0], 48);
    apr_arena_close(&arena);
    apr_adapter_close(&adapter);
}

/* alpha 0 stands for a scale of 1, as llama.cpp takes it. */
static void without_alpha_the_scale_is_1(void **state)
{
    static const char key[] = "adapter.lora.alpha\6\0\0\0\0\0\0\x41", zero[] = "adapter.lora.alpha\6\0\0\0\0\0\0\0";
    apr_adapter adapter;

    (void)state;
    assert_int_equal(apr_adapter_open(&adapter, with(key, zero, sizeof key - 1), NULL), APR_OK);
    assert_true(adapter.changes[0].scale == 1.0);
    apr_adapter_close(&adapter);
}

/* A pair of those shapes for `name`, numbers counting up, written by our own sink. */
static const char *pair(const char *name, const apr_tensor *a, const apr_tensor *b)
{
    static float numbers[64];
    apr_model m = {.format = APR_FORMAT_GGUF, .origin.format = APR_FORMAT_GGUF, .naming = APR_NAMING_GGML, .path = "made"};
    const apr_sink_options options = {.overwrite = true, .allow_loss = true};
    apr_error err = {0};
    apr_sink *sink;

    for (int i = 0; i < 64; i++) numbers[i] = (float)i;
    m.kv.arena = &m.arena;
    assert_int_equal(apr_kv_set_string(&m.kv, "general.architecture", apr_str_of("llama"), NULL), APR_OK);
    assert_int_equal(apr_kv_set_string(&m.kv, "general.type", apr_str_of("adapter"), NULL), APR_OK);
    assert_int_equal(apr_kv_set_string(&m.kv, "adapter.type", apr_str_of("lora"), NULL), APR_OK);
    assert_int_equal(apr_kv_set_f32(&m.kv, "adapter.lora.alpha", 6.0f, NULL), APR_OK);
    m.tensors = apr_arena_array(&m.arena, 2, sizeof *m.tensors);
    m.n_tensors = 2;
    for (size_t i = 0; i < 2; i++) {
        m.tensors[i] = i == 0 ? *a : *b;
        m.tensors[i].name = apr_arena_print(&m.arena, "%s.lora_%c", name, i == 0 ? 'a' : 'b');
        m.tensors[i].dtype = APR_F32;
        assert_int_equal(apr_tensor_size(&m.tensors[i], "made", NULL), APR_OK);
    }
    if (apr_sink_open(&sink, APR_FORMAT_GGUF, in_work("pair.gguf"), &m, &options, &err) != APR_OK) fail_msg("%s", err.text);
    for (size_t i = 0; i < 2; i++) assert_int_equal(apr_sink_put(sink, numbers, m.tensors[i].n_bytes, NULL), APR_OK);
    assert_int_equal(apr_sink_finish(sink, NULL), APR_OK);
    apr_arena_close(&m.arena);
    return in_work("pair.gguf");
}

/* a has a row for each token there, and b one for each column of the embedding. */
static void an_embedding_is_transposed(void **state)
{
    const apr_tensor a = {.rank = 2, .dims = {5, 2}}, b = {.rank = 2, .dims = {3, 2}};
    apr_adapter adapter;
    apr_error err = {0};

    (void)state;
    if (apr_adapter_open(&adapter, pair("token_embd.weight", &a, &b), &err) != APR_OK) fail_msg("%s", err.text);
    const apr_adapter_change *const c = &adapter.changes[0];
    assert_string_equal(c->name, "token_embd.weight");
    assert_int_equal(c->b->dims[0], 5);
    assert_int_equal(c->b->dims[1], 2);
    assert_int_equal(c->a->dims[0], 2);
    assert_int_equal(c->a->dims[1], 3);
    assert_true(c->scale == 3.0);
    apr_adapter_close(&adapter);
}

static void a_stack_for_experts_is_refused(void **state)
{
    const apr_tensor a = {.rank = 3, .dims = {2, 2, 4}}, b = {.rank = 3, .dims = {2, 4, 2}};
    apr_adapter adapter;
    apr_error err = {0};

    (void)state;
    assert_int_equal(apr_adapter_open(&adapter, pair("blk.0.ffn_up_exps.weight", &a, &b), &err), APR_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "'blk.0.ffn_up_exps.weight.lora_a' is a stack of experts"));
}

static void what_is_not_a_pair_is_named(void **state)
{
#define CHANGE(from, to) from, to, sizeof from - 1
    static const struct {
        const char *from, *to;
        size_t n;
        apr_status status;
        const char *words;
    } damages[] = {
        {CHANGE("general.type\x08\0\0\0\x07\0\0\0\0\0\0\0adapter", "general.type\x08\0\0\0\x07\0\0\0\0\0\0\0adaptor"), APR_E_USAGE,
         "is a model, not an adapter"},
        {CHANGE("\x04\0\0\0\0\0\0\0lora", "\x04\0\0\0\0\0\0\0lore"), APR_E_UNSUPPORTED, "adapter.type is not 'lora'"},
        {CHANGE("adapter.lora.alpha\6\0\0\0\0\0\0\x41", "adapter.lora.alpha\6\0\0\0\0\0\xc0\x7f"), APR_E_DAMAGED, "not a finite number"},
        {CHANGE("blk.2.attn_v.weight.lora_b", "blk.2.attn_v.weight.lora_c"), APR_E_DAMAGED, "'blk.2.attn_v.weight.lora_a' has no lora_b"},
        {CHANGE("blk.2.attn_v.weight.lora_a", "blk.2.attn_v.weight.lora_c"), APR_E_UNSUPPORTED, "is neither a lora_a nor a lora_b"},
        {CHANGE("blk.1.attn_v.weight.lora_a", "blk.9.attn_v.weight.lora_a"), APR_E_DAMAGED, "has no lora_b"},
        {CHANGE("blk.1.attn_q.weight.lora_b\2\0\0\0\4\0\0\0\0\0\0\0\x30", "blk.1.attn_q.weight.lora_b\2\0\0\0\2\0\0\0\0\0\0\0\x60"),
         APR_E_DAMAGED, "have different ranks"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        apr_adapter adapter;
        apr_error err = {0};
        const apr_status status = apr_adapter_open(&adapter, with(damages[i].from, damages[i].to, damages[i].n), &err);
        if (status != damages[i].status || strstr(err.text, damages[i].words) == NULL)
            fail_msg("status %d instead of %d, '%s' is not in '%s'", (int)status, (int)damages[i].status, damages[i].words, err.text);
    }
}

static void a_model_is_not_an_adapter(void **state)
{
    apr_adapter adapter;
    apr_error err = {0};

    (void)state;
    assert_int_equal(apr_adapter_open(&adapter, "tests/data/llama-rows.gguf", &err), APR_E_USAGE);
    assert_non_null(strstr(err.text, "is a model, not an adapter"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_are_changes_under_ggmls_names), cmocka_unit_test(without_alpha_the_scale_is_1),
        cmocka_unit_test(an_embedding_is_transposed),          cmocka_unit_test(a_stack_for_experts_is_refused),
        cmocka_unit_test(what_is_not_a_pair_is_named),         cmocka_unit_test(a_model_is_not_an_adapter),
    };
    return cmocka_run_group_tests(tests, make_work, remove_work);
}
