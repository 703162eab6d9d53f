/* vocab.c - the splitting rules that GGUF has names for, the keys of special tokens, and the list of stop ids. */
#include "formats/vocab/vocab.h"
#include "formats/vocab/bert_splits.h"
#include "formats/vocab/special_tokens.h"

#include <string.h>

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES       "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
/* A word of o200k: an upper-case prefix and a lower-case suffix, one of which may be missing. */
#define UPPER       "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER       "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(tail) "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" tail "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" tail

#define GPT2   "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define LLAMA3 CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES
#define QWEN2  CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES
#define QWEN35 CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" SPACES
#define O200K  CASED(CONTRACTIONS "?") "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES
#define TEKKEN CASED("") "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES
/* tokenizer.json uses two steps: Digits(individual_digits), then ByteLevel(use_regex). This is one expression for both. A digit is its
 * own piece. The spaces before a digit stay together, because the second step sees the end of the text there. */
#define DIGITS_GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+|\\s+(?![^\\s\\p{N}])|\\s+"

/* The ranges are Chinese, Japanese and Korean characters. */
static const apr_split deepseek3[] = {
    {.pattern = "\\p{N}{1,3}"},
    {.pattern = "[\xe4\xb8\x80-\xe9\xbe\xa5\xe3\x81\x80-\xe3\x82\x9f\xe3\x82\xa0-\xe3\x83\xbf]+"},
    {.pattern = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
                "?[\\p{P}\\p{S}]+[\\r\\n]*|" SPACES},
};
static const apr_split deepseek_coder[] = {
    {.pattern = "[\\r\\n]"},    {.pattern = "\\s?\\p{L}+"},
    {.pattern = "\\s?\\p{P}+"}, {.pattern = "[\xe4\xb8\x80-\xe9\xbe\xa5\xe0\xa0\x80-\xe4\xb8\x80\xea\xb0\x80-\xed\x9f\xbf]+"},
    {.pattern = "\\p{N}"},
};

/* Names with the same expression are listed together, the one to write first. Rules with several expressions are at the end. Rules whose
 * steps are not known for certain ("default", "falcon", "deepseek-llm") are missing: such a file is refused rather than tokenized almost
 * correctly. */
static const apr_pre_rule rules[] = {
    {.name = "gpt-2", .pattern = GPT2},
    {.name = "phi-2", .pattern = GPT2},
    {.name = "mpt", .pattern = GPT2},
    {.name = "olmo", .pattern = GPT2},
    {.name = "jais", .pattern = GPT2},
    {.name = "exaone4", .pattern = GPT2},
    {.name = "trillion", .pattern = GPT2},
    {.name = "granite-docling", .pattern = GPT2},
    {.name = "llama-bpe", .pattern = LLAMA3, .ignore_merges = true, .add_bos = true},
    {.name = "llama3", .pattern = LLAMA3, .ignore_merges = true, .add_bos = true},
    {.name = "llama-v3", .pattern = LLAMA3, .ignore_merges = true, .add_bos = true},
    {.name = "falcon3", .pattern = LLAMA3, .ignore_merges = true, .add_bos = true},
    {.name = "falcon-h1", .pattern = LLAMA3, .ignore_merges = true, .add_bos = true},
    {.name = "pixtral", .pattern = LLAMA3, .ignore_merges = true, .add_bos = true},
    {.name = "lfm2", .pattern = LLAMA3, .ignore_merges = true, .add_bos = true},
    {.name = "dbrx", .pattern = LLAMA3},
    {.name = "smaug-bpe", .pattern = LLAMA3},
    {.name = "glm4", .pattern = LLAMA3},
    {.name = "chatglm-bpe", .pattern = LLAMA3},
    {.name = "qwen2", .pattern = QWEN2, .nfc = true},
    {.name = "deepseek-r1-qwen", .pattern = QWEN2},
    {.name = "stablelm2", .pattern = QWEN2},
    {.name = "megrez", .pattern = QWEN2},
    {.name = "hunyuan", .pattern = QWEN2},
    {.name = "grok-2", .pattern = QWEN2},
    {.name = "qwen35", .pattern = QWEN35, .nfc = true},
    {.name = "gpt-4o", .pattern = O200K},
    {.name = "llama4", .pattern = O200K},
    {.name = "kanana2", .pattern = O200K},
    {.name = "tekken", .pattern = TEKKEN, .ignore_merges = true, .add_bos = true},
    {.name = "starcoder", .pattern = DIGITS_GPT2},
    {.name = "refact", .pattern = DIGITS_GPT2},
    {.name = "smollm", .pattern = DIGITS_GPT2},
    {.name = "command-r", .pattern = DIGITS_GPT2},
    {.name = "codeshell", .pattern = DIGITS_GPT2},
    {.name = "exaone", .pattern = DIGITS_GPT2},
    {.name = "minerva-7b", .pattern = DIGITS_GPT2},
    {.name = "deepseek-v3", .splits = deepseek3, .n_splits = 3, .add_bos = true},
    {.name = "hunyuan-dense", .splits = deepseek3, .n_splits = 3},
    {.name = "joyai-llm", .splits = deepseek3, .n_splits = 3},
    {.name = "deepseek-coder", .splits = deepseek_coder, .n_splits = 5, .add_bos = true},
};
static const size_t n_rules = sizeof rules / sizeof rules[0];

