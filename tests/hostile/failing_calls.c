/* failing_calls.c - a library for LD_PRELOAD: the N-th call of one kind fails. tests/attack.py builds it.
 *
 * APRKIT_FAIL_CALL: the kind (open, write, sync, rename, link, unlink, mkdir, close, map, truncate, allocate, read, malloc);
 * APRKIT_FAIL_AT: which of them, from 1; APRKIT_FAIL_ERRNO: errno, or 0 for a write that takes only half of the bytes; APRKIT_FAIL_ON: that
 * one and all after it. APRKIT_FAIL_COUNT: a file that gets the number of calls. Only calls of the program count, not those of libc. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static atomic_long n_calls;

static bool fails(const char *kind)
{
    const char *const wanted = getenv("APRKIT_FAIL_CALL");
    if (wanted == NULL || strcmp(wanted, kind) != 0) return false;
    const long at = getenv("APRKIT_FAIL_AT") != NULL ? atol(getenv("APRKIT_FAIL_AT")) : 0, n = atomic_fetch_add(&n_calls, 1) + 1;
    const char *const code = getenv("APRKIT_FAIL_ERRNO");
    if (at == 0 || (getenv("APRKIT_FAIL_ON") != NULL ? n < at : n != at)) return false;
    errno = code != NULL ? atoi(code) : EIO;
    return true;
}

#define NEXT(result, name, ...)         \
    static result (*next)(__VA_ARGS__); \
    if (next == NULL) next = (result(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

__attribute__((destructor)) static void say(void)
{
    const char *const path = getenv("APRKIT_FAIL_COUNT");
    NEXT(ssize_t, write, int, const void *, size_t);
    char text[32];
    if (path == NULL) return;
    const int fd = openat(AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0) return;
    (void)!next(fd, text, (size_t)snprintf(text, sizeof text, "%ld", (long)n_calls));
}

#define FAIL_AS(kind, value) \
    if (fails(kind)) return value

ssize_t write(int fd, const void *bytes, size_t n)
{
    NEXT(ssize_t, write, int, const void *, size_t);
    if (fd > 2 && fails("write")) return errno == 0 ? next(fd, bytes, (n + 1) / 2) : -1;
    return next(fd, bytes, n);
}
ssize_t pwrite(int fd, const void *bytes, size_t n, off_t at)
{
    NEXT(ssize_t, pwrite, int, const void *, size_t, off_t);
    if (fails("write")) return errno == 0 ? next(fd, bytes, (n + 1) / 2, at) : -1;
    return next(fd, bytes, n, at);
}
ssize_t read(int fd, void *bytes, size_t n)
{
    NEXT(ssize_t, read, int, void *, size_t);
    if (fails("read")) return errno == 0 ? next(fd, bytes, (n + 1) / 2) : -1;
    return next(fd, bytes, n);
}
ssize_t pread(int fd, void *bytes, size_t n, off_t at)
{
    NEXT(ssize_t, pread, int, void *, size_t, off_t);
    if (fails("read")) return errno == 0 ? next(fd, bytes, (n + 1) / 2, at) : -1;
    return next(fd, bytes, n, at);
}
int fsync(int fd)
{
    NEXT(int, fsync, int);
    FAIL_AS("sync", -1);
    return next(fd);
}
int fdatasync(int fd)
{
    NEXT(int, fdatasync, int);
    FAIL_AS("sync", -1);
    return next(fd);
}
int rename(const char *a, const char *b)
{
    NEXT(int, rename, const char *, const char *);
    FAIL_AS("rename", -1);
    return next(a, b);
}
int renameat(int d, const char *a, int e, const char *b)
{
    NEXT(int, renameat, int, const char *, int, const char *);
    FAIL_AS("rename", -1);
    return next(d, a, e, b);
}
int renameat2(int d, const char *a, int e, const char *b, unsigned flags)
{
    NEXT(int, renameat2, int, const char *, int, const char *, unsigned);
    FAIL_AS("rename", -1);
    return next(d, a, e, b, flags);
}
int linkat(int d, const char *a, int e, const char *b, int flags)
{
    NEXT(int, linkat, int, const char *, int, const char *, int);
    FAIL_AS("link", -1);
    return next(d, a, e, b, flags);
}
int unlink(const char *a)
{
    NEXT(int, unlink, const char *);
    FAIL_AS("unlink", -1);
    return next(a);
}
int unlinkat(int d, const char *a, int flags)
{
    NEXT(int, unlinkat, int, const char *, int);
    FAIL_AS("unlink", -1);
    return next(d, a, flags);
}
int mkdirat(int d, const char *a, mode_t mode)
{
    NEXT(int, mkdirat, int, const char *, mode_t);
    FAIL_AS("mkdir", -1);
    return next(d, a, mode);
}
int mkdir(const char *a, mode_t mode)
{
    NEXT(int, mkdir, const char *, mode_t);
    FAIL_AS("mkdir", -1);
    return next(a, mode);
}
int close(int fd)
{
    NEXT(int, close, int);
    if (!fails("close")) return next(fd);
    const int code = errno;
    (void)next(fd); /* Linux closes it all the same */
    errno = code;
    return -1;
}
int ftruncate(int fd, off_t n)
{
    NEXT(int, ftruncate, int, off_t);
    FAIL_AS("truncate", -1);
    return next(fd, n);
}
int posix_fallocate(int fd, off_t at, off_t n)
{
    NEXT(int, posix_fallocate, int, off_t, off_t);
    if (fails("allocate")) return errno;
    return next(fd, at, n);
}
int fallocate(int fd, int mode, off_t at, off_t n)
{
    NEXT(int, fallocate, int, int, off_t, off_t);
    FAIL_AS("allocate", -1);
    return next(fd, mode, at, n);
}
void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset)
{
    NEXT(void *, mmap, void *, size_t, int, int, int, off_t);
    if (fd >= 0 && fails("map")) return MAP_FAILED;
    return next(at, n, protection, flags, fd, offset);
}
int open(const char *path, int flags, ...)
{
    NEXT(int, open, const char *, int, ...);
    va_list more;
    va_start(more, flags);
    const mode_t mode = (flags & (O_CREAT | __O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0;
    va_end(more);
    FAIL_AS("open", -1);
    return next(path, flags, mode);
}
int openat(int d, const char *path, int flags, ...)
{
    NEXT(int, openat, int, const char *, int, ...);
    va_list more;
    va_start(more, flags);
    const mode_t mode = (flags & (O_CREAT | __O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0;
    va_end(more);
    FAIL_AS("open", -1);
    return next(d, path, flags, mode);
}
int fstat(int fd, struct stat *s)
{
    NEXT(int, fstat, int, struct stat *);
    FAIL_AS("stat", -1);
    return next(fd, s);
}
int fstatat(int d, const char *path, struct stat *s, int flags)
{
    NEXT(int, fstatat, int, const char *, struct stat *, int);
    FAIL_AS("stat", -1);
    return next(d, path, s, flags);
}
void *malloc(size_t n)
{
    NEXT(void *, malloc, size_t);
    FAIL_AS("malloc", NULL);
    return next(n);
}
void *realloc(void *old, size_t n)
{
    NEXT(void *, realloc, void *, size_t);
    FAIL_AS("malloc", NULL);
    return next(old, n);
}
extern void *__libc_calloc(size_t, size_t); /* dlsym itself asks for memory before it can say where calloc is */
void *calloc(size_t n, size_t size)
{
    FAIL_AS("malloc", NULL);
    return __libc_calloc(n, size);
}
