/* quant_report.c - what a quantization did: importance, chosen types, error feedback, sizes and errors; as text and JSON. */
#include "tools/verbs/convert/quant_report.h"

#include "tools/engine/quantize/feedback_internal.h"
#include "tools/report/html.h"
#include "tools/report/text.h"
#include "tools/verbs/check/begin_token.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- which matrices an imatrix covers --- */

static void report_bare(apr_report *r, const apr_conversion *c)
{
    enum { MAX_NAMED = 4 };
    size_t n_named = 0;

    apr_report_open(r, "not_covered", '[');
    if (c->cover.n_bare > 0) apr_report_print(r, "  without importance:");
    for (size_t i = 0; i < c->layout.n_tensors; i++) {
        const char *const name = c->items[i].from->name;
        if (!apr_item_is_bare(&c->items[i])) continue;
        apr_report_member(r, NULL, apr_as_text(name));
        if (n_named++ < MAX_NAMED) apr_report_print(r, "%s %s", n_named > 1 ? "," : "", apr_printable(name));
    }
    if (c->cover.n_bare > 0) apr_report_print(r, "%s\n", c->cover.n_bare > MAX_NAMED ? ", ..." : "");
    apr_report_shut(r, ']');
}

void apr_importance_report(apr_report *r, const apr_conversion *c)
{
    const apr_imatrix *const m = c->options.imatrix;
    char clean[512];

    if (m == NULL) return;
    apr_report_open(r, "importance", '{');
    apr_report_member(r, "file", apr_as_text(m->path));
    apr_report_print(r, "  importance from %s", apr_printable(m->path));
    if (m->n_datasets > 0)
        apr_report_print(r, ", made from %s", apr_clean_text(clean, sizeof clean, m->datasets[0], strlen(m->datasets[0])));
    apr_report_print(r, ": %zu of %zu matrices\n", c->cover.n_covered, c->cover.n_covered + c->cover.n_bare);
    if (c->cover.n_unseen > 0)
        apr_report_print(r, "  %lld experts received no tokens in it and are encoded without importance\n", (long long)c->cover.n_unseen);
    apr_report_open(r, "texts", '[');
    for (size_t i = 0; i < m->n_datasets; i++) apr_report_member(r, NULL, apr_as_text(m->datasets[i]));
    apr_report_shut(r, ']');
    apr_report_member(r, "windows", apr_as_int(m->chunk_count));
    apr_report_member(r, "covered", apr_as_uint(c->cover.n_covered));
    apr_report_member(r, "experts_without_tokens", apr_as_int(c->cover.n_unseen));
    report_bare(r, c);
    apr_report_shut(r, '}');
}

/* --- chosen types and the measurements behind them --- */

/* "q4_k 0.0123  q5_k 0.00401" */
const char *apr_allocate_offers_text(const apr_allocate_group *g, char *text, size_t capacity)
{
    size_t n = 0;

    *text = '\0';
    for (size_t k = 0; k < g->n_types && n < capacity; k++)
        n += (size_t)snprintf(text + n, capacity - n, "%s%s %.3g", k > 0 ? "  " : "", apr_dtypes[g->types[k]].name, g->offers[k].value);
    return text;
}

static void report_tried(apr_report *r, const apr_allocate_group *g)
{
    apr_report_open(r, "tried", '[');
    for (size_t k = 0; k < g->n_types; k++) {
        apr_report_open(r, NULL, '{');
        apr_report_member(r, "type", apr_as_text(apr_dtypes[g->types[k]].name));
        apr_report_member(r, "bytes", apr_as_uint((uint64_t)g->offers[k].cost));
        apr_report_member(r, "kl", apr_as_real(g->offers[k].value));
        apr_report_shut(r, '}');
    }
    apr_report_shut(r, ']');
}

