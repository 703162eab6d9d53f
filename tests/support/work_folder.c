/* work_folder.c - makes the folder, names files in it, removes it with all that is in it. */
#define _XOPEN_SOURCE 700 /* nftw */
#include "tests/support/work_folder.h"

#include "formats/files/map.h"

#include <dirent.h>
#include <ftw.h>
#include <string.h>

char work[64];

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

int make_work(void **state)
{
    (void)state;
    strcpy(work, "/tmp/apr-test-XXXXXX");
    return mkdtemp(work) == NULL;
}

int remove_work(void **state)
{
    (void)state;
    return nftw(work, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

const char *in_work(const char *name)
{
    static char paths[4][256];
    static int next;
    char *const path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", work, name);
    return path;
}

int count_temporaries(const char *folder)
{
    DIR *const dir = opendir(folder);
    const struct dirent *entry;
    int n = 0;
    assert_non_null(dir);
    while ((entry = readdir(dir)) != NULL) n += strstr(entry->d_name, ".aprkit-") != NULL;
    closedir(dir);
    return n;
}

void assert_same_file(const char *a, const char *b)
{
    apr_map x, y;
    assert_int_equal(apr_map_open(&x, a, NULL), APR_OK);
    assert_int_equal(apr_map_open(&y, b, NULL), APR_OK);
    assert_int_equal(x.n_bytes, y.n_bytes);
    if (x.n_bytes > 0 && memcmp(x.data, y.data, x.n_bytes) != 0) fail_msg("%s and %s differ", a, b);
    apr_map_close(&x);
    apr_map_close(&y);
}

void write_file(const char *path, const void *bytes, size_t n_bytes)
{
    FILE *const f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n_bytes, f), n_bytes);
    assert_int_equal(fclose(f), 0);
}
