/* student.h - a model whose weights are trained: their masters in float32, and AdamW.
 *
 * A weight is used as the number that its own type (F32, F16 or BF16) stores of its master, and its gradient moves the master
 * (straight-through). So what is measured is what is written. A master moves as soon as its gradient is complete: no gradient is kept.
 *
 *     apr_student_open(&student, model, &options)   plans the pass, masters and moments
 *     apr_student_step(student, ids, &teacher, rate, &loss)
 *     apr_student_finish(student)                   the stored bytes of each tensor
 *
 * With options.device all of this is in the GPU's memory; the host has the line of the pass through which tensors travel, and in the end the
 * stored bytes. The same bits for any number of threads. */
#ifndef APR_RUNTIME_STUDENT_H
#define APR_RUNTIME_STUDENT_H

#include "runtime/train/train.h"

typedef struct apr_student apr_student;

/* APR_E_UNSUPPORTED: a weight is quantized, or an operation has no backward pass. Nothing large is allocated before the first step. */
apr_status apr_student_open(apr_student **student, const apr_model *model, const apr_train_options *options, apr_error *err);
void apr_student_close(apr_student *student);

/* All lines: those of the pass (apr_train_plan), and its own. */
const apr_train_line *apr_student_plan(const apr_student *student, size_t *n);
const apr_tensor *const *apr_student_tensors(const apr_student *student, size_t *n);

/* One step on [n_windows, n_tokens] ids. Matrices decay by rate * decay. After a failure (APR_E_NO: a number is not finite) some masters
 * have moved and others have not. */
typedef struct apr_student_rate {
    double rate, decay;
} apr_student_rate;
apr_status apr_student_step(apr_student *student, const int32_t *ids, const apr_train_teacher *teacher, apr_student_rate rate, double *loss,
                            apr_error *err);

/* The divergence of each row of these windows, [n_windows * n_tokens], without a step. */
apr_status apr_student_measure(apr_student *student, const int32_t *ids, const apr_train_teacher *teacher, double *kl, apr_error *err);

/* Ends the training. The bytes of tensor i of apr_student_tensors in its own type, in the order of its rows; valid until close. */
apr_status apr_student_finish(apr_student *student, apr_error *err);
const uint8_t *apr_student_bytes(const apr_student *student, size_t i);

#endif
