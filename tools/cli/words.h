/* words.h - the words that people bring from other programs: options, values and verbs that are not the tool's own, and what comes of them.
 *
 * One table (words.c). It is read before a nearest word is looked for, and `TOOL help words` prints it. */
#ifndef APR_TOOLS_WORDS_H
#define APR_TOOLS_WORDS_H

#include <stdbool.h>
#include <stddef.h>

typedef enum {
    APR_WORD_ALIAS,    /* works, silently */
    APR_WORD_TURNED,   /* works, with a note that says what it became */
    APR_WORD_NOTHING,  /* accepted, has no effect here; the note comes with --verbose alone */
    APR_WORD_NAMED,    /* usage error, with the command to type */
    APR_WORD_ELSEWHERE /* usage error: aprkit does not do this, and who does */
} apr_word_kind;

/* A row.
 *
 * spellings   between '|': options with their dashes, verbs without; "--device=cpu" is a value of an own option, and '*' at its end stands
 *             for any rest.
 * value       'v': a value follows; 'o': one may; 0: none.
 * meaning     of ALIAS and TURNED, the arguments that stand instead, between blanks: '%' is the value, "<%" makes it the first operand, ">%"
 *             the last. The row counts only where the command has the first option of it. "!name" is a function of turn_special.c.
 *             Of NOTHING, why. Of the others a sentence, in which '%' is the value of an option, and "{}" what was typed.
 *             Of NAMED, behind " => ", what takes the place of option and value in the command that is named, nothing to leave them out; with
 *             "= " before it, a whole command, in which '*' is all that followed the verb. */
typedef struct apr_word {
    const char *tools; /* 'c' aprconv, 'q' aprquant, 'p' aprplan, 'r' aprrun; "*": every tool */
    const char *verbs; /* between blanks, "-" for none; NULL: of any command */
    apr_word_kind kind;
    char value;
    const char *spellings, *meaning;
} apr_word;

extern const apr_word apr_words[];
extern const size_t apr_n_words;

/* The letter of a tool in `tools`; '?' for others. */
char apr_word_tool(const char *tool_name);

/* The first row at or behind `from` with that spelling (n letters of it), for the tool and the verb; "" for a command without one, NULL
 * where none is known yet. *rest: what '*' stands for. NULL: there is none. */
const apr_word *apr_word_find(const apr_word *from, char tool, const char *verb, const char *spelling, size_t n, const char **rest);

#endif
