/* checkpoint_names.h - what a file of a Hugging Face checkpoint is called. Names alone: nothing is opened. */
#ifndef APR_FORMATS_CHECKPOINT_NAMES_H
#define APR_FORMATS_CHECKPOINT_NAMES_H

#include <stdbool.h>
#include <stddef.h>

#define APR_CHECKPOINT_INDEX "model.safetensors.index.json"

/* The small files that loaders ask for by name. */
enum { APR_N_CHECKPOINT_NAMES = 15 };
extern const char *const apr_checkpoint_names[APR_N_CHECKPOINT_NAMES];

bool apr_is_checkpoint_name(const char *name); /* one of these */
/* Is this the name of a file that belongs to a checkpoint: weights, their index, or one of the small files? */
bool apr_is_checkpoint_file(const char *name);
/* README, LICENSE, templates, configurations of processors: read by people and loaders, and no program. */
bool apr_is_checkpoint_text(const char *name);
/* Would a new file of this name beside a checkpoint be read, or travel, as a part of it? */
bool apr_joins_checkpoint(const char *name);

#endif
