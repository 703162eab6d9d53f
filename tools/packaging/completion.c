/* completion.c - the tables that the completions of bash, zsh and fish read (completion.bash and so on). */
#include "tools/packaging/completion.h"

#include "formats/number/dtype.h"
#include "kernels/rows.h"
#include "quant/recipe.h"
#include "runtime/plan/gpus.h"
#include "tools/cli/options.h"

#include <string.h>

static bool is_mixture(const char *name)
{
    for (const apr_mixture_name *m = apr_mixture_names; m->name != NULL; m++)
        if (strcmp(m->name, name) == 0) return true;
    return false;
}

static void completion_types(FILE *out)
{
    const char *space = "";
    for (const apr_mixture_name *m = apr_mixture_names; m->name != NULL; m++, space = " ") fprintf(out, "%s%s", space, m->name);
    for (int d = 0; d < APR_DTYPE_COUNT; d++)
        if (apr_dtype_is_weights((apr_dtype)d) && apr_can_encode((apr_dtype)d) && !is_mixture(apr_dtypes[d].name))
            fprintf(out, " %s", apr_dtypes[d].name);
}

static void completion_gpus(FILE *out)
{
    for (size_t i = 0; i < apr_n_gpus; i++) fprintf(out, "%s%s", i > 0 ? " " : "", apr_gpus[i].name);
}

static char *completion_option(const apr_option *option, char *text, size_t n_bytes)
{
    const bool says_no = option->kind == APR_OPTION_FLAG && option->standard != NULL && strcmp(option->standard, "yes") == 0;
    snprintf(text, n_bytes, "--%s%s", says_no ? "no-" : "", option->name);
    return text;
}

static void completion_words(FILE *out, const char *words)
{
    for (; *words != '\0'; words++) putc(*words == '|' ? ' ' : *words, out);
}

/* ---- bash ---- */

static void bash_put_offer(FILE *out, const apr_value_word *row)
{
    static const char *const marks[] = {
        [APR_OFFER_NOTHING] = "@none", [APR_OFFER_MODEL] = "@model", [APR_OFFER_FILE] = "@files", [APR_OFFER_FOLDER] = "@dir",
        [APR_OFFER_TYPE] = "@types",   [APR_OFFER_GPU] = "@gpus",    [APR_OFFER_WORDS] = ""};
    fprintf(out, "%s%s%s", marks[row->offer], row->offer == APR_OFFER_FILE && row->detail != NULL ? ":" : "",
            row->detail != NULL ? row->detail : "");
}

static void bash_put_options(FILE *out, const apr_option *options)
{
    char text[96];
    for (; options != NULL && options->name != NULL; options++) {
        fprintf(out, " %s", completion_option(options, text, sizeof text));
        if (options->kind == APR_OPTION_FLAG) {
            if (options->letter != 0) fprintf(out, " -%c", options->letter);
            continue;
        }
        const apr_value_word row = apr_option_value(options);
        putc(options->is_optional ? '?' : '=', out);
        bash_put_offer(out, &row);
        if (options->letter == 0) continue;
        fprintf(out, " -%c=", options->letter);
        bash_put_offer(out, &row);
    }
}

static void bash_put_command(FILE *out, const apr_tool *tool, const apr_command *command)
{
    char word[APR_OPERAND_WORD];
    bool repeats;

    fprintf(out, "    '%s %s')\n        options='", tool->name, command->verb != NULL ? command->verb : "");
    bash_put_options(out, command->options);
    fprintf(out, "'\n        operands='");
    for (size_t i = 0; apr_operand_word(command, i, word, &repeats); i++) {
        const apr_value_word *const row = apr_operand_meaning(command, word);
        if (i > 0) putc(' ', out);
        if (row != NULL) bash_put_offer(out, row);
        if (repeats) fputs(" ...", out);
    }
    fprintf(out, "'\n        ;;\n");
}

static void bash_put_verbs(FILE *out, const apr_tool *tool)
{
    fprintf(out, "    %s) verbs='", tool->name);
    for (const apr_command *const *at = tool->commands; *at != NULL; at++)
        if ((*at)->verb != NULL) fprintf(out, "%s ", (*at)->verb);
    fprintf(out, "%s' ;;\n", tool->commands[0]->verb != NULL ? APR_HELP_VERB : "");
}

static void write_bash(FILE *out, const apr_tool *const *toolkit)
{
    fprintf(out, "_aprkit_types='");
    completion_types(out);
    fprintf(out, "'\n_aprkit_gpus='");
    completion_gpus(out);
    fprintf(out, "'\n_aprkit_common='");
    bash_put_options(out, apr_common_options);
    fprintf(out, "'\n\n_aprkit_verbs() {\n    case $1 in\n");
    for (const apr_tool *const *t = toolkit; *t != NULL; t++) bash_put_verbs(out, *t);
    fprintf(out, "    esac\n}\n\n_aprkit_command() {\n    case $1 in\n");
    for (const apr_tool *const *t = toolkit; *t != NULL; t++)
        for (const apr_command *const *c = (*t)->commands; *c != NULL; c++) bash_put_command(out, *t, *c);
    fprintf(out, "    *) options= operands= ;;\n    esac\n}\n\ncomplete -F _aprkit");
    for (const apr_tool *const *t = toolkit; *t != NULL; t++) fprintf(out, " %s", (*t)->name);
    fprintf(out, "\n");
}

