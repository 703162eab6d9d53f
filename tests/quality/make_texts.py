#!/usr/bin/env python3
"""make_texts.py OUT_DIR [DEBS_DIR] - the texts by which quantizers are calibrated and judged, from Debian's packages.

Into OUT_DIR:
  calibration.txt  3 MB, about a million tokens of the bundled model: verses of the King James Bible (bible-kjv-text; public
                   domain) and manual pages of sections 2 and 3 (manpages-dev; free licences, one a page) by turns, so that every
                   part of it is mixed
  heldout2.txt     32 kB of another kind, The Devil's Dictionary of 1911 (dict-devil; public domain): every twelfth entry
Neither shares a line of four words or more, or eight words in a row, with tests/data/heldout.txt or with the other: whatever
does is left out, and the result is checked again as a whole.

Packages are taken from DEBS_DIR (default: OUT_DIR/debs), and brought there by `apt-get download` if they are missing; nothing is
installed. Needs groff (Debian: groff-base) and x86-64, for the program that unpacks the verses. The same versions give the same
bytes: the sums below are those of Debian 12.
"""
import glob, gzip, hashlib, os, re, subprocess, sys

HELD_OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "heldout.txt")
PACKAGES = {"bible-kjv": "4.38", "bible-kjv-text": "4.38", "manpages-dev": "6.03-2", "dict-devil": "1.0-13.1"}
SUMS = {"calibration.txt": "8bede7f930b1e0f48cf828ea92a2600c717b861aa5be41045dfb10789a887df6",
        "heldout2.txt": "c0203cec381e8d21a1b1ec94a377ae85414aeb53c97bc94bde0885e5eae757a1"}
HALF = 1_500_000  # bytes of the Bible, and of manual pages
VERSES, PAGE_BYTES = 40, 6000  # of a turn
ENTRIES = 12  # one of so many
GRAM = 8


def fail(sentence, status=3):
    sys.exit(print("make_texts:", sentence, file=sys.stderr) or status)


def unpack(debs):
    """{package: folder of its files}"""
    folders = {}
    os.makedirs(debs, exist_ok=True)
    for name, version in PACKAGES.items():
        found = glob.glob(os.path.join(debs, f"{name}_*.deb"))
        if not found:
            for wanted in (f"{name}={version}", name):
                done = subprocess.run(["apt-get", "download", "-qq", wanted], cwd=debs, stderr=subprocess.DEVNULL)
                if done.returncode == 0: break
            found = glob.glob(os.path.join(debs, f"{name}_*.deb"))
        if not found: fail(f"package {name} is not in {debs}, and apt-get cannot download it: put {name}_{version}_*.deb there")
        if f"_{version}_" not in found[0]: print(f"make_texts: {found[0]} is not version {version}: other texts", file=sys.stderr)
        folders[name] = os.path.join(debs, name)
        if not os.path.isdir(folders[name]): subprocess.run(["dpkg-deb", "-x", found[0], folders[name]], check=True)
    return folders


def verses(folders):
    program = os.path.join(folders["bible-kjv"], "usr/bin/bible")
    data = os.path.abspath(os.path.join(folders["bible-kjv-text"], "usr/lib"))
    out = subprocess.run([program, "-p", data, "-f", "Gen1:1-Rev22:21"], capture_output=True, text=True).stdout
    lines = [l for l in out.splitlines() if re.match(r"\w+\d+:\d+ ", l)]
    if len(lines) < 31000: fail(f"{program} printed {len(lines)} verses, not 31102")
    return lines


def page(path):
    """A manual page as a terminal of 90 columns shows it, its indentation cut to two blanks."""
    source = gzip.open(path, "rb").read()
    if source.startswith(b".so "): return ""  # another name of a page
    groff = ["groff", "-t", "-man", "-Tascii", "-P-cbou", "-rLL=90n"]
    out = subprocess.run(groff, input=source, capture_output=True, env={"PATH": os.environ["PATH"], "LC_ALL": "C"}).stdout.decode("ascii", "replace")
    text = re.sub(r" {3,}", "  ", out)
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n")[:PAGE_BYTES].rsplit("\n", 1)[0]


def pages(folders):
    paths = sorted(glob.glob(os.path.join(folders["manpages-dev"], "usr/share/man/man[23]/*.gz")))
    paths.sort(key=lambda p: hashlib.sha256(os.path.basename(p).encode()).digest())  # no order of names, but always the same
    return filter(None, map(page, paths))


def entries(folders):
    text = gzip.open(os.path.join(folders["dict-devil"], "usr/share/dictd/devil.dict.dz"), "rb").read().decode("latin-1")
    text = text[text.index("ABASEMENT, n."):]
    return re.split(r"\n\n(?=[A-Z][A-Z' -]+(?:,|\.\n))", text)


def words(text):
    return re.findall(r"[a-z0-9_]+", text.lower())


def grams(text):
    w = words(text)
    return {tuple(w[i:i + GRAM]) for i in range(len(w) - GRAM + 1)}


class Others:
    """What a text may not share: lines and runs of words of other texts."""
    def __init__(self, *texts):
        self.lines = {l.strip() for t in texts for l in t.splitlines() if len(l.split()) >= 4}
        self.grams = set().union(*map(grams, texts))

    def shared(self, text):
        return self.lines & {l.strip() for l in text.splitlines()} or self.grams & grams(text)


def taken(pieces, others, most):
    """Pieces that share nothing with others, until there are `most` bytes."""
    n = 0
    for p in pieces:
        if n >= most: return
        if others.shared(p): continue
        n += len(p)
        yield p


def calibration(folders, others):
    """Every third chunk of verses through the whole Bible, and pages, by turns."""
    every = verses(folders)
    chunks = [every[i:i + VERSES] for i in range(0, len(every), VERSES)]
    step = -(-sum(map(len, every)) // HALF)
    chosen = ("\n".join(v for v in c if not others.shared(v)) for c in chunks[::step])
    manual = taken(pages(folders), others, HALF)
    while True:
        turn = [next(chosen, None), next(manual, None)]
        if turn == [None, None]: return
        yield from filter(None, turn)


def write(folder, name, text):
    data = text.encode()
    total = hashlib.sha256(data).hexdigest()
    with open(os.path.join(folder, name + ".part"), "wb") as f: f.write(data)
    os.replace(os.path.join(folder, name + ".part"), os.path.join(folder, name))
    same = "as recorded" if total == SUMS[name] else "NOT as recorded: other versions of packages or of groff"
    print(f"{name}: {len(data)} bytes, {len(words(text))} words, sha256 {total[:16]}, {same}")


def main(out, debs=None):
    os.makedirs(out, exist_ok=True)
    folders = unpack(debs or os.path.join(out, "debs"))
    held = open(HELD_OUT).read()
    second = "\n\n".join(list(taken(entries(folders)[::ENTRIES], Others(held), 32_000))) + "\n"
    others = Others(held, second)
    text = "\n\n".join(calibration(folders, others)) + "\n"
    for name, one, against in (("calibration.txt", text, others), ("heldout2.txt", second, Others(held))):
        if against.shared(one): fail(f"{name} shares with a held-out text: {sorted(against.shared(one))[:3]}", 1)
    write(out, "calibration.txt", text)
    write(out, "heldout2.txt", second)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3) or sys.argv[1].startswith("-"): fail("usage: make_texts.py OUT_DIR [DEBS_DIR]", 2)
    main(*sys.argv[1:])
