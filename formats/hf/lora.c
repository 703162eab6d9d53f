/* lora.c - reads adapters: adapter_config.json with fields that are supported, that change nothing and that are refused, then the tensors of
 * each module, which make a change. */
#include "formats/hf/lora.h"
#include "formats/base/json.h"
#include "formats/base/pattern.h"
#include "formats/base/text.h"
#include "formats/files/placeholder.h"
#include "formats/hf/hub_cache.h"
#include "formats/hf/safetensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_PATTERNS = 4096, MAX_RANK = 1 << 20 };

/* Fields that are read below, or that only describe the training. */
static const char *const *const known = APR_NAMES(
    "peft_type", "r", "lora_alpha", "use_rslora", "use_dora", "fan_in_fan_out", "rank_pattern", "alpha_pattern", "bias",
    "init_lora_weights", "lora_dropout", "auto_mapping", "revision", "inference_mode", "layers_pattern", "task_type", "layers_to_transform",
    "peft_version", "target_modules", "megatron_core", "exclude_modules", "qalora_group_size", "eva_config", "corda_config", "loftq_config",
    "lora_ga_config", "modules_to_save", "ensure_weight_tying", "runtime_config", "base_model_name_or_path");

/* Unsupported fields, which must be false, null or empty. */
static const char *const *const refused =
    APR_NAMES("lora_bias", "use_qalora", "use_bdlora", "megatron_config", "layer_replication", "arrow_config", "kasa_config",
              "velora_config", "trainable_token_indices", "target_parameters", "monteclora_config", "alora_invocation_tokens");

/* Initializations that leave the base as it is. The others (pissa, olora, loftq, ...) change the base before training: their adapters do
 * not fit the published weights. */
static const char *const *const harmless_inits = APR_NAMES("gaussian", "eva", "orthogonal");

/* False: the field is missing, null, false or empty. */
static bool is_set(const cJSON *item)
{
    if (item == NULL || cJSON_IsNull(item) || cJSON_IsFalse(item)) return false;
    return !(cJSON_IsArray(item) || cJSON_IsObject(item)) || item->child != NULL;
}

static const char *keep(const char *text, apr_arena *arena) { return apr_arena_copy(arena, text, strlen(text)); }

static apr_status check_fields(apr_lora_config *c, const cJSON *json, apr_arena *arena, apr_error *err)
{
    const cJSON *item;
    int n = 0;

    cJSON_ArrayForEach(item, json)
    {
        if (!is_set(item) || apr_is_any_of(item->string, known)) continue;
        if (apr_is_any_of(item->string, refused))
            return apr_fail(err, APR_E_UNSUPPORTED, "%s: %s is set, which is not supported; merge the adapter with PEFT's merge_and_unload",
                            c->where, item->string);
        if (++n > 8) continue;
        c->unknown_fields = n == 1 ? keep(item->string, arena) : apr_arena_print(arena, "%s, %s", c->unknown_fields, item->string);
        if (c->unknown_fields == NULL) return apr_no_memory(err, "the fields of an adapter");
    }
    return APR_OK;
}

static apr_status read_flag(const apr_lora_config *c, const cJSON *json, const char *key, bool *flag, apr_error *err)
{
    const cJSON *const item = apr_json_get(json, key);
    if (item == NULL || cJSON_IsNull(item)) return APR_OK;
    if (!cJSON_IsBool(item)) return apr_fail(err, APR_E_DAMAGED, "%s: %s is neither true nor false", c->where, key);
    *flag = cJSON_IsTrue(item);
    return APR_OK;
}

static bool is_rank(double value) { return value >= 1.0 && value <= MAX_RANK && value == floor(value); }

