#!/usr/bin/env python3
"""pages.py CHROMIUM [-k FOLDER] PAGE... - opens each page in headless Chromium at three widths, light and dark, and checks what a reader needs.

Nothing is wider than the screen, no text is smaller than 11 pixels or outside of its drawing, no two texts of a drawing overlap, one of
the two drawings of each chart is shown, anchors lead somewhere, the JSON can be read, nothing is logged, and the page opens
in a second of CPU time.
The checks run with all <details> closed, and again with them open. -k keeps screenshots. Speaks DevTools over a pipe: only Python's own
library is needed."""
import base64
import json
import os
import pathlib
import subprocess
import sys
import tempfile

WIDTHS, SCHEMES = (360, 768, 1400), ("light", "dark")

MEASURE = r"""(() => {
    const bad = [], most = 5;
    const say = text => { if (bad.length < most) bad.push(text); };
    const shown = e => e.checkVisibility() && e.getClientRects().length > 0;
    const named = e => e.tagName.toLowerCase() + (e.className && e.className.baseVal === undefined ? '.' + e.className : '');
    const root = document.documentElement;
    if (root.scrollWidth > root.clientWidth) say(`the page is ${root.scrollWidth} wide on a screen of ${root.clientWidth}`);
    for (const e of document.querySelectorAll('body, main, .card, .tile, .about, table, details, summary, pre, p, h1, h2, td, th, dd, nav'))
        if (shown(e)) {
            if (e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== 'inline') say(`${named(e)} is ${e.scrollWidth} wide in ${e.clientWidth}: ${e.textContent.slice(0, 40)}`);
            if (e.getBoundingClientRect().right > root.clientWidth + 1) say(`${named(e)} is cut at the right: ${e.textContent.slice(0, 40)}`);
        }
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    let smallest = 1e9;
    for (let node; (node = walker.nextNode());) {
        const e = node.parentElement;
        if (!node.textContent.trim() || ['SCRIPT', 'STYLE', 'title'].includes(e.tagName) || !shown(e)) continue;
        const svg = e.ownerSVGElement, scale = svg ? svg.getScreenCTM().a : 1;
        const size = parseFloat(getComputedStyle(e).fontSize) * scale;
        if (size < 10.995) say(`text of ${size.toFixed(1)} px: ${node.textContent.slice(0, 40)}`);
        smallest = Math.min(smallest, size);
    }
    let drawings = 0;
    for (const svg of document.querySelectorAll('svg')) {
        if (!shown(svg)) continue;
        drawings++;
        const box = svg.getBoundingClientRect(), texts = [...svg.querySelectorAll('text')].map(t => [t, t.getBoundingClientRect()]);
        for (const [t, b] of texts)
            if (b.left < box.left - 0.5 || b.right > box.right + 0.5 || b.top < box.top - 2 || b.bottom > box.bottom + 2)
                say(`a text is outside of its drawing: ${t.textContent}`);
        for (let i = 0; i < texts.length; i++)
            for (let k = i + 1; k < texts.length; k++) {
                const a = texts[i][1], b = texts[k][1];
                const across = Math.min(a.right, b.right) - Math.max(a.left, b.left), down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
                if (across > 1 && down > 0.35 * Math.min(a.height, b.height)) say(`two texts overlap: '${texts[i][0].textContent}' and '${texts[k][0].textContent}'`);
            }
    }
    for (const svg of document.querySelectorAll('svg.wide')) {
        const other = svg.nextElementSibling;
        if (!other || !other.classList.contains('narrow')) { say('a chart has one drawing'); continue; }
        if (shown(svg) + shown(other) !== 1 && svg.closest('details:not([open])') === null) say('not one of the two drawings is shown');
    }
    for (const a of document.querySelectorAll('a[href^="#"]')) if (!document.getElementById(a.hash.slice(1))) say(`${a.hash} leads nowhere`);
    if (document.querySelectorAll('h2').length > 3 && !document.querySelector('nav.contents a')) say('no list of contents');
    const answer = document.getElementById('answer');
    try { if (typeof JSON.parse(answer.textContent).ok !== 'boolean') say('the JSON does not say ok'); } catch (e) { say('no JSON that can be read'); }
    return {bad, smallest, drawings, height: root.scrollHeight};
})()"""