/* ---- zsh ---- */

/* Within single quotes, with a backslash before each of `special`. */
static void zsh_put_text(FILE *out, const char *text, const char *special)
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
static void zsh_put_value(FILE *out, const apr_value_word *row)
{
    static const char *const actions[] = {[APR_OFFER_NOTHING] = "()",
                                          [APR_OFFER_MODEL] = "_aprkit_model",
                                          [APR_OFFER_FILE] = "_files",
                                          [APR_OFFER_FOLDER] = "_files -/",
                                          [APR_OFFER_TYPE] = "_aprkit_types",
                                          [APR_OFFER_GPU] = "_aprkit_gpus",
                                          [APR_OFFER_WORDS] = ""};

    putc(':', out);
    zsh_put_text(out, row->word, ":\\[]");
    fprintf(out, ":%s", actions[row->offer]);
    if (row->offer == APR_OFFER_FILE && row->detail != NULL) { /* "*.(html)" would be a qualifier */
        const bool is_one = strchr(row->detail, '|') == NULL;
        fprintf(out, " -g \"*.%s%s%s\"", is_one ? "" : "(", row->detail, is_one ? "" : ")");
    }
    if (row->offer != APR_OFFER_WORDS) return;
    putc('(', out);
    completion_words(out, row->detail);
    putc(')', out);
}

static void zsh_put_option(FILE *out, const apr_option *o)
{
    const bool has_value = o->kind != APR_OPTION_FLAG, repeats = o->kind == APR_OPTION_LIST;
    char name[96];

    completion_option(o, name, sizeof name);
    fprintf(out, "        '%s", repeats ? "*" : "");
    if (o->letter != 0 && !repeats) fprintf(out, "(-%c %s)", o->letter, name);
    if (o->letter != 0) fprintf(out, "'{-%c%s,%s%s}'[", o->letter, has_value ? "+" : "", name, has_value ? "=" : "");
    else fprintf(out, "%s%s[", name, !has_value ? "" : o->is_optional ? "=-" : "=");
    zsh_put_text(out, o->help, "[]\\");
    putc(']', out);
    if (has_value) {
        const apr_value_word row = apr_option_value(o);
        if (o->is_optional) putc(':', out);
        zsh_put_value(out, &row);
    }
    fputs("' \\\n", out);
}

static void zsh_put_options(FILE *out, const apr_option *options)
{
    for (; options != NULL && options->name != NULL; options++) zsh_put_option(out, options);
}

static void zsh_put_operands(FILE *out, const apr_command *command)
{
    char word[APR_OPERAND_WORD];
    bool repeats;

    for (size_t i = 0; apr_operand_word(command, i, word, &repeats); i++) {
        const apr_value_word *const row = apr_operand_meaning(command, word);
        if (row == NULL) continue;
        fprintf(out, "        '%s", repeats ? "*" : i >= command->min_operands ? ":" : "");
        zsh_put_value(out, row);
        fputs("' \\\n", out);
    }
}

static void zsh_put_verbs(FILE *out, const apr_tool *tool)
{
    fprintf(out, "    %s)\n        verbs=(\n", tool->name);
    for (const apr_command *const *at = tool->commands; *at != NULL; at++) {
        if ((*at)->verb == NULL) continue;
        fprintf(out, "            '%s:", (*at)->verb);
        zsh_put_text(out, (*at)->summary, ":\\");
        fprintf(out, "'\n");
    }
    if (tool->commands[0]->verb != NULL) fprintf(out, "            '" APR_HELP_VERB ":help of the tool, or of a verb'\n");
    fprintf(out, "        )\n        ;;\n");
}

static void write_zsh(FILE *out, const apr_tool *const *toolkit)
{
    fprintf(out, "typeset -ga _aprkit_type_names=(");
    completion_types(out);
    fprintf(out, ") _aprkit_gpu_names=(");
    completion_gpus(out);
    fprintf(out, ")\n\n_aprkit_verbs() {\n    case $1 in\n");
    for (const apr_tool *const *t = toolkit; *t != NULL; t++) zsh_put_verbs(out, *t);
    fprintf(out, "    esac\n}\n\n_aprkit_command() {\n    local -a common=(\n");
    zsh_put_options(out, apr_common_options);
    fprintf(out, "    )\n    case $1 in\n");
    for (const apr_tool *const *t = toolkit; *t != NULL; t++)
        for (const apr_command *const *c = (*t)->commands; *c != NULL; c++) {
            fprintf(out, "    '%s %s')\n        _arguments -s -S : \\\n", (*t)->name, (*c)->verb != NULL ? (*c)->verb : "");
            zsh_put_options(out, (*c)->options);
            zsh_put_operands(out, *c);
            fprintf(out, "        $common\n        ;;\n");
        }
    fprintf(out, "    esac\n}\n\n_aprkit \"$@\"\n");
}

/* ---- fish ---- */

