"""local_page_test.py MODULE_FOLDER SOURCE_FOLDER: the page that runs models in the tab, in headless Chromium: a model
that is picked, one that is downloaded in spite of a closed tab, a server without headers, and no server at all.

With the environment variable PICTURES, a folder, it leaves pictures of the page there.
"""

import hashlib
import http.server
import os
import pathlib
import re
import shutil
import sys
import tempfile
import threading
import time

from browser import Browser, Server, serve

PART = 64 * 1024  # bytes that the server of models sends at once

TEXT_OF_ANSWERS = """return [...document.querySelectorAll('article[data-role=assistant] .body')]
    .map((body) => body.textContent).join('|')"""
NOTICE = "return document.getElementById('notice').textContent"
HAS_ENDED = "return document.querySelector('.again') !== null && document.getElementById('stop').hidden"


class Models(http.server.BaseHTTPRequestHandler):
    """Sends parts of a model, as far as `gate` lets it; notes the requests."""

    protocol_version = "HTTP/1.1"
    data = b""
    ranges = []
    sent = 0
    limit = None  # bytes after which it waits for `gate`
    gate = threading.Event()
    version = '"one"'  # or None

    def do_GET(self):
        first, last = (int(number) for number in re.match(r"bytes=(\d+)-(\d+)", self.headers["Range"]).groups())
        type(self).ranges.append(first)
        body = self.data[first:last + 1]
        self.send_response(206)
        for name, value in {"Access-Control-Allow-Origin": "*", "Cross-Origin-Resource-Policy": "cross-origin",
                            "Access-Control-Expose-Headers": "Content-Range, ETag", "ETag": self.version,
                            "Content-Range": f"bytes {first}-{first + len(body) - 1}/{len(self.data)}",
                            "Content-Length": str(len(body))}.items():
            if value is not None:
                self.send_header(name, value)
        self.end_headers()
        try:
            for at in range(0, len(body), PART):
                if self.limit is not None and first + at >= self.limit:
                    self.gate.wait(60)
                self.wfile.write(body[at:at + PART])
                type(self).sent += len(body[at:at + PART])
        except OSError:
            self.close_connection = True  # the tab was closed

    def log_message(self, *arguments):
        pass


def luminance(color):
    parts = [int(float(number)) / 255 for number in re.findall(r"[\d.]+", color)[:3]]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrasts(browser):
    """The contrast of each shown element that has text of its own."""
    pairs = browser.run("""
        const shown = [...document.querySelectorAll('body *')].filter((node) => node.offsetParent !== null &&
            [...node.childNodes].some((child) => child.nodeType === Node.TEXT_NODE && child.data.trim() !== ''));
        return shown.map((node) => {
          let ground = node;
          while (ground && getComputedStyle(ground).backgroundColor.endsWith(', 0)')) ground = ground.parentElement;
          return [getComputedStyle(node).color, getComputedStyle(ground).backgroundColor, node.outerHTML.slice(0, 80)];
        });""")
    assert len(pairs) > 5, pairs
    for text, ground, node in pairs:
        dark, light = sorted((luminance(text), luminance(ground)))
        yield (light + 0.05) / (dark + 0.05), node


def unnamed_controls(browser):
    """Shown controls that a screen reader has no name for."""
    controls = {"using": "css selector", "value": "button, input, textarea, summary, progress"}
    nodes = browser.send("POST", "/elements", controls)
    paths = ["/element/" + next(iter(node.values())) for node in nodes]
    return [browser.send("GET", path + "/name") for path in paths if browser.send("GET", path + "/displayed")
            and not browser.send("GET", path + "/computedlabel")]


