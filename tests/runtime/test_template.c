/* runtime/template/template.h: templates render as Jinja2 renders them, and hostile ones end in a sentence. */
#include "runtime/template/template.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

static char *read_text(const char *path)
{
    FILE *const f = fopen(path, "rb");
    if (f == NULL) return NULL;
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    const size_t n = (size_t)ftell(f);
    rewind(f);
    char *const text = malloc(n + 1);
    assert_int_equal(fread(text, 1, n, f), n);
    text[n] = '\0';
    fclose(f);
    return text;
}

static cJSON *parse(const char *text)
{
    cJSON *const json = cJSON_Parse(text);
    assert_non_null(json);
    return json;
}

static const char *string_of(const cJSON *object, const char *key)
{
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));
}

/* The source in memory of exactly its size: a read past its end is seen. */
static apr_status render(const char *source, const char *variables, char **text, apr_error *err)
{
    cJSON *const json = parse(variables);
    char *const copy = malloc(strlen(source) + 1);
    size_t n_bytes;
    memcpy(copy, source, strlen(source) + 1);
    *err = (apr_error){0};
    const apr_status status = apr_template_render(copy, json, text, &n_bytes, err);
    free(copy);
    cJSON_Delete(json);
    assert_true(status == APR_OK ? *text != NULL && (*text)[n_bytes] == '\0' : *text == NULL);
    assert_true((status == APR_OK) == (err->text[0] == '\0'));
    return status;
}

/* tests/data/template/jinja2.json: written by Jinja2 3.1.6 in an ImmutableSandboxedEnvironment set up as transformers does. */
static void templates_render_as_jinja2_renders_them(void **state)
{
    (void)state;
    char *const text = read_text("tests/data/template/jinja2.json");
    assert_non_null(text);
    cJSON *const cases = parse(text);
    const cJSON *item;
    int n = 0;
    cJSON_ArrayForEach(item, cases)
    {
        char *got;
        size_t n_bytes;
        apr_error err = {0};
        const apr_status status =
            apr_template_render(string_of(item, "template"), cJSON_GetObjectItemCaseSensitive(item, "variables"), &got, &n_bytes, &err);
        if (status != APR_OK) fail_msg("%s: %s", string_of(item, "name"), err.text);
        if (strcmp(got, string_of(item, "expected")) != 0)
            fail_msg("%s:\nexpected: %s\ngot:      %s", string_of(item, "name"), string_of(item, "expected"), got);
        free(got);
        n++;
    }
    assert_in_range(n, 40, 1000);
    cJSON_Delete(cases);
    free(text);
}

/* tests/data/template/snippets.json: every filter, test, method and operator on values of every kind, as Jinja2 writes them. */
static void snippets_render_as_jinja2_renders_them(void **state)
{
    (void)state;
    char *const text = read_text("tests/data/template/snippets.json");
    assert_non_null(text);
    cJSON *const golden = parse(text);
    const cJSON *item;
    int n = 0;
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(golden, "cases"))
    {
        const char *const source = cJSON_GetArrayItem(item, 0)->valuestring, *const expected = cJSON_GetArrayItem(item, 1)->valuestring;
        char *got;
        size_t n_bytes;
        apr_error err = {0};
        if (apr_template_render(source, cJSON_GetObjectItemCaseSensitive(golden, "variables"), &got, &n_bytes, &err) != APR_OK)
            fail_msg("%s: %s", source, err.text);
        if (strcmp(got, expected) != 0) fail_msg("%s:\nexpected: %s\ngot:      %s", source, expected, got);
        free(got);
        n++;
    }
    assert_in_range(n, 300, 1000);
    cJSON_Delete(golden);
    free(text);
}

