/* tools/verbs/run/chat.h at a pseudo-terminal: what keys do, typed as a person types them. */
#define _GNU_SOURCE /* posix_openpt, memmem */
#include "tools/verbs/run/chat.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/work_folder.h"

enum { MOST_BYTES = 1 << 18, WAIT_MS = 100 * 1000 };

/* A conversation in another process, and what it has shown. */
typedef struct talk {
    pid_t process;
    int fd;
    char shown[MOST_BYTES];
    size_t n, looked_at; /* looked_at: what was waited for is before it */
} talk;

static _Noreturn void converse(const char *terminal, const apr_chat_options *options)
{
    static const char *const operands[] = {"tests/data/tiny-qwen2"};
    apr_answer answer = {0};
    apr_error err = {0};
    const apr_call call = {.operands = operands, .n_operands = 1, .answer = &answer};

    signal(SIGINT, SIG_DFL); /* a test that runs in the background of a script inherits that it is ignored */
    setsid();
    const int fd = open(terminal, O_RDWR);
    if (fd < 0 || ioctl(fd, TIOCSCTTY, 0) != 0) _exit(99);
    for (int i = 0; i < 3; i++) dup2(fd, i);
    const apr_status status = apr_chat_with(&call, options, &err);
    fflush(NULL);
    _exit((int)status);
}

static talk *begin(const apr_chat_options *options)
{
    talk *const t = calloc(1, sizeof *t);
    assert_non_null(t);
    t->fd = posix_openpt(O_RDWR | O_NOCTTY);
    assert_true(t->fd >= 0 && grantpt(t->fd) == 0 && unlockpt(t->fd) == 0);
    const char *const terminal = ptsname(t->fd);
    fflush(NULL);
    t->process = fork();
    assert_true(t->process >= 0);
    if (t->process == 0) converse(terminal, options);
    return t;
}

/* More of what is shown; false: the process has ended. */
static bool read_more(talk *t)
{
    struct pollfd on = {.fd = t->fd, .events = POLLIN};

    if (poll(&on, 1, WAIT_MS) <= 0) fail_msg("nothing more is shown after: %s", t->shown);
    const ssize_t n = read(t->fd, t->shown + t->n, sizeof t->shown - 1 - t->n);
    if (n <= 0) return false;
    t->n += (size_t)n;
    return true;
}

static void wait_for(talk *t, const char *text)
{
    const char *at;

    while ((at = memmem(t->shown + t->looked_at, t->n - t->looked_at, text, strlen(text))) == NULL)
        if (!read_more(t)) fail_msg("'%s' was not shown, but: %s", text, t->shown);
    t->looked_at = (size_t)(at - t->shown) + strlen(text);
}

static void type(talk *t, const char *keys) { assert_int_equal(write(t->fd, keys, strlen(keys)), strlen(keys)); }

/* The way in which the process ended. */
static int end(talk *t)
{
    int status;

    while (read_more(t)) {
    }
    assert_int_equal(waitpid(t->process, &status, 0), t->process);
    close(t->fd);
    free(t);
    return status;
}

static apr_chat_options options_of(double temp)
{
    return (apr_chat_options){.run = {.ctx = 1024, .threads = 1, .kv = 0},
                              .settings = {.sampling = {.temp = temp, .top_p = 1.0, .repeat = 1.0, .repeat_last = 64, .seed = 3}}};
}

static char *read_file(const char *path)
{
    static char bytes[1 << 16];
    FILE *const in = fopen(path, "rb");
    assert_non_null(in);
    bytes[fread(bytes, 1, sizeof bytes - 1, in)] = '\0';
    fclose(in);
    return bytes;
}

static void lines_are_turns_and_control_d_ends(void **state)
{
    const apr_chat_options options = options_of(0.0);
    char save[160];

    (void)state;
    talk *const t = begin(&options);
    wait_for(t, "> ");
    type(t, "Recite Ge1:1\n");
    wait_for(t, "\nIn the beginning God created the heaven and the earth.");
    wait_for(t, "> ");
    type(t, "/stats\n");
    wait_for(t, "0 tokens reused, 19 read");
    wait_for(t, "> ");
    type(t, "\"\"\"one\n");
    wait_for(t, ". ");
    type(t, "two\"\"\"\n");
    wait_for(t, "\n> ");
    type(t, "three\\\n");
    wait_for(t, ". ");
    type(t, "four\n");
    wait_for(t, "\n> ");
    snprintf(save, sizeof save, "/save %s\n", in_work("said.json"));
    type(t, save);
    wait_for(t, "saved as");
    wait_for(t, "> ");
    type(t, "\x04");
    assert_int_equal(end(t), 0);
    const char *const said = read_file(in_work("said.json"));
    assert_non_null(strstr(said, "\"one\\ntwo\""));
    assert_non_null(strstr(said, "\"three\\nfour\""));
}

/* So hot that the model never ends by itself before the context is full: this seed goes on for all of it, which takes minutes. */
static void control_c_stops_an_answer_which_stays_as_it_is(void **state)
{
    apr_chat_options options = options_of(30.0);
    char save[160];

    (void)state;
    options.run.ctx = 32768;
    talk *const t = begin(&options);
    wait_for(t, "> ");
    type(t, "Recite Ge1:1\n");
    wait_for(t, "Recite Ge1:1\r\n");
    wait_for(t, " ");
    type(t, "\x03");
    wait_for(t, "\n> ");
    snprintf(save, sizeof save, "/save %s\n", in_work("stopped.json"));
    type(t, save);
    wait_for(t, "saved as");
    wait_for(t, "> ");
    type(t, "/exit\n");
    assert_null(memmem(t->shown, t->n, "the conversation fills the context", 34));
    assert_int_equal(end(t), 0);
    const char *const answer = strstr(read_file(in_work("stopped.json")), "\"assistant\",\"content\":\"");
    assert_non_null(answer);
    assert_true(strlen(answer) > 30);
}

static void control_c_twice_ends_once_does_not(void **state)
{
    const apr_chat_options options = options_of(0.0);

    (void)state;
    talk *t = begin(&options);
    wait_for(t, "> ");
    type(t, "this is dropped\x03");
    wait_for(t, "Ctrl-C again to end");
    wait_for(t, "> ");
    type(t, "Recite Ge1:1\n");
    wait_for(t, "\nIn the beginning God created the heaven and the earth.");
    wait_for(t, "> ");
    type(t, "\x03");
    wait_for(t, "Ctrl-C again to end");
    wait_for(t, "> ");
    type(t, "\x03");
    const int status = end(t);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_turns_and_control_d_ends),
        cmocka_unit_test(control_c_stops_an_answer_which_stays_as_it_is),
        cmocka_unit_test(control_c_twice_ends_once_does_not),
    };
    return cmocka_run_group_tests_name("chat at a terminal", tests, make_work, remove_work);
}
