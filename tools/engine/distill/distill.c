/* distill.c - see distill.h. */
#include "tools/engine/distill/distill.h"

#include "convert/naming.h"
#include "formats/base/machine.h"
#include "kernels/cuda_loader.h"
#include "tools/engine/text_input.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { USUAL_WINDOW = 512, WARM_UP = 10 };

/* ---- the text ---- */

static apr_status check_vocabularies(const apr_distill_request *q, apr_error *err)
{
    const apr_subject teacher = apr_running_subject(q->teacher), student = apr_running_subject(q->student);
    const int64_t n_teacher = q->teacher->model.hparams.vocab_size, n_student = q->student->model.hparams.vocab_size;

    APR_TRY(apr_vocabularies_agree(&student, &teacher, err));
    if (n_teacher == n_student) return APR_OK;
    return apr_fail(err, APR_E_UNSUPPORTED, "the rows of logits have different lengths: %lld in %s and %lld in %s", (long long)n_student,
                    student.path, (long long)n_teacher, teacher.path);
}

static void lower(int64_t *least, int64_t n)
{
    if (n > 0 && n < *least) *least = n;
}

/* At least two windows: one to train on, one that is held out. */
static apr_status choose_windows(apr_distill *d, const apr_distill_request *q, int64_t n_ids, apr_error *err)
{
    d->window = USUAL_WINDOW;
    lower(&d->window, q->n_tokens);
    lower(&d->window, q->teacher->model.hparams.max_position_embeddings);
    lower(&d->window, q->student->model.hparams.max_position_embeddings);
    lower(&d->window, n_ids / 2);
    if (q->window > 0) d->window = q->window;
    d->n_windows = d->window > 1 ? n_ids / d->window : 0;
    if (d->n_windows < 2)
        return apr_fail(err, APR_E_USAGE, "%s has %lld tokens: it needs two windows of at least 2 (--window %lld)", q->text,
                        (long long)n_ids, (long long)(d->window > 1 ? d->window : 2));
    d->n_held_out = d->n_windows / 10 > 0 ? d->n_windows / 10 : 1;
    d->n_together = q->n_tokens > d->window ? q->n_tokens / d->window : 1;
    lower(&d->n_together, d->n_windows - d->n_held_out); /* none twice in a step */
    return APR_OK;
}

static apr_status encode(apr_distill *d, const apr_distill_request *q, apr_error *err)
{
    const apr_subject teacher = apr_running_subject(q->teacher);
    const apr_vocab *const vocab = &q->student->model.vocab;
    apr_text_input text;
    size_t n_ids = 0;

    APR_TRY(apr_text_input_open(&text, q->text, err));
    const apr_status status = apr_subject_encode_shared(&teacher, vocab, text.bytes, text.n_bytes, &d->ids, &n_ids, err);
    apr_text_input_close(&text);
    APR_TRY(status);
    APR_TRY(choose_windows(d, q, (int64_t)n_ids, err));
    n_ids = (size_t)(d->n_windows * d->window);
    APR_TRY(apr_ids_with_window_bos(vocab, d->ids, n_ids, d->window, &d->ids_student, err));
    apr_set_window_bos(teacher.vocab, d->ids, n_ids, d->window);
    return APR_OK;
}

/* ---- the plan ---- */

/* Of the host's lines, or of the GPU's. */
static uint64_t sum_of(const apr_train_line *lines, size_t n, bool on_device, const apr_train_line **largest)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        if (lines[i].on_device != on_device) continue;
        sum += lines[i].bytes;
        if (*largest == NULL || lines[i].bytes > (*largest)->bytes) *largest = &lines[i];
    }
    return sum;
}

static uint64_t sum_of_both(const apr_distill *d, bool on_device, const apr_train_line **largest)
{
    size_t n_teacher, n_student;
    const apr_train_line *const of_teacher = apr_train_plan(d->teacher, &n_teacher);
    const apr_train_line *const of_student = apr_student_plan(d->student, &n_student);
    return sum_of(of_teacher, n_teacher, on_device, largest) + sum_of(of_student, n_student, on_device, largest);
}

