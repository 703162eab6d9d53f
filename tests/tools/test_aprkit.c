/* tools/engine/aprkit.h: each function as a program would call it; nothing is left by a conversion that was cancelled; truncated files are
 * errors; contexts in several threads do not disturb each other. */
#define _XOPEN_SOURCE 700
#include "tests/support/work_folder.h"
#include "tools/engine/aprkit.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>

static const char checkpoint[] = "tests/data/tiny-qwen2", quantized[] = "tests/data/tiny-qwen2/tiny-qwen2-Q4_K_M.gguf";

static aprkit_model *open_model(const char *path)
{
    aprkit_model *m;
    aprkit_error e;
    if (aprkit_model_open(&m, path, NULL, &e) != APRKIT_OK) fail_msg("%s", e.text);
    assert_int_equal(e.status, APRKIT_OK);
    assert_string_equal(e.text, "");
    return m;
}

static aprkit_session *open_session(aprkit_model *m, int threads)
{
    const aprkit_session_options o = {.size = sizeof o, .n_context = 128, .threads = threads};
    aprkit_session *s;
    aprkit_error e;
    if (aprkit_session_open(&s, m, &o, &e) != APRKIT_OK) fail_msg("%s", e.text);
    return s;
}

/* Entries of a folder without "." and "..". */
static int count_entries(const char *folder)
{
    char command[128];
    int n = -1;
    snprintf(command, sizeof command, "ls -A '%s' | wc -l", folder);
    FILE *const p = popen(command, "r");
    assert_non_null(p);
    assert_int_equal(fscanf(p, "%d", &n), 1);
    pclose(p);
    return n;
}

/* --- models --- */

static void a_model_says_what_is_in_it(void **state)
{
    aprkit_model_facts f = {.size = sizeof f};
    aprkit_tensor_facts t = {.size = sizeof t};
    aprkit_error e;
    uint64_t bytes = 0, elems = 0;
    (void)state;

    aprkit_model *const m = open_model(checkpoint);
    assert_int_equal(aprkit_model_info(m, &f, &e), APRKIT_OK);
    assert_string_equal(f.path, checkpoint);
    assert_string_equal(f.format, "safetensors");
    assert_string_equal(f.architecture, "Qwen2ForCausalLM");
    assert_true(f.n_layers > 0 && f.hidden_size > 0 && f.n_vocabulary > 0 && f.n_context > 0 && f.n_tokens > 0);
    assert_non_null(f.chat_template);
    for (size_t i = 0; i < f.n_tensors; i++) {
        uint64_t n = 1;
        assert_int_equal(aprkit_model_tensor(m, i, &t, &e), APRKIT_OK);
        for (int k = 0; k < t.rank; k++) n *= (uint64_t)t.dims[k];
        elems += n;
        bytes += t.n_bytes;
    }
    assert_int_equal(bytes, f.tensor_bytes);
    assert_int_equal(elems, f.n_parameters);
    assert_int_equal(aprkit_model_tensor(m, f.n_tensors, &t, &e), APRKIT_E_USAGE);
    assert_int_equal(e.status, APRKIT_E_USAGE);
    assert_non_null(strstr(e.text, "has no tensor"));
    aprkit_model_close(m);
    aprkit_model_close(NULL);
}

static void what_cannot_be_opened_is_an_error(void **state)
{
    aprkit_model *m = (aprkit_model *)state;
    aprkit_error e;

    assert_int_equal(aprkit_model_open(&m, in_work("nothing.gguf"), NULL, &e), APRKIT_E_IO);
    assert_null(m);
    assert_non_null(strstr(e.text, "nothing.gguf"));
    write_file(in_work("bad.gguf"), "GGUF\3\0\0\0\377", 9);
    assert_int_equal(aprkit_model_open(&m, in_work("bad.gguf"), NULL, &e), APRKIT_E_DAMAGED);
    assert_null(m);
    assert_int_equal(aprkit_model_open(&m, NULL, NULL, NULL), APRKIT_E_USAGE); /* no error is wanted */
}

/* A newer header has more members, an older one fewer. */
static void structs_of_other_versions_are_understood(void **state)
{
    struct {
        aprkit_model_facts known;
        int64_t unknown[4];
    } newer = {.known = {.size = sizeof newer}, .unknown = {1, 2, 3, 4}};
    struct {
        aprkit_convert_options known;
        int64_t unknown;
    } options = {.known = {.size = sizeof options}, .unknown = 1};
    aprkit_model_facts older = {.size = offsetof(aprkit_model_facts, n_tensors), .n_tensors = 12345}, unset = {0};
    aprkit_error e;
    (void)state;

    aprkit_model *const m = open_model(checkpoint);
    assert_int_equal(aprkit_model_info(m, &newer.known, &e), APRKIT_OK);
    assert_int_equal(newer.known.size, sizeof newer);
    for (int i = 0; i < 4; i++) assert_int_equal(newer.unknown[i], 0);
    assert_int_equal(aprkit_model_info(m, &older, &e), APRKIT_OK);
    assert_int_equal(older.n_tensors, 12345);
    assert_string_equal(older.format, "safetensors");
    assert_int_equal(aprkit_model_info(m, &unset, &e), APRKIT_E_USAGE);
    assert_int_equal(aprkit_convert(m, in_work("x.apr"), &options.known, &e), APRKIT_E_UNSUPPORTED);
    assert_non_null(strstr(e.text, "newer library"));
    aprkit_model_close(m);
    assert_string_equal(aprkit_version(), APRKIT_VERSION);
    assert_int_equal(aprkit_abi(), APRKIT_ABI);
}

/* --- conversion --- */

typedef struct watch {
    uint64_t last, total, cancel_at; /* cancel_at: 0 never */
    int n_calls, n_notes;
    char note[1024];
} watch;

static int on_progress(void *user, const aprkit_progress *p)
{
    watch *const w = user;
    assert_int_equal(p->size, sizeof *p);
    assert_string_equal(p->unit, "bytes");
    assert_true(p->done >= w->last && p->done <= p->total);
    w->last = p->done;
    w->total = p->total;
    w->n_calls++;
    return w->cancel_at > 0 && p->done >= w->cancel_at;
}

static void on_note(void *user, const char *sentence)
{
    watch *const w = user;
    w->n_notes++;
    snprintf(w->note, sizeof w->note, "%s", sentence);
}

