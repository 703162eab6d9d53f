/* formats/gguf: hyperparameters of each family through GGUF's keys, held against those of llama.cpp's own converter.
 *
 * tests/data/gguf-keys/NAME.txt has its keys for the model NAME of gguf_family_models.h, one a line and without "ARCH.", as
 *
 *     architecture ARCH      first
 *     KEY TYPE VALUE         both write it
 *     - KEY TYPE VALUE       only the converter does
 *     + KEY TYPE VALUE       only we do
 *     aprkit KEY TYPE VALUE  under "aprkit.", what the others do not say
 *     unread FIELD           what our reader cannot know of the converter's file
 *     # why */
#include "formats/gguf/gguf.h"
#include "formats/shape/family.h"
#include "formats/shape/gguf_hparams.h"
#include "tests/formats/gguf_family_models.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { MAX_LINE = 400, MAX_UNREAD = 24 };

typedef struct table {
    apr_arena arena;
    apr_kv_list converter, ours; /* each with general.architecture */
    const char *unread[MAX_UNREAD];
    size_t n_unread;
} table;

/* --- the tables --- */

static void parse_array(apr_kv *item, const char *type, const char *values, apr_arena *arena)
{
    static const struct {
        const char *name;
        apr_kv_type type;
        size_t n_bytes;
    } types[] = {{"[i32]", APR_KV_I32, 4}, {"[bool]", APR_KV_BOOL, 1}, {"[f64]", APR_KV_F64, 8}, {"[f32]", APR_KV_F32, 4}};
    enum { N_TYPES = sizeof types / sizeof *types };
    uint8_t *const bytes = apr_arena_alloc(arena, strlen(values) * 8);
    size_t which = 0;

    while (which < N_TYPES && strcmp(types[which].name, type) != 0) which++;
    if (which == N_TYPES) fail_msg("'%s' is not a type", type);
    *item = (apr_kv){.key = item->key, .type = APR_KV_ARRAY, .elem_type = types[which].type, .value.numbers = bytes};
    for (const char *at = values; *at != '\0'; at += strspn(at, " ")) {
        const double number = strncmp(at, "true", 4) == 0 ? 1 : strtod(at, NULL);
        const bool is_float = types[which].type == APR_KV_F32;
        const float f32 = strtof(at, NULL);
        const int32_t whole = is_float ? 0 : (int32_t)number;
        uint8_t *const to = bytes + types[which].n_bytes * item->n_elems++;
        if (types[which].type == APR_KV_F64) memcpy(to, &number, 8);
        else if (is_float) memcpy(to, &f32, 4);
        else memcpy(to, &whole, types[which].n_bytes);
        at += strcspn(at, " ");
    }
}

static void parse_value(apr_kv_list *list, const char *key, const char *type, const char *value)
{
    const char *const kept_key = apr_arena_copy(list->arena, key, strlen(key)), *const kept =
                                                                                    apr_arena_copy(list->arena, value, strlen(value));
    apr_kv item = {.key = apr_str_of(kept_key)};
    const float f32 = strtof(value, NULL);
    const double f64 = strtod(value, NULL);

    if (type[0] == '[') parse_array(&item, type, kept, list->arena);
    else if (strcmp(type, "str") == 0) item.type = APR_KV_STRING, item.value.string = apr_str_of(kept);
    else if (strcmp(type, "bool") == 0) item.type = APR_KV_BOOL, item.value.bits = strcmp(value, "true") == 0;
    else if (strcmp(type, "u32") == 0) item.type = APR_KV_U32, item.value.bits = strtoull(value, NULL, 10);
    else if (strcmp(type, "i64") == 0) item.type = APR_KV_I64, item.value.bits = strtoull(value, NULL, 10);
    else if (strcmp(type, "f32") == 0) item.type = APR_KV_F32, memcpy(&item.value.bits, &f32, sizeof f32);
    else if (strcmp(type, "f64") == 0) item.type = APR_KV_F64, memcpy(&item.value.bits, &f64, sizeof f64);
    else fail_msg("'%s' is not a type", type);
    assert_int_equal(apr_kv_set(list, &item, NULL), APR_OK);
}

