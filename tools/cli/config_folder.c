/* config_folder.c - looks for config.json, and for files that may be weights. */
#include "tools/cli/config_folder.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool may_be_weights(const char *name)
{
    static const char *const endings[] = {".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json", ".pt", ".pth", ".gguf",
                                          ".apr"};
    const size_t n = strlen(name);

    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        const size_t m = strlen(endings[i]);
        if (n > m && strcmp(name + n - m, endings[i]) == 0) return true;
    }
    return false;
}

const char *apr_config_only_path(const char *path, char *text, size_t capacity)
{
    const size_t n = strlen(path);
    DIR *const folder = opendir(path);
    bool has_weights = false;

    if (folder == NULL) return NULL;
    for (const struct dirent *entry; !has_weights && (entry = readdir(folder)) != NULL;) has_weights = may_be_weights(entry->d_name);
    closedir(folder);
    const int length = snprintf(text, capacity, "%s%sconfig.json", path, n > 0 && path[n - 1] == '/' ? "" : "/");
    return !has_weights && length > 0 && (size_t)length < capacity && access(text, R_OK) == 0 ? text : NULL;
}
