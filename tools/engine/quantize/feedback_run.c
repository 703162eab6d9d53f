/* feedback_run.c - one run of error feedback: opening, a plan of GPU memory, passes over the text, sums, tensors. */
#include "tools/engine/quantize/feedback_internal.h"

#include "convert/naming.h"
#include "formats/base/clock.h"
#include "formats/base/crc32.h"
#include "kernels/rows.h"
#include "runtime/check/subject.h"
#include "tools/engine/quantize/kept.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static apr_session_options session_options(const apr_feedback_run *run)
{
    apr_session_options options = apr_session_defaults;

    options.n_ctx = run->request.window;
    options.n_batch = run->request.window;
    options.n_logits = 1;
    options.kv_dtype = APR_F32;
    options.weights_location = run->n_passes > 0 ? "in memory" : NULL;
    options.cuda = run->cuda;
    options.ordinal = run->ordinal;
    options.headroom_bytes = 0; /* fit_plan has reserved memory already */
    return options;
}

static apr_status open_session(apr_feedback_run *run, apr_error *err)
{
    const apr_session_options options = session_options(run);
    return apr_session_open(&run->session, &run->model, &options, err);
}

/* Opens the session again, on the changed `between`. */
static apr_status feedback_run_reopen(apr_feedback_run *run, apr_error *err)
{
    apr_session_close(run->session);
    run->session = NULL;
    apr_model_close(&run->model);
    APR_TRY(apr_canonical(&run->model, &run->between, err));
    return open_session(run, err);
}

static apr_status read_text(apr_feedback_run *run, apr_error *err)
{
    const apr_feedback_request *const r = &run->request;
    apr_error own = {0};
    size_t n_ids;

    APR_TRY(apr_tokenizer_of_model(&run->tokenizer, &run->model, err));
    const apr_text_input *const text = r->calibration;
    const apr_subject subject = {.path = run->conversion->view.path, .vocab = &run->model.vocab, .tokenizer = run->tokenizer};
    const apr_status status = apr_subject_encode_text(&subject, text->bytes, text->n_bytes, &run->ids, &n_ids, &own);
    if (status != APR_OK) return apr_fail(err, status, "%s: %s", text->path, own.text);
    run->text_crc = apr_crc32(0, text->bytes, text->n_bytes);
    run->n_ids = (int64_t)n_ids;
    if (r->n_tokens > 0 && r->n_tokens < run->n_ids) run->n_ids = r->n_tokens;
    run->n_ids = run->n_ids / r->window * r->window; /* an incomplete last window is left out */
    apr_set_window_bos(subject.vocab, run->ids, (size_t)run->n_ids, r->window);
    if (run->n_ids > 0) return APR_OK;
    return apr_fail(err, APR_E_USAGE, "%s has %zu tokens%s: calibration needs at least one full window of %lld (--window)", text->path,
                    n_ids, r->n_tokens > 0 ? ", and --tokens may allow fewer" : "", (long long)r->window);
}

/* Bytes of one layer input's sums on a GPU. */
static uint64_t sums_bytes(const apr_feedback_run *run, size_t input)
{
    const apr_layer_input *const f = &run->inputs.inputs[input];
    return apr_device_sums_bytes(f->width) * (uint64_t)(f->n_experts > 0 ? f->n_experts : 1);
}

/* Tokens of a text that the model writes: whole windows. */
static int64_t own_tokens(const apr_feedback_run *run)
{
    const apr_feedback_request *const r = &run->request;
    return (r->n_tokens > 0 ? r->n_tokens : APR_OWN_TOKENS) / r->window * r->window;
}

/* In a session of its own, which is closed before the text is read. */
static apr_status write_windows(apr_feedback_run *run, const apr_own_text *how, const apr_session_options *options, apr_error *err)
{
    apr_session *writer = NULL;

    if (how->n_before == how->n_windows) return APR_OK; /* an earlier run wrote all of them */
    apr_session_close(run->session);
    run->session = NULL;
    apr_status status = apr_own_text_open(&writer, how, &run->model, options, 0, err);
    if (status == APR_OK) status = apr_own_text_write(how, writer, run->ids, err);
    apr_session_close(writer);
    return status == APR_OK ? open_session(run, err) : status;
}

static apr_status write_text(apr_feedback_run *run, apr_error *err)
{
    const apr_feedback_request *const r = &run->request;
    const double start = apr_seconds_now();
    const int32_t begin = apr_begin_token(&run->model.vocab);
    apr_own_text how = {.window = r->window,
                        .n_windows = run->n_ids / r->window,
                        .n_tokens_known = (int64_t)run->model.vocab.n_tokens,
                        .has_begin = begin >= 0,
                        .begin = begin};
    const apr_session_options options = session_options(run);

    if (run->n_ids == 0)
        return apr_fail(err, APR_E_USAGE, "--tokens %lld is less than one full window of %lld (--window)",
                        (long long)(r->n_tokens > 0 ? r->n_tokens : APR_OWN_TOKENS), (long long)r->window);
    APR_TRY(apr_own_text_forecast(&run->writer, &how, &run->model, &options, 0, err));
    if (r->plan_only) return APR_OK;
    run->ids = (uint64_t)run->n_ids < SIZE_MAX / sizeof *run->ids ? malloc((size_t)run->n_ids * sizeof *run->ids) : NULL;
    if (run->ids == NULL) return apr_no_memory(err, "the tokens of a text");
    const apr_progress progress = apr_listener_begin(run->listener);
    how.progress = &progress;
    apr_kept_text kept = {.target = r->kept, .how = &how, .ids = run->ids, .listener = run->listener};
    apr_status status = r->kept != NULL ? apr_kept_text_open(&kept, &how, err) : APR_OK;
    if (status == APR_OK) status = write_windows(run, &how, &options, err);
    apr_kept_text_close(&kept);
    apr_listener_end(run->listener);
    if (status == APR_OK) run->text_crc = apr_crc32(0, run->ids, (size_t)run->n_ids * sizeof *run->ids);
    run->write_seconds = apr_seconds_now() - start;
    return status;
}

