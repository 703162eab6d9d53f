/* hf_config_layers.c - the kind of each layer in a config.json, read and written: its mixer, whether its feed-forward has experts, whether
 * its attention has positions. Newer files list the layers. Older ones leave them to the model's code, whose rule is in
 * apr_family_config. */
#include "formats/shape/hf_config.h"
#include "formats/shape/hf_config_values.h"

#include <stdlib.h>
#include <string.h>

typedef apr_config_reading reading;

/* --- words --- */

typedef struct layer_word {
    const char *word;
    apr_layer_kind kind;
    apr_ffn_kind ffn; /* if a layer is either a mixer or a feed-forward */
    char letter;      /* in nemotron_h's pattern; 0: none */
} layer_word;

static const layer_word layer_words[] = {
    {"full_attention", APR_LAYER_FULL, APR_FFN_NONE, 0},
    {"indexed_attention", APR_LAYER_FULL, APR_FFN_NONE, 0},
    {"sliding_attention", APR_LAYER_SLIDING, APR_FFN_NONE, 0},
    {"linear_attention", APR_LAYER_LINEAR, APR_FFN_NONE, 0},
    {"chunked_attention", APR_LAYER_CHUNKED, APR_FFN_NONE, 0},
    {"conv", APR_LAYER_CONV, APR_FFN_NONE, 0},
    {"mamba", APR_LAYER_MAMBA, APR_FFN_NONE, 'M'},
    {"attention", APR_LAYER_FULL, APR_FFN_NONE, '*'},
    {"moe", APR_LAYER_NONE, APR_FFN_EXPERTS, 'E'},
    {"mlp", APR_LAYER_NONE, APR_FFN_DENSE, '-'},
};
enum { N_LAYER_WORDS = sizeof layer_words / sizeof *layer_words };

/* NULL: no layer of this family has that name. */
static const layer_word *find_word(const reading *r, const char *word)
{
    static const char *const usual[] = {"full_attention", "sliding_attention", NULL};
    const char *const *const allowed = r->spec == NULL ? NULL : r->spec->layer_types != NULL ? r->spec->layer_types : usual;

    for (size_t i = 0; word != NULL && i < N_LAYER_WORDS; i++)
        if (strcmp(layer_words[i].word, word) == 0 && (r->spec == NULL || apr_is_any_of(word, allowed))) return &layer_words[i];
    return NULL;
}

static const char *layer_name(const apr_family_config *spec, apr_layer_kind kind)
{
    if (spec != NULL && spec->mamba && kind == APR_LAYER_FULL) return "attention"; /* as in the hub's files; transformers 5 reads both */
    for (size_t i = 0; i < N_LAYER_WORDS; i++)
        if (layer_words[i].kind == kind) return layer_words[i].word;
    return "";
}

/* The word of each layer, from a list or from nemotron_h's pattern of letters; NULL: not a word. */
typedef struct layer_list {
    const char **words;
    int64_t n;
} layer_list;

static const char *word_of_letter(char letter)
{
    for (size_t i = 0; i < N_LAYER_WORDS; i++)
        if (layer_words[i].letter == letter) return layer_words[i].word;
    return NULL;
}

static char letter_of(const apr_hparams *h, int64_t layer)
{
    const apr_layer_kind kind = apr_layer_kind_of(h, layer);
    const apr_ffn_kind ffn = apr_ffn_kind_of(h, layer);

    for (size_t i = 0; i < N_LAYER_WORDS; i++)
        if (layer_words[i].letter != 0 && layer_words[i].kind == kind && (kind != APR_LAYER_NONE || layer_words[i].ffn == ffn))
            return layer_words[i].letter;
    return kind == APR_LAYER_NONE ? '-' : '*';
}

