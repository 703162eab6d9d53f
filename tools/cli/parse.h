/* parse.h - the parser from inside, for cli.c, turn.c and turn_special.c. */
#ifndef APR_TOOLS_PARSE_H
#define APR_TOOLS_PARSE_H

#include "tools/cli/cli.h"
#include "tools/cli/words.h"

/* The option of a command (or one that all have) by its name, or by its letter where name is NULL; NULL: there is none. */
const apr_option *apr_option_named(const apr_command *command, const char *name, size_t n, char letter);
/* verb NULL: the command without one. */
const apr_command *apr_command_named(const apr_tool *tool, const char *verb);

/* "help" is a verb of every tool. */
#define APR_HELP_VERB "help"

/* Arguments with the words of other programs turned into the tool's own. */
typedef struct apr_turning {
    const apr_tool *tool;
    char letter; /* of the tool, for the table of words */
    apr_typed typed;
    int at;                     /* the argument at hand, of those that were typed */
    int verb_at;                /* the argument that is the verb; 0: there is none */
    const apr_command *command; /* NULL: no verb was named */
    bool wants_help, only_operands;
    bool value_is_next; /* the value of the option at hand is the argument behind it */
    char **argv;        /* [argc] what is parsed; with argv[0] and, where there is one, the verb */
    int argc, capacity;
    char **front, **back; /* operands that go before and after all others */
    int n_front, n_back;
    int *operand_at; /* [n_operands] where in argv those are that were typed as such */
    int n_operands;
    apr_strings notes; /* sentences for stderr, and (from n_always on, in notes_more) those for --verbose alone */
    apr_strings notes_more;
    apr_arena *arena;
    apr_error *err;
} apr_turning;

/* Fills argv, argc, verb_at of the new arguments, command, notes. APR_E_USAGE: what is named or done elsewhere. */
apr_status apr_turn(apr_turning *t, apr_error *err);

/* --- turn.c, for turn_special.c --- */

apr_status apr_turn_put(apr_turning *t, const char *argument);
apr_status apr_turn_put_operand(apr_turning *t, bool at_front, const char *argument);
apr_status apr_turn_note(apr_turning *t, bool always, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* A sentence, and the command in which `with` (one argument, or words) takes the place of the option at hand and its value. */
apr_status apr_turn_name(apr_turning *t, const char *with, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* "!name": what a table of words cannot say. option: as it was typed; value: NULL where there is none. */
apr_status apr_turn_special(apr_turning *t, const char *name, const char *option, const char *value);

/* "--q4_k_m" where there is --to or --dtype. */
apr_status apr_turn_type_option(apr_turning *t, const char *argument, bool *found);

/* The value of an own option: a type as people spell it. *value may become another. */
apr_status apr_turn_value(apr_turning *t, const apr_option *option, const char **value);

/* --- hub_ids.c --- */

/* Where `text` is not a path that exists but ORG/NAME[@REVISION][:TAG], *path becomes that of a snapshot, or of a GGUF in it. APR_E_IO: it is
 * such an id, and in none of the caches. */
/* Of a folder that holds GGUFs and no checkpoint: the path of the first, and how many there are; NULL: it is another kind of folder. */
const char *apr_gguf_of_folder(const char *path, int *n, apr_arena *arena);

apr_status apr_hub_id_resolve(const char *text, const char **path, apr_arena *arena, apr_error *err);

#endif
