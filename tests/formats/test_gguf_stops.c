/* formats/vocab/gguf_stops.h: which tokens end a text, and under which keys other readers find them. */
#include "formats/vocab/gguf_stops.h"
#include "formats/vocab/gguf_vocab.h"
#include "tests/support/gguf_key_fixture.h"

/* GLM's three ends, of which others know one by its text; five; the end token and one that others find by its text; and a token that
 * ends turns for others although this model does not stop at it. */
static void stops_go_where_other_readers_look(void **state)
{
    static const apr_str tokens[] = {S("a"),          S("<|endoftext|>"), S("<|user|>"), S("<|observation|>"),
                                     S("<|im_end|>"), S("<x>"),           S("</s>"),     S("<|tool_response>")};
    static const uint8_t types[] = {1, 3, 3, 3, 3, 3, 3, 3};
    static const struct {
        int32_t stops[5], eos, eot, eom, pad;
        size_t n_stops, n_tokens, n_warnings;
        bool has_list;
    } rows[] = {
        {.stops = {1, 2, 3}, .n_stops = 3, .eos = 1, .eot = 2, .eom = 3, .pad = 4, .n_tokens = 6, .has_list = true},
        {.stops = {1, 4, 2, 3}, .n_stops = 4, .eos = 1, .eot = 2, .eom = 3, .pad = -1, .n_tokens = 6},
        {.stops = {1, 2, 3, 4, 5}, .n_stops = 5, .eos = 1, .eot = 2, .eom = 3, .pad = -1, .n_tokens = 6, .n_warnings = 1, .has_list = true},
        {.stops = {1, 4}, .n_stops = 2, .eos = 1, .eot = 4, .eom = -1, .pad = -1, .n_tokens = 6},
        {.stops = {4, 1}, .n_stops = 2, .eos = 4, .eot = -1, .eom = -1, .pad = -1, .n_tokens = 6},
        {.stops = {4}, .n_stops = 1, .eos = 4, .eot = -1, .eom = -1, .pad = -1, .n_tokens = 6, .n_warnings = 1, .has_list = true},
        {.stops = {4}, .n_stops = 1, .eos = 4, .eot = -1, .eom = -1, .pad = 1, .n_tokens = 6, .has_list = true},
        {.stops = {0}, .n_stops = 1, .eos = 0, .eot = -1, .eom = -1, .pad = -1, .n_tokens = 1},
        /* </s> is taken out by every reader that finds <|tool_response>, whatever the keys say */
        {.stops = {1, 4, 7, 6}, .n_stops = 4, .eos = 1, .eot = 4, .eom = -1, .pad = -1, .n_tokens = 8, .n_warnings = 1, .has_list = true},
    };
    fixture *const f = *state;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        apr_vocab v = {.kind = APR_VOCAB_BPE,
                       .n_tokens = rows[i].n_tokens,
                       .tokens = tokens,
                       .types = types,
                       .pre = "gpt-2",
                       .bos_id = -1,
                       .eos_id = rows[i].eos,
                       .unk_id = -1,
                       .pad_id = rows[i].pad,
                       .n_stop_ids = rows[i].n_stops};
        apr_losses losses = {0};
        int64_t id;

        memcpy(v.stop_ids, rows[i].stops, sizeof rows[i].stops);
        f->kv = (apr_kv_list){.arena = &f->arena};
        assert_int_equal(apr_gguf_vocab_keys(&v, &f->kv, &f->err), APR_OK);
        assert_int_equal(apr_kv_get_int(&f->kv, "tokenizer.ggml.eot_token_id", &id) ? id : -1, rows[i].eot);
        assert_int_equal(apr_kv_get_int(&f->kv, "tokenizer.ggml.eom_token_id", &id) ? id : -1, rows[i].eom);
        assert_int_equal(apr_kv_find(&f->kv, "tokenizer.aprkit.stop_ids") != NULL, rows[i].has_list);
        assert_int_equal(apr_gguf_stop_losses(&v, &losses, &f->err), APR_OK);
        assert_int_equal(losses.n_items, rows[i].n_warnings);
        if (losses.n_items > 0) assert_int_equal(losses.items[0].kind, APR_LOST_TO_OTHERS);
        apr_losses_close(&losses);

        assert_int_equal(read_vocab(f), APR_OK);
        assert_int_equal(f->v.n_stop_ids, rows[i].n_stops);
        for (size_t s = 0; s < rows[i].n_stops; s++) {
            bool is_there = false;
            for (size_t k = 0; k < f->v.n_stop_ids; k++) is_there |= f->v.stop_ids[k] == rows[i].stops[s];
            assert_true(is_there);
        }
    }
}

