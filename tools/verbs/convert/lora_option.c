/* lora_option.c - splits off the factor, opens the adapters in order, and prints what they are. */
#include "tools/verbs/convert/lora_option.h"

#include "tools/cli/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

/* Splits "DIR:0.5". If a file with the whole name exists, there is no factor. */
static apr_status split(const char *word, apr_arena *arena, const char **path, double *factor, apr_error *err)
{
    const char *const colon = strrchr(word, ':');
    char *end;

    *path = word;
    *factor = 1.0;
    if (colon == NULL || exists(word)) return APR_OK;
    *factor = strtod(colon + 1, &end);
    if (end == colon + 1 || *end != '\0' || !isfinite(*factor))
        return apr_fail(err, APR_E_USAGE, "--lora '%s': '%s' is not a factor; give DIR, or DIR:FACTOR as in 'adapter:0.5'", word,
                        colon + 1);
    *path = apr_arena_copy(arena, word, (size_t)(colon - word));
    return *path != NULL ? APR_OK : apr_no_memory(err, "an option");
}

apr_status apr_lora_set_open(apr_lora_set *set, const apr_strings *words, apr_error *err)
{
    *set = (apr_lora_set){0};
    set->adapters = apr_arena_array(&set->arena, words->n_items + 1, sizeof *set->adapters);
    set->uses = apr_arena_array(&set->arena, words->n_items + 1, sizeof *set->uses);
    set->texts = apr_arena_array(&set->arena, words->n_items + 1, sizeof *set->texts);
    if (set->adapters == NULL || set->uses == NULL || set->texts == NULL) return apr_no_memory(err, "the adapters");
    for (size_t i = 0; i < words->n_items; i++) {
        const char *path;
        double factor;
        APR_TRY(split(words->items[i], &set->arena, &path, &factor, err));
        APR_TRY(apr_adapter_open(&set->adapters[i], path, err));
        set->uses[set->n] = (apr_adapter_use){&set->adapters[i], factor};
        set->texts[set->n++] = apr_adapter_text(&set->adapters[i], factor, &set->arena);
        if (set->texts[i] == NULL) return apr_no_memory(err, "the adapters");
    }
    return APR_OK;
}

void apr_lora_set_close(apr_lora_set *set)
{
    for (size_t i = 0; i < set->n; i++) apr_adapter_close(&set->adapters[i]);
    apr_arena_close(&set->arena);
    *set = (apr_lora_set){0};
}

void apr_lora_set_print(const apr_lora_set *set, FILE *out)
{
    char path[1024], text[2048];
    for (size_t i = 0; i < set->n; i++)
        fprintf(out, "  LoRA %s: %s\n", apr_clean_text(path, sizeof path, set->adapters[i].path, strlen(set->adapters[i].path)),
                apr_clean_text(text, sizeof text, set->texts[i], strlen(set->texts[i])));
}

static void range_json(apr_json_text *json, const char *key, double least, double most)
{
    char other[40];

    apr_json_real(json, key, least);
    if (least == most) return;
    snprintf(other, sizeof other, "%s_most", key);
    apr_json_real(json, other, most);
}

void apr_adapter_json(apr_json_text *json, const apr_adapter *adapter, double factor)
{
    const apr_adapter_range r = apr_adapter_ranges(adapter);
    apr_arena arena = {0};
    const char *const targets = apr_adapter_targets(adapter, &arena);

    apr_json_string(json, "path", adapter->path, strlen(adapter->path));
    if (adapter->base != NULL) apr_json_string(json, "base_model", adapter->base, strlen(adapter->base));
    if (r.n_low_rank > 0) {
        apr_json_int(json, "rank", r.least_rank);
        if (r.most_rank > r.least_rank) apr_json_int(json, "rank_most", r.most_rank);
        range_json(json, "alpha", r.least_alpha, r.most_alpha);
        range_json(json, "scale", r.least_scale, r.most_scale);
    }
    apr_json_real(json, "factor", factor);
    apr_json_bool(json, "dora", r.n_magnitudes > 0);
    apr_json_uint(json, "n_targets", r.n_low_rank);
    apr_json_uint(json, "n_replaced", r.n_whole);
    if (targets != NULL) apr_json_string(json, "targets", targets, strlen(targets));
    apr_arena_close(&arena);
}

void apr_lora_set_json(apr_json_text *json, const apr_lora_set *set)
{
    if (set->n == 0) return;
    apr_json_open(json, "adapters", '[');
    for (size_t i = 0; i < set->n; i++) {
        apr_json_open(json, NULL, '{');
        apr_adapter_json(json, set->uses[i].adapter, set->uses[i].factor);
        apr_json_close(json, '}');
    }
    apr_json_close(json, ']');
}
