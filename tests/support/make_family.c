/* make_family.c - usage: make_family DIR OUT. Makes the checkpoint OUT that DIR/tensors.json and DIR/config.json describe. */
#include "tests/support/family_model.h"

#include <stdio.h>

int main(int argc, char **argv)
{
    apr_error err = {0};

    if (argc != 3) {
        fprintf(stderr, "usage: make_family DIR OUT\n");
        return APR_E_USAGE;
    }
    const apr_status status = family_write(argv[1], argv[2], NULL, &err);
    if (status != APR_OK) fprintf(stderr, "make_family: %s\n", err.text);
    return (int)status;
}
