/* manual.c - the manual pages of tools and verbs: aprconv(1), aprconv-diff(1) ... */
#include "tools/packaging/manual.h"

#include "tools/cli/options.h"
#include "tools/packaging/mdoc.h"
#include "tools/packaging/value_words.h"

#include <stdlib.h>
#include <string.h>

/* --- operands and options --- */

static void put_usage(FILE *out, const apr_tool *tool, const apr_command *command)
{
    fprintf(out, ".Nm ");
    if (command->verb == NULL) fprintf(out, "%s\n", tool->name);
    else fprintf(out, "\"%s %s\"\n", tool->name, command->verb);
    fprintf(out, ".Op Ar options\n");
    if (*command->operands == '\0') return;
    fprintf(out, ".Ar ");
    apr_mdoc_argument(out, command->operands);
    putc('\n', out);
}

static void put_operands(FILE *out, const apr_command *command)
{
    char word[APR_OPERAND_WORD];
    bool repeats;

    if (*command->operands == '\0') return;
    fprintf(out, ".Bl -tag -width Ds\n");
    for (size_t i = 0; apr_operand_word(command, i, word, &repeats); i++) {
        const apr_value_word *const row = apr_operand_meaning(command, word);
        fprintf(out, ".It Ar ");
        apr_mdoc_argument(out, word);
        putc('\n', out);
        if (row != NULL) apr_mdoc_sentence(out, row->meaning);
        if (repeats) apr_mdoc_text(out, "It may be given several times.");
    }
    fprintf(out, ".El\n");
}

static void put_option(FILE *out, const apr_option *o)
{
    const bool says_no = o->kind == APR_OPTION_FLAG && o->standard != NULL && strcmp(o->standard, "yes") == 0;
    char more[256];

    fprintf(out, ".It ");
    if (o->letter != 0) fprintf(out, "Fl %c , ", o->letter);
    fprintf(out, "Fl \\-%s%s", says_no ? "no\\-" : "", o->name);
    if (o->is_optional) fprintf(out, " Ns Op No = Ns Ar ");
    else if (o->value_name != NULL) fprintf(out, " Ar ");
    if (o->value_name != NULL) apr_mdoc_argument(out, o->value_name);
    putc('\n', out);
    apr_mdoc_sentence(out, o->help);
    if (o->kind == APR_OPTION_LIST) apr_mdoc_text(out, "It may be given several times.");
    if (o->standard == NULL || o->kind == APR_OPTION_FLAG) return;
    snprintf(more, sizeof more, "The default is %s.", o->standard);
    apr_mdoc_text(out, more);
}

static void put_options(FILE *out, const apr_option *options)
{
    const char *group = NULL;
    for (; options != NULL && options->name != NULL; options++) {
        const char *const heading = options->group != NULL ? options->group : group != NULL ? group : "Of this command";
        if (group == NULL || strcmp(group, heading) != 0) {
            if (group != NULL) fprintf(out, ".El\n");
            fprintf(out, ".Ss %s\n.Bl -tag -width Ds\n", heading);
        }
        group = heading;
        put_option(out, options);
    }
    if (group != NULL) fprintf(out, ".El\n");
}

/* --- sections --- */

static void put_examples(FILE *out, const char *const *examples)
{
    fprintf(out, ".Bd -literal -offset indent\n");
    for (; *examples != NULL; examples++) apr_mdoc_literal(out, *examples);
    fprintf(out, ".Ed\n");
}

