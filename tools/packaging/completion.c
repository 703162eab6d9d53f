/* completion.c - what the completions of all shells have in common. */
#include "tools/packaging/completion.h"

#include "formats/number/dtype.h"
#include "kernels/rows.h"
#include "quant/recipe.h"
#include "runtime/plan/gpus.h"

#include <string.h>

static bool is_mixture(const char *name)
{
    for (const apr_mixture_name *m = apr_mixture_names; m->name != NULL; m++)
        if (strcmp(m->name, name) == 0) return true;
    return false;
}

void apr_completion_types(FILE *out)
{
    const char *space = "";
    for (const apr_mixture_name *m = apr_mixture_names; m->name != NULL; m++, space = " ") fprintf(out, "%s%s", space, m->name);
    for (int d = 0; d < APR_DTYPE_COUNT; d++)
        if (apr_dtype_is_weights((apr_dtype)d) && apr_can_encode((apr_dtype)d) && !is_mixture(apr_dtypes[d].name))
            fprintf(out, " %s", apr_dtypes[d].name);
}

void apr_completion_gpus(FILE *out)
{
    for (size_t i = 0; i < apr_n_gpus; i++) fprintf(out, "%s%s", i > 0 ? " " : "", apr_gpus[i].name);
}

char *apr_completion_option(const apr_option *option, char *text, size_t n_bytes)
{
    const bool says_no = option->kind == APR_OPTION_FLAG && option->standard != NULL && strcmp(option->standard, "yes") == 0;
    snprintf(text, n_bytes, "--%s%s", says_no ? "no-" : "", option->name);
    return text;
}

void apr_completion_words(FILE *out, const char *words)
{
    for (; *words != '\0'; words++) putc(*words == '|' ? ' ' : *words, out);
}
