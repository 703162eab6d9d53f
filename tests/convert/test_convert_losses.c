/* convert/: what a conversion cannot keep is refused or named, and whatever is written can be read again. */
#define _XOPEN_SOURCE 700
#include "convert/convert.h"
#include "convert/naming.h"
#include "formats/number/half.h"
#include "tests/support/conversion.h"
#include "tests/support/family_model.h"
#include "tests/support/work_folder.h"

static apr_status convert(const char *in, const char *out, bool allow_loss, apr_error *err)
{
    return try_conversion(in, out, &(apr_convert_options){.sink = {.allow_loss = allow_loss}}, err);
}

static void must(const char *in, const char *out, bool allow_loss)
{
    apr_error err = {0};
    if (convert(in, out, allow_loss, &err) != APR_OK) fail_msg("%s", err.text);
}

/* Refused with these words, and nothing is left of it. */
static void must_not(const char *in, const char *out, const char *words)
{
    apr_error err = {0};
    assert_int_equal(convert(in, out, false, &err), APR_E_UNSUPPORTED);
    if (strstr(err.text, words) == NULL) fail_msg("'%s' instead of '%s'", err.text, words);
    assert_int_equal(access(out, F_OK), -1);
}

static void open_or_fail(apr_model *m, const char *path)
{
    apr_error err = {0};
    if (apr_model_open(m, path, &err) != APR_OK) fail_msg("%s", err.text);
}

/* Copies a small file with the first `from` in it replaced. */
static void edit_file(const char *path, const char *from, const char *to)
{
    apr_map map;
    char text[8192];
    assert_int_equal(apr_map_open(&map, path, NULL), APR_OK);
    assert_true(map.n_bytes < sizeof text - 256);
    memcpy(text, map.data, map.n_bytes);
    text[map.n_bytes] = '\0';
    apr_map_close(&map);
    char *const at = strstr(text, from);
    assert_non_null(at);
    char rest[8192];
    strcpy(rest, at + strlen(from));
    const size_t n = (size_t)(at - text) + (size_t)snprintf(at, sizeof text - (size_t)(at - text), "%s%s", to, rest);
    write_file(path, text, n);
}

static void make_family(const char *family, const char *out)
{
    char dir[256];
    apr_error err = {0};
    snprintf(dir, sizeof dir, "tests/data/families/%s", family);
    if (family_write(dir, out, NULL, &err) != APR_OK) fail_msg("%s", err.text);
}

/* --- mistral --- */

static void mistral_goes_out_as_llama_and_comes_back_as_mistral(void **state)
{
    apr_model gguf, back, source;
    apr_str arch;
    char config[256];

    (void)state;
    make_family("mistral", in_work("mistral"));
    snprintf(config, sizeof config, "%s/config.json", in_work("mistral"));
    edit_file(config, "\"sliding_window\": 8", "\"sliding_window\": null");
    must(in_work("mistral"), in_work("mistral.gguf"), false);
    open_or_fail(&gguf, in_work("mistral.gguf"));
    assert_true(apr_kv_get_string(&gguf.kv, "general.architecture", &arch) && apr_str_is(arch, "llama"));
    assert_non_null(apr_kv_find(&gguf.kv, "llama.block_count"));
    assert_non_null(apr_kv_find(&gguf.kv, "llama.vocab_size")); /* without a tokenizer nothing else says it */
    assert_string_equal(gguf.hparams.architecture, "mistral");
    must(in_work("mistral.gguf"), in_work("mistral-back"), false);
    open_or_fail(&back, in_work("mistral-back"));
    open_or_fail(&source, in_work("mistral"));
    assert_string_equal(back.hparams.architecture, "mistral");
    assert_string_equal(back.hparams.hf_class, "MistralForCausalLM");
    assert_int_equal(back.hparams.sliding_window, 0); /* the class would suppose 4096 */
    assert_int_equal(back.n_tensors, source.n_tensors);
    for (size_t i = 0; i < source.n_tensors; i++) {
        const apr_tensor *const a = &source.tensors[i], *const b = apr_model_find(&back, a->name);
        assert_non_null(b);
        if (a->rank < 2) continue; /* norms are f32 by now */
        assert_int_equal(a->n_bytes, b->n_bytes);
        assert_memory_equal(a->data, b->data, a->n_bytes); /* rotary orders and all */
    }
    apr_model_close(&source);
    apr_model_close(&back);
    apr_model_close(&gguf);
}

