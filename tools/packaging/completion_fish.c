/* completion_fish.c - the table that completion.fish is followed by: a line for each verb, and for each option with the verbs that have it. */
#include "tools/cli/options.h"
#include "tools/packaging/completion.h"

#include <string.h>

/* Text within single quotes. */
static void put_quoted(FILE *out, const char *text)
{
    putc('\'', out);
    for (; *text != '\0'; text++)
        if (*text == '\'') fputs("\\'", out);
        else putc(*text, out);
    putc('\'', out);
}

static void put_offer(FILE *out, const apr_value_word *row)
{
    static const char *const actions[] = {[APR_OFFER_NOTHING] = "",
                                          [APR_OFFER_MODEL] = "(__aprkit_model)",
                                          [APR_OFFER_FILE] = "(__aprkit_files",
                                          [APR_OFFER_FOLDER] = "(__aprkit_folders)",
                                          [APR_OFFER_TYPE] = "$__aprkit_types",
                                          [APR_OFFER_GPU] = "$__aprkit_gpus",
                                          [APR_OFFER_WORDS] = ""};
    if (row->offer == APR_OFFER_NOTHING) return;
    fprintf(out, " -a '%s", actions[row->offer]);
    if (row->offer == APR_OFFER_FILE) putc(' ', out);
    if (row->detail != NULL) apr_completion_words(out, row->detail);
    fputs(row->offer == APR_OFFER_FILE ? ")'" : "'", out);
}

static const char *verb_of(const apr_command *command) { return command->verb != NULL ? command->verb : "-"; }

static bool is_same(const apr_option *a, const apr_option *b)
{
    return strcmp(a->name, b->name) == 0 && strcmp(a->help, b->help) == 0 && a->kind == b->kind && a->letter == b->letter &&
           (a->value_name == NULL) == (b->value_name == NULL) && (a->value_name == NULL || strcmp(a->value_name, b->value_name) == 0);
}

static bool has_option(const apr_command *command, const apr_option *option)
{
    for (const apr_option *o = command->options; o != NULL && o->name != NULL; o++)
        if (is_same(o, option)) return true;
    return false;
}

/* Whether an earlier command has the same option, which was then written with this command's verb. */
static bool is_written(const apr_tool *tool, const apr_command *command, const apr_option *option)
{
    for (const apr_command *const *at = tool->commands; *at != command; at++)
        if (has_option(*at, option)) return true;
    return false;
}

static void put_option(FILE *out, const apr_tool *tool, const apr_option *o, bool is_common)
{
    char name[96];

    fprintf(out, "complete -c %s", tool->name);
    if (!is_common) {
        fprintf(out, " -n '__aprkit_is");
        for (const apr_command *const *at = tool->commands; *at != NULL; at++)
            if (has_option(*at, o)) fprintf(out, " %s", verb_of(*at));
        fprintf(out, "'");
    }
    fprintf(out, " -l %s", apr_completion_option(o, name, sizeof name) + 2);
    if (o->letter != 0) fprintf(out, " -s %c", o->letter);
    if (o->kind != APR_OPTION_FLAG) {
        const apr_value_word row = apr_option_value(o);
        fputs(o->is_optional ? " -f" : " -x", out);
        put_offer(out, &row);
    }
    fputs(" -d ", out);
    put_quoted(out, o->help);
    putc('\n', out);
}

static void put_operands(FILE *out, const apr_tool *tool, const apr_command *command)
{
    char word[APR_OPERAND_WORD];
    bool repeats;

    for (size_t i = 0; apr_operand_word(command, i, word, &repeats); i++) {
        const apr_value_word *const row = apr_operand_meaning(command, word);
        if (row == NULL || row->offer == APR_OFFER_NOTHING) continue;
        fprintf(out, "complete -c %s -n '__aprkit_is %s'", tool->name, verb_of(command));
        put_offer(out, row);
        putc('\n', out);
    }
}

static void put_verbs(FILE *out, const apr_tool *tool)
{
    fprintf(out, "set -g __aprkit_verbs_of_%s", tool->name);
    for (const apr_command *const *at = tool->commands; *at != NULL; at++)
        if ((*at)->verb != NULL) fprintf(out, " %s", (*at)->verb);
    fprintf(out, "\n\n");
    for (const apr_command *const *at = tool->commands; *at != NULL; at++) {
        if ((*at)->verb == NULL) continue;
        fprintf(out, "complete -c %s -n __aprkit_is_first -a %s -d ", tool->name, (*at)->verb);
        put_quoted(out, (*at)->summary);
        putc('\n', out);
    }
    if (tool->commands[0]->verb != NULL)
        fprintf(out, "complete -c %s -n __aprkit_is_first -a " APR_HELP_VERB " -d 'help of the tool, or of a verb'\n", tool->name);
}

void apr_completion_fish(FILE *out, const apr_tool *tool)
{
    fprintf(out, "set -g __aprkit_types ");
    apr_completion_types(out);
    fprintf(out, "\nset -g __aprkit_gpus ");
    apr_completion_gpus(out);
    fprintf(out, "\n\ncomplete -c %s -f\n", tool->name);
    put_verbs(out, tool);
    for (const apr_option *o = apr_common_options; o->name != NULL; o++) put_option(out, tool, o, true);
    for (const apr_command *const *c = tool->commands; *c != NULL; c++) {
        put_operands(out, tool, *c);
        for (const apr_option *o = (*c)->options; o != NULL && o->name != NULL; o++)
            if (!is_written(tool, *c, o)) put_option(out, tool, o, false);
    }
}
