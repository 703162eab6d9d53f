/* verify_answers.c - greedy answers of both models to the same prompts. */
#include "runtime/check/verify/verify_internal.h"
#include "runtime/check/verify/verify_texts.h"

#include <stdlib.h>
#include <string.h>

/* The reference's ids of a prompt. The first two prompts are plain continuations; the others use the chat template, if there is one. */
static apr_status prompt_ids(const apr_subject *reference, size_t which, int32_t **ids, size_t *n, apr_error *err)
{
    const char *const text = apr_verify_prompts[which];
    char *rendered = NULL;
    size_t n_bytes;

    if (which < 2 || apr_subject_chat(reference, NULL, text, &rendered, &n_bytes, NULL) != APR_OK)
        return apr_subject_encode(reference, text, strlen(text), true, ids, n, err);
    const apr_status status = apr_subject_encode(reference, rendered, n_bytes, false, ids, n, err);
    free(rendered);
    return status;
}

static apr_status answer_of(const apr_subject *s, const int32_t *prompt, size_t n_prompt, size_t limit, int32_t **ids, size_t *n_ids,
                            char **text, apr_error *err)
{
    size_t n;

    APR_TRY(apr_subject_continue(s, prompt, n_prompt, limit, ids, n_ids, err));
    return apr_subject_decode(s, *ids, *n_ids, text, &n, err);
}

static apr_status compare_answer(apr_verify_report *report, size_t which, apr_error *err)
{
    const apr_verify_input *const input = report->input;
    const size_t limit = (size_t)input->n_answer;
    apr_verify_answer *const a = &report->answers[report->n_answers];
    int32_t *prompt, *reference = NULL, *other = NULL;
    size_t n, n_reference = 0, n_other = 0;

    APR_TRY(prompt_ids(&input->reference, which, &prompt, &n, err));
    report->n_answers++;
    a->prompt = apr_verify_prompts[which];
    apr_status status = answer_of(&input->reference, prompt, n, limit, &reference, &n_reference, &a->reference, err);
    if (status == APR_OK) status = answer_of(&input->other, prompt, n, limit, &other, &n_other, &a->other, err);
    a->n_reference = (int64_t)n_reference;
    while ((size_t)a->n_same < n_reference && (size_t)a->n_same < n_other && reference[a->n_same] == other[a->n_same]) a->n_same++;
    a->same = n_reference == n_other && (size_t)a->n_same == n_reference;
    free(reference);
    free(other);
    free(prompt);
    return status;
}

/* Greedy answers diverge at the first near tie, so they must be equal only if no weight was changed. */
apr_status apr_verify_answers(apr_verify_report *report, apr_error *err)
{
    size_t n_same = 0;

    if (report->n_texts == 0) return APR_OK; /* the vocabularies differ */
    for (size_t i = 0; i < apr_n_verify_prompts; i++) {
        APR_TRY(compare_answer(report, i, err));
        n_same += report->answers[i].same;
    }
    if (report->same_shape && report->tensors.unchanged) apr_verify_add_verdict(report, APR_VERIFY_ANSWERS, n_same == report->n_answers);
    else apr_verify_add_note(report, APR_VERIFY_ANSWERS);
    return APR_OK;
}
