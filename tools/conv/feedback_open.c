/* feedback_open.c - opens what a run of error feedback needs, and closes it. */
#include "tools/conv/feedback_parts.h"

#include "convert/dialect.h"
#include "formats/base/clock.h"
#include "formats/base/crc32.h"
#include "runtime/calibrate/own_text.h"
#include "runtime/check/subject.h"
#include "tools/cli/meter.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static apr_status open_session(apr_feedback_run *run, apr_error *err)
{
    apr_session_options options = apr_session_defaults;

    options.n_ctx = run->request.window;
    options.n_batch = run->request.window;
    options.n_logits = 1;
    options.kv_dtype = APR_F32;
    options.weights_lie = run->n_passes > 0 ? "in memory" : NULL;
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
    APR_TRY(apr_map_open(&run->text, r->calibration, err));
    const char *const text = run->text.data != NULL ? (const char *)run->text.data : "";
    const apr_subject subject = {.path = run->conversion->view.path, .vocab = &run->model.vocab, .tokenizer = run->tokenizer};
    const apr_status status = apr_subject_encode(&subject, text, run->text.n_bytes, false, &run->ids, &n_ids, &own);
    if (status != APR_OK) return apr_fail(err, status, "%s: %s", r->calibration, own.text);
    run->text_crc = apr_crc32(0, text, run->text.n_bytes);
    run->n_ids = (int64_t)n_ids;
    if (r->n_tokens > 0 && r->n_tokens < run->n_ids) run->n_ids = r->n_tokens;
    run->n_ids = run->n_ids / r->window * r->window; /* the last, short one is left out */
    if (run->n_ids > 0) return APR_OK;
    return apr_fail(err, APR_E_USAGE, "%s has %zu tokens%s: calibration takes windows of %lld, and one must be full (--window)",
                    r->calibration, n_ids, r->n_tokens > 0 ? ", of which --tokens allows fewer" : "", (long long)r->window);
}

static apr_status write_text(apr_feedback_run *run, apr_error *err)
{
    const apr_feedback_request *const r = &run->request;
    const int64_t n_tokens = r->n_tokens > 0 ? r->n_tokens : APR_OWN_TOKENS;
    const double start = apr_seconds_now();
    apr_meter meter;
    apr_own_text how = {.window = r->window, .n_windows = n_tokens / r->window, .n_tokens_known = (int64_t)run->model.vocab.n_tokens};

    run->n_ids = how.n_windows * how.window;
    if (run->n_ids == 0)
        return apr_fail(err, APR_E_USAGE, "--tokens %lld is less than a window of %lld: one must be full (--window)", (long long)n_tokens,
                        (long long)r->window);
    if (r->plan_only) return APR_OK;
    run->ids = (uint64_t)run->n_ids < SIZE_MAX / sizeof *run->ids ? malloc((size_t)run->n_ids * sizeof *run->ids) : NULL;
    if (run->ids == NULL) return apr_no_memory(err, "the tokens of a text");
    const apr_progress progress = apr_meter_start_counting(&meter, run->quiet);
    how.progress = &progress;
    const apr_status status = apr_own_text_write(&how, run->session, run->ids, err);
    apr_meter_end(&meter);
    if (status == APR_OK) run->text_crc = apr_crc32(0, run->ids, (size_t)run->n_ids * sizeof *run->ids);
    run->write_seconds = apr_seconds_now() - start;
    return status;
}

const char *apr_feedback_text_name(const apr_feedback_run *run)
{
    const char *const path = run->request.calibration;
    return path != NULL ? path : "text that the model wrote itself";
}

apr_status apr_feedback_run_note(const apr_feedback_run *run, apr_conversion *conversion, apr_error *err)
{
    const char *const name = apr_feedback_text_name(run), *const slash = strrchr(name, '/');
    return apr_conversion_note_text(conversion, slash != NULL ? slash + 1 : name, run->text_crc, run->n_ids, err);
}