/* golden.json: prompts rendered by transformers with the model's own template. */
static void a_models_template_renders_its_golden_prompts(void **state)
{
    static const char *const folders[] = {"tests/data/tiny-qwen2", "tests/data/template/gpt_oss"};
    int n = 0;
    (void)state;
    for (size_t i = 0; i < COUNT(folders); i++) {
        char path[256];
        snprintf(path, sizeof path, "%s/chat_template.jinja", folders[i]);
        char *const source = read_text(path);
        snprintf(path, sizeof path, "%s/golden.json", folders[i]);
        char *const golden_text = read_text(path);
        assert_true(source != NULL && golden_text != NULL);
        cJSON *const golden = parse(golden_text);
        const cJSON *prompt;
        cJSON_ArrayForEach(prompt, cJSON_GetObjectItemCaseSensitive(golden, "prompts"))
        {
            char *got;
            size_t n_bytes;
            if (strcmp(string_of(prompt, "kind"), "chat") != 0) continue;
            cJSON *const variables = parse("{\"messages\": [{\"role\": \"user\"}], \"add_generation_prompt\": true}");
            cJSON *const message = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(variables, "messages"), 0);
            cJSON_AddStringToObject(message, "content", string_of(prompt, "text"));
            assert_int_equal(apr_template_render(source, variables, &got, &n_bytes, NULL), APR_OK);
            assert_string_equal(got, string_of(prompt, "rendered"));
            free(got);
            cJSON_Delete(variables);
            n++;
        }
        cJSON_Delete(golden);
        free(source);
        free(golden_text);
    }
    assert_true(n > (int)COUNT(folders));
}

