/* compare.c - `aprrun compare`: measures each candidate against the reference, or takes what an earlier run kept. */
#include "tools/verbs/check/compare.h"

#include "formats/base/json.h"
#include "formats/files/map.h"
#include "formats/open.h"
#include "runtime/check/subject.h"
#include "runtime/check/verify.h"
#include "runtime/session/speed.h"
#include "tools/engine/plan/grid.h"
#include "tools/engine/text_input.h"
#include "tools/report/html.h"
#include "tools/report/meter.h"
#include "tools/verbs/page.h"
#include "tools/verbs/run/running.h"
#include "tools/verbs/verbs.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

/* ---- kept figures: FOLDER/KEY.json, where KEY is a SHA-256 of everything that they depend on ---- */

enum { SAMPLE = 1024 };
static const char mark[] = "{\"aprrun_compare\":1,";

static void add_sample(apr_sha256 *key, const apr_tensor *t, uint64_t at)
{
    apr_sha256_add(key, t->data + at, t->n_bytes - at < SAMPLE ? (size_t)(t->n_bytes - at) : SAMPLE);
}

/* Reading all bytes of large files takes minutes. Two models that differ differ in the samples of many tensors. */
static void add_model(apr_sha256 *key, const apr_model *model)
{
    for (size_t i = 0; i < model->n_maps; i++) apr_sha256_add(key, model->maps[i].data, apr_page_head_bytes(model, &model->maps[i]));
    for (size_t i = 0; i < model->n_tensors; i++) {
        const apr_tensor *const t = &model->tensors[i];
        if (t->data == NULL) continue;
        add_sample(key, t, 0);
        add_sample(key, t, t->n_bytes / 2);
        add_sample(key, t, t->n_bytes > SAMPLE ? t->n_bytes - SAMPLE : 0);
    }
}

/* The members of a file. */
static const struct {
    const char *name;
    size_t offset;
} members[] = {
    {"kl_mean", offsetof(apr_compare_figures, kl)},
    {"same_top", offsetof(apr_compare_figures, same_top)},
    {"perplexity", offsetof(apr_compare_figures, perplexity)},
    {"perplexity_ref", offsetof(apr_compare_figures, perplexity_ref)},
    {"kl_low", offsetof(apr_compare_figures, kl_95.low)},
    {"kl_high", offsetof(apr_compare_figures, kl_95.high)},
    {"decode", offsetof(apr_compare_figures, decode)},
    {"prompt", offsetof(apr_compare_figures, prompt)},
};

static char *path_of(const char *folder, const char *key, apr_error *err)
{
    const size_t n = strlen(folder) + strlen(key) + sizeof "/.json";
    char *const path = malloc(n);

    if (path == NULL) apr_no_memory(err, "a path");
    else snprintf(path, n, "%s/%s.json", folder, key);
    return path;
}

static apr_status read_figures(const cJSON *json, const char *path, apr_compare_figures *f, apr_error *err)
{
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        double *const to = (double *)(void *)((char *)f + members[i].offset);
        if (cJSON_IsNull(apr_json_get(json, members[i].name))) *to = NAN; /* one window has no interval */
        else if (!apr_json_get_real(json, members[i].name, to))
            return apr_fail(err, APR_E_DAMAGED, "%s: no number '%s'; remove the file, and it is measured again", path, members[i].name);
    }
    if (!apr_json_get_int(json, "positions", &f->n_positions) || !apr_json_get_int(json, "window", &f->window))
        return apr_fail(err, APR_E_DAMAGED, "%s: no number 'positions' or 'window'; remove the file, and it is measured again", path);
    return APR_OK;
}

static apr_status load(const char *folder, const char *key, apr_compare_figures *figures, bool *is_there, apr_error *err)
{
    char *const path = path_of(folder, key, err);
    apr_map map = {0};
    cJSON *json = NULL;
    apr_status status = APR_OK;

    if (path == NULL) return APR_E_MEMORY;
    *is_there = access(path, F_OK) == 0;
    if (*is_there) {
        status = apr_map_open(&map, path, err);
        if (status == APR_OK) status = apr_json_parse(&json, map.data, map.n_bytes, path, err);
        if (status == APR_OK) status = read_figures(json, path, figures, err);
        cJSON_Delete(json);
        apr_map_forget(&map);
    }
    free(path);
    return status;
}

