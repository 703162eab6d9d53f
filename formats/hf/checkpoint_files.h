/* checkpoint_files.h - decides which files next to the weights belong to a checkpoint and are copied into outputs.
 *
 *   copied      what loaders read (config.json, tokenizer files, templates, processors), and what people must or may read: README,
 *               LICENSE, NOTICE and similar, templates in additional_chat_templates, any .md .txt .jinja .yaml .model .tiktoken,
 *               and any *config.json, *params.json and the like
 *   not copied  code (.py), pickles and weights of other formats (.bin .pt .pth .gguf .onnx ...), pictures, folders; anything that is not
 *               a regular file of this folder (links into a hub's cache, "../../blobs/...", count as regular files); files of more than
 *               16 MiB that no loader asks for. They are named in the model's not_copied.
 *   ignored     names that begin with a dot, and the weights that were read with their index */
#ifndef APR_FORMATS_CHECKPOINT_FILES_H
#define APR_FORMATS_CHECKPOINT_FILES_H

#include "formats/base/arena.h"
#include "formats/base/status.h"

#include <stdbool.h>
#include <stddef.h>

enum { APR_MAX_CHECKPOINT_FILES = 256 };

typedef struct apr_file_list {
    const char **names; /* [n] copied files: those that loaders know, in a fixed order, then the others by name */
    size_t n;
    const char *not_copied; /* files that are not copied, "a, b"; NULL: none */
} apr_file_list;

/* Looks at names and sizes, opens nothing. The list is allocated in the arena. APR_E_IO: the folder cannot be listed. `weights` are the
 * names of the n_weights files that were read. NULL: the user named a file, whose folder may hold anything; then only files that loaders
 * know are copied. */
apr_status apr_checkpoint_files(const char *folder, const char *const *weights, size_t n_weights, apr_file_list *list, apr_arena *arena,
                                apr_error *err);

#endif
