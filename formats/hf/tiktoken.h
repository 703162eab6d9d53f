/* tiktoken.h - a tokenizer as tiktoken's file of ranks has it: lines "base64 rank", which Meta calls tokenizer.model, Qwen
 * qwen.tiktoken and others tiktoken.model.
 *
 * The file has neither the splitting expression nor the special tokens. Both are those of the classes that are known here, by
 * tokenizer_config.json's tokenizer_class or by the family; special tokens are those
 * of the class's code (Llama 3, the first Qwen), or what added_tokens_decoder lists. */
#ifndef APR_FORMATS_HF_TIKTOKEN_H
#define APR_FORMATS_HF_TIKTOKEN_H

#include "formats/model/model.h"
#include "formats/model/vocab.h"

/* Does the file begin with such a line? */
bool apr_is_tiktoken(const apr_attachment *file);

/* The class that the names stand for (either may be NULL): tokenizer_class, or config.json's model_type, or the model's architecture. False: of none that is known
 * here. */
typedef struct apr_tiktoken_specials apr_tiktoken_specials;
typedef struct apr_tiktoken_class {
    const char *pattern;
    bool nfc;                              /* text is normalized first */
    const apr_tiktoken_specials *specials; /* after the ranks; NULL: a list of added tokens is needed */
} apr_tiktoken_class;
bool apr_tiktoken_class_of(const char *tokenizer_class, const char *family, apr_tiktoken_class *class);

/* APR_E_DAMAGED: a line is not a token and its rank, ranks have holes, or two tokens have one. */
apr_status apr_tiktoken_read(const apr_attachment *file, const apr_tiktoken_class *class, apr_vocab *vocab, apr_arena *arena,
                             const char *where, apr_error *err);

#endif
