/* turn_special.c - words that take more than a row of the table: by the model's layers, by two options together, by the GPUs that are here. */
#include "tools/cli/parse.h"

#include "formats/open.h"
#include "kernels/cuda_loader.h"
#include "runtime/plan/gpus.h"
#include "tools/cli/type_words.h"
#include "tools/cli/values.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

static apr_status put_words(apr_turning *t, const char *words)
{
    for (const char *at = words; *at != '\0';) {
        const size_t n = strcspn(at, " ");
        const char *const word = apr_arena_copy(t->arena, at, n);
        if (word == NULL) return apr_no_memory(t->err, "the command line");
        APR_TRY(apr_turn_put(t, word));
        at += n + (at[n] == ' ');
    }
    return APR_OK;
}

/* With a note that says so. */
static apr_status put_turned(apr_turning *t, const char *option, const char *value, const char *words)
{
    APR_TRY(apr_turn_note(t, true, "%s%s%s is %s", option, value != NULL ? " " : "", value != NULL ? value : "", words));
    return put_words(t, words);
}

/* --- layers on a GPU --- */

/* Of the first argument that is a model; 0: none of them is. */
static int64_t layers_of_model(const apr_turning *t)
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

static apr_status turn_gpu_layers(apr_turning *t, const char *option, const char *value)
{
    enum { CERTAINLY_ALL = 99 };
    const bool plans = t->letter == 'p', is_number = value[strspn(value, "0123456789")] == '\0' && *value != '\0';
    const long long asked = is_number ? strtoll(value, NULL, 10) : CERTAINLY_ALL;
    const bool is_all = asked >= CERTAINLY_ALL, is_none = is_number && asked == 0;
    const int64_t n_layers = is_none || is_all ? 0 : layers_of_model(t);
    char words[96];

    if (t->letter != 'r' && !plans) return apr_turn_note(t, false, "%s has no effect: no layers are run here", option);
    if (!is_number && strcmp(value, "all") != 0 && strcmp(value, "auto") != 0 && strcmp(value, "max") != 0 && strcmp(value, "-1") != 0)
        return apr_fail(t->err, APR_E_USAGE, "%s: '%.60s' is not a number of layers, nor all", option, value);
    if (is_none) return put_turned(t, option, value, plans ? "--host" : "--device host");
    if (is_all || n_layers == 0 || asked >= n_layers)
        return plans ? apr_turn_note(t, false, "%s %s has no effect: all layers are planned for the GPU", option, value)
                     : put_turned(t, option, value, "--device cuda");
    snprintf(words, sizeof words, "%s--offload layers=%lld", plans ? "" : "--device cuda ", (long long)n_layers - asked);
    return put_turned(t, option, value, words);
}

/* --- keys and values --- */

/* The value of the last of these options, as typed. */
static const char *typed_value(const apr_turning *t, const char *letter_form, const char *long_form)
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

static apr_status turn_cache_type(apr_turning *t, const char *option, const char *value)
{
    const char *const keys = typed_value(t, "-ctk", "--cache-type-k"), *const values = typed_value(t, "-ctv", "--cache-type-v");
    const char *const of_keys = type_name(keys != NULL ? keys : "f16"), *const of_values = type_name(values != NULL ? values : "f16");
    const bool is_second = keys != NULL && values != NULL && (strstr(option, "-v") != NULL || strcmp(option, "-ctv") == 0);
    char words[64];

    snprintf(words, sizeof words, "--kv %.40s", of_keys);
    if (strcmp(of_keys, of_values) == 0) return is_second ? APR_OK : put_turned(t, option, value, words);
    snprintf(words, sizeof words, "--kv %.40s", type_name(value));
    if (keys == NULL || values == NULL) return apr_turn_name(t, words, "%s %s: keys and values have one type here", option, value);
    const apr_change changes[] = {{.was = "-ctk"}, {.was = "--cache-type-k"}, {.was = keys}, {.was = "-ctv"}, {.was = "--cache-type-v"},
                                  {.was = values}, {.is = words, .words = 1}};
    apr_fail(t->err, APR_E_USAGE, "keys as %s and values as %s: keys and values have one type here", keys, values);
    return apr_try_instead(APR_E_USAGE, &t->typed, changes, sizeof changes / sizeof *changes, t->err);
}

/* --- GPUs by name --- */

static bool is_list_of_numbers(const char *text) { return *text != '\0' && text[strspn(text, "0123456789,")] == '\0'; }

