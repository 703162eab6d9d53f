/* job.c - see job.h. */
#include "tools/engine/convert/job.h"

#include "convert/mmproj.h"
#include "formats/base/clock.h"
#include "formats/base/text.h"
#include "formats/files/resume.h"
#include "formats/vocab/gguf_stops.h"
#include "runtime/template/chat.h"
#include "tools/engine/device/device.h"
#include "tools/engine/quantize/admission_of_file.h"
#include "tools/engine/quantize/kept.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- before the work --- */

bool apr_convert_job_is_kept(const apr_convert_job *job) { return job->run.part != NULL && job->run.part->n_parts > 0; }

apr_status apr_convert_job_check_outputs(const apr_convert_job *job, const apr_out_request *others, size_t n, apr_error *err)
{
    const bool is_folder = apr_format_suffix(job->options.format) == NULL, in_runs = job->run.part != NULL;
    char *const kept = apr_resume_path_for(job->out);
    apr_out_request *const all = calloc(n + 2, sizeof *all);
    apr_status status = kept != NULL && all != NULL ? APR_OK : apr_no_memory(err, "a path");

    if (status == APR_OK) {
        const bool completes = in_runs && !apr_convert_job_is_kept(job);
        const bool overwrite = job->options.sink.overwrite || completes || (in_runs && access(kept, F_OK) == 0);
        if (n > 0) memcpy(all, others, n * sizeof *all);
        all[n++] = (apr_out_request){.path = job->out, .is_folder = is_folder, .overwrite = overwrite, .is_dry = job->dry_run};
        if (in_runs) all[n++] = (apr_out_request){.path = kept, .is_folder = true, .overwrite = true};
        status = apr_outs_check(all, n, err);
    }
    free(all);
    free(kept);
    return status;
}

apr_status apr_convert_admit(const apr_model *source, bool allowed, apr_error *why, apr_error *err)
{
    apr_admission admission;

    *why = (apr_error){0};
    APR_TRY(apr_admission_of(&admission, source, err));
    if (!apr_admission_is_incomplete(&admission)) return APR_OK;
    const apr_status status = apr_admission_refuse(&admission, source->path, why);
    return allowed ? APR_OK : apr_fail(err, status, "%s; use --allow-incomplete to convert it anyway", why->text);
}

/* --- the plan --- */

/* A quantization that would change nothing is an error. */
static apr_status check_is_quantized(const apr_convert_job *job, apr_error *err)
{
    const apr_recipe *const recipe = &job->conversion.recipe;

    if (recipe->mixture[0] == '\0' || recipe->n_matrices == 0 || recipe->n_quantized > 0) return APR_OK;
    for (size_t i = 0; i < recipe->n_lines && recipe->packed != NULL; i++)
        if (recipe->lines[i].fell_back)
            return apr_fail(err, APR_E_NO, "%s: none of its %zu matrices can be quantized to %s as %s: '%s', for example: %s",
                            job->source->path, recipe->n_matrices, recipe->mixture, recipe->packed->layout->name,
                            recipe->lines[i].tensor->name, recipe->lines[i].reason);
    return apr_fail(err, APR_E_NO,
                    "%s: none of its %zu matrices can be quantized to %s: their names are unknown, and their rows are not whole blocks "
                    "(--tensor REGEX=TYPE chooses by name)",
                    job->source->path, recipe->n_matrices, recipe->mixture);
}

/* Plans again with the types that the allocation chose, after the user's own rules. */
static apr_status plan_again(apr_convert_job *job, apr_error *err)
{
    apr_allocation *const a = &job->allocation;
    apr_convert_options with = job->options;
    const size_t n_asked = with.recipe.n_overrides;
    apr_recipe_override *const all = apr_arena_array(&a->arena, n_asked + a->n_groups + 1, sizeof *all);

    if (all == NULL) return apr_no_memory(err, "the types of tensors");
    if (n_asked > 0) memcpy(all, with.recipe.overrides, n_asked * sizeof *all);
    memcpy(all + n_asked, a->overrides, a->n_groups * sizeof *all);
    with.recipe.overrides = all;
    with.recipe.n_overrides = n_asked + a->n_groups;
    apr_conversion_close(&job->conversion);
    return apr_conversion_plan(&job->conversion, job->source, &with, err);
}

