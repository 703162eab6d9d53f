/* chain.c - chains of steps: append with cancellation, invert, print, parse. */
#include "formats/tensor/step.h"

#include <stdio.h>
#include <string.h>

apr_chain apr_chain_of(apr_step step)
{
    apr_chain chain = {0};
    (void)apr_chain_append(&chain, step);
    return chain;
}

bool apr_chain_append(apr_chain *chain, apr_step step)
{
    if (step.kind == APR_STEP_NONE) return true;
    if (chain->n_steps > 0) {
        const apr_step inverse = apr_step_inverse(step);
        if (inverse.kind != APR_STEP_NONE && apr_step_equal(&chain->steps[chain->n_steps - 1], &inverse)) {
            chain->steps[--chain->n_steps] = (apr_step){0};
            return true;
        }
    }
    if (chain->n_steps == APR_CHAIN_STEPS) return false;
    chain->steps[chain->n_steps++] = step;
    return true;
}

bool apr_chain_extend(apr_chain *chain, const apr_chain *more)
{
    apr_chain longer = *chain;
    for (int i = 0; i < more->n_steps; i++)
        if (!apr_chain_append(&longer, more->steps[i])) return false;
    *chain = longer;
    return true;
}

bool apr_chain_inverse(const apr_chain *chain, apr_chain *inverse)
{
    *inverse = (apr_chain){0};
    for (int i = chain->n_steps; i-- > 0;) {
        const apr_step step = apr_step_inverse(chain->steps[i]);
        if (step.kind == APR_STEP_NONE) return false;
        inverse->steps[inverse->n_steps++] = step;
    }
    return true;
}

bool apr_chain_equal(const apr_chain *a, const apr_chain *b)
{
    if (a->n_steps != b->n_steps) return false;
    for (int i = 0; i < a->n_steps; i++)
        if (!apr_step_equal(&a->steps[i], &b->steps[i])) return false;
    return true;
}

bool apr_chain_exact(const apr_chain *chain)
{
    for (int i = 0; i < chain->n_steps; i++)
        if (apr_step_kinds[chain->steps[i].kind].reach == APR_REACH_VALUES) return false;
    return true;
}

const char *apr_chain_shape(const apr_chain *chain, apr_shape *shape, int *at)
{
    for (*at = 0; *at < chain->n_steps; ++*at) {
        apr_move move;
        const char *const why = apr_step_plan(&chain->steps[*at], shape, &move);
        if (why != NULL) return why;
    }
    return NULL;
}

char *apr_chain_text(const apr_chain *chain, char *text)
{
    size_t at = 0;

    text[0] = '\0';
    for (int i = 0; i < chain->n_steps; i++) {
        const apr_step *const step = &chain->steps[i];
        const apr_step_facts *const facts = &apr_step_kinds[step->kind];
        at += (size_t)snprintf(text + at, APR_CHAIN_TEXT - at, "%s%s", i > 0 ? " " : "", facts->name);
        for (int p = 0; p < facts->n_parameters; p++)
            at += (size_t)snprintf(text + at, APR_CHAIN_TEXT - at, "%c%d", p > 0 ? ',' : ':', (int)step->n[p]);
    }
    return text;
}

/* Reads a decimal number as %d prints it. Returns what follows it; NULL: there is no such number. */
static const char *read_number(const char *text, int32_t *number)
{
    const bool is_negative = *text == '-';
    const char *const digits = text + is_negative;
    const size_t n = strspn(digits, "0123456789");
    int64_t value = 0;

    if (n == 0 || n > 10 || (digits[0] == '0' && (n > 1 || is_negative))) return NULL;
    for (size_t i = 0; i < n; i++) value = value * 10 + (digits[i] - '0');
    if (value > INT32_MAX) return NULL;
    *number = (int32_t)(is_negative ? -value : value);
    return digits + n;
}

static const char *read_step(const char *text, apr_step *step)
{
    const size_t n_name = strcspn(text, ": ");

    *step = (apr_step){0};
    for (int kind = APR_STEP_NONE + 1; kind < APR_STEP_COUNT; kind++) {
        const char *const name = apr_step_kinds[kind].name;
        if (strlen(name) == n_name && memcmp(name, text, n_name) == 0) step->kind = (apr_step_kind)kind;
    }
    if (step->kind == APR_STEP_NONE) return NULL;
    text += n_name;
    for (int p = 0; p < apr_step_kinds[step->kind].n_parameters; p++) {
        if (*text != (p > 0 ? ',' : ':')) return NULL;
        text = read_number(text + 1, &step->n[p]);
        if (text == NULL) return NULL;
    }
    return text;
}

bool apr_chain_parse(apr_chain *chain, const char *text)
{
    *chain = (apr_chain){0};
    while (text != NULL && chain->n_steps < APR_CHAIN_STEPS) {
        text = read_step(text, &chain->steps[chain->n_steps++]);
        if (text == NULL) return false;
        if (*text == '\0') return true;
        text = *text == ' ' ? text + 1 : NULL;
    }
    return false;
}
