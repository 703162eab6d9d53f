/* config_facts.h - what a config.json is expected to mean, as one line that a person can check.
 *
 * "field=value ... flag ...": what is not said is 0, false, or the same for all layers. Of scalings "rope" is the kind; what belongs to
 * sliding layers has "local_" before it. "layers", "ffn" and "no_rope" are one letter a layer. `where` is named in failures. */
#ifndef APR_TESTS_CONFIG_FACTS_H
#define APR_TESTS_CONFIG_FACTS_H

#include "formats/base/json.h"
#include "formats/shape/hparams.h"

/* Fails the test unless every field is as `text` says. */
void assert_facts(apr_hparams hparams, const char *text, const char *where);

/* Reads and completes a config.json that is to be understood and computed. */
void read_fact_config(const char *text, const char *where, apr_hparams *hparams, apr_arena *arena);

/* tests/data/configs.json: a config.json for each family and class, by name. cJSON_Delete it. */
cJSON *fact_configs(void);

#endif
