/* formats/tensor/losses.h and its two lists: every field of a model survives the way into GGUF and into a checkpoint, or is named. */
#include "formats/gguf/gguf.h"
#include "formats/hf/safetensors.h"
#include "formats/shape/gguf_hparams.h"
#include "formats/shape/hf_config.h"
#include "formats/vocab/gguf_vocab.h"
#include "tests/support/work_folder.h"

static apr_hparams plain(const char *architecture)
{
    return (apr_hparams){.architecture = architecture,
                         .hidden_size = 64,
                         .num_layers = 4,
                         .num_heads = 4,
                         .num_kv_heads = 2,
                         .head_dim = 16,
                         .vocab_size = 100,
                         .intermediate_size = 96,
                         .max_position_embeddings = 512,
                         .rms_norm_eps = 1e-6,
                         .rope_theta = 10000,
                         .rotary_dim = 16};
}

static const char *const architectures[] = {"llama", "mistral", "qwen2", "qwen3"};
static const uint8_t some_slide[] = {APR_LAYER_SLIDING, APR_LAYER_FULL, APR_LAYER_SLIDING, APR_LAYER_FULL},
                     all_slide[] = {APR_LAYER_SLIDING, APR_LAYER_SLIDING, APR_LAYER_SLIDING, APR_LAYER_SLIDING};

/* --- every field --- */

static bool same_layers(const apr_hparams *a, const apr_hparams *b)
{
    for (int64_t i = 0; i < a->num_layers; i++)
        if ((a->layer_kinds != NULL ? a->layer_kinds[i] : APR_LAYER_FULL) != (b->layer_kinds != NULL ? b->layer_kinds[i] : APR_LAYER_FULL))
            return false;
    return a->num_layers == b->num_layers;
}

/* The first field of `a` that `b` does not have; NULL: all are there. What `a` does not say (0) may be anything. */
static const char *missing_field(apr_hparams a, apr_hparams b)
{
    static const char of_images[] = " mrope_time mrope_height mrope_width num_deepstack_layers "; /* text alone does not have them */

    for (size_t i = 0; i < apr_n_hparam_fields; i++) {
        const apr_hparam_field *const f = &apr_hparam_fields[i];
        if (apr_has_word(of_images, f->name)) continue;
        if (f->is_int && *apr_hparam_int(&a, f) != 0 && *apr_hparam_int(&a, f) != *apr_hparam_int(&b, f)) return f->name;
        if (!f->is_int && *apr_hparam_real(&a, f) != 0 && *apr_hparam_real(&a, f) != *apr_hparam_real(&b, f)) return f->name;
    }
    for (size_t i = 0; i < apr_n_rope_fields; i++) {
        const size_t at = apr_rope_fields[i].offset;
        if (memcmp((char *)&a.rope + at, (char *)&b.rope + at, sizeof(double)) != 0) return apr_rope_fields[i].name;
    }
    if (a.rope.kind != b.rope.kind) return "rope.kind";
    if (a.rope.original_context != b.rope.original_context) return "rope.original_context";
    if (a.rope.no_truncate != b.rope.no_truncate) return "rope.no_truncate";
    if (strcmp(a.architecture, b.architecture) != 0) return "architecture";
    if (a.hf_class != NULL && (b.hf_class == NULL || strcmp(a.hf_class, b.hf_class) != 0)) return "hf_class";
    if (a.refusal != NULL && (b.refusal == NULL || strcmp(a.refusal, b.refusal) != 0)) return "refusal";
    if (a.norm_topk_prob != b.norm_topk_prob) return "norm_topk_prob";
    return same_layers(&a, &b) ? NULL : "layer_kinds";
}

