/* tokenizer_internal.h - what the parts of the tokenizer share: its tables, the scratch memory of one call, the steps.
 *
 *   tokenizer.c        open, close, encode in order, decode
 *   tokenizer_added.c  tokens that are cut out of the text before anything else
 *   tokenizer_normal.c the steps that change text before it is cut
 *   tokenizer_unicode.c  what kind of character it is to them
 *   tokenizer_split.c  the steps that cut text into words, each a regular expression
 *   tokenizer_regex.c  such an expression, from the dialect it is written in to PCRE2's (tokenizer_regex.h)
 *   tokenizer_table.c  text -> id, (id, id) -> merge
 *   tokenizer_merge.c  symbols merged by priority, for both kinds
 *   tokenizer_bpe.c    byte-level BPE: the alphabet of bytes
 *   tokenizer_spm.c    SentencePiece: spaces, scores, bytes as a last resort
 *   tokenizer_wpm.c    WordPiece: the longest tokens from the left
 *   tokenizer_ugm.c    Unigram: the most probable tokens */
#ifndef APR_RUNTIME_TOKENIZER_INTERNAL_H
#define APR_RUNTIME_TOKENIZER_INTERNAL_H

#define PCRE2_CODE_UNIT_WIDTH 8
#include "runtime/tokenizer/tokenizer.h"

#include <pcre2.h>

/* Text -> id: open addressing, keyed so that a file cannot choose its collisions. */
typedef struct apr_token_table {
    int32_t *slots; /* [mask + 1], -1 is empty */
    size_t mask;
    uint64_t seed;
    size_t max_bytes; /* the longest token in it */
} apr_token_table;

/* (left id, right id) -> rank and merged id. */
typedef struct apr_merge_slot {
    int32_t left, right; /* left = -1 is empty */
    uint32_t rank;
    int32_t merged;
} apr_merge_slot;

typedef struct apr_merge_table {
    apr_merge_slot *slots;
    size_t mask;
    uint64_t seed;
} apr_merge_table;

typedef struct apr_added_token {
    apr_str text; /* as it is looked for: normalised, for a token that is matched in normalised text */
    int32_t id;
    uint8_t flags;
    bool control; /* recognised only when special tokens are parsed */
} apr_added_token;

/* Added tokens sorted by their bytes; those that begin with byte b are [first[b], first[b + 1]). */
typedef struct apr_added_set {
    apr_added_token *tokens;
    size_t n_tokens;
    size_t first[257];
} apr_added_set;

/* A piece of text being merged: a doubly linked list in an array, in the order of the text. */
typedef struct apr_symbol {
    int32_t prev, next; /* -1: none */
    int32_t id;         /* -1: not a token */
    uint32_t start, n_bytes;
} apr_symbol;

/* Two neighbours that could be merged. The smallest (key, left) goes first. */
typedef struct apr_merge_candidate {
    uint32_t key;
    int32_t left;
    uint32_t n_bytes; /* of both; no longer true when one of them was merged meanwhile */
    int32_t merged;
} apr_merge_candidate;

/* A step that cuts text, ready to run. */
typedef struct apr_splitter {
    pcre2_code *code;
    apr_split_behavior behavior;
    bool invert, letters, marks;
    apr_space_rule space;
} apr_splitter;

/* A step that changes text, ready to run. */
typedef struct apr_normalizer {
    const apr_normal *step;
    pcre2_code *code; /* of APR_NORMAL_PATTERN */
} apr_normalizer;

/* UGM: the best way to a place of a word. */
typedef struct apr_best_path {
    double score;
    int32_t from, id; /* from = -1: none was found yet */
} apr_best_path;

/* A piece of a text: bytes [start, end). */
typedef struct apr_span {
    uint32_t start, end;
    bool is_match;
} apr_span;

/* Pieces that one step made, and the piece in GPT-2's alphabet where it wants that. */
typedef struct apr_split_work {
    pcre2_match_data *match_data;
    apr_span *spans;
    size_t n_spans, capacity;
    char *letters;
    size_t letters_capacity;
    char *marked; /* the piece with its space in front, where the step puts one there */
    size_t marked_capacity;
} apr_split_work;

