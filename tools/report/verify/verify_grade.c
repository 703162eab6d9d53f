/* verify_grade.c - one word for a verification, and one sentence that explains it. */
#include "tools/report/verify/verify.h"

#include <math.h>
#include <string.h>

/* What a failed check says of the model. */
typedef enum { OF_THE_MODEL, OF_ITS_NUMBERS, OF_THE_RUN } check_subject;

static const check_subject subjects[APR_N_VERIFY_KINDS] = {
    [APR_VERIFY_WEIGHTS] = OF_ITS_NUMBERS,    [APR_VERIFY_OPERATIONS] = OF_ITS_NUMBERS, [APR_VERIFY_KL] = OF_ITS_NUMBERS,
    [APR_VERIFY_SAME_TOP] = OF_ITS_NUMBERS,   [APR_VERIFY_ROUTES] = OF_ITS_NUMBERS,     [APR_VERIFY_ANSWERS] = OF_ITS_NUMBERS,
    [APR_VERIFY_PERPLEXITY] = OF_ITS_NUMBERS, [APR_VERIFY_BACKEND] = OF_THE_RUN,        [APR_VERIFY_MEMORY] = OF_THE_RUN,
};

static const apr_verify_check *first_failed(const apr_verify_report *r, check_subject subject)
{
    for (size_t i = 0; i < r->n_checks; i++)
        if (r->checks[i].verdict == APR_VERDICT_FAIL && subjects[r->checks[i].kind] == subject) return &r->checks[i];
    return NULL;
}

static bool has_same_types(const apr_weights *w)
{
    for (size_t i = 0; i < w->n_pairs; i++)
        if (w->pairs[i].reference->dtype != w->pairs[i].other->dtype) return false;
    return true;
}

/* Most tensors are too far off only if the other model was never made from this reference. */
static bool most_are_far(const apr_weights *w) { return 2 * w->n_far > w->n_pairs; }

static apr_verify_grade grade_of(const apr_verify_report *r)
{
    if (first_failed(r, OF_THE_MODEL) != NULL || !r->same_shape || most_are_far(&r->tensors)) return APR_GRADE_OTHER_MODEL;
    if (first_failed(r, OF_ITS_NUMBERS) != NULL) return APR_GRADE_WORSE;
    if (!r->tensors.unchanged) return APR_GRADE_TYPES_ALLOW;
    return has_same_types(&r->tensors) ? APR_GRADE_IDENTICAL : APR_GRADE_SAME_VALUES;
}

/* The type of most parameters, and the second one if it has a tenth of them: "q4_k and q6_k allow". */
static void allowing_types(const apr_model *model, char *text, size_t capacity)
{
    int64_t elems[APR_DTYPE_COUNT] = {0}, n_all = 0;

    for (size_t i = 0; i < model->n_tensors; i++) {
        if (model->tensors[i].rank < 2 || !apr_dtype_is_weights(model->tensors[i].dtype)) continue;
        elems[model->tensors[i].dtype] += apr_tensor_elems(&model->tensors[i]);
        n_all += apr_tensor_elems(&model->tensors[i]);
    }
    const apr_dtype most = apr_dtype_most_common(elems);
    if (most == APR_DTYPE_COUNT) {
        snprintf(text, capacity, "its types allow");
        return;
    }
    elems[most] = 0;
    const apr_dtype next = apr_dtype_most_common(elems);
    if (next == APR_DTYPE_COUNT || 10 * elems[next] < n_all) snprintf(text, capacity, "%s allows", apr_dtypes[most].name);
    else snprintf(text, capacity, "%s and %s allow", apr_dtypes[most].name, apr_dtypes[next].name);
}

/* The share of positions with the same most likely token, over the last text. */
static void explain_types(const apr_verify_report *r, char *text, size_t capacity)
{
    if (r->n_texts == 0) {
        snprintf(text, capacity, "No tensor and no operation is further from the reference than its types explain.");
        return;
    }
    const apr_verify_text_result *const t = &r->texts[r->n_texts - 1];
    const bool has_bound = !isnan(t->bound);
    snprintf(text, capacity,
             "It predicts the reference's most likely token at %.1f %% of %lld positions, and no tensor, operation%s is further from the "
             "reference than its types explain.",
             100.0 * t->d.same_top, (long long)t->d.n_rows, has_bound ? " or text" : "");
}

static void explain_failure(const apr_verify_report *r, apr_verify_grade grade, char *text, size_t capacity)
{
    const apr_verify_check *const of_model = first_failed(r, OF_THE_MODEL), *const failed =
                                                                                of_model != NULL ? of_model : apr_verify_first_failure(r);
    const apr_verify_line line = failed != NULL ? apr_verify_line_of(r, failed) : (apr_verify_line){.title = "", .found = ""};

    if (grade == APR_GRADE_WORSE)
        snprintf(text, capacity,
                 "It has the reference's tensors and vocabulary, but its numbers are further off than its types cause: %s, %s.", line.title,
                 line.found);
    else if (of_model == NULL && most_are_far(&r->tensors))
        snprintf(text, capacity, "%zu of %zu tensors have other numbers than any quantization of the reference gives.", r->tensors.n_far,
                 r->tensors.n_pairs);
    else
        snprintf(text, capacity, "It differs from the reference in what no conversion and no quantization changes: %s, %s.", line.title,
                 line.found);
}

apr_verify_graded apr_verify_grade_of(const apr_verify_shown *shown)
{
    static const struct {
        const char *id, *name;
    } names[] = {{"identical", "identical"},
                 {"same_values", "same values"},
                 {"as_good_as_types_allow", "as good as "},
                 {"worse_than_types_explain", "worse than its types explain"},
                 {"not_the_same_model", "not the same model"}};
    const apr_verify_report *const r = shown->report;
    const apr_verify_grade grade = grade_of(r);
    const apr_verify_check *const of_run = first_failed(r, OF_THE_RUN);
    apr_verify_graded g = {.grade = grade, .id = names[grade].id};
    char types[96] = "";

    if (grade == APR_GRADE_TYPES_ALLOW) allowing_types(shown->other.model, types, sizeof types);
    snprintf(g.name, sizeof g.name, "%s%s", names[grade].name, types);
    if (grade == APR_GRADE_IDENTICAL)
        snprintf(g.sentence, sizeof g.sentence, "Every tensor has the reference's type and numbers: both give the same answers.");
    else if (grade == APR_GRADE_SAME_VALUES)
        snprintf(g.sentence, sizeof g.sentence, "Every number is the reference's; only the types that store them differ.");
    else if (grade == APR_GRADE_TYPES_ALLOW) explain_types(r, g.sentence, sizeof g.sentence);
    else explain_failure(r, grade, g.sentence, sizeof g.sentence);
    const size_t n = strlen(g.sentence);
    if (of_run != NULL && grade <= APR_GRADE_TYPES_ALLOW)
        snprintf(g.sentence + n, sizeof g.sentence - n, " But the run here failed a check: %s.", apr_verify_line_of(r, of_run).title);
    return g;
}
