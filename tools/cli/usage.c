/* usage.c - prints help from the same tables that arguments are parsed with, as text in 40 to 100 columns and as JSON; the version
 * and the license. */
#include "tools/cli/usage.h"

#include "formats/base/text.h"
#include "kernels/cuda_loader.h"
#include "kernels/host/codecs/levels.h"
#include "tools/cli/foreign_help.h"
#include "tools/cli/options.h"
#include "tools/report/page.h"
#include "tools/report/terminal.h"
#include "tools/report/text.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <cjson/cJSON.h>
#include <libdeflate.h>
#include <pcre2.h>
#include <string.h>
#include <utf8proc.h>
#include <zstd.h>

enum { MIN_COLUMNS = 40, MAX_COLUMNS = 100, MAX_LEFT_COLUMNS = 34 };

static int page_columns(FILE *out)
{
    const int columns = apr_terminal_columns(out);
    return columns == 0 || columns > MAX_COLUMNS ? MAX_COLUMNS : columns < MIN_COLUMNS ? MIN_COLUMNS : columns;
}

/* "  -c, --ctx N" */
static void left_text(const apr_option *option, char *text, size_t n_bytes)
{
    const bool says_no = option->kind == APR_OPTION_FLAG && option->standard != NULL && strcmp(option->standard, "yes") == 0;
    const char letter[] = {'-', option->letter, ',', ' ', '\0'};

    snprintf(text, n_bytes, "  %s--%s%s%s%s%s", option->letter ? letter : "    ", says_no ? "no-" : "", option->name,
             option->is_optional          ? "[="
             : option->value_name != NULL ? " "
                                          : "",
             option->value_name != NULL ? option->value_name : "", option->is_optional ? "]" : "");
}

/* Prints text from `column` on, wrapped at the page's width. Continuation lines start at column `left`. */
static void print_wrapped(const char *text, int column, int left, FILE *out)
{
    const int columns = page_columns(out);
    const char *space = "";

    while (*text != '\0') {
        const int n = (int)strcspn(text, " ");
        if (*space != '\0' && column + 1 + n > columns) {
            fprintf(out, "\n%*s", left, "");
            column = left;
            space = "";
        }
        column += fprintf(out, "%s%.*s", space, n, text);
        space = " ";
        text += n + (text[n] == ' ');
    }
    fputs("\n", out);
}

static void print_option(const apr_option *option, int left, FILE *out)
{
    char name[128], help[512];

    left_text(option, name, sizeof name);
    const bool has_default = option->standard != NULL && option->kind != APR_OPTION_FLAG;
    snprintf(help, sizeof help, "%s%s%s%s%s", option->help, option->kind == APR_OPTION_LIST ? " (may be repeated)" : "",
             has_default ? " (default " : "", has_default ? option->standard : "", has_default ? ")" : "");
    const int width = fprintf(out, "%s", name);
    if (width + 2 > left) fprintf(out, "\n%*s", left, "");
    else fprintf(out, "%*s", left - width, "");
    print_wrapped(help, left, left, out);
}

/* The column where explanations begin: after the longest name that still leaves them enough of the page. */
static int left_width(const apr_option *options, FILE *out)
{
    const int most = page_columns(out) < 80 ? page_columns(out) / 2 : MAX_LEFT_COLUMNS;
    int width = 0;
    for (; options != NULL && options->name != NULL; options++) {
        char name[128];
        left_text(options, name, sizeof name);
        const int n = (int)strlen(name) + 2;
        if (n > width && n <= most) width = n;
    }
    return width;
}

static void print_options(const apr_option *options, int left, FILE *out)
{
    const char *group = NULL;
    for (; options != NULL && options->name != NULL; options++) {
        const char *const heading = options->group != NULL ? options->group : group != NULL ? group : "Options";
        if (group == NULL || strcmp(group, heading) != 0) fprintf(out, "\n%s%s%s\n", apr_bold(out), heading, apr_plain(out));
        group = heading;
        print_option(options, left, out);
    }
}

