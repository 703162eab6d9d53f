/* config_folder.h - folders that hold a config.json and no weights: enough for a plan, and to show what it says. */
#ifndef APR_TOOLS_CONFIG_FOLDER_H
#define APR_TOOLS_CONFIG_FOLDER_H

#include <stddef.h>

/* The path of its config.json where `path` is such a folder, written to `text`; NULL where it is not. */
const char *apr_config_alone(const char *path, char *text, size_t capacity);

#endif
