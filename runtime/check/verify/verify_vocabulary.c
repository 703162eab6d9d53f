/* verify_vocabulary.c - compares tokenizer, stop ids and chat template without evaluating a model. */
#include "runtime/check/verify/verify_internal.h"
#include "runtime/check/verify/verify_texts.h"
#include "runtime/template/chat.h"

#include <stdlib.h>
#include <string.h>

/* *ids is NULL if the tokenizer rejects the text; two rejections count as equal. */
static apr_status encode(const apr_subject *s, const char *text, bool parse_special, int32_t **ids, size_t *n, apr_error *err)
{
    const apr_encode_options options = {.add_special = true, .parse_special = parse_special};
    const apr_status status = apr_tokenizer_encode(s->tokenizer, text, strlen(text), &options, ids, n, NULL);
    return status == APR_E_MEMORY ? apr_no_memory(err, "the tokens of a text") : APR_OK;
}

/* Sets *same to false if the tokens differ. */
static apr_status compare_tokens(const apr_verify_input *input, const char *text, bool parse_special, bool *same, apr_error *err)
{
    int32_t *reference = NULL, *other = NULL;
    size_t n_reference = 0, n_other = 0;

    apr_status status = encode(&input->reference, text, parse_special, &reference, &n_reference, err);
    if (status == APR_OK) status = encode(&input->other, text, parse_special, &other, &n_other, err);
    *same = *same && (reference == NULL) == (other == NULL) && n_reference == n_other &&
            (reference == NULL || memcmp(reference, other, n_reference * sizeof *reference) == 0);
    free(reference);
    free(other);
    return status;
}

static apr_status check_tokenizer(apr_verify_report *report, apr_error *err)
{
    const apr_verify_input *const input = report->input;
    apr_verify_vocabulary *const v = &report->vocabulary;

    v->n_strings = apr_n_hard_strings;
    v->n_reference = input->reference.vocab->n_tokens;
    v->n_other = input->other.vocab->n_tokens;
    for (size_t i = 0; i < apr_n_hard_strings; i++) {
        const apr_hard_string *const string = &apr_hard_strings[i];
        bool same = true;
        APR_TRY(compare_tokens(input, string->text, true, &same, err));
        APR_TRY(compare_tokens(input, string->text, false, &same, err));
        v->n_same += same;
        if (!same && v->first_other == NULL) v->first_other = string->what;
    }
    apr_verify_add_verdict(report, APR_VERIFY_TOKENIZER, v->n_same == v->n_strings && v->n_reference == v->n_other);
    return APR_OK;
}

/* Each stop id of the reference must end a turn in the other model, and at least one must be stated, because loaders read the stated ids.
 * Additional stop ids are allowed (GGUF's end-of-text tokens), but an ordinary token must not end a turn. */
static void check_stops(apr_verify_report *report)
{
    const apr_subject *const reference = &report->input->reference, *const other = &report->input->other;
    const uint8_t *const types = other->vocab->types;
    apr_verify_vocabulary *const v = &report->vocabulary;
    apr_chat_stops chat;

    v->first_lost_stop = v->first_ordinary_stop = -1;
    v->turn_end = apr_chat_stops_of(other->vocab, &chat, NULL) == APR_OK ? chat.added : -1;
    for (size_t i = 0; i < reference->vocab->n_stop_ids && v->first_lost_stop < 0; i++)
        if (!apr_tokenizer_is_stop(other->tokenizer, reference->vocab->stop_ids[i])) v->first_lost_stop = reference->vocab->stop_ids[i];
    for (size_t i = 0; i < other->vocab->n_stop_ids && v->first_ordinary_stop < 0; i++) {
        const int32_t id = other->vocab->stop_ids[i];
        if (types != NULL && types[id] == APR_TOKEN_NORMAL && !apr_tokenizer_is_stop(reference->tokenizer, id)) v->first_ordinary_stop = id;
    }
    const bool none_stated = other->vocab->n_stop_ids == 0 && reference->vocab->n_stop_ids > 0;
    apr_verify_add_verdict(report, APR_VERIFY_STOP_IDS, v->first_lost_stop < 0 && v->first_ordinary_stop < 0 && !none_stated);
}

static void check_template(apr_verify_report *report)
{
    const char *const reference = report->input->reference.vocab->chat_template, *const other = report->input->other.vocab->chat_template;

    report->vocabulary.same_template = (reference == NULL) == (other == NULL) && (reference == NULL || strcmp(reference, other) == 0);
    apr_verify_add_verdict(report, APR_VERIFY_TEMPLATE, report->vocabulary.same_template);
}

/* One or both models have no vocabulary. Without any there is nothing to compare; if only one has it, the check fails. */
static void check_presence(apr_verify_report *report)
{
    const apr_verify_input *const input = report->input;

    report->vocabulary = (apr_verify_vocabulary){.n_reference = input->reference.vocab->n_tokens, .n_other = input->other.vocab->n_tokens};
    report->vocabulary.first_lost_stop = report->vocabulary.first_ordinary_stop = report->vocabulary.turn_end = -1;
    if (input->reference.tokenizer == NULL && input->other.tokenizer == NULL) apr_verify_add_note(report, APR_VERIFY_TOKENIZER);
    else apr_verify_add_verdict(report, APR_VERIFY_TOKENIZER, false);
}

apr_status apr_verify_vocabularies(apr_verify_report *report, apr_error *err)
{
    if (report->input->reference.tokenizer == NULL || report->input->other.tokenizer == NULL) {
        check_presence(report);
        return APR_OK;
    }
    APR_TRY(check_tokenizer(report, err));
    check_stops(report);
    check_template(report);
    return APR_OK;
}