static void report_groups(apr_report *r, const apr_allocation *a)
{
    static const apr_column columns[] = {{"tensor", .key = "name"}, {"to", .key = "to"}, {"size", true}, {"divergence", true}, {"tried"}};
    char size[APR_SMALL_TEXT], text[256];

    apr_report_table(r, "", "groups", columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < a->n_groups; i++) {
        const apr_allocate_group *const g = &a->groups[i];
        const char *const type = apr_dtypes[g->types[g->chosen]].name;
        apr_report_row(r);
        apr_report_cell(r, apr_as_text(g->name), "%s", g->name);
        apr_report_cell(r, apr_as_text(type), "%s", type);
        apr_report_member(r, "tensors", apr_as_uint(g->n_members));
        apr_report_cell(r, apr_as_absent(), "%s", apr_size_text(size, (uint64_t)g->offers[g->chosen].cost));
        apr_report_cell(r, apr_as_absent(), "%.3g", g->offers[g->chosen].value);
        apr_report_cell(r, apr_as_absent(), "%s", apr_allocate_offers_text(g, text, sizeof text));
        report_tried(r, g);
    }
    apr_report_close(r);
}

void apr_allocation_report(apr_report *r, const apr_allocation *a)
{
    char text[256];

    apr_report_open(r, "allocation", '{');
    apr_report_member(r, "text", apr_as_text(a->request.text->path));
    apr_report_member(r, "tokens", apr_as_int(a->n_tried));
    apr_report_member(r, "window", apr_as_int(a->request.window));
    apr_report_print(r, "  types by the KL divergence that each causes alone, on %lld tokens of %s in windows of %lld\n",
                     (long long)a->n_tried, apr_clean_text(text, sizeof text, a->request.text->path, strlen(a->request.text->path)),
                     (long long)a->request.window);
    apr_report_member(r, "kl_sum", apr_as_real(a->sum));
    apr_report_member(r, "kl_held", apr_as_real(a->held.mean));
    apr_report_member(r, "kl_held_error", apr_as_real(a->held.error));
    apr_report_member(r, "tokens_held", apr_as_int(a->n_held));
    apr_report_member(r, "bytes", apr_as_uint(a->n_bytes));
    apr_report_member(r, "figures_measured", apr_as_uint(a->n_measured));
    apr_report_member(r, "figures_kept", apr_as_uint(a->n_known));
    report_groups(r, a);
    apr_report_print(r, "  together: %.4g by their sum; measured %.4g +- %.2g on %lld other tokens", a->sum, a->held.mean, a->held.error,
                     (long long)a->n_held);
    if (a->n_known > 0)
        apr_report_print(r, "; %zu of %zu figures came from %s", a->n_known, a->n_known + a->n_measured, apr_printable(a->request.state));
    apr_report_print(r, "\n");
    apr_report_shut(r, '}');
}

/* --- what error feedback will need, or what it has done --- */

/* What a run will need: heap memory in addition to the model, and multiplications. */
typedef struct forecast {
    uint64_t sums_bytes;    /* may exceed --calibration-memory if the largest tensor's sums do */
    uint64_t factor_bytes;  /* of one matrix */
    uint64_t held_bytes;    /* encoded tensors, in a sequential run */
    double multiplications; /* of sums and search, without the passes over the text */
    size_t n_taken, n_others;
    const char *example; /* of the others */
} forecast;

static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

static double sum_multiplications(const apr_feedback_run *run)
{
    double n = 0.0;
    for (size_t i = 0; i < run->inputs.n_inputs; i++) {
        const double width = (double)run->inputs.inputs[i].width;
        n += (double)run->n_ids * width * width / 2.0;
    }
    return n;
}

/* As hessian.h numbers them: 0 stands for the usual number, less for none. */
static int rounds_of(const apr_feedback_run *run)
{
    const int n = run->request.options.rounds;
    return n < 0 ? 0 : n == 0 ? APR_FEEDBACK_ROUNDS : n;
}

static void add_item(const apr_feedback_run *run, size_t item, uint64_t *all_sums, forecast *f)
{
    const apr_pipe_item *const it = &run->conversion->items[item];
    size_t first;
    const size_t n = apr_feedback_links_of_item(&run->links, item, &first);
    const double width = (double)apr_tensor_columns(it->from), passes = 0.5 + (double)rounds_of(run) * 2.5;
    uint64_t own = 0;

    for (size_t i = first; i < first + n; i++) own += apr_hessian_bytes(run->inputs.inputs[run->links.links[i].input].width);
    *all_sums += own;
    f->sums_bytes = larger(f->sums_bytes, own);
    f->factor_bytes = larger(f->factor_bytes, apr_feedback_bytes((int64_t)width));
    f->held_bytes += (uint64_t)apr_row_bytes(it->to, apr_tensor_elems(it->from));
    f->multiplications += (double)apr_tensor_rows(it->from) * width * width * passes + (double)n * width * width * width / 6.0;
    f->n_taken++;
}

