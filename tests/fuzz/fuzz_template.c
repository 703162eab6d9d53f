/* fuzz_template.c - libFuzzer: any bytes as a template, rendered with fixed variables, end in a text or a sentence.
 *
 * clang -g -O1 -std=c11 -D_POSIX_C_SOURCE=200809L -I. -fsanitize=fuzzer,address,undefined tests/fuzz/fuzz_template.c
 *       runtime/template/template*.c formats/base/status.c formats/base/arena.c formats/tensor/kv.c -lcjson -lutf8proc -lm */
#include "runtime/template/template.h"
#include "tests/fuzz/fuzz_target.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static const char variables[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"a \\u00e9\"}, {\"role\": \"assistant\", \"content\": null}],"
        "\"tools\": [{\"name\": \"f\", \"n\": [1, 2.5, true]}], \"bos_token\": \"<s>\", \"strftime_now_unix\": 0}";
    cJSON *const json = cJSON_Parse(variables);
    char *const source = malloc(n_bytes + 1);
    char *text;
    size_t n_text;
    apr_error err = {0};
    memcpy(source, data, n_bytes);
    source[n_bytes] = '\0';
    const apr_status status = apr_template_render(source, json, &text, &n_text, &err);
    if ((status == APR_OK) != (text != NULL) || (status == APR_OK) != (err.text[0] == '\0')) abort();
    free(text);
    free(source);
    cJSON_Delete(json);
    return 0;
}
