/* formats/gguf/gguf.h: hyperparameters and tokenizers, out of GGUF's keys and into them. */
#include "formats/shape/gguf_hparams.h"
#include "formats/vocab/gguf_vocab.h"
#include "tests/support/gguf_key_fixture.h"

#include <math.h>
#include <unistd.h>

#define BUNDLED "tests/data/tiny-qwen2/tiny-qwen2-Q4_K_M.gguf"

/* --- hyperparameters --- */

static void the_bundled_model_says_what_it_is(void **state)
{
    apr_model m;
    apr_error err = {0};

    (void)state;
    assert_int_equal(apr_gguf_open(&m, BUNDLED, &err), APR_OK);
    assert_string_equal(m.hparams.architecture, "qwen2");
    assert_int_equal(m.hparams.hidden_size, 256);
    assert_int_equal(m.hparams.num_layers, 2);
    assert_int_equal(m.hparams.num_heads, 4);
    assert_int_equal(m.hparams.num_kv_heads, 2);
    assert_int_equal(m.hparams.head_dim, 64); /* not in the file: 256 / 4 */
    assert_int_equal(m.hparams.intermediate_size, 512);
    assert_int_equal(m.hparams.max_position_embeddings, 1024);
    assert_int_equal(m.hparams.vocab_size, 2048); /* from the tokens */
    assert_true(m.hparams.rope_theta == 1e6);
    assert_true(m.hparams.rms_norm_eps == 1e-6); /* as config.json has it, not as an f32 looks in a double */
    assert_true(m.hparams.tie_word_embeddings);

    assert_int_equal(m.vocab.kind, APR_VOCAB_BPE);
    assert_int_equal(m.vocab.n_tokens, 2048);
    assert_true(apr_str_is(m.vocab.tokens[2046], "<|im_end|>"));
    assert_int_equal(m.vocab.types[2046], APR_TOKEN_CONTROL);
    assert_int_equal(m.vocab.types[0], APR_TOKEN_NORMAL);
    assert_int_equal(m.vocab.n_merges, 1789);
    assert_true(apr_str_is(m.vocab.merges[0], "Ġ") && apr_str_is(m.vocab.merges[1], "t"));
    assert_string_equal(m.vocab.pre, "qwen2");
    assert_non_null(m.vocab.pattern);
    assert_true(m.vocab.nfc);
    assert_false(m.vocab.add_bos || m.vocab.add_eos || m.vocab.byte_fallback);
    assert_int_equal(m.vocab.bos_id, -1);
    assert_int_equal(m.vocab.eos_id, 2046);
    assert_int_equal(m.vocab.pad_id, 2045);
    assert_int_equal(m.vocab.n_stop_ids, 2);
    assert_int_equal(m.vocab.stop_ids[0], 2046);
    assert_int_equal(m.vocab.stop_ids[1], 2045);
    assert_non_null(strstr(m.vocab.chat_template, "<|im_start|>"));
    apr_model_close(&m);
}

static void arrays_by_layer_give_their_largest_entry(void **state)
{
    static const uint32_t kv_heads[] = {0, 8, 0, 4};
    fixture *const f = *state;
    set_text(f, "general.architecture", "lfm2");
    set_u32(f, "lfm2.block_count", 4);
    set_u32(f, "lfm2.attention.head_count", 16);
    set_numbers(f, "lfm2.attention.head_count_kv", APR_KV_U32, 4, kv_heads);
    assert_int_equal(read_hparams(f), APR_OK);
    assert_int_equal(f->h.num_kv_heads, 8);
    assert_int_equal(f->h.num_heads, 16);
}

