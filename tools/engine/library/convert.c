/* convert.c - aprkit.h: conversion and quantization. */
#include "formats/base/text.h"
#include "tools/engine/convert/job.h"
#include "tools/engine/device/device.h"
#include "tools/engine/library/handles.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the options become; all of it lives as long as the call. */
typedef struct conversion {
    aprkit_convert_options options;
    apr_convert_job job;
    apr_recipe_override *overrides;
    apr_resume_part part;
    apr_library_listener listener;
} conversion;

/* A format is named by the suffix of its files without the full stop; "safetensors" is a folder. */
static apr_format format_of_word(const char *word)
{
    char path[64];

    if (strcmp(word, "safetensors") == 0) return APR_FORMAT_SAFETENSORS;
    if (snprintf(path, sizeof path, "out.%s", word) >= (int)sizeof path) return APR_FORMAT_NONE;
    const apr_format format = apr_format_of_path(path);
    return format != APR_FORMAT_NONE && apr_format_suffix(format) != NULL ? format : APR_FORMAT_NONE;
}

static apr_status read_format(const char *word, const char *out, apr_format *format, apr_error *err)
{
    *format = word != NULL ? format_of_word(word) : apr_format_of_path(out);
    if (*format != APR_FORMAT_NONE) return APR_OK;
    if (word != NULL) return apr_fail(err, APR_E_USAGE, "the format '%s' cannot be written: give gguf, apr or safetensors", word);
    return apr_fail(err, APR_E_USAGE, "%s: its ending does not say a format: give a name that ends in .gguf, .apr or '/'", out);
}

static apr_status read_rules(conversion *c, apr_error *err)
{
    const aprkit_convert_options *const o = &c->options;

    c->overrides = calloc(o->n_rules + 1, sizeof *c->overrides);
    if (c->overrides == NULL) return apr_no_memory(err, "rules");
    for (size_t i = 0; i < o->n_rules; i++) {
        c->overrides[i] = (apr_recipe_override){.regex = o->rules[i].regex, .to = apr_dtype_by_name(o->rules[i].type)};
        if (c->overrides[i].to == APR_DTYPE_COUNT)
            return apr_fail(err, APR_E_USAGE, "'%s' is not a type of tensors, in the rule for '%s'", o->rules[i].type, o->rules[i].regex);
    }
    c->job.options.recipe = (apr_recipe_options){
        .mixture = o->to, .overrides = c->overrides, .n_overrides = o->n_rules, .allow_requantize = o->allow_requantize != 0};
    return APR_OK;
}

static apr_status read_part(conversion *c, apr_error *err)
{
    const aprkit_convert_options *const o = &c->options;

    if ((o->resume != 0) + (o->finish != 0) + (o->part != 0 || o->n_parts != 0) > 1)
        return apr_fail(err, APR_E_USAGE, "give only one of resume, finish and part");
    if ((o->part != 0 || o->n_parts != 0) && (o->part < 1 || o->part > o->n_parts))
        return apr_fail(err, APR_E_USAGE, "part %d of %d does not exist", o->part, o->n_parts);
    c->part = (apr_resume_part){.part = o->part, .n_parts = o->resume != 0 ? 1 : o->n_parts};
    if (o->resume != 0 || o->finish != 0 || o->part != 0) c->job.run.part = &c->part;
    return APR_OK;
}

static apr_status read_device(conversion *c, apr_error *err)
{
    const char *const device = c->options.device;
    const int i = device != NULL ? apr_word_index(device, "host|cuda|auto") : APR_DEVICE_HOST;

    if (i < 0) return apr_fail(err, APR_E_USAGE, "'%s' is not a device: give host, cuda or auto", device);
    c->job.encoder = (apr_encoder_options){.device = i, .gpus = c->options.gpus != NULL ? c->options.gpus : "0"};
    return APR_OK;
}

static apr_status read_sink(conversion *c, apr_error *err)
{
    const aprkit_convert_options *const o = &c->options;
    const int profile = o->profile != NULL ? apr_word_index(o->profile, "default|aprender") : APR_PROFILE_DEFAULT;

    if (profile < 0) return apr_fail(err, APR_E_USAGE, "'%s' is not a profile: give default or aprender", o->profile);
    c->job.options.sink = (apr_sink_options){.profile = (apr_profile)profile,
                                             .overwrite = o->overwrite != 0,
                                             .allow_loss = o->allow_loss != 0,
                                             .max_shard_bytes = o->max_shard_bytes};
    c->job.run.pipe.saturate = o->saturate != 0;
    return read_format(o->format, c->job.out, &c->job.options.format, err);
}

