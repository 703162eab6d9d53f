/* hf_tokenizer.c - reads a checkpoint's tokenizer into a vocabulary: the steps of tokenizer.json, with one function per type; the files of
 * checkpoints without tokenizer.json, which are converted to its form; then the tables and the special tokens.
 *
 * The first step that apr_vocab cannot express is named, and a tokenizer with such a step is refused (APR_VOCAB_NONE): a text that is
 * tokenized almost right is worse than an error. */
#include "formats/vocab/hf_tokenizer.h"
#include "formats/base/base64.h"
#include "formats/base/json.h"
#include "formats/tensor/text_config.h"
#include "formats/vocab/bert_splits.h"
#include "formats/vocab/sentencepiece.h"
#include "formats/vocab/special_tokens.h"
#include "formats/vocab/tekken.h"
#include "formats/vocab/tiktoken.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The steps before and after the merges. Strings belong to the JSON or are constants. */
typedef struct hf_pipeline {
    char unsupported[160]; /* the first unsupported step ("the normalizer Lowercase"); "": none */
    apr_vocab_kind model;  /* BPE, WPM or UGM; NONE: any other */
    bool byte_level;
    apr_normal normals[APR_MAX_NORMALS]; /* in the arena; none if the flags below are enough */
    size_t n_normals;
    char normal[64];     /* the first normalizer that the flags cannot express; "": none */
    const char *pattern; /* one isolated expression; NULL: see splits */
    apr_split splits[APR_MAX_SPLITS];
    size_t n_splits;
    bool nfc, add_space_prefix, space_after_added, prefix_unless_space, escape_spaces;
    bool has_template;
    const char *first_token, *last_token; /* what the post-processor puts around a text */
} hf_pipeline;

typedef struct step_rule step_rule;
typedef struct walking {
    hf_pipeline *p;
    apr_arena *arena;
    const char *what;      /* "normalizer", "pre-tokenizer" or "post-processor" */
    const step_rule *rule; /* of the step */
    bool no_memory;
} walking;

struct step_rule {
    const char *type;
    void (*apply)(const cJSON *step, walking *w);
    apr_normal_kind kind; /* of a normalizer without settings */
    const char *other;    /* names a normalizer that the flags cannot express, although they can express some of this type */
};

/* Names an unsupported step. Only the first one is kept. */
__attribute__((format(printf, 2, 3))) static void unsupported(const walking *w, const char *format, ...)
{
    va_list args;
    if (w->p->unsupported[0] != '\0') return;
    va_start(args, format);
    vsnprintf(w->p->unsupported, sizeof w->p->unsupported, format, args);
    va_end(args);
}

static bool is_string(const cJSON *object, const char *key, const char *text)
{
    const char *const found = apr_json_get_string(object, key);
    return found != NULL && strcmp(found, text) == 0;
}

static bool flag_of(const cJSON *object, const char *key, bool otherwise)
{
    apr_json_get_bool(object, key, &otherwise);
    return otherwise;
}

/* --- pre-tokenizers --- */

static void add_split(const walking *w, const char *pattern, apr_split_behavior behavior, bool invert)
{
    hf_pipeline *const p = w->p;
    if (p->n_splits == APR_MAX_SPLITS) unsupported(w, "more than %d pre-tokenizers", (int)APR_MAX_SPLITS);
    else p->splits[p->n_splits++] = (apr_split){.pattern = pattern, .behavior = behavior, .invert = invert, .letters = p->byte_level};
}

static const char matches_nothing[] = "(?!)";

/* Adds a step that puts a space in front and splits by `pattern` (NULL: does not split). */
static void add_space_step(const walking *w, const char *pattern, apr_split_behavior behavior, bool marks, apr_space_rule space)
{
    hf_pipeline *const p = w->p;
    const size_t n = p->n_splits;

    add_split(w, pattern != NULL ? pattern : matches_nothing, behavior, false);
    if (p->n_splits == n) return;
    p->splits[n].marks = marks;
    p->splits[n].space = space;
}

