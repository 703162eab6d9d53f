/* checkpoint_files.h - which files beside the weights belong to a checkpoint and travel with it.
 *
 *   travels     what loaders read (config.json, tokenizer files, templates, processors), and what people must or may read: README,
 *               LICENSE, NOTICE and their kin, templates in additional_chat_templates, any .md .txt .jinja .yaml .model .tiktoken,
 *               and any *config.json, *params.json and the like
 *   stays       code (.py), pickles and weights of other kinds (.bin .pt .pth .gguf .onnx ...), pictures, folders; what is no
 *               regular file of this folder (links into a hub's cache count as such: "../../blobs/..."); what is larger than
 *               16 MiB and asked for by no loader: named in the model's left_behind
 *   not noticed names that begin with a dot, and the weights that were read with their index */
#ifndef APR_FORMATS_CHECKPOINT_FILES_H
#define APR_FORMATS_CHECKPOINT_FILES_H

#include "formats/base/arena.h"
#include "formats/base/status.h"

#include <stdbool.h>
#include <stddef.h>

enum { APR_MAX_CHECKPOINT_FILES = 256 };

typedef struct apr_file_list {
    const char **names; /* [n] that travel: those that loaders know in a fixed order, then the others by name */
    size_t n;
    const char *left_behind; /* the others, "a, b"; NULL: none */
} apr_file_list;

/* Looks at names and sizes, opens nothing. Lives in the arena. A folder that cannot be listed is APR_E_IO. `weights` are the
 * names of the n_weights files that were read; NULL: it is not a checkpoint's own folder (a file was named, and it may lie
 * anywhere), and only what loaders know is taken. */
apr_status apr_checkpoint_files(const char *folder, const char *const *weights, size_t n_weights, apr_file_list *list, apr_arena *arena,
                                apr_error *err);

#endif
