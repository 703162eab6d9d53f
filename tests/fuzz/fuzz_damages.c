/* fuzz_damages.c - any bytes as a table of damages: what is read of it can be written again, and is then read as the same. */
#include "quant/damage_table.h"
#include "tests/fuzz/fuzz_target.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    apr_damage_table table, again;
    apr_error err = {0};

    const apr_status status = apr_damage_table_read(&table, (const char *)data, n_bytes, "fuzz", &err);
    claim_sentence(status, err);
    if (status == APR_OK) {
        size_t n;
        char *const text = apr_damage_table_write(&table, &n);
        claim(text != NULL && apr_damage_table_read(&again, text, n, "again", NULL) == APR_OK);
        claim(again.n_rows == table.n_rows && strcmp(again.terms, table.terms) == 0);
        for (size_t i = 0; i < table.n_rows; i++) claim(memcmp(again.rows[i].kl, table.rows[i].kl, sizeof table.rows[i].kl) == 0);
        free(text);
        apr_damage_table_close(&again);
    }
    apr_damage_table_close(&table);
    return 0;
}
