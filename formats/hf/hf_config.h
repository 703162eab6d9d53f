/* hf_config.h - shared by the readers, writers and judges of config.json; for the hf_config_*.c files. */
#ifndef APR_FORMATS_HF_CONFIG_H
#define APR_FORMATS_HF_CONFIG_H

#include "formats/base/json.h"
#include "formats/model/family.h"
#include "formats/model/hparams.h"

/* A config.json while it is read. */
typedef struct apr_config_reading {
    const cJSON *root, *text;      /* the whole, and the part about the language model (the whole again when not nested) */
    const apr_family_config *card; /* of the text part's class; NULL: nobody knows it */
    apr_hparams *h;
    apr_arena *arena;
    const char *where;
    apr_error *err;
} apr_config_reading;

/* The part of a larger model's config.json that is about the language model; NULL: the whole is. */
const cJSON *apr_config_text_part(const cJSON *root);

/* What the language model's part says, else the whole; NULL when absent or null. */
const cJSON *apr_config_find(const apr_config_reading *r, const char *key);
/* Present, if only as null: then the class's default does not hold. */
bool apr_config_states(const apr_config_reading *r, const char *key);

/* The value, unchanged when absent. An integer may be a list of equal ones, and "auto", which leaves it to the class. */
apr_status apr_config_int(const apr_config_reading *r, const char *key, int64_t *value);
apr_status apr_config_real(const apr_config_reading *r, const cJSON *item, const char *key, double *value);
apr_status apr_config_bool(const apr_config_reading *r, const char *key, bool *value);

/* Base, scaling and width of the rotation, of all layers and of sliding ones. The numbers must have been read. */
apr_status apr_config_read_rope(const apr_config_reading *r);
/* The mixer, the feed-forward and the positions of each layer. The numbers must have been read. */
apr_status apr_config_read_layers(const apr_config_reading *r);

/* How a written config.json calls a layer's mixer. */
const char *apr_config_layer_word(const apr_family_config *card, apr_layer_kind kind);

/* Remembers what no program does, as the hyperparameters' refusal; the first one stays. */
apr_status apr_config_refuse(const apr_config_reading *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Holds every field against the table of those that change the arithmetic, and of those that do not: fills refusal and
 * unknown_fields. The numbers must have been read. */
apr_status apr_config_judge(const apr_config_reading *r);

#endif
