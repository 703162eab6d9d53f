/* formats/base/grow.h: an array keeps what it has while it grows, on the heap and in an arena, and a size that cannot be is refused. */
#include "formats/base/grow.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum { N = 1000 };

static void what_an_array_has_stays(void **state)
{
    apr_arena arena = {0};
    int64_t *on_heap = NULL, *in_arena = NULL;
    size_t heap_capacity = 0, arena_capacity = 0, n_moves = 0;
    (void)state;
    for (size_t n = 0; n < N; n++) {
        const size_t before = heap_capacity;
        on_heap = apr_grow(on_heap, &heap_capacity, n + 1, sizeof *on_heap);
        in_arena = apr_arena_grow(&arena, in_arena, &arena_capacity, n + 1, sizeof *in_arena);
        assert_true(on_heap != NULL && in_arena != NULL && heap_capacity > n && arena_capacity > n);
        assert_int_equal(in_arena[n], 0);
        on_heap[n] = in_arena[n] = (int64_t)(n * n);
        n_moves += heap_capacity != before;
    }
    for (size_t n = 0; n < N; n++) assert_true(on_heap[n] == (int64_t)(n * n) && in_arena[n] == (int64_t)(n * n));
    assert_in_range(n_moves, 2, 10);
    free(on_heap);
    apr_arena_close(&arena);
}

/* The caller still has its array, of the length that it had. */
static void a_size_that_cannot_be_is_refused(void **state)
{
    apr_arena arena = {0};
    size_t capacity = 0;
    (void)state;
    int64_t *const array = apr_grow(NULL, &capacity, 3, sizeof *array);
    assert_non_null(array);
    const size_t had = capacity;
    assert_null(apr_grow(array, &capacity, SIZE_MAX / 8, sizeof *array));
    assert_null(apr_arena_grow(&arena, array, &capacity, SIZE_MAX / 8, sizeof *array));
    assert_int_equal(capacity, had);
    array[2] = 7;
    assert_ptr_equal(apr_grow(array, &capacity, had, sizeof *array), array);
    assert_int_equal(array[2], 7);
    free(array);
    apr_arena_close(&arena);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_an_array_has_stays),
        cmocka_unit_test(a_size_that_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
