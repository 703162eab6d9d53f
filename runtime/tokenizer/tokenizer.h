/* runtime/tokenizer/tokenizer.h - text to token ids and back, with the rules that the model's own vocabulary states.
 *
 * A tokenizer is built from an apr_vocab (which it borrows, and which must outlive it). Encoding: added tokens are cut out
 * first, the rest is normalised, split by the model's own regular expressions (PCRE2, UTF + UCP) and encoded word by word: byte-level
 * BPE by rank of merges; SentencePiece BPE by score or rank, bytes as a last resort; WordPiece by the longest tokens from the left;
 * Unigram by the most probable tokens. Thread-safe after opening. */
#ifndef APR_RUNTIME_TOKENIZER_H
#define APR_RUNTIME_TOKENIZER_H

#include "formats/base/status.h"
#include "formats/model/vocab.h"

typedef struct apr_tokenizer apr_tokenizer;

/* APR_E_UNSUPPORTED when there is no vocabulary, the splitting rule's name is not known, the pattern does not compile, or an
 * added token is longer than 1,024 bytes; APR_E_DAMAGED when a merge names tokens that are not there. */
apr_status apr_tokenizer_open(apr_tokenizer **tokenizer, const apr_vocab *vocab, apr_error *err);
void apr_tokenizer_close(apr_tokenizer *tokenizer);

typedef struct apr_encode_options {
    bool add_special;   /* BOS/EOS where the vocabulary asks for them */
    bool parse_special; /* control tokens written out in the text are that token; otherwise they are plain text. Added
                           tokens that are not control tokens are always recognised */
} apr_encode_options;

/* ids is malloc'ed, also when there are none; the caller frees it. Text that is not UTF-8 is APR_E_DAMAGED, and so is text
 * that the vocabulary has no token for, not even an unknown one. A pattern that takes too long is APR_E_UNSUPPORTED.
 * SentencePiece's space in front is for the start of the text, and for what follows an added token if the vocabulary says so. */
apr_status apr_tokenizer_encode(const apr_tokenizer *tokenizer, const char *text, size_t n_bytes, const apr_encode_options *options,
                                int32_t **ids, size_t *n_ids, apr_error *err);

/* The bytes of one token (they may end inside a UTF-8 character). Control tokens give their written form when
 * `show_special`, else nothing; so do
 * ids outside the vocabulary and its holes. Returns the number of bytes; writes at most `capacity` of them. */
size_t apr_tokenizer_token_bytes(const apr_tokenizer *tokenizer, int32_t id, bool show_special, char *dst, size_t capacity);

/* All ids to text (NUL-terminated, malloc'ed). SentencePiece's leading space is dropped as its own decoder does. */
apr_status apr_tokenizer_decode(const apr_tokenizer *tokenizer, const int32_t *ids, size_t n_ids, bool show_special, char **text,
                                size_t *n_bytes, apr_error *err);

/* Is this id one that ends a turn? */
bool apr_tokenizer_is_stop(const apr_tokenizer *tokenizer, int32_t id);

#endif
