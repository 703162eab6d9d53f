/* distill.c - `aprrun distill`: trains a student to predict what a teacher does, shows the loss of every step, and writes the student if it
 * has become better. */
#include "tools/engine/distill/distill.h"
#include "formats/files/out.h"
#include "tools/engine/convert/job.h"
#include "tools/engine/device/device.h"
#include "tools/report/chart.h"
#include "tools/report/guard.h"
#include "tools/report/html.h"
#include "tools/report/meter.h"
#include "tools/report/report.h"
#include "tools/report/terminal.h"
#include "tools/report/text.h"
#include "tools/verbs/convert/out_name.h"
#include "tools/verbs/page.h"
#include "tools/verbs/run/running.h"
#include "tools/verbs/verbs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct distill_options {
    const char *out, *loss, *html;
    int64_t steps, tokens, window, seed, threads, gpu;
    int device; /* apr_device_choice */
    double rate, decay;
    uint64_t memory;
    bool force, allow_loss, stats;
    apr_page_options page;
} distill_options;

static const apr_option distill_table[] = {
    {"output", 'o', APR_OPTION_STRING, "OUT", NULL, "the trained student: a .gguf or .apr file, or a folder", APR_TO(distill_options, out),
     .group = "Distillation"},
    {"steps", 'n', APR_OPTION_INT, "N", "200", "steps of training", APR_TO(distill_options, steps), .min = 4, .max = 1e7},
    {"tokens", 0, APR_OPTION_INT, "N", "2048", "tokens of a step: whole windows", APR_TO(distill_options, tokens), .min = 2, .max = 1e8},
    {"window", 'w', APR_OPTION_INT, "N", "0",
     "tokens per window; each starts with an empty context; 0: 512, or fewer if a context, the text or --tokens is shorter",
     APR_TO(distill_options, window), .min = 0, .max = 1e6},
    {"rate", 'r', APR_OPTION_REAL, "R", "1e-4", "rate of AdamW; it rises for 10 steps and then falls to 0", APR_TO(distill_options, rate),
     .min = 1e-9, .max = 1.0},
    {"decay", 0, APR_OPTION_REAL, "R", "0.01", "decay of matrices, times the rate, in each step", APR_TO(distill_options, decay),
     .min = 0.0, .max = 10.0},
    {"seed", 0, APR_OPTION_INT, "N", "0", "seed of the order of windows", APR_TO(distill_options, seed), .min = -9e18, .max = 9e18},
    {"loss", 0, APR_OPTION_STRING, "FILE", NULL, "also write the losses as JSON; replaces only older losses",
     APR_TO(distill_options, loss)},
    {"html", 0, APR_OPTION_STRING, "FILE", NULL, "also write the curve of the losses as one HTML page; replaces only an older page",
     APR_TO(distill_options, html)},
    APR_PAGE_OPTIONS(distill_options, page),
    {"force", 'f', APR_OPTION_FLAG, NULL, NULL, "replace OUT if it exists (never another file)", APR_TO(distill_options, force)},
    {"allow-loss", 0, APR_OPTION_FLAG, NULL, NULL, "write OUT even if its format cannot hold everything",
     APR_TO(distill_options, allow_loss)},
    {"threads", 't', APR_OPTION_INT, "N", "0", "threads; 0: all; the result is the same", APR_TO(distill_options, threads), .min = 0,
     .max = 4096, .group = "Run"},
    {"memory", 0, APR_OPTION_SIZE, "SIZE", NULL, "refuse to start if the plan needs more; without it: more than is available",
     APR_TO(distill_options, memory), .min = APR_MIN_SIZE},
    {"stats", 0, APR_OPTION_FLAG, NULL, NULL, "print the plan of memory, line by line", APR_TO(distill_options, stats)},
    {"device", 0, APR_OPTION_CHOICE, "host|cuda", "host", "where to train; cuda: dense models with attention only",
     APR_TO(distill_options, device), .group = "Device"},
    {"gpu", 0, APR_OPTION_INT, "N", "0", "which GPU, by its CUDA ordinal", APR_TO(distill_options, gpu), .min = 0, .max = 1024},
    {0},
};

