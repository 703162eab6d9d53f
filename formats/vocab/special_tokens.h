/* special_tokens.h - the tokens that a vocabulary names by their role, with the keys of each format; and what a token's type says. */
#ifndef APR_FORMATS_SPECIAL_TOKENS_H
#define APR_FORMATS_SPECIAL_TOKENS_H

#include "formats/vocab/vocab.h"

#define APR_SPACE_MARK "\xe2\x96\x81" /* U+2581, SentencePiece's visible space */

/* In the order of GGUF's keys. Keys of tokens that only end a turn are in gguf_stops.h. */
enum { APR_SPECIAL_BOS, APR_SPECIAL_EOS, APR_SPECIAL_UNK, APR_SPECIAL_PAD, APR_N_SPECIALS };

typedef struct apr_special_token {
    size_t offset;          /* of the id in apr_vocab */
    const char *hf_token;   /* tokenizer_config.json's key of the text */
    const char *hf_id;      /* the key of the id in generation_config.json and config.json */
    const char *gguf_key;   /* of the id */
    const char *apr_key;    /* of the id; NULL: none */
    int16_t bert_id, t5_id; /* llama.cpp's id where a GGUF of these kinds has no key; -1: none */
} apr_special_token;

extern const apr_special_token apr_special_tokens[APR_N_SPECIALS];
extern const apr_vocab apr_empty_vocab; /* no tokens, and no special ones */

static inline int32_t *apr_special_id(apr_vocab *v, size_t role)
{
    return (int32_t *)(void *)((char *)v + apr_special_tokens[role].offset);
}
static inline int32_t apr_special_id_of(const apr_vocab *v, size_t role)
{
    return *(const int32_t *)(const void *)((const char *)v + apr_special_tokens[role].offset);
}

static inline bool apr_vocab_has_id(const apr_vocab *v, int64_t id) { return id >= 0 && (uint64_t)id < v->n_tokens; }

/* --- types --- */

static inline int apr_token_type_of(const apr_vocab *v, size_t id) { return v->types != NULL ? v->types[id] : APR_TOKEN_NORMAL; }
static inline bool apr_type_is_control(int type) { return type == APR_TOKEN_CONTROL || type == APR_TOKEN_UNKNOWN; }
/* True: readers without a table of flags match such tokens before a text is split. */
static inline bool apr_type_is_added(int type) { return apr_type_is_control(type) || type == APR_TOKEN_USER; }

static inline bool apr_token_is_control(const apr_vocab *v, size_t id) { return apr_type_is_control(apr_token_type_of(v, id)); }
static inline bool apr_token_is_added(const apr_vocab *v, size_t id)
{
    return v->added != NULL ? (v->added[id] & APR_ADDED) != 0 : apr_type_is_added(apr_token_type_of(v, id));
}

/* The flags of tokenizer.json's added tokens, in the order in which they are written. */
enum { APR_N_ADDED_FLAGS = 4 };
typedef struct apr_added_flag {
    const char *key;
    uint8_t flag;
} apr_added_flag;
extern const apr_added_flag apr_added_flags[APR_N_ADDED_FLAGS];

#endif