/* Quotes a text as an expression that matches exactly it. */
static const char *quoted(walking *w, const char *text)
{
    const size_t n = strlen(text);
    char *const expression = apr_arena_alloc(w->arena, 2 * n + 1);
    size_t at = 0;

    if (expression == NULL) w->no_memory = true;
    for (size_t i = 0; expression != NULL && i < n; i++) {
        const char c = text[i];
        const bool is_sign = (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
        if (is_sign) expression[at++] = '\\';
        expression[at++] = c;
    }
    return expression;
}

static void split_step(const cJSON *step, walking *w)
{
    const cJSON *const pattern = apr_json_get(step, "pattern");
    const char *const regex = apr_json_get_string(pattern, "Regex"), *const text = apr_json_get_string(pattern, "String");
    apr_split_behavior behavior;

    if (!apr_split_behavior_find(apr_json_get_string(step, "behavior"), &behavior) || (regex == NULL && (text == NULL || *text == '\0'))) {
        unsupported(w, "a Split without a pattern or a known behavior");
        return;
    }
    if (regex == NULL && strcmp(text, " ") == 0 && w->p->escape_spaces) return; /* gemma: the normalizer has replaced all spaces */
    add_split(w, regex != NULL ? regex : quoted(w, text), behavior, flag_of(step, "invert", false));
}

static void byte_level_step(const cJSON *step, walking *w)
{
    if (w->p->byte_level) unsupported(w, "two ByteLevel pre-tokenizers");
    const char *const words = flag_of(step, "use_regex", true) ? apr_pre_pattern("gpt-2") : NULL;
    if (flag_of(step, "add_prefix_space", true)) add_space_step(w, words, APR_SPLIT_ISOLATED, false, APR_SPACE_ALWAYS);
    else if (words != NULL) add_split(w, words, APR_SPLIT_ISOLATED, false);
    w->p->byte_level = true;
}

static void digits_step(const cJSON *step, walking *w)
{
    add_split(w, "\\p{N}", flag_of(step, "individual_digits", false) ? APR_SPLIT_ISOLATED : APR_SPLIT_CONTIGUOUS, false);
}

static void punctuation_step(const cJSON *step, walking *w)
{
    const char *const name = apr_json_get_string(step, "behavior");
    apr_split_behavior behavior = APR_SPLIT_ISOLATED;

    if (name != NULL && !apr_split_behavior_find(name, &behavior)) unsupported(w, "Punctuation with the behavior '%.40s'", name);
    add_split(w, apr_bert_splits[1].pattern, behavior, false);
}

/* \w of Rust's expressions includes joiners. */
#define RUST_WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200c}\\x{200d}"

static void whitespace_step(const cJSON *step, walking *w)
{
    (void)step;
    add_split(w, "[" RUST_WORD "]+|[^" RUST_WORD "\\s]+", APR_SPLIT_REMOVED, true);
}

static void whitespace_split_step(const cJSON *step, walking *w)
{
    (void)step;
    add_split(w, "\\s", APR_SPLIT_REMOVED, false);
}

static void bert_step(const cJSON *step, walking *w)
{
    (void)step;
    for (size_t i = 0; i < APR_N_BERT_SPLITS; i++) add_split(w, apr_bert_splits[i].pattern, apr_bert_splits[i].behavior, false);
}

static void delimiter_step(const cJSON *step, walking *w)
{
    const char *const delimiter = apr_json_get_string(step, "delimiter");
    if (delimiter == NULL || *delimiter == '\0') unsupported(w, "CharDelimiterSplit without a delimiter");
    else add_split(w, quoted(w, delimiter), APR_SPLIT_REMOVED, false);
}

/* Puts a space before each piece, or before the first one. For BPE that must be the first step: it depends on earlier splits. */
static void metaspace_step(const cJSON *step, walking *w)
{
    hf_pipeline *const p = w->p;
    const char *scheme = apr_json_get_string(step, "prepend_scheme");

    if (scheme == NULL) scheme = flag_of(step, "add_prefix_space", true) ? "always" : "never";
    if (!is_string(step, "replacement", APR_SPACE_MARK)) unsupported(w, "Metaspace with another sign than U+2581");
    if (p->model != APR_VOCAB_BPE) {
        const apr_space_rule space = strcmp(scheme, "never") == 0    ? APR_SPACE_NEVER
                                     : strcmp(scheme, "always") == 0 ? APR_SPACE_ALWAYS
                                                                     : APR_SPACE_AT_START;
        add_space_step(w, flag_of(step, "split", true) ? "\\x{2581}" : NULL, APR_SPLIT_MERGED_WITH_NEXT, true, space);
        return;
    }
    if (p->n_splits > 0 || p->byte_level) unsupported(w, "Metaspace after another pre-tokenizer");
    if (p->add_space_prefix) unsupported(w, "Metaspace after Prepend");
    p->escape_spaces = true;
    p->add_space_prefix = p->prefix_unless_space = strcmp(scheme, "never") != 0;
    p->space_after_added = strcmp(scheme, "always") == 0;
    if (flag_of(step, "split", true)) add_split(w, "\\x{2581}", APR_SPLIT_MERGED_WITH_NEXT, false);
}

/* --- normalizers --- */

static apr_str kept(walking *w, const char *text)
{
    const char *const copy = text != NULL ? apr_arena_copy(w->arena, text, strlen(text)) : NULL;
    w->no_memory |= text != NULL && copy == NULL;
    return (apr_str){copy, copy != NULL ? strlen(copy) : 0};
}

/* Sets the flag that equals this normalizer: NFC, SentencePiece's space in front, spaces as U+2581. False: there is none. */
static bool set_flag(hf_pipeline *p, const apr_normal *normal)
{
    switch (normal->kind) {
    case APR_NORMAL_NFC: return p->nfc = true;
    case APR_NORMAL_PREPEND: return apr_str_is(normal->to, APR_SPACE_MARK) && (p->add_space_prefix = p->space_after_added = true);
    case APR_NORMAL_REPLACE: return apr_str_is(normal->from, " ") && apr_str_is(normal->to, APR_SPACE_MARK) && (p->escape_spaces = true);
    default: return false;
    }
}

static void add_normal(walking *w, apr_normal normal)
{
    hf_pipeline *const p = w->p;
    if (!set_flag(p, &normal) && p->normal[0] == '\0')
        snprintf(p->normal, sizeof p->normal, "%s%s", w->rule->other != NULL ? "" : "the normalizer ",
                 w->rule->other != NULL ? w->rule->other : w->rule->type);
    if (p->n_normals == APR_MAX_NORMALS) unsupported(w, "more than %d normalizers", (int)APR_MAX_NORMALS);
    else p->normals[p->n_normals++] = normal;
}

static void prepend_step(const cJSON *step, walking *w)
{
    const char *const text = apr_json_get_string(step, "prepend");
    if (text == NULL) unsupported(w, "Prepend without a text");
    add_normal(w, (apr_normal){.kind = APR_NORMAL_PREPEND, .to = kept(w, text)});
}

static void replace_step(const cJSON *step, walking *w)
{
    const cJSON *const pattern = apr_json_get(step, "pattern");
    const char *const text = apr_json_get_string(pattern, "String"), *const regex = apr_json_get_string(pattern, "Regex"),
                      *const content = apr_json_get_string(step, "content");

    if ((text == NULL && regex == NULL) || content == NULL || (text != NULL && *text == '\0'))
        unsupported(w, "Replace without a pattern or a content");
    add_normal(w, (apr_normal){.kind = text != NULL ? APR_NORMAL_REPLACE : APR_NORMAL_PATTERN,
                               .from = kept(w, text != NULL ? text : regex),
                               .to = kept(w, content)});
}

static void strip_step(const cJSON *step, walking *w)
{
    const unsigned left = flag_of(step, "strip_left", true) ? APR_STRIP_LEFT : 0,
                   right = flag_of(step, "strip_right", true) ? APR_STRIP_RIGHT : 0;
    add_normal(w, (apr_normal){.kind = APR_NORMAL_STRIP, .flags = left | right});
}

/* strip_accents defaults to lowercase. */
static void bert_normalizer_step(const cJSON *step, walking *w)
{
    const bool lowercase = flag_of(step, "lowercase", true), accents = flag_of(step, "strip_accents", lowercase);
    add_normal(w, (apr_normal){.kind = APR_NORMAL_BERT,
                               .flags = (flag_of(step, "clean_text", true) ? APR_BERT_CLEAN : 0u) |
                                        (flag_of(step, "handle_chinese_chars", true) ? APR_BERT_CHINESE : 0u) |
                                        (accents ? APR_BERT_ACCENTS : 0u) | (lowercase ? APR_BERT_LOWERCASE : 0u)});
}

static void charsmap_step(const cJSON *step, walking *w)
{
    const char *const text = apr_json_get_string(step, "precompiled_charsmap");

    if (text == NULL || *text == '\0') return; /* an empty map */
    const size_t n_chars = strlen(text), n = apr_base64_bytes(text, n_chars);
    char *const bytes = apr_arena_alloc(w->arena, n + 1);
    w->no_memory |= bytes == NULL;
    if (bytes == NULL) return;
    if (!apr_base64_decode(text, n_chars, bytes)) unsupported(w, "a Precompiled normalizer that is not base64");
    add_normal(w, (apr_normal){.kind = APR_NORMAL_CHARSMAP, .from = {bytes, n}});
}

static void plain_normal_step(const cJSON *step, walking *w)
{
    (void)step;
    add_normal(w, (apr_normal){.kind = w->rule->kind});
}

/* Replaces BPE's normalizers by flags if the flags express all of them. Other formats have keys for the flags only. */
static void settle_normals(hf_pipeline *p)
{
    const bool is_flags = p->normal[0] == '\0' && p->model == APR_VOCAB_BPE;

    if (is_flags) p->n_normals = 0;
    else p->nfc = p->add_space_prefix = p->space_after_added = p->escape_spaces = false;
}

/* --- post-processors --- */

/* Only one token before the text and one after it can be expressed. */
static void template_step(const cJSON *step, walking *w)
{
    hf_pipeline *const p = w->p;
    const cJSON *part;
    bool is_after = false;

    if (p->has_template) unsupported(w, "two TemplateProcessing post-processors");
    p->has_template = true;
    cJSON_ArrayForEach(part, apr_json_get(step, "single"))
    {
        if (apr_json_get(part, "Sequence") != NULL) {
            is_after = true;
            continue;
        }
        const char **const token = is_after ? &p->last_token : &p->first_token;
        if (*token != NULL) unsupported(w, "TemplateProcessing with more than one token on a side of the text");
        *token = apr_json_get_string(apr_json_get(part, "SpecialToken"), "id");
        if (*token == NULL) unsupported(w, "TemplateProcessing with a part that is not a token");
    }
}

/* "sep" and "cls" are pairs of a text and an id. */
static void bert_processing_step(const cJSON *step, walking *w)
{
    hf_pipeline *const p = w->p;
    const cJSON *const first = apr_json_get(step, "cls"), *const last = apr_json_get(step, "sep");

    if (p->has_template) unsupported(w, "two post-processors that add tokens");
    p->has_template = true;
    p->first_token = cJSON_IsArray(first) && cJSON_IsString(first->child) ? first->child->valuestring : NULL;
    p->last_token = cJSON_IsArray(last) && cJSON_IsString(last->child) ? last->child->valuestring : NULL;
    if (p->first_token == NULL || p->last_token == NULL)
        unsupported(w, "the post-processor %.40s without its tokens", apr_json_get_string(step, "type"));
}

/* Changes offsets only, not ids. */
static void no_step(const cJSON *step, walking *w)
{
    (void)step;
    (void)w;
}

/* --- all of them --- */

static const step_rule normalizers[] = {
    {"NFC", plain_normal_step, APR_NORMAL_NFC},
    {"NFD", plain_normal_step, APR_NORMAL_NFD},
    {"NFKC", plain_normal_step, APR_NORMAL_NFKC},
    {"NFKD", plain_normal_step, APR_NORMAL_NFKD},
    {"Nmt", plain_normal_step, APR_NORMAL_NMT},
    {"Lowercase", plain_normal_step, APR_NORMAL_LOWERCASE},
    {"StripAccents", plain_normal_step, APR_NORMAL_STRIP_ACCENTS},
    {"Prepend", prepend_step, .other = "Prepend of another text than U+2581"},
    {"Replace", replace_step, .other = "Replace of something else than spaces by U+2581"},
    {"Strip", strip_step},
    {"BertNormalizer", bert_normalizer_step},
    {"Precompiled", charsmap_step},
    {NULL},
};
static const step_rule pre_tokenizers[] = {{"Split", split_step},           {"ByteLevel", byte_level_step},
                                           {"Digits", digits_step},         {"Punctuation", punctuation_step},
                                           {"Whitespace", whitespace_step}, {"WhitespaceSplit", whitespace_split_step},
                                           {"BertPreTokenizer", bert_step}, {"CharDelimiterSplit", delimiter_step},
                                           {"Metaspace", metaspace_step},   {NULL}};
static const step_rule post_processors[] = {{"TemplateProcessing", template_step},
                                            {"BertProcessing", bert_processing_step},
                                            {"RobertaProcessing", bert_processing_step},
                                            {"ByteLevel", no_step},
                                            {NULL}};

/* One step, or a Sequence of them under `list`; JSON's own limit bounds the depth. */
static void walk(const cJSON *step, const char *list, const step_rule *rules, walking *w)
{
    const char *const type = apr_json_get_string(step, "type");
    const cJSON *inner;

    if (step == NULL || cJSON_IsNull(step)) return;
    if (type != NULL && strcmp(type, "Sequence") == 0) {
        cJSON_ArrayForEach(inner, apr_json_get(step, list)) walk(inner, list, rules, w);
        return;
    }
    for (; type != NULL && rules->type != NULL; rules++)
        if (strcmp(rules->type, type) == 0) {
            w->rule = rules;
            rules->apply(step, w);
            return;
        }
    unsupported(w, "the %s %.60s", w->what, type != NULL ? type : "without a type");
}

static void check_model(const cJSON *model, const walking *w)
{
    static const struct {
        const char *type;
        apr_vocab_kind kind;
    } types[] = {{"BPE", APR_VOCAB_BPE}, {"WordPiece", APR_VOCAB_WPM}, {"Unigram", APR_VOCAB_UGM}};
    const char *const type = apr_json_get_string(model, "type"), *const prefix = apr_json_get_string(model, "continuing_subword_prefix"),
                      *const suffix = apr_json_get_string(model, "end_of_word_suffix");
    double dropout = 0;

    w->p->model = apr_json_get(model, "type") == NULL ? APR_VOCAB_BPE : APR_VOCAB_NONE;
    for (size_t i = 0; type != NULL && i < sizeof types / sizeof *types; i++)
        if (strcmp(type, types[i].type) == 0) w->p->model = types[i].kind;
    if (w->p->model == APR_VOCAB_NONE) unsupported(w, "the model %.60s", type != NULL ? type : "without a type");
    if (w->p->model != APR_VOCAB_BPE) return;
    if (prefix != NULL && *prefix != '\0') unsupported(w, "a continuing_subword_prefix");
    if (suffix != NULL && *suffix != '\0') unsupported(w, "an end_of_word_suffix");
    if (apr_json_get_real(model, "dropout", &dropout) && dropout > 0) unsupported(w, "dropout");
}

static bool only_splits(const apr_split *split, apr_split_behavior behavior, bool invert)
{
    return split->behavior == behavior && split->invert == invert && !split->letters && !split->marks && split->space == APR_SPACE_NEVER;
}

static bool is_plain(const apr_split *split) { return only_splits(split, APR_SPLIT_ISOLATED, false); }

/* Replaces the steps by one expression if that is the same: for a single plain step; for Digits before ByteLevel's expression, which
 * GGUF names "starcoder"; and for the matches of a known expression, which matches all text. */
static void simplify(hf_pipeline *p)
{
    const apr_split *const s = p->splits;
    const bool all_matches = p->n_splits == 1 && only_splits(&s[0], APR_SPLIT_REMOVED, true);

    if (p->n_splits == 1 && (is_plain(&s[0]) || (all_matches && apr_pre_name(s[0].pattern) != NULL))) p->pattern = s[0].pattern;
    if (p->n_splits == 2 && is_plain(&s[0]) && is_plain(&s[1]) && strcmp(s[0].pattern, "\\p{N}") == 0 &&
        strcmp(s[1].pattern, apr_pre_pattern("gpt-2")) == 0)
        p->pattern = apr_pre_pattern("starcoder");
    if (p->pattern != NULL) p->n_splits = 0;
}

/* Fails only with APR_E_MEMORY: unsupported steps are named in `unsupported`. */
static apr_status read_pipeline(hf_pipeline *p, const cJSON *tokenizer, apr_arena *arena, apr_error *err)
{
    walking w = {.p = p, .arena = arena};

    *p = (hf_pipeline){0};
    check_model(apr_json_get(tokenizer, "model"), &w);
    w.what = "normalizer";
    walk(apr_json_get(tokenizer, "normalizer"), "normalizers", normalizers, &w);
    settle_normals(p);
    w.what = "pre-tokenizer";
    walk(apr_json_get(tokenizer, "pre_tokenizer"), "pretokenizers", pre_tokenizers, &w);
    w.what = "post-processor";
    walk(apr_json_get(tokenizer, "post_processor"), "processors", post_processors, &w);
    if (w.no_memory) return apr_no_memory(err, "the splitting expressions");
    simplify(p);
    return APR_OK;
}

/* --- checkpoints without tokenizer.json: added_tokens.json, the added_tokens_decoder of tokenizer_config.json, vocab.json with merges.txt
 * --- */

/* Parsed files; NULL: not there. */
typedef struct parsed_files {
    const cJSON *added, *config, *special_map, *model_config; /* added_tokens.json, tokenizer_config.json, special_tokens_map.json */
} parsed_files;

/* --- texts that are named as special --- */

/* Sorted by text, because a file may name many and each token is looked up. */
typedef struct special_texts {
    const char **texts;
    size_t n;
} special_texts;

/* A token is named by its text, or by an object like those of added_tokens. */
static const char *text_of(const cJSON *item) { return cJSON_IsString(item) ? item->valuestring : apr_json_get_string(item, "content"); }

static bool ends_with(const char *text, const char *ending)
{
    const size_t n = strlen(text), m = strlen(ending);
    return n >= m && strcmp(text + n - m, ending) == 0;
}

/* True for keys such as "eos_token" (one text) and "additional_special_tokens" (several). */
static bool names_specials(const cJSON *item)
{
    return item->string != NULL && (ends_with(item->string, "_token") || strcmp(item->string, "additional_special_tokens") == 0 ||
                                    strcmp(item->string, "extra_special_tokens") == 0);
}

/* Collects special texts. Only counts them if `texts` is NULL. */
static size_t collect(const cJSON *file, const char **texts)
{
    const cJSON *item, *one;
    size_t n = 0;

    cJSON_ArrayForEach(item, file)
    {
        if (!names_specials(item)) continue;
        if (text_of(item) != NULL) {
            if (texts != NULL) texts[n] = text_of(item);
            n++;
            continue;
        }
        cJSON_ArrayForEach(one, item)
        {
            if (text_of(one) == NULL) continue;
            if (texts != NULL) texts[n] = text_of(one);
            n++;
        }
    }
    return n;
}

static int by_text(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

static apr_status collect_specials(special_texts *s, const parsed_files *files, apr_error *err)
{
    const size_t n = collect(files->config, NULL) + collect(files->special_map, NULL);

    *s = (special_texts){.texts = calloc(n + 1, sizeof *s->texts), .n = n};
    if (s->texts == NULL) return apr_no_memory(err, "the special tokens");
    collect(files->special_map, s->texts + collect(files->config, s->texts));
    qsort(s->texts, n, sizeof *s->texts, by_text);
    return APR_OK;
}

static bool is_named(const special_texts *s, const char *text) { return bsearch(&text, s->texts, s->n, sizeof *s->texts, by_text) != NULL; }

/* --- added tokens --- */

typedef struct added_token {
    int64_t id;
    const char *text;
    const cJSON *flags; /* of the decoder's entry, or NULL */
    size_t order;       /* the first one of an id decides */
} added_token;

typedef struct listing {
    added_token *tokens;
    size_t n, capacity;
    special_texts special;
    const parsed_files *files;
    const char *where;
    apr_error *err;
} listing;

static apr_status add_token(listing *l, int64_t id, const char *text, const cJSON *flags)
{
    if (l->n == l->capacity) {
        const size_t capacity = l->capacity > 0 ? 2 * l->capacity : 64;
        added_token *const more = realloc(l->tokens, capacity * sizeof *more);
        if (more == NULL) return apr_no_memory(l->err, "the added tokens");
        l->tokens = more;
        l->capacity = capacity;
    }
    l->tokens[l->n] = (added_token){id, text, flags, l->n};
    l->n++;
    return APR_OK;
}

/* {"32000": {"content": "<|im_end|>", "special": true, ...}} */
static apr_status add_decoder(listing *l)
{
    const cJSON *item;

    cJSON_ArrayForEach(item, apr_json_get(l->files->config, "added_tokens_decoder"))
    {
        char *end = NULL;
        const long long id = item->string != NULL ? strtoll(item->string, &end, 10) : -1;
        const char *const text = text_of(item);
        if (id < 0 || id > INT32_MAX || end == item->string || *end != '\0' || text == NULL || *text == '\0')
            return apr_fail(l->err, APR_E_DAMAGED, "%s: tokenizer_config.json: the added token '%.60s' has no id or no content", l->where,
                            item->string != NULL ? item->string : "");
        APR_TRY(add_token(l, id, text, item));
    }
    return APR_OK;
}

/* {"<|im_end|>": 32000} */
static apr_status add_file(listing *l)
{
    const cJSON *item;

    cJSON_ArrayForEach(item, l->files->added)
    {
        int64_t id;
        if (item->string == NULL || *item->string == '\0' || !apr_json_as_int(item, &id) || id < 0 || id > INT32_MAX)
            return apr_fail(l->err, APR_E_DAMAGED, "%s: added_tokens.json: token '%.60s' has no id", l->where,
                            item->string != NULL ? item->string : "");
        APR_TRY(add_token(l, id, item->string, NULL));
    }
    return APR_OK;
}

/* Adds tokens of the vocabulary that are named as special. Texts of an apr_vocab may lack a terminating NUL, so they are copied. */
static apr_status add_named(listing *l, const cJSON *vocab_file, const apr_vocab *vocab, apr_arena *arena)
{
    const cJSON *item;
    int64_t id;

    if (l->special.n == 0) return APR_OK;
    cJSON_ArrayForEach(item, vocab_file) if (item->string != NULL && apr_json_as_int(item, &id) && is_named(&l->special, item->string))
        APR_TRY(add_token(l, id, item->string, NULL));
    for (size_t i = 0; vocab != NULL && i < vocab->n_tokens; i++) {
        char text[256];
        const apr_str token = vocab->tokens[i];
        if (token.n_bytes == 0 || token.n_bytes >= sizeof text) continue;
        memcpy(text, token.text, token.n_bytes);
        text[token.n_bytes] = '\0';
        if (!is_named(&l->special, text)) continue;
        const char *const copy = apr_arena_copy(arena, token.text, token.n_bytes);
        if (copy == NULL) return apr_no_memory(l->err, "the added tokens");
        APR_TRY(add_token(l, (int64_t)i, copy, NULL));
    }
    return APR_OK;
}

static int by_id(const void *a, const void *b)
{
    const added_token *const x = a, *const y = b;
    if (x->id != y->id) return x->id < y->id ? -1 : 1;
    return x->order < y->order ? -1 : 1;
}

/* added_tokens.json has no flags. Tokens written as <|...|> are special in every known model that has them. */
static bool is_special(const listing *l, const added_token *token)
{
    bool special = is_named(&l->special, token->text) || (strncmp(token->text, "<|", 2) == 0 && ends_with(token->text, "|>"));
    if (token->flags != NULL) apr_json_get_bool(token->flags, "special", &special);
    return special;
}

static bool write_token(const listing *l, const added_token *token, cJSON *list)
{
    cJSON *const item = cJSON_CreateObject();

    if (!cJSON_AddItemToArray(list, item)) {
        cJSON_Delete(item);
        return false;
    }
    bool ok = cJSON_AddNumberToObject(item, "id", (double)token->id) != NULL &&
              cJSON_AddStringToObject(item, "content", token->text) != NULL &&
              cJSON_AddBoolToObject(item, "special", is_special(l, token)) != NULL;
    for (size_t i = 0; token->flags != NULL && i < APR_N_ADDED_FLAGS; i++) {
        const char *const key = apr_added_flags[i].key;
        ok = ok && cJSON_AddBoolToObject(item, key, flag_of(token->flags, key, false)) != NULL;
    }
    return ok;
}

static apr_status fill_list(listing *l, cJSON *list, const cJSON *vocab_file, const apr_vocab *vocab, apr_arena *arena)
{
    bool ok = true;

    APR_TRY(collect_specials(&l->special, l->files, l->err));
    APR_TRY(add_decoder(l));
    APR_TRY(add_file(l));
    APR_TRY(add_named(l, vocab_file, vocab, arena));
    if (l->n > 0) qsort(l->tokens, l->n, sizeof *l->tokens, by_id);
    for (size_t i = 0; ok && i < l->n; i++)
        if (i == 0 || l->tokens[i].id != l->tokens[i - 1].id) ok = write_token(l, &l->tokens[i], list);
    return ok ? APR_OK : apr_no_memory(l->err, "the added tokens");
}

/* Makes the list "added_tokens" of a tokenizer.json. If two files name an id, the decoder decides. Tokens of the vocabulary (vocab.json, or
 * one that is read already) that the files name as special, such as eos_token, are also in it. The caller deletes the list. */
static apr_status make_added_list(cJSON **list, const parsed_files *files, const cJSON *vocab_file, const apr_vocab *vocab,
                                  apr_arena *arena, const char *where, apr_error *err)
{
    listing l = {.files = files, .where = where, .err = err};

    *list = cJSON_CreateArray();
    const apr_status status = *list != NULL ? fill_list(&l, *list, vocab_file, vocab, arena) : apr_no_memory(err, "the added tokens");
    free(l.special.texts);
    free(l.tokens);
    return status;
}

/* --- vocab.json and merges.txt --- */

/* The pre-tokenizer of a tokenizer class in tokenizer.json's form. */
#define BYTE_LEVEL(prefix, regex) "{\"type\":\"ByteLevel\",\"add_prefix_space\":" prefix ",\"use_regex\":" regex "}"

/* Classes by name, and by family for checkpoints that name no class. */
static const struct {
    const char *tokenizer_class, *model_types; /* with spaces around each */
    const char *pre;                           /* GGUF's name of the expression; NULL: GPT-2's own */
    bool nfc;
} classes[] = {
    {"Qwen2Tokenizer", " qwen2 qwen2_moe qwen3 qwen3_moe qwen2_vl qwen2_5_vl ", "qwen2", true},
    {"GPT2Tokenizer", " gpt2 gpt_neo gpt_bigcode starcoder2 ", NULL, false},
    {"CodeGenTokenizer", " codegen gptj phi ", NULL, false},
};
enum { N_CLASSES = sizeof classes / sizeof *classes };

static int class_of(const parsed_files *files)
{
    const char *const name = apr_json_get_string(files->config, "tokenizer_class"), *const type = apr_json_get_string(files->model_config,
                                                                                                                      "model_type");
    char spaced[64];

    for (int i = 0; name != NULL && i < N_CLASSES; i++) {
        const size_t n = strlen(classes[i].tokenizer_class);
        if (strncmp(name, classes[i].tokenizer_class, n) == 0 && (name[n] == '\0' || strcmp(name + n, "Fast") == 0)) return i;
    }
    if (type == NULL || strlen(type) > 60) return -1;
    snprintf(spaced, sizeof spaced, " %s ", type);
    for (int i = 0; i < N_CLASSES; i++)
        if (strstr(classes[i].model_types, spaced) != NULL) return i;
    return -1;
}

/* Lines "left right"; the first may be a comment with the version. */
static cJSON *merges_of(const apr_attachment *file)
{
    cJSON *const list = cJSON_CreateArray();
    const char *at = (const char *)file->data, *const end = at + file->n_bytes;
    bool ok = list != NULL;

    for (bool first = true; ok && at < end; first = false) {
        const char *const line_end = memchr(at, '\n', (size_t)(end - at)), *const stop = line_end != NULL ? line_end : end;
        const size_t n = (size_t)(stop - at) - (stop > at && stop[-1] == '\r');
        const bool is_comment = first && n >= 9 && memcmp(at, "#version:", 9) == 0;
        if (n > 0 && !is_comment) {
            char *const line = strndup(at, n);
            cJSON *const item = line != NULL ? cJSON_CreateString(line) : NULL;
            free(line);
            ok = cJSON_AddItemToArray(list, item);
            if (!ok) cJSON_Delete(item);
        }
        at = stop < end ? stop + 1 : end;
    }
    if (ok) return list;
    cJSON_Delete(list);
    return NULL;
}

static cJSON *split_steps(const char *pattern)
{
    cJSON *const steps =
        cJSON_Parse("{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{},\"behavior\":\"Isolated\","
                    "\"invert\":false}," BYTE_LEVEL("false", "false") "]}");
    cJSON *const first = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(steps, "pretokenizers"), 0);

    if (steps != NULL && cJSON_AddStringToObject(cJSON_GetObjectItemCaseSensitive(first, "pattern"), "Regex", pattern) != NULL)
        return steps;
    cJSON_Delete(steps);
    return NULL;
}

/* Adds `item` to the object, or deletes it. */
static bool put(cJSON *object, const char *key, cJSON *item)
{
    if (object != NULL && item != NULL && cJSON_AddItemToObject(object, key, item)) return true;
    cJSON_Delete(item);
    return false;
}

static bool build(cJSON *tokenizer, int class, cJSON *vocab, cJSON *added, const apr_attachment *merges, bool prefixed)
{
    cJSON *const model = cJSON_CreateObject();
    const char *const pre = classes[class].pre;
    bool ok = put(tokenizer, "added_tokens", added);

    ok = put(model, "vocab", vocab) && ok;
    ok = ok && cJSON_AddStringToObject(model, "type", "BPE") != NULL && put(model, "merges", merges_of(merges));
    ok = put(tokenizer, "model", model) && ok;
    ok = ok && (!classes[class].nfc || put(tokenizer, "normalizer", cJSON_Parse("{\"type\":\"NFC\"}")));
    return ok && put(tokenizer, "pre_tokenizer",
                     pre != NULL ? split_steps(apr_pre_pattern(pre))
                                 : cJSON_Parse(prefixed ? BYTE_LEVEL("true", "true") : BYTE_LEVEL("false", "true")));
}

/* Makes a tokenizer.json, which the caller deletes. Takes ownership of `vocab`, the parsed vocab.json. *unsupported: why it cannot be made
 * (a clause), or NULL. */
static apr_status make_slow_bpe(cJSON **tokenizer, const char **unsupported, cJSON *vocab, const apr_attachment *merges,
                                const parsed_files *files, apr_arena *arena, const char *where, apr_error *err)
{
    const char *const name = apr_json_get_string(files->config, "tokenizer_class");
    const int class = class_of(files);
    cJSON *added = NULL;
    bool prefixed = false;

    *tokenizer = NULL;
    *unsupported = NULL;
    if (class < 0) {
        cJSON_Delete(vocab);
        *unsupported =
            apr_arena_print(arena, "vocab.json and merges.txt of the class '%.60s', and no tokenizer.json", name != NULL ? name : "none");
        return *unsupported != NULL ? APR_OK : apr_no_memory(err, "the tokenizer");
    }
    const apr_status status = make_added_list(&added, files, vocab, NULL, arena, where, err);
    if (status != APR_OK) {
        cJSON_Delete(added);
        cJSON_Delete(vocab);
        return status;
    }
    apr_json_get_bool(files->config, "add_prefix_space", &prefixed);
    *tokenizer = cJSON_CreateObject();
    return build(*tokenizer, class, vocab, added, merges, prefixed) ? APR_OK : apr_no_memory(err, "the tokenizer");
}

/* --- tokenizer.json and its companions --- */

typedef struct reading {
    const apr_model *model;
    apr_vocab *vocab;
    apr_arena *arena;
    apr_error *err;
    const char *where;         /* the tokenizer.json, in messages */
    cJSON *tokenizer, *config; /* tokenizer.json, tokenizer_config.json; NULL: not there */
    cJSON *generation, *model_config, *special_map, *template_json, *added_file;
    bool takes_added; /* tokens of other files follow those of the tokenizer's file */
    apr_str *tokens;  /* the tables that vocab will point to */
    uint8_t *types, *added;
} reading;

/* The kind of a tokenizer other than BPE, whose rules are all in the pipeline. NONE: *why says what is not supported. */
static apr_vocab_kind general_kind(const hf_pipeline *p, const char **why)
{
    *why = p->unsupported;
    if (p->unsupported[0] != '\0') return APR_VOCAB_NONE;
    if (!p->byte_level) return p->model;
    *why = p->model == APR_VOCAB_WPM ? "ByteLevel before WordPiece" : "ByteLevel before Unigram";
    return APR_VOCAB_NONE;
}

/* Byte-level BPE has spaces in its byte alphabet. SentencePiece has U+2581 for spaces, or byte tokens as a fallback. */
static apr_vocab_kind kind_of(const hf_pipeline *p, bool byte_fallback, const char **why)
{
    const bool spaces = p->add_space_prefix || p->escape_spaces;

    if (p->model != APR_VOCAB_BPE) return general_kind(p, why);
    *why = p->unsupported;
    if (p->unsupported[0] != '\0') return APR_VOCAB_NONE;
    *why = p->normal;
    if (p->n_normals > 0 && !p->byte_level) return APR_VOCAB_NONE;
    if (p->byte_level && !spaces && !byte_fallback) return APR_VOCAB_BPE;
    if (!p->byte_level && (byte_fallback || p->escape_spaces)) return APR_VOCAB_SPM;
    *why =
        p->byte_level ? "ByteLevel together with SentencePiece's spaces or bytes" : "neither ByteLevel nor SentencePiece's spaces or bytes";
    return APR_VOCAB_NONE;
}

/* --- the tables --- */

static apr_str copy_string(const reading *r, const char *text, size_t n_bytes)
{
    return (apr_str){apr_arena_copy(r->arena, text, n_bytes), n_bytes};
}

/* Raises *n_tokens above `id`. Ids far beyond the number of tokens count as damage, not as a vocabulary with holes. */
static apr_status count_id(const reading *r, const cJSON *id_item, const char *text, size_t n_entries, size_t *n_tokens)
{
    int64_t id;
    if (!apr_json_as_int(id_item, &id) || id < 0)
        return apr_fail(r->err, APR_E_DAMAGED, "%s: token '%.100s' has no id", r->where, text != NULL ? text : "");
    if (text == NULL) return apr_fail(r->err, APR_E_DAMAGED, "%s: the added token %" PRId64 " has no content", r->where, id);
    if ((uint64_t)id > 2 * n_entries + 65536)
        return apr_fail(r->err, APR_E_DAMAGED, "%s: token '%.100s' has the id %" PRId64 ", but there are only %zu tokens", r->where, text,
                        id, n_entries);
    if ((size_t)id >= *n_tokens) *n_tokens = (size_t)id + 1;
    return APR_OK;
}

static apr_status count_tokens(const reading *r, const cJSON *entries, const cJSON *added, size_t *n_tokens)
{
    const cJSON *item;
    const size_t n_entries = (size_t)cJSON_GetArraySize(entries) + (size_t)cJSON_GetArraySize(added);
    const int64_t vocab_size = r->model->hparams.vocab_size;

    *n_tokens = cJSON_IsArray(entries) ? (size_t)cJSON_GetArraySize(entries) : 0; /* in a list the position is the id */
    if (!cJSON_IsArray(entries)) cJSON_ArrayForEach(item, entries) APR_TRY(count_id(r, item, item->string, n_entries, n_tokens));
    cJSON_ArrayForEach(item, added)
        APR_TRY(count_id(r, apr_json_get(item, "id"), apr_json_get_string(item, "content"), n_entries, n_tokens));
    if (vocab_size > 0 && (uint64_t)vocab_size > 4 * n_entries + 65536)
        return apr_fail(r->err, APR_E_DAMAGED, "%s: there are %zu tokens, but config.json says %" PRId64, r->where, n_entries, vocab_size);
    if (vocab_size > 0 && (size_t)vocab_size > *n_tokens) *n_tokens = (size_t)vocab_size;
    return APR_OK;
}

static apr_status set_token(reading *r, int64_t id, const char *text)
{
    apr_str *const token = &r->tokens[id];
    const size_t n_bytes = strlen(text);

    if (token->text != NULL && !apr_str_is(*token, text))
        return apr_fail(r->err, APR_E_DAMAGED, "%s: the tokens '%.100s' and '%.100s' have the same id %" PRId64, r->where, token->text,
                        text, id);
    if (token->text != NULL) return APR_OK;
    *token = copy_string(r, text, n_bytes);
    r->types[id] = APR_TOKEN_NORMAL;
    return token->text != NULL ? APR_OK : apr_no_memory(r->err, "the tokens");
}

/* A byte of SentencePiece's fallback: "<0xNN>". */
static bool is_byte_token(apr_str token)
{
    return token.n_bytes == 6 && memcmp(token.text, "<0x", 3) == 0 && token.text[5] == '>' &&
           strspn(token.text + 3, "0123456789ABCDEFabcdef") == 2;
}

static apr_status read_added(reading *r, const cJSON *item)
{
    int64_t id = 0;

    apr_json_get_int(item, "id", &id);
    APR_TRY(set_token(r, id, apr_json_get_string(item, "content")));
    r->types[id] = flag_of(item, "special", false) ? APR_TOKEN_CONTROL : APR_TOKEN_USER;
    r->added[id] = APR_ADDED;
    for (size_t i = 0; i < APR_N_ADDED_FLAGS; i++)
        if (flag_of(item, apr_added_flags[i].key, false)) r->added[id] |= apr_added_flags[i].flag;
    return APR_OK;
}

/* Names the ids without a token: the embedding has rows for them. */
static apr_status fill_holes(reading *r, size_t n_tokens)
{
    for (size_t id = 0; id < n_tokens; id++) {
        if (r->tokens[id].text != NULL) continue;
        const char *const text = apr_arena_print(r->arena, "[PAD%zu]", id);
        if (text == NULL) return apr_no_memory(r->err, "the tokens");
        r->tokens[id] = apr_str_of(text);
        r->types[id] = APR_TOKEN_UNUSED;
    }
    return APR_OK;
}

/* Unigram's vocabulary is a list of pieces and scores, by id. */
static apr_status check_pieces(const reading *r, const cJSON *entries)
{
    const cJSON *item;
    size_t n = 0;

    cJSON_ArrayForEach(item, entries)
    {
        const cJSON *const score = cJSON_IsArray(item) && item->child != NULL ? item->child->next : NULL;
        if (score == NULL || !cJSON_IsString(item->child) || !cJSON_IsNumber(score) || !isfinite(score->valuedouble))
            return apr_fail(r->err, APR_E_DAMAGED, "%s: piece %zu of model.vocab is not a text and a score", r->where, n);
        n++;
    }
    return APR_OK;
}

/* NaN: a token that is not in the model's list has no score. */
static apr_status read_scores(reading *r, const cJSON *entries, size_t n_tokens)
{
    double *const scores = apr_arena_array(r->arena, n_tokens, sizeof *scores);
    const cJSON *item;
    size_t n = 0;

    if (scores == NULL) return apr_no_memory(r->err, "the tokens");
    cJSON_ArrayForEach(item, entries) scores[n++] = item->child->next->valuedouble;
    while (n < n_tokens) scores[n++] = NAN;
    r->vocab->log_probs = scores;
    return APR_OK;
}

static apr_status read_entries(reading *r, const cJSON *entries)
{
    const cJSON *item;
    int64_t id = 0;

    cJSON_ArrayForEach(item, entries)
    {
        if (!cJSON_IsArray(entries)) apr_json_as_int(item, &id); /* counted and checked before */
        APR_TRY(set_token(r, id, cJSON_IsArray(entries) ? item->child->valuestring : item->string));
        if (r->vocab->kind == APR_VOCAB_SPM && is_byte_token(r->tokens[id])) r->types[id] = APR_TOKEN_BYTE;
        id++;
    }
    return APR_OK;
}

static apr_status read_tokens(reading *r)
{
    const cJSON *const entries = apr_json_get(apr_json_get(r->tokenizer, "model"), "vocab"),
                       *const added = apr_json_get(r->tokenizer, "added_tokens"), *item;
    size_t n_tokens;

    const bool has_pieces = r->vocab->kind == APR_VOCAB_UGM;
    if (has_pieces ? !cJSON_IsArray(entries) : !cJSON_IsObject(entries))
        return apr_fail(r->err, APR_E_DAMAGED, "%s: model.vocab is missing", r->where);
    if (has_pieces) APR_TRY(check_pieces(r, entries));
    APR_TRY(count_tokens(r, entries, added, &n_tokens));
    r->tokens = apr_arena_array(r->arena, n_tokens, sizeof *r->tokens);
    r->types = apr_arena_alloc(r->arena, n_tokens);
    r->added = apr_arena_alloc(r->arena, n_tokens);
    if (r->tokens == NULL || r->types == NULL || r->added == NULL) return apr_no_memory(r->err, "the tokens");
    APR_TRY(read_entries(r, entries));
    if (has_pieces) APR_TRY(read_scores(r, entries, n_tokens));
    cJSON_ArrayForEach(item, added) APR_TRY(read_added(r, item));
    APR_TRY(fill_holes(r, n_tokens));
    r->vocab->tokens = r->tokens;
    r->vocab->types = r->types;
    r->vocab->added = r->added;
    r->vocab->n_tokens = n_tokens;
    return APR_OK;
}

/* "left right", or ["left", "right"] in newer files. */
static bool read_merge(const reading *r, const cJSON *item, apr_str pair[2])
{
    if (cJSON_IsString(item)) {
        const char *const text = item->valuestring, *const space = strchr(text, ' ');
        if (space == NULL || strchr(space + 1, ' ') != NULL) return false;
        pair[0] = copy_string(r, text, (size_t)(space - text));
        pair[1] = copy_string(r, space + 1, strlen(space + 1));
    } else {
        const cJSON *const left = cJSON_IsArray(item) ? item->child : NULL, *const right = left != NULL ? left->next : NULL;
        if (!cJSON_IsString(left) || !cJSON_IsString(right) || right->next != NULL) return false;
        pair[0] = copy_string(r, left->valuestring, strlen(left->valuestring));
        pair[1] = copy_string(r, right->valuestring, strlen(right->valuestring));
    }
    return pair[0].n_bytes > 0 && pair[1].n_bytes > 0;
}

static apr_status read_merges(reading *r)
{
    const cJSON *const list = apr_json_get(apr_json_get(r->tokenizer, "model"), "merges"), *item;
    size_t n = 0;

    if (!cJSON_IsArray(list)) return apr_fail(r->err, APR_E_DAMAGED, "%s: the list model.merges is missing", r->where);
    apr_str *const merges = apr_arena_array(r->arena, 2 * (size_t)cJSON_GetArraySize(list), sizeof *merges);
    if (merges == NULL) return apr_no_memory(r->err, "the merges");
    cJSON_ArrayForEach(item, list)
    {
        apr_str *const pair = &merges[2 * n];
        if (!read_merge(r, item, pair)) return apr_fail(r->err, APR_E_DAMAGED, "%s: merge %zu is not a pair of tokens", r->where, n);
        if (pair[0].text == NULL || pair[1].text == NULL) return apr_no_memory(r->err, "the merges");
        n++;
    }
    r->vocab->merges = merges;
    r->vocab->n_merges = n;
    return APR_OK;
}

/* --- special tokens --- */

static int32_t id_of(const apr_vocab *vocab, const char *text)
{
    for (size_t id = 0; text != NULL && id < vocab->n_tokens; id++)
        if (apr_str_is(vocab->tokens[id], text)) return (int32_t)id;
    return -1;
}

static int32_t token_under(const apr_vocab *vocab, const cJSON *config, const char *key)
{
    return id_of(vocab, text_of(apr_json_get(config, key)));
}

/* The id of a token that tokenizer_config.json or special_tokens_map.json names; -1: none. */
static int32_t named_id(const reading *r, const apr_special_token *s)
{
    const int32_t id = token_under(r->vocab, r->config, s->hf_token);
    return id >= 0 ? id : token_under(r->vocab, r->special_map, s->hf_token);
}

/* The first of an id or a list of ids; the padding token only if there is no other. -1: none is in the vocabulary. If `stops`, all of them
 * become stop ids. */
static int32_t ids_under(apr_vocab *vocab, const cJSON *config, const char *key, bool stops)
{
    const cJSON *const item = apr_json_get(config, key);
    int32_t first = -1;

    for (const cJSON *one = cJSON_IsArray(item) ? item->child : item; one != NULL; one = cJSON_IsArray(item) ? one->next : NULL) {
        int64_t id;
        if (!apr_json_as_int(one, &id) || !apr_vocab_has_id(vocab, id)) continue;
        if (first < 0 || first == vocab->pad_id) first = (int32_t)id;
        if (stops) apr_vocab_add_stop(vocab, id);
    }
    return first;
}

/* null in tokenizer_config.json means that there is no such token. generation_config.json is not asked then. */
static int32_t special_id(const reading *r, const apr_special_token *s)
{
    int32_t id = named_id(r, s);
    if (id < 0) id = ids_under(r->vocab, r->model_config, s->hf_id, false);
    if (id < 0 && !cJSON_IsNull(apr_json_get(r->config, s->hf_token))) id = ids_under(r->vocab, r->generation, s->hf_id, false);
    return id;
}

/* Most kinds state the unknown token by text, Unigram by id. WordPiece has a default. */
static int32_t unknown_id(const reading *r)
{
    const cJSON *const model = apr_json_get(r->tokenizer, "model");
    const apr_vocab *const v = r->vocab;
    int64_t id;

    if (v->kind == APR_VOCAB_UGM) return apr_json_get_int(model, "unk_id", &id) && apr_vocab_has_id(v, id) ? (int32_t)id : -1;
    if (v->kind == APR_VOCAB_WPM && apr_json_get(model, "unk_token") == NULL) return id_of(v, "[UNK]");
    return token_under(v, model, "unk_token");
}

static void read_added_ends(reading *r)
{
    apr_vocab *const v = r->vocab;
    v->add_bos = flag_of(r->config, "add_bos_token", v->add_bos) && v->bos_id >= 0;
    v->add_eos = flag_of(r->config, "add_eos_token", v->add_eos) && v->eos_id >= 0;
}

static void read_specials(reading *r, const hf_pipeline *p)
{
    apr_vocab *const v = r->vocab;
    const cJSON *const text_config = apr_config_text_part(r->model_config);

    for (size_t i = APR_N_SPECIALS; i-- > 0;) /* padding first, because ids_under prefers other tokens */
        if (i != APR_SPECIAL_UNK) *apr_special_id(v, i) = special_id(r, &apr_special_tokens[i]);
    v->unk_id = unknown_id(r);
    if (v->unk_id >= 0) r->types[v->unk_id] = APR_TOKEN_UNKNOWN;

    apr_vocab_add_stop(v, v->eos_id);
    ids_under(v, r->generation, "eos_token_id", true);
    ids_under(v, r->model_config, "eos_token_id", true);
    ids_under(v, text_config, "eos_token_id", true);

    if (p->has_template) {
        const int32_t first = id_of(v, p->first_token), last = id_of(v, p->last_token);
        v->add_bos = first >= 0;
        v->add_eos = last >= 0;
        if (first >= 0) v->bos_id = first;
        if (last >= 0) v->eos_id = last;
    } else {
        read_added_ends(r);
    }
}

static apr_status read_template(reading *r)
{
    const apr_attachment *const file = apr_model_attachment(r->model, "chat_template.jinja");
    const cJSON *const item = apr_json_get(r->config, "chat_template"), *named;
    const char *text = cJSON_IsString(item) ? item->valuestring : apr_json_get_string(r->template_json, "chat_template");

    if (file != NULL && file->n_bytes > 0 && memchr(file->data, '\0', file->n_bytes) != NULL)
        return apr_fail(r->err, APR_E_DAMAGED, "%s: chat_template.jinja contains a NUL byte", r->model->path);
    if (cJSON_IsArray(item))
        cJSON_ArrayForEach(named, item) if (is_string(named, "name", "default")) text = apr_json_get_string(named, "template");
    if (file != NULL) text = (const char *)file->data;
    if (text == NULL && file == NULL) return APR_OK;
    r->vocab->chat_template = apr_arena_copy(r->arena, text, file != NULL ? file->n_bytes : strlen(text));
    return r->vocab->chat_template != NULL ? APR_OK : apr_no_memory(r->err, "the chat template");
}

/* --- all of it --- */

/* Copies the splitting expression or steps, which are in the JSON's memory. */
static apr_status copy_splits(reading *r, const hf_pipeline *p)
{
    apr_vocab *const v = r->vocab;

    if (p->pattern != NULL) {
        v->pattern = apr_arena_copy(r->arena, p->pattern, strlen(p->pattern));
        if (v->pattern == NULL) return apr_no_memory(r->err, "the splitting expression");
    }
    apr_split *const splits = apr_arena_array(r->arena, p->n_splits, sizeof *splits);
    if (splits == NULL) return apr_no_memory(r->err, "the splitting expressions");
    for (size_t i = 0; i < p->n_splits; i++) {
        splits[i] = p->splits[i];
        splits[i].pattern = apr_arena_copy(r->arena, p->splits[i].pattern, strlen(p->splits[i].pattern));
        if (splits[i].pattern == NULL) return apr_no_memory(r->err, "the splitting expressions");
    }
    v->splits = splits;
    v->n_splits = p->n_splits;
    const apr_pre_rule *const rule = v->n_splits > 0 ? apr_pre_of(v) : NULL;
    v->pre = rule != NULL ? rule->name : apr_pre_name(v->pattern);
    return APR_OK;
}

/* Copies the normalizers, and WordPiece's settings. */
static apr_status copy_general(reading *r, const hf_pipeline *p, const cJSON *model)
{
    apr_vocab *const v = r->vocab;
    apr_normal *const normals = apr_arena_array(r->arena, p->n_normals, sizeof *normals);
    const char *const prefix = apr_json_get_string(model, "continuing_subword_prefix");
    int64_t max_chars = 100;

    if (normals == NULL) return apr_no_memory(r->err, "the normalizers");
    if (p->n_normals > 0) memcpy(normals, p->normals, p->n_normals * sizeof *normals);
    v->normals = normals;
    v->n_normals = p->n_normals;
    if (v->kind != APR_VOCAB_WPM) return APR_OK;
    v->word_prefix = apr_arena_copy(r->arena, prefix != NULL ? prefix : "##", prefix != NULL ? strlen(prefix) : 2);
    if (v->word_prefix == NULL) return apr_no_memory(r->err, "the tokenizer");
    apr_json_get_int(model, "max_input_chars_per_word", &max_chars);
    v->max_word_chars = max_chars > 0 ? (size_t)max_chars : 0;
    return APR_OK;
}

static apr_status read_tokenizer(reading *r)
{
    apr_vocab *const v = r->vocab;
    const cJSON *const model = apr_json_get(r->tokenizer, "model");
    const bool byte_fallback = flag_of(model, "byte_fallback", false);
    hf_pipeline p;
    const char *why;

    APR_TRY(read_pipeline(&p, r->tokenizer, r->arena, r->err));
    v->kind = kind_of(&p, byte_fallback, &why);
    if (v->kind == APR_VOCAB_NONE) {
        v->unsupported = apr_arena_copy(r->arena, why, strlen(why));
        return v->unsupported != NULL ? APR_OK : apr_no_memory(r->err, "the tokenizer");
    }
    v->nfc = p.nfc;
    v->ignore_merges = flag_of(model, "ignore_merges", false);
    v->byte_fallback = byte_fallback;
    v->add_space_prefix = p.add_space_prefix;
    v->prefix_unless_space = p.prefix_unless_space;
    v->space_after_added = p.space_after_added;
    v->escape_spaces = p.escape_spaces;
    APR_TRY(copy_general(r, &p, model));
    APR_TRY(copy_splits(r, &p));
    APR_TRY(read_tokens(r));
    if (v->kind == APR_VOCAB_BPE || v->kind == APR_VOCAB_SPM) APR_TRY(read_merges(r));
    read_specials(r, &p);
    return APR_OK;
}

/* Parses an attachment. *json stays as it is if there is no such attachment. */
static apr_status parse_attachment(const reading *r, const char *name, cJSON **json)
{
    const apr_attachment *const file = apr_model_attachment(r->model, name);
    if (file == NULL) return APR_OK;
    const char *const where = apr_arena_print(r->arena, "%s: %s", r->model->path, name);
    if (where == NULL) return apr_no_memory(r->err, "a path");
    return apr_json_parse(json, file->data, file->n_bytes, where, r->err);
}

/* Copies the tables into writable ones of n tokens. The new tokens have no text yet. */
static apr_status grow(reading *r, size_t n)
{
    apr_vocab *const v = r->vocab;
    const size_t n_old = v->n_tokens;
    float *const scores = apr_arena_array(r->arena, n, sizeof *scores);

    r->tokens = apr_arena_array(r->arena, n, sizeof *r->tokens);
    r->types = apr_arena_array(r->arena, n, 1);
    r->added = apr_arena_array(r->arena, n, 1);
    if (scores == NULL || r->tokens == NULL || r->types == NULL || r->added == NULL) return apr_no_memory(r->err, "the tokens");
    memcpy(r->tokens, v->tokens, n_old * sizeof *r->tokens);
    memcpy(r->types, v->types, n_old);
    if (v->added != NULL) memcpy(r->added, v->added, n_old);
    if (v->scores != NULL) memcpy(scores, v->scores, n_old * sizeof *scores);
    v->tokens = r->tokens;
    v->types = r->types;
    v->added = v->added != NULL ? r->added : NULL;
    v->scores = v->scores != NULL ? scores : NULL;
    v->n_tokens = n;
    return APR_OK;
}

/* Adds unused tokens up to the embedding's number of rows, as for a tokenizer.json. */
static apr_status fill_up(reading *r)
{
    const apr_vocab *const v = r->vocab;
    const size_t n_old = v->n_tokens, n = r->model->hparams.vocab_size > 0 ? (size_t)r->model->hparams.vocab_size : 0;

    if (v->kind == APR_VOCAB_NONE || n <= n_old || n > 4 * n_old + 65536) return APR_OK;
    APR_TRY(grow(r, n));
    return fill_holes(r, n);
}

static parsed_files slow_files(const reading *r) { return (parsed_files){r->added_file, r->config, r->special_map, r->model_config}; }

/* An added token replaces a piece of the same id. SentencePiece's special tokens keep their type. */
static apr_status set_added(reading *r, const cJSON *item)
{
    const char *const text = apr_json_get_string(item, "content");
    int64_t id = 0;

    apr_json_get_int(item, "id", &id); /* counted and checked before */
    const bool same = r->tokens[id].text != NULL && apr_str_is(r->tokens[id], text), is_kept = same && r->types[id] != APR_TOKEN_NORMAL;
    const uint8_t type = r->types[id];
    if (!same) r->tokens[id] = (apr_str){0};
    APR_TRY(read_added(r, item));
    if (is_kept) r->types[id] = type;
    return APR_OK;
}

/* Below the scores of all pieces, so that no merge makes an added token. */
static const float added_score = -1000.0f;

/* Adds tokens after SentencePiece's pieces, or in the place of some. The table of flags is kept only if it says more than the types. */
static apr_status take_added(reading *r, const cJSON *list)
{
    apr_vocab *const v = r->vocab;
    const size_t n_old = v->n_tokens, n_entries = n_old + (size_t)cJSON_GetArraySize(list);
    const cJSON *item;
    size_t n = n_old;
    bool has_flags = v->added != NULL;

    cJSON_ArrayForEach(item, list) APR_TRY(count_id(r, apr_json_get(item, "id"), apr_json_get_string(item, "content"), n_entries, &n));
    APR_TRY(grow(r, n));
    for (size_t id = n_old; v->scores != NULL && id < n; id++) ((float *)(uintptr_t)v->scores)[id] = added_score;
    cJSON_ArrayForEach(item, list) APR_TRY(set_added(r, item));
    APR_TRY(fill_holes(r, n));
    for (size_t id = 0; id < n; id++) {
        has_flags |= (r->added[id] & ~APR_ADDED) != 0;
        if (apr_type_is_added(r->types[id])) r->added[id] |= APR_ADDED;
    }
    v->added = has_flags ? r->added : NULL;
    return APR_OK;
}

static apr_status add_slow_tokens(reading *r)
{
    const parsed_files files = slow_files(r);
    cJSON *list = NULL;

    if (r->vocab->kind == APR_VOCAB_NONE || !r->takes_added) return APR_OK;
    apr_status status = make_added_list(&list, &files, NULL, r->vocab, r->arena, r->model->path, r->err);
    if (status == APR_OK && cJSON_GetArraySize(list) > 0) status = take_added(r, list);
    cJSON_Delete(list);
    return status;
}

/* tokenizer_config.json and special_tokens_map.json decide which tokens are special; otherwise the tokenizer's own file. */
static void read_other_specials(reading *r)
{
    apr_vocab *const v = r->vocab;
    const int32_t own_end = v->eos_id;

    for (size_t i = 0; i < APR_N_SPECIALS; i++) {
        const int32_t id = i != APR_SPECIAL_UNK ? named_id(r, &apr_special_tokens[i]) : -1;
        if (id >= 0) *apr_special_id(v, i) = id;
    }
    if (v->eos_id != own_end) v->n_stop_ids = 0;
    apr_vocab_add_stop(v, v->eos_id);
    read_added_ends(r);
    ids_under(v, r->generation, "eos_token_id", true);
    ids_under(v, r->model_config, "eos_token_id", true);
}

/* Reads vocab.json and merges.txt by making a tokenizer.json of them. */
static apr_status read_slow_bpe(reading *r)
{
    const apr_attachment *const merges = apr_model_attachment(r->model, "merges.txt");
    const parsed_files files = slow_files(r);
    cJSON *vocab = NULL;

    if (merges == NULL) return APR_OK;
    APR_TRY(parse_attachment(r, "vocab.json", &vocab));
    if (vocab == NULL) return APR_OK;
    r->where = apr_arena_print(r->arena, "%s: vocab.json and merges.txt", r->model->path);
    if (r->where == NULL) {
        cJSON_Delete(vocab);
        return apr_no_memory(r->err, "a path");
    }
    APR_TRY(make_slow_bpe(&r->tokenizer, &r->vocab->unsupported, vocab, merges, &files, r->arena, r->model->path, r->err));
    return r->vocab->unsupported == NULL ? read_tokenizer(r) : APR_OK;
}

/* Reads a file of ranks, whose tokenizer class must be known. */
static apr_status read_tiktoken(reading *r, const apr_attachment *file)
{
    const char *const class_name = apr_json_get_string(r->config, "tokenizer_class");
    const char *family = apr_json_get_string(r->model_config, "model_type");
    if (family == NULL) family = r->model->hparams.architecture;
    apr_tiktoken_class class;

    if (!apr_tiktoken_class_of(class_name, family, &class)) {
        r->vocab->unsupported = "tiktoken's file of ranks, and neither a tokenizer.json nor a known tokenizer_class";
        return APR_OK;
    }
    r->takes_added = true;
    if (class.specials == NULL && !cJSON_IsObject(apr_json_get(r->config, "added_tokens_decoder"))) {
        r->vocab->unsupported = "tiktoken's file of ranks without its special tokens (added_tokens_decoder in tokenizer_config.json)";
        return APR_OK;
    }
    return apr_tiktoken_read(file, &class, r->vocab, r->arena, r->where, r->err);
}

/* Reads the tokenizer of a model without tokenizer.json. */
static apr_status read_others(reading *r)
{
    static const char *const names[] = {"tekken.json", "tokenizer.model", "tiktoken.model", "qwen.tiktoken"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const apr_attachment *const file = apr_model_attachment(r->model, names[i]);
        if (file == NULL || file->n_bytes == 0) continue;
        r->where = apr_arena_print(r->arena, "%s: %s", r->model->path, names[i]);
        if (r->where == NULL) return apr_no_memory(r->err, "a path");
        if (i == 0) {
            APR_TRY(apr_tekken_read(file, r->vocab, r->arena, r->where, r->err));
        } else if (apr_is_tiktoken(file)) {
            APR_TRY(read_tiktoken(r, file));
        } else {
            r->takes_added = true;
            APR_TRY(apr_sentencepiece_read(file, r->vocab, r->arena, r->where, r->err));
        }
        APR_TRY(add_slow_tokens(r));
        APR_TRY(fill_up(r));
        read_other_specials(r);
        return APR_OK;
    }
    return read_slow_bpe(r);
}

static apr_status read_vocab(reading *r)
{
    const struct {
        const char *name;
        cJSON **json;
    } files[] = {
        {"tokenizer.json", &r->tokenizer}, {"tokenizer_config.json", &r->config},        {"generation_config.json", &r->generation},
        {"config.json", &r->model_config}, {"special_tokens_map.json", &r->special_map}, {"chat_template.json", &r->template_json}};

    r->where = apr_arena_print(r->arena, "%s: tokenizer.json", r->model->path);
    if (r->where == NULL) return apr_no_memory(r->err, "a path");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) APR_TRY(parse_attachment(r, files[i].name, files[i].json));
    if (r->tokenizer == NULL) APR_TRY(parse_attachment(r, "added_tokens.json", &r->added_file));
    APR_TRY(read_template(r));
    return r->tokenizer != NULL ? read_tokenizer(r) : read_others(r);
}

apr_status apr_hf_vocab_read(const apr_model *model, apr_vocab *vocab, apr_arena *arena, apr_error *err)
{
    reading r = {.model = model, .vocab = vocab, .arena = arena, .err = err};

    *vocab = (apr_vocab){.bos_id = -1, .eos_id = -1, .pad_id = -1, .unk_id = -1};
    const apr_status status = read_vocab(&r);
    cJSON *const trees[] = {r.tokenizer, r.config, r.generation, r.model_config, r.special_map, r.template_json, r.added_file};
    for (size_t i = 0; i < sizeof trees / sizeof *trees; i++) cJSON_Delete(trees[i]);
    return status;
}