static void sliding_layers_come_from_the_file_or_the_architecture(void **state)
{
    static const uint8_t by_layer[] = {1, 1, 0, 1};
    fixture *const f = *state;
    set_text(f, "general.architecture", "gpt-oss");
    set_u32(f, "gpt-oss.block_count", 4);
    assert_int_equal(read_hparams(f), APR_OK);
    assert_null(f->h.layer_kinds); /* no window, no sliding */
    assert_string_equal(f->h.architecture, "gpt_oss");
    set_u32(f, "gpt-oss.attention.sliding_window", 128);
    assert_int_equal(read_hparams(f), APR_OK);
    for (int i = 0; i < 4; i++) assert_int_equal(f->h.layer_kinds[i], i % 2 == 0 ? APR_LAYER_SLIDING : APR_LAYER_FULL);
    set_numbers(f, "gpt-oss.attention.sliding_window_pattern", APR_KV_BOOL, 4, by_layer);
    assert_int_equal(read_hparams(f), APR_OK);
    for (int i = 0; i < 4; i++) assert_int_equal(f->h.layer_kinds[i], by_layer[i] ? APR_LAYER_SLIDING : APR_LAYER_FULL);
    set_u32(f, "gpt-oss.attention.sliding_window_pattern", 4);
    assert_int_equal(read_hparams(f), APR_OK);
    for (int i = 0; i < 4; i++) assert_int_equal(f->h.layer_kinds[i], i < 3 ? APR_LAYER_SLIDING : APR_LAYER_FULL);
}

static void hostile_numbers_are_kept_from_loops_and_divisions(void **state)
{
    fixture *const f = *state;
    set_text(f, "general.architecture", "gpt-oss");
    apr_kv_set_int(&f->kv, "gpt-oss.block_count", APR_KV_I64, INT64_MAX, &f->err);
    apr_kv_set_int(&f->kv, "gpt-oss.attention.sliding_window_pattern", APR_KV_I64, -5, &f->err);
    apr_kv_set_int(&f->kv, "gpt-oss.ssm.time_step_rank", APR_KV_I64, -1, &f->err);
    apr_kv_set_int(&f->kv, "gpt-oss.ssm.inner_size", APR_KV_I64, INT64_MIN, &f->err);
    set_u32(f, "gpt-oss.attention.sliding_window", 1);
    set_f32(f, "gpt-oss.rope.freq_base", NAN);
    assert_int_equal(read_hparams(f), APR_OK);
    assert_int_equal(apr_hparams_complete(&f->h, &f->arena, "keys.gguf", &f->err), APR_E_DAMAGED);

    f->err = (apr_error){0};
    apr_kv_set_string(&f->kv, "general.architecture", (apr_str){"a\0b", 3}, &f->err);
    assert_int_equal(read_hparams(f), APR_E_DAMAGED);
    assert_non_null(strstr(f->err.text, "keys.gguf: general.architecture"));
    apr_kv_remove(&f->kv, "general.architecture");
    assert_int_equal(read_hparams(f), APR_OK); /* bare tensors */
    assert_string_equal(f->h.architecture, "");
}

static void scalings_go_out_and_come_back(void **state)
{
    static const apr_rope_scaling rows[] = {
        {.kind = APR_ROPE_PLAIN},
        {.kind = APR_ROPE_LINEAR, .factor = 4},
        {.kind = APR_ROPE_YARN,
         .factor = 32,
         .original_context = 4096,
         .beta_fast = 32,
         .beta_slow = 1,
         .attention_factor = 0.7,
         .no_truncate = true},
    };
    fixture *const f = *state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const apr_vocab none = {.kind = APR_VOCAB_NONE};
        const apr_hparams h = {.architecture = "gpt_oss",
                               .num_layers = 2,
                               .hidden_size = 64,
                               .num_heads = 4,
                               .head_dim = 16,
                               .rope = rows[i],
                               .rope_theta = 150000,
                               .rms_norm_eps = 1e-5,
                               .intermediate_size = 96,
                               .num_experts = 4};
        f->kv.n_items = 0;
        assert_int_equal(apr_gguf_keys(&h, &none, "x", 38, &f->kv, &f->err), APR_OK);
        assert_int_equal(read_hparams(f), APR_OK);
        assert_int_equal(f->h.rope.kind, rows[i].kind);
        assert_true(f->h.rope.factor == rows[i].factor);
        assert_int_equal(f->h.rope.original_context, rows[i].original_context);
        assert_true(f->h.rope.beta_fast == rows[i].beta_fast && f->h.rope.beta_slow == rows[i].beta_slow);
        assert_true(f->h.rope.attention_factor == rows[i].attention_factor);
        assert_int_equal(f->h.rope.no_truncate, rows[i].no_truncate);
        assert_true(f->h.rms_norm_eps == 1e-5);
        assert_int_equal(f->h.moe_intermediate_size, 96); /* gpt-oss: config.json's intermediate_size is an expert's */
    }
}