static apr_status read_patterns(const apr_lora_config *c, const cJSON *json, const char *key, bool are_ranks, apr_lora_pattern **patterns,
                                size_t *n, apr_arena *arena, apr_error *err)
{
    const cJSON *const object = apr_json_get(json, key), *item;

    if (!is_set(object)) return APR_OK;
    if (!cJSON_IsObject(object)) return apr_fail(err, APR_E_DAMAGED, "%s: %s is not an object", c->where, key);
    const int n_items = cJSON_GetArraySize(object);
    if (n_items > MAX_PATTERNS) return apr_fail(err, APR_E_UNSUPPORTED, "%s: %s has %d patterns", c->where, key, n_items);
    *patterns = apr_arena_array(arena, (size_t)n_items, sizeof **patterns);
    if (*patterns == NULL) return apr_no_memory(err, "the patterns of an adapter");
    cJSON_ArrayForEach(item, object)
    {
        const double value = item->valuedouble;
        if (!cJSON_IsNumber(item) || !isfinite(value) || (are_ranks && !is_rank(value)))
            return apr_fail(err, APR_E_DAMAGED, "%s: %s of '%.100s' is not a %s", c->where, key, item->string,
                            are_ranks ? "rank" : "number");
        const apr_lora_pattern pattern = {keep(item->string, arena), value};
        if (pattern.key == NULL) return apr_no_memory(err, "the patterns of an adapter");
        (*patterns)[(*n)++] = pattern;
    }
    return APR_OK;
}

static apr_status check_words(const apr_lora_config *c, const cJSON *json, apr_error *err)
{
    const char *const *const biases = APR_NAMES("none", "all", "lora_only");
    const cJSON *const type = apr_json_get(json, "peft_type"), *const bias = apr_json_get(json, "bias"),
                       *const init = apr_json_get(json, "init_lora_weights");

    if (!cJSON_IsString(type)) return apr_fail(err, APR_E_DAMAGED, "%s: peft_type is missing; was the adapter saved by PEFT?", c->where);
    if (strcmp(type->valuestring, "LORA") != 0)
        return apr_fail(err, APR_E_UNSUPPORTED, "%s: peft_type is '%.40s'; only LORA adapters can be merged", c->where, type->valuestring);
    if (is_set(bias) && (!cJSON_IsString(bias) || !apr_is_any_of(bias->valuestring, biases)))
        return apr_fail(err, APR_E_DAMAGED, "%s: bias is not 'none', 'all' or 'lora_only'", c->where);
    if (cJSON_IsString(init) && !apr_is_any_of(init->valuestring, harmless_inits))
        return apr_fail(err, APR_E_UNSUPPORTED,
                        "%s: init_lora_weights is '%.40s', which changes the base before training; convert the adapter to plain LoRA with "
                        "PEFT's save_pretrained(path_initial_model_for_weight_conversion=...)",
                        c->where, init->valuestring);
    return APR_OK;
}

static apr_status read_fields(apr_lora_config *c, const cJSON *json, apr_arena *arena, apr_error *err)
{
    double rank;

    APR_TRY(check_words(c, json, err));
    APR_TRY(check_fields(c, json, arena, err));
    if (!apr_json_get_real(json, "r", &rank) || !is_rank(rank)) return apr_fail(err, APR_E_DAMAGED, "%s: r is not a rank", c->where);
    if (!apr_json_get_real(json, "lora_alpha", &c->alpha)) return apr_fail(err, APR_E_DAMAGED, "%s: lora_alpha is not a number", c->where);
    c->rank = (int64_t)rank;
    APR_TRY(read_flag(c, json, "use_rslora", &c->by_root, err));
    APR_TRY(read_flag(c, json, "use_dora", &c->has_magnitudes, err));
    APR_TRY(read_flag(c, json, "fan_in_fan_out", &c->transposed, err));
    APR_TRY(read_flag(c, json, "ensure_weight_tying", &c->ties_output, err));
    APR_TRY(read_patterns(c, json, "rank_pattern", true, &c->ranks, &c->n_ranks, arena, err));
    APR_TRY(read_patterns(c, json, "alpha_pattern", false, &c->alphas, &c->n_alphas, arena, err));
    const char *const base = apr_json_get_string(json, "base_model_name_or_path");
    if (base == NULL || *base == '\0') return APR_OK;
    c->base = keep(base, arena);
    return c->base != NULL ? APR_OK : apr_no_memory(err, "the name of a model");
}

