/* ggml_rules.c - finds the output head and the embedding by their names, and makes a rule of each option. */
#include "tools/engine/quantize/ggml_rules.h"

#include "formats/base/text.h"
#include "formats/open.h"

#include <string.h>

/* Are the last words of the name, which dots separate, the suffix? */
static bool has_last_words(const char *name, const char *suffix)
{
    const size_t n = apr_stem_of(name, suffix);
    return n > 0 ? name[n - 1] == '.' : strcmp(name, suffix) == 0;
}

static const apr_tensor *find(const apr_model *model, const char *const *suffixes, size_t n)
{
    for (size_t k = 0; k < n; k++)
        for (size_t i = 0; i < model->n_tensors; i++)
            if (has_last_words(model->tensors[i].name, suffixes[k])) return &model->tensors[i];
    return NULL;
}

static const apr_tensor *embedding_of(const apr_model *model)
{
    static const char *const suffixes[] = {"token_embd.weight",     "embed_tokens.weight", "wte.weight",      "word_embeddings.weight",
                                           "tok_embeddings.weight", "embed_in.weight",     "embedding.weight"};
    return find(model, suffixes, sizeof suffixes / sizeof *suffixes);
}

static const apr_tensor *head_of(const apr_model *model)
{
    static const char *const suffixes[] = {"lm_head.weight", "embed_out.weight", "output_layer.weight", "output.weight"};
    const apr_tensor *head = NULL;

    for (size_t i = 0; i < model->n_tensors && head == NULL; i++) /* "output.weight" is the head only as a whole name */
        if (strcmp(model->tensors[i].name, "output.weight") == 0) head = &model->tensors[i];
    if (head == NULL) head = find(model, suffixes, sizeof suffixes / sizeof *suffixes - 1);
    return head != NULL ? head : embedding_of(model);
}

/* A regular expression that matches exactly this name. */
static const char *regex_of(const char *name, apr_arena *arena)
{
    char *const regex = apr_arena_alloc(arena, 2 * strlen(name) + 3);
    size_t n = 0;

    if (regex == NULL) return NULL;
    regex[n++] = '^';
    for (; *name != '\0'; name++) {
        if (strchr(".[]()*+?", *name) != NULL) regex[n++] = '\\';
        regex[n++] = *name;
    }
    regex[n] = '$';
    return regex;
}

static apr_status add(apr_recipe_options *recipe, apr_recipe_override *overrides, const char *option, const char *value,
                      const apr_tensor *t, apr_dtype to, apr_ggml_notes *notes, apr_arena *arena, apr_error *err)
{
    const char *const regex = regex_of(t->name, arena);

    if (regex == NULL) return apr_no_memory(err, "the options");
    notes->texts[notes->n] = apr_arena_print(arena, "%s%s%s means --tensor '%s=%s'", option, value != NULL ? " " : "",
                                             value != NULL ? value : "", regex, apr_dtypes[to].name);
    if (notes->texts[notes->n] == NULL) return apr_no_memory(err, "the options");
    notes->n++;
    overrides[recipe->n_overrides++] = (apr_recipe_override){.regex = regex, .to = to};
    return APR_OK;
}

static apr_status add_typed(apr_recipe_options *recipe, apr_recipe_override *overrides, const char *option, const char *value,
                            const apr_tensor *t, apr_ggml_notes *notes, apr_arena *arena, apr_error *err)
{
    const apr_dtype to = apr_dtype_by_name(value);

    if (to == APR_DTYPE_COUNT)
        return apr_fail(err, APR_E_USAGE, "%s: '%s' is not a type of tensors ('aprquant --list' shows them)", option, value);
    if (t == NULL) return apr_fail(err, APR_E_UNSUPPORTED, "%s: the tensor's name is unknown; give --tensor REGEX=%s", option, value);
    return add(recipe, overrides, option, value, t, to, notes, arena, err);
}

/* --pure: the mixture "q4_k_m" becomes the type "q4_k", and the rules of "q2_k" are left out, with a note. */
static apr_status make_pure(apr_recipe_options *recipe, apr_ggml_notes *notes, apr_arena *arena, apr_error *err)
{
    const char *const to = recipe->mixture;
    const size_t n = to != NULL ? strlen(to) : 0;
    const apr_mixture_name *type = apr_mixture_names;

    recipe->pure = true;
    if (n < 3 || to[n - 2] != '_' || strchr("msl", to[n - 1]) == NULL) return APR_OK;
    while (type->name != NULL && (strlen(type->name) != n - 2 || strncmp(type->name, to, n - 2) != 0)) type++;
    if (type->name == NULL) return APR_OK; /* the letter is a part of the type's name */
    recipe->mixture = apr_arena_copy(arena, to, n - 2);
    notes->texts[notes->n] =
        recipe->mixture != NULL ? apr_arena_print(arena, "with --pure, --to %s means --to %s", to, recipe->mixture) : NULL;
    return notes->texts[notes->n++] != NULL ? APR_OK : apr_no_memory(err, "the options");
}

apr_status apr_ggml_rules_add(const apr_ggml_rules *rules, const char *path, apr_recipe_options *recipe, apr_recipe_override *overrides,
                              apr_ggml_notes *notes, apr_arena *arena, apr_error *err)
{
    apr_model model = {0};
    bool is_whole;
    apr_status status = APR_OK;

    if (rules->pure) APR_TRY(make_pure(recipe, notes, arena, err));
    if (rules->head_type == NULL && rules->embedding_type == NULL && !rules->leaves_head) return APR_OK;
    APR_TRY(apr_model_open_head(&model, path, &is_whole, err));
    const apr_tensor *const head = head_of(&model);
    if (rules->head_type != NULL) status = add_typed(recipe, overrides, "--output-tensor-type", rules->head_type, head, notes, arena, err);
    if (status == APR_OK && rules->embedding_type != NULL)
        status = add_typed(recipe, overrides, "--token-embedding-type", rules->embedding_type, embedding_of(&model), notes, arena, err);
    if (status == APR_OK && rules->leaves_head && rules->head_type == NULL && head != NULL)
        status = add(recipe, overrides, "--leave-output-tensor", NULL, head, head->dtype, notes, arena, err);
    apr_model_close(&model);
    return status;
}