const char *apr_feedback_text_name(const apr_feedback_run *run)
{
    const apr_text_input *const text = run->request.calibration;
    return text != NULL ? text->path : "text that the model wrote itself";
}

apr_status apr_feedback_run_note(const apr_feedback_run *run, apr_conversion *conversion, apr_error *err)
{
    const char *const name = apr_feedback_text_name(run), *const slash = strrchr(name, '/');
    return apr_conversion_note_text(conversion, slash != NULL ? slash + 1 : name, run->text_crc, run->n_ids, run->request.loss_weighted,
                                    err);
}

/* Finds the items that error feedback can encode by their types, and those that it does encode. */
static apr_status find_taken(apr_feedback_run *run, apr_error *err)
{
    const apr_conversion *const c = run->conversion;
    size_t n_taken = 0;

    for (size_t i = 0; i < c->layout.n_tensors; i++) {
        const apr_pipe_item *const item = &c->items[i];
        size_t first;
        const bool is_same = item->to == item->from->dtype && !apr_tensor_is_packed(item->from);
        run->facts[i].is_wanted = !item->is_scales && !item->is_commons && !item->same_numbers && !is_same && item->from->rank >= 2 &&
                                  apr_feedback_supports(item->to);
        run->facts[i].is_taken = run->facts[i].is_wanted && apr_feedback_links_of_item(&run->links, i, &first) > 0;
        n_taken += run->facts[i].is_taken;
    }
    if (n_taken > 0) return APR_OK;
    return apr_fail(err, APR_E_USAGE, "--method ldlq has nothing to do: no matrix of the layers is converted to a block type");
}

static apr_status make_tables(apr_feedback_run *run, apr_error *err)
{
    size_t n_sums = 0;

    run->first_sum = calloc(run->inputs.n_inputs + 1, sizeof *run->first_sum);
    run->is_summed = calloc(run->inputs.n_inputs + 1, sizeof *run->is_summed);
    if (run->first_sum == NULL || run->is_summed == NULL) return apr_no_memory(err, "the inputs of tensors");
    for (size_t i = 0; i < run->inputs.n_inputs; i++) {
        run->first_sum[i] = n_sums;
        n_sums += run->inputs.inputs[i].n_experts > 0 ? (size_t)run->inputs.inputs[i].n_experts : 1;
    }
    run->sums = calloc(n_sums + 1, sizeof *run->sums);
    run->device_sums = calloc(n_sums + 1, sizeof *run->device_sums);
    run->facts = calloc(run->conversion->layout.n_tensors + 1, sizeof *run->facts);
    run->encoded = calloc(run->conversion->layout.n_tensors + 1, sizeof *run->encoded);
    return run->sums != NULL && run->device_sums != NULL && run->facts != NULL && run->encoded != NULL
               ? APR_OK
               : apr_no_memory(err, "the tensors of a conversion");
}

/* For resumed runs: what the bytes depend on. A GPU's bytes differ from the host's. */
static void set_terms(apr_feedback_run *run)
{
    const apr_feedback_request *const r = &run->request;
    snprintf(run->terms, sizeof run->terms,
             "ldlq with %" PRId64 " tokens in windows of %" PRId64 " of a text %08" PRIx32 ", damping %a, %d rounds%s%s", run->n_ids,
             r->window, run->text_crc, r->options.damping, r->options.rounds, r->loss_weighted ? ", weighted by the loss" : "",
             run->gpu != NULL ? ", on a GPU" : "");
}

/* A sequential run sums all inputs of a layer at once. */
static void add_layer(apr_feedback_run *run, int layer)
{
    uint64_t own = 0;
    for (size_t input = 0; input < run->inputs.n_inputs; input++)
        if (run->inputs.inputs[input].layer == layer) own += sums_bytes(run, input);
    if (own > run->largest_sums) run->largest_sums = own;
}

/* Plans the GPU memory for all items with error feedback, even if there is no GPU. */
static apr_status plan_device(apr_feedback_run *run, apr_error *err)
{
    const apr_conversion *const c = run->conversion;

    run->plan = (apr_feedback_plan){0};
    run->largest_sums = run->all_sums = 0;
    for (size_t i = 0; i < c->layout.n_tensors; i++) {
        const apr_tensor *const from = c->items[i].from;
        size_t first;
        const size_t n = run->facts[i].is_taken ? apr_feedback_links_of_item(&run->links, i, &first) : 0;
        uint64_t own = 0;
        if (!run->facts[i].is_taken) continue;
        APR_TRY(apr_feedback_plan_item(&run->plan, c->items[i].to, apr_tensor_rows(from) / apr_feedback_matrices(from),
                                       apr_tensor_columns(from), err));
        for (size_t k = first; k < first + n; k++)
            if (k == first || run->links.links[k].input != run->links.links[k - 1].input) own += sums_bytes(run, run->links.links[k].input);
        if (own > run->largest_sums) run->largest_sums = own;
    }
    for (size_t input = 0; input < run->inputs.n_inputs; input++) {
        run->all_sums += sums_bytes(run, input);
        if (run->request.sequential) add_layer(run, run->inputs.inputs[input].layer);
    }
    run->plan.bytes[APR_FEEDBACK_SUMS] = run->all_sums;
    return APR_OK;
}