static void warn(void *user, const char *sentence) { apr_library_note(user, sentence); }

static apr_status admit(conversion *c, apr_error *err)
{
    apr_error why;

    if (c->job.source->format == APR_FORMAT_CONFIG)
        return apr_fail(err, APR_E_USAGE, "%s is a config.json: it has no weights to convert", c->job.source->path);
    APR_TRY(apr_convert_admit(c->job.source, c->options.allow_incomplete != 0, &why, err));
    if (why.text[0] != '\0') apr_library_note(&c->listener, why.text);
    return APR_OK;
}

static apr_status open_inputs(conversion *c, apr_error *err)
{
    APR_TRY(apr_lora_set_open(&c->job.lora, c->options.adapters, c->options.n_adapters, err));
    c->job.options.adapters = c->job.lora.uses;
    c->job.options.n_adapters = c->job.lora.n;
    if (c->options.imatrix == NULL) return APR_OK;
    APR_TRY(apr_imatrix_open(&c->job.imatrix, c->options.imatrix, false, err));
    c->job.options.imatrix = &c->job.imatrix;
    return APR_OK;
}

static apr_status prepare(conversion *c, apr_error *err)
{
    const aprkit_tool_hooks *const hooks = c->job.hooks;

    APR_TRY(read_part(c, err));
    APR_TRY(read_rules(c, err));
    APR_TRY(read_device(c, err));
    APR_TRY(read_sink(c, err));
    APR_TRY(admit(c, err));
    APR_TRY(open_inputs(c, err));
    c->job.run.pipe.progress = apr_library_progress(&c->listener);
    c->job.run.pipe.is_cancelled = &c->listener.is_cancelled;
    c->job.warn = warn;
    c->job.user = &c->listener;
    if (hooks != NULL && hooks->prepare != NULL) return hooks->prepare(hooks->user, &c->job, err);
    return apr_convert_job_check_outputs(&c->job, NULL, 0, err);
}

/* The tools show losses themselves. */
static void note_losses(conversion *c)
{
    const apr_losses *const losses = &c->job.conversion.losses;
    for (size_t i = 0; i < losses->n_items && c->job.hooks == NULL; i++) apr_library_note(&c->listener, losses->items[i].text);
}

static apr_status convert(conversion *c, const apr_model *source, const char *out, apr_error *err)
{
    if (out == NULL) return apr_fail(err, APR_E_USAGE, "the name of the output is missing");
    c->job.source = source;
    c->job.out = out;
    c->job.hooks = c->options.hooks;
    c->listener =
        (apr_library_listener){.progress = c->options.progress, .on_note = c->options.on_note, .user = c->options.user, .unit = "bytes"};
    apr_status status = prepare(c, err);
    if (status == APR_OK) status = apr_convert_job_run(&c->job, err);
    if (status == APR_OK) note_losses(c);
    return status;
}

int aprkit_convert(aprkit_model *model, const char *out, const aprkit_convert_options *options, aprkit_error *error)
{
    apr_error err = {0};
    conversion *const c = calloc(1, sizeof *c);
    apr_status status = c != NULL ? apr_take_options(&c->options, sizeof c->options, options, "aprkit_convert_options", &err)
                                  : apr_no_memory(&err, "a conversion");
    const apr_library_call call = apr_library_enter(&model->owner, status == APR_OK ? c->options.threads : 0);

    pthread_mutex_lock(&model->lock);
    if (status == APR_OK) status = apr_library_need_weights(model, &err);
    if (status == APR_OK) status = convert(c, &model->model, out, &err);
    const bool is_cancelled = status != APR_OK && c != NULL && atomic_load(&c->listener.is_cancelled);
    if (c != NULL) {
        apr_convert_job_close(&c->job);
        free(c->overrides);
        free(c);
    }
    pthread_mutex_unlock(&model->lock);
    const int result = apr_library_leave(&call, status, &err, error);
    return is_cancelled ? apr_library_cancelled(error) : result;
}