/* Scratch memory of one call to encode, and its result. */
typedef struct apr_token_work {
    const apr_encode_options *options;
    apr_error *err;
    int32_t *ids;
    size_t n_ids, ids_capacity;
    apr_symbol *symbols;
    size_t n_symbols, symbols_capacity;
    apr_merge_candidate *heap;
    size_t n_heap, heap_capacity;
    apr_split_work splits[APR_MAX_SPLITS]; /* one a step */
    pcre2_match_context *match_context;    /* NULL: splitting has not begun */
    pcre2_jit_stack *jit_stack;
    bool at_start; /* the text that is split begins the whole text */
    apr_best_path *paths;
    size_t paths_capacity;
    double split_until; /* when splitting has taken too long, seconds of the monotonic clock */
    char *escaped;      /* a text as tokens are written: spaces as U+2581, or a word in the alphabet of bytes */
    size_t escaped_capacity;
} apr_token_work;

struct apr_tokenizer {
    const apr_vocab *vocab;
    apr_arena arena;
    apr_token_table tokens;
    apr_merge_table merges;
    apr_added_set raw, normalized; /* matched before and after normalisation */
    apr_added_set pieces;          /* UGM: tokens except control tokens, by their bytes */
    double unknown_score;          /* UGM: of a character without a token */
    apr_normalizer normalizers[APR_MAX_NORMALS];
    size_t n_normalizers;
    apr_splitter splitters[APR_MAX_SPLITS];
    size_t n_splitters;        /* 0: text is not split */
    int32_t byte_ids[256];     /* the token of each byte, -1: none */
    uint16_t code_points[256]; /* BPE: byte -> its letter in GPT-2's alphabet */
    int16_t letters[512];      /* BPE: and back; -1: no letter of it */
};

/* Text without added tokens -> symbols -> ids. */
typedef apr_status apr_encode_step(const apr_tokenizer *tokenizer, apr_token_work *work, const char *text, size_t n_bytes);

/* tokenizer_table.c */
apr_status apr_token_table_open(apr_token_table *table, const apr_vocab *vocab, apr_arena *arena, apr_error *err);
int32_t apr_token_table_find(const apr_token_table *table, const apr_vocab *vocab, const char *text, size_t n_bytes); /* -1: none */
/* APR_E_DAMAGED when a merge names a token that is not there. */
apr_status apr_merge_table_open(apr_merge_table *table, const apr_vocab *vocab, const apr_token_table *tokens, apr_arena *arena,
                                apr_error *err);
const apr_merge_slot *apr_merge_table_find(const apr_merge_table *table, int32_t left, int32_t right); /* NULL: none */

/* tokenizer_spm.c: Prepend and Replace are normalizers of tokenizer.json, so added tokens that are looked for in normalised text see
 * their work. Metaspace is a pre-tokenizer, which they do not. */
bool apr_spm_normalizes(const apr_vocab *vocab);
/* n_bytes of text (has_prefix: behind a space) with spaces as tokens have them; at most MARK_BYTES times as long and a mark. Answers the length. */
size_t apr_spm_normalize(const apr_vocab *vocab, const char *text, size_t n_bytes, bool has_prefix, char *to);
size_t apr_spm_normalized_bytes(const apr_vocab *vocab, const char *text, size_t n_bytes, bool has_prefix);

/* tokenizer_added.c */
/* Sorts set->tokens by their bytes and id, and fills `first`. */
void apr_set_index(apr_added_set *set);
/* The part of [*low, *high) whose byte `depth` is `byte`; all of it is longer than `depth` and equal before. */
void apr_set_narrow(const apr_added_set *set, size_t depth, uint8_t byte, size_t *low, size_t *high);
int32_t apr_char_at(const char *text, size_t n_bytes, size_t at, size_t *used); /* -1: not UTF-8 */
int32_t apr_char_before(const char *text, size_t at, size_t *used);
bool apr_is_white_space(int32_t c); /* Unicode's White_Space */
bool apr_token_is_added(const apr_vocab *vocab, size_t id);
bool apr_token_is_control(const apr_vocab *vocab, size_t id);
apr_status apr_added_open(apr_tokenizer *tokenizer, apr_error *err);
typedef struct apr_added_match {
    size_t start, end;            /* what the token covers, with the spaces that it swallows */
    const apr_added_token *token; /* NULL: no further match */
} apr_added_match;
/* The first match at or after `from`; nothing before `from` is swallowed. */
apr_added_match apr_added_next(const apr_added_set *set, const char *text, size_t n_bytes, size_t from, bool parse_special);

/* tokenizer_unicode.c: as Hugging Face's tokenizers knows characters */
bool apr_char_is_mark(int32_t c);
bool apr_char_is_nonspacing(int32_t c);
bool apr_char_is_other(int32_t c);    /* control, format and private characters */
bool apr_char_stays_whole(int32_t c); /* no normal form takes it apart */
int32_t apr_char_lower(int32_t c);