apr_status apr_lora_config_read(apr_lora_config *config, const uint8_t *text, size_t n_bytes, apr_arena *arena, const char *where,
                                apr_error *err)
{
    cJSON *json;

    *config = (apr_lora_config){.where = where};
    APR_TRY(apr_json_parse(&json, text, n_bytes, where, err));
    const apr_status status =
        cJSON_IsObject(json) ? read_fields(config, json, arena, err) : apr_fail(err, APR_E_DAMAGED, "%s: not a JSON object", where);
    cJSON_Delete(json);
    return status;
}

/* ---- patterns ---- */

/* PEFT's rule: the expression matches the end of the name, from its beginning or from a dot on. */
static apr_status matches(const apr_lora_config *c, const char *key, const char *module, bool *found, apr_error *err)
{
    char text[1100];
    const apr_pattern *pattern;
    apr_arena arena = {0};

    *found = false;
    if (strlen(key) > 1000) return apr_fail(err, APR_E_UNSUPPORTED, "%s: the pattern '%.60s...' is too long", c->where, key);
    snprintf(text, sizeof text, "^(?:.*\\.)?(?:%s)$", key);
    apr_status status = apr_pattern_compile(&pattern, c->where, text, 0, &arena, NULL);
    if (status == APR_E_DAMAGED) apr_fail(err, status, "%s: the pattern '%.100s' is not a regular expression", c->where, key);
    if (status == APR_OK) status = apr_pattern_find(pattern, module, found, NULL);
    if (status == APR_E_UNSUPPORTED)
        apr_fail(err, status, "%s: the pattern '%.100s' takes too long to match in '%.100s'", c->where, key, module);
    if (status == APR_E_MEMORY) apr_no_memory(err, "the patterns of an adapter");
    apr_arena_close(&arena);
    return status;
}

static apr_status look_up(const apr_lora_config *c, const apr_lora_pattern *patterns, size_t n, const char *module, double *value,
                          apr_error *err)
{
    bool found = false;
    for (size_t i = 0; i < n && !found; i++) {
        APR_TRY(matches(c, patterns[i].key, module, &found, err));
        if (found) *value = patterns[i].value;
    }
    return APR_OK;
}

apr_status apr_lora_config_of(const apr_lora_config *config, const char *module, int64_t *rank, double *alpha, double *scale,
                              apr_error *err)
{
    double r = (double)config->rank;

    *alpha = config->alpha;
    APR_TRY(look_up(config, config->ranks, config->n_ranks, module, &r, err));
    APR_TRY(look_up(config, config->alphas, config->n_alphas, module, alpha, err));
    *rank = (int64_t)r;
    *scale = *alpha / (config->by_root ? sqrt(r) : r);
    return APR_OK;
}

/* ---- names of tensors ---- */

typedef enum { ROLE_A, ROLE_B, ROLE_EMBEDDING_A, ROLE_EMBEDDING_B, ROLE_MAGNITUDES, ROLE_WHOLE } role;

/* A mark must come before any other that is its prefix. */
static const struct {
    const char *mark;
    role role;
} marks[] = {{".lora_A", ROLE_A},
             {".lora_B", ROLE_B},
             {".lora_embedding_A", ROLE_EMBEDDING_A},
             {".lora_embedding_B", ROLE_EMBEDDING_B},
             {".lora_magnitude_vector", ROLE_MAGNITUDES}};
enum { N_MARKS = sizeof marks / sizeof *marks };

/* One tensor of the file. */
typedef struct entry {
    const char *module; /* ROLE_WHOLE: the tensor that it replaces */
    role role;
    const apr_tensor *tensor;
} entry;

