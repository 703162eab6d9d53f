/* heal_run.c - one healing: plan, texts, judging, steps, what is kept, the healed file. */
#include "tools/engine/heal/heal_run.h"

#include "convert/naming.h"
#include "convert/run.h"
#include "formats/base/clock.h"
#include "formats/base/crc32.h"
#include "formats/files/inputs.h"
#include "kernels/cuda_loader.h"
#include "quant/heal/updates.h"
#include "runtime/calibrate/mixed_text.h"
#include "runtime/calibrate/own_text.h"
#include "runtime/check/compare.h"
#include "runtime/check/subject.h"
#include "runtime/train/train_device.h"
#include "tools/engine/heal/heal_plan.h"
#include "tools/engine/quantize/feedback_internal.h"
#include "tools/engine/quantize/kept.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    TOKENS = 512, /* of a step */
    TOKENS_ON_GPU = 16384,
    JUDGED = 25,          /* steps between two measurements */
    WARM_UP = 10,         /* steps */
    JUDGE_TOKENS = 16384, /* at most */
    TEXT_WINDOWS = 24,    /* of the training texts that are measured before and after */
    TEXT_SEED = 1,        /* the calibration's own text has 0 */
    JUDGE_SEED = 2,
    ORDER_SEED = 3
};

static const double CODE_RATE = 0.006, CODE_RATE_STEPS = 150.0, SUB_SCALE_RATE = 0.02, SCALE_RATE = 5e-4, PLAIN_RATE = 3e-4;

/* Of the training text: the calibration's, and the model's own. */
enum { TEXT, OWN };

struct apr_heal_run {
    apr_heal_request request;
    const apr_feedback_run *feedback;
    const apr_conversion *conversion;
    const apr_listener *listener;
    apr_progress progress; /* of the stage that runs */
    apr_heal_plan plan;
    apr_heal_figures figures;
    apr_model between, source; /* the source's view without provenance, and its canonical view */
    apr_tokenizer *tokenizer;
    apr_mixed_text text;
    apr_text_windows judge, measured; /* measured: windows of the training text, before and after */
    apr_session *writer;              /* runs the source while texts are written */
    apr_session *reference;           /* runs the source to judge; with a device passes do */
    apr_train_device *device;         /* of both passes; NULL: the host */
    bool keeps_weights;               /* both models' weights stay on the device */
    apr_train *teacher, *student;
    double *before, *best, *now; /* [judge.n_windows] divergences */

    /* the finished file */
    apr_input_owner owner;        /* separate from the inputs of the run: the file is replaced */
    apr_model file, stored, view; /* as opened; with the blocks in training; its canonical view */
    apr_trained trained;
    apr_updates *updates; /* takes Adam's steps; NULL: the run's own thread does */
    void *gradients;      /* that wait for them; pinned */
    int64_t n_done;       /* steps */
    uint64_t inode_before;
};

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

const apr_heal_request *apr_heal_run_request(const apr_heal_run *run) { return &run->request; }
const apr_heal_plan *apr_heal_run_plan(const apr_heal_run *run) { return &run->plan; }
const apr_heal_figures *apr_heal_run_figures(const apr_heal_run *run) { return &run->figures; }

static apr_session_options session_options(const apr_heal_run *run)
{
    apr_session_options options = apr_session_defaults;

    options.n_ctx = options.n_batch = run->request.window;
    options.n_logits = run->request.window < 64 ? run->request.window : 64;
    options.kv_dtype = APR_F32;
    return options;
}

/* On the GPU, if there is one. */
static apr_session_options writer_options(const apr_heal_run *run)
{
    apr_session_options options = session_options(run);

    if (run->device != NULL) options.cuda = run->device->cuda;
    options.ordinal = run->request.ordinal;
    return options;
}

static apr_train_options pass_options(const apr_heal_run *run, bool forward_only)
{
    return (apr_train_options){.n_tokens = run->request.window,
                               .n_windows = run->request.n_tokens / run->request.window,
                               .device = run->device,
                               .keeps_weights = run->keeps_weights,
                               .forward_only = forward_only};
}

static apr_status open_pass(const apr_heal_run *run, apr_train **train, const apr_model *model, bool forward_only, apr_error *err)
{
    const apr_train_options options = pass_options(run, forward_only);
    return apr_train_open(train, model, &options, err);
}

/* ---- texts ---- */

static apr_status no_memory(apr_error *err) { return apr_no_memory(err, "the texts of a healing"); }

/* Whole windows of n tokens, each with the begin token that the model asks for. */
static apr_status take_windows(const apr_heal_run *run, const int32_t *from, int64_t n, apr_text_windows *to, apr_error *err)
{
    APR_TRY(apr_text_windows_copy(to, from, n, run->request.window, err));
    apr_set_window_bos(&run->source.vocab, to->ids, (size_t)(to->n_windows * run->request.window), run->request.window);
    return APR_OK;
}

