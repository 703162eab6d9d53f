/* out_temporary.c - unique temporary names, and their removal, also from a signal handler and by the next run.
 *
 * ".model.apr.aprkit-RRRRRRRRCCCCCCCC": R is random, C is the CRC-32 of R and the name, so that a foreign file is never taken
 * for a temporary. The process that made it holds a lock on it while it lives: an unlocked one was left by a killed run. */
#define _GNU_SOURCE /* getdents64, getrandom */
#include "formats/base/crc32.h"
#include "formats/files/out_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

bool apr_out_test_fallbacks;

/* --- unfinished outputs --- */

/* Written with the signals held; read by a handler after all threads have released them. */
static struct {
    atomic_bool is_used;
    int folder; /* the target's descriptor, which stays open longer than the entry is used */
    char name[APR_NAME_BYTES];
} unfinished[32];
enum { N_UNFINISHED = sizeof unfinished / sizeof *unfinished };

static atomic_int n_holding;
static atomic_bool is_removing;

void apr_signals_hold(sigset_t *before)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, before);
    atomic_fetch_add(&n_holding, 1);
    if (!atomic_load(&is_removing)) return;
    atomic_fetch_sub(&n_holding, 1); /* too late: the process is about to end */
    for (;;) pause();
}

void apr_signals_release(const sigset_t *before)
{
    atomic_fetch_sub(&n_holding, 1);
    pthread_sigmask(SIG_SETMASK, before, NULL);
}

static int remember(int folder, const char *name)
{
    for (size_t i = 0; i < N_UNFINISHED; i++) {
        bool expected = false;
        if (!atomic_compare_exchange_strong(&unfinished[i].is_used, &expected, true)) continue;
        unfinished[i].folder = folder;
        snprintf(unfinished[i].name, APR_NAME_BYTES, "%s", name);
        return 0;
    }
    return EMFILE;
}

void apr_temporary_done(int folder, const char *temporary)
{
    for (size_t i = 0; i < N_UNFINISHED; i++)
        if (atomic_load(&unfinished[i].is_used) && unfinished[i].folder == folder && strcmp(unfinished[i].name, temporary) == 0)
            atomic_store(&unfinished[i].is_used, false);
}

static bool remove_folder(int folder, const char *name, int depth);

/* Removes the files in a folder and, with depth 1, its subfolders; true when it removed something. Uses system calls only, because
 * signal handlers call it. */
static bool remove_files(int fd, int depth)
{
    _Alignas(struct dirent64) char entries[4096];
    bool removed = false;
    ssize_t n;

    lseek(fd, 0, SEEK_SET);
    while ((n = getdents64(fd, entries, sizeof entries)) > 0)
        for (ssize_t at = 0; at < n;) {
            const struct dirent64 *const entry = (const struct dirent64 *)(const void *)(entries + at);
            at += entry->d_reclen;
            if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
            if (unlinkat(fd, entry->d_name, 0) == 0) removed = true;
            else if (depth > 0) removed |= remove_folder(fd, entry->d_name, depth - 1);
        }
    return removed;
}

static bool remove_folder(int folder, const char *name, int depth)
{
    const int fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return false;
    for (int i = 0; i < 100 && remove_files(fd, depth); i++) continue; /* until nothing is left */
    close(fd);
    return unlinkat(folder, name, AT_REMOVEDIR) == 0;
}

static void remove_entry(int folder, const char *name)
{
    if (unlinkat(folder, name, 0) == 0 || errno == ENOENT || unlinkat(folder, name, AT_REMOVEDIR) == 0) return;
    remove_folder(folder, name, 1);
}

void apr_temporary_remove(int folder, const char *temporary, int opened)
{
    sigset_t before;
    for (int i = 0; i < 100 && opened >= 0 && remove_files(opened, 1); i++) continue; /* until nothing is left */
    apr_signals_hold(&before);
    remove_entry(folder, temporary);
    apr_temporary_done(folder, temporary);
    apr_signals_release(&before);
}

void apr_out_remove_unfinished(void)
{
    const struct timespec moment = {.tv_nsec = 1000000};

    atomic_store(&is_removing, true);
    while (atomic_load(&n_holding) > 0) nanosleep(&moment, NULL);
    for (size_t i = 0; i < N_UNFINISHED; i++)
        if (atomic_load(&unfinished[i].is_used)) remove_entry(unfinished[i].folder, unfinished[i].name);
}

/* --- names --- */

enum { SHOWN_BYTES = 200 }; /* of the final name: the suffix needs space also */

static void print_name(char temporary[APR_NAME_BYTES], const char *name, uint32_t random)
{
    const uint32_t crc = apr_crc32(apr_crc32(0, &random, sizeof random), name, strlen(name));
    snprintf(temporary, APR_NAME_BYTES, ".%.*s.aprkit-%08x%08x", SHOWN_BYTES, name, (unsigned)random, (unsigned)crc);
}