static void a_window_is_carried_for_our_own_reader(void **state)
{
    apr_model m;

    (void)state;
    make_family("mistral", in_work("window"));
    must(in_work("window"), in_work("window.gguf"), false);
    open_or_fail(&m, in_work("window.gguf"));
    assert_int_equal(m.hparams.sliding_window, 8);
    assert_non_null(m.hparams.layer_kinds);
    for (int64_t i = 0; i < m.hparams.num_layers; i++) assert_int_equal(m.hparams.layer_kinds[i], APR_LAYER_SLIDING);
    apr_model_close(&m);
}

/* What no program here does stays known through every format. */
static void a_refused_activation_stays_refused(void **state)
{
    static const char *const paths[] = {"gelu.gguf", "gelu.apr", "gelu-2.gguf"};
    char config[256];
    apr_model m;

    (void)state;
    make_family("llama", in_work("gelu"));
    snprintf(config, sizeof config, "%s/config.json", in_work("gelu"));
    edit_file(config, "\"hidden_act\": \"silu\"", "\"hidden_act\": \"gelu\"");
    must_not(in_work("gelu"), in_work("gelu.gguf"), "hidden_act");
    must(in_work("gelu"), in_work("gelu.gguf"), true);
    must(in_work("gelu.gguf"), in_work("gelu.apr"), false);
    must(in_work("gelu.apr"), in_work("gelu-2.gguf"), false);
    for (size_t i = 0; i < 3; i++) {
        open_or_fail(&m, in_work(paths[i]));
        assert_non_null(m.hparams.refusal);
        assert_non_null(strstr(m.hparams.refusal, "hidden_act"));
        apr_model_close(&m);
    }
    must_not(in_work("gelu.gguf"), in_work("gelu-back"), "hidden_act");
}

/* --- models made here --- */

/* Writes the layout as it is; its tensors have their data. */
static apr_status write_layout(const apr_model *layout, const char *path, apr_error *err)
{
    const apr_sink_options options = {.overwrite = true, .allow_loss = true};
    apr_sink *sink;

    APR_TRY(apr_sink_open(&sink, apr_format_of_path(path), path, layout, &options, err));
    for (size_t i = 0; i < layout->n_tensors; i++) {
        const apr_status status = apr_sink_put(sink, layout->tensors[i].data, (size_t)layout->tensors[i].n_bytes, err);
        if (status == APR_OK) continue;
        apr_sink_abandon(sink);
        return status;
    }
    return apr_sink_finish(sink, err);
}

static void must_write(const apr_model *layout, const char *path)
{
    apr_error err = {0};
    if (write_layout(layout, path, &err) != APR_OK) fail_msg("%s", err.text);
}

/* A GGUF of llama's with biases, which no key of it announces. */
static void biases_in_the_tensors_stand_in_config_json(void **state)
{
    static const float zeros[64];
    static const struct {
        const char *name;
        int64_t n;
    } biases[] = {{"blk.0.attn_q.bias", 48},   {"blk.0.attn_k.bias", 24}, {"blk.0.attn_v.bias", 24},  {"blk.0.attn_output.bias", 32},
                  {"blk.0.ffn_gate.bias", 56}, {"blk.0.ffn_up.bias", 56}, {"blk.0.ffn_down.bias", 32}};
    apr_model m, back;

    (void)state;
    make_family("llama", in_work("llama"));
    must(in_work("llama"), in_work("plain.gguf"), false);
    must(in_work("plain.gguf"), in_work("plain"), false);
    open_or_fail(&back, in_work("plain"));
    assert_false(back.hparams.attention_bias || back.hparams.mlp_bias);
    apr_model_close(&back);
    for (size_t n = 4; n <= 7; n += 3) { /* of the attention; also of the feed-forward */
        open_or_fail(&m, in_work("plain.gguf"));
        apr_tensor *const tensors = apr_arena_array(&m.arena, m.n_tensors + n, sizeof *tensors);
        memcpy(tensors, m.tensors, m.n_tensors * sizeof *tensors);
        for (size_t i = 0; i < n; i++)
            tensors[m.n_tensors++] = (apr_tensor){.name = biases[i].name,
                                                  .dtype = APR_F32,
                                                  .rank = 1,
                                                  .dims = {biases[i].n},
                                                  .data = (const uint8_t *)zeros,
                                                  .n_bytes = 4 * (uint64_t)biases[i].n};
        m.tensors = tensors;
        must_write(&m, in_work("biased.gguf"));
        apr_model_close(&m);
        must(in_work("biased.gguf"), in_work("biased"), false);
        open_or_fail(&back, in_work("biased"));
        assert_true(back.hparams.attention_bias);
        assert_int_equal(back.hparams.mlp_bias, n == 7);
        apr_model_close(&back);
    }
}