/* Our own list takes the place of the texts. A key that another program has set since counts all the same. */
static void keys_count_next_to_our_own_list(void **state)
{
    static const apr_str tokens[] = {S("a"), S("<|im_end|>"), S("<|user|>"), S("<|tool|>")};
    static const uint32_t types[] = {1, 3, 3, 3}, list[] = {2};
    fixture *const f = *state;

    f->kv.n_items = 0;
    set_text(f, "tokenizer.ggml.model", "gpt2");
    set_strings(f, "tokenizer.ggml.tokens", 4, tokens);
    set_numbers(f, "tokenizer.ggml.token_type", APR_KV_I32, 4, types);
    set_u32(f, "tokenizer.ggml.eos_token_id", 2);
    set_numbers(f, "tokenizer.aprkit.stop_ids", APR_KV_I32, 1, list);
    assert_int_equal(read_vocab(f), APR_OK);
    assert_int_equal(f->v.n_stop_ids, 1);
    set_u32(f, "tokenizer.ggml.eot_token_id", 3);
    assert_int_equal(read_vocab(f), APR_OK);
    assert_int_equal(f->v.n_stop_ids, 2);
    assert_int_equal(f->v.stop_ids[0], 2);
    assert_int_equal(f->v.stop_ids[1], 3);
}

/* Padding is not an end by its text, unless another end is named. */
static void padding_is_a_stop_only_with_a_stated_end(void **state)
{
    static const apr_str tokens[] = {S("a"), S("<|endoftext|>"), S("<|im_end|>"), S("<|eot_id|>")};
    static const uint32_t types[] = {1, 3, 3, 3};
    static const struct {
        int64_t eos, eot; /* -1: no key */
        size_t n_stops;
        int32_t stops[3];
    } rows[] = {{-1, -1, 2, {2, 3}}, {2, -1, 3, {2, 1, 3}}, {1, -1, 3, {1, 2, 3}}, {-1, 3, 3, {3, 1, 2}}};
    fixture *const f = *state;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        f->kv.n_items = 0;
        set_text(f, "tokenizer.ggml.model", "gpt2");
        set_strings(f, "tokenizer.ggml.tokens", 4, tokens);
        set_numbers(f, "tokenizer.ggml.token_type", APR_KV_I32, 4, types);
        set_u32(f, "tokenizer.ggml.padding_token_id", 1);
        if (rows[i].eos >= 0) set_u32(f, "tokenizer.ggml.eos_token_id", (uint32_t)rows[i].eos);
        if (rows[i].eot >= 0) set_u32(f, "tokenizer.ggml.eot_token_id", (uint32_t)rows[i].eot);
        assert_int_equal(read_vocab(f), APR_OK);
        assert_int_equal(f->v.pad_id, 1);
        assert_int_equal(f->v.eos_id, rows[i].eos);
        assert_int_equal(f->v.n_stop_ids, rows[i].n_stops);
        for (size_t k = 0; k < rows[i].n_stops; k++) assert_int_equal(f->v.stop_ids[k], rows[i].stops[k]);
    }
}