/* tokenizer_normal.c */
apr_status apr_normal_open(apr_tokenizer *tokenizer, apr_error *err);
void apr_normal_close(apr_tokenizer *tokenizer);
/* The text (UTF-8) after all steps, malloc'ed. *keeps_start: its first character comes of the text's first one. */
apr_status apr_normalize(const apr_tokenizer *tokenizer, apr_str text, char **normalized, size_t *n_bytes, bool *keeps_start,
                         apr_error *err);

/* tokenizer_split.c */
/* An expression of Oniguruma's dialect, compiled. */
apr_status apr_pattern_code(const char *pattern, pcre2_code **code, apr_error *err);
/* Its matches in a text, malloc'ed; no step of a tokenizer, but with the same limits. */
apr_status apr_find_matches(pcre2_code *code, const char *text, size_t n_bytes, apr_span **spans, size_t *n_spans, apr_error *err);
apr_status apr_split_open(apr_tokenizer *tokenizer, apr_error *err);
void apr_split_close(apr_tokenizer *tokenizer);
/* Hands each word of the text to `step`. */
apr_status apr_split_text(const apr_tokenizer *tokenizer, apr_token_work *work, const char *text, size_t n_bytes, apr_encode_step *step);
void apr_split_close_work(apr_token_work *work);

/* tokenizer_merge.c */
apr_status apr_push_id(apr_token_work *work, int32_t id);
/* Appends a symbol behind the last one; work->n_symbols = 0 starts a word. */
apr_status apr_push_symbol(apr_token_work *work, int32_t id, size_t start, size_t n_bytes);
/* Merges work->symbols until nothing can be merged; symbol 0 is the head of what is left. */
apr_status apr_merge_symbols(const apr_tokenizer *tokenizer, apr_token_work *work, const char *text);
/* The array with room for `n` elements at least; NULL, and the array as it was, when memory is out. */
void *apr_grow(void *array, size_t *capacity, size_t n, size_t elem_bytes);
apr_status apr_grow_escaped(apr_token_work *work, size_t n_bytes);

/* The alphabet of bytes: letters[], code_points[]. */
void apr_bpe_make_alphabet(apr_tokenizer *tokenizer);
/* Bytes as letters of it; dst has room for two bytes each. Returns how many were written. */
size_t apr_bpe_write_letters(const apr_tokenizer *tokenizer, const char *text, size_t n_bytes, char *dst);

/* tokenizer_bpe.c, tokenizer_spm.c: tables of the kind; ids of a text between added tokens (`at_start`: where a space goes in front);
 * the bytes of an ordinary token (returns how many, writes at most `capacity`) */
apr_status apr_bpe_open(apr_tokenizer *tokenizer, apr_error *err);
apr_status apr_bpe_encode(const apr_tokenizer *tokenizer, apr_token_work *work, const char *text, size_t n_bytes, bool at_start);
size_t apr_bpe_bytes(const apr_tokenizer *tokenizer, int32_t id, char *dst, size_t capacity);
apr_status apr_spm_open(apr_tokenizer *tokenizer, apr_error *err);
apr_status apr_spm_encode(const apr_tokenizer *tokenizer, apr_token_work *work, const char *text, size_t n_bytes, bool at_start);
size_t apr_spm_bytes(const apr_tokenizer *tokenizer, int32_t id, char *dst, size_t capacity);
apr_status apr_wpm_open(apr_tokenizer *tokenizer, apr_error *err);
apr_status apr_wpm_encode(const apr_tokenizer *tokenizer, apr_token_work *work, const char *text, size_t n_bytes, bool at_start);
size_t apr_wpm_bytes(const apr_tokenizer *tokenizer, int32_t id, char *dst, size_t capacity);
apr_status apr_ugm_open(apr_tokenizer *tokenizer, apr_error *err);
apr_status apr_ugm_encode(const apr_tokenizer *tokenizer, apr_token_work *work, const char *text, size_t n_bytes, bool at_start);
size_t apr_ugm_bytes(const apr_tokenizer *tokenizer, int32_t id, char *dst, size_t capacity);
/* Ids of the bytes of a text without a token: false, where some byte has none. */
apr_status apr_push_bytes(const apr_tokenizer *tokenizer, apr_token_work *work, const char *text, size_t n_bytes, bool *has_bytes);
void apr_find_byte_ids(apr_tokenizer *tokenizer);
/* Order-preserving: the higher the score, the smaller the key (NaN included). */
uint32_t apr_score_key(float score);

#endif
