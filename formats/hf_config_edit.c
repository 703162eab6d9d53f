/* hf_config_edit.c - a config.json that says what the weights have become, all else byte for byte as it was. */
#include "formats/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where a top-level member lies in valid JSON: from its key's quote to behind its value. */
typedef struct span {
    size_t begin, end;
} span;

static size_t skip_space(const char *text, size_t at)
{
    while (text[at] == ' ' || text[at] == '\n' || text[at] == '\t' || text[at] == '\r') at++;
    return at;
}

static size_t skip_string(const char *text, size_t at)
{
    for (at++; text[at] != '"'; at++) at += text[at] == '\\';
    return at + 1;
}

/* Behind the value at `at`: up to the comma or bracket that ends it. */
static size_t skip_value(const char *text, size_t at)
{
    int depth = 0;
    while (depth > 0 || (text[at] != ',' && text[at] != '}' && text[at] != ']')) {
        if (text[at] == '"') {
            at = skip_string(text, at);
            continue;
        }
        depth += (text[at] == '{' || text[at] == '[') - (text[at] == '}' || text[at] == ']');
        at++;
    }
    while (text[at - 1] == ' ' || text[at - 1] == '\n' || text[at - 1] == '\t' || text[at - 1] == '\r') at--;
    return at;
}

static bool find_member(const char *text, const char *key, span *found)
{
    size_t at = skip_space(text, 0) + 1; /* behind the object's '{' */
    const size_t n_key = strlen(key);

    for (at = skip_space(text, at); text[at] == '"'; at = skip_space(text, at)) {
        const size_t begin = at, end_of_key = skip_string(text, at);
        at = skip_space(text, end_of_key) + 1; /* behind ':' */
        at = skip_value(text, skip_space(text, at));
        if (end_of_key - begin == n_key + 2 && memcmp(text + begin + 1, key, n_key) == 0) {
            *found = (span){begin, at};
            return true;
        }
        at = skip_space(text, at);
        if (text[at] == ',') at++;
    }
    return false;
}

/* Replaces text[where) by `with`; frees the old text. NULL: no memory. */
static char *splice(char *text, span where, const char *with)
{
    const size_t n = strlen(text), n_with = strlen(with);
    char *const out = malloc(n - (where.end - where.begin) + n_with + 1);
    if (out != NULL) {
        memcpy(out, text, where.begin);
        memcpy(out + where.begin, with, n_with);
        memcpy(out + where.begin + n_with, text + where.end, n - where.end + 1);
    }
    free(text);
    return out;
}

/* Sets "key": value (JSON text); a member that is not there becomes the last one. */
static char *set_member(char *text, const char *key, const char *value)
{
    span where;
    const bool exists = find_member(text, key, &where);
    const size_t n = strlen(key) + strlen(value) + 16;
    char *const member = malloc(n);

    if (member == NULL) {
        free(text);
        return NULL;
    }
    if (!exists) { /* before the last '}' and the space in front of it */
        where.end = strrchr(text, '}') != NULL ? (size_t)(strrchr(text, '}') - text) : strlen(text);
        while (where.end > 0 && (text[where.end - 1] == ' ' || text[where.end - 1] == '\n')) where.end--;
        where.begin = where.end;
    }
    const bool first = !exists && where.begin > 0 && text[where.begin - 1] == '{';
    snprintf(member, n, "%s\"%s\": %s", exists ? "" : first ? "\n  " : ",\n  ", key, value);
    char *const out = splice(text, where, member);
    free(member);
    return out;
}

/* Removes a member with the comma that set it off. */
static char *remove_member(char *text, const char *key)
{
    span where;

    if (!find_member(text, key, &where)) return text;
    const size_t behind = skip_space(text, where.end);
    if (text[behind] == ',') {
        where.end = skip_space(text, behind + 1);
    } else {
        while (where.begin > 0 && text[where.begin - 1] != ',' && text[where.begin - 1] != '{') where.begin--;
        if (where.begin > 0 && text[where.begin - 1] == ',') where.begin--;
    }
    return splice(text, where, "");
}

/* What vLLM, SGLang and transformers read as FP8 weights with one scale for each output row. */
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

char *apr_hf_config_edit(const apr_attachment *config, const char *torch_dtype, apr_config_quantization quantization)
{
    span where;
    char *text = strndup((const char *)config->data, config->n_bytes);

    if (text != NULL && torch_dtype != NULL) {
        char quoted[64];
        snprintf(quoted, sizeof quoted, "\"%s\"", torch_dtype);
        text = set_member(text, find_member(text, "dtype", &where) ? "dtype" : "torch_dtype", quoted);
    }
    if (text != NULL && quantization == APR_CONFIG_UNQUANTIZED) text = remove_member(text, "quantization_config");
    if (text != NULL && quantization == APR_CONFIG_FP8_CHANNEL) text = set_member(text, "quantization_config", fp8_channel);
    return text;
}
