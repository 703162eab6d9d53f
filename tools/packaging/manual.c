/* manual.c - the manual pages: of tools and verbs, aprconv(1), aprconv-diff(1) ..., and of section 7, aprkit and aprkit-words. They are in
 * mdoc, the language of mandoc and groff: text is quoted where these would take it for their own, and lines are broken. */
#include "tools/packaging/manual.h"

#include "formats/base/text.h"
#include "formats/number/dtype.h"
#include "kernels/rows.h"
#include "quant/recipe.h"
#include "tools/cli/foreign_help.h"
#include "tools/cli/options.h"
#include "tools/packaging/value_words.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* ---- mdoc ---- */

enum { MDOC_COLUMNS = 76 };

/* One character. '-' stays a hyphen only within a word of prose. Returns how many columns were written to the source. */
static int put(FILE *out, char c, bool is_literal)
{
    static const struct {
        char c;
        const char *text;
    } quoted[] = {{'\\', "\\e"}, {'\'', "\\(aq"}, {'`', "\\(ga"}, {'^', "\\(ha"}, {'~', "\\(ti"}, {'"', "\\(dq"}};

    if (c == '-' && is_literal) return fprintf(out, "\\-");
    for (size_t i = 0; i < sizeof quoted / sizeof *quoted; i++)
        if (quoted[i].c == c) return fprintf(out, "%s", quoted[i].text);
    putc(c, out);
    return 1;
}

static int mdoc_put_word(FILE *out, const char *word, int n)
{
    const bool is_literal = memchr(word, '-', (size_t)n) != NULL && (word[0] == '-' || (word[0] == '\'' && word[1] == '-'));
    int width = 0;
    for (int i = 0; i < n; i++) width += put(out, word[i], is_literal);
    return width;
}

static bool ends_a_sentence(const char *word, int n)
{
    while (n > 1 && strchr("\")'", word[n - 1]) != NULL) n--;
    return n > 1 && strchr(".!?", word[n - 1]) != NULL && (n < 3 || word[n - 2] != '.');
}

/* Writes a line break, or a blank if the word still fits. Returns the column. */
static int separate(FILE *out, int column, const char *word, int n, bool new_sentence)
{
    const bool breaks = column > 0 && (new_sentence || column + 1 + n > MDOC_COLUMNS);
    if (column > 0) putc(breaks ? '\n' : ' ', out);
    const bool starts_line = breaks || column == 0;
    if (starts_line && (*word == '.' || *word == '\'')) fputs("\\&", out);
    return starts_line ? 0 : column + 1;
}

static void put_prose(FILE *out, const char *text)
{
    bool new_sentence = false;
    int column = 0;

    for (const char *word = text + strspn(text, " "); *word != '\0';) {
        const int n = (int)strcspn(word, " ");
        column = separate(out, column, word, n, new_sentence);
        column += mdoc_put_word(out, word, n);
        new_sentence = ends_a_sentence(word, n);
        word += n;
        word += strspn(word, " ");
    }
}

static void mdoc_text(FILE *out, const char *text)
{
    put_prose(out, text);
    putc('\n', out);
}

static void mdoc_sentence(FILE *out, const char *text)
{
    char copy[2048];
    const size_t n_word = strspn(text, "abcdefghijklmnopqrstuvwxyz"), n = strlen(text);
    const bool is_plain = n_word > 0 && (text[n_word] == ' ' || text[n_word] == ',' || text[n_word] == '\0');

    snprintf(copy, sizeof copy, "%s%s", text, n > 0 && strchr(".!?", text[n - 1]) != NULL ? "" : ".");
    if (is_plain && !isupper((unsigned char)text[n_word])) copy[0] = (char)toupper((unsigned char)copy[0]);
    mdoc_text(out, copy);
}

static void mdoc_literal(FILE *out, const char *line)
{
    if (*line == '.' || *line == '\'') fputs("\\&", out);
    for (; *line != '\0'; line++) put(out, *line, true);
    putc('\n', out);
}

static void mdoc_argument(FILE *out, const char *text)
{
    putc('"', out);
    for (; *text != '\0'; text++) put(out, *text, true);
    putc('"', out);
}

