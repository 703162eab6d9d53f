/* model.c - aprkit.h: opens models, and says what is in them. */
#include "formats/open.h"
#include "formats/tensor/sink.h"
#include "runtime/session/heap.h"
#include "tools/engine/library/handles.h"

#include <stdlib.h>

/* Of a file that is larger than what apr_map_open keeps, all that comes before the first tensor is kept, and nothing else. */
static apr_status keep_heads(const apr_model *model, apr_error *err)
{
    for (size_t i = 0; i < model->n_maps; i++) {
        const apr_map *const map = &model->maps[i];
        size_t head = map->n_bytes;
        if (map->n_bytes <= APR_KEPT_FILE) continue;
        for (size_t k = 0; k < model->n_tensors; k++) {
            const size_t at = (size_t)((uintptr_t)model->tensors[k].data - (uintptr_t)map->data);
            if (model->tensors[k].data != NULL && at < head) head = at;
        }
        APR_TRY(apr_map_keep(map, head, err));
    }
    return APR_OK;
}

static apr_status read_model(aprkit_model *m, const char *path, const aprkit_model_options *o, apr_error *err)
{
    m->is_whole = true;
    m->is_tokenizer = o->tokenizer_only != 0;
    if (m->is_tokenizer) return apr_model_open_vocab(&m->model, path, err);
    return o->header_only != 0 ? apr_model_open_head(&m->model, path, &m->is_whole, err) : apr_model_open(&m->model, path, err);
}

static apr_status open_model(aprkit_model *m, const char *path, const aprkit_model_options *options, apr_error *err)
{
    aprkit_model_options o;

    if (path == NULL) return apr_fail(err, APR_E_USAGE, "the path of the model is missing");
    APR_TRY(apr_take_options(&o, sizeof o, options, "aprkit_model_options", err));
    m->owner.copies = o.map == 0;
    const apr_library_call call = apr_library_enter(&m->owner, 0);
    const uint64_t before = apr_heap_in_use();
    apr_status status = read_model(m, path, &o, err);
    const uint64_t after = apr_heap_in_use();
    m->names_bytes = after == UINT64_MAX ? UINT64_MAX : after > before ? after - before : 0;
    if (status == APR_OK) {
        status = keep_heads(&m->model, err);
        if (status != APR_OK) apr_model_close(&m->model);
    }
    apr_library_leave(&call, status, err, NULL);
    return status;
}

int aprkit_model_open(aprkit_model **model, const char *path, const aprkit_model_options *options, aprkit_error *error)
{
    apr_error err = {0};
    aprkit_model *m = calloc(1, sizeof *m);

    apr_status status = m != NULL ? open_model(m, path, options, &err) : apr_no_memory(&err, "a model");
    if (status == APR_OK) {
        pthread_mutex_init(&m->lock, NULL);
    } else {
        free(m);
        m = NULL;
    }
    *model = m;
    return apr_library_result(status, &err, error);
}

void aprkit_model_close(aprkit_model *model)
{
    if (model == NULL) return;
    apr_model_close(&model->model);
    pthread_mutex_destroy(&model->lock);
    free(model);
}

int aprkit_model_info(const aprkit_model *model, aprkit_model_facts *facts, aprkit_error *error)
{
    const apr_model *const m = &model->model;
    aprkit_model_facts f = {.path = m->path,
                            .format = apr_format_name(m->format),
                            .architecture = m->hparams.hf_class,
                            .n_tensors = m->n_tensors,
                            .n_layers = m->hparams.num_layers,
                            .hidden_size = m->hparams.hidden_size,
                            .n_vocabulary = m->hparams.vocab_size,
                            .n_context = m->hparams.max_position_embeddings,
                            .n_tokens = m->vocab.n_tokens,
                            .chat_template = m->vocab.chat_template};
    apr_error err = {0};

    for (size_t i = 0; i < m->n_tensors; i++) {
        f.tensor_bytes += m->tensors[i].n_bytes;
        f.n_parameters += (uint64_t)apr_tensor_elems(&m->tensors[i]);
    }
    return apr_library_result(apr_give_facts(facts, sizeof f, &f, "aprkit_model_facts", &err), &err, error);
}

int aprkit_model_tensor(const aprkit_model *model, size_t i, aprkit_tensor_facts *tensor, aprkit_error *error)
{
    const apr_model *const m = &model->model;
    apr_error err = {0};

    if (i >= m->n_tensors)
        return apr_library_result(apr_fail(&err, APR_E_USAGE, "%s has no tensor %zu: it has %zu", m->path, i, m->n_tensors), &err, error);
    const apr_tensor *const t = &m->tensors[i];
    aprkit_tensor_facts f = {.name = t->name, .type = apr_dtypes[t->dtype].name, .rank = t->rank, .n_bytes = t->n_bytes};
    for (int k = 0; k < t->rank; k++) f.dims[k] = t->dims[k];
    return apr_library_result(apr_give_facts(tensor, sizeof f, &f, "aprkit_tensor_facts", &err), &err, error);
}
