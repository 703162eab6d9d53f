/* out_name.c - checks the name of an output and suggests names. */
#include "tools/verbs/convert/out_name.h"

#include "formats/base/text.h"
#include "formats/files/map.h"
#include "tools/cli/nearest.h"
#include "tools/cli/type_words.h"
#include "tools/cli/typed.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char *last_part(const char *path)
{
    const char *const slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* The dot of a file name extension: a letter, up to 11 more letters or digits, then only blanks. NULL: no extension, as in "Qwen2.5-7B". */
static const char *suffix_of(const char *path)
{
    enum { MAX_LENGTH = 12 };
    const char *const dot = strrchr(last_part(path), '.');
    size_t n = 0;

    if (dot == NULL || dot == last_part(path) || !isalpha((unsigned char)dot[1])) return NULL;
    while (isalnum((unsigned char)dot[1 + n])) n++;
    return n <= MAX_LENGTH && dot[1 + n + strspn(dot + 1 + n, " \t")] == '\0' ? dot : NULL;
}

bool apr_out_name_makes_a_folder(const char *out)
{
    const size_t n = strlen(out);
    return n > 0 && out[n - 1] != '/' && !apr_is_folder(out) && suffix_of(out) == NULL;
}

char *apr_out_name_stem(const char *path)
{
    static const char *const suffixes[] = {".gguf", ".apr", ".safetensors", ".json", ".bin", ".pt", ".pth"};
    char *const stem = strdup(path);

    if (stem == NULL) return NULL;
    size_t n = strlen(stem);
    while (n > 1 && stem[n - 1] == '/') stem[--n] = '\0';
    char *const dot = strrchr(stem, '.');
    for (size_t i = 0; dot != NULL && i < sizeof suffixes / sizeof *suffixes; i++)
        if (strcasecmp(dot, suffixes[i]) == 0 && dot > last_part(stem)) *dot = '\0';
    return stem;
}

/* Removes a type at the end: "m-bf16" and "m.Q8_0" become "m". */
static void cut_type(char *stem)
{
    char *const base = stem + (last_part(stem) - stem);
    for (char *at = base + strlen(base); at > base; at--) {
        if (*at != '-' && *at != '.') continue;
        const apr_type_word word = apr_type_spelled(at + 1);
        if (word.kind != APR_TYPE_UNKNOWN && word.kind != APR_TYPE_KEPT && !isdigit((unsigned char)at[1])) *at = '\0';
        return;
    }
}

/* STEM and TAIL in one malloc'ed string. Frees stem. */
static char *joined(char *stem, const char *tail)
{
    const size_t n = stem != NULL ? strlen(stem) + strlen(tail) + 1 : 0;
    char *const all = n > 0 ? malloc(n) : NULL;
    if (all != NULL) snprintf(all, n, "%s%s", stem, tail);
    free(stem);
    return all;
}

char *apr_out_name_next_to(const char *in, const char *type)
{
    char name[APR_TYPE_FILE_NAME], tail[APR_TYPE_FILE_NAME + 8];
    char *const stem = apr_out_name_stem(in);

    if (stem != NULL) cut_type(stem);
    snprintf(tail, sizeof tail, "-%s.gguf", apr_type_file_name(name, type));
    return joined(stem, tail);
}

static bool ends_in(const char *path, const char *suffix) { return strlen(path) > strlen(suffix) && apr_ends_with_any_case(path, suffix); }

/* Appends the command with another OUT to the message in err. Frees `better`. */
static apr_status suggest_out(const apr_call *call, const char *out, char *better, apr_error *err)
{
    if (better != NULL) apr_try_change(APR_E_USAGE, call->typed, out, better, err);
    free(better);
    return APR_E_USAGE;
}

static apr_status refuse_pipe(const apr_call *call, const char *in, apr_error *err)
{
    apr_fail(err, APR_E_USAGE, "a model cannot be written to a pipe; give a file");
    return suggest_out(call, "-", joined(apr_out_name_stem(strcmp(in, "-") == 0 ? "model" : in), ends_in(in, ".gguf") ? ".apr" : ".gguf"),
                       err);
}

static apr_status refuse_type(const apr_call *call, const char *in, const char *out, const char *type, apr_error *err)
{
    const char *to = NULL;
    char *const better = apr_out_name_next_to(in, type);
    const bool is_aprquant = call->typed != NULL && strcmp(call->typed->tool, "aprquant") == 0;

    apr_fail(err, APR_E_USAGE, "%s is a type, not a file name: use aprquant --to %s IN OUT", out, type);
    for (int i = 1; is_aprquant && i + 1 < call->typed->argc; i++)
        if (strcmp(call->typed->argv[i], "--to") == 0) to = call->typed->argv[i + 1];
    if (better != NULL && to != NULL) {
        const apr_change changes[] = {{.was = to, .is = type}, {.was = out, .is = better}};
        apr_try_instead(APR_E_USAGE, call->typed, changes, 2, err);
    } else if (better != NULL) {
        char *const argv[] = {"", "--to", (char *)type, (char *)in, better};
        apr_try_instead(APR_E_USAGE, &(apr_typed){"aprquant", 5, argv}, NULL, 0, err);
    }
    free(better);
    return APR_E_USAGE;
}

/* The extension that was probably meant; "/" for a folder. */
static const char *near_suffix(const char *dot, apr_format produce)
{
    char word[16];
    snprintf(word, sizeof word, "%.*s", (int)strcspn(dot + 1, " \t"), dot + 1);
    for (char *at = word; *at != '\0'; at++) *at = (char)tolower((unsigned char)*at);
    if (apr_format_suffix(produce) != NULL) return apr_format_suffix(produce);
    if (produce == APR_FORMAT_SAFETENSORS || apr_begins_with(word, "safetens") || strcmp(word, "st") == 0 || strcmp(word, "hf") == 0)
        return "/";
    return apr_edit_distance(word, "apr") <= 1 ? ".apr" : ".gguf";
}

static apr_status refuse_suffix(const apr_call *call, const char *out, const char *dot, apr_format produce, apr_error *err)
{
    const char *const suffix = apr_format_suffix(produce);
    char suffixes[APR_FORMAT_TEXT];
    char *const stem = strndup(out, (size_t)(dot - out));

    if (produce == APR_FORMAT_SAFETENSORS) apr_fail(err, APR_E_USAGE, "%s: OUT must be a folder", out);
    else if (ends_in(out, ".safetensors"))
        apr_fail(err, APR_E_USAGE, "%s: a checkpoint is a folder, even if it has one file; OUT must end in %s, or be a folder", out,
                 apr_format_suffixes(suffixes));
    else if (suffix != NULL) apr_fail(err, APR_E_USAGE, "%s: OUT must end in %s", out, suffix);
    else
        apr_fail(err, APR_E_USAGE, "%s: OUT must end in %s, or be a folder (%s/ creates that folder)", out, apr_format_suffixes(suffixes),
                 out);
    return suggest_out(call, out, joined(stem, near_suffix(dot, produce)), err);
}

apr_status apr_out_name_check(const apr_call *call, const char *in, const char *out, apr_format produce, apr_error *err)
{
    const apr_type_word type = strchr(out, '/') == NULL && !apr_is_folder(out) ? apr_type_spelled(out) : (apr_type_word){0};
    const char *const dot = suffix_of(out);

    if (strcmp(in, "-") == 0) return apr_fail(err, APR_E_USAGE, "a model cannot be read from a pipe; save it to a file first");
    if (strcmp(out, "-") == 0) return refuse_pipe(call, in, err);
    const apr_format format = apr_format_of_path(out);
    if (apr_format_suffix(produce) != NULL && (*last_part(out) == '\0' || apr_is_folder(out)))
        return apr_fail(err, APR_E_USAGE, "%s: is a folder; OUT must end in %s", out, apr_format_suffix(produce));
    if (*last_part(out) == '\0' || apr_is_folder(out)) return APR_OK;
    if (apr_format_suffix(format) != NULL && (produce == APR_FORMAT_NONE || produce == format)) return APR_OK;
    if (type.kind == APR_TYPE_IS && strpbrk(out, "0123456789") != NULL) return refuse_type(call, in, out, type.name, err);
    return dot != NULL ? refuse_suffix(call, out, dot, produce, err) : APR_OK;
}