static void print_command(const apr_tool *tool, const apr_command *command, FILE *out)
{
    const char *const space = command->verb != NULL ? " " : "", *const verb = command->verb != NULL ? command->verb : "";
    const int own = left_width(command->options, out), common = left_width(apr_common_options, out), left = own > common ? own : common;

    const int column = fprintf(out, "%s%s%s - ", tool->name, space, verb);
    print_wrapped(command->summary, column, 2, out);
    fprintf(out, "\n%sUsage%s\n  %s%s%s [options] %s\n", apr_bold(out), apr_plain(out), tool->name, space, verb, command->operands);
    print_options(command->options, left, out);
    print_options(apr_common_options, left, out);
    if (command->examples == NULL) return;
    fprintf(out, "\n%sExamples%s\n", apr_bold(out), apr_plain(out));
    for (const char *const *example = command->examples; *example != NULL; example++) fprintf(out, "  %s\n", *example);
}

/* A verb with its operands. Its summary begins in column `left`, or on the next line if the page is narrow. */
static void print_verb(const char *line, const char *summary, int left, FILE *out)
{
    const bool is_narrow = left > page_columns(out) / 2;
    const int column = is_narrow ? 6 : left;

    fprintf(out, "%-*s", is_narrow ? 0 : left, line);
    if (is_narrow) fprintf(out, "\n%*s", column, "");
    print_wrapped(summary, column, column, out);
}

static void print_verbs(const apr_tool *tool, FILE *out)
{
    int left = (int)sizeof "  help [VERB]" + 1;
    char line[128];

    for (const apr_command *const *at = tool->commands; *at != NULL; at++) {
        const apr_command *const c = *at;
        const int n = c->verb != NULL ? 2 + (int)(strlen(c->verb) + 1 + strlen(c->operands)) + 2 : 0;
        if (n > left) left = n;
    }
    fprintf(out, "\n%sVerbs%s (aprkit %s; '%s VERB --help' for details)\n", apr_bold(out), apr_plain(out), APR_VERSION, tool->name);
    for (const apr_command *const *at = tool->commands; *at != NULL; at++) {
        const apr_command *const c = *at;
        if (c->verb == NULL) continue;
        snprintf(line, sizeof line, "  %s %s", c->verb, c->operands);
        print_verb(line, c->summary, left, out);
    }
    print_verb("  help [VERB]", "this help, or that of a verb; 'help words' lists options of other programs", left, out);
}

void apr_cli_usage(const apr_tool *tool, const apr_command *command, FILE *out)
{
    const bool has_verbs = tool->commands[0]->verb != NULL;

    if (command != NULL && (command->verb != NULL || !has_verbs)) {
        print_command(tool, command, out);
        return;
    }
    if (command != NULL) print_command(tool, command, out);
    else fprintf(out, "%s - %s\n", tool->name, tool->summary);
    print_verbs(tool, out);
    if (command != NULL) return;
    print_options(apr_common_options, left_width(apr_common_options, out), out);
    const bool has_examples = tool->commands[0]->examples != NULL;
    if (has_examples) fprintf(out, "\n%sExamples%s\n", apr_bold(out), apr_plain(out));
    for (const apr_command *const *at = tool->commands; *at != NULL; at++)
        if ((*at)->examples != NULL) fprintf(out, "  %s\n", (*at)->examples[0]);
}

/* --- short help (-h) --- */

enum { MAX_OPTIONS = 8, MAX_EXAMPLES = 4, BRIEF_COLUMNS = 80 };

static void print_brief_line(const char *left, const char *text, FILE *out)
{
    enum { LEFT = 26 };
    const int n = fprintf(out, "%s", left);
    const int left_columns = BRIEF_COLUMNS - (n + 2 > LEFT ? n + 2 : LEFT), most = left_columns > 0 ? left_columns : 0;
    int n_text = (int)strlen(text);
    if (n_text > most) { /* cut after a whole word; --help prints all of it */
        for (n_text = most; n_text > 0 && text[n_text] != ' ';) n_text--;
        while (n_text > 0 && strchr(" ,;:", text[n_text - 1]) != NULL) n_text--;
    }
    fprintf(out, "%*s%.*s\n", n + 2 > LEFT ? 2 : LEFT - n, "", n_text, text);
}

static void print_brief_options(const apr_command *command, FILE *out)
{
    int n = 0;

    fputs("\n", out);
    for (const apr_option *o = command->options; o != NULL && o->name != NULL && n < MAX_OPTIONS; o++) {
        char left[128];
        if (command->first != NULL && !apr_has_word(command->first, o->name)) continue;
        left_text(o, left, sizeof left);
        print_brief_line(left, o->help, out);
        n++;
    }
}