static void mdoc_start(FILE *out, const char *name, const char *section, const char *date, const char *summary)
{
    static const char *const months[] = {"January", "February", "March",     "April",   "May",      "June",
                                         "July",    "August",   "September", "October", "November", "December"};
    int year = 1, month = 1, day = 1;

    sscanf(date, "%d-%d-%d", &year, &month, &day);
    fprintf(out, ".\\\" Made by aprdoc from the tables that the tools parse their arguments with. Do not edit.\n");
    fprintf(out, ".Dd %s %d, %d\n.Dt ", months[month - 1], day, year);
    for (const char *at = name; *at != '\0'; at++) putc(toupper((unsigned char)*at), out);
    fprintf(out, " %s\n.Os\n.Sh NAME\n.Nm %s\n.Nd \"", section, name);
    for (; *summary != '\0' && (strchr(".?!", *summary) == NULL || summary[1] != '\0'); summary++) put(out, *summary, false);
    fputs("\"\n", out);
}

/* ---- tools and verbs ---- */

/* --- operands and options --- */

static void put_usage(FILE *out, const apr_tool *tool, const apr_command *command)
{
    fprintf(out, ".Nm ");
    if (command->verb == NULL) fprintf(out, "%s\n", tool->name);
    else fprintf(out, "\"%s %s\"\n", tool->name, command->verb);
    fprintf(out, ".Op Ar options\n");
    if (*command->operands == '\0') return;
    fprintf(out, ".Ar ");
    mdoc_argument(out, command->operands);
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
        mdoc_argument(out, word);
        putc('\n', out);
        if (row != NULL) mdoc_sentence(out, row->meaning);
        if (repeats) mdoc_text(out, "It may be given several times.");
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
    if (o->value_name != NULL) mdoc_argument(out, o->value_name);
    putc('\n', out);
    mdoc_sentence(out, o->help);
    if (o->kind == APR_OPTION_LIST) mdoc_text(out, "It may be given several times.");
    if (o->standard == NULL || o->kind == APR_OPTION_FLAG) return;
    snprintf(more, sizeof more, "The default is %s.", o->standard);
    mdoc_text(out, more);
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
    for (; *examples != NULL; examples++) mdoc_literal(out, *examples);
    fprintf(out, ".Ed\n");
}

static void manual_see_also(FILE *out, const apr_tool *const *toolkit, const apr_tool *tool, const char *own)
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
    qsort(sorted, n, sizeof *sorted, apr_compare_texts);

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

static void manual_exit_codes(FILE *out)
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
    mdoc_text(out, meanings[APR_##id]);
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
        mdoc_sentence(out, (*at)->summary);
    }
    fprintf(out, ".El\n");
}

static void put_description(FILE *out, const apr_tool *tool, const apr_command *command, bool has_verbs)
{
    fprintf(out, ".Sh DESCRIPTION\n");
    if (command != NULL) {
        mdoc_sentence(out, command->summary);
        put_operands(out, command);
        mdoc_text(out, "Options and operands may come in any order.");
        mdoc_text(out, "After -- everything is an operand.");
    } else {
        fprintf(out, ".Nm\n");
        mdoc_text(out, tool->summary);
    }
    if (has_verbs) put_verbs(out, tool);
}

void apr_manual_command(FILE *out, const apr_tool *tool, const apr_command *command, const char *date)
{
    const apr_command *const shown = command != NULL ? command : apr_command_named(tool, NULL);
    const bool has_verbs = command == NULL && tool->commands[0]->verb != NULL;
    char name[96];

    snprintf(name, sizeof name, "%s%s%s", tool->name, command != NULL ? "-" : "", command != NULL ? command->verb : "");
    mdoc_start(out, name, "1", date, command != NULL ? command->summary : tool->summary);
    fprintf(out, ".Sh SYNOPSIS\n");
    if (shown != NULL) put_usage(out, tool, shown);
    if (has_verbs) fprintf(out, ".Nm %s\n.Ar verb\n.Op Ar options\n.Op Ar operands\n", tool->name);
    put_description(out, tool, shown, has_verbs);
    fprintf(out, ".Sh OPTIONS\n");
    if (shown != NULL) put_options(out, shown->options);
    put_options(out, apr_common_options);
    manual_exit_codes(out);
    if (shown != NULL && shown->examples != NULL) {
        fprintf(out, ".Sh EXAMPLES\n");
        put_examples(out, shown->examples);
    }
    manual_see_also(out, tool->toolkit, tool, name);
}

/* ---- section 7 ---- */

/* --- aprkit(7) --- */

