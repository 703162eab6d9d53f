/* families.c - prints the table of families: names in checkpoints and GGUFs, and what can be converted, planned and run. */
#include "tools/conv/families.h"

#include "runtime/program/ability.h"
#include "tools/report/table.h"

#include <string.h>

static const char *const abilities[] = {[APR_ABLE_NOTHING] = "-", [APR_ABLE_PLAN] = "plan", [APR_ABLE_RUN] = "plan, run"};

static void put_text(apr_json_text *out, const char *key, const char *text)
{
    if (text != NULL) apr_json_string(out, key, text, strlen(text));
    else apr_json_null(out, key);
}

static void put_family(apr_json_text *out, const apr_family *family)
{
    const apr_ability ability = apr_family_ability(family, &apr_host_backend);
    const bool knows_gguf = family->ggml != NULL && family->translates;

    apr_json_open(out, NULL, '{');
    put_text(out, "family", family->name);
    apr_json_open(out, "model_types", '[');
    for (size_t t = 0; t < APR_MAX_FAMILY_TYPES && family->types[t].name != NULL; t++) {
        apr_json_open(out, NULL, '{');
        put_text(out, "model_type", family->types[t].name);
        put_text(out, "class", family->types[t].hf_class);
        apr_json_close(out, '}');
    }
    apr_json_close(out, ']');
    put_text(out, "gguf_architecture", family->ggml);
    put_text(out, "rotary_rows_in_gguf", !knows_gguf ? NULL : family->gguf.rotates_pairs ? "pairs" : "halves");
    put_text(out, "norms_multiply_with", family->config == NULL ? NULL : family->norms_add_one ? "1 + weight" : "weight");
    apr_json_bool(out, "config_understood", family->config != NULL);
    apr_json_bool(out, "translates", family->translates);
    apr_json_bool(out, "plans", ability >= APR_ABLE_PLAN);
    apr_json_bool(out, "runs", ability == APR_ABLE_RUN);
    apr_json_close(out, '}');
}

/* "qwen3_5_text, qwen3_5" */
static const char *types_text(apr_table *table, const apr_family *family)
{
    const char *text = family->types[0].name;
    for (size_t t = 1; t < APR_MAX_FAMILY_TYPES && family->types[t].name != NULL && text != NULL; t++)
        text = apr_arena_print(&table->arena, "%s, %s", text, family->types[t].name);
    return text != NULL ? text : "";
}

static apr_status print_families(apr_error *err)
{
    static const apr_column columns[] = {
        {"family", false}, {"model_type", false}, {"GGUF", false}, {"names and rows", false}, {"supported", false}};
    apr_table table;

    apr_table_start(&table, columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < apr_n_families; i++) {
        const apr_family *const family = apr_families[i];
        apr_table_cell(&table, "%s", family->name);
        apr_table_cell(&table, "%s", types_text(&table, family));
        apr_table_cell(&table, "%s", family->ggml != NULL ? family->ggml : "-");
        apr_table_cell(&table, "%s", family->translates ? "translated" : "kept as they are");
        apr_table_cell(&table, "%s", abilities[apr_family_ability(family, &apr_host_backend)]);
    }
    return apr_table_print(&table, stdout, 0, err);
}

static apr_status run_families(const apr_call *call, apr_error *err)
{
    if (!call->answer->json) return print_families(err);
    apr_json_open(&call->answer->body, "families", '[');
    for (size_t i = 0; i < apr_n_families; i++) put_family(&call->answer->body, apr_families[i]);
    apr_json_close(&call->answer->body, ']');
    return APR_OK;
}

static const char *const examples[] = {"aprconv families", "aprconv families --json", NULL};

const apr_command apr_families_command = {.verb = "families",
                                          .operands = "",
                                          .summary = "list the known model families and what is supported for each",
                                          .examples = examples,
                                          .run = run_families};
