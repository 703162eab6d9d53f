/* student.c - masters, moments, and what a master's own type stores of it. */
#include "runtime/distill/student.h"
#include "formats/base/threads.h"
#include "kernels/rows.h"
#include "runtime/train/train_device.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_MASTERS, LINE_FIRST, LINE_SECOND, LINE_BYTES, N_OWN };

/* A trained tensor: where its numbers begin in each of the student's lines, and where its bytes begin. */
typedef struct trained {
    const apr_tensor *tensor;
    int64_t at, n;
    uint64_t byte_at;
} trained;

struct apr_student {
    apr_train *pass;
    apr_train_device *device; /* NULL: the host */
    int n_threads;
    trained *tensors; /* [n_tensors], sorted by address to be found */
    size_t n_tensors;
    int64_t n_numbers, n_steps;
    uint64_t n_bytes;
    apr_train_line *lines; /* [n_lines]; its own are the last N_OWN */
    size_t n_lines;
    float *own[N_OWN]; /* masters, means of the gradients and of their squares, finished bytes; NULL before the first step */
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
        s->tensors[i] = (trained){.tensor = all[i], .at = s->n_numbers, .n = apr_tensor_elems(all[i]), .byte_at = s->n_bytes};
        s->n_numbers += (s->tensors[i].n + 15) / 16 * 16;
        s->n_bytes += ((uint64_t)s->tensors[i].n * apr_dtypes[all[i]->dtype].bytes_per_block + 63) / 64 * 64;
    }
    qsort(s->tensors, s->n_tensors, sizeof *s->tensors, by_address);
    return APR_OK;
}

static apr_status make_plan(apr_student *s, apr_error *err)
{
    static const apr_train_line own[N_OWN] = {{"student.masters", "weights in float32", 0, false},
                                              {"student.gradients", "means of their gradients", 0, false},
                                              {"student.squares", "means of the gradients' squares", 0, false},
                                              {"student.bytes", "the trained weights, as stored", 0, false}};
    size_t n;
    const apr_train_line *const lines = apr_train_plan(s->pass, &n);

    s->n_lines = n + N_OWN;
    s->lines = calloc(s->n_lines, sizeof *s->lines);
    if (s->lines == NULL) return apr_no_memory(err, "the plan");
    memcpy(s->lines, lines, n * sizeof *lines);
    for (size_t i = 0; i < N_OWN; i++) {
        s->lines[n + i] = own[i];
        s->lines[n + i].bytes = (uint64_t)s->n_numbers * sizeof(float);
        s->lines[n + i].on_device = s->device != NULL;
    }
    apr_train_line *const bytes = &s->lines[n + LINE_BYTES];
    bytes->bytes = s->device != NULL ? s->n_bytes : 0; /* the host's replace the means */
    bytes->on_device = false;
    return APR_OK;
}