/* Through GGUF's keys, in their binary form. */
static void through_keys(const apr_hparams *h, apr_hparams *back, apr_arena *arena)
{
    static const apr_vocab none = {.kind = APR_VOCAB_NONE};
    apr_kv_list kv = {.arena = arena}, read = {.arena = arena};
    apr_error err = {0};

    if (apr_gguf_keys(h, &none, "x", 1, &kv, &err) != APR_OK) fail_msg("%s", err.text);
    uint8_t *const bytes = apr_arena_alloc(arena, (size_t)apr_kv_bytes(&kv));
    apr_kv_write(&kv, bytes);
    apr_cursor cursor = {.data = bytes, .n_bytes = (size_t)apr_kv_bytes(&kv)};
    if (apr_kv_read(&cursor, kv.n_items, "keys", &read, &err) != APR_OK || apr_gguf_hparams(&read, back, arena, "keys", &err) != APR_OK)
        fail_msg("%s", err.text);
    if (apr_hparams_complete(back, arena, "keys", &err) != APR_OK) fail_msg("%s", err.text);
}

static void assert_survives_keys(const apr_hparams *h, const char *what)
{
    apr_arena arena = {0};
    apr_hparams back;
    through_keys(h, &back, &arena);
    const char *const missing = missing_field(*h, back);
    if (missing != NULL) fail_msg("%s of %s: %s is lost on the way into GGUF", what, h->architecture, missing);
    apr_arena_close(&arena);
}

static const apr_rope_scaling scalings[] = {
    {.kind = APR_ROPE_LINEAR, .factor = 4.0 / 3.0}, /* no f32 */
    {.kind = APR_ROPE_LLAMA3, .factor = 8, .low_freq_factor = 2, .high_freq_factor = 4, .original_context = 4096},
    {.kind = APR_ROPE_YARN, .factor = 32, .original_context = 4096, .beta_fast = 16, .beta_slow = 2, .attention_factor = 0.7},
    {.kind = APR_ROPE_YARN, .factor = 32, .original_context = 4096, .no_truncate = true},
    {.kind = APR_ROPE_LONGROPE, .factor = 32, .original_context = 4096},
    {.kind = APR_ROPE_DYNAMIC, .factor = 2, .original_context = 2048},
};

/* A value that follows from none of the others. */
static void disturb(apr_hparams *h, const apr_hparam_field *f)
{
    if (!f->is_int) *apr_hparam_real(h, f) = 0.1 + 1e-9; /* no f32 */
    else if (strcmp(f->name, "rotary_dim") == 0) h->rotary_dim = 10;
    else if (strcmp(f->name, "num_layers") == 0) h->num_layers = 7;
    else if (strcmp(f->name, "num_heads") == 0) h->num_heads = 6;
    else if (strcmp(f->name, "num_kv_heads") == 0) h->num_kv_heads = 4;
    else if (strcmp(f->name, "num_global_kv_heads") == 0) h->num_global_kv_heads = 2;
    else if (strcmp(f->name, "num_kv_shared_layers") == 0) h->num_kv_shared_layers = 1;
    else if (strcmp(f->name, "full_attention_interval") == 0) h->full_attention_interval = 4;
    else if (strcmp(f->name, "linear_num_value_heads") != 0) *apr_hparam_int(h, f) += 24;
    else h->linear_num_value_heads = h->linear_value_head_dim = 8;
}

/* Each field that is disturbed alone, and each scaling. */
static void each_survives(const char *architecture, void (*assert_survives)(const apr_hparams *h, const char *what))
{
    for (size_t i = 0; i < apr_n_hparam_fields; i++) {
        apr_hparams h = plain(architecture);
        apr_arena arena = {0};
        disturb(&h, &apr_hparam_fields[i]);
        assert_int_equal(apr_hparams_complete(&h, &arena, "here", NULL), APR_OK);
        assert_survives(&h, apr_hparam_fields[i].name);
        apr_arena_close(&arena);
    }
    for (size_t i = 0; i < sizeof scalings / sizeof *scalings; i++) {
        apr_hparams h = plain(architecture);
        h.rope = scalings[i];
        assert_survives(&h, apr_rope_names[h.rope.kind]);
    }
}