/* What ends a turn in each family's vocabulary: its special tokens, the one that the keys name as eos, and those named as eot and eom. */
enum { MOST = 8 };
static const struct {
    const char *family, *tokens[MOST];
    int eos, eot, eom; /* -1: no key */
    const char *stops; /* one letter for each token: does it end the turn? */
} ends[] = {
    {"qwen3", {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}, 2, -1, -1, "y.y"},
    {"lfm2", {"<|startoftext|>", "<|im_start|>", "<|im_end|>", "<|pad|>"}, 2, -1, -1, "..y."},
    {"kimi_k2", {"[BOS]", "[EOS]", "<|im_end|>", "<|im_user|>", "<|im_middle|>", "[EOT]"}, 1, -1, -1, ".yy..y"},
    {"gpt_oss", {"<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|return|>", "<|call|>"}, 4, -1, -1, "....yy"},
    {"gemma3", {"<pad>", "<eos>", "<bos>", "<start_of_turn>", "<end_of_turn>"}, 1, -1, -1, ".y..y"},
    {"gemma4", {"<pad>", "<eos>", "<bos>", "</s>", "<|turn>", "<turn|>", "<|tool_response>", "<|channel>"}, 1, -1, -1, ".y...yy."},
    {"deepseek_v3", {"<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>"}, 1, -1, -1, ".y."},
    {"glm4_moe", {"<|endoftext|>", "[gMASK]", "<sop>", "<|user|>", "<|assistant|>", "<|observation|>"}, 0, 3, 5, "y..y.y"},
    {"minimax_m2", {"]~!b[", "]~b]", "[e~["}, 2, -1, -1, "..y"},
    {"minimax_m2 whose file names another", {"]~!b[", "]~b]", "[e~["}, 0, -1, -1, "y.y"},
    {"llama4", {"<|begin_of_text|>", "<|end_of_text|>", "<|eom|>", "<|eot|>"}, 3, -1, 2, ".yyy"},
    {"mistral", {"<unk>", "<s>", "</s>", "[INST]"}, 2, -1, -1, "..y."},
    {"cohere2", {"<BOS_TOKEN>", "<|START_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>"}, 2, -1, -1, "..y"},
    {"seed_oss", {"<seed:bos>", "<seed:pad>", "<seed:eos>"}, 2, -1, -1, "..y"},
    {"granite", {"<|end_of_text|>", "<|start_of_role|>", "<|end_of_role|>"}, 0, -1, -1, "y.."},
    {"exaone4", {"[BOS]", "[PAD]", "[|user|]", "[|endofturn|]"}, 3, -1, -1, "...y"},
    {"nemotron_h", {"<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"}, 2, -1, -1, "..y.y"},
    {"phi3", {"<unk>", "<s>", "</s>", "<|endoftext|>", "<|assistant|>", "<|end|>"}, 3, -1, -1, "..yy.y"},
};

/* Which special tokens end a turn, by their texts. */
static void turns_end_where_llama_cpp_ends_them(void **state)
{
    static const struct {
        apr_str tokens[4];
        uint8_t types[4];
        size_t n_stops;
        int32_t stops[3];
    } rows[] = {
        {{S("a"), S("<|end|>"), S("<|return|>"), S("<|call|>")}, {1, 3, 3, 3}, 2, {2, 3}}, /* gpt-oss: <|end|> ends a message only */
        {{S("a"), S("<|end|>"), S("<|user|>"), S("b")}, {1, 3, 3, 1}, 1, {1}},             /* phi-3: it ends the turn */
        {{S("a"), S("<|end|>"), S("<|return|>"), S("b")}, {1, 3, 3, 1}, 1, {2}},           /* llama.cpp keeps <|end|>, see below */
        {{S("a"), S("<|end|>"), S("<|call|>"), S("b")}, {1, 3, 3, 1}, 2, {1, 2}},
        {{S("a"), S("<|end|>"), S("<|flush|>"), S("<|calls|>")}, {1, 3, 3, 3}, 2, {2, 3}}, /* solar-open */
        {{S("<|eot_id|>"), S("<|eom_id|>"), S("<|im_start|>"), S("b")}, {3, 3, 3, 1}, 2, {0, 1}},
        {{S("<|endoftext|>"), S("<|im_end|>"), S("c"), S("b")}, {1, 4, 1, 1}, 1, {1}}, /* a normal token is only text */
    };
    fixture *const f = *state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint32_t types[4];
        f->kv.n_items = 0;
        for (int t = 0; t < 4; t++) types[t] = rows[i].types[t];
        set_text(f, "tokenizer.ggml.model", "gpt2");
        set_strings(f, "tokenizer.ggml.tokens", 4, rows[i].tokens);
        set_numbers(f, "tokenizer.ggml.token_type", APR_KV_I32, 4, types);
        assert_int_equal(read_vocab(f), APR_OK);
        assert_int_equal(f->v.n_stop_ids, rows[i].n_stops);
        for (size_t k = 0; k < rows[i].n_stops; k++) assert_int_equal(f->v.stop_ids[k], rows[i].stops[k]);
    }
}

