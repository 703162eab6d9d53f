/* resume.c - the folder NAME.resume: makes or joins, locks, reads and removes it; its journals, small files and data. */
#define _GNU_SOURCE /* F_OFD_SETLK, fallocate, getrandom */
#include "formats/files/resume.h"

#include "formats/base/crc32.h"
#include "formats/base/grow.h"
#include "formats/base/text.h"
#include "formats/files/out_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define SUFFIX ".resume"
/* The file of apr_resume_keep_text. */
#define APR_RESUME_TEXT "text"
/* The sums of an error feedback run (tools/conv/kept_sums.h). */
#define APR_RESUME_SUMS "sums"
/* The state of a healing. */
#define APR_RESUME_HEAL "heal"

struct apr_resume {
    apr_target target; /* of the final name; only while it is opened */
    apr_resume_part part;
    char *path, name[APR_NAME_BYTES]; /* the name in the folder `parent` */
    mode_t mode;                      /* of new files */
    int parent, folder, lock, journal;
    uint32_t terms_crc;
    off_t n_noted; /* bytes of this run's journal that are whole lines */
    bool is_broken, is_final;
    apr_records records;
};

/* --- the lines of a journal --- */

#define HEAD "aprkit journal 1 "
enum { CRC_SUFFIX_BYTES = 10 }; /* " #" and eight digits */

/* Appends the checksum and '\n' to a line of n bytes. */
static size_t append_crc(char line[APR_JOURNAL_LINE_BYTES], size_t n)
{
    return n + (size_t)snprintf(line + n, APR_JOURNAL_LINE_BYTES - n, " #%08" PRIx32 "\n", apr_crc32(0, line, n));
}

size_t apr_journal_head(char line[APR_JOURNAL_LINE_BYTES], uint32_t terms_crc)
{
    return append_crc(line, (size_t)snprintf(line, APR_JOURNAL_LINE_BYTES, HEAD "%08" PRIx32, terms_crc));
}

size_t apr_journal_line(char line[APR_JOURNAL_LINE_BYTES], const apr_record *record)
{
    return append_crc(line, (size_t)snprintf(line, APR_JOURNAL_LINE_BYTES, "%" PRIu64 " %" PRIu64 " %08" PRIx32 " %.*s", record->tensor,
                                             record->n_bytes, record->crc, (int)APR_NOTE_BYTES - 1, record->note));
}

/* The length of the line without its checksum; -1: the checksum does not match. */
static ptrdiff_t check_crc(const char *line, size_t n)
{
    char wanted[CRC_SUFFIX_BYTES + 1];

    if (n < CRC_SUFFIX_BYTES) return -1;
    snprintf(wanted, sizeof wanted, " #%08" PRIx32, apr_crc32(0, line, n - CRC_SUFFIX_BYTES));
    return memcmp(line + n - CRC_SUFFIX_BYTES, wanted, CRC_SUFFIX_BYTES) == 0 ? (ptrdiff_t)(n - CRC_SUFFIX_BYTES) : -1;
}

/* Reads a number at *at and the space after it. */
static bool read_number(const char **at, int base, uint64_t *value)
{
    char *end;

    if (strspn(*at, base == 16 ? "0123456789abcdef" : "0123456789") == 0) return false;
    *value = strtoull(*at, &end, base);
    if (*end != ' ') return false;
    *at = end + 1;
    return true;
}

/* `text`: a line without its checksum, in the arena. */
static bool read_record(const char *text, apr_record *record)
{
    uint64_t crc;

    if (!read_number(&text, 10, &record->tensor) || !read_number(&text, 10, &record->n_bytes) || !read_number(&text, 16, &crc))
        return false;
    record->crc = (uint32_t)crc;
    record->note = text;
    return crc <= UINT32_MAX;
}

static apr_status add(apr_records *records, const apr_record *record, apr_error *err)
{
    apr_record *const items = apr_grow(records->items, &records->capacity, records->n_items + 1, sizeof *items);
    if (items == NULL) return apr_no_memory(err, "a journal");
    records->items = items;
    records->items[records->n_items++] = *record;
    return APR_OK;
}

static apr_status read_line(apr_records *records, const char *line, size_t n, size_t number, uint32_t terms_crc, const char *path,
                            apr_error *err)
{
    char head[APR_JOURNAL_LINE_BYTES];
    apr_record record;

    const ptrdiff_t n_text = check_crc(line, n);
    if (n_text >= 0 && number == 1 && apr_journal_head(head, terms_crc) == n + 1 && memcmp(head, line, n) == 0) return APR_OK;
    const char *const text = n_text >= 0 && number > 1 ? apr_arena_copy(&records->arena, line, (size_t)n_text) : NULL;
    if (n_text >= 0 && number > 1 && text == NULL) return apr_no_memory(err, "a journal");
    if (text != NULL && read_record(text, &record)) return add(records, &record, err);
    return apr_fail(err, APR_E_DAMAGED, "%s: line %zu is damaged; remove the folder to start again", path, number);
}