/* Of at most `most` tokens. least: windows that are needed for what the option does. */
static apr_status read_text(const apr_heal_run *run, const apr_text_input *text, const char *option, int64_t most, int64_t least,
                            apr_text_windows *to, apr_error *err)
{
    const apr_subject subject = {.path = run->conversion->view.path, .vocab = &run->source.vocab, .tokenizer = run->tokenizer};
    apr_error own = {0};
    int32_t *all = NULL;
    size_t n = 0;

    apr_status status = apr_subject_encode_text(&subject, text->bytes, text->n_bytes, &all, &n, &own);
    if (status != APR_OK) return apr_fail(err, status, "%s: %s", text->path, own.text);
    status = take_windows(run, all, (int64_t)n < most ? (int64_t)n : most, to, err);
    free(all);
    if (status != APR_OK || to->n_windows >= least) return status;
    return apr_fail(err, APR_E_USAGE, "%s %s has %zu tokens: give at least %s of %" PRId64, option, text->path, n,
                    least == 1 ? "one window" : "two windows", run->request.window);
}

/* As many tokens as all steps take. */
static apr_status read_heal_text(const apr_heal_run *run, apr_text_windows *to, apr_error *err)
{
    return read_text(run, run->request.text, "--heal-text", run->request.n_steps * run->request.n_tokens, 1, to, err);
}

/* Refuses texts that are too short before the work. */
static apr_status check_texts(apr_heal_run *run, apr_error *err)
{
    apr_text_windows text = {0};
    const apr_status status = run->request.text != NULL ? read_heal_text(run, &text, err) : APR_OK;

    apr_text_windows_close(&text);
    if (status != APR_OK || run->request.judge == NULL) return status;
    return read_text(run, run->request.judge, "--judge", JUDGE_TOKENS, 2, &run->judge, err);
}

static apr_status open_session(const apr_heal_run *run, apr_session **session, const apr_model *model, apr_error *err)
{
    const apr_session_options options = session_options(run);
    return apr_session_open(session, model, &options, err);
}

/* Tokens of the model's own text to train on; at most JUDGE_TOKENS of them to judge on. */
static int64_t own_tokens(const apr_feedback_run *f)
{
    return f->request.n_tokens > 0 && f->request.n_tokens < APR_OWN_TOKENS ? f->request.n_tokens : APR_OWN_TOKENS;
}

/* Tokens of the longest text that the source writes here; 0: of none. */
static int64_t tokens_to_write(const apr_heal_run *run)
{
    const int64_t n_own = own_tokens(run->feedback);
    if (run->feedback->request.calibration != NULL) return n_own;
    return run->request.judge == NULL ? smaller(n_own, JUDGE_TOKENS) : 0;
}

static apr_own_text text_to_write(const apr_heal_run *run, uint64_t seed, int64_t n_tokens)
{
    const int32_t begin = apr_begin_token(&run->source.vocab);
    return (apr_own_text){.window = run->request.window,
                          .n_windows = n_tokens / run->request.window,
                          .n_tokens_known = (int64_t)run->source.vocab.n_tokens,
                          .seed = seed,
                          .has_begin = begin >= 0,
                          .begin = begin};
}

static apr_status write_text(apr_heal_run *run, uint64_t seed, int64_t n_tokens, apr_text_windows *to, apr_error *err)
{
    const apr_progress progress = apr_listener_begin(run->listener);
    apr_own_text how = text_to_write(run, seed, n_tokens);

    how.progress = &progress;
    to->n_windows = how.n_windows;
    to->ids = malloc((size_t)(how.n_windows * how.window) * sizeof *to->ids + 1);
    const apr_status status = to->ids != NULL ? apr_own_text_write(&how, run->writer, to->ids, err) : no_memory(err);
    apr_listener_end(run->listener);
    return status;
}

/* The calibration's text, or the one that was given instead; and the model's own, which may have been the calibration's. */
static apr_status take_texts(apr_heal_run *run, apr_error *err)
{
    const apr_feedback_run *const f = run->feedback;
    const bool is_own = f->request.calibration == NULL;
    const int64_t n_own = own_tokens(f);
    apr_text_windows *const text = &run->text.texts[TEXT], *const own = &run->text.texts[OWN];

    if (run->request.text != NULL) APR_TRY(read_heal_text(run, text, err));
    else if (!is_own) APR_TRY(take_windows(run, f->ids, f->n_ids, text, err));
    APR_TRY(is_own ? take_windows(run, f->ids, f->n_ids, own, err) : write_text(run, TEXT_SEED, n_own, own, err));
    if (run->request.judge != NULL) return APR_OK;
    return write_text(run, JUDGE_SEED, smaller(n_own, JUDGE_TOKENS), &run->judge, err);
}

/* When the texts are complete. */
static apr_status order_windows(apr_heal_run *run, apr_error *err)
{
    const int64_t window = run->request.window, n_text = run->text.texts[TEXT].n_windows, n_own = run->text.texts[OWN].n_windows;
    const size_t n_judge = (size_t)run->judge.n_windows + 1;

    run->text.window = window;
    APR_TRY(apr_mixed_text_shuffle(&run->text, ORDER_SEED, err));
    run->measured.n_windows = n_text + n_own < TEXT_WINDOWS ? n_text + n_own : TEXT_WINDOWS;
    run->measured.ids = malloc((size_t)(run->measured.n_windows * window) * sizeof *run->measured.ids + 1);
    run->before = calloc(n_judge, sizeof *run->before);
    run->best = calloc(n_judge, sizeof *run->best);
    run->now = calloc(n_judge, sizeof *run->now);
    if (run->measured.ids == NULL || run->before == NULL || run->best == NULL || run->now == NULL) return no_memory(err);
    for (int64_t i = 0; i < run->measured.n_windows; i++)
        memcpy(run->measured.ids + i * window, apr_mixed_text_window(&run->text, i), (size_t)window * sizeof *run->measured.ids);
    run->figures.n_text = n_text * window;
    run->figures.n_own = n_own * window;
    run->figures.n_judge = run->judge.n_windows * window;
    return APR_OK;
}