/* A key, for one of the lists or both. */
static void parse_key(table *t, char mark, const char *line, const char *group)
{
    char key[120] = "", type[16] = "", value[MAX_LINE] = "", whole[240];

    if (sscanf(line, "%119s %15s %399[^\n]", key, type, value) != 3) fail_msg("'%s' is not a line of such a table", line);
    snprintf(whole, sizeof whole, "%s.%s", group, key);
    if (mark == '=' || mark == '-') parse_value(&t->converter, whole, type, value);
    if (mark == '=' || mark == '+') parse_value(&t->ours, whole, type, value);
}

static void parse_line(table *t, const char *line, char *arch)
{
    char field[80];

    if (line[0] == '#' || line[0] == '\0') return;
    if (sscanf(line, "architecture %63s", arch) == 1) {
        parse_value(&t->converter, "general.architecture", "str", arch);
        parse_value(&t->ours, "general.architecture", "str", arch);
    } else if (sscanf(line, "unread %79s", field) == 1) {
        assert_true(t->n_unread < MAX_UNREAD);
        t->unread[t->n_unread++] = apr_arena_copy(&t->arena, field, strlen(field));
    } else if (strncmp(line, "aprkit ", 7) == 0) parse_key(t, '+', line + 7, "aprkit");
    else if (line[1] == ' ') parse_key(t, line[0], line + 2, arch);
    else parse_key(t, '=', line, arch);
}

static void read_table(table *t, const char *name)
{
    char path[120], line[MAX_LINE], arch[64] = "";

    *t = (table){0};
    t->converter.arena = t->ours.arena = &t->arena;
    snprintf(path, sizeof path, "tests/data/gguf-keys/%s.txt", name);
    FILE *const in = fopen(path, "r");
    if (in == NULL) fail_msg("%s is not there", path);
    while (fgets(line, sizeof line, in) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        parse_line(t, line, arch);
    }
    fclose(in);
}

/* --- comparing --- */

/* What both say in the same way through every function; a field of `a` that is 0 ("not said") may be anything. NULL: the same. */
static bool same_scaling(const apr_rope_scaling *a, const apr_rope_scaling *b)
{
    bool same = a->kind == b->kind && a->original_context == b->original_context && a->no_truncate == b->no_truncate;
    for (size_t i = 0; i < apr_n_rope_fields; i++)
        same =
            same && memcmp((const char *)a + apr_rope_fields[i].offset, (const char *)b + apr_rope_fields[i].offset, sizeof(double)) == 0;
    same = same && a->n_factors == b->n_factors;
    for (int64_t i = 0; i < a->n_factors && same; i++)
        same = a->short_factor[i] == b->short_factor[i] && a->long_factor[i] == b->long_factor[i];
    return same;
}

static bool same_layers(const apr_hparams *a, const apr_hparams *b, const char **field)
{
    for (int64_t i = 0; i < a->num_layers; i++) {
        if (apr_layer_kind_of(a, i) != apr_layer_kind_of(b, i)) *field = "layer_kinds";
        else if (apr_ffn_kind_of(a, i) != apr_ffn_kind_of(b, i)) *field = "ffn_kinds";
        else if (apr_layer_has_rope(a, i) != apr_layer_has_rope(b, i)) *field = "no_rope";
        else if (apr_layer_shares_index(a, i) != apr_layer_shares_index(b, i)) *field = "shares_index";
    }
    return *field == NULL;
}

/* Fills `fields` with the names of what differs, in the order of the tables. */
static size_t differences(apr_hparams a, apr_hparams b, const char **fields)
{
    const char *layers = NULL;
    size_t n = 0;

    if (strcmp(a.architecture, b.architecture) != 0) fields[n++] = "architecture";
    for (size_t i = 0; i < apr_n_hparam_fields; i++) {
        const apr_hparam_field *const f = &apr_hparam_fields[i];
        const bool differs = f->is_int ? *apr_hparam_int(&a, f) != 0 && *apr_hparam_int(&a, f) != *apr_hparam_int(&b, f)
                                       : *apr_hparam_real(&a, f) != 0 && *apr_hparam_real(&a, f) != *apr_hparam_real(&b, f);
        if (differs) fields[n++] = f->name;
    }
    for (size_t i = 0; i < apr_n_hflag_fields; i++)
        if (*apr_hflag(&a, &apr_hflag_fields[i]) != *apr_hflag(&b, &apr_hflag_fields[i])) fields[n++] = apr_hflag_fields[i].name;
    if (!same_scaling(&a.rope, &b.rope)) fields[n++] = "rope";
    if (!same_scaling(&a.rope_local, &b.rope_local)) fields[n++] = "rope_local";
    if (!same_layers(&a, &b, &layers)) fields[n++] = layers;
    return n;
}

