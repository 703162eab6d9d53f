/* guard.c - signal and exit handlers. They only make system calls and use static memory, so they are async-signal-safe. */
#define _GNU_SOURCE /* SIGSTKFLT, sigaltstack */
#include "tools/report/guard.h"

#include "formats/base/status.h"
#include "formats/files/map.h"
#include "formats/files/out.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static const char *tool_name;
static bool wants_json;
static atomic_bool is_answered;
static atomic_flag is_ending = ATOMIC_FLAG_INIT;
static struct sigaction bus_before;
static bool writes_outputs;
static char written[1024];   /* what is complete; "": nothing is */
static char kept_path[1024]; /* where an unfinished output is kept; "": nowhere */
static atomic_uint percent_kept;

/* --- messages without stdio --- */

typedef struct line {
    char text[2048];
    size_t n;
} line;

static void put(line *l, const char *text)
{
    for (; *text != '\0' && l->n < sizeof l->text - 8; text++) l->text[l->n++] = *text;
}

static void put_number(line *l, uint64_t value)
{
    char digits[24];
    size_t at = sizeof digits;
    digits[--at] = '\0';
    do digits[--at] = (char)('0' + value % 10);
    while ((value /= 10) > 0);
    put(l, digits + at);
}

/* The inside of a JSON string; characters other than printable ASCII become '?'. */
static void put_quoted(line *l, const line *text)
{
    for (size_t i = 0; i < text->n; i++) {
        const char c = text->text[i];
        if (c == '"' || c == '\\') put(l, "\\");
        put(l, (char[2]){c >= ' ' && c < 127 ? c : '?', '\0'});
    }
}

static void write_line(int fd, const line *l)
{
    for (size_t at = 0; at < l->n;) {
        const ssize_t n = write(fd, l->text + at, l->n - at);
        if (n <= 0) return;
        at += (size_t)n;
    }
}

/* Prints the message as apr_answer_end does, but async-signal-safe, and ends the process. */
static _Noreturn void end_with(apr_status status, const line *sentence)
{
    static line out; /* static because it is large; only one thread gets here */

    apr_out_remove_unfinished();
    out.n = 0;
    if (wants_json) {
        put(&out, "{\"ok\":false,\"status\":\"");
        put(&out, apr_status_text(status));
        put(&out, "\",\"exit\":");
        put_number(&out, (uint64_t)status);
        put(&out, ",\"error\":\"");
        put_quoted(&out, sentence);
        put(&out, "\"}\n");
        write_line(STDOUT_FILENO, &out);
    } else {
        if (isatty(STDERR_FILENO)) put(&out, "\r\033[K"); /* erases the progress line */
        put(&out, tool_name);
        put(&out, ": ");
        for (size_t i = 0; i < sentence->n; i++)
            put(&out, (char[2]){(unsigned char)sentence->text[i] < ' ' ? '?' : sentence->text[i], '\0'});
        put(&out, "\n");
        write_line(STDERR_FILENO, &out);
    }
    _exit((int)status);
}

/* --- signals --- */

/* Says what became of the output; silent if the answer has been given already. */
static void say_stopped(void)
{
    static line sentence;

    if (atomic_load(&is_answered)) return;
    if (isatty(STDERR_FILENO)) put(&sentence, "\r\033[K"); /* erases the progress line */
    put(&sentence, tool_name);
    put(&sentence, ": stopped");
    if (kept_path[0] != '\0' && access(kept_path, F_OK) == 0) {
        put(&sentence, " with ");
        put_number(&sentence, atomic_load(&percent_kept));
        put(&sentence, " % kept in ");
        put(&sentence, kept_path);
        put(&sentence, "; run the same command to continue");
    } else if (written[0] != '\0') {
        put(&sentence, "; ");
        put(&sentence, written);
    } else if (writes_outputs) {
        put(&sentence, "; nothing was written");
    }
    put(&sentence, "\n");
    write_line(STDERR_FILENO, &sentence);
}

/* Only the first thread ends the process. A second signal on another thread must not end it before the message is printed. */
static void on_end(int number)
{
    static atomic_flag is_stopping = ATOMIC_FLAG_INIT;

    if (atomic_flag_test_and_set(&is_stopping)) return;
    apr_out_remove_unfinished();
    if (number == SIGINT || number == SIGTERM) say_stopped();
    signal(number, SIG_DFL);
    raise(number); /* after this handler */
}