/* ---- opening ---- */

static apr_status open_device(apr_heal_run *run, apr_error *err)
{
    const apr_cuda_api *cuda;

    if (!run->request.on_device) return APR_OK;
    APR_TRY(apr_cuda_load(&cuda, err));
    return apr_train_device_open(&run->device, cuda, run->request.ordinal, err);
}

/* On a GPU the weights of both models stay there, if they fit as well. */
static apr_status make_plan(apr_heal_run *run, apr_error *err)
{
    for (run->keeps_weights = run->device != NULL;; run->keeps_weights = false) {
        apr_status status = open_pass(run, &run->teacher, &run->source, true, err);
        const apr_own_text text = text_to_write(run, TEXT_SEED, tokens_to_write(run));
        const apr_heal_needs needs = {.conversion = run->conversion,
                                      .source = &run->source,
                                      .teacher = run->teacher,
                                      .student = pass_options(run, false),
                                      .session = session_options(run),
                                      .text = text.n_windows > 0 ? &text : NULL,
                                      .writer = writer_options(run)};
        if (status == APR_OK) status = apr_heal_plan_make(&run->plan, &needs, err);
        if (status != APR_E_MEMORY || !run->keeps_weights) return status;
        apr_train_close(run->teacher);
        run->teacher = NULL;
    }
}

static apr_status open_run(apr_heal_run *run, apr_error *err)
{
    APR_TRY(open_device(run, err));
    APR_TRY(apr_view_without_provenance(&run->between, &run->conversion->view, err));
    APR_TRY(apr_canonical(&run->source, &run->between, err));
    if (run->request.judge != NULL || run->request.text != NULL) APR_TRY(apr_tokenizer_of_model(&run->tokenizer, &run->source, err));
    APR_TRY(check_texts(run, err));
    return make_plan(run, err);
}

apr_status apr_heal_run_open(apr_heal_run **run, const apr_heal_request *request, const apr_feedback_run *feedback,
                             const apr_conversion *conversion, const apr_listener *listener, apr_error *err)
{
    const int64_t most = conversion->view.hparams.max_position_embeddings;
    apr_heal_run *const r = *run = calloc(1, sizeof *r);

    if (r == NULL) return no_memory(err);
    r->request = *request;
    if (most > 0 && r->request.window > most) r->request.window = most;
    if (r->request.n_tokens == 0) r->request.n_tokens = r->request.on_device ? TOKENS_ON_GPU : TOKENS;
    if (r->request.n_tokens < r->request.window) r->request.n_tokens = r->request.window;
    r->feedback = feedback;
    r->conversion = conversion;
    r->listener = listener;
    const apr_status status = open_run(r, err);
    if (status == APR_OK) return APR_OK;
    apr_heal_run_close(r);
    *run = NULL;
    return status;
}

static void close_updates(apr_heal_run *run)
{
    apr_updates_close(run->updates);
    if (run->gradients != NULL) run->device->cuda->release(run->device->device, run->gradients);
    run->updates = NULL;
    run->gradients = NULL;
}

static void close_file(apr_heal_run *run)
{
    apr_train_close(run->student);
    run->student = NULL;
    apr_model_close(&run->view);
    apr_model_close(&run->stored);
    apr_trained_close(&run->trained);
    apr_model_close(&run->file);
}

static void forget_texts(apr_heal_run *run)
{
    apr_mixed_text_close(&run->text);
    apr_text_windows_close(&run->measured);
    free(run->before);
    free(run->best);
    free(run->now);
    run->before = run->best = run->now = NULL;
}

void apr_heal_run_close(apr_heal_run *run)
{
    if (run == NULL) return;
    close_updates(run);
    close_file(run);
    apr_session_close(run->writer);
    apr_session_close(run->reference);
    apr_train_close(run->teacher);
    apr_train_device_close(run->device); /* after both passes */
    apr_tokenizer_close(run->tokenizer);
    apr_model_close(&run->source);
    apr_model_close(&run->between);
    forget_texts(run);
    apr_text_windows_close(&run->judge);
    free(run);
}

/* ---- the finished file ---- */

/* Which stored tensors are trained: those that hold the rows of a tensor that the program reads. */
static apr_status choose_tensors(apr_heal_run *run, bool *wanted, apr_error *err)
{
    apr_train *train = NULL;
    size_t n;

    APR_TRY(open_pass(run, &train, &run->view, false, err));
    const apr_tensor *const *const read = apr_train_tensors(train, &n);
    for (size_t i = 0; i < n; i++) {
        const size_t at = apr_trained_find(run->stored.tensors, run->stored.n_tensors, read[i]);
        if (at != SIZE_MAX) wanted[at] = true;
        run->figures.n_left += at == SIZE_MAX && apr_dtypes[read[i]->dtype].class_of == APR_CLASS_BLOCK;
    }
    apr_train_close(train);
    for (size_t i = 0; i < run->stored.n_tensors; i++) run->figures.n_tensors += wanted[i];
    return run->figures.n_tensors > 0 ? APR_OK
                                      : apr_fail(err, APR_E_UNSUPPORTED, "%s: has no tensor that --heal can train", run->file.path);
}

