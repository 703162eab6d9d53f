/* runs.c - see handles.h: what sessions and verifications open. */
#include "runtime/plan/plan.h"
#include "tools/engine/library/handles.h"

static void show_note(void *user, const char *sentence) { apr_library_note(user, sentence); }

static apr_status choose_device(const aprkit_session_options *o, apr_device_options *where, apr_error *err)
{
    *where = (apr_device_options){
        .ordinal = o->gpu, .headroom = o->headroom > 0 ? o->headroom : (uint64_t)1 << 30, .direct = true, .replay = true, .fuse = true};
    where->device = o->device != NULL ? apr_word_index(o->device, "host|cuda|auto") : APR_DEVICE_HOST;
    if (where->device < 0) return apr_fail(err, APR_E_USAGE, "'%s' is not a device: give host, cuda or auto", o->device);
    return APR_OK;
}

apr_status apr_library_session_options(const aprkit_session_options *o, const aprkit_model *model, const apr_library_listener *listener,
                                       apr_device_warnings *warnings, apr_session_options *options, apr_error *err)
{
    const aprkit_run_hooks *const hooks = o->hooks;
    apr_device_options where;
    int kv;

    APR_TRY(choose_device(o, &where, err));
    if (o->n_context < 0 || o->n_batch < 0) return apr_fail(err, APR_E_USAGE, "context and batch of a session cannot be negative");
    APR_TRY(apr_kv_of_word(o->kv, &kv, err));
    *options = apr_session_defaults;
    options->n_ctx = o->n_context;
    options->shorter_ctx = hooks != NULL && hooks->shorter_ctx;
    options->n_batch = o->n_batch;
    options->n_logits = hooks != NULL ? hooks->n_logits : 1;
    options->kv_dtype = apr_kv_dtypes[hooks != NULL ? hooks->kv : kv];
    options->n_threads = o->threads;
    options->budget_bytes = o->memory;
    options->is_cancelled = &listener->is_cancelled;
    if (model->owner.copies) options->weights_location = "copied from the file";
    *warnings =
        hooks != NULL ? (apr_device_warnings){hooks->warn, hooks->user} : (apr_device_warnings){show_note, (void *)(uintptr_t)listener};
    return apr_device_choose(hooks != NULL ? hooks->where : &where, warnings, options, err);
}

apr_status apr_library_view(apr_running *running, const aprkit_model *model, const apr_library_listener *listener, apr_error *err)
{
    APR_TRY(apr_library_need_weights(model, err));
    APR_TRY(apr_running_borrow(running, &model->model, model->names_bytes, err));
    apr_running_notes(&running->source, show_note, (void *)(uintptr_t)listener);
    return APR_OK;
}

/* For owners that copy: all bytes of the model's files stay in memory until they are closed. */
static apr_status keep_all(const apr_model *model, apr_error *err)
{
    for (size_t i = 0; i < model->n_maps; i++)
        if (model->maps[i].input != NULL) APR_TRY(apr_map_keep(&model->maps[i], model->maps[i].n_bytes, err));
    return APR_OK;
}

apr_status apr_library_merge(apr_running *running, const char *const *adapters, size_t n_adapters, const aprkit_run_hooks *hooks,
                             apr_error *err)
{
    if (n_adapters == 0) return APR_OK;
    APR_TRY(apr_lora_set_open(&running->lora, adapters, n_adapters, err));
    for (size_t i = 0; i < running->lora.n; i++) APR_TRY(keep_all(&running->lora.adapters[i].files, err));
    if (hooks != NULL && hooks->merging != NULL) hooks->merging(hooks->user, &running->lora);
    return apr_merge_adapters(&running->model, running->lora.uses, running->lora.n, err);
}

apr_status apr_library_load(aprkit_model *m, apr_error *err)
{
    pthread_mutex_lock(&m->lock);
    const apr_status status = keep_all(&m->model, err);
    pthread_mutex_unlock(&m->lock);
    return status;
}
