/* fuzz_plan.c - any config.json as a plan: hyperparameters, program, plan on the host and on a GPU, or a sentence. */
#include "formats/hf/safetensors.h"
#include "formats/shape/hf_config.h"
#include "runtime/plan/plan.h"
#include "tests/fuzz/fuzz_target.h"

enum { MOST_WEIGHTS = 4096 }; /* larger programs only cost time */

/* The lines are the sums, values do not leave the arena, and every weight has memory. */
static void check_plan(const apr_program *program, const apr_plan_options *options)
{
    apr_error err = {0};
    apr_plan plan;
    uint64_t sums[2] = {0, 0};

    const apr_status status = apr_plan_make(&plan, program, options, &err);
    claim_sentence(status, err);
    if (status == APR_OK) {
        for (size_t i = 0; i < plan.n_lines; i++) {
            const apr_plan_line *const line = &plan.lines[i];
            claim(line->bytes > 0 && line->reason != NULL && line->reason[0] != '\0');
            claim(!__builtin_add_overflow(sums[line->on == APR_ON_DEVICE], line->bytes, &sums[line->on == APR_ON_DEVICE]));
        }
        claim(sums[0] == plan.host_bytes && sums[1] == plan.device_bytes);
        for (size_t i = 0; i < program->n_values; i++)
            claim(plan.value_offsets[i] < 0 || plan.value_offsets[i] + program->values[i].width <= plan.activation_width);
        claim(plan.fits == (plan.breaking < 0));
        claim(plan.max_ctx >= 0 && (!plan.fits || plan.budget_bytes == 0 || plan.max_ctx >= plan.n_ctx));
    }
    apr_plan_close(&plan);
}

static void check_program(const apr_hparams *hparams)
{
    static const apr_dtype dtypes[] = {APR_Q8_0, APR_Q4_K, APR_F16};
    apr_error err = {0};
    apr_program program = {0};

    const apr_status status = apr_program_emit(&program, hparams, &err);
    claim_sentence(status, err);
    uint64_t *const bytes = status == APR_OK ? calloc(program.n_weights + 1, sizeof *bytes) : NULL;
    for (size_t d = 0; bytes != NULL && program.n_weights <= MOST_WEIGHTS && d < sizeof dtypes / sizeof *dtypes; d++) {
        apr_plan_options options = apr_plan_defaults;
        for (size_t i = 0; i < program.n_weights; i++) bytes[i] = apr_plan_slot_bytes(&program.weights[i], dtypes[d]);
        options.weight_bytes = bytes;
        options.budget_bytes = (uint64_t)1 << 30;
        check_plan(&program, &options);
        options.gpu = apr_gpu_find("rtx4090");
        options.n_ctx = 1000;
        options.kv_dtype = APR_Q8_0;
        check_plan(&program, &options);
    }
    free(bytes);
    apr_program_close(&program);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    const apr_attachment config = {"config.json", data, n_bytes};
    apr_arena arena = {0};
    apr_hparams hparams;
    apr_error err = {0};

    apr_status status = apr_hf_config_read(&config, &hparams, &arena, "fuzz", &err);
    if (status == APR_OK) status = apr_hparams_complete(&hparams, &arena, "fuzz", &err);
    claim_sentence(status, err);
    if (status == APR_OK && hparams.num_layers <= 16) check_program(&hparams);
    apr_arena_close(&arena);
    return 0;
}