/* Codes start where the original weights are within their cells. */
static apr_status start_codes(apr_heal_run *run, apr_error *err)
{
    size_t n;
    const apr_tensor *const *const read = apr_train_tensors(run->student, &n);

    for (size_t i = 0; i < n; i++) {
        apr_progress_report(&run->progress, i, n, "latents, tensors");
        const apr_tensor *const from = apr_model_find(&run->source, read[i]->name);
        const bool is_same =
            from != NULL && from->rank == read[i]->rank && memcmp(from->dims, read[i]->dims, sizeof(int64_t) * (size_t)from->rank) == 0;
        if (!is_same || apr_trained_find(run->stored.tensors, run->stored.n_tensors, read[i]) == SIZE_MAX) continue;
        APR_TRY(apr_trained_start(&run->trained, read[i], from, err));
    }
    return APR_OK;
}

/* A copy of the file's table of tensors, without the checksums that it states: some tensors will change. */
static apr_status copy_table(apr_heal_run *run, apr_error *err)
{
    apr_model_close(&run->view);
    apr_model_close(&run->stored);
    APR_TRY(apr_view_copy(&run->stored, &run->file, 0, err));
    run->stored.stated_crcs = NULL;
    return apr_canonical(&run->view, &run->stored, err);
}

static apr_status open_file(apr_heal_run *run, const char *out, apr_error *err)
{
    apr_input_owner *const before = apr_inputs_own(&run->owner);
    apr_status status = apr_model_open(&run->file, out, err);

    apr_inputs_own(before);
    run->figures.n_tensors = run->figures.n_left = 0;
    bool *const wanted = status == APR_OK ? calloc(run->file.n_tensors + 1, sizeof *wanted) : NULL;
    if (status == APR_OK && wanted == NULL) status = apr_no_memory(err, "the tensors in training");
    if (status == APR_OK) status = copy_table(run, err);
    if (status == APR_OK) status = choose_tensors(run, wanted, err);
    if (status == APR_OK) status = apr_trained_open(&run->trained, run->stored.tensors, run->stored.n_tensors, wanted, err);
    free(wanted);
    if (status != APR_OK) return status;
    apr_model_close(&run->view); /* of the tensors as they were */
    APR_TRY(apr_canonical(&run->view, &run->stored, err));
    APR_TRY(open_pass(run, &run->student, &run->view, false, err));
    return start_codes(run, err);
}

/* ---- measuring ---- */

/* The divergence of each row of the windows [first, first + n) of a text, by the passes; places that are left have its last window again. */
static apr_status measure_pass(const apr_heal_run *run, const apr_text_windows *text, int64_t first, int64_t n, int32_t *ids, double *kl,
                               apr_error *err)
{
    const int64_t window = run->request.window, n_together = run->request.n_tokens / window;
    apr_train_model model = {.train = run->teacher};
    const apr_train_teacher teacher = apr_train_teacher_of(&model);
    double loss;

    for (int64_t k = 0; k < n_together; k++)
        memcpy(ids + k * window, text->ids + (first + (k < n ? k : n - 1)) * window, (size_t)window * sizeof *ids);
    APR_TRY(apr_train_forward(run->teacher, NULL, ids, err));
    return apr_train_loss(run->student, NULL, ids, &teacher, &loss, kl, err);
}

static double mean_of(const double *x, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) sum += x[i];
    return sum / (double)n;
}

/* On a GPU the passes judge: they are there, and no session need be. */
static apr_status measure_there(const apr_heal_run *run, const apr_text_windows *text, double *windows, double *mean, apr_error *err)
{
    const int64_t window = run->request.window, n_together = run->request.n_tokens / window;
    int32_t *const ids = calloc((size_t)(n_together * window), sizeof *ids);
    double *const kl = calloc((size_t)(n_together * window), sizeof *kl);
    apr_status status = ids != NULL && kl != NULL ? APR_OK : no_memory(err);
    double sum = 0.0;

    for (int64_t first = 0; first < text->n_windows && status == APR_OK; first += n_together) {
        const int64_t left = text->n_windows - first, n = left < n_together ? left : n_together;
        apr_progress_report(&run->progress, (uint64_t)(first * window), (uint64_t)(text->n_windows * window), "judging, tokens");
        status = measure_pass(run, text, first, n, ids, kl, err);
        for (int64_t k = 0; k < n && status == APR_OK; k++) {
            const double own = mean_of(kl + k * window, window);
            if (windows != NULL) windows[first + k] = own;
            sum += own;
        }
    }
    *mean = sum / (double)text->n_windows;
    free(ids);
    free(kl);
    return status;
}

/* The divergence of each window; *mean: of all. */
static apr_status measure(const apr_heal_run *run, const apr_text_windows *text, double *windows, double *mean, apr_error *err)
{
    const int64_t window = run->request.window;
    apr_session *session = NULL;
    apr_divergence d = {0};

    if (run->device != NULL) return measure_there(run, text, windows, mean, err);
    APR_TRY(open_session(run, &session, &run->view, err));
    apr_status status = apr_compare_models(run->reference, session, text->ids, text->n_windows * window, window, NULL, NULL, &d, err);
    *mean = d.mean;
    for (size_t i = 0; i < d.n_windows && status == APR_OK && windows != NULL; i++)
        windows[i] = d.windows[i].kl / (double)d.windows[i].n_rows;
    apr_divergence_close(&d);
    apr_session_close(session);
    if (status == APR_OK && !isfinite(*mean)) return apr_fail(err, APR_E_NO, "the logits of the quantized model are not finite");
    return status;
}