/* Most rows that one token has of an input: more than one where each head has a matrix of its own. */
static int64_t rows_of_token(const apr_feedback_run *run)
{
    int64_t most = 1;

    for (size_t i = 0; i < run->inputs.n_inputs; i++) {
        const apr_layer_input *const f = &run->inputs.inputs[i];
        const int64_t rows = f->n_experts > 0 ? 1 : apr_session_program(run->session)->values[f->value].width / f->width;
        most = rows > most ? rows : most;
    }
    return most;
}

static apr_status open_weights(apr_feedback_run *run, apr_error *err)
{
    const int64_t window = run->request.window;
    apr_error own = {0};

    if (!run->request.loss_weighted || run->n_ids == 0) return APR_OK;
    run->row_tokens = calloc((size_t)(window * rows_of_token(run)), sizeof *run->row_tokens);
    run->row_weights = calloc((size_t)(window * rows_of_token(run)), sizeof *run->row_weights);
    if (run->row_tokens == NULL || run->row_weights == NULL) return apr_no_memory(err, "the weights of tokens");
    const apr_status status = apr_loss_weights_open(&run->weights, &run->model, &run->inputs, window, run->n_ids, &own);
    return status == APR_OK ? APR_OK : apr_fail(err, status, "--loss-weighted needs a backward pass: %s", own.text);
}

/* The backward pass reads the model as it was opened: before a sequential run replaces tensors of it. */
static apr_status make_weights(apr_feedback_run *run, apr_error *err)
{
    const double start = apr_seconds_now();

    if (run->weights == NULL || apr_loss_weights_of(run->weights, 0) != NULL) return APR_OK;
    const apr_progress progress = apr_listener_begin(run->listener);
    const apr_status status = apr_loss_weights_make(run->weights, run->ids, &progress, err);
    apr_listener_end(run->listener);
    run->weights_seconds = apr_seconds_now() - start;
    return status;
}

static apr_status open_all(apr_feedback_run *run, apr_error *err)
{
    const apr_feedback_request *const r = &run->request;

    APR_TRY(apr_view_without_provenance(&run->between, &run->conversion->view, err));
    APR_TRY(apr_canonical(&run->model, &run->between, err));
    if (r->calibration != NULL) APR_TRY(read_text(run, err));
    APR_TRY(open_session(run, err));
    APR_TRY(apr_layer_inputs_of(&run->inputs, run->session, err));
    APR_TRY(apr_feedback_links_of(&run->links, run->conversion, run->session, &run->inputs, err));
    APR_TRY(make_tables(run, err));
    APR_TRY(find_taken(run, err));
    plan_device(run, NULL); /* errors are reported when a GPU is used */
    if (r->calibration == NULL) run->n_ids = own_tokens(run);
    APR_TRY(open_weights(run, err)); /* refuses a model before it writes a text */
    if (r->calibration == NULL) APR_TRY(write_text(run, err));
    set_terms(run);
    return APR_OK;
}

apr_status apr_feedback_run_open(apr_feedback_run **run, const apr_feedback_request *request, const apr_conversion *conversion,
                                 const apr_listener *listener, apr_error *err)
{
    apr_feedback_run *const r = *run = calloc(1, sizeof *r);

    if (r == NULL) return apr_no_memory(err, "a calibration");
    r->request = *request;
    r->conversion = conversion;
    r->listener = listener;
    const int64_t most = conversion->view.hparams.max_position_embeddings;
    if (most > 0 && r->request.window > most) r->request.window = most;
    const apr_status status = open_all(r, err);
    if (status == APR_OK) return APR_OK;
    apr_feedback_run_close(r);
    *run = NULL;
    return status;
}

void apr_feedback_run_close(apr_feedback_run *run)
{
    if (run == NULL) return;
    apr_feedback_run_to_host(run);
    for (size_t i = 0; run->is_summed != NULL && run->sums != NULL && i < run->inputs.n_inputs; i++)
        for (int64_t e = 0; e == 0 || e < run->inputs.inputs[i].n_experts; e++)
            apr_hessian_close(&run->sums[run->first_sum[i] + (size_t)e]);
    for (size_t i = 0; run->encoded != NULL && i < run->conversion->layout.n_tensors; i++) free(run->encoded[i]);
    apr_feedback_close(&run->prepared);
    apr_session_close(run->session);
    apr_feedback_links_close(&run->links);
    apr_loss_weights_close(run->weights);
    apr_layer_inputs_close(&run->inputs);
    apr_tokenizer_close(run->tokenizer);
    apr_model_close(&run->model);
    apr_model_close(&run->between);
    free(run->last);
    free(run->values);
    free(run->ids);
    free(run->sums);
    free(run->device_sums);
    free(run->row_tokens);
    free(run->row_weights);
    free(run->first_sum);
    free(run->is_summed);
    free(run->facts);
    free(run->encoded);
    free(run);
}

