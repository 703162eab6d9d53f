/* hf_config_edit.c - changes single members of a config.json after the weights' types have changed; all other bytes stay.
 *
 * The text is parsed strictly first. The tree gives the members (keys decoded); a parallel scan of the text gives their positions. The scan
 * never reads outside the text, whatever it contains. */
#include "formats/base/json.h"
#include "formats/shape/hf_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct document {
    char *text; /* malloc'ed, NUL-terminated */
    size_t n_bytes;
    const char *where;
    apr_error *err;
} document;

/* A member of an object: from its key's quote to the byte after its value. */
typedef struct span {
    size_t begin, value, end;
} span;

/* --- positions --- */

typedef struct cursor {
    const char *text;
    size_t n_bytes, at;
} cursor;

static int peek(const cursor *c) { return c->at < c->n_bytes ? (unsigned char)c->text[c->at] : -1; }
static bool is_space(int c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

static void skip_space(cursor *c)
{
    while (is_space(peek(c))) c->at++;
}

static void skip_string(cursor *c)
{
    for (c->at++; peek(c) >= 0 && peek(c) != '"'; c->at++)
        if (peek(c) == '\\') c->at++;
    c->at++;
}

static bool is_one_of(const cursor *c, const char *characters) { return peek(c) > 0 && strchr(characters, peek(c)) != NULL; }

/* Skips the value at the cursor: a string, an object or array with its contents, or a word. */
static void skip_value(cursor *c)
{
    size_t depth = 0;
    do {
        if (peek(c) == '"') {
            skip_string(c);
        } else if (is_one_of(c, "{[")) {
            depth++;
            c->at++;
        } else if (depth > 0 && is_one_of(c, "}]")) {
            depth--;
            c->at++;
        } else {
            c->at++; /* a comma, a colon, the first character of a word */
            while (peek(c) >= 0 && !is_one_of(c, ",:{}[]\" \n\t\r")) c->at++;
        }
        if (depth > 0) skip_space(c);
    } while (depth > 0 && peek(c) >= 0);
}

static span next_member(cursor *c)
{
    span s;

    skip_space(c);
    s.begin = c->at;
    skip_string(c);
    skip_space(c);
    c->at++; /* the colon */
    skip_space(c);
    s.value = c->at;
    skip_value(c);
    s.end = c->at;
    return s;
}

/* An object and the text it was read from. */
typedef struct place {
    const cJSON *object;
    size_t begin; /* of its '{' */
} place;

typedef struct member_place {
    bool exists;
    span self, before;         /* before: the previous member, if has_before */
    bool has_before, has_next; /* next: a comma follows */
} member_place;

/* The position of the member, or (exists false) the member after which a new one is inserted. */
static member_place find_member(const document *d, const place *where, const char *key)
{
    cursor c = {d->text, d->n_bytes, where->begin + 1};
    member_place m = {0};
    const cJSON *item;

    cJSON_ArrayForEach(item, where->object)
    {
        m.self = next_member(&c);
        skip_space(&c);
        m.has_next = peek(&c) == ',';
        if (m.has_next) c.at++;
        if (strcmp(item->string, key) == 0) {
            m.exists = true;
            return m;
        }
        m.before = m.self;
        m.has_before = true;
    }
    return m;
}

/* --- changes --- */

/* Replaces text[begin, end) by `with`. */
static apr_status splice(document *d, size_t begin, size_t end, const char *with)
{
    const size_t n_with = strlen(with);

    if (begin > end || end > d->n_bytes) return apr_fail(d->err, APR_E_DAMAGED, "%s: invalid JSON at byte %zu", d->where, begin);
    char *const out = malloc(d->n_bytes - (end - begin) + n_with + 1);
    if (out == NULL) return apr_no_memory(d->err, d->where);
    memcpy(out, d->text, begin);
    memcpy(out + begin, with, n_with);
    memcpy(out + begin + n_with, d->text + end, d->n_bytes - end);
    d->n_bytes += n_with;
    d->n_bytes -= end - begin;
    out[d->n_bytes] = '\0';
    free(d->text);
    d->text = out;
    return APR_OK;
}

/* Sets "key": value (JSON text). A new member is appended. */
static apr_status set_member(document *d, const place *where, const char *key, const char *value)
{
    const member_place m = find_member(d, where, key);
    if (m.exists) return splice(d, m.self.value, m.self.end, value);

    const size_t n = strlen(key) + strlen(value) + 16, at = m.has_before ? m.before.end : where->begin + 1;
    char *const member = malloc(n);
    if (member == NULL) return apr_no_memory(d->err, d->where);
    snprintf(member, n, "%s\"%s\": %s", m.has_before ? ",\n  " : "\n  ", key, value);
    const apr_status status = splice(d, at, at, member);
    free(member);
    return status;
}

/* Removes a member and one comma next to it. */
static apr_status remove_member(document *d, const place *where, const char *key)
{
    const member_place m = find_member(d, where, key);

    if (!m.exists) return APR_OK;
    if (!m.has_next) return splice(d, m.has_before ? m.before.end : m.self.begin, m.self.end, "");
    cursor c = {d->text, d->n_bytes, m.self.end};
    skip_space(&c);
    c.at++; /* the comma */
    skip_space(&c);
    return splice(d, m.self.begin, c.at, "");
}

/* One change, in the object itself or in its text_config: sets "key" to `value`, or removes it if that is NULL. */
static apr_status change_in(document *d, const cJSON *root, bool nested, const char *key, const char *value)
{
    cursor c = {d->text, d->n_bytes, 0};
    skip_space(&c);
    place where = {root, c.at};

    if (nested) {
        const member_place m = find_member(d, &where, "text_config");
        where = (place){apr_json_get(root, "text_config"), m.self.value};
    }
    return value != NULL ? set_member(d, &where, key, value) : remove_member(d, &where, key);
}

typedef enum { ONLY_EXISTING, ADD_IF_MISSING } extent;

/* Changes the key at the top and in text_config where it exists. ADD_IF_MISSING adds it at the top if it is in neither. Each change moves
 * the bytes after it, so the text is parsed again. */
static apr_status change(document *d, const char *key, const char *value, extent wanted)
{
    bool existed = false;

    for (int nested = 1; nested >= 0; nested--) {
        cJSON *root;
        APR_TRY(apr_json_parse(&root, d->text, d->n_bytes, d->where, d->err));
        const cJSON *const object = nested ? apr_json_get(root, "text_config") : root;
        const bool exists = apr_json_get(object, key) != NULL;
        apr_status status = APR_OK;
        if (!cJSON_IsObject(root)) status = apr_fail(d->err, APR_E_DAMAGED, "%s: not a JSON object", d->where);
        else if (exists || (!nested && !existed && wanted == ADD_IF_MISSING)) status = change_in(d, root, nested, key, value);
        cJSON_Delete(root);
        APR_TRY(status);
        existed = existed || exists;
    }
    return APR_OK;
}

/* Changes "dtype" and "torch_dtype" where they exist. Adds "torch_dtype" if there is neither. */
static apr_status change_dtype(document *d, const char *torch_dtype)
{
    char quoted[64];
    cJSON *root;

    snprintf(quoted, sizeof quoted, "\"%s\"", torch_dtype);
    APR_TRY(apr_json_parse(&root, d->text, d->n_bytes, d->where, d->err));
    const bool new_style = apr_json_get(root, "dtype") != NULL || apr_json_get(apr_json_get(root, "text_config"), "dtype") != NULL;
    cJSON_Delete(root);
    APR_TRY(change(d, "dtype", quoted, ONLY_EXISTING));
    return change(d, "torch_dtype", quoted, new_style ? ONLY_EXISTING : ADD_IF_MISSING);
}

/* vLLM, SGLang and transformers read this as FP8 weights with one scale for each output row. */
static const char fp8_channel[] =
    "{\n"
    "    \"quant_method\": \"compressed-tensors\",\n"
    "    \"format\": \"float-quantized\",\n"
    "    \"quantization_status\": \"compressed\",\n"
    "    \"config_groups\": {\"group_0\": {\n"
    "      \"targets\": [\"Linear\"],\n"
    "      \"weights\": {\"num_bits\": 8, \"type\": \"float\", \"strategy\": \"channel\", \"symmetric\": true, \"dynamic\": false},\n"
    "      \"input_activations\": {\"num_bits\": 8, \"type\": \"float\", \"strategy\": \"token\", \"symmetric\": true, \"dynamic\": true}\n"
    "    }},\n"
    "    \"ignore\": [\"lm_head\"]\n"
    "  }";

/* quantization_config: JSON text; NULL removes it. */
static apr_status edit(document *d, const char *torch_dtype, apr_config_quantization quantization, const char *quantization_config)
{
    if (torch_dtype != NULL) APR_TRY(change_dtype(d, torch_dtype));
    if (quantization == APR_CONFIG_KEEP) return APR_OK;
    APR_TRY(change(d, "compression_config", NULL, ONLY_EXISTING));
    return change(d, "quantization_config", quantization_config, quantization_config != NULL ? ADD_IF_MISSING : ONLY_EXISTING);
}

static apr_status edit_config(const apr_attachment *config, const char *torch_dtype, apr_config_quantization quantization,
                              const char *quantization_config, char **text, size_t *n_bytes, apr_error *err)
{
    document d = {.text = malloc(config->n_bytes + 1), .n_bytes = config->n_bytes, .where = config->name, .err = err};

    *text = NULL;
    *n_bytes = 0;
    if (d.text == NULL) return apr_no_memory(err, config->name);
    if (config->n_bytes > 0) memcpy(d.text, config->data, config->n_bytes);
    d.text[d.n_bytes] = '\0';
    const apr_status status = edit(&d, torch_dtype, quantization, quantization_config);
    if (status != APR_OK) {
        free(d.text);
        return status;
    }
    *text = d.text;
    *n_bytes = d.n_bytes;
    return APR_OK;
}

apr_status apr_hf_config_edit(const apr_attachment *config, const char *torch_dtype, apr_config_quantization quantization, char **text,
                              size_t *n_bytes, apr_error *err)
{
    return edit_config(config, torch_dtype, quantization, quantization == APR_CONFIG_FP8_CHANNEL ? fp8_channel : NULL, text, n_bytes, err);
}

apr_status apr_hf_config_set_quantization(const apr_attachment *config, const char *torch_dtype, const char *quantization_config,
                                          char **text, size_t *n_bytes, apr_error *err)
{
    return edit_config(config, torch_dtype, APR_CONFIG_UNQUANTIZED, quantization_config, text, n_bytes, err);
}