/* The mean of the paired differences before - after, and its standard error. */
static void compare_pairs(apr_heal_run *run)
{
    const int64_t n = run->judge.n_windows;
    double sum = 0.0, squares = 0.0;

    for (int64_t i = 0; i < n; i++) sum += run->before[i] - run->best[i];
    const double mean = sum / (double)n;
    for (int64_t i = 0; i < n; i++) squares += (run->before[i] - run->best[i] - mean) * (run->before[i] - run->best[i] - mean);
    run->figures.fall = mean;
    run->figures.fall_error = n > 1 ? sqrt(squares / ((double)n * (double)(n - 1))) : INFINITY;
}

/* Keeps the blocks if they are the best so far. */
static apr_status judge(apr_heal_run *run, apr_error *err)
{
    double mean;

    APR_TRY(measure(run, &run->judge, run->now, &mean, err));
    if (!(mean < run->figures.judge_after)) return APR_OK;
    run->figures.judge_after = mean;
    run->figures.best_step = run->n_done;
    memcpy(run->best, run->now, (size_t)run->judge.n_windows * sizeof *run->best);
    apr_trained_keep(&run->trained);
    return APR_OK;
}

static apr_status measure_first(apr_heal_run *run, const char *out, apr_error *err)
{
    (void)out;
    APR_TRY(measure(run, &run->judge, run->before, &run->figures.judge_before, err));
    memcpy(run->best, run->before, (size_t)run->judge.n_windows * sizeof *run->best);
    run->figures.judge_after = run->figures.judge_before;
    return measure(run, &run->measured, NULL, &run->figures.text_before, err);
}

/* ---- steps ---- */

static apr_latent_rates rates_at(const apr_heal_run *run, int64_t step)
{
    const double n = (double)run->request.n_steps, warm = step + 1 < WARM_UP ? (double)(step + 1) / WARM_UP : 1.0;
    const double share = run->request.rate * warm * (1.0 - (double)step / n);

    return (apr_latent_rates){.code = (float)(share * CODE_RATE * CODE_RATE_STEPS / n),
                              .sub_scale = (float)(share * SUB_SCALE_RATE),
                              .scale = (float)(share * SCALE_RATE),
                              .plain = (float)(share * PLAIN_RATE)};
}

static apr_status open_updates(apr_heal_run *run, apr_error *err)
{
    const uint64_t n_bytes = run->plan.gradient_bytes;
    size_t n;

    if (run->device == NULL) return APR_OK;
    apr_train_tensors(run->student, &n);
    APR_TRY(run->device->cuda->pin(run->device->device, n_bytes, "gradients that wait for their step", &run->gradients, err));
    return apr_updates_open(&run->updates, &run->trained, run->gradients, (int64_t)(n_bytes / sizeof(float)), n, err);
}

/* The new blocks of tensors whose steps have been taken go to the GPU. */
static apr_status renew_updated(apr_heal_run *run, apr_error *err)
{
    for (const apr_tensor *tensor; (tensor = apr_updates_ended(run->updates)) != NULL;) APR_TRY(apr_train_renew(run->student, tensor, err));
    return APR_OK;
}

/* All of them: before blocks are read. */
static apr_status end_updates(apr_heal_run *run, apr_error *err)
{
    if (run->updates == NULL) return APR_OK;
    for (const apr_tensor *tensor; (tensor = apr_updates_last(run->updates)) != NULL;) APR_TRY(apr_train_renew(run->student, tensor, err));
    return APR_OK;
}

static apr_status take_room(void *user, const apr_tensor *tensor, float **to, apr_error *err)
{
    apr_heal_run *const run = user;

    APR_TRY(renew_updated(run, err));
    *to = apr_updates_room(run->updates, apr_tensor_elems(tensor));
    return APR_OK;
}

/* While a GPU computes the next gradients, the host takes steps by those before. */
static apr_status take_gradient(void *user, const apr_tensor *tensor, const float *gradient, apr_error *err)
{
    apr_heal_run *const run = user;
    const apr_latent_rates rates = rates_at(run, run->n_done);

    (void)err;
    if (run->updates != NULL) apr_updates_add(run->updates, tensor, gradient, &rates, run->n_done + 1);
    else apr_trained_step(&run->trained, tensor, gradient, &rates, run->n_done + 1);
    return APR_OK;
}

static bool is_trained(void *user, const apr_tensor *tensor)
{
    const apr_heal_run *const run = user;
    return apr_trained_find(run->stored.tensors, run->stored.n_tensors, tensor) != SIZE_MAX;
}

