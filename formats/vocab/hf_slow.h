/* hf_slow.h - the files of a checkpoint without tokenizer.json: added_tokens.json, the added_tokens_decoder of tokenizer_config.json,
 * vocab.json with merges.txt. They are brought into tokenizer.json's form. */
#ifndef APR_FORMATS_HF_SLOW_H
#define APR_FORMATS_HF_SLOW_H

#include "formats/base/json.h"
#include "formats/tensor/model.h"

/* Parsed files; NULL: not there. */
typedef struct apr_hf_files {
    const cJSON *added, *config, *special_map, *model_config; /* added_tokens.json, tokenizer_config.json, special_tokens_map.json */
} apr_hf_files;

/* A token is named by its text, or by an object like those of added_tokens. */
static inline const char *apr_hf_token_text(const cJSON *item)
{
    return cJSON_IsString(item) ? item->valuestring : apr_json_get_string(item, "content");
}

/* Makes the list "added_tokens" of a tokenizer.json. If two files name an id, the decoder decides. Tokens of the vocabulary (vocab.json, or
 * one that is read already) that the files name as special, such as eos_token, are also in it. The caller deletes the list. */
apr_status apr_hf_added_list(cJSON **list, const apr_hf_files *files, const cJSON *vocab_file, const apr_vocab *vocab, apr_arena *arena,
                             const char *where, apr_error *err);
/* Makes a tokenizer.json, which the caller deletes. Takes ownership of `vocab`, the parsed vocab.json. *unsupported: why it cannot be made
 * (a clause), or NULL. */
apr_status apr_hf_slow_bpe(cJSON **tokenizer, const char **unsupported, cJSON *vocab, const apr_attachment *merges,
                           const apr_hf_files *files, apr_arena *arena, const char *where, apr_error *err);

#endif
