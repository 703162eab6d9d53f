/* verify.c - aprkit.h: is a model still the one that it was made from? */
#include "tools/engine/library/handles.h"
#include "tools/engine/run/run_pair.h"

#include <stdlib.h>
#include <string.h>

/* --- the run --- */

/* Fills what is 0. */
static apr_status complete(aprkit_verify_options *o, aprkit_session_options *run, apr_error *err)
{
    APR_TRY(apr_take_options(run, sizeof *run, o->run, "aprkit_session_options", err));
    if (o->window == 0) o->window = 256;
    if (o->max_tokens == 0) o->max_tokens = 48;
    if (o->control_bytes == 0) o->control_bytes = (uint64_t)8 << 30;
    if (!(o->sample >= 0.0 && o->sample <= 1.0)) return apr_fail(err, APR_E_USAGE, "a sample is a share from 0 to 1");
    if (o->window < 2) return apr_fail(err, APR_E_USAGE, "a window needs at least 2 tokens");
    return o->max_tokens >= 1 ? APR_OK : apr_fail(err, APR_E_USAGE, "an answer needs at least one token");
}

/* The report names the text, and may be closed after the caller has released it. */
static apr_status take_text(aprkit_report *r, const aprkit_verify_options *o, apr_error *err)
{
    if (o->text == NULL) return APR_OK;
    const size_t n = o->n_text == SIZE_MAX ? strlen(o->text) : o->n_text;
    r->text = malloc(n + 1);
    r->text_name = strdup(o->text_name != NULL ? o->text_name : "text");
    if (r->text == NULL || r->text_name == NULL) return apr_no_memory(err, "a text");
    memcpy(r->text, o->text, n);
    r->input.extra_text = (apr_verify_extra_text){.name = r->text_name, .text = r->text, .n_bytes = n};
    return APR_OK;
}

/* Opens session and tokenizer; without a vocabulary the models are compared by ids. A context that was not asked for is long enough for
 * every check, or as long as the model's positions; so is a window. */
static apr_status open_for_checks(aprkit_report *r, apr_running *running, aprkit_model *model, apr_device_warnings *warnings,
                                  const aprkit_session_options *o, apr_error *err)
{
    apr_session_options options;

    APR_TRY(apr_library_session_options(o, model, &r->listener, warnings, &options, err));
    if (o->hooks == NULL) options.n_logits = 64;
    options.shorter_ctx = o->n_context == 0;
    if (o->n_context == 0) options.n_ctx = r->input.window > APR_VERIFY_CONTEXT ? r->input.window : APR_VERIFY_CONTEXT;
    APR_TRY(apr_library_load(model, err));
    APR_TRY(apr_session_open(&running->session, &running->model, &options, err));
    const int64_t n_ctx = apr_session_plan(running->session)->n_ctx;
    if (options.shorter_ctx && r->input.window > n_ctx) r->input.window = n_ctx;
    return running->model.vocab.n_tokens > 0 ? apr_running_open_tokenizer(running, err) : APR_OK;
}

static apr_status open_both(aprkit_report *r, aprkit_model *model, aprkit_model *reference, const aprkit_session_options *o, apr_error *err)
{
    APR_TRY(apr_library_view(&r->other, model, &r->listener, err));
    APR_TRY(apr_library_view(&r->reference, reference, &r->listener, err));
    APR_TRY(apr_library_merge(&r->reference, o->adapters, o->n_adapters, o->hooks, err));
    APR_TRY(apr_run_pair_align(&r->reference, &r->other, err));
    APR_TRY(open_for_checks(r, &r->other, model, &r->warnings[0], o, err));
    r->input.used = apr_session_used(r->other.session); /* before the reference takes memory */
    return open_for_checks(r, &r->reference, reference, &r->warnings[1], o, err);
}

/* The strings that facts point at. */
static void keep_facts(aprkit_report *r)
{
    r->shown = (apr_verify_shown){&r->checks, {&r->reference.source, &r->reference.model}, {&r->other.source, &r->other.model}};
    r->grade = apr_verify_grade_of(&r->shown);
    for (size_t i = 0; i < r->checks.n_checks; i++) r->lines[i] = apr_verify_line_of(&r->checks, &r->checks.checks[i]);
    apr_page_types(&r->other.model, r->types[0], sizeof r->types[0]);
    apr_page_types(&r->reference.model, r->types[1], sizeof r->types[1]);
    apr_verify_verdict(&r->shown, &r->failure);
}

