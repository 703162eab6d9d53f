/* translate_special.c - translations that take code: they depend on the model's layers, on two options together, or on the installed GPUs. */
#include "tools/cli/translation.h"

#include "formats/base/text.h"
#include "formats/open.h"
#include "formats/packed/packed_layouts.h"
#include "kernels/cuda_loader.h"
#include "runtime/plan/gpus.h"
#include "tools/cli/model_paths.h"
#include "tools/cli/options.h"
#include "tools/cli/type_words.h"
#include "tools/cli/values.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

/* --- layers on a GPU --- */

/* The number of layers of the first argument that is a model; 0: no argument is one. */
static int64_t layers_of_model(const apr_translation *t)
{
    int64_t n = 0;

    for (int i = 1; i < t->typed.argc && n == 0; i++) {
        const char *path = t->typed.argv[i];
        apr_model model = {0};
        struct stat st;
        bool is_whole;
        if (path[0] == '-' || apr_hub_id_resolve(path, &path, t->arena, NULL) != APR_OK) continue;
        if (stat(path, &st) != 0 || (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))) continue;
        if (apr_model_open_head(&model, path, &is_whole, NULL) == APR_OK) n = model.hparams.num_layers;
        apr_model_close(&model);
    }
    return n;
}

static apr_status translate_gpu_layers(apr_translation *t, const char *option, const char *value)
{
    enum { ALL_LAYERS = 99 }; /* llama.cpp's users write -ngl 99 for all layers */
    const bool plans = t->letter == 'p', is_number = value[strspn(value, "0123456789")] == '\0' && *value != '\0';
    const long long asked = is_number ? strtoll(value, NULL, 10) : ALL_LAYERS;
    const bool is_all = asked >= ALL_LAYERS, is_none = is_number && asked == 0;
    const int64_t n_layers = is_none || is_all ? 0 : layers_of_model(t);
    char words[96];

    if (t->letter != 'r' && !plans) return apr_translation_note(t, false, "%s has no effect: this tool does not run layers", option);
    if (!is_number && strcmp(value, "all") != 0 && strcmp(value, "auto") != 0 && strcmp(value, "max") != 0 && strcmp(value, "-1") != 0)
        return apr_fail(t->err, APR_E_USAGE, "%s: '%.60s' is not a number of layers or 'all'", option, value);
    if (is_none) return apr_translation_replace(t, option, value, plans ? "--host" : "--device host");
    if (is_all || n_layers == 0 || asked >= n_layers)
        return plans ? apr_translation_note(t, false, "%s %s has no effect: all layers are planned for the GPU", option, value)
                     : apr_translation_replace(t, option, value, "--device cuda");
    snprintf(words, sizeof words, "%s--offload layers=%lld", plans ? "" : "--device cuda ", (long long)n_layers - asked);
    return apr_translation_replace(t, option, value, words);
}

/* --- types of the KV cache --- */

/* The value of an option as typed; if it is given twice, of the last one. */
static const char *typed_value(const apr_translation *t, const char *letter_form, const char *long_form)
{
    const char *value = NULL;
    const size_t n = strlen(long_form);

    for (int i = 1; i < t->typed.argc; i++) {
        const char *const argument = t->typed.argv[i];
        const bool is_it = strcmp(argument, letter_form) == 0 || strcmp(argument, long_form) == 0;
        if (is_it && i + 1 < t->typed.argc) value = t->typed.argv[i + 1];
        if (strncmp(argument, long_form, n) == 0 && argument[n] == '=') value = argument + n + 1;
    }
    return value;
}

static const char *type_name(const char *text)
{
    const apr_type_word word = apr_type_spelled(text);
    return word.kind == APR_TYPE_IS ? word.name : text;
}

