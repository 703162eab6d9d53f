"""Runs a tool and says what of its answer breaks a promise."""
import json, os, re, signal, subprocess, time

CONTROL = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]")
SANITIZER = re.compile(rb"Sanitizer|runtime error:")


class Answer:
    def __init__(self, code, out, err, seconds, argv):
        self.code, self.out, self.err, self.seconds, self.argv = code, out, err, seconds, argv
        self.faults = []

    def json(self):
        try:
            return json.loads(self.out)
        except ValueError:
            return None


def run(argv, cwd, env=None, limit=10, stdin=None, prints_text=False, injected=False):
    """The answer of a command line, with the faults that can be seen from it alone."""
    began = time.monotonic()
    process = subprocess.Popen(argv, cwd=cwd, env=env, stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    try:
        out, err = process.communicate(stdin, timeout=limit)
        code = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        code = "time"
    a = Answer(code, out, err, time.monotonic() - began, argv)
    if code == "time":
        a.faults.append("time: not done after %d s" % limit)
        return a
    if code < 0:
        a.faults.append("signal: %d" % -code)
    elif code > 7:
        a.faults.append("exit: %d" % code)
    if SANITIZER.search(err):
        a.faults.append("sanitizer: " + next(l for l in err.decode("utf-8", "replace").splitlines() if "Sanitizer" in l or "runtime error" in l)[:200])
    if CONTROL.search(err):
        a.faults.append("control: raw control characters on stderr")
    try:
        err.decode()
    except UnicodeDecodeError:
        a.faults.append("control: stderr is not UTF-8")
    as_json = "--json" in argv
    if not prints_text or as_json:
        if CONTROL.search(out):
            a.faults.append("control: raw control characters on stdout")
        try:
            out.decode()
        except UnicodeDecodeError:
            a.faults.append("control: stdout is not UTF-8")
    if as_json and not a.faults:
        try:
            document = json.loads(out, parse_constant=lambda c: (_ for _ in ()).throw(ValueError(c)))
            if document.get("exit") != code:
                a.faults.append("json: says exit %s, ended with %s" % (document.get("exit"), code))
        except ValueError as why:
            if not injected or out:
                a.faults.append("json: not one JSON document: %s" % why)
    tool = os.path.basename(argv[0]).encode()
    lines = err.splitlines()
    if isinstance(code, int) and code >= 2 and not as_json and not injected:
        said = [l for l in lines if l.startswith(tool + b": ") and not l.startswith(tool + b": warning")]
        if len(said) != 1:
            a.faults.append("sentence: %d sentences on stderr for exit %d" % (len(said), code))
        elif len(said[0]) > 2000:
            a.faults.append("sentence: %d bytes long" % len(said[0]))
    if code == 0 and injected is False and any(l.startswith(tool + b": ") and b"arning" not in l for l in lines) and b"note" not in err:
        pass
    return a


def size_of(path):
    if os.path.isdir(path):
        return sum(size_of(os.path.join(path, n)) for n in os.listdir(path))
    return os.lstat(path).st_size
