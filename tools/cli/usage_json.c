/* usage_json.c - --help --json: prints the tables of --help as JSON. */
#include "tools/cli/usage.h"

#include "tools/cli/version.h"

#include <string.h>

static void put(apr_json_text *json, const char *key, const char *text) { apr_json_string(json, key, text, strlen(text)); }

/* "f16|f32|q8_0" as an array */
static void put_choices(apr_json_text *json, const char *choices)
{
    apr_json_open(json, "choices", '[');
    for (const char *at = choices; *at != '\0';) {
        const size_t n = strcspn(at, "|");
        apr_json_string(json, NULL, at, n);
        at += n + (at[n] == '|');
    }
    apr_json_close(json, ']');
}

static void put_option(apr_json_text *json, const apr_option *o, const char *group)
{
    static const char *const kinds[] = {
        [APR_OPTION_FLAG] = "flag",     [APR_OPTION_INT] = "int",       [APR_OPTION_SIZE] = "size",   [APR_OPTION_REAL] = "real",
        [APR_OPTION_STRING] = "string", [APR_OPTION_CHOICE] = "choice", [APR_OPTION_LIST] = "strings"};
    const char letter[] = {o->letter, '\0'};

    apr_json_open(json, NULL, '{');
    put(json, "name", o->name);
    if (o->letter != 0) put(json, "letter", letter);
    put(json, "kind", kinds[o->kind]);
    if (o->kind == APR_OPTION_CHOICE) put_choices(json, o->value_name);
    else if (o->value_name != NULL) put(json, "value", o->value_name);
    if (o->kind == APR_OPTION_FLAG) apr_json_bool(json, "default", o->standard != NULL && strcmp(o->standard, "yes") == 0);
    else if (o->standard != NULL) put(json, "default", o->standard);
    if (o->min != 0.0 || o->max != 0.0) {
        apr_json_real(json, "min", o->min);
        apr_json_real(json, "max", o->max);
    }
    put(json, "group", group);
    put(json, "help", o->help);
    apr_json_close(json, '}');
}

static void put_options(apr_json_text *json, const char *key, const apr_option *options)
{
    const char *group = "Options";

    apr_json_open(json, key, '[');
    for (; options != NULL && options->name != NULL; options++) {
        if (options->group != NULL) group = options->group;
        put_option(json, options, group);
    }
    apr_json_close(json, ']');
}

static void put_command(apr_json_text *json, const apr_command *c)
{
    apr_json_open(json, NULL, '{');
    if (c->verb != NULL) put(json, "verb", c->verb);
    else apr_json_null(json, "verb");
    put(json, "summary", c->summary);
    put(json, "operands", c->operands);
    apr_json_uint(json, "min_operands", c->min_operands);
    apr_json_uint(json, "max_operands", c->max_operands);
    put_options(json, "options", c->options);
    apr_json_open(json, "examples", '[');
    for (const char *const *e = c->examples; e != NULL && *e != NULL; e++) put(json, NULL, *e);
    apr_json_close(json, ']');
    apr_json_close(json, '}');
}

static void put_exit_codes(apr_json_text *json)
{
    char code[16];

    apr_json_open(json, "exit_codes", '{');
#define X(id, value, text)                    \
    snprintf(code, sizeof code, "%d", value); \
    put(json, code, text);
    APR_STATUS_LIST(X)
#undef X
    apr_json_close(json, '}');
}

void apr_cli_version_json(const apr_tool *tool, apr_json_text *json)
{
    put(json, "tool", tool->name);
    put(json, "version", APR_VERSION);
    apr_version_json(json);
}

void apr_cli_usage_json(const apr_tool *tool, const apr_command *command, apr_json_text *json)
{
    apr_cli_version_json(tool, json);
    put(json, "summary", tool->summary);
    apr_json_open(json, "commands", '[');
    for (const apr_command *c = tool->commands; c->run != NULL; c++)
        if (command == NULL || command->verb == NULL || c->verb == command->verb) put_command(json, c);
    apr_json_close(json, ']');
    put_options(json, "common_options", apr_common_options);
    put_exit_codes(json);
}
