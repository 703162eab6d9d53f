/* runtime/plan/capability.h - the features of a CUDA device by the family of its architecture, and which of them to use.
 *
 * A family is a range of compute capabilities. A device newer than this table is treated by its family. A device of an unknown family
 * runs the PTX of the newest known architecture, without special features. Machine code runs on devices of the same major number and the
 * same or a higher minor number. */
#ifndef APR_RUNTIME_CAPABILITY_H
#define APR_RUNTIME_CAPABILITY_H

#include "formats/base/status.h"

#include <stdbool.h>

typedef enum { APR_CODE_NATIVE, APR_CODE_PTX } apr_code_kind;

typedef struct apr_capability {
    const char *family;    /* "Hopper" */
    apr_code_kind code;    /* machine code, or PTX that the driver compiles at the first start */
    bool fp8_units;        /* has FP8 tensor cores */
    bool fp4_units;        /* has FP4 tensor cores with block scales */
    const char *fp8_fault; /* why FP8 through cuBLASLt is off by default; NULL: no known fault */
} apr_capability;

/* architectures: the compiled machine code, "75 80 86", of which the last one is also there as PTX; "": not known (all count as there).
 * APR_E_UNSUPPORTED: the device is too old, or there is no code for it. */
apr_status apr_capability_of(apr_capability *capability, int major, int minor, const char *architectures, apr_error *err);

typedef enum { APR_FP8_AUTO, APR_FP8_ON, APR_FP8_OFF } apr_fp8_choice;

/* Result of a probe. */
typedef enum { APR_PROBE_UNKNOWN, APR_PROBE_RIGHT, APR_PROBE_WRONG } apr_probe_verdict;

/* Should the probe run: would FP8 be used if its result is right? */
bool apr_capability_wants_probe(const apr_capability *capability, apr_fp8_choice choice);
/* FP8 products are used only after a probe was right. */
bool apr_capability_uses_fp8(const apr_capability *capability, apr_fp8_choice choice, apr_probe_verdict verdict);

#endif