static void a_conversion_reports_and_writes_the_same_bytes_with_any_threads(void **state)
{
    const aprkit_rule rules[] = {{"down_proj", "q6_k"}};
    watch w = {0};
    aprkit_convert_options o = {.size = sizeof o,
                                .to = "q8_0",
                                .rules = rules,
                                .n_rules = 1,
                                .threads = 1,
                                .progress = on_progress,
                                .on_note = on_note,
                                .user = &w};
    aprkit_error e;
    (void)state;

    aprkit_model *const m = open_model(checkpoint);
    if (aprkit_convert(m, in_work("one.gguf"), &o, &e) != APRKIT_OK) fail_msg("%s", e.text);
    assert_true(w.n_calls > 1);
    assert_int_equal(w.last, w.total);
    o.threads = 3;
    o.format = "gguf";
    w = (watch){0};
    assert_int_equal(aprkit_convert(m, in_work("three"), &o, &e), APRKIT_OK);
    assert_same_file(in_work("one.gguf"), in_work("three"));
    assert_int_equal(aprkit_convert(m, in_work("three"), &o, &e), APRKIT_E_IO); /* it exists */
    o.overwrite = 1;
    w = (watch){0};
    assert_int_equal(aprkit_convert(m, in_work("three"), &o, &e), APRKIT_OK);
    aprkit_model_close(m);

    aprkit_model *const again = open_model(in_work("one.gguf"));
    aprkit_tensor_facts t = {.size = sizeof t};
    int n_q6 = 0, n_q8 = 0;
    for (size_t i = 0; aprkit_model_tensor(again, i, &t, &e) == APRKIT_OK; i++) {
        n_q6 += strcmp(t.type, "q6_k") == 0 && strstr(t.name, "ffn_down") != NULL;
        n_q8 += strcmp(t.type, "q8_0") == 0;
    }
    assert_true(n_q6 > 0 && n_q8 > 0);
    aprkit_model_close(again);
}

static void wrong_options_are_named(void **state)
{
    const aprkit_rule rule = {"down", "q99"};
    const aprkit_convert_options wrong[] = {
        {.size = sizeof *wrong, .to = "q99"},
        {.size = sizeof *wrong, .rules = &rule, .n_rules = 1},
        {.size = sizeof *wrong, .format = "onnx"},
        {.size = sizeof *wrong, .device = "tpu"},
        {.size = sizeof *wrong, .profile = "other"},
        {.size = sizeof *wrong, .part = 3, .n_parts = 2},
        {.size = sizeof *wrong, .resume = 1, .finish = 1},
    };
    static const char *const named[] = {"q99", "q99", "onnx", "tpu", "other", "part 3 of 2", "only one"};
    aprkit_error e;
    (void)state;

    aprkit_model *const m = open_model(checkpoint);
    const int n = count_entries(work);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(aprkit_convert(m, in_work("wrong.apr"), &wrong[i], &e), APRKIT_E_USAGE);
        if (strstr(e.text, named[i]) == NULL) fail_msg("%s", e.text);
    }
    assert_int_equal(aprkit_convert(m, in_work("wrong.bin"), NULL, &e), APRKIT_E_USAGE);
    assert_int_equal(aprkit_convert(m, "tests/data/tiny-qwen2/model.safetensors", NULL, &e), APRKIT_E_USAGE); /* an input */
    assert_int_equal(count_entries(work), n);
    aprkit_model_close(m);
}

/* Cancelled at the first report, at each quarter and at the last one: nothing is left in the folder. */
static void a_cancelled_conversion_leaves_nothing(void **state)
{
    static const char *const names[] = {"out.gguf", "out.apr", "folder/"};
    aprkit_error e;
    (void)state;

    aprkit_model *const m = open_model(checkpoint);
    aprkit_model_facts f = {.size = sizeof f};
    assert_int_equal(aprkit_model_info(m, &f, NULL), APRKIT_OK);
    mkdir(in_work("cancelled"), 0700);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (uint64_t quarter = 0; quarter <= 4; quarter++) {
            char out[128];
            watch w = {.cancel_at = quarter > 0 ? f.tensor_bytes / 4 * quarter : 1};
            const aprkit_convert_options o = {.size = sizeof o, .to = "f16", .progress = on_progress, .user = &w};
            snprintf(out, sizeof out, "%s/%s", in_work("cancelled"), names[i]);
            assert_int_equal(aprkit_convert(m, out, &o, &e), APRKIT_E_CANCELLED);
            assert_int_equal(e.status, APRKIT_E_CANCELLED);
            assert_int_equal(count_entries(in_work("cancelled")), 0);
        }
    aprkit_model_close(m);
}

/* Finished work of a run that was cancelled is used by the next one. */
static void a_cancelled_run_can_be_resumed(void **state)
{
    watch w = {.cancel_at = 1 << 20};
    aprkit_convert_options o = {.size = sizeof o, .to = "q8_0", .resume = 1, .progress = on_progress, .user = &w};
    aprkit_error e;
    (void)state;

    aprkit_model *const m = open_model(checkpoint);
    assert_int_equal(aprkit_convert(m, in_work("resumed.gguf"), &o, &e), APRKIT_E_CANCELLED);
    assert_int_equal(access(in_work("resumed.gguf"), F_OK), -1);
    assert_int_equal(access(in_work("resumed.gguf.resume"), F_OK), 0);
    w = (watch){0};
    if (aprkit_convert(m, in_work("resumed.gguf"), &o, &e) != APRKIT_OK) fail_msg("%s", e.text);
    assert_int_equal(access(in_work("resumed.gguf.resume"), F_OK), -1);
    o = (aprkit_convert_options){.size = sizeof o, .to = "q8_0"};
    assert_int_equal(aprkit_convert(m, in_work("whole.gguf"), &o, &e), APRKIT_OK);
    assert_same_file(in_work("resumed.gguf"), in_work("whole.gguf"));
    for (o.n_parts = 2, o.part = 1; o.part <= 2; o.part++) assert_int_equal(aprkit_convert(m, in_work("parts.gguf"), &o, &e), APRKIT_OK);
    o = (aprkit_convert_options){.size = sizeof o, .to = "q8_0", .finish = 1};
    assert_int_equal(aprkit_convert(m, in_work("parts.gguf"), &o, &e), APRKIT_OK);
    assert_same_file(in_work("parts.gguf"), in_work("whole.gguf"));
    aprkit_model_close(m);
}

/* --- files that change --- */

enum { LARGE = 96 << 20 };

