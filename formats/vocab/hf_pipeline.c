/* hf_pipeline.c - reads the steps of a tokenizer.json, with one function per type.
 *
 * The first step that apr_vocab cannot express is named, and a tokenizer with such a step is refused (APR_VOCAB_NONE): a text that is
 * tokenized almost right is worse than an error. */
#include "formats/vocab/hf_pipeline.h"
#include "formats/base/base64.h"
#include "formats/vocab/bert_splits.h"
#include "formats/vocab/special_tokens.h"

#include <stdarg.h>
#include <stdio.h>

typedef struct step_rule step_rule;
typedef struct walking {
    apr_hf_pipeline *p;
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

/* --- pre-tokenizers --- */

static void add_split(const walking *w, const char *pattern, apr_split_behavior behavior, bool invert)
{
    apr_hf_pipeline *const p = w->p;
    if (p->n_splits == APR_MAX_SPLITS) unsupported(w, "more than %d pre-tokenizers", (int)APR_MAX_SPLITS);
    else p->splits[p->n_splits++] = (apr_split){.pattern = pattern, .behavior = behavior, .invert = invert, .letters = p->byte_level};
}

static const char matches_nothing[] = "(?!)";

/* Adds a step that puts a space in front and splits by `pattern` (NULL: does not split). */
static void add_space_step(const walking *w, const char *pattern, apr_split_behavior behavior, bool marks, apr_space_rule space)
{
    apr_hf_pipeline *const p = w->p;
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
    add_split(w, regex != NULL ? regex : quoted(w, text), behavior, apr_hf_flag(step, "invert", false));
}

static void byte_level_step(const cJSON *step, walking *w)
{
    if (w->p->byte_level) unsupported(w, "two ByteLevel pre-tokenizers");
    const char *const words = apr_hf_flag(step, "use_regex", true) ? apr_pre_pattern("gpt-2") : NULL;
    if (apr_hf_flag(step, "add_prefix_space", true)) add_space_step(w, words, APR_SPLIT_ISOLATED, false, APR_SPACE_ALWAYS);
    else if (words != NULL) add_split(w, words, APR_SPLIT_ISOLATED, false);
    w->p->byte_level = true;
}

static void digits_step(const cJSON *step, walking *w)
{
    add_split(w, "\\p{N}", apr_hf_flag(step, "individual_digits", false) ? APR_SPLIT_ISOLATED : APR_SPLIT_CONTIGUOUS, false);
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
    apr_hf_pipeline *const p = w->p;
    const char *scheme = apr_json_get_string(step, "prepend_scheme");

    if (scheme == NULL) scheme = apr_hf_flag(step, "add_prefix_space", true) ? "always" : "never";
    if (!apr_hf_is(step, "replacement", APR_SPACE_MARK)) unsupported(w, "Metaspace with another sign than U+2581");
    if (p->model != APR_VOCAB_BPE) {
        const apr_space_rule space = strcmp(scheme, "never") == 0    ? APR_SPACE_NEVER
                                     : strcmp(scheme, "always") == 0 ? APR_SPACE_ALWAYS
                                                                     : APR_SPACE_AT_START;
        add_space_step(w, apr_hf_flag(step, "split", true) ? "\\x{2581}" : NULL, APR_SPLIT_MERGED_WITH_NEXT, true, space);
        return;
    }
    if (p->n_splits > 0 || p->byte_level) unsupported(w, "Metaspace after another pre-tokenizer");
    if (p->add_space_prefix) unsupported(w, "Metaspace after Prepend");
    p->escape_spaces = true;
    p->add_space_prefix = p->prefix_unless_space = strcmp(scheme, "never") != 0;
    p->space_after_added = strcmp(scheme, "always") == 0;
    if (apr_hf_flag(step, "split", true)) add_split(w, "\\x{2581}", APR_SPLIT_MERGED_WITH_NEXT, false);
}

/* --- normalizers --- */

static apr_str kept(walking *w, const char *text)
{
    const char *const copy = text != NULL ? apr_arena_copy(w->arena, text, strlen(text)) : NULL;
    w->no_memory |= text != NULL && copy == NULL;
    return (apr_str){copy, copy != NULL ? strlen(copy) : 0};
}

/* Sets the flag that equals this normalizer: NFC, SentencePiece's space in front, spaces as U+2581. False: there is none. */
static bool set_flag(apr_hf_pipeline *p, const apr_normal *normal)
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
    apr_hf_pipeline *const p = w->p;
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
    const unsigned left = apr_hf_flag(step, "strip_left", true) ? APR_STRIP_LEFT : 0,
                   right = apr_hf_flag(step, "strip_right", true) ? APR_STRIP_RIGHT : 0;
    add_normal(w, (apr_normal){.kind = APR_NORMAL_STRIP, .flags = left | right});
}

/* strip_accents defaults to lowercase. */
static void bert_normalizer_step(const cJSON *step, walking *w)
{
    const bool lowercase = apr_hf_flag(step, "lowercase", true), accents = apr_hf_flag(step, "strip_accents", lowercase);
    add_normal(w, (apr_normal){.kind = APR_NORMAL_BERT,
                               .flags = (apr_hf_flag(step, "clean_text", true) ? APR_BERT_CLEAN : 0u) |
                                        (apr_hf_flag(step, "handle_chinese_chars", true) ? APR_BERT_CHINESE : 0u) |
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
static void settle_normals(apr_hf_pipeline *p)
{
    const bool is_flags = p->normal[0] == '\0' && p->model == APR_VOCAB_BPE;

    if (is_flags) p->n_normals = 0;
    else p->nfc = p->add_space_prefix = p->space_after_added = p->escape_spaces = false;
}

/* --- post-processors --- */

/* Only one token before the text and one after it can be expressed. */
static void template_step(const cJSON *step, walking *w)
{
    apr_hf_pipeline *const p = w->p;
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
    apr_hf_pipeline *const p = w->p;
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
static void simplify(apr_hf_pipeline *p)
{
    const apr_split *const s = p->splits;
    const bool all_matches = p->n_splits == 1 && only_splits(&s[0], APR_SPLIT_REMOVED, true);

    if (p->n_splits == 1 && (is_plain(&s[0]) || (all_matches && apr_pre_name(s[0].pattern) != NULL))) p->pattern = s[0].pattern;
    if (p->n_splits == 2 && is_plain(&s[0]) && is_plain(&s[1]) && strcmp(s[0].pattern, "\\p{N}") == 0 &&
        strcmp(s[1].pattern, apr_pre_pattern("gpt-2")) == 0)
        p->pattern = apr_pre_pattern("starcoder");
    if (p->pattern != NULL) p->n_splits = 0;
}

apr_status apr_hf_pipeline_read(apr_hf_pipeline *p, const cJSON *tokenizer, apr_arena *arena, apr_error *err)
{
    walking w = {.p = p, .arena = arena};

    *p = (apr_hf_pipeline){0};
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
