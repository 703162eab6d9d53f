/* mdoc.c - quotes and breaks text for manual pages. */
#include "tools/packaging/mdoc.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

enum { COLUMNS = 76 };

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

static int put_word(FILE *out, const char *word, int n)
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
    const bool breaks = column > 0 && (new_sentence || column + 1 + n > COLUMNS);
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
        column += put_word(out, word, n);
        new_sentence = ends_a_sentence(word, n);
        word += n;
        word += strspn(word, " ");
    }
}

void apr_mdoc_text(FILE *out, const char *text)
{
    put_prose(out, text);
    putc('\n', out);
}

void apr_mdoc_sentence(FILE *out, const char *text)
{
    char copy[2048];
    const size_t n_word = strspn(text, "abcdefghijklmnopqrstuvwxyz"), n = strlen(text);
    const bool is_plain = n_word > 0 && (text[n_word] == ' ' || text[n_word] == ',' || text[n_word] == '\0');

    snprintf(copy, sizeof copy, "%s%s", text, n > 0 && strchr(".!?", text[n - 1]) != NULL ? "" : ".");
    if (is_plain && !isupper((unsigned char)text[n_word])) copy[0] = (char)toupper((unsigned char)copy[0]);
    apr_mdoc_text(out, copy);
}

void apr_mdoc_literal(FILE *out, const char *line)
{
    if (*line == '.' || *line == '\'') fputs("\\&", out);
    for (; *line != '\0'; line++) put(out, *line, true);
    putc('\n', out);
}

void apr_mdoc_argument(FILE *out, const char *text)
{
    putc('"', out);
    for (; *text != '\0'; text++) put(out, *text, true);
    putc('"', out);
}

void apr_mdoc_start(FILE *out, const char *name, const char *section, const char *date, const char *summary)
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