typedef struct reading {
    apr_adapter *adapter;
    const apr_lora_config *config;
    entry *entries; /* [files.n_tensors], by module and role */
    apr_error *err;
} reading;

static apr_arena *arena_of(const reading *r) { return &r->adapter->files.arena; }

/* True for what may follow a mark: the adapter's name, ".weight", both, or nothing. */
static bool is_suffix(const char *rest)
{
    static const char weight[] = ".weight";
    if (*rest == '\0' || strcmp(rest, weight) == 0) return true;
    if (*rest != '.' || strcmp(rest, ".bias") == 0) return false;
    const size_t n = 1 + strcspn(rest + 1, ".");
    return n > 1 && (rest[n] == '\0' || strcmp(rest + n, weight) == 0);
}

/* `name` without `part` and an adapter's name after it: "lm_head.modules_to_save.default.weight" -> "lm_head.weight". */
static const char *leave_out(const char *name, const char *part, bool has_own_name, apr_arena *arena)
{
    const char *const found = strstr(name, part), *const last = strrchr(name, '.');
    if (found == NULL || last <= found) return name;
    const char *const rest = found + strlen(part), *const next = *rest == '.' ? strchr(rest + 1, '.') : NULL;
    if (*rest != '.' || (rest != last && !(has_own_name && next == last))) return name;
    return apr_arena_print(arena, "%.*s%s", (int)(found - name), name, last);
}

static apr_status unknown_tensor(const reading *r, const apr_tensor *t)
{
    return apr_fail(r->err, APR_E_UNSUPPORTED, "%s: the adapter's tensor '%s' is of an unknown kind; merge the adapter with PEFT",
                    r->adapter->path, t->name);
}

/* A whole tensor of the model: sets its name there. */
static apr_status read_whole(const reading *r, const char *name, entry *e)
{
    const char *const last = strrchr(name, '.');
    const bool is_known = last != NULL && last > name && (strcmp(last, ".weight") == 0 || strcmp(last, ".bias") == 0);

    if (!is_known || strstr(name, ".original_module.") != NULL || strstr(name, "lora_") != NULL) return unknown_tensor(r, e->tensor);
    e->role = ROLE_WHOLE;
    e->module = leave_out(name, ".modules_to_save", true, arena_of(r));
    if (e->module != NULL) e->module = leave_out(e->module, ".base_layer", false, arena_of(r));
    return e->module != NULL ? APR_OK : apr_no_memory(r->err, "the names of an adapter");
}

static apr_status read_name(const reading *r, const apr_tensor *t, entry *e)
{
    const char *const name = apr_text_after(t->name, "base_model.model.");

    e->tensor = t;
    for (size_t i = 0; i < N_MARKS; i++) {
        const char *const mark = strstr(name, marks[i].mark), *const rest = mark != NULL ? mark + strlen(marks[i].mark) : NULL;
        if (mark == NULL || mark == name || !is_suffix(rest)) continue;
        e->role = marks[i].role;
        e->module = apr_arena_copy(arena_of(r), name, (size_t)(mark - name));
        return e->module != NULL ? APR_OK : apr_no_memory(r->err, "the names of an adapter");
    }
    return read_whole(r, name, e);
}

static int by_module(const void *a, const void *b)
{
    const entry *const x = a, *const y = b;
    const int names = strcmp(x->module, y->module);
    return names != 0 ? names : (int)x->role - (int)y->role;
}

/* ---- one module ---- */

/* The tensors of one module by role; NULL: not in the file. */
typedef struct module_parts {
    const char *module;
    const apr_tensor *of[ROLE_WHOLE];
} module_parts;

static apr_status damaged(const reading *r, const char *module, const char *what)
{
    return apr_fail(r->err, APR_E_DAMAGED, "%s: module '%s': %s", r->adapter->path, module, what);
}