static forecast forecast_of(const apr_feedback_run *run)
{
    forecast f = {.multiplications = sum_multiplications(run)};
    uint64_t all_sums = 0;

    for (size_t i = 0; i < run->conversion->layout.n_tensors; i++) {
        if (run->facts[i].is_taken) add_item(run, i, &all_sums, &f);
        if (!run->facts[i].is_wanted || run->facts[i].is_taken) continue;
        f.n_others++;
        f.example = run->conversion->items[i].from->name;
    }
    const uint64_t allowed = apr_feedback_run_memory(run);
    f.sums_bytes = larger(f.sums_bytes, all_sums < allowed ? all_sums : allowed);
    if (!run->request.sequential) f.held_bytes = 0;
    return f;
}

/* Reports matrices that received no or few tokens, whose sums say little. */
static void print_tokens(const apr_feedback_run *run)
{
    size_t n_few = 0;
    const char *example = NULL;

    for (size_t i = 0; i < run->conversion->layout.n_tensors; i++) {
        const apr_feedback_fact *const fact = &run->facts[i];
        const apr_tensor *const from = run->conversion->items[i].from;
        if (!fact->is_encoded || !fact->is_taken) continue;
        if (fact->n_unseen > 0)
            printf("  %s: %lld of its %lld matrices received no tokens and are encoded without feedback\n", apr_printable(from->name),
                   (long long)fact->n_unseen, (long long)apr_feedback_matrices(from));
        if (fact->n_unseen > 0 || fact->n_tokens >= apr_tensor_columns(from)) continue;
        n_few++;
        example = from->name;
    }
    if (n_few > 0)
        printf("  warning: %zu tensor%s received fewer tokens than they have columns (%s%s); more text would help\n", n_few,
               n_few == 1 ? "" : "s", apr_printable(example), n_few == 1 ? "" : ", ...");
}

static double share(double part, double whole) { return whole > 0.0 ? part / whole : 1.0; }

/* Means over the tensors: error after rounding and after descent, relative to the error without feedback. Returns how many tensors. */
static size_t mean_errors(const apr_feedback_run *run, double *rounded, double *end)
{
    size_t n = 0;

    *rounded = *end = 0.0;
    for (size_t i = 0; i < run->conversion->layout.n_tensors; i++) {
        const apr_feedback_errors *const e = &run->facts[i].errors;
        if (!run->facts[i].is_encoded || !(e->start > 0.0)) continue;
        *rounded += share(e->rounded, e->start);
        *end += share(e->end, e->start);
        n++;
    }
    *rounded /= n > 0 ? (double)n : 1.0;
    *end /= n > 0 ? (double)n : 1.0;
    return n;
}

static void print_errors(const apr_feedback_run *run)
{
    double rounded, end;
    const size_t n = mean_errors(run, &rounded, &end);

    if (n == 0) return;
    printf("  error of products, relative to no feedback: %.3f rounded, %.3f after descent (mean of %zu tensors)\n", rounded, end, n);
}

/* --- healing --- */

static void print_heal_lines(const apr_heal_plan *plan, bool on_device)
{
    char text[APR_SMALL_TEXT];

    for (size_t i = 0; i < plan->n_lines; i++) {
        const apr_train_line *const line = &plan->lines[i];
        if (line->bytes > 0 && line->on_device == on_device) printf("    %-52s %12s\n", line->what, apr_size_text(text, line->bytes));
    }
}

static void print_heal_plan(const apr_heal_plan *plan)
{
    char text[APR_SMALL_TEXT];

    printf("  memory to heal: %s\n", apr_size_text(text, plan->bytes));
    print_heal_lines(plan, false);
    if (plan->device_bytes == 0) return;
    printf("  memory to heal on the GPU: %s\n", apr_size_text(text, plan->device_bytes));
    print_heal_lines(plan, true);
}

static const char *judge_name(const apr_heal_request *r) { return r->judge != NULL ? r->judge->path : "text that the model wrote itself"; }