static apr_status list_words(const reading *r, const cJSON *types, layer_list *list)
{
    const cJSON *type;
    const char *const pattern = cJSON_IsString(types) ? types->valuestring : NULL;
    int64_t n = 0;

    list->n = pattern != NULL ? (int64_t)strlen(pattern) : cJSON_GetArraySize(types);
    list->words = apr_arena_array(r->arena, (size_t)list->n + 1, sizeof *list->words);
    if (list->words == NULL) return apr_no_memory(r->err, "the kinds of the layers");
    for (; pattern != NULL && n < list->n; n++) list->words[n] = word_of_letter(pattern[n]);
    if (pattern == NULL) cJSON_ArrayForEach(type, types) list->words[n++] = cJSON_IsString(type) ? type->valuestring : NULL;
    return APR_OK;
}

/* Looks for the list under each of its names. *key is the one found. */
static const cJSON *find_types(const reading *r, const char **key)
{
    static const char *const keys[] = {"layer_types", "layers_block_type", "hybrid_override_pattern"};
    const size_t n = r->spec != NULL && r->spec->mamba ? 3 : 1;

    for (size_t i = 0; i < n; i++) {
        const cJSON *const types = apr_config_find(r, keys[i]);
        *key = keys[i];
        if (types != NULL) return types;
    }
    return NULL;
}

static uint8_t *new_kinds(const reading *r, int64_t n) { return apr_arena_alloc(r->arena, (size_t)n + 1); }

static apr_status read_list(const reading *r, const cJSON *types, const char *key)
{
    apr_hparams *const h = r->h;
    layer_list list;

    if (!cJSON_IsArray(types) && !(cJSON_IsString(types) && strcmp(key, "hybrid_override_pattern") == 0))
        return apr_fail(r->err, APR_E_DAMAGED, "%s: \"%s\" is not a list", r->where, key);
    APR_TRY(list_words(r, types, &list));
    if (h->num_layers == 0) h->num_layers = list.n;
    if (list.n != h->num_layers)
        return apr_fail(r->err, APR_E_DAMAGED, "%s: \"%s\" has %lld entries for %lld layers", r->where, key, (long long)list.n,
                        (long long)h->num_layers);
    uint8_t *const kinds = new_kinds(r, list.n), *const ffn = new_kinds(r, list.n);
    if (kinds == NULL || ffn == NULL) return apr_no_memory(r->err, "the kinds of the layers");
    for (int64_t i = 0; i < list.n; i++) {
        const layer_word *const word = find_word(r, list.words[i]);
        if (word == NULL)
            return apr_config_refuse(r, "its layer %lld is of the unknown type \"%.40s\"", (long long)i,
                                     list.words[i] != NULL ? list.words[i] : "");
        const bool is_mamba = word->kind == APR_LAYER_LINEAR && r->spec != NULL && r->spec->mamba;
        kinds[i] = (uint8_t)(is_mamba ? APR_LAYER_MAMBA : word->kind);
        ffn[i] = (uint8_t)word->ffn;
    }
    h->layer_kinds = kinds;
    if (r->spec != NULL && r->spec->experts == APR_EXPERTS_BY_BLOCK) h->ffn_kinds = ffn;
    return APR_OK;
}

/* --- rules, for files without a list --- */

/* How the kinds of the layers follow from fields (NULL: all are as usual), and how these fields are written (NULL: there are none). */
typedef struct layer_rule {
    apr_status (*fill)(const reading *r, uint8_t *kinds, int64_t n);
    void (*put)(apr_json_text *out, const apr_hparams *h, const apr_family_config *f);
} layer_rule;

/* Fills in *kinds, unless all layers are of the usual kind. UINT8_MAX: none is usual. */
static apr_status read_by_rule(const reading *r, const layer_rule *rule, uint8_t usual, const uint8_t **kinds)
{
    const int64_t n = r->h->num_layers;
    bool differ = false;

    if (rule->fill == NULL || n <= 0 || n > APR_MAX_LAYERS) return APR_OK;
    uint8_t *const list = new_kinds(r, n);
    if (list == NULL) return apr_no_memory(r->err, "the kinds of the layers");
    memset(list, usual, (size_t)n);
    APR_TRY(rule->fill(r, list, n));
    for (int64_t i = 0; i < n; i++) differ |= list[i] != usual;
    if (differ) *kinds = list;
    return APR_OK;
}

