/* aprdoc.c - writes manual pages and completions from the tables that the tools parse their arguments with.
 *
 *     aprdoc man FOLDER DATE      FOLDER/man1 and FOLDER/man7, which are there; DATE, such as 2026-11-27, is printed in them
 *     aprdoc completion SHELL     what tools/packaging/completion.SHELL is followed by: bash, zsh
 *     aprdoc completion fish TOOL the same of one tool
 *     aprdoc check                whether each word for an operand is explained (value_words.c) */
#include "tools/packaging/completion.h"
#include "tools/packaging/manual.h"
#include "tools/verbs/verbs.h"

#include <errno.h>
#include <string.h>

static const apr_tool *const toolkit[] = {&apr_aprconv, &apr_aprquant, &apr_aprplan, &apr_aprrun, NULL};

static int failed(const char *what)
{
    fprintf(stderr, "aprdoc: %s: %s\n", what, strerror(errno));
    return APR_E_IO;
}

/* --- one file --- */

typedef struct page {
    const char *folder, *date, *section;
    const apr_tool *tool; /* NULL: a page of section 7 */
    const apr_command *command;
    void (*write)(FILE *out, const apr_tool *const *toolkit, const char *date);
} page;

static int write_page(const page *p, const char *name)
{
    char path[4096];

    snprintf(path, sizeof path, "%s/man%s/%s.%s", p->folder, p->section, name, p->section);
    FILE *const out = fopen(path, "w");
    if (out == NULL) return failed(path);
    if (p->tool != NULL) apr_manual_command(out, p->tool, p->command, p->date);
    else p->write(out, toolkit, p->date);
    const bool is_bad = ferror(out) != 0;
    return fclose(out) != 0 || is_bad ? failed(path) : APR_OK;
}

static int write_tool(const char *folder, const char *date, const apr_tool *tool)
{
    int status = write_page(&(page){folder, date, "1", tool}, tool->name);
    for (const apr_command *const *c = tool->commands; *c != NULL && status == APR_OK; c++) {
        char name[96];
        if ((*c)->verb == NULL) continue;
        snprintf(name, sizeof name, "%s-%s", tool->name, (*c)->verb);
        status = write_page(&(page){folder, date, "1", tool, *c}, name);
    }
    return status;
}

static int write_manual(const char *folder, const char *date)
{
    int status = write_page(&(page){folder, date, "7", NULL, NULL, apr_manual_overview}, "aprkit");
    if (status == APR_OK) status = write_page(&(page){folder, date, "7", NULL, NULL, apr_manual_words}, "aprkit-words");
    for (const apr_tool *const *t = toolkit; *t != NULL && status == APR_OK; t++) status = write_tool(folder, date, *t);
    return status;
}

/* --- the program --- */

static int check_words(void)
{
    char word[APR_OPERAND_WORD];
    bool repeats;
    int status = APR_OK;

    for (const apr_tool *const *t = toolkit; *t != NULL; t++)
        for (const apr_command *const *c = (*t)->commands; *c != NULL; c++)
            for (size_t i = 0; apr_operand_word(*c, i, word, &repeats); i++) {
                if (apr_operand_meaning(*c, word) != NULL) continue;
                fprintf(stderr, "aprdoc: the operand %s of %s %s has no row in tools/packaging/value_words.c\n", word, (*t)->name,
                        (*c)->verb != NULL ? (*c)->verb : "");
                status = APR_E_NO;
            }
    return status;
}

static const apr_tool *tool_named(const char *name)
{
    for (const apr_tool *const *t = toolkit; *t != NULL; t++)
        if (strcmp((*t)->name, name) == 0) return *t;
    return NULL;
}

static int write_completion(int argc, char **argv)
{
    const apr_tool *const tool = argc == 4 ? tool_named(argv[3]) : NULL;

    if ((argc != 3 && tool == NULL) || !apr_completion(stdout, argv[2], toolkit, tool)) return APR_E_USAGE;
    return fflush(stdout) != 0 || ferror(stdout) ? failed("stdout") : APR_OK;
}

static bool is_date(const char *date)
{
    int year, month, day, n = 0;
    return sscanf(date, "%4d-%2d-%2d%n", &year, &month, &day, &n) == 3 && n == 10 && date[n] == '\0' && month >= 1 && month <= 12 &&
           day >= 1 && day <= 31;
}

int main(int argc, char **argv)
{
    const char *const what = argc > 1 ? argv[1] : "";
    int status = APR_E_USAGE;

    if (strcmp(what, "man") == 0 && argc == 4 && is_date(argv[3])) status = write_manual(argv[2], argv[3]);
    else if (strcmp(what, "completion") == 0) status = write_completion(argc, argv);
    else if (strcmp(what, "check") == 0 && argc == 2) status = check_words();
    if (status == APR_E_USAGE)
        fprintf(stderr, "usage: aprdoc man FOLDER YYYY-MM-DD | aprdoc completion bash|zsh | aprdoc completion fish TOOL | aprdoc check\n");
    return status;
}
