/* runtime/plan/plan.h against the driver: shapes of real models, three types, three contexts; each in a process of its own.
 *
 * usage: gpu_plan [CONFIG DTYPE CTX [plain]]; plain: no token is recorded. Without operands it is the test and runs itself for each row of
 * its table. Weights are random, and those of a type share memory of the host. Plans that are too large for this GPU are counted separately;
 * the test fails when a plan is off, or cannot be measured, or when none was measured. */
#include "kernels/cuda_loader.h"
#include "runtime/session/session.h"
#include "tools/engine/bench/synthetic.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N_PROMPT = 600 };
static const double ALLOWED_BYTES = 4 * 0x1p20; /* the driver counts in pages of 2 MiB */

static int fail(const char *what)
{
    fprintf(stderr, "gpu_plan: %s\n", what);
    return 1;
}

static apr_status run(const apr_cuda_api *cuda, const apr_model *model, int64_t n_ctx, bool plain, double *planned, double *driver,
                      apr_error *err)
{
    apr_session_options options = apr_session_defaults;
    int32_t ids[N_PROMPT] = {0};
    apr_session *s;

    options.cuda = cuda;
    options.n_ctx = n_ctx;
    options.no_replay = plain;
    APR_TRY(apr_session_open(&s, model, &options, err));
    apr_status status = apr_session_eval(s, ids, N_PROMPT, NULL, err);
    for (int i = 0; i < 3 && status == APR_OK; i++) status = apr_session_eval(s, ids, 1, NULL, err); /* checked, recorded, replayed */
    const apr_plan *const plan = apr_session_plan(s);
    *planned = (double)(plan->device_bytes - apr_plan_line_of(plan, APR_LINE_HEADROOM)->bytes);
    *driver = (double)apr_session_used(s).driver;
    apr_session_close(s);
    return status;
}

static int measure(const apr_cuda_api *cuda, const char *path, const char *dtype, int64_t n_ctx, bool plain)
{
    apr_error err = {0};
    apr_synthetic made;
    double planned = 0, driver = 0;

    apr_status status = apr_synthetic_open(&made, path, dtype, true, &err);
    if (status == APR_OK) status = apr_synthetic_fill(&made, 0, NULL, &err);
    if (status == APR_OK) status = run(cuda, &made.model, n_ctx, plain, &planned, &driver, &err);
    apr_synthetic_close(&made);
    if (status != APR_OK) {
        fail(err.text);
        return status == APR_E_MEMORY ? APR_E_MEMORY : 1;
    }
    const double off = driver - planned;
    printf("%-36s %-5s ctx %6lld: planned %9.1f MiB, driver %9.1f MiB, off by %+6.1f MiB%s\n", path, dtype, (long long)n_ctx,
           planned / 0x1p20, driver / 0x1p20, off / 0x1p20, driver > 0 ? "" : ": NOT MEASURED");
    return driver > 0 && fabs(off) <= ALLOWED_BYTES ? 0 : 1;
}

static int run_self(const char *path, const char *dtype, const char *n_ctx)
{
    int status = 0;
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        execl("/proc/self/exe", "gpu_plan", path, dtype, n_ctx, (char *)NULL);
        _exit(127);
    }
    if (child < 0 || waitpid(child, &status, 0) < 0) return 1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int main(int argc, char **argv)
{
    static const char *const shapes[] = {"qwen2.5-0.5b", "qwen2.5-7b", "qwen2.5-32b"};
    static const char *const of_other_families[] = {"qwen2.5-vl-7b", "qwen3-vl-30b-a3b",    "falcon-h1-7b",
                                                    "gemma-3n-e4b",  "kimi-linear-48b-a3b", "deepseek-v3.2-two-layers"};
    enum { N_OTHERS = sizeof of_other_families / sizeof *of_other_families };
    static const char *const dtypes[] = {"f16", "q8_0", "q4_k"};
    static const char *const contexts[] = {"1024", "8192", "32768"};
    const apr_cuda_api *cuda;
    apr_error err = {0};
    int n, n_bad = 0, n_large = 0, n_plans = 0;

    /* counting devices makes no context: the children have the card to themselves */
    if (apr_cuda_load(&cuda, &err) != APR_OK || cuda->count(&n, &err) != APR_OK) {
        printf("skipped: no device (%s)\n", err.text);
        return 77;
    }
    if (argc == 4 || argc == 5) return measure(cuda, argv[1], argv[2], atoll(argv[3]), argc == 5);
    for (size_t i = 0; i < 27 + N_OTHERS; i++) {
        char path[128];
        const bool is_other = i >= 27;
        snprintf(path, sizeof path, "tests/data/shapes/%s.json", is_other ? of_other_families[i - 27] : shapes[i / 9]);
        const int code = run_self(path, is_other ? "q4_k" : dtypes[i / 3 % 3], is_other ? "4224" : contexts[i % 3]);
        n_plans++;
        n_large += code == APR_E_MEMORY;
        n_bad += code != 0 && code != APR_E_MEMORY;
    }
    const int n_measured = n_plans - n_large;
    printf("gpu_plan: %d plans, %d measured, %d too large for this card, %d off by more than %.0f MiB\n", n_plans, n_measured, n_large,
           n_bad, ALLOWED_BYTES / 0x1p20);
    return n_bad != 0 || n_measured == 0;
}
