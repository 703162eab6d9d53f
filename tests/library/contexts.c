/* contexts.c - a program of tests/library.sh, compiled as C11 and as C++17 against the installed library: two threads with models of their
 * own, a verification that is cancelled, and files that are cut short while they are open.
 *
 *     contexts MODEL REFERENCE LARGE    LARGE: a checkpoint of more than 64 MiB, whose file is truncated here */
#include <aprkit.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void require(int holds, const char *what, const aprkit_error *e)
{
    if (holds) return;
    fprintf(stderr, "contexts: %s: status %d, %s\n", what, e->status, e->text);
    exit(1);
}

static aprkit_session_options short_run(void)
{
    aprkit_session_options o;
    memset(&o, 0, sizeof o);
    o.size = sizeof o;
    o.n_context = 128;
    o.threads = 1;
    return o;
}

static aprkit_verify_options short_checks(const aprkit_session_options *run)
{
    aprkit_verify_options o;
    memset(&o, 0, sizeof o);
    o.size = sizeof o;
    o.window = 64;
    o.max_tokens = 2;
    o.run = run;
    return o;
}

/* --- two threads --- */

typedef struct context {
    const char *model, *reference;
    char grade[64], answer[512];
} context;

static int add_text(void *user, const char *text, size_t n_bytes)
{
    context *const c = (context *)user;
    const size_t n = strlen(c->answer);

    if (n + n_bytes < sizeof c->answer) memcpy(c->answer + n, text, n_bytes);
    return 0;
}

static void *verify_and_ask(void *user)
{
    context *const c = (context *)user;
    const aprkit_session_options run = short_run();
    const aprkit_verify_options checks = short_checks(&run);
    aprkit_generate_options ask;
    aprkit_report_facts facts;
    aprkit_model *model, *reference;
    aprkit_report *report;
    aprkit_session *session;
    aprkit_error e;

    memset(&ask, 0, sizeof ask);
    ask.size = sizeof ask;
    ask.text = "In the beginning";
    ask.max_tokens = 12;
    memset(&facts, 0, sizeof facts);
    facts.size = sizeof facts;
    require(aprkit_model_open(&model, c->model, NULL, &e) == APRKIT_OK, "the model", &e);
    require(aprkit_model_open(&reference, c->reference, NULL, &e) == APRKIT_OK, "the reference", &e);
    require(aprkit_verify(&report, model, reference, &checks, &e) == APRKIT_OK, "the verification", &e);
    require(aprkit_report_info(report, &facts, &e) == APRKIT_OK, "the report", &e);
    snprintf(c->grade, sizeof c->grade, "%s", facts.grade);
    aprkit_report_close(report);
    require(aprkit_session_open(&session, model, &run, &e) == APRKIT_OK, "the session", &e);
    require(aprkit_generate(session, &ask, add_text, c, &e) == APRKIT_OK, "the answer", &e);
    aprkit_session_close(session);
    aprkit_model_close(reference);
    aprkit_model_close(model);
    return NULL;
}

static void try_threads(const char *model, const char *reference)
{
    context c[3];
    pthread_t threads[2];
    aprkit_error e;

    memset(&e, 0, sizeof e);
    memset(c, 0, sizeof c);
    for (int i = 0; i < 3; i++) {
        c[i].model = i == 1 ? reference : model;
        c[i].reference = reference;
    }
    for (int i = 0; i < 2; i++) require(pthread_create(&threads[i], NULL, verify_and_ask, &c[i]) == 0, "a thread", &e);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    verify_and_ask(&c[2]);
    require(strcmp(c[0].grade, "as_good_as_types_allow") == 0 && strcmp(c[1].grade, "identical") == 0, c[0].grade, &e);
    require(strlen(c[0].answer) > 8 && strcmp(c[0].answer, c[2].answer) == 0 && strlen(c[1].answer) > 8, "the answers of two threads", &e);
}

/* --- cancelled --- */

static int stop_at_once(void *user, const aprkit_progress *p)
{
    ++*(int *)user;
    return p->total > 0;
}

static void try_cancelling(const char *path, const char *reference_path)
{
    const aprkit_session_options run = short_run();
    aprkit_verify_options checks = short_checks(&run);
    aprkit_model *model, *reference;
    aprkit_report *report;
    int n_calls = 0;
    aprkit_error e;

    checks.progress = stop_at_once;
    checks.user = &n_calls;
    require(aprkit_model_open(&model, path, NULL, &e) == APRKIT_OK, "the model", &e);
    require(aprkit_model_open(&reference, reference_path, NULL, &e) == APRKIT_OK, "the reference", &e);
    require(aprkit_verify(&report, model, reference, &checks, &e) == APRKIT_E_CANCELLED && report == NULL && n_calls == 1,
            "a cancelled verification", &e);
    aprkit_model_close(reference);
    aprkit_model_close(model);
}

/* --- cut short --- */

static void try_truncating(const char *folder)
{
    const aprkit_session_options run = short_run();
    const aprkit_verify_options checks = short_checks(&run);
    aprkit_session *session;
    aprkit_report *report;
    aprkit_model *model;
    char file[4096];
    aprkit_error e;

    snprintf(file, sizeof file, "%s/model.safetensors", folder);
    require(aprkit_model_open(&model, folder, NULL, &e) == APRKIT_OK, "the large model", &e);
    require(truncate(file, 1 << 20) == 0, file, &e);
    require(aprkit_session_open(&session, model, &run, &e) == APRKIT_E_IO && session == NULL, "a session of a file that was cut", &e);
    require(strstr(e.text, "model.safetensors") != NULL, "its error", &e);
    require(aprkit_verify(&report, model, model, &checks, &e) == APRKIT_E_IO && report == NULL, "a verification of a file that was cut",
            &e);
    aprkit_model_close(model);
}

int main(int argc, char **argv)
{
    if (argc != 4) return 2;
    try_threads(argv[1], argv[2]);
    try_cancelling(argv[1], argv[2]);
    try_truncating(argv[3]);
    return 0;
}
