/* resume.c - the folder NAME.resume: made or joined, locked, read, noted in, removed. */
#define _GNU_SOURCE /* F_OFD_SETLK, fallocate, getrandom */
#include "formats/base/resume.h"

#include "formats/base/crc32.h"
#include "formats/base/out_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define ENDING ".resume"
enum { MOST_TEXT_BYTES = 1 << 30 }; /* of a plan or a journal */

struct apr_resume {
    apr_target target; /* of the final name; only while it is opened */
    apr_resume_part part;
    char *path, name[APR_NAME_BYTES]; /* the name in the folder `beside` */
    mode_t mode;                      /* of new files */
    int beside, folder, lock, journal;
    uint32_t plan_crc;
    off_t n_noted; /* bytes of our journal that are whole lines */
    bool is_broken, is_final;
    apr_records records;
};

const char *apr_resume_path(const apr_resume *resume) { return resume->path; }
int apr_resume_n_parts(const apr_resume *resume) { return resume->part.n_parts; }
const apr_records *apr_resume_records(const apr_resume *resume) { return &resume->records; }
bool apr_resume_is_final(const apr_resume *resume) { return resume->is_final; }
int apr_resume_folder(const apr_resume *resume) { return resume->folder; }

static apr_status fail_io(const apr_resume *r, const char *name, apr_error *err)
{
    return apr_fail(err, APR_E_IO, "%s/%s: %s", r->path, name, strerror(errno));
}

/* --- small files --- */

/* All of a file, malloc'ed and NUL-terminated; NULL and errno. */
static char *read_text(int folder, const char *name, size_t *n_bytes)
{
    struct stat st;
    const int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    const bool is_good = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size <= MOST_TEXT_BYTES;
    char *const text = is_good ? malloc((size_t)st.st_size + 1) : NULL;
    size_t n = 0;

    while (text != NULL && n < (size_t)st.st_size) {
        const ssize_t now = pread(fd, text + n, (size_t)st.st_size - n, (off_t)n);
        if (now <= 0) break;
        n += (size_t)now;
    }
    if (text != NULL) text[n] = '\0';
    else if (fd >= 0) errno = EINVAL;
    if (fd >= 0) close(fd);
    *n_bytes = n;
    return text;
}

