/* One model on several places: parts on one card, on two where there are two, layers and experts on the host. Each computes what
 * was recorded, and takes what its plan says, on both sides. */
#include "kernels/cuda_loader.h"
#include "runtime/check/golden.h"
#include "tests/support/family_model.h"
#include "tests/support/work_folder.h"
#include "tools/engine/device/places.h"
#include "tools/verbs/run/memory_print.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static int complain(const char *what, const char *why)
{
    printf("gpu_places: %s: %s\n", what, why);
    return 1;
}

static int check_memory(const apr_session *s, const char *what)
{
    int bad = 0;
    for (int i = 0; i < apr_session_n_places(s); i++) {
        const apr_session_memory m = apr_session_place_memory(s, i);
        char name[32];
        if (m.measured == UINT64_MAX) continue;
        printf("  %s, %s: planned %.2f MiB, measured %.2f MiB\n", what, apr_place_text(s, i, name), (double)m.planned / 0x1p20,
               (double)m.measured / 0x1p20);
        if (!m.as_planned) bad += complain(what, "not as planned");
    }
    return bad;
}

typedef struct subject {
    const apr_cuda_api *cuda;
    const apr_model *model;
    const apr_golden_arrays *arrays;
    apr_session *reference; /* the reference, whose choices of experts are held */
    const char *what;
    int n_bad;
} subject;

static apr_status see(void *user, const apr_golden_result *f, apr_error *err)
{
    subject *const s = user;
    (void)err;
    if (!apr_golden_is_good(f)) {
        printf("  %d: %lld of %lld rows, off by %g of %g\n", (int)f->what, (long long)f->n_good, (long long)f->n_rows, f->worst, f->bound);
        s->n_bad += complain(s->what, f->first_bad);
    }
    return APR_OK;
}

static int try_places(subject *t, const char *gpus, const char *offload)
{
    apr_session_options options = apr_session_defaults;
    apr_error err = {0};
    apr_session *s;
    char what[128];

    snprintf(what, sizeof what, "%s --gpus %s%s%s", t->model->hparams.architecture, gpus, offload != NULL ? " --offload " : "",
             offload != NULL ? offload : "");
    options.cuda = t->cuda;
    options.n_ctx = apr_golden_context(t->arrays);
    options.kv_dtype = APR_F32;
    if (apr_gpus_parse(gpus, &options.n_devices, options.ordinals, &err) != APR_OK ||
        apr_offload_parse(offload, &options.offload, &err) != APR_OK)
        return complain(what, err.text);
    options.ordinal = options.ordinals[0];
    if (apr_session_open(&s, t->model, &options, &err) != APR_OK) return complain(what, err.text);
    t->what = what;
    t->n_bad = 0;
    if (apr_golden_run(s, t->reference, t->arrays, 0.0, see, t, &err) != APR_OK) t->n_bad += complain(what, err.text);
    const int bad = t->n_bad + check_memory(s, what);
    printf("  %s: %s\n", what, bad == 0 ? "as recorded" : "NOT as recorded");
    apr_session_close(s);
    return bad;
}

static int try_model(const apr_cuda_api *cuda, const char *path, const char *arrays_path, bool has_experts, const char *gpus,
                     const char *offload)
{
    apr_session_options options = apr_session_defaults;
    apr_error err = {0};
    apr_model model = {0};
    apr_golden_arrays arrays = {0};
    subject s = {.cuda = cuda, .model = &model, .arrays = &arrays};
    int bad;

    options.backend = &apr_ref_backend;
    options.kv_dtype = APR_F32;
    apr_status status = apr_model_open(&model, path, &err);
    if (status == APR_OK) status = apr_golden_open(&arrays, arrays_path, &err);
    if (status == APR_OK) options.n_ctx = apr_golden_context(&arrays);
    if (status == APR_OK && has_experts) status = apr_session_open(&s.reference, &model, &options, &err);
    if (status != APR_OK) bad = complain(path, err.text);
    else bad = try_places(&s, gpus, offload);
    apr_session_close(s.reference);
    apr_golden_close(&arrays);
    apr_model_close(&model);
    return bad;
}

/* In a process of its own: a context stays until its process ends, and a second session would not be seen to make one. */
static int run_self(const char *path, const char *arrays_path, bool has_experts, const char *gpus, const char *offload)
{
    int status = 0;
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        execl("/proc/self/exe", "gpu_places", path, arrays_path, has_experts ? "experts" : "", gpus, offload, (char *)NULL);
        _exit(127);
    }
    if (child < 0 || waitpid(child, &status, 0) < 0) return complain(gpus, "no process to try it in");
    return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

/* "" offloads nothing. */
static int try_all(const char *path, const char *arrays_path, bool has_experts, int n_gpus)
{
    static const char *const offloads[] = {"", "layers=1", "layers=all", "experts"};
    static const char *const gpus[] = {"1", "0,0", "0,1"};
    int bad = 0;

    for (int g = 0; g < (n_gpus > 1 ? 3 : 2); g++)
        for (int o = 0; o < (has_experts ? 4 : 3); o++)
            if (g == 0 || o == 0 || o == 3) bad += run_self(path, arrays_path, has_experts, gpus[g], offloads[o]);
    return bad;
}

/* A mixture, made in a folder that is taken away again. */
static int try_mixture(int n_gpus)
{
    static const char source[] = "tests/data/families/qwen3_moe";
    apr_error err = {0};
    void *unused = NULL;
    int bad;

    if (make_work(&unused) != 0) return complain(source, "no folder to make it in");
    if (family_write(source, in_work("qwen3_moe"), NULL, &err) != APR_OK) bad = complain(source, err.text);
    else bad = try_all(in_work("qwen3_moe"), "tests/data/families/qwen3_moe/golden.safetensors", true, n_gpus);
    remove_work(&unused);
    return bad;
}

int main(int argc, char **argv)
{
    const apr_cuda_api *cuda;
    apr_error err = {0};
    int n;

    if (apr_cuda_load(&cuda, &err) != APR_OK || cuda->count(&n, &err) != APR_OK) {
        printf("skipped: no device (%s)\n", err.text);
        return 77;
    }
    if (argc == 6) return try_model(cuda, argv[1], argv[2], *argv[3] != '\0', argv[4], *argv[5] != '\0' ? argv[5] : NULL) > 0;
    const int bad = try_all("tests/data/tiny-qwen2", "tests/data/tiny-qwen2/golden.safetensors", false, n) + try_mixture(n);
    if (n < 2) printf("  one card here: copies from card to card were not tried\n");
    return bad > 0;
}