class Browser:
    def __init__(self, program):
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        self.profile = tempfile.TemporaryDirectory()

        def pipes():  # the browser reads from 3 and writes to 4
            os.dup2(theirs_in, 198), os.dup2(theirs_out, 199)
            os.dup2(198, 3), os.dup2(199, 4)

        options = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--hide-scrollbars", "--no-first-run",
                   "--disable-extensions", f"--user-data-dir={self.profile.name}", "about:blank"]
        self.process = subprocess.Popen([program, *options], close_fds=False, preexec_fn=pipes, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(theirs_in), os.close(theirs_out)
        self.to, self.of, self.rest, self.n = os.fdopen(ours_out, "wb", 0), ours_in, b"", 0
        self.events, self.session = [], None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(domain + ".enable")
        self.call("Performance.enable", timeDomain="threadTicks")

    def read(self):
        while b"\0" not in self.rest:
            piece = os.read(self.of, 1 << 20)
            if not piece:
                sys.exit("pages.py: the browser ended")
            self.rest += piece
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **params):
        self.n += 1
        message = {"id": self.n, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        self.to.write(json.dumps(message).encode() + b"\0")
        while True:
            got = self.read()
            if got.get("id") == self.n:
                if "error" in got:
                    sys.exit(f"pages.py: {method}: {got['error']}")
                return got["result"]
            self.events.append(got)

    def wait(self, method):
        while not any(e.get("method") == method for e in self.events):
            self.events.append(self.read())

    def open(self, page):
        """The seconds of CPU time that the page's thread takes until everything is laid out; elapsed time says more of a busy machine."""
        self.events = []
        self.call("Page.navigate", url=pathlib.Path(page).resolve().as_uri())
        self.wait("Page.loadEventFired")
        self.value("document.body.offsetHeight")
        return next(m["value"] for m in self.call("Performance.getMetrics")["metrics"] if m["name"] == "TaskDuration")

    def value(self, expression):
        got = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in got:
            sys.exit(f"pages.py: {got['exceptionDetails']['exception'].get('description')}")
        return got["result"].get("value")

    def logged(self):
        said = [e["params"]["entry"]["text"] for e in self.events if e.get("method") == "Log.entryAdded"]
        return said + [str(e["params"]) for e in self.events if e.get("method") in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown")]

    def close(self):
        self.call("Browser.close")
        self.process.wait(30)
        self.profile.cleanup()


def check(browser, page, keep):
    name, bad = os.path.basename(page), []
    browser.call("Emulation.setDeviceMetricsOverride", width=1400, height=900, deviceScaleFactor=1, mobile=False)
    seconds = min(browser.open(page) for _ in range(2))
    if seconds > 1.0:
        bad.append(f"{name}: opens in {seconds:.2f} s of CPU time")
    if os.path.getsize(page) >= 3 << 20:
        bad.append(f"{name}: {os.path.getsize(page)} bytes")
    smallest, drawings = 1e9, 0
    for opened in (False, True):
        if opened:  # of thousands of rows the first ones
            browser.value("[...document.querySelectorAll('details')].slice(0, 12).forEach(d => { d.open = true; })")
        for width in WIDTHS:
            for scheme in SCHEMES:
                browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
                browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
                got = browser.value(MEASURE)
                bad += [f"{name}, {width} px, {scheme}{', details open' if opened else ''}: {text}" for text in got["bad"]]
                smallest, drawings = min(smallest, got["smallest"]), max(drawings, got["drawings"])
                if keep and (not opened or scheme == "light"):
                    height = min(got["height"], 8000)
                    shot = browser.call("Page.captureScreenshot", captureBeyondViewport=True,
                                        clip={"x": 0, "y": 0, "width": width, "height": height, "scale": 1})
                    to = f"{name.removesuffix('.html')}-{width}-{scheme}{'-open' if opened else ''}.png"
                    pathlib.Path(keep, to).write_bytes(base64.b64decode(shot["data"]))
    bad += [f"{name}: logged: {text}" for text in browser.logged()]
    print(f"{name}: {len(bad)} faults; {drawings} drawings, smallest text {smallest:.1f} px, opens in {seconds:.2f} s of CPU time, "
          f"{os.path.getsize(page):,} bytes", file=sys.stderr)
    return bad


def main():
    arguments, keep = sys.argv[1:], None
    if len(arguments) > 2 and arguments[1] == "-k":
        keep = arguments[2]
        del arguments[1:3]
    if len(arguments) < 2:
        sys.exit(__doc__)
    browser, bad = Browser(arguments[0]), []
    for page in arguments[1:]:
        bad += check(browser, page, keep)
    browser.close()
    print("\n".join(bad), end="\n" if bad else "")
    sys.exit(1 if bad else 0)


main()
