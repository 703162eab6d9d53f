/* prompt.c - finds out where the prompt is, and reads it. */
#include "tools/verbs/run/prompt.h"

#include "tools/engine/text_input.h"

#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

static size_t without_line_end(const char *text, size_t n)
{
    if (n > 0 && text[n - 1] == '\n') n -= n > 1 && text[n - 2] == '\r' ? 2 : 1;
    return n;
}

/* Is stdin a pipe that holds data? An inherited pipe that no program writes to does not count. */
static bool has_waiting_pipe(void)
{
    struct stat st;
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    int n = 0;

    if (fstat(STDIN_FILENO, &st) != 0 || !S_ISFIFO(st.st_mode)) return false;
    return poll(&in, 1, 20) == 1 && (in.revents & POLLIN) != 0 && ioctl(STDIN_FILENO, FIONREAD, &n) == 0 && n > 0;
}

apr_status apr_read_prompt(const char *text, const char *file, char **prompt, size_t *n_bytes, apr_error *err)
{
    static const char usage[] = "give one prompt: -p TEXT, -f FILE, or through a pipe";

    if (text != NULL && file != NULL) return apr_fail(err, APR_E_USAGE, "%s", usage);
    const bool is_stated = text != NULL || file != NULL;
    if (!is_stated && isatty(STDIN_FILENO)) return apr_fail(err, APR_E_USAGE, "%s", usage);
    const char *const path = file != NULL ? file : "-";
    if (text != NULL && strcmp(text, "-") != 0) {
        if (has_waiting_pipe())
            fprintf(stderr, "note: the pipe was not read because -p gives the prompt; use -p \"TEXT $(cat)\" to combine them\n");
        *n_bytes = strlen(text);
        *prompt = strdup(text);
        return *prompt != NULL ? APR_OK : apr_no_memory(err, "the prompt");
    }
    APR_TRY(apr_read_stream(path, prompt, n_bytes, err));
    if (strcmp(path, "-") == 0) (*prompt)[ *n_bytes = without_line_end(*prompt, *n_bytes)] = '\0';
    if (is_stated || *n_bytes > 0) return APR_OK;
    free(*prompt); /* stdin was empty: the same as no prompt */
    *prompt = NULL;
    return apr_fail(err, APR_E_USAGE, "%s", usage);
}