static const char *const distill_examples[] = {
    "aprrun distill teacher/ student/ text.txt -o distilled/ --steps 500",
    "aprrun distill teacher.gguf student.gguf text.txt -o distilled.gguf --tokens 8192 --rate 3e-4 --loss curve.json",
    "aprrun distill teacher/ student/ text.txt -o distilled.apr --html distilled.html --memory 24G",
    "aprrun distill teacher/ student/ text.txt -o distilled/ --tokens 16384 --device cuda",
    NULL,
};

#define PAGE_MARK "content=\"aprrun distill\""
static const char loss_mark[] = "{\"losses\":[";

/* One run of the verb. */
typedef struct work {
    const distill_options *asked;
    const apr_call *call;
    apr_running teacher, student;
    apr_distill_request request;
    apr_distill distill;
    apr_meter meter;
    apr_progress progress;
    char what[64]; /* of the progress line */
} work;

/* ---- the answer ---- */

static void report_plan(apr_report *r, const apr_train_line *lines, size_t n, const char *whose)
{
    char size[APR_SMALL_TEXT];
    for (size_t i = 0; i < n; i++) {
        if (lines[i].bytes == 0) continue;
        apr_report_row(r);
        apr_report_cell(r, apr_as_text(whose), "%s%s", whose, lines[i].on_device ? ", on the GPU" : "");
        apr_report_cell(r, apr_as_text(lines[i].key), "%s", lines[i].what);
        apr_report_cell(r, apr_as_uint(lines[i].bytes), "%s", apr_size_text(size, lines[i].bytes));
    }
}

static void report_memory(apr_report *r, const work *w)
{
    static const apr_column columns[] = {{"of", .key = "of"}, {"memory", .key = "line"}, {"size", true, .key = "bytes"}};
    char size[APR_SMALL_TEXT];
    size_t n;

    if (!w->asked->stats && r->json == NULL) return;
    apr_report_table(r, "", "memory", columns, 3);
    const apr_train_line *const of_student = apr_student_plan(w->distill.student, &n);
    report_plan(r, of_student, n, "student");
    const apr_train_line *const of_teacher = apr_train_plan(w->distill.teacher, &n);
    report_plan(r, of_teacher, n, "teacher");
    if (w->distill.device != NULL) report_plan(r, &w->distill.device->line, 1, "both");
    apr_report_close(r);
    const apr_train_device *const device = w->distill.device;
    if (device != NULL) {
        apr_report_print(r, "  planned: %s of the memory of %s\n", apr_size_text(size, w->distill.planned_device_bytes), device->name);
        apr_report_member(r, "planned_device_bytes", apr_as_uint(w->distill.planned_device_bytes));
    }
    apr_report_print(r, "  planned: %s of host memory\n\n", apr_size_text(size, w->distill.planned_bytes));
    apr_report_member(r, "planned_bytes", apr_as_uint(w->distill.planned_bytes));
}

static void report_head(apr_report *r, const work *w)
{
    const apr_distill *const d = &w->distill;

    apr_report_print(r, "%s%s%s\n  learns from  %s\n", apr_bold(r->out), apr_printable(w->student.source.path), apr_plain(r->out),
                     apr_printable(w->teacher.source.path));
    apr_report_print(r, "  %s: %lld windows of %lld tokens, the last %lld held out; %lld tokens a step\n\n", apr_printable(w->request.text),
                     (long long)d->n_windows, (long long)d->window, (long long)d->n_held_out, (long long)(d->n_together * d->window));
    apr_report_member(r, "window", apr_as_int(d->window));
    apr_report_member(r, "windows", apr_as_int(d->n_windows));
    apr_report_member(r, "windows_held_out", apr_as_int(d->n_held_out));
    apr_report_member(r, "tokens_per_step", apr_as_int(d->n_together * d->window));
    apr_report_member(r, "rate", apr_as_real(w->request.rate));
    report_memory(r, w);
}

static void report_steps(apr_report *r, const work *w)
{
    for (int64_t i = 0; i < w->request.n_steps; i++) apr_report_print(r, "  step %4lld  %.6f\n", (long long)(i + 1), w->distill.losses[i]);
    apr_report_print(r, "\n");
    apr_report_reals(r, "losses", w->distill.losses, (size_t)w->request.n_steps);
}

