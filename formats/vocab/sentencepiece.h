/* sentencepiece.h - reads SentencePiece's tokenizer.model, a protobuf message of pieces and two messages of settings.
 *
 *   1 piece       repeated: 1 text, 2 score (float32), 3 type, whose numbers are apr_token_type's
 *   2 training    3 model_type (2: BPE), 24 whitespace as suffix, 35 byte_fallback, 40 to 43 ids of unk, bos, eos and pad
 *   3 normalizer  2 a table of characters, 3 add_dummy_prefix, 4 remove_extra_whitespaces, 5 escape_whitespaces
 *
 * A model that is not BPE, or that normalizes text, leaves the vocabulary at APR_VOCAB_NONE with the reason in `unsupported`. */
#ifndef APR_FORMATS_SENTENCEPIECE_H
#define APR_FORMATS_SENTENCEPIECE_H

#include "formats/tensor/model.h"

/* Fills the vocabulary; </s> is the only stop id. Texts are borrowed from the file. APR_E_DAMAGED: not such a message, or invalid ids. */
apr_status apr_sentencepiece_read(const apr_attachment *file, apr_vocab *vocab, apr_arena *arena, const char *where, apr_error *err);

#endif