def take_pictures(browser, name):
    """The page in both schemes, on a desk and on a phone: nothing leaves the screen, all text can be read."""
    for width, height in ((1200, 800), (320, 640)):
        browser.command("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                        mobile=width < 500)
        for scheme in ("light", "dark"):
            browser.command("Emulation.setEmulatedMedia",
                            features=[{"name": "prefers-color-scheme", "value": scheme}])
            assert browser.run("return document.documentElement.scrollWidth") <= width, name
            for contrast, node in contrasts(browser):
                assert contrast >= 4.5, (name, scheme, node, contrast)
            ground = browser.run("return getComputedStyle(document.body).backgroundColor")
            assert (luminance(ground) < 0.2) == (scheme == "dark"), ground
            if folder := os.environ.get("PICTURES"):
                browser.picture(pathlib.Path(folder) / f"{name}-{width}-{scheme}.png")
    browser.command("Emulation.clearDeviceMetricsOverride")


def ask(browser, text):
    browser.type("#message", text)
    browser.click("#send")
    browser.wait(HAS_ENDED)
    return browser.run(TEXT_OF_ANSWERS)


def set_value(browser, name, value):
    browser.run("document.getElementById(arguments[0]).value = arguments[1]", name, value)


def picks_a_model(browser, url, model):
    browser.open(f"{url}/index.html")
    browser.wait("return document.querySelector('#beginning') !== null && crossOriginIsolated")
    browser.type("#message", "Too early\ue007")
    assert "Open a model first" in browser.wait("return document.getElementById('notice').textContent")
    assert unnamed_controls(browser) == []
    take_pictures(browser, "beginning")
    browser.run("document.getElementById('message').value = ''")
    set_value(browser, "context", "1024")
    set_value(browser, "threads", "2")
    browser.type("#file", model)
    browser.wait("return !document.getElementById('close').hidden")
    assert "gemma4, Q4_K_M, 9 MB" in browser.text()
    assert model.name in browser.text()
    set_value(browser, "temperature", "0")
    set_value(browser, "max-tokens", "40")
    first = ask(browser, "Why did **Prince Andrew** leave?")
    assert len(first) > 20, first
    counts = browser.run("return document.querySelector('article .counts').textContent")
    assert re.fullmatch(r"[\d.]+ tokens per second, prompt of \d+ tokens in [\d.]+ s, \d+ of them from the cache, "
                        r"\d+ MB of memory", counts), counts
    browser.click(".again button")
    browser.wait(HAS_ENDED)
    assert browser.run(TEXT_OF_ANSWERS) == first, "asked again, a model without temperature says the same"
    assert unnamed_controls(browser) == []
    take_pictures(browser, "answer")
    set_value(browser, "max-tokens", "900")
    browser.type("#message", "And then?\ue007")
    browser.wait("return document.querySelectorAll('article[data-role=assistant] .body')[1]?.textContent.length > 10")
    browser.type("#message", "\ue00c")  # Escape
    browser.wait(HAS_ENDED)
    said = browser.run(TEXT_OF_ANSWERS)
    assert 10 < len(said.split("|")[1]) < 3000, said
    foreign = browser.run("return performance.getEntriesByType('resource').map(({name}) => name)"
                          ".filter((name) => !name.startsWith(location.origin))")
    assert foreign == [], foreign
    browser.click("#close")
    browser.wait("return !document.getElementById('beginning').hidden")
    browser.run("document.querySelector('.again button').click()")
    assert "Open a model first" in browser.run(NOTICE)
    assert browser.run(TEXT_OF_ANSWERS) == said, "an answer was removed without a model that gives another one"
    keys = browser.run("return Object.keys(sessionStorage)")
    assert "local chat" in keys and "chat" not in keys, keys  # "chat" is that of the server's own page
    return first


def refuses_a_file(browser, source):
    browser.type("#file", source / "README.md")
    assert "gguf.bad_magic" in browser.wait(
        "const text = document.getElementById('notice').textContent; return text.includes('[') && text")


def tells_errors(browser, url):
    """A model whose file is gone."""
    folder = ("const root = await navigator.storage.getDirectory();"
              "const folder = await root.getDirectoryHandle('rullama-models', {create: true});")
    browser.run("return (async () => {" + folder + """
        const file = await (await folder.getFileHandle('gone.json', {create: true})).createWritable();
        await file.write(JSON.stringify({url: 'http://127.0.0.1/gone.gguf', size: 1, complete: true}));
        await file.close();
        })()""")
    browser.open(f"{url}/index.html")
    browser.wait("return document.querySelector('#stored li') !== null")
    browser.click("#stored li button")  # Open
    assert "[io.open]" in browser.wait(NOTICE)
    browser.run("return (async () => {" + folder + "await folder.removeEntry('gone.json'); })()")
    browser.open(f"{url}/index.html")


def start_download(browser, address, digest):
    set_value(browser, "url", address)
    set_value(browser, "digest", digest)
    browser.run("document.getElementById('fetch').requestSubmit()")


def start_half(browser, address, data):
    """A download that stops in the middle, until Models.gate is set."""
    Models.ranges, Models.sent, Models.gate = [], 0, threading.Event()
    Models.data, Models.limit = data, len(data) // 2
    start_download(browser, address, hashlib.sha256(data).hexdigest())
    browser.wait("return document.getElementById('progress').value > 0.3")


def downloads_a_model(browser, url, models, data):
    """In two parts, between which the tab is closed."""
    start_half(browser, f"{models.url}/some/tiny.gguf", data)
    assert unnamed_controls(browser) == []
    take_pictures(browser, "download")
    browser.move_to_new_tab()
    browser.open(f"{url}/index.html")
    stored = "return document.getElementById('stored').innerText"
    assert re.search(r"tiny\.gguf, \d+ MB of 9 MB", browser.wait(stored)), browser.text()
    Models.gate.set()
    browser.click("#stored li button")  # Continue
    browser.wait("return document.getElementById('stored').innerText.includes('Open')")
    assert Models.ranges[0] == 0 and 0 < Models.ranges[1] < len(data), Models.ranges
    assert Models.sent < 1.4 * len(data), Models.sent
    # A file with another sum is not kept.
    start_download(browser, f"{models.url}/other.gguf", "0" * 64)
    assert "pull.digest" in browser.wait(
        "const text = document.getElementById('notice').textContent; return text.includes('[') && text")
    browser.wait("return document.getElementById('stored').innerText.includes('other.gguf, 0 MB')")
    browser.click("#stored li:first-child button:last-child")
    browser.wait("return document.querySelectorAll('#stored li').length === 1")
    assert browser.run("return document.activeElement.closest('#stored li') !== null"), "the focus is lost"


def downloads_a_changed_model(browser, models, data):
    """The server has another file when the download continues after a pause: it begins again."""
    start_half(browser, f"{models.url}/changed.gguf", data)
    browser.click("#pause")
    browser.wait("return document.getElementById('stored').innerText.includes('changed.gguf, ')")
    assert "is not complete" in browser.run(NOTICE)
    assert browser.run("return document.activeElement.id") == "url", "the focus is lost"
    Models.version = '"two"'
    Models.gate.set()
    browser.click("#stored li:first-child button")  # Continue
    browser.wait("return document.getElementById('notice').textContent.includes('changed.gguf is complete')")
    first, second, third = Models.ranges
    assert first == 0 and second > 0 and third == 0, Models.ranges
    browser.click("#stored li:first-child button:last-child")
    browser.wait("return document.querySelectorAll('#stored li').length === 1")


def opens_the_download(browser, expected):
    browser.click("#stored li button")
    browser.wait("return !document.getElementById('close').hidden")
    set_value(browser, "temperature", "0")
    set_value(browser, "max-tokens", "40")
    assert ask(browser, "Why did **Prince Andrew** leave?") == expected


def reloads_only_when_nothing_has_begun(browser, folder):
    """The service worker adds the headers of a server that gives none, from the next load on."""
    plain = serve(folder, headers={})
    typed = browser.command("Page.addScriptToEvaluateOnNewDocument", source="document.addEventListener("
                            "'DOMContentLoaded', () => { document.getElementById('message').value = 'typed'; });")
    try:
        browser.open(f"{plain.url}/")
        browser.wait("return document.getElementById('notice').textContent === 'Reload the page to use threads.'")
        assert browser.run("return document.getElementById('message').value") == "typed"
        assert not browser.run("return crossOriginIsolated")
    finally:
        browser.command("Page.removeScriptToEvaluateOnNewDocument", **typed)
        plain.close()
    plain = serve(folder, headers={})
    browser.open(f"{plain.url}/")
    browser.wait("return crossOriginIsolated && document.querySelector('#beginning') !== null")
    plain.close()


def make_newer(folder):
    """Writes another version of the page into the folder, a minute later."""
    for name, pattern, text in (("index.html", "<title>rullama", "<title>newer rullama"),
                                ("page.mjs", r"\Z", "\nwindow.newer = true;\n"),
                                ("service_worker.js", "[0-9a-f]{64}", "0" * 64)):
        file = folder / name
        before = file.read_text()
        after = re.sub(pattern, lambda _, text=text: text, before, count=1)
        assert after != before, name
        file.write_text(after)
        os.utime(file, (time.time() + 60, time.time() + 60))


def keeps_versions_apart(browser, folder):
    """The page is of one version as long as a tab has it open, and then of the newer one."""
    with tempfile.TemporaryDirectory() as copy:
        for file in folder.iterdir():
            if file.suffix in {".html", ".css", ".js", ".mjs", ".wasm"}:
                shutil.copy2(file, copy)
        pages = serve(copy)
        version = "return document.title + ' ' + window.newer"
        browser.open(f"{pages.url}/index.html")
        browser.wait("return navigator.serviceWorker.controller !== null")
        make_newer(pathlib.Path(copy))
        browser.open(f"{pages.url}/index.html")
        browser.wait("return navigator.serviceWorker.getRegistration().then(({waiting}) => waiting !== null)")
        assert browser.run(version) == "rullama undefined"
        browser.open(f"{pages.url}/index.html")
        assert browser.run(version) == "rullama undefined"
        assert browser.run("return caches.keys().then((names) => names.length)") == 2
        for _ in range(20):
            browser.open("about:blank")  # the last tab is closed
            time.sleep(0.5)
            browser.open(f"{pages.url}/index.html")
            if (found := browser.run(version)) != "rullama undefined":
                break
        assert found == "newer rullama true", found
        browser.wait("return caches.keys().then((names) => names.length === 1)")
        pages.close()


def new_chat(browser):
    browser.click("#new")
    browser.wait("return document.querySelectorAll('article').length === 0")


def main():
    folder, source = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
    model = source / "tests/data/tiny-e2b-Q4_K_M.gguf"
    pages, models = serve(folder), Server(Models)
    browser = Browser()
    try:
        expected = picks_a_model(browser, pages.url, model)
        assert browser.log() == []
        refuses_a_file(browser, source)
        new_chat(browser)
        tells_errors(browser, pages.url)
        downloads_a_model(browser, pages.url, models, model.read_bytes())
        downloads_a_changed_model(browser, models, model.read_bytes())
        # Nothing but the browser is left.
        pages.close()
        models.close()
        browser.open(f"{pages.url}/index.html")
        browser.wait("return crossOriginIsolated && document.querySelector('#stored li') !== null")
        opens_the_download(browser, expected)
        reloads_only_when_nothing_has_begun(browser, folder)
        keeps_versions_apart(browser, folder)
    finally:
        browser.close()


if __name__ == "__main__":
    main()
