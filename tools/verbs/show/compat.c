/* compat.c - aprconv compat: prints which other programs would load a model, and what stands in the way. */
#include "tools/engine/compat/compat.h"
#include "formats/tensor/sink.h"
#include "tools/report/report.h"
#include "tools/report/terminal.h"
#include "tools/report/text.h"
#include "tools/verbs/verbs.h"

#include <string.h>

typedef struct compat_options {
    const char *only; /* --for */
} compat_options;

static const apr_option table[] = {
    {"for", 0, APR_OPTION_STRING, "NAME", NULL,
     "answer for one program (llama.cpp, transformers, vllm, mlx, aprender, realizar); exit code 1: it does not load",
     APR_TO(compat_options, only)},
    {0},
};

static const char *const words[] = {[APR_LOADS] = "loads", [APR_LOADS_BUT] = "loads, but", [APR_LOADS_NOT] = "does not"};
static const char *const keys[] = {[APR_LOADS] = "loads", [APR_LOADS_BUT] = "loads_but", [APR_LOADS_NOT] = "does_not"};

/* The remedy with the model's path, or NULL. */
static const char *remedy_text(const apr_peer_verdict *v, const char *path, char *text, size_t n_bytes)
{
    if (v->remedy == NULL) return NULL;
    const char *const at = strstr(v->remedy, "MODEL");
    snprintf(text, n_bytes, "%.*s%s%s", (int)(at - v->remedy), v->remedy, path, at + strlen("MODEL"));
    return text;
}

static void report_peer(apr_report *r, const apr_model *model, apr_peer peer, const apr_peer_verdict *v)
{
    char text[4608];
    const char *const remedy = remedy_text(v, model->path, text, sizeof text);

    apr_report_row(r);
    apr_report_cell(r, apr_as_text(apr_peers[peer].name), "%s", apr_peers[peer].name);
    apr_report_cell(r, apr_as_text(keys[v->verdict]), "%s", words[v->verdict]);
    apr_report_cell(r, apr_as_text_or_null(v->reason), "%s", v->reason != NULL ? v->reason : "");
    apr_report_member(r, "rule", apr_as_text_or_null(v->rule));
    apr_report_member(r, "remedy", apr_as_text_or_null(remedy));
    apr_report_member(r, "source", apr_as_text(apr_peers[peer].source));
}

/* "\nfor llama.cpp: aprconv convert m.apr out.gguf": each command that makes a file for some program, once. */
static void print_remedies(const apr_model *model, const apr_compat *compat, apr_peer first, apr_peer end)
{
    char text[4608];

    for (int peer = (int)first; peer < (int)end; peer++) {
        const char *const remedy = compat->of[peer].remedy;
        bool is_said = remedy == NULL;
        for (int before = (int)first; before < peer; before++) is_said = is_said || compat->of[before].remedy == remedy;
        if (is_said) continue;
        printf("\nfor %s", apr_peers[peer].name);
        for (int after = peer + 1; after < (int)end; after++)
            if (compat->of[after].remedy == remedy) printf(", %s", apr_peers[after].name);
        printf(":\n  %s\n", remedy_text(&compat->of[peer], apr_printable(model->path), text, sizeof text));
    }
}

static apr_status report(const apr_call *call, const apr_model *model, const apr_compat *compat, apr_peer first, apr_peer end,
                         apr_error *err)
{
    static const apr_column columns[] = {{"program", .key = "name"}, {"verdict", .key = "verdict"}, {"why", .key = "reason"}};
    apr_report r;

    apr_report_start(&r, call->answer, err);
    apr_report_print(&r, "%s: %s\n\n", apr_printable(model->path), apr_format_name(model->format));
    apr_report_table(&r, "", "programs", columns, sizeof columns / sizeof *columns);
    for (int peer = (int)first; peer < (int)end; peer++) report_peer(&r, model, (apr_peer)peer, &compat->of[peer]);
    apr_report_close(&r);
    const apr_status status = apr_report_end(&r);
    if (status != APR_OK || call->answer->json) return status;
    print_remedies(model, compat, first, end);
    return APR_OK;
}

static apr_status run(const apr_call *call, apr_error *err)
{
    const compat_options *const o = call->options;
    const apr_peer one = o->only != NULL ? apr_peer_find(o->only) : APR_PEERS;
    apr_compat compat = {0};
    apr_model model;

    if (o->only != NULL && one == APR_PEERS)
        return apr_fail(err, APR_E_USAGE, "--for %s: not one of llama.cpp, transformers, vllm, mlx, aprender, realizar", o->only);
    apr_status status = apr_model_open(&model, call->operands[0], err);
    if (status == APR_OK) status = apr_compat_of(&compat, &model, err);
    if (status == APR_OK) status = report(call, &model, &compat, o->only != NULL ? one : 0, o->only != NULL ? one + 1 : APR_PEERS, err);
    if (status == APR_OK && o->only != NULL && compat.of[one].verdict == APR_LOADS_NOT) status = APR_E_NO;
    apr_compat_close(&compat);
    apr_model_close(&model);
    return status;
}

static const char *const examples[] = {"aprconv compat model.gguf", "aprconv compat --for vllm Qwen3-8B-NVFP4/", NULL};
const apr_command apr_compat_command = {.verb = "compat",
                                        .operands = "FILE",
                                        .min_operands = 1,
                                        .max_operands = 1,
                                        .summary = "say which other programs load a model, and which tensor or key stands in the way",
                                        .options = table,
                                        .options_bytes = sizeof(compat_options),
                                        .examples = examples,
                                        .run = run};