/* ---- a GPU ---- */

/* Sums get the memory that is left, or less if asked for. At least the sums of the largest tensor must fit. */
static apr_status fit_plan(apr_feedback_run *run, apr_cuda_device *device, apr_error *err)
{
    const uint64_t mib = 1 << 20, reserve = 1 << 30; /* for encoding all other tensors, and rounding of allocations */
    const apr_session_options options = session_options(run);
    uint64_t n_free, n_total;
    apr_plan session = {0};

    APR_TRY(plan_device(run, err));
    APR_TRY(run->cuda->memory(device, &n_free, &n_total, err));
    APR_TRY(apr_session_forecast(&session, &run->model, &options, err));
    run->session_bytes = session.device_bytes;
    apr_plan_close(&session);
    uint64_t *const sums = &run->plan.bytes[APR_FEEDBACK_SUMS];
    *sums = 0;
    const uint64_t others = apr_feedback_plan_bytes(&run->plan) + run->session_bytes + reserve;
    const uint64_t left = n_free > others ? n_free - others : 0, asked = run->request.memory_bytes;
    *sums = asked > 0 && asked < left ? asked : left;
    if (*sums > run->all_sums) *sums = run->all_sums;
    if (*sums < run->largest_sums) *sums = run->largest_sums;
    if (*sums <= left) return APR_OK;
    return apr_fail(err, APR_E_MEMORY,
                    "error feedback needs %" PRIu64 " MiB of GPU memory: the model to read the text with %" PRIu64
                    ", sums of inputs at least %" PRIu64 ", factors %" PRIu64 ", rows %" PRIu64 ", libraries %" PRIu64 ", all else %" PRIu64
                    "; %" PRIu64 " MiB are free; use --device host",
                    (others + *sums) / mib, run->session_bytes / mib, *sums / mib, run->plan.bytes[APR_FEEDBACK_FACTORS] / mib,
                    run->plan.bytes[APR_FEEDBACK_ROWS] / mib, run->plan.bytes[APR_FEEDBACK_LIBRARIES] / mib, reserve / mib, n_free / mib);
}

static void feedback_run_drop_sums(apr_feedback_run *run);
static apr_status enter(apr_feedback_run *run, apr_cuda_device *device, apr_error *err)
{
    feedback_run_drop_sums(run);
    apr_session_close(run->session);
    run->session = NULL;
    APR_TRY(fit_plan(run, device, err));
    APR_TRY(apr_feedback_device_open(&run->gpu, run->cuda, device, &run->plan, err));
    run->solver = apr_feedback_device_solver(run->gpu);
    set_terms(run);
    return open_session(run, err);
}

apr_status apr_feedback_run_to_gpu(apr_feedback_run *run, const apr_cuda_api *cuda, apr_cuda_device *device, int ordinal, apr_error *err)
{
    run->cuda = cuda;
    run->ordinal = ordinal;
    const apr_status status = enter(run, device, err);
    if (status != APR_OK) apr_feedback_run_to_host(run);
    return status;
}

void apr_feedback_run_to_host(apr_feedback_run *run)
{
    if (run->cuda == NULL) return;
    if (run->gpu != NULL) feedback_run_drop_sums(run);
    apr_session_close(run->session);
    run->session = NULL;
    apr_feedback_device_close(run->gpu);
    run->gpu = NULL;
    run->cuda = NULL;
    set_terms(run);
}

const char *apr_feedback_run_terms(const apr_feedback_run *run) { return run->terms; }

enum { ROWS_AT_ONCE = 4096 /* of a matrix, as float32 */ };

/* ---- sums ---- */

static apr_hessian *sums_of(const apr_feedback_run *run, size_t input, int64_t expert)
{
    return &run->sums[run->first_sum[input] + expert];
}

static apr_device_sums *device_sums_of(const apr_feedback_run *run, size_t input, int64_t expert)
{
    return &run->device_sums[run->first_sum[input] + expert];
}

static uint64_t input_bytes(const apr_feedback_run *run, const apr_layer_input *input)
{
    return (uint64_t)apr_layer_input_matrices(input) *
           (run->gpu != NULL ? apr_device_sums_bytes(input->width) : apr_hessian_bytes(input->width));
}

uint64_t apr_feedback_run_memory(const apr_feedback_run *run)
{
    if (run->gpu != NULL) return run->plan.bytes[APR_FEEDBACK_SUMS];
    return run->request.memory_bytes > 0 ? run->request.memory_bytes : (uint64_t)2 << 30;
}

static void drop_sums(apr_feedback_run *run, size_t input)
{
    for (int64_t e = 0; e < apr_layer_input_matrices(&run->inputs.inputs[input]); e++) {
        if (run->prepared_from == sums_of(run, input, e)->sum) run->prepared_from = NULL;
        if (run->prepared_there == device_sums_of(run, input, e)->at) run->prepared_there = NULL;
        apr_hessian_close(sums_of(run, input, e));
        if (run->gpu != NULL) apr_device_sums_drop(run->gpu, device_sums_of(run, input, e));
    }
    run->is_summed[input] = false;
}