apr_status apr_journal_read(apr_records *records, const char *text, size_t n_bytes, uint32_t terms_crc, const char *path, apr_error *err)
{
    const char *const end = text + n_bytes, *line = text;

    for (size_t number = 1; line < end; number++) {
        const char *const stop = memchr(line, '\n', (size_t)(end - line));
        if (stop == NULL) return APR_OK; /* cut off */
        APR_TRY(read_line(records, line, (size_t)(stop - line), number, terms_crc, path, err));
        line = stop + 1;
    }
    return APR_OK;
}

static int by_tensor(const void *a, const void *b)
{
    const apr_record *const x = a, *const y = b;
    if (x->tensor != y->tensor) return x->tensor < y->tensor ? -1 : 1;
    return x->crc < y->crc ? -1 : x->crc > y->crc;
}

void apr_records_sort(apr_records *records)
{
    if (records->n_items > 0) qsort(records->items, records->n_items, sizeof *records->items, by_tensor);
}

const apr_record *apr_records_find(const apr_records *records, uint64_t tensor, uint32_t crc)
{
    const apr_record wanted = {.tensor = tensor, .crc = crc};
    return records->n_items > 0 ? bsearch(&wanted, records->items, records->n_items, sizeof wanted, by_tensor) : NULL;
}

void apr_records_close(apr_records *records)
{
    free(records->items);
    apr_arena_close(&records->arena);
    *records = (apr_records){0};
}

/* --- small files --- */

enum { MOST_TEXT_BYTES = 1 << 30 }; /* of terms or a journal */

/* Fails with "FOLDER/NAME: " and the text of errno. */
static apr_status fail_at(const apr_resume *r, const char *name, apr_error *err)
{
    return apr_fail(err, apr_errno_status(errno), "%s/%s: %s", r->path, name, strerror(errno));
}

/* Reads a small file: malloc'ed and NUL-terminated; NULL and errno on failure. */
static char *read_file(int folder, const char *name, size_t *n_bytes)
{
    struct stat st;
    const int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    int error = fd < 0 || fstat(fd, &st) != 0 ? errno : 0;
    char *text = NULL;
    size_t n = 0;

    if (error == 0 && (!S_ISREG(st.st_mode) || st.st_size > MOST_TEXT_BYTES)) error = EINVAL;
    if (error == 0 && (text = malloc((size_t)st.st_size + 1)) == NULL) error = ENOMEM;
    while (error == 0 && n < (size_t)st.st_size) {
        const ssize_t now = pread(fd, text + n, (size_t)st.st_size - n, (off_t)n);
        if (now == 0) break; /* it was truncated meanwhile */
        if (now > 0) n += (size_t)now;
        else if (errno != EINTR) error = errno;
    }
    if (fd >= 0) close(fd);
    if (error != 0) {
        free(text);
        errno = error;
        return NULL;
    }
    text[n] = '\0';
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

/* A unique name: "terms.0123456789abcdef". */
static void make_unique_name(char name[APR_NAME_BYTES], const char *stem, const char *suffix)
{
    uint64_t random = (uint64_t)getpid() * 0x9e3779b97f4a7c15u;
    (void)!getrandom(&random, sizeof random, GRND_NONBLOCK);
    snprintf(name, APR_NAME_BYTES, "%s.%016" PRIx64 "%s", stem, random, suffix);
}

/* Gives the temporary file its name. Without hard links, an existing file of that name is replaced. */
static int put_in_place(int folder, const char *temporary, const char *name, bool replace)
{
    if (!replace && !apr_out_test_fallbacks && (linkat(folder, temporary, folder, name, 0) == 0 || errno == EEXIST)) return 0;
    return renameat(folder, temporary, folder, name) == 0 ? 0 : errno;
}

/* Writes a file of that name atomically and syncs it; 0 or errno. replace: also replaces an older one, which otherwise stays. */
/* Writes a file of that name atomically and syncs it; 0 or errno. replace: also replaces an older one, which otherwise stays. */
static int write_file(int folder, const char *name, const char *text, bool replace)
{
    char temporary[APR_NAME_BYTES];

    make_unique_name(temporary, name, "");
    const int fd = openat(folder, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0) return errno;
    int error = write_text(fd, text, strlen(text));
    if (error == 0 && fsync(fd) != 0) error = errno;
    close(fd);
    if (error == 0) error = put_in_place(folder, temporary, name, replace);
    unlinkat(folder, temporary, 0);
    return error != 0 ? error : apr_sync_folder(folder);
}

/* Changes the folder, so that it is listed again: NFS may otherwise show a listing some seconds old, without other hosts' journals. */
/* Changes the folder, so that it is listed again: NFS may otherwise show a listing some seconds old, without other hosts' journals. */
static void refresh_listing(int folder)
{
    char name[APR_NAME_BYTES];

    make_unique_name(name, "terms", "");
    const int fd = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return;
    close(fd);
    unlinkat(folder, name, 0);
}

/* Locks bytes [first, first + n); n 0: to the end. 0 or errno. The lock belongs to the open file, so it ends with the process. */
/* Locks bytes [first, first + n); n 0: to the end. 0 or errno. The lock belongs to the open file, so it ends with the process. */
static int lock_bytes(int fd, short type, off_t first, off_t n)
{
    if (apr_out_test_fallbacks) return ENOLCK;
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = first, .l_len = n};
    return fcntl(fd, F_OFD_SETLK, &lock) == 0 ? 0 : errno;
}