static void report_outcome(apr_report *r, const work *w)
{
    static const apr_column columns[] = {{"divergence from the teacher"}, {"nats a token", true}};
    const apr_distill *const d = &w->distill;
    char first[40], last[40];

    apr_report_facts_in(r, "", "", columns, 2);
    apr_report_fact(r, "held_out_before", apr_as_real(d->before), "held-out windows, before", "%.6f", d->before);
    apr_report_fact(r, "held_out_after", apr_as_real(d->after), "held-out windows, after", "%.6f", d->after);
    snprintf(first, sizeof first, "first %lld steps", (long long)d->n_tenth);
    snprintf(last, sizeof last, "last %lld steps", (long long)d->n_tenth);
    apr_report_fact(r, "loss_first_tenth", apr_as_real(d->first), first, "%.6f", d->first);
    apr_report_fact(r, "loss_last_tenth", apr_as_real(d->last), last, "%.6f", d->last);
    apr_report_fact(r, "standard_error", apr_as_real(d->error), "standard error of their difference", "%.6f", d->error);
    apr_report_close(r);
}

static apr_status report(const work *w, apr_answer *answer, apr_error *err)
{
    apr_report r;

    apr_report_start(&r, answer, err);
    report_head(&r, w);
    report_steps(&r, w);
    report_outcome(&r, w);
    return apr_report_end(&r);
}

/* ---- the curve: a file of losses, and a page ---- */

static apr_status write_losses(const work *w, apr_out *out, apr_error *err)
{
    const apr_distill *const d = &w->distill;
    apr_json_text json = {0};

    apr_json_open(&json, NULL, '{');
    apr_json_reals(&json, "losses", d->losses, (size_t)w->request.n_steps);
    apr_json_real(&json, "held_out_before", d->before);
    apr_json_real(&json, "held_out_after", d->after);
    apr_json_real(&json, "loss_first_tenth", d->first);
    apr_json_real(&json, "loss_last_tenth", d->last);
    apr_json_real(&json, "standard_error", d->error);
    apr_json_close(&json, '}');
    return apr_json_write(&json, "\n", out, "the losses", err);
}

typedef struct distill_page {
    const work *w;
    const apr_page_about *about;
} distill_page;

/* At most MOST_POINTS: more would hide each other. A point has the mean, least and largest loss of the steps up to its own. */
enum { MOST_POINTS = 20 };

typedef struct points {
    int64_t at[MOST_POINTS];
    double mean[MOST_POINTS], low[MOST_POINTS], high[MOST_POINTS];
    size_t n;
} points;

static points points_of(const double *losses, int64_t n_steps)
{
    points p = {.n = n_steps < MOST_POINTS ? (size_t)n_steps : MOST_POINTS};
    for (size_t i = 0; i < p.n; i++) {
        const int64_t first = n_steps * (int64_t)i / (int64_t)p.n, end = n_steps * ((int64_t)i + 1) / (int64_t)p.n;
        p.at[i] = end;
        p.low[i] = p.high[i] = losses[first];
        for (int64_t k = first; k < end; k++) {
            p.mean[i] += losses[k] / (double)(end - first);
            p.low[i] = fmin(p.low[i], losses[k]);
            p.high[i] = fmax(p.high[i], losses[k]);
        }
    }
    return p;
}

static void draw_losses(FILE *out, const work *w)
{
    const points p = points_of(w->distill.losses, w->request.n_steps);
    const apr_curve curve = {.name = "step", .values = p.mean, .low = p.low, .high = p.high};

    apr_chart_curves(out, &(apr_curves){.label = "divergence from the teacher by step",
                                        .unit = "nats per token",
                                        .across = "step",
                                        .at = p.at,
                                        .n_points = p.n,
                                        .curves = &curve,
                                        .n_curves = 1});
}