static apr_status check_plan(apr_distill *d, const apr_distill_request *q, apr_error *err)
{
    const apr_train_line *largest = NULL, *largest_there = NULL;
    const uint64_t budget = q->budget_bytes > 0 ? q->budget_bytes : apr_machine_available();

    d->planned_bytes = sum_of_both(d, false, &largest);
    d->planned_device_bytes = sum_of_both(d, true, &largest_there);
    if (d->device != NULL) {
        APR_TRY(apr_train_device_check(d->device, d->planned_device_bytes, "training",
                                       "use fewer --tokens, a smaller --window or student, or --device host", err));
        d->planned_device_bytes += d->device->line.bytes; /* which it has already */
    }
    if (budget == 0 || d->planned_bytes <= budget) return APR_OK;
    return apr_fail(err, APR_E_MEMORY,
                    "training needs %.2f GiB of host memory, %.2f GiB more than %s (%s take %.2f GiB): use fewer --tokens, a smaller "
                    "--window, or a smaller student",
                    (double)d->planned_bytes / 0x1p30, (double)(d->planned_bytes - budget) / 0x1p30,
                    q->budget_bytes > 0 ? "--memory allows" : "is available", largest->what, (double)largest->bytes / 0x1p30);
}

static apr_status open_device(apr_distill *d, const apr_distill_request *q, apr_error *err)
{
    const apr_cuda_api *cuda;

    APR_TRY(apr_cuda_load(&cuda, err));
    return apr_train_device_open(&d->device, cuda, q->ordinal, err);
}

/* On a GPU the teacher's weights stay there, if they fit as well. */
static apr_status open_teacher(apr_distill *d, const apr_distill_request *q, const apr_train_options *of_student, apr_error *err)
{
    apr_train_options options = *of_student;

    options.forward_only = true;
    for (options.keeps_weights = d->device != NULL;; options.keeps_weights = false) {
        apr_status status = apr_train_open(&d->teacher, &q->teacher->model, &options, err);
        if (status == APR_OK) status = check_plan(d, q, err);
        if (status != APR_E_MEMORY || !options.keeps_weights) return status;
        apr_train_close(d->teacher);
    }
}

apr_status apr_distill_open(apr_distill *d, const apr_distill_request *q, apr_error *err)
{
    *d = (apr_distill){0};
    APR_TRY(check_vocabularies(q, err));
    APR_TRY(encode(d, q, err));
    if (q->on_device) APR_TRY(open_device(d, q, err));
    const apr_train_options options = {.n_tokens = d->window, .n_windows = d->n_together, .n_threads = q->n_threads, .device = d->device};
    APR_TRY(apr_student_open(&d->student, &q->student->model, &options, err));
    APR_TRY(open_teacher(d, q, &options, err));
    d->losses = calloc((size_t)q->n_steps, sizeof *d->losses);
    return d->losses != NULL ? APR_OK : apr_no_memory(err, "the losses");
}

void apr_distill_close(apr_distill *d)
{
    apr_train_close(d->teacher);
    apr_student_close(d->student);
    apr_train_device_close(d->device); /* after what is there */
    free(d->ids);
    free(d->ids_student);
    free(d->losses);
    *d = (apr_distill){0};
}

/* ---- windows ---- */

/* The windows of a pass, for both models, and the order in which those of a text come. */
typedef struct draw {
    int32_t *teacher, *student; /* [n_together, window] */
    int64_t *order, n, next;    /* order: [n], the windows to train on */
    uint64_t seed;
} draw;

static void close_draw(draw *w)
{
    free(w->teacher);
    free(w->student);
    free(w->order);
}