static apr_status translate_cache_type(apr_translation *t, const char *option, const char *value)
{
    const char *const keys = typed_value(t, "-ctk", "--cache-type-k"), *const values = typed_value(t, "-ctv", "--cache-type-v");
    const char *const of_keys = type_name(keys != NULL ? keys : "f16"), *const of_values = type_name(values != NULL ? values : "f16");
    const bool is_second = keys != NULL && values != NULL && (strstr(option, "-v") != NULL || strcmp(option, "-ctv") == 0);
    char words[64];

    snprintf(words, sizeof words, "--kv %.40s", of_keys);
    if (strcmp(of_keys, of_values) == 0) return is_second ? APR_OK : apr_translation_replace(t, option, value, words);
    snprintf(words, sizeof words, "--kv %.40s", type_name(value));
    if (keys == NULL || values == NULL)
        return apr_translation_suggest(t, words, "%s %s: keys and values must have the same type", option, value);
    const apr_change changes[] = {{.was = "-ctk"}, {.was = "--cache-type-k"}, {.was = keys}, {.was = "-ctv"}, {.was = "--cache-type-v"},
                                  {.was = values}, {.is = words, .words = 1}};
    apr_fail(t->err, APR_E_USAGE, "keys as %s and values as %s: keys and values must have the same type", keys, values);
    return apr_try_instead(APR_E_USAGE, &t->typed, changes, sizeof changes / sizeof *changes, t->err);
}

/* --- GPUs by name --- */

static bool is_list_of_numbers(const char *text) { return *text != '\0' && text[strspn(text, "0123456789,")] == '\0'; }

static apr_status translate_gpu_name(apr_translation *t, const char *value)
{
    const apr_gpu *const wanted = apr_gpu_find(value);
    const apr_cuda_api *cuda;
    apr_cuda_facts facts;
    const apr_option *const own = apr_option_named(t->command, "gpu", 3, 0);
    const bool takes_names = own != NULL && own->kind == APR_OPTION_STRING; /* a GPU to plan for, which need not be here */
    int n = 0;

    if (takes_names || is_list_of_numbers(value) || strcmp(value, "-1") == 0) {
        APR_TRY(apr_translation_put(t, "--gpu"));
        return apr_translation_put(t, value);
    }
    if (wanted == NULL) return apr_fail(t->err, APR_E_USAGE, "--gpu: '%.60s' is not a GPU number or a known GPU name", value);
    APR_TRY(apr_cuda_load(&cuda, t->err));
    APR_TRY(cuda->count(&n, t->err));
    for (int i = 0; i < n; i++) {
        if (cuda->facts(i, &facts, NULL) != APR_OK || apr_gpu_find(facts.name) != wanted) continue;
        APR_TRY(apr_translation_note(t, true, "%s is GPU %d here", value, i));
        const char *const number = apr_arena_print(t->arena, "%d", i);
        if (number == NULL) return apr_no_memory(t->err, "the command line");
        APR_TRY(apr_translation_put(t, "--gpu"));
        return apr_translation_put(t, number);
    }
    return apr_fail(t->err, APR_E_DEVICE, "--gpu: this machine has no %s", wanted->label);
}

/* --- the others --- */

static apr_status translate_bits(apr_translation *t, const char *option, const char *value)
{
    static const struct {
        const char *bits, *words;
    } types[] = {{"4", "--to q4_k_m"}, {"5", "--to q5_k_m"}, {"6", "--to q6_k"},
                 {"8", "--to q8_0"},   {"16", "--to f16"},   {"32", "--to f32"}};

    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].bits, value) == 0) return apr_translation_replace(t, option, value, types[i].words);
    return apr_translation_suggest(t, "--to mxfp4", "%s %s: types have 4.25 to 32 bits ('aprquant --list' shows them)", option, value);
}

/* Puts the experts of the first N layers on the host. 0 changes nothing. */
static apr_status translate_cpu_moe(apr_translation *t, const char *option, const char *value)
{
    const char *const words = apr_arena_print(t->arena, "--offload experts=%s", value);

    if (words == NULL) return apr_no_memory(t->err, "the command line");
    if (strcmp(value, "0") == 0) return apr_translation_note(t, false, "%s 0 has no effect", option);
    return apr_translation_replace(t, option, value, words);
}