static void every_field_survives_the_way_into_gguf(void **state)
{
    (void)state;
    for (size_t a = 0; a < 4; a++) {
        each_survives(architectures[a], assert_survives_keys);
        apr_hparams h = plain(architectures[a]);
        h.sliding_window = 32;
        h.layer_kinds = some_slide;
        h.hf_class = "SomethingForSequenceClassification";
        h.refusal = "\"hidden_act\" is \"gelu\"";
        h.norm_topk_prob = true;
        assert_survives_keys(&h, "the rest");
    }
}

/* Into a config.json: each field comes back, or is named among the losses. */
static void assert_survives_config(const apr_hparams *h, const char *what)
{
    const apr_model m = {.format = APR_FORMAT_GGUF, .origin = {.format = APR_FORMAT_GGUF}, .hparams = *h};
    char *const text = apr_hf_config_make(&m);
    const apr_attachment config = {"config.json", (const uint8_t *)text, strlen(text)};
    apr_losses losses = {0};
    apr_hparams back = {.architecture = ""};
    apr_error err = {0};

    assert_int_equal(apr_hf_losses(&m, &losses, &err), APR_OK);
    const bool reads = apr_hf_config_read(&config, &back, &losses.arena, "config.json", NULL) == APR_OK &&
                       apr_hparams_complete(&back, &losses.arena, "config.json", NULL) == APR_OK;
    const char *const missing = reads ? missing_field(*h, back) : "everything";
    if (missing != NULL && apr_losses_count(&losses) == 0)
        fail_msg("%s of %s: %s is lost on the way into config.json, and no sentence says so\n%s", what, h->architecture, missing, text);
    free(text);
    apr_losses_close(&losses);
}

static void every_field_survives_the_way_into_a_config_or_is_named(void **state)
{
    (void)state;
    for (size_t a = 0; a < 4; a++) {
        each_survives(architectures[a], assert_survives_config);
        for (int64_t head_dim = 2; head_dim < 200; head_dim++) { /* a fraction of it must give back the dimensions */
            apr_hparams h = plain(architectures[a]);
            h.head_dim = head_dim;
            h.rotary_dim = 2 * (head_dim * 3 / 8);
            if (h.rotary_dim > 0) assert_survives_config(&h, "rotary part");
        }
        apr_hparams h = plain(architectures[a]);
        apr_losses losses = {0};
        const apr_model m = {.format = APR_FORMAT_GGUF, .origin = {.format = APR_FORMAT_GGUF}, .hparams = h};
        assert_int_equal(apr_hf_losses(&m, &losses, NULL), APR_OK);
        if (losses.n_items > 0)
            fail_msg("%s: %s", architectures[a], losses.items[0].text); /* a plain model loses nothing: what is named above was disturbed */
        apr_losses_close(&losses);
        h.sliding_window = 32;
        h.layer_kinds = some_slide;
        assert_survives_config(&h, "layers");
    }
}

/* --- what is said of hyperparameters --- */

static apr_model checkpoint_of(const apr_hparams *h)
{
    return (apr_model){.format = APR_FORMAT_SAFETENSORS,
                       .naming = APR_NAMING_GGML,
                       .origin = {.format = APR_FORMAT_SAFETENSORS},
                       .hparams = *h,
                       .vocab = {.bos_id = -1, .eos_id = -1, .pad_id = -1, .unk_id = -1}};
}