apr_status apr_student_open(apr_student **student, const apr_model *model, const apr_train_options *options, apr_error *err)
{
    apr_student *const s = calloc(1, sizeof *s);

    *student = NULL;
    if (s == NULL) return apr_no_memory(err, "the student");
    s->device = options->device;
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
    for (int i = 0; i < N_OWN; i++)
        if (s->device != NULL && i != LINE_BYTES) s->device->cuda->release(s->device->device, s->own[i]);
        else free(s->own[i]);
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

static apr_status allocate_line(apr_student *s, int i, apr_error *err)
{
    const apr_train_line *const line = &s->lines[s->n_lines - N_OWN + (size_t)i];
    void *p = NULL;

    if (line->bytes == 0 || s->own[i] != NULL) return APR_OK;
    if (line->on_device) {
        const apr_status status = s->device->cuda->alloc(s->device->device, line->bytes, line->what, &p, err);
        s->own[i] = p;
        return status != APR_OK ? status : s->device->cuda->clear(s->device->device, p, line->bytes, err);
    }
    s->own[i] = aligned_alloc(64, line->bytes);
    if (s->own[i] == NULL) return apr_no_memory(err, line->what);
    memset(s->own[i], 0, line->bytes);
    return APR_OK;
}

/* Numbers that are on their way between the host and a GPU. */
enum { PIECE_NUMBERS = 1 << 18 };

/* Some rows at a time: at least one. */
static int64_t rows_of_piece(const apr_tensor *t)
{
    const int64_t columns = apr_tensor_columns(t), n = columns > 0 ? PIECE_NUMBERS / columns : 1;
    return n > 0 ? n : 1;
}

static apr_status send_masters(apr_student *s, const trained *t, apr_error *err)
{
    const int64_t n_rows = apr_tensor_rows(t->tensor), most = rows_of_piece(t->tensor), columns = apr_tensor_columns(t->tensor);
    float *const piece = malloc((size_t)((most < n_rows ? most : n_rows) * columns) * sizeof *piece + 1);
    apr_status status = piece != NULL ? APR_OK : apr_no_memory(err, "weights on their way to a GPU");

    for (int64_t row = 0; row < n_rows && status == APR_OK; row += most) {
        const int64_t n = n_rows - row < most ? n_rows - row : most;
        apr_decode_rows(t->tensor, row, n, piece);
        status = s->device->cuda->upload(s->device->device, s->own[LINE_MASTERS] + t->at + row * columns, piece,
                                         (uint64_t)(n * columns) * sizeof *piece, err);
    }
    free(piece);
    return status;
}

/* Masters begin as what the model has. */
static apr_status allocate(apr_student *s, apr_error *err)
{
    if (s->own[LINE_MASTERS] != NULL) return APR_OK;
    for (int i = N_OWN; i-- > 0;) APR_TRY(allocate_line(s, i, err)); /* masters last: they say that all are there */
    for (size_t i = 0; i < s->n_tensors; i++) {
        const trained *const t = &s->tensors[i];
        if (s->device != NULL) APR_TRY(send_masters(s, t, err));
        else apr_decode_rows(t->tensor, 0, apr_tensor_rows(t->tensor), s->own[LINE_MASTERS] + t->at);
    }
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

static const double BETA1 = 0.9, BETA2 = 0.98, EPSILON = 1e-8;

/* AdamW (Loshchilov and Hutter 2019). */
static apr_status take_gradient(void *user, const apr_tensor *tensor, const float *gradient, apr_error *err)
{
    const apr_student *const s = user;
    const trained *const t = find(s, tensor);
    const double step = (double)s->n_steps;
    const float first_scale = (float)(1.0 / (1.0 - pow(BETA1, step))), second_scale = (float)(1.0 / (1.0 - pow(BETA2, step)));
    const float rate = (float)s->rate.rate, decay = tensor->rank >= 2 ? (float)(s->rate.rate * s->rate.decay) : 0.0f;
    float *const w = s->own[LINE_MASTERS] + t->at, *const m = s->own[LINE_FIRST] + t->at, *const v = s->own[LINE_SECOND] + t->at;

    (void)err;
#pragma omp parallel for num_threads(apr_threads(s->n_threads, t->n, (double)t->n *APR_OPS_EXP))
    for (int64_t i = 0; i < t->n; i++) {
        m[i] = (float)BETA1 * m[i] + (float)(1.0 - BETA1) * gradient[i];
        v[i] = (float)BETA2 * v[i] + (float)(1.0 - BETA2) * gradient[i] * gradient[i];
        w[i] -= rate * (m[i] * first_scale) / (sqrtf(v[i] * second_scale) + (float)EPSILON) + decay * w[i];
    }
    return APR_OK;
}

/* ---- the same on a GPU ---- */

static bool is_there(void *user, const apr_tensor *tensor)
{
    (void)user, (void)tensor;
    return true;
}

static apr_status give_values_there(void *user, const apr_tensor *tensor, float *to, apr_error *err)
{
    const apr_student *const s = user;
    const trained *const t = find(s, tensor);
    const apr_cuda_api *const cuda = s->device->cuda;
    return cuda->grad->stored(s->device->device, s->own[LINE_MASTERS] + t->at, t->n, tensor->dtype, to, err);
}

static apr_status take_gradient_there(void *user, const apr_tensor *tensor, const float *gradient, apr_error *err)
{
    const apr_student *const s = user;
    const trained *const t = find(s, tensor);
    const double step = (double)s->n_steps;
    const apr_cuda_adam adam = {.mean_decay = (float)BETA1,
                                .mean_share = (float)(1.0 - BETA1),
                                .power_decay = (float)BETA2,
                                .power_share = (float)(1.0 - BETA2),
                                .mean_scale = (float)(1.0 / (1.0 - pow(BETA1, step))),
                                .power_scale = (float)(1.0 / (1.0 - pow(BETA2, step))),
                                .epsilon = (float)EPSILON};
    const float decay = tensor->rank >= 2 ? (float)(s->rate.rate * s->rate.decay) : 0.0f;

    return s->device->cuda->grad->adamw(s->device->device, &adam, (float)s->rate.rate, decay, gradient, t->n, s->own[LINE_MASTERS] + t->at,
                                        s->own[LINE_FIRST] + t->at, s->own[LINE_SECOND] + t->at, err);
}

/* learns: with its steps. */
static apr_train_weights weights_of(apr_student *s, bool learns)
{
    if (s->device == NULL) return (apr_train_weights){.values = give_values, .gradient = learns ? take_gradient : NULL, .user = s};
    return (apr_train_weights){
        .values = give_values_there, .gradient = learns ? take_gradient_there : NULL, .is_on_device = is_there, .user = s};
}

apr_status apr_student_step(apr_student *s, const int32_t *ids, const apr_train_teacher *teacher, apr_student_rate rate, double *loss,
                            apr_error *err)
{
    const apr_train_weights weights = weights_of(s, true);

    APR_TRY(allocate(s, err));
    s->rate = rate;
    s->n_steps++;
    return apr_train_gradient(s->pass, &weights, ids, teacher, loss, err);
}

apr_status apr_student_measure(apr_student *s, const int32_t *ids, const apr_train_teacher *teacher, double *kl, apr_error *err)
{
    const apr_train_weights weights = weights_of(s, false);
    double loss;

    APR_TRY(allocate(s, err));
    return apr_train_loss(s->pass, &weights, ids, teacher, &loss, kl, err);
}

/* ---- the end ---- */

static uint8_t *bytes_of(const apr_student *s, const trained *t)
{
    return s->device != NULL ? (uint8_t *)(void *)s->own[LINE_BYTES] + t->byte_at : (uint8_t *)(void *)(s->own[LINE_FIRST] + t->at);
}

/* From the GPU: some masters at a time. */
static apr_status fetch_bytes(const apr_student *s, const trained *t, apr_error *err)
{
    const size_t size = (size_t)apr_dtypes[t->tensor->dtype].bytes_per_block;
    float *const piece = malloc(PIECE_NUMBERS * sizeof *piece);
    apr_status status = piece != NULL ? APR_OK : apr_no_memory(err, "weights on their way from a GPU");

    for (int64_t i = 0; i < t->n && status == APR_OK; i += PIECE_NUMBERS) {
        const int64_t n = t->n - i < PIECE_NUMBERS ? t->n - i : PIECE_NUMBERS;
        const float *const from = s->own[LINE_MASTERS] + t->at + i;
        status = s->device->cuda->download(s->device->device, piece, from, (uint64_t)n * sizeof *piece, err);
        if (status == APR_OK) apr_host_codecs()[t->tensor->dtype].encode(piece, bytes_of(s, t) + (size_t)i * size, n);
    }
    free(piece);
    return status;
}

/* On the host the bytes replace the means of the gradients, which are not needed any more: no type takes more than float32. */
apr_status apr_student_finish(apr_student *s, apr_error *err)
{
    APR_TRY(allocate(s, err));
    for (size_t i = 0; i < s->n_tensors; i++) {
        const trained *const t = &s->tensors[i];
        if (s->device != NULL) APR_TRY(fetch_bytes(s, t, err));
        else apr_host_codecs()[t->tensor->dtype].encode(s->own[LINE_MASTERS] + t->at, bytes_of(s, t), t->n);
    }
    s->is_finished = true;
    return APR_OK;
}

const uint8_t *apr_student_bytes(const apr_student *s, size_t i)
{
    size_t n;
    const trained *const t = find(s, apr_train_tensors(s->pass, &n)[i]);
    return s->is_finished ? bytes_of(s, t) : NULL;
}
