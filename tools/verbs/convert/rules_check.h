/* rules_check.h - checks that each --tensor rule has an effect. A rule that matches no tensor is an error; a hidden rule gives a note. */
#ifndef APR_TOOLS_RULES_CHECK_H
#define APR_TOOLS_RULES_CHECK_H

#include "quant/recipe.h"
#include "tools/cli/cli.h"

/* APR_E_USAGE: a rule matches no tensor; the message has the nearest name of a tensor of `source`. Prints a note on stderr for rules that
 * earlier rules hide completely. */
apr_status apr_rules_check(const apr_call *call, const apr_recipe *recipe, const apr_recipe_options *options, const apr_model *source,
                           apr_error *err);

#endif
