/* formats/open.h - opens only the head of a model (names, types and sizes) or only its tokenizer. */
#ifndef APR_FORMATS_OPEN_H
#define APR_FORMATS_OPEN_H

#include "formats/tensor/model.h"

/* Like apr_model_open, but a GGUF may be cut off anywhere after its tensor infos (apr_gguf_open_head). *is_whole: all tensors are there. */
apr_status apr_model_open_head(apr_model *model, const char *path, bool *is_whole, apr_error *err);
/* Opens only the tokenizer (model->vocab). Of a checkpoint folder, or a file in one, only the small files are read. A GGUF may end after
 * its tensor infos. A model without a tokenizer opens with a vocabulary of kind APR_VOCAB_NONE. */
apr_status apr_model_open_vocab(apr_model *model, const char *path, apr_error *err);

#endif
