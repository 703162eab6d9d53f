/* model_paths.c - looks up ORG/NAME[@REVISION][:TAG] in the caches of Hugging Face's tools, and looks into folders. Nothing is downloaded. */
#define _GNU_SOURCE /* strcasestr */
#include "tools/cli/model_paths.h"
#include "formats/base/text.h"
#include "formats/files/map.h"

#include <ctype.h>
#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct hub_id {
    char org[128], name[128], revision[128], tag[64];
} hub_id;

/* Letters, digits, '-', '_' and '.'; the first is not '.' or '-'. At most n - 1 characters. */
static bool take_part(const char **text, char *part, size_t n)
{
    size_t at = 0;

    if (**text == '.' || **text == '-') return false;
    for (; isalnum((unsigned char)**text) || (**text != '\0' && strchr("-_.", **text) != NULL); ++*text) {
        if (at + 1 == n) return false;
        part[at++] = **text;
    }
    part[at] = '\0';
    return at > 0;
}

static bool ends_as_a_file(const char *name)
{
    static const char *const suffixes[] = {".gguf", ".apr", ".json", ".jsonl", ".safetensors", ".txt", ".bin",
                                           ".pt",   ".pth", ".raw",  ".dat",   ".html",        ".csv"};
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++)
        if (strcasecmp(name, suffixes[i]) != 0 && apr_ends_with_any_case(name, suffixes[i])) return true;
    return false;
}

static bool read_id(const char *text, hub_id *id)
{
    const char *at = text;

    *id = (hub_id){{0}, {0}, {0}, {0}};
    if (!take_part(&at, id->org, sizeof id->org) || *at++ != '/' || !take_part(&at, id->name, sizeof id->name)) return false;
    if (*at == '@' && (at++, !take_part(&at, id->revision, sizeof id->revision))) return false;
    if (*at == ':' && (at++, !take_part(&at, id->tag, sizeof id->tag))) return false;
    return *at == '\0' && !ends_as_a_file(id->name);
}

/* --- caches --- */

/* The i-th cache folder, in the order of Hugging Face's tools. "": its variable is not set. NULL: there are no more. */
static const char *hub_folder(int i, apr_arena *arena)
{
    static const struct {
        const char *variable, *suffix;
    } places[] = {{"HF_HUB_CACHE", ""},
                  {"HUGGINGFACE_HUB_CACHE", ""},
                  {"HF_HOME", "/hub"},
                  {"XDG_CACHE_HOME", "/huggingface/hub"},
                  {"HOME", "/.cache/huggingface/hub"}};
    if (i >= (int)(sizeof places / sizeof *places)) return NULL;
    const char *const value = getenv(places[i].variable);
    return value != NULL && *value != '\0' ? apr_arena_print(arena, "%s%s", value, places[i].suffix) : "";
}

/* Reads the commit hash, the only line of refs/NAME. */
static bool read_ref(const char *repository, const char *name, char *hash, size_t n_hash, apr_arena *arena)
{
    const char *const path = apr_arena_print(arena, "%s/refs/%s", repository, name);
    FILE *const file = path != NULL ? fopen(path, "re") : NULL;

    *hash = '\0';
    if (file == NULL) return false;
    if (fgets(hash, (int)n_hash, file) == NULL) *hash = '\0';
    fclose(file);
    hash[strcspn(hash, "\r\n")] = '\0';
    return *hash != '\0' && strchr(hash, '/') == NULL;
}

/* The snapshot whose name begins with `start`; if there are several, the newest. */
static const char *find_snapshot(const char *snapshots, const char *start, apr_arena *arena)
{
    DIR *const folder = opendir(snapshots);
    const char *found = NULL;
    time_t newest = 0;

    if (folder == NULL) return NULL;
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        struct stat st;
        if (entry->d_name[0] == '.' || strncmp(entry->d_name, start, strlen(start)) != 0) continue;
        const char *const path = apr_arena_print(arena, "%s/%s", snapshots, entry->d_name);
        if (path == NULL || stat(path, &st) != 0 || !S_ISDIR(st.st_mode) || (found != NULL && st.st_mtime <= newest)) continue;
        found = path;
        newest = st.st_mtime;
    }
    closedir(folder);
    return found;
}

static const char *snapshot_in(const char *hub, const hub_id *id, apr_arena *arena)
{
    const char *const repository = apr_arena_print(arena, "%s/models--%s--%s", hub, id->org, id->name);
    const char *const snapshots = repository != NULL ? apr_arena_print(arena, "%s/snapshots", repository) : NULL;
    char hash[128];

    if (!apr_is_folder(snapshots)) return NULL;
    if (read_ref(repository, *id->revision != '\0' ? id->revision : "main", hash, sizeof hash, arena)) {
        const char *const path = apr_arena_print(arena, "%s/%s", snapshots, hash);
        if (apr_is_folder(path)) return path;
    }
    return find_snapshot(snapshots, id->revision, arena);
}