/* aprrun also stops a chat at the token that ends turns in the template. Other readers of a GGUF only use its keys and token texts. */
static apr_status note_turn_end(apr_conversion *c, apr_error *err)
{
    const apr_vocab *const v = &c->layout.vocab;
    apr_chat_stops stops;

    if (c->options.format != APR_FORMAT_GGUF) return APR_OK;
    APR_TRY(apr_chat_stops_of(v, &stops, err));
    if (stops.added < 0 || apr_gguf_finds_stop(v, stops.added)) return APR_OK;
    const apr_str token = v->tokens[stops.added];
    return apr_loss_add(
        &c->losses, APR_LOST_TO_OTHERS, err,
        "the chat template ends turns with token %d (\"%.*s\"), but the model does not list it as a stop id (eos_token_id in "
        "generation_config.json): other programs do not stop there",
        (int)stops.added, token.n_bytes < 200 ? (int)token.n_bytes : 200, token.text);
}

/* The first GPU of --gpu: one is enough for what is not encoding. */
static apr_status first_gpu(const apr_convert_job *job, int64_t *ordinal, apr_error *err)
{
    int n, ordinals[APR_MAX_DEVICES] = {0};
    APR_TRY(apr_gpu_list_parse(job->encoder.gpus, &n, ordinals, err)); /* 0: all */
    *ordinal = n > 0 ? ordinals[0] : 0;
    return APR_OK;
}

/* Types are tried on a GPU that was asked for by --device cuda. With auto they are not, so that they do not depend on the machine. */
static apr_status allocate(apr_convert_job *job, apr_error *err)
{
    apr_device_options where = {.device = job->encoder.device, .direct = true, .replay = true, .fuse = true};
    const apr_device_warnings warnings = {job->warn, job->user};
    apr_session_options device = apr_session_defaults;
    apr_allocate_request request = *job->allocate;

    if (job->encoder.device == APR_DEVICE_CUDA) {
        APR_TRY(first_gpu(job, &where.ordinal, err));
        APR_TRY(apr_device_choose(&where, &warnings, &device, err));
        request.device = &device;
    }
    const apr_status status = apr_allocation_make(&job->allocation, &request, &job->conversion, job->listener, err);
    job->allocation.request.device = NULL;
    return status;
}

static apr_status plan(apr_convert_job *job, apr_error *err)
{
    const aprkit_tool_hooks *const hooks = job->hooks;

    APR_TRY(apr_conversion_plan(&job->conversion, job->source, &job->options, err));
    if (hooks != NULL && hooks->check_plan != NULL) APR_TRY(hooks->check_plan(hooks->user, job, err));
    APR_TRY(check_is_quantized(job, err));
    if (job->allocate != NULL) {
        APR_TRY(allocate(job, err));
        APR_TRY(plan_again(job, err));
    }
    return note_turn_end(&job->conversion, err);
}

static apr_status plan_tower(apr_convert_job *job, apr_error *err)
{
    if (job->mmproj == NULL) return APR_OK;
    APR_TRY(apr_mmproj_plan(&job->tower, job->source, job->options.recipe.mixture, err));
    job->tower.options.sink.overwrite = job->options.sink.overwrite;
    return APR_OK;
}

/* On the host, after the text part: a tower is small. */
static apr_status write_tower(apr_convert_job *job, apr_error *err)
{
    const apr_convert_run run = {.pipe = {.saturate = job->run.pipe.saturate, .is_cancelled = job->run.pipe.is_cancelled}};
    return job->mmproj != NULL ? apr_conversion_run(&job->tower, &run, job->mmproj, &job->tower_bytes, err) : APR_OK;
}

/* --- the run --- */

static apr_status open_feedback(apr_convert_job *job, apr_error *err)
{
    if (job->feedback == NULL) return APR_OK;
    apr_feedback_request request = *job->feedback;
    if (apr_convert_job_is_kept(job)) request.kept = job->out;
    APR_TRY(apr_feedback_run_open(&job->feedback_run, &request, &job->conversion, job->listener, err));
    job->run.pipe.custom_encoder = apr_feedback_run_custom_encoder(job->feedback_run);
    job->run.maker_terms = apr_feedback_run_terms(job->feedback_run);
    return apr_feedback_run_note(job->feedback_run, &job->conversion, err);
}

static apr_status open_heal(apr_convert_job *job, apr_error *err)
{
    if (job->heal == NULL || job->feedback_run == NULL) return APR_OK;
    apr_heal_request request = *job->heal;
    request.is_kept = apr_convert_job_is_kept(job);
    if (job->encoder.device == APR_DEVICE_CUDA) { /* with auto the host heals */
        int64_t ordinal;
        request.on_device = true;
        APR_TRY(first_gpu(job, &ordinal, err));
        request.ordinal = (int)ordinal;
    }
    return apr_heal_run_open(&job->heal_run, &request, job->feedback_run, &job->conversion, job->listener, err);
}

