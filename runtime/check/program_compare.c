/* program_compare.c - compares two programs operation by operation. */
#include "runtime/check/program_compare.h"

#include "runtime/program/op_spec.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

apr_status apr_programs_same_shape(const apr_session *reference, const apr_session *other, apr_error *err)
{
    const apr_program *const a = apr_session_program(reference), *const b = apr_session_program(other);

    if (a->n_ops != b->n_ops || a->n_values != b->n_values || a->n_states != b->n_states)
        return apr_fail(err, APR_E_NO, "the models are different programs: %s of %zu operations and %s of %zu", a->architecture, a->n_ops,
                        b->architecture, b->n_ops);
    for (size_t i = 0; i < a->n_ops; i++)
        if (a->ops[i].kind != b->ops[i].kind || a->ops[i].out != b->ops[i].out)
            return apr_fail(err, APR_E_NO, "operation %zu is '%s' in the one model and '%s' in the other", i, apr_op_name(a->ops[i].kind),
                            apr_op_name(b->ops[i].kind));
    for (size_t i = 0; i < a->n_values; i++)
        if (a->values[i].width != b->values[i].width)
            return apr_fail(err, APR_E_NO, "'%s' is %lld numbers wide in the one model and %lld in the other", a->values[i].name,
                            (long long)a->values[i].width, (long long)b->values[i].width);
    for (size_t i = 0; i < a->n_states; i++) {
        const apr_state *const x = &a->states[i], *const y = &b->states[i];
        if (x->n_heads != y->n_heads || x->key_dim != y->key_dim || x->window != y->window)
            return apr_fail(err, APR_E_NO,
                            "layer %d keeps %lld heads of %lld (window %lld) in the one model and %lld of %lld (window %lld) in the other",
                            x->layer, (long long)x->n_heads, (long long)x->key_dim, (long long)x->window, (long long)y->n_heads,
                            (long long)y->key_dim, (long long)y->window);
        if (x->kind != y->kind || x->value_dim != y->value_dim || x->values_in_keys != y->values_in_keys || x->n_floats != y->n_floats)
            return apr_fail(err, APR_E_NO, "the state of layer %d has different kinds or sizes in the two models", x->layer);
    }
    return APR_OK;
}

static apr_status differs(const apr_op *op, const char *what, double reference, double other, apr_error *err)
{
    char layer[32] = "";
    if (op->layer >= 0) snprintf(layer, sizeof layer, "layer %d, ", op->layer);
    return apr_fail(err, APR_E_NO, "%s%s: %s is %.9g in the reference and %.9g here", layer, apr_op_name(op->kind), what, reference, other);
}

/* Compares the parameters, state and inputs of an operation. */
static apr_status compare_op(const apr_op *a, const apr_op *b, apr_error *err)
{
    static const char *const inputs[APR_OP_MAX_IN] = {"the first input", "the second input", "the third input"};
    const apr_op_fact *const facts = apr_op_specs[a->kind]->facts;

    for (const apr_op_fact *f = facts; f != NULL && f->what != NULL; f++)
        if (apr_op_fact_of(a, f) != apr_op_fact_of(b, f)) return differs(a, f->what, apr_op_fact_of(a, f), apr_op_fact_of(b, f), err);
    if (a->state != b->state) return differs(a, "the state", a->state, b->state, err);
    for (int i = 0; i < APR_OP_MAX_IN; i++)
        if (a->in[i] != b->in[i]) return differs(a, inputs[i], a->in[i], b->in[i], err);
    return APR_OK;
}

/* Compares frequencies after their divisors. Two ways to compute the same number differ by the rounding of a power, a quotient and a
 * product. */
static apr_status compare_rope(const apr_session *reference, const apr_session *other, const apr_op *a, const apr_op *b, apr_error *err)
{
    const apr_rope_table *const x = &apr_session_program(reference)->ropes[a->rope], *const y = &apr_session_program(other)->ropes[b->rope];
    static const double rounding = 8 * 0x1p-24;
    apr_status status = APR_OK;

    if (x->n_freqs != y->n_freqs) return differs(a, "the number of rotary frequencies", (double)x->n_freqs, (double)y->n_freqs, err);
    if (x->magnitude != y->magnitude)
        return differs(a, "the magnitude of the rotary angles", (double)x->magnitude, (double)y->magnitude, err);
    const size_t n = (size_t)x->n_freqs;
    float *const freqs = malloc((2 * n + 1) * sizeof *freqs);
    if (freqs == NULL) return apr_no_memory(err, "the rotary frequencies");
    apr_trace_frequencies(reference, a->rope, freqs);
    apr_trace_frequencies(other, b->rope, freqs + n);
    for (size_t j = 0; j < n && status == APR_OK; j++) {
        char what[48];
        if (fabs((double)freqs[j] - (double)freqs[n + j]) <= rounding * fabs((double)freqs[j])) continue;
        snprintf(what, sizeof what, "rotary frequency %zu", j);
        status = differs(a, what, (double)freqs[j], (double)freqs[n + j], err);
    }
    free(freqs);
    return status;
}

apr_status apr_programs_compare(const apr_session *reference, const apr_session *other, apr_error *err)
{
    const apr_program *const a = apr_session_program(reference), *const b = apr_session_program(other);

    APR_TRY(apr_programs_same_shape(reference, other, err));
    for (size_t i = 0; i < a->n_ops; i++) {
        const apr_op *const x = &a->ops[i], *const y = &b->ops[i];
        APR_TRY(compare_op(x, y, err));
        if ((x->rope < 0) != (y->rope < 0)) return differs(x, "the rotary table", x->rope, y->rope, err);
        if (x->rope >= 0) APR_TRY(compare_rope(reference, other, x, y, err));
    }
    return APR_OK;
}