/* A .safetensors file of two tensors of zeros, of which the file system stores no block. */
static void make_large(const char *path)
{
    char header[256] = {0};
    const int n =
        snprintf(header + 8, sizeof header - 8,
                 "{\"a.weight\":{\"dtype\":\"BF16\",\"shape\":[%d],\"data_offsets\":[0,%d]},\"b.weight\":{\"dtype\":\"BF16\",\"shape\":"
                 "[%d],\"data_offsets\":[%d,%d]}}",
                 LARGE / 4, LARGE / 2, LARGE / 4, LARGE / 2, LARGE);
    header[0] = (char)n;
    write_file(path, header, 8 + (size_t)n);
    assert_int_equal(truncate(path, 8 + n + LARGE), 0);
}

static volatile sig_atomic_t n_signals;
static void on_signal(int number)
{
    (void)number;
    n_signals = 1;
    _exit(99);
}

/* Truncated to each of these sizes while it is open: the call returns an error, and writes nothing. */
static void a_truncated_input_is_an_error(void **state)
{
    static const long sizes[] = {0, 100, 4096, 9 << 20, LARGE / 2, LARGE};
    aprkit_error e;
    (void)state;

    signal(SIGBUS, on_signal);
    mkdir(in_work("outputs"), 0700);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const char *const path = in_work("large.safetensors");
        aprkit_tensor_facts t = {.size = sizeof t};
        char out[128];
        make_large(path);
        aprkit_model *const m = open_model(path);
        assert_int_equal(truncate(path, sizes[i]), 0);
        snprintf(out, sizeof out, "%s/x.apr", in_work("outputs"));
        assert_int_equal(aprkit_convert(m, out, NULL, &e), APRKIT_E_IO);
        if (strstr(e.text, "large.safetensors") == NULL) fail_msg("%s", e.text);
        assert_int_equal(count_entries(in_work("outputs")), 0);
        assert_int_equal(aprkit_model_tensor(m, 1, &t, &e), APRKIT_OK); /* names are in memory */
        assert_string_equal(t.name, "b.weight");
        aprkit_model_close(m);
    }
}

/* An APR file has a checksum at its end, which is read first. */
static void a_truncated_apr_file_is_an_error(void **state)
{
    char path[128], out[128];
    aprkit_error e;
    (void)state;

    snprintf(path, sizeof path, "%s", in_work("large.apr"));
    snprintf(out, sizeof out, "%s/x.apr", in_work("outputs"));
    make_large(in_work("whole.safetensors"));
    aprkit_model *m = open_model(in_work("whole.safetensors"));
    if (aprkit_convert(m, path, NULL, &e) != APRKIT_OK) fail_msg("%s", e.text);
    aprkit_model_close(m);
    m = open_model(path);
    assert_int_equal(truncate(path, LARGE / 2), 0);
    assert_int_equal(aprkit_convert(m, out, NULL, &e), APRKIT_E_IO);
    if (strstr(e.text, "large.apr") == NULL) fail_msg("%s", e.text);
    assert_int_equal(count_entries(in_work("outputs")), 0);
    aprkit_model_close(m);
}

static int truncate_input(void *user, const aprkit_progress *p)
{
    (void)p;
    assert_int_equal(truncate(user, 5000), 0);
    return 0;
}

static void an_input_truncated_during_a_conversion_is_an_error(void **state)
{
    char path[128], out[128];
    const aprkit_convert_options o = {.size = sizeof o, .progress = truncate_input, .user = path};
    aprkit_error e;
    (void)state;

    snprintf(path, sizeof path, "%s", in_work("during.safetensors"));
    snprintf(out, sizeof out, "%s/x.apr", in_work("outputs"));
    make_large(path);
    aprkit_model *const m = open_model(path);
    assert_int_equal(aprkit_convert(m, out, &o, &e), APRKIT_E_IO);
    assert_non_null(strstr(e.text, "cut short"));
    assert_int_equal(count_entries(in_work("outputs")), 0);
    aprkit_model_close(m);
}

/* A session has its weights in memory: it computes on. A session of a file that was cut before it was opened is refused. */
static void a_session_does_not_notice_that_its_file_is_cut(void **state)
{
    const char *const copy = in_work("cut.gguf");
    char command[256];
    aprkit_error e;
    (void)state;

    snprintf(command, sizeof command, "cp '%s' '%s' && chmod u+w '%s'", quantized, copy, copy);
    assert_int_equal(system(command), 0);
    aprkit_model *const m = open_model(copy), *const whole = open_model(quantized);
    aprkit_session *const s = open_session(m, 1), *const reference = open_session(whole, 1);
    const size_t n = (size_t)aprkit_session_n_vocabulary(s);
    float *const a = calloc(n, sizeof *a), *const b = calloc(n, sizeof *b);
    assert_int_equal(truncate(copy, 64), 0);
    const int32_t ids[] = {1, 2, 3};
    assert_int_equal(aprkit_eval(s, ids, 3, a, &e), APRKIT_OK);
    assert_int_equal(aprkit_eval(reference, ids, 3, b, &e), APRKIT_OK);
    assert_memory_equal(a, b, n * sizeof *a);
    free(a);
    free(b);
    aprkit_session_close(s);
    aprkit_session_close(reference);
    aprkit_model_close(m);
    aprkit_model_close(whole);
}

/* --- plans --- */

static void a_plan_is_its_lines(void **state)
{
    const aprkit_plan_options o = {.size = sizeof o, .gpu = "rtx4090", .n_context = 1024, .to = "q4_k_m"};
    aprkit_plan_part line = {.size = sizeof line};
    aprkit_plan *p;
    aprkit_error e;
    uint64_t sum = 0;
    (void)state;

    aprkit_model *const m = open_model("tests/data/shapes/qwen3-8b.json");
    if (aprkit_plan_make(&p, m, &o, &e) != APRKIT_OK) fail_msg("%s", e.text);
    for (size_t i = 0; i < aprkit_plan_n_lines(p); i++) {
        assert_int_equal(aprkit_plan_line(p, i, &line, &e), APRKIT_OK);
        assert_true(strlen(line.key) > 0 && strlen(line.label) > 0 && strlen(line.reason) > 0 && line.n_bytes > 0);
        if (line.on_device) sum += line.n_bytes;
    }
    assert_int_equal(aprkit_plan_line(p, aprkit_plan_n_lines(p), &line, &e), APRKIT_E_USAGE);
    assert_int_equal(aprkit_plan_total(p), sum);
    assert_true(aprkit_plan_fits(p) && sum <= aprkit_plan_budget(p));
    assert_true(aprkit_plan_max_ctx(p) >= 1024);
    aprkit_plan_close(p);

    aprkit_plan_options small = {.size = sizeof small, .vram = (uint64_t)4 << 30};
    assert_int_equal(aprkit_plan_make(&p, m, &small, &e), APRKIT_OK);
    assert_false(aprkit_plan_fits(p));
    aprkit_plan_close(p);
    small = (aprkit_plan_options){.size = sizeof small, .gpu = "nothing"};
    assert_int_equal(aprkit_plan_make(&p, m, &small, &e), APRKIT_E_USAGE);
    assert_null(p);
    small = (aprkit_plan_options){.size = sizeof small, .kv = "q1"};
    assert_int_equal(aprkit_plan_make(&p, m, &small, &e), APRKIT_E_USAGE);
    assert_int_equal(aprkit_plan_make(&p, m, NULL, &e), APRKIT_OK); /* on the host */
    aprkit_plan_close(p);
    aprkit_model_close(m);
    aprkit_plan_close(NULL);
    size_t n = 0;
    while (aprkit_gpu_name(n) != NULL) n++;
    assert_true(n > 10);
}