static apr_status open_draw(draw *w, const apr_distill *d, uint64_t seed, apr_error *err)
{
    const size_t n_ids = (size_t)(d->n_together * d->window);

    *w = (draw){.n = d->n_windows - d->n_held_out, .seed = seed};
    w->teacher = calloc(n_ids, sizeof *w->teacher);
    w->student = calloc(n_ids, sizeof *w->student);
    w->order = calloc((size_t)w->n, sizeof *w->order);
    if (w->teacher == NULL || w->student == NULL || w->order == NULL) return apr_no_memory(err, "the windows");
    for (int64_t i = 0; i < w->n; i++) w->order[i] = i;
    return APR_OK;
}

/* splitmix64 (Steele, Lea, Flood 2014) */
static uint64_t random_bits(uint64_t *seed)
{
    uint64_t z = *seed += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Draws each window once before any window is drawn again, in a new order each time. */
static int64_t next_window(draw *w)
{
    for (int64_t i = w->n - 1; i > 0 && w->next == 0; i--) {
        const int64_t k = (int64_t)(random_bits(&w->seed) % (uint64_t)(i + 1)), kept = w->order[i];
        w->order[i] = w->order[k];
        w->order[k] = kept;
    }
    const int64_t window = w->order[w->next];
    w->next = (w->next + 1) % w->n;
    return window;
}

static void take_window(const apr_distill *d, draw *w, int64_t place, int64_t window)
{
    const size_t n_bytes = (size_t)d->window * sizeof *d->ids;
    memcpy(w->teacher + place * d->window, d->ids + window * d->window, n_bytes);
    memcpy(w->student + place * d->window, d->ids_student + window * d->window, n_bytes);
}

/* ---- training ---- */

static apr_status measure_rows(apr_distill *d, const draw *w, double *kl, apr_error *err)
{
    apr_train_model model = {.train = d->teacher};
    const apr_train_teacher teacher = apr_train_teacher_of(&model);

    APR_TRY(apr_train_forward(d->teacher, NULL, w->teacher, err));
    return apr_student_measure(d->student, w->student, &teacher, kl, err);
}

/* The mean over the held-out windows. A pass that has places left repeats its last window, which does not count again. */
static apr_status measure(apr_distill *d, draw *w, double *kl, double *mean, apr_error *err)
{
    const int64_t first = d->n_windows - d->n_held_out;
    double sum = 0.0;

    for (int64_t i = 0; i < d->n_held_out; i += d->n_together) {
        const int64_t left = d->n_held_out - i, n = left < d->n_together ? left : d->n_together;
        for (int64_t k = 0; k < d->n_together; k++) take_window(d, w, k, first + i + (k < n ? k : n - 1));
        APR_TRY(measure_rows(d, w, kl, err));
        for (int64_t r = 0; r < n * d->window; r++) sum += kl[r];
    }
    *mean = sum / (double)(d->n_held_out * d->window);
    return APR_OK;
}

static apr_status step(apr_distill *d, const apr_distill_request *q, draw *w, int64_t i, apr_error *err)
{
    apr_train_model model = {.train = d->teacher};
    const apr_train_teacher teacher = apr_train_teacher_of(&model);
    const double rise = i < WARM_UP ? (double)(i + 1) / WARM_UP : 1.0, fall = 1.0 - (double)i / (double)q->n_steps;
    const apr_student_rate rate = {q->rate * rise * fall, q->decay};

    for (int64_t k = 0; k < d->n_together; k++) take_window(d, w, k, next_window(w));
    APR_TRY(apr_train_forward(d->teacher, NULL, w->teacher, err));
    return apr_student_step(d->student, w->student, &teacher, rate, &d->losses[i], err);
}

static double mean_of(const double *x, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) sum += x[i];
    return sum / (double)n;
}

/* The variance of the mean of n numbers. */
static double variance_of(const double *x, int64_t n)
{
    const double mean = mean_of(x, n);
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) sum += (x[i] - mean) * (x[i] - mean);
    return sum / (double)(n - 1) / (double)n;
}