static apr_status turn_gpu_name(apr_turning *t, const char *value)
{
    const apr_gpu *const wanted = apr_gpu_find(value);
    const apr_cuda_api *cuda;
    apr_cuda_facts facts;
    char words[32];
    int n = 0;

    if (is_list_of_numbers(value) || strcmp(value, "-1") == 0) {
        APR_TRY(apr_turn_put(t, "--gpu"));
        return apr_turn_put(t, value);
    }
    if (wanted == NULL) return apr_fail(t->err, APR_E_USAGE, "--gpu: '%.60s' is neither a number nor a GPU that is known by name", value);
    APR_TRY(apr_cuda_load(&cuda, t->err));
    APR_TRY(cuda->count(&n, t->err));
    for (int i = 0; i < n; i++) {
        if (cuda->facts(i, &facts, NULL) != APR_OK || apr_gpu_find(facts.name) != wanted) continue;
        snprintf(words, sizeof words, "--gpu %d", i);
        APR_TRY(apr_turn_note(t, true, "%s: GPU %d is one", value, i));
        return put_words(t, words);
    }
    return apr_fail(t->err, APR_E_DEVICE, "--gpu: none of the GPUs here is %s", wanted->label);
}

/* --- the others --- */

static apr_status turn_bits(apr_turning *t, const char *option, const char *value)
{
    static const struct {
        const char *bits, *words;
    } types[] = {{"4", "--to q4_k_m"}, {"5", "--to q5_k_m"}, {"6", "--to q6_k"},
                 {"8", "--to q8_0"},   {"16", "--to f16"},   {"32", "--to f32"}};

    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].bits, value) == 0) return put_turned(t, option, value, types[i].words);
    return apr_turn_name(t, "--to mxfp4", "%s %s: the types have 4.25 to 32 bits ('aprquant --list')", option, value);
}

/* The experts of so many layers on the host; of none, all stays as it is. */
static apr_status turn_cpu_moe(apr_turning *t, const char *option, const char *value)
{
    const char *const words = apr_arena_print(t->arena, "--offload experts=%s", value);

    if (words == NULL) return apr_no_memory(t->err, "the command line");
    if (strcmp(value, "0") == 0) return apr_turn_note(t, false, "%s 0 has no effect", option);
    return put_turned(t, option, value, words);
}

static apr_status turn_bench_output(apr_turning *t, const char *option, const char *value)
{
    const bool has_csv = apr_option_named(t->command, "csv", 3, 0) != NULL;

    if (strcmp(value, "csv") == 0 && has_csv) return put_turned(t, option, value, "--csv");
    if (strncmp(value, "json", 4) == 0) return put_turned(t, option, value, "--json");
    if (strcmp(value, "md") == 0) return apr_turn_note(t, false, "%s %s has no effect: a table is printed", option, value);
    return apr_turn_name(t, "--json", "%s %s: answers are text, %sor one JSON object", option, value, has_csv ? "--csv " : "");
}

static apr_status name_split(apr_turning *t)
{
    const char *const in = t->at + 1 < t->typed.argc ? t->typed.argv[t->at + 1] : NULL;
    const char *const dot = in != NULL ? strrchr(in, '.') : NULL;
    const int n = in == NULL ? 0 : dot != NULL ? (int)(dot - in) : (int)strlen(in);
    const char *const out = in != NULL ? apr_arena_print(t->arena, "%.*s-split/", n, in) : NULL;
    char *const argv[] = {"", "convert", "--max-shard", "1G", (char *)in, (char *)out};

    apr_fail(t->err, APR_E_USAGE, "split: a GGUF is one file here; a checkpoint is split by --max-shard SIZE%s",
             in == NULL ? "; try 'aprconv convert --help'" : "");
    return out == NULL ? APR_E_USAGE : apr_try_instead(APR_E_USAGE, &(apr_typed){"aprconv", 6, argv}, NULL, 0, t->err);
}

apr_status apr_turn_special(apr_turning *t, const char *name, const char *option, const char *value)
{
    if (strcmp(name, "gpu_layers") == 0) return turn_gpu_layers(t, option, value);
    if (strcmp(name, "cache_type") == 0) return turn_cache_type(t, option, value);
    if (strcmp(name, "gpu_name") == 0) return turn_gpu_name(t, value);
    if (strcmp(name, "cpu_moe") == 0) return turn_cpu_moe(t, option, value);
    if (strcmp(name, "bits") == 0) return turn_bits(t, option, value);
    if (strcmp(name, "bench_output") == 0) return turn_bench_output(t, option, value);
    if (strcmp(name, "split") == 0) return name_split(t);
    if (strcmp(name, "list") == 0) return apr_turn_put(t, "--list");
    if (strcmp(name, "list_gpus") == 0) return apr_turn_put(t, "--list-gpus");
    return APR_OK; /* "run": the verb that the tool is */
}

