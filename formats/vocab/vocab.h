/* vocab.h - a tokenizer as data: tokens, merges, rules, special ids. runtime/tokenizer/tokenizer.h encodes with it.
 *
 * It is read from tokenizer.json (+ tokenizer_config.json, generation_config.json, chat_template.jinja), from the arrays of a GGUF, or from
 * an APR's metadata. Strings and arrays belong to the model's arena or map.
 *
 * Stop ids end a turn. They are those that a model's files state: eos_token of tokenizer_config.json or special_tokens_map.json; each
 * eos_token_id of generation_config.json, config.json and its text_config; GGUF's eos, eot and eom keys, and a list under a key of our
 * own. GGUF has no key for further ids. So in a GGUF special tokens whose text ends a turn in every model that has it (<|im_end|>,
 * <|eot_id|>, ...) are stop ids as well. A padding token is a stop id only where it is stated, or by its text in a GGUF that states
 * another end (Qwen pads with <|endoftext|>). eos_id is the token named eos_token, otherwise the first eos_token_id that is not the
 * padding token. */
#ifndef APR_FORMATS_VOCAB_H
#define APR_FORMATS_VOCAB_H

#include "formats/base/arena.h"
#include "formats/base/status.h"
#include "formats/tensor/kv.h"

typedef enum {
    APR_VOCAB_NONE,
    APR_VOCAB_BPE, /* byte-level: tokens are written in GPT-2's printable alphabet ("Ġthe"), merges decide */
    APR_VOCAB_SPM, /* SentencePiece BPE: "▁" is a space, unknown bytes are <0xNN>; scores (or merges) decide */
    APR_VOCAB_WPM, /* WordPiece: the longest token that the word begins with; then, with `word_prefix`, the longest prefix of the rest */
    APR_VOCAB_UGM  /* Unigram: the split of a word with the largest sum of log probabilities */
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

/* tokenizer.json's flags of an added token; flags that GGUF cannot express are 0 */
enum { APR_ADDED = 1, APR_ADDED_LSTRIP = 2, APR_ADDED_RSTRIP = 4, APR_ADDED_SINGLE_WORD = 8, APR_ADDED_NORMALIZED = 16 };

enum { APR_MAX_STOP_IDS = 16, APR_MAX_SPLITS = 16, APR_MAX_NORMALS = 16 };

/* What a splitting step does with its matches; tokenizer.json's names. */
typedef enum {
    APR_SPLIT_ISOLATED,             /* a match is a piece, and so is the text between two matches */
    APR_SPLIT_REMOVED,              /* matches are dropped from the text */
    APR_SPLIT_MERGED_WITH_PREVIOUS, /* a match is appended to the piece before it */
    APR_SPLIT_MERGED_WITH_NEXT,
    APR_SPLIT_CONTIGUOUS /* neighbouring matches are one piece */
} apr_split_behavior;

/* Whether a step puts a space before its input, unless it begins with one: ByteLevel's add_prefix_space, Metaspace's schemes. */
typedef enum { APR_SPACE_NEVER, APR_SPACE_ALWAYS, APR_SPACE_AT_START } apr_space_rule;

/* A splitting step. Each step splits the pieces of the step before. */
typedef struct apr_split {
    const char *pattern; /* Oniguruma's syntax */
    apr_split_behavior behavior;
    bool invert;  /* the text between matches counts as the match */
    bool letters; /* matches pieces in GPT-2's byte alphabet: a step after ByteLevel */
    bool marks;   /* spaces become U+2581 first, including the added one */
    apr_space_rule space;
} apr_split;

/* A normalization step, before the text is split; tokenizer.json's names. */
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
    APR_NORMAL_PREPEND, /* `to` before a text that is not empty */
    APR_NORMAL_REPLACE, /* replaces each `from` by `to` */
    APR_NORMAL_PATTERN, /* replaces each match of the expression `from` by `to` */
    APR_NORMAL_CHARSMAP /* SentencePiece's compiled map, `from` */
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
    const apr_str *tokens; /* [n_tokens], index = id, UTF-8; unused ids are "[PADn]" with APR_TOKEN_UNUSED */
    const uint8_t *types;  /* [n_tokens] apr_token_type */
    const uint8_t *added;  /* [n_tokens] flags above, or NULL */
    const float *scores;   /* [n_tokens], SPM; or NULL */
    size_t n_merges;
    const apr_str *merges;     /* [2 * n_merges]: left, right, in order of rank; SPM may have none */
    const char *pre;           /* GGUF's name of the splitting rule ("qwen2", "llama-bpe"), or NULL */
    const char *pattern;       /* the splitting regular expression (Oniguruma's syntax), isolated; or NULL */
    const apr_split *splits;   /* replaces `pattern` where the split needs more than one isolated expression */
    size_t n_splits;           /* 0 and no pattern: text is not split */
    const char *unsupported;   /* APR_VOCAB_NONE: the unsupported feature of the tokenizer ("the model Unigram"), or NULL */
    const apr_normal *normals; /* [n_normals] run before the split; if there are any, `nfc` and SPM's rules for spaces do not apply */
    size_t n_normals;
    const char *word_prefix;  /* WPM: prefix of tokens that do not begin a word ("##") */
    size_t max_word_chars;    /* WPM: longer words are unknown */
    const double *log_probs;  /* UGM: [n_tokens] */
    bool nfc;                 /* normalize to NFC first */
    bool ignore_merges;       /* a word that is a token is not split by merges (llama 3) */
    bool byte_fallback;       /* SPM: unknown characters become <0xNN> tokens */
    bool add_space_prefix;    /* SPM: "▁" is put before the text */
    bool prefix_unless_space; /* SPM: not if the text begins with a space or "▁", as in tokenizer.json's Metaspace */
    bool space_after_added;   /* SPM: also after each added token, as in tokenizer.json's Prepend and Metaspace(always), and in llama.cpp */
    bool escape_spaces;       /* SPM: " " becomes "▁" */
    bool add_bos, add_eos;
    int32_t bos_id, eos_id, pad_id, unk_id; /* -1: none */
    int32_t stop_ids[APR_MAX_STOP_IDS];     /* all ids that end a turn: eos_token_id(s) of generation_config, GGUF's eot/eom, ... */
    size_t n_stop_ids;
    const char *chat_template; /* Jinja, NUL-terminated, or NULL */
} apr_vocab;

