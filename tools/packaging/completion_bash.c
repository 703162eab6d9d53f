/* completion_bash.c - the tables that completion.bash reads. */
#include "tools/cli/options.h"
#include "tools/packaging/completion.h"

#include <string.h>

static void put_offer(FILE *out, const apr_value_word *row)
{
    static const char *const marks[] = {
        [APR_OFFER_NOTHING] = "@none", [APR_OFFER_MODEL] = "@model", [APR_OFFER_FILE] = "@files", [APR_OFFER_FOLDER] = "@dir",
        [APR_OFFER_TYPE] = "@types",   [APR_OFFER_GPU] = "@gpus",    [APR_OFFER_WORDS] = ""};
    fprintf(out, "%s%s%s", marks[row->offer], row->offer == APR_OFFER_FILE && row->detail != NULL ? ":" : "",
            row->detail != NULL ? row->detail : "");
}

static void put_options(FILE *out, const apr_option *options)
{
    char text[96];
    for (; options != NULL && options->name != NULL; options++) {
        fprintf(out, " %s", apr_completion_option(options, text, sizeof text));
        if (options->kind == APR_OPTION_FLAG) {
            if (options->letter != 0) fprintf(out, " -%c", options->letter);
            continue;
        }
        const apr_value_word row = apr_option_value(options);
        putc(options->is_optional ? '?' : '=', out);
        put_offer(out, &row);
        if (options->letter == 0) continue;
        fprintf(out, " -%c=", options->letter);
        put_offer(out, &row);
    }
}

static void put_command(FILE *out, const apr_tool *tool, const apr_command *command)
{
    char word[APR_OPERAND_WORD];
    bool repeats;

    fprintf(out, "    '%s %s')\n        options='", tool->name, command->verb != NULL ? command->verb : "");
    put_options(out, command->options);
    fprintf(out, "'\n        operands='");
    for (size_t i = 0; apr_operand_word(command, i, word, &repeats); i++) {
        const apr_value_word *const row = apr_operand_meaning(command, word);
        if (i > 0) putc(' ', out);
        if (row != NULL) put_offer(out, row);
        if (repeats) fputs(" ...", out);
    }
    fprintf(out, "'\n        ;;\n");
}

static void put_verbs(FILE *out, const apr_tool *tool)
{
    fprintf(out, "    %s) verbs='", tool->name);
    for (const apr_command *const *at = tool->commands; *at != NULL; at++)
        if ((*at)->verb != NULL) fprintf(out, "%s ", (*at)->verb);
    fprintf(out, "%s' ;;\n", tool->commands[0]->verb != NULL ? APR_HELP_VERB : "");
}

void apr_completion_bash(FILE *out, const apr_tool *const *toolkit)
{
    fprintf(out, "_aprkit_types='");
    apr_completion_types(out);
    fprintf(out, "'\n_aprkit_gpus='");
    apr_completion_gpus(out);
    fprintf(out, "'\n_aprkit_common='");
    put_options(out, apr_common_options);
    fprintf(out, "'\n\n_aprkit_verbs() {\n    case $1 in\n");
    for (const apr_tool *const *t = toolkit; *t != NULL; t++) put_verbs(out, *t);
    fprintf(out, "    esac\n}\n\n_aprkit_command() {\n    case $1 in\n");
    for (const apr_tool *const *t = toolkit; *t != NULL; t++)
        for (const apr_command *const *c = (*t)->commands; *c != NULL; c++) put_command(out, *t, *c);
    fprintf(out, "    *) options= operands= ;;\n    esac\n}\n\ncomplete -F _aprkit");
    for (const apr_tool *const *t = toolkit; *t != NULL; t++) fprintf(out, " %s", (*t)->name);
    fprintf(out, "\n");
}
