/* vocab.c - the splitting rules that GGUF knows by name, and the list of ids that end a turn. */
#include "formats/vocab.h"

#include <string.h>

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES       "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
/* A word of o200k: an upper-case head and a lower-case tail, one of which may be missing. */
#define UPPER       "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER       "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(tail) "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" tail "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" tail

#define GPT2   "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define LLAMA3 CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES
#define QWEN2  CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES
#define QWEN35 CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" SPACES
#define O200K  CASED(CONTRACTIONS "?") "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES
#define TEKKEN CASED("") "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES
/* tokenizer.json says this in two steps, Digits(individual_digits) and then ByteLevel(use_regex). In one: a digit stands
 * alone, and the spaces before a digit stay together, because for the second step the text ends there. */
#define DIGITS_GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+|\\s+(?![^\\s\\p{N}])|\\s+"

/* Names that share an expression stand together, the one to write first. Rules that need more than one expression
 * ("default", "falcon", "deepseek-llm") are not here: such a file is refused rather than tokenized almost right. */
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
};
static const size_t n_rules = sizeof rules / sizeof rules[0];

static const struct {
    const char *name, *line; /* in tokenizer.json, in a line of text */
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

void apr_vocab_add_stop(apr_vocab *vocab, int64_t id)
{
    if (id < 0 || (uint64_t)id >= vocab->n_tokens || id > INT32_MAX) return;
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

const char *apr_pre_name(const char *pattern)
{
    for (size_t i = 0; pattern != NULL && i < n_rules; i++)
        if (strcmp(rules[i].pattern, pattern) == 0) return rules[i].name;
    return NULL;
}

/* 0: another expression. A reader of the file alone cannot correct the first bit, so it weighs more than the second. */
static int agreement(const apr_pre_rule *rule, const apr_vocab *v)
{
    if (v->pattern == NULL || strcmp(rule->pattern, v->pattern) != 0) return 0;
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
