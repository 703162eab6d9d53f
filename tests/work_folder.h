/* work_folder.h - a folder under /tmp for a test's files, made and removed by the group's setup and teardown. */
#ifndef APR_TESTS_WORK_FOLDER_H
#define APR_TESTS_WORK_FOLDER_H

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char work[64];

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

static int make_work(void **state)
{
    (void)state;
    strcpy(work, "/tmp/apr-safetensors-XXXXXX");
    return mkdtemp(work) == NULL;
}

static int remove_work(void **state)
{
    (void)state;
    return nftw(work, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static const char *in_work(const char *name)
{
    static char paths[4][256];
    static int next;
    char *const path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", work, name);
    return path;
}

static void write_file(const char *path, const void *bytes, size_t n_bytes)
{
    FILE *const f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n_bytes, f), n_bytes);
    assert_int_equal(fclose(f), 0);
}

#endif