static apr_status verify(aprkit_report *r, aprkit_model *model, aprkit_model *reference, const aprkit_verify_options *o,
                         const aprkit_session_options *run, apr_error *err)
{
    r->listener = (apr_library_listener){.progress = o->progress, .on_note = o->on_note, .user = o->user, .unit = "steps"};
    APR_TRY(take_text(r, o, err));
    r->input.window = o->window;
    APR_TRY(open_both(r, model, reference, run, err));
    r->input.reference = apr_running_subject(&r->reference);
    r->input.other = apr_running_subject(&r->other);
    r->input.n_answer = o->max_tokens;
    r->input.control_limit = o->no_control != 0 ? 0 : o->control_bytes;
    r->input.no_backends = o->no_parity != 0;
    r->input.sample = o->sample;
    r->input.shares_heap = run->hooks == NULL;
    r->input.progress = apr_library_progress(&r->listener);
    APR_TRY(apr_verify_run(&r->checks, &r->input, err));
    keep_facts(r);
    return APR_OK;
}

int aprkit_verify(aprkit_report **report, aprkit_model *model, aprkit_model *reference, const aprkit_verify_options *options,
                  aprkit_error *error)
{
    aprkit_report *r = calloc(1, sizeof *r);
    aprkit_verify_options o = {0};
    aprkit_session_options run = {0};
    apr_error err = {0};

    apr_status status =
        r != NULL ? apr_take_options(&o, sizeof o, options, "aprkit_verify_options", &err) : apr_no_memory(&err, "a report");
    if (status == APR_OK) r->owner.copies = model->owner.copies || reference->owner.copies;
    if (status == APR_OK) status = complete(&o, &run, &err);
    const apr_library_call call = apr_library_enter(r != NULL ? &r->owner : NULL, run.threads);
    if (status == APR_OK) status = verify(r, model, reference, &o, &run, &err);
    const bool is_cancelled = status != APR_OK && r != NULL && atomic_load(&r->listener.is_cancelled);
    if (status != APR_OK) {
        aprkit_report_close(r);
        r = NULL;
    }
    *report = r;
    const int result = apr_library_leave(&call, status, &err, error);
    return is_cancelled ? apr_library_cancelled(error) : result;
}

void aprkit_report_close(aprkit_report *r)
{
    if (r == NULL) return;
    apr_verify_close(&r->checks);
    apr_running_close(&r->reference);
    apr_running_close(&r->other);
    free(r->text);
    free(r->text_name);
    free(r);
}

/* --- what was found --- */

int aprkit_report_info(const aprkit_report *r, aprkit_report_facts *facts, aprkit_error *error)
{
    const aprkit_report_facts f = {.is_same = !r->checks.failed,
                                   .grade = r->grade.id,
                                   .grade_text = r->grade.name,
                                   .sentence = r->grade.sentence,
                                   .failure = r->checks.failed ? r->failure.text : NULL,
                                   .types = r->types[0],
                                   .reference_types = r->types[1],
                                   .backend = r->checks.backend,
                                   .n_checks = r->checks.n_checks};
    apr_error err = {0};

    return apr_library_result(apr_give_facts(facts, sizeof f, &f, "aprkit_report_facts", &err), &err, error);
}

int aprkit_report_check(const aprkit_report *r, size_t i, aprkit_check *check, aprkit_error *error)
{
    static const int verdicts[] = {[APR_VERDICT_NOTED] = APRKIT_NOTE, [APR_VERDICT_PASS] = APRKIT_PASS, [APR_VERDICT_FAIL] = APRKIT_FAIL};
    apr_error err = {0};

    if (i >= r->checks.n_checks)
        return apr_library_result(apr_fail(&err, APR_E_USAGE, "the report has no check %zu: it has %zu", i, r->checks.n_checks), &err,
                                  error);
    const apr_verify_line *const line = &r->lines[i];
    const aprkit_check c = {.id = line->id,
                            .title = line->title,
                            .verdict = verdicts[r->checks.checks[i].verdict],
                            .found = line->found,
                            .limit = line->bound,
                            .where = line->where};
    return apr_library_result(apr_give_facts(check, sizeof c, &c, "aprkit_check", &err), &err, error);
}

int aprkit_report_json(const aprkit_report *report, char **json, size_t *n_bytes, aprkit_error *error)
{
    apr_error err = {0};

    *json = apr_verify_document(&report->shown);
    *n_bytes = *json != NULL ? strlen(*json) : 0;
    return apr_library_result(*json != NULL ? APR_OK : apr_no_memory(&err, "the report"), &err, error);
}

int aprkit_report_html(const aprkit_report *report, const aprkit_page_options *options, char **html, size_t *n_bytes, aprkit_error *error)
{
    aprkit_page_options o;
    apr_error err = {0};

    *html = NULL;
    *n_bytes = 0;
    apr_status status = apr_take_options(&o, sizeof o, options, "aprkit_page_options", &err);
    const apr_page_options page = {.stamp = o.no_stamp == 0, .hash = o.hash != 0};
    if (status == APR_OK) status = apr_verify_html(&report->shown, &page, o.command, html, n_bytes, &err);
    return apr_library_result(status, &err, error);
}
