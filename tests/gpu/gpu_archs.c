/* gpu_archs.c - for which architectures a file of CUDA code has machine code, and PTX: read out of the file itself.
 *
 *     gpu_archs [-f FILE] 75 80 90        FILE is an object or a library; by default the library next to this program
 *
 * Exit 0: machine code for each, and PTX of the last; 1: not. Needs no GPU. The file holds containers, each
 *     u32 magic 0xba55ed50, u16 version, u16 header bytes, u64 bytes of entries after the header
 * and each entry
 *     u16 kind (1 PTX, 2 machine code), u16, u32 header bytes, u64 bytes of data after the header, 12 bytes, u32 architecture */
#include "formats/base/bytes.h"
#include "formats/files/map.h"

#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_ARCH = 1024, KIND_PTX = 1, KIND_CODE = 2, HEADER = 16, ENTRY = 32 };

typedef struct counts {
    int n[3][MAX_ARCH];
} counts;

static void count_container(const uint8_t *at, uint64_t n, counts *c)
{
    while (n >= ENTRY) {
        const uint16_t kind = apr_load_le16(at);
        const uint64_t header = apr_load_le32(at + 4), size = apr_load_le64(at + 8);
        const uint32_t arch = apr_load_le32(at + 28);
        if (header < ENTRY || header > n || size > n - header) return;
        if ((kind == KIND_PTX || kind == KIND_CODE) && arch < MAX_ARCH) c->n[kind][arch]++;
        at += header + size;
        n -= header + size;
    }
}

static void count_all(const apr_map *map, counts *c)
{
    for (size_t i = 0; i + HEADER <= map->n_bytes; i += 8) { /* containers are aligned */
        const uint8_t *const at = map->data + i;
        if (apr_load_le32(at) != 0xba55ed50u) continue;
        const uint64_t header = apr_load_le16(at + 6), size = apr_load_le64(at + 8);
        if (header < HEADER || header > map->n_bytes - i || size > map->n_bytes - i - header) continue;
        count_container(at + header, size, c);
    }
}

static bool path_of_library(char *path, size_t n_bytes)
{
    char program[4096];
    const ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    if (n <= 0) return false;
    program[n] = '\0';
    snprintf(path, n_bytes, "%s/libaprkit-cuda.so", dirname(program));
    return true;
}

int main(int argc, char **argv)
{
    static counts c;
    char path[4200];
    apr_error err = {0};
    apr_map map;
    int n_missing = 0, first = 1;

    if (argc > 2 && strcmp(argv[1], "-f") == 0) {
        snprintf(path, sizeof path, "%s", argv[2]);
        first = 3;
    } else if (!path_of_library(path, sizeof path)) return 1;
    if (apr_map_open(&map, path, &err) != APR_OK) {
        printf("gpu_archs: %s\n", err.text);
        return 1;
    }
    count_all(&map, &c);
    apr_map_close(&map);
    for (int arch = 0; arch < MAX_ARCH; arch++)
        if (c.n[KIND_CODE][arch] + c.n[KIND_PTX][arch] > 0)
            printf("sm_%d: %d pieces of machine code, %d of PTX\n", arch, c.n[KIND_CODE][arch], c.n[KIND_PTX][arch]);
    for (int i = first; i < argc; i++) {
        const int arch = (int)strtol(argv[i], NULL, 10);
        if (arch > 0 && arch < MAX_ARCH && c.n[KIND_CODE][arch] > 0 && (i + 1 < argc || c.n[KIND_PTX][arch] > 0)) continue;
        printf("no code for sm_%s\n", argv[i]);
        n_missing++;
    }
    return n_missing > 0;
}
