/* verify_texts.c - the built-in text, strings and prompts. */
#include "runtime/check/verify/verify_texts.h"

/* The opening of Genesis and of Ecclesiastes 3 (King James Bible, 1611), of Pride and Prejudice (Austen, 1813), of A Tale of Two
 * Cities (Dickens, 1859), Sonnet 18 (Shakespeare, 1609), and a few lines in the manner of a manual page. */
const char apr_verify_text[] =
    "In the beginning God created the heaven and the earth. And the earth was without form, and void; and darkness was upon the face of "
    "the "
    "deep. And the Spirit of God moved upon the face of the waters. And God said, Let there be light: and there was light. And God saw the "
    "light, that it was good: and God divided the light from the darkness. And God called the light Day, and the darkness he called Night. "
    "And the evening and the morning were the first day.\n"
    "\n"
    "It is a truth universally acknowledged, that a single man in possession of a good fortune, must be in want of a wife. However little "
    "known the feelings or views of such a man may be on his first entering a neighbourhood, this truth is so well fixed in the minds of "
    "the "
    "surrounding families, that he is considered the rightful property of some one or other of their daughters.\n"
    "\n"
    "Shall I compare thee to a summer's day?\n"
    "Thou art more lovely and more temperate:\n"
    "Rough winds do shake the darling buds of May,\n"
    "And summer's lease hath all too short a date:\n"
    "Sometime too hot the eye of heaven shines,\n"
    "And often is his gold complexion dimm'd;\n"
    "And every fair from fair sometime declines,\n"
    "By chance, or nature's changing course, untrimm'd;\n"
    "\n"
    "To every thing there is a season, and a time to every purpose under the heaven: A time to be born, and a time to die; a time to "
    "plant, "
    "and a time to pluck up that which is planted; A time to kill, and a time to heal; a time to break down, and a time to build up; A "
    "time "
    "to weep, and a time to laugh; a time to mourn, and a time to dance.\n"
    "\n"
    "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of foolishness, it was the epoch of "
    "belief, it was the epoch of incredulity, it was the season of Light, it was the season of Darkness, it was the spring of hope, it was "
    "the winter of despair, we had everything before us, we had nothing before us, we were all going direct to Heaven, we were all going "
    "direct the other way.\n"
    "\n"
    "RETURN VALUE\n"
    "    On success, zero is returned. On error, -1 is returned, and errno is set to indicate the error.\n"
    "\n"
    "    for (i = 0; i < 10; i++) {\n"
    "        total += price[i] * 1.25;\n"
    "    }\n"
    "    printf" /* split so that a search for printf calls in the library does not match this text */
    "(\"%d items, %.2f in total\\n\", 10, total);\n";

const apr_hard_string apr_hard_strings[] = {
    {"nothing", ""},
    {"a space", " "},
    {"many spaces", "a  b   c    d        e                e"},
    {"spaces at the ends", "   in the middle   "},
    {"tabs and line ends", "a\tb\t\tc\nd\n\ne\r\nf\n\n\n\n g\n  \n h"},
    {"contractions", "I'm you're he'll they've I'd it's DON'T WE'LL o'clock ''twas'"},
    {"digits", "0 12 345 6789 1234567890 3.14159 1,000,000 0x7fff 2026-11-21 1e-05"},
    {"punctuation", "...!!!?!?---___***///\\\\\\ (a[b]{c}<d>) \"'`~@#$%^&*+=|;:,."},
    {"code", "for(int i=0;i<n;++i){a[i]+=b->c.d(&e,*f);} // g\n\treturn x?y:z;"},
    {"an address", "https://user@example.org:8080/a/b_c-d.html?q=1&r=%20#top"},
    {"capitals", "HELLO Hello hElLo iPhone McDonald's NASA's XMLHttpRequest"},
    {"accents, composed", "Caf\u00e9 na\u00efve \u00c5ngstr\u00f6m \u0110\u00e0 N\u1eb5ng stra\u00dfe"},
    {"accents, decomposed", "Cafe\u0301 nai\u0308ve A\u030angstro\u0308m"},
    {"ligatures and widths", "\ufb01ne \uff28\uff45\uff4c\uff4c\uff4f \u00b2 \u2460 \u212b"},
    {"Chinese", "\u4e2d\u6587\u5206\u8bcd\uff0c\u6ca1\u6709\u7a7a\u683c\u3002\u7b2c12\u9875\u3002"},
    {"Japanese", "\u65e5\u672c\u8a9e\u3068\u30ab\u30bf\u30ab\u30ca\u3001\u3072\u3089\u304c\u306a\u3002"},
    {"Korean", "\ud55c\uad6d\uc5b4 \ubb38\uc7a5\uc785\ub2c8\ub2e4."},
    {"Arabic", "\u0627\u0644\u0633\u0644\u0627\u0645 \u0639\u0644\u064a\u0643\u0645 \u0661\u0662\u0663"},
    {"Hebrew with points", "\u05e9\u05c1\u05b8\u05dc\u05d5\u05b9\u05dd"},
    {"Hindi", "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e"},
    {"Thai", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01"},
    {"Russian and Greek", "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u039a\u03b1\u03bb\u03b7\u03bc\u03ad\u03c1\u03b1."},
    {"emoji",
     "\U0001f600\U0001f44d\U0001f3fd \U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \U0001f1e9\U0001f1ea \u2764\ufe0f"},
    {"invisible characters", "zero\u200bwidth soft\u00adhyphen no\u00a0break \u2028line \ufeffmark \u202eright"},
    {"outside the plane", "\U00010348 \U0001d49c\U0001d4b7 \U00020000 \U000e0041"},
    {"one letter many times", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"},
    {"control tokens as text", "<|im_start|>user\nhi<|im_end|> <|endoftext|> <s> </s> <|begin_of_text|> [INST] <think>"},
    {"almost control tokens", "<|im_start |> <|im_end> |im_end|> < s> <\u200b/s>"},
    {"byte tokens as text", "<0x0A> <0xFF> \\u0041 \\n %0A &amp;"},
    {"SentencePiece's space", "\u2581a \u2581\u2581b \u0120c \u010a"},
};
const size_t apr_n_hard_strings = sizeof apr_hard_strings / sizeof *apr_hard_strings;

const char *const apr_verify_prompts[] = {
    "In the beginning",
    "The capital of France is",
    "Recite Ge1:1",
    "Write a haiku about the sea.",
};
const size_t apr_n_verify_prompts = sizeof apr_verify_prompts / sizeof *apr_verify_prompts;
