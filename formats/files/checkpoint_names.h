/* checkpoint_names.h - which file names belong to a Hugging Face checkpoint. Works on names only; nothing is opened. */
#ifndef APR_FORMATS_CHECKPOINT_NAMES_H
#define APR_FORMATS_CHECKPOINT_NAMES_H

#include <stdbool.h>
#include <stddef.h>

#define APR_CHECKPOINT_INDEX "model.safetensors.index.json"

/* The small files that loaders ask for by name. */
enum { APR_N_CHECKPOINT_NAMES = 17 };
extern const char *const apr_checkpoint_names[APR_N_CHECKPOINT_NAMES];

/* Named chat templates are in a subfolder, the only one that a checkpoint has: "additional_chat_templates/tool_use.jinja". */
#define APR_TEMPLATE_FOLDER "additional_chat_templates"
/* The template's name, a part of the file name and n_bytes long; NULL if `file` is not such a template. */
const char *apr_template_name(const char *file, size_t *n_bytes);

bool apr_is_checkpoint_name(const char *name); /* is it in the list above? */
/* Is this the name of a file that belongs to a checkpoint: weights, their index, or one of the small files? */
bool apr_is_checkpoint_file(const char *name);
/* Is it a text for people or loaders, such as README, LICENSE, a template or a processor configuration? Never a program. */
bool apr_is_checkpoint_text(const char *name);
/* Would a new file of this name next to a checkpoint be read or copied as a part of it? */
bool apr_belongs_to_checkpoint(const char *name);

#endif
