/* hub_cache.c - finds the snapshot of a cache's folder. Opens only refs/main. */
#include "formats/hf/hub_cache.h"

#include "formats/base/text.h"
#include "formats/files/map.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* One component of a path: a hash, or any plain name. */
static bool is_plain(const char *name) { return *name != '\0' && *name != '.' && strpbrk(name, "/\\") == NULL; }

/* Reads the name in refs/main; "" if there is no such file. */
static apr_status read_ref(const char *folder, char *name, size_t n_name, apr_arena *arena, apr_error *err)
{
    const char *const path = apr_arena_print(arena, "%s/refs/main", folder);
    struct stat st;
    apr_map map;

    *name = '\0';
    if (path == NULL) return apr_no_memory(err, "a path");
    if (stat(path, &st) != 0 && errno == ENOENT) return APR_OK;
    APR_TRY(apr_map_open(&map, path, err));
    size_t n = map.n_bytes;
    while (n > 0 && isspace(map.data[n - 1])) n--;
    if (n < n_name) {
        if (n > 0) memcpy(name, map.data, n);
        name[n] = '\0';
    }
    apr_map_close(&map);
    return is_plain(name) ? APR_OK : apr_fail(err, APR_E_DAMAGED, "%s: does not name a snapshot", path);
}

enum { MAX_NAMED = 16 };

typedef struct snapshot_list {
    const char *names[MAX_NAMED]; /* [n], at most MAX_NAMED */
    size_t n;
} snapshot_list;

static apr_status list_snapshots(const char *snapshots, snapshot_list *list, apr_arena *arena, apr_error *err)
{
    DIR *const dir = opendir(snapshots);
    const struct dirent *entry;
    const int why = errno;
    apr_status status = APR_OK;

    if (dir == NULL && why != ENOENT) return apr_fail(err, apr_errno_status(why), "%s: %s", snapshots, strerror(why));
    while (dir != NULL && status == APR_OK && (entry = readdir(dir)) != NULL) {
        if (!is_plain(entry->d_name) || list->n++ >= MAX_NAMED) continue;
        const char *const name = list->names[list->n - 1] = apr_arena_copy(arena, entry->d_name, strlen(entry->d_name));
        if (name == NULL) status = apr_no_memory(err, "the names of the snapshots");
    }
    if (dir != NULL) closedir(dir);
    if (status == APR_OK && list->n > 0)
        qsort(list->names, list->n < MAX_NAMED ? list->n : MAX_NAMED, sizeof *list->names, apr_compare_texts);
    return status;
}

static apr_status refuse_several(const char *snapshots, const snapshot_list *list, apr_arena *arena, apr_error *err)
{
    const char *text = list->names[0];

    for (size_t i = 1; i < list->n && i < MAX_NAMED && text != NULL; i++) text = apr_arena_print(arena, "%s, %s", text, list->names[i]);
    return apr_fail(err, APR_E_USAGE, "%s: there are %zu snapshots and no refs/main; give one of them: %s", snapshots, list->n,
                    text != NULL ? text : "");
}

apr_status apr_hub_resolve(const char **folder, apr_arena *arena, apr_error *err)
{
    const char *const snapshots = apr_arena_print(arena, "%s/snapshots", *folder), *const blobs =
                                                                                       apr_arena_print(arena, "%s/blobs", *folder);
    snapshot_list list = {0};
    char name[256];

    if (snapshots == NULL || blobs == NULL) return apr_no_memory(err, "a path");
    if (!apr_is_folder(snapshots) || !apr_is_folder(blobs)) return APR_OK;
    APR_TRY(read_ref(*folder, name, sizeof name, arena, err));
    if (*name == '\0') APR_TRY(list_snapshots(snapshots, &list, arena, err));
    if (list.n > 1) return refuse_several(snapshots, &list, arena, err);
    const char *const chosen = apr_arena_print(arena, "%s/%s", snapshots, *name != '\0' ? name : list.n == 1 ? list.names[0] : "-");
    if (chosen == NULL) return apr_no_memory(err, "a path");
    if (!apr_is_folder(chosen))
        return apr_fail(err, APR_E_IO, "%s: the snapshot is missing, so the download is incomplete; %s", *name != '\0' ? chosen : snapshots,
                        apr_hub_how_to_fetch(*folder, arena));
    *folder = chosen;
    return APR_OK;
}

const char *apr_hub_how_to_fetch(const char *folder, apr_arena *arena)
{
    static const char head[] = "models--";
    const char *const again = "fetch it again";
    const char *const found = strstr(folder, head), *const name = found != NULL ? found + sizeof head - 1 : NULL;

    if (found == NULL || (found > folder && found[-1] != '/')) return again;
    const size_t n = strcspn(name, "/");
    const char *const dashes = strstr(name, "--");
    const bool has_owner = dashes != NULL && (size_t)(dashes - name) < n;
    const size_t n_owner = has_owner ? (size_t)(dashes - name) : 0, n_skipped = has_owner ? n_owner + 2 : 0;
    const char *const text = apr_arena_print(arena, "%s with 'hf download %.*s%s%.*s'", again, (int)n_owner, name, has_owner ? "/" : "",
                                             (int)(n - n_skipped), name + n_skipped);
    return text != NULL ? text : again;
}

static bool is_unfinished(const char *name) { return apr_stem_of(name, ".incomplete") > 0; }

const char *apr_hub_incomplete(const char *folder, apr_arena *arena)
{
    static const char *const places[] = {"../../blobs", ".cache/huggingface/download"};
    const char *found = NULL;

    for (size_t i = 0; i < sizeof places / sizeof *places && found == NULL; i++) {
        const char *const path = apr_arena_print(arena, "%s/%s", folder, places[i]);
        DIR *const dir = path != NULL ? opendir(path) : NULL;
        const struct dirent *entry;
        while (dir != NULL && found == NULL && (entry = readdir(dir)) != NULL)
            if (is_unfinished(entry->d_name)) found = apr_arena_print(arena, "%s/%s", path, entry->d_name);
        if (dir != NULL) closedir(dir);
    }
    return found;
}
