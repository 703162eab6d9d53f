/* bert_splits.h - how BERT's tokenizers split a text: tokenizer.json's BertPreTokenizer, and what GGUF's kind "bert" means. */
#ifndef APR_FORMATS_BERT_SPLITS_H
#define APR_FORMATS_BERT_SPLITS_H

#include "formats/vocab/vocab.h"

/* Words, then single punctuation characters. The second split is also tokenizer.json's step Punctuation. */
enum { APR_N_BERT_SPLITS = 2 };
extern const apr_split apr_bert_splits[APR_N_BERT_SPLITS];

#endif