static void write_page(apr_report *to, const void *of)
{
    const distill_page *const page = of;
    const work *const w = page->w;
    const apr_distill *const d = &w->distill;

    apr_html_open(to->out, PAGE_MARK, apr_html_base_name(w->asked->out), "distillation");
    apr_html_print(to->out,
                   "<span class=\"pill big note\">%s</span>\n<h1>%s</h1>\n<p class=\"soft\"><code>%s</code> learns from <code>%s</code>: "
                   "%lld steps of %lld tokens</p>\n",
                   d->is_better && d->falls ? "Distilled" : "Not better", apr_html_base_name(w->asked->out), w->student.source.path,
                   w->teacher.source.path, (long long)w->request.n_steps, (long long)(d->n_together * d->window));
    apr_page_about_html(to->out, page->about);
    apr_html_section(to->out, "Losses");
    fputs("<p class=\"soft\">Mean KL divergence from the teacher on the windows of each step. A point is the mean of the steps up to its "
          "own; "
          "the bar spans the least to the largest.</p>\n<div class=\"card\">\n",
          to->out);
    apr_chart_finding(to->out, "On windows that no step has seen the divergence was %.4f and is %.4f", d->before, d->after);
    draw_losses(to->out, w);
    fputs("</div>\n<div class=\"card\">\n", to->out);
    report_outcome(to, w);
    fprintf(to->out, "</div>\n<footer>aprkit %s, aprrun distill.</footer>\n</main></body></html>\n", APR_VERSION);
}

static apr_status write_html(const work *w, apr_out *out, apr_error *err)
{
    apr_error no = {0};
    const apr_page_model models[] = {{"student", &w->student.source}, {"teacher", &w->teacher.source}};
    apr_answer answer;
    char command[APR_PAGE_COMMAND];
    apr_page_about about = {.command = apr_page_command(w->call, command), .options = &w->asked->page, .models = models, .n_models = 2};

    apr_answer_start(&answer, true);
    APR_TRY(report(w, &answer, err));
    about.answer = apr_answer_document(&answer.body, apr_distill_verdict(&w->distill, &no), &no);
    const apr_status status = apr_report_page(write_page, &(distill_page){w, &about}, out, err);
    free(about.answer);
    return status;
}

/* ---- the trained student ---- */

static apr_status start_job(const work *w, apr_convert_job *job, const apr_model *source, bool dry_run, apr_error *err)
{
    *job = (apr_convert_job){.source = source, .out = w->asked->out, .dry_run = dry_run};
    job->options.format = apr_format_of_path(w->asked->out);
    job->options.sink = (apr_sink_options){.overwrite = w->asked->force, .allow_loss = w->asked->allow_loss};
    job->encoder = (apr_encoder_options){.device = APR_DEVICE_HOST, .gpus = "0"};
    const apr_out_request others[] = {{.path = w->asked->loss, .overwrite = true, .mark = loss_mark},
                                      {.path = w->asked->html, .overwrite = true, .mark = PAGE_MARK}};
    const size_t first = w->asked->loss == NULL, n = (w->asked->loss != NULL) + (size_t)(w->asked->html != NULL);
    return dry_run ? apr_convert_job_check_outputs(job, others + first, n, err) : APR_OK;
}

/* Before the training: can OUT be written, and hold the student? */
static apr_status check_output(const work *w, apr_error *err)
{
    apr_convert_job job;
    apr_status status = start_job(w, &job, &w->student.model, true, err);

    if (status == APR_OK) status = apr_convert_job_run(&job, err);
    apr_convert_job_close(&job);
    return status;
}

static apr_status write_student(work *w, apr_error *err)
{
    apr_model view = {0};
    apr_convert_job job = {0};
    apr_status status = apr_distill_view(&view, &w->distill, &w->student.model, err);

    if (status == APR_OK) status = start_job(w, &job, &view, false, err);
    if (status == APR_OK) status = apr_convert_job_run(&job, err);
    apr_convert_job_close(&job);
    apr_model_close(&view);
    return status;
}

/* ---- the command ---- */

static void on_step(void *user, int64_t step, double loss)
{
    work *const w = user;
    const bool is_step = step >= 1 && step <= w->request.n_steps;

    snprintf(w->what, sizeof w->what, "%s %.4f", is_step ? "loss" : "held out", loss);
    apr_progress_report(&w->progress, (uint64_t)(step <= w->request.n_steps ? step : w->request.n_steps), (uint64_t)w->request.n_steps,
                        w->what);
}

