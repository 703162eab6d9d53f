/* out_target.c - which targets an output may have, and what happens to a file that exists there. */
#define _GNU_SOURCE /* O_PATH, memmem */
#include "formats/files/checkpoint_names.h"
#include "formats/files/map.h"
#include "formats/files/out_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static apr_target *open_targets; /* of this process */

static bool same_file(const struct stat *a, const struct stat *b) { return a->st_dev == b->st_dev && a->st_ino == b->st_ino; }

/* --- path to folder and name --- */

/* Splits `path` into its folder (malloc'ed) and the name in it; slashes at the end of a folder's name are ignored. */
static apr_status split(const char *path, bool is_folder, char **folder, char name[APR_NAME_BYTES], apr_error *err)
{
    size_t end = strlen(path);
    while (is_folder && end > 1 && path[end - 1] == '/') end--;
    size_t start = end;
    while (start > 0 && path[start - 1] != '/') start--;
    const size_t n = end - start;
    const bool is_dots = n > 0 && n <= 2 && strspn(path + start, ".") >= n;

    *folder = NULL;
    if (n == 0 || is_dots)
        return apr_fail(err, APR_E_USAGE, "'%s' is not a name for %s; choose one", path, is_folder ? "a new folder" : "a file");
    if (n >= APR_NAME_BYTES) return apr_fail(err, APR_E_USAGE, "%.100s...: the name is too long", path);
    memcpy(name, path + start, n);
    name[n] = '\0';
    *folder = start == 0 ? strdup(".") : strndup(path, start);
    return *folder != NULL ? APR_OK : apr_no_memory(err, "a path");
}

static apr_status open_folder(apr_target *target, const char *path, bool is_folder, apr_error *err)
{
    char *folder;

    *target = (apr_target){.folder = -1, .is_folder = is_folder};
    APR_TRY(split(path, is_folder, &folder, target->name, err));
    target->path = strdup(path);
    target->folder = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    apr_status status = APR_OK;
    if (target->path == NULL) status = apr_no_memory(err, "a path");
    else if (target->folder < 0 || fstat(target->folder, &target->folder_st) != 0)
        status = apr_fail(err, APR_E_IO, "%s: cannot write there: %s: %s", path, folder, strerror(errno));
    free(folder);
    return status;
}

/* --- inputs --- */

