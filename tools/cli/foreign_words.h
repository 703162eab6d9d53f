/* foreign_words.h - a table of options, option values and verbs of other programs (llama.cpp, Ollama, vLLM ...), called words here, and what each
 * of them means to a tool of aprkit.
 *
 * The table (foreign_words.c) is searched before a spelling correction is tried. `TOOL help words` prints it. */
#ifndef APR_TOOLS_FOREIGN_WORDS_H
#define APR_TOOLS_FOREIGN_WORDS_H

#include <stdbool.h>
#include <stddef.h>

typedef enum {
    APR_FOREIGN_ALIAS,      /* translated without a note */
    APR_FOREIGN_TRANSLATED, /* translated, with a note */
    APR_FOREIGN_NO_EFFECT,  /* accepted but has no effect; the note is printed only with --verbose */
    APR_FOREIGN_SUGGESTED,  /* usage error that suggests another command */
    APR_FOREIGN_UNSUPPORTED /* usage error: not supported; the message says which program supports it */
} apr_foreign_kind;

/* A row of the table.
 *
 * spellings   separated by '|'. Options are written with their dashes, verbs without. "--device=cpu" is one value of a tool's own option.
 *             '*' at the end matches any rest.
 * value       'v': the option takes a value; 'o': the value is optional; 0: no value.
 * meaning     ALIAS, TURNED: the replacement arguments, separated by blanks. '%' is the value; "<%" makes it the first operand, ">%" the
 *             last. The row applies only if the command has the first option of the replacement. "!name" calls code in translate_special.c.
 *             NOTHING: the reason. NAMED, ELSEWHERE: the error message; '%' is the value, "{}" the word as typed.
 *             NAMED only: after " => " comes the text that replaces option and value in the suggested command (empty: they are left out).
 *             If it begins with "= ", it is a whole command, in which '*' stands for all arguments after the verb. */
typedef struct apr_foreign_word {
    const char *tools; /* 'c' aprconv, 'q' aprquant, 'p' aprplan, 'r' aprrun; "*": every tool */
    const char *verbs; /* verbs of the tool, separated by blanks, "-": the command without a verb; NULL: any command */
    apr_foreign_kind kind;
    char value;
    const char *spellings, *meaning;
} apr_foreign_word;

extern const apr_foreign_word apr_foreign_words[]; /* ends with {0} */

/* The letter of a tool in apr_foreign_word.tools; '?' for an unknown tool. */
char apr_foreign_tool_letter(const char *tool_name);

/* Finds the first row at or after `from` that applies to the tool and verb and has the first n characters of `spelling` as a spelling.
 * verb "": the command without a verb; NULL: the command is not known yet. *rest: what '*' matched. NULL: there is no such row. */
const apr_foreign_word *apr_foreign_find(const apr_foreign_word *from, char tool, const char *verb, const char *spelling, size_t n,
                                         const char **rest);

#endif
