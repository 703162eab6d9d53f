/* vocab.h - a tokenizer as data: tokens, merges, rules, special ids. runtime/tokenizer/tokenizer.h is what encodes with it.
 *
 * Filled from tokenizer.json (+ tokenizer_config.json, generation_config.json, chat_template.jinja), from the arrays of a
 * GGUF, or from an APR's metadata. Strings and arrays belong to the model's arena or map.
 *
 * Stop ids end a turn. They are what a model's files state: eos_token of tokenizer_config.json or special_tokens_map.json, each
 * eos_token_id of generation_config.json, config.json and its text_config; GGUF's eos, eot and eom keys; a list of our own. GGUF has
 * no key for more of them, so there special tokens are stop ids too whose text ends a turn in every model that has it
 * (<|im_end|>, <|eot_id|>, ...). No token is one for padding: it is where it is stated, or by its text in a GGUF that
 * states another end (Qwen pads with <|endoftext|>). eos_id is the token named eos_token, else the first eos_token_id that does not
 * pad. */
#ifndef APR_FORMATS_VOCAB_H
#define APR_FORMATS_VOCAB_H

#include "formats/base/arena.h"
#include "formats/base/status.h"
#include "formats/model/kv.h"

typedef enum {
    APR_VOCAB_NONE,
    APR_VOCAB_BPE, /* byte-level: tokens are written in GPT-2's printable alphabet ("Ġthe"), merges decide */
    APR_VOCAB_SPM, /* SentencePiece BPE: "▁" is a space, unknown bytes are <0xNN>; scores (or merges) decide */
    APR_VOCAB_WPM, /* WordPiece: the longest token that a word begins with, then with `word_prefix` the longest of the rest */
    APR_VOCAB_UGM  /* Unigram: the tokens of a word whose log probabilities have the largest sum */
} apr_vocab_kind;

/* ggml's numbers */
typedef enum {
    APR_TOKEN_NORMAL = 1,
    APR_TOKEN_UNKNOWN = 2,
    APR_TOKEN_CONTROL = 3,
    APR_TOKEN_USER = 4,
    APR_TOKEN_UNUSED = 5,
    APR_TOKEN_BYTE = 6
} apr_token_type;

/* tokenizer.json's flags of an added token; what GGUF cannot say is 0 */
enum { APR_ADDED = 1, APR_ADDED_LSTRIP = 2, APR_ADDED_RSTRIP = 4, APR_ADDED_SINGLE_WORD = 8, APR_ADDED_NORMALIZED = 16 };

enum { APR_MAX_STOP_IDS = 16, APR_MAX_SPLITS = 16, APR_MAX_NORMALS = 16 };

/* What becomes of the matches of a splitting step, as tokenizer.json names it. */
typedef enum {
    APR_SPLIT_ISOLATED,             /* a match is a piece, and so is what lies between two */
    APR_SPLIT_REMOVED,              /* matches are dropped from the text */
    APR_SPLIT_MERGED_WITH_PREVIOUS, /* a match goes with the piece before it */
    APR_SPLIT_MERGED_WITH_NEXT,
    APR_SPLIT_CONTIGUOUS /* neighbouring matches are one piece */
} apr_split_behavior;

/* Where a step puts a space in front of what it is given, unless one is there: ByteLevel's add_prefix_space, Metaspace's schemes. */
typedef enum { APR_SPACE_NEVER, APR_SPACE_ALWAYS, APR_SPACE_AT_START } apr_space_rule;

/* One step of several that cut a text, each cutting the pieces of the one before. */
typedef struct apr_split {
    const char *pattern; /* Oniguruma's dialect */
    apr_split_behavior behavior;
    bool invert;  /* what lies between matches counts as the match */
    bool letters; /* sees a piece in GPT-2's alphabet of bytes: a step behind ByteLevel */
    bool marks;   /* spaces become U+2581 first, also the one in front */
    apr_space_rule space;
} apr_split;

/* What a step does to a text before it is split; tokenizer.json's names. */
typedef enum {
    APR_NORMAL_NFC,
    APR_NORMAL_NFD,
    APR_NORMAL_NFKC,
    APR_NORMAL_NFKD,
    APR_NORMAL_LOWERCASE,
    APR_NORMAL_STRIP_ACCENTS,
    APR_NORMAL_NMT,
    APR_NORMAL_BERT,    /* by `flags` */
    APR_NORMAL_STRIP,   /* by `flags` */
    APR_NORMAL_PREPEND, /* `to` in front of a text that is not empty */
    APR_NORMAL_REPLACE, /* each `from` by `to` */
    APR_NORMAL_PATTERN, /* each match of the expression `from` by `to` */
    APR_NORMAL_CHARSMAP /* by SentencePiece's compiled map, `from` */
} apr_normal_kind;

enum { APR_BERT_CLEAN = 1, APR_BERT_CHINESE = 2, APR_BERT_ACCENTS = 4, APR_BERT_LOWERCASE = 8, APR_STRIP_LEFT = 1, APR_STRIP_RIGHT = 2 };