/* --- what no field is for --- */

static const char rows_gguf[] = "tests/data/llama-rows.gguf";

static void back_byte_for_byte(const char *name)
{
    must(name, in_work("through.apr"), false);
    must(in_work("through.apr"), in_work("through.gguf"), false);
    assert_same_file(name, in_work("through.gguf"));
    must(name, in_work("direct.gguf"), false);
    assert_same_file(name, in_work("direct.gguf"));
}

/* Gaps before, between and after the tensors, with and without something in them; one of a size and a monotony that no
 * reader would believe in a compressed form. */
static void gaps_between_tensors_come_back(void **state)
{
    enum { HUGE_BYTES = 3 << 20 };
    static uint8_t huge[HUGE_BYTES], junk[64];
    apr_model m;

    (void)state;
    for (size_t i = 0; i < sizeof junk; i++) junk[i] = (uint8_t)(i * 37 + 1);
    memset(huge, 'x', sizeof huge);
    for (int row = 0; row < 6; row++) {
        open_or_fail(&m, rows_gguf);
        const size_t n = m.n_tensors;
        const apr_gap rows[][3] = {
            {{1, junk, 64}},
            {{2, NULL, 4096}},
            {{n + 1, junk, 5}},
            {{n + 1, NULL, 0}},
            {{2, junk, 32}, {n + 1, junk, 64}},
            {{1, huge, sizeof huge}, {2, NULL, 1 << 21}, {n + 1, NULL, 1}},
        };
        static const size_t n_gaps[] = {1, 1, 1, 1, 2, 3};
        apr_gap gaps[3];
        memcpy(gaps, rows[row], sizeof gaps);
        m.origin.gaps = gaps;
        m.origin.n_gaps = n_gaps[row];
        m.origin.n_gap_tensors = n;
        must_write(&m, in_work("hole.gguf"));
        apr_model_close(&m);
        open_or_fail(&m, in_work("hole.gguf"));
        if (row != 3) assert_int_equal(m.origin.n_gaps, n_gaps[row]); /* no padding at the end may be what is usual */
        apr_model_close(&m);
        back_byte_for_byte(in_work("hole.gguf"));
    }
}

/* A gap that leaves a tensor off its alignment may be in a foreign APR file; no GGUF is made of it. */
static void gaps_that_do_not_fit_are_refused(void **state)
{
    static const uint8_t junk[8] = {1};
    const apr_gap gap = {2, junk, 7};
    apr_model m;
    apr_error err = {0};

    (void)state;
    open_or_fail(&m, rows_gguf);
    m.origin.gaps = &gap;
    m.origin.n_gaps = 1;
    m.origin.n_gap_tensors = m.n_tensors;
    must_write(&m, in_work("gap.apr"));
    apr_model_close(&m);
    assert_int_equal(convert(in_work("gap.apr"), in_work("gap.gguf"), false, &err), APR_E_DAMAGED);
    assert_non_null(strstr(err.text, "multiples of 32"));
    assert_int_equal(access(in_work("gap.gguf"), F_OK), -1);
}

/* --- whatever a writer accepts, its reader accepts --- */

static uint32_t draw(uint32_t *seed, uint32_t n)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 8) % n;
}

/* Bytes with NULs, broken UTF-8, quotes and spaces among them. */
static apr_str strange_text(apr_arena *arena, uint32_t *seed)
{
    static const char *const parts[] = {"a", "\0", "\xff", "\"", "\\", "\n", "é", "\xed\xa0\x80", " ", "<0x41>"};
    static const size_t lengths[] = {1, 1, 1, 1, 1, 1, 2, 3, 1, 6};
    const size_t n = draw(seed, 6);
    char *const text = apr_arena_alloc(arena, 64);
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t part = draw(seed, sizeof parts / sizeof *parts);
        memcpy(text + at, parts[part], lengths[part]);
        at += lengths[part];
    }
    return (apr_str){text, at};
}

