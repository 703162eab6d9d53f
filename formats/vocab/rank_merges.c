/* rank_merges.c - splits each token by the rank rule, using only the tokens before it. */
#include "formats/vocab/rank_merges.h"

#include "formats/vocab/vocab_index.h"

enum { MOST_LETTERS = 1024 };

/* A token's text, divided into parts. Part i ends where part i + 1 begins. */
typedef struct parts {
    apr_str text;
    int64_t joined[MOST_LETTERS + 1]; /* id of parts i and i + 1 joined; -1: not a token, or not before this one */
    size_t begin[MOST_LETTERS + 1];   /* of part i, in bytes; begin[n] is the text's end */
    size_t n;
} parts;

static bool is_letter_start(char c) { return ((unsigned char)c & 0xc0) != 0x80; }

static bool cut_to_letters(parts *p, apr_str text)
{
    p->text = text;
    p->n = 0;
    for (size_t i = 0; i < text.n_bytes; i++) {
        if (!is_letter_start(text.text[i])) continue;
        if (p->n == MOST_LETTERS) return false;
        p->begin[p->n++] = i;
    }
    p->begin[p->n] = text.n_bytes;
    return true;
}

static void look_up(parts *p, size_t i, const apr_vocab_index *index, int64_t below)
{
    p->joined[i] = -1;
    if (i + 1 >= p->n) return;
    const int64_t id = apr_vocab_index_find(index, p->text.text + p->begin[i], p->begin[i + 2] - p->begin[i]);
    if (id < below) p->joined[i] = id;
}

/* Joins by the rank rule until two parts are left, or no two can be joined. */
static void apply_rule(parts *p, const apr_vocab_index *index, int64_t below)
{
    for (size_t i = 0; i < p->n; i++) look_up(p, i, index, below);
    while (p->n > 2) {
        size_t best = p->n;
        for (size_t i = 0; i + 1 < p->n; i++)
            if (p->joined[i] >= 0 && (best == p->n || p->joined[i] < p->joined[best])) best = i;
        if (best == p->n) return;
        for (size_t i = best + 1; i < p->n; i++) {
            p->begin[i] = p->begin[i + 1];
            p->joined[i] = i + 1 < p->n ? p->joined[i + 1] : -1;
        }
        p->n--;
        look_up(p, best, index, below);
        if (best > 0) look_up(p, best - 1, index, below);
    }
}

static apr_status find_merges(apr_vocab *v, apr_str *merges, const apr_vocab_index *index, parts *p, const char *where, apr_error *err)
{
    for (size_t id = 0; id < v->n_tokens; id++) {
        if (v->types[id] != APR_TOKEN_NORMAL) continue;
        if (!cut_to_letters(p, v->tokens[id]))
            return apr_fail(err, APR_E_UNSUPPORTED, "%s: token %zu has more than %d bytes", where, id, MOST_LETTERS);
        if (p->n < 2) continue;
        apply_rule(p, index, (int64_t)id);
        if (p->n != 2) continue;
        const char *const text = p->text.text;
        merges[2 * v->n_merges] = (apr_str){text, p->begin[1]};
        merges[2 * v->n_merges + 1] = (apr_str){text + p->begin[1], p->text.n_bytes - p->begin[1]};
        v->n_merges++;
    }
    return APR_OK;
}

apr_status apr_rank_merges(apr_vocab *v, apr_arena *arena, const char *where, apr_error *err)
{
    apr_str *const merges = apr_arena_array(arena, 2 * v->n_tokens, sizeof *merges);
    parts *const p = apr_arena_alloc(arena, sizeof *p);
    apr_vocab_index index = {0};

    if (merges == NULL || p == NULL) return apr_no_memory(err, "the merges");
    const bool opened = apr_vocab_index_open(&index, v, 1 << APR_TOKEN_NORMAL);
    v->n_merges = 0;
    v->merges = merges;
    const apr_status status = opened ? find_merges(v, merges, &index, p, where, err) : apr_no_memory(err, "the vocabulary");
    apr_vocab_index_close(&index);
    return status;
}

/* Printable bytes map to their own code point; the others to U+0100 and up, in order. */
static unsigned letter_of(uint8_t byte)
{
    unsigned n_before = 0;

    if ((byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174) return byte;
    if (byte < 33) n_before = byte;
    else if (byte < 161) n_before = 33u + byte - 127u;
    else n_before = 33 + 34;
    return 256 + n_before;
}

apr_str apr_byte_letters(const uint8_t *bytes, size_t n, apr_arena *arena)
{
    char *const text = apr_arena_alloc(arena, 2 * n + 1);
    size_t at = 0;

    for (size_t i = 0; text != NULL && i < n; i++) {
        const unsigned letter = letter_of(bytes[i]);
        if (letter >= 0x80) text[at++] = (char)(0xc0 | letter >> 6);
        text[at++] = (char)(letter >= 0x80 ? 0x80 | (letter & 0x3f) : letter);
    }
    return (apr_str){text, at};
}