/* llama.cpp takes <|end|> out only with <|call|>: a model that stops at it loses nothing; one that does not gets a note. */
static void an_end_that_llama_cpp_finds_by_its_text_is_not_lost(void **state)
{
    static const apr_str tokens[] = {S("<|return|>"), S("<|end|>"), S("<|call|>")};
    static const uint8_t types[] = {3, 3, 3};
    static const struct {
        size_t n_tokens, n_stops, n_not_found;
        int32_t eot, extra;
    } rows[] = {{2, 2, 0, 1, -1}, {2, 1, 0, -1, 1}, {3, 1, 0, -1, 2}, {3, 2, 1, -1, 2}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const apr_vocab v = {.n_tokens = rows[i].n_tokens,
                             .tokens = tokens,
                             .types = types,
                             .eos_id = 0,
                             .pad_id = -1,
                             .stop_ids = {0, 1},
                             .n_stop_ids = rows[i].n_stops};
        const apr_gguf_stops s = apr_gguf_plan_stops(&v);
        assert_int_equal(s.n_not_found, rows[i].n_not_found);
        assert_int_equal(s.eot_id, rows[i].eot);
        assert_int_equal(s.extra, rows[i].extra);
    }
}

static void each_family_stops_at_its_own_ends(void **state)
{
    static const char *const keys[3] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};
    fixture *const f = *state;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const int ids[3] = {ends[i].eos, ends[i].eot, ends[i].eom};
        apr_str tokens[MOST];
        uint32_t types[MOST];
        char stops[MOST + 1] = "";
        size_t n = 0;
        f->kv.n_items = 0;
        for (; n < MOST && ends[i].tokens[n] != NULL; n++) tokens[n] = apr_str_of(ends[i].tokens[n]), types[n] = 3;
        set_text(f, "tokenizer.ggml.model", "gpt2");
        set_strings(f, "tokenizer.ggml.tokens", n, tokens);
        set_numbers(f, "tokenizer.ggml.token_type", APR_KV_I32, n, types);
        for (int k = 0; k < 3; k++)
            if (ids[k] >= 0) set_u32(f, keys[k], (uint32_t)ids[k]);
        assert_int_equal(read_vocab(f), APR_OK);
        memset(stops, '.', n);
        for (size_t k = 0; k < f->v.n_stop_ids; k++) stops[f->v.stop_ids[k]] = 'y';
        if (strcmp(stops, ends[i].stops) != 0) fail_msg("%s stops at %s, not at %s", ends[i].family, stops, ends[i].stops);
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(stops_go_where_other_readers_look),
        TEST(keys_count_next_to_our_own_list),
        TEST(padding_is_a_stop_only_with_a_stated_end),
        TEST(turns_end_where_llama_cpp_ends_them),
        TEST(an_end_that_llama_cpp_finds_by_its_text_is_not_lost),
        TEST(each_family_stops_at_its_own_ends),
    };
    return cmocka_run_group_tests_name("gguf stops", tests, NULL, NULL);
}
