/* program_model.c - a model in memory that has whatever its program asks for. */
#include "tests/support/program_model.h"

#include "formats/tensor/composed.h"
#include "kernels/rows.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

apr_hparams program_model_sizes(const char *architecture)
{
    return (apr_hparams){.architecture = architecture,
                         .hidden_size = 64,
                         .num_layers = 2,
                         .num_heads = 4,
                         .num_kv_heads = 2,
                         .head_dim = 32,
                         .vocab_size = 96,
                         .intermediate_size = 96,
                         .max_position_embeddings = 512,
                         .rms_norm_eps = 1e-6,
                         .rope_theta = 10000.0,
                         .rotary_dim = 32,
                         .sliding_window = 48,
                         .attention_chunk_size = 40,
                         .attn_temperature_length = 16.0,
                         .q_lora_rank = 32,
                         .kv_lora_rank = 32,
                         .qk_nope_head_dim = 32,
                         .qk_rope_head_dim = 32,
                         .v_head_dim = 32,
                         .num_experts = 6,
                         .num_experts_per_tok = 2,
                         .moe_intermediate_size = 32,
                         .shared_expert_intermediate_size = 32,
                         .moe_latent_size = 32,
                         .linear_num_key_heads = 2,
                         .linear_num_value_heads = 4,
                         .linear_key_head_dim = 32,
                         .linear_value_head_dim = 32,
                         .linear_conv_kernel_dim = 4,
                         .per_layer_input_size = 32,
                         .altup_num_inputs = 4,
                         .laurel_rank = 32,
                         .num_sparse_layers = 1,
                         .activation_sparsity = 0.7,
                         .index_n_heads = 2,
                         .index_head_dim = 32,
                         .index_topk = 16};
}

static float noise(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (float)(int32_t)(*seed >> 32) * 0x1p-31f;
}

/* Matrices keep the size of what they multiply; gains are around 1, and so are biases. */
static apr_status fill(apr_tensor *tensor, bool is_matrix, apr_arena *arena, uint64_t *seed)
{
    const int64_t n = apr_tensor_elems(tensor);
    float *const values = apr_arena_array(arena, (size_t)n + 1, sizeof *values);
    uint8_t *const data = apr_arena_alloc(arena, tensor->n_bytes + 64);

    if (values == NULL || data == NULL) return APR_E_MEMORY;
    for (int64_t i = 0; i < n; i++) values[i] = is_matrix ? 0.25f * noise(seed) : 0.5f + 0.5f * noise(seed);
    apr_ref_codecs[tensor->dtype].encode(values, data, n);
    tensor->data = data;
    return APR_OK;
}

static apr_status add_slot(apr_model *model, const apr_weight_slot *slot, apr_dtype dtype, uint64_t *seed, apr_error *err)
{
    const bool is_matrix = slot->uses != APR_USE_FLOAT;
    for (int64_t i = 0; i < slot->count; i++) {
        apr_tensor *const tensor = &model->tensors[model->n_tensors++];
        char name[256];
        *tensor = (apr_tensor){.dtype = is_matrix ? dtype : APR_F32, .rank = slot->rank};
        tensor->name = apr_arena_print(&model->arena, "%s", apr_slot_name(slot, i, name, sizeof name));
        memcpy(tensor->dims, slot->dims, sizeof slot->dims);
        APR_TRY(apr_tensor_size(tensor, "a test", err));
        if (tensor->name == NULL || fill(tensor, is_matrix, &model->arena, seed) != APR_OK) return apr_no_memory(err, "a model");
    }
    return APR_OK;
}

apr_status program_model_open(program_model *m, const apr_hparams *hparams, apr_dtype dtype, apr_error *err)
{
    apr_model *const model = &m->model;
    uint64_t seed = 7;
    size_t n = 1;

    *m = (program_model){.model = {.path = "a model of noise", .naming = APR_NAMING_HF, .hparams = *hparams}};
    APR_TRY(apr_program_emit(&m->program, hparams, err));
    for (size_t i = 0; i < m->program.n_weights; i++) n += (size_t)m->program.weights[i].count;
    model->tensors = apr_arena_array(&model->arena, n, sizeof *model->tensors);
    apr_status status = model->tensors != NULL ? APR_OK : apr_no_memory(err, "a model");
    for (size_t i = 0; i < m->program.n_weights && status == APR_OK; i++)
        if (strstr(m->program.weights[i].name, "rope_freqs") == NULL) status = add_slot(model, &m->program.weights[i], dtype, &seed, err);
    if (status == APR_OK) status = apr_model_index_names(model, err);
    if (status != APR_OK) program_model_close(m);
    return status;
}

void program_model_close(program_model *m)
{
    apr_program_close(&m->program);
    apr_model_close(&m->model);
}

/* [a, b] as it would be stored transposed. */
static const apr_tensor *transposed_name(const apr_tensor *tensor, apr_arena *arena)
{
    const size_t n_bytes = (size_t)apr_row_bytes(tensor->dtype, 1), rows = (size_t)tensor->dims[0], columns = (size_t)tensor->dims[1];
    apr_tensor *const turned = apr_arena_alloc(arena, sizeof *turned);
    uint8_t *const data = apr_arena_alloc(arena, tensor->n_bytes);

    if (turned == NULL || data == NULL) return NULL;
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < columns; c++) memcpy(data + (c * rows + r) * n_bytes, tensor->data + (r * columns + c) * n_bytes, n_bytes);
    *turned = *tensor;
    turned->dims[0] = (int64_t)columns, turned->dims[1] = (int64_t)rows;
    turned->data = data;
    return turned;
}

apr_status program_model_transposed(apr_model *view, program_model *m, apr_error *err)
{
    const apr_chain transpose = apr_chain_of((apr_step){.kind = APR_STEP_TRANSPOSE});

    *view = (apr_model){.path = m->model.path, .naming = APR_NAMING_HF, .hparams = m->model.hparams, .n_tensors = m->model.n_tensors};
    view->tensors = apr_arena_array(&view->arena, view->n_tensors + 1, sizeof *view->tensors);
    if (view->tensors == NULL) return apr_no_memory(err, "a view");
    for (size_t i = 0; i < view->n_tensors; i++) {
        view->tensors[i] = m->model.tensors[i];
        if (view->tensors[i].rank != 2 || apr_dtypes[view->tensors[i].dtype].elems_per_block > 1) continue;
        const apr_tensor *const part = transposed_name(&m->model.tensors[i], &view->arena);
        if (part == NULL) return apr_no_memory(err, "a view");
        APR_TRY(apr_tensor_compose(&view->tensors[i], &part, 1, &transpose, &view->arena, "a test", err));
    }
    return apr_model_index_names(view, err);
}

apr_session *must_open_session(const apr_model *model, const apr_session_options *options)
{
    apr_error err = {0};
    apr_session *s;
    if (apr_session_open(&s, model, options, &err) != APR_OK) fail_msg("%s: %s", model->hparams.architecture, err.text);
    return s;
}
