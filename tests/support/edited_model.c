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

const char *const made_break_names[] = {"good", "norm gains left out", "two heads swapped in q_proj", "rope theta doubled"};

void *made_keep(made *m, size_t n_bytes)
{
    assert_true(m->n_memory < sizeof m->memory / sizeof *m->memory);
    void *const p = calloc(1, n_bytes + 1);
    assert_non_null(p);
    return m->memory[m->n_memory++] = p;
}

static bool is_broken(made_break how, const apr_tensor *t)
{
    return (how == MADE_NORM_LEFT_OUT && strcmp(t->name, "model.layers.1.input_layernorm.weight") == 0) ||
           (how == MADE_HEADS_SWAPPED && strcmp(t->name, "model.layers.0.self_attn.q_proj.weight") == 0);
}

static void break_values(made_break how, const apr_hparams *h, const apr_tensor *t, float *values)
{
    if (!is_broken(how, t)) return;
    if (how == MADE_NORM_LEFT_OUT)
        for (int64_t i = 0; i < t->dims[0]; i++) values[i] = 1.0f;
    if (how == MADE_HEADS_SWAPPED) {
        const int64_t n = h->head_dim * t->dims[1];
        for (int64_t i = 0; i < n; i++) {
            const float first = values[i];
            values[i] = values[n + i];
            values[n + i] = first;
        }
    }
}

static void encode_tensor(made *m, apr_tensor *t, apr_dtype dtype, const float *values)
{
    const int64_t rows = apr_tensor_rows(t), columns = apr_tensor_columns(t);
    const bool is_matrix = t->rank == 2 && columns % apr_dtypes[dtype].elems_per_block == 0;
    const apr_dtype to = is_matrix ? dtype : APR_F32;
    const size_t row_bytes = (size_t)apr_row_bytes(to, columns);
    uint8_t *const bytes = made_keep(m, (size_t)rows * row_bytes);
    float *const scales = to == APR_F8_E4M3 ? made_keep(m, (size_t)rows * sizeof(float)) : NULL;

    for (int64_t r = 0; r < rows; r++)
        if (scales != NULL) apr_encode_fp8_row(values + r * columns, bytes + (size_t)r * row_bytes, &scales[r], columns);
        else apr_ref_codecs[to].encode(values + r * columns, bytes + (size_t)r * row_bytes, columns);
    t->dtype = to;
    t->data = bytes;
    t->n_bytes = (uint64_t)rows * row_bytes;
    t->pending = (apr_step){0};
    t->made = NULL;
    if (scales == NULL) return;
    apr_tensor *const scale = made_keep(m, sizeof *scale);
    *scale = (apr_tensor){.name = "scale", .dtype = APR_F32, .rank = 2, .dims = {rows, 1}, .data = (const uint8_t *)scales};
    scale->n_bytes = (uint64_t)rows * sizeof *scales;
    t->scale = scale;
    t->scale_rows = 1;
    t->scale_columns = columns;
}

void made_open(made *m, const apr_model *reference, const made *good, apr_dtype dtype, apr_dtype second, made_break how)
{
    *m = (made){.model = {.path = "made", .naming = reference->naming, .hparams = reference->hparams}};
    m->model.tensors = made_keep(m, reference->n_tensors * sizeof *reference->tensors);
    m->model.n_tensors = reference->n_tensors;
    if (how == MADE_THETA_DOUBLED) m->model.hparams.rope_theta *= 2.0;
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

void made_open_edited(made *m, const apr_model *reference, apr_dtype dtype, made_edit edit)
{
    *m = (made){.model = {.path = "made", .naming = reference->naming, .hparams = reference->hparams}};
    m->model.tensors = made_keep(m, (reference->n_tensors + 1) * sizeof *reference->tensors);
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

void made_close(made *m)
{
    apr_model_close(&m->model);
    for (size_t i = 0; i < m->n_memory; i++) free(m->memory[i]);
}

apr_session *made_session(const apr_model *model, int64_t n_ctx)
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