/* --- values --- */

static apr_status turn_type(apr_turning *t, const apr_option *option, const char *text, const char **type)
{
    const apr_type_word word = apr_type_spelled(text);
    const bool writes = t->letter == 'q' || t->letter == 'c';

    *type = text;
    switch (word.kind) {
    case APR_TYPE_UNKNOWN: return APR_OK;
    case APR_TYPE_IS: *type = word.name; return APR_OK;
    case APR_TYPE_KEPT: *type = NULL; return APR_OK;
    case APR_TYPE_TURNED:
        *type = word.name;
        return apr_turn_note(t, true, "--%s %s is --%s %s", option->name, text, option->name, word.name);
    case APR_TYPE_NAMED:
        apr_fail(t->err, APR_E_USAGE, "--%s: %s may be meant as %s", option->name, text, word.why);
        return apr_try_change(APR_E_USAGE, &t->typed, text, word.name, t->err);
    case APR_TYPE_READ_ONLY: break;
    }
    if (!writes) return APR_OK;
    apr_fail(t->err, APR_E_USAGE, "--%s: %s is read here, not written ('aprquant --list'); the smallest that is: mxfp4 (4.25 bits)",
             option->name, text);
    return apr_try_change(APR_E_USAGE, &t->typed, text, word.name, t->err);
}

static apr_status turn_rule(apr_turning *t, const char **value)
{
    const char *const text = *value, *const equals = strrchr(text, '=');
    const apr_type_word word = equals != NULL ? apr_type_spelled(equals + 1) : (apr_type_word){0};

    if (word.kind != APR_TYPE_IS && word.kind != APR_TYPE_TURNED) return APR_OK;
    *value = apr_arena_print(t->arena, "%.*s=%s", (int)(equals - text), text, word.name);
    return *value != NULL ? APR_OK : apr_no_memory(t->err, "the command line");
}

/* One of "f16|f32|q8_0", in any case, with '-' or '_', or as types are spelled. */
static apr_status turn_choice(apr_turning *t, const apr_option *option, const char **value)
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
        if (choices[n] == '\0') return APR_OK; /* the parser says what there is */
        choices += n + 1;
    }
}

/* Numbers that mean something else by themselves: -1 threads are all, -1 tokens are as many as there is room for, -1 is any seed. */
static apr_status turn_number(apr_turning *t, const apr_option *option, const char **value)
{
    const bool is_minus_one = strcmp(*value, "-1") == 0, is_any = is_minus_one || strcmp(*value, "-2") == 0;
    const bool generates =
        t->command != NULL && (t->command->verb == NULL || strcmp(t->command->verb, "batch") == 0 || strcmp(t->command->verb, "chat") == 0);
    uint32_t seed;

    if (is_minus_one && strcmp(option->name, "threads") == 0) *value = "0";
    if (t->letter != 'r' || !generates) return APR_OK;
    if (is_any && strcmp(option->name, "tokens") == 0) *value = "1000000000"; /* the context ends it before */
    if (!is_minus_one || strcmp(option->name, "seed") != 0) return APR_OK;
    if (getrandom(&seed, sizeof seed, 0) != (ssize_t)sizeof seed)
        return apr_fail(t->err, APR_E_IO, "--seed -1: there are no random numbers");
    *value = apr_arena_print(t->arena, "%u", seed);
    return *value != NULL ? apr_turn_note(t, true, "--seed -1 is --seed %s", *value) : apr_no_memory(t->err, "the command line");
}

apr_status apr_turn_value(apr_turning *t, const apr_option *option, const char **value)
{
    if (option->kind == APR_OPTION_CHOICE) return turn_choice(t, option, value);
    if (option->kind == APR_OPTION_INT) return turn_number(t, option, value);
    if (option->value_name == NULL) return APR_OK;
    if (strcmp(option->value_name, "TYPE") == 0) return turn_type(t, option, *value, value);
    return strcmp(option->value_name, "REGEX=TYPE") == 0 ? turn_rule(t, value) : APR_OK;
}

apr_status apr_turn_type_option(apr_turning *t, const char *argument, bool *found)
{
    const bool has_to = apr_option_named(t->command, "to", 2, 0) != NULL, has_dtype = apr_option_named(t->command, "dtype", 5, 0) != NULL;
    const apr_type_word word = apr_type_spelled(argument + 2);
    char words[64];

    *found = (has_to || has_dtype) && word.kind == APR_TYPE_IS && strpbrk(argument, "0123456789") != NULL;
    if (!*found) return APR_OK;
    snprintf(words, sizeof words, "%s %s", has_to ? "--to" : "--dtype", word.name);
    return put_turned(t, argument, NULL, words);
}