static void put_by_rule(apr_json_text *out, const layer_rule *rule, const apr_hparams *h, const apr_family_config *f)
{
    if (rule->put != NULL) rule->put(out, h, f);
}

/* --- mixers --- */

static void fill_window(uint8_t *kinds, int64_t n, apr_window_layers window)
{
    for (int64_t i = 0; i < n; i++) kinds[i] = apr_layer_slides(window, i) ? APR_LAYER_SLIDING : APR_LAYER_FULL;
}

static apr_status fill_all(const reading *r, uint8_t *kinds, int64_t n)
{
    (void)r;
    fill_window(kinds, n, (apr_window_layers){0});
    return APR_OK;
}

static apr_status fill_even(const reading *r, uint8_t *kinds, int64_t n)
{
    (void)r;
    fill_window(kinds, n, (apr_window_layers){.full_every = 2});
    return APR_OK;
}

static apr_status fill_from_layer(const reading *r, uint8_t *kinds, int64_t n)
{
    apr_window_layers window = {.n_full_first = r->spec->max_window_layers};

    APR_TRY(apr_config_int(r, "max_window_layers", &window.n_full_first));
    fill_window(kinds, n, window);
    return APR_OK;
}

/* "LLLG": windows (L) and full attention (G), repeated; the last layer has full attention (exaone4). */
static apr_status fill_letters(const reading *r, const char *letters, uint8_t *kinds, int64_t n)
{
    const size_t n_letters = strlen(letters);

    if (n_letters == 0 || strspn(letters, "LG") != n_letters)
        return apr_config_refuse(r, "its \"sliding_window_pattern\" is \"%.40s\"", letters);
    for (int64_t i = 0; i < n; i++) kinds[i] = letters[(size_t)i % n_letters] == 'L' && i < n - 1 ? APR_LAYER_SLIDING : APR_LAYER_FULL;
    return APR_OK;
}

static apr_status fill_pattern(const reading *r, uint8_t *kinds, int64_t n)
{
    apr_window_layers window = {.full_every = r->spec->full_every};

    const cJSON *const letters = apr_config_find(r, "sliding_window_pattern");

    if (cJSON_IsString(letters)) return fill_letters(r, letters->valuestring, kinds, n);
    APR_TRY(apr_config_int(r, "_sliding_window_pattern", &window.full_every));
    APR_TRY(apr_config_int(r, "global_attn_every_n_layers", &window.full_every));
    APR_TRY(apr_config_int(r, "sliding_window_pattern", &window.full_every));
    if (window.full_every <= 0)
        return apr_fail(r->err, APR_E_DAMAGED, "%s: \"sliding_window_pattern\" is %lld", r->where, (long long)window.full_every);
    fill_window(kinds, n, window);
    return APR_OK;
}

/* llama4: the layers with positions attend within chunks, the others to everything. */
static apr_status fill_chunks(const reading *r, uint8_t *kinds, int64_t n)
{
    for (int64_t i = 0; i < n; i++) kinds[i] = apr_layer_has_rope(r->h, i) ? APR_LAYER_CHUNKED : APR_LAYER_FULL;
    return APR_OK;
}

/* Mamba everywhere, but for the attention layers that bamba lists. lfm2: attention in full_attn_idxs, convolutions elsewhere; without the list attention everywhere. */
static apr_status fill_unlisted(const reading *r, uint8_t *kinds, int64_t n)
{
    const char *const key = r->spec->mamba ? "attn_layer_indices" : "full_attn_idxs";
    const cJSON *const full = apr_config_find(r, key), *item;
    int64_t layer;

    memset(kinds, r->spec->mamba ? APR_LAYER_MAMBA : cJSON_IsArray(full) ? APR_LAYER_CONV : APR_LAYER_FULL, (size_t)n);
    cJSON_ArrayForEach(item, full)
    {
        if (!apr_json_as_int(item, &layer) || layer < 0 || layer >= n)
            return apr_fail(r->err, APR_E_DAMAGED, "%s: \"%s\" names a layer that does not exist", r->where, key);
        kinds[layer] = APR_LAYER_FULL;
    }
    return APR_OK;
}

