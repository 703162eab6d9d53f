/* rules_check.c - finds --tensor rules that match no tensor, or that earlier rules hide. */
#include "tools/verbs/convert/rules_check.h"

#include "tools/report/text.h"

#include <string.h>

/* The length of the longest common substring. */
static size_t longest_common(const char *a, const char *b)
{
    size_t longest = 0;

    for (const char *i = a; *i != '\0'; i++)
        for (const char *j = b; *j != '\0'; j++) {
            size_t n = 0;
            while (i[n] != '\0' && i[n] == j[n]) n++;
            if (n > longest) longest = n;
        }
    return longest;
}

/* The name with the longest common substring with the expression; matrices are preferred. */
static const char *nearest_name(const apr_model *model, const char *regex)
{
    const char *nearest = NULL;
    size_t most = 0;

    for (size_t i = 0; i < model->n_tensors; i++) {
        const apr_tensor *const t = &model->tensors[i];
        const char *const names[] = {t->name, t->origin_name};
        for (size_t k = 0; k < 2; k++) {
            const size_t n = names[k] != NULL ? 2 * longest_common(names[k], regex) + (t->rank >= 2) : 0;
            if (n <= most) continue;
            most = n;
            nearest = names[k];
        }
    }
    return nearest;
}

static apr_status refuse(const apr_call *call, const apr_recipe_override *rule, const apr_model *source, apr_error *err)
{
    const char *const near = nearest_name(source, rule->regex);
    char *const argv[] = {"", "show", (char *)call->operands[0]};

    apr_fail(err, APR_E_USAGE, "--tensor '%s=%s' matches no tensor%s%s", rule->regex, apr_dtypes[rule->to].name,
             near != NULL ? "; the nearest name is " : "", near != NULL ? near : "");
    return apr_try_instead(APR_E_USAGE, &(apr_typed){"aprconv", 3, argv}, NULL, 0, err);
}

apr_status apr_rules_check(const apr_call *call, const apr_recipe *recipe, const apr_recipe_options *options, const apr_model *source,
                           apr_error *err)
{
    for (size_t i = 0; i < options->n_overrides; i++) {
        const apr_recipe_override *const rule = &options->overrides[i];
        if (rule->reason != NULL || recipe->uses[i].n_used > 0) continue;
        if (recipe->uses[i].n_hidden == 0) return refuse(call, rule, source, err);
        fprintf(stderr, "note: --tensor '%s=%s' has no effect: an earlier --tensor already matches all of its tensors\n",
                apr_printable(rule->regex), apr_dtypes[rule->to].name);
    }
    return APR_OK;
}