static void on_bus(int number, siginfo_t *info, void *context)
{
    static line sentence;
    const apr_input *const input = info->si_code > 0 ? apr_inputs_at(info->si_addr) : NULL;
    struct stat now;

    (void)context;
    if (input == NULL) { /* not in a mapped input: restore the previous handling */
        apr_out_remove_unfinished();
        sigaction(number, &bus_before, NULL);
        if (info->si_code <= 0) raise(number); /* sent by a process: it would not occur again by itself */
        return;
    }
    if (atomic_flag_test_and_set(&is_ending))
        for (;;) pause();
    const bool is_cut = fstat(input->fd, &now) == 0 && now.st_size < input->at_open.st_size;
    put(&sentence, input->path);
    put(&sentence, is_cut ? ": was cut short by another program while it was being read: " : ": read error on disk at byte ");
    put_number(&sentence, is_cut ? (uint64_t)now.st_size : (uint64_t)((const uint8_t *)info->si_addr - input->data));
    if (is_cut) {
        put(&sentence, " bytes are left of ");
        put_number(&sentence, (uint64_t)input->at_open.st_size);
    }
    end_with(APR_E_IO, &sentence);
}

/* Only if the signal has its default handling: not ignored by the parent (nohup, &), no sanitizer's handler. */
static void handle(int number, const struct sigaction *action)
{
    struct sigaction before;
    if (sigaction(number, NULL, &before) == 0 && (before.sa_flags & SA_SIGINFO) == 0 && before.sa_handler == SIG_DFL)
        sigaction(number, action, NULL);
}

static void handle_signals(void)
{
    static const int ends[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGILL,  SIGTRAP,   SIGABRT, SIGFPE, SIGUSR1, SIGSEGV, SIGUSR2,
                               SIGPIPE, SIGALRM, SIGTERM, SIGXCPU, SIGVTALRM, SIGPROF, SIGIO,  SIGPWR,  SIGSYS,  SIGSTKFLT};
    struct sigaction end = {.sa_handler = on_end, .sa_flags = SA_ONSTACK};
    struct sigaction bus = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO | SA_ONSTACK};

    sigfillset(&end.sa_mask);
    sigfillset(&bus.sa_mask);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) handle(ends[i], &end);
    for (int number = SIGRTMIN; number <= SIGRTMAX; number++) handle(number, &end);
    sigaction(SIGBUS, &bus, &bus_before);
    signal(SIGXFSZ, SIG_IGN);
}

/* After a stack overflow a handler can only run on an alternate stack. */
static void give_handlers_a_stack(void)
{
    static char stack[64 * 1024];
    const stack_t ours = {.ss_sp = stack, .ss_size = sizeof stack};
    stack_t before;
    if (sigaltstack(NULL, &before) == 0 && (before.ss_flags & SS_DISABLE) != 0) sigaltstack(&ours, NULL);
}

/* --- exit --- */

static void on_exit_unanswered(void)
{
    static line sentence;
    if (atomic_load(&is_answered) || atomic_flag_test_and_set(&is_ending)) return;
    put(&sentence, "a library ended the process early, for lack of threads or memory; use fewer threads (OMP_NUM_THREADS) or smaller "
                   "stacks (OMP_STACKSIZE)");
    end_with(APR_E_MEMORY, &sentence);
}

/* Every input keeps its file descriptor open, and a model can have a thousand files. */
static void raise_file_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

void apr_guard_start(const char *tool, bool json)
{
    tool_name = tool;
    wants_json = json;
    raise_file_limit();
    give_handlers_a_stack();
    handle_signals();
    atexit(on_exit_unanswered);
}

void apr_guard_answered(void) { atomic_store(&is_answered, true); }

void apr_guard_writes(void) { writes_outputs = true; }

static void set_text(char to[1024], const char *from)
{
    size_t n = 0;
    for (; from[n] != '\0' && n + 1 < 1024; n++) to[n] = (unsigned char)from[n] < ' ' ? '?' : from[n];
    to[n] = '\0';
}

void apr_guard_protects(const char *path) { set_text(kept_path, path); }
void apr_guard_wrote(const char *what) { set_text(written, what); }

void apr_guard_kept(uint64_t done, uint64_t total)
{
    atomic_store(&percent_kept, total > 0 && done <= total ? (unsigned)(100.0 * (double)done / (double)total) : 0);
}
