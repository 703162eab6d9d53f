/* answer_stream.c - prints an answer's tokens to stdout. */
#include "tools/verbs/run/answer_stream.h"

#include "formats/base/grow.h"
#include "tools/report/terminal.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1024 };

static bool print_chunk(apr_answer_stream *s, const char *bytes, size_t n, bool is_last)
{
    char valid[CHUNK * APR_VALID_TEXT_GROWTH], clean[(sizeof valid + 1) * APR_TERMINAL_TEXT_GROWTH];

    if (s->as_decoded) {
        n = apr_valid_text(valid, bytes, n);
        bytes = valid;
    }
    apr_terminal_fold(is_last); /* what a model writes is not folded */
    if (s->is_terminal) n = apr_terminal_clean(&s->terminal, clean, bytes, n, is_last);
    return fwrite(s->is_terminal ? clean : bytes, 1, n, stdout) == n && fflush(stdout) == 0;
}

/* Prints the text that can be shown by now. */
static bool print_text(apr_answer_stream *s, bool is_last)
{
    size_t n = 0;
    const char *bytes = apr_answer_text_show(&s->text, is_last, &n);

    if (s->before != NULL && (n > 0 || is_last)) {
        fputs(s->before, stdout);
        s->before = NULL;
    }
    while (n > CHUNK) {
        size_t chunk = CHUNK;
        while (chunk > CHUNK - 4 && ((unsigned char)bytes[chunk] & 0xc0) == 0x80) chunk--; /* cut between characters */
        if (!print_chunk(s, bytes, chunk, false)) return false;
        bytes += chunk;
        n -= chunk;
    }
    return print_chunk(s, bytes, n, is_last);
}

static bool keep_id(apr_answer_stream *s, int32_t id)
{
    int32_t *const ids = apr_grow(s->ids, &s->capacity, s->n_ids + 1, sizeof *ids);
    if (ids == NULL) return false;
    s->ids = ids;
    s->ids[s->n_ids++] = id;
    return true;
}

/* The decoder leaves out the space that the encoder puts in front of a text. */
static bool leaves_space_out(const apr_answer_stream *s)
{
    const apr_vocab *const vocab = &s->running->model.vocab;
    return s->as_decoded && !s->has_text && vocab->kind == APR_VOCAB_SPM && vocab->add_space_prefix;
}

bool apr_answer_stream_take(void *user, int32_t id, bool is_stop)
{
    apr_answer_stream *const s = user;
    char bytes[CHUNK];

    s->failed |= !keep_id(s, id);
    if (s->failed) return false;
    if (is_stop && !s->show_special) return true;
    size_t n = apr_tokenizer_token_bytes(s->running->tokenizer, id, s->show_special, bytes, sizeof bytes);
    if (n > sizeof bytes) n = sizeof bytes;
    const size_t skipped = n > 0 && bytes[0] == ' ' && leaves_space_out(s);
    s->has_text |= n > 0;
    s->failed |= !apr_answer_text_add(&s->text, bytes + skipped, n - skipped);
    if (s->failed || (s->print && !print_text(s, false)) || s->text.is_stopped) return false;
    return s->is_ended == NULL || !s->is_ended();
}

bool apr_answer_stream_end(apr_answer_stream *s) { return !s->print || print_text(s, true); }

void apr_answer_stream_close(apr_answer_stream *s)
{
    apr_answer_text_close(&s->text);
    free(s->ids);
    s->ids = NULL;
}