/* llama.cpp multiplies by rope.scaling.attn_factor what YaRN has anyway: 0.1 ln(factor) + 1. */
static void yarn_s_attention_factor_is_a_product(void **state)
{
    static const double usual = 0.1 * 1.3862943611198906 + 1.0; /* factor 4 */
    static const struct {
        float key;
        double factor; /* 0: the usual one */
    } rows[] = {{1.0f, 0.0}, {2.0f, 2.0 * usual}, {(float)(1.0 / usual), 1.0}, {(float)(0.7 / usual), 0.7}};
    static const double stated[] = {0.7, 1.0, 1.25, 1.1386294361119891, 3.14159265358979};
    const apr_vocab none = {.kind = APR_VOCAB_NONE};
    fixture *const f = *state;
    apr_hparams h = {.architecture = "qwen2",
                     .num_layers = 2,
                     .hidden_size = 64,
                     .num_heads = 4,
                     .head_dim = 16,
                     .rope = {.kind = APR_ROPE_YARN, .factor = 4, .original_context = 1024},
                     .rope_theta = 1e6,
                     .rms_norm_eps = 1e-5,
                     .intermediate_size = 96};
    double value;

    assert_int_equal(apr_gguf_keys(&h, &none, "x", 0, &f->kv, &f->err), APR_OK);
    assert_null(apr_kv_find(&f->kv, "qwen2.rope.scaling.attn_factor"));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        apr_kv_set_f32(&f->kv, "qwen2.rope.scaling.attn_factor", rows[i].key, &f->err);
        assert_int_equal(read_hparams(f), APR_OK);
        assert_true(fabs(f->h.rope.attention_factor - rows[i].factor) < 1e-6);
    }
    for (size_t i = 0; i < sizeof stated / sizeof *stated; i++) {
        h.rope.attention_factor = stated[i];
        f->kv.n_items = 0;
        assert_int_equal(apr_gguf_keys(&h, &none, "x", 0, &f->kv, &f->err), APR_OK);
        const bool is_there = apr_kv_get_real(&f->kv, "qwen2.rope.scaling.attn_factor", &value);
        assert_int_equal(is_there, fabs(stated[i] - usual) > 1e-6);
        assert_true(!is_there || fabs(value * usual - stated[i]) < 1e-6);
        assert_null(apr_kv_find(&f->kv, "qwen2.rope.scaling.yarn_attn_factor"));
        assert_int_equal(read_hparams(f), APR_OK);
        assert_true(f->h.rope.attention_factor == stated[i]); /* to the bit */
    }
}

/* Llama 3.2 1B: theta 500,000, head 64, factor 32. The three divisors between 1 and 32 were computed in Python, from the rule as
 * transformers states it (by wavelengths). */