/* NULL: nothing may be said but notes. Only what every reader loses is refused. */
static void assert_says(const apr_model *m, const char *text, apr_loss_kind kind)
{
    apr_losses losses = {0};
    apr_error err = {0};
    bool found = false;

    assert_int_equal(apr_sink_losses(APR_FORMAT_GGUF, m, &losses, &err), APR_OK);
    for (size_t i = 0; i < losses.n_items; i++) {
        const apr_loss *const loss = &losses.items[i];
        if (text == NULL && loss->kind != APR_NOTE) fail_msg("it says: %s", loss->text);
        found = found || (text != NULL && loss->kind == kind && strstr(loss->text, text) != NULL);
    }
    if (text != NULL && !found) fail_msg("no loss says '%s', but '%s'", text, losses.n_items > 0 ? losses.items[0].text : "nothing");
    const bool is_refused = apr_losses_refuse(&losses, "x.gguf", &err) == APR_E_UNSUPPORTED;
    assert_int_equal(is_refused, apr_losses_count(&losses) > 0);
    if (is_refused) assert_non_null(strstr(err.text, "--allow-loss"));
    apr_losses_close(&losses);
}

static void what_llama_cpp_cannot_do_is_named(void **state)
{
    static const struct {
        const char *architecture;
        apr_rope_scaling rope;
        const uint8_t *layers;
        int64_t window, rotary_dim, head_dim, context; /* 0: as in plain() */
        double eps;                                    /* 0: none */
        const char *says;
        bool refused; /* every reader loses it; otherwise our own reader finds it */
    } rows[] = {
        {.architecture = "llama", .eps = 1e-6},
        {.architecture = "mistral", .eps = 1e-6},
        {.architecture = "mistral", .window = 8, .layers = all_slide, .eps = 1e-6, .says = "4 of 4 layers see the last 8 tokens"},
        {.architecture = "mistral", .window = 512, .layers = all_slide, .eps = 1e-6}, /* the longest text fits in */
        {.architecture = "qwen2", .window = 8, .layers = some_slide, .eps = 1e-6, .says = "2 of 4 layers"},
        {.architecture = "qwen3", .window = 8, .eps = 1e-6}, /* stated and not used */
        {.architecture = "llama", .rope = {.kind = APR_ROPE_DYNAMIC, .factor = 2}, .eps = 1e-6, .says = "dynamic"},
        {.architecture = "llama", .rope = {.kind = APR_ROPE_LONGROPE, .factor = 2}, .eps = 1e-6, .says = "longrope", .refused = true},
        {.architecture = "llama", .rope = {.kind = APR_ROPE_LINEAR, .factor = 2}, .eps = 1e-6},
        {.architecture = "llama", .rope = {.kind = APR_ROPE_LLAMA3, .factor = 8, .low_freq_factor = 1, .high_freq_factor = 4}, .eps = 1e-6},
        {.architecture = "qwen3", .rope = {.kind = APR_ROPE_LLAMA3, .factor = 8}, .eps = 1e-6, .says = "llama3"},
        {.architecture = "qwen2", .rope = {.kind = APR_ROPE_YARN, .factor = 4}, .eps = 1e-6},
        {.architecture = "qwen2", .rope = {.kind = APR_ROPE_YARN, .factor = 4, .attention_factor = 1.1386294361119891}, .eps = 1e-6},
        {.architecture = "qwen2",
         .rope = {.kind = APR_ROPE_YARN, .factor = 4, .attention_factor = 1},
         .eps = 1e-6}, /* rope.scaling.attn_factor */
        {.architecture = "qwen2", .rope = {.kind = APR_ROPE_YARN, .factor = 4, .no_truncate = true}, .eps = 1e-6, .says = "truncate"},
        {.architecture = "llama", .rotary_dim = 8, .eps = 1e-6, .says = "8 of 16 dimensions"},
        {.architecture = "qwen2", .head_dim = 32, .rotary_dim = 32, .eps = 1e-6, .says = "needs head_dim = hidden_size / heads"},
        {.architecture = "qwen3", .head_dim = 32, .rotary_dim = 32, .eps = 1e-6},
        {.architecture = "llama", .context = -1, .eps = 1e-6, .says = "no max_position_embeddings", .refused = true},
        {.architecture = "llama", .says = "no rms_norm_eps", .refused = true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        apr_hparams h = plain(rows[i].architecture);
        h.rope = rows[i].rope;
        h.layer_kinds = rows[i].layers;
        h.sliding_window = rows[i].window;
        h.rms_norm_eps = rows[i].eps;
        if (rows[i].rotary_dim > 0) h.rotary_dim = rows[i].rotary_dim;
        if (rows[i].head_dim > 0) h.head_dim = rows[i].head_dim;
        if (rows[i].context < 0) h.max_position_embeddings = 0;
        const apr_model m = checkpoint_of(&h);
        assert_says(&m, rows[i].says, rows[i].refused ? APR_LOST : APR_LOST_TO_OTHERS);
    }
    apr_hparams h = plain("llama");
    h.refusal = "\"hidden_act\" is \"gelu\"";
    const apr_model m = checkpoint_of(&h);
    assert_says(&m, "hidden_act", APR_LOST);
}

/* --- tokenizers --- */

#define MAX_TOKENS 300

typedef struct tokens {
    char texts[MAX_TOKENS][16];
    apr_str list[MAX_TOKENS], merges[4];
    uint8_t types[MAX_TOKENS], added[MAX_TOKENS];
    apr_vocab vocab;
} tokens;

static void add_token(tokens *t, const char *text, apr_token_type type)
{
    const size_t id = t->vocab.n_tokens++;
    snprintf(t->texts[id], sizeof t->texts[id], "%s", text);
    t->list[id] = apr_str_of(t->texts[id]);
    t->types[id] = (uint8_t)type;
    t->added[id] = type == APR_TOKEN_NORMAL || type == APR_TOKEN_BYTE ? 0 : APR_ADDED;
}

/* A SentencePiece vocabulary that llama.cpp tokenizes in the same way: bytes, two letters and their merge. */
static void make_spm(tokens *t)
{
    char text[8];

    *t = (tokens){.vocab = {.kind = APR_VOCAB_SPM,
                            .byte_fallback = true,
                            .escape_spaces = true,
                            .add_space_prefix = true,
                            .space_after_added = true,
                            .add_bos = true,
                            .bos_id = 1,
                            .eos_id = 2,
                            .pad_id = -1,
                            .unk_id = 0,
                            .stop_ids = {2},
                            .n_stop_ids = 1}};
    add_token(t, "<unk>", APR_TOKEN_UNKNOWN);
    add_token(t, "<s>", APR_TOKEN_CONTROL);
    add_token(t, "</s>", APR_TOKEN_CONTROL);
    for (unsigned b = 0; b < 256; b++) {
        snprintf(text, sizeof text, "<0x%02X>", b);
        add_token(t, text, APR_TOKEN_BYTE);
    }
    add_token(t, "a", APR_TOKEN_NORMAL);
    add_token(t, "b", APR_TOKEN_NORMAL);
    add_token(t, "ab", APR_TOKEN_NORMAL);
    t->merges[0] = t->list[259];
    t->merges[1] = t->list[260];
    t->vocab.n_merges = 1;
    t->vocab.tokens = t->list;
    t->vocab.types = t->types;
    t->vocab.added = t->added;
    t->vocab.merges = t->merges;
}

static void make_bpe(tokens *t)
{
    *t = (tokens){.vocab = {.kind = APR_VOCAB_BPE,
                            .pre = "smaug-bpe",
                            .pattern = apr_pre_pattern("smaug-bpe"),
                            .bos_id = -1,
                            .eos_id = 3,
                            .pad_id = -1,
                            .unk_id = -1,
                            .stop_ids = {3},
                            .n_stop_ids = 1}};
    add_token(t, "a", APR_TOKEN_NORMAL);
    add_token(t, "b", APR_TOKEN_NORMAL);
    add_token(t, "ab", APR_TOKEN_NORMAL);
    add_token(t, "<end>", APR_TOKEN_CONTROL);
    t->merges[0] = t->list[0];
    t->merges[1] = t->list[1];
    t->vocab.n_merges = 1;
    t->vocab.tokens = t->list;
    t->vocab.types = t->types;
    t->vocab.added = t->added;
    t->vocab.merges = t->merges;
}

static void no_split(apr_vocab *v) { v->pre = v->pattern = NULL; }
static void own_split(apr_vocab *v)
{
    v->pre = NULL;
    v->pattern = "\\w+|unknown";
}
static void qwen(apr_vocab *v)
{
    v->pre = "qwen2";
    v->pattern = apr_pre_pattern("qwen2");
    v->nfc = true;
}
static void qwen_raw(apr_vocab *v)
{
    qwen(v);
    v->nfc = false;
}
static void whole_words(apr_vocab *v) { v->ignore_merges = true; }
static void qwen_whole_words(apr_vocab *v)
{
    qwen_raw(v);
    v->ignore_merges = true;
}
static void normalised(apr_vocab *v) { v->nfc = true; }
static void prefix_first(apr_vocab *v) { v->space_after_added = false; }
static void prefix_unless_space(apr_vocab *v) { v->prefix_unless_space = true; }
static void two_steps(apr_vocab *v)
{
    static const apr_split splits[] = {{.pattern = "\\d", .behavior = APR_SPLIT_MERGED_WITH_NEXT, .invert = true}, {.pattern = "x+"}};
    no_split(v);
    v->splits = splits;
    v->n_splits = 2;
}
static void no_prefix(apr_vocab *v) { v->add_space_prefix = v->space_after_added = false; }
static void raw_spaces(apr_vocab *v) { v->escape_spaces = v->add_space_prefix = v->space_after_added = false; }
static void no_fallback(apr_vocab *v) { v->byte_fallback = false; }
static void lost_byte(apr_vocab *v) { ((apr_str *)(uintptr_t)v->tokens)[3 + 0x41] = apr_str_of("no byte"); }
static void no_end(apr_vocab *v)
{
    v->eos_id = -1;
    v->n_stop_ids = 0;
}
static void strip(apr_vocab *v) { ((uint8_t *)(uintptr_t)v->added)[1] |= APR_ADDED_RSTRIP; }
static void plain_added(apr_vocab *v) { ((uint8_t *)(uintptr_t)v->added)[1] |= APR_ADDED_NORMALIZED; }
static void strip_end(apr_vocab *v) { ((uint8_t *)(uintptr_t)v->added)[3] |= APR_ADDED_LSTRIP; }
static void duplicate_tokens(apr_vocab *v) { ((apr_str *)(uintptr_t)v->tokens)[1] = v->tokens[0]; }
static void spaced(apr_vocab *v)
{
    ((apr_str *)(uintptr_t)v->tokens)[0] = apr_str_of("a b");
    ((apr_str *)(uintptr_t)v->merges)[0] = apr_str_of("a b");
}
static void unknown_bytes(apr_vocab *v) { v->unk_id = 0; }
static void stuck(apr_vocab *v) { v->n_merges = 0; } /* "ab" is a token that no merge makes */
static void many_stops(apr_vocab *v)
{
    v->stop_ids[1] = 0;
    v->n_stop_ids = 2;
}
static void no_tokens(apr_vocab *v) { v->n_tokens = 0; }
static void nothing(apr_vocab *v) { (void)v; }

static const struct {
    const char *name;
    bool is_spm;
    void (*change)(apr_vocab *v);
    const char *says; /* NULL: nothing is lost for others */
    bool unwritable;  /* the GGUF has no tokenizer then */
    bool is_note;
} vocab_rows[] = {
    {"bpe", false, nothing, NULL, false},
    {"bpe", false, no_split, "no name for (none at all)", false},
    {"bpe", false, own_split, "no name for (\\w+|unknown)", false},
    {"bpe", false, two_steps, "several expressions", false},
    {"bpe", false, qwen, "normalises text to NFC; llama.cpp does not", false, .is_note = true},
    {"bpe", false, qwen_raw, NULL, false},
    {"bpe", false, whole_words, NULL, false}, /* llama-bpe */
    {"bpe", false, qwen_whole_words, "takes whole words", false},
    {"bpe", false, normalised, "NFC", false},
    {"bpe", false, strip_end, "<end>", false},
    {"bpe", false, duplicate_tokens, "two tokens", true},
    {"bpe", false, spaced, "merge 0", true},
    {"bpe", false, unknown_bytes, "single bytes", false},
    {"bpe", false, many_stops, NULL, false},
    {"bpe", false, no_tokens, "no tokenizer", true, .is_note = true},
    {"spm", true, nothing, NULL, false},
    {"spm", true, prefix_first, "after special tokens", false},
    {"spm", true, prefix_unless_space, "before a text that begins with one", false},
    {"spm", true, no_prefix, NULL, false},
    {"spm", true, raw_spaces, "U+2581", false},
    {"spm", true, no_fallback, "single bytes", false},
    {"spm", true, lost_byte, "single bytes", false},
    {"spm", true, normalised, "NFC", false},
    {"spm", true, no_end, "token 2 (\"</s>\")", false},
    {"spm", true, strip, "<s>", false},
    {"spm", true, plain_added, "<s>\" is matched in normalised text", false, .is_note = true},
    {"spm", true, stuck, "\"ab\"", false},
    {"spm", true, duplicate_tokens, "two tokens", true},
    {"spm", true, many_stops, NULL, false},
};

static void tokenizers_that_others_would_read_otherwise_are_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof vocab_rows / sizeof *vocab_rows; i++) {
        const apr_hparams h = plain("llama");
        apr_model m = checkpoint_of(&h);
        tokens t;
        if (vocab_rows[i].is_spm) make_spm(&t);
        else make_bpe(&t);
        vocab_rows[i].change(&t.vocab);
        m.vocab = t.vocab;
        assert_says(&m, vocab_rows[i].says, vocab_rows[i].is_note ? APR_NOTE : APR_LOST);
    }
}

