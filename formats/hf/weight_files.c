/* weight_files.c - the table of names that weights have in a checkpoint's folder. */
#include "formats/hf/weight_files.h"

#include "formats/hf/hub_cache.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct {
    const char *name;
    bool is_index;
    const char *second_part; /* NULL: it is never a part */
} table[] = {
    {"model.safetensors", false, NULL},
    {"model.safetensors.index.json", true, NULL},
    {"pytorch_model.bin", false, NULL},
    {"pytorch_model.bin.index.json", true, NULL},
    {"consolidated.safetensors", false, NULL},
    {"consolidated.safetensors.index.json", true, NULL},
    {"consolidated.00.safetensors", false, "consolidated.01.safetensors"},
    {"consolidated.00.pth", false, "consolidated.01.pth"},
    {"consolidated.pth", false, NULL},
};
enum { N_NAMES = sizeof table / sizeof *table };

typedef enum { MISSING, DANGLING, THERE } presence;

static presence look(const char *folder, const char *name, apr_arena *arena)
{
    const char *const path = apr_arena_print(arena, "%s/%s", folder, name);
    struct stat st;

    if (path == NULL || lstat(path, &st) != 0) return MISSING;
    return access(path, F_OK) == 0 ? THERE : DANGLING;
}

static apr_status name_others(const char *folder, size_t first, apr_weights_choice *choice, apr_arena *arena, apr_error *err)
{
    for (size_t i = first; i < N_NAMES; i++) {
        if (look(folder, table[i].name, arena) == MISSING) continue;
        choice->others = choice->others == NULL ? table[i].name : apr_arena_print(arena, "%s, %s", choice->others, table[i].name);
        if (choice->others == NULL) return apr_no_memory(err, "the names of files");
    }
    return APR_OK;
}

apr_status apr_choose_weights(const char *folder, apr_weights_choice *choice, apr_arena *arena, apr_error *err)
{
    for (size_t i = 0; i < N_NAMES; i++) {
        const char *const name = table[i].name;
        const presence is = look(folder, name, arena);
        if (is == DANGLING)
            return apr_fail(err, APR_E_IO, "%s/%s: a link to a file that is not there: half downloaded; %s", folder, name,
                            apr_hub_how_to_fetch(folder, arena));
        if (is == MISSING) continue;
        if (table[i].second_part != NULL && look(folder, table[i].second_part, arena) != MISSING)
            return apr_fail(err, APR_E_UNSUPPORTED,
                            "%s/%s: is one of several parts that each have a slice of every matrix (%s is another), which are not joined "
                            "here; take this model as Hugging Face has it",
                            folder, name, table[i].second_part);
        *choice = (apr_weights_choice){.name = name, .is_index = table[i].is_index};
        return name_others(folder, i + 1, choice, arena, err);
    }
    const char *const unfinished = apr_hub_unfinished(folder, arena);
    if (unfinished != NULL)
        return apr_fail(err, APR_E_IO, "%s: there are no weights in it, but %s: half downloaded; %s", folder, unfinished,
                        apr_hub_how_to_fetch(folder, arena));
    return apr_fail(err, APR_E_IO,
                    "%s: neither model.safetensors nor model.safetensors.index.json is in this folder, nor pytorch_model.bin or "
                    "consolidated weights",
                    folder);
}
