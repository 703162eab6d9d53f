/* hf_config_values.h - single values of a config.json, and the parts that hf_config.c puts together. */
#ifndef APR_FORMATS_HF_CONFIG_VALUES_H
#define APR_FORMATS_HF_CONFIG_VALUES_H

#include "formats/base/json.h"
#include "formats/shape/family.h"
#include "formats/shape/hparams.h"
#include "formats/tensor/text_config.h"

/* A config.json while it is read. */
typedef struct apr_config_reading {
    const cJSON *root, *text;      /* the whole, and the language model's part (equal to root if not nested) */
    const apr_family_config *spec; /* of the text part's family; NULL: unknown */
    apr_hparams *h;
    apr_arena *arena;
    const char *where;
    apr_error *err;
} apr_config_reading;

/* The value in the language model's part, else in the whole; NULL if absent or null. */
const cJSON *apr_config_find(const apr_config_reading *r, const char *key);
/* True: present, even as null. Then the class's default does not apply. */
bool apr_config_has(const apr_config_reading *r, const char *key);

/* Read a value; *value is unchanged if it is absent. An integer may also be a list of equal ones, or "auto", which counts as absent. */
apr_status apr_config_int(const apr_config_reading *r, const char *key, int64_t *value);
apr_status apr_config_real(const apr_config_reading *r, const cJSON *item, const char *key, double *value);
apr_status apr_config_bool(const apr_config_reading *r, const char *key, bool *value);

/* Sets the hyperparameters' refusal: what no program here supports. Only the first one is kept. */
apr_status apr_config_refuse(const apr_config_reading *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

void apr_config_put_text(apr_json_text *out, const char *key, const char *text);
void apr_config_put_positive(apr_json_text *out, const char *key, double value); /* nothing if it is 0 */

/* --- parts. The numbers must be read before. --- */

/* Rope's base, scaling and dimensions, of all layers and of sliding ones. */
apr_status apr_config_read_rope(const apr_config_reading *r);
void apr_config_write_rope(apr_json_text *out, const apr_hparams *h, const apr_family_config *f);
/* The mixer, the feed-forward and the positions of each layer. */
apr_status apr_config_read_layers(const apr_config_reading *r);
void apr_config_write_layers(apr_json_text *out, const apr_hparams *h, const apr_family_config *f);

/* Checks every field against the tables of fields that change the arithmetic and of those that do not. Fills refusal and unknown_fields. */
apr_status apr_config_check(const apr_config_reading *r);

#endif
