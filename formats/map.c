/* map.c - open, mmap, close: the mapping outlives the descriptor. */
#include "formats/map.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

apr_status apr_map_open(apr_map *map, const char *path, apr_error *err)
{
    apr_status status = APR_OK;
    struct stat st;

    *map = (apr_map){0};
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return apr_fail(err, APR_E_IO, "%s: %s", path, strerror(errno));
    if (fstat(fd, &st) != 0) {
        status = apr_fail(err, APR_E_IO, "%s: %s", path, strerror(errno));
    } else if (!S_ISREG(st.st_mode)) {
        status = apr_fail(err, APR_E_IO, "%s: not a regular file", path);
    } else if (st.st_size > 0) {
        void *const p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED)
            status = apr_fail(err, APR_E_IO, "%s: cannot map %lld bytes: %s", path, (long long)st.st_size, strerror(errno));
        else *map = (apr_map){.data = p, .n_bytes = (size_t)st.st_size};
    }
    close(fd);
    return status;
}

void apr_map_close(apr_map *map)
{
    if (map->data != NULL) munmap((void *)(uintptr_t)map->data, map->n_bytes);
    *map = (apr_map){0};
}
