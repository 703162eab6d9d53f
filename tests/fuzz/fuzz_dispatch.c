/* fuzz_dispatch.c - all fuzz targets in one program: the first argument names the target, FUZZ_TARGET the same for children.
 *
 *     fuzz gguf -runs=1000 tests/corpus/gguf          fuzz --list
 *
 * The Makefile compiles each tests/fuzz/fuzz_NAME.c with its entry called fuzz_NAME, and this file with FUZZ_LIST, X(NAME) for each. */
#include "tests/fuzz/fuzz_target.h"

#define X(name) int fuzz_##name(const uint8_t *data, size_t n_bytes);
FUZZ_LIST
#undef X

static const struct {
    const char *name;
    int (*run)(const uint8_t *data, size_t n_bytes);
} targets[] = {
#define X(name) {#name, fuzz_##name},
    FUZZ_LIST
#undef X
};
enum { N_TARGETS = sizeof targets / sizeof *targets };

static int chosen = -1;

static int target_named(const char *name)
{
    for (int i = 0; name != NULL && i < N_TARGETS; i++)
        if (strcmp(targets[i].name, name) == 0) return i;
    return -1;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    char **const args = *argv;
    const bool lists = *argc > 1 && strcmp(args[1], "--list") == 0;

    chosen = *argc > 1 ? target_named(args[1]) : -1;
    if (chosen >= 0) { /* taken out of the arguments */
        setenv("FUZZ_TARGET", args[1], 1);
        for (int i = 1; i < *argc; i++) args[i] = args[i + 1];
        (*argc)--;
        return 0;
    }
    chosen = target_named(getenv("FUZZ_TARGET"));
    if (chosen >= 0) return 0;
    for (int i = 0; i < N_TARGETS; i++) puts(targets[i].name);
    exit(lists ? 0 : 2);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) { return targets[chosen].run(data, n_bytes); }
