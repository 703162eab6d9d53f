/* student.c - masters, moments, and what a master's own type stores of it. */
#include "runtime/distill/student.h"
#include "formats/base/threads.h"
#include "kernels/rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_MASTERS, LINE_FIRST, LINE_SECOND, N_OWN };

/* A trained tensor: where its numbers begin in each of the student's lines. */
typedef struct trained {
    const apr_tensor *tensor;
    int64_t at, n;
} trained;

struct apr_student {
    apr_train *pass;
    int n_threads;
    trained *tensors; /* [n_tensors], sorted by address to be found */
    size_t n_tensors;
    int64_t n_numbers, n_steps;
    apr_train_line *lines; /* [n_lines]; its own are the last N_OWN */
    size_t n_lines;
    float *own[N_OWN]; /* masters, means of the gradients and of their squares; NULL before the first step */
    apr_student_rate rate;
    bool is_finished;
};

/* ---- opening ---- */

static bool is_float(const apr_tensor *t)
{
    return !apr_tensor_is_packed(t) && (t->dtype == APR_F32 || t->dtype == APR_F16 || t->dtype == APR_BF16);
}

static apr_status refuse_quantized(const apr_tensor *t, const char *path, apr_error *err)
{
    return apr_fail(err, APR_E_UNSUPPORTED,
                    "%s: tensor '%s' is %s, and only f32, f16 and bf16 are trained here; 'aprquant --method ldlq --heal' trains quantized "
                    "weights",
                    path, t->name, apr_tensor_encoding(t));
}

static int by_address(const void *a, const void *b)
{
    const uintptr_t one = (uintptr_t)((const trained *)a)->tensor, two = (uintptr_t)((const trained *)b)->tensor;
    return one < two ? -1 : one > two;
}

static apr_status list_tensors(apr_student *s, const apr_model *model, apr_error *err)
{
    const apr_tensor *const *const all = apr_train_tensors(s->pass, &s->n_tensors);

    s->tensors = calloc(s->n_tensors + 1, sizeof *s->tensors);
    if (s->tensors == NULL) return apr_no_memory(err, "the table of tensors");
    for (size_t i = 0; i < s->n_tensors; i++) {
        if (!is_float(all[i])) return refuse_quantized(all[i], model->path, err);
        s->tensors[i] = (trained){.tensor = all[i], .at = s->n_numbers, .n = apr_tensor_elems(all[i])};
        s->n_numbers += (s->tensors[i].n + 15) / 16 * 16;
    }
    qsort(s->tensors, s->n_tensors, sizeof *s->tensors, by_address);
    return APR_OK;
}

static apr_status make_plan(apr_student *s, apr_error *err)
{
    static const apr_train_line own[N_OWN] = {{"student.masters", "weights in float32", 0},
                                              {"student.gradients", "means of their gradients", 0},
                                              {"student.squares", "means of the gradients' squares", 0}};
    size_t n;
    const apr_train_line *const lines = apr_train_plan(s->pass, &n);

    s->n_lines = n + N_OWN;
    s->lines = calloc(s->n_lines, sizeof *s->lines);
    if (s->lines == NULL) return apr_no_memory(err, "the plan");
    memcpy(s->lines, lines, n * sizeof *lines);
    for (size_t i = 0; i < N_OWN; i++) {
        s->lines[n + i] = own[i];
        s->lines[n + i].bytes = (uint64_t)s->n_numbers * sizeof(float);
    }
    return APR_OK;
}

apr_status apr_student_open(apr_student **student, const apr_model *model, const apr_train_options *options, apr_error *err)
{
    apr_student *const s = calloc(1, sizeof *s);

    *student = NULL;
    if (s == NULL) return apr_no_memory(err, "the student");
    s->n_threads = options->n_threads > 0 ? options->n_threads : apr_all_threads();
    apr_status status = apr_train_open(&s->pass, model, options, err);
    if (status == APR_OK) status = list_tensors(s, model, err);
    if (status == APR_OK) status = make_plan(s, err);
    if (status == APR_OK) *student = s;
    else apr_student_close(s);
    return status;
}

void apr_student_close(apr_student *s)
{
    if (s == NULL) return;
    apr_train_close(s->pass);
    for (int i = 0; i < N_OWN; i++) free(s->own[i]);
    free(s->tensors);
    free(s->lines);
    free(s);
}

const apr_train_line *apr_student_plan(const apr_student *s, size_t *n)
{
    *n = s->n_lines;
    return s->lines;
}

const apr_tensor *const *apr_student_tensors(const apr_student *s, size_t *n) { return apr_train_tensors(s->pass, n); }