/* Is the folder `fd` the one that `st` describes, or inside it at any depth? */
static bool is_within(int fd, const struct stat *st)
{
    struct stat at = {0}, below;
    bool found = false, is_root = false;
    int here = openat(fd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);

    while (here >= 0 && !found && !is_root) {
        below = at;
        if (fstat(here, &at) != 0) break;
        found = same_file(&at, st);
        is_root = same_file(&at, &below); /* the root is above itself */
        const int up = openat(here, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
        close(here);
        here = up;
    }
    if (here >= 0) close(here);
    return found;
}

/* Opens the folder of a file name; -1: it does not exist. */
static int folder_of(const char *path)
{
    const char *const slash = strrchr(path, '/');
    char *const folder = slash == NULL ? strdup(".") : strndup(path, (size_t)(slash - path) + 1);
    const int fd = folder != NULL ? open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    free(folder);
    return fd;
}

static bool file_is_within(const char *path, const struct stat *st)
{
    const int fd = folder_of(path);
    const bool within = fd >= 0 && is_within(fd, st);
    if (fd >= 0) close(fd);
    return within;
}

/* Checks the name that was opened, and the file that its links lead to. */
static bool input_is_within(const apr_input *input, const struct stat *st)
{
    char *const real = realpath(input->path, NULL);
    const bool within = file_is_within(input->path, st) || (real != NULL && file_is_within(real, st));
    free(real);
    return within;
}

/* A new file with a checkpoint's file name, next to a checkpoint that is being read, would become a part of it. */
static bool would_join_checkpoint(const apr_target *target, const apr_input *input)
{
    const char *const slash = strrchr(input->path, '/');
    struct stat st;

    if (target->is_folder || !apr_belongs_to_checkpoint(target->name) || !apr_is_checkpoint_file(slash != NULL ? slash + 1 : input->path))
        return false;
    const int fd = folder_of(input->path);
    const bool same = fd >= 0 && fstat(fd, &st) == 0 && same_file(&st, &target->folder_st);
    if (fd >= 0) close(fd);
    return same;
}

static apr_status refuse_inputs(const apr_target *target, apr_error *err)
{
    for (const apr_input *input = apr_inputs(); input != NULL && target->exists; input = input->next) {
        if (same_file(&target->old, &input->at_open))
            return apr_fail(err, APR_E_USAGE, "%s: is the same file as the input %s; choose another name", target->path, input->path);
        if (target->is_folder && input_is_within(input, &target->old))
            return apr_fail(err, APR_E_USAGE, "%s: holds the input %s; choose another name", target->path, input->path);
    }
    for (const apr_input *input = apr_inputs(); input != NULL; input = input->next)
        if (would_join_checkpoint(target, input))
            return apr_fail(err, APR_E_USAGE, "%s: would become a part of the checkpoint that is being read; choose another name or folder",
                            target->path);
    return APR_OK;
}

/* --- what exists there --- */

static const char *kind_of(mode_t mode)
{
    return S_ISREG(mode)    ? "a file"
           : S_ISDIR(mode)  ? "a folder"
           : S_ISLNK(mode)  ? "a symbolic link"
           : S_ISFIFO(mode) ? "a FIFO"
           : S_ISSOCK(mode) ? "a socket"
                            : "a device";
}

/* True for an existing folder without entries. */
static bool is_empty_folder(const apr_target *target)
{
    const int fd = openat(target->folder, target->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *const folder = fd >= 0 ? fdopendir(fd) : NULL;
    bool is_empty = folder != NULL;

    if (folder == NULL && fd >= 0) close(fd);
    for (const struct dirent *entry; is_empty && (entry = readdir(folder)) != NULL;)
        is_empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
    if (folder != NULL) closedir(folder);
    return is_empty;
}

static apr_status look(apr_target *target, apr_error *err)
{
    target->exists = fstatat(target->folder, target->name, &target->old, AT_SYMLINK_NOFOLLOW) == 0;
    if (!target->exists && errno != ENOENT) return apr_fail(err, APR_E_IO, "%s: %s", target->path, strerror(errno));
    target->is_empty = target->is_folder && target->exists && S_ISDIR(target->old.st_mode) && is_empty_folder(target);
    return APR_OK;
}

static apr_status refuse_kind(const apr_target *target, apr_error *err)
{
    const mode_t mode = target->old.st_mode;
    if (target->exists && !(target->is_folder ? S_ISDIR(mode) : S_ISREG(mode)))
        return apr_fail(err, APR_E_IO, "%s: is %s, not %s; choose another name", target->path, kind_of(mode),
                        target->is_folder ? "a folder" : "a regular file");
    return APR_OK;
}

static bool has_mark(const apr_target *target, const char *mark)
{
    char head[512];
    const int fd = openat(target->folder, target->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    const ssize_t n = fd >= 0 ? pread(fd, head, sizeof head, 0) : -1;
    if (fd >= 0) close(fd);
    return n >= 0 && memmem(head, (size_t)n, mark, strlen(mark)) != NULL;
}

static apr_status refuse_existing(const apr_target *target, const char *mark, apr_error *err)
{
    const struct stat *const old = &target->old, *const folder = &target->folder_st;

    if (!target->exists) return APR_OK;
    if (mark != NULL && old->st_size > 0 && !has_mark(target, mark))
        return apr_fail(err, APR_E_IO, "%s: exists already and is something else; choose another name or remove it", target->path);
    if (mark == NULL && !target->overwrite && !target->is_empty)
        return apr_fail(err, APR_E_IO, "%s: exists already; give --force to replace it", target->path);
    if ((folder->st_mode & S_ISVTX) != 0 && geteuid() != 0 && old->st_uid != geteuid() && folder->st_uid != geteuid())
        return apr_fail(err, APR_E_IO, "%s: belongs to another user and cannot be replaced in this folder", target->path);
    return APR_OK;
}

/* Two outputs of a run must not be the same file, by whatever names, and none may be in a folder that is going to be replaced. */
static apr_status refuse_each_other(const apr_target *target, apr_error *err)
{
    apr_status status = APR_OK;

    pthread_mutex_lock(&lock);
    for (const apr_target *other = open_targets; other != NULL && status == APR_OK; other = other->next) {
        const bool same = same_file(&target->folder_st, &other->folder_st) && strcmp(target->name, other->name) == 0;
        const bool linked = target->exists && other->exists && same_file(&target->old, &other->old);
        const bool in = other->is_folder && other->exists && is_within(target->folder, &other->old);
        const bool around = target->is_folder && target->exists && is_within(other->folder, &target->old);
        if (same) status = apr_fail(err, APR_E_USAGE, "%s: two outputs of this run have this name; choose another", target->path);
        else if (linked)
            status = apr_fail(err, APR_E_USAGE, "%s: is the same file as %s, which this run also writes; choose another name", target->path,
                              other->path);
        else if (in || around)
            status = apr_fail(err, APR_E_USAGE, "%s: would be in %s, which this run replaces; choose another name",
                              in ? target->path : other->path, in ? other->path : target->path);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

static apr_status check(apr_target *target, apr_replace_rule rule, apr_error *err)
{
    target->overwrite = rule.overwrite || rule.mark != NULL;
    target->mark = rule.mark;
    APR_TRY(look(target, err));
    APR_TRY(refuse_inputs(target, err));
    APR_TRY(refuse_kind(target, err));
    if (!rule.is_dry) APR_TRY(refuse_existing(target, rule.mark, err));
    APR_TRY(refuse_each_other(target, err));
    if (!rule.is_dry && faccessat(target->folder, ".", W_OK | X_OK, AT_EACCESS) != 0)
        return apr_fail(err, APR_E_IO, "%s: cannot write there: %s", target->path, strerror(errno));
    return APR_OK;
}

static void free_target(apr_target *target)
{
    if (target->folder >= 0) close(target->folder);
    free(target->path);
    target->folder = -1;
    target->path = NULL;
}

apr_status apr_target_open(apr_target *target, const char *path, bool is_folder, apr_replace_rule rule, apr_error *err)
{
    apr_status status = open_folder(target, path, is_folder, err);
    if (status == APR_OK) status = check(target, rule, err);
    if (status != APR_OK) {
        free_target(target);
        return status;
    }
    pthread_mutex_lock(&lock);
    target->next = open_targets;
    open_targets = target;
    pthread_mutex_unlock(&lock);
    return APR_OK;
}

void apr_target_close(apr_target *target)
{
    pthread_mutex_lock(&lock);
    for (apr_target **at = &open_targets; *at != NULL; at = &(*at)->next)
        if (*at == target) {
            *at = target->next;
            break;
        }
    pthread_mutex_unlock(&lock);
    free_target(target);
}

apr_status apr_target_recheck(const apr_target *target, apr_error *err)
{
    apr_target now = *target;

    APR_TRY(apr_inputs_check(err));
    APR_TRY(look(&now, err));
    if (now.exists && !target->overwrite && !(target->is_empty && now.is_empty))
        return apr_fail(err, APR_E_IO, "%s: exists by now, made by another program; it is kept", target->path);
    APR_TRY(refuse_inputs(&now, err));
    APR_TRY(refuse_kind(&now, err));
    return target->mark != NULL ? refuse_existing(&now, target->mark, err) : APR_OK;
}

apr_status apr_outs_check(const apr_out_request *all, size_t n, apr_error *err)
{
    apr_target *const targets = calloc(n + 1, sizeof *targets);
    apr_status status = targets != NULL ? APR_OK : apr_no_memory(err, "the outputs");
    size_t n_open = 0;

    while (status == APR_OK && n_open < n) { /* all stay open, so that each is compared with those before it */
        const apr_out_request *const wanted = &all[n_open];
        const apr_replace_rule rule = {wanted->overwrite, wanted->mark, wanted->is_dry};
        status = apr_target_open(&targets[n_open], wanted->path, wanted->is_folder, rule, err);
        n_open += status == APR_OK;
    }
    while (n_open > 0) apr_target_close(&targets[--n_open]);
    free(targets);
    return status;
}

apr_status apr_out_check(const char *path, bool is_folder, apr_error *err)
{
    return apr_outs_check(&(apr_out_request){.path = path, .is_folder = is_folder, .is_dry = true}, 1, err);
}

/* --- modes --- */

/* A group other than the input's gets no more rights than the input gives to others. */
static mode_t mode_limited_by_inputs(gid_t group)
{
    mode_t mode = 0666;
    for (const apr_input *input = apr_inputs(); input != NULL; input = input->next) {
        const mode_t of = input->at_open.st_mode, others = of & 0006;
        mode &= (mode_t)(0600 | others | (input->at_open.st_gid == group ? of & 0060 : others << 3));
    }
    return mode;
}

mode_t apr_target_mode(const apr_target *target)
{
    const gid_t group = (target->folder_st.st_mode & S_ISGID) != 0 ? target->folder_st.st_gid : getegid();
    const mode_t mode = mode_limited_by_inputs(group);
    return target->is_folder ? mode | (mode & 0444) >> 2 : mode;
}

/* If the group cannot be kept, its permission bits are removed. */
void apr_copy_mode(int fd, const struct stat *old)
{
    struct stat now;
    const bool changed = fchown(fd, old->st_uid, old->st_gid) == 0 || fchown(fd, (uid_t)-1, old->st_gid) == 0;
    const bool has_group = changed || (fstat(fd, &now) == 0 && now.st_gid == old->st_gid);
    const mode_t bits = S_ISDIR(old->st_mode) ? 03777 : 00777;
    fchmod(fd, old->st_mode & bits & ~(mode_t)(has_group ? 0 : 02070));
}

apr_status apr_folder_ensure(const char *path, bool make, apr_error *err)
{
    struct stat st;
    apr_target target = {.folder = -1};
    apr_status status = APR_OK;

    if (stat(path, &st) == 0 && !S_ISDIR(st.st_mode)) return apr_fail(err, APR_E_IO, "%s: is %s, not a folder", path, kind_of(st.st_mode));
    if (access(path, F_OK) == 0)
        return faccessat(AT_FDCWD, path, W_OK | X_OK, AT_EACCESS) == 0
                   ? APR_OK
                   : apr_fail(err, APR_E_IO, "%s: cannot write there: %s", path, strerror(errno));
    status = open_folder(&target, path, true, err);
    if (status == APR_OK && faccessat(target.folder, ".", W_OK | X_OK, AT_EACCESS) != 0)
        status = apr_fail(err, APR_E_IO, "%s: cannot create: %s", path, strerror(errno));
    if (status == APR_OK && make && mkdirat(target.folder, target.name, apr_target_mode(&target)) != 0 && errno != EEXIST)
        status = apr_fail(err, APR_E_IO, "%s: cannot create: %s", path, strerror(errno));
    free_target(&target);
    return status;
}

/* --- the disk --- */

enum { AMOUNT_TEXT = 32 };

/* Prints MiB, or bytes if the amounts are small or would look the same. */
static void write_amounts(uint64_t needed, uint64_t there, char texts[2][AMOUNT_TEXT])
{
    snprintf(texts[0], AMOUNT_TEXT, "%.1f MiB", (double)needed / 0x1p20);
    snprintf(texts[1], AMOUNT_TEXT, "%.1f MiB", (double)there / 0x1p20);
    if (needed >= 10u << 20 && strcmp(texts[0], texts[1]) != 0) return;
    snprintf(texts[0], AMOUNT_TEXT, "%llu bytes", (unsigned long long)needed);
    snprintf(texts[1], AMOUNT_TEXT, "%llu bytes", (unsigned long long)there);
}

apr_status apr_target_check_disk(const apr_target *target, uint64_t total_bytes, apr_error *err)
{
    char amounts[2][AMOUNT_TEXT];
    struct statvfs fs;

    if (fstatvfs(target->folder, &fs) != 0) return apr_fail(err, APR_E_IO, "%s: cannot write there: %s", target->path, strerror(errno));
    const uint64_t n_free = (uint64_t)fs.f_bavail * fs.f_frsize;
    if (n_free >= total_bytes) return APR_OK;
    write_amounts(total_bytes, n_free, amounts);
    return apr_fail(err, APR_E_IO, "%s: not enough space on the disk: %s needed, %s free; free some space or write elsewhere", target->path,
                    amounts[0], amounts[1]);
}

apr_status apr_check_file_limit(const char *path, uint64_t total_bytes, apr_error *err)
{
    char amounts[2][AMOUNT_TEXT];
    struct rlimit limit;

    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= total_bytes) return APR_OK;
    write_amounts(total_bytes, limit.rlim_cur, amounts);
    return apr_fail(err, APR_E_IO, "%s: %s needed, but files are limited to %s (ulimit -f)", path, amounts[0], amounts[1]);
}

apr_status apr_out_check_disk(const char *path, uint64_t total_bytes, apr_error *err)
{
    apr_target target;
    apr_status status = open_folder(&target, path, true, err);
    if (status == APR_OK) status = apr_target_check_disk(&target, total_bytes, err);
    free_target(&target);
    return status;
}

int apr_sync_folder(int folder)
{
    const int again =
        openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); /* an O_PATH descriptor cannot be synced: no read permission gives 0 */
    const int error = fsync(again >= 0 ? again : folder) == 0 ? 0 : errno;

    if (again >= 0) close(again);
    return error == EIO || error == ENOSPC || error == EDQUOT ? error : 0;
}
