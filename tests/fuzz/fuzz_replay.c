/* fuzz_replay.c - runs a fuzz target over files without a fuzzer: every find stays a test. */
#include "tests/fuzz/fuzz_target.h"

static int replay(const char *path)
{
    FILE *const f = fopen(path, "rb");
    if (f == NULL) return 0;
    fseek(f, 0, SEEK_END);
    const long n = ftell(f);
    uint8_t *const bytes = malloc(n > 0 ? (size_t)n : 1); /* exact, so that the sanitizer guards the end */
    rewind(f);
    const size_t got = bytes != NULL && n > 0 ? fread(bytes, 1, (size_t)n, f) : 0;
    fclose(f);
    if (bytes != NULL) LLVMFuzzerTestOneInput(bytes, got);
    free(bytes);
    return 1;
}

int main(int argc, char **argv)
{
    int n = 0;

    LLVMFuzzerInitialize(&argc, &argv);
    for (int i = 1; i < argc; i++) n += replay(argv[i]);
    printf("%s: %d inputs replayed\n", getenv("FUZZ_TARGET"), n);
    return n == argc - 1 ? 0 : 1;
}