/* Frees the sums of all layer inputs. */
static void feedback_run_drop_sums(apr_feedback_run *run)
{
    for (size_t input = 0; input < run->inputs.n_inputs; input++) drop_sums(run, input);
}

/* The weights of the rows that are visited, by their tokens. */
static const float *weights_of_rows(const apr_feedback_run *run, size_t input, int64_t n_rows)
{
    const float *const weights = apr_loss_weights_of(run->weights, input) + run->window_at;

    for (int64_t r = 0; r < n_rows; r++) run->row_weights[r] = weights[run->row_tokens[r]];
    return run->row_weights;
}

static apr_status add_rows(void *user, size_t input, int64_t expert, int64_t n_rows, const float *rows, apr_error *err)
{
    apr_feedback_run *const run = user;
    apr_hessian *const sums = sums_of(run, input, expert >= 0 ? expert : 0);
    const int64_t width = run->inputs.inputs[input].width;

    if (run->gpu != NULL)
        return apr_device_sums_add(run->gpu, device_sums_of(run, input, expert >= 0 ? expert : 0), width, rows, false, n_rows, err);
    if (sums->sum == NULL) APR_TRY(apr_hessian_open(sums, width, err));
    if (run->weights != NULL) return apr_hessian_add_weighted(sums, rows, weights_of_rows(run, input, n_rows), n_rows, err);
    apr_hessian_add(sums, rows, n_rows);
    return APR_OK;
}

static apr_status add_rows_there(void *user, size_t input, int64_t n_rows, const float *rows, apr_error *err)
{
    apr_feedback_run *const run = user;
    return apr_device_sums_add(run->gpu, device_sums_of(run, input, 0), run->inputs.inputs[input].width, rows, true, n_rows, err);
}

/* Evaluates the text once and sums all wanted layer inputs. */
static apr_status pass_text(apr_feedback_run *run, const bool *wanted, apr_error *err)
{
    const apr_pass pass = {.wanted = wanted,
                           .visit = add_rows,
                           .visit_device = run->gpu != NULL ? add_rows_there : NULL,
                           .tokens = run->row_tokens,
                           .user = run};
    const int64_t window = run->request.window;

    APR_TRY(make_weights(run, err));
    const double start = apr_seconds_now();
    const apr_progress progress = apr_listener_begin(run->listener);
    apr_status status = APR_OK;
    if (run->session == NULL) APR_TRY(feedback_run_reopen(run, err)); /* closed when the run left the GPU */
    run->n_passes++;
    for (int64_t at = 0; at < run->n_ids && status == APR_OK; at += window) {
        apr_progress_report(&progress, (uint64_t)at, (uint64_t)run->n_ids, "calibration, tokens");
        run->window_at = at;
        status = apr_layer_inputs_visit(&run->inputs, run->session, &pass, run->ids + at, window, err);
    }
    apr_listener_end(run->listener);
    for (size_t i = 0; i < run->inputs.n_inputs; i++) run->is_summed[i] |= wanted[i];
    run->pass_seconds += apr_seconds_now() - start;
    return status;
}

/* ---- which tensors come next ---- */

static bool is_left(const apr_feedback_run *run, size_t item)
{
    return run->facts[item].is_taken && !run->facts[item].is_encoded && run->conversion->items[item].state == APR_TENSOR_WANTED;
}

/* Marks the layer inputs of an item that have no sums yet; returns the bytes of their sums. */
static uint64_t want_inputs(const apr_feedback_run *run, size_t item, bool *wanted)
{
    size_t first;
    const size_t n = apr_feedback_links_of_item(&run->links, item, &first);
    uint64_t bytes = 0;

    for (size_t i = first; i < first + n; i++) {
        const size_t input = run->links.links[i].input;
        if (wanted[input] || run->is_summed[input]) continue;
        wanted[input] = true;
        bytes += input_bytes(run, &run->inputs.inputs[input]);
    }
    return bytes;
}

static bool keeps_sums(const apr_feedback_run *run) { return run->request.kept != NULL && run->gpu == NULL && !run->request.sequential; }

/* Gets the wanted sums from what an earlier run kept. If that is not enough for the item, evaluates the text for all that are missing. */
static apr_status sum_wanted(apr_feedback_run *run, size_t item, bool *wanted, apr_error *err)
{
    bool is_left_out = false;
    size_t first;

    if (keeps_sums(run)) APR_TRY(apr_kept_sums_read(run, wanted, err));
    const size_t n = apr_feedback_links_of_item(&run->links, item, &first);
    for (size_t i = first; i < first + n; i++) is_left_out |= !run->is_summed[run->links.links[i].input];
    if (!is_left_out) return APR_OK;
    for (size_t input = 0; input < run->inputs.n_inputs; input++) wanted[input] &= !run->is_summed[input];
    APR_TRY(pass_text(run, wanted, err));
    return keeps_sums(run) ? apr_kept_sums_write(run, run->is_summed, err) : APR_OK;
}