static apr_hparams complete(const family_model *m, apr_arena *arena)
{
    apr_hparams h = m->h;
    apr_error err = {0};
    if (apr_hparams_complete(&h, arena, m->name, &err) != APR_OK) fail_msg("%s", err.text);
    return h;
}

/* Through the binary form. */
static apr_hparams read_back(const apr_kv_list *kv, const char *name, apr_arena *arena)
{
    apr_kv_list read = {.arena = arena};
    apr_error err = {0};
    apr_hparams h = {0};
    uint8_t *const bytes = apr_arena_alloc(arena, (size_t)apr_kv_bytes(kv));

    apr_kv_write(kv, bytes);
    apr_cursor cursor = {.data = bytes, .n_bytes = (size_t)apr_kv_bytes(kv)};
    if (apr_kv_read(&cursor, kv->n_items, name, &read, &err) != APR_OK || apr_gguf_hparams(&read, &h, arena, name, &err) != APR_OK ||
        apr_hparams_complete(&h, arena, name, &err) != APR_OK)
        fail_msg("%s", err.text);
    return h;
}

static void write_keys(const apr_hparams *h, const char *name, apr_kv_list *kv)
{
    static const apr_vocab none = {.kind = APR_VOCAB_NONE};
    apr_error err = {0};
    if (apr_gguf_keys(h, &none, NULL, 0, kv, &err) != APR_OK) fail_msg("%s: %s", name, err.text);
}

static bool same_item(const apr_kv *a, const apr_kv *b)
{
    const apr_kv_list one = {.items = (apr_kv *)(uintptr_t)a, .n_items = 1}, other = {.items = (apr_kv *)(uintptr_t)b, .n_items = 1};
    const size_t n = (size_t)apr_kv_bytes(&one);
    if (apr_kv_bytes(&other) != n) return false;
    uint8_t *const x = malloc(n), *const y = malloc(n);
    apr_kv_write(&one, x);
    apr_kv_write(&other, y);
    const bool same = memcmp(x, y, n) == 0;
    free(x);
    free(y);
    return same;
}

/* --- the tests --- */

static void our_keys_are_the_converter_s_but_for_what_the_tables_say(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_FAMILY_MODELS; i++) {
        table t;
        read_table(&t, family_models[i].name);
        const apr_hparams h = complete(&family_models[i], &t.arena);
        apr_kv_list made = {.arena = &t.arena};
        write_keys(&h, family_models[i].name, &made);
        for (size_t k = 0; k < t.ours.n_items; k++) {
            const apr_kv *const theirs = &t.ours.items[k], *const ours = apr_kv_find(&made, theirs->key.text);
            if (ours == NULL) fail_msg("%s: '%s' is not written", family_models[i].name, theirs->key.text);
            if (!same_item(ours, theirs)) fail_msg("%s: '%s' has another type or value", family_models[i].name, theirs->key.text);
        }
        for (size_t k = 0; k < made.n_items; k++) {
            const char *const key = made.items[k].key.text;
            const bool is_general = strncmp(key, "general.", 8) == 0 || strncmp(key, "tokenizer.", 10) == 0;
            if (!is_general && apr_kv_find(&t.ours, key) == NULL) fail_msg("%s: '%s' is in no table", family_models[i].name, key);
        }
        apr_arena_close(&t.arena);
    }
}

static void what_was_written_reads_back_the_same(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_FAMILY_MODELS; i++) {
        const char *differing[100];
        apr_arena arena = {0};
        apr_kv_list made = {.arena = &arena};
        const apr_hparams h = complete(&family_models[i], &arena);
        write_keys(&h, family_models[i].name, &made);
        const apr_hparams back = read_back(&made, family_models[i].name, &arena);
        if (differences(h, back, differing) > 0) fail_msg("%s: %s is lost on the way", family_models[i].name, differing[0]);
        apr_arena_close(&arena);
    }
}

