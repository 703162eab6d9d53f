/* attachment_links.c - follows links one at a time and checks the folder that each leads to. */
#define _GNU_SOURCE /* realpath */
#include "formats/hf/attachment_links.h"
#include "formats/base/text.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_LINKS = 8, MAX_FOLDERS = MAX_LINKS + 1 };

/* Folders whose files belong to the checkpoint. Their paths have no links. */
typedef struct own_folders {
    char *paths[MAX_FOLDERS];
    size_t n;
} own_folders;

typedef enum { NO_LINK, IS_LINK, IS_BLOB, IS_BROKEN } link_kind;

/* Resolves one link. `folder` becomes the target's folder without links, `path` the target. */
static link_kind follow(char path[PATH_MAX], char folder[PATH_MAX])
{
    char target[PATH_MAX], joined[2 * PATH_MAX];
    static const char cache[] = "../../blobs/";
    char *const slash = strrchr(path, '/');

    const ssize_t n = readlink(path, target, sizeof target - 1);
    if (n < 0) return NO_LINK;
    target[n] = '\0';
    if (strncmp(target, cache, sizeof cache - 1) == 0 && strchr(target + sizeof cache - 1, '/') == NULL) return IS_BLOB;
    if (target[0] == '/' || slash == NULL) snprintf(joined, sizeof joined, "%s", target);
    else snprintf(joined, sizeof joined, "%.*s/%s", (int)(slash - path), path, target);
    char *const last = strrchr(joined, '/');
    const char *const name = last != NULL ? last + 1 : joined;
    if (last != NULL) *last = '\0';
    if (*name == '\0' || strcmp(name, "..") == 0 || realpath(last == NULL ? "." : *joined == '\0' ? "/" : joined, folder) == NULL)
        return IS_BROKEN;
    if ((size_t)snprintf(path, PATH_MAX, "%s/%s", folder, name) >= PATH_MAX) return IS_BROKEN;
    const char *const blobs = strrchr(folder, '/'), *repository = blobs;
    if (strcmp(blobs, "/blobs") != 0) return IS_LINK;
    while (repository > folder && *--repository != '/') {
    }
    return apr_begins_with(repository, "/models--") ? IS_BLOB : IS_LINK;
}

static bool is_own(const own_folders *own, const char *folder)
{
    const size_t n = strlen(own->paths[0]);
    if (strncmp(folder, own->paths[0], n) == 0 && (folder[n] == '/' || own->paths[0][n - 1] == '/')) return true; /* below */
    for (size_t i = 0; i < own->n; i++)
        if (strcmp(folder, own->paths[i]) == 0) return true;
    return false;
}

static bool leads_out(const own_folders *own, const char *folder, const char *name)
{
    char path[PATH_MAX], at[PATH_MAX];
    link_kind kind = IS_LINK;

    if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, name) >= sizeof path) return true;
    for (int i = 0; i < MAX_LINKS && kind == IS_LINK; i++) {
        kind = follow(path, at);
        if (kind == IS_LINK && !is_own(own, at)) return true;
    }
    return kind == IS_LINK || kind == IS_BROKEN;
}

static apr_status add_folder(own_folders *own, const char *path, apr_error *err)
{
    char *const copy = strdup(path);
    if (copy == NULL) return apr_no_memory(err, "the small files");
    own->paths[own->n++] = copy;
    return APR_OK;
}

/* The checkpoint's folder, and the folders that the weights' links lead to. */
static apr_status find_own(own_folders *own, const char *folder, const char *weights, apr_error *err)
{
    char path[PATH_MAX], at[PATH_MAX];

    if (realpath(*folder != '\0' ? folder : "/", at) == NULL)
        return apr_fail(err, apr_errno_status(errno), "%s: %s", folder, strerror(errno));
    APR_TRY(add_folder(own, at, err));
    if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, weights) >= sizeof path) return APR_OK;
    while (own->n < MAX_FOLDERS && follow(path, at) == IS_LINK) APR_TRY(add_folder(own, at, err));
    return APR_OK;
}

static apr_status drop_links(apr_model *model, const char *folder, const own_folders *own, const char **left, apr_error *err)
{
    apr_attachment *const kept = apr_arena_array(&model->arena, model->n_attachments + 1, sizeof *kept);
    size_t n = 0;

    if (kept == NULL) return apr_no_memory(err, "the small files");
    for (size_t i = 0; i < model->n_attachments; i++) {
        const apr_attachment *const file = &model->attachments[i];
        if (!leads_out(own, folder, file->name)) {
            kept[n++] = *file;
            continue;
        }
        *left = apr_arena_print(&model->arena, "%s%s%s (a link out of the folder)", *left != NULL ? *left : "", *left != NULL ? ", " : "",
                                file->name);
        if (*left == NULL) return apr_no_memory(err, "the small files");
    }
    model->attachments = kept;
    model->n_attachments = n;
    return APR_OK;
}

apr_status apr_drop_links(apr_model *model, const char *folder, const char *weights, const char **left, apr_error *err)
{
    own_folders own = {.n = 0};

    *left = NULL;
    apr_status status = find_own(&own, folder, weights, err);
    if (status == APR_OK) status = drop_links(model, folder, &own, left, err);
    while (own.n > 0) free(own.paths[--own.n]);
    return status;
}
