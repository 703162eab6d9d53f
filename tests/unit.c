/* unit.c - all unit tests in one program.
 *
 *     unit NAME        runs tests/MODULE/test_NAME.c and exits as cmocka does: with the number of failed tests
 *     unit --list      prints all names, a line each
 *
 * The Makefile compiles each test_NAME.c with its main called unit_NAME, and this file with UNIT_LIST, X(NAME) for each. */
#include <stdio.h>
#include <string.h>

#define X(name) int unit_##name(void);
UNIT_LIST
#undef X

static const struct {
    const char *name;
    int (*run)(void);
} units[] = {
#define X(name) {#name, unit_##name},
    UNIT_LIST
#undef X
};
enum { N_UNITS = sizeof units / sizeof *units };

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (int i = 0; i < N_UNITS; i++) puts(units[i].name);
        return 0;
    }
    for (int i = 0; argc == 2 && i < N_UNITS; i++)
        if (strcmp(units[i].name, argv[1]) == 0) return units[i].run();
    fputs("usage: unit NAME, or unit --list\n", stderr);
    return 2;
}