static apr_status write_figures(apr_out *out, const apr_compare_figures *f, apr_error *err)
{
    apr_json_text json = {0};

    apr_json_open(&json, NULL, '{');
    apr_json_int(&json, "aprrun_compare", 1);
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        apr_json_real(&json, members[i].name, *(const double *)(const void *)((const char *)f + members[i].offset));
    apr_json_int(&json, "positions", f->n_positions);
    apr_json_int(&json, "window", f->window);
    apr_json_close(&json, '}');
    return apr_json_write(&json, "", out, "the figures", err);
}

static apr_status save(const char *folder, const char *key, const apr_compare_figures *figures, apr_error *err)
{
    apr_out *out = NULL;

    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return apr_fail(err, APR_E_IO, "%s: cannot make this folder: %s", folder, strerror(errno));
    char *const path = path_of(folder, key, err);
    if (path == NULL) return APR_E_MEMORY;
    apr_status status = apr_out_open_marked(&out, path, mark, err);
    if (status == APR_OK) status = write_figures(out, figures, err);
    if (status == APR_OK) status = apr_out_finish(out, err);
    else apr_out_abandon(out);
    free(path);
    return status;
}

/* ---- the command ---- */

typedef struct compare_options {
    apr_run_options run;
    const char *ref, *text, *gpu, *state, *html;
    int64_t window, max_windows;
    bool bench;
    apr_page_options page;
} compare_options;

static const apr_option compare_table[] = {
    {"ref", 'r', APR_OPTION_STRING, "SOURCE", NULL, "the model that all are compared with", APR_TO(compare_options, ref),
     .group = "Comparison"},
    {"text", 0, APR_OPTION_STRING, "FILE", NULL, "compare on this text; without it, on a built-in one of about 700 tokens",
     APR_TO(compare_options, text)},
    {"window", 'w', APR_OPTION_INT, "N", "0",
     "tokens per window; each starts with an empty context; 0: 512, or 128 of the built-in text, or fewer if a context or the text is "
     "shorter",
     APR_TO(compare_options, window), .min = 0, .max = 1e9},
    {"max-windows", 0, APR_OPTION_INT, "N", "0", "at most this many windows, from the start of the text; 0: all",
     APR_TO(compare_options, max_windows), .min = 0, .max = 1e9},
    {"gpu", 'g', APR_OPTION_STRING, "NAME", NULL, "also: which fit this GPU, and the largest context there (aprplan --list-gpus)",
     APR_TO(compare_options, gpu)},
    {"bench", 0, APR_OPTION_FLAG, NULL, NULL, "also measure the speed: a prompt of 128 tokens, and 32 decoded ones",
     APR_TO(compare_options, bench)},
    {"state", 0, APR_OPTION_STRING, "DIR", NULL,
     "keep the figures of each candidate in DIR, by the contents of its files, so that adding one measures one",
     APR_TO(compare_options, state)},
    {"html", 0, APR_OPTION_STRING, "FILE", NULL, "write the comparison as one HTML page with a picture; replaces only an older page",
     APR_TO(compare_options, html)},
    APR_PAGE_OPTIONS(compare_options, page),
    {"device", 0, APR_OPTION_CHOICE, APR_DEVICE_NAMES, "host", "where all of them run; auto: on the GPU, or on the host if that fails",
     APR_TO(compare_options, run.where.device), .group = "Run"},
    APR_BATCH_OPTION(compare_options, run),
    {"threads", 't', APR_OPTION_INT, "N", "0", "threads; 0: all", APR_TO(compare_options, run.threads), .min = 0, .max = 4096},
    {0},
};