/* A download that has begun: the header is there, the weights are not. */
static void a_header_alone_can_be_planned(void **state)
{
    const aprkit_model_options head = {.size = sizeof head, .header_only = 1};
    aprkit_plan *a, *b;
    aprkit_session *s;
    aprkit_report *r;
    aprkit_model *m;
    char command[256];
    aprkit_error e;
    (void)state;

    snprintf(command, sizeof command, "head -c 200000 '%s' >'%s'", quantized, in_work("begun.gguf"));
    assert_int_equal(system(command), 0);
    assert_int_equal(aprkit_model_open(&m, in_work("begun.gguf"), NULL, &e), APRKIT_E_DAMAGED);
    if (aprkit_model_open(&m, in_work("begun.gguf"), &head, &e) != APRKIT_OK) fail_msg("%s", e.text);
    aprkit_model *const whole = open_model(quantized);
    assert_int_equal(aprkit_plan_make(&a, m, NULL, &e), APRKIT_OK);
    assert_int_equal(aprkit_plan_make(&b, whole, NULL, &e), APRKIT_OK);
    assert_int_equal(aprkit_plan_total(a), aprkit_plan_total(b));
    aprkit_plan_close(a);
    aprkit_plan_close(b);
    assert_int_equal(aprkit_session_open(&s, m, NULL, &e), APRKIT_E_USAGE);
    assert_int_equal(aprkit_verify(&r, m, whole, NULL, &e), APRKIT_E_USAGE);
    assert_int_equal(aprkit_convert(m, in_work("of-begun.apr"), NULL, &e), APRKIT_E_USAGE);
    assert_int_equal(access(in_work("of-begun.apr"), F_OK), -1);
    aprkit_model_close(m);
    aprkit_model_close(whole);
}

/* --- sessions --- */

/* A folder with nothing but a tokenizer. */
static void a_tokenizer_needs_no_weights(void **state)
{
    static const char text[] = "<|im_start|>user In the beginning";
    const aprkit_model_options only = {.size = sizeof only, .tokenizer_only = 1};
    int32_t *ids, *others;
    size_t n, n_others;
    aprkit_session *s;
    aprkit_report *r;
    aprkit_plan *p;
    aprkit_model *m;
    char command[512];
    float row[1];
    aprkit_error e;
    (void)state;

    snprintf(command, sizeof command, "mkdir '%s/words' && cp '%s'/tokenizer*.json '%s/words'", work, checkpoint, work);
    assert_int_equal(system(command), 0);
    if (aprkit_model_open(&m, in_work("words"), &only, &e) != APRKIT_OK) fail_msg("%s", e.text);
    if (aprkit_session_open(&s, m, NULL, &e) != APRKIT_OK) fail_msg("%s", e.text);
    aprkit_model *const whole = open_model(checkpoint);
    aprkit_session *const runs = open_session(whole, 1);
    for (int special = APRKIT_NO_SPECIAL; special <= APRKIT_PARSE_SPECIAL; special++) {
        assert_int_equal(aprkit_tokenize(s, text, SIZE_MAX, special, &ids, &n, &e), APRKIT_OK);
        assert_int_equal(aprkit_tokenize(runs, text, SIZE_MAX, special, &others, &n_others, &e), APRKIT_OK);
        assert_int_equal(n, n_others);
        assert_memory_equal(ids, others, n * sizeof *ids);
        aprkit_free(ids);
        aprkit_free(others);
    }
    assert_int_equal(aprkit_session_n_context(s), 0);
    assert_int_equal(aprkit_session_n_vocabulary(s), 0);
    aprkit_session_reset(s);
    assert_int_equal(aprkit_session_position(s), 0);
    const aprkit_generate_options o = {.size = sizeof o, .text = "x"};
    assert_int_equal(aprkit_eval(s, (const int32_t[]){1}, 1, row, &e), APRKIT_E_USAGE);
    assert_int_equal(aprkit_generate(s, &o, NULL, NULL, &e), APRKIT_E_USAGE);
    assert_int_equal(aprkit_plan_make(&p, m, NULL, &e), APRKIT_E_USAGE);
    assert_int_equal(aprkit_convert(m, in_work("of-words.apr"), NULL, &e), APRKIT_E_USAGE);
    assert_int_equal(aprkit_verify(&r, whole, m, NULL, &e), APRKIT_E_USAGE);
    assert_non_null(strstr(e.text, "tokenizer only"));
    aprkit_session_close(s);
    aprkit_session_close(runs);
    aprkit_model_close(whole);
    aprkit_model_close(m);
}

/* What is only recognized is not added. */
static void control_tokens_are_added_or_recognized(void **state)
{
    const aprkit_model_options only = {.size = sizeof only, .tokenizer_only = 1};
    size_t n[3];
    aprkit_session *s;
    aprkit_model *m;
    int32_t *ids;
    (void)state;

    assert_int_equal(aprkit_model_open(&m, "tests/data/sentencepiece/tokenizer.model", &only, NULL), APRKIT_OK);
    assert_int_equal(aprkit_session_open(&s, m, NULL, NULL), APRKIT_OK);
    for (int special = APRKIT_NO_SPECIAL; special <= APRKIT_PARSE_SPECIAL; special++) {
        assert_int_equal(aprkit_tokenize(s, "</s>a", SIZE_MAX, special, &ids, &n[special], NULL), APRKIT_OK);
        aprkit_free(ids);
    }
    assert_int_equal(n[APRKIT_ALL_SPECIAL], n[APRKIT_PARSE_SPECIAL] + 1);
    assert_true(n[APRKIT_NO_SPECIAL] > n[APRKIT_PARSE_SPECIAL]);
    aprkit_session_close(s);
    aprkit_model_close(m);
}