static int write_text(int fd, const char *text, size_t n_bytes)
{
    for (size_t at = 0; at < n_bytes;) {
        const ssize_t n = write(fd, text + at, n_bytes - at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return n == 0 ? EIO : errno;
        at += (size_t)n;
    }
    return 0;
}

/* A name that no other run takes: "plan.0123456789abcdef". */
static void invent(char name[APR_NAME_BYTES], const char *stem, const char *ending)
{
    uint64_t random = (uint64_t)getpid() * 0x9e3779b97f4a7c15u;
    (void)!getrandom(&random, sizeof random, GRND_NONBLOCK);
    snprintf(name, APR_NAME_BYTES, "%s.%016" PRIx64 "%s", stem, random, ending);
}

/* Gives the temporary file its name. Where there are no hard links, a file of that name is replaced. */
static int put_in_place(int folder, const char *temporary, const char *name, bool replace)
{
    if (!replace && (linkat(folder, temporary, folder, name, 0) == 0 || errno == EEXIST)) return 0;
    return renameat(folder, temporary, folder, name) == 0 ? 0 : errno;
}

/* A whole file of that name, on the disk when it is there at all. replace: also over an older one, which otherwise stays. */
static int put_text(int folder, const char *name, const char *text, bool replace)
{
    char temporary[APR_NAME_BYTES];

    invent(temporary, name, "");
    const int fd = openat(folder, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0) return errno;
    int error = write_text(fd, text, strlen(text));
    if (error == 0 && fsync(fd) != 0) error = errno;
    close(fd);
    if (error == 0) error = put_in_place(folder, temporary, name, replace);
    unlinkat(folder, temporary, 0);
    apr_sync_folder(folder);
    return error;
}

/* --- whose folder it is --- */

static bool ends_with(const char *name, const char *ending)
{
    const size_t n = strlen(name), m = strlen(ending);
    return n > m && strcmp(name + n - m, ending) == 0;
}

static bool begins_with(const char *name, const char *start) { return strncmp(name, start, strlen(start)) == 0; }

static bool is_ours(const char *name)
{
    static const char *const names[] = {"plan", "lock", "data", "final"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return begins_with(name, "plan.") || begins_with(name, "final.") || ends_with(name, ".journal");
}

/* Calls for each name in the folder, until one returns false. */
static apr_status each_name(apr_resume *r, apr_status (*call)(apr_resume *r, const char *name, apr_error *err), apr_error *err)
{
    const int fd = openat(r->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *const dir = fd >= 0 ? fdopendir(fd) : NULL;
    const struct dirent *entry;
    apr_status status = APR_OK;

    if (dir == NULL) {
        if (fd >= 0) close(fd);
        return apr_fail(err, APR_E_IO, "%s: %s", r->path, strerror(errno));
    }
    while (status == APR_OK && (entry = readdir(dir)) != NULL)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) status = call(r, entry->d_name, err);
    closedir(dir);
    return status;
}

static apr_status refuse_stranger(apr_resume *r, const char *name, apr_error *err)
{
    if (is_ours(name)) return APR_OK;
    return apr_fail(err, APR_E_IO, "%s: holds '%s' and no plan, so it is no folder of an unfinished run; choose another output", r->path,
                    name);
}

/* The final name, checked as any output's is, and the name of the folder beside it. An existing one is judged later. */
static apr_status find_target(apr_resume *r, const char *target, bool is_folder, apr_error *err)
{
    APR_TRY(apr_target_open(&r->target, target, is_folder, (apr_replace_rule){.overwrite = true}, err));
    size_t n = strlen(target);
    while (n > 1 && target[n - 1] == '/') n--;
    r->path = malloc(n + sizeof ENDING);
    r->beside = dup(r->target.folder);
    if (r->path == NULL || r->beside < 0) return apr_no_memory(err, "a path");
    memcpy(r->path, target, n);
    memcpy(r->path + n, ENDING, sizeof ENDING);
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
        return apr_fail(err, APR_E_IO, "%s: is not there: no part has been made yet (--part 1/N), or all is finished", r->path);
    if (r->target.exists && !overwrite) return refuse_existing(r, err);
    if (mkdirat(r->beside, r->name, r->mode | 0700 | (r->mode & 0444) >> 2) != 0 && errno != EEXIST)
        return apr_fail(err, APR_E_IO, "%s: cannot create: %s", r->path, strerror(errno));
    apr_sync_folder(r->beside);
    return APR_OK;
}

static bool has_entry(const apr_resume *r, const char *name) { return faccessat(r->folder, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0; }

static apr_status open_folder(apr_resume *r, bool overwrite, apr_error *err)
{
    static const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

    r->folder = openat(r->beside, r->name, flags);
    if (r->folder < 0 && errno == ENOENT) {
        APR_TRY(make_folder(r, overwrite, err));
        r->folder = openat(r->beside, r->name, flags);
    }
    if (r->folder < 0) return apr_fail(err, APR_E_IO, "%s: %s", r->path, strerror(errno));
    if (has_entry(r, "plan")) return APR_OK;
    if (r->target.exists && !overwrite && !has_entry(r, "final")) return refuse_existing(r, err);
    return each_name(r, refuse_stranger, err);
}

/* --- one at a time --- */

/* Of bytes [first, first + n); n 0: to the end. Belongs to the open file, so it ends with the process. */
static int lock_bytes(int fd, short type, off_t first, off_t n)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = first, .l_len = n};
    return fcntl(fd, F_OFD_SETLK, &lock) == 0 ? 0 : errno;
}

static apr_status take_lock(apr_resume *r, apr_error *err)
{
    struct stat st;
    const bool all = r->part.part == 0;

    r->lock = openat(r->folder, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (r->lock < 0) return fail_io(r, "lock", err);
    const int error = lock_bytes(r->lock, F_WRLCK, all ? 0 : r->part.part - 1, all ? 0 : 1);
    if (error == EAGAIN || error == EACCES)
        return apr_fail(err, APR_E_IO, "%s: another process is at work there%s; wait for it, or end it", r->path,
                        all ? "" : " on this part");
    /* where there are no locks, nobody is kept out */
    if (fstat(r->lock, &st) != 0 || st.st_nlink == 0)
        return apr_fail(err, APR_E_IO, "%s: was finished by another process just now", r->path);
    return APR_OK;
}

/* --- the plan --- */

static int parts_of(const char *plan)
{
    int n = 0;
    return sscanf(plan, "parts %d\n", &n) == 1 && n > 0 ? n : 0;
}

/* The first line in which they are not equal. */
static apr_status say_difference(const apr_resume *r, const char *before, const char *now, apr_error *err)
{
    const char *a = before, *b = now;

    for (;;) {
        const size_t n = strcspn(a, "\n"), m = strcspn(b, "\n");
        if (n != m || memcmp(a, b, n) != 0)
            return apr_fail(err, APR_E_IO,
                            "%s: was begun with '%.*s', and this run has '%.*s'; take the same input and options, or remove the folder to "
                            "start anew",
                            r->path, n < 150 ? (int)n : 150, a, m < 150 ? (int)m : 150, b);
        a += n + (a[n] == '\n');
        b += m + (b[m] == '\n');
    }
}

static apr_status agree(apr_resume *r, const char *plan, apr_error *err)
{
    size_t n;
    char *const before = read_text(r->folder, "plan", &n);
    apr_status status = APR_OK;

    if (before == NULL) return fail_io(r, "plan", err);
    const int n_before = parts_of(before);
    const char *const lines = before + strcspn(before, "\n");
    r->plan_crc = apr_crc32(0, before, n);
    if (n_before == 0)
        status = apr_fail(err, APR_E_DAMAGED, "%s/plan: does not begin with the number of parts; remove the folder to start anew", r->path);
    else if (r->part.n_parts != 0 && r->part.n_parts != n_before)
        status = apr_fail(err, APR_E_IO, "%s: was begun with %d part%s, and this run counts %d; remove the folder to start anew", r->path,
                          n_before, n_before == 1 ? "" : "s", r->part.n_parts);
    else if (strcmp(lines + (*lines == '\n'), plan) != 0) status = say_difference(r, lines + (*lines == '\n'), plan, err);
    r->part.n_parts = n_before;
    free(before);
    return status;
}

static apr_status join_plan(apr_resume *r, const char *plan, apr_error *err)
{
    const size_t n_bytes = strlen(plan) + 32;
    int error = 0;

    if (!has_entry(r, "plan")) {
        if (r->part.n_parts == 0) return fail_io(r, "plan", err);
        char *const whole = malloc(n_bytes);
        if (whole == NULL) return apr_no_memory(err, "the plan of a run");
        snprintf(whole, n_bytes, "parts %d\n%s", r->part.n_parts, plan);
        error = put_text(r->folder, "plan", whole, false);
        free(whole);
    }
    if (error != 0) return apr_fail(err, APR_E_IO, "%s/plan: cannot create: %s", r->path, strerror(error));
    return agree(r, plan, err);
}

/* --- what was done before --- */

static apr_status read_journal(apr_resume *r, const char *name, apr_error *err)
{
    char path[4096];
    size_t n;

    if (!ends_with(name, ".journal")) return APR_OK;
    char *const text = read_text(r->folder, name, &n);
    if (text == NULL) return fail_io(r, name, err);
    snprintf(path, sizeof path, "%s/%s", r->path, name);
    const apr_status status = apr_journal_read(&r->records, text, n, r->plan_crc, path, err);
    free(text);
    return status;
}

/* Is what lies under the final name the data of this folder, made of this plan? */
static bool has_final_name(const apr_resume *r)
{
    uint64_t device, inode, plan;
    size_t n;
    char *const text = r->target.exists ? read_text(r->folder, "final", &n) : NULL;
    const bool is_known = text != NULL && sscanf(text, "%" SCNu64 " %" SCNu64 " %" SCNx64, &device, &inode, &plan) == 3;

    free(text);
    return is_known && device == (uint64_t)r->target.old.st_dev && inode == (uint64_t)r->target.old.st_ino && plan == r->plan_crc;
}

/* --- opening --- */

static apr_status open_resume(apr_resume *r, const char *target, bool is_folder, bool overwrite, const char *plan, apr_error *err)
{
    APR_TRY(find_target(r, target, is_folder, err));
    APR_TRY(open_folder(r, overwrite, err));
    APR_TRY(take_lock(r, err));
    APR_TRY(join_plan(r, plan, err));
    APR_TRY(each_name(r, read_journal, err));
    apr_records_sort(&r->records);
    r->is_final = has_final_name(r);
    if (r->target.exists && !overwrite && !r->is_final) return refuse_existing(r, err);
    apr_target_close(&r->target); /* whoever puts it in place opens it anew */
    return APR_OK;
}

apr_status apr_resume_open(apr_resume **resume, const char *target, bool is_folder, bool overwrite, apr_resume_part part, const char *plan,
                           apr_error *err)
{
    *resume = NULL;
    apr_resume *const r = calloc(1, sizeof *r);
    if (r == NULL) return apr_no_memory(err, "an unfinished output");
    r->part = part;
    r->beside = r->folder = r->lock = r->journal = r->target.folder = -1;
    const apr_status status = open_resume(r, target, is_folder, overwrite, plan, err);
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
    if (r->beside >= 0) close(r->beside);
    apr_records_close(&r->records);
    free(r->path);
    free(r);
}

/* --- the data --- */

static apr_status make_room(int fd, const char *path, uint64_t n_bytes, apr_error *err)
{
    struct stat st;

    APR_TRY(apr_check_file_limit(path, n_bytes, err));
    if (fstat(fd, &st) != 0) return apr_fail(err, APR_E_IO, "%s: %s", path, strerror(errno));
    if (fallocate(fd, 0, 0, (off_t)n_bytes) == 0) return APR_OK;
    if (errno != EOPNOTSUPP && errno != ENOSYS)
        return apr_fail(err, APR_E_IO, "%s: no room for %.1f MiB: %s; free some space, and go on", path, (double)n_bytes / 0x1p20,
                        strerror(errno));
    if ((uint64_t)st.st_size < n_bytes && ftruncate(fd, (off_t)n_bytes) != 0)
        return apr_fail(err, APR_E_IO, "%s: %s", path, strerror(errno));
    return APR_OK;
}

apr_status apr_resume_data(const apr_resume *r, const char *name, uint64_t n_bytes, int *fd, apr_error *err)
{
    char path[APR_NAME_BYTES + 8], full[4096];

    snprintf(path, sizeof path, "data%s%s", *name != '\0' ? "/" : "", name);
    snprintf(full, sizeof full, "%s/%s", r->path, path);
    if (*name != '\0' && n_bytes > 0 && mkdirat(r->folder, "data", r->mode | 0700 | (r->mode & 0444) >> 2) != 0 && errno != EEXIST)
        return apr_fail(err, APR_E_IO, "%s/data: cannot create: %s", r->path, strerror(errno));
    *fd = openat(r->folder, path, O_RDWR | O_NOFOLLOW | O_CLOEXEC | (n_bytes > 0 ? O_CREAT : 0), r->mode);
    if (*fd < 0 && n_bytes == 0 && errno == ENOENT) return APR_OK;
    if (*fd < 0) return apr_fail(err, APR_E_IO, "%s: %s", full, strerror(errno));
    /* a lock of any kind on the file keeps NFS from writing back whole pages, in which others may have written */
    lock_bytes(*fd, F_RDLCK, 0, 1);
    const apr_status status = n_bytes > 0 ? make_room(*fd, full, n_bytes, err) : APR_OK;
    if (status != APR_OK) {
        close(*fd);
        *fd = -1;
    }
    return status;
}

/* --- the journal --- */

static apr_status start_journal(apr_resume *r, apr_error *err)
{
    char stem[64], name[APR_NAME_BYTES], line[APR_JOURNAL_LINE_BYTES];

    snprintf(stem, sizeof stem, "part-%d-of-%d", r->part.part > 0 ? r->part.part : 1, r->part.n_parts);
    invent(name, stem, ".journal");
    r->journal = openat(r->folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_APPEND | O_CLOEXEC, 0644);
    if (r->journal < 0) return apr_fail(err, APR_E_IO, "%s/%s: cannot create: %s", r->path, name, strerror(errno));
    const size_t n = apr_journal_head(line, r->plan_crc);
    const int error = write_text(r->journal, line, n);
    if (error != 0) {
        r->is_broken = true;
        return apr_fail(err, APR_E_IO, "%s/%s: %s", r->path, name, strerror(error));
    }
    r->n_noted = (off_t)n;
    apr_sync_folder(r->folder);
    return APR_OK;
}

apr_status apr_resume_note(apr_resume *r, const apr_record *records, size_t n, apr_error *err)
{
    char line[APR_JOURNAL_LINE_BYTES];
    int error = 0;

    if (r->is_broken) return apr_fail(err, APR_E_IO, "%s: the journal cannot be written", r->path);
    if (r->journal < 0) APR_TRY(start_journal(r, err));
    off_t n_now = r->n_noted;
    for (size_t i = 0; i < n && error == 0; i++) {
        const size_t n_line = apr_journal_line(line, &records[i]);
        error = write_text(r->journal, line, n_line);
        n_now += (off_t)n_line;
    }
    if (error == 0 && fdatasync(r->journal) != 0) error = errno;
    if (error == 0) {
        r->n_noted = n_now;
        return APR_OK;
    }
    r->is_broken = ftruncate(r->journal, r->n_noted) != 0; /* half a line must stay the last one */
    return apr_fail(err, APR_E_IO, "%s: the journal cannot be written: %s; what it has so far is taken over", r->path, strerror(error));
}

/* --- the end --- */

apr_status apr_resume_set_final(apr_resume *r, apr_error *err)
{
    struct stat st;
    char text[96];

    if (fstatat(r->folder, "data", &st, AT_SYMLINK_NOFOLLOW) != 0) return fail_io(r, "data", err);
    snprintf(text, sizeof text, "%" PRIu64 " %" PRIu64 " %" PRIx32 "\n", (uint64_t)st.st_dev, (uint64_t)st.st_ino, r->plan_crc);
    const int error = put_text(r->folder, "final", text, true);
    return error == 0 ? APR_OK : apr_fail(err, APR_E_IO, "%s/final: cannot create: %s", r->path, strerror(error));
}

/* Never what is not ours; a folder of data went away with its final name. */
static apr_status remove_ours(apr_resume *r, const char *name, apr_error *err)
{
    (void)err;
    if (is_ours(name) && strcmp(name, "final") != 0 && strcmp(name, "plan") != 0) unlinkat(r->folder, name, 0);
    return APR_OK;
}

void apr_resume_remove(apr_resume *r)
{
    each_name(r, remove_ours, NULL);
    unlinkat(r->folder, "plan", 0); /* what says that this is our folder, and that it is done, goes last */
    unlinkat(r->folder, "final", 0);
    unlinkat(r->beside, r->name, AT_REMOVEDIR);
}