/* Masters begin as what the model has. */
static apr_status allocate(apr_student *s, apr_error *err)
{
    if (s->own[LINE_MASTERS] != NULL) return APR_OK;
    for (int i = 0; i < N_OWN; i++) {
        const apr_train_line *const line = &s->lines[s->n_lines - N_OWN + (size_t)i];
        s->own[i] = aligned_alloc(64, line->bytes);
        if (s->own[i] == NULL) return apr_no_memory(err, line->what);
        memset(s->own[i], 0, line->bytes);
    }
    for (size_t i = 0; i < s->n_tensors; i++)
        apr_decode_rows(s->tensors[i].tensor, 0, apr_tensor_rows(s->tensors[i].tensor), s->own[LINE_MASTERS] + s->tensors[i].at);
    return APR_OK;
}

/* ---- a step ---- */

static const trained *find(const apr_student *s, const apr_tensor *tensor)
{
    return bsearch(&(trained){.tensor = tensor}, s->tensors, s->n_tensors, sizeof *s->tensors, by_address);
}

/* What the tensor's type stores of its masters. */
static apr_status give_values(void *user, const apr_tensor *tensor, float *to, apr_error *err)
{
    enum { PIECE = 1024 };
    const apr_student *const s = user;
    const trained *const t = find(s, tensor);
    const apr_codec *const codec = &apr_host_codecs()[tensor->dtype];
    const float *const masters = s->own[LINE_MASTERS] + t->at;

    (void)err;
#pragma omp parallel for num_threads(apr_threads(s->n_threads, t->n / PIECE + 1, 2.0 * (double)t->n))
    for (int64_t i = 0; i < t->n; i += PIECE) {
        float stored[PIECE]; /* room for any of the three types */
        const int64_t n = t->n - i < PIECE ? t->n - i : PIECE;
        codec->encode(masters + i, stored, n);
        codec->decode(stored, to + i, n);
    }
    return APR_OK;
}

/* AdamW (Loshchilov and Hutter 2019). */
static apr_status take_gradient(void *user, const apr_tensor *tensor, const float *gradient, apr_error *err)
{
    const apr_student *const s = user;
    const trained *const t = find(s, tensor);
    const double beta1 = 0.9, beta2 = 0.98, step = (double)s->n_steps;
    const float first_scale = (float)(1.0 / (1.0 - pow(beta1, step))), second_scale = (float)(1.0 / (1.0 - pow(beta2, step)));
    const float rate = (float)s->rate.rate, decay = tensor->rank >= 2 ? (float)(s->rate.rate * s->rate.decay) : 0.0f;
    float *const w = s->own[LINE_MASTERS] + t->at, *const m = s->own[LINE_FIRST] + t->at, *const v = s->own[LINE_SECOND] + t->at;

    (void)err;
#pragma omp parallel for num_threads(apr_threads(s->n_threads, t->n, (double)t->n *APR_OPS_EXP))
    for (int64_t i = 0; i < t->n; i++) {
        m[i] = (float)beta1 * m[i] + (float)(1.0 - beta1) * gradient[i];
        v[i] = (float)beta2 * v[i] + (float)(1.0 - beta2) * gradient[i] * gradient[i];
        w[i] -= rate * (m[i] * first_scale) / (sqrtf(v[i] * second_scale) + 1e-8f) + decay * w[i];
    }
    return APR_OK;
}

apr_status apr_student_step(apr_student *s, const int32_t *ids, const apr_train_teacher *teacher, apr_student_rate rate, double *loss,
                            apr_error *err)
{
    const apr_train_weights weights = {.values = give_values, .gradient = take_gradient, .user = s};

    APR_TRY(allocate(s, err));
    s->rate = rate;
    s->n_steps++;
    return apr_train_gradient(s->pass, &weights, ids, teacher, loss, err);
}

apr_status apr_student_measure(apr_student *s, const int32_t *ids, const apr_train_teacher *teacher, double *kl, apr_error *err)
{
    const apr_train_weights weights = {.values = give_values, .user = s};
    double loss;

    APR_TRY(allocate(s, err));
    return apr_train_loss(s->pass, &weights, ids, teacher, &loss, kl, err);
}

/* ---- the end ---- */

/* The bytes replace the means of the gradients, which are not needed any more: no type takes more than float32. */
apr_status apr_student_finish(apr_student *s, apr_error *err)
{
    APR_TRY(allocate(s, err));
    for (size_t i = 0; i < s->n_tensors; i++) {
        const trained *const t = &s->tensors[i];
        apr_host_codecs()[t->tensor->dtype].encode(s->own[LINE_MASTERS] + t->at, s->own[LINE_FIRST] + t->at, t->n);
    }
    s->is_finished = true;
    return APR_OK;
}

const uint8_t *apr_student_bytes(const apr_student *s, size_t i)
{
    size_t n;
    const trained *const t = find(s, apr_train_tensors(s->pass, &n)[i]);
    return s->is_finished ? (const uint8_t *)(s->own[LINE_FIRST] + t->at) : NULL;
}