static const char *const compare_examples[] = {
    "aprrun compare q8.gguf q5.gguf q4.gguf --ref checkpoint/ --html compared.html",
    "aprrun compare *.gguf --ref checkpoint/ --text wiki.test.raw --max-windows 50 --gpu rtx4090 --state kept/",
    NULL,
};

/* The state of a comparison. */
typedef struct comparison {
    const compare_options *asked;
    const apr_call *call;
    apr_run_options run;
    apr_running reference; /* its session is opened for the first candidate that is measured */
    apr_session_options session;
    apr_text_input input;
    const char *text;
    size_t n_bytes;
    apr_compare_shown shown;
    char label[APR_GPU_LABEL];
} comparison;

/* --- one candidate --- */

static double bits_per_weight(const apr_model *model)
{
    uint64_t n_bytes = 0;
    int64_t n_elems = 0;

    for (size_t i = 0; i < model->n_tensors; i++) {
        if (!apr_dtype_is_weights(model->tensors[i].dtype)) continue;
        n_bytes += model->tensors[i].n_bytes;
        n_elems += apr_tensor_elems(&model->tensors[i]);
    }
    return n_elems > 0 ? 8.0 * (double)n_bytes / (double)n_elems : 0.0;
}

/* Does it fit the GPU that was named, and with how many tokens? */
static apr_status plan_on_gpu(comparison *c, apr_compare_row *row, apr_error *err)
{
    const apr_plan_asked asked = {.gpu = c->asked->gpu, .headroom = (uint64_t)1 << 30, .sequences = 1, .stack = 256, .direct = true};
    apr_plan_question q = {.asked = &asked, .n_devices = 1, .n_named = 1};
    const apr_plan_choice as_it_is = {0};
    apr_plan_cell cell = {0};
    apr_model source = {0};
    bool is_whole = true;

    if (c->asked->gpu == NULL) return APR_OK;
    apr_status status = apr_gpu_named(c->asked->gpu, &q.gpus[0], q.labels[0], err);
    q.gpu = &q.gpus[0];
    snprintf(c->label, sizeof c->label, "%s", q.labels[0][0] != '\0' || status != APR_OK ? q.labels[0] : q.gpus[0].label);
    if (status == APR_OK) status = apr_model_open_head(&source, row->path, &is_whole, err);
    if (status == APR_OK) status = apr_question_open(&q, &source, is_whole, err);
    if (status == APR_OK) status = apr_question_grid(&q, &as_it_is, 1, &as_it_is, 1, &cell, err);
    apr_question_close(&q);
    apr_model_close(&source);
    row->max_ctx = cell.max_ctx;
    row->fits = cell.max_ctx > 0;
    row->needed_bytes = cell.taken_bytes;
    return status;
}

/* Everything that the figures depend on. */
static void key_of(const comparison *c, const apr_model *model, char key[APR_SHA256_TEXT])
{
    const compare_options *const o = c->asked;
    struct utsname system = {0};
    apr_sha256 hash;
    char text[512];

    if (o->bench) uname(&system);
    const int n = snprintf(text, sizeof text, "aprkit %s, window %lld, windows %lld, batch %lld, on %s, speed %d %s\n", APR_VERSION,
                           (long long)o->window, (long long)o->max_windows, (long long)o->run.batch,
                           c->session.cuda != NULL                 ? "cuda"
                           : o->run.where.device == APR_DEVICE_REF ? "ref"
                                                                   : "host",
                           o->bench, system.nodename);
    apr_sha256_start(&hash);
    apr_sha256_add(&hash, text, (size_t)n);
    apr_sha256_add(&hash, c->text, c->n_bytes);
    add_model(&hash, &c->reference.source);
    add_model(&hash, model);
    apr_sha256_text(&hash, key);
}

static void lower(int64_t *least, int64_t n)
{
    if (n > 0 && n < *least) *least = n;
}

/* The text's ids in whole windows, as the reference and as the candidate read them. */
typedef struct windows {
    int32_t *ids, *other;
    size_t n;
    int64_t window;
} windows;