static apr_status translate_bench_output(apr_translation *t, const char *option, const char *value)
{
    const bool has_csv = apr_option_named(t->command, "csv", 3, 0) != NULL;

    if (strcmp(value, "csv") == 0 && has_csv) return apr_translation_replace(t, option, value, "--csv");
    if (apr_begins_with(value, "json")) return apr_translation_replace(t, option, value, "--json");
    if (strcmp(value, "md") == 0) return apr_translation_note(t, false, "%s %s has no effect: a table is printed", option, value);
    return apr_translation_suggest(t, "--json", "%s %s: the output is text, %sor one JSON object", option, value, has_csv ? "--csv " : "");
}

static apr_status suggest_max_shard(apr_translation *t)
{
    const char *const in = t->at + 1 < t->typed.argc ? t->typed.argv[t->at + 1] : NULL;
    const char *const dot = in != NULL ? strrchr(in, '.') : NULL;
    const int n = in == NULL ? 0 : dot != NULL ? (int)(dot - in) : (int)strlen(in);
    const char *const out = in != NULL ? apr_arena_print(t->arena, "%.*s-split/", n, in) : NULL;
    char *const argv[] = {"", "convert", "--max-shard", "1G", (char *)in, (char *)out};

    apr_fail(t->err, APR_E_USAGE, "split: aprkit writes a GGUF as one file; --max-shard SIZE splits a checkpoint%s",
             in == NULL ? "; try 'aprconv convert --help'" : "");
    return out == NULL ? APR_E_USAGE : apr_try_instead(APR_E_USAGE, &(apr_typed){"aprconv", 6, argv}, NULL, 0, t->err);
}

apr_status apr_translate_special(apr_translation *t, const char *name, const char *option, const char *value)
{
    if (strcmp(name, "gpu_layers") == 0) return translate_gpu_layers(t, option, value);
    if (strcmp(name, "cache_type") == 0) return translate_cache_type(t, option, value);
    if (strcmp(name, "gpu_name") == 0) return translate_gpu_name(t, value);
    if (strcmp(name, "cpu_moe") == 0) return translate_cpu_moe(t, option, value);
    if (strcmp(name, "bits") == 0) return translate_bits(t, option, value);
    if (strcmp(name, "bench_output") == 0) return translate_bench_output(t, option, value);
    if (strcmp(name, "split") == 0) return suggest_max_shard(t);
    if (strcmp(name, "list") == 0) return apr_translation_put(t, "--list");
    if (strcmp(name, "list_gpus") == 0) return apr_translation_put(t, "--list-gpus");
    return APR_OK; /* "run": what the tool does without a verb */
}

/* --- values --- */

static apr_status translate_type(apr_translation *t, const apr_option *option, const char *text, const char **type)
{
    const apr_type_word word = apr_type_spelled(text);
    const bool writes = t->letter == 'q' || t->letter == 'c';

    *type = text;
    if (t->letter == 'q' && word.kind != APR_TYPE_IS && apr_packed_is_type(text)) return APR_OK; /* the command knows what OUT is */
    switch (word.kind) {
    case APR_TYPE_UNKNOWN: return APR_OK;
    case APR_TYPE_IS: *type = word.name; return APR_OK;
    case APR_TYPE_KEPT: *type = NULL; return APR_OK;
    case APR_TYPE_REPLACED:
        *type = word.name;
        return apr_translation_note(t, true, "--%s %s means --%s %s", option->name, text, option->name, word.name);
    case APR_TYPE_AMBIGUOUS:
        apr_fail(t->err, APR_E_USAGE, "--%s: %s is not a type; use %s", option->name, text, word.why);
        return apr_try_change(APR_E_USAGE, &t->typed, text, word.name, t->err);
    case APR_TYPE_READ_ONLY: break;
    }
    if (!writes) return APR_OK;
    apr_fail(
        t->err, APR_E_USAGE,
        "--%s: aprkit can read %s but not write it ('aprquant --list'); the smallest type that it writes for any model is q2_k (2.6 bits)",
        option->name, text);
    return apr_try_change(APR_E_USAGE, &t->typed, text, word.name, t->err);
}

