/* config_folder.h - folders that hold a config.json and no weights. They are enough to plan, and to show the configuration. */
#ifndef APR_TOOLS_CONFIG_FOLDER_H
#define APR_TOOLS_CONFIG_FOLDER_H

#include <stddef.h>

/* If `path` is such a folder: writes the path of its config.json to `text` and returns it. Otherwise NULL. */
const char *apr_config_only_path(const char *path, char *text, size_t capacity);

#endif