static apr_status make_step(apr_heal_run *run, int32_t *step_ids, apr_error *err)
{
    const int64_t window = run->request.window, n_windows = run->request.n_tokens / window;
    const apr_train_weights weights = {.gradient = take_gradient, .room = take_room, .is_trained = is_trained, .user = run};
    apr_train_model teacher = {.train = run->teacher};
    const apr_train_teacher asked = apr_train_teacher_of(&teacher);
    double loss;

    for (int64_t i = 0; i < n_windows; i++)
        memcpy(step_ids + i * window, apr_mixed_text_window(&run->text, run->n_done * n_windows + i), (size_t)window * sizeof *step_ids);
    APR_TRY(apr_train_forward(run->teacher, NULL, step_ids, err));
    APR_TRY(end_updates(run, err)); /* the source's pass did not need the new blocks */
    APR_TRY(apr_train_gradient(run->student, &weights, step_ids, &asked, &loss, err));
    run->n_done++;
    return APR_OK;
}

/* ---- what is kept: OUT.resume/heal ----
 *
 * After the terms: the numbers below; then, once the texts are there, token ids, divergences of windows, the tensors in training. Numbers
 * are in native byte order, which the last line of the terms shows. It is first written before the file itself is made. */

static const char KEPT[] = "heal";

typedef struct kept_head {
    int64_t n_done, best_step, n_windows[APR_MIXED_TEXTS], n_judge;
    double judge_before, judge_after, text_before;
    uint64_t inode_before;        /* of a file that the finished one replaces; 0: there was none */
    uint32_t has_texts, file_crc; /* of the finished file, which was there when the texts were */
    uint32_t ids_crc, windows_crc;
} kept_head;

/* malloc'ed; NULL: no memory. */
static char *make_terms(const apr_heal_run *run, size_t *n, apr_error *err)
{
    static const uint64_t one = 1;
    const apr_heal_request *const r = &run->request;
    char *inputs;

    if (apr_inputs_terms(&inputs, NULL, 0, err) != APR_OK) return NULL;
    const size_t capacity = strlen(inputs) + 640;
    char *const terms = malloc(capacity);
    if (terms != NULL)
        *n = (size_t)snprintf(terms, capacity,
                              "aprkit heal 2\n%s%s\n%" PRIu64 " bytes of tensors\n%" PRId64 " steps of %" PRId64
                              " tokens in windows of %" PRId64 ", rate %a%s\n%02x\n",
                              inputs, apr_feedback_run_terms(run->feedback), run->conversion->recipe.n_bytes, r->n_steps, r->n_tokens,
                              r->window, r->rate, run->device != NULL ? ", on a GPU" : "", *(const unsigned char *)&one);
    free(inputs);
    if (terms == NULL) apr_no_memory(err, "the terms of a run");
    return terms;
}

static uint32_t crc_of_file(const apr_heal_run *run)
{
    uint32_t crc = 0;
    for (size_t i = 0; i < run->file.n_maps; i++) crc = apr_map_crc32(crc, run->file.maps[i].data, run->file.maps[i].n_bytes);
    return crc;
}

static uint64_t inode_of(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? (uint64_t)st.st_ino : 0;
}

/* The three texts in the order of the file. */
static apr_text_windows *text_at(apr_heal_run *run, int i) { return i < APR_MIXED_TEXTS ? &run->text.texts[i] : &run->judge; }

static size_t n_ids(const apr_heal_run *run, const apr_text_windows *text) { return (size_t)(text->n_windows * run->request.window); }

static uint32_t crc_of_ids(apr_heal_run *run)
{
    uint32_t crc = 0;
    for (int i = 0; i <= APR_MIXED_TEXTS; i++)
        if (text_at(run, i)->ids != NULL) crc = apr_crc32(crc, text_at(run, i)->ids, n_ids(run, text_at(run, i)) * sizeof(int32_t));
    return crc;
}

static uint32_t crc_of_windows(const apr_heal_run *run)
{
    const size_t n = (size_t)run->judge.n_windows * sizeof *run->before;
    return apr_crc32(apr_crc32(0, run->before, n), run->best, n);
}

static bool put(FILE *file, const void *from, size_t n_bytes) { return n_bytes == 0 || fwrite(from, 1, n_bytes, file) == n_bytes; }
static bool get(FILE *file, void *to, size_t n_bytes) { return fread(to, 1, n_bytes, file) == n_bytes; }

static bool write_kept(void *user, FILE *file)
{
    apr_heal_run *const run = user;
    const apr_heal_figures *const f = &run->figures;
    const size_t n = (size_t)run->judge.n_windows * sizeof *run->before;
    const bool has_texts = run->before != NULL;
    const kept_head head = {.n_done = run->n_done,
                            .best_step = f->best_step,
                            .n_windows = {run->text.texts[TEXT].n_windows, run->text.texts[OWN].n_windows},
                            .n_judge = run->judge.n_windows,
                            .inode_before = run->inode_before,
                            .has_texts = has_texts,
                            .file_crc = crc_of_file(run),
                            .judge_before = f->judge_before,
                            .judge_after = f->judge_after,
                            .text_before = f->text_before,
                            .ids_crc = crc_of_ids(run),
                            .windows_crc = has_texts ? crc_of_windows(run) : 0};
    bool good = put(file, &head, sizeof head);

    if (!has_texts) return good;
    for (int i = 0; i <= APR_MIXED_TEXTS && good; i++)
        good = put(file, text_at(run, i)->ids, n_ids(run, text_at(run, i)) * sizeof(int32_t));
    return good && put(file, run->before, n) && put(file, run->best, n) && apr_trained_write(&run->trained, file);
}

