/* quantize.c - plans a model for a GPU, quantizes it, and stops cleanly at Ctrl-C: quantize MODEL OUT TYPE [GPU].
 *
 *     cc quantize.c $(pkg-config --cflags --libs aprkit) -o quantize */
#include <aprkit.h>
#include <signal.h>
#include <stdio.h>

static volatile sig_atomic_t is_interrupted;
static void on_interrupt(int number) { is_interrupted = number; }

static int show_progress(void *user, const aprkit_progress *p)
{
    (void)user;
    if (p->total > 0) fprintf(stderr, "\r%3.0f %% %-50.50s", 100.0 * (double)p->done / (double)p->total, p->what != NULL ? p->what : "");
    return is_interrupted; /* not 0: stop, and leave no file */
}

static int show_plan(const aprkit_model *m, const char *type, const char *gpu, aprkit_error *e)
{
    const aprkit_plan_options o = {.size = sizeof o, .to = type, .gpu = gpu};
    aprkit_plan *p;

    if (aprkit_plan_make(&p, m, &o, e) != APRKIT_OK) return e->status;
    printf("%s: %.2f GiB, %s, context up to %lld\n", gpu != NULL ? gpu : "host", (double)aprkit_plan_total(p) / (1 << 30),
           aprkit_plan_fits(p) ? "fits" : "does not fit", (long long)aprkit_plan_max_ctx(p));
    aprkit_plan_close(p);
    return APRKIT_OK;
}

int main(int argc, char **argv)
{
    if (argc < 4) return fprintf(stderr, "quantize MODEL OUT TYPE [GPU]\n"), APRKIT_E_USAGE;
    const aprkit_convert_options o = {.size = sizeof o, .to = argv[3], .progress = show_progress};
    aprkit_model *m;
    aprkit_error e;

    signal(SIGINT, on_interrupt);
    int status = aprkit_model_open(&m, argv[1], NULL, &e);
    if (status == APRKIT_OK) status = show_plan(m, argv[3], argc > 4 ? argv[4] : NULL, &e);
    if (status == APRKIT_OK) status = aprkit_convert(m, argv[2], &o, &e);
    fprintf(stderr, status == APRKIT_OK ? "\n" : "\n%s\n", e.text);
    aprkit_model_close(m);
    return status;
}