/* Gets the sums for this item, and for as many following items as memory allows. */
static apr_status sum_from(apr_feedback_run *run, size_t item, apr_error *err)
{
    bool *const wanted = calloc(run->inputs.n_inputs + 1, sizeof *wanted), *const more = calloc(run->inputs.n_inputs + 1, sizeof *more);
    uint64_t bytes = 0;

    if (wanted == NULL || more == NULL) {
        free(wanted);
        free(more);
        return apr_no_memory(err, "the inputs of tensors");
    }
    for (size_t i = item; i < run->conversion->layout.n_tensors; i++) {
        if (!is_left(run, i)) continue;
        memcpy(more, wanted, run->inputs.n_inputs * sizeof *more);
        const uint64_t its = want_inputs(run, i, more);
        if (i > item && bytes + its > apr_feedback_run_memory(run)) break;
        memcpy(wanted, more, run->inputs.n_inputs * sizeof *more);
        bytes += its;
    }
    const apr_status status = bytes > 0 ? sum_wanted(run, item, wanted, err) : APR_OK;
    free(wanted);
    free(more);
    return status;
}

/* Frees sums that no further tensor needs. */
static void drop_idle_sums(apr_feedback_run *run)
{
    for (size_t input = 0; input < run->inputs.n_inputs; input++) {
        bool is_needed = false;
        for (size_t i = 0; i < run->links.n_links && !is_needed && run->is_summed[input]; i++)
            is_needed = run->links.links[i].input == input && is_left(run, run->links.links[i].item);
        if (run->is_summed[input] && !is_needed) drop_sums(run, input);
    }
}

/* ---- one tensor ---- */

static void merge(apr_hessian *into, const apr_hessian *from)
{
    for (int64_t i = 0; i < into->n * into->n; i++) into->sum[i] += from->sum[i];
    into->n_tokens += from->n_tokens;
}

static int64_t tokens_of(const apr_feedback_run *run, const apr_feedback_link *links, size_t n)
{
    int64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += run->gpu != NULL ? device_sums_of(run, links[i].input, links[i].expert)->n_tokens
                                : sums_of(run, links[i].input, links[i].expert)->n_tokens;
    return sum;
}

/* What a matrix is encoded with: factors on the host, or those on the GPU. Both NULL: no tokens, so no feedback. */
typedef struct ready {
    const apr_feedback *host;
    apr_feedback_device *gpu;
} ready;

/* prepare on a GPU. Factors are reused by following matrices with the same sums. */
static apr_status prepare_there(apr_feedback_run *run, apr_dtype to, const apr_feedback_link *links, size_t n, int64_t *n_tokens,
                                ready *prepared, apr_error *err)
{
    const apr_device_sums **const all = calloc(n, sizeof *all);
    apr_feedback_options options = run->request.options;
    bool is_empty = false;
    apr_status status = APR_OK;

    *prepared = (ready){0};
    options.group = apr_feedback_group(to);
    if (all == NULL) return apr_no_memory(err, "the inputs of tensors");
    for (size_t i = 0; i < n; i++) all[i] = device_sums_of(run, links[i].input, links[i].expert);
    *n_tokens = tokens_of(run, links, n);
    if (*n_tokens > 0 && (n > 1 || run->prepared_there != all[0]->at || run->group_there != options.group)) {
        run->prepared_there = NULL;
        status = apr_feedback_device_prepare(run->gpu, all, n, &options, run->reader_name, &is_empty, err);
        if (status == APR_OK && n == 1 && !is_empty) run->prepared_there = all[0]->at, run->group_there = options.group;
    }
    if (*n_tokens > 0 && !is_empty) prepared->gpu = run->gpu;
    free(all);
    return status;
}

/* Computes the factors for a matrix. If several operations use it (a shared layer), their sums are added. Factors are reused by following
 * matrices with the same sums. */
static apr_status prepare(apr_feedback_run *run, apr_dtype to, const apr_feedback_link *links, size_t n, int64_t *n_tokens,
                          const apr_feedback **prepared, apr_error *err)
{
    const apr_hessian *const first = sums_of(run, links[0].input, links[0].expert);
    const bool is_merged = n > 1;
    apr_feedback_options options = run->request.options;
    apr_hessian all = {0};

    options.group = apr_feedback_group(to);
    *prepared = NULL;
    *n_tokens = tokens_of(run, links, n);
    if (*n_tokens == 0) return APR_OK;
    if (!is_merged && run->prepared_from == first->sum && run->prepared.group == options.group) {
        *prepared = apr_hessian_is_empty(first) ? NULL : &run->prepared;
        return APR_OK;
    }
    apr_feedback_close(&run->prepared);
    run->prepared_from = is_merged ? NULL : first->sum;
    if (is_merged) APR_TRY(apr_hessian_open(&all, run->inputs.inputs[links[0].input].width, err));
    apr_status status = APR_OK;
    for (size_t i = 0; i < n && is_merged; i++)
        if (sums_of(run, links[i].input, links[i].expert)->sum != NULL) merge(&all, sums_of(run, links[i].input, links[i].expert));
    const apr_hessian *const sums = is_merged ? &all : first;
    if (!apr_hessian_is_empty(sums)) {
        status = apr_feedback_prepare(&run->prepared, sums, &options, run->reader_name, err);
        *prepared = &run->prepared;
    }
    apr_hessian_close(&all);
    return status;
}

/* The starting point: plain encoding, with the diagonal of the sums as importance; NULL: without. */
static void encode_start(const float *values, int64_t n_rows, int64_t columns, const float *importance, apr_dtype to, uint8_t *bytes)
{
    const apr_codec *const codec = &apr_host_codecs()[to];

    if (importance == NULL || codec->encode_by == NULL) {
        codec->encode(values, bytes, n_rows * columns);
        return;
    }
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < n_rows; r++)
        codec->encode_by(values + r * columns, importance, bytes + r * apr_row_bytes(to, columns), columns);
}

