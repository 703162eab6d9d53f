/* tiktoken.h - reads tiktoken's file of ranks: lines "base64 rank". Meta calls it tokenizer.model, Qwen qwen.tiktoken, others
 * tiktoken.model.
 *
 * The file has neither the splitting expression nor the special tokens. The expression is that of a known class, found by
 * tokenizer_config.json's tokenizer_class or by the family. Special tokens are in the class's code (Llama 3, the first Qwen), or listed in
 * added_tokens_decoder. */
#ifndef APR_FORMATS_HF_TIKTOKEN_H
#define APR_FORMATS_HF_TIKTOKEN_H

#include "formats/tensor/model.h"
#include "formats/vocab/vocab.h"

/* True: the file begins with such a line. */
bool apr_is_tiktoken(const apr_attachment *file);

typedef struct apr_tiktoken_specials apr_tiktoken_specials;
typedef struct apr_tiktoken_class {
    const char *pattern;
    bool nfc;                              /* text is normalized first */
    const apr_tiktoken_specials *specials; /* after the ranks; NULL: a list of added tokens is needed */
} apr_tiktoken_class;
/* Finds the class by tokenizer_class, or by the family: config.json's model_type or the model's architecture. Either may be NULL. False:
 * the class is unknown. */
bool apr_tiktoken_class_of(const char *tokenizer_class, const char *family, apr_tiktoken_class *class);

/* APR_E_DAMAGED: a line is not a token and its rank, ranks have holes, or two tokens have the same rank. */
apr_status apr_tiktoken_read(const apr_attachment *file, const apr_tiktoken_class *class, apr_vocab *vocab, apr_arena *arena,
                             const char *where, apr_error *err);

#endif
