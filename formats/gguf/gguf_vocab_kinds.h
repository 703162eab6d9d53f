/* gguf_vocab_kinds.h - GGUF's kinds of tokenizers "bert" (WordPiece) and "t5" (Unigram): what they can say, and their keys.
 *
 * bert: a BertNormalizer that cleans text and sets Chinese signs apart, a BertPreTokenizer, tokens within words behind "##", one token
 *     before a text and one after it. A token that begins a word is stored behind U+2581, one within a word without "##".
 *     tokenizer.ggml.normalizer.lowercase (true), .strip_accents (like lowercase)
 *     tokenizer.aprkit.within_words: ids of tokens within words that begin with U+2581 all the same
 * t5: SentencePiece's Unigram without bytes: a map of characters or none, spaces in excess removed, one before each word.
 *     tokenizer.ggml.precompiled_charsmap, remove_extra_whitespaces (false), add_space_prefix (false)
 *     tokenizer.aprkit.log_probs, where scores of 32 bits are not exact
 * In brackets: what a missing key means. Missing ids are llama.cpp's: 101, 100, 102 and 0 of bert, 1, 2 and 0 of t5. */
#ifndef APR_FORMATS_GGUF_VOCAB_KINDS_H
#define APR_FORMATS_GGUF_VOCAB_KINDS_H

#include "formats/model/kv.h"
#include "formats/model/vocab.h"

/* Of WPM or UGM: what neither kind has a key for (a clause, constant), or NULL. */
const char *apr_gguf_kind_obstacle(const apr_vocab *vocab);

/* The first token of a bert whose stored text begins with U+2581 though it begins no word; -1: none. */
int64_t apr_gguf_bert_mistaken(const apr_vocab *vocab);

/* The vocabulary as GGUF's arrays have it; a copy of *vocab where the kind is another. */
apr_status apr_gguf_kind_view(const apr_vocab *vocab, apr_vocab *view, apr_arena *arena, apr_error *err);
/* The keys above and the ids that only these kinds have. */
apr_status apr_gguf_put_kind(const apr_vocab *vocab, apr_kv_list *kv, apr_error *err);

/* Completes a vocabulary of these kinds that has its tokens, types, scores and ids. A t5 whose rules are others becomes
 * APR_VOCAB_NONE with `unsupported`. */
apr_status apr_gguf_read_kind(const apr_kv_list *kv, apr_vocab *vocab, apr_arena *arena, const char *where, apr_error *err);

#endif
