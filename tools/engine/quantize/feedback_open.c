/* feedback_open.c - opens and closes a run of error feedback, and plans its GPU memory. */
#include "tools/engine/quantize/feedback_internal.h"

#include "convert/naming.h"
#include "formats/base/clock.h"
#include "formats/base/crc32.h"
#include "runtime/calibrate/own_text.h"
#include "runtime/check/subject.h"
#include "tools/engine/quantize/kept_text.h"

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

apr_status apr_feedback_run_reopen(apr_feedback_run *run, apr_error *err)
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

    APR_TRY(apr_tokenizer_open(&run->tokenizer, &run->model.vocab, err));
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
    const apr_layer_input *const f = &run->inputs.feeds[input];
    return apr_device_sums_bytes(f->width) * (uint64_t)(f->n_experts > 0 ? f->n_experts : 1);
}

static apr_status write_text(apr_feedback_run *run, apr_error *err)
{
    const apr_feedback_request *const r = &run->request;
    const int64_t n_tokens = r->n_tokens > 0 ? r->n_tokens : APR_OWN_TOKENS;
    const double start = apr_seconds_now();
    const int32_t begin = apr_begin_token(&run->model.vocab);
    apr_own_text how = {.window = r->window,
                        .n_windows = n_tokens / r->window,
                        .n_tokens_known = (int64_t)run->model.vocab.n_tokens,
                        .has_begin = begin >= 0,
                        .begin = begin};

    run->n_ids = how.n_windows * how.window;
    if (run->n_ids == 0)
        return apr_fail(err, APR_E_USAGE, "--tokens %lld is less than one full window of %lld (--window)", (long long)n_tokens,
                        (long long)r->window);
    if (r->plan_only) return APR_OK;
    run->ids = (uint64_t)run->n_ids < SIZE_MAX / sizeof *run->ids ? malloc((size_t)run->n_ids * sizeof *run->ids) : NULL;
    if (run->ids == NULL) return apr_no_memory(err, "the tokens of a text");
    const apr_progress progress = apr_listener_begin(run->listener);
    how.progress = &progress;
    apr_kept_text kept = {.target = r->kept, .how = &how, .ids = run->ids, .listener = run->listener};
    apr_status status = r->kept != NULL ? apr_kept_text_open(&kept, &how, err) : APR_OK;
    if (status == APR_OK) status = apr_own_text_write(&how, run->session, run->ids, err);
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
    return apr_conversion_note_text(conversion, slash != NULL ? slash + 1 : name, run->text_crc, run->n_ids, err);
}

/* Finds the items that error feedback can encode by their types, and those that it does encode. */
static apr_status find_taken(apr_feedback_run *run, apr_error *err)
{
    const apr_conversion *const c = run->conversion;
    size_t n_taken = 0;

    for (size_t i = 0; i < c->layout.n_tensors; i++) {
        const apr_pipe_item *const item = &c->items[i];
        size_t first;
        const bool is_same = item->to == item->from->dtype && item->from->packing == NULL;
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

    run->first_sum = calloc(run->inputs.n_feeds + 1, sizeof *run->first_sum);
    run->is_summed = calloc(run->inputs.n_feeds + 1, sizeof *run->is_summed);
    if (run->first_sum == NULL || run->is_summed == NULL) return apr_no_memory(err, "the inputs of tensors");
    for (size_t i = 0; i < run->inputs.n_feeds; i++) {
        run->first_sum[i] = n_sums;
        n_sums += run->inputs.feeds[i].n_experts > 0 ? (size_t)run->inputs.feeds[i].n_experts : 1;
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
             "ldlq with %" PRId64 " tokens in windows of %" PRId64 " of a text %08" PRIx32 ", damping %a, %d rounds%s", run->n_ids,
             r->window, run->text_crc, r->options.damping, r->options.rounds, run->gpu != NULL ? ", on a GPU" : "");
}

/* A sequential run sums all inputs of a layer at once. */
static void add_layer(apr_feedback_run *run, int layer)
{
    uint64_t own = 0;
    for (size_t input = 0; input < run->inputs.n_feeds; input++)
        if (run->inputs.feeds[input].layer == layer) own += sums_bytes(run, input);
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
    for (size_t input = 0; input < run->inputs.n_feeds; input++) {
        run->all_sums += sums_bytes(run, input);
        if (run->request.sequential) add_layer(run, run->inputs.feeds[input].layer);
    }
    run->plan.bytes[APR_FEEDBACK_SUMS] = run->all_sums;
    return APR_OK;
}

static apr_status open_all(apr_feedback_run *run, apr_error *err)
{
    const apr_feedback_request *const r = &run->request;

    APR_TRY(apr_feedback_without_provenance(&run->between, run->conversion, err));
    APR_TRY(apr_canonical(&run->model, &run->between, err));
    if (r->calibration != NULL) APR_TRY(read_text(run, err));
    APR_TRY(open_session(run, err));
    APR_TRY(apr_layer_inputs_of(&run->inputs, run->session, err));
    APR_TRY(apr_feedback_links_of(&run->links, run->conversion, run->session, &run->inputs, err));
    APR_TRY(make_tables(run, err));
    APR_TRY(find_taken(run, err));
    plan_device(run, NULL); /* errors are reported when a GPU is used */
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
    for (size_t i = 0; run->is_summed != NULL && run->sums != NULL && i < run->inputs.n_feeds; i++)
        for (int64_t e = 0; e == 0 || e < run->inputs.feeds[i].n_experts; e++) apr_hessian_close(&run->sums[run->first_sum[i] + (size_t)e]);
    for (size_t i = 0; run->encoded != NULL && i < run->conversion->layout.n_tensors; i++) free(run->encoded[i]);
    apr_feedback_close(&run->prepared);
    apr_session_close(run->session);
    apr_feedback_links_close(&run->links);
    apr_layer_inputs_close(&run->inputs);
    apr_tokenizer_close(run->tokenizer);
    apr_model_close(&run->model);
    apr_model_close(&run->between);
    free(run->last);
    free(run->ids);
    free(run->sums);
    free(run->device_sums);
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

static apr_status enter(apr_feedback_run *run, apr_cuda_device *device, apr_error *err)
{
    apr_feedback_run_drop_sums(run);
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
    if (run->gpu != NULL) apr_feedback_run_drop_sums(run);
    apr_session_close(run->session);
    run->session = NULL;
    apr_feedback_device_close(run->gpu);
    run->gpu = NULL;
    run->cuda = NULL;
    set_terms(run);
}

const char *apr_feedback_run_terms(const apr_feedback_run *run) { return run->terms; }
