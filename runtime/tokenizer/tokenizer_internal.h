/* tokenizer_internal.h - shared by the files of the tokenizer: its tables, the scratch memory of one call, the steps of encoding.
 *
 *   tokenizer_text.c    characters of UTF-8 text, GPT-2's byte alphabet
 *   tokenizer_table.c   finds tokens and merges
 *   tokenizer_work.c    the memory of one call to encode; merges symbols by priority, for BPE and SentencePiece
 *   tokenizer_regex.c   regular expressions (tokenizer_regex.h)
 *   tokenizer_normalize.c  normalizers: change the text before it is split
 *   tokenizer_added.c   finds added tokens, before any other step
 *   tokenizer_split.c   pre-tokenizers: split text into words by regular expressions
 *   tokenizer_bpe.c     byte-level BPE
 *   tokenizer_spm.c     SentencePiece BPE: spaces, scores, byte fallback
 *   tokenizer_wpm.c     WordPiece: longest match from the left
 *   tokenizer_ugm.c     Unigram: most probable tokens
 *   tokenizer.c         open, close, encode, decode */
#ifndef APR_RUNTIME_TOKENIZER_INTERNAL_H
#define APR_RUNTIME_TOKENIZER_INTERNAL_H

#include "formats/base/grow.h"
#include "formats/vocab/special_tokens.h"
#include "runtime/tokenizer/tokenizer.h"
#include "runtime/tokenizer/tokenizer_regex.h"

/* Hash table text -> id: open addressing with a random seed, so that a crafted file cannot cause collisions. */
typedef struct apr_token_table {
    int32_t *slots; /* [mask + 1], -1 is empty */
    size_t mask;
    uint64_t seed;
    size_t max_bytes; /* the longest token in it */
} apr_token_table;

/* An entry of the hash table (left id, right id) -> rank and merged id. */
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
    apr_str text; /* the text to match; normalised if the token is matched in normalised text */
    int32_t id;
    uint8_t flags;
    bool control; /* recognised only when special tokens are parsed */
} apr_added_token;

/* Tokens sorted by their bytes; those that begin with byte b are tokens[first[b], first[b + 1]). */
typedef struct apr_added_set {
    apr_added_token *tokens;
    size_t n_tokens;
    size_t first[257];
} apr_added_set;

/* A symbol (byte, character or merged token) of the word being encoded: an entry of a doubly linked list in text order. */
typedef struct apr_symbol {
    int32_t prev, next; /* -1: none */
    int32_t id;         /* -1: not a token */
    uint32_t start, n_bytes;
} apr_symbol;

/* Two neighbouring symbols that can be merged. The smallest (key, left) is merged first. */
typedef struct apr_merge_candidate {
    uint32_t key;
    int32_t left;
    uint32_t n_bytes; /* of both symbols; differs from their current size if one was merged since (a stale candidate) */
    int32_t merged;
} apr_merge_candidate;

/* A compiled splitting step. */
typedef struct apr_splitter {
    pcre2_code *code;
    apr_split_behavior behavior;
    bool invert, letters, marks;
    apr_space_rule space;
} apr_splitter;

/* A compiled normalization step. */
typedef struct apr_normalizer {
    const apr_normal *step;
    pcre2_code *code; /* of APR_NORMAL_PATTERN */
} apr_normalizer;

/* UGM: the most probable tokens of a word up to a position. */
typedef struct apr_best_path {
    double score;
    int32_t from, id; /* start and id of the last token; from = -1: no path yet */
} apr_best_path;

/* The output of one splitting step, and its buffers. */
typedef struct apr_split_work {
    apr_matches found;
    char *letters; /* the piece in GPT-2's byte alphabet, if the step splits that */
    size_t letters_capacity;
    char *marked; /* the piece with a leading space or U+2581, if the step adds one */
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
    apr_split_work splits[APR_MAX_SPLITS]; /* one per step */
    apr_matcher matcher;
    bool at_start; /* the text being split is at the start of the whole text */
    apr_best_path *paths;
    size_t paths_capacity;
    char *escaped; /* text in the form of the vocabulary: spaces as U+2581, or a word in the byte alphabet */
    size_t escaped_capacity;
} apr_token_work;