static int by_name(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

void apr_manual_see_also(FILE *out, const apr_tool *const *toolkit, const apr_tool *tool, const char *own)
{
    enum { MAX_PAGES = 64, MAX_NAME = 64 };
    static const char *const overviews[] = {"aprkit", "aprkit-words"};
    static char names[MAX_PAGES][MAX_NAME];
    const char *sorted[MAX_PAGES];
    const char *before = "";
    size_t n = 0;

    for (const apr_tool *const *t = toolkit; *t != NULL && n < MAX_PAGES; t++) snprintf(names[n++], MAX_NAME, "%s", (*t)->name);
    for (const apr_command *const *c = tool != NULL ? tool->commands : NULL; c != NULL && *c != NULL && n < MAX_PAGES; c++)
        if ((*c)->verb != NULL) snprintf(names[n++], MAX_NAME, "%s-%s", tool->name, (*c)->verb);
    for (size_t i = 0; i < n; i++) sorted[i] = names[i];
    qsort(sorted, n, sizeof *sorted, by_name);

    fprintf(out, ".Sh SEE ALSO\n");
    for (size_t i = 0; i < n; i++) {
        if (strcmp(sorted[i], own) == 0) continue;
        fprintf(out, "%s.Xr %s 1", before, sorted[i]);
        before = " ,\n";
    }
    for (size_t i = 0; i < sizeof overviews / sizeof *overviews; i++)
        if (strcmp(overviews[i], own) != 0) fprintf(out, "%s.Xr %s 7", before, overviews[i]);
    fprintf(out, "\n");
}

void apr_manual_exit_codes(FILE *out)
{
    static const char *const meanings[] = {
        [APR_OK] = "The command did what it was asked for; of a check or a comparison, the answer is yes.",
        [APR_E_NO] = "It did, and the answer is no: models differ, a plan does not fit, a check has found something.",
        [APR_E_USAGE] = "The command line is not understood, or contradicts itself.",
        [APR_E_IO] = "A file cannot be read or written, or an output exists.",
        [APR_E_DAMAGED] = "An input is damaged or incomplete.",
        [APR_E_UNSUPPORTED] = "An input is sound, and aprkit cannot do this with it, or would lose something.",
        [APR_E_MEMORY] = "There is not enough memory.",
        [APR_E_DEVICE] = "A GPU was asked for and cannot be used."};

    fprintf(out, ".Sh EXIT STATUS\nThe exit codes are the same for every command:\n.Pp\n.Bl -tag -width 3n -compact\n");
#define X(id, value, text)           \
    fprintf(out, ".It %d\n", value); \
    apr_mdoc_text(out, meanings[APR_##id]);
    APR_STATUS_LIST(X)
#undef X
    fprintf(out, ".El\n");
}

static void put_verbs(FILE *out, const apr_tool *tool)
{
    fprintf(out, ".Ss Verbs\nEach verb has a manual page of its own.\n.Bl -tag -width Ds\n");
    for (const apr_command *const *at = tool->commands; *at != NULL; at++) {
        if ((*at)->verb == NULL) continue;
        fprintf(out, ".It Xr %s-%s 1\n", tool->name, (*at)->verb);
        apr_mdoc_sentence(out, (*at)->summary);
    }
    fprintf(out, ".El\n");
}

static void put_description(FILE *out, const apr_tool *tool, const apr_command *command, bool has_verbs)
{
    fprintf(out, ".Sh DESCRIPTION\n");
    if (command != NULL) {
        apr_mdoc_sentence(out, command->summary);
        put_operands(out, command);
        apr_mdoc_text(out, "Options and operands may come in any order.");
        apr_mdoc_text(out, "After -- everything is an operand.");
    } else {
        fprintf(out, ".Nm\n");
        apr_mdoc_text(out, tool->summary);
    }
    if (has_verbs) put_verbs(out, tool);
}

void apr_manual_command(FILE *out, const apr_tool *tool, const apr_command *command, const char *date)
{
    const apr_command *const shown = command != NULL ? command : apr_command_named(tool, NULL);
    const bool has_verbs = command == NULL && tool->commands[0]->verb != NULL;
    char name[96];

    snprintf(name, sizeof name, "%s%s%s", tool->name, command != NULL ? "-" : "", command != NULL ? command->verb : "");
    apr_mdoc_start(out, name, "1", date, command != NULL ? command->summary : tool->summary);
    fprintf(out, ".Sh SYNOPSIS\n");
    if (shown != NULL) put_usage(out, tool, shown);
    if (has_verbs) fprintf(out, ".Nm %s\n.Ar verb\n.Op Ar options\n.Op Ar operands\n", tool->name);
    put_description(out, tool, shown, has_verbs);
    fprintf(out, ".Sh OPTIONS\n");
    if (shown != NULL) put_options(out, shown->options);
    put_options(out, apr_common_options);
    apr_manual_exit_codes(out);
    if (shown != NULL && shown->examples != NULL) {
        fprintf(out, ".Sh EXAMPLES\n");
        put_examples(out, shown->examples);
    }
    apr_manual_see_also(out, tool->toolkit, tool, name);
}