/* What ends in a failure, with which status and words. */
static const struct {
    const char *source;
    apr_status status;
    const char *sentence; /* part of it */
} failures[] = {
    {"{{ raise_exception('no system role') }}", APR_E_NO, "line 1: no system role"},
    {"a\n{% for x in [1] %}\n{{ raise_exception('third: ' ~ x) }}{% endfor %}", APR_E_NO, "line 3: third: 1"},
    /* syntax */
    {"a\n\n{{ x", APR_E_DAMAGED, "line 3: the template ends inside a tag"},
    {"{% if x %}\nyes", APR_E_DAMAGED, "endif"},
    {"{% for x in y %}{% endif %}", APR_E_DAMAGED, "unexpected 'endif'"},
    {"{% endfor %}", APR_E_DAMAGED, "unexpected 'endfor'"},
    {"\n{{ 'abc }}", APR_E_DAMAGED, "line 2: a string that starts with ' is never closed"},
    {"{# never", APR_E_DAMAGED, "comment"},
    {"{% raw %} never", APR_E_DAMAGED, "endraw"},
    {"{{ 1 + }}", APR_E_DAMAGED, "an expression is expected"},
    {"{{ a b }}", APR_E_DAMAGED, "unexpected 'b'"},
    {"{{ (1 }}", APR_E_DAMAGED, "unexpected"},
    {"{{ 1) }}", APR_E_DAMAGED, "unexpected ')'"},
    {"{{ [1, 2 }}", APR_E_DAMAGED, "unexpected"},
    {"{{ {1 2} }}", APR_E_DAMAGED, "':'"},
    {"{{ x[ }}", APR_E_DAMAGED, ""},
    {"{{ x[] }}", APR_E_DAMAGED, "an index"},
    {"{{ x[1:2:3:4] }}", APR_E_DAMAGED, "']'"},
    {"{{ x. }}", APR_E_DAMAGED, "a name is expected"},
    {"{{ x | }}", APR_E_DAMAGED, "a name is expected"},
    {"{{ x is }}", APR_E_DAMAGED, "a name is expected"},
    {"{{ }}", APR_E_DAMAGED, "an expression is expected"},
    {"{% %}", APR_E_DAMAGED, "a name is expected"},
    {"{{ $ }}", APR_E_DAMAGED, "0x24"},
    {"{% for %}", APR_E_DAMAGED, "a name is expected"},
    {"{% for 1 in x %}{% endfor %}", APR_E_DAMAGED, "a name is expected"},
    {"{% set 1 = 2 %}", APR_E_DAMAGED, "a name is expected"},
    {"{% set x is defined %}{% endset %}", APR_E_DAMAGED, "expected"},
    {"{% break %}", APR_E_DAMAGED, "outside of a loop"},
    {"{% for x in [1] %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}", APR_E_DAMAGED, "outside of a loop"},
    {"{% macro m(a=1, b) %}{% endmacro %}", APR_E_DAMAGED, "default"},
    {"{{ '\\ud800' }}", APR_E_DAMAGED, "not a character"},
    {"{{ '\\x4' }}", APR_E_DAMAGED, "not a character"},
    {"\xff", APR_E_DAMAGED, "UTF-8"},
    /* what Python refuses */
    {"\n{{ 'a' + 1 }}", APR_E_DAMAGED, "line 2: + does not work on 'str' and 'int'"},
    {"{{ x.y.z }}", APR_E_DAMAGED, "'x' is undefined"},
    {"{{ nothing + 'a' }}", APR_E_DAMAGED, "'nothing' is undefined"},
    {"{{ 1 // 0 }}", APR_E_DAMAGED, "division by zero"},
    {"{{ 1.0 % 0 }}", APR_E_DAMAGED, "division by zero"},
    {"{{ 1 < 'a' }}", APR_E_DAMAGED, "cannot be ordered"},
    {"{{ 1 in 'a' }}", APR_E_DAMAGED, "'in' cannot look for a 'int'"},
    {"{{ 'a' in none }}", APR_E_DAMAGED, "not iterable"},
    {"{{ none | length }}", APR_E_DAMAGED, "no length"},
    {"{% for x in 5 %}{% endfor %}", APR_E_DAMAGED, "not iterable"},
    {"{% for a, b in [1] %}{% endfor %}", APR_E_DAMAGED, "not iterable"},
    {"{% for a, b in [[1]] %}{% endfor %}", APR_E_DAMAGED, "2 names"},
    {"{% set x = {} %}{% set x.y = 1 %}", APR_E_DAMAGED, "namespace"},
    {"{{ {[]: 1} }}", APR_E_DAMAGED, "key"},
    {"{{ 'abc'.split('') }}", APR_E_DAMAGED, "empty"},
    {"{{ nothing | tojson }}", APR_E_DAMAGED, "JSON"},
    {"{{ [1][::0] }}", APR_E_DAMAGED, "step"},
    {"{{ range(1, 2, 0) }}", APR_E_DAMAGED, "step"},
    {"{{ 'a'.strip(1) }}", APR_E_DAMAGED, "not a string"},
    {"{{ 'a'.replace('b') }}", APR_E_DAMAGED, "needs the argument 'new'"},
    {"{{ 'a' | replace('b', 'c', 1, 2) }}", APR_E_DAMAGED, "does not take"},
    {"{{ 'a' | trim(nope=1) }}", APR_E_DAMAGED, "does not take"},
    {"{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", APR_E_DAMAGED, "'m' takes at most 1"},
    {"{% macro m(a) %}{% endmacro %}{{ m(b=2) }}", APR_E_DAMAGED, "'b'"},
    {"{% macro m(a) %}{% endmacro %}{{ m(1, a=2) }}", APR_E_DAMAGED, "twice"},
    {"{{ none.strip() }}", APR_E_DAMAGED, "a 'NoneType' has no method 'strip'"},
    {"{{ 5() }}", APR_E_DAMAGED, "'int' cannot be called"},
    /* what is not known here */
    {"{% include 'x' %}", APR_E_UNSUPPORTED, "the tag 'include'"},
    {"{% extends 'x' %}", APR_E_UNSUPPORTED, "the tag 'extends'"},
    {"\n{{ 1 | nofilter }}", APR_E_UNSUPPORTED, "line 2: the filter 'nofilter'"},
    {"{{ 1 is notest }}", APR_E_UNSUPPORTED, "the test 'notest'"},
    {"{{ [1] | map('nofilter') }}", APR_E_UNSUPPORTED, "the filter 'nofilter'"},
    {"{{ [1] | select('notest') }}", APR_E_UNSUPPORTED, "the test 'notest'"},
    {"{{ nofunction() }}", APR_E_UNSUPPORTED, "'nofunction'"},
    {"{{ 'a'.encode() }}", APR_E_UNSUPPORTED, "'encode'"},
    {"{{ '%c' % 65 }}", APR_E_UNSUPPORTED, "this kind of % field"},
    {"{{ '%s %s' % 'a' }}", APR_E_DAMAGED, "not enough values"},
    {"{{ '%s' % ('a', 'b') }}", APR_E_DAMAGED, "more values than fields"},
    {"{{ '%d' % 'a' }}", APR_E_DAMAGED, "%d needs a number, not a 'str'"},
    {"{{ '%(x)s' % {} }}", APR_E_DAMAGED, "the dict of % has no key 'x'"},
    {"{{ '%(x' % {} }}", APR_E_DAMAGED, "is not closed"},
    {"{{ '%9999999999d' % 1 }}", APR_E_UNSUPPORTED, "this large"},
    {"{{ '%' % 1 }}", APR_E_UNSUPPORTED, "this kind of % field"},
    {"{{ '{}'.format() }}", APR_E_DAMAGED, "not enough values"},
    {"{{ '{'.format(1) }}", APR_E_DAMAGED, "is not closed"},
    {"{{ '}'.format(1) }}", APR_E_DAMAGED, "single '}'"},
    {"{{ '{0}{}'.format(1, 2) }}", APR_E_DAMAGED, "mixed"},
    {"{{ '{x}'.format(1) }}", APR_E_DAMAGED, "format() has no argument 'x'"},
    {"{{ '{:{}}'.format(1, 2) }}", APR_E_UNSUPPORTED, "a nested field"},
    {"{{ '{:d}'.format('a') }}", APR_E_DAMAGED, "cannot be formatted"},
    {"{{ '{!a}'.format('a') }}", APR_E_UNSUPPORTED, "a conversion"},
    {"{{ 5 | indent }}", APR_E_DAMAGED, "the input of indent is a 'int'"},
    {"{{ nothing | int }}", APR_E_DAMAGED, "'nothing' is undefined"},
    {"{{ 5[1:] }}", APR_E_DAMAGED, "a 'int' cannot be sliced"},
    {"{{ (-8) ** 0.5 }}", APR_E_UNSUPPORTED, "not a real number"},
    {"{{ 'a&b' | striptags }}", APR_E_UNSUPPORTED, "striptags"},
    {"{{ 'a'.ljust(9, 'xy') }}", APR_E_DAMAGED, "not exactly one"},
    {"{{ strftime_now('%Y') }}", APR_E_UNSUPPORTED, "strftime_now_unix"},
    {"{{ 9223372036854775807 + 1 }}", APR_E_UNSUPPORTED, "64 bits"},
    {"{{ 99999999999999999999 }}", APR_E_UNSUPPORTED, "64 bits"},
    {"{{ 3 ** 100 }}", APR_E_UNSUPPORTED, "64 bits"},
    {"{% for x in y recursive %}{% endfor %}", APR_E_UNSUPPORTED, "recursive"},
};

