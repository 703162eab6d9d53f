/* translation.c - what a translation collects: arguments, operands, notes, and errors that suggest a command. */
#include "tools/cli/translation.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static apr_status no_memory(const apr_translation *t) { return apr_no_memory(t->err, "the command line"); }

apr_status apr_translation_put(apr_translation *t, const char *argument)
{
    if (t->argc == t->capacity) {
        char **const more = apr_arena_array(t->arena, 2 * (size_t)t->capacity + 16, sizeof *more);
        if (more == NULL) return no_memory(t);
        for (int i = 0; i < t->argc; i++) more[i] = t->argv[i];
        t->argv = more;
        t->capacity = 2 * t->capacity + 15; /* one entry is reserved for the final NULL */
    }
    t->argv[t->argc++] = (char *)argument;
    return APR_OK;
}

static apr_status add_note(apr_translation *t, apr_strings *list, const char *text)
{
    if (text == NULL) return no_memory(t);
    if (list->items == NULL) list->items = apr_arena_array(t->arena, (size_t)t->typed.argc + 1, sizeof *list->items);
    if (list->items == NULL) return no_memory(t);
    if (list->n_items < (size_t)t->typed.argc) list->items[list->n_items++] = text;
    return APR_OK;
}

apr_status apr_translation_note(apr_translation *t, bool always, const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return add_note(t, always ? &t->notes : &t->notes_more, apr_arena_copy(t->arena, text, strlen(text)));
}

apr_status apr_translation_suggest(apr_translation *t, const char *with, const char *format, ...)
{
    char text[700];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    apr_fail(t->err, APR_E_USAGE, "%s", text);
    /* a value in the next argument is left out with its option */
    const char *const argument = t->typed.argv[t->at];
    const bool has_next = t->at + 1 < t->typed.argc && t->typed.argv[t->at + 1][0] != '-' && strchr(argument, '=') == NULL;
    const char *const next = has_next && t->value_is_next ? t->typed.argv[t->at + 1] : NULL;
    const apr_change changes[] = {{.was = argument, .is = *with != '\0' ? with : NULL, .words = 1}, {.was = next}};
    return apr_try_instead(APR_E_USAGE, &t->typed, changes, next != NULL ? 2 : 1, t->err);
}

static apr_status put_words(apr_translation *t, const char *words)
{
    for (const char *at = words; *at != '\0';) {
        const size_t n = strcspn(at, " ");
        const char *const word = apr_arena_copy(t->arena, at, n);
        if (word == NULL) return apr_no_memory(t->err, "the command line");
        APR_TRY(apr_translation_put(t, word));
        at += n + (at[n] == ' ');
    }
    return APR_OK;
}

apr_status apr_translation_replace(apr_translation *t, const char *option, const char *value, const char *words)
{
    APR_TRY(apr_translation_note(t, true, "%s%s%s means %s", option, value != NULL ? " " : "", value != NULL ? value : "", words));
    return put_words(t, words);
}