/* For transformers before layer_types: the layer from which on all have a window; -1: no such layer. */
static int64_t first_sliding(const apr_hparams *h)
{
    int64_t first = 0;

    while (first < h->num_layers && h->layer_kinds[first] == APR_LAYER_FULL) first++;
    for (int64_t i = first; i < h->num_layers; i++)
        if (h->layer_kinds[i] != APR_LAYER_SLIDING) return -1;
    return first;
}

static void put_first_sliding(apr_json_text *out, const apr_hparams *h, const apr_family_config *f)
{
    (void)f;
    if (h->sliding_window > 0 && first_sliding(h) >= 0) apr_json_int(out, "max_window_layers", first_sliding(h));
}

static const layer_rule window_rules[] = {
    [APR_WINDOW_NONE] = {NULL},
    [APR_WINDOW_ALL] = {fill_all},
    [APR_WINDOW_EVEN] = {fill_even},
    [APR_WINDOW_FROM_LAYER] = {fill_from_layer, put_first_sliding},
    [APR_WINDOW_LAST] = {fill_from_layer, put_first_sliding},
    [APR_WINDOW_PATTERN] = {fill_pattern},
    [APR_WINDOW_CHUNKS] = {fill_chunks},
};

/* The rule of this file. */
static const layer_rule *mixer_rule(const reading *r)
{
    static const layer_rule unlisted = {fill_unlisted}, none = {NULL};
    const apr_family_config *const f = r->spec;

    if (f == NULL) return &none;
    if (f->mamba || apr_is_any_of("conv", f->layer_types)) return &unlisted;
    if ((f->window == APR_WINDOW_CHUNKS ? r->h->attention_chunk_size : r->h->sliding_window) <= 0) return &none;
    const bool is_from_layer = f->window != APR_WINDOW_CHUNKS && apr_config_find(r, "use_sliding_window") != NULL;
    return &window_rules[is_from_layer ? APR_WINDOW_FROM_LAYER : f->window];
}

static apr_status read_mixers(const reading *r)
{
    apr_hparams *const h = r->h;
    const char *key;
    const cJSON *const types = find_types(r, &key);
    bool use_window = r->spec == NULL || r->spec->window != APR_WINDOW_FROM_LAYER;

    APR_TRY(apr_config_bool(r, "use_sliding_window", &use_window));
    if (!use_window) h->sliding_window = 0;
    if (types != NULL && !apr_config_has(r, "full_attention_interval")) h->full_attention_interval = 0; /* no default then */
    if (types != NULL) return read_list(r, types, key);
    if (r->spec != NULL && r->spec->experts == APR_EXPERTS_BY_BLOCK) return apr_config_refuse(r, "it does not say what its layers are");

    return read_by_rule(r, mixer_rule(r), UINT8_MAX, &h->layer_kinds);
}

/* nemotron_h's older key, which transformers 5 also reads. */
static void put_pattern(apr_json_text *out, const apr_hparams *h)
{
    char letters[APR_MAX_LAYERS];
    const int64_t n = h->num_layers < APR_MAX_LAYERS ? h->num_layers : APR_MAX_LAYERS;

    for (int64_t i = 0; i < n; i++) letters[i] = letter_of(h, i);
    apr_json_string(out, "hybrid_override_pattern", letters, (size_t)n);
}

static void put_attention_layers(apr_json_text *out, const apr_hparams *h)
{
    apr_json_open(out, "attn_layer_indices", '[');
    for (int64_t i = 0; i < h->num_layers; i++)
        if (apr_layer_kind_of(h, i) == APR_LAYER_FULL) apr_json_int(out, NULL, i);
    apr_json_close(out, ']');
}