enum { HIDDEN = 256 }; /* of the checkpoint, and rows of its q_proj */

/* A rank-1 adapter of ones. */
static void make_adapter(const char *folder)
{
    static const char config[] = "{\"peft_type\":\"LORA\",\"r\":1,\"lora_alpha\":1,\"target_modules\":[\"q_proj\"]}";
    static unsigned char file[2048 + 2 * HIDDEN * 4];
    const float one = 1.0f;
    char path[160];

    mkdir(folder, 0700);
    snprintf(path, sizeof path, "%s/adapter_config.json", folder);
    write_file(path, config, sizeof config - 1);
    const int n =
        snprintf((char *)file + 8, 2000,
                 "{\"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight\":{\"dtype\":\"F32\",\"shape\":[1,%d],\"data_offsets\":"
                 "[0,%d]},\"base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight\":{\"dtype\":\"F32\",\"shape\":[%d,1],"
                 "\"data_offsets\":[%d,%d]}}",
                 HIDDEN, 4 * HIDDEN, HIDDEN, 4 * HIDDEN, 8 * HIDDEN);
    file[0] = (unsigned char)(n & 255);
    file[1] = (unsigned char)(n >> 8);
    for (int i = 0; i < 2 * HIDDEN; i++) memcpy(file + 8 + n + 4 * i, &one, sizeof one);
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", folder);
    write_file(path, file, 8 + (size_t)n + 8 * HIDDEN);
}

/* With an adapter the session computes other numbers; one that cannot be read is an error. */
static void a_session_runs_with_adapters(void **state)
{
    static const char *const nothing[] = {"tests/data/lora/nothing"};
    char path[128];
    const char *const adapter[] = {path};
    const int32_t ids[] = {1, 2, 3};
    aprkit_session_options o = {.size = sizeof o, .n_context = 64, .threads = 1, .adapters = adapter, .n_adapters = 1};
    aprkit_session *s;
    aprkit_error e;
    (void)state;

    snprintf(path, sizeof path, "%s", in_work("adapter"));
    make_adapter(path);
    aprkit_model *const m = open_model(checkpoint);
    if (aprkit_session_open(&s, m, &o, &e) != APRKIT_OK) fail_msg("%s", e.text);
    aprkit_session *const plain = open_session(m, 1);
    const size_t n = (size_t)aprkit_session_n_vocabulary(s);
    float *const a = calloc(n, sizeof *a), *const b = calloc(n, sizeof *b);
    assert_int_equal(aprkit_eval(s, ids, 3, a, &e), APRKIT_OK);
    assert_int_equal(aprkit_eval(plain, ids, 3, b, &e), APRKIT_OK);
    assert_memory_not_equal(a, b, n * sizeof *a);
    free(a);
    free(b);
    aprkit_session_close(s);
    aprkit_session_close(plain);
    o.adapters = nothing;
    assert_int_equal(aprkit_session_open(&s, m, &o, &e), APRKIT_E_IO);
    assert_null(s);
    aprkit_model_close(m);
}

static void texts_become_ids_and_come_back(void **state)
{
    static const char text[] = "In the beginning, \xc3\xa9t\xc3\xa9";
    int32_t *ids;
    size_t n_ids, n;
    char *back;
    aprkit_error e;
    (void)state;

    aprkit_model *const m = open_model(checkpoint);
    aprkit_session *const s = open_session(m, 2);
    assert_int_equal(aprkit_session_n_context(s), 128);
    assert_int_equal(aprkit_tokenize(s, text, SIZE_MAX, 1, &ids, &n_ids, &e), APRKIT_OK);
    assert_true(n_ids > 2);
    assert_int_equal(aprkit_detokenize(s, ids, n_ids, 0, &back, &n, &e), APRKIT_OK);
    assert_string_equal(back, text);
    assert_int_equal(n, strlen(text));
    aprkit_free(back);
    aprkit_free(ids);
    assert_int_equal(aprkit_tokenize(s, text, 2, 0, &ids, &n_ids, &e), APRKIT_OK);
    aprkit_free(ids);
    assert_int_equal(aprkit_tokenize(s, "\xff", 1, 0, &ids, &n_ids, &e), APRKIT_E_DAMAGED);
    assert_null(ids);
    aprkit_session_close(s);
    aprkit_model_close(m);
    aprkit_session_close(NULL);
}

static void evaluation_goes_on_where_it_was(void **state)
{
    const int32_t ids[] = {5, 6, 7, 8};
    aprkit_error e;
    (void)state;

    aprkit_model *const m = open_model(checkpoint);
    aprkit_session *const s = open_session(m, 1);
    const size_t n = (size_t)aprkit_session_n_vocabulary(s);
    float *const a = calloc(n, sizeof *a), *const b = calloc(n, sizeof *b);
    assert_int_equal(aprkit_eval(s, ids, 4, a, &e), APRKIT_OK);
    assert_int_equal(aprkit_session_position(s), 4);
    aprkit_session_reset(s);
    assert_int_equal(aprkit_session_position(s), 0);
    assert_int_equal(aprkit_eval(s, ids, 2, NULL, &e), APRKIT_OK);
    assert_int_equal(aprkit_eval(s, ids + 2, 2, b, &e), APRKIT_OK);
    double worst = 0;
    for (size_t i = 0; i < n; i++) worst = fmax(worst, fabs((double)a[i] - (double)b[i]));
    assert_true(worst < 1e-2);
    assert_int_equal(aprkit_eval(s, &(int32_t){(int32_t)n}, 1, NULL, &e), APRKIT_E_USAGE);
    assert_int_equal(aprkit_eval(s, ids, 0, NULL, &e), APRKIT_E_USAGE);
    int32_t many[129] = {0};
    aprkit_session_reset(s);
    assert_int_equal(aprkit_eval(s, many, 129, NULL, &e), APRKIT_E_NO);
    free(a);
    free(b);
    aprkit_session_close(s);
    aprkit_model_close(m);
}

typedef struct collected {
    char text[4096];
    size_t n;
    int n_calls, stop_after;
} collected;

static int on_text(void *user, const char *text, size_t n)
{
    collected *const c = user;
    assert_true(c->n + n < sizeof c->text);
    memcpy(c->text + c->n, text, n);
    c->n += n;
    c->text[c->n] = '\0';
    return ++c->n_calls == c->stop_after;
}