static apr_status open_models(work *w, apr_error *err)
{
    APR_TRY(apr_running_open_files(&w->teacher, w->call->operands[0], err));
    APR_TRY(apr_running_open_tokenizer(&w->teacher, err));
    APR_TRY(apr_running_open_files(&w->student, w->call->operands[1], err));
    return apr_running_open_tokenizer(&w->student, err);
}

static apr_status train(work *w, apr_error *err)
{
    w->progress = apr_meter_start_counting(&w->meter, w->call->quiet);
    const apr_status status = apr_distill_run(&w->distill, &w->request, err);
    apr_meter_end(&w->meter);
    return status;
}

/* The losses and the page say why, if the answer is no. */
static apr_status write_curves(const work *w, apr_error *err)
{
    apr_out *losses = NULL, *page = NULL;
    apr_status status = w->asked->loss != NULL ? apr_out_open_marked(&losses, w->asked->loss, loss_mark, err) : APR_OK;

    if (status == APR_OK && losses != NULL) status = write_losses(w, losses, err);
    status = apr_html_close(losses, status, err);
    if (status == APR_OK && w->asked->html != NULL) status = apr_out_open_marked(&page, w->asked->html, PAGE_MARK, err);
    if (status == APR_OK && page != NULL) status = write_html(w, page, err);
    return apr_html_close(page, status, err);
}

static apr_status report_written(const work *w, apr_error *err)
{
    apr_report r;

    apr_report_start(&r, w->call->answer, err);
    apr_report_print(&r, "\n  written: %s\n", apr_printable(w->asked->out));
    apr_report_member(&r, "output", apr_as_text(w->asked->out));
    return apr_report_end(&r);
}

static apr_status run_work(work *w, apr_error *err)
{
    APR_TRY(apr_out_name_check(w->call, w->call->operands[1], w->asked->out, APR_FORMAT_NONE, err));
    APR_TRY(open_models(w, err));
    APR_TRY(apr_distill_open(&w->distill, &w->request, err));
    APR_TRY(check_output(w, err));
    apr_guard_writes();
    APR_TRY(train(w, err));
    APR_TRY(report(w, w->call->answer, err));
    APR_TRY(write_curves(w, err));
    APR_TRY(apr_distill_verdict(&w->distill, err));
    APR_TRY(write_student(w, err));
    return report_written(w, err);
}

static apr_status run_distill(const apr_call *call, apr_error *err)
{
    const distill_options *const o = call->options;
    work w = {.asked = o, .call = call};

    if (o->out == NULL) {
        static const apr_change with_out[] = {{.is = "-o"}, {.is = "distilled.gguf"}};
        apr_fail(err, APR_E_USAGE, "say where to write the trained student: -o OUT");
        return apr_try_instead(APR_E_USAGE, call->typed, with_out, 2, err);
    }
    w.request = (apr_distill_request){.teacher = &w.teacher,
                                      .student = &w.student,
                                      .text = call->operands[2],
                                      .n_steps = o->steps,
                                      .n_tokens = o->tokens,
                                      .window = o->window,
                                      .rate = o->rate,
                                      .decay = o->decay,
                                      .seed = (uint64_t)o->seed,
                                      .budget_bytes = o->memory,
                                      .n_threads = (int)o->threads,
                                      .on_device = o->device == APR_DEVICE_CUDA,
                                      .ordinal = (int)o->gpu,
                                      .on_step = on_step,
                                      .user = &w};
    const apr_status status = run_work(&w, err);
    apr_distill_close(&w.distill);
    apr_running_close(&w.teacher);
    apr_running_close(&w.student);
    return status;
}

static bool has_page(const apr_call *call) { return ((const distill_options *)call->options)->html != NULL; }

static const apr_need distill_needs[] = {APR_PAGE_NEEDS("--html FILE", has_page), {0}};

const apr_command apr_distill_command = {.verb = "distill",
                                         .operands = "TEACHER STUDENT TEXT",
                                         .min_operands = 3,
                                         .max_operands = 3,
                                         .summary = "train a small model to predict what a larger one does, on a text",
                                         .options = distill_table,
                                         .options_bytes = sizeof(distill_options),
                                         .examples = distill_examples,
                                         .run = run_distill,
                                         .needs = distill_needs};
