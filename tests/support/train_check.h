/* train_check.h - gradients of small whole models, from a pass on the host and from one on a device: what tests of both compare. */
#ifndef APR_TESTS_TRAIN_CHECK_H
#define APR_TESTS_TRAIN_CHECK_H

#include "runtime/distill/student.h"
#include "runtime/train/train_device.h"
#include "tests/support/program_model.h"

enum { TRAIN_CHECK_WINDOW = 8, TRAIN_CHECK_WINDOWS = 2, TRAIN_CHECK_ROWS = TRAIN_CHECK_WINDOW * TRAIN_CHECK_WINDOWS };

/* Dense models with attention: what sets each apart. */
typedef struct train_check_model {
    const char *architecture;
    bool is_tied;
    const char *what;
} train_check_model;

enum { N_TRAIN_CHECK_MODELS = 5 };
extern const train_check_model train_check_models[N_TRAIN_CHECK_MODELS];

/* Three layers, matrices in float32. A failure ends the test. */
void train_check_open_model(program_model *m, const train_check_model *of);
void train_check_open_typed(program_model *m, const train_check_model *of, apr_dtype dtype); /* of matrices */

/* [TRAIN_CHECK_ROWS] token ids. */
const int32_t *train_check_ids(void);
/* Rows of noise; its rows have the vocabulary of program_model_sizes. */
extern const apr_train_teacher train_check_teacher;

/* device NULL: the host. */
apr_train_options train_check_options(apr_train_device *device);
apr_train *train_check_open(const apr_model *model, apr_train_device *device);

typedef struct train_gradients {
    const apr_tensor *const *tensors;
    float **of; /* [n] */
    size_t n;
    double loss;
} train_gradients;

/* Of a pass of the model's own weights. */
train_gradients train_check_gradients(apr_train *t);
void train_check_close(train_gradients *g);
bool train_check_same_bits(const train_gradients *a, const train_gradients *b);
/* |a - b| / |a|, as vectors: of all gradients together, and the largest of a tensor. */
typedef struct train_distances {
    double whole, worst;
    const char *name; /* of the worst */
} train_distances;
train_distances train_check_distances(const train_gradients *a, const train_gradients *b);

#endif
