/* checkpoint_names.h - what a file of a Hugging Face checkpoint is called. Names alone: nothing is opened. */
#ifndef APR_FORMATS_CHECKPOINT_NAMES_H
#define APR_FORMATS_CHECKPOINT_NAMES_H

#include <stdbool.h>
#include <stddef.h>

#define APR_CHECKPOINT_INDEX "model.safetensors.index.json"

/* The small files that loaders ask for by name. */
enum { APR_N_CHECKPOINT_NAMES = 17 };
extern const char *const apr_checkpoint_names[APR_N_CHECKPOINT_NAMES];

/* Chat templates with names stand in a folder of their own, the only one that a checkpoint has: "additional_chat_templates/tool_use.jinja". */
#define APR_TEMPLATE_FOLDER "additional_chat_templates"
/* The name of such a template (a part of the file's name, n_bytes of it), or NULL. */
const char *apr_template_name(const char *file, size_t *n_bytes);

bool apr_is_checkpoint_name(const char *name); /* one of these */
/* Is this the name of a file that belongs to a checkpoint: weights, their index, or one of the small files? */
bool apr_is_checkpoint_file(const char *name);
/* README, LICENSE, templates, configurations of processors: read by people and loaders, and no program. */
bool apr_is_checkpoint_text(const char *name);
/* Would a new file of this name beside a checkpoint be read, or travel, as a part of it? */
bool apr_joins_checkpoint(const char *name);

#endif
