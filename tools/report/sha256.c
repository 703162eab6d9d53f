/* sha256.c - SHA-256 by its definition; the constants are computed from the first 64 primes, as the standard defines them. */
#include "tools/report/sha256.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The first 32 bits of the fraction of a root of a prime below 312. long double has more than the 41 bits that this needs. */
static uint32_t fraction(long double root) { return (uint32_t)((root - floorl(root)) * 4294967296.0L); }

static int next_prime(int after)
{
    for (int n = after + 1;; n++) {
        int d = 2;
        while (d * d <= n && n % d != 0) d++;
        if (d * d > n) return n;
    }
}

static void round_constants(uint32_t constants[64])
{
    for (int i = 0, prime = 1; i < 64; i++) {
        prime = next_prime(prime);
        constants[i] = fraction(cbrtl((long double)prime));
    }
}

void apr_sha256_start(apr_sha256 *hash)
{
    *hash = (apr_sha256){0};
    for (int i = 0, prime = 1; i < 8; i++) {
        prime = next_prime(prime);
        hash->state[i] = fraction(sqrtl((long double)prime));
    }
}

static uint32_t turned(uint32_t x, int by) { return x >> by | x << (32 - by); }

static void extend(uint32_t w[64], const uint8_t *block)
{
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 | (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        const uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + (turned(a, 7) ^ turned(a, 18) ^ a >> 3) + w[i - 7] + (turned(b, 17) ^ turned(b, 19) ^ b >> 10);
    }
}

static void add_block(apr_sha256 *hash, const uint32_t constants[64], const uint8_t *block)
{
    uint32_t w[64], v[8];

    extend(w, block);
    memcpy(v, hash->state, sizeof v);
    for (int i = 0; i < 64; i++) {
        const uint32_t e = v[4], a = v[0];
        const uint32_t one = v[7] + (turned(e, 6) ^ turned(e, 11) ^ turned(e, 25)) + ((e & v[5]) ^ (~e & v[6])) + constants[i] + w[i];
        const uint32_t two = (turned(a, 2) ^ turned(a, 13) ^ turned(a, 22)) + ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += one;
        v[0] = one + two;
    }
    for (int i = 0; i < 8; i++) hash->state[i] += v[i];
}

void apr_sha256_add(apr_sha256 *hash, const void *bytes, size_t n_bytes)
{
    const uint8_t *at = bytes;
    size_t n_held = (size_t)(hash->n_bytes % 64);
    uint32_t constants[64];

    round_constants(constants);
    hash->n_bytes += n_bytes;
    while (n_held + n_bytes >= 64) {
        const size_t n = 64 - n_held;
        if (n_held > 0) memcpy(hash->block + n_held, at, n);
        add_block(hash, constants, n_held > 0 ? hash->block : at);
        at += n;
        n_bytes -= n;
        n_held = 0;
    }
    if (n_bytes > 0) memcpy(hash->block + n_held, at, n_bytes);
}

char *apr_sha256_text(apr_sha256 *hash, char text[APR_SHA256_TEXT])
{
    const uint64_t n_bits = 8 * hash->n_bytes;
    const size_t n_held = (size_t)(hash->n_bytes % 64), n_zeros = (n_held < 56 ? 55 : 119) - n_held;
    uint8_t end[128] = {0x80};

    for (int i = 0; i < 8; i++) end[1 + n_zeros + (size_t)i] = (uint8_t)(n_bits >> (56 - 8 * i));
    apr_sha256_add(hash, end, 1 + n_zeros + 8);
    for (size_t i = 0; i < 8; i++) snprintf(text + 8 * i, 9, "%08x", hash->state[i]);
    return text;
}