/* "0.03724, before 0.04131 (0.901 of it)" */
static const char *change_text(char text[128], double before, double after)
{
    char one[APR_SMALL_TEXT], two[APR_SMALL_TEXT], three[APR_SMALL_TEXT];
    const int decimals = apr_decimals_of(before, 4);

    snprintf(text, 128, "%s, before %s (%s of it)", apr_number_text(one, after, decimals), apr_number_text(two, before, decimals),
             apr_number_text(three, before > 0.0 ? after / before : 1.0, 3));
    return text;
}

static double share_turned(const apr_heal_figures *f)
{
    return f->changes.n_codes > 0 ? (double)f->changes.n_turned / (double)f->changes.n_codes : 0.0;
}

static void print_heal(const apr_heal_run *run)
{
    const apr_heal_request *const r = apr_heal_run_request(run);
    const apr_heal_figures *const f = apr_heal_run_figures(run);
    char change[128], fall[APR_SMALL_TEXT], error[APR_SMALL_TEXT];

    printf("  healing: %lld steps of %lld tokens in windows of %lld\n", (long long)r->n_steps, (long long)r->n_tokens,
           (long long)r->window);
    if (f->refusal.text[0] == '\0' && !f->is_measured) print_heal_plan(apr_heal_run_plan(run));
    if (!f->is_measured) return;
    printf("  trained: %zu tensors, on ", f->n_tensors);
    if (f->n_text > 0)
        printf("%lld tokens of %s and, in turn, ", (long long)f->n_text,
               r->text != NULL ? apr_printable(r->text->path) : "the calibration text");
    printf("%lld that the model wrote\n", (long long)f->n_own);
    if (f->n_left > 0) printf("  not trained: %zu quantized tensors, whose type or order of rows cannot be\n", f->n_left);
    printf("  KL divergence on %lld tokens of %s: %s\n", (long long)f->n_judge, apr_printable(judge_name(r)),
           change_text(change, f->judge_before, f->judge_after));
    printf("  lower by %s, standard error %s; the best of every 25 steps was step %lld\n",
           apr_number_text(fall, f->fall, apr_decimals_of(f->fall, 3)),
           apr_number_text(error, f->fall_error, apr_decimals_of(f->fall_error, 2)), (long long)f->best_step);
    if (r->judge == NULL)
        printf("  note: the model wrote part of the training text as well; --judge TEXT judges on a text of another kind\n");
    printf("  KL divergence on the training text: %s\n", change_text(change, f->text_before, f->text_after));
    printf("  codes turned: %s %%; largest change of a block's scale: %s %%\n", apr_number_text(fall, 100.0 * share_turned(f), 2),
           apr_number_text(error, 100.0 * f->changes.largest_d, 1));
    printf("  healing took %.2f s\n", f->seconds);
}

static void heal_plan_json(const apr_heal_plan *plan, apr_json_text *json)
{
    apr_json_uint(json, "planned_bytes", plan->bytes);
    if (plan->device_bytes > 0) apr_json_uint(json, "planned_device_bytes", plan->device_bytes);
    apr_json_open(json, "plan", '[');
    for (size_t i = 0; i < plan->n_lines; i++) {
        apr_json_open(json, NULL, '{');
        apr_json_cstring(json, "key", plan->lines[i].key);
        apr_json_cstring(json, "what", plan->lines[i].what);
        apr_json_uint(json, "bytes", plan->lines[i].bytes);
        if (plan->device_bytes > 0) apr_json_bool(json, "on_device", plan->lines[i].on_device);
        apr_json_close(json, '}');
    }
    apr_json_close(json, ']');
}

static void heal_figures_json(const apr_heal_figures *f, apr_json_text *json)
{
    apr_json_uint(json, "tensors", f->n_tensors);
    apr_json_uint(json, "tensors_left", f->n_left);
    apr_json_int(json, "text_tokens", f->n_text);
    apr_json_int(json, "own_tokens", f->n_own);
    apr_json_int(json, "judge_tokens", f->n_judge);
    apr_json_real(json, "judge_before", f->judge_before);
    apr_json_real(json, "judge_after", f->judge_after);
    apr_json_real(json, "fall", f->fall);
    apr_json_real(json, "fall_standard_error", f->fall_error);
    apr_json_int(json, "best_step", f->best_step);
    apr_json_real(json, "training_text_before", f->text_before);
    apr_json_real(json, "training_text_after", f->text_after);
    apr_json_int(json, "codes", f->changes.n_codes);
    apr_json_int(json, "codes_turned", f->changes.n_turned);
    apr_json_real(json, "largest_change_of_d", f->changes.largest_d);
    apr_json_real(json, "seconds", f->seconds);
}