/* Writes the kinds of the layers. */
static void put_mixers(apr_json_text *out, const apr_hparams *h, const apr_family_config *f)
{
    if (f->numbers_attention) {
        put_attention_layers(out, h);
        return;
    }
    if (f->experts == APR_EXPERTS_BY_BLOCK) {
        put_pattern(out, h);
        return;
    }
    if (f->mamba && !apr_is_any_of("attention", f->layer_types)) return; /* all are, without a list */
    if (h->layer_kinds == NULL && !f->mamba) return;                     /* without a list Mamba classes assume Mamba layers */
    if (h->sliding_window > 0 && f->window != APR_WINDOW_PATTERN) apr_json_bool(out, "use_sliding_window", true);
    put_by_rule(out, &window_rules[f->window], h, f);
    apr_json_open(out, "layer_types", '[');
    for (int64_t i = 0; i < h->num_layers; i++) apr_config_put_text(out, NULL, layer_name(f, apr_layer_kind_of(h, i)));
    apr_json_close(out, ']');
}

/* --- feed-forwards --- */

/* The layers that a list names become `kind`. */
static apr_status mark(const reading *r, const char *key, uint8_t *kinds, int64_t n, apr_ffn_kind kind)
{
    const cJSON *const list = apr_config_find(r, key), *item;
    int64_t layer;

    if (list != NULL && !cJSON_IsArray(list)) return apr_fail(r->err, APR_E_DAMAGED, "%s: \"%s\" is not a list", r->where, key);
    cJSON_ArrayForEach(item, list)
    {
        if (!apr_json_as_int(item, &layer) || layer < 0 || layer >= n)
            return apr_fail(r->err, APR_E_DAMAGED, "%s: \"%s\" names a layer that is not one of the %lld", r->where, key, (long long)n);
        kinds[layer] = (uint8_t)kind;
    }
    return APR_OK;
}

/* Reads "dense" or "sparse" for each layer. */
static apr_status read_mlp_types(const reading *r, const cJSON *types, uint8_t *kinds, int64_t n)
{
    const cJSON *type;
    int64_t i = 0;

    if (cJSON_GetArraySize(types) != n)
        return apr_fail(r->err, APR_E_DAMAGED, "%s: \"mlp_layer_types\" has %d entries for %lld layers", r->where,
                        cJSON_GetArraySize(types), (long long)n);
    cJSON_ArrayForEach(type, types)
    {
        const char *const word = cJSON_IsString(type) ? type->valuestring : "";
        if (strcmp(word, "dense") != 0 && strcmp(word, "sparse") != 0)
            return apr_config_refuse(r, "its feed-forward %lld is of the unknown type \"%.40s\"", (long long)i, word);
        kinds[i++] = strcmp(word, "dense") == 0 ? APR_FFN_DENSE : APR_FFN_EXPERTS;
    }
    return APR_OK;
}

static apr_status fill_after_dense(const reading *r, uint8_t *kinds, int64_t n)
{
    const cJSON *const types = apr_config_find(r, "mlp_layer_types");
    int64_t n_dense = apr_config_has(r, r->spec->dense_key) ? 0 : r->spec->n_dense;

    if (types != NULL) return read_mlp_types(r, types, kinds, n);
    APR_TRY(apr_config_int(r, r->spec->dense_key, &n_dense));
    if (n_dense < 0) return apr_fail(r->err, APR_E_DAMAGED, "%s: \"%s\" is %lld", r->where, r->spec->dense_key, (long long)n_dense);
    for (int64_t i = 0; i < n && i < n_dense; i++) kinds[i] = APR_FFN_DENSE;
    return APR_OK;
}

/* Reads a step between layers, which must not be 0. */
static apr_status read_step(const reading *r, const char *key, int64_t *step)
{
    APR_TRY(apr_config_int(r, key, step));
    return *step > 0 ? APR_OK : apr_fail(r->err, APR_E_DAMAGED, "%s: \"%s\" is %lld", r->where, key, (long long)*step);
}

