/* runtime/check/subject.h: ids that mean the same, in whatever format the vocabularies came. */
#include "runtime/check/subject.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char qwen2[] = "tests/data/tiny-qwen2", llama[] = "tests/data/tiny-llama";
static const char gguf[] = "tests/data/tiny-qwen2/tiny-qwen2-Q4_K_M.gguf";

typedef struct side {
    apr_model model;
    apr_tokenizer *tokenizer;
} side;

static apr_subject open_side(side *s, const char *path)
{
    assert_int_equal(apr_model_open(&s->model, path, NULL), APR_OK);
    assert_int_equal(apr_tokenizer_open(&s->tokenizer, &s->model.vocab, NULL), APR_OK);
    return (apr_subject){.path = path, .vocab = &s->model.vocab, .tokenizer = s->tokenizer};
}

static void close_side(side *s)
{
    apr_tokenizer_close(s->tokenizer);
    apr_model_close(&s->model);
}

static apr_status agree(const char *path_a, const char *path_b, apr_error *err)
{
    side a, b;
    const apr_subject subject_a = open_side(&a, path_a), subject_b = open_side(&b, path_b);
    const apr_status status = apr_vocabularies_agree(&subject_a, &subject_b, err);
    close_side(&a);
    close_side(&b);
    return status;
}

static void a_checkpoint_and_a_gguf_of_it_mean_the_same(void **state)
{
    (void)state;
    assert_int_equal(agree(qwen2, gguf, NULL), APR_OK);
    assert_int_equal(agree(gguf, qwen2, NULL), APR_OK);
}

static void what_the_models_compute_does_not_matter(void **state)
{
    (void)state;
    assert_int_equal(agree(qwen2, llama, NULL), APR_OK); /* made with one tokenizer */
}

static void one_token_of_other_bytes_is_named(void **state)
{
    (void)state;
    side a, b;
    apr_error err = {0};
    const apr_subject subject_a = open_side(&a, qwen2), subject_b = open_side(&b, qwen2);
    const char other[] = "of_this_text_none_is_made";
    apr_str *const token = (apr_str *)(uintptr_t)&b.model.vocab.tokens[300];
    *token = (apr_str){other, sizeof other - 1};
    assert_int_equal(apr_vocabularies_agree(&subject_a, &subject_b, &err), APR_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "token 300 is '"));
    assert_non_null(strstr(err.text, other));
    close_side(&a);
    close_side(&b);
}

static void a_token_more_is_another_vocabulary_and_a_hole_more_is_none(void **state)
{
    (void)state;
    side a, b;
    apr_error err = {0};
    const apr_subject subject_a = open_side(&a, qwen2), subject_b = open_side(&b, qwen2);
    const size_t n = b.model.vocab.n_tokens;
    uint8_t *const types = malloc(n);
    memcpy(types, b.model.vocab.types, n);
    types[n - 1] = APR_TOKEN_UNUSED; /* in one of them */
    b.model.vocab.types = types;
    assert_int_equal(apr_vocabularies_agree(&subject_a, &subject_b, &err), APR_E_UNSUPPORTED);
    b.model.vocab.types = a.model.vocab.types;
    a.model.vocab.types = types;
    b.model.vocab.n_tokens--; /* a hole in one, nothing in the other */
    assert_int_equal(apr_vocabularies_agree(&subject_a, &subject_b, NULL), APR_OK);
    assert_int_equal(apr_vocabularies_agree(&subject_b, &subject_a, NULL), APR_OK);
    free(types);
    close_side(&a);
    close_side(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_checkpoint_and_a_gguf_of_it_mean_the_same),
        cmocka_unit_test(what_the_models_compute_does_not_matter),
        cmocka_unit_test(one_token_of_other_bytes_is_named),
        cmocka_unit_test(a_token_more_is_another_vocabulary_and_a_hole_more_is_none),
    };
    return cmocka_run_group_tests_name("same_vocabulary", tests, NULL, NULL);
}