typedef struct apr_normal {
    apr_normal_kind kind;
    unsigned flags;
    apr_str from, to; /* `from` of a pattern is NUL-terminated */
} apr_normal;

typedef struct apr_vocab {
    apr_vocab_kind kind;
    size_t n_tokens;
    const apr_str *tokens; /* [n_tokens], index = id, UTF-8; holes are "[PADn]" and APR_TOKEN_UNUSED */
    const uint8_t *types;  /* [n_tokens] apr_token_type */
    const uint8_t *added;  /* [n_tokens] flags above, or NULL */
    const float *scores;   /* [n_tokens], SPM; or NULL */
    size_t n_merges;
    const apr_str *merges;     /* [2 * n_merges]: left, right, in order of rank; may be 0 for SPM */
    const char *pre;           /* GGUF's name of the splitting rule ("qwen2", "llama-bpe"), or NULL */
    const char *pattern;       /* the splitting regular expression (Oniguruma's dialect), isolated; or NULL */
    const apr_split *splits;   /* instead of `pattern`: the steps, where it takes more than one isolated expression */
    size_t n_splits;           /* 0 and no pattern: text is not split */
    const char *unsupported;   /* APR_VOCAB_NONE: what the tokenizer has that is not supported ("the model Unigram"), or NULL */
    const apr_normal *normals; /* [n_normals] before a text is split; where there are some, `nfc` and SPM's rules for spaces are off */
    size_t n_normals;
    const char *word_prefix;  /* WPM: in front of tokens that begin no word ("##") */
    size_t max_word_chars;    /* WPM: longer words are unknown */
    const double *log_probs;  /* UGM: [n_tokens] */
    bool nfc;                 /* normalise to NFC first */
    bool ignore_merges;       /* a word that is a token is taken whole (llama 3) */
    bool byte_fallback;       /* SPM: unknown characters become <0xNN> tokens */
    bool add_space_prefix;    /* SPM: "▁" before the text */
    bool prefix_unless_space; /* SPM: but none where the text begins with a space or "▁", as tokenizer.json's Metaspace does */
    bool space_after_added;   /* SPM: and after each added token too, as tokenizer.json's Prepend, Metaspace(always) and llama.cpp do */
    bool escape_spaces;       /* SPM: " " becomes "▁" */
    bool add_bos, add_eos;
    int32_t bos_id, eos_id, pad_id, unk_id; /* -1: none */
    int32_t stop_ids[APR_MAX_STOP_IDS];     /* every id that ends a turn: eos_token_id(s) of generation_config, GGUF's eot/eom and kin */
    size_t n_stop_ids;
    const char *chat_template; /* Jinja, NUL-terminated, or NULL */
} apr_vocab;

/* Adds id to stop_ids once; ids outside the vocabulary and full lists are ignored. */
void apr_vocab_add_stop(apr_vocab *vocab, int64_t id);

/* Does the tokenizer have rules that only tokenizer.json says? Then it travels as that file, and as nothing else. */
bool apr_vocab_needs_file(const apr_vocab *vocab);

/* A step as one line of text, "isolated \\p{N}{1,3}" or "removed,inverted \\w+", for formats that have no place for its parts. */
const char *apr_split_print(const apr_split *split, apr_arena *arena); /* NULL: out of memory */
/* False when the text is no such line; split->pattern then is undefined, else a part of `text`. */
bool apr_split_parse(const char *text, apr_split *split);
/* tokenizer.json's name of a behavior ("MergedWithNext"), and back; false: there is no such behavior. */
const char *apr_split_behavior_name(apr_split_behavior behavior);
bool apr_split_behavior_find(const char *name, apr_split_behavior *behavior);

/* What a GGUF "tokenizer.ggml.pre" name stands for, besides the expression: what the file may leave unsaid. */
typedef struct apr_pre_rule {
    const char *name, *pattern;
    const apr_split *splits; /* where it takes several steps; pattern is NULL then */
    size_t n_splits;
    bool nfc;           /* the model's tokenizer.json normalises to NFC; GGUF has no key for it */
    bool ignore_merges; /* GGUF has no key for it either */
    bool add_bos;       /* when "tokenizer.ggml.add_bos_token" is missing */
} apr_pre_rule;

/* NULL when the name is not known. */
const apr_pre_rule *apr_pre_find(const char *pre);
/* The splitting expression behind a GGUF "tokenizer.ggml.pre" name, or NULL when the name is not known. */
const char *apr_pre_pattern(const char *pre);
/* The GGUF name for a splitting expression of tokenizer.json, or NULL. tokenizer.json's ByteLevel(use_regex) is "gpt-2",
 * Digits(individual_digits) before it "starcoder". */
const char *apr_pre_name(const char *pattern);
/* The rule to name for a byte-level vocabulary: its own name's if that says what it does, else one of the same expression
 * that agrees in the most of what a name stands for (whole words first, then NFC). NULL: no name has its expression. */
const apr_pre_rule *apr_pre_of(const apr_vocab *vocab);

#endif