static apr_status fill_by_step(const reading *r, uint8_t *kinds, int64_t n)
{
    int64_t step = 1;

    APR_TRY(read_step(r, "decoder_sparse_step", &step));
    for (int64_t i = 0; i < n; i++) kinds[i] = (i + 1) % step == 0 ? APR_FFN_EXPERTS : APR_FFN_DENSE;
    return mark(r, "mlp_only_layers", kinds, n, APR_FFN_DENSE);
}

static apr_status fill_listed(const reading *r, uint8_t *kinds, int64_t n)
{
    int64_t step = 1;

    memset(kinds, APR_FFN_DENSE, (size_t)n);
    if (apr_config_find(r, "moe_layers") != NULL) return mark(r, "moe_layers", kinds, n, APR_FFN_EXPERTS);
    APR_TRY(read_step(r, "interleave_moe_layer_step", &step));
    for (int64_t i = 0; i < n; i++)
        if ((i + 1) % step == 0) kinds[i] = APR_FFN_EXPERTS;
    return APR_OK;
}

static apr_status fill_range(const reading *r, uint8_t *kinds, int64_t n)
{
    int64_t start = 1, end = -1, step = 1;

    APR_TRY(apr_config_int(r, "moe_layer_start_index", &start));
    APR_TRY(apr_config_int(r, "moe_layer_end_index", &end));
    APR_TRY(read_step(r, "moe_layer_interval", &step));
    for (int64_t i = 0; i < n; i++)
        kinds[i] = i >= start && (end == -1 || i <= end) && (i + 1) % step == 0 ? APR_FFN_EXPERTS : APR_FFN_DENSE;
    return APR_OK;
}

/* Writes a list of the layers with this feed-forward. */
static void put_layers_with(apr_json_text *out, const char *key, const apr_hparams *h, apr_ffn_kind kind)
{
    apr_json_open(out, key, '[');
    for (int64_t i = 0; i < h->num_layers; i++)
        if (apr_ffn_kind_of(h, i) == kind) apr_json_int(out, NULL, i);
    apr_json_close(out, ']');
}

static int64_t n_dense_first(const apr_hparams *h)
{
    int64_t n = 0;
    while (n < h->num_layers && apr_ffn_kind_of(h, n) == APR_FFN_DENSE) n++;
    return n;
}

static void put_after_dense(apr_json_text *out, const apr_hparams *h, const apr_family_config *f)
{
    apr_json_int(out, f->dense_key, n_dense_first(h));
    if (!apr_is_any_of("mlp_layer_types", f->computes)) return;
    apr_json_open(out, "mlp_layer_types", '[');
    for (int64_t i = 0; i < h->num_layers; i++) apr_config_put_text(out, NULL, apr_ffn_kind_of(h, i) == APR_FFN_DENSE ? "dense" : "sparse");
    apr_json_close(out, ']');
}

static void put_by_step(apr_json_text *out, const apr_hparams *h, const apr_family_config *f)
{
    (void)f;
    apr_json_int(out, "decoder_sparse_step", 1);
    put_layers_with(out, "mlp_only_layers", h, APR_FFN_DENSE);
}

static void put_listed(apr_json_text *out, const apr_hparams *h, const apr_family_config *f)
{
    (void)f;
    put_layers_with(out, "moe_layers", h, APR_FFN_EXPERTS);
}

/* Writes the first and the last layer with experts. Dense layers between them cannot be expressed. */
static void put_range(apr_json_text *out, const apr_hparams *h, const apr_family_config *f)
{
    int64_t last = h->num_layers - 1;

    (void)f;
    while (last > 0 && apr_ffn_kind_of(h, last) == APR_FFN_DENSE) last--;
    apr_json_int(out, "moe_layer_start_index", n_dense_first(h));
    apr_json_int(out, "moe_layer_end_index", last);
    apr_json_int(out, "moe_layer_interval", 1);
}

