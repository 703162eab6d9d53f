/* text_config.h - which part of a larger model's config.json is about the language model. */
#ifndef APR_FORMATS_TEXT_CONFIG_H
#define APR_FORMATS_TEXT_CONFIG_H

#include "formats/base/json.h"

/* The language model's part of a larger model's config.json; NULL: it is not nested. */
const cJSON *apr_config_text_part(const cJSON *root);

#endif
