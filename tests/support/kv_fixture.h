/* kv_fixture.h - a list of metadata in an arena of its own, and what may be read from it or made into it. */
#ifndef APR_TESTS_KV_FIXTURE_H
#define APR_TESTS_KV_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "formats/shape/hparams.h"
#include "formats/tensor/kv.h"
#include "formats/vocab/vocab.h"

typedef struct fixture {
    apr_arena arena;
    apr_kv_list kv;
    apr_hparams h;
    apr_vocab v;
    apr_error err;
} fixture;

static int setup(void **state)
{
    fixture *const f = calloc(1, sizeof *f);
    if (f == NULL) return 1;
    f->kv.arena = &f->arena;
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture *const f = *state;
    apr_arena_close(&f->arena);
    free(f);
    return 0;
}

#endif
