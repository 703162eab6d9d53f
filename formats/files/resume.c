/* resume.c - the folder NAME.resume: makes or joins, locks, reads and removes it. */
#include "formats/files/resume_internal.h"

#include "formats/base/crc32.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ENDING ".resume"

const char *apr_resume_path(const apr_resume *resume) { return resume->path; }
int apr_resume_n_parts(const apr_resume *resume) { return resume->part.n_parts; }
const apr_records *apr_resume_records(const apr_resume *resume) { return &resume->records; }
bool apr_resume_is_final(const apr_resume *resume) { return resume->is_final; }
int apr_resume_folder(const apr_resume *resume) { return resume->folder; }

/* --- the folder --- */

static bool ends_with(const char *name, const char *ending)
{
    const size_t n = strlen(name), m = strlen(ending);
    return n > m && strcmp(name + n - m, ending) == 0;
}

static bool begins_with(const char *name, const char *start) { return strncmp(name, start, strlen(start)) == 0; }

static bool is_ours(const char *name)
{
    static const char *const names[] = {"terms", "lock", "data", "final", APR_RESUME_TEXT, APR_RESUME_SUMS};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return begins_with(name, "terms.") || begins_with(name, "final.") || begins_with(name, APR_RESUME_TEXT ".") ||
           begins_with(name, APR_RESUME_SUMS ".") || ends_with(name, ".journal");
}

/* Calls `call` for each name in the folder until one fails. */
static apr_status each_name(apr_resume *r, apr_status (*call)(apr_resume *r, const char *name, apr_error *err), apr_error *err)
{
    const int fd = openat(r->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *const dir = fd >= 0 ? fdopendir(fd) : NULL;
    const struct dirent *entry;
    apr_status status = APR_OK;

    if (dir == NULL) {
        const int error = errno;
        if (fd >= 0) close(fd);
        return apr_fail(err, apr_errno_status(error), "%s: %s", r->path, strerror(error));
    }
    while (status == APR_OK && (entry = readdir(dir)) != NULL)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) status = call(r, entry->d_name, err);
    closedir(dir);
    return status;
}

static apr_status refuse_foreign_file(apr_resume *r, const char *name, apr_error *err)
{
    if (is_ours(name)) return APR_OK;
    return apr_fail(err, APR_E_IO,
                    "%s: holds '%s' but no file 'terms', so it is not the folder of an unfinished run; choose another output", r->path,
                    name);
}

char *apr_resume_path_for(const char *target)
{
    size_t n = strlen(target);
    while (n > 1 && target[n - 1] == '/') n--;
    char *const path = malloc(n + sizeof ENDING);
    if (path == NULL) return NULL;
    memcpy(path, target, n);
    memcpy(path + n, ENDING, sizeof ENDING);
    return path;
}

/* Checks the final name as for any output, and names the folder next to it. Whether an existing file may be replaced is checked later. */
static apr_status find_target(apr_resume *r, const char *target, bool is_folder, apr_error *err)
{
    APR_TRY(apr_target_open(&r->target, target, is_folder, (apr_replace_rule){.overwrite = true}, err));
    r->path = apr_resume_path_for(target);
    r->parent = dup(r->target.folder);
    if (r->path == NULL || r->parent < 0) return apr_no_memory(err, "a path");
    if (strlen(r->target.name) + sizeof ENDING > sizeof r->name)
        return apr_fail(err, APR_E_USAGE, "%.100s...: the name is too long", target);
    memcpy(r->name, r->target.name, strlen(r->target.name));
    memcpy(r->name + strlen(r->target.name), ENDING, sizeof ENDING);
    r->mode = apr_target_mode(&r->target) & 0666;
    return APR_OK;
}

static apr_status refuse_existing(const apr_resume *r, apr_error *err)
{
    return apr_fail(err, APR_E_IO, "%s: exists already; give --force to replace it", r->target.path);
}

static apr_status make_folder(const apr_resume *r, bool overwrite, apr_error *err)
{
    if (r->part.n_parts == 0)
        return apr_fail(err, APR_E_IO, "%s: does not exist: no part was made yet (--part 1/N), or the output is complete", r->path);
    if (r->target.exists && !overwrite) return refuse_existing(r, err);
    if (mkdirat(r->parent, r->name, r->mode | 0700 | (r->mode & 0444) >> 2) != 0 && errno != EEXIST)
        return apr_fail(err, APR_E_IO, "%s: cannot create: %s", r->path, strerror(errno));
    const int error = apr_sync_folder(r->parent);
    return error == 0 ? APR_OK : apr_fail(err, APR_E_IO, "%s: cannot create: %s", r->path, strerror(error));
}