static apr_status feed_back(const apr_feedback_run *run, size_t item, ready by, const float *values, int64_t n_rows, uint8_t *to,
                            apr_feedback_errors *errors, apr_error *err)
{
    const apr_pipe_item *const it = &run->conversion->items[item];
    const apr_feedback_options *const options = &run->request.options;
    const char *const name = it->from->name;

    if (by.gpu != NULL) return apr_feedback_device_encode(by.gpu, it->to, values, n_rows, options, name, to, errors, err);
    return apr_feedback_encode(by.host, it->to, values, n_rows, options, name, to, errors, err);
}

/* Rows of a matrix that are decoded at a time. */
static int64_t rows_at_once(const apr_feedback_run *run, size_t item)
{
    const apr_pipe_item *const it = &run->conversion->items[item];
    const int64_t n_rows = apr_tensor_rows(it->from), most = n_rows < ROWS_AT_ONCE ? n_rows : ROWS_AT_ONCE;

    if (run->gpu == NULL || n_rows == 0) return most;
    const int64_t there = apr_feedback_device_rows(run->gpu, it->to, apr_tensor_columns(it->from), n_rows);
    return there > most ? there : most;
}

/* Decodes rows to float32 on all cores. Values out of the type's range are counted and clamped. */
static void read_rows(const apr_pipe_item *it, int64_t first, int64_t n_rows, float *values, apr_out_of_range *out_of_range)
{
    enum { CHUNKS = 64 };
    const int64_t columns = apr_tensor_columns(it->from), each = (n_rows + CHUNKS - 1) / CHUNKS;
    apr_out_of_range found[CHUNKS] = {0};

#pragma omp parallel for schedule(dynamic)
    for (int chunk = 0; chunk < CHUNKS; chunk++) {
        const int64_t at = chunk * each, left = n_rows - at, now = left < each ? left : each;
        float *const to = values + at * columns;
        if (now <= 0) continue;
        apr_decode_rows(it->from, first + at, now, to);
        found[chunk] = apr_find_out_of_range(to, now * columns, it->to);
        if (found[chunk].n_out_of_range > 0) apr_saturate(to, to, now * columns, it->to);
    }
    for (int chunk = 0; chunk < CHUNKS; chunk++) apr_out_of_range_merge(out_of_range, &found[chunk]);
}

/* Encodes rows of one matrix, some at a time. Without factors they are encoded without feedback. */
static apr_status encode_rows(apr_feedback_run *run, size_t item, ready by, int64_t first, int64_t n, float *values, uint8_t *bytes,
                              apr_out_of_range *out_of_range, apr_error *err)
{
    const apr_pipe_item *const it = &run->conversion->items[item];
    const int64_t columns = apr_tensor_columns(it->from), row_bytes = apr_row_bytes(it->to, columns);
    apr_feedback_errors errors, *const all = &run->facts[item].errors;

    const int64_t most = rows_at_once(run, item);

    for (int64_t at = first, now; at < first + n; at += now) {
        now = first + n - at < most ? first + n - at : most;
        uint8_t *const to = bytes + at * row_bytes;
        read_rows(it, at, now, values, out_of_range);
        if (by.gpu == NULL) encode_start(values, now, columns, by.host != NULL ? by.host->diagonal : NULL, it->to, to);
        if (by.gpu == NULL && by.host == NULL) continue;
        APR_TRY(feed_back(run, item, by, values, now, to, &errors, err));
        all->start += errors.start;
        all->rounded += errors.rounded;
        all->end += errors.end;
    }
    return APR_OK;
}

static apr_status encode_matrices(apr_feedback_run *run, size_t item, float *values, uint8_t *bytes, apr_out_of_range *out_of_range,
                                  apr_error *err)
{
    const apr_tensor *const from = run->conversion->items[item].from;
    const int64_t n_matrices = apr_feedback_matrices(from), n_rows = apr_tensor_rows(from) / n_matrices;
    apr_feedback_fact *const fact = &run->facts[item];
    const apr_dtype to = run->conversion->items[item].to;
    const bool is_there = run->gpu != NULL;
    size_t at;
    const size_t end = apr_feedback_links_of_item(&run->links, item, &at) + at;

    for (int64_t m = 0; m < n_matrices; m++) {
        ready prepared = {0};
        int64_t n_tokens = 0;
        size_t n = 0;
        while (at + n < end && run->links.links[at + n].matrix == m) n++;
        run->reader_name = from->name;
        if (n > 0 && is_there) APR_TRY(prepare_there(run, to, &run->links.links[at], n, &n_tokens, &prepared, err));
        else if (n > 0) APR_TRY(prepare(run, to, &run->links.links[at], n, &n_tokens, &prepared.host, err));
        at += n;
        fact->n_tokens = m == 0 || n_tokens < fact->n_tokens ? n_tokens : fact->n_tokens;
        fact->n_unseen += prepared.host == NULL && prepared.gpu == NULL;
        APR_TRY(encode_rows(run, item, prepared, m * n_rows, n_rows, values, bytes, out_of_range, err));
    }
    return APR_OK;
}

