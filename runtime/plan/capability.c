/* capability.c - the table of architecture families. */
#include "runtime/plan/capability.h"

#include <stddef.h>
#include <stdlib.h>

enum { OLDEST = 75 };

/* Compute capabilities from..to, as major * 10 + minor. */
static const struct {
    int from, to;
    const char *family;
    bool fp8_units, fp4_units;
} families[] = {
    {75, 79, "Turing", false, false},    {80, 88, "Ampere", false, false},    {89, 89, "Ada", true, false},
    {90, 99, "Hopper", true, false},     {100, 109, "Blackwell", true, true}, {110, 119, "Blackwell (Thor)", true, true},
    {120, 129, "Blackwell", true, true},
};
enum { N_FAMILIES = sizeof families / sizeof *families };

/* Known faults, whatever the family supports. */
static const struct {
    int from, to;
    const char *fault;
} fp8_faults[] = {
    {121, 121, "FP8 products of cuBLASLt are known to end in illegal instructions on compute capability 12.1"},
};

/* Machine code runs on a device of the same major number that is not older. */
static bool has_native(const char *architectures, int device)
{
    for (const char *at = architectures; *at != '\0';) {
        char *end;
        const int architecture = (int)strtol(at, &end, 10);
        if (end == at) return false;
        if (architecture / 10 == device / 10 && architecture <= device) return true;
        at = end;
    }
    return *architectures == '\0';
}

/* The newest architecture, whose PTX is there; 0: not known. */
static int newest(const char *architectures)
{
    int most = 0;
    for (const char *at = architectures; *at != '\0';) {
        char *end;
        const int architecture = (int)strtol(at, &end, 10);
        if (end == at) break;
        if (architecture > most) most = architecture;
        at = end;
    }
    return most;
}

apr_status apr_capability_of(apr_capability *capability, int major, int minor, const char *architectures, apr_error *err)
{
    const int device = major * 10 + minor;

    *capability = (apr_capability){.family = "newer than this program"};
    if (device < OLDEST)
        return apr_fail(err, APR_E_UNSUPPORTED, "the device has compute capability %d.%d; 7.5 (Turing) is the oldest that is supported",
                        major, minor);
    for (size_t i = 0; i < N_FAMILIES; i++)
        if (device >= families[i].from && device <= families[i].to) {
            capability->family = families[i].family;
            capability->fp8_units = families[i].fp8_units;
            capability->fp4_units = families[i].fp4_units;
        }
    for (size_t i = 0; i < sizeof fp8_faults / sizeof *fp8_faults; i++)
        if (device >= fp8_faults[i].from && device <= fp8_faults[i].to) capability->fp8_fault = fp8_faults[i].fault;
    if (has_native(architectures, device)) return APR_OK;
    capability->code = APR_CODE_PTX;
    if (newest(architectures) <= device) return APR_OK;
    return apr_fail(err, APR_E_UNSUPPORTED,
                    "the device has compute capability %d.%d, and the CUDA library was built for %s only; build it with ARCHS=%d", major,
                    minor, architectures, device);
}

bool apr_capability_wants_probe(const apr_capability *capability, apr_fp8_choice choice)
{
    if (!capability->fp8_units || choice == APR_FP8_OFF) return false;
    return choice == APR_FP8_ON || capability->fp8_fault == NULL;
}

bool apr_capability_uses_fp8(const apr_capability *capability, apr_fp8_choice choice, apr_probe_verdict verdict)
{
    return apr_capability_wants_probe(capability, choice) && verdict == APR_PROBE_RIGHT;
}
