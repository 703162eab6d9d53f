/* gguf_vocab_kinds.h - GGUF's tokenizers "bert" (WordPiece) and "t5" (Unigram): what they can express, and their keys.
 *
 * bert: a BertNormalizer that cleans text and separates Chinese characters, a BertPreTokenizer, tokens within words prefixed with "##", one
 *     token before a text and one after it. A token that begins a word is stored with the prefix U+2581, one within a word without "##".
 *     tokenizer.ggml.normalizer.lowercase (true), .strip_accents (like lowercase)
 *     tokenizer.aprkit.within_words: ids of tokens within words that themselves begin with U+2581
 * t5: SentencePiece's Unigram without byte tokens: an optional map of characters, repeated spaces removed, one space before each word.
 *     tokenizer.ggml.precompiled_charsmap, remove_extra_whitespaces (false), add_space_prefix (false)
 *     tokenizer.aprkit.log_probs, where scores of 32 bits are not exact
 * In brackets: the default of a missing key. Missing ids are llama.cpp's defaults: bos 101, unk 100, sep 102, pad 0 for bert, eos 1, unk 2,
 * pad 0 for t5. */
#ifndef APR_FORMATS_GGUF_VOCAB_KINDS_H
#define APR_FORMATS_GGUF_VOCAB_KINDS_H

#include "formats/tensor/kv.h"
#include "formats/vocab/vocab.h"

/* What GGUF has no key for in a vocabulary of kind WPM or UGM (a clause, constant), or NULL. */
const char *apr_gguf_kind_obstacle(const apr_vocab *vocab);

/* The first token of a bert whose stored text begins with U+2581 although it does not begin a word; -1: none. */
int64_t apr_gguf_bert_ambiguous(const apr_vocab *vocab);

/* The vocabulary as it is stored in GGUF's arrays; a copy of *vocab for other kinds. */
apr_status apr_gguf_kind_view(const apr_vocab *vocab, apr_vocab *view, apr_arena *arena, apr_error *err);
/* The keys above and the ids that only these kinds have. */
apr_status apr_gguf_put_kind(const apr_vocab *vocab, apr_kv_list *kv, apr_error *err);

/* Completes a vocabulary of these kinds, whose tokens, types, scores and ids are read already. A t5 with other rules becomes
 * APR_VOCAB_NONE with `unsupported`. */
apr_status apr_gguf_read_kind(const apr_kv_list *kv, apr_vocab *vocab, apr_arena *arena, const char *where, apr_error *err);

#endif
