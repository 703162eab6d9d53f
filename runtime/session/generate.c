/* generate.c - evaluate, sample, repeat. */
#include "runtime/session/generate.h"
#include "formats/base/clock.h"

const char *apr_finish_name(apr_finish finish)
{
    static const char *const names[] = {
#define X(id, text) text,
        APR_FINISH_LIST(X)
#undef X
    };
    return names[finish];
}

static bool is_stop_id(const apr_generate_options *options, int32_t id)
{
    for (size_t i = 0; i < options->n_stop_ids; i++)
        if (options->stop_ids[i] == id) return true;
    return false;
}

apr_status apr_generate(apr_session *session, apr_sampler *sampler, const int32_t *prompt, size_t n_prompt,
                        const apr_generate_options *options, apr_generation *result, apr_error *err)
{
    const double begin = apr_seconds_now();
    apr_topk topk = apr_sampler_topk_request(sampler);
    const apr_eval_output wanted = {.best = &topk};

    *result = (apr_generation){.finish = APR_FINISH_LIMIT, .n_prompt = (int64_t)n_prompt};
    if (n_prompt == 0) return apr_fail(err, APR_E_USAGE, "there is nothing to continue: the prompt is empty");
    APR_TRY(apr_session_eval(session, prompt, n_prompt, &wanted, err));
    apr_sampler_take(sampler, prompt, n_prompt);
    const double prompted = apr_seconds_now();
    result->prompt_seconds = prompted - begin;

    while (result->n_generated < options->max_tokens) {
        int32_t id;
        APR_TRY(apr_choose(session, sampler, &topk, &id, err));
        const bool is_stop = is_stop_id(options, id);
        const bool continues = options->on_token == NULL || options->on_token(options->user, id, is_stop);

        result->n_generated++;
        if (is_stop || !continues) {
            result->finish = is_stop ? APR_FINISH_STOP : APR_FINISH_CALLER;
            break;
        }
        if (result->n_generated == options->max_tokens) break;
        if (apr_session_position(session) == apr_session_plan(session)->n_ctx) {
            result->finish = APR_FINISH_CONTEXT;
            break;
        }
        APR_TRY(apr_session_eval(session, &id, 1, &wanted, err));
    }
    result->generate_seconds = apr_seconds_now() - prompted;
    return APR_OK;
}