static void put_tools(FILE *out, const apr_tool *const *toolkit)
{
    fprintf(out, ".Sh DESCRIPTION\n");
    mdoc_text(out, "aprkit is four tools for the weights of language models, which share their options, numbers and exit codes:");
    fprintf(out, ".Bl -tag -width Ds\n");
    for (; *toolkit != NULL; toolkit++) {
        fprintf(out, ".It Xr %s 1\n", (*toolkit)->name);
        mdoc_sentence(out, (*toolkit)->summary);
    }
    fprintf(out, ".El\n");
    fprintf(out, ".Ss Models\n");
    mdoc_text(out,
              "A model is a GGUF file (the first, if it is split), an APR file, the folder of a checkpoint as Hugging Face publishes it "
              "(config.json, .safetensors or .bin files, the tokenizer), or ORG/NAME. ORG/NAME[@REVISION][:TAG] is looked up in the cache "
              "of Hugging Face's tools; TAG chooses one of several GGUF files, as in :Q4_K_M. Nothing is downloaded.");
    mdoc_text(out, "What is read is recognised by its content. What is written is decided by its name: .gguf, .apr, or a folder with / at "
                   "the end.");
}

/* How a type is stored, for people. */
static const char *kind_of(const apr_dtype_facts *d)
{
    static const char *const kinds[] = {[APR_CLASS_FLOAT] = "float",
                                        [APR_CLASS_INTEGER] = "integer",
                                        [APR_CLASS_OTHER] = "other",
                                        [APR_CLASS_EXPONENT] = "scale",
                                        [APR_CLASS_MINIFLOAT] = "float, with scales",
                                        [APR_CLASS_BLOCK] = "blocks with scales"};
    return kinds[d->class_of];
}

static void put_types(FILE *out)
{
    fprintf(out, ".Ss Types\n");
    mdoc_text(out, "A type says how the numbers of a tensor are stored. Its bits per weight include the scales that are inside its blocks. "
                   "Types that cannot be written are read, and copied.");
    fprintf(out, ".Bl -column \"f8_e5m2xx\" \"10.5000\" \"cannot be\" \"blocks with scales\"\n");
    fprintf(out, ".It Em type Ta Em bits Ta Em written Ta Em stored as\n");
    for (int d = 0; d < APR_DTYPE_COUNT; d++)
        if (apr_dtype_is_weights((apr_dtype)d))
            fprintf(out, ".It %s Ta %.4g Ta %s Ta %s\n", apr_dtypes[d].name, apr_dtype_bits((apr_dtype)d),
                    apr_can_encode((apr_dtype)d) ? "yes" : "no", kind_of(&apr_dtypes[d]));
    fprintf(out, ".El\n.Ss Mixtures\n");
    mdoc_text(out, "A mixture gives each tensor a type by what it is for. These are the names that aprquant takes as TYPE; a type alone is "
                   "also a mixture, because embeddings, heads and vectors often keep more bits. V and down are the value matrices of "
                   "attention and the last matrices of feed-forward blocks.");
    fprintf(out, ".Bl -tag -width Ds -compact\n");
    for (const apr_mixture_name *m = apr_mixture_names; m->name != NULL; m++) {
        fprintf(out, ".It %s\n", m->name);
        mdoc_sentence(out, m->about);
    }
    fprintf(out, ".El\n");
}

static void put_numbers(FILE *out)
{
    fprintf(out, ".Ss Numbers and sizes\n");
    mdoc_text(out, "Whole numbers may have commas between groups of three digits, as in 131,072, and k for 1024, as in 128k.");
    mdoc_text(out,
              "Sizes are bytes. K, M, G and T (also KiB, MiB, GiB and TiB) are powers of 1024; KB, MB, GB and TB are powers of 1000. 1.5G "
              "and 512M are sizes.");
    mdoc_text(out, "Options are written --name VALUE or --name=VALUE, short ones -n VALUE or -n4. An option that is on by default is "
                   "turned off with --no-name. If an option is given twice, the last one wins.");
    mdoc_text(out, "Options of other programs, such as llama.cpp's -ngl, are understood where aprkit has the same:");
    fprintf(out, "see\n.Xr aprkit-words 7 .\n");
    fprintf(out, ".Ss Output\n");
    mdoc_text(
        out,
        "With --json a command prints one JSON object on stdout, also when it fails: \"ok\", \"status\", \"exit\" and \"error\" say how it "
        "ended. Progress and notes go to stderr. A failure is one sentence on stderr: the file, the tensor, the byte, and what "
        "to do.");
    mdoc_text(out, "An output gets its name when it is complete. A command that fails or is stopped leaves no output, and never changes a "
                   "file that it did not make.");
}