static void the_converter_s_own_files_are_understood(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_FAMILY_MODELS; i++) {
        const char *differing[100];
        table t;
        read_table(&t, family_models[i].name);
        const apr_hparams h = complete(&family_models[i], &t.arena), back = read_back(&t.converter, family_models[i].name, &t.arena);
        const size_t n = differences(h, back, differing);
        for (size_t k = 0; k < n || k < t.n_unread; k++) {
            if (k >= t.n_unread) fail_msg("%s: %s is not understood", family_models[i].name, differing[k]);
            if (k >= n || strcmp(differing[k], t.unread[k]) != 0)
                fail_msg("%s: not '%s' but '%s' is unread", family_models[i].name, t.unread[k], k < n ? differing[k] : "nothing");
        }
        apr_arena_close(&t.arena);
    }
}

/* --- what is said of it --- */

/* What must be said of a model, by kind, and nothing else but notes; NULL ends the sentences. */
static void assert_said(const apr_hparams *h, const char *name, apr_loss_kind kind, const char *const *sentences)
{
    const apr_model m = {.format = APR_FORMAT_SAFETENSORS,
                         .naming = APR_NAMING_GGML,
                         .origin = {.format = APR_FORMAT_SAFETENSORS},
                         .hparams = *h,
                         .vocab = {.bos_id = -1, .eos_id = -1, .pad_id = -1, .unk_id = -1}};
    apr_losses losses = {0};
    apr_error err = {0};
    size_t n = 0;

    assert_int_equal(apr_gguf_losses(&m, &losses, &err), APR_OK);
    for (size_t i = 0; i < losses.n_items; i++) {
        if (losses.items[i].kind == APR_NOTE) continue;
        if (sentences[n] == NULL) fail_msg("%s: it says: %s", name, losses.items[i].text);
        if (strstr(losses.items[i].text, sentences[n]) == NULL || losses.items[i].kind != kind)
            fail_msg("%s: not '%s' is said, but: %s", name, sentences[n], losses.items[i].text);
        n++;
    }
    if (sentences[n] != NULL) fail_msg("%s: no loss says '%s'", name, sentences[n]);
    apr_losses_close(&losses);
}

static void only_what_other_readers_will_not_know_is_noted(void **state)
{
    static const struct {
        const char *name;
        const char *says[5];
    } rows[] = {
        {"mistral", {"4 of 4 layers see the last 8 tokens only"}},
        {"starcoder2", {"4 of 4 layers see the last 8 tokens only"}},
        {"gpt_neox", {"gptneox approximates GELU by tanh"}},
        {"gpt_oss", {"\"truncate\": false"}},
        {"phi3", {"factors of the rotary scaling \"longrope\" in tensors, which are not there"}},
        {"gemma2", {"query_pre_attn_scalar in gemma2: here it is 20, llama.cpp assumes 12"}},
        {"gemma3", {"the order of the layers of gemma3, and llama.cpp assumes something else for layer 3", "query_pre_attn_scalar"}},
        {"gemma3n",
         {"per_layer_input_size 256, whatever the keys say; here it is 8", "laurel_rank 64, whatever", "num_sparse_layers 10, whatever",
          "activation_sparsity 0.95, whatever the keys say; here it is 0.7"}},
        {"gemma4", {"rope_freqs.weight, which is not there"}},
        {"gemma4_moe", {"rope_freqs.weight, which is not there"}},
        {"deepseek_v2", {"ranks groups of experts by their two best"}},
        {"glm4_moe_lite", {"epsilon of 1e-06, and llama.cpp takes that of the others (1e-05)"}},
        {"glm_moe_dsa", {"epsilon of 1e-06, and llama.cpp takes that of the others (1e-05)", "half are rotated; here 8 of 20"}},
        {"kimi_linear", {"epsilon of 1e-06, and llama.cpp takes that of the others (1e-05)"}},
        {"llama4", {"attention_chunk_size in llama4: here it is 16, llama.cpp assumes 8192", "attn_temperature_length"}},
        {"qwen3_5", {"qwen35 needs linear attention with keys (16) and values (8)"}},
        {"qwen3_5_moe", {"qwen35moe needs linear attention"}},
        {"qwen3_next", {"qwen3next needs linear attention"}},
        {"dots1", {"needs as many key/value heads (here 2) as heads (4)"}},
        {"olmoe", {"needs as many key/value heads (here 2) as heads (4)"}},
        {"exaone4", {"exaone4 has no attention window; here 3 of 4 layers see the last 8 tokens only"}},
        {"mellum", {"rotates sliding layers with the base of the others (500000); here it is 10000"}},
    };
    static const char *const nothing[] = {NULL};

    (void)state;
    for (size_t i = 0; i < N_FAMILY_MODELS; i++) {
        apr_arena arena = {0};
        const apr_hparams h = complete(&family_models[i], &arena);
        const char *const *says = nothing;
        for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
            if (strcmp(rows[k].name, family_models[i].name) == 0) says = rows[k].says;
        assert_said(&h, family_models[i].name, APR_LOST_TO_OTHERS, says);
        apr_arena_close(&arena);
    }
}