static const layer_rule expert_rules[] = {
    [APR_EXPERTS_EVERYWHERE] = {NULL},
    [APR_EXPERTS_AFTER_DENSE] = {fill_after_dense, put_after_dense},
    [APR_EXPERTS_BY_STEP] = {fill_by_step, put_by_step},
    [APR_EXPERTS_LISTED] = {fill_listed, put_listed},
    [APR_EXPERTS_IN_RANGE] = {fill_range, put_range},
    [APR_EXPERTS_BY_BLOCK] = {NULL}, /* read_list did it */
};

/* --- positions --- */

/* no_rope_layers has 1 for a layer with positions. */
static apr_status fill_no_rope(const reading *r, uint8_t *none, int64_t n)
{
    const cJSON *const list = apr_config_find(r, "no_rope_layers"), *item;
    int64_t step = 4, i = 0, has = 0;

    if (list != NULL && list->child != NULL) {
        if (cJSON_GetArraySize(list) != n)
            return apr_fail(r->err, APR_E_DAMAGED, "%s: \"no_rope_layers\" has %d entries for %lld layers", r->where,
                            cJSON_GetArraySize(list), (long long)n);
        cJSON_ArrayForEach(item, list)
        {
            if (!apr_json_as_int(item, &has))
                return apr_fail(r->err, APR_E_DAMAGED, "%s: \"no_rope_layers\" is not a list of integers", r->where);
            none[i++] = has == 0;
        }
        return APR_OK;
    }
    APR_TRY(read_step(r, "no_rope_layer_interval", &step));
    for (i = 0; i < n; i++) none[i] = (i + 1) % step == 0;
    return APR_OK;
}

static apr_status fill_not_sliding(const reading *r, uint8_t *none, int64_t n)
{
    for (int64_t i = 0; i < n; i++) none[i] = apr_layer_kind_of(r->h, i) != APR_LAYER_SLIDING;
    return APR_OK;
}

static apr_status fill_window_positions(const reading *r, uint8_t *none, int64_t n)
{
    if (r->h->sliding_window > 0) return fill_not_sliding(r, none, n);
    memset(none, 0, (size_t)n);
    return APR_OK;
}

static apr_status fill_unless_stated(const reading *r, uint8_t *none, int64_t n)
{
    const cJSON *const type = apr_config_find(r, "position_embedding_type");
    memset(none, !(cJSON_IsString(type) && strcmp(type->valuestring, "rope") == 0), (size_t)n);
    return APR_OK;
}

static apr_status fill_everywhere(const reading *r, uint8_t *none, int64_t n)
{
    (void)r;
    memset(none, 1, (size_t)n);
    return APR_OK;
}

static void put_no_rope(apr_json_text *out, const apr_hparams *h, const apr_family_config *f)
{
    (void)f;
    apr_json_open(out, "no_rope_layers", '[');
    for (int64_t i = 0; i < h->num_layers; i++) apr_json_int(out, NULL, apr_layer_has_rope(h, i));
    apr_json_close(out, ']');
}

static void put_type(apr_json_text *out, const apr_hparams *h, const apr_family_config *f)
{
    (void)f;
    apr_config_put_text(out, "position_embedding_type", apr_layer_has_rope(h, 0) ? "rope" : "nope");
}

/* The kind of a layer is 1 if its attention has no positions. */
static const layer_rule position_rules[] = {
    [APR_POSITIONS_EVERYWHERE] = {NULL},
    [APR_POSITIONS_LISTED] = {fill_no_rope, put_no_rope},
    [APR_POSITIONS_SLIDING] = {fill_not_sliding},
    [APR_POSITIONS_WINDOW] = {fill_window_positions},
    [APR_POSITIONS_WHEN_STATED] = {fill_unless_stated, put_type},
    [APR_POSITIONS_NOWHERE] = {fill_everywhere},
    [APR_POSITIONS_LEARNED] = {NULL},
};

/* --- indexes of sparse attention --- */