static const struct {
    const char *name, *line; /* in tokenizer.json; in a line of text */
} behaviors[] = {
    [APR_SPLIT_ISOLATED] = {"Isolated", "isolated"},
    [APR_SPLIT_REMOVED] = {"Removed", "removed"},
    [APR_SPLIT_MERGED_WITH_PREVIOUS] = {"MergedWithPrevious", "merged_with_previous"},
    [APR_SPLIT_MERGED_WITH_NEXT] = {"MergedWithNext", "merged_with_next"},
    [APR_SPLIT_CONTIGUOUS] = {"Contiguous", "contiguous"},
};
static const size_t n_behaviors = sizeof behaviors / sizeof behaviors[0];

const char *apr_split_behavior_name(apr_split_behavior behavior) { return behaviors[behavior].name; }

bool apr_split_behavior_find(const char *name, apr_split_behavior *behavior)
{
    for (size_t i = 0; name != NULL && i < n_behaviors; i++)
        if (strcmp(behaviors[i].name, name) == 0) {
            *behavior = (apr_split_behavior)i;
            return true;
        }
    return false;
}

const char *apr_split_print(const apr_split *split, apr_arena *arena)
{
    return apr_arena_print(arena, "%s%s%s %s", behaviors[split->behavior].line, split->invert ? ",inverted" : "",
                           split->letters ? ",letters" : "", split->pattern);
}

static bool take_word(const char **text, const char *word)
{
    const size_t n = strlen(word);
    if (strncmp(*text, word, n) != 0 || ((*text)[n] != ',' && (*text)[n] != ' ')) return false;
    *text += n;
    return true;
}

bool apr_split_parse(const char *text, apr_split *split)
{
    size_t i = 0;

    while (i < n_behaviors && !take_word(&text, behaviors[i].line)) i++;
    if (i == n_behaviors) return false;
    *split = (apr_split){.behavior = (apr_split_behavior)i};
    split->invert = take_word(&text, ",inverted");
    split->letters = take_word(&text, ",letters");
    split->pattern = text + 1;
    return *text == ' ';
}

#define KEYS(role, id, word) \
    .offset = offsetof(apr_vocab, id), .hf_token = role "_token", .hf_id = role "_token_id", .gguf_key = "tokenizer.ggml." word "_token_id"

const apr_special_token apr_special_tokens[APR_N_SPECIALS] = {
    [APR_SPECIAL_BOS] = {KEYS("bos", bos_id, "bos"), .apr_key = "tokenizer.bos_token_id", .bert_id = 101, .t5_id = -1},
    [APR_SPECIAL_EOS] = {KEYS("eos", eos_id, "eos"), .apr_key = "tokenizer.eos_token_id", .bert_id = 102, .t5_id = 1},
    [APR_SPECIAL_UNK] = {KEYS("unk", unk_id, "unknown"), .bert_id = 100, .t5_id = 2},
    [APR_SPECIAL_PAD] = {KEYS("pad", pad_id, "padding"), .apr_key = "tokenizer.padding_token_id", .bert_id = 0, .t5_id = 0},
};

const apr_vocab apr_empty_vocab = {.bos_id = -1, .eos_id = -1, .pad_id = -1, .unk_id = -1};

const apr_added_flag apr_added_flags[APR_N_ADDED_FLAGS] = {{"single_word", APR_ADDED_SINGLE_WORD},
                                                           {"lstrip", APR_ADDED_LSTRIP},
                                                           {"rstrip", APR_ADDED_RSTRIP},
                                                           {"normalized", APR_ADDED_NORMALIZED}};

void apr_vocab_add_stop(apr_vocab *vocab, int64_t id)
{
    if (!apr_vocab_has_id(vocab, id) || id > INT32_MAX) return;
    for (size_t i = 0; i < vocab->n_stop_ids; i++)
        if (vocab->stop_ids[i] == id) return;
    if (vocab->n_stop_ids < APR_MAX_STOP_IDS) vocab->stop_ids[vocab->n_stop_ids++] = (int32_t)id;
}