static apr_status translate_rule(apr_translation *t, const char **value)
{
    const char *const text = *value, *const equals = strrchr(text, '=');
    const apr_type_word word = equals != NULL ? apr_type_spelled(equals + 1) : (apr_type_word){0};

    if (word.kind != APR_TYPE_IS && word.kind != APR_TYPE_REPLACED) return APR_OK;
    *value = apr_arena_print(t->arena, "%.*s=%s", (int)(equals - text), text, word.name);
    return *value != NULL ? APR_OK : apr_no_memory(t->err, "the command line");
}

/* One of "f16|f32|q8_0": in any case, with '-' or '_', or another spelling of a type. */
static apr_status translate_choice(apr_translation *t, const apr_option *option, const char **value)
{
    const char *choices = option->value_name;

    if (apr_parse_choice(*value, choices) < 0 && apr_type_spelled(*value).kind == APR_TYPE_KEPT) *value = NULL; /* "auto" */
    if (*value == NULL) return APR_OK;
    for (;;) {
        const size_t n = strcspn(choices, "|");
        const char *at = *value, *end = choices + n, *c = choices;
        for (; c < end && *at != '\0'; c++, at++)
            if (*c != tolower((unsigned char)*at) && !(strchr("-_", *c) != NULL && strchr("-_", *at) != NULL)) break;
        const apr_type_word word = apr_type_spelled(*value);
        const bool is_type = word.kind == APR_TYPE_IS && strlen(word.name) == n && strncmp(word.name, choices, n) == 0;
        if ((c == end && *at == '\0') || is_type) {
            *value = apr_arena_copy(t->arena, choices, n);
            return *value != NULL ? APR_OK : apr_no_memory(t->err, "the command line");
        }
        if (choices[n] == '\0') return APR_OK; /* the parser reports it, with the choices */
        choices += n + 1;
    }
}

/* Special numbers of other programs: -1 threads means all, -1 or -2 tokens means until the context is full, -1 is a random seed. */
static apr_status translate_number(apr_translation *t, const apr_option *option, const char **value)
{
    const bool is_minus_one = strcmp(*value, "-1") == 0, is_any = is_minus_one || strcmp(*value, "-2") == 0;
    const bool generates =
        t->command != NULL && (t->command->verb == NULL || strcmp(t->command->verb, "batch") == 0 || strcmp(t->command->verb, "chat") == 0);
    uint32_t seed;

    if (is_minus_one && strcmp(option->name, "threads") == 0) *value = "0";
    if (t->letter != 'r' || !generates) return APR_OK;
    if (is_any && strcmp(option->name, "tokens") == 0) *value = "1000000000"; /* the context's end stops it earlier */
    if (!is_minus_one || strcmp(option->name, "seed") != 0) return APR_OK;
    if (getrandom(&seed, sizeof seed, 0) != (ssize_t)sizeof seed)
        return apr_fail(t->err, APR_E_IO, "--seed -1: the system gives no random numbers");
    *value = apr_arena_print(t->arena, "%u", seed);
    return *value != NULL ? apr_translation_note(t, true, "--seed -1 means --seed %s", *value) : apr_no_memory(t->err, "the command line");
}

apr_status apr_translate_value(apr_translation *t, const apr_option *option, const char **value)
{
    if (option->kind == APR_OPTION_CHOICE) return translate_choice(t, option, value);
    if (option->kind == APR_OPTION_INT) return translate_number(t, option, value);
    if (option->value_name == NULL) return APR_OK;
    if (strcmp(option->value_name, "TYPE") == 0) return translate_type(t, option, *value, value);
    return strcmp(option->value_name, "REGEX=TYPE") == 0 ? translate_rule(t, value) : APR_OK;
}
