/* cli_internal.h - internal interface of the parser, shared by cli.c, translate.c and translate_special.c. */
#ifndef APR_TOOLS_PARSE_H
#define APR_TOOLS_PARSE_H

#include "tools/cli/cli.h"
#include "tools/cli/foreign_words.h"

/* Finds an option of a command, or a common option, by its name; by its letter if name is NULL. NULL: there is none. */
const apr_option *apr_option_named(const apr_command *command, const char *name, size_t n, char letter);
/* verb NULL: the command without a verb. */
const apr_command *apr_command_named(const apr_tool *tool, const char *verb);

/* "help" is a verb of every tool. */
#define APR_HELP_VERB "help"

/* The state while arguments are translated: options and verbs of other programs become the tool's own. */
typedef struct apr_translation {
    const apr_tool *tool;
    char letter; /* of the tool, as in apr_foreign_word.tools */
    apr_typed typed;
    int at;                     /* index of the current argument in typed.argv */
    int verb_at;                /* index of the verb in argv; 0: there is none */
    const apr_command *command; /* NULL: no verb was given */
    bool wants_help, only_operands;
    bool value_is_next; /* the current option's value is the next argument */
    char **argv;        /* [argc] the translated arguments, with argv[0] and the verb, if any */
    int argc, capacity;
    char **front, **back; /* operands to put before and after all others */
    int n_front, n_back;
    int *operand_at; /* [n_operands] indices in argv of arguments that were typed as operands */
    int n_operands;
    apr_strings notes;      /* for stderr */
    apr_strings notes_more; /* the same, only with --verbose */
    apr_arena *arena;
    apr_error *err;
} apr_translation;

/* Fills argv, argc, verb_at, command and the notes. APR_E_USAGE: an option or verb that has no translation. */
apr_status apr_translate_arguments(apr_translation *t, apr_error *err);

/* --- translate.c, for translate_special.c --- */

apr_status apr_translation_put(apr_translation *t, const char *argument);
apr_status apr_translation_put_operand(apr_translation *t, bool at_front, const char *argument);
apr_status apr_translation_note(apr_translation *t, bool always, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Fails with a message that suggests the command in which `with` (one argument or several) replaces the current option and its value. */
apr_status apr_translation_suggest(apr_translation *t, const char *with, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* "!name": a translation that takes code. option: as typed; value: NULL if there is none. */
apr_status apr_translate_special(apr_translation *t, const char *name, const char *option, const char *value);

/* "--q4_k_m" as --to q4_k_m or --dtype q4_k_m, if the command has one of them. */
apr_status apr_translate_type_option(apr_translation *t, const char *argument, bool *found);

/* Translates the value of one of the tool's own options, such as a type in another spelling. May replace *value. */
apr_status apr_translate_value(apr_translation *t, const apr_option *option, const char **value);

/* --- hub_ids.c --- */

/* For a folder that holds GGUFs and no checkpoint: the path of the first GGUF, and their number in *n. NULL for other folders. */
const char *apr_first_gguf_of_folder(const char *path, int *n, apr_arena *arena);

/* If `text` is not an existing path but ORG/NAME[@REVISION][:TAG], *path becomes the path of a cached snapshot, or of a GGUF in it.
 * APR_E_IO: `text` is such an id, but no cache has it. */
apr_status apr_hub_id_resolve(const char *text, const char **path, apr_arena *arena, apr_error *err);

#endif
