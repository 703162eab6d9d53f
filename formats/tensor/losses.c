/* losses.c - a list of sentences, and the error that quotes it. */
#include "formats/tensor/losses.h"
#include "formats/base/grow.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MAX_TEXT_BYTES = 600 }; /* longer texts are cut: they quote names from files */

apr_status apr_loss_add(apr_losses *l, apr_loss_kind kind, apr_error *err, const char *format, ...)
{
    char text[MAX_TEXT_BYTES];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    apr_loss *const items = apr_arena_grow(&l->arena, l->items, &l->capacity, l->n_items + 1, sizeof *items);
    const char *const copy = items != NULL ? apr_arena_copy(&l->arena, text, strlen(text)) : NULL;
    if (copy == NULL) return apr_no_memory(err, "the list of losses");
    l->items = items;
    l->items[l->n_items++] = (apr_loss){copy, kind};
    return APR_OK;
}

size_t apr_losses_count(const apr_losses *losses)
{
    size_t n = 0;
    for (size_t i = 0; i < losses->n_items; i++) n += losses->items[i].kind == APR_LOST;
    return n;
}

apr_status apr_losses_refuse(const apr_losses *losses, const char *where, apr_error *err)
{
    const size_t n = apr_losses_count(losses);
    char others[48] = "";

    if (n == 0) return APR_OK;
    size_t first = 0;
    while (losses->items[first].kind != APR_LOST) first++;
    if (n > 1) snprintf(others, sizeof others, " (and %zu more)", n - 1);
    return apr_fail(err, APR_E_UNSUPPORTED, "%s: %s%s; --allow-loss writes it all the same and lists what is lost", where,
                    losses->items[first].text, others);
}

void apr_losses_close(apr_losses *losses)
{
    apr_arena_close(&losses->arena);
    *losses = (apr_losses){0};
}