static void llama3_scaling_is_found_by_its_divisors(void **state)
{
    static const apr_rope_scaling llama32 = {
        .kind = APR_ROPE_LLAMA3, .factor = 32, .low_freq_factor = 1, .high_freq_factor = 4, .original_context = 8192};
    float divisors[32];
    apr_tensor t = {.name = "rope_freqs.weight",
                    .dtype = APR_F32,
                    .rank = 1,
                    .dims = {32},
                    .data = (const uint8_t *)divisors,
                    .n_bytes = sizeof divisors};
    apr_model model = {.path = "x.gguf", .tensors = &t, .n_tensors = 1, .hparams = {.head_dim = 64, .rope_theta = 500000}};
    apr_rope_scaling *const rope = &model.hparams.rope;

    (void)state;
    assert_int_equal(apr_model_index_names(&model, NULL), APR_OK);
    for (int i = 0; i < 32; i++) divisors[i] = (float)apr_rope_divisor(&llama32, 500000, 64, i);
    assert_true(divisors[0] == 1.0f && divisors[14] == 1.0f && divisors[18] == 32.0f && divisors[31] == 32.0f);
    assert_float_equal(divisors[15], 1.6513292457638982, 1e-6);
    assert_float_equal(divisors[16], 3.2922621029408843, 1e-6);
    assert_float_equal(divisors[17], 9.66672897875329, 1e-5);
    assert_int_equal(apr_gguf_rope_read(&model, NULL), APR_OK);
    assert_int_equal(rope->kind, APR_ROPE_LLAMA3);
    assert_true(rope->factor == 32 && rope->high_freq_factor == 4);
    assert_int_equal(rope->original_context, 8192);

    *rope = (apr_rope_scaling){0};
    divisors[16] = 2.5f; /* not by the rule: only the tensor knows */
    assert_int_equal(apr_gguf_rope_read(&model, NULL), APR_OK);
    assert_int_equal(rope->kind, APR_ROPE_PLAIN);
    divisors[16] = NAN;
    assert_int_equal(apr_gguf_rope_read(&model, NULL), APR_OK);
    assert_int_equal(rope->kind, APR_ROPE_PLAIN);
    apr_arena_close(&model.arena);
}

static void numbers_that_32_bits_cannot_say_are_refused(void **state)
{
    const apr_vocab none = {.kind = APR_VOCAB_NONE};
    const apr_hparams h = {.architecture = "llama", .hidden_size = (int64_t)1 << 33};
    fixture *const f = *state;
    assert_int_equal(apr_gguf_keys(&h, &none, NULL, 0, &f->kv, &f->err), APR_E_UNSUPPORTED);
    assert_non_null(strstr(f->err.text, "llama.embedding_length is 8589934592"));
}

/* --- keys as llama.cpp writes them --- */

static void assert_same_value(const apr_kv *a, const apr_kv *b)
{
    const apr_kv_list one = {.items = (apr_kv *)(uintptr_t)a, .n_items = 1}, other = {.items = (apr_kv *)(uintptr_t)b, .n_items = 1};
    const size_t n = (size_t)apr_kv_bytes(&one);
    if (apr_kv_bytes(&other) != n) fail_msg("'%s' has another type or length", a->key.text);
    uint8_t *const x = malloc(n), *const y = malloc(n);
    apr_kv_write(&one, x);
    apr_kv_write(&other, y);
    if (memcmp(x, y, n) != 0) fail_msg("'%s' has another value", a->key.text);
    free(x);
    free(y);
}

/* Makes the keys anew from what was understood of them: nothing that llama.cpp needs may be missing or different. */
static void assert_keys_can_be_written_again(const char *path)
{
    static const char *const not_ours[] = {"general.size_label"}; /* a count of parameters, for people */
    apr_model m;
    apr_error err = {0};
    apr_str name;
    int64_t file_type = 0;

    assert_int_equal(apr_gguf_open(&m, path, &err), APR_OK);
    apr_kv_list made = {.arena = &m.arena};
    assert_true(apr_kv_get_string(&m.kv, "general.name", &name));
    assert_true(apr_kv_get_int(&m.kv, "general.file_type", &file_type));
    const char *const name_text = apr_arena_copy(&m.arena, name.text, name.n_bytes);
    assert_int_equal(apr_gguf_keys(&m.hparams, &m.vocab, name_text, file_type, &made, &err), APR_OK);
    for (size_t i = 0; i < m.kv.n_items; i++) {
        const apr_kv *const theirs = &m.kv.items[i], *const ours = apr_kv_find(&made, theirs->key.text);
        if (apr_str_is(theirs->key, not_ours[0])) continue;
        if (ours == NULL) fail_msg("%s: '%s' is not made", path, theirs->key.text);
        assert_same_value(ours, theirs);
    }
    for (size_t i = 0; i < made.n_items; i++)
        if (apr_kv_find(&m.kv, made.items[i].key.text) == NULL) assert_string_equal(made.items[i].key.text, "tokenizer.aprkit.stop_ids");
    apr_model_close(&m);
}