struct apr_tokenizer {
    const apr_vocab *vocab;
    apr_arena arena;
    apr_token_table tokens;
    apr_merge_table merges;
    apr_added_set raw, normalized; /* matched before and after normalisation */
    apr_added_set pieces;          /* UGM: tokens except control tokens, by their bytes */
    double unknown_score;          /* UGM: score of a character without a token */
    apr_normalizer normalizers[APR_MAX_NORMALS];
    size_t n_normalizers;
    apr_splitter splitters[APR_MAX_SPLITS];
    size_t n_splitters;    /* 0: text is not split */
    int32_t byte_ids[256]; /* the token of each byte, -1: none */
};

/* Encodes a word without added tokens: appends its ids to work->ids. */
typedef apr_status apr_encode_step(const apr_tokenizer *tokenizer, apr_token_work *work, const char *text, size_t n_bytes);

/* --- tokenizer_text.c --- */

static const char apr_space_mark[] = APR_SPACE_MARK;
enum { APR_MARK_BYTES = 3 };

/* The bytes of the character at p, which is UTF-8. */
static inline size_t apr_char_bytes(const char *p)
{
    const uint8_t lead = (uint8_t)*p;
    return lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}
/* Of UTF-8. */
static inline size_t apr_count_chars(const char *text, size_t n_bytes)
{
    size_t n = 0;
    for (size_t i = 0; i < n_bytes; i++) n += ((uint8_t)text[i] & 0xc0) != 0x80;
    return n;
}
int32_t apr_char_at(const char *text, size_t n_bytes, size_t at, size_t *used); /* -1: not UTF-8 */
int32_t apr_char_before(const char *text, size_t at, size_t *used);
bool apr_is_white_space(int32_t c); /* Unicode's White_Space */

/* GPT-2's byte alphabet: bytes that are printable in Latin-1 map to themselves, the other 68 to the code points from 256 on, in order. */
static inline bool apr_byte_prints(unsigned byte) { return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae; }
static inline unsigned apr_letter_of(uint8_t byte)
{
    return apr_byte_prints(byte) ? byte : byte <= ' ' ? 256u + byte : byte < 0xad ? 256u + 33 + (byte - 0x7fu) : 256u + 67;
}
/* -1: the letter is not in the alphabet. */
static inline int apr_byte_of_letter(int32_t letter)
{
    if (letter < 256) return apr_byte_prints((unsigned)letter) ? letter : -1;
    return letter < 256 + 33 ? letter - 256 : letter < 256 + 67 ? letter - (256 + 33) + 0x7f : letter == 256 + 67 ? 0xad : -1;
}
/* Writes bytes as letters of the alphabet; dst holds 2 * n_bytes. Returns the number of bytes written. */
size_t apr_write_letters(const char *text, size_t n_bytes, char *dst);

/* --- tokenizer_table.c --- */

apr_status apr_token_table_open(apr_token_table *table, const apr_vocab *vocab, apr_arena *arena, apr_error *err);
int32_t apr_token_table_find(const apr_token_table *table, const apr_vocab *vocab, const char *text, size_t n_bytes); /* -1: none */
/* APR_E_DAMAGED: a merge names a token that does not exist. */
apr_status apr_merge_table_open(apr_merge_table *table, const apr_vocab *vocab, const apr_token_table *tokens, apr_arena *arena,
                                apr_error *err);
const apr_merge_slot *apr_merge_table_find(const apr_merge_table *table, int32_t left, int32_t right); /* NULL: none */
/* Sorts set->tokens by their bytes and id, and fills `first`. */
void apr_set_index(apr_added_set *set);
/* Narrows [*low, *high) to the tokens whose byte `depth` is `byte`. All tokens of the range must be longer than `depth` and have the same
 * first `depth` bytes. */
