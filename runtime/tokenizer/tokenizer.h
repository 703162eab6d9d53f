/* runtime/tokenizer/tokenizer.h - encodes text to token ids and decodes ids to text, by the rules of the model's vocabulary.
 *
 * A tokenizer borrows its apr_vocab, which must outlive it. Encoding first extracts added tokens. The remaining text is normalised, split
 * into words by the model's regular expressions (PCRE2, UTF + UCP), and encoded word by word:
 *   byte-level BPE     by the rank of merges
 *   SentencePiece BPE  by score or rank, with byte fallback
 *   WordPiece          by the longest match from the left
 *   Unigram            by the most probable sequence of tokens (Viterbi)
 * An open tokenizer may be used by several threads. */
#ifndef APR_RUNTIME_TOKENIZER_H
#define APR_RUNTIME_TOKENIZER_H

#include "formats/base/status.h"
#include "formats/tensor/model.h"
#include "formats/vocab/vocab.h"

typedef struct apr_tokenizer apr_tokenizer;

/* APR_E_UNSUPPORTED: there is no vocabulary, the name of the splitting rule is unknown, the pattern does not compile, or an added token
 * is longer than 1,024 bytes. APR_E_DAMAGED: a merge names tokens that do not exist. */
apr_status apr_tokenizer_open(apr_tokenizer **tokenizer, const apr_vocab *vocab, apr_error *err);

/* APR_E_UNSUPPORTED if a model has no vocabulary, or one of an unknown kind. The sentence names the model, what is missing, and what to do. */
apr_status apr_tokenizer_need(const apr_model *model, apr_error *err);

/* The tokenizer of a model. Each error names the model, and is that of apr_tokenizer_need if there is none. */
apr_status apr_tokenizer_of_model(apr_tokenizer **tokenizer, const apr_model *model, apr_error *err);
void apr_tokenizer_close(apr_tokenizer *tokenizer);

typedef struct apr_encode_options {
    bool add_special;   /* add BOS/EOS if the vocabulary asks for them */
    bool parse_special; /* recognise control tokens written in the text; otherwise they are plain text. Other added tokens are always
                           recognised */
} apr_encode_options;

/* ids is malloc'ed, even if n_ids is 0; the caller frees it. APR_E_DAMAGED: the text is not UTF-8, or the vocabulary has no token for a
 * part of it and no unknown token. APR_E_UNSUPPORTED: the splitting pattern takes too long. SentencePiece's leading space is added at the
 * start of the text, and after an added token if the vocabulary says so. */
apr_status apr_tokenizer_encode(const apr_tokenizer *tokenizer, const char *text, size_t n_bytes, const apr_encode_options *options,
                                int32_t **ids, size_t *n_ids, apr_error *err);

/* The bytes of one token, which may end inside a UTF-8 character. Control tokens give their text if show_special, else nothing. Unused ids
 * and ids outside the vocabulary give nothing. Returns the number of bytes; writes at most `capacity` of them. */
size_t apr_tokenizer_token_bytes(const apr_tokenizer *tokenizer, int32_t id, bool show_special, char *dst, size_t capacity);

/* Decodes all ids to text (NUL-terminated, malloc'ed). Removes SentencePiece's leading space, as its own decoder does. */
apr_status apr_tokenizer_decode(const apr_tokenizer *tokenizer, const int32_t *ids, size_t n_ids, bool show_special, char **text,
                                size_t *n_bytes, apr_error *err);

/* True if this id ends a turn: a stop id or the EOS token. */
bool apr_tokenizer_is_stop(const apr_tokenizer *tokenizer, int32_t id);

#endif
