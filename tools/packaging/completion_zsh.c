/* completion_zsh.c - the tables that completion.zsh reads: arguments of _arguments for each command. */
#include "tools/cli/options.h"
#include "tools/packaging/completion.h"

#include <string.h>

/* Within single quotes, with a backslash before each of `special`. */
static void put_text(FILE *out, const char *text, const char *special)
{
    for (; *text != '\0'; text++) {
        if (*text == '\'') {
            fputs("'\\''", out);
            continue;
        }
        if (strchr(special, *text) != NULL) putc('\\', out);
        putc(*text, out);
    }
}

/* ":TYPE:_aprkit_types" */
static void put_value(FILE *out, const apr_value_word *row)
{
    static const char *const actions[] = {[APR_OFFER_NOTHING] = "()",
                                          [APR_OFFER_MODEL] = "_aprkit_model",
                                          [APR_OFFER_FILE] = "_files",
                                          [APR_OFFER_FOLDER] = "_files -/",
                                          [APR_OFFER_TYPE] = "_aprkit_types",
                                          [APR_OFFER_GPU] = "_aprkit_gpus",
                                          [APR_OFFER_WORDS] = ""};

    putc(':', out);
    put_text(out, row->word, ":\\[]");
    fprintf(out, ":%s", actions[row->offer]);
    if (row->offer == APR_OFFER_FILE && row->detail != NULL) { /* "*.(html)" would be a qualifier */
        const bool is_one = strchr(row->detail, '|') == NULL;
        fprintf(out, " -g \"*.%s%s%s\"", is_one ? "" : "(", row->detail, is_one ? "" : ")");
    }
    if (row->offer != APR_OFFER_WORDS) return;
    putc('(', out);
    apr_completion_words(out, row->detail);
    putc(')', out);
}

static void put_option(FILE *out, const apr_option *o)
{
    const bool has_value = o->kind != APR_OPTION_FLAG, repeats = o->kind == APR_OPTION_LIST;
    char name[96];

    apr_completion_option(o, name, sizeof name);
    fprintf(out, "        '%s", repeats ? "*" : "");
    if (o->letter != 0 && !repeats) fprintf(out, "(-%c %s)", o->letter, name);
    if (o->letter != 0) fprintf(out, "'{-%c%s,%s%s}'[", o->letter, has_value ? "+" : "", name, has_value ? "=" : "");
    else fprintf(out, "%s%s[", name, !has_value ? "" : o->is_optional ? "=-" : "=");
    put_text(out, o->help, "[]\\");
    putc(']', out);
    if (has_value) {
        const apr_value_word row = apr_option_value(o);
        if (o->is_optional) putc(':', out);
        put_value(out, &row);
    }
    fputs("' \\\n", out);
}

static void put_options(FILE *out, const apr_option *options)
{
    for (; options != NULL && options->name != NULL; options++) put_option(out, options);
}

static void put_operands(FILE *out, const apr_command *command)
{
    char word[APR_OPERAND_WORD];
    bool repeats;

    for (size_t i = 0; apr_operand_word(command, i, word, &repeats); i++) {
        const apr_value_word *const row = apr_operand_meaning(command, word);
        if (row == NULL) continue;
        fprintf(out, "        '%s", repeats ? "*" : i >= command->min_operands ? ":" : "");
        put_value(out, row);
        fputs("' \\\n", out);
    }
}

static void put_verbs(FILE *out, const apr_tool *tool)
{
    fprintf(out, "    %s)\n        verbs=(\n", tool->name);
    for (const apr_command *const *at = tool->commands; *at != NULL; at++) {
        if ((*at)->verb == NULL) continue;
        fprintf(out, "            '%s:", (*at)->verb);
        put_text(out, (*at)->summary, ":\\");
        fprintf(out, "'\n");
    }
    if (tool->commands[0]->verb != NULL) fprintf(out, "            '" APR_HELP_VERB ":help of the tool, or of a verb'\n");
    fprintf(out, "        )\n        ;;\n");
}

void apr_completion_zsh(FILE *out, const apr_tool *const *toolkit)
{
    fprintf(out, "typeset -ga _aprkit_type_names=(");
    apr_completion_types(out);
    fprintf(out, ") _aprkit_gpu_names=(");
    apr_completion_gpus(out);
    fprintf(out, ")\n\n_aprkit_verbs() {\n    case $1 in\n");
    for (const apr_tool *const *t = toolkit; *t != NULL; t++) put_verbs(out, *t);
    fprintf(out, "    esac\n}\n\n_aprkit_command() {\n    local -a common=(\n");
    put_options(out, apr_common_options);
    fprintf(out, "    )\n    case $1 in\n");
    for (const apr_tool *const *t = toolkit; *t != NULL; t++)
        for (const apr_command *const *c = (*t)->commands; *c != NULL; c++) {
            fprintf(out, "    '%s %s')\n        _arguments -s -S : \\\n", (*t)->name, (*c)->verb != NULL ? (*c)->verb : "");
            put_options(out, (*c)->options);
            put_operands(out, *c);
            fprintf(out, "        $common\n        ;;\n");
        }
    fprintf(out, "    esac\n}\n\n_aprkit \"$@\"\n");
}
