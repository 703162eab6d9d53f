/* sampling.c - options of the command line as the sampler takes them. */
#include "tools/verbs/run/sampling.h"

apr_sample_options apr_sampling_options(const apr_sampling *o)
{
    return (apr_sample_options){.temperature = (float)o->temp,
                                .top_p = (float)o->top_p,
                                .seed = (uint64_t)o->seed,
                                .top_k = o->top_k,
                                .min_p = (float)o->min_p,
                                .repeat_penalty = (float)o->repeat,
                                .presence_penalty = (float)o->presence,
                                .frequency_penalty = (float)o->frequency,
                                .repeat_last = o->repeat_last};
}

apr_status apr_check_stop_texts(const apr_strings *stop, apr_error *err)
{
    if (stop->n_items > APR_MOST_STOP_TEXTS)
        return apr_fail(err, APR_E_USAGE, "--stop is given %zu times: at most %d are possible", stop->n_items, APR_MOST_STOP_TEXTS);
    for (size_t i = 0; i < stop->n_items; i++)
        if (stop->items[i][0] == '\0') return apr_fail(err, APR_E_USAGE, "--stop: an empty text ends every answer; leave it out");
    return APR_OK;
}