/* --- the data --- */

static apr_status reserve_space(int fd, const char *path, uint64_t n_bytes, apr_error *err)
{
    struct stat st;

    APR_TRY(apr_check_file_limit(path, n_bytes, err));
    if (fstat(fd, &st) != 0) return apr_fail(err, APR_E_IO, "%s: %s", path, strerror(errno));
    if (fallocate(fd, 0, 0, (off_t)n_bytes) == 0) return APR_OK;
    if (errno != EOPNOTSUPP && errno != ENOSYS)
        return apr_fail(err, APR_E_IO, "%s: not enough space for %.1f MiB: %s; free some space and run again", path,
                        (double)n_bytes / 0x1p20, strerror(errno));
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
    /* any lock on the file keeps an NFS client from writing back whole pages, parts of which other hosts may have written */
    lock_bytes(*fd, F_RDLCK, 0, 1);
    const apr_status status = n_bytes > 0 ? reserve_space(*fd, full, n_bytes, err) : APR_OK;
    if (status != APR_OK) {
        close(*fd);
        *fd = -1;
    }
    return status;
}

/* --- this run's journal --- */

static apr_status start_journal(apr_resume *r, apr_error *err)
{
    char stem[64], name[APR_NAME_BYTES], line[APR_JOURNAL_LINE_BYTES];

    snprintf(stem, sizeof stem, "part-%d-of-%d", r->part.part > 0 ? r->part.part : 1, r->part.n_parts);
    make_unique_name(name, stem, ".journal");
    r->journal = openat(r->folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_APPEND | O_CLOEXEC, 0644);
    if (r->journal < 0) return apr_fail(err, APR_E_IO, "%s/%s: cannot create: %s", r->path, name, strerror(errno));
    const size_t n = apr_journal_head(line, r->terms_crc);
    int error = write_text(r->journal, line, n);
    if (error == 0) error = apr_sync_folder(r->folder);
    if (error != 0) {
        r->is_broken = true;
        return apr_fail(err, APR_E_IO, "%s/%s: %s", r->path, name, strerror(error));
    }
    r->n_noted = (off_t)n;
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
    r->is_broken = ftruncate(r->journal, r->n_noted) != 0; /* a partial line is allowed only at the end */
    return apr_fail(err, APR_E_IO, "%s: the journal cannot be written: %s; the next run continues from what it has", r->path,
                    strerror(error));
}

const char *apr_resume_path(const apr_resume *resume) { return resume->path; }
int apr_resume_n_parts(const apr_resume *resume) { return resume->part.n_parts; }
const apr_records *apr_resume_records(const apr_resume *resume) { return &resume->records; }
bool apr_resume_is_final(const apr_resume *resume) { return resume->is_final; }
int apr_resume_folder(const apr_resume *resume) { return resume->folder; }

/* --- the folder --- */