static apr_status check_matrix(const reading *r, const apr_tensor *t)
{
    char dims[128];
    const bool is_float = t->dtype == APR_F32 || t->dtype == APR_F16 || t->dtype == APR_BF16;

    if (!is_float)
        return apr_fail(r->err, APR_E_UNSUPPORTED, "%s: the adapter's tensor '%s' is %s; f32, f16 and bf16 can be merged", r->adapter->path,
                        t->name, apr_dtypes[t->dtype].name);
    if (t->rank == 2 && t->dims[0] > 0 && t->dims[1] > 0) return APR_OK;
    return apr_fail(r->err, t->rank > 2 ? APR_E_UNSUPPORTED : APR_E_DAMAGED,
                    "%s: the adapter's tensor '%s' is %s, and only matrices can be merged", r->adapter->path, t->name,
                    apr_dims_text(t, dims, sizeof dims));
}

static apr_status check_shapes(const reading *r, const module_parts *p, const apr_tensor *a, const apr_tensor *b, int64_t rank)
{
    char dims_a[128], dims_b[128];

    if (a->dims[0] == rank && b->dims[1] == rank) return APR_OK;
    return apr_fail(r->err, APR_E_DAMAGED, "%s: the matrices of module '%s' are A %s and B %s, but %s gives it rank %lld", r->adapter->path,
                    p->module, apr_dims_text(a, dims_a, sizeof dims_a), apr_dims_text(b, dims_b, sizeof dims_b), r->config->where,
                    (long long)rank);
}

static apr_status check_magnitudes(const reading *r, const module_parts *p, const apr_tensor *b)
{
    const apr_tensor *const m = p->of[ROLE_MAGNITUDES];

    if (m == NULL && r->config->has_magnitudes)
        return damaged(r, p->module, "the lora_magnitude_vector is missing, though use_dora is set");
    if (m == NULL) return APR_OK;
    if (!r->config->has_magnitudes) return damaged(r, p->module, "it has a lora_magnitude_vector, though use_dora is not set");
    if (p->of[ROLE_A] == NULL)
        return apr_fail(r->err, APR_E_UNSUPPORTED, "%s: module '%s' is an embedding with DoRA, which cannot be merged", r->adapter->path,
                        p->module);
    if ((m->dtype == APR_F32 || m->dtype == APR_F16 || m->dtype == APR_BF16) && apr_tensor_elems(m) == b->dims[0]) return APR_OK;
    return damaged(r, p->module, "the lora_magnitude_vector does not have a float for each row of B");
}

static apr_status make_low_rank(const reading *r, const module_parts *p, apr_adapter_change *change)
{
    const bool is_embedding = p->of[ROLE_EMBEDDING_A] != NULL || p->of[ROLE_EMBEDDING_B] != NULL,
               is_linear = p->of[ROLE_A] != NULL || p->of[ROLE_B] != NULL;
    const apr_tensor *a = p->of[is_embedding ? ROLE_EMBEDDING_A : ROLE_A], *b = p->of[is_embedding ? ROLE_EMBEDDING_B : ROLE_B];
    int64_t rank;

    if (is_embedding && is_linear) return damaged(r, p->module, "it has the matrices of a layer and those of an embedding");
    if (a == NULL || b == NULL) return damaged(r, p->module, a == NULL ? "the matrix A is missing" : "the matrix B is missing");
    APR_TRY(check_matrix(r, a));
    APR_TRY(check_matrix(r, b));
    APR_TRY(apr_lora_config_of(r->config, p->module, &rank, &change->alpha, &change->scale, r->err));
    APR_TRY(check_shapes(r, p, a, b, rank));
    APR_TRY(check_magnitudes(r, p, b));
    if (is_embedding) { /* the delta is B A transposed: A transposed times B transposed */
        APR_TRY(apr_adapter_transpose(r->adapter, &a, r->err));
        APR_TRY(apr_adapter_transpose(r->adapter, &b, r->err));
    }
    change->a = is_embedding ? b : a;
    change->b = is_embedding ? a : b;
    change->magnitudes = p->of[ROLE_MAGNITUDES];
    change->name = apr_arena_print(arena_of(r), "%s.weight", p->module);
    return change->name != NULL ? APR_OK : apr_no_memory(r->err, "the names of an adapter");
}

