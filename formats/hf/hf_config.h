/* hf_config.h - shared by the readers, writers and judges of config.json; for the hf_config_*.c files. */
#ifndef APR_FORMATS_HF_CONFIG_H
#define APR_FORMATS_HF_CONFIG_H

#include "formats/base/json.h"
#include "formats/model/family.h"
#include "formats/model/hparams.h"

extern const char *const apr_layer_names[]; /* by apr_layer_kind, as layer_types says them */

/* A config.json while it is read. */
typedef struct apr_config_reading {
    const cJSON *root, *text; /* the whole, and the part about the language model (the whole again when not nested) */
    apr_hparams *h;
    apr_arena *arena;
    const char *where;
    apr_error *err;
} apr_config_reading;

/* What the language model's part says, else the whole; NULL when absent or null. */
const cJSON *apr_config_find(const apr_config_reading *r, const char *key);

/* Remembers what no program does, as the hyperparameters' refusal; the first one stays. */
apr_status apr_config_refuse(const apr_config_reading *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Holds every field against the table of those that change the arithmetic, and of those that do not: fills refusal and
 * unknown_fields. The numbers must have been read. */
apr_status apr_config_judge(const apr_config_reading *r);

#endif