static bool is_ours(const char *name)
{
    static const char *const names[] = {"terms", "lock", "data", "final", APR_RESUME_TEXT, APR_RESUME_SUMS, APR_RESUME_HEAL};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return apr_begins_with(name, "terms.") || apr_begins_with(name, "final.") || apr_begins_with(name, APR_RESUME_TEXT ".") ||
           apr_begins_with(name, APR_RESUME_SUMS ".") || apr_begins_with(name, APR_RESUME_HEAL ".") || apr_stem_of(name, ".journal") > 0;
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
    char *const path = malloc(n + sizeof SUFFIX);
    if (path == NULL) return NULL;
    memcpy(path, target, n);
    memcpy(path + n, SUFFIX, sizeof SUFFIX);
    return path;
}

/* Checks the final name as for any output, and names the folder next to it. Whether an existing file may be replaced is checked later. */
static apr_status find_target(apr_resume *r, const char *target, bool is_folder, apr_error *err)
{
    APR_TRY(apr_target_open(&r->target, target, is_folder, (apr_replace_rule){.overwrite = true}, err));
    r->path = apr_resume_path_for(target);
    r->parent = dup(r->target.folder);
    if (r->path == NULL || r->parent < 0) return apr_no_memory(err, "a path");
    if (strlen(r->target.name) + sizeof SUFFIX > sizeof r->name)
        return apr_fail(err, APR_E_USAGE, "%.100s...: the name is too long", target);
    memcpy(r->name, r->target.name, strlen(r->target.name));
    memcpy(r->name + strlen(r->target.name), SUFFIX, sizeof SUFFIX);
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
    if (r->lock < 0) return fail_at(r, "lock", err);
    const int error = lock_bytes(r->lock, F_WRLCK, all ? 0 : r->part.part - 1, all ? 0 : 1);
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
    char *const before = read_file(r->folder, "terms", &n);
    apr_status status = APR_OK;

    if (before == NULL) return fail_at(r, "terms", err);
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
        error = write_file(r->folder, "terms", whole, false);
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

    if (apr_stem_of(name, ".journal") == 0) return APR_OK;
    char *const text = read_file(r->folder, name, &n);
    if (text == NULL) return fail_at(r, name, err);
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
    char *const text = r->target.exists ? read_file(r->folder, "final", &n) : NULL;
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
    refresh_listing(r->folder);
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

    if (fstatat(r->folder, "data", &st, AT_SYMLINK_NOFOLLOW) != 0) return fail_at(r, "data", err);
    snprintf(text, sizeof text, "%" PRIu64 " %" PRIu64 " %" PRIx32 "\n", (uint64_t)st.st_dev, (uint64_t)st.st_ino, r->terms_crc);
    const int error = write_file(r->folder, "final", text, true);
    return error == 0 ? APR_OK : apr_fail(err, APR_E_IO, "%s/final: cannot create: %s", r->path, strerror(error));
}

/* Removes only our own files; a data folder has moved to its final name. A healing begins when the output is complete. */
static apr_status remove_ours(apr_resume *r, const char *name, apr_error *err)
{
    (void)err;
    if (is_ours(name) && strcmp(name, "final") != 0 && strcmp(name, "terms") != 0 && strcmp(name, APR_RESUME_HEAL) != 0)
        unlinkat(r->folder, name, 0);
    return APR_OK;
}

void apr_resume_remove(apr_resume *r)
{
    each_name(r, remove_ours, NULL);
    unlinkat(r->folder, "terms", 0); /* last: these two tell that the folder is ours and complete */
    unlinkat(r->folder, "final", 0);
    unlinkat(r->parent, r->name, AT_REMOVEDIR);
}

/* --- a text kept in the folder, also before the runs have terms to agree on --- */

static int open_by_path(const char *path) { return open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC); }

apr_status apr_resume_keep_text(const char *target, const char *text, apr_error *err)
{
    char *const path = apr_resume_path_for(target);
    int error = 0;

    if (path == NULL) return apr_no_memory(err, "a path");
    if (mkdir(path, 0777) != 0 && errno != EEXIST) error = errno;
    const int folder = error == 0 ? open_by_path(path) : -1;
    if (error == 0 && folder < 0) error = errno;
    if (error == 0) error = write_file(folder, APR_RESUME_TEXT, text, true);
    if (folder >= 0) close(folder);
    const apr_status status =
        error == 0 ? APR_OK : apr_fail(err, APR_E_IO, "%s/%s: cannot create: %s", path, APR_RESUME_TEXT, strerror(error));
    free(path);
    return status;
}

char *apr_resume_kept_text(const char *target)
{
    char *const path = apr_resume_path_for(target);
    const int folder = path != NULL ? open_by_path(path) : -1;
    size_t n;
    char *const text = folder >= 0 ? read_file(folder, APR_RESUME_TEXT, &n) : NULL;

    if (folder >= 0) close(folder);
    free(path);
    return text;
}
