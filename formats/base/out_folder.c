/* out_folder.c - a folder of files: grows beside its final name, then takes it in exchange for what is there. */
#define _GNU_SOURCE /* renameat2 */
#include "formats/base/out_internal.h"
#include "formats/base/resume.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

struct apr_folder {
    apr_target target;
    apr_folder_rule rule;
    int fd;                /* of the new folder */
    int old;               /* of the one that is replaced; -1: none */
    int home;              /* where the temporary name is: beside the final one, or in the folder of an unfinished output */
    bool is_kept;          /* there, when it is abandoned */
    apr_out_reader reader; /* see apr_folder_prove, or NULL */
    char temporary[APR_NAME_BYTES];
};

static void free_folder(apr_folder *folder)
{
    if (folder->fd >= 0) close(folder->fd);
    if (folder->old >= 0) close(folder->old);
    if (folder->is_kept && folder->home >= 0) close(folder->home);
    apr_target_close(&folder->target);
    free(folder);
}

/* --- what lies in the old one --- */

typedef struct stranger {
    char name[APR_NAME_BYTES]; /* empty: there is none */
    size_t n_files;            /* that may go */
} stranger;

static bool takes_folder(int fd, const char *name, apr_folder_rule rule, bool remove);

/* Finds what may not go; with `remove`, removes what may. inside: the name of a folder within that one, or NULL. 0 or errno. */
static int go_through(int fd, const char *inside, apr_folder_rule rule, bool remove, stranger *found)
{
    char path[2 * APR_NAME_BYTES];
    const int again = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *const dir = again >= 0 ? fdopendir(again) : NULL;
    const struct dirent *entry;
    struct stat st;

    *found = (stranger){0};
    if (dir == NULL) {
        const int error = errno;
        if (again >= 0) close(again);
        return error;
    }
    while (found->name[0] == '\0' && (entry = readdir(dir)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        const bool is_there = fstatat(fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0;
        if (is_there && S_ISDIR(st.st_mode) && inside == NULL && takes_folder(fd, entry->d_name, rule, remove)) continue;
        snprintf(path, sizeof path, "%s%s%s", inside != NULL ? inside : "", inside != NULL ? "/" : "", entry->d_name);
        if (!is_there || !S_ISREG(st.st_mode) || !rule.may_go(rule.context, path))
            snprintf(found->name, sizeof found->name, "%s", entry->d_name);
        else found->n_files++;
        if (found->name[0] == '\0' && remove) unlinkat(fd, entry->d_name, 0);
    }
    closedir(dir);
    return 0;
}

/* A folder all of whose files may go by the names "FOLDER/FILE", and that has one. */
static bool takes_folder(int fd, const char *name, apr_folder_rule rule, bool remove)
{
    const int inner = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    stranger found;

    if (inner < 0) return false;
    const bool may_go = go_through(inner, name, rule, remove, &found) == 0 && found.name[0] == '\0' && found.n_files > 0;
    close(inner);
    if (may_go && remove) unlinkat(fd, name, AT_REMOVEDIR);
    return may_go;
}

static apr_status refuse_strangers(const apr_folder *folder, apr_error *err)
{
    stranger found;
    const int error = go_through(folder->old, NULL, folder->rule, false, &found);

    if (error != 0) return apr_fail(err, apr_errno_status(error), "%s: %s", folder->target.path, strerror(error));
    if (found.name[0] == '\0') return APR_OK;
    return apr_fail(err, APR_E_IO,
                    "%s: cannot be replaced: it holds '%s', which is no file of a checkpoint; move it away or choose another name",
                    folder->target.path, found.name);
}

/* Opened and locked: whoever else replaces it says so instead of mixing in. */
static apr_status open_old(apr_folder *folder, apr_error *err)
{
    const apr_target *const t = &folder->target;

    if (folder->old >= 0) close(folder->old);
    folder->old = openat(t->folder, t->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder->old < 0) return apr_fail(err, APR_E_IO, "%s: %s", t->path, strerror(errno));
    if (flock(folder->old, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return apr_fail(err, APR_E_IO, "%s: is being replaced by another process; wait for it or choose another name", t->path);
    return refuse_strangers(folder, err);
}

/* --- making it --- */

static apr_status make_folder(apr_folder *folder, uint64_t total_bytes, apr_error *err)
{
    const apr_target *const t = &folder->target;
    bool is_busy = false;

    if (t->exists) APR_TRY(open_old(folder, err));
    APR_TRY(apr_target_check_disk(t, total_bytes, err));
    const mode_t mode = t->exists ? 0700 : apr_target_mode(t);
    const int error = apr_temporary_make(t->folder, t->name, true, mode, &folder->fd, folder->temporary, &is_busy);
    if (error == 0) return APR_OK;
    folder->fd = -1;
    folder->temporary[0] = '\0';
    if (is_busy) return apr_fail(err, APR_E_IO, "%s: is being written by another process; wait for it or choose another name", t->path);
    return apr_fail(err, APR_E_IO, "%s: cannot create: %s", t->path, strerror(error));
}

apr_status apr_folder_open(apr_folder **folder_ptr, const char *path, uint64_t total_bytes, bool overwrite, apr_folder_rule rule,
                           apr_error *err)
{
    *folder_ptr = NULL;
    apr_folder *const folder = calloc(1, sizeof *folder);
    if (folder == NULL) return apr_no_memory(err, "an output folder");
    folder->fd = folder->old = -1;
    folder->rule = rule;
    apr_status status = apr_target_open(&folder->target, path, true, (apr_replace_rule){.overwrite = overwrite}, err);
    if (status != APR_OK) {
        free(folder);
        return status;
    }
    folder->home = folder->target.folder;
    status = make_folder(folder, total_bytes, err);
    if (status == APR_OK) *folder_ptr = folder;
    else free_folder(folder);
    return status;
}

apr_status apr_folder_take_up(apr_folder **folder_ptr, const apr_resume *from, const char *path, bool overwrite, apr_folder_rule rule,
                              apr_error *err)
{
    *folder_ptr = NULL;
    apr_folder *const folder = calloc(1, sizeof *folder);
    if (folder == NULL) return apr_no_memory(err, "an output folder");
    *folder = (apr_folder){.rule = rule, .fd = -1, .old = -1, .home = -1, .is_kept = true};
    apr_status status = apr_target_open(&folder->target, path, true, (apr_replace_rule){.overwrite = overwrite}, err);
    if (status != APR_OK) {
        free(folder);
        return status;
    }
    snprintf(folder->temporary, sizeof folder->temporary, "data");
    if (folder->target.exists) status = open_old(folder, err);
    if (status == APR_OK) {
        folder->home = dup(apr_resume_folder(from));
        folder->fd = openat(folder->home, "data", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (folder->fd < 0) status = apr_fail(err, APR_E_IO, "%s/data: %s", apr_resume_path(from), strerror(errno));
    }
    if (status == APR_OK) *folder_ptr = folder;
    else free_folder(folder);
    return status;
}

/* The folder of "FOLDER/FILE" within the new one. */
static bool make_parent(const apr_folder *folder, const char *name)
{
    const char *const slash = strchr(name, '/');
    char parent[APR_NAME_BYTES];

    if (slash == NULL) return true;
    snprintf(parent, sizeof parent, "%.*s", (int)(slash - name), name);
    return mkdirat(folder->fd, parent, apr_target_mode(&folder->target)) == 0 || errno == EEXIST;
}

apr_status apr_folder_file(apr_folder *folder, const char *name, uint64_t total_bytes, apr_out **out, apr_error *err)
{
    struct stat st;
    const bool replaces = folder->old >= 0 && fstatat(folder->old, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
    const size_t n = strlen(folder->target.path) + strlen(name) + 2;
    char *const path = malloc(n);

    *out = NULL;
    if (path == NULL) return apr_no_memory(err, "a path");
    if (!make_parent(folder, name)) {
        free(path);
        return apr_fail(err, APR_E_IO, "%s/%s: cannot create: %s", folder->target.path, name, strerror(errno));
    }
    snprintf(path, n, "%s%s%s", folder->target.path, folder->target.path[strlen(folder->target.path) - 1] == '/' ? "" : "/", name);
    const apr_status status = apr_out_open_in(out, folder->fd, name, path, total_bytes, !folder->is_kept, replaces ? &st : NULL, err);
    free(path);
    return status;
}

/* --- its name --- */

static int rename_new(const apr_folder *folder)
{
    const apr_target *const t = &folder->target;

    if (!apr_out_is_poor && renameat2(folder->home, folder->temporary, t->folder, t->name, RENAME_NOREPLACE) == 0) return 0;
    if (!apr_out_is_poor && errno != EINVAL && errno != ENOSYS) return errno;
    if (faccessat(t->folder, t->name, F_OK, AT_SYMLINK_NOFOLLOW) == 0) return EEXIST;
    return renameat(folder->home, folder->temporary, t->folder, t->name) == 0 ? 0 : errno;
}

/* A name that tells what it is, and that no later run takes for a leftover. */
static int set_aside(const apr_folder *folder, int from, const char *name, char aside[APR_NAME_BYTES])
{
    const apr_target *const t = &folder->target;

    snprintf(aside, APR_NAME_BYTES, "%.200s.before.%ld", t->name, (long)getpid());
    if (faccessat(t->folder, aside, F_OK, AT_SYMLINK_NOFOLLOW) == 0) return EEXIST;
    return renameat(from, name, t->folder, aside) == 0 ? 0 : errno;
}

/* Where names cannot be exchanged in one step, the old folder is set aside, should the process be killed just then. */
static int exchange_in_two_steps(apr_folder *folder)
{
    const apr_target *const t = &folder->target;
    char aside[APR_NAME_BYTES];

    int error = set_aside(folder, t->folder, t->name, aside);
    if (error != 0) return error;
    if (renameat(folder->home, folder->temporary, t->folder, t->name) != 0) {
        error = errno;
        renameat(t->folder, aside, t->folder, t->name);
        return error;
    }
    return renameat(t->folder, aside, folder->home, folder->temporary) == 0 ? 0 : errno;
}

static int exchange(apr_folder *folder)
{
    const apr_target *const t = &folder->target;

    if (!apr_out_is_poor && renameat2(folder->home, folder->temporary, t->folder, t->name, RENAME_EXCHANGE) == 0) return 0;
    return apr_out_is_poor || errno == EINVAL || errno == ENOSYS ? exchange_in_two_steps(folder) : errno;
}

/* The temporary name is the old folder's by now, and it is not to be removed. */
static apr_status keep_old(apr_folder *folder, const char *why, apr_error *err)
{
    char aside[APR_NAME_BYTES];
    const bool moved = set_aside(folder, folder->home, folder->temporary, aside) == 0;

    apr_fail(err, APR_E_IO, "%s: %s; the old folder is kept as %s", folder->target.path, why, moved ? aside : folder->temporary);
    if (!folder->is_kept) apr_temporary_done(folder->home, folder->temporary);
    folder->temporary[0] = '\0';
    return APR_E_IO;
}

/* After its files were removed. */
static const char *why_not_removed(const apr_folder *folder, int error)
{
    const bool is_empty = error != ENOTEMPTY && error != EEXIST;
    if (!is_empty && refuse_strangers(folder, NULL) != APR_OK) return "is complete, but something was put into what it replaces";
    return is_empty ? "is complete, but the folder that it replaces cannot be removed"
                    : "is complete, but files of the folder that it replaces cannot be removed";
}

/* What came into the old folder until it lost its name is not lost: then the new one does not take its place. */
static apr_status replace(apr_folder *folder, apr_error *err)
{
    const apr_target *const t = &folder->target;
    stranger found;

    APR_TRY(open_old(folder, err));
    const int error = exchange(folder);
    if (error != 0) return apr_fail(err, APR_E_IO, "%s: cannot be replaced: %s", t->path, strerror(error));
    const apr_status status = refuse_strangers(folder, err);
    if (status != APR_OK) return exchange(folder) == 0 ? status : keep_old(folder, "cannot be put back", err);
    go_through(folder->old, NULL, folder->rule, true, &found);
    if (unlinkat(folder->home, folder->temporary, AT_REMOVEDIR) == 0) return APR_OK;
    return keep_old(folder, why_not_removed(folder, errno), err);
}

/* With the signals held. */
static apr_status take_final_name(apr_folder *folder, apr_error *err)
{
    const apr_target *const t = &folder->target;
    apr_status status = APR_OK;

    APR_TRY(apr_target_recheck(t, err));
    int error = rename_new(folder);
    if (error == EEXIST && t->is_empty && !t->overwrite) /* renaming takes the place of an empty folder in one step, and of no other */
        error = renameat(folder->home, folder->temporary, t->folder, t->name) == 0 ? 0 : errno == ENOTEMPTY ? EEXIST : errno;
    if (error == EEXIST && t->overwrite) status = replace(folder, err);
    else if (error == EEXIST) status = apr_fail(err, APR_E_IO, "%s: exists by now, made by another program; it is kept", t->path);
    else if (error != 0) status = apr_fail(err, APR_E_IO, "%s: cannot complete: %s", t->path, strerror(error));
    if (status != APR_OK) return status;
    if (!folder->is_kept) apr_temporary_done(folder->home, folder->temporary);
    folder->temporary[0] = '\0';
    return APR_OK;
}

void apr_folder_prove(apr_folder *folder, apr_out_reader reader) { folder->reader = reader; }

/* With its mode and its name still to come. */
static apr_status prove(apr_folder *folder, apr_error *err)
{
    const apr_status status = apr_prove(folder->reader, folder->fd, folder->target.path, err);
    if (status != APR_OK) apr_folder_abandon(folder);
    return status;
}

apr_status apr_folder_finish(apr_folder *folder, apr_error *err)
{
    const apr_target *const t = &folder->target;
    sigset_t before;

    APR_TRY(prove(folder, err));

    if (t->exists) apr_keep_mode(folder->fd, &t->old);
    int error = apr_sync_names(folder->fd);
    apr_status status = error == 0 ? APR_OK : apr_fail(err, APR_E_IO, "%s: cannot complete: %s", t->path, strerror(error));
    apr_signals_hold(&before);
    if (status == APR_OK) status = take_final_name(folder, err);
    apr_signals_release(&before);
    error = status == APR_OK ? apr_sync_folder(t->folder) : 0;
    if (error != 0) status = apr_fail(err, APR_E_IO, "%s: is complete, but its name may not be on the disk: %s", t->path, strerror(error));
    apr_folder_abandon(folder);
    return status;
}

void apr_folder_abandon(apr_folder *folder)
{
    if (folder == NULL) return;
    if (folder->temporary[0] != '\0' && !folder->is_kept) {
        if (folder->fd >= 0) apr_temporary_empty(folder->fd);
        apr_temporary_remove(folder->target.folder, folder->temporary);
    }
    free_folder(folder);
}