static apr_status keep(apr_heal_run *run, const char *out, apr_error *err)
{
    size_t n_terms = 0;
    char *const terms = make_terms(run, &n_terms, err);
    const apr_status status = terms != NULL ? apr_kept_write(out, KEPT, terms, n_terms, write_kept, run, err) : APR_E_MEMORY;

    free(terms);
    if (status == APR_OK) apr_listener_kept(run->listener, (uint64_t)run->n_done, (uint64_t)run->request.n_steps);
    return status;
}

static bool read_ids(FILE *file, const apr_heal_run *run, apr_text_windows *text, int64_t n_windows)
{
    static const int64_t most = (int64_t)1 << 31; /* windows */

    *text = (apr_text_windows){0};
    if (n_windows < 0 || n_windows > most) return false;
    text->ids = malloc((size_t)(n_windows * run->request.window) * sizeof *text->ids + 1);
    text->n_windows = text->ids != NULL ? n_windows : 0;
    return text->ids != NULL && get(file, text->ids, n_ids(run, text) * sizeof *text->ids);
}

/* Reads what follows the numbers. */
static bool read_texts(FILE *file, apr_heal_run *run, const kept_head *head)
{
    const size_t n = (size_t)head->n_judge * sizeof *run->before;
    bool good = true;

    for (int i = 0; i <= APR_MIXED_TEXTS && good; i++)
        good = read_ids(file, run, text_at(run, i), i < APR_MIXED_TEXTS ? head->n_windows[i] : head->n_judge);
    if (!good || crc_of_ids(run) != head->ids_crc || order_windows(run, NULL) != APR_OK) return false;
    return get(file, run->before, n) && get(file, run->best, n) && crc_of_windows(run) == head->windows_crc &&
           apr_trained_read(&run->trained, file);
}

static bool read_kept(FILE *file, apr_heal_run *run, const char *out)
{
    apr_heal_figures *const f = &run->figures;
    kept_head head;

    if (!get(file, &head, sizeof head) || head.n_done < 0 || head.n_done > run->request.n_steps) return false;
    if (!head.has_texts) return inode_of(out) != head.inode_before; /* made since */
    if (head.file_crc != crc_of_file(run) || head.best_step < 0 || head.best_step > head.n_done || head.n_judge <= 0) return false;
    if (!read_texts(file, run, &head)) return false;
    run->n_done = head.n_done;
    f->best_step = head.best_step;
    f->judge_before = head.judge_before;
    f->judge_after = head.judge_after;
    f->text_before = head.text_before;
    return true;
}

static bool read_file(apr_heal_run *run, const char *out)
{
    size_t n_terms = 0;
    char *const terms = make_terms(run, &n_terms, NULL);
    FILE *const file = terms != NULL ? apr_kept_open(out, KEPT, terms, n_terms) : NULL;
    const bool good = file != NULL && open_file(run, out, NULL) == APR_OK && read_kept(file, run, out);

    if (file != NULL) fclose(file);
    free(terms);
    return good;
}

/* The folder has terms as long as the file itself is not complete. */
static bool may_continue(const apr_heal_run *run, const char *out)
{
    return run->request.is_kept && access(out, R_OK) == 0 && !apr_kept_exists(out, "terms") && apr_kept_exists(out, KEPT);
}

apr_status apr_heal_run_begin(apr_heal_run *run, const char *out, bool *continues, apr_error *err)
{
    apr_text_windows judge = run->judge;

    *continues = false;
    if (!run->request.is_kept) return APR_OK;
    if (may_continue(run, out)) {
        run->judge = (apr_text_windows){0};
        *continues = read_file(run, out);
        if (!*continues) { /* back to where it was opened */
            close_file(run);
            forget_texts(run);
        }
        if (run->before == NULL) { /* the judging text is the one that was opened */
            const apr_text_windows read = run->judge;
            run->judge = judge;
            judge = read;
        }
        apr_text_windows_close(&judge);
    }
    if (*continues) return APR_OK;
    run->inode_before = inode_of(out);
    return keep(run, out, err);
}

/* ---- training ---- */

static apr_status train(apr_heal_run *run, const char *out, apr_error *err)
{
    const int64_t n_steps = run->request.n_steps;
    const double start = apr_seconds_now();
    const int64_t n_before = run->n_done;
    int32_t *const step_ids = malloc((size_t)run->request.n_tokens * sizeof *step_ids + 1);
    apr_status status = step_ids != NULL ? open_updates(run, err) : no_memory(err);
    char what[64];

    while (status == APR_OK && run->n_done < n_steps) {
        const double seconds = apr_seconds_now() - start;
        const double rate = seconds > 0.0 ? (double)((run->n_done - n_before) * run->request.n_tokens) / seconds : 0.0;
        snprintf(what, sizeof what, "healing, %.0f tokens/s", rate);
        apr_progress_report(&run->progress, (uint64_t)(run->n_done * run->request.n_tokens), (uint64_t)(n_steps * run->request.n_tokens),
                            what);
        status = make_step(run, step_ids, err);
        if (status != APR_OK || (run->n_done % JUDGED != 0 && run->n_done != n_steps)) continue;
        status = end_updates(run, err);
        if (status == APR_OK) status = judge(run, err);
        if (status == APR_OK && run->request.is_kept) status = keep(run, out, err);
    }
    free(step_ids);
    close_updates(run); /* also those of a step that failed */
    return status;
}

