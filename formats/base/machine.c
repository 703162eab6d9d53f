/* machine.c - reads /proc and /sys. What cannot be read sets no limit. */
#include "formats/base/machine.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };

/* --- control groups --- */

/* The files of a group, by version. */
typedef struct group_files {
    const char *folder; /* below the mount */
    const char *limit, *used;
    const char *cached, *shared; /* words of memory.stat: bytes of files in memory, of which these cannot be given back */
} group_files;

static const group_files version_1 = {"/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache", "total_shmem"};
static const group_files version_2 = {"", "memory.max", "memory.current", "file", "shmem"};

static FILE *open_in(const char *folder, const char *name)
{
    char path[PATH_BYTES + 64];
    const int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    return n > 0 && (size_t)n < sizeof path ? fopen(path, "re") : NULL;
}

/* The number in a file; `none` where there is another word, as "max". */
static uint64_t number_in(const char *folder, const char *name, uint64_t none)
{
    uint64_t n = none;
    FILE *const file = open_in(folder, name);

    if (file == NULL) return none;
    if (fscanf(file, "%" SCNu64, &n) != 1) n = none;
    fclose(file);
    return n;
}

/* Bytes of files that the kernel can give back. */
static uint64_t cached_in(const char *folder, const group_files *files)
{
    uint64_t cached = 0, shared = 0, n;
    char word[64];
    FILE *const file = open_in(folder, "memory.stat");

    if (file == NULL) return 0;
    while (fscanf(file, "%63s %" SCNu64, word, &n) == 2) {
        if (strcmp(word, files->cached) == 0) cached = n;
        if (strcmp(word, files->shared) == 0) shared = n;
    }
    fclose(file);
    return cached > shared ? cached - shared : 0;
}

static void hold_to(apr_memory_limit *limit, const char *folder, const group_files *files)
{
    const uint64_t bytes = number_in(folder, files->limit, UINT64_MAX);

    if (bytes >= INT64_MAX / 2) return; /* version 1 has no word for none, but a number that no machine has */
    const uint64_t used = number_in(folder, files->used, 0), cached = cached_in(folder, files), held = used > cached ? used - cached : 0;
    const uint64_t left = bytes > held ? bytes - held : 0;
    if (bytes < limit->bytes) limit->bytes = bytes;
    if (left < limit->left) limit->left = left;
}

/* The group of a line of `self`, and those above it. A line is ID:CONTROLLERS:/PATH; version 2 has no controllers. */
static void hold_to_groups(apr_memory_limit *limit, const char *mount, const char *controllers, const char *path)
{
    const group_files *const files = controllers[0] == '\0' ? &version_2 : &version_1;
    char folder[PATH_BYTES];

    if (files == &version_1 && strcmp(controllers, "memory") != 0) return;
    const size_t n_root = strlen(mount) + strlen(files->folder);
    const int n_all = snprintf(folder, sizeof folder, "%s%s%s", mount, files->folder, path);
    if (n_all < 0 || (size_t)n_all >= sizeof folder) return;
    for (size_t n = strlen(folder);; n--) { /* shorter by a name each time */
        if (n > n_root && folder[n] != '\0' && folder[n] != '/') continue;
        folder[n] = '\0';
        hold_to(limit, folder, files);
        if (n <= n_root) return;
    }
}

apr_memory_limit apr_cgroup_limit(const char *self, const char *mount)
{
    apr_memory_limit limit = {UINT64_MAX, UINT64_MAX};
    char line[PATH_BYTES];
    FILE *const file = fopen(self, "re");

    if (file == NULL) return limit;
    while (fgets(line, sizeof line, file) != NULL) {
        char *const controllers = strchr(line, ':'), *const path = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (path == NULL) continue;
        *path = '\0';
        path[1 + strcspn(path + 1, "\n")] = '\0';
        hold_to_groups(&limit, mount, controllers + 1, path + 1);
    }
    fclose(file);
    return limit;
}

static apr_memory_limit own_limit(void) { return apr_cgroup_limit("/proc/self/cgroup", "/sys/fs/cgroup"); }

/* --- the machine --- */

static uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }

uint64_t apr_machine_bytes(void)
{
    const long n_pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    const uint64_t bytes = own_limit().bytes;

    if (n_pages <= 0 || page <= 0) return bytes < UINT64_MAX ? bytes : 0;
    return smaller((uint64_t)n_pages * (uint64_t)page, bytes);
}

uint64_t apr_machine_available(void)
{
    const uint64_t left = own_limit().left;
    char line[256];
    uint64_t kib = 0;
    bool is_known = false;
    FILE *const file = fopen("/proc/meminfo", "re");

    while (file != NULL && !is_known && fgets(line, sizeof line, file) != NULL)
        is_known = sscanf(line, "MemAvailable: %" SCNu64, &kib) == 1;
    if (file != NULL) fclose(file);
    if (!is_known) return left < UINT64_MAX ? left : 0;
    return smaller(kib << 10, left);
}