static void assert_same_vocab(const apr_vocab *a, const apr_vocab *b, const char *name, size_t row)
{
    const bool same = a->kind == b->kind && a->n_tokens == b->n_tokens && a->nfc == b->nfc && a->ignore_merges == b->ignore_merges &&
                      a->byte_fallback == b->byte_fallback && a->add_space_prefix == b->add_space_prefix &&
                      a->space_after_added == b->space_after_added && a->prefix_unless_space == b->prefix_unless_space &&
                      a->escape_spaces == b->escape_spaces && a->add_bos == b->add_bos && a->add_eos == b->add_eos &&
                      a->bos_id == b->bos_id && a->eos_id == b->eos_id && a->pad_id == b->pad_id && a->unk_id == b->unk_id &&
                      a->n_stop_ids == b->n_stop_ids && a->n_merges == b->n_merges;
    if (!same) fail_msg("row %zu (%s) comes back otherwise", row, name);
    assert_memory_equal(a->stop_ids, b->stop_ids, a->n_stop_ids * sizeof *a->stop_ids);
    assert_true((a->pattern == NULL) == (b->pattern == NULL));
    if (a->pattern != NULL) assert_string_equal(a->pattern, b->pattern);
    assert_int_equal(a->n_splits, b->n_splits);
    for (size_t i = 0; i < a->n_splits; i++) {
        assert_string_equal(a->splits[i].pattern, b->splits[i].pattern);
        assert_true(a->splits[i].behavior == b->splits[i].behavior && a->splits[i].invert == b->splits[i].invert &&
                    a->splits[i].letters == b->splits[i].letters);
    }
    assert_memory_equal(a->types, b->types, a->n_tokens);
    for (size_t i = 0; i < a->n_tokens; i++) {
        assert_int_equal(a->tokens[i].n_bytes, b->tokens[i].n_bytes);
        assert_memory_equal(a->tokens[i].text, b->tokens[i].text, a->tokens[i].n_bytes);
        if (b->added != NULL) assert_int_equal(a->added[i], b->added[i]);
        else assert_int_equal(a->added[i], a->types[i] == APR_TOKEN_NORMAL || a->types[i] == APR_TOKEN_BYTE ? 0 : APR_ADDED);
    }
}

