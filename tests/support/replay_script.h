/* replay_script.h - a session's life in which single tokens follow prompts, prompts follow tokens, everything is forgotten and begins
 * again: what it answers must not depend on whether the operations of a token were recorded. */
#ifndef APR_TESTS_REPLAY_SCRIPT_H
#define APR_TESTS_REPLAY_SCRIPT_H

#include "runtime/session/session.h"
#include "tests/support/program_model.h"

/* The context that the script needs, and what it evaluates. */
enum { REPLAY_SCRIPT_CTX = 80, REPLAY_SCRIPT_STEPS = 119 };

/* The script, a step at a time, so that two sessions can take turns; `at` begins as zeros. */
typedef struct replay_script {
    int step;
    int32_t salt; /* other tokens for another salt */
} replay_script;

/* Evaluates what comes next; the last token's logits into logits[vocab_size]. False at the end. A failure ends the test. */
bool replay_script_step(replay_script *at, apr_session *s, float *logits);

/* A model of one or two layers that mix tokens in this way, and have experts where the family has any. False: it has no such layer. */
bool replay_open_layers(program_model *m, const char *architecture, uint8_t mixer, int n_layers);
/* Are some of its tables read on the host? Then no token is recorded. */
bool replay_has_host_tables(const apr_program *program);

/* All of it: [REPLAY_SCRIPT_STEPS, vocab_size], malloc'ed. */
float *replay_script_run(apr_session *s, int32_t salt);

#endif
