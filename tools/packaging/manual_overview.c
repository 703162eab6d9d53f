/* manual_overview.c - the pages of section 7: aprkit and aprkit-words. */
#include "formats/number/dtype.h"
#include "kernels/rows.h"
#include "quant/recipe.h"
#include "tools/cli/foreign_help.h"
#include "tools/packaging/manual.h"
#include "tools/packaging/mdoc.h"

#include <string.h>

/* --- aprkit(7) --- */

static void put_tools(FILE *out, const apr_tool *const *toolkit)
{
    fprintf(out, ".Sh DESCRIPTION\n");
    apr_mdoc_text(out, "aprkit is four tools for the weights of language models, which share their options, numbers and exit codes:");
    fprintf(out, ".Bl -tag -width Ds\n");
    for (; *toolkit != NULL; toolkit++) {
        fprintf(out, ".It Xr %s 1\n", (*toolkit)->name);
        apr_mdoc_sentence(out, (*toolkit)->summary);
    }
    fprintf(out, ".El\n");
    fprintf(out, ".Ss Models\n");
    apr_mdoc_text(
        out, "A model is a GGUF file (the first, if it is split), an APR file, the folder of a checkpoint as Hugging Face publishes it "
             "(config.json, .safetensors or .bin files, the tokenizer), or ORG/NAME. ORG/NAME[@REVISION][:TAG] is looked up in the cache "
             "of Hugging Face's tools; TAG chooses one of several GGUF files, as in :Q4_K_M. Nothing is downloaded.");
    apr_mdoc_text(out,
                  "What is read is recognised by its content. What is written is decided by its name: .gguf, .apr, or a folder with / at "
                  "the end.");
}

/* How a type is stored, for people. */
static const char *kind_of(const apr_dtype_facts *d)
{
    static const char *const kinds[] = {[APR_CLASS_FLOAT] = "float",
                                        [APR_CLASS_INTEGER] = "integer",
                                        [APR_CLASS_OTHER] = "other",
                                        [APR_CLASS_EXPONENT] = "scale",
                                        [APR_CLASS_MINIFLOAT] = "float, with scales",
                                        [APR_CLASS_BLOCK] = "blocks with scales"};
    return kinds[d->class_of];
}

static void put_types(FILE *out)
{
    fprintf(out, ".Ss Types\n");
    apr_mdoc_text(out,
                  "A type says how the numbers of a tensor are stored. Its bits per weight include the scales that are inside its blocks. "
                  "Types that cannot be written are read, and copied.");
    fprintf(out, ".Bl -column \"f8_e5m2xx\" \"10.5000\" \"cannot be\" \"blocks with scales\"\n");
    fprintf(out, ".It Em type Ta Em bits Ta Em written Ta Em stored as\n");
    for (int d = 0; d < APR_DTYPE_COUNT; d++)
        if (apr_dtype_is_weights((apr_dtype)d))
            fprintf(out, ".It %s Ta %.4g Ta %s Ta %s\n", apr_dtypes[d].name, apr_dtype_bits((apr_dtype)d),
                    apr_can_encode((apr_dtype)d) ? "yes" : "no", kind_of(&apr_dtypes[d]));
    fprintf(out, ".El\n.Ss Mixtures\n");
    apr_mdoc_text(out,
                  "A mixture gives each tensor a type by what it is for. These are the names that aprquant takes as TYPE; a type alone is "
                  "also a mixture, because embeddings, heads and vectors often keep more bits. V and down are the value matrices of "
                  "attention and the last matrices of feed-forward blocks.");
    fprintf(out, ".Bl -tag -width Ds -compact\n");
    for (const apr_mixture_name *m = apr_mixture_names; m->name != NULL; m++) {
        fprintf(out, ".It %s\n", m->name);
        apr_mdoc_sentence(out, m->about);
    }
    fprintf(out, ".El\n");
}

static void put_numbers(FILE *out)
{
    fprintf(out, ".Ss Numbers and sizes\n");
    apr_mdoc_text(out, "Whole numbers may have commas between groups of three digits, as in 131,072, and k for 1024, as in 128k.");
    apr_mdoc_text(
        out, "Sizes are bytes. K, M, G and T (also KiB, MiB, GiB and TiB) are powers of 1024; KB, MB, GB and TB are powers of 1000. 1.5G "
             "and 512M are sizes.");
    apr_mdoc_text(out, "Options are written --name VALUE or --name=VALUE, short ones -n VALUE or -n4. An option that is on by default is "
                       "turned off with --no-name. If an option is given twice, the last one wins.");
    apr_mdoc_text(out, "Options of other programs, such as llama.cpp's -ngl, are understood where aprkit has the same:");
    fprintf(out, "see\n.Xr aprkit-words 7 .\n");
    fprintf(out, ".Ss Output\n");
    apr_mdoc_text(
        out,
        "With --json a command prints one JSON object on stdout, also when it fails: \"ok\", \"status\", \"exit\" and \"error\" say how it "
        "ended. Progress and notes go to stderr. A failure is one sentence on stderr: the file, the tensor, the byte, and what "
        "to do.");
    apr_mdoc_text(out,
                  "An output gets its name when it is complete. A command that fails or is stopped leaves no output, and never changes a "
                  "file that it did not make.");
}