static void an_answer_comes_in_parts(void **state)
{
    static const aprkit_message messages[] = {{"system", "Be brief."}, {"user", "Hello"}};
    aprkit_generate_options o = {.size = sizeof o, .text = "In the beginning", .max_tokens = 24};
    collected all = {0}, chat = {0}, part = {.stop_after = 1}, stopped = {0};
    aprkit_error e;
    (void)state;

    aprkit_model *const m = open_model(checkpoint);
    aprkit_session *const s = open_session(m, 1);
    if (aprkit_generate(s, &o, on_text, &all, &e) != APRKIT_OK) fail_msg("%s", e.text);
    assert_true(all.n > 8 && all.n_calls > 1);
    assert_int_equal(aprkit_generate(s, &o, on_text, &part, &e), APRKIT_E_CANCELLED);
    assert_true(part.n > 0 && part.n < all.n && memcmp(part.text, all.text, part.n) == 0);
    char stop[8];
    snprintf(stop, sizeof stop, "%.3s", all.text + 5);
    o.stops = (const char *const[]){stop};
    o.n_stops = 1;
    assert_int_equal(aprkit_generate(s, &o, on_text, &stopped, &e), APRKIT_OK);
    assert_true(stopped.n < all.n && strstr(stopped.text, stop) == NULL && memcmp(stopped.text, all.text, stopped.n) == 0);

    o = (aprkit_generate_options){.size = sizeof o, .messages = messages, .n_messages = 2, .max_tokens = 8};
    assert_int_equal(aprkit_generate(s, &o, on_text, &chat, &e), APRKIT_OK);
    o.text = "both";
    assert_int_equal(aprkit_generate(s, &o, on_text, &chat, &e), APRKIT_E_USAGE);
    o = (aprkit_generate_options){.size = sizeof o, .text = "x", .temperature = -1};
    assert_int_equal(aprkit_generate(s, &o, NULL, NULL, &e), APRKIT_E_USAGE);
    aprkit_session_close(s);
    aprkit_model_close(m);
}

static void sessions_refuse_what_they_cannot_do(void **state)
{
    aprkit_session_options o = {.size = sizeof o, .device = "tpu"};
    aprkit_session *s;
    aprkit_error e;
    (void)state;

    aprkit_model *const m = open_model(checkpoint), *const config = open_model("tests/data/shapes/qwen3-8b.json");
    assert_int_equal(aprkit_session_open(&s, m, &o, &e), APRKIT_E_USAGE);
    assert_null(s);
    o = (aprkit_session_options){.size = sizeof o, .memory = 1000};
    assert_int_equal(aprkit_session_open(&s, m, &o, &e), APRKIT_E_MEMORY);
    assert_int_equal(aprkit_session_open(&s, config, NULL, &e), APRKIT_E_USAGE);
    assert_null(s);
    aprkit_model_close(m);
    aprkit_model_close(config);
}

/* --- verification --- */

enum { SHORT = 128 }; /* context of verifications here: enough for the shorter checks */

static const aprkit_session_options short_run = {.size = sizeof short_run, .n_context = SHORT, .threads = 1};

static aprkit_report *verify_or_fail(aprkit_model *m, aprkit_model *reference)
{
    const aprkit_verify_options o = {.size = sizeof o, .window = 64, .max_tokens = 4, .run = &short_run};
    aprkit_report *r;
    aprkit_error e;
    if (aprkit_verify(&r, m, reference, &o, &e) != APRKIT_OK) fail_msg("%s", e.text);
    return r;
}

static void a_report_says_whether_models_are_the_same(void **state)
{
    aprkit_report_facts f = {.size = sizeof f};
    aprkit_check c = {.size = sizeof c};
    int n_passed = 0;
    aprkit_error e;
    (void)state;

    aprkit_model *const m = open_model(quantized), *const reference = open_model(checkpoint);
    aprkit_report *const r = verify_or_fail(m, reference);
    assert_int_equal(aprkit_report_info(r, &f, &e), APRKIT_OK);
    assert_int_equal(f.is_same, 1);
    assert_null(f.failure);
    assert_string_equal(f.grade, "as_good_as_types_allow");
    assert_non_null(strstr(f.types, "q4_k"));
    assert_string_equal(f.reference_types, "bf16 100 %");
    assert_true(strlen(f.sentence) > 20 && strlen(f.backend) > 0);
    for (size_t i = 0; i < f.n_checks; i++) {
        assert_int_equal(aprkit_report_check(r, i, &c, &e), APRKIT_OK);
        assert_true(strlen(c.id) > 0 && strlen(c.title) > 0 && strlen(c.found) > 0 && c.limit != NULL && c.where != NULL);
        assert_int_not_equal(c.verdict, APRKIT_FAIL);
        n_passed += c.verdict == APRKIT_PASS;
    }
    assert_true(n_passed > 5);
    assert_int_equal(aprkit_report_check(r, f.n_checks, &c, &e), APRKIT_E_USAGE);
    aprkit_report_close(r);
    aprkit_report_close(NULL);

    aprkit_report *const same = verify_or_fail(reference, reference);
    assert_int_equal(aprkit_report_info(same, &f, &e), APRKIT_OK);
    assert_string_equal(f.grade, "identical");
    aprkit_report_close(same);
    aprkit_model_close(m);
    aprkit_model_close(reference);
}

/* Another base of the rotary angles: no number of a tensor tells. */
static void another_model_is_a_report_too(void **state)
{
    aprkit_report_facts f = {.size = sizeof f};
    char command[512];
    char *json;
    size_t n;
    aprkit_error e;
    (void)state;

    snprintf(command, sizeof command,
             "mkdir '%s/other' && cp '%s'/*.j* '%s'/model.safetensors '%s/other/' && chmod u+w '%s'/other/* && sed -i "
             "'s/\"rope_theta\": *[0-9.]*/\"rope_theta\": 77.0/' '%s/other/config.json'",
             work, checkpoint, checkpoint, work, work, work);
    assert_int_equal(system(command), 0);
    aprkit_model *const m = open_model(in_work("other")), *const reference = open_model(checkpoint);
    aprkit_report *const r = verify_or_fail(m, reference);
    assert_int_equal(aprkit_report_info(r, &f, &e), APRKIT_OK);
    assert_int_equal(f.is_same, 0);
    assert_string_equal(f.grade, "not_the_same_model");
    if (strstr(f.failure, "the same computation") == NULL) fail_msg("%s", f.failure);
    assert_int_equal(aprkit_report_json(r, &json, &n, &e), APRKIT_OK);
    assert_non_null(strstr(json, "\"ok\":false,\"status\":\"the answer is no\",\"exit\":1"));
    aprkit_free(json);
    aprkit_report_close(r);
    aprkit_model_close(m);
    aprkit_model_close(reference);
}

