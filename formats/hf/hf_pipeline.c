/* hf_pipeline.c - the steps of tokenizer.json: one function a type. */
#include "formats/hf/hf_pipeline.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define SPM_SPACE "\xe2\x96\x81" /* U+2581, SentencePiece's visible space */

typedef struct walking {
    apr_hf_pipeline *p;
    apr_arena *arena;
    const char *what; /* "normalizer" and its kin */
    bool no_memory;
} walking;

/* Only the first is kept. */
__attribute__((format(printf, 2, 3))) static void strange(const walking *w, const char *format, ...)
{
    va_list args;
    if (w->p->strange[0] != '\0') return;
    va_start(args, format);
    vsnprintf(w->p->strange, sizeof w->p->strange, format, args);
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
    apr_hf_pipeline *const p = w->p;
    if (p->n_splits == APR_MAX_SPLITS) strange(w, "more than %d pre-tokenizers", (int)APR_MAX_SPLITS);
    else p->splits[p->n_splits++] = (apr_split){pattern, behavior, invert, p->byte_level};
}

/* A text as an expression that matches it alone. */
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
        strange(w, "a Split without a pattern or a known behavior");
        return;
    }
    if (regex == NULL && strcmp(text, " ") == 0 && w->p->escape_spaces) return; /* gemma: the normalizer has left no spaces */
    add_split(w, regex != NULL ? regex : quoted(w, text), behavior, flag_of(step, "invert", false));
}

static void byte_level_step(const cJSON *step, walking *w)
{
    if (w->p->byte_level) strange(w, "two ByteLevel pre-tokenizers");
    if (flag_of(step, "add_prefix_space", true)) strange(w, "ByteLevel with add_prefix_space");
    if (flag_of(step, "use_regex", true)) add_split(w, apr_pre_pattern("gpt-2"), APR_SPLIT_ISOLATED, false);
    w->p->byte_level = true;
}

static void digits_step(const cJSON *step, walking *w)
{
    add_split(w, "\\p{N}", flag_of(step, "individual_digits", false) ? APR_SPLIT_ISOLATED : APR_SPLIT_CONTIGUOUS, false);
}

#define ASCII_SYMBOLS "$+<=>^`|~" /* ASCII's punctuation that Unicode calls symbols */

static void punctuation_step(const cJSON *step, walking *w)
{
    const char *const name = apr_json_get_string(step, "behavior");
    apr_split_behavior behavior = APR_SPLIT_ISOLATED;

    if (name != NULL && !apr_split_behavior_find(name, &behavior)) strange(w, "Punctuation with the behavior '%.40s'", name);
    add_split(w, "[\\p{P}" ASCII_SYMBOLS "]", behavior, false);
}

/* \w of Rust's expressions knows joiners too. */
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
    whitespace_split_step(step, w);
    add_split(w, "[\\p{P}" ASCII_SYMBOLS "]", APR_SPLIT_ISOLATED, false);
}

static void delimiter_step(const cJSON *step, walking *w)
{
    const char *const delimiter = apr_json_get_string(step, "delimiter");
    if (delimiter == NULL || *delimiter == '\0') strange(w, "CharDelimiterSplit without a delimiter");
    else add_split(w, quoted(w, delimiter), APR_SPLIT_REMOVED, false);
}

/* A space in front of each piece, or of the first one: what was cut before would have to be known. */
static void metaspace_step(const cJSON *step, walking *w)
{
    apr_hf_pipeline *const p = w->p;
    const char *scheme = apr_json_get_string(step, "prepend_scheme");

    if (scheme == NULL) scheme = flag_of(step, "add_prefix_space", true) ? "always" : "never";
    if (!is_string(step, "replacement", SPM_SPACE)) strange(w, "Metaspace with another sign than U+2581");
    if (p->n_splits > 0 || p->byte_level) strange(w, "Metaspace behind another pre-tokenizer");
    if (p->add_space_prefix) strange(w, "Metaspace behind Prepend");
    p->escape_spaces = true;
    p->add_space_prefix = p->prefix_unless_space = strcmp(scheme, "never") != 0;
    p->space_after_added = strcmp(scheme, "always") == 0;
    if (flag_of(step, "split", true)) add_split(w, "\\x{2581}", APR_SPLIT_MERGED_WITH_NEXT, false);
}

/* --- normalizers --- */

static void nfc_step(const cJSON *step, walking *w)
{
    (void)step;
    w->p->nfc = true;
}