static void heal_json(const apr_heal_run *run, apr_json_text *json)
{
    const apr_heal_request *const r = apr_heal_run_request(run);
    const apr_heal_figures *const f = apr_heal_run_figures(run);

    apr_json_open(json, "healing", '{');
    apr_json_bool(json, "healed", f->is_healed);
    if (f->refusal.text[0] != '\0') apr_json_cstring(json, "refusal", f->refusal.text);
    apr_json_int(json, "steps", r->n_steps);
    apr_json_int(json, "tokens_of_a_step", r->n_tokens);
    apr_json_int(json, "window", r->window);
    apr_json_real(json, "rate", r->rate);
    if (r->text != NULL) apr_json_cstring(json, "text", r->text->path);
    apr_json_cstring(json, "judge", judge_name(r));
    heal_plan_json(apr_heal_run_plan(run), json);
    if (f->is_measured) heal_figures_json(f, json);
    apr_json_close(json, '}');
}

static void write_heal(const apr_heal_run *run, FILE *page)
{
    const apr_heal_request *const r = apr_heal_run_request(run);
    const apr_heal_figures *const f = apr_heal_run_figures(run);
    char change[128];

    apr_html_section(page, "Healing");
    if (f->refusal.text[0] != '\0') apr_html_print(page, "<p>%s.</p>\n", f->refusal.text);
    if (!f->is_measured) return;
    apr_html_print(page, "<p class=\"soft\">KL divergence on <code>%s</code>: %s", judge_name(r),
                   change_text(change, f->judge_before, f->judge_after));
    fprintf(page, ", lower by %.3g (standard error %.2g), after %lld of %lld steps.", f->fall, f->fall_error, (long long)f->best_step,
            (long long)r->n_steps);
    fprintf(page, " On the training text: %s.", change_text(change, f->text_before, f->text_after));
    fprintf(page, " %.2f %% of the codes turned; the largest change of a block's scale is %.1f %%.</p>\n", 100.0 * share_turned(f),
            100.0 * f->changes.largest_d);
}

static void write_feedback(const apr_feedback_run *run, FILE *page)
{
    double rounded, end;
    const size_t n = mean_errors(run, &rounded, &end);

    apr_html_section(page, "Error feedback");
    apr_html_print(
        page, "<p class=\"soft\">Calibrated with %lld tokens of <code>%s</code> (CRC-32 <code>%08" PRIx32 "</code>) in windows of %lld.",
        (long long)run->n_ids, apr_feedback_text_name(run), run->text_crc, (long long)run->request.window);
    if (n > 0)
        fprintf(page, " The error of products with %zu tensors is %.3f of that without feedback (%.3f before descent).", n, end, rounded);
    fputs("</p>\n", page);
}

/* Prints the plan of a GPU's memory. */
static void print_plan(const apr_feedback_run *run, bool dry_run)
{
    char text[APR_SMALL_TEXT], all[APR_SMALL_TEXT];

    if (run->solver == NULL && (!dry_run || run->weights != NULL)) return; /* the host alone weighs tokens */
    printf("  %s in addition to the model: ", dry_run ? "on a GPU (--device cuda)" : "planned on the GPU");
    for (int i = 0; i < APR_FEEDBACK_LINES; i++)
        printf("%s%s %s", i > 0 ? ", " : "", apr_feedback_line_names[i], apr_size_text(text, run->plan.bytes[i]));
    printf("; together %s%s\n", apr_size_text(all, apr_feedback_plan_bytes(&run->plan)),
           dry_run ? " (less with fewer sums at a time and more passes over the text)" : "");
    if (dry_run) return;
    printf("  planned on the GPU for the model: %s\n", apr_size_text(text, run->session_bytes));
    printf("  factors computed by %s\n", run->solver);
}