static void put_environment(FILE *out)
{
    static const struct {
        const char *name, *meaning;
    } variables[] = {
        {"HF_HUB_CACHE", "the folder of Hugging Face's cache, in which ORG/NAME is looked up; also HUGGINGFACE_HUB_CACHE"},
        {"HF_HOME", "the folder whose hub/ is that cache, if neither of these is set"},
        {"XDG_CACHE_HOME", "the folder of caches, instead of ~/.cache"},
        {"COLUMNS", "the width of tables, if the terminal does not state one"},
        {"NO_COLOR", "if it is set and not empty, no colors are used"},
        {"OMP_NUM_THREADS", "the number of threads, where --threads is not given"},
    };
    fprintf(out, ".Sh ENVIRONMENT\n.Bl -tag -width Ds\n");
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        fprintf(out, ".It Ev %s\n", variables[i].name);
        mdoc_sentence(out, variables[i].meaning);
    }
    fprintf(out, ".El\n");
}

static void put_files(FILE *out)
{
    static const struct {
        const char *path, *meaning;
    } files[] = {
        {"OUT.part", "an output that is being written; it is removed when the command ends, and locked until then"},
        {"OUT.resume", "finished work of a run with --resume or --part; the same command continues from it, and removes it at the end"},
        {"~/.cache/huggingface/hub", "Hugging Face's cache, which is only read"},
        {"~/.cache/aprkit", "what aprrun has found out about the GPUs here, a small file for each"},
    };
    fprintf(out, ".Sh FILES\n.Bl -tag -width Ds\n");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        fprintf(out, ".It Pa ");
        mdoc_argument(out, files[i].path);
        putc('\n', out);
        mdoc_sentence(out, files[i].meaning);
    }
    fprintf(out, ".El\n");
}

void apr_manual_overview(FILE *out, const apr_tool *const *toolkit, const char *date)
{
    mdoc_start(out, "aprkit", "7", date, "convert, quantize, plan, run and check the weights of language models");
    put_tools(out, toolkit);
    put_types(out);
    put_numbers(out);
    put_environment(out);
    put_files(out);
    manual_exit_codes(out);
    manual_see_also(out, toolkit, NULL, "aprkit");
}

/* --- aprkit-words(7) --- */

static void put_word(FILE *out, const apr_foreign_word *w)
{
    char text[2048];

    fprintf(out, ".It ");
    mdoc_argument(out, apr_foreign_spellings(w, text, sizeof text));
    putc('\n', out);
    mdoc_sentence(out, apr_foreign_meaning(w, text, sizeof text));
    if (w->verbs == NULL) return;
    snprintf(text, sizeof text, "Only %s%s.", strcmp(w->verbs, "-") == 0 ? "without a verb" : "with the verbs ",
             strcmp(w->verbs, "-") == 0 ? "" : w->verbs);
    mdoc_text(out, text);
}

static void put_words_of(FILE *out, const apr_tool *tool)
{
    fprintf(out, ".Ss %s\n.Bl -tag -width Ds\n", tool != NULL ? tool->name : "Every tool");
    for (const apr_foreign_word *w = apr_foreign_words; w->spellings != NULL; w++)
        if (tool == NULL ? w->tools[0] == '*' : w->tools[0] != '*' && apr_foreign_is_of(w, tool)) put_word(out, w);
    fprintf(out, ".El\n");
}

void apr_manual_words(FILE *out, const apr_tool *const *toolkit, const char *date)
{
    mdoc_start(out, "aprkit-words", "7", date, "options and verbs of other programs that aprkit's tools understand");
    fprintf(out, ".Sh DESCRIPTION\n");
    mdoc_text(out,
              "People know llama.cpp, Ollama, vLLM and Hugging Face's tools. What they type from habit is translated, or refused with a "
              "sentence that names what does it. X is the value of an option.");
    mdoc_text(out, "A row applies to a command that has the option which it names. A translation that could surprise is told in a note on "
                   "stderr. The first row that applies is used, and the tool's own options come before all of them.");
    put_words_of(out, NULL);
    for (const apr_tool *const *t = toolkit; *t != NULL; t++) put_words_of(out, *t);
    manual_see_also(out, toolkit, NULL, "aprkit-words");
}