static void the_keys_of_the_bundled_model_can_be_written_again(void **state)
{
    (void)state;
    assert_keys_can_be_written_again(BUNDLED);
}

static void the_keys_of_other_families_can_be_written_again(void **state)
{
    (void)state;
    assert_keys_can_be_written_again("tests/data/gguf/qwen3.gguf");
    assert_keys_can_be_written_again("tests/data/gguf/gpt_oss.gguf");
    assert_keys_can_be_written_again("tests/data/gguf/qwen35.gguf");
}

/* --- tokenizers --- */

static void a_sentencepiece_vocabulary_goes_out_and_comes_back(void **state)
{
    static const apr_str tokens[] = {S("<unk>"), S("<s>"), S("</s>"), S("<0x0A>"), S("▁the")};
    static const uint8_t types[] = {2, 3, 3, 6, 1};
    static const float scores[] = {0, 0, 0, 0, -1.5f};
    const apr_vocab v = {.kind = APR_VOCAB_SPM,
                         .n_tokens = 5,
                         .tokens = tokens,
                         .types = types,
                         .scores = scores,
                         .byte_fallback = true,
                         .escape_spaces = true,
                         .add_bos = true,
                         .bos_id = 1,
                         .eos_id = 2,
                         .unk_id = 0,
                         .pad_id = -1,
                         .stop_ids = {2},
                         .n_stop_ids = 1,
                         .chat_template = "{{ x }}"};
    const apr_hparams h = {.architecture = "llama"};
    fixture *const f = *state;

    assert_int_equal(apr_gguf_keys(&h, &v, "spm", 1, &f->kv, &f->err), APR_OK);
    assert_null(apr_kv_find(&f->kv, "tokenizer.aprkit.stop_ids"));
    assert_int_equal(read_vocab(f), APR_OK);
    assert_int_equal(f->v.kind, APR_VOCAB_SPM);
    assert_int_equal(f->v.n_tokens, 5);
    assert_memory_equal(f->v.types, types, 5);
    assert_memory_equal(f->v.scores, scores, sizeof scores);
    assert_true(f->v.byte_fallback && f->v.escape_spaces && f->v.add_bos && !f->v.add_eos);
    assert_false(f->v.add_space_prefix); /* written, because the default is true */
    assert_int_equal(f->v.unk_id, 0);
    assert_int_equal(f->v.pad_id, -1);
    assert_int_equal(f->v.n_stop_ids, 1);
    assert_string_equal(f->v.chat_template, "{{ x }}");
}

static void what_gguf_has_no_key_for_is_kept_under_our_own(void **state)
{
    static const apr_str tokens[] = {S("a"), S("b"), S("ab"), S("<e1>"), S("<e2>")};
    static const apr_str merges[] = {S("a"), S("b")};
    static const uint8_t types[] = {1, 1, 1, 3, 3};
    const apr_vocab v = {.kind = APR_VOCAB_BPE,
                         .n_tokens = 5,
                         .tokens = tokens,
                         .types = types,
                         .merges = merges,
                         .n_merges = 1,
                         .pattern = "\\w+|unknown",
                         .bos_id = -1,
                         .eos_id = 3,
                         .unk_id = -1,
                         .pad_id = -1,
                         .stop_ids = {4, 3},
                         .n_stop_ids = 2};
    fixture *const f = *state;

    assert_int_equal(apr_gguf_vocab_keys(&v, &f->kv, &f->err), APR_OK);
    assert_int_equal(read_vocab(f), APR_OK);
    assert_string_equal(f->v.pre, "default");
    assert_string_equal(f->v.pattern, "\\w+|unknown");
    assert_int_equal(f->v.n_stop_ids, 2);
    assert_int_equal(f->v.stop_ids[0], 3); /* the eos first */
    assert_int_equal(f->v.stop_ids[1], 4);
    assert_int_equal(f->v.n_merges, 1);
    assert_true(apr_str_is(f->v.merges[0], "a") && apr_str_is(f->v.merges[1], "b"));
}