static void print_feedback(const apr_feedback_run *run, bool dry_run)
{
    const forecast f = forecast_of(run);
    char sums[APR_SMALL_TEXT], factors[APR_SMALL_TEXT], held[APR_SMALL_TEXT], text[APR_SMALL_TEXT], weights[APR_SMALL_TEXT],
        pass[APR_SMALL_TEXT];

    printf("  ldlq: %zu tensors, calibrated with %lld tokens of %s in windows of %lld%s\n", f.n_taken, (long long)run->n_ids,
           apr_printable(apr_feedback_text_name(run)), (long long)run->request.window, run->request.sequential ? ", layer by layer" : "");
    apr_begin_report(&(apr_report){.out = stdout}, &run->model.vocab);
    if (run->write_seconds > 0.0)
        printf("  generating the text: %.2f s, %lld windows at once\n", run->write_seconds, (long long)run->writer.n_at_once);
    if (run->weights != NULL) printf("  an experiment: each token counts by how much the loss depends on it (--loss-weighted)\n");
    if (!dry_run && run->weights != NULL) printf("  weights of the loss: %.2f s\n", run->weights_seconds);
    if (f.n_others > 0)
        printf("  without feedback: %zu (%s%s): no product uses their columns\n", f.n_others, apr_printable(f.example),
               f.n_others == 1 ? "" : ", ...");
    if (!dry_run) {
        print_plan(run, false);
        printf("  calibration: %d pass%s, %.2f s\n", run->n_passes, run->n_passes == 1 ? "" : "es", run->pass_seconds);
        print_errors(run);
        print_tokens(run);
        return;
    }
    printf("  memory in addition to the model: sums of inputs %s, factors of a matrix %s", apr_size_text(sums, f.sums_bytes),
           apr_size_text(factors, f.factor_bytes));
    if (f.held_bytes > 0) printf(", encoded tensors %s", apr_size_text(held, f.held_bytes));
    if (run->writer.n_at_once > 0)
        printf(", before that a text of %lld windows at once %s", (long long)run->writer.n_at_once,
               apr_size_text(text, run->writer.host_bytes));
    if (run->weights != NULL)
        printf(", weights of tokens %s, before that the backward pass %s", apr_size_text(weights, apr_loss_weights_bytes(run->weights)),
               apr_size_text(pass, apr_loss_weights_pass_bytes(run->weights)));
    printf("\n  about %.3g multiplications on the host, not counting passes over the text\n", f.multiplications);
    print_plan(run, true);
}

static void plan_json(const apr_feedback_run *run, apr_json_text *json)
{
    static const char *const keys[APR_FEEDBACK_LINES] = {"sums_bytes", "factors_bytes", "rows_bytes", "libraries_bytes"};

    apr_json_open(json, "gpu", '{');
    for (int i = 0; i < APR_FEEDBACK_LINES; i++) apr_json_uint(json, keys[i], run->plan.bytes[i]);
    if (run->solver != NULL) {
        apr_json_uint(json, "model_bytes", run->session_bytes);
        apr_json_string(json, "solver", run->solver, strlen(run->solver));
    }
    apr_json_close(json, '}');
}

static void tensor_json(apr_json_text *json, const apr_feedback_run *run, size_t item)
{
    const apr_feedback_fact *const fact = &run->facts[item];
    const char *const name = run->conversion->items[item].from->name;

    apr_json_open(json, NULL, '{');
    apr_json_string(json, "name", name, strlen(name));
    apr_json_bool(json, "feedback", fact->is_taken);
    if (fact->is_encoded && fact->is_taken) {
        apr_json_int(json, "tokens", fact->n_tokens);
        apr_json_int(json, "matrices_without_tokens", fact->n_unseen);
        apr_json_real(json, "error_rounded", share(fact->errors.rounded, fact->errors.start));
        apr_json_real(json, "error_end", share(fact->errors.end, fact->errors.start));
    }
    apr_json_close(json, '}');
}

