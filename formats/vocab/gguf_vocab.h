/* gguf_vocab.h - GGUF's tokenizer.* keys and the vocabulary: read and written.
 *
 * GGUF's tokenizers "bert" (WordPiece) and "t5" (Unigram): what they can express, and their keys.
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
#ifndef APR_FORMATS_GGUF_VOCAB_H
#define APR_FORMATS_GGUF_VOCAB_H

#include "formats/tensor/model.h"

/* Reads the tokenizer from GGUF's keys. Missing values stay 0 or none. */
apr_status apr_gguf_vocab(const apr_kv_list *kv, apr_vocab *vocab, apr_arena *arena, const char *where, apr_error *err);
/* Writes the named chat templates of tokenizer_config.json and of additional_chat_templates/. */
apr_status apr_gguf_put_templates(const apr_model *layout, apr_kv_list *kv, apr_error *err);
/* Why a GGUF cannot hold this tokenizer (a clause, allocated in the arena), or NULL. */
apr_status apr_gguf_vocab_obstacle(const apr_vocab *vocab, apr_arena *arena, const char **obstacle, apr_error *err);
/* The first token of a bert whose stored text begins with U+2581 although it does not begin a word; -1: none. */
int64_t apr_gguf_bert_ambiguous(const apr_vocab *vocab);
/* Appends the tokenizer's keys. What GGUF has no key for is kept under tokenizer.aprkit.*. */
apr_status apr_gguf_vocab_keys(const apr_vocab *vocab, apr_kv_list *kv, apr_error *err);
/* Appends or replaces an array. `elems` are borrowed: apr_str for APR_KV_STRING, numbers in the file's form otherwise. */
apr_status apr_gguf_put_array(apr_kv_list *kv, const char *key, apr_kv_type type, const void *elems, size_t n, apr_error *err);

#endif