static apr_hparams model_of(const char *name, apr_arena *arena)
{
    size_t i = 0;
    while (i < N_FAMILY_MODELS - 1 && strcmp(family_models[i].name, name) != 0) i++;
    return complete(&family_models[i], arena);
}

static void what_ggml_has_no_key_for_is_named(void **state)
{
    static const char *const experts[] = {"which layers of qwen3moe have experts, and llama.cpp assumes something else for layer 0", NULL};
    static const char *const weights[] = {"qwen3moe scales the weights of chosen experts to 1, and this model does not", NULL};
    static const char *const positions[] = {
        "which layers of smollm3 have rotary embeddings, and llama.cpp assumes something else for layer 3", NULL};
    static const char *const pair[] = {"YaRN's mscale (0.707) and mscale_all_dim (1)", "two best", NULL};
    static const char *const limit[] = {"swiglu_limit in gpt-oss: here it is 5, llama.cpp assumes 7", NULL};
    static const char *const norms[] = {"expects norms of queries and keys in models of 64 layers and more", NULL};
    static const char *const none[] = {NULL};
    static const char *const mamba[] = {"granitehybrid needs Mamba layers", NULL};
    apr_arena arena = {0};

    (void)state;
    apr_hparams h = model_of("granitemoehybrid", &arena);
    h.layer_kinds = NULL;
    h.linear_conv_kernel_dim = h.linear_num_key_heads = h.linear_num_value_heads = 0;
    assert_said(&h, "mamba", APR_LOST, mamba);
    h = model_of("qwen3_moe", &arena);
    h.ffn_kinds = deee; /* mlp_only_layers: llama.cpp opens no such file */
    assert_said(&h, "experts", APR_LOST, experts);
    h = model_of("qwen3_moe", &arena);
    h.norm_topk_prob = false;
    assert_said(&h, "weights", APR_LOST_TO_OTHERS, weights);
    h = model_of("smollm3", &arena);
    h.no_rope = NULL;
    assert_said(&h, "positions", APR_LOST_TO_OTHERS, positions);
    h = model_of("deepseek_v2", &arena);
    h.rope.mscale = 0.707;
    h.rope.mscale_all_dim = 1;
    assert_said(&h, "pair", APR_LOST_TO_OTHERS, pair);
    h = model_of("gpt_oss", &arena);
    h.rope.no_truncate = false;
    h.swiglu_limit = 5;
    assert_said(&h, "limit", APR_LOST_TO_OTHERS, limit);
    h = model_of("cohere", &arena);
    h.use_qk_norm = true;
    assert_said(&h, "few layers with norms", APR_LOST_TO_OTHERS, norms);
    h.num_layers = 64;
    assert_said(&h, "many layers with norms", APR_LOST_TO_OTHERS, none);
    h.use_qk_norm = false;
    assert_said(&h, "many layers without norms", APR_LOST_TO_OTHERS, norms);
    apr_arena_close(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(our_keys_are_the_converter_s_but_for_what_the_tables_say),
        cmocka_unit_test(what_was_written_reads_back_the_same),
        cmocka_unit_test(the_converter_s_own_files_are_understood),
        cmocka_unit_test(only_what_other_readers_will_not_know_is_noted),
        cmocka_unit_test(what_ggml_has_no_key_for_is_named),
    };
    return cmocka_run_group_tests_name("gguf families", tests, NULL, NULL);
}
