/* foreign_help.c - prints the table of other programs' options and verbs for people. */
#include "tools/cli/foreign_help.h"

#include "formats/base/text.h"
#include "tools/cli/options.h"

#include <string.h>

enum { MAX_TEXT = 2048 };

bool apr_foreign_is_of(const apr_foreign_word *word, const apr_tool *tool)
{
    return word->tools[0] == '*' || strchr(word->tools, apr_foreign_tool_letter(tool->name)) != NULL;
}

static size_t append(char *text, size_t n, size_t n_bytes, const char *more)
{
    const size_t n_left = n_bytes - n;
    const int length = snprintf(text + n, n_left, "%s", more);
    return (size_t)length < n_left ? n + (size_t)length : n_bytes - 1;
}

char *apr_foreign_spellings(const apr_foreign_word *word, char *text, size_t n_bytes)
{
    size_t n = append(text, 0, n_bytes, "");
    for (const char *at = word->spellings; *at != '\0'; at++) {
        const char letter[] = {*at, '\0'};
        n = append(text, n, n_bytes, *at == '|' ? ", " : letter);
    }
    append(text, n, n_bytes, word->value == 'v' ? " X" : "");
    return text;
}

/* A meaning for people: X is the value, VERB the typed word, and a leading "{}: " (the typed word) is left out. */
static void write_meaning(const char *meaning, int n_meaning, char *text, size_t n, size_t n_bytes)
{
    const int start = apr_begins_with(meaning, "{}: ") ? 4 : 0;
    for (int i = start; i < n_meaning; i++) {
        const char *const at = meaning + i, letter[] = {*at, '\0'};
        const bool has_next = i + 1 < n_meaning;
        if ((*at == '<' || *at == '>') && has_next && at[1] == '%') {
            n = append(text, n, n_bytes, *at == '<' ? "X as the first argument" : "X as the last argument");
            i++;
        } else if (*at == '{' && has_next && at[1] == '}') {
            n = append(text, n, n_bytes, "VERB");
            i++;
        } else n = append(text, n, n_bytes, *at == '%' ? "X" : letter);
    }
}

char *apr_foreign_meaning(const apr_foreign_word *word, char *text, size_t n_bytes)
{
    static const char *const kinds[] = {[APR_FOREIGN_ALIAS] = "same as ",
                                        [APR_FOREIGN_TRANSLATED] = "becomes ",
                                        [APR_FOREIGN_NO_EFFECT] = "has no effect: ",
                                        [APR_FOREIGN_SUGGESTED] = "refused: ",
                                        [APR_FOREIGN_UNSUPPORTED] = "refused: "};
    const char *const then = strstr(word->meaning, " => ");
    const int n_meaning = then != NULL ? (int)(then - word->meaning) : (int)strlen(word->meaning);

    if (word->meaning[0] == '!') append(text, 0, n_bytes, "becomes the option or verb that means the same here");
    else write_meaning(word->meaning, n_meaning, text, append(text, 0, n_bytes, kinds[word->kind]), n_bytes);
    return text;
}

/* Verbs of the other tools that no row above names. */
static void print_verbs_of_others(const apr_tool *tool, char letter, FILE *out)
{
    for (const apr_tool *const *other = tool->toolkit; other != NULL && *other != NULL; other++) {
        const char *before = "  ";
        for (const apr_command *const *at = (*other)->commands; *at != NULL; at++) {
            const char *const verb = (*at)->verb, *rest;
            if (verb == NULL || apr_command_named(tool, verb) != NULL) continue;
            if (apr_foreign_find(apr_foreign_words, letter, NULL, verb, strlen(verb), &rest) != NULL) continue;
            fprintf(out, "%s%s", before, verb);
            before = ", ";
        }
        if (*before == ',') fprintf(out, "\n      refused: not a verb of this tool; use '%s VERB'\n", (*other)->name);
    }
}

void apr_foreign_print(const apr_tool *tool, FILE *out)
{
    char text[MAX_TEXT];

    fprintf(out, "Options and verbs of other programs, and what they mean to %s\n\n", tool->name);
    for (const apr_foreign_word *w = apr_foreign_words; w->spellings != NULL; w++) {
        if (!apr_foreign_is_of(w, tool)) continue;
        fprintf(out, "  %s\n", apr_foreign_spellings(w, text, sizeof text));
        fprintf(out, "      %s\n", apr_foreign_meaning(w, text, sizeof text));
    }
    print_verbs_of_others(tool, apr_foreign_tool_letter(tool->name), out);
}
