/* chat_input.c - joins lines into a text. */
#include "tools/verbs/run/chat_input.h"

#include <stdlib.h>
#include <string.h>

#define QUOTES "\"\"\""
enum { N_QUOTES = 3 };

static bool append(apr_chat_input *in, const char *bytes, size_t n)
{
    if (in->capacity - in->n_bytes <= n) {
        const size_t capacity = 2 * (in->capacity + n) + 256;
        char *const more = realloc(in->text, capacity);
        if (more == NULL) return false;
        in->text = more;
        in->capacity = capacity;
    }
    if (n > 0) memcpy(in->text + in->n_bytes, bytes, n);
    in->n_bytes += n;
    in->text[in->n_bytes] = '\0';
    return true;
}

/* Waits for the next line. */
static apr_status next_line(apr_chat_input *in, apr_chat_what *what, apr_line *line, apr_error *err)
{
    apr_line_state state = APR_LINE_LATER;

    while (state == APR_LINE_LATER) {
        if (in->is_stopped != NULL && in->is_stopped()) {
            *what = APR_CHAT_STOPPED;
            return APR_OK;
        }
        APR_TRY(apr_line_read(&in->lines, true, &state, line, err));
    }
    *what = state == APR_LINE_HERE ? APR_CHAT_TEXT : APR_CHAT_END;
    if (state == APR_LINE_HERE && line->is_too_long)
        return apr_fail(err, APR_E_UNSUPPORTED, "%s: a line has more than %zu MiB", in->lines.name, APR_LINE_MAX_BYTES >> 20);
    return APR_OK;
}

static void prompt(const apr_chat_input *in, const char *text)
{
    if (in->prompts == NULL) return;
    fputs(text, in->prompts);
    fflush(in->prompts);
}

static bool begins_quote(const apr_line *line) { return line->n_bytes >= N_QUOTES && memcmp(line->bytes, QUOTES, N_QUOTES) == 0; }
static bool ends_quote(const char *bytes, size_t n) { return n >= N_QUOTES && memcmp(bytes + n - N_QUOTES, QUOTES, N_QUOTES) == 0; }
static bool ends_in_backslash(const char *bytes, size_t n) { return n > 0 && bytes[n - 1] == '\\'; }

/* Appends a line to the text. *more: it is not the last one. */
static bool add_line(apr_chat_input *in, const char *bytes, size_t n, bool is_quoted, bool *more)
{
    const bool ends = is_quoted && ends_quote(bytes, n), continues = !is_quoted && ends_in_backslash(bytes, n);

    *more = is_quoted ? !ends : continues;
    if (ends && n == N_QUOTES && in->n_bytes > 0 && in->text[in->n_bytes - 1] == '\n')
        in->n_bytes--; /* the quotes are alone on their line */
    if (!append(in, bytes, n - (ends ? N_QUOTES : continues ? 1 : 0))) return false;
    return !*more || append(in, "\n", 1);
}

static apr_status read_text(apr_chat_input *in, apr_chat_what *what, apr_error *err)
{
    apr_line line;
    bool more = true;

    in->n_bytes = 0;
    prompt(in, "> ");
    APR_TRY(next_line(in, what, &line, err));
    if (*what != APR_CHAT_TEXT) return APR_OK;
    const bool is_quoted = begins_quote(&line);
    const size_t skipped = is_quoted ? N_QUOTES : 0, n = line.n_bytes - skipped;
    const bool is_alone = is_quoted && n == 0;
    if (!append(in, "", 0) || (!is_alone && !add_line(in, line.bytes + skipped, n, is_quoted, &more)))
        return apr_no_memory(err, "a message");
    while (more) {
        prompt(in, ". ");
        APR_TRY(next_line(in, what, &line, err));
        if (*what == APR_CHAT_STOPPED) return APR_OK;
        if (*what == APR_CHAT_END) break;
        if (!add_line(in, line.bytes, line.n_bytes, is_quoted, &more)) return apr_no_memory(err, "a message");
    }
    *what = APR_CHAT_TEXT;
    return APR_OK;
}

apr_status apr_chat_input_read(apr_chat_input *in, apr_chat_what *what, apr_error *err)
{
    do APR_TRY(read_text(in, what, err));
    while (*what == APR_CHAT_TEXT && in->text[strspn(in->text, " \t\r\n")] == '\0' && strlen(in->text) == in->n_bytes);
    return APR_OK;
}

void apr_chat_input_close(apr_chat_input *in)
{
    apr_line_reader_close(&in->lines);
    free(in->text);
    in->text = NULL;
    in->n_bytes = in->capacity = 0;
}