static void a_failure_names_its_line_and_its_reason(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(failures); i++) {
        char *text;
        apr_error err;
        const apr_status status = render(failures[i].source, "{}", &text, &err);
        if (status != failures[i].status || strstr(err.text, failures[i].sentence) == NULL)
            fail_msg("%s\nexpected %d \"%s\"\ngot      %d \"%s\"", failures[i].source, failures[i].status, failures[i].sentence, status,
                     err.text);
        assert_non_null(strstr(err.text, "chat template, line "));
        free(text);
    }
}

/* Templates that would run away: each ends in a sentence, in bounded time and memory. */
static void a_template_without_end_is_stopped(void **state)
{
    static const struct {
        const char *source;
        apr_status status;
        const char *sentence;
    } cases[] = {
        {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", APR_E_UNSUPPORTED, "deep"},
        {"{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{{ a() }}{% endmacro %}{{ a() }}", APR_E_UNSUPPORTED, "deep"},
        {"{% macro m() %}{% call m() %}{{ m() }}{% endcall %}{% endmacro %}{{ m() }}", APR_E_UNSUPPORTED, "deep"},
        {"{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}", APR_E_UNSUPPORTED, "steps"},
        {"{% for i in range(1000000000) %}{% endfor %}", APR_E_DAMAGED, "range()"},
        {"{% for i in range(100000) %}{% for j in range(100000) %}x{% endfor %}{% endfor %}", APR_E_UNSUPPORTED, "steps"},
        {"{% set ns = namespace(s='x') %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s }}", APR_E_UNSUPPORTED,
         "MiB"},
        {"{% set ns = namespace(s='x') %}{% for i in range(100) %}{% set ns.s = ns.s.replace('x', 'xx') %}{% endfor %}", APR_E_UNSUPPORTED,
         ""},
        {"{% set ns = namespace(l=[1]) %}{% for i in range(100) %}{% set ns.l = ns.l + ns.l %}{% endfor %}", APR_E_UNSUPPORTED, ""},
        {"{% set ns = namespace(l=[1]) %}{% for i in range(100) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}", APR_E_UNSUPPORTED,
         ""},
        {"{% set ns = namespace(l=[1]) %}{% for i in range(100) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l == [ns.l] + [] }}{{ "
         "ns.l | tojson }}",
         APR_E_UNSUPPORTED, ""},
        {"{% set ns = namespace(l=[]) %}{% for i in range(50000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}", APR_E_UNSUPPORTED,
         "too deeply"},
        {"{% set l = [] %}{% set _ = l.append(l) %}{{ l }}", APR_E_UNSUPPORTED, "too deeply"},
        {"{% set l = [] %}{% set _ = l.append(l) %}{{ l | tojson }}", APR_E_UNSUPPORTED, "too deeply"},
        {"{% set l = [] %}{% set k = [] %}{% set _ = l.append(l) %}{% set _ = k.append(k) %}{{ l == k }}", APR_E_UNSUPPORTED, "too deeply"},
        {"{% set l = [1] %}{% for x in l %}{% set _ = l.append(1) %}{% endfor %}", APR_E_UNSUPPORTED, ""},
        {"{{ 'x' * 1000000000000 }}", APR_E_UNSUPPORTED, ""},
        {"{{ ('x' * 1000000) * 1000000 }}", APR_E_UNSUPPORTED, "MiB"},
        {"{{ [0] * 1000000000000 }}", APR_E_UNSUPPORTED, ""},
        {"{{ 'x' | indent(1000000000000) }}", APR_E_UNSUPPORTED, ""},
        {"{{ 'x' | center(1000000000000) }}", APR_E_UNSUPPORTED, ""},
        {"{{ 'x'.zfill(1000000000000) }}", APR_E_UNSUPPORTED, ""},
        {"{{ '\t'.expandtabs(1000000000000) }}", APR_E_UNSUPPORTED, ""},
        {"{{ [1] | slice(1000000000000) }}", APR_E_UNSUPPORTED, ""},
        {"{{ ('<' * 4000000) | striptags }}", APR_E_UNSUPPORTED, "steps"},
        {"{{ ('{0:99999}' * 100000).format(1) }}", APR_E_UNSUPPORTED, ""},
        {"{% set ns = namespace(s='<' | safe) %}{% for i in range(100) %}{% set ns.s = ns.s + (ns.s | string | forceescape | string) %}{% "
         "endfor %}",
         APR_E_UNSUPPORTED, ""},
        {"{% set s = 'a' * 4000000 %}{% for i in range(1000) %}{{ 'b' in s }}{% endfor %}", APR_E_UNSUPPORTED, "steps"},
        {"{{ ('a' * 4000000).strip('b' * 3000 + 'a') }}", APR_E_UNSUPPORTED, "steps"},
        {"{% set s = 'a' * 4000000 %}{{ ('a' * 2000000 + 'b') in s }}{{ s.find('a' * 2000000 + 'b') }}{{ s.rfind('a' * 2000000 + 'b') }}",
         APR_E_UNSUPPORTED, "steps"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        char *text;
        apr_error err;
        const apr_status status = render(cases[i].source, "{}", &text, &err);
        if (status != cases[i].status || strstr(err.text, cases[i].sentence) == NULL)
            fail_msg("%s\nexpected %d \"%s\"\ngot      %d \"%s\"", cases[i].source, cases[i].status, cases[i].sentence, status, err.text);
        free(text);
    }
}

/* n times `open`, then `middle`, then n times `close`. */
static char *nested(const char *open, const char *middle, const char *close, size_t n)
{
    char *const text = malloc(n * (strlen(open) + strlen(close)) + strlen(middle) + 1);
    char *p = text;
    for (size_t i = 0; i < n; i++) p = stpcpy(p, open);
    p = stpcpy(p, middle);
    for (size_t i = 0; i < n; i++) p = stpcpy(p, close);
    return text;
}

static void deep_nesting_is_refused_and_moderate_nesting_is_not(void **state)
{
    static const struct {
        const char *before, *open, *middle, *close, *after;
    } cases[] = {
        {"{{ ", "(", "1", ")", " }}"},
        {"{{ ", "[", "1", "]", " }}"},
        {"{{ ", "{1:", "1", "}", " }}"},
        {"{{ ", "not ", "1", "", " }}"},
        {"{{ ", "- ", "1", "", " }}"},
        {"{{ x", "", "", "[0]", " | default(1) }}"},
        {"", "{% if 1 %}", "x", "{% endif %}", ""},
        {"", "{% for i in [1] %}", "x", "{% endfor %}", ""},
        {"{{ 'a'", "", "", " | upper", " }}"},
        {"{{ 1", "", "", " + 1", " }}"},
        {"{{ ", "1 if 1 else ", "2", "", " }}"},
        {"{{ range(", "range(", "1", ") | length", ") }}"},
        {"{% if 0 %}", "", "", "{% elif 0 %}", "{% endif %}"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        static const size_t depths[] = {30, 5000};
        for (size_t k = 0; k < COUNT(depths); k++) {
            char *const core = nested(cases[i].open, cases[i].middle, cases[i].close, depths[k]);
            char *const source = malloc(strlen(core) + 64);
            char *text;
            apr_error err;
            strcat(strcat(strcpy(source, cases[i].before), core), cases[i].after);
            const apr_status status = render(source, "{\"x\": []}", &text, &err);
            if (k == 1) assert_int_equal(status, APR_E_UNSUPPORTED);
            if (k == 0 && status != APR_OK && strstr(err.text, "undefined") == NULL) fail_msg("%s: %s", source, err.text);
            free(text);
            free(source);
            free(core);
        }
    }
}

static void every_prefix_of_a_template_ends_well(void **state)
{
    static const char source[] =
        "{%- macro m(a, b=[1, {'k': 'v\\n'}]) -%}{%- endmacro -%}{% macro f(x, y=1.5) %}{{ x[1:-1] ~ y }}{% endmacro %}\n"
        "{%- for k, v in d.items() if v is not none %}{# note #}{{ f(v, y=k | upper) }}{% if loop.last and not 1 in [2] %}\n{% break %}{% "
        "endif %}"
        "{% endfor %}{% set ns = namespace(a=0) %}{% set ns.a = -1 %}{% raw %}{{{% endraw %}{% set t | trim %} x {% endset %}{% call f(1) "
        "%}{% endcall %}";
    (void)state;
    for (size_t n = 0; n < sizeof source; n++) {
        char *const prefix = malloc(n + 1);
        char *text;
        apr_error err;
        memcpy(prefix, source, n);
        prefix[n] = '\0';
        const apr_status status = render(prefix, "{\"d\": {\"a\": \"xyz\"}}", &text, &err);
        assert_true(status == APR_OK || status == APR_E_DAMAGED || status == APR_E_UNSUPPORTED);
        free(text);
        free(prefix);
    }
}

static void the_size_of_a_template_is_bounded(void **state)
{
    (void)state;
    char *const source = malloc(APR_TEMPLATE_MAX_BYTES + 2);
    char *text;
    apr_error err;
    memset(source, 'x', APR_TEMPLATE_MAX_BYTES + 1);
    source[APR_TEMPLATE_MAX_BYTES + 1] = '\0';
    assert_int_equal(render(source, "{}", &text, &err), APR_E_UNSUPPORTED);
    source[APR_TEMPLATE_MAX_BYTES] = '\0';
    assert_int_equal(render(source, "{}", &text, &err), APR_OK);
    assert_string_equal(text, source);
    free(text);
    for (size_t i = 0; i < APR_TEMPLATE_MAX_BYTES; i++) source[i] = "{{x}}"[i % 5]; /* many small tags */
    source[APR_TEMPLATE_MAX_BYTES - APR_TEMPLATE_MAX_BYTES % 5] = '\0';
    const apr_status status = render(source, "{}", &text, &err);
    assert_true(status == APR_OK || status == APR_E_UNSUPPORTED);
    free(text);
    free(source);
}

static void a_text_may_hold_nul_and_be_empty(void **state)
{
    (void)state;
    apr_error err = {0};
    cJSON *const none = parse("{}");
    char *text;
    size_t n_bytes;
    assert_int_equal(apr_template_render("a{{ '\\x00b' | upper }}", none, &text, &n_bytes, &err), APR_OK);
    assert_int_equal(n_bytes, 3);
    assert_memory_equal(text, "a\0B", 4);
    free(text);
    assert_int_equal(apr_template_render("", none, &text, &n_bytes, &err), APR_OK);
    assert_int_equal(n_bytes, 0);
    assert_string_equal(text, "");
    free(text);
    cJSON_Delete(none);
}

static void variables_from_json_keep_their_types(void **state)
{
    char *text;
    apr_error err;
    (void)state;
    assert_int_equal(render("{{ a }} {{ b }} {{ c }} {{ d }} {{ e }} {{ f }}",
                            "{\"a\": 3, \"b\": 3.5, \"c\": null, \"d\": true, \"e\": 1e300, \"f\": {\"k\": []}}", &text, &err),
                     APR_OK);
    assert_string_equal(text, "3 3.5 None True 1e+300 {'k': []}");
    free(text);
    assert_int_equal(render("x", "[1, 2]", &text, &err), APR_E_DAMAGED);
    assert_int_equal(render("x", "{\"a\": \"\xff\"}", &text, &err), APR_E_DAMAGED);
    assert_int_equal(render("{{ strftime_now('%Y') }}", "{\"strftime_now_unix\": 1e300}", &text, &err), APR_E_DAMAGED);
    assert_int_equal(render("{{ strftime_now('%5000Y') }}", "{\"strftime_now_unix\": 0}", &text, &err), APR_E_UNSUPPORTED);
    assert_int_equal(render("{{ strftime_now('%Y-%m-%d') }}{{ strftime_now_unix }}", "{\"strftime_now_unix\": 951782400}", &text, &err),
                     APR_OK);
    assert_string_equal(text, "2000-02-29");
    free(text);
}

static void a_list_can_be_appended_to(void **state)
{
    char *text;
    apr_error err;
    (void)state;
    assert_int_equal(render("{% set l = [] %}{% for i in range(3) %}{% set _ = l.append(i) %}{% endfor %}{{ l }}", "{}", &text, &err),
                     APR_OK);
    assert_string_equal(text, "[0, 1, 2]");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(templates_render_as_jinja2_renders_them),
        cmocka_unit_test(snippets_render_as_jinja2_renders_them),
        cmocka_unit_test(a_models_template_renders_its_golden_prompts),
        cmocka_unit_test(a_failure_names_its_line_and_its_reason),
        cmocka_unit_test(a_template_without_end_is_stopped),
        cmocka_unit_test(deep_nesting_is_refused_and_moderate_nesting_is_not),
        cmocka_unit_test(every_prefix_of_a_template_ends_well),
        cmocka_unit_test(the_size_of_a_template_is_bounded),
        cmocka_unit_test(a_text_may_hold_nul_and_be_empty),
        cmocka_unit_test(variables_from_json_keep_their_types),
        cmocka_unit_test(a_list_can_be_appended_to),
    };
    return cmocka_run_group_tests_name("template", tests, NULL, NULL);
}