void apr_set_narrow(const apr_added_set *set, size_t depth, uint8_t byte, size_t *low, size_t *high);

/* --- tokenizer_work.c --- */

apr_status apr_grow_escaped(apr_token_work *work, size_t n_bytes);
apr_status apr_push_id(apr_token_work *work, int32_t id);
/* Byte fallback: appends the byte tokens of a text. *has_bytes is false, and nothing is appended, if a byte has no token. */
apr_status apr_push_bytes(const apr_tokenizer *tokenizer, apr_token_work *work, const char *text, size_t n_bytes, bool *has_bytes);
void apr_find_byte_ids(apr_tokenizer *tokenizer);
/* Appends a symbol to the word; work->n_symbols = 0 starts a new word. */
apr_status apr_push_symbol(apr_token_work *work, int32_t id, size_t start, size_t n_bytes);
/* Merges work->symbols until nothing can be merged; symbol 0 is the head of the resulting list. */
apr_status apr_merge_symbols(const apr_tokenizer *tokenizer, apr_token_work *work, const char *text);

/* --- tokenizer_normalize.c --- */

apr_status apr_normal_open(apr_tokenizer *tokenizer, apr_error *err);
/* The text (UTF-8) after all steps, malloc'ed. *keeps_start: its first character comes from the text's first character. */
apr_status apr_normalize(const apr_tokenizer *tokenizer, apr_str text, char **normalized, size_t *n_bytes, bool *keeps_start,
                         apr_error *err);
/* True if spaces are replaced by the normalizers Prepend and Replace of tokenizer.json: then added tokens are matched in their output.
 * False for Metaspace, a pre-tokenizer, which runs after that matching. */
bool apr_spm_normalizes(const apr_vocab *vocab);
/* Writes the text with spaces as the vocabulary has them (U+2581), after a leading space if has_prefix. `to` holds
 * apr_spm_normalized_bytes. Returns the length. */
size_t apr_spm_normalize(const apr_vocab *vocab, const char *text, size_t n_bytes, bool has_prefix, char *to);
size_t apr_spm_normalized_bytes(const apr_vocab *vocab, const char *text, size_t n_bytes, bool has_prefix);

/* --- tokenizer_added.c --- */

apr_status apr_added_open(apr_tokenizer *tokenizer, apr_error *err);
typedef struct apr_added_match {
    size_t start, end;            /* bytes of the token, including white space that it strips (lstrip, rstrip) */
    const apr_added_token *token; /* NULL: no further match */
} apr_added_match;
/* The first match at or after `from`; start is never before `from`. */
apr_added_match apr_added_next(const apr_added_set *set, const char *text, size_t n_bytes, size_t from, bool parse_special);

/* --- tokenizer_split.c --- */

apr_status apr_split_open(apr_tokenizer *tokenizer, apr_error *err);
/* Splits the text into words and calls `step` for each. */
apr_status apr_split_text(const apr_tokenizer *tokenizer, apr_token_work *work, const char *text, size_t n_bytes, apr_encode_step *step);
void apr_split_close_work(apr_token_work *work);

/* --- the algorithm of each kind of vocabulary --- */

typedef struct apr_algorithm {
    apr_status (*open)(apr_tokenizer *tokenizer, apr_error *err); /* makes its tables */
    /* Appends the ids of a text between added tokens; at_start: adds the leading space. NULL: splits it, and encodes each word. */
    apr_status (*encode)(const apr_tokenizer *tokenizer, apr_token_work *work, const char *text, size_t n_bytes, bool at_start);
    apr_encode_step *encode_word;
    /* The bytes of an ordinary token: returns their number, writes at most `capacity`. */
    size_t (*bytes)(const apr_tokenizer *tokenizer, int32_t id, char *dst, size_t capacity);
} apr_algorithm;
extern const apr_algorithm apr_algorithm_bpe, apr_algorithm_spm, apr_algorithm_wpm, apr_algorithm_ugm;

#endif
