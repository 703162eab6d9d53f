/* failing_host.c - what the linker calls instead of malloc, calloc, realloc, free, fclose, fsync and unlinkat. */
#include "tests/support/failing_host.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Defined by --wrap. Weak: programs that are linked without it do not call what is below. */
void *__real_malloc(size_t n_bytes) __attribute__((weak));
void *__real_calloc(size_t n, size_t n_bytes) __attribute__((weak));
void *__real_realloc(void *p, size_t n_bytes) __attribute__((weak));
void __real_free(void *p) __attribute__((weak));
int __real_fclose(FILE *stream) __attribute__((weak));
int __real_fsync(int fd) __attribute__((weak));
int __real_unlinkat(int folder, const char *name, int flags) __attribute__((weak));

void *__wrap_malloc(size_t n_bytes);
void *__wrap_calloc(size_t n, size_t n_bytes);
void *__wrap_realloc(void *p, size_t n_bytes);
void __wrap_free(void *p);
int __wrap_fclose(FILE *stream);
int __wrap_fsync(int fd);
int __wrap_unlinkat(int folder, const char *name, int flags);

static _Thread_local int64_t failing_allocation, failing_close, failing_sync, failing_unlink, n_blocks;

void failing_host_allocation(int64_t nth)
{
    failing_allocation = nth;
    n_blocks = 0;
}
int64_t failing_host_blocks(void) { return n_blocks; }
void failing_host_close(int64_t nth) { failing_close = nth; }
void failing_host_sync(int64_t nth) { failing_sync = nth; }
void failing_host_unlink(int64_t nth) { failing_unlink = nth; }

static bool fails(int64_t *nth)
{
    if (*nth == 0 || --*nth > 0) return false;
    errno = ENOMEM;
    return true;
}

static void *counted(void *p)
{
    n_blocks += p != NULL;
    return p;
}

void *__wrap_malloc(size_t n_bytes) { return fails(&failing_allocation) ? NULL : counted(__real_malloc(n_bytes)); }
void *__wrap_calloc(size_t n, size_t n_bytes) { return fails(&failing_allocation) ? NULL : counted(__real_calloc(n, n_bytes)); }

void *__wrap_realloc(void *p, size_t n_bytes)
{
    if (fails(&failing_allocation)) return NULL;
    return p == NULL ? counted(__real_realloc(NULL, n_bytes)) : __real_realloc(p, n_bytes);
}

void __wrap_free(void *p)
{
    n_blocks -= p != NULL;
    __real_free(p);
}

int __wrap_fclose(FILE *stream)
{
    const int answer = __real_fclose(stream);
    return fails(&failing_close) ? EOF : answer;
}

int __wrap_fsync(int fd)
{
    if (!fails(&failing_sync)) return __real_fsync(fd);
    errno = EIO;
    return -1;
}

int __wrap_unlinkat(int folder, const char *name, int flags)
{
    if (flags != 0 || !fails(&failing_unlink)) return __real_unlinkat(folder, name, flags);
    errno = EIO;
    return -1;
}
