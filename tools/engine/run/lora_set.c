/* lora_set.c - splits off the factor, and opens the adapters in order. */
#include "tools/engine/run/lora_set.h"

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

apr_status apr_lora_set_open(apr_lora_set *set, const char *const *words, size_t n_words, apr_error *err)
{
    *set = (apr_lora_set){0};
    set->adapters = apr_arena_array(&set->arena, n_words + 1, sizeof *set->adapters);
    set->uses = apr_arena_array(&set->arena, n_words + 1, sizeof *set->uses);
    set->texts = apr_arena_array(&set->arena, n_words + 1, sizeof *set->texts);
    if (set->adapters == NULL || set->uses == NULL || set->texts == NULL) return apr_no_memory(err, "the adapters");
    for (size_t i = 0; i < n_words; i++) {
        const char *path;
        double factor;
        APR_TRY(split(words[i], &set->arena, &path, &factor, err));
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