/* indexer_types, or index_topk_pattern as a list of the same words or as a text of the letters F and S. */
static apr_status fill_listed_index(const reading *r, const cJSON *list, const char *key, uint8_t *shares, int64_t n)
{
    const char *const letters = cJSON_IsString(list) ? list->valuestring : NULL;
    const int64_t n_stated = letters != NULL ? (int64_t)strlen(letters) : cJSON_GetArraySize(list);

    if (!cJSON_IsArray(list) && letters == NULL) return apr_fail(r->err, APR_E_DAMAGED, "%s: \"%s\" is not a list", r->where, key);
    if (n_stated != n)
        return apr_fail(r->err, APR_E_DAMAGED, "%s: \"%s\" has %lld entries for %lld layers", r->where, key, (long long)n_stated,
                        (long long)n);
    for (int64_t i = 0; i < n; i++) {
        const cJSON *const item = letters == NULL ? cJSON_GetArrayItem(list, (int)i) : NULL;
        const char *const word = cJSON_IsString(item) ? item->valuestring : "";
        const bool is_own = letters != NULL ? letters[i] == 'F' : strcmp(word, "full") == 0;
        shares[i] = !is_own;
        if (!is_own && !(letters != NULL ? letters[i] == 'S' : strcmp(word, "shared") == 0))
            return apr_config_refuse(r, "the index of its layer %lld is of the unknown type \"%.40s\"", (long long)i,
                                     letters != NULL ? letters + i : word);
    }
    return APR_OK;
}

static apr_status fill_index(const reading *r, uint8_t *shares, int64_t n)
{
    static const char *const lists[] = {"indexer_types", "index_topk_pattern"};
    apr_index_layers index = {2, 1};

    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        const cJSON *const list = apr_config_find(r, lists[i]);
        if (list != NULL && !cJSON_IsNull(list)) return fill_listed_index(r, list, lists[i], shares, n);
    }
    APR_TRY(apr_config_int(r, "index_topk_freq", &index.own_every));
    APR_TRY(apr_config_int(r, "index_skip_topk_offset", &index.n_first));
    for (int64_t i = 0; i < n; i++) shares[i] = !apr_layer_has_own_index(index, i);
    return APR_OK;
}

static void put_indexes(apr_json_text *out, const apr_hparams *h, const apr_family_config *f)
{
    if (!f->shares_index || h->shares_index == NULL) return;
    apr_json_open(out, "indexer_types", '[');
    for (int64_t i = 0; i < h->num_layers; i++) apr_config_put_text(out, NULL, apr_layer_shares_index(h, i) ? "shared" : "full");
    apr_json_close(out, ']');
}

/* The kind of a layer is 1 if it shares an index. */
static const layer_rule index_rule = {fill_index, put_indexes};

/* --- the whole --- */

static apr_status read_positions(const reading *r)
{
    return r->spec != NULL ? read_by_rule(r, &position_rules[r->spec->positions], 0, &r->h->no_rope) : APR_OK;
}

apr_status apr_config_read_layers(const reading *r)
{
    apr_hparams *const h = r->h;
    const bool positions_first = r->spec != NULL && r->spec->window == APR_WINDOW_CHUNKS;

    if (positions_first) APR_TRY(read_positions(r));
    APR_TRY(read_mixers(r));
    if (r->spec != NULL && r->spec->settle_layers != NULL) APR_TRY(r->spec->settle_layers(r));
    if (r->spec != NULL && h->num_experts > 0) APR_TRY(read_by_rule(r, &expert_rules[r->spec->experts], APR_FFN_EXPERTS, &h->ffn_kinds));
    if (r->spec != NULL && r->spec->shares_index) APR_TRY(read_by_rule(r, &index_rule, 0, &h->shares_index));
    return positions_first ? APR_OK : read_positions(r);
}

void apr_config_write_layers(apr_json_text *out, const apr_hparams *h, const apr_family_config *f)
{
    put_mixers(out, h, f);
    if (h->num_experts > 0) put_by_rule(out, &expert_rules[f->experts], h, f);
    put_by_rule(out, &position_rules[f->positions], h, f);
    put_by_rule(out, &index_rule, h, f);
}
