/* rules_check.h - whether each --tensor did something: a rule that matches nothing is refused, one that is hidden is said. */
#ifndef APR_TOOLS_RULES_CHECK_H
#define APR_TOOLS_RULES_CHECK_H

#include "quant/recipe.h"
#include "tools/cli/cli.h"

/* APR_E_USAGE, with the nearest name of a tensor of `source`; a note on stderr for rules that earlier ones hide completely. */
apr_status apr_rules_check(const apr_call *call, const apr_recipe *recipe, const apr_recipe_options *options, const apr_model *source,
                           apr_error *err);

#endif