static void a_report_is_json_and_a_page(void **state)
{
    const aprkit_page_options plain = {.size = sizeof plain, .no_stamp = 1}, named = {.size = sizeof named, .command = "check <it>"};
    char *json, *page, *again;
    size_t n_json, n_page, n_again;
    aprkit_error e;
    (void)state;

    aprkit_model *const m = open_model(checkpoint);
    aprkit_report *const r = verify_or_fail(m, m);
    assert_int_equal(aprkit_report_json(r, &json, &n_json, &e), APRKIT_OK);
    assert_int_equal(n_json, strlen(json));
    assert_non_null(strstr(json, "\"grade\":\"identical\""));
    assert_int_equal(aprkit_report_html(r, &plain, &page, &n_page, &e), APRKIT_OK);
    assert_int_equal(n_page, strlen(page));
    assert_true(strncmp(page, "<!doctype html>", 15) == 0 && strstr(page, "</html>") != NULL);
    assert_null(strstr(page, "made by"));
    assert_non_null(strstr(page, "\"grade\":\"identical\""));
    assert_int_equal(aprkit_report_html(r, &plain, &again, &n_again, &e), APRKIT_OK);
    assert_string_equal(page, again);
    aprkit_free(again);
    assert_int_equal(aprkit_report_html(r, &named, &again, &n_again, &e), APRKIT_OK);
    assert_non_null(strstr(again, "check &lt;it&gt;"));
    aprkit_free(json);
    aprkit_free(page);
    aprkit_free(again);
    aprkit_report_close(r);
    aprkit_model_close(m);
}

static void verifications_refuse_what_they_cannot_do(void **state)
{
    static const aprkit_session_options nowhere = {.size = sizeof nowhere, .device = "tpu"}, small = {.size = sizeof small, .memory = 1000},
                                        unset = {0};
    const struct {
        aprkit_verify_options o;
        int status;
    } cases[] = {{{.window = 1}, APRKIT_E_USAGE},
                 {{.max_tokens = -1}, APRKIT_E_USAGE},
                 {{.run = &nowhere}, APRKIT_E_USAGE},
                 {{.run = &small}, APRKIT_E_MEMORY},
                 {{.run = &unset}, APRKIT_E_USAGE},
                 {{.text = "", .n_text = 0, .window = 64, .run = &short_run, .max_tokens = 1, .no_parity = 1}, APRKIT_E_USAGE}};
    aprkit_report *r;
    aprkit_error e;
    (void)state;

    aprkit_model *const m = open_model(checkpoint), *const config = open_model("tests/data/shapes/qwen3-8b.json");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        aprkit_verify_options o = cases[i].o;
        o.size = sizeof o;
        r = (aprkit_report *)state;
        assert_int_equal(aprkit_verify(&r, m, m, &o, &e), cases[i].status);
        assert_null(r);
        assert_true(strlen(e.text) > 10);
    }
    assert_int_equal(aprkit_verify(&r, m, config, NULL, &e), APRKIT_E_USAGE);
    assert_null(r);
    aprkit_model_close(m);
    aprkit_model_close(config);
}

typedef struct stops {
    int n_calls, stop_at; /* the call that cancels; 0: none */
    char what[64];        /* of the last call */
} stops;

static int on_step(void *user, const aprkit_progress *p)
{
    stops *const s = user;
    assert_string_equal(p->unit, "steps");
    assert_true(p->done <= p->total);
    snprintf(s->what, sizeof s->what, "%s", p->what);
    return ++s->n_calls == s->stop_at;
}

/* Cancelled at the first report, and at several later ones up to the last: no report, no file, and both models can be used on. */
static void a_cancelled_verification_leaves_nothing(void **state)
{
    stops s = {0};
    aprkit_verify_options o = {.size = sizeof o, .window = 64, .max_tokens = 2, .run = &short_run, .progress = on_step, .user = &s};
    aprkit_report *r;
    aprkit_error e;
    (void)state;

    aprkit_model *const m = open_model(quantized), *const reference = open_model(checkpoint);
    const int n_entries = count_entries(work);
    assert_int_equal(aprkit_verify(&r, m, reference, &o, &e), APRKIT_OK);
    aprkit_report_close(r);
    const int n_calls = s.n_calls;
    assert_true(n_calls > 8);
    for (int quarter = 0; quarter < 4; quarter++) {
        s = (stops){.stop_at = 1 + quarter * n_calls / 4};
        assert_int_equal(aprkit_verify(&r, m, reference, &o, &e), APRKIT_E_CANCELLED);
        assert_null(r);
        assert_int_equal(e.status, APRKIT_E_CANCELLED);
        if (s.n_calls > s.stop_at + 1) fail_msg("%d reports after the one that cancelled, at '%s'", s.n_calls - s.stop_at, s.what);
    }
    assert_int_equal(count_entries(work), n_entries);
    r = verify_or_fail(m, reference);
    aprkit_report_close(r);
    aprkit_model_close(m);
    aprkit_model_close(reference);
}

/* --- threads --- */

typedef struct worker {
    int number;
    const char *path;
    aprkit_model *shared; /* NULL: its own model */
    int status;
    collected answer;
} worker;

static void *work_alone(void *user)
{
    worker *const w = user;
    const aprkit_generate_options o = {.size = sizeof o, .text = "In the", .max_tokens = 12};
    const aprkit_session_options so = {.size = sizeof so, .n_context = 64, .threads = 1};
    const aprkit_convert_options co = {.size = sizeof co, .to = "q8_0", .threads = 1, .overwrite = 1, .allow_requantize = 1};
    aprkit_model *m = w->shared;
    aprkit_session *s = NULL;
    char out[128];

    snprintf(out, sizeof out, "%s/thread%d.gguf", work, w->number);
    for (int i = 0; i < 3; i++) {
        w->answer = (collected){0};
        w->status = w->shared != NULL ? APRKIT_OK : aprkit_model_open(&m, w->path, NULL, NULL);
        if (w->status == APRKIT_OK && w->shared == NULL) w->status = aprkit_convert(m, out, &co, NULL);
        if (w->status == APRKIT_OK) w->status = aprkit_session_open(&s, m, &so, NULL);
        if (w->status == APRKIT_OK) w->status = aprkit_generate(s, &o, on_text, &w->answer, NULL);
        aprkit_session_close(s);
        s = NULL;
        if (w->shared == NULL) aprkit_model_close(m);
    }
    return NULL;
}

