/* fuzz_cli.c - any words as a command line: parsed, or refused with a sentence; values are what they say.
 *
 * Each line of the input is an argument. */
#include "tests/fuzz/fuzz_target.h"
#include "tools/cli/cli.h"
#include "tools/cli/usage.h"
#include "tools/cli/values.h"

#include <math.h>

enum { MOST_ARGUMENTS = 64 };

typedef struct every_kind {
    bool flag, yes;
    int64_t whole;
    uint64_t size;
    double real;
    const char *string;
    int choice;
    apr_strings list;
} every_kind;

static const apr_option options[] = {
    {"flag", 'f', APR_OPTION_FLAG, NULL, NULL, "a flag", APR_TO(every_kind, flag)},
    {"yes", 0, APR_OPTION_FLAG, NULL, "yes", "a flag that is set", APR_TO(every_kind, yes)},
    {"whole", 'w', APR_OPTION_INT, "N", "3", "a number", APR_TO(every_kind, whole), .min = -5, .max = 1e18},
    {"size", 's', APR_OPTION_SIZE, "SIZE", NULL, "a size", APR_TO(every_kind, size)},
    {"real", 'r', APR_OPTION_REAL, "X", NULL, "a number", APR_TO(every_kind, real), .min = 0, .max = 100},
    {"string", 't', APR_OPTION_STRING, "TEXT", NULL, "a text", APR_TO(every_kind, string)},
    {"choice", 'c', APR_OPTION_CHOICE, "f16|f32|q8_0", NULL, "one of them", APR_TO(every_kind, choice)},
    {"list", 'l', APR_OPTION_LIST, "TEXT", NULL, "texts", APR_TO(every_kind, list)},
    {0},
};

static apr_status never_run(const apr_call *call, apr_error *err)
{
    (void)call;
    return apr_fail(err, APR_E_NO, "only parsed");
}

static const apr_command with_verbs[] = {
    {"show", "FILE", 1, 1, "shows", options, sizeof(every_kind), NULL, never_run},
    {"check", "A [B]", 1, 2, "checks", NULL, 0, NULL, never_run},
};
static const apr_command with_both[] = {
    {"show", "FILE", 1, 1, "shows", options, sizeof(every_kind), NULL, never_run},
    {NULL, "MODEL", 1, 1, "runs", options, sizeof(every_kind), NULL, never_run},
};
static const apr_command *const verbs[] = {&with_verbs[0], &with_verbs[1], NULL}, *const both[] = {&with_both[0], &with_both[1], NULL};
static const apr_tool tools[] = {{"verbs", "has verbs", verbs, NULL}, {"both", "has both", both, NULL}};

static void check_values(const every_kind *o)
{
    claim(o->whole >= -5 && o->whole <= 1000000000000000000);
    claim(isnan(o->real) || (o->real >= 0 && o->real <= 100));
    claim(o->choice >= -1 && o->choice < 3);
    for (size_t i = 0; i < o->list.n_items; i++) claim(o->list.items[i] != NULL);
}

static void check_json(const apr_tool *tool, const apr_parsed *parsed)
{
    apr_json_text json = {0};

    apr_json_open(&json, NULL, '{');
    apr_cli_usage_json(tool, parsed->command, &json);
    apr_json_close(&json, '}');
    char *const text = apr_json_text_take(&json, NULL);
    claim(text != NULL && strlen(text) > 100);
    free(text);
}

static void parse(const apr_tool *tool, int argc, char **argv)
{
    apr_parsed parsed;
    apr_error err = {0};

    const apr_status status = apr_cli_parse(tool, argc, argv, &parsed, &err);
    claim_sentence(status, err);
    claim(status == APR_OK || status == APR_E_USAGE || status == APR_E_IO); /* ORG/NAME that is in no cache */
    if (status == APR_OK && parsed.common.help) check_json(tool, &parsed);
    else if (status == APR_OK && !parsed.common.version)
        claim(parsed.command != NULL && parsed.n_operands >= parsed.command->min_operands &&
              parsed.n_operands <= parsed.command->max_operands);
    if (status == APR_OK && parsed.command != NULL && parsed.command->options == options && parsed.options != NULL)
        check_values(parsed.options);
    apr_parsed_close(&parsed);
}

/* A word as each kind of value: a size is at least the whole number it begins with. */
static void check_word(const char *word)
{
    int64_t whole = 0;
    uint64_t size = 0;
    double real = 0.0;

    if (apr_parse_real(word, &real)) claim(isfinite(real));
    if (word[0] != '-' && apr_parse_int(word, &whole)) claim(apr_parse_size(word, &size) && size == (uint64_t)whole);
    const int choice = apr_parse_choice(word, "f16|f32|q8_0");
    claim(choice >= -1 && choice < 3);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    char *argv[MOST_ARGUMENTS + 1] = {"tool"};
    char *const text = malloc(n_bytes + 1);
    int argc = 1;

    if (text == NULL) return 0;
    memcpy(text, data, n_bytes);
    text[n_bytes] = '\0';
    for (char *at = text; at != NULL && argc < MOST_ARGUMENTS; argc++) {
        char *const end = strchr(at, '\n');
        if (end != NULL) *end = '\0';
        argv[argc] = at;
        check_word(at);
        at = end != NULL ? end + 1 : NULL;
    }
    argv[argc] = NULL;
    parse(&tools[0], argc, argv);
    parse(&tools[1], argc, argv);
    free(text);
    return 0;
}
