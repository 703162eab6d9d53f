/* options.c - the options that every command has, and how options and commands are found in their tables. */
#include "tools/cli/options.h"

#include <string.h>

#define COMMON(field) .offset = offsetof(apr_parsed, common.field) - offsetof(apr_parsed, common)

const apr_option apr_common_options[] = {
    {"json", 0, APR_OPTION_FLAG, NULL, NULL, "print one JSON object on stdout, even on failure", COMMON(json), .group = "Common"},
    {"quiet", 'q', APR_OPTION_FLAG, NULL, NULL, "no progress and no summary; losses are still reported", COMMON(quiet)},
    {"verbose", 'v', APR_OPTION_FLAG, NULL, NULL, "print more notes, also about options without effect", COMMON(verbose)},
    {"progress", 0, APR_OPTION_FLAG, NULL, NULL, "progress lines on stderr even if it is not a terminal", COMMON(progress)},
    {"color", 0, APR_OPTION_CHOICE, "auto|always|never", NULL, "colors and bold text; auto: on a terminal, unless NO_COLOR is set",
     COMMON(color), .is_optional = true},
    {"help", 'h', APR_OPTION_FLAG, NULL, NULL, "this help; -h: a short version of it", COMMON(help)},
    {"version", 'V', APR_OPTION_FLAG, NULL, NULL, "version and build information", COMMON(version)},
    {"license", 0, APR_OPTION_FLAG, NULL, NULL, "the license", COMMON(license)},
    {0},
};

static const apr_option *option_in(const apr_option *table, const char *name, size_t n, char letter)
{
    for (; table != NULL && table->name != NULL; table++)
        if (name != NULL ? strlen(table->name) == n && strncmp(table->name, name, n) == 0 : table->letter == letter) return table;
    return NULL;
}

const apr_option *apr_option_named(const apr_command *command, const char *name, size_t n, char letter)
{
    const apr_option *const common = option_in(apr_common_options, name, n, letter);
    if (common != NULL || command == NULL) return common;
    return option_in(command->options, name, n, letter);
}

const apr_command *apr_command_named(const apr_tool *tool, const char *verb)
{
    for (const apr_command *const *at = tool->commands; *at != NULL; at++)
        if (verb == NULL ? (*at)->verb == NULL : (*at)->verb != NULL && strcmp((*at)->verb, verb) == 0) return *at;
    return NULL;
}
