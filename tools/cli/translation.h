/* translation.h - what a translation of the arguments collects, and the parts of translating, from the lowest to the highest. */
#ifndef APR_TOOLS_TRANSLATION_H
#define APR_TOOLS_TRANSLATION_H

#include "tools/cli/foreign_words.h"
#include "tools/cli/options.h"

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

/* --- translation.c --- */

apr_status apr_translation_put(apr_translation *t, const char *argument);
apr_status apr_translation_note(apr_translation *t, bool always, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Fails with a message that suggests the command in which `with` (one argument or several) replaces the current option and its value. */
apr_status apr_translation_suggest(apr_translation *t, const char *with, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Appends what an option becomes, words between blanks, and a note about it. value: NULL if there is none. */
apr_status apr_translation_replace(apr_translation *t, const char *option, const char *value, const char *words);

/* --- translate_special.c --- */

/* "!name": a translation that takes code. option: as typed; value: NULL if there is none. */
apr_status apr_translate_special(apr_translation *t, const char *name, const char *option, const char *value);

/* Translates the value of one of the tool's own options, such as a type in another spelling. May replace *value. */
apr_status apr_translate_value(apr_translation *t, const apr_option *option, const char **value);

/* --- translate.c --- */

/* Fills argv, argc, verb_at, command and the notes. APR_E_USAGE: an option or verb that has no translation. */
apr_status apr_translate_arguments(apr_translation *t, apr_error *err);

#endif
