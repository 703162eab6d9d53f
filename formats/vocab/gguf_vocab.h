/* gguf_vocab.h - GGUF's tokenizer.* keys and the vocabulary: read and written. */
#ifndef APR_FORMATS_GGUF_VOCAB_H
#define APR_FORMATS_GGUF_VOCAB_H

#include "formats/tensor/model.h"

/* Reads the tokenizer from GGUF's keys. Missing values stay 0 or none. */
apr_status apr_gguf_vocab(const apr_kv_list *kv, apr_vocab *vocab, apr_arena *arena, const char *where, apr_error *err);
/* Writes the named chat templates of tokenizer_config.json and of additional_chat_templates/. */
apr_status apr_gguf_put_templates(const apr_model *layout, apr_kv_list *kv, apr_error *err);
/* Why a GGUF cannot hold this tokenizer (a clause, allocated in the arena), or NULL. */
apr_status apr_gguf_vocab_obstacle(const apr_vocab *vocab, apr_arena *arena, const char **obstacle, apr_error *err);
/* Appends the tokenizer's keys. What GGUF has no key for is kept under tokenizer.aprkit.*. */
apr_status apr_gguf_vocab_keys(const apr_vocab *vocab, apr_kv_list *kv, apr_error *err);

#endif