/* Whatever others make of it: our reader finds every field again, or no tokenizer at all. */
static void every_field_of_a_tokenizer_survives_the_way_into_gguf(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof vocab_rows / sizeof *vocab_rows; i++) {
        apr_arena arena = {0};
        apr_kv_list kv = {.arena = &arena};
        apr_vocab back;
        apr_error err = {0};
        const char *obstacle;
        tokens t;
        if (vocab_rows[i].is_spm) make_spm(&t);
        else make_bpe(&t);
        vocab_rows[i].change(&t.vocab);
        assert_int_equal(apr_gguf_vocab_obstacle(&t.vocab, &arena, &obstacle, &err), APR_OK);
        assert_int_equal(obstacle != NULL || t.vocab.n_tokens == 0, vocab_rows[i].unwritable);
        if (obstacle != NULL) t.vocab.kind = APR_VOCAB_NONE;
        assert_int_equal(apr_gguf_vocab_keys(&t.vocab, &kv, &err), APR_OK);
        if (apr_gguf_vocab(&kv, &back, &arena, "keys", &err) != APR_OK) fail_msg("%s", err.text);
        if (vocab_rows[i].unwritable) assert_int_equal(back.kind, APR_VOCAB_NONE);
        else assert_same_vocab(&t.vocab, &back, vocab_rows[i].name, i);
        if (back.kind == APR_VOCAB_SPM) assert_non_null(apr_kv_find(&kv, "tokenizer.ggml.scores"));
        apr_arena_close(&arena);
    }
}