/* Writes the file again, with the blocks that were trained. */
static apr_status write_file(apr_heal_run *run, const char *out, apr_error *err)
{
    const apr_convert_options *const before = &run->conversion->options;
    apr_convert_options options = {.format = before->format, .sink = before->sink};
    const apr_convert_run once = {0};
    apr_conversion again = {0};

    options.sink.overwrite = true;
    apr_status status = apr_conversion_plan(&again, &run->stored, &options, err);
    if (status == APR_OK) status = apr_conversion_run(&again, &once, out, NULL, err);
    apr_conversion_close(&again);
    return status;
}

static const char *judge_name(const apr_heal_run *run)
{
    return run->request.judge != NULL ? run->request.judge->path : "text that the model wrote itself";
}

/* Decides, and measures the result. */
static apr_status finish(apr_heal_run *run, const char *out, apr_error *err)
{
    apr_heal_figures *const f = &run->figures;

    compare_pairs(run);
    apr_trained_put_back(&run->trained);
    f->is_measured = true;
    f->is_healed = f->best_step > 0 && f->fall > 2.0 * f->fall_error;
    for (size_t i = 0; i < run->trained.n; i++)
        apr_latents_compare(&run->trained.items[i].latents, run->file.tensors[run->trained.items[i].tensor].data, &f->changes);
    APR_TRY(apr_train_renew(run->student, NULL, err));
    APR_TRY(measure(run, &run->measured, NULL, &f->text_after, err));
    if (f->is_healed) return write_file(run, out, err);
    if (f->best_step == 0)
        apr_fail(&f->refusal, APR_E_NO, "%s is the file that ldlq made: healing did not help, because no step lowered the divergence on %s",
                 out, judge_name(run));
    else
        apr_fail(&f->refusal, APR_E_NO,
                 "%s is the file that ldlq made: healing helped too little, because the divergence on %s fell by %.4g, which is not more "
                 "than two "
                 "standard errors of %.2g",
                 out, judge_name(run), f->fall, f->fall_error);
    return APR_OK;
}

/* A number that is not finite ends the training, not the run: the file is complete. */
static apr_status refuse_number(apr_heal_run *run, const char *out, const apr_error *why)
{
    apr_fail(&run->figures.refusal, APR_E_NO, "%s is the file that ldlq made: healing ended at step %" PRId64 ": %s", out, run->n_done + 1,
             why->text);
    return APR_OK;
}

/* With as many windows at once as were planned, or fewer if memory was taken by others since. A text that does not fit on a GPU any more is
 * written on the host. */
static apr_status open_writer(apr_heal_run *run, apr_error *err)
{
    const apr_own_text how = text_to_write(run, TEXT_SEED, tokens_to_write(run));
    const int64_t most = run->plan.writer.n_at_once;
    apr_session_options options = writer_options(run);
    apr_error own = {0};

    if (how.n_windows == 0) return APR_OK;
    if (!run->plan.writes_on_device) options.cuda = NULL;
    apr_status status = apr_own_text_open(&run->writer, &how, &run->source, &options, most, &own);
    if (status == APR_E_MEMORY && options.cuda != NULL) {
        options.cuda = NULL;
        status = apr_own_text_open(&run->writer, &how, &run->source, &options, most, &own);
    }
    return status == APR_OK ? APR_OK : apr_fail(err, status, "%s", own.text);
}

/* Before passes and judges take their memory. */
static apr_status write_texts(apr_heal_run *run, apr_error *err)
{
    apr_status status = open_writer(run, err);

    if (status == APR_OK) status = take_texts(run, err);
    apr_session_close(run->writer);
    run->writer = NULL;
    return status;
}

/* A part of the work that reports its progress. */
static apr_status in_stage(apr_heal_run *run, apr_status (*work)(apr_heal_run *run, const char *out, apr_error *err), const char *out,
                           apr_error *err)
{
    run->progress = apr_listener_begin(run->listener);
    const apr_status status = work(run, out, err);
    apr_listener_end(run->listener);
    run->progress = (apr_progress){0};
    return status;
}

static apr_status prepare(apr_heal_run *run, const char *out, apr_error *err)
{
    if (run->file.n_tensors == 0) APR_TRY(in_stage(run, open_file, out, err));
    if (run->before == NULL) {
        APR_TRY(write_texts(run, err));
        APR_TRY(order_windows(run, err));
        if (run->request.is_kept) APR_TRY(keep(run, out, err)); /* they need not be written again */
    }
    if (run->device == NULL) APR_TRY(open_session(run, &run->reference, &run->source, err));
    return run->n_done == 0 ? in_stage(run, measure_first, out, err) : APR_OK;
}

apr_status apr_heal_run_train(apr_heal_run *run, const char *out, apr_error *err)
{
    const double start = apr_seconds_now();
    apr_error own = {0};

    apr_status status = prepare(run, out, &own);
    if (status == APR_OK) status = in_stage(run, train, out, &own);
    if (status == APR_OK) status = finish(run, out, &own);
    if (status == APR_E_NO) status = refuse_number(run, out, &own);
    run->figures.seconds = apr_seconds_now() - start;
    if (status != APR_OK) return apr_fail(err, status, "%s", own.text);
    if (run->request.is_kept) apr_kept_remove(out, KEPT);
    return APR_OK;
}