/* The bytes of one tensor, malloc'ed. */
static apr_status encode_item(apr_feedback_run *run, size_t item, uint8_t **bytes, apr_error *err)
{
    const apr_pipe_item *const it = &run->conversion->items[item];
    const int64_t n_values = rows_at_once(run, item) * apr_tensor_columns(it->from);

    if (n_values > run->n_values) {
        free(run->values);
        run->values = malloc((size_t)n_values * sizeof *run->values);
        run->n_values = run->values != NULL ? n_values : 0;
    }
    *bytes = malloc((size_t)apr_row_bytes(it->to, apr_tensor_elems(it->from)) + 1);
    run->facts[item].out_of_range = (apr_out_of_range){0};
    apr_status status = run->n_values >= n_values && *bytes != NULL ? APR_OK : apr_no_memory(err, "a tensor");
    if (status == APR_OK) status = encode_matrices(run, item, run->values, *bytes, &run->facts[item].out_of_range, err);
    run->facts[item].is_encoded = true;
    return status;
}

/* ---- sequential: all tensors are made before the pipe gets the first ---- */

/* Replaces the original tensor in the view that is run by the encoded one. */
static void replace(apr_feedback_run *run, size_t item, const uint8_t *bytes)
{
    const apr_pipe_item *const it = &run->conversion->items[item];
    apr_tensor *const t = &run->between.tensors[it->from - run->conversion->view.tensors];

    t->dtype = it->to;
    t->n_bytes = (uint64_t)apr_row_bytes(it->to, apr_tensor_elems(it->from));
    t->scale = NULL;
    apr_tensor_set_data(t, bytes);
}

/* Encodes the tensors without feedback first, so that layer inputs are computed with them. */
static apr_status encode_others(apr_feedback_run *run, apr_error *err)
{
    const apr_conversion *const c = run->conversion;

    for (size_t i = 0; i < c->layout.n_tensors; i++) {
        const apr_pipe_item *const it = &c->items[i];
        const apr_tensor *const from = it->from;
        const bool is_plain = it->is_scales || it->is_commons || it->to == from->dtype || apr_dtypes[it->to].scales == APR_SCALES_SEPARATE;
        if (is_plain || run->facts[i].is_taken || it->same_numbers || !apr_can_encode(it->to) || from->rank < 2) continue;
        APR_TRY(encode_item(run, i, &run->encoded[i], err));
        replace(run, i, run->encoded[i]);
    }
    return APR_OK;
}

static apr_status encode_layer(apr_feedback_run *run, int layer, apr_error *err)
{
    bool *const wanted = calloc(run->inputs.n_inputs + 1, sizeof *wanted);
    apr_status status = wanted != NULL ? APR_OK : apr_no_memory(err, "the inputs of tensors");
    bool is_any = false;

    for (size_t i = 0; i < run->links.n_links && status == APR_OK; i++) {
        const apr_feedback_link *const link = &run->links.links[i];
        wanted[link->input] |= run->inputs.inputs[link->input].layer == layer && is_left(run, link->item);
        is_any |= wanted[link->input];
    }
    if (status == APR_OK && is_any) status = pass_text(run, wanted, err);
    for (size_t i = 0; i < run->links.n_links && status == APR_OK; i++) {
        const size_t item = run->links.links[i].item;
        if (!wanted[run->links.links[i].input] || !is_left(run, item)) continue;
        status = encode_item(run, item, &run->encoded[item], err);
        if (status == APR_OK) replace(run, item, run->encoded[item]);
    }
    free(wanted);
    drop_idle_sums(run);
    return status == APR_OK && is_any ? feedback_run_reopen(run, err) : status;
}

static apr_status encode_all(apr_feedback_run *run, apr_error *err)
{
    const int64_t n_layers = apr_session_program(run->session)->num_layers;

    APR_TRY(make_weights(run, err));
    APR_TRY(encode_others(run, err));
    APR_TRY(feedback_run_reopen(run, err));
    for (int layer = 0; layer < n_layers; layer++) APR_TRY(encode_layer(run, layer, err));
    return encode_layer(run, -1, err);
}

/* ---- for the pipe ---- */

void apr_feedback_run_restart(apr_feedback_run *run)
{
    for (size_t i = 0; i < run->conversion->layout.n_tensors && !run->request.sequential; i++) {
        apr_feedback_fact *const fact = &run->facts[i];
        *fact = (apr_feedback_fact){.is_wanted = fact->is_wanted, .is_taken = fact->is_taken};
    }
}

static bool takes(void *user, size_t item) { return ((const apr_feedback_run *)user)->facts[item].is_taken; }

static apr_status make(void *user, size_t item, const uint8_t **bytes, apr_out_of_range *out_of_range, apr_error *err)
{
    apr_feedback_run *const run = user;

    free(run->last);
    run->last = NULL;
    if (run->request.sequential && !run->facts[item].is_encoded) APR_TRY(encode_all(run, err));
    if (!run->request.sequential) {
        APR_TRY(sum_from(run, item, err));
        APR_TRY(encode_item(run, item, &run->last, err));
        drop_idle_sums(run);
    }
    *bytes = run->request.sequential ? run->encoded[item] : run->last;
    *out_of_range = run->facts[item].out_of_range;
    return APR_OK;
}

const apr_custom_encoder *apr_feedback_run_custom_encoder(apr_feedback_run *run)
{
    run->custom_encoder = (apr_custom_encoder){takes, make, run};
    return &run->custom_encoder;
}
