/* cli.c - parses arguments against tables of options, runs the command and returns its status. */
#include "tools/cli/cli.h"

#include "formats/base/text.h"
#include "formats/files/map.h"
#include "tools/cli/model_paths.h"
#include "tools/cli/nearest.h"
#include "tools/cli/options.h"
#include "tools/cli/translation.h"
#include "tools/cli/usage.h"
#include "tools/cli/values.h"
#include "tools/report/guard.h"
#include "tools/report/meter.h"
#include "tools/report/terminal.h"
#include "tools/report/text.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct parser {
    const apr_tool *tool;
    apr_parsed *parsed;
    int argc;
    char **argv;
    int at; /* index of the current argument */
    apr_error *err;
} parser;

static apr_status bad_usage(const parser *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
static apr_status bad_usage(const parser *p, const char *format, ...)
{
    const apr_command *const command = p->parsed->command;
    char problem[512];
    va_list args;

    va_start(args, format);
    vsnprintf(problem, sizeof problem, format, args);
    va_end(args);
    const bool has_verb = command != NULL && command->verb != NULL;
    return apr_fail(p->err, APR_E_USAGE, "%s; try '%s%s%s --help'", problem, p->tool->name, has_verb ? " " : "",
                    has_verb ? command->verb : "");
}

/* The field that the option's value is stored in, or NULL if there is no such option. */
static void *find_option(const parser *p, const char *name, size_t n, char letter, const apr_option **option)
{
    *option = apr_option_named(p->parsed->command, name, n, letter);
    if (*option == NULL) return NULL;
    const bool is_common = apr_option_named(NULL, name, n, letter) != NULL;
    return (is_common ? (char *)&p->parsed->common : (char *)p->parsed->options) + (*option)->offset;
}

/* The known option nearest to a misspelled "--name", or NULL. */
static const char *nearest_option(const parser *p, const char *name)
{
    enum { MAX_NAMES = 128 };
    const char *names[MAX_NAMES];
    size_t n = 0;

    const apr_option *const tables[] = {p->parsed->command != NULL ? p->parsed->command->options : NULL, apr_common_options};
    for (size_t t = 0; t < 2; t++)
        for (const apr_option *o = tables[t]; o != NULL && o->name != NULL && n < MAX_NAMES; o++) names[n++] = o->name;
    return apr_nearest(name, names, n);
}

static apr_status unknown_option(const parser *p, const char *argument)
{
    const char *const name = argument[0] == '-' && argument[1] == '-' ? argument + 2 : "", *const equals = strchr(name, '=');
    char word[APR_NEAREST_MAX + 1] = "";

    if (equals == NULL) snprintf(word, sizeof word, "%s", name);
    else if ((size_t)(equals - name) < sizeof word) memcpy(word, name, (size_t)(equals - name));
    const char *const near = nearest_option(p, word);
    if (near != NULL) return bad_usage(p, "unknown option '%.60s', the nearest is '--%s'", argument, near);
    return bad_usage(p, "unknown option '%.60s'", argument);
}

static bool is_in_range(const apr_option *option, double value)
{
    return (option->min == 0.0 && option->max == 0.0) || (value >= option->min && value <= option->max);
}

/* "--vram 24" means 24 bytes: suggests 24G or 24M. */
static apr_status small_size(const parser *p, const apr_option *option, const char *text, uint64_t value)
{
    const size_t n_digits = strspn(text, "0123456789.");
    const int n = (int)(n_digits < 40 ? n_digits : 40);
    return bad_usage(p, "--%s: %.60s means %llu bytes, which is too small; write %.*sG for GiB or %.*sM for MiB", option->name, text,
                     (unsigned long long)value, n, text, n, text);
}

static apr_status store_number(const parser *p, const apr_option *option, const char *text, void *field)
{
    static const char *const expected[] = {
        [APR_OPTION_INT] = "a whole number", [APR_OPTION_SIZE] = "a size such as 512M, 1.5G or 32GiB", [APR_OPTION_REAL] = "a number"};
    bool is_good = false;
    double value = 0.0;

    if (option->kind == APR_OPTION_INT && (is_good = apr_parse_int(text, field))) value = (double)*(int64_t *)field;
    if (option->kind == APR_OPTION_SIZE && (is_good = apr_parse_size(text, field))) value = (double)*(uint64_t *)field;
    if (option->kind == APR_OPTION_REAL && (is_good = apr_parse_real(text, field))) value = *(double *)field;
    if (!is_good) return bad_usage(p, "--%s: '%.60s' is not %s", option->name, text, expected[option->kind]);
    if (option->kind == APR_OPTION_SIZE && value == 0)
        return option->or_none ? APR_OK : bad_usage(p, "--%s: %.60s is not allowed; leave the option out", option->name, text);
    if (option->kind == APR_OPTION_SIZE) return value >= option->min ? APR_OK : small_size(p, option, text, *(uint64_t *)field);
    if (!is_in_range(option, value))
        return bad_usage(p, "--%s: %.60s is not between %.12g and %.12g", option->name, text, option->min, option->max);
    return APR_OK;
}

static apr_status append_string(const parser *p, apr_strings *list, const char *text)
{
    if (list->items == NULL) list->items = apr_arena_array(&p->parsed->arena, (size_t)p->argc, sizeof *list->items);
    if (list->items == NULL) return apr_no_memory(p->err, "the command line");
    list->items[list->n_items++] = text;
    return APR_OK;
}

static apr_status store_value(const parser *p, const apr_option *option, const char *text, void *field)
{
    switch (option->kind) {
    case APR_OPTION_FLAG: *(bool *)field = strcmp(text, "yes") == 0; return APR_OK;
    case APR_OPTION_STRING: *(const char **)field = text; return APR_OK;
    case APR_OPTION_LIST: return append_string(p, field, text);
    case APR_OPTION_CHOICE:
        *(int *)field = apr_parse_choice(text, option->value_name);
        return *(int *)field >= 0 ? APR_OK : bad_usage(p, "--%s: '%.60s' is not one of %s", option->name, text, option->value_name);
    case APR_OPTION_INT:
    case APR_OPTION_SIZE:
    case APR_OPTION_REAL: break;
    }
    return store_number(p, option, text, field);
}

static apr_status set_defaults(const parser *p, const apr_command *command)
{
    char *const fields = p->parsed->options = apr_arena_alloc(&p->parsed->arena, command->options_bytes + 1);
    if (fields == NULL) return apr_no_memory(p->err, "the command line");

    for (const apr_option *o = command->options; o != NULL && o->name != NULL; o++) {
        if (o->kind == APR_OPTION_REAL) *(double *)(void *)(fields + o->offset) = NAN;
        if (o->kind == APR_OPTION_CHOICE) *(int *)(void *)(fields + o->offset) = -1;
        if (o->standard != NULL) APR_TRY(store_value(p, o, o->standard, fields + o->offset));
    }
    return APR_OK;
}

/* Remembers that an option was typed, for check_needs and suggest_flag. */
static apr_status mark_given(const parser *p, const apr_option *option)
{
    apr_parsed *const parsed = p->parsed;

    if (parsed->given == NULL) parsed->given = apr_arena_array(&parsed->arena, (size_t)p->argc, sizeof *parsed->given);
    if (parsed->given == NULL) return apr_no_memory(p->err, "the command line");
    parsed->given[parsed->n_given++] = option->name;
    return APR_OK;
}

static bool is_given(const apr_parsed *parsed, const char *name)
{
    for (size_t i = 0; i < parsed->n_given; i++)
        if (strcmp(parsed->given[i], name) == 0) return true;
    return false;
}

/* The value after '=', or the next argument. An argument that begins with "--" is not taken as a value: write --name=--value. */
static apr_status take_value(parser *p, const apr_option *option, const char *inline_value, void *field)
{
    if (inline_value == NULL && p->at + 1 < p->argc && strncmp(p->argv[p->at + 1], "--", 2) != 0) inline_value = p->argv[++p->at];
    if (inline_value == NULL) return bad_usage(p, "--%s needs a value: %s", option->name, option->value_name);
    return store_value(p, option, inline_value, field);
}

static apr_status parse_long(parser *p, const char *argument)
{
    const char *const name = argument + 2, *const equals = strchr(name, '=');
    const size_t n = equals != NULL ? (size_t)(equals - name) : strlen(name);
    const apr_option *option;
    void *field = find_option(p, name, n, 0, &option);

    if (field == NULL && apr_begins_with(name, "no-")) {
        field = find_option(p, name + 3, n - 3, 0, &option);
        if (field != NULL && option->kind == APR_OPTION_FLAG && equals == NULL) {
            APR_TRY(mark_given(p, option));
            return store_value(p, option, "no", field);
        }
        field = NULL;
    }
    if (field == NULL) return unknown_option(p, argument);
    APR_TRY(mark_given(p, option));
    if (option->kind != APR_OPTION_FLAG) return take_value(p, option, equals != NULL ? equals + 1 : NULL, field);
    if (equals != NULL) return bad_usage(p, "--%s takes no value", option->name);
    return store_value(p, option, "yes", field);
}

static apr_status parse_short(parser *p, const char *argument)
{
    const apr_option *option = NULL;
    void *const field = argument[2] == '\0' ? find_option(p, NULL, 0, argument[1], &option) : NULL;

    if (field == NULL) return unknown_option(p, argument);
    APR_TRY(mark_given(p, option));
    p->parsed->common.brief |= field == &p->parsed->common.help;
    if (option->kind == APR_OPTION_FLAG) return store_value(p, option, "yes", field);
    return take_value(p, option, NULL, field);
}

static const char *nearest_verb(const apr_tool *tool, const char *word)
{
    enum { MAX_VERBS = 32 };
    const char *verbs[MAX_VERBS];
    size_t n = 0;

    for (const apr_command *const *at = tool->commands; *at != NULL && n + 1 < MAX_VERBS; at++)
        if ((*at)->verb != NULL) verbs[n++] = (*at)->verb;
    verbs[n++] = APR_HELP_VERB;
    return apr_nearest(word, verbs, n);
}

static apr_status unknown_verb(const parser *p, const char *word)
{
    const apr_command *const command = p->parsed->command;
    const char *const near = nearest_verb(p->tool, word), *const tool = p->tool->name;
    const bool is_operand = command != NULL && command->joins != NULL;

    if (is_operand && near != NULL)
        return apr_fail(p->err, APR_E_USAGE, "%.60s: no such file or verb, the nearest verb is '%s'; try '%s %s --help'", word, near, tool,
                        near);
    if (is_operand) return apr_fail(p->err, APR_E_USAGE, "%.60s: no such file or verb; try '%s --help'", word, tool);
    if (near != NULL) return bad_usage(p, "unknown verb '%.60s', the nearest is '%s'", word, near);
    return bad_usage(p, "unknown verb '%.60s'", word);
}

/* In a tool that also has a command without a verb: was the first operand meant as a verb? It must be spelled like a verb and not be
 * an existing file. It must also be one operand too many, or be near to a known verb. */
static bool looks_like_a_verb(const parser *p)
{
    const apr_parsed *const parsed = p->parsed;
    const char *const word = parsed->n_operands > 0 ? parsed->operands[0] : "";

    if (p->tool->commands[0]->verb == NULL || p->argc < 2 || word != p->argv[1]) return false;
    if (word[0] == '\0' || word[strspn(word, "abcdefghijklmnopqrstuvwxyz0123456789")] != '\0' || access(word, F_OK) == 0) return false;
    return parsed->n_operands > parsed->command->max_operands || parsed->command->joins != NULL || nearest_verb(p->tool, word) != NULL;
}

/* If only the output is missing, suggests the command with a file name made from the input's. */
static apr_status missing_operand(const parser *p)
{
    const apr_parsed *const parsed = p->parsed;
    const char *const words = parsed->command->operands, *const out = strstr(words, " OUT");
    char better[1024];

    if (parsed->n_operands == 0)
        return bad_usage(p, "%.*s is missing", parsed->command->joins != NULL ? (int)strcspn(words, " ") : (int)strlen(words), words);
    if (out == NULL || parsed->n_operands > 1) return bad_usage(p, "an argument is missing");
    const char *const in = parsed->operands[0], *const slash = strrchr(in, '/'), *const dot = strrchr(slash != NULL ? slash : in, '.');
    const size_t n = slash != NULL && slash[1] == '\0' ? (size_t)(slash - in) : dot != NULL ? (size_t)(dot - in) : strlen(in);
    const bool is_gguf = dot != NULL && strcmp(dot, ".gguf") == 0;
    snprintf(better, sizeof better, "%.*s%s", (int)n, in, strchr(out, '.') != NULL ? strchr(out, '.') : is_gguf ? ".apr" : ".gguf");
    apr_fail(p->err, APR_E_USAGE, "%s is missing", out + 1);
    return apr_try_change(APR_E_USAGE, &(apr_typed){p->tool->name, p->argc, p->argv}, NULL, better, p->err);
}

/* Is the i-th operand a model that is read? Decided by the operand names in the command's usage ("IN OUT"). */
static bool is_model(const char *words, size_t i)
{
    static const char *const models[] = {"IN", "[IN", "MODEL", "[MODEL", "FILE", "DIR", "A", "B"};
    bool is_repeated = false;
    const char *at = words;

    for (size_t k = 0; k < i && *at != '\0'; k++) {
        const size_t n = strcspn(at, " ");
        is_repeated = n > 3 && strncmp(at + n - 3, "...", 3) == 0;
        if (is_repeated) break;
        at += n + (at[n] == ' ');
    }
    const size_t n = strcspn(at, " .]"), n_word = strcspn(at, " ");
    if (i > 0 && !is_repeated && (strncmp(at, "FILE", n) == 0 || strncmp(at, "DIR", n) == 0)) return false;
    for (size_t k = 0; k < sizeof models / sizeof *models; k++)
        if (n <= n_word && strlen(models[k]) == n && strncmp(at, models[k], n) == 0) return true;
    return false;
}

/* A folder that holds one GGUF is replaced by that file. If it holds several, the error suggests one of them. */
static apr_status resolve_model(const parser *p, const char **operand)
{
    apr_arena *const arena = &p->parsed->arena;
    const apr_typed typed = {p->tool->name, p->argc, p->argv};
    int n;

    const char *const typed_path = *operand;
    APR_TRY(apr_hub_id_resolve(typed_path, operand, arena, p->err));
    const char *const gguf = apr_first_gguf_of_folder(*operand, &n, arena);
    if (gguf == NULL) return APR_OK;
    if (n > 1) {
        apr_fail(p->err, APR_E_IO, "%s: holds %d GGUFs and no checkpoint; choose one", typed_path, n);
        return apr_try_change(APR_E_IO, &typed, typed_path, gguf, p->err);
    }
    *operand = gguf;
    return APR_OK;
}

/* Looks up ORG/NAME in operands and options that name a model, in the caches of Hugging Face's tools. */
static apr_status resolve_ids(const parser *p)
{
    apr_parsed *const parsed = p->parsed;
    char *const fields = parsed->options;

    for (size_t i = 0; i < parsed->n_operands; i++)
        if (is_model(parsed->command->operands, i)) APR_TRY(resolve_model(p, &parsed->operands[i]));
    for (const apr_option *o = parsed->command->options; o != NULL && o->name != NULL; o++) {
        if (o->kind != APR_OPTION_STRING || strcmp(o->value_name, "SOURCE") != 0) continue;
        const char **const value = (const char **)(void *)(fields + o->offset);
        if (*value != NULL) APR_TRY(apr_hub_id_resolve(*value, value, &parsed->arena, p->err));
    }
    return APR_OK;
}

static apr_status check_operands(const parser *p)
{
    const apr_parsed *const parsed = p->parsed;
    const apr_command *const command = parsed->command;

    if (parsed->common.version || parsed->common.license) return APR_OK;
    if (command == NULL && parsed->n_operands > 0) return unknown_verb(p, parsed->operands[0]);
    if (parsed->common.help) return APR_OK;
    if (command == NULL) return bad_usage(p, "no verb was given");
    if (command->verb == NULL && looks_like_a_verb(p)) return unknown_verb(p, parsed->operands[0]);
    if (parsed->n_operands < command->min_operands) return missing_operand(p);
    if (parsed->n_operands > command->max_operands)
        return bad_usage(p, "unexpected argument '%.60s'", parsed->operands[command->max_operands]);
    return resolve_ids(p);
}

/* Finds a command by its own verb or by another program's verb for it. */
static const apr_command *command_called(const apr_tool *tool, const char *verb)
{
    const char *rest = NULL;
    const apr_command *const own = apr_command_named(tool, verb);
    const apr_foreign_word *const word =
        own == NULL ? apr_foreign_find(apr_foreign_words, apr_foreign_tool_letter(tool->name), NULL, verb, strlen(verb), &rest) : NULL;

    if (word == NULL || word->kind != APR_FOREIGN_ALIAS) return own;
    return apr_command_named(tool, strcmp(word->meaning, "!run") == 0 ? NULL : word->meaning);
}

/* "help" or "help VERB": the same as --help and VERB --help. */
static apr_status use_as_help(parser *p)
{
    apr_parsed *const parsed = p->parsed;

    parsed->common.help = true;
    parsed->command = apr_command_named(p->tool, NULL);
    if (parsed->n_operands == 0) return APR_OK;
    parsed->common.words = parsed->n_operands == 1 && strcmp(parsed->operands[0], "words") == 0;
    if (parsed->common.words) return APR_OK;
    if (parsed->n_operands > 1) return bad_usage(p, "unexpected argument '%.60s'", parsed->operands[1]);
    const apr_command *const named = command_called(p->tool, parsed->operands[0]);
    if (named == NULL && strcmp(parsed->operands[0], APR_HELP_VERB) != 0) return unknown_verb(p, parsed->operands[0]);
    if (named != NULL) parsed->command = named;
    return APR_OK;
}

static apr_status parse_arguments(parser *p, int verb_at)
{
    apr_parsed *const parsed = p->parsed;
    bool only_operands = false;

    for (; p->at < p->argc; p->at++) {
        const char *const argument = p->argv[p->at];
        if (verb_at > 0 && p->at == verb_at) continue;
        if (!only_operands && strcmp(argument, "--") == 0) only_operands = true;
        else if (!only_operands && apr_begins_with(argument, "--")) APR_TRY(parse_long(p, argument));
        else if (!only_operands && argument[0] == '-' && argument[1] != '\0') APR_TRY(parse_short(p, argument));
        else parsed->operands[parsed->n_operands++] = argument;
    }
    return APR_OK;
}

apr_status apr_cli_parse(const apr_tool *tool, int argc, char **argv, apr_parsed *parsed, apr_error *err)
{
    *parsed = (apr_parsed){.common.color = -1};
    apr_translation t = {.tool = tool, .typed = {tool->name, argc, argv}, .arena = &parsed->arena};
    APR_TRY(apr_translate_arguments(&t, err));
    parser p = {tool, parsed, t.argc, t.argv, 1, err};

    parsed->argc = t.argc;
    parsed->argv = t.argv;
    parsed->notes = t.notes;
    parsed->notes_more = t.notes_more;
    parsed->command = t.command;
    parsed->operands = apr_arena_array(&parsed->arena, (size_t)t.argc + 1, sizeof *parsed->operands);
    if (parsed->operands == NULL) return apr_no_memory(err, "the command line");
    if (parsed->command != NULL) APR_TRY(set_defaults(&p, parsed->command));
    APR_TRY(parse_arguments(&p, t.verb_at));
    parsed->common.version |= parsed->common.verbose && parsed->argc == 2; /* "-v" alone */
    return t.wants_help ? use_as_help(&p) : check_operands(&p);
}

void apr_parsed_close(apr_parsed *parsed)
{
    apr_arena_close(&parsed->arena);
    *parsed = (apr_parsed){0};
}

/* Is --json anywhere before "--"? Known before parsing, so that a usage error is also answered as JSON. */
static bool wants_json(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--json") == 0) return true;
    return false;
}

/* If an input changed while it was read, that replaces any other result: the result is worthless, in particular "damaged file". */
static apr_status check_inputs(apr_status status, apr_error *err)
{
    apr_error changed = {0};
    if (status == APR_E_IO || status == APR_E_USAGE || apr_inputs_check(&changed) == APR_OK) return status;
    *err = changed;
    return changed.status;
}

/* Refuses options that would have no effect. */
static apr_status check_needs(const apr_parsed *parsed, const apr_call *call, apr_error *err)
{
    for (const apr_need *need = parsed->command->needs; need != NULL && need->option != NULL; need++) {
        if (!is_given(parsed, need->option) || need->holds(call)) continue;
        const apr_option *const option = apr_option_named(parsed->command, need->option, strlen(need->option), 0);
        const char *const no = option != NULL && option->kind == APR_OPTION_FLAG && option->standard != NULL ? "no-" : "";
        return apr_fail(err, APR_E_USAGE, "--%s%s does nothing without %s: add that, or leave --%s%s out", no, need->option, need->needs,
                        no, need->option);
    }
    return APR_OK;
}

/* Does an error message suggest the flag at `dashes`? "give --force", "use --force", "--resume continues", "--resume goes on". */
static bool suggests_flag(const char *text, const char *dashes, size_t n_flag)
{
    static const char *const before[] = {"give", "use"}, *const after[] = {" goes on", " continues"};

    for (size_t i = 0; i < 2; i++) {
        const size_t n = strlen(before[i]);
        if (dashes >= text + n && strncmp(dashes - n, before[i], n) == 0) return true;
        if (strncmp(dashes + 3 + n_flag, after[i], strlen(after[i])) == 0) return true;
    }
    return false;
}

/* If an error message suggests a flag of the command, appends the command with that flag. */
static void suggest_flag(const apr_parsed *parsed, const apr_typed *typed, apr_error *err)
{
    if (strstr(err->text, "try: ") != NULL) return;
    for (const char *at = strstr(err->text, " --"); at != NULL; at = strstr(at + 1, " --")) {
        char flag[64];
        const size_t n = strspn(at + 3, "abcdefghijklmnopqrstuvwxyz0123456789-");
        const apr_option *const option = apr_option_named(parsed->command, at + 3, n, 0);
        if (!suggests_flag(err->text, at, n) || option == NULL || apr_option_named(NULL, at + 3, n, 0) != NULL ||
            option->kind != APR_OPTION_FLAG || option->standard != NULL || is_given(parsed, option->name))
            continue;
        snprintf(flag, sizeof flag, "--%s", option->name);
        apr_try_change(err->status, typed, NULL, flag, err);
        return;
    }
}

/* Notes about translated options of other programs. */
static void print_notes(const apr_parsed *parsed)
{
    for (size_t i = 0; i < parsed->notes.n_items; i++) fprintf(stderr, "note: %s\n", apr_printable(parsed->notes.items[i]));
    for (size_t i = 0; parsed->common.verbose && i < parsed->notes_more.n_items; i++)
        fprintf(stderr, "note: %s\n", apr_printable(parsed->notes_more.items[i]));
}

/* After a GPU error: appends the same command for the host. */
static void suggest_host(const apr_typed *typed, apr_error *err)
{
    static const char *const of_gpus[] = {"--gpu", "--gpus", "--offload"};
    apr_change changes[8];
    size_t n = 0;

    if (strstr(err->text, "try: ") != NULL) return;
    for (size_t k = 0; k < sizeof of_gpus / sizeof *of_gpus; k++)
        for (int i = 1; i + 1 < typed->argc && n + 3 < sizeof changes / sizeof *changes; i++)
            if (strcmp(typed->argv[i], of_gpus[k]) == 0) {
                changes[n++] = (apr_change){.was = of_gpus[k]};
                changes[n++] = (apr_change){.was = typed->argv[i + 1]};
            }
    for (int i = 1; i < typed->argc; i++) {
        const bool two_words = strcmp(typed->argv[i], "--device") == 0 && i + 1 < typed->argc && strcmp(typed->argv[i + 1], "cuda") == 0;
        if (!two_words && strcmp(typed->argv[i], "--device=cuda") != 0) continue;
        changes[n++] = (apr_change){.was = two_words ? "cuda" : "--device=cuda", .is = two_words ? "host" : "--device=host"};
        apr_try_instead(APR_E_DEVICE, typed, changes, n, err);
        return;
    }
}

static apr_status run_command(const apr_tool *tool, const apr_parsed *parsed, apr_answer *answer, apr_error *err)
{
    const apr_typed typed = {tool->name, parsed->argc, parsed->argv};
    const apr_call call = {parsed->operands, parsed->n_operands,    parsed->options, parsed->common.quiet,
                           answer,           parsed->command->verb, &typed};

    APR_TRY(check_needs(parsed, &call, err));
    apr_inputs_start();
    const apr_status status = check_inputs(parsed->command->run(&call, err), err);
    apr_inputs_end();
    if (status != APR_OK) suggest_flag(parsed, &typed, err);
    if (status == APR_E_DEVICE) suggest_host(&typed, err);
    return status;
}

int apr_cli_main(const apr_tool *tool, int argc, char **argv)
{
    apr_error err = {0};
    apr_answer answer;
    apr_parsed parsed;

    if (!wants_json(argc, argv)) apr_terminal_start();
    apr_status status = apr_cli_parse(tool, argc, argv, &parsed, &err);
    apr_answer_start(&answer, wants_json(argc, argv));
    apr_guard_start(tool->name, answer.json);
    apr_color_set(parsed.common.color);
    apr_meter_set_always(parsed.common.progress);
    if (status == APR_OK && (parsed.common.help || parsed.common.version || parsed.common.license)) {
        apr_answer_about(tool, &parsed, &answer);
    } else if (status == APR_OK) {
        print_notes(&parsed);
        status = run_command(tool, &parsed, &answer, &err);
    }
    const int exit_code = apr_answer_end(&answer, tool->name, status, &err);
    apr_parsed_close(&parsed);
    apr_guard_answered();
    return exit_code;
}