/* Text within single quotes. */
static void fish_put_quoted(FILE *out, const char *text)
{
    putc('\'', out);
    for (; *text != '\0'; text++)
        if (*text == '\'') fputs("\\'", out);
        else putc(*text, out);
    putc('\'', out);
}

static void fish_put_offer(FILE *out, const apr_value_word *row)
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
    if (row->detail != NULL) completion_words(out, row->detail);
    fputs(row->offer == APR_OFFER_FILE ? ")'" : "'", out);
}

static const char *fish_verb_of(const apr_command *command) { return command->verb != NULL ? command->verb : "-"; }

static bool fish_is_same(const apr_option *a, const apr_option *b)
{
    return strcmp(a->name, b->name) == 0 && strcmp(a->help, b->help) == 0 && a->kind == b->kind && a->letter == b->letter &&
           (a->value_name == NULL) == (b->value_name == NULL) && (a->value_name == NULL || strcmp(a->value_name, b->value_name) == 0);
}

static bool fish_has_option(const apr_command *command, const apr_option *option)
{
    for (const apr_option *o = command->options; o != NULL && o->name != NULL; o++)
        if (fish_is_same(o, option)) return true;
    return false;
}

/* Whether an earlier command has the same option, which was then written with this command's verb. */
static bool fish_is_written(const apr_tool *tool, const apr_command *command, const apr_option *option)
{
    for (const apr_command *const *at = tool->commands; *at != command; at++)
        if (fish_has_option(*at, option)) return true;
    return false;
}

static void fish_put_option(FILE *out, const apr_tool *tool, const apr_option *o, bool is_common)
{
    char name[96];

    fprintf(out, "complete -c %s", tool->name);
    if (!is_common) {
        fprintf(out, " -n '__aprkit_is");
        for (const apr_command *const *at = tool->commands; *at != NULL; at++)
            if (fish_has_option(*at, o)) fprintf(out, " %s", fish_verb_of(*at));
        fprintf(out, "'");
    }
    fprintf(out, " -l %s", completion_option(o, name, sizeof name) + 2);
    if (o->letter != 0) fprintf(out, " -s %c", o->letter);
    if (o->kind != APR_OPTION_FLAG) {
        const apr_value_word row = apr_option_value(o);
        fputs(o->is_optional ? " -f" : " -x", out);
        fish_put_offer(out, &row);
    }
    fputs(" -d ", out);
    fish_put_quoted(out, o->help);
    putc('\n', out);
}

static void fish_put_operands(FILE *out, const apr_tool *tool, const apr_command *command)
{
    char word[APR_OPERAND_WORD];
    bool repeats;

    for (size_t i = 0; apr_operand_word(command, i, word, &repeats); i++) {
        const apr_value_word *const row = apr_operand_meaning(command, word);
        if (row == NULL || row->offer == APR_OFFER_NOTHING) continue;
        fprintf(out, "complete -c %s -n '__aprkit_is %s'", tool->name, fish_verb_of(command));
        fish_put_offer(out, row);
        putc('\n', out);
    }
}

static void fish_put_verbs(FILE *out, const apr_tool *tool)
{
    fprintf(out, "set -g __aprkit_verbs_of_%s", tool->name);
    for (const apr_command *const *at = tool->commands; *at != NULL; at++)
        if ((*at)->verb != NULL) fprintf(out, " %s", (*at)->verb);
    fprintf(out, "\n\n");
    for (const apr_command *const *at = tool->commands; *at != NULL; at++) {
        if ((*at)->verb == NULL) continue;
        fprintf(out, "complete -c %s -n __aprkit_is_first -a %s -d ", tool->name, (*at)->verb);
        fish_put_quoted(out, (*at)->summary);
        putc('\n', out);
    }
    if (tool->commands[0]->verb != NULL)
        fprintf(out, "complete -c %s -n __aprkit_is_first -a " APR_HELP_VERB " -d 'help of the tool, or of a verb'\n", tool->name);
}

static void write_fish(FILE *out, const apr_tool *tool)
{
    fprintf(out, "set -g __aprkit_types ");
    completion_types(out);
    fprintf(out, "\nset -g __aprkit_gpus ");
    completion_gpus(out);
    fprintf(out, "\n\ncomplete -c %s -f\n", tool->name);
    fish_put_verbs(out, tool);
    for (const apr_option *o = apr_common_options; o->name != NULL; o++) fish_put_option(out, tool, o, true);
    for (const apr_command *const *c = tool->commands; *c != NULL; c++) {
        fish_put_operands(out, tool, *c);
        for (const apr_option *o = (*c)->options; o != NULL && o->name != NULL; o++)
            if (!fish_is_written(tool, *c, o)) fish_put_option(out, tool, o, false);
    }
}

bool apr_completion(FILE *out, const char *shell, const apr_tool *const *toolkit, const apr_tool *tool)
{
    if (strcmp(shell, "bash") == 0) write_bash(out, toolkit);
    else if (strcmp(shell, "zsh") == 0) write_zsh(out, toolkit);
    else if (strcmp(shell, "fish") == 0 && tool != NULL) write_fish(out, tool);
    else return false;
    return true;
}