static void prepend_step(const cJSON *step, walking *w)
{
    if (!is_string(step, "prepend", SPM_SPACE)) strange(w, "Prepend of another text than U+2581");
    w->p->add_space_prefix = w->p->space_after_added = true;
}

static void replace_step(const cJSON *step, walking *w)
{
    if (!is_string(apr_json_get(step, "pattern"), "String", " ") || !is_string(step, "content", SPM_SPACE))
        strange(w, "Replace of something else than spaces by U+2581");
    w->p->escape_spaces = true;
}

/* --- post-processors --- */

/* Nothing but one token before the text and one behind it can be expressed. */
static void template_step(const cJSON *step, walking *w)
{
    apr_hf_pipeline *const p = w->p;
    const cJSON *part;
    bool behind = false;

    if (p->has_template) strange(w, "two TemplateProcessing post-processors");
    p->has_template = true;
    cJSON_ArrayForEach(part, apr_json_get(step, "single"))
    {
        if (apr_json_get(part, "Sequence") != NULL) {
            behind = true;
            continue;
        }
        const char **const token = behind ? &p->last_token : &p->first_token;
        if (*token != NULL) strange(w, "TemplateProcessing with more than one token on a side of the text");
        *token = apr_json_get_string(apr_json_get(part, "SpecialToken"), "id");
        if (*token == NULL) strange(w, "TemplateProcessing with a part that is no token");
    }
}

/* Offsets only; the ids are not touched. */
static void no_step(const cJSON *step, walking *w)
{
    (void)step;
    (void)w;
}

/* --- all of them --- */

typedef struct step_rule {
    const char *type;
    void (*apply)(const cJSON *step, walking *w);
} step_rule;

static const step_rule normalizers[] = {{"NFC", nfc_step}, {"Prepend", prepend_step}, {"Replace", replace_step}, {NULL, NULL}};
static const step_rule pre_tokenizers[] = {{"Split", split_step},           {"ByteLevel", byte_level_step},
                                           {"Digits", digits_step},         {"Punctuation", punctuation_step},
                                           {"Whitespace", whitespace_step}, {"WhitespaceSplit", whitespace_split_step},
                                           {"BertPreTokenizer", bert_step}, {"CharDelimiterSplit", delimiter_step},
                                           {"Metaspace", metaspace_step},   {NULL, NULL}};
static const step_rule post_processors[] = {{"TemplateProcessing", template_step}, {"ByteLevel", no_step}, {NULL, NULL}};

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
            rules->apply(step, w);
            return;
        }
    strange(w, "the %s %.60s", w->what, type != NULL ? type : "without a type");
}

static void check_model(const cJSON *model, const walking *w)
{
    const char *const type = apr_json_get_string(model, "type"), *const prefix = apr_json_get_string(model, "continuing_subword_prefix"),
                      *const suffix = apr_json_get_string(model, "end_of_word_suffix");
    double dropout = 0;

    if (apr_json_get(model, "type") != NULL && (type == NULL || strcmp(type, "BPE") != 0))
        strange(w, "the model %.60s", type != NULL ? type : "without a type");
    if (prefix != NULL && *prefix != '\0') strange(w, "a continuing_subword_prefix");
    if (suffix != NULL && *suffix != '\0') strange(w, "an end_of_word_suffix");
    if (apr_json_get_real(model, "dropout", &dropout) && dropout > 0) strange(w, "dropout");
}

static bool is_plain(const apr_split *split) { return split->behavior == APR_SPLIT_ISOLATED && !split->invert && !split->letters; }

/* One expression says what the steps say, where that is so: one step; Digits before ByteLevel's words, which GGUF's names know as
 * one; and matches alone of an expression that is known to match everything. */
static void simplify(apr_hf_pipeline *p)
{
    const apr_split *const s = p->splits;
    const bool all_matches = p->n_splits == 1 && s[0].behavior == APR_SPLIT_REMOVED && s[0].invert && !s[0].letters;

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
    w.what = "pre-tokenizer";
    walk(apr_json_get(tokenizer, "pre_tokenizer"), "pretokenizers", pre_tokenizers, &w);
    w.what = "post-processor";
    walk(apr_json_get(tokenizer, "post_processor"), "processors", post_processors, &w);
    if (w.no_memory) return apr_no_memory(err, "the splitting expressions");
    simplify(p);
    return APR_OK;
}