static apr_status cut_windows(comparison *c, const apr_running *other, windows *w, apr_error *err)
{
    const compare_options *const o = c->asked;

    w->window = o->text != NULL ? 512 : 128;
    lower(&w->window, c->reference.model.hparams.max_position_embeddings);
    lower(&w->window, other->model.hparams.max_position_embeddings);
    lower(&w->window, (int64_t)w->n);
    if (o->window > 0) w->window = o->window;
    if (w->window < 2 || w->n < (size_t)w->window)
        return apr_fail(err, APR_E_USAGE, "the text has %zu tokens: it needs at least one full window of 2 or more tokens (--window %lld)",
                        w->n, (long long)(w->window < 2 ? 2 : w->window));
    int64_t n_windows = (int64_t)(w->n / (size_t)w->window);
    lower(&n_windows, o->max_windows);
    w->n = (size_t)(n_windows * w->window);
    return APR_OK;
}

static apr_status make_windows(comparison *c, const apr_running *other, windows *w, apr_error *err)
{
    const apr_subject reference = apr_running_subject(&c->reference), subject = apr_running_subject(other);

    APR_TRY(apr_vocabularies_agree(&subject, &reference, err));
    if (c->reference.model.hparams.vocab_size != other->model.hparams.vocab_size)
        return apr_fail(err, APR_E_UNSUPPORTED, "the rows of logits have different lengths: %lld in %s and %lld in %s",
                        (long long)other->model.hparams.vocab_size, subject.path, (long long)c->reference.model.hparams.vocab_size,
                        reference.path);
    APR_TRY(apr_subject_encode_shared(&reference, &other->model.vocab, c->text, c->n_bytes, &w->ids, &w->n, err));
    APR_TRY(cut_windows(c, other, w, err));
    APR_TRY(apr_ids_with_window_bos(&other->model.vocab, w->ids, w->n, w->window, &w->other, err));
    apr_set_window_bos(reference.vocab, w->ids, w->n, w->window);
    return APR_OK;
}

static void on_rows(void *user, int64_t n_done, int64_t n_rows)
{
    apr_progress_report(user, (uint64_t)n_done, (uint64_t)n_rows, "tokens compared");
}

static apr_status diverge(comparison *c, apr_running *other, const windows *w, apr_compare_figures *f, apr_error *err)
{
    const apr_compared_text text = {
        .ids = w->ids, .ids_other = w->other, .n_ids = (int64_t)w->n, .window = w->window, .piece = c->run.batch};
    apr_divergence_intervals intervals = {0};
    apr_divergence d = {0};
    apr_meter meter;
    apr_progress progress = apr_meter_start_counting(&meter, c->call->quiet);

    apr_status status = apr_compare_on_text(c->reference.session, other->session, &text, on_rows, &progress, &d, err);
    apr_meter_end(&meter);
    if (status == APR_OK) status = apr_divergence_bootstrap(&d, 0, &intervals, err);
    *f = (apr_compare_figures){.kl = d.mean,
                               .same_top = d.same_top,
                               .perplexity = d.perplexity_other,
                               .perplexity_ref = d.perplexity_reference,
                               .kl_95 = intervals.mean,
                               .n_positions = d.n_rows,
                               .window = d.window};
    apr_divergence_close(&d);
    return status;
}

enum { BENCH_PROMPT = 128, BENCH_TOKENS = 32, BENCH_RUNS = 3 };

static apr_status measure_speed(const comparison *c, apr_running *other, apr_compare_figures *f, apr_error *err)
{
    const apr_speed_options options = {.n_runs = BENCH_RUNS};
    apr_speed_stage *const stages = calloc(2, sizeof *stages);
    bool finite;

    if (!c->asked->bench) {
        free(stages);
        return APR_OK;
    }
    if (stages == NULL) return apr_no_memory(err, "the figures");
    stages[0].n_tokens = BENCH_PROMPT;
    stages[1].n_tokens = BENCH_TOKENS;
    stages[1].one_by_one = true;
    const apr_status status = apr_speed_measure(other->session, stages, 2, &options, &finite, err);
    if (status == APR_OK) {
        f->prompt = apr_speed_rates(BENCH_PROMPT, stages[0].seconds, BENCH_RUNS).median;
        f->decode = apr_speed_rates(BENCH_TOKENS, stages[1].seconds, BENCH_RUNS).median;
    }
    free(stages);
    return status;
}