static void invent_name(char temporary[APR_NAME_BYTES], const char *name)
{
    uint32_t random;
    if (getrandom(&random, sizeof random, GRND_NONBLOCK) != sizeof random) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        random = (uint32_t)now.tv_nsec * 2654435761u ^ (uint32_t)getpid();
    }
    print_name(temporary, name, random);
}

static bool is_temporary_of(const char *entry, const char *name)
{
    char wanted[APR_NAME_BYTES];
    const char *const digits = strrchr(entry, '-');

    if (entry[0] != '.' || digits == NULL || strlen(digits) != 17) return false;
    print_name(wanted, name, (uint32_t)(strtoull(digits + 1, NULL, 16) >> 32));
    return strcmp(entry, wanted) == 0;
}

/* --- leftovers of killed runs --- */

static bool is_same_entry(int folder, const char *name, const struct stat *st)
{
    struct stat now;
    return fstatat(folder, name, &now, AT_SYMLINK_NOFOLLOW) == 0 && now.st_dev == st->st_dev && now.st_ino == st->st_ino;
}

/* Does it hold only regular files? Our temporary folders do. */
static bool holds_only_files(int fd)
{
    const int again = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *const dir = again >= 0 ? fdopendir(again) : NULL;
    const struct dirent *entry;
    struct stat st;
    bool only = dir != NULL;

    while (only && (entry = readdir(dir)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        only = fstatat(fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode);
    }
    if (dir != NULL) closedir(dir);
    else if (again >= 0) close(again);
    return only;
}

/* Removes it if no process holds its lock; true: one does. */
static bool remove_leftover(int folder, const char *name)
{
    struct stat st;
    bool is_busy = false;
    const int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

    if (fd < 0) return false;
    if (fstat(fd, &st) == 0 && st.st_uid == geteuid()) {
        if (flock(fd, LOCK_EX | LOCK_NB) != 0) is_busy = errno == EWOULDBLOCK;
        else if (is_same_entry(folder, name, &st) && (S_ISREG(st.st_mode) || (S_ISDIR(st.st_mode) && holds_only_files(fd))))
            remove_entry(folder, name);
    }
    close(fd);
    return is_busy;
}

static bool remove_leftovers(int folder, const char *name)
{
    const int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *const dir = fd >= 0 ? fdopendir(fd) : NULL;
    const struct dirent *entry;
    bool is_busy = false;

    if (dir == NULL) { /* a folder with write but no read permission */
        if (fd >= 0) close(fd);
        return false;
    }
    while ((entry = readdir(dir)) != NULL)
        if (is_temporary_of(entry->d_name, name)) is_busy |= remove_leftover(folder, entry->d_name);
    closedir(dir);
    return is_busy;
}

/* --- making --- */

/* EEXIST: try another name; another run may have removed the new folder as a leftover before it was opened. */
static int make_entry(int folder, const char *name, bool is_folder, mode_t mode, int *fd)
{
    if (is_folder && mkdirat(folder, name, mode | S_IRWXU) != 0) return errno;
    *fd = is_folder ? openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
                    : openat(folder, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (*fd >= 0) return 0;
    const int error = errno;
    if (is_folder && error != ENOENT) unlinkat(folder, name, AT_REMOVEDIR); /* it is empty, and no other process knows its name */
    errno = error;
    return is_folder && errno == ENOENT ? EEXIST : errno;
}

/* Locks it. EEXIST: another run removed it as a leftover just before, so try another name. Where locks do not work, no run removes
 * leftovers. */
static int claim(int folder, const char *name, int fd)
{
    struct stat st, now;

    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return EEXIST;
    if (fstat(fd, &st) != 0) return errno;
    if (fstatat(folder, name, &now, AT_SYMLINK_NOFOLLOW) != 0) return errno == ENOENT ? EEXIST : errno;
    return now.st_dev == st.st_dev && now.st_ino == st.st_ino ? 0 : EEXIST;
}

static int try_to_make(int folder, const char *name, bool is_folder, mode_t mode, int *fd, char temporary[APR_NAME_BYTES])
{
    invent_name(temporary, name);
    int error = make_entry(folder, temporary, is_folder, mode, fd);
    if (error != 0) return error;
    error = remember(folder, temporary);
    if (error == 0) error = claim(folder, temporary, *fd);
    if (error == 0) return 0;
    apr_temporary_done(folder, temporary);
    close(*fd);
    if (error != EEXIST) remove_entry(folder, temporary);
    return error;
}

int apr_temporary_make(int folder, const char *name, bool is_folder, mode_t mode, int *fd, char temporary[APR_NAME_BYTES], bool *is_busy)
{
    sigset_t before;
    int error = EEXIST;

    *is_busy = remove_leftovers(folder, name);
    if (*is_busy) return EEXIST;
    apr_signals_hold(&before);
    for (int i = 0; i < 100 && error == EEXIST; i++) error = try_to_make(folder, name, is_folder, mode, fd, temporary);
    apr_signals_release(&before);
    return error;
}

int apr_temporary_name(int folder, const char *name, char temporary[APR_NAME_BYTES])
{
    invent_name(temporary, name);
    return remember(folder, temporary);
}
