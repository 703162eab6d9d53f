/* process.c - reads /proc/self/status. */
#include "tools/engine/device/process.h"

#include <stdio.h>
#include <string.h>

apr_process_memory apr_process_memory_now(void)
{
    apr_process_memory m = {0};
    const struct {
        const char *key;
        uint64_t *bytes;
    } fields[] = {{"RssAnon:", &m.anonymous}, {"RssFile:", &m.file}, {"VmHWM:", &m.peak}};
    char line[256];
    unsigned long long kib;
    size_t n_found = 0;

    FILE *const f = fopen("/proc/self/status", "r");
    if (f == NULL) return m;
    while (fgets(line, sizeof line, f) != NULL)
        for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
            const size_t n_key = strlen(fields[i].key);
            if (strncmp(line, fields[i].key, n_key) != 0 || sscanf(line + n_key, "%llu", &kib) != 1) continue;
            *fields[i].bytes = kib << 10;
            n_found++;
        }
    fclose(f);
    m.known = n_found == sizeof fields / sizeof *fields;
    return m;
}