/* Opens the sessions and measures. */
static apr_status measure(comparison *c, apr_running *other, apr_compare_figures *f, apr_error *err)
{
    windows w = {0};

    apr_status status = make_windows(c, other, &w, err);
    c->session.n_ctx = w.window;
    if (c->asked->bench && c->session.n_ctx < BENCH_PROMPT + BENCH_TOKENS) c->session.n_ctx = BENCH_PROMPT + BENCH_TOKENS;
    if (status == APR_OK && c->reference.session == NULL)
        status = apr_session_open(&c->reference.session, &c->reference.model, &c->session, err);
    if (status == APR_OK) status = apr_session_open(&other->session, &other->model, &c->session, err);
    if (status == APR_OK) status = diverge(c, other, &w, f, err);
    if (status == APR_OK) status = measure_speed(c, other, f, err);
    free(w.ids);
    free(w.other);
    return status;
}

static apr_status fill_row(comparison *c, apr_compare_row *row, apr_error *err)
{
    apr_running other = {0};
    char key[APR_SHA256_TEXT];
    uint64_t n_head;

    apr_status status = apr_running_open_files(&other, row->path, err);
    if (status == APR_OK) status = apr_running_open_tokenizer(&other, err);
    if (status == APR_OK) {
        for (size_t i = 0; i < other.source.n_maps; i++) row->n_bytes += other.source.maps[i].n_bytes;
        row->bits = bits_per_weight(&other.source);
        apr_page_sum(&other.source, false, &n_head, row->sum);
        apr_page_types(&other.source, row->types, sizeof row->types);
        key_of(c, &other.source, key);
    }
    if (status == APR_OK) status = plan_on_gpu(c, row, err);
    if (status == APR_OK && c->asked->state != NULL) status = load(c->asked->state, key, &row->figures, &row->was_kept, err);
    if (status == APR_OK && !row->was_kept) {
        status = measure(c, &other, &row->figures, err);
        if (status == APR_OK && c->asked->state != NULL && isfinite(row->figures.kl))
            status = save(c->asked->state, key, &row->figures, err);
    }
    apr_running_close(&other);
    return status;
}

/* --- all of them --- */

static int smallest_first(const void *a, const void *b)
{
    const apr_compare_row *const one = a, *const two = b;

    if (one->n_bytes != two->n_bytes) return one->n_bytes < two->n_bytes ? -1 : 1;
    return strcmp(one->path, two->path);
}

/* The page, with the answer that --json gives. */
static apr_status write_page(const comparison *c, apr_status answer, const apr_error *why, apr_out *page, apr_error *err)
{
    const apr_page_model model = {"reference", &c->reference.source};
    char command[APR_PAGE_COMMAND];
    apr_page_about about = {.command = apr_page_command(c->call, command),
                            .options = &c->asked->page,
                            .models = &model,
                            .n_models = 1,
                            .session = c->reference.session};
    apr_answer as_json;

    apr_answer_start(&as_json, true);
    apr_status status = apr_compare_report(&c->shown, &as_json, err);
    about.answer = apr_answer_document(&as_json.body, answer, why);
    if (status == APR_OK) status = apr_compare_html(&c->shown, &about, page, err);
    free(about.answer);
    return status;
}

/* APR_E_NO: logits that are not finite, or a GPU that none fits. */
static apr_status judge(const apr_compare_shown *s, apr_error *err)
{
    bool any_fits = s->gpu == NULL;

    for (size_t i = 0; i < s->n; i++) {
        if (!isfinite(s->rows[i].figures.kl)) return apr_fail(err, APR_E_NO, "%s computes logits that are not finite", s->rows[i].path);
        any_fits = any_fits || s->rows[i].fits;
    }
    return any_fits ? APR_OK : apr_fail(err, APR_E_NO, "none of them fits %s", s->gpu);
}

