/* probe.c - a probe's child process, and the cache of verdicts. */
#include "tools/engine/device/probe.h"

#include "formats/base/text.h"
#include "formats/files/map.h"
#include "formats/files/out.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

const char *const apr_probe_names[APR_CUDA_PROBE_COUNT] = {"fp16", "fp8"};

/* --- the child --- */

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Collects what the child writes until it closes its end (true) or the deadline passes (false). */
static bool collect(int fd, int64_t deadline, char *text, size_t n_text)
{
    size_t n = 0;

    for (;;) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        char discarded[512];
        const int64_t left = deadline - now_ms();
        if (left <= 0) return false;
        if (poll(&ready, 1, (int)left) <= 0) continue;
        const bool has_capacity = n + 1 < n_text;
        const ssize_t got = read(fd, has_capacity ? text + n : discarded, has_capacity ? n_text - 1 - n : sizeof discarded);
        if (got <= 0) return true;
        if (has_capacity) n += (size_t)got;
        text[n] = '\0';
    }
}

static void exec_probe(const char *const *argv, int out)
{
    const int null = open("/dev/null", O_RDWR);
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    execv(argv[0], (char *const *)argv);
    _exit(127);
}

apr_status apr_probe_child(const char *const *argv, int seconds, int *exit_code, char *text, size_t n_text, apr_error *err)
{
    const int64_t deadline = now_ms() + (int64_t)seconds * 1000;
    int ends[2], status = 0;

    text[0] = '\0';
    if (pipe(ends) != 0) return apr_fail(err, APR_E_IO, "cannot start a probe: %s", strerror(errno));
    const pid_t child = fork();
    if (child < 0) {
        close(ends[0]);
        close(ends[1]);
        return apr_fail(err, APR_E_IO, "cannot start a probe: %s", strerror(errno));
    }
    if (child == 0) exec_probe(argv, ends[1]);
    close(ends[1]);
    const bool ended = collect(ends[0], deadline, text, n_text);
    close(ends[0]);
    if (!ended) kill(child, SIGKILL);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    *exit_code = !ended ? -1 : WIFEXITED(status) ? WEXITSTATUS(status) : -2;
    for (char *end = text + strlen(text); end > text && end[-1] == '\n';) *--end = '\0';
    return APR_OK;
}

/* --- the cache --- */

static bool cache_path(const apr_cuda_facts *facts, apr_cuda_probe which, char *path, size_t n_path, bool make)
{
    const char *const cache = getenv("XDG_CACHE_HOME"), *const home = getenv("HOME");
    const bool is_stated = cache != NULL && cache[0] == '/';
    char key[400];

    if (!is_stated && (home == NULL || home[0] != '/')) return false;
    int n = snprintf(path, n_path, "%s%s", is_stated ? cache : home, is_stated ? "" : "/.cache");
    if (n < 0 || (size_t)n + 64 > n_path) return false;
    if (make) mkdir(path, 0700);
    snprintf(path + n, n_path - (size_t)n, "/aprkit");
    if (make) mkdir(path, 0700);
    snprintf(key, sizeof key, "%s-%s-%d.%d-%s-%d", apr_probe_names[which], facts->name, facts->major, facts->minor, facts->driver,
             facts->runtime_version);
    for (char *c = key; *c != '\0'; c++)
        if (!isalnum((unsigned char)*c) && *c != '.' && *c != '-') *c = '_';
    const size_t at = strlen(path);
    n = snprintf(path + at, n_path - at, "/%s", key);
    return n > 0 && (size_t)n < n_path - at;
}

/* A file of one line: "right" or "wrong", a space, the detail. */
static bool read_verdict(const char *path, apr_probe_result *probed)
{
    char line[300] = "";
    apr_map map;

    if (apr_map_open(&map, path, NULL) != APR_OK) return false;
    if (map.n_bytes > 0) snprintf(line, sizeof line, "%.*s", (int)(map.n_bytes < 300 ? map.n_bytes : 299), (const char *)map.data);
    apr_map_forget(&map);
    line[strcspn(line, "\n")] = '\0';
    if (!apr_begins_with(line, "right ") && !apr_begins_with(line, "wrong ")) return false;
    probed->verdict = line[0] == 'r' ? APR_PROBE_RIGHT : APR_PROBE_WRONG;
    probed->from_cache = true;
    snprintf(probed->detail, sizeof probed->detail, "%.250s", line + 6);
    return true;
}

/* Ignores errors: without a cached verdict the probe runs again. */
static void write_verdict(const char *path, const apr_probe_result *probed)
{
    char line[300];
    apr_out *out;

    const int n = snprintf(line, sizeof line, "%s %s\n", probed->verdict == APR_PROBE_RIGHT ? "right" : "wrong", probed->detail);
    if (n <= 0 || (size_t)n >= sizeof line || apr_out_open(&out, path, (uint64_t)n, true, NULL) != APR_OK) return;
    if (apr_out_write(out, line, (size_t)n, NULL, NULL) == APR_OK) apr_out_finish(out, NULL);
    else apr_out_abandon(out);
}

apr_status apr_probe_run(const apr_cuda_facts *facts, apr_cuda_probe which, bool again, apr_probe_result *probed, apr_error *err)
{
    char path[4096], program[4096], ordinal[16], text[1024];
    int exit_code;

    *probed = (apr_probe_result){0};
    const bool has_cache = cache_path(facts, which, path, sizeof path, false);
    if (has_cache && !again && read_verdict(path, probed)) return APR_OK;
    const ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    if (n <= 0) return apr_fail(err, APR_E_IO, "cannot start a probe: the program's own path is not known");
    program[n] = '\0';
    snprintf(ordinal, sizeof ordinal, "%d", facts->ordinal);
    const char *const argv[] = {program, "doctor", "--probe", apr_probe_names[which], "--gpu", ordinal, NULL};
    APR_TRY(apr_probe_child(argv, APR_PROBE_SECONDS, &exit_code, text, sizeof text, err));
    probed->verdict = exit_code == 0 ? APR_PROBE_RIGHT : APR_PROBE_WRONG;
    if (exit_code == 0) snprintf(probed->detail, sizeof probed->detail, "equal to the host's");
    else if (exit_code == -1) snprintf(probed->detail, sizeof probed->detail, "did not end within %d s", APR_PROBE_SECONDS);
    else if (exit_code == -2) snprintf(probed->detail, sizeof probed->detail, "crashed");
    else snprintf(probed->detail, sizeof probed->detail, "%.250s", text[0] != '\0' ? text : "failed");
    for (char *c = probed->detail; *c != '\0'; c++)
        if (*c == '\n') *c = ' ';
    if (has_cache && cache_path(facts, which, path, sizeof path, true)) write_verdict(path, probed);
    return APR_OK;
}