const apr_pre_rule *apr_pre_find(const char *pre)
{
    for (size_t i = 0; pre != NULL && i < n_rules; i++)
        if (strcmp(rules[i].name, pre) == 0) return &rules[i];
    return NULL;
}

const char *apr_pre_pattern(const char *pre)
{
    const apr_pre_rule *const rule = apr_pre_find(pre);
    return rule != NULL ? rule->pattern : NULL;
}

/* Reads one character and advances *at. An escaped line break equals a plain one. */
static char next_of(const char **at)
{
    const char c = *(*at)++;
    if (c != '\\' || (**at != 'r' && **at != 'n' && **at != 't')) return c;
    const char letter = *(*at)++;
    return letter == 'r' ? '\r' : letter == 'n' ? '\n' : '\t';
}

/* An escaped backslash does not start an escape: both of its bytes are skipped at once. */
static bool same_expression(const char *a, const char *b)
{
    while (a != NULL && b != NULL) {
        const bool pair = a[0] == '\\' && a[1] == '\\';
        if (pair != (b[0] == '\\' && b[1] == '\\')) return false;
        if (!pair && (*a == '\0' || *b == '\0')) return *a == *b;
        if (pair) {
            a += 2;
            b += 2;
        } else if (next_of(&a) != next_of(&b)) {
            return false;
        }
    }
    return false;
}

static bool same_splitting(const apr_pre_rule *rule, const apr_vocab *v)
{
    if (rule->n_splits == 0 || v->pattern != NULL) return v->n_splits == 0 && same_expression(rule->pattern, v->pattern);
    if (rule->n_splits != v->n_splits) return false;
    for (size_t i = 0; i < v->n_splits; i++) {
        const apr_split *const a = &rule->splits[i], *const b = &v->splits[i];
        if (a->behavior != b->behavior || a->invert != b->invert || a->letters != b->letters) return false;
        if (!same_expression(a->pattern, b->pattern)) return false;
    }
    return true;
}

const char *apr_pre_name(const char *pattern)
{
    for (size_t i = 0; pattern != NULL && i < n_rules; i++)
        if (same_expression(rules[i].pattern, pattern)) return rules[i].name;
    return NULL;
}

/* 0: another expression. ignore_merges weighs more than NFC, because a reader of the file cannot correct it. */
static int agreement(const apr_pre_rule *rule, const apr_vocab *v)
{
    if (!same_splitting(rule, v)) return 0;
    return 1 + 2 * (rule->ignore_merges == v->ignore_merges) + (rule->nfc == v->nfc);
}

const apr_pre_rule *apr_pre_of(const apr_vocab *vocab)
{
    const apr_pre_rule *const own = apr_pre_find(vocab->pre), *best = own;
    int most = own != NULL ? agreement(own, vocab) : 0;

    for (size_t i = 0; i < n_rules; i++)
        if (agreement(&rules[i], vocab) > most) {
            best = &rules[i];
            most = agreement(best, vocab);
        }
    return most > 0 ? best : NULL;
}

#define ASCII_SYMBOLS "$+<=>^`|~" /* ASCII punctuation that Unicode classes as symbols */

/* Punctuation added after Unicode 8, which tokenizers does not know (other characters in the ranges do not matter), and two that only
 * tokenizers knows. */
#define NEWER_PUNCTUATION                                                                                                                  \
    "\\x{61d}\\x{9fd}-\\x{a76}\\x{c77}-\\x{c84}\\x{1b7d}-\\x{1b7e}\\x{2e43}-\\x{2e5d}\\x{10ead}-\\x{10f89}\\x{1144b}-\\x{1145d}\\x{11660}" \
    "-\\x{116b9}\\x{1183b}-\\x{11fff}\\x{12ff1}-\\x{12ff2}\\x{16e97}-\\x{16fe2}\\x{1e95e}-\\x{1e95f}"
#define OLDER_PUNCTUATION "\\x{166d}\\x{111c9}"
#define PUNCTUATION       "(?![" NEWER_PUNCTUATION "])[\\p{P}" OLDER_PUNCTUATION ASCII_SYMBOLS "]"

const apr_split apr_bert_splits[APR_N_BERT_SPLITS] = {{.pattern = "\\s", .behavior = APR_SPLIT_REMOVED},
                                                      {.pattern = PUNCTUATION, .behavior = APR_SPLIT_ISOLATED}};

bool apr_vocab_needs_file(const apr_vocab *vocab)
{
    bool needs = vocab->kind == APR_VOCAB_WPM || vocab->kind == APR_VOCAB_UGM || vocab->n_normals > 0;
    for (size_t i = 0; i < vocab->n_splits; i++) needs = needs || vocab->splits[i].marks || vocab->splits[i].space != APR_SPACE_NEVER;
    return needs;
}