/* "gguf2apr" and similar verbs are other names of convert. */
static bool is_shown(const apr_command *c) { return c->verb != NULL && strchr(c->verb, '2') == NULL; }

static void print_brief_verbs(const apr_tool *tool, FILE *out)
{
    char verbs[512] = "";
    size_t n = 0;

    for (const apr_command *const *at = tool->commands; *at != NULL && n < sizeof verbs; at++)
        if (is_shown(*at)) n += (size_t)snprintf(verbs + n, sizeof verbs - n, "%s%s", n > 0 ? ", " : "", (*at)->verb);
    if (n == 0) return;
    const int column = fprintf(out, "\n  verbs: ");
    print_wrapped(verbs, column - 1, column - 1, out);
}

static void print_brief_examples(const apr_tool *tool, const apr_command *command, FILE *out)
{
    int n = 0;

    fputs("\n", out);
    for (const char *const *example = command != NULL ? command->examples : NULL; example != NULL && *example != NULL && n < MAX_EXAMPLES;
         example++, n++)
        fprintf(out, "  %s\n", *example);
    for (const apr_command *const *at = tool->commands; command == NULL && *at != NULL && n < MAX_EXAMPLES; at++) {
        const apr_command *const c = *at;
        if (c->examples == NULL || !is_shown(c)) continue;
        fprintf(out, "  %s\n", c->examples[0]);
        n++;
    }
}

void apr_cli_brief_usage(const apr_tool *tool, const apr_command *command, FILE *out)
{
    const bool is_verb = command != NULL && command->verb != NULL;
    const char *const space = is_verb ? " " : "", *const verb = is_verb ? command->verb : "";

    fprintf(out, "%s%s%s - %s\n", tool->name, space, verb, command != NULL ? command->summary : tool->summary);
    if (command != NULL) fprintf(out, "\n  %s%s%s [options] %s\n", tool->name, space, verb, command->operands);
    if (command != NULL) print_brief_options(command, out);
    if (!is_verb) print_brief_verbs(tool, out);
    print_brief_examples(tool, command, out);
    fprintf(out, "\n--help shows everything\n");
}

/* --- this build --- */

static void put(apr_json_text *json, const char *key, const char *text) { apr_json_string(json, key, text, strlen(text)); }

#ifdef __clang__
static const char compiler[] = "clang " __clang_version__;
#else
static const char compiler[] = "gcc " __VERSION__;
#endif

/* Whether the library can be loaded. This does not call the driver. */
static bool has_cuda_library(void)
{
    const apr_cuda_api *cuda;
    return apr_cuda_load(&cuda, NULL) == APR_OK;
}

enum { N_LIBRARIES = 5, LIBRARY_VERSION = 32 };

/* The libraries that are in use, which may be newer than those of the build. libdeflate cannot be asked. */
static void library_versions(const char *names[N_LIBRARIES], char versions[N_LIBRARIES][LIBRARY_VERSION])
{
    static const char *const all[N_LIBRARIES] = {"cJSON", "zstd", "libdeflate", "PCRE2", "utf8proc"};
    char pcre2[64] = "";

    if (pcre2_config(PCRE2_CONFIG_VERSION, NULL) <= (int)sizeof pcre2) pcre2_config(PCRE2_CONFIG_VERSION, pcre2);
    const char *const texts[N_LIBRARIES] = {cJSON_Version(), ZSTD_versionString(), LIBDEFLATE_VERSION_STRING, pcre2, utf8proc_version()};
    for (int i = 0; i < N_LIBRARIES; i++) {
        names[i] = all[i];
        snprintf(versions[i], LIBRARY_VERSION, "%.*s", (int)strcspn(texts[i], " "), texts[i]);
    }
}

static void print_version(const char *tool, FILE *out)
{
    enum { LEFT = sizeof "CUDA library  " - 1 };
    const char *names[N_LIBRARIES];
    char versions[N_LIBRARIES][LIBRARY_VERSION], libraries[N_LIBRARIES * (LIBRARY_VERSION + 16)];
    size_t n = 0;

    library_versions(names, versions);
    fprintf(out, "%s %s\n", tool, APR_VERSION);
    fprintf(out, "commit        %s\ncompiler      %s\nCPU level     %s\nCUDA library  %s\nlibraries     ", apr_build_commit(), compiler,
            apr_host_table()->name, has_cuda_library() ? "yes" : "no");
    for (int i = 0; i < N_LIBRARIES; i++)
        n += (size_t)snprintf(libraries + n, sizeof libraries - n, "%s%s %s", i > 0 ? ", " : "", names[i], versions[i]);
    print_wrapped(libraries, LEFT, LEFT, out);
}

