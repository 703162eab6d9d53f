/* hf_tokenizer_slow.h - a tokenizer of several files, as checkpoints without tokenizer.json have it: added_tokens.json, the
 * added_tokens_decoder of tokenizer_config.json, vocab.json with merges.txt. All of it is brought into tokenizer.json's form. */
#ifndef APR_FORMATS_HF_TOKENIZER_SLOW_H
#define APR_FORMATS_HF_TOKENIZER_SLOW_H

#include "formats/base/json.h"
#include "formats/model/model.h"

/* Files as they were parsed; NULL: not there. */
typedef struct apr_slow_files {
    const cJSON *added, *config, *special_map, *model_config; /* added_tokens.json, tokenizer_config.json, special_tokens_map.json */
} apr_slow_files;

/* The list "added_tokens" of a tokenizer.json. Where two files name an id, the decoder decides. Tokens of the vocabulary (vocab.json, or one
 * that is read already) that the files name as special, as eos_token, are in it too. The caller deletes the list. */
apr_status apr_hf_added_list(cJSON **list, const apr_slow_files *files, const cJSON *vocab_file, const apr_vocab *vocab, apr_arena *arena,
                             const char *where, apr_error *err);

/* Takes vocab.json (parsed) and makes a tokenizer.json of it, malloc'ed. *unsupported: why that cannot be done (a clause), or NULL. */
apr_status apr_hf_slow_bpe(cJSON **tokenizer, const char **unsupported, cJSON *vocab, const apr_attachment *merges,
                           const apr_slow_files *files, apr_arena *arena, const char *where, apr_error *err);

#endif
