/* terminal.c - the width and styles of a terminal, and streams that fold their lines to it. */
#define _GNU_SOURCE /* fopencookie */
#include "tools/report/terminal.h"

#include "tools/report/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { DEFAULT_COLUMNS = 80, MIN_COLUMNS = 20, HANGING_INDENT = 2 };

/* The cookie of a folding stream, which has no file descriptor itself. */
typedef struct folding {
    int fd;
    FILE *plain; /* the underlying stream */
    apr_fold fold;
    bool is_off;
} folding;

static folding on_stdout = {.fd = STDOUT_FILENO}, on_stderr = {.fd = STDERR_FILENO};

static int fd_of(FILE *out) { return out == stdout ? STDOUT_FILENO : out == stderr ? STDERR_FILENO : fileno(out); }

bool apr_is_terminal(FILE *out) { return isatty(fd_of(out)) != 0; }

static int columns_of(int fd)
{
    struct winsize size;
    const char *const stated = getenv("COLUMNS");
    int columns = 0;

    if (!isatty(fd)) return 0;
    if (ioctl(fd, TIOCGWINSZ, &size) == 0) columns = size.ws_col;
    if (columns == 0 && stated != NULL) columns = (int)strtol(stated, NULL, 10);
    return columns <= 0 ? DEFAULT_COLUMNS : columns < MIN_COLUMNS ? MIN_COLUMNS : columns;
}

int apr_terminal_columns(FILE *out) { return columns_of(fd_of(out)); }

/* The bytes of the word at text, with escape sequences in it, and the columns that it takes. */
static size_t measure_word(const char *text, size_t n_bytes, int *columns)
{
    char word[512];
    size_t n = 0, n_shown = 0;

    *columns = 0;
    while (n < n_bytes && text[n] != ' ' && text[n] != '\n' && text[n] != '\r') {
        if (text[n] == '\033') { /* ESC [ ... letter: takes no column */
            while (n < n_bytes && !(text[n] >= 'A' && text[n] <= 'Z') && !(text[n] >= 'a' && text[n] <= 'z')) n++;
            n += n < n_bytes;
            continue;
        }
        word[n_shown++] = text[n++];
        if (n_shown + 1 < sizeof word) continue;
        break; /* very long words are measured piece by piece; they are never broken */
    }
    word[n_shown] = '\0';
    *columns = apr_text_columns(word);
    return n;
}

static void end_line(apr_fold *fold)
{
    fold->column = fold->indent = 0;
    fold->has_begun = false;
}

void apr_fold_write(apr_fold *fold, const char *text, size_t n_bytes, FILE *out)
{
    size_t at = 0, blanks = 0;

    while (at < n_bytes) {
        if (text[at] == '\n' || text[at] == '\r') {
            fputc(text[at], out); /* blanks before a line end are not printed */
            blanks = 0;
            at++;
            end_line(fold);
            continue;
        }
        if (text[at] == ' ') {
            blanks++;
            at++;
            continue;
        }
        int columns;
        const size_t n = measure_word(text + at, n_bytes - at, &columns);
        if (!fold->has_begun && columns > 0) {
            fold->indent = fold->column + (int)blanks;
            fold->has_begun = true;
        }
        const int hanging = fold->indent + HANGING_INDENT < fold->columns / 2 ? fold->indent + HANGING_INDENT : HANGING_INDENT;
        const int start = fold->column + (int)blanks;
        if (blanks > 0 && fold->column > hanging && start + columns > fold->columns) {
            fprintf(out, "\n%*s", hanging, "");
            fold->column = hanging;
        } else {
            fprintf(out, "%*s", (int)blanks, "");
            fold->column = start;
        }
        fwrite(text + at, 1, n, out);
        fold->column += columns;
        blanks = 0;
        at += n;
    }
    fprintf(out, "%*s", (int)blanks, "");
    fold->column += (int)blanks;
}

static ssize_t write_folded(void *cookie, const char *text, size_t n_bytes)
{
    folding *const f = cookie;

    f->fold.columns = columns_of(f->fd); /* the window may have been resized */
    if (f->fold.columns == 0 || f->is_off) fwrite(text, 1, n_bytes, f->plain);
    else apr_fold_write(&f->fold, text, n_bytes, f->plain);
    if (f->is_off) end_line(&f->fold);
    if (fflush(f->plain) != 0 || ferror(f->plain)) return 0; /* the folding stream reports the error */
    return (ssize_t)n_bytes;
}

static FILE *start_folding(folding *f, FILE *plain, int buffering)
{
    if (!isatty(f->fd)) return plain;
    FILE *const folded = fopencookie(f, "w", (cookie_io_functions_t){.write = write_folded});
    if (folded == NULL) return plain;
    setvbuf(folded, NULL, buffering, buffering == _IONBF ? 0 : BUFSIZ);
    f->plain = plain;
    return folded;
}

void apr_terminal_start(void)
{
    stdout = start_folding(&on_stdout, stdout, _IOLBF);
    stderr = start_folding(&on_stderr, stderr, _IONBF);
}

void apr_terminal_fold(bool on)
{
    if (on_stdout.plain != NULL) fflush(stdout);
    on_stdout.is_off = !on;
}

static int color_choice;

void apr_color_set(int choice) { color_choice = choice; }

static bool has_style(FILE *out)
{
    if (color_choice > 0) return color_choice == 1;
    const char *const no_color = getenv("NO_COLOR"); /* no-color.org: set and not empty */
    const char *const terminal = getenv("TERM");
    if (terminal != NULL && strcmp(terminal, "dumb") == 0) return false;
    return apr_is_terminal(out) && (no_color == NULL || *no_color == '\0');
}

const char *apr_bold(FILE *out) { return has_style(out) ? "\033[1m" : ""; }
const char *apr_dim(FILE *out) { return has_style(out) ? "\033[2m" : ""; }
const char *apr_green(FILE *out) { return has_style(out) ? "\033[32m" : ""; }
const char *apr_red(FILE *out) { return has_style(out) ? "\033[31m" : ""; }
const char *apr_plain(FILE *out) { return has_style(out) ? "\033[0m" : ""; }
