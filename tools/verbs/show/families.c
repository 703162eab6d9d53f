/* families.c - prints the table of families: names in checkpoints and GGUFs, and what can be converted, planned and run. */
#include "tools/verbs/verbs.h"

#include "runtime/program/ability.h"
#include "tools/report/report.h"

/* The types in config.json: in text "qwen3_5_text, qwen3_5", in JSON objects with the class. */
static void report_types(apr_report *r, const apr_family *family)
{
    char text[512] = "";
    size_t n = 0;

    if (r->json != NULL) apr_json_open(r->json, "model_types", '[');
    for (size_t t = 0; t < APR_MAX_FAMILY_TYPES && family->types[t].name != NULL; t++) {
        if (n < sizeof text) n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", t > 0 ? ", " : "", family->types[t].name);
        if (r->json == NULL) continue;
        apr_json_open(r->json, NULL, '{');
        apr_report_member(r, "model_type", apr_as_text(family->types[t].name));
        apr_report_member(r, "class", apr_as_text_or_null(family->types[t].hf_class));
        apr_json_close(r->json, '}');
    }
    if (r->json != NULL) apr_json_close(r->json, ']');
    apr_report_cell(r, apr_as_text(NULL), "%s", text);
}

static void report_family(apr_report *r, const apr_family *family)
{
    static const char *const abilities[] = {[APR_ABLE_NOTHING] = "-", [APR_ABLE_PLAN] = "plan", [APR_ABLE_RUN] = "plan, run"};
    const apr_ability ability = apr_family_ability(family, &apr_host_backend);
    const char *const rows = family->ggml == NULL || !family->translates ? NULL : family->gguf.rotates_pairs ? "pairs" : "halves";
    const char *const norms = family->config == NULL ? NULL : family->norms_add_one ? "1 + weight" : "weight";

    apr_report_row(r);
    apr_report_cell(r, apr_as_text(family->name), "%s", family->name);
    report_types(r, family);
    apr_report_cell(r, apr_as_text_or_null(family->ggml), "%s", family->ggml != NULL ? family->ggml : "-");
    apr_report_member(r, "rotary_rows_in_gguf", apr_as_text_or_null(rows));
    apr_report_member(r, "norms_multiply_with", apr_as_text_or_null(norms));
    apr_report_member(r, "config_understood", apr_as_bool(family->config != NULL));
    apr_report_cell(r, apr_as_bool(family->translates), "%s", family->translates ? "translated" : "kept as they are");
    apr_report_member(r, "plans", apr_as_bool(ability >= APR_ABLE_PLAN));
    apr_report_cell(r, apr_as_bool(ability == APR_ABLE_RUN), "%s", abilities[ability]);
}

static apr_status run_families(const apr_call *call, apr_error *err)
{
    static const apr_column columns[] = {{"family", .key = "family"},
                                         {"model_type"},
                                         {"GGUF", .key = "gguf_architecture"},
                                         {"names and rows", .key = "translates"},
                                         {"supported", .key = "runs"}};
    apr_report r;

    apr_report_start(&r, call->answer, err);
    apr_report_table(&r, "", "families", columns, sizeof columns / sizeof *columns);
    r.indent = 0;
    for (size_t i = 0; i < apr_n_families; i++) report_family(&r, apr_families[i]);
    apr_report_close(&r);
    return apr_report_end(&r);
}

static const char *const examples[] = {"aprconv families", "aprconv families --json", NULL};

const apr_command apr_families_command = {.verb = "families",
                                          .operands = "",
                                          .summary = "list the known model families and what is supported for each",
                                          .examples = examples,
                                          .run = run_families};
