/* status.h - one status type for the whole project, and the message that goes with a failure.
 *
 * Every function that can fail returns an apr_status (0 is success) and takes an `apr_error *` last. The first failure
 * writes one sentence: file, tensor, byte, what to do. Later failures on the same object keep the first message.
 * A status is also the exit code of the tools. `err` may be NULL when the caller does not want the message. */
#ifndef APR_FORMATS_STATUS_H
#define APR_FORMATS_STATUS_H

/* X(id, value = exit code, text) */
#define APR_STATUS_LIST(X)              \
    X(OK, 0, "ok")                      \
    X(E_NO, 1, "the answer is no")      \
    X(E_USAGE, 2, "usage")              \
    X(E_IO, 3, "file or I/O error")     \
    X(E_DAMAGED, 4, "damaged input")    \
    X(E_UNSUPPORTED, 5, "unsupported")  \
    X(E_MEMORY, 6, "not enough memory") \
    X(E_DEVICE, 7, "device error")

typedef enum {
#define X(id, value, text) APR_##id = value,
    APR_STATUS_LIST(X)
#undef X
} apr_status;

typedef struct apr_error {
    apr_status status;
    char text[1024]; /* empty until the first failure */
} apr_error;

const char *apr_status_text(apr_status status);

/* Records the first failure in err (later ones keep it) and returns `status`, so that callers can `return apr_fail(...)`. */
apr_status apr_fail(apr_error *err, apr_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The failure of an allocation; `what` completes "not enough memory for ...". */
apr_status apr_no_memory(apr_error *err, const char *what);

/* The status of a failed system call: APR_E_MEMORY for ENOMEM, otherwise APR_E_IO. */
apr_status apr_errno_status(int error);

/* Returns the status of a failed call to the caller. */
#define APR_TRY(call)                                          \
    do {                                                       \
        const apr_status apr_try_status_ = (call);             \
        if (apr_try_status_ != APR_OK) return apr_try_status_; \
    } while (0)

#endif
