/* verify_vocabulary.c - tokenizer, stop ids, chat template: compared without running a model. */
#include "runtime/check/verify_parts.h"
#include "runtime/check/verify_texts.h"
#include "runtime/template/chat.h"

#include <stdlib.h>
#include <string.h>

/* *ids is NULL where the tokenizer refuses the text, which is an answer like another. */
static apr_status encode(const apr_subject *s, const char *text, bool parse_special, int32_t **ids, size_t *n, apr_error *err)
{
    const apr_encode_options options = {.add_special = true, .parse_special = parse_special};
    const apr_status status = apr_tokenizer_encode(s->tokenizer, text, strlen(text), &options, ids, n, NULL);
    return status == APR_E_MEMORY ? apr_no_memory(err, "the tokens of a text") : APR_OK;
}

/* *same stays true where the tokens are the same. */
static apr_status compare_tokens(const apr_verify_input *input, const char *text, bool parse_special, bool *same, apr_error *err)
{
    int32_t *truth = NULL, *other = NULL;
    size_t n_truth = 0, n_other = 0;

    apr_status status = encode(&input->truth, text, parse_special, &truth, &n_truth, err);
    if (status == APR_OK) status = encode(&input->other, text, parse_special, &other, &n_other, err);
    *same = *same && (truth == NULL) == (other == NULL) && n_truth == n_other &&
            (truth == NULL || memcmp(truth, other, n_truth * sizeof *truth) == 0);
    free(truth);
    free(other);
    return status;
}

static apr_status check_tokenizer(apr_verify_report *report, apr_error *err)
{
    const apr_verify_input *const input = report->input;
    apr_verify_vocabulary *const v = &report->vocabulary;

    v->n_strings = apr_n_hard_strings;
    v->n_truth = input->truth.vocab->n_tokens;
    v->n_other = input->other.vocab->n_tokens;
    for (size_t i = 0; i < apr_n_hard_strings; i++) {
        const apr_hard_string *const string = &apr_hard_strings[i];
        bool same = true;
        APR_TRY(compare_tokens(input, string->text, true, &same, err));
        APR_TRY(compare_tokens(input, string->text, false, &same, err));
        v->n_same += same;
        if (!same && v->first_other == NULL) v->first_other = string->what;
    }
    apr_verify_judge(report, APR_VERIFY_TOKENIZER, v->n_same == v->n_strings && v->n_truth == v->n_other);
    return APR_OK;
}

/* Each of the reference's stop ids must end a turn here too, and be stated: the end-of-text token, which ends one anyhow, is not what a
 * loader asks for. More of them is what GGUF's end-of-text tokens come to; a word that ends a turn is a mistake. */
static void check_stops(apr_verify_report *report)
{
    const apr_subject *const truth = &report->input->truth, *const other = &report->input->other;
    const uint8_t *const types = other->vocab->types;
    apr_verify_vocabulary *const v = &report->vocabulary;
    apr_chat_stops chat;

    v->first_lost_stop = v->first_ordinary_stop = -1;
    v->turn_end = apr_chat_stops_of(other->vocab, &chat, NULL) == APR_OK ? chat.added : -1;
    for (size_t i = 0; i < truth->vocab->n_stop_ids && v->first_lost_stop < 0; i++)
        if (!apr_tokenizer_is_stop(other->tokenizer, truth->vocab->stop_ids[i])) v->first_lost_stop = truth->vocab->stop_ids[i];
    for (size_t i = 0; i < other->vocab->n_stop_ids && v->first_ordinary_stop < 0; i++) {
        const int32_t id = other->vocab->stop_ids[i];
        if (types != NULL && types[id] == APR_TOKEN_NORMAL && !apr_tokenizer_is_stop(truth->tokenizer, id)) v->first_ordinary_stop = id;
    }
    const bool none_stated = other->vocab->n_stop_ids == 0 && truth->vocab->n_stop_ids > 0;
    apr_verify_judge(report, APR_VERIFY_STOP_IDS, v->first_lost_stop < 0 && v->first_ordinary_stop < 0 && !none_stated);
}

static void check_template(apr_verify_report *report)
{
    const char *const truth = report->input->truth.vocab->chat_template, *const other = report->input->other.vocab->chat_template;

    report->vocabulary.same_template = (truth == NULL) == (other == NULL) && (truth == NULL || strcmp(truth, other) == 0);
    apr_verify_judge(report, APR_VERIFY_TEMPLATE, report->vocabulary.same_template);
}

/* What goes by ids alone has nothing to compare; a vocabulary that only one of them has was lost, or added. */
static void check_presence(apr_verify_report *report)
{
    const apr_verify_input *const input = report->input;

    report->vocabulary = (apr_verify_vocabulary){.n_truth = input->truth.vocab->n_tokens, .n_other = input->other.vocab->n_tokens};
    report->vocabulary.first_lost_stop = report->vocabulary.first_ordinary_stop = report->vocabulary.turn_end = -1;
    if (input->truth.tokenizer == NULL && input->other.tokenizer == NULL) apr_verify_note(report, APR_VERIFY_TOKENIZER);
    else apr_verify_judge(report, APR_VERIFY_TOKENIZER, false);
}

apr_status apr_verify_vocabularies(apr_verify_report *report, apr_error *err)
{
    if (report->input->truth.tokenizer == NULL || report->input->other.tokenizer == NULL) {
        check_presence(report);
        return APR_OK;
    }
    APR_TRY(check_tokenizer(report, err));
    check_stops(report);
    check_template(report);
    return APR_OK;
}