/* Steps have a key of ours, unless GGUF has a name for them; a name brings its steps. */
static void steps_that_split_text_travel(void **state)
{
    static const apr_str tokens[] = {S("a"), S("b")}, merges[] = {S("a"), S("b")};
    static const apr_split splits[] = {{.pattern = "x+"}, {.pattern = "[ ,]", .behavior = APR_SPLIT_MERGED_WITH_NEXT, .letters = true}};
    apr_vocab v = {.kind = APR_VOCAB_BPE,
                   .n_tokens = 2,
                   .tokens = tokens,
                   .merges = merges,
                   .splits = splits,
                   .n_splits = 2,
                   .bos_id = -1,
                   .eos_id = 0,
                   .unk_id = -1,
                   .pad_id = -1,
                   .stop_ids = {0},
                   .n_stop_ids = 1};
    fixture *const f = *state;

    assert_int_equal(apr_gguf_vocab_keys(&v, &f->kv, &f->err), APR_OK);
    assert_int_equal(read_vocab(f), APR_OK);
    assert_null(f->v.pattern);
    assert_int_equal(f->v.n_splits, 2);
    assert_string_equal(f->v.splits[1].pattern, "[ ,]");
    assert_true(f->v.splits[1].behavior == APR_SPLIT_MERGED_WITH_NEXT && f->v.splits[1].letters && !f->v.splits[0].letters);

    static const apr_str odd[] = {S("isolated x"), S("odd y")};
    const apr_kv item = {
        .key = S("tokenizer.aprkit.splits"), .type = APR_KV_ARRAY, .elem_type = APR_KV_STRING, .n_elems = 2, .value.strings = odd};
    assert_int_equal(apr_kv_set(&f->kv, &item, &f->err), APR_OK);
    assert_int_equal(read_vocab(f), APR_E_DAMAGED);
    assert_non_null(strstr(f->err.text, "step 1 of tokenizer.aprkit.splits"));
}

static void a_name_brings_its_steps(void **state)
{
    static const apr_str tokens[] = {S("a"), S("b")}, merges[] = {S("a"), S("b")};
    const apr_pre_rule *const rule = apr_pre_find("deepseek-coder");
    apr_vocab v = {.kind = APR_VOCAB_BPE,
                   .n_tokens = 2,
                   .tokens = tokens,
                   .merges = merges,
                   .splits = rule->splits,
                   .n_splits = rule->n_splits,
                   .bos_id = -1,
                   .eos_id = 0,
                   .unk_id = -1,
                   .pad_id = -1,
                   .stop_ids = {0},
                   .n_stop_ids = 1};
    fixture *const f = *state;

    assert_int_equal(apr_gguf_vocab_keys(&v, &f->kv, &f->err), APR_OK);
    assert_null(apr_kv_find(&f->kv, "tokenizer.aprkit.splits"));
    assert_int_equal(read_vocab(f), APR_OK);
    assert_string_equal(f->v.pre, "deepseek-coder");
    assert_int_equal(f->v.n_splits, 5);
}

static void ids_outside_the_vocabulary_are_ignored(void **state)
{
    static const apr_str tokens[] = {S("a"), S("b")};
    fixture *const f = *state;
    set_text(f, "tokenizer.ggml.model", "gpt2");
    set_text(f, "tokenizer.ggml.pre", "llama-bpe");
    set_strings(f, "tokenizer.ggml.tokens", 2, tokens);
    set_u32(f, "tokenizer.ggml.bos_token_id", 2);
    set_u32(f, "tokenizer.ggml.eos_token_id", UINT32_MAX);
    set_u32(f, "tokenizer.ggml.eot_token_id", 1);
    assert_int_equal(read_vocab(f), APR_OK);
    assert_int_equal(f->v.bos_id, -1);
    assert_int_equal(f->v.eos_id, -1);
    assert_int_equal(f->v.n_stop_ids, 1);
    assert_int_equal(f->v.stop_ids[0], 1);
    assert_true(f->v.add_bos && f->v.ignore_merges); /* what llama-bpe leaves unsaid */
    assert_int_equal(f->v.types[1], APR_TOKEN_NORMAL);
}