static void feedback_json(const apr_feedback_run *run, bool dry_run, apr_json_text *json)
{
    const forecast f = forecast_of(run);
    char crc[16];

    apr_json_open(json, "feedback", '{');
    apr_json_string(json, "method", "ldlq", 4);
    apr_json_string(json, "calibration", apr_feedback_text_name(run), strlen(apr_feedback_text_name(run)));
    apr_json_bool(json, "own_text", run->request.calibration == NULL);
    if (run->text_crc != 0) {
        snprintf(crc, sizeof crc, "%08" PRIx32, run->text_crc);
        apr_json_string(json, "calibration_crc32", crc, strlen(crc));
    }
    apr_json_int(json, "tokens", run->n_ids);
    apr_json_int(json, "window", run->request.window);
    apr_begin_report(&(apr_report){.json = json}, &run->model.vocab);
    apr_json_bool(json, "sequential", run->request.sequential);
    apr_json_bool(json, "loss_weighted", run->request.loss_weighted);
    apr_json_real(json, "damping", run->request.options.damping);
    apr_json_int(json, "rounds", rounds_of(run));
    apr_json_uint(json, "sums_bytes", f.sums_bytes);
    apr_json_uint(json, "factor_bytes", f.factor_bytes);
    apr_json_uint(json, "held_bytes", f.held_bytes);
    if (run->writer.n_at_once > 0) {
        apr_json_int(json, "text_windows_at_once", run->writer.n_at_once);
        apr_json_uint(json, "text_bytes", run->writer.host_bytes);
    }
    if (run->weights != NULL) {
        apr_json_uint(json, "loss_pass_bytes", apr_loss_weights_pass_bytes(run->weights));
        apr_json_uint(json, "loss_weights_bytes", apr_loss_weights_bytes(run->weights));
        if (!dry_run) apr_json_real(json, "loss_weights_seconds", run->weights_seconds);
    }
    apr_json_real(json, "multiplications", f.multiplications);
    if ((dry_run && run->weights == NULL) || run->solver != NULL) plan_json(run, json);
    if (!dry_run) {
        apr_json_int(json, "passes", run->n_passes);
        apr_json_real(json, "calibration_seconds", run->pass_seconds);
    }
    apr_json_open(json, "tensors", '[');
    for (size_t i = 0; i < run->conversion->layout.n_tensors; i++)
        if (run->facts[i].is_wanted) tensor_json(json, run, i);
    apr_json_close(json, ']');
    apr_json_close(json, '}');
}

/* --- both --- */

void apr_feedback_report(apr_report *r, const apr_feedback_run *run, const apr_heal_run *heal, bool dry_run)
{
    if (r->json == NULL) print_feedback(run, dry_run);
    else feedback_json(run, dry_run, r->json);
    if (heal == NULL) return;
    if (r->json == NULL) print_heal(heal);
    else heal_json(heal, r->json);
}

void apr_feedback_run_html(const apr_feedback_run *run, const apr_heal_run *heal, FILE *page)
{
    write_feedback(run, page);
    if (heal != NULL) write_heal(heal, page);
}

/* --- sums, as JSON --- */

static void sum_json(apr_json_text *json, const apr_quant_sum *s)
{
    apr_json_open(json, NULL, '{');
    if (s->name != NULL) apr_json_string(json, "purpose", s->name, strlen(s->name));
    else if (s->layer >= 0) apr_json_int(json, "layer", s->layer);
    else apr_json_null(json, "layer");
    apr_json_uint(json, "tensors", s->n_tensors);
    apr_json_uint(json, "changed", s->n_changed);
    apr_json_uint(json, "bytes_before", s->bytes_before);
    apr_json_uint(json, "bytes_after", s->bytes_after);
    if (s->metrics.n > 0) apr_json_real(json, "relative_error", apr_metrics_relative_error(&s->metrics));
    apr_json_close(json, '}');
}

void apr_quant_sums_json(apr_json_text *json, const apr_quant_sums *s)
{
    apr_json_open(json, "by_purpose", '[');
    for (size_t i = 0; i < s->n_roles; i++) sum_json(json, &s->roles[i]);
    apr_json_close(json, ']');
    apr_json_open(json, "by_layer", '[');
    for (int64_t i = 0; i <= s->n_layers; i++)
        if (s->layers[i].n_tensors > 0) sum_json(json, &s->layers[i]);
    apr_json_close(json, ']');
}
