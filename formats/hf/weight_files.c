/* weight_files.c - knows the names of files of weights, and chooses those that are in a checkpoint's folder. */
#include "formats/hf/weight_files.h"

#include "formats/hf/hub_cache.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct {
    const char *name;
    bool is_index;
    const char *second_part; /* NULL: the file is never one of several parts */
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

    if (path == NULL) return MISSING;
    if (lstat(path, &st) != 0) return errno == ENOENT || errno == ENOTDIR ? MISSING : THERE; /* opening it will report what is wrong */
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

enum { NUMBER_DIGITS = 5, MAX_SHARDS = 99999 };

static bool read_number(const char *text, size_t *number)
{
    *number = 0;
    for (int i = 0; i < NUMBER_DIGITS; i++) {
        if (text[i] < '0' || text[i] > '9') return false;
        *number = 10 * *number + (size_t)(text[i] - '0');
    }
    return true;
}

/* "PREFIX-00001-of-00003.ENDING" */
typedef struct numbered_name {
    size_t n_prefix; /* length of "PREFIX-" */
    size_t n;        /* number of shards */
    const char *suffix;
} numbered_name;

static bool numbered_parse(const char *name, numbered_name *numbered)
{
    const char *const of = strstr(name, "-of-");
    size_t number;

    if (of == NULL || of - name < NUMBER_DIGITS + 2 || of[-NUMBER_DIGITS - 1] != '-') return false;
    if (!read_number(of - NUMBER_DIGITS, &number) || !read_number(of + 4, &numbered->n)) return false;
    numbered->n_prefix = (size_t)(of - name) - NUMBER_DIGITS;
    numbered->suffix = of + 4 + NUMBER_DIGITS;
    return number >= 1 && number <= numbered->n && numbered->suffix[0] == '.';
}

/* The name of shard `number`, counted from 1; NULL: no memory. */
static const char *numbered_print(const char *name, const numbered_name *numbered, size_t number, apr_arena *arena)
{
    return apr_arena_print(arena, "%.*s%05zu-of-%05zu%s", (int)numbered->n_prefix, name, number, numbered->n, numbered->suffix);
}

/* Finds shards without an index. Fails if there are two sets of them. */
static apr_status find_numbered(const char *folder, apr_weights_choice *choice, apr_arena *arena, apr_error *err)
{
    static const char *const prefixes[] = {"model-", "pytorch_model-", "consolidated-"};
    static const char *const suffixes[] = {".safetensors", ".bin", ".safetensors"};
    DIR *const dir = opendir(*folder != '\0' ? folder : "/");
    const struct dirent *entry;
    numbered_name name;
    const char *other = NULL;

    *choice = (apr_weights_choice){0};
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        bool is_ours = false;
        for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes && !is_ours; i++)
            is_ours = strncmp(entry->d_name, prefixes[i], strlen(prefixes[i])) == 0 && numbered_parse(entry->d_name, &name) &&
                      name.n_prefix == strlen(prefixes[i]) && strcmp(name.suffix, suffixes[i]) == 0;
        if (!is_ours) continue;
        const char *const first = numbered_print(entry->d_name, &name, 1, arena);
        if (first == NULL) {
            closedir(dir);
            return apr_no_memory(err, "the names of files");
        }
        if (choice->name != NULL && strcmp(choice->name, first) != 0) other = first;
        else *choice = (apr_weights_choice){.name = first, .is_numbered = true};
    }
    if (dir != NULL) closedir(dir);
    if (other == NULL) return APR_OK;
    return apr_fail(err, APR_E_USAGE, "%s: there are two sets of shards, %s and %s, and no index: move one set away", folder, choice->name,
                    other);
}

apr_status apr_choose_weights(const char *folder, apr_weights_choice *choice, apr_arena *arena, apr_error *err)
{
    for (size_t i = 0; i < N_NAMES; i++) {
        const char *const name = table[i].name;
        const presence is = look(folder, name, arena);
        if (is == DANGLING)
            return apr_fail(err, APR_E_IO, "%s/%s: a link to a missing file, so the download is incomplete; %s", folder, name,
                            apr_hub_how_to_fetch(folder, arena));
        if (is == MISSING) continue;
        if (table[i].second_part != NULL && look(folder, table[i].second_part, arena) != MISSING)
            return apr_fail(err, APR_E_UNSUPPORTED,
                            "%s/%s: one of several files that each have a slice of every matrix (%s is another), which is not supported; "
                            "use the model in Hugging Face's format",
                            folder, name, table[i].second_part);
        *choice = (apr_weights_choice){.name = name, .is_index = table[i].is_index};
        return name_others(folder, i + 1, choice, arena, err);
    }
    APR_TRY(find_numbered(folder, choice, arena, err));
    if (choice->is_numbered) return APR_OK;
    const char *const unfinished = apr_hub_incomplete(folder, arena);
    if (unfinished != NULL)
        return apr_fail(err, APR_E_IO, "%s: there are no weights, but %s: the download is incomplete; %s", folder, unfinished,
                        apr_hub_how_to_fetch(folder, arena));
    return apr_fail(err, APR_E_IO,
                    "%s: there are no weights in this folder: no model.safetensors, no model.safetensors.index.json, no pytorch_model.bin, "
                    "no consolidated files",
                    folder);
}

apr_status apr_numbered_names(const char *first, const char ***names, size_t *n, apr_arena *arena, apr_error *err)
{
    numbered_name name;

    if (!numbered_parse(first, &name)) return apr_fail(err, APR_E_DAMAGED, "'%.200s' is not the name of a shard", first);
    *names = apr_arena_array(arena, name.n, sizeof **names);
    if (*names == NULL) return apr_no_memory(err, "the names of the shards");
    for (*n = 0; *n < name.n; ++*n) {
        (*names)[*n] = numbered_print(first, &name, *n + 1, arena);
        if ((*names)[*n] == NULL) return apr_no_memory(err, "the names of the shards");
    }
    return APR_OK;
}