static bool has_entry(const apr_resume *r, const char *name) { return faccessat(r->folder, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0; }

static apr_status open_folder(apr_resume *r, bool overwrite, apr_error *err)
{
    static const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

    r->folder = openat(r->parent, r->name, flags);
    if (r->folder < 0 && errno == ENOENT) {
        APR_TRY(make_folder(r, overwrite, err));
        r->folder = openat(r->parent, r->name, flags);
    }
    if (r->folder < 0) return apr_fail(err, APR_E_IO, "%s: %s", r->path, strerror(errno));
    if (has_entry(r, "terms")) return APR_OK;
    if (r->target.exists && !overwrite && !has_entry(r, "final")) return refuse_existing(r, err);
    return each_name(r, refuse_foreign_file, err);
}

/* --- the lock --- */

static apr_status take_lock(apr_resume *r, apr_error *err)
{
    struct stat st;
    const bool all = r->part.part == 0;

    r->lock = openat(r->folder, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (r->lock < 0) return apr_resume_fail(r, "lock", err);
    const int error = apr_resume_lock(r->lock, F_WRLCK, all ? 0 : r->part.part - 1, all ? 0 : 1);
    if (error == EAGAIN || error == EACCES)
        return apr_fail(err, APR_E_IO, "%s: another process is working there%s; wait for it, or end it", r->path,
                        all ? "" : " on this part");
    /* other errors: the file system has no locks, so concurrent runs are not detected */
    if (fstat(r->lock, &st) != 0 || st.st_nlink == 0)
        return apr_fail(err, APR_E_IO, "%s: was finished by another process just now", r->path);
    return APR_OK;
}

/* --- the terms --- */

static int parts_of(const char *terms)
{
    int n = 0;
    return sscanf(terms, "parts %d\n", &n) == 1 && n > 0 ? n : 0;
}

/* The first line of `text` that `other` does not have, *n bytes long; NULL: none. */
static const char *first_unshared_line(const char *text, const char *other, size_t *n)
{
    for (const char *line = text; *line != '\0'; line += *n + (line[*n] == '\n')) {
        bool is_there = false;
        *n = strcspn(line, "\n");
        for (const char *at = other; *at != '\0' && !is_there; at += strcspn(at, "\n"), at += *at == '\n')
            is_there = strcspn(at, "\n") == *n && memcmp(at, line, *n) == 0;
        if (!is_there) return line;
    }
    return NULL;
}

/* Lines are compared wherever they are: one input more or fewer moves all lines after it. */
static apr_status say_difference(const apr_resume *r, const char *before, const char *now, apr_error *err)
{
    static const char no_line[] = "no such line";
    size_t n = sizeof no_line - 1, m = n;
    const char *a = first_unshared_line(before, now, &n), *b = first_unshared_line(now, before, &m);

    if (a == NULL) a = no_line, n = sizeof no_line - 1;
    if (b == NULL) b = no_line, m = sizeof no_line - 1;
    return apr_fail(err, APR_E_IO,
                    "%s: was started with '%.*s', but this run has '%.*s'; use the same input and options, or remove the folder to "
                    "start again",
                    r->path, n < 150 ? (int)n : 150, a, m < 150 ? (int)m : 150, b);
}

static apr_status agree(apr_resume *r, const char *terms, apr_error *err)
{
    size_t n;
    char *const before = apr_resume_read(r->folder, "terms", &n);
    apr_status status = APR_OK;

    if (before == NULL) return apr_resume_fail(r, "terms", err);
    const int n_before = parts_of(before);
    const char *const lines = before + strcspn(before, "\n");
    r->terms_crc = apr_crc32(0, before, n);
    if (n_before == 0)
        status =
            apr_fail(err, APR_E_DAMAGED, "%s/terms: does not begin with the number of parts; remove the folder to start again", r->path);
    else if (r->part.n_parts != 0 && r->part.n_parts != n_before)
        status = apr_fail(err, APR_E_IO, "%s: was started with %d part%s, but this run has %d; remove the folder to start again", r->path,
                          n_before, n_before == 1 ? "" : "s", r->part.n_parts);
    else if (strcmp(lines + (*lines == '\n'), terms) != 0) status = say_difference(r, lines + (*lines == '\n'), terms, err);
    r->part.n_parts = n_before;
    free(before);
    return status;
}

static apr_status join_terms(apr_resume *r, const char *terms, apr_error *err)
{
    const size_t n_bytes = strlen(terms) + 32;
    int error = 0;

    if (!has_entry(r, "terms")) {
        if (r->part.n_parts == 0)
            return apr_fail(err, APR_E_IO, "%s: has no file 'terms': no part was made yet (--part 1/N), or the output is complete",
                            r->path);
        char *const whole = malloc(n_bytes);
        if (whole == NULL) return apr_no_memory(err, "the terms of a run");
        snprintf(whole, n_bytes, "parts %d\n%s", r->part.n_parts, terms);
        error = apr_resume_write(r->folder, "terms", whole, false);
        free(whole);
    }
    if (error != 0) return apr_fail(err, APR_E_IO, "%s/terms: cannot create: %s", r->path, strerror(error));
    return agree(r, terms, err);
}

/* --- the journals of earlier runs --- */

static apr_status read_journal(apr_resume *r, const char *name, apr_error *err)
{
    char path[4096];
    size_t n;

    if (!ends_with(name, ".journal")) return APR_OK;
    char *const text = apr_resume_read(r->folder, name, &n);
    if (text == NULL) return apr_resume_fail(r, name, err);
    snprintf(path, sizeof path, "%s/%s", r->path, name);
    const apr_status status = apr_journal_read(&r->records, text, n, r->terms_crc, path, err);
    free(text);
    return status;
}

/* Does the final name hold the data of this folder, made under these terms? */
static bool has_final_name(const apr_resume *r)
{
    uint64_t device, inode, terms;
    size_t n;
    char *const text = r->target.exists ? apr_resume_read(r->folder, "final", &n) : NULL;
    const bool is_known = text != NULL && sscanf(text, "%" SCNu64 " %" SCNu64 " %" SCNx64, &device, &inode, &terms) == 3;

    free(text);
    return is_known && device == (uint64_t)r->target.old.st_dev && inode == (uint64_t)r->target.old.st_ino && terms == r->terms_crc;
}

/* --- opening --- */

static apr_status open_resume(apr_resume *r, const char *target, bool is_folder, bool overwrite, const char *terms, apr_error *err)
{
    APR_TRY(find_target(r, target, is_folder, err));
    APR_TRY(open_folder(r, overwrite, err));
    APR_TRY(take_lock(r, err));
    APR_TRY(join_terms(r, terms, err));
    apr_resume_refresh_listing(r->folder);
    APR_TRY(each_name(r, read_journal, err));
    apr_records_sort(&r->records);
    r->is_final = has_final_name(r);
    if (r->target.exists && !overwrite && !r->is_final) return refuse_existing(r, err);
    apr_target_close(&r->target); /* the call that puts it in place opens it again */
    return APR_OK;
}

apr_status apr_resume_open(apr_resume **resume, const char *target, bool is_folder, bool overwrite, apr_resume_part part, const char *terms,
                           apr_error *err)
{
    *resume = NULL;
    apr_resume *const r = calloc(1, sizeof *r);
    if (r == NULL) return apr_no_memory(err, "an unfinished output");
    r->part = part;
    r->parent = r->folder = r->lock = r->journal = r->target.folder = -1;
    const apr_status status = open_resume(r, target, is_folder, overwrite, terms, err);
    if (status == APR_OK) *resume = r;
    else apr_resume_close(r);
    return status;
}

void apr_resume_close(apr_resume *r)
{
    if (r == NULL) return;
    if (r->target.path != NULL) apr_target_close(&r->target);
    if (r->journal >= 0) close(r->journal);
    if (r->lock >= 0) close(r->lock);
    if (r->folder >= 0) close(r->folder);
    if (r->parent >= 0) close(r->parent);
    apr_records_close(&r->records);
    free(r->path);
    free(r);
}

/* --- the end --- */

apr_status apr_resume_set_final(apr_resume *r, apr_error *err)
{
    struct stat st;
    char text[96];

    if (fstatat(r->folder, "data", &st, AT_SYMLINK_NOFOLLOW) != 0) return apr_resume_fail(r, "data", err);
    snprintf(text, sizeof text, "%" PRIu64 " %" PRIu64 " %" PRIx32 "\n", (uint64_t)st.st_dev, (uint64_t)st.st_ino, r->terms_crc);
    const int error = apr_resume_write(r->folder, "final", text, true);
    return error == 0 ? APR_OK : apr_fail(err, APR_E_IO, "%s/final: cannot create: %s", r->path, strerror(error));
}

/* Removes only our own files; a data folder has moved to its final name. */
static apr_status remove_ours(apr_resume *r, const char *name, apr_error *err)
{
    (void)err;
    if (is_ours(name) && strcmp(name, "final") != 0 && strcmp(name, "terms") != 0) unlinkat(r->folder, name, 0);
    return APR_OK;
}

void apr_resume_remove(apr_resume *r)
{
    each_name(r, remove_ours, NULL);
    unlinkat(r->folder, "terms", 0); /* last: these two tell that the folder is ours and complete */
    unlinkat(r->folder, "final", 0);
    unlinkat(r->parent, r->name, AT_REMOVEDIR);
}