/* Adds id to stop_ids, once. Ids outside the vocabulary are ignored, and so are ids when the list is full. */
void apr_vocab_add_stop(apr_vocab *vocab, int64_t id);

/* Does the tokenizer have rules that only tokenizer.json can express? Then it can only be copied as that file. */
bool apr_vocab_needs_file(const apr_vocab *vocab);

/* A splitting step as one line, "isolated \\p{N}{1,3}" or "removed,inverted \\w+", for formats without fields for it. */
const char *apr_split_print(const apr_split *split, apr_arena *arena); /* NULL: out of memory */
/* False when the text is not such a line; split->pattern is undefined then. Otherwise it points into `text`. */
bool apr_split_parse(const char *text, apr_split *split);
/* tokenizer.json's name of a behavior ("MergedWithNext") and back; false: there is no such behavior. */
const char *apr_split_behavior_name(apr_split_behavior behavior);
bool apr_split_behavior_find(const char *name, apr_split_behavior *behavior);

/* What a GGUF "tokenizer.ggml.pre" name means: the expression, and defaults that the file may leave out. */
typedef struct apr_pre_rule {
    const char *name, *pattern;
    const apr_split *splits; /* where it needs several steps; pattern is NULL then */
    size_t n_splits;
    bool nfc;           /* the model's tokenizer.json normalizes to NFC; GGUF has no key for it */
    bool ignore_merges; /* GGUF has no key for this either */
    bool add_bos;       /* default of "tokenizer.ggml.add_bos_token" */
} apr_pre_rule;

/* NULL for an unknown name. */
const apr_pre_rule *apr_pre_find(const char *pre);
/* The splitting expression of a GGUF "tokenizer.ggml.pre" name; NULL for an unknown name. */
const char *apr_pre_pattern(const char *pre);
/* The GGUF name of a splitting expression of tokenizer.json, or NULL. tokenizer.json's ByteLevel(use_regex) is "gpt-2"; with
 * Digits(individual_digits) before it, it is "starcoder". */
const char *apr_pre_name(const char *pattern);
/* The rule to write for a byte-level vocabulary. It is the rule of the vocabulary's own name if that matches, else one with the same
 * expression that agrees in most defaults (ignore_merges counts more than NFC). NULL: no rule has its expression. */
const apr_pre_rule *apr_pre_of(const apr_vocab *vocab);

#endif