/* In a repository of GGUFs: the only GGUF, or the one that the tag selects. Otherwise the folder itself. */
static const char *gguf_in(const char *snapshot, const char *tag, apr_arena *arena)
{
    DIR *const folder = opendir(snapshot);
    const char *found = NULL;
    bool has_checkpoint = false;
    int n = 0;

    if (folder == NULL) return snapshot;
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        const size_t length = strlen(entry->d_name);
        has_checkpoint |= strstr(entry->d_name, ".safetensors") != NULL;
        if (length < 6 || strcasecmp(entry->d_name + length - 5, ".gguf") != 0 || apr_begins_with(entry->d_name, "mmproj")) continue;
        if (*tag != '\0' && strcasestr(entry->d_name, tag) == NULL) continue;
        found = apr_arena_print(arena, "%s/%s", snapshot, entry->d_name);
        n++;
    }
    closedir(folder);
    return n == 1 && (!has_checkpoint || *tag != '\0') && found != NULL ? found : snapshot;
}

const char *apr_first_gguf_of_folder(const char *path, int *n, apr_arena *arena)
{
    DIR *const folder = opendir(path);
    const char *first = NULL;
    bool has_checkpoint = false;

    *n = 0;
    if (folder == NULL) return NULL;
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        const size_t length = strlen(entry->d_name);
        has_checkpoint |= strcmp(entry->d_name, "config.json") == 0 || strstr(entry->d_name, ".safetensors") != NULL ||
                          strcmp(entry->d_name, "snapshots") == 0 || apr_begins_with(entry->d_name, "consolidated.");
        if (entry->d_name[0] == '.' || length < 6 || strcasecmp(entry->d_name + length - 5, ".gguf") != 0) continue;
        ++*n;
        if (first == NULL || strcmp(entry->d_name, first) < 0) first = apr_arena_copy(arena, entry->d_name, length);
    }
    closedir(folder);
    if (has_checkpoint || first == NULL) return NULL;
    return apr_arena_print(arena, "%s%s%s", path, path[strlen(path) - 1] == '/' ? "" : "/", first);
}

/* The cache folder for error messages, such as "~/.cache/huggingface/hub". */
static const char *shown_hub(apr_arena *arena)
{
    const char *const home = getenv("HOME");

    for (int i = 0;; i++) {
        const char *const hub = hub_folder(i, arena);
        if (hub == NULL) return "~/.cache/huggingface/hub";
        if (*hub == '\0') continue;
        const size_t n = home != NULL ? strlen(home) : 0;
        const bool is_at_home = n > 0 && strncmp(hub, home, n) == 0 && hub[n] == '/';
        const char *const shown = is_at_home ? apr_arena_print(arena, "~%s", hub + n) : hub;
        return shown != NULL ? shown : hub;
    }
}

apr_status apr_hub_id_resolve(const char *text, const char **path, apr_arena *arena, apr_error *err)
{
    hub_id id;

    *path = text;
    if (access(text, F_OK) == 0 || !read_id(text, &id)) return APR_OK;
    for (int i = 0;; i++) {
        const char *const hub = hub_folder(i, arena);
        if (hub == NULL) break;
        const char *const snapshot = *hub != '\0' ? snapshot_in(hub, &id, arena) : NULL;
        if (snapshot == NULL) continue;
        *path = gguf_in(snapshot, id.tag, arena);
        return APR_OK;
    }
    if (apr_is_folder(id.org)) return APR_OK; /* ORG is a local folder, so the text is a path */
    return apr_fail(err, APR_E_IO, "%s is not a file here and not in %s; fetch it: hf download %s/%s%s%s", text, shown_hub(arena), id.org,
                    id.name, *id.revision != '\0' ? " --revision " : "", id.revision);
}

/* --- folders without weights --- */

static bool may_be_weights(const char *name)
{
    static const char *const suffixes[] = {".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json", ".pt", ".pth", ".gguf",
                                           ".apr"};

    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++)
        if (apr_stem_of(name, suffixes[i]) > 0) return true;
    return false;
}

const char *apr_config_only_path(const char *path, char *text, size_t capacity)
{
    const size_t n = strlen(path);
    DIR *const folder = opendir(path);
    bool has_weights = false;

    if (folder == NULL) return NULL;
    for (const struct dirent *entry; !has_weights && (entry = readdir(folder)) != NULL;) has_weights = may_be_weights(entry->d_name);
    closedir(folder);
    const int length = snprintf(text, capacity, "%s%sconfig.json", path, n > 0 && path[n - 1] == '/' ? "" : "/");
    return !has_weights && length > 0 && (size_t)length < capacity && access(text, R_OK) == 0 ? text : NULL;
}
