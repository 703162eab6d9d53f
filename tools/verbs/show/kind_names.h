/* kind_names.h - how show and diff name the kinds of things in a model. */
#ifndef APR_TOOLS_KIND_NAMES_H
#define APR_TOOLS_KIND_NAMES_H

#include "formats/tensor/model.h"

const char *apr_rope_name(apr_rope_kind kind);
const char *apr_layer_kind_name(uint8_t kind);
const char *apr_vocab_kind_name(apr_vocab_kind kind);

#endif