static void warn(const apr_convert_job *job, const char *what, const char *why)
{
    char sentence[sizeof((apr_error *)0)->text + 64];
    snprintf(sentence, sizeof sentence, "%s: %s", what, why);
    if (job->warn != NULL) job->warn(job->user, sentence);
}

static apr_status run_conversion(apr_convert_job *job, apr_error *err)
{
    return apr_conversion_run(&job->conversion, &job->run, job->out, &job->file_bytes, err);
}

/* Runs on the chosen device. With auto, a run that fails on the device is repeated on the host. */
static apr_status run_somewhere(apr_convert_job *job, apr_error *err)
{
    apr_encoder encoder;
    apr_error own = {0};

    APR_TRY(apr_encoder_open(&encoder, &job->encoder, &job->conversion, &job->run.pipe, err));
    if (*encoder.problem != '\0') warn(job, "encoding on the host", encoder.problem);
    snprintf(job->device, sizeof job->device, "%s", encoder.name);
    apr_status status = APR_OK;
    if (job->feedback_run != NULL && encoder.cuda != NULL)
        status = apr_feedback_run_to_gpu(job->feedback_run, encoder.cuda, encoder.devices[0], encoder.ordinals[0], &own);
    if (status == APR_OK) status = run_conversion(job, &own);
    if (job->feedback_run != NULL) apr_feedback_run_to_host(job->feedback_run);
    apr_encoder_close(&encoder, &job->run.pipe);
    const bool is_of_device = status == APR_E_DEVICE || (status == APR_E_MEMORY && *job->device != '\0');
    if (is_of_device && encoder.may_fall_back) {
        warn(job, "starting over on the host", own.text);
        *job->device = '\0';
        if (job->feedback_run != NULL) apr_feedback_run_restart(job->feedback_run);
        return run_conversion(job, err);
    }
    return status == APR_OK ? APR_OK : apr_fail(err, status, "%s", own.text);
}

/* An earlier run has finished the file, and was interrupted while it healed it. */
static void take_finished(apr_convert_job *job)
{
    struct stat st;

    job->file_bytes = stat(job->out, &st) == 0 ? (uint64_t)st.st_size : 0;
    for (size_t i = 0; i < job->conversion.layout.n_tensors; i++) job->conversion.items[i].state = APR_TENSOR_DONE_BEFORE;
}

static apr_status run_all(apr_convert_job *job, apr_error *err)
{
    const aprkit_tool_hooks *const hooks = job->hooks;
    bool is_there = false;
    apr_status status = APR_OK;

    if (job->heal_run != NULL) APR_TRY(apr_heal_run_begin(job->heal_run, job->out, &is_there, err));
    if (is_there) {
        take_finished(job);
    } else {
        if (hooks != NULL && hooks->begin != NULL) job->run.pipe.progress = hooks->begin(hooks->user);
        status = run_somewhere(job, err);
        if (hooks != NULL && hooks->end != NULL) hooks->end(hooks->user);
    }
    if (status == APR_OK && job->heal_run != NULL) return apr_heal_run_train(job->heal_run, job->out, err);
    if (status == APR_OK && apr_convert_job_is_kept(job)) apr_kept_remove(job->out, "heal"); /* of a run that was to heal it */
    return status;
}

apr_status apr_convert_job_run(apr_convert_job *job, apr_error *err)
{
    const aprkit_tool_hooks *const hooks = job->hooks;
    const double start = apr_seconds_now();

    APR_TRY(plan(job, err));
    APR_TRY(plan_tower(job, err));
    APR_TRY(open_feedback(job, err));
    APR_TRY(open_heal(job, err));
    if (!job->dry_run) APR_TRY(run_all(job, err));
    if (!job->dry_run) APR_TRY(write_tower(job, err));
    job->seconds = apr_seconds_now() - start;
    return hooks != NULL && hooks->show != NULL ? hooks->show(hooks->user, job, err) : APR_OK;
}

void apr_convert_job_close(apr_convert_job *job)
{
    apr_heal_run_close(job->heal_run);
    apr_feedback_run_close(job->feedback_run);
    apr_conversion_close(&job->conversion);
    apr_conversion_close(&job->tower);
    apr_allocation_close(&job->allocation);
    apr_lora_set_close(&job->lora);
    apr_imatrix_close(&job->imatrix);
}