static void an_unknown_tokenizer_is_not_reported_as_missing(void **state)
{
    static const apr_attachment file = {.name = "tokenizer.json", .data = (const uint8_t *)"{}", .n_bytes = 2};
    const apr_hparams h = plain("llama");
    apr_model m = checkpoint_of(&h);

    (void)state;
    assert_says(&m, "there is no tokenizer", APR_NOTE);
    assert_says(&m, NULL, APR_NOTE);
    m.attachments = &file;
    m.n_attachments = 1;
    assert_says(&m, "the tokenizer in tokenizer.json", APR_LOST);
}

static void a_rule_is_named_that_does_the_same(void **state)
{
    static const struct {
        const char *pattern_of;
        bool ignore_merges, nfc;
        const char *name;
    } rows[] = {{"llama-bpe", true, false, "llama-bpe"},     {"llama-bpe", false, false, "dbrx"}, {"qwen2", false, true, "qwen2"},
                {"qwen2", false, false, "deepseek-r1-qwen"}, {"gpt-2", false, false, "gpt-2"},    {"tekken", true, false, "tekken"}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *const pattern = apr_pre_pattern(rows[i].pattern_of);
        const apr_vocab v = {.kind = APR_VOCAB_BPE,
                             .pre = apr_pre_name(pattern),
                             .pattern = pattern,
                             .ignore_merges = rows[i].ignore_merges,
                             .nfc = rows[i].nfc};
        assert_string_equal(apr_pre_of(&v)->name, rows[i].name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_survives_the_way_into_gguf),
        cmocka_unit_test(every_field_survives_the_way_into_a_config_or_is_named),
        cmocka_unit_test(what_llama_cpp_cannot_do_is_named),
        cmocka_unit_test(tokenizers_that_others_would_read_otherwise_are_named),
        cmocka_unit_test(every_field_of_a_tokenizer_survives_the_way_into_gguf),
        cmocka_unit_test(an_unknown_tokenizer_is_not_reported_as_missing),
        cmocka_unit_test(a_rule_is_named_that_does_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