/* ---- all modules ---- */

static apr_status twice(const reading *r, const entry *e)
{
    return apr_fail(r->err, APR_E_DAMAGED,
                    "%s: the adapter's tensors '%s' and '%s' are the same part of '%s'; does the file hold two adapters?", r->adapter->path,
                    e[0].tensor->name, e[1].tensor->name, e[0].module);
}

static int by_name(const void *a, const void *b)
{
    const apr_adapter_change *const x = a, *const y = b;
    const int names = strcmp(x->name, y->name);
    return names != 0 ? names : (x->a != NULL) - (y->a != NULL); /* first what replaces a tensor, then what is added to it */
}

static apr_status make_changes(const reading *r, size_t n)
{
    apr_adapter *const adapter = r->adapter;

    for (size_t i = 0, next; i < n; i = next) {
        module_parts parts = {.module = r->entries[i].module};
        apr_adapter_change *const change = &adapter->changes[adapter->n_changes];
        for (next = i; next < n && strcmp(r->entries[next].module, parts.module) == 0; next++) {
            const entry *const e = &r->entries[next];
            if (e > r->entries && by_module(e - 1, e) == 0) return twice(r, e - 1);
            if (e->role == ROLE_WHOLE) break;
            parts.of[e->role] = e->tensor;
        }
        if (next == i) *change = (apr_adapter_change){.name = parts.module, .whole = r->entries[next++].tensor};
        else APR_TRY(make_low_rank(r, &parts, change));
        adapter->n_changes++;
    }
    if (adapter->n_changes > 0) qsort(adapter->changes, adapter->n_changes, sizeof *adapter->changes, by_name);
    return APR_OK;
}

/* Fills adapter->changes, sorted by name, from the tensors in adapter->files. */
static apr_status apr_lora_changes(apr_adapter *adapter, const apr_lora_config *config, apr_error *err)
{
    const apr_model *const files = &adapter->files;
    reading r = {.adapter = adapter, .config = config, .err = err};

    if (files->n_tensors == 0) return apr_fail(err, APR_E_DAMAGED, "%s: the adapter has no tensors", adapter->path);
    r.entries = apr_arena_array(arena_of(&r), files->n_tensors, sizeof *r.entries);
    adapter->changes = apr_arena_array(arena_of(&r), files->n_tensors, sizeof *adapter->changes);
    if (r.entries == NULL || adapter->changes == NULL) return apr_no_memory(err, "the tensors of an adapter");
    for (size_t i = 0; i < files->n_tensors; i++) APR_TRY(read_name(&r, &files->tensors[i], &r.entries[i]));
    qsort(r.entries, files->n_tensors, sizeof *r.entries, by_module);
    return make_changes(&r, files->n_tensors);
}

/* ---- files ---- */

static apr_status map_file(apr_adapter *adapter, const char *folder, const char *name, const apr_map **map, const char **path,
                           apr_error *err)
{
    apr_model *const files = &adapter->files;

    *path = apr_arena_print(&files->arena, "%s/%s", folder, name);
    if (*path == NULL) return apr_no_memory(err, "a path");
    APR_TRY(apr_map_open(&files->maps[files->n_maps], *path, err));
    *map = &files->maps[files->n_maps++];
    return apr_refuse_placeholder((*map)->data, (*map)->n_bytes, *path, err);
}

/* *weights becomes APR_LORA_PICKLE if only that file is there. */
static apr_status check_folder(apr_adapter *adapter, const char *folder, const char **weights, apr_error *err)
{
    apr_arena *const arena = &adapter->files.arena;

    if (!apr_folder_has(folder, APR_LORA_CONFIG, arena))
        return apr_fail(err, APR_E_IO, "%s: the folder has no " APR_LORA_CONFIG ", which states the adapter's rank and alpha", folder);
    if (apr_folder_has(folder, *weights, arena)) return APR_OK;
    if (apr_folder_has(folder, APR_LORA_PICKLE, arena)) {
        *weights = APR_LORA_PICKLE;
        return APR_OK;
    }
    return apr_fail(err, APR_E_IO, "%s: the folder has no %s", folder, *weights);
}