/* Which items the method could make, by their types, and which it does. */
static apr_status find_taken(apr_feedback_run *run, apr_error *err)
{
    const apr_conversion *const c = run->conversion;
    size_t n_taken = 0;

    for (size_t i = 0; i < c->layout.n_tensors; i++) {
        const apr_pipe_item *const item = &c->items[i];
        size_t first;
        const bool is_same = item->to == item->from->dtype && item->from->packing == NULL;
        run->facts[i].is_wanted =
            !item->is_scales && !item->is_commons && !item->same_numbers && !is_same && item->from->rank >= 2 && apr_feedback_can(item->to);
        run->facts[i].is_taken = run->facts[i].is_wanted && apr_feedback_links_of_item(&run->links, i, &first) > 0;
        n_taken += run->facts[i].is_taken;
    }
    if (n_taken > 0) return APR_OK;
    return apr_fail(err, APR_E_USAGE, "--method ldlq has nothing to do: no tensor changes to a block type and is multiplied with inputs");
}

static apr_status make_tables(apr_feedback_run *run, apr_error *err)
{
    size_t n_sums = 0;

    run->first_sum = calloc(run->feeds.n_feeds + 1, sizeof *run->first_sum);
    run->is_summed = calloc(run->feeds.n_feeds + 1, sizeof *run->is_summed);
    if (run->first_sum == NULL || run->is_summed == NULL) return apr_no_memory(err, "the inputs of tensors");
    for (size_t i = 0; i < run->feeds.n_feeds; i++) {
        run->first_sum[i] = n_sums;
        n_sums += run->feeds.feeds[i].n_experts > 0 ? (size_t)run->feeds.feeds[i].n_experts : 1;
    }
    run->sums = calloc(n_sums + 1, sizeof *run->sums);
    run->facts = calloc(run->conversion->layout.n_tensors + 1, sizeof *run->facts);
    run->made = calloc(run->conversion->layout.n_tensors + 1, sizeof *run->made);
    return run->sums != NULL && run->facts != NULL && run->made != NULL ? APR_OK : apr_no_memory(err, "the tensors of a conversion");
}

static apr_status open_all(apr_feedback_run *run, apr_error *err)
{
    const apr_feedback_request *const r = &run->request;

    APR_TRY(apr_feedback_between(&run->between, run->conversion, err));
    APR_TRY(apr_canonical(&run->model, &run->between, err));
    if (r->calibration != NULL) APR_TRY(read_text(run, err));
    APR_TRY(open_session(run, err));
    APR_TRY(apr_feeds_of(&run->feeds, run->session, err));
    APR_TRY(apr_feedback_links_of(&run->links, run->conversion, run->session, &run->feeds, err));
    APR_TRY(make_tables(run, err));
    APR_TRY(find_taken(run, err));
    if (r->calibration == NULL) APR_TRY(write_text(run, err));
    snprintf(run->terms, sizeof run->terms,
             "ldlq with %" PRId64 " tokens in windows of %" PRId64 " of a text %08" PRIx32 ", damping %a, %d rounds", run->n_ids, r->window,
             run->text_crc, r->options.damping, r->options.rounds);
    return APR_OK;
}

apr_status apr_feedback_run_open(apr_feedback_run **run, const apr_feedback_request *request, const apr_conversion *conversion, bool quiet,
                                 apr_error *err)
{
    apr_feedback_run *const r = *run = calloc(1, sizeof *r);

    if (r == NULL) return apr_no_memory(err, "a calibration");
    r->request = *request;
    r->conversion = conversion;
    r->quiet = quiet;
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
    for (size_t i = 0; run->is_summed != NULL && run->sums != NULL && i < run->feeds.n_feeds; i++)
        for (int64_t e = 0; e == 0 || e < run->feeds.feeds[i].n_experts; e++) apr_hessian_close(&run->sums[run->first_sum[i] + (size_t)e]);
    for (size_t i = 0; run->made != NULL && i < run->conversion->layout.n_tensors; i++) free(run->made[i]);
    apr_feedback_close(&run->prepared);
    apr_session_close(run->session);
    apr_feedback_links_close(&run->links);
    apr_feeds_close(&run->feeds);
    apr_tokenizer_close(run->tokenizer);
    apr_model_close(&run->model);
    apr_model_close(&run->between);
    apr_map_close(&run->text);
    free(run->last);
    free(run->ids);
    free(run->sums);
    free(run->first_sum);
    free(run->is_summed);
    free(run->facts);
    free(run->made);
    free(run);
}

const char *apr_feedback_run_terms(const apr_feedback_run *run) { return run->terms; }