static void run_two(worker workers[2])
{
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&threads[i], NULL, work_alone, &workers[i]), 0);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++) assert_int_equal(workers[i].status, APRKIT_OK);
}

/* Each opens, converts, runs and closes, three times, while the other does. */
static void two_contexts_work_in_two_threads(void **state)
{
    worker together[2] = {{.number = 0, .path = checkpoint}, {.number = 1, .path = quantized}}, alone[2] = {together[0], together[1]};
    (void)state;

    run_two(together);
    for (int i = 0; i < 2; i++) {
        char name[32], kept[128];
        snprintf(name, sizeof name, "thread%d.gguf", i);
        snprintf(kept, sizeof kept, "%s.together", in_work(name));
        assert_int_equal(rename(in_work(name), kept), 0);
        work_alone(&alone[i]);
        assert_int_equal(alone[i].status, APRKIT_OK);
        assert_string_equal(together[i].answer.text, alone[i].answer.text);
        assert_same_file(in_work(name), kept);
    }
}

static void two_sessions_share_a_model(void **state)
{
    aprkit_model *const m = open_model(checkpoint);
    worker workers[2] = {{.number = 0, .shared = m}, {.number = 1, .shared = m}};
    (void)state;

    run_two(workers);
    assert_string_equal(workers[0].answer.text, workers[1].answer.text);
    aprkit_model_close(m);
}

typedef struct verifier {
    aprkit_model *model, *reference;
    aprkit_report *report;
} verifier;

static void *verify_alone(void *user)
{
    const aprkit_verify_options o = {.size = sizeof o, .window = 64, .max_tokens = 4, .run = &short_run};
    verifier *const v = user;

    if (aprkit_model_open(&v->model, quantized, NULL, NULL) == APRKIT_OK &&
        aprkit_model_open(&v->reference, checkpoint, NULL, NULL) == APRKIT_OK)
        aprkit_verify(&v->report, v->model, v->reference, &o, NULL);
    return NULL;
}

/* Both find the same, and neither counts the other's memory as its own. */
static void two_verifications_work_in_two_threads(void **state)
{
    aprkit_report_facts f[2] = {{.size = sizeof *f}, {.size = sizeof *f}};
    verifier both[2] = {{0}, {0}};
    pthread_t threads[2];
    (void)state;

    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&threads[i], NULL, verify_alone, &both[i]), 0);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++) {
        assert_non_null(both[i].report);
        aprkit_report_info(both[i].report, &f[i], NULL);
        if (!f[i].is_same) fail_msg("%s", f[i].failure);
    }
    assert_string_equal(f[0].sentence, f[1].sentence);
    assert_int_equal(f[0].n_checks, f[1].n_checks);
    for (size_t i = 0; i < f[0].n_checks; i++) {
        aprkit_check c[2] = {{.size = sizeof *c}, {.size = sizeof *c}};
        for (int k = 0; k < 2; k++) aprkit_report_check(both[k].report, i, &c[k], NULL);
        assert_int_equal(c[0].verdict, c[1].verdict);
        assert_string_equal(c[0].found, c[1].found);
    }
    for (int i = 0; i < 2; i++) {
        aprkit_report_close(both[i].report);
        aprkit_model_close(both[i].reference);
        aprkit_model_close(both[i].model);
    }
}

/* Another context's file that changes is not an error of this one. */
static void contexts_have_inputs_of_their_own(void **state)
{
    char command[256];
    aprkit_error e;
    (void)state;

    snprintf(command, sizeof command, "cp '%s' '%s'", quantized, in_work("other.gguf"));
    assert_int_equal(system(command), 0);
    aprkit_model *const other = open_model(in_work("other.gguf")), *const m = open_model(checkpoint);
    assert_int_equal(truncate(in_work("other.gguf"), 1000), 0);
    if (aprkit_convert(m, in_work("own.apr"), NULL, &e) != APRKIT_OK) fail_msg("%s", e.text);
    assert_int_equal(aprkit_convert(other, in_work("others.apr"), NULL, &e), APRKIT_E_IO);
    aprkit_model_close(other);
    aprkit_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_says_what_is_in_it),
        cmocka_unit_test(what_cannot_be_opened_is_an_error),
        cmocka_unit_test(structs_of_other_versions_are_understood),
        cmocka_unit_test(a_conversion_reports_and_writes_the_same_bytes_with_any_threads),
        cmocka_unit_test(wrong_options_are_named),
        cmocka_unit_test(a_cancelled_conversion_leaves_nothing),
        cmocka_unit_test(a_cancelled_run_can_be_resumed),
        cmocka_unit_test(a_truncated_input_is_an_error),
        cmocka_unit_test(a_truncated_apr_file_is_an_error),
        cmocka_unit_test(an_input_truncated_during_a_conversion_is_an_error),
        cmocka_unit_test(a_session_does_not_notice_that_its_file_is_cut),
        cmocka_unit_test(a_plan_is_its_lines),
        cmocka_unit_test(a_header_alone_can_be_planned),
        cmocka_unit_test(a_tokenizer_needs_no_weights),
        cmocka_unit_test(control_tokens_are_added_or_recognized),
        cmocka_unit_test(a_session_runs_with_adapters),
        cmocka_unit_test(texts_become_ids_and_come_back),
        cmocka_unit_test(evaluation_goes_on_where_it_was),
        cmocka_unit_test(an_answer_comes_in_parts),
        cmocka_unit_test(sessions_refuse_what_they_cannot_do),
        cmocka_unit_test(a_report_says_whether_models_are_the_same),
        cmocka_unit_test(another_model_is_a_report_too),
        cmocka_unit_test(a_report_is_json_and_a_page),
        cmocka_unit_test(verifications_refuse_what_they_cannot_do),
        cmocka_unit_test(a_cancelled_verification_leaves_nothing),
        cmocka_unit_test(two_contexts_work_in_two_threads),
        cmocka_unit_test(two_sessions_share_a_model),
        cmocka_unit_test(two_verifications_work_in_two_threads),
        cmocka_unit_test(contexts_have_inputs_of_their_own),
    };
    return cmocka_run_group_tests_name("aprkit", tests, make_work, remove_work);
}
