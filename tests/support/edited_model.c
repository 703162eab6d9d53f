/* edited_model.c - encodes and breaks. */
#include "tests/support/edited_model.h"

#include "kernels/rows.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

const char *const break_names[] = {"good", "norm gains left out", "two heads swapped in q_proj", "rope theta doubled"};

void *edited_model_memory(edited_model *m, size_t n_bytes)
{
    assert_true(m->n_memory < sizeof m->memory / sizeof *m->memory);
    void *const p = calloc(1, n_bytes + 1);
    assert_non_null(p);
    return m->memory[m->n_memory++] = p;
}

static bool is_broken(model_break how, const apr_tensor *t)
{
    return (how == BREAK_NORM_LEFT_OUT && strcmp(t->name, "model.layers.1.input_layernorm.weight") == 0) ||
           (how == BREAK_HEADS_SWAPPED && strcmp(t->name, "model.layers.0.self_attn.q_proj.weight") == 0);
}

static void break_values(model_break how, const apr_hparams *h, const apr_tensor *t, float *values)
{
    if (!is_broken(how, t)) return;
    if (how == BREAK_NORM_LEFT_OUT)
        for (int64_t i = 0; i < t->dims[0]; i++) values[i] = 1.0f;
    if (how == BREAK_HEADS_SWAPPED) {
        const int64_t n = h->head_dim * t->dims[1];
        for (int64_t i = 0; i < n; i++) {
            const float first = values[i];
            values[i] = values[n + i];
            values[n + i] = first;
        }
    }
}

static void encode_tensor(edited_model *m, apr_tensor *t, apr_dtype dtype, const float *values)
{
    const int64_t rows = apr_tensor_rows(t), columns = apr_tensor_columns(t);
    const bool is_matrix = t->rank == 2 && columns % apr_dtypes[dtype].elems_per_block == 0;
    const apr_dtype to = is_matrix ? dtype : APR_F32;
    const size_t row_bytes = (size_t)apr_row_bytes(to, columns);
    uint8_t *const bytes = edited_model_memory(m, (size_t)rows * row_bytes);
    float *const scales = to == APR_F8_E4M3 ? edited_model_memory(m, (size_t)rows * sizeof(float)) : NULL;

    for (int64_t r = 0; r < rows; r++)
        if (scales != NULL) apr_encode_fp8_row(values + r * columns, bytes + (size_t)r * row_bytes, &scales[r], columns);
        else apr_ref_codecs[to].encode(values + r * columns, bytes + (size_t)r * row_bytes, columns);
    t->dtype = to;
    t->data = bytes;
    t->n_bytes = (uint64_t)rows * row_bytes;
    t->pending = (apr_step){0};
    t->composed = NULL;
    if (scales == NULL) return;
    apr_tensor *const scale = edited_model_memory(m, sizeof *scale);
    *scale = (apr_tensor){.name = "scale", .dtype = APR_F32, .rank = 2, .dims = {rows, 1}, .data = (const uint8_t *)scales};
    scale->n_bytes = (uint64_t)rows * sizeof *scales;
    t->scale = scale;
    t->scale_rows = 1;
    t->scale_columns = columns;
}

void edited_model_open(edited_model *m, const apr_model *reference, const edited_model *good, apr_dtype dtype, apr_dtype second,
                       model_break how)
{
    *m = (edited_model){.model = {.path = "made", .naming = reference->naming, .hparams = reference->hparams}};
    m->model.tensors = edited_model_memory(m, reference->n_tensors * sizeof *reference->tensors);
    m->model.n_tensors = reference->n_tensors;
    if (how == BREAK_THETA_DOUBLED) m->model.hparams.rope_theta *= 2.0;
    for (size_t i = 0; i < reference->n_tensors; i++) {
        apr_tensor *const t = &m->model.tensors[i];
        *t = good != NULL ? good->model.tensors[i] : reference->tensors[i];
        if (good != NULL && !is_broken(how, t)) continue;
        *t = reference->tensors[i];
        float *const values = malloc((size_t)apr_tensor_elems(t) * sizeof *values);
        assert_non_null(values);
        apr_decode_rows(t, 0, apr_tensor_rows(t), values);
        break_values(how, &reference->hparams, t, values);
        encode_tensor(m, t, i % 2 == 0 ? dtype : second, values);
        free(values);
    }
    assert_int_equal(apr_model_index_names(&m->model, NULL), APR_OK);
}

void edited_model_open_with(edited_model *m, const apr_model *reference, apr_dtype dtype, model_edit edit)
{
    *m = (edited_model){.model = {.path = "made", .naming = reference->naming, .hparams = reference->hparams}};
    m->model.tensors = edited_model_memory(m, (reference->n_tensors + 1) * sizeof *reference->tensors);
    m->model.n_tensors = reference->n_tensors;
    for (size_t i = 0; i < reference->n_tensors; i++) {
        apr_tensor *const t = &m->model.tensors[i];
        *t = reference->tensors[i];
        float *const values = malloc((size_t)apr_tensor_elems(t) * sizeof *values + 1);
        assert_non_null(values);
        apr_decode_rows(t, 0, apr_tensor_rows(t), values);
        if (edit != NULL) edit(m, t, values);
        encode_tensor(m, t, dtype, values);
        free(values);
    }
    if (edit != NULL) edit(m, NULL, NULL);
    assert_int_equal(apr_model_index_names(&m->model, NULL), APR_OK);
}

void edited_model_close(edited_model *m)
{
    apr_model_close(&m->model);
    for (size_t i = 0; i < m->n_memory; i++) free(m->memory[i]);
}

apr_session *edited_model_session(const apr_model *model, int64_t n_ctx)
{
    apr_session_options options = apr_session_defaults;
    apr_error err = {0};
    apr_session *session;

    options.n_ctx = n_ctx;
    options.kv_dtype = APR_F32;
    options.n_logits = 32;
    if (apr_session_open(&session, model, &options, &err) != APR_OK) fail_msg("%s", err.text);
    return session;
}