static void make_strange(apr_model *m, uint32_t *seed)
{
    static const char *const texts[] = {"general.name",       "general.author",          "general.license",
                                        "general.source.url", "tokenizer.chat_template", "general.description"};
    const size_t n = 6;
    apr_str *const tokens = apr_arena_array(&m->arena, n, sizeof *tokens), *const merges = apr_arena_array(&m->arena, 2, sizeof *merges);

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (draw(seed, 3) == 0) assert_int_equal(apr_kv_set_string(&m->kv, texts[i], strange_text(&m->arena, seed), NULL), APR_OK);
    for (size_t i = 0; i < n; i++) tokens[i] = draw(seed, 2) ? strange_text(&m->arena, seed) : (apr_str){&"abcdef"[i], 1};
    for (size_t i = 0; i < 2; i++) merges[i] = draw(seed, 2) ? (apr_str){"a b", 3} : (apr_str){"b c", 3};
    const apr_kv lists[] = {
        {.key = apr_str_of("tokenizer.ggml.tokens"),
         .type = APR_KV_ARRAY,
         .elem_type = APR_KV_STRING,
         .n_elems = n,
         .value.strings = tokens},
        {.key = apr_str_of("tokenizer.ggml.merges"),
         .type = APR_KV_ARRAY,
         .elem_type = APR_KV_STRING,
         .n_elems = 2,
         .value.strings = merges},
    };
    assert_int_equal(apr_kv_set_string(&m->kv, "tokenizer.ggml.model", apr_str_of(draw(seed, 2) ? "llama" : "gpt2"), NULL), APR_OK);
    assert_int_equal(apr_kv_set_string(&m->kv, "tokenizer.ggml.pre", apr_str_of(draw(seed, 2) ? "qwen2" : "unheard-of"), NULL), APR_OK);
    for (size_t i = 0; i < 2; i++) assert_int_equal(apr_kv_set(&m->kv, &lists[i], NULL), APR_OK);
}

static void whatever_is_written_can_be_read(void **state)
{
    static const char *const outs[] = {"strange.apr", "strange.gguf", "strange"};
    uint32_t seed = 5;
    int n_written = 0, n_refused = 0;

    (void)state;
    for (int round = 0; round < 120; round++) {
        apr_model m, again;
        apr_error err = {0};
        open_or_fail(&m, rows_gguf);
        make_strange(&m, &seed);
        const apr_status made = write_layout(&m, in_work("source.gguf"), &err);
        apr_model_close(&m);
        if (made != APR_OK || apr_model_open(&m, in_work("source.gguf"), NULL) != APR_OK) fail_msg("%s", err.text);
        apr_model_close(&m);
        for (size_t i = 0; i < 3; i++) {
            for (int allow = 0; allow < 2; allow++) {
                err = (apr_error){0};
                const apr_status status = convert(in_work("source.gguf"), in_work(outs[i]), allow, &err);
                n_refused += status != APR_OK;
                if (status != APR_OK && status != APR_E_UNSUPPORTED) fail_msg("%s", err.text);
                if (status != APR_OK) assert_true(strlen(err.text) > 0 && !allow);
                if (status != APR_OK) continue;
                n_written++;
                open_or_fail(&again, in_work(outs[i]));
                apr_model_close(&again);
            }
        }
        must(in_work("strange.apr"), in_work("again.gguf"), false);
        assert_same_file(in_work("source.gguf"), in_work("again.gguf"));
    }
    print_message("%d written and read, %d refused\n", n_written, n_refused);
    assert_true(n_refused > 50);
}

/* Texts about a model that a GGUF has and a checkpoint's header keeps come back into a GGUF. */
static void texts_about_a_model_come_back(void **state)
{
    apr_model m;
    apr_str text;

    (void)state;
    make_family("llama", in_work("about"));
    must(in_work("about"), in_work("about.gguf"), false);
    open_or_fail(&m, in_work("about.gguf"));
    assert_int_equal(apr_kv_set_string(&m.kv, "general.author", apr_str_of("somebody"), NULL), APR_OK);
    must_write(&m, in_work("signed.gguf"));
    apr_model_close(&m);
    must(in_work("signed.gguf"), in_work("signed"), false);
    must(in_work("signed"), in_work("again.gguf"), false);
    open_or_fail(&m, in_work("again.gguf"));
    assert_true(apr_kv_get_string(&m.kv, "general.author", &text) && apr_str_is(text, "somebody"));
    assert_true(apr_kv_get_string(&m.kv, "general.name", &text) && apr_str_is(text, "about"));
    apr_model_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mistral_goes_out_as_llama_and_comes_back_as_mistral),
        cmocka_unit_test(a_window_is_carried_for_our_own_reader),
        cmocka_unit_test(a_refused_activation_stays_refused),
        cmocka_unit_test(biases_in_the_tensors_stand_in_config_json),
        cmocka_unit_test(gaps_between_tensors_come_back),
        cmocka_unit_test(gaps_that_do_not_fit_are_refused),
        cmocka_unit_test(whatever_is_written_can_be_read),
        cmocka_unit_test(texts_about_a_model_come_back),
    };
    return cmocka_run_group_tests(tests, make_work, remove_work);
}
