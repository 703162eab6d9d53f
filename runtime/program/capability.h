/* capability.h - what a CUDA device can do, by the family of its architecture, and what of it is to be used.
 *
 * Families are ranges of compute capabilities: a device that came later than this table is judged by its family, and one of
 * a family that is not known runs on the PTX of the newest known one, with nothing that is special. Machine code runs on
 * devices of the same major number and the same or a higher minor one. */
#ifndef APR_RUNTIME_CAPABILITY_H
#define APR_RUNTIME_CAPABILITY_H

#include "formats/base/status.h"

#include <stdbool.h>

typedef enum { APR_CODE_NATIVE, APR_CODE_PTX } apr_code_kind;

typedef struct apr_capability {
    const char *family;    /* "Hopper" */
    apr_code_kind code;    /* what will run: machine code, or PTX that the driver compiles at the first start */
    bool fp8_units;        /* matrix products of FP8 */
    bool fp4_units;        /* and of FP4 with scales of blocks */
    const char *fp8_fault; /* why FP8 through cuBLASLt is off unless asked for; NULL: no fault is known */
} apr_capability;

/* architectures: the machine code that is there, "75 80 86", the last one also as PTX; "" when that is not known (all are).
 * APR_E_UNSUPPORTED for a device that is too old or has no code. */
apr_status apr_capability_of(apr_capability *capability, int major, int minor, const char *architectures, apr_error *err);

typedef enum { APR_FP8_AUTO, APR_FP8_ON, APR_FP8_OFF } apr_fp8_choice;

/* What became of a probe. */
typedef enum { APR_PROBE_UNKNOWN, APR_PROBE_RIGHT, APR_PROBE_WRONG } apr_probe_verdict;

/* Is a probe worth its time: is FP8 used if it turns out right? */
bool apr_capability_wants_probe(const apr_capability *capability, apr_fp8_choice choice);
/* FP8 products are used only after a probe was right. */
bool apr_capability_uses_fp8(const apr_capability *capability, apr_fp8_choice choice, apr_probe_verdict verdict);

#endif