/* Notes the adapter's own tokenizer files: they may have tokens that the model's tokenizer does not have. */
static apr_status note_tokenizer(apr_adapter *adapter, const char *folder, apr_error *err)
{
    static const char *const names[] = {"tokenizer.json", "tokenizer.model", "tokenizer_config.json", "added_tokens.json",
                                        "chat_template.jinja"};
    apr_arena *const arena = &adapter->files.arena;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!apr_folder_has(folder, names[i], arena)) continue;
        adapter->tokenizer_files =
            adapter->tokenizer_files == NULL ? names[i] : apr_arena_print(arena, "%s, %s", adapter->tokenizer_files, names[i]);
        if (adapter->tokenizer_files == NULL) return apr_no_memory(err, "an adapter");
    }
    return APR_OK;
}

/* Splits a path, which is the folder or the file of weights. */
static apr_status split_path(apr_adapter *adapter, const char *path, const char **folder, const char **weights, apr_error *err)
{
    apr_arena *const arena = &adapter->files.arena;
    const char *const inside = apr_arena_print(arena, "%s/.", path), *const slash = strrchr(path, '/');

    if (inside == NULL) return apr_no_memory(err, "a path");
    if (access(inside, F_OK) == 0) {
        size_t n = strlen(path);
        while (n > 1 && path[n - 1] == '/') n--;
        *folder = apr_arena_copy(arena, path, n);
        *weights = APR_LORA_WEIGHTS;
        if (*folder != NULL) APR_TRY(apr_hub_resolve(folder, arena, err));
    } else {
        *folder = slash == NULL ? "." : slash == path ? "" : apr_arena_copy(arena, path, (size_t)(slash - path));
        *weights = apr_arena_copy(arena, slash == NULL ? path : slash + 1, strlen(slash == NULL ? path : slash + 1));
    }
    return *folder != NULL && *weights != NULL ? APR_OK : apr_no_memory(err, "a path");
}

static apr_status read_files(apr_adapter *adapter, const char *path, apr_error *err)
{
    apr_model *const files = &adapter->files;
    const char *folder = NULL, *weights = NULL, *where;
    const apr_map *map;
    apr_lora_config config;

    APR_TRY(split_path(adapter, path, &folder, &weights, err));
    adapter->path = apr_arena_copy(&files->arena, path, strlen(path));
    files->maps = apr_arena_array(&files->arena, 2, sizeof *files->maps);
    if (files->maps == NULL || adapter->path == NULL) return apr_no_memory(err, "an adapter");
    files->path = adapter->path;
    APR_TRY(check_folder(adapter, folder, &weights, err));
    APR_TRY(map_file(adapter, folder, APR_LORA_CONFIG, &map, &where, err));
    APR_TRY(apr_lora_config_read(&config, map->data, map->n_bytes, &files->arena, where, err));
    APR_TRY(map_file(adapter, folder, weights, &map, &where, err));
    APR_TRY(apr_weights_parse(files, map->data, map->n_bytes, where, err));
    APR_TRY(apr_model_index_names(files, err));
    adapter->base = config.base;
    adapter->unknown_fields = config.unknown_fields;
    adapter->transposed = config.transposed;
    adapter->ties_output = config.ties_output;
    APR_TRY(note_tokenizer(adapter, folder, err));
    return apr_lora_changes(adapter, &config, err);
}

apr_status apr_lora_open(apr_adapter *adapter, const char *path, apr_error *err)
{
    *adapter = (apr_adapter){.naming = APR_NAMING_HF};
    const apr_status status = read_files(adapter, path, err);
    if (status != APR_OK) apr_adapter_close(adapter);
    return status;
}