static void put_environment(FILE *out)
{
    static const struct {
        const char *name, *meaning;
    } variables[] = {
        {"HF_HUB_CACHE", "the folder of Hugging Face's cache, in which ORG/NAME is looked up; also HUGGINGFACE_HUB_CACHE"},
        {"HF_HOME", "the folder whose hub/ is that cache, if neither of these is set"},
        {"XDG_CACHE_HOME", "the folder of caches, instead of ~/.cache"},
        {"COLUMNS", "the width of tables, if the terminal does not state one"},
        {"NO_COLOR", "if it is set and not empty, no colors are used"},
        {"OMP_NUM_THREADS", "the number of threads, where --threads is not given"},
    };
    fprintf(out, ".Sh ENVIRONMENT\n.Bl -tag -width Ds\n");
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        fprintf(out, ".It Ev %s\n", variables[i].name);
        apr_mdoc_sentence(out, variables[i].meaning);
    }
    fprintf(out, ".El\n");
}

static void put_files(FILE *out)
{
    static const struct {
        const char *path, *meaning;
    } files[] = {
        {"OUT.part", "an output that is being written; it is removed when the command ends, and locked until then"},
        {"OUT.resume", "finished work of a run with --resume or --part; the same command continues from it, and removes it at the end"},
        {"~/.cache/huggingface/hub", "Hugging Face's cache, which is only read"},
        {"~/.cache/aprkit", "what aprrun has found out about the GPUs here, a small file for each"},
    };
    fprintf(out, ".Sh FILES\n.Bl -tag -width Ds\n");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        fprintf(out, ".It Pa ");
        apr_mdoc_argument(out, files[i].path);
        putc('\n', out);
        apr_mdoc_sentence(out, files[i].meaning);
    }
    fprintf(out, ".El\n");
}

void apr_manual_overview(FILE *out, const apr_tool *const *toolkit, const char *date)
{
    apr_mdoc_start(out, "aprkit", "7", date, "convert, quantize, plan, run and check the weights of language models");
    put_tools(out, toolkit);
    put_types(out);
    put_numbers(out);
    put_environment(out);
    put_files(out);
    apr_manual_exit_codes(out);
    apr_manual_see_also(out, toolkit, NULL, "aprkit");
}

/* --- aprkit-words(7) --- */

static void put_word(FILE *out, const apr_foreign_word *w)
{
    char text[2048];

    fprintf(out, ".It ");
    apr_mdoc_argument(out, apr_foreign_spellings(w, text, sizeof text));
    putc('\n', out);
    apr_mdoc_sentence(out, apr_foreign_meaning(w, text, sizeof text));
    if (w->verbs == NULL) return;
    snprintf(text, sizeof text, "Only %s%s.", strcmp(w->verbs, "-") == 0 ? "without a verb" : "with the verbs ",
             strcmp(w->verbs, "-") == 0 ? "" : w->verbs);
    apr_mdoc_text(out, text);
}

static void put_words_of(FILE *out, const apr_tool *tool)
{
    fprintf(out, ".Ss %s\n.Bl -tag -width Ds\n", tool != NULL ? tool->name : "Every tool");
    for (const apr_foreign_word *w = apr_foreign_words; w->spellings != NULL; w++)
        if (tool == NULL ? w->tools[0] == '*' : w->tools[0] != '*' && apr_foreign_is_of(w, tool)) put_word(out, w);
    fprintf(out, ".El\n");
}

void apr_manual_words(FILE *out, const apr_tool *const *toolkit, const char *date)
{
    apr_mdoc_start(out, "aprkit-words", "7", date, "options and verbs of other programs that aprkit's tools understand");
    fprintf(out, ".Sh DESCRIPTION\n");
    apr_mdoc_text(
        out, "People know llama.cpp, Ollama, vLLM and Hugging Face's tools. What they type from habit is translated, or refused with a "
             "sentence that names what does it. X is the value of an option.");
    apr_mdoc_text(out,
                  "A row applies to a command that has the option which it names. A translation that could surprise is told in a note on "
                  "stderr. The first row that applies is used, and the tool's own options come before all of them.");
    put_words_of(out, NULL);
    for (const apr_tool *const *t = toolkit; *t != NULL; t++) put_words_of(out, *t);
    apr_manual_see_also(out, toolkit, NULL, "aprkit-words");
}