static void judge(apr_distill *d, int64_t n_steps)
{
    d->n_tenth = n_steps / 10 > 2 ? n_steps / 10 : 2;
    const double *const late = d->losses + n_steps - d->n_tenth;
    d->first = mean_of(d->losses, d->n_tenth);
    d->last = mean_of(late, d->n_tenth);
    d->error = sqrt(variance_of(d->losses, d->n_tenth) + variance_of(late, d->n_tenth));
    d->falls = d->first - d->last > 3.0 * d->error;
    d->is_better = d->after < d->before;
}

static void tell(const apr_distill_request *q, int64_t step, double loss)
{
    if (q->on_step != NULL) q->on_step(q->user, step, loss);
}

static apr_status train(apr_distill *d, const apr_distill_request *q, draw *w, double *kl, apr_error *err)
{
    APR_TRY(measure(d, w, kl, &d->before, err));
    tell(q, 0, d->before);
    for (int64_t i = 0; i < q->n_steps; i++) {
        APR_TRY(step(d, q, w, i, err));
        tell(q, i + 1, d->losses[i]);
    }
    APR_TRY(measure(d, w, kl, &d->after, err));
    tell(q, q->n_steps + 1, d->after);
    judge(d, q->n_steps);
    return APR_OK;
}

apr_status apr_distill_run(apr_distill *d, const apr_distill_request *q, apr_error *err)
{
    draw w;
    double *const kl = calloc((size_t)(d->n_together * d->window), sizeof *kl);
    apr_status status = open_draw(&w, d, q->seed, err);

    if (status == APR_OK && kl == NULL) status = apr_no_memory(err, "the losses");
    if (status == APR_OK) status = train(d, q, &w, kl, err);
    close_draw(&w);
    free(kl);
    return status;
}

apr_status apr_distill_verdict(const apr_distill *d, apr_error *err)
{
    if (!d->is_better)
        return apr_fail(err, APR_E_NO,
                        "the student did not improve: on the held-out windows the divergence was %.6g and is %.6g; nothing is written",
                        d->before, d->after);
    if (d->falls) return APR_OK;
    return apr_fail(err, APR_E_NO,
                    "the losses did not fall: the mean of the last %lld steps is %.6g, that of the first %lld is %.6g, and three standard "
                    "errors of the difference are %.3g; nothing is written",
                    (long long)d->n_tenth, d->last, (long long)d->n_tenth, d->first, 3.0 * d->error);
}

/* ---- the trained model ---- */

/* The trained numbers replace the tensor's. Originals that were kept for steps without an exact inverse are dropped: they no longer belong to it. */
static void replace_tensor(apr_model *view, const apr_model *student, const apr_tensor *tensor, const uint8_t *bytes, bool *is_dropped)
{
    apr_tensor *const t = &view->tensors[tensor - student->tensors];
    const apr_tensor *const kept = t->origin_kept != NULL ? apr_model_find(view, t->origin_kept) : NULL;

    if (kept != NULL) is_dropped[kept - view->tensors] = true;
    t->origin_kept = NULL;
    apr_tensor_take_values(
        t, &(apr_tensor){.dtype = t->dtype, .data = bytes, .n_bytes = (uint64_t)apr_row_bytes(t->dtype, apr_tensor_elems(t))});
}

apr_status apr_distill_view(apr_model *view, apr_distill *d, const apr_model *student, apr_error *err)
{
    size_t n;
    const apr_tensor *const *const tensors = apr_student_tensors(d->student, &n);

    APR_TRY(apr_student_finish(d->student, err));
    APR_TRY(apr_view_copy(view, student, 0, err));
    bool *const is_dropped = apr_arena_array(&view->arena, view->n_tensors + 1, sizeof *is_dropped);
    if (is_dropped == NULL) return apr_no_memory(err, "a table of tensors");
    for (size_t i = 0; i < n; i++) replace_tensor(view, student, tensors[i], apr_student_bytes(d->student, i), is_dropped);
    view->stated_crcs = NULL;
    APR_TRY(apr_model_drop(view, view->tensors, is_dropped, err));
    return apr_model_index_names(view, err);
}
