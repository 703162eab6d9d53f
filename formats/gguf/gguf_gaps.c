/* gguf_gaps.c - finds the gaps of a GGUF: bytes that belong to no tensor and are not just zeros up to the alignment. The writer repeats
 * them if the layout still has the same number of tensors. */
#include "formats/gguf/gguf.h"

#include <stdlib.h>

static bool is_zero(const uint8_t *bytes, uint64_t n)
{
    uint64_t i = 0;
    while (i < n && bytes[i] == 0) i++;
    return i == n;
}

static uint64_t zeros_of(const apr_gap *gaps, size_t n_gaps)
{
    uint64_t n = 0;
    for (size_t i = 0; i < n_gaps; i++) n += is_zero(gaps[i].bytes, gaps[i].n_bytes) ? gaps[i].n_bytes : 0;
    return n;
}

typedef struct search {
    apr_gap *gaps;
    size_t n;
} search;

static void add_unless_usual(search *s, size_t place, const uint8_t *bytes, uint64_t n, uint64_t usual)
{
    if (n == usual && is_zero(bytes, n)) return;
    s->gaps[s->n++] = (apr_gap){place, bytes, n};
}

apr_status apr_gguf_find_gaps(apr_model *model, const uint64_t *offsets, uint64_t head_at, uint64_t alignment, apr_error *err)
{
    const apr_map *const map = &model->maps[0];
    const uint64_t start = apr_align_up(head_at, alignment), n_file = map->n_bytes;
    const size_t n = model->n_tensors;
    uint64_t end = 0; /* of the previous tensor, from `start` */
    search s = {apr_arena_array(&model->arena, n + 2, sizeof *s.gaps), 0};

    if (s.gaps == NULL) return apr_no_memory(err, "the list of tensors");
    const uint64_t head_end = start < n_file ? start : n_file;
    add_unless_usual(&s, 0, map->data + head_at, head_end - head_at, start - head_at);
    for (size_t i = 0; i < n; i++) {
        const uint64_t usual = apr_align_up(end, alignment) - end;
        if (offsets[i] < end) return APR_OK; /* an empty tensor inside another one: cannot be repeated */
        add_unless_usual(&s, i + 1, map->data + start + end, offsets[i] - end, usual);
        end = offsets[i] + model->tensors[i].n_bytes;
    }
    if (start + end <= n_file)
        add_unless_usual(&s, n + 1, map->data + start + end, n_file - start - end, n > 0 ? apr_align_up(end, alignment) - end : 0);
    if (zeros_of(s.gaps, s.n) > apr_gguf_max_zeros(model)) return APR_OK; /* too much padding to keep */
    model->origin.gaps = s.gaps;
    model->origin.n_gaps = s.n;
    model->origin.n_gap_tensors = n;
    return APR_OK;
}

static int by_place(const void *key, const void *item)
{
    const size_t a = *(const size_t *)key, b = ((const apr_gap *)item)->place;
    return (a > b) - (a < b);
}

const apr_gap *apr_gguf_gap(const apr_model *layout, size_t place)
{
    const apr_origin *const o = &layout->origin;

    if (o->format != APR_FORMAT_GGUF || o->requantized || o->n_gaps == 0 || o->n_gap_tensors != layout->n_tensors) return NULL;
    return bsearch(&place, o->gaps, o->n_gaps, sizeof *o->gaps, by_place);
}

uint64_t apr_gguf_gap_bytes(const apr_model *layout)
{
    uint64_t n = 0;
    for (size_t place = 0; place <= layout->n_tensors + 1; place++) {
        const apr_gap *const gap = apr_gguf_gap(layout, place);
        n += gap != NULL ? gap->n_bytes : 0;
    }
    return n;
}
