/* typed.c - writes a changed command, quoted for a shell. */
#include "tools/cli/typed.h"
#include "formats/base/text.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

typedef struct writer {
    char *text;
    size_t n, capacity;
    bool is_cut;
} writer;

static void put(writer *w, const char *bytes, size_t n)
{
    if (w->is_cut || n >= w->capacity - w->n) {
        w->is_cut = true;
        return;
    }
    memcpy(w->text + w->n, bytes, n);
    w->n += n;
    w->text[w->n] = '\0';
}

static bool is_plain(const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:=@%+,-";
    const unsigned char *at = (const unsigned char *)word;

    for (; *at != '\0'; at++)
        if (*at < 0x80 && strchr(plain, *at) == NULL) return false;
    return at != (const unsigned char *)word;
}

static void put_word(writer *w, const char *word)
{
    const bool plain = is_plain(word);

    put(w, " ", 1);
    if (plain) put(w, word, strlen(word));
    if (plain) return;
    put(w, "'", 1);
    for (; *word != '\0'; word++) {
        if (*word == '\'') put(w, "'\\''", 4);
        else put(w, word, 1);
    }
    put(w, "'", 1);
}

static void put_words(writer *w, const apr_change *change)
{
    for (const char *at = change->is; change->words && at != NULL && *at != '\0';) {
        const size_t n = strcspn(at, " ");
        put(w, " ", 1);
        put(w, at, n);
        at += n + (at[n] == ' ');
    }
    if (!change->words && change->is != NULL) put_word(w, change->is);
}

/* The position of the value `was` in an argument, or NULL if the argument does not have it. */
static const char *value_in(const char *argument, const char *was)
{
    const char *const equals = apr_begins_with(argument, "--") ? strchr(argument, '=') : NULL;

    if (strcmp(argument, was) == 0) return argument;
    return equals != NULL && strcmp(equals + 1, was) == 0 ? equals + 1 : NULL;
}

static int last_with(const apr_typed *typed, const char *was)
{
    for (int i = typed->argc - 1; i > 0; i--)
        if (value_in(typed->argv[i], was) != NULL) return i;
    return 0;
}

static const apr_change *change_of(const apr_typed *typed, int i, const apr_change *changes, size_t n)
{
    for (size_t c = 0; c < n; c++)
        if (changes[c].was != NULL && last_with(typed, changes[c].was) == i) return &changes[c];
    return NULL;
}

static void put_changed(writer *w, const char *argument, const apr_change *change)
{
    const char *const value = value_in(argument, change->was);
    char whole[1024];

    if (value == argument || change->is == NULL) {
        put_words(w, change);
        return;
    }
    snprintf(whole, sizeof whole, "%.*s%s", (int)(value - argument), argument, change->is);
    put_word(w, whole);
}

char *apr_typed_text(char *text, size_t capacity, const apr_typed *typed, const apr_change *changes, size_t n_changes)
{
    writer w = {.text = text, .capacity = capacity};

    *text = '\0';
    put(&w, typed->tool, strlen(typed->tool));
    for (int i = 1; i < typed->argc; i++) {
        const apr_change *const change = change_of(typed, i, changes, n_changes);
        if (change != NULL) put_changed(&w, typed->argv[i], change);
        else put_word(&w, typed->argv[i]);
    }
    for (size_t c = 0; c < n_changes; c++)
        if (changes[c].was == NULL) put_words(&w, &changes[c]);
    if (w.is_cut) *text = '\0';
    return text;
}

apr_status apr_try_instead(apr_status status, const apr_typed *typed, const apr_change *changes, size_t n_changes, apr_error *err)
{
    static const char between[] = "; try: ";
    char command[sizeof err->text];

    if (status == APR_OK || err == NULL || typed == NULL) return status;
    const size_t n = strlen(err->text), n_between = sizeof between - 1;
    if (n + n_between >= sizeof err->text) return status;
    apr_typed_text(command, sizeof err->text - n - n_between, typed, changes, n_changes);
    if (*command == '\0') return status;
    memcpy(err->text + n, between, n_between);
    memcpy(err->text + n + n_between, command, strlen(command) + 1);
    return status;
}