static void put_version(const apr_tool *tool, apr_json_text *json)
{
    const char *const level = apr_host_table()->name;
    const char *names[N_LIBRARIES];
    char versions[N_LIBRARIES][LIBRARY_VERSION];

    library_versions(names, versions);
    put(json, "tool", tool->name);
    put(json, "version", APR_VERSION);
    put(json, "commit", apr_build_commit());
    put(json, "compiler", compiler);
    put(json, "cpu_level", level);
    apr_json_bool(json, "cuda_library", has_cuda_library());
    apr_json_open(json, "libraries", '{');
    for (int i = 0; i < N_LIBRARIES; i++) put(json, names[i], versions[i]);
    apr_json_close(json, '}');
}

static void print_license(FILE *out)
{
    fputs("aprkit " APR_VERSION ", Copyright (c) 2026 the aprkit authors\n"
          "\n"
          "MIT License: use, copy, change and distribute it, with this notice; there is no warranty of any kind.\n"
          "The whole text is in the file LICENSE of the source: https://opensource.org/license/mit\n",
          out);
}

/* --- JSON: the same tables --- */

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
    apr_json_cstring(json, "name", o->name);
    if (o->letter != 0) apr_json_cstring(json, "letter", letter);
    apr_json_cstring(json, "kind", kinds[o->kind]);
    if (o->kind == APR_OPTION_CHOICE) put_choices(json, o->value_name);
    else if (o->value_name != NULL) apr_json_cstring(json, "value", o->value_name);
    if (o->kind == APR_OPTION_FLAG) apr_json_bool(json, "default", o->standard != NULL && strcmp(o->standard, "yes") == 0);
    else if (o->standard != NULL) apr_json_cstring(json, "default", o->standard);
    if (o->min != 0.0 || o->max != 0.0) {
        apr_json_real(json, "min", o->min);
        apr_json_real(json, "max", o->max);
    }
    apr_json_cstring(json, "group", group);
    apr_json_cstring(json, "help", o->help);
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
    if (c->verb != NULL) apr_json_cstring(json, "verb", c->verb);
    else apr_json_null(json, "verb");
    apr_json_cstring(json, "summary", c->summary);
    apr_json_cstring(json, "operands", c->operands);
    apr_json_uint(json, "min_operands", c->min_operands);
    apr_json_uint(json, "max_operands", c->max_operands);
    put_options(json, "options", c->options);
    apr_json_open(json, "examples", '[');
    for (const char *const *e = c->examples; e != NULL && *e != NULL; e++) apr_json_cstring(json, NULL, *e);
    apr_json_close(json, ']');
    apr_json_close(json, '}');
}

static void put_exit_codes(apr_json_text *json)
{
    char code[16];

    apr_json_open(json, "exit_codes", '{');
#define X(id, value, text)                    \
    snprintf(code, sizeof code, "%d", value); \
    apr_json_cstring(json, code, text);
    APR_STATUS_LIST(X)
#undef X
    apr_json_close(json, '}');
}

void apr_cli_usage_json(const apr_tool *tool, const apr_command *command, apr_json_text *json)
{
    put_version(tool, json);
    put(json, "summary", tool->summary);
    apr_json_open(json, "commands", '[');
    for (const apr_command *const *at = tool->commands; *at != NULL; at++)
        if (command == NULL || command->verb == NULL || (*at)->verb == command->verb) put_command(json, *at);
    apr_json_close(json, ']');
    put_options(json, "common_options", apr_common_options);
    put_exit_codes(json);
}

void apr_answer_about(const apr_tool *tool, const apr_parsed *parsed, apr_answer *answer)
{
    if (parsed->common.words) apr_foreign_print(tool, stdout);
    else if (parsed->common.help && answer->json) apr_cli_usage_json(tool, parsed->command, &answer->body);
    else if (parsed->common.help && parsed->common.brief) apr_cli_brief_usage(tool, parsed->command, stdout);
    else if (parsed->common.help) apr_cli_usage(tool, parsed->command, stdout);
    else if (parsed->common.license) print_license(stdout);
    else if (answer->json) put_version(tool, &answer->body);
    else print_version(tool->name, stdout);
}