static void an_unknown_tokenizer_is_absent_without_a_failure(void **state)
{
    fixture *const f = *state;
    set_text(f, "tokenizer.ggml.model", "rwkv");
    set_u32(f, "tokenizer.ggml.tokens", 1);
    assert_int_equal(read_vocab(f), APR_OK);
    assert_int_equal(f->v.kind, APR_VOCAB_NONE);
}

static void broken_tokenizers_are_refused_with_a_sentence(void **state)
{
    static const apr_str tokens[] = {S("a"), S("b")}, no_pair[] = {S("a b"), S("ab")}, no_left[] = {S(" b")}, no_right[] = {S("ab ")};
    static const uint32_t three[3] = {1, 1, 1};
    static const struct {
        const char *key;
        apr_kv item;
        const char *says;
    } rows[] = {
        {"tokenizer.ggml.tokens", {.type = APR_KV_U32}, "tokenizer.ggml.tokens is u32; an array of strings"},
        {"tokenizer.ggml.tokens",
         {.type = APR_KV_ARRAY, .elem_type = APR_KV_I32, .n_elems = 3, .value.numbers = three},
         "is an array of i32"},
        {"tokenizer.ggml.tokens", {.type = APR_KV_ARRAY, .elem_type = APR_KV_STRING}, "has none"},
        {"tokenizer.ggml.token_type",
         {.type = APR_KV_ARRAY, .elem_type = APR_KV_I32, .n_elems = 3, .value.numbers = three},
         "has 3 entries for 2 tokens"},
        {"tokenizer.ggml.scores",
         {.type = APR_KV_ARRAY, .elem_type = APR_KV_F32, .n_elems = 1, .value.numbers = three},
         "has 1 entries for 2 tokens"},
        {"tokenizer.ggml.merges", {.type = APR_KV_ARRAY, .elem_type = APR_KV_STRING, .n_elems = 2, .value.strings = no_pair}, "merge 1"},
        {"tokenizer.ggml.merges", {.type = APR_KV_ARRAY, .elem_type = APR_KV_STRING, .n_elems = 1, .value.strings = no_left}, "merge 0"},
        {"tokenizer.ggml.merges", {.type = APR_KV_ARRAY, .elem_type = APR_KV_STRING, .n_elems = 1, .value.strings = no_right}, "merge 0"},
    };
    fixture *const f = *state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        apr_kv item = rows[i].item;
        f->kv.n_items = 0;
        f->err = (apr_error){0};
        set_text(f, "tokenizer.ggml.model", "gpt2");
        set_strings(f, "tokenizer.ggml.tokens", 2, tokens);
        item.key = apr_str_of(rows[i].key);
        apr_kv_set(&f->kv, &item, &f->err);
        assert_int_equal(read_vocab(f), APR_E_DAMAGED);
        if (strstr(f->err.text, rows[i].says) == NULL) fail_msg("row %zu: '%s' does not say '%s'", i, f->err.text, rows[i].says);
        assert_non_null(strstr(f->err.text, "keys.gguf"));
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_bundled_model_says_what_it_is),
        TEST(arrays_by_layer_give_their_largest_entry),
        TEST(sliding_layers_come_from_the_file_or_the_architecture),
        TEST(hostile_numbers_are_kept_from_loops_and_divisions),
        TEST(scalings_go_out_and_come_back),
        TEST(yarn_s_attention_factor_is_a_product),
        TEST(llama3_scaling_is_found_by_its_divisors),
        TEST(numbers_that_32_bits_cannot_say_are_refused),
        TEST(the_keys_of_the_bundled_model_can_be_written_again),
        TEST(the_keys_of_other_families_can_be_written_again),
        TEST(a_sentencepiece_vocabulary_goes_out_and_comes_back),
        TEST(what_gguf_has_no_key_for_is_kept_under_our_own),
        TEST(steps_that_split_text_travel),
        TEST(a_name_brings_its_steps),
        TEST(ids_outside_the_vocabulary_are_ignored),
        TEST(an_unknown_tokenizer_is_absent_without_a_failure),
        TEST(broken_tokenizers_are_refused_with_a_sentence),
    };
    return cmocka_run_group_tests_name("gguf keys", tests, NULL, NULL);
}