static apr_status show(comparison *c, apr_out *page, apr_error *err)
{
    apr_error why = {0};

    c->shown.ref = c->asked->ref;
    c->shown.text = c->asked->text != NULL ? c->asked->text : "the built-in text";
    c->shown.gpu = c->asked->gpu != NULL ? c->label : NULL;
    c->shown.window = c->shown.rows[0].figures.window;
    c->shown.has_speed = c->asked->bench;
    c->shown.backend = c->session.cuda != NULL ? "cuda" : c->asked->run.where.device == APR_DEVICE_REF ? "ref" : "host";
    qsort(c->shown.rows, c->shown.n, sizeof *c->shown.rows, smallest_first);
    const apr_status answer = judge(&c->shown, &why);
    APR_TRY(apr_compare_report(&c->shown, c->call->answer, err));
    if (page != NULL) APR_TRY(write_page(c, answer, &why, page, err));
    return answer == APR_OK ? APR_OK : apr_fail(err, answer, "%s", why.text);
}

static apr_status open_reference(comparison *c, apr_error *err)
{
    APR_TRY(apr_running_open_files(&c->reference, c->asked->ref, err));
    APR_TRY(apr_running_open_tokenizer(&c->reference, err));
    if (c->asked->text != NULL) APR_TRY(apr_text_input_open(&c->input, c->asked->text, err));
    c->text = c->asked->text != NULL ? c->input.bytes : apr_verify_text;
    c->n_bytes = c->asked->text != NULL ? c->input.n_bytes : strlen(apr_verify_text);
    c->run = c->asked->run;
    c->run.where.direct = c->run.where.replay = c->run.where.fuse = true;
    c->run.where.headroom = (uint64_t)1 << 30;
    return apr_running_options(&c->run, 64, &c->session, err);
}

/* Measurements take long, so all candidates are looked for first. */
static apr_status check_paths(const apr_call *call, apr_error *err)
{
    for (size_t i = 0; i < call->n_operands; i++)
        if (access(call->operands[i], R_OK) != 0) return apr_fail(err, APR_E_IO, "%s: %s", call->operands[i], strerror(errno));
    return APR_OK;
}

static apr_status run_compare(const apr_call *call, apr_error *err)
{
    comparison c = {.asked = call->options, .call = call, .shown.n = call->n_operands};
    apr_out *page = NULL;

    if (c.asked->ref == NULL)
        return apr_fail(err, APR_E_USAGE, "name the model to compare with: --ref SOURCE; try 'aprrun compare --help'");
    APR_TRY(check_paths(call, err));
    c.shown.rows = calloc(c.shown.n, sizeof *c.shown.rows);
    if (c.shown.rows == NULL) return apr_no_memory(err, "the figures");
    apr_status status = open_reference(&c, err);
    if (status == APR_OK && c.asked->html != NULL) status = apr_out_open_marked(&page, c.asked->html, APR_COMPARE_HTML_MARK, err);
    for (size_t i = 0; i < c.shown.n && status == APR_OK; i++) {
        c.shown.rows[i].path = call->operands[i];
        status = fill_row(&c, &c.shown.rows[i], err);
    }
    if (status == APR_OK) status = show(&c, page, err);
    status = apr_html_close(page, status, err);
    apr_text_input_close(&c.input);
    apr_running_close(&c.reference);
    free(c.shown.rows);
    return status;
}

static bool has_page(const apr_call *call) { return ((const compare_options *)call->options)->html != NULL; }

static const apr_need compare_needs[] = {APR_PAGE_NEEDS("--html FILE", has_page), {0}};

const apr_command apr_compare_command = {.verb = "compare",
                                         .operands = "MODEL...",
                                         .min_operands = 1,
                                         .max_operands = APR_COMPARE_MOST,
                                         .summary = "several versions of a model against one reference: size, divergence, what fits",
                                         .options = compare_table,
                                         .options_bytes = sizeof(compare_options),
                                         .examples = compare_examples,
                                         .run = run_compare,
                                         .needs = compare_needs};
