/* out_folder.c - an output folder: written under a temporary name, then exchanged with what is at its final name. */
#define _GNU_SOURCE /* renameat2 */
#include "formats/files/out_internal.h"
#include "formats/files/resume.h"

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
    int old;               /* of the folder that is replaced; -1: none */
    int temporary_folder;  /* holds the temporary name: the target's folder, or that of an unfinished run */
    bool is_kept;          /* when abandoned: it is in the folder of an unfinished run */
    apr_out_reader reader; /* see apr_folder_verify, or NULL */
    char temporary[APR_NAME_BYTES];
};

static void free_folder(apr_folder *folder)
{
    if (folder->fd >= 0) close(folder->fd);
    if (folder->old >= 0) close(folder->old);
    if (folder->is_kept && folder->temporary_folder >= 0) close(folder->temporary_folder);
    apr_target_close(&folder->target);
    free(folder);
}

/* --- the files of the old folder --- */

typedef struct foreign_file {
    char name[APR_NAME_BYTES]; /* empty: none */
    size_t n_files;            /* that may be replaced */
} foreign_file;

static bool may_replace_folder(int fd, const char *name, apr_folder_rule rule, bool remove);

/* Finds a file that may not be replaced; with `remove`, removes the others. inside: the name of a subfolder, or NULL. 0 or errno. */
static int scan_files(int fd, const char *inside, apr_folder_rule rule, bool remove, foreign_file *found)
{
    char path[2 * APR_NAME_BYTES];
    const int again = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *const dir = again >= 0 ? fdopendir(again) : NULL;
    const struct dirent *entry;
    struct stat st;

    *found = (foreign_file){0};
    if (dir == NULL) {
        const int error = errno;
        if (again >= 0) close(again);
        return error;
    }
    while (found->name[0] == '\0' && (entry = readdir(dir)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        const bool is_there = fstatat(fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0;
        if (is_there && S_ISDIR(st.st_mode) && inside == NULL && may_replace_folder(fd, entry->d_name, rule, remove)) continue;
        snprintf(path, sizeof path, "%s%s%s", inside != NULL ? inside : "", inside != NULL ? "/" : "", entry->d_name);
        if (!is_there || !S_ISREG(st.st_mode) || !rule.may_go(rule.context, path))
            snprintf(found->name, sizeof found->name, "%s", entry->d_name);
        else found->n_files++;
        if (found->name[0] == '\0' && remove) unlinkat(fd, entry->d_name, 0);
    }
    closedir(dir);
    return 0;
}

/* True for a subfolder that has files and may be replaced: the rule allows all of them, as "FOLDER/FILE". */
static bool may_replace_folder(int fd, const char *name, apr_folder_rule rule, bool remove)
{
    const int inner = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    foreign_file found;

    if (inner < 0) return false;
    const bool may_go = scan_files(inner, name, rule, remove, &found) == 0 && found.name[0] == '\0' && found.n_files > 0;
    close(inner);
    if (may_go && remove) unlinkat(fd, name, AT_REMOVEDIR);
    return may_go;
}

static apr_status refuse_foreign_files(const apr_folder *folder, apr_error *err)
{
    foreign_file found;
    const int error = scan_files(folder->old, NULL, folder->rule, false, &found);

    if (error != 0) return apr_fail(err, apr_errno_status(error), "%s: %s", folder->target.path, strerror(error));
    if (found.name[0] == '\0') return APR_OK;
    return apr_fail(err, APR_E_IO,
                    "%s: cannot be replaced: it holds '%s', which is not a checkpoint file; move it away or choose another name",
                    folder->target.path, found.name);
}

/* Opens and locks the old folder: another process that replaces it then reports this run instead of mixing files. */
static apr_status open_old(apr_folder *folder, apr_error *err)
{
    const apr_target *const t = &folder->target;

    if (folder->old >= 0) close(folder->old);
    folder->old = openat(t->folder, t->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder->old < 0) return apr_fail(err, APR_E_IO, "%s: %s", t->path, strerror(errno));
    if (flock(folder->old, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return apr_fail(err, APR_E_IO, "%s: is being replaced by another process; wait for it or choose another name", t->path);
    return refuse_foreign_files(folder, err);
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
    folder->temporary_folder = folder->target.folder;
    status = make_folder(folder, total_bytes, err);
    if (status == APR_OK) *folder_ptr = folder;
    else free_folder(folder);
    return status;
}

apr_status apr_folder_resume(apr_folder **folder_ptr, const apr_resume *from, const char *path, bool overwrite, apr_folder_rule rule,
                             apr_error *err)
{
    *folder_ptr = NULL;
    apr_folder *const folder = calloc(1, sizeof *folder);
    if (folder == NULL) return apr_no_memory(err, "an output folder");
    *folder = (apr_folder){.rule = rule, .fd = -1, .old = -1, .temporary_folder = -1, .is_kept = true};
    apr_status status = apr_target_open(&folder->target, path, true, (apr_replace_rule){.overwrite = overwrite}, err);
    if (status != APR_OK) {
        free(folder);
        return status;
    }
    snprintf(folder->temporary, sizeof folder->temporary, "data");
    if (folder->target.exists) status = open_old(folder, err);
    if (status == APR_OK) {
        folder->temporary_folder = dup(apr_resume_folder(from));
        folder->fd = openat(folder->temporary_folder, "data", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (folder->fd < 0) status = apr_fail(err, APR_E_IO, "%s/data: %s", apr_resume_path(from), strerror(errno));
    }
    if (status == APR_OK) *folder_ptr = folder;
    else free_folder(folder);
    return status;
}

/* Makes the subfolder of "FOLDER/FILE" in the new folder. */
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

/* --- the final name --- */

static int rename_new(const apr_folder *folder)
{
    const apr_target *const t = &folder->target;

    if (!apr_out_test_fallbacks && renameat2(folder->temporary_folder, folder->temporary, t->folder, t->name, RENAME_NOREPLACE) == 0)
        return 0;
    if (!apr_out_test_fallbacks && errno != EINVAL && errno != ENOSYS) return errno;
    if (faccessat(t->folder, t->name, F_OK, AT_SYMLINK_NOFOLLOW) == 0) return EEXIST;
    return renameat(folder->temporary_folder, folder->temporary, t->folder, t->name) == 0 ? 0 : errno;
}

/* Renames to a name that tells what it is and that no later run removes as a leftover. */
static int set_aside(const apr_folder *folder, int from, const char *name, char aside[APR_NAME_BYTES])
{
    const apr_target *const t = &folder->target;

    snprintf(aside, APR_NAME_BYTES, "%.200s.before.%ld", t->name, (long)getpid());
    if (faccessat(t->folder, aside, F_OK, AT_SYMLINK_NOFOLLOW) == 0) return EEXIST;
    return renameat(from, name, t->folder, aside) == 0 ? 0 : errno;
}

/* Without RENAME_EXCHANGE the old folder is first renamed: if the process is killed in between, it is still there. */
static int exchange_in_two_steps(apr_folder *folder)
{
    const apr_target *const t = &folder->target;
    char aside[APR_NAME_BYTES];

    int error = set_aside(folder, t->folder, t->name, aside);
    if (error != 0) return error;
    if (renameat(folder->temporary_folder, folder->temporary, t->folder, t->name) != 0) {
        error = errno;
        renameat(t->folder, aside, t->folder, t->name);
        return error;
    }
    return renameat(t->folder, aside, folder->temporary_folder, folder->temporary) == 0 ? 0 : errno;
}

static int exchange(apr_folder *folder)
{
    const apr_target *const t = &folder->target;

    if (!apr_out_test_fallbacks && renameat2(folder->temporary_folder, folder->temporary, t->folder, t->name, RENAME_EXCHANGE) == 0)
        return 0;
    return apr_out_test_fallbacks || errno == EINVAL || errno == ENOSYS ? exchange_in_two_steps(folder) : errno;
}

/* The temporary name now belongs to the old folder, which must not be removed. */
static apr_status keep_old(apr_folder *folder, const char *why, apr_error *err)
{
    char aside[APR_NAME_BYTES];
    const bool moved = set_aside(folder, folder->temporary_folder, folder->temporary, aside) == 0;

    apr_fail(err, APR_E_IO, "%s: %s; the old folder is kept as %s", folder->target.path, why, moved ? aside : folder->temporary);
    if (!folder->is_kept) apr_temporary_done(folder->temporary_folder, folder->temporary);
    folder->temporary[0] = '\0';
    return APR_E_IO;
}

/* Called after the old folder's files were removed. */
static const char *why_not_removed(const apr_folder *folder, int error)
{
    const bool is_empty = error != ENOTEMPTY && error != EEXIST;
    if (!is_empty && refuse_foreign_files(folder, NULL) != APR_OK) return "is complete, but something was put into what it replaces";
    return is_empty ? "is complete, but the folder that it replaces cannot be removed"
                    : "is complete, but files of the folder that it replaces cannot be removed";
}

/* If another program puts a file into the old folder before the exchange, the exchange is undone and that file is kept. */
static apr_status replace(apr_folder *folder, apr_error *err)
{
    const apr_target *const t = &folder->target;
    foreign_file found;

    APR_TRY(open_old(folder, err));
    const int error = exchange(folder);
    if (error != 0) return apr_fail(err, APR_E_IO, "%s: cannot be replaced: %s", t->path, strerror(error));
    const apr_status status = refuse_foreign_files(folder, err);
    if (status != APR_OK) return exchange(folder) == 0 ? status : keep_old(folder, "cannot be put back", err);
    scan_files(folder->old, NULL, folder->rule, true, &found);
    if (unlinkat(folder->temporary_folder, folder->temporary, AT_REMOVEDIR) == 0) return APR_OK;
    return keep_old(folder, why_not_removed(folder, errno), err);
}

/* Called with the signals held. */
static apr_status take_final_name(apr_folder *folder, apr_error *err)
{
    const apr_target *const t = &folder->target;
    apr_status status = APR_OK;

    APR_TRY(apr_target_recheck(t, err));
    int error = rename_new(folder);
    if (error == EEXIST && t->is_empty && !t->overwrite) /* rename replaces an empty folder in one step, but no other */
        error = renameat(folder->temporary_folder, folder->temporary, t->folder, t->name) == 0 ? 0 : errno == ENOTEMPTY ? EEXIST : errno;
    if (error == EEXIST && t->overwrite) status = replace(folder, err);
    else if (error == EEXIST) status = apr_fail(err, APR_E_IO, "%s: exists by now, made by another program; it is kept", t->path);
    else if (error != 0) status = apr_fail(err, APR_E_IO, "%s: cannot complete: %s", t->path, strerror(error));
    if (status != APR_OK) return status;
    if (!folder->is_kept) apr_temporary_done(folder->temporary_folder, folder->temporary);
    folder->temporary[0] = '\0';
    return APR_OK;
}

void apr_folder_verify(apr_folder *folder, apr_out_reader reader) { folder->reader = reader; }

/* Reads the new folder before it gets its mode and its name. */
static apr_status prove(apr_folder *folder, apr_error *err)
{
    const apr_status status = apr_verify_output(folder->reader, folder->fd, folder->target.path, err);
    if (status != APR_OK) apr_folder_abandon(folder);
    return status;
}

apr_status apr_folder_finish(apr_folder *folder, apr_error *err)
{
    const apr_target *const t = &folder->target;
    sigset_t before;

    APR_TRY(prove(folder, err));

    if (t->exists) apr_copy_mode(folder->fd, &t->old);
    int error = apr_sync_folder(folder->fd);
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
    if (folder->temporary[0] != '\0' && !folder->is_kept) apr_temporary_remove(folder->target.folder, folder->temporary, folder->fd);
    free_folder(folder);
}
