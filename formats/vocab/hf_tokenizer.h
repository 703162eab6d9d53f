/* hf_tokenizer.h - a checkpoint's tokenizer files and the vocabulary: read and written. */
#ifndef APR_FORMATS_HF_TOKENIZER_H
#define APR_FORMATS_HF_TOKENIZER_H

#include "formats/tensor/model.h"

/* Reads tokenizer.json and its companions, which may be missing. Without tokenizer.json: tekken.json, tokenizer.model, or other files. */
apr_status apr_hf_vocab_read(const apr_model *model, apr_vocab *vocab, apr_arena *arena, apr_error *err);
/* Makes a tokenizer.json that the `tokenizers` library loads and that encodes in the same way. malloc'ed; NULL: no memory. */
char *apr_hf_tokenizer_write(const apr_vocab *vocab);
char *apr_hf_tokenizer_config_write(const apr_vocab *vocab);
char *apr_hf_generation_config_write(const apr_vocab *vocab);

#endif
