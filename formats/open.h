/* formats/open.h - opens a model of which names, types and sizes, or the tokenizer, are enough. */
#ifndef APR_FORMATS_OPEN_H
#define APR_FORMATS_OPEN_H

#include "formats/model/model.h"

/* As apr_model_open; but of a GGUF the first megabytes will do, up to the end of its list of tensors (apr_gguf_open_head). *is_whole: the
 * tensors are all there. */
apr_status apr_model_open_head(apr_model *model, const char *path, bool *is_whole, apr_error *err);
/* The tokenizer (model->vocab) without the weights: of a folder, or of a file in one, the small files alone are read, and a GGUF may end
 * after its list of tensors. A model without one opens, too: its vocabulary is APR_VOCAB_NONE. */
apr_status apr_model_open_vocab(apr_model *model, const char *path, apr_error *err);

#endif
