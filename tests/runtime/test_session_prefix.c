/* runtime/session/session.h, apr_session_keep_prefix: after going back the next tokens get the numbers that they get without what was
 * forgotten; and where a model cannot go back, it begins again. */
#include "tests/support/fake_device.h"
#include "tests/support/program_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_CTX = 96, N_BATCH = 8, VOCAB = 96 };

static apr_session *open_session(const apr_model *model, bool is_device)
{
    apr_session_options options = apr_session_defaults;
    options.n_ctx = N_CTX;
    options.n_batch = N_BATCH;
    if (is_device) options.cuda = fake_device();
    else options.backend = &apr_ref_backend;
    return must_open_session(model, &options);
}

static void evaluate(apr_session *s, const int32_t *ids, int64_t n)
{
    apr_error err = {0};
    if (apr_session_eval(s, ids, (size_t)n, NULL, &err) != APR_OK) fail_msg("%s", err.text);
}

static void make_text(int32_t *ids, int64_t n, int64_t n_alike, int salt)
{
    for (int64_t i = 0; i < n; i++) ids[i] = (int32_t)((i * 7 + 3 + (i >= n_alike ? salt : 0)) % VOCAB);
}

/* `first` tokens are evaluated, then a text of n with the same beginning; the last one's logits must be those of the text alone. */
static void check(const apr_model *model, bool is_device, int64_t first, int64_t n_alike, int64_t n, int64_t want_kept)
{
    int32_t before[N_CTX], text[N_CTX];
    apr_session *const s = open_session(model, is_device), *const alone = open_session(model, is_device);
    const size_t row = (size_t)model->hparams.vocab_size * sizeof(float);

    make_text(before, first, n_alike, 5);
    make_text(text, n, n_alike, 11);
    evaluate(s, before, first);
    const int64_t kept = apr_session_keep_prefix(s, before, text, n);
    if (kept != want_kept) fail_msg("%lld of %lld stay, not %lld", (long long)kept, (long long)first, (long long)want_kept);
    assert_int_equal(apr_session_position(s), kept);
    evaluate(s, text + kept, n - kept);
    evaluate(alone, text, n);
    assert_int_equal(apr_session_position(s), n);
    assert_memory_equal(apr_session_logits(s), apr_session_logits(alone), row);
    apr_session_close(s);
    apr_session_close(alone);
}

static void open_family(program_model *m, const char *architecture, uint8_t mixer)
{
    static const uint8_t ffn = APR_FFN_DENSE;
    static uint8_t kind;
    apr_hparams h = program_model_sizes(architecture);
    apr_error err = {0};
    kind = mixer;
    h.num_layers = 1;
    h.layer_kinds = &kind;
    h.ffn_kinds = &ffn;
    h.num_experts = 0;
    if (program_model_open(m, &h, APR_F32, &err) != APR_OK) fail_msg("%s: %s", architecture, err.text);
}

static void keys_and_values_go_back_anywhere(void **state)
{
    program_model m;
    (void)state;
    open_family(&m, "llama", APR_LAYER_FULL);
    for (int device = 0; device < 2; device++) {
        check(&m.model, device, 40, 40, 60, 40); /* goes on */
        check(&m.model, device, 60, 25, 50, 25); /* another ending */
        check(&m.model, device, 60, 60, 60, 59); /* the same again: its last token is evaluated */
        check(&m.model, device, 60, 60, 20, 19); /* a part of it */
        check(&m.model, device, 60, 0, 30, 0);   /* another text */
        check(&m.model, device, 5, 5, 1, 0);
    }
    program_model_close(&m);
}

static void recurrent_states_begin_again(void **state)
{
    program_model m;
    (void)state;
    open_family(&m, "qwen3_5", APR_LAYER_LINEAR);
    for (int device = 0; device < 2; device++) {
        check(&m.model, device, 40, 40, 60, 40);
        check(&m.model, device, 60, 59, 70, 0);
        check(&m.model, device, 60, 60, 60, 0);
    }
    program_model_close(&m);
}

/* Its ring has cells for the window and a batch: as many tokens as a batch has can be taken back, or all where it has not been filled. */
static void windows_go_back_as_far_as_they_were_kept(void **state)
{
    program_model m;
    (void)state;
    open_family(&m, "gemma3_text", APR_LAYER_SLIDING);
    const int64_t cells = m.model.hparams.sliding_window + N_BATCH;
    assert_true(cells + 20 < N_CTX);
    for (int device = 0; device < 2; device++) {
        check(&m.model, device, 60, 60, 70, 60);
        check(&m.model, device, cells, 3, cells, 3);
        check(&m.model, device, cells + 20, cells + 20 - N_BATCH, N_CTX, cells + 20 - N_BATCH);
        check(&m.model, device, cells + 20, cells + 19 - N_BATCH, N_CTX, 0);
        check(&m.model, device, cells + 20, 3, 40, 0);
    }
    program_model_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_and_values_go_back_anywhere),
        cmocka_unit_test(recurrent_states_begin_again),
        cmocka_unit_test(windows_go_back_as_far_as_they_were_kept),
    };
    return cmocka_run_group_tests_name("session prefix", tests, NULL, NULL);
}
