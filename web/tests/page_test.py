"""page_test.py MODULE_FOLDER SOURCE_FOLDER: rullama.mjs in a page of headless Chromium (Debian: chromium,
chromium-driver): picks a model, compares its text with README.md, stops an answer, and looks at errors.

The browser is driven through the WebDriver protocol alone.
"""

import functools
import http.server
import json
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
SECONDS = 240  # of a script


class Pages(http.server.SimpleHTTPRequestHandler):
    """The folder of the module and the test's page, with the headers that threads need."""

    extensions_map = {**http.server.SimpleHTTPRequestHandler.extensions_map, ".mjs": "text/javascript",
                      ".wasm": "application/wasm"}

    def translate_path(self, path):
        if path == "/page.html":
            return str(pathlib.Path(__file__).with_name("page.html"))
        return super().translate_path(path)

    def end_headers(self):
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        super().end_headers()

    def log_message(self, *arguments):
        pass


class Browser:
    def __init__(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.driver = subprocess.Popen([shutil.which("chromedriver") or "chromedriver", f"--port={port}"],
                                       stdout=subprocess.DEVNULL)
        self.url = f"http://127.0.0.1:{port}"
        try:
            self.start_session()
        except BaseException:
            self.end_driver()
            raise

    def start_session(self):
        deadline = time.monotonic() + 60
        while True:
            try:
                self.send("GET", "/status")
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
        options = {"binary": shutil.which("chromium"),
                   "args": ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage"]}
        session = self.send("POST", "/session", {"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}}})
        self.url += f"/session/{session['sessionId']}"
        self.send("POST", "/timeouts", {"script": 1000 * SECONDS})

    def send(self, method, path, body=None):
        data = None if method == "GET" or method == "DELETE" else json.dumps(body or {}).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=SECONDS + 30) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(json.load(error)["value"]["message"]) from error

    def call(self, function, *arguments):
        """What the page's asynchronous function gives; its error fails the test."""
        script = (f"const done = arguments[arguments.length - 1]; window.{function}(...arguments[0])"
                  ".then((value) => done({value}), (error) => done({error: `${error.stack}`}));")
        answer = self.send("POST", "/execute/async", {"script": script, "args": [list(arguments)]})
        if "error" in answer:
            log = self.send("POST", "/se/log", {"type": "browser"})
            raise AssertionError("\n".join([answer["error"], *(entry["message"] for entry in log)]))
        return answer["value"]

    def open(self, url, file):
        self.send("POST", "/url", {"url": url})
        deadline = time.monotonic() + 60
        while not self.send("POST", "/execute/sync", {"script": "return window.ready === true", "args": []}):
            assert time.monotonic() < deadline, "the page's script did not run"
            time.sleep(0.1)
        element = self.send("POST", "/element", {"using": "css selector", "value": "input"})[ELEMENT]
        self.send("POST", f"/element/{element}/value", {"text": str(file)})

    def close(self):
        try:
            self.send("DELETE", "")
        finally:
            self.end_driver()

    def end_driver(self):
        self.driver.terminate()
        self.driver.wait()


def readme_example(source):
    """Prompt, number of tokens, text and the sampler's settings of the example in README.md."""
    readme = (source / "README.md").read_text()
    prompt, tokens = re.search(r'rullama --config configs/tiny\.yaml -p "([^"]+)" -n (\d+)', readme).groups()
    text = re.search(r"It ends like this[^`]*```text\n(.*)\n", readme)[1]
    block = re.search(r"^sampler:\n((?: {2}.*\n)+)", (source / "configs/tiny.yaml").read_text(), re.M)[1]
    settings = {f"sampler.{key}": value for key, value in re.findall(r"^ {2}(\w+): (\S+)$", block, re.M)}
    return prompt, int(tokens), text, settings


def main():
    module, source = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
    prompt, tokens, text, settings = readme_example(source)
    assert len(settings) == 5, settings
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Pages, directory=str(module)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    browser = Browser()
    try:
        browser.open(f"http://127.0.0.1:{server.server_address[1]}/page.html",
                     source / "tests/data/tiny-e2b-Q4_K_M.gguf")
        answer = browser.call("complete", {**settings, "context.capacity": "2048"}, prompt, tokens)
        assert answer["text"] == text, answer
        assert answer["again"] == text, answer
        assert answer["reason"] == "length", answer
        print(f"{answer['milliseconds']:.2f} ms per token")
        stopped = browser.call("abort", prompt)
        assert 3 <= stopped["texts"] < 100, stopped
        assert stopped["reason"] == "AbortError" and stopped["next"] == 4, stopped
        assert browser.call("refuse") == ["gguf.truncated", "gguf.bad_magic", "config.unknown_key"], browser.call("refuse")
    finally:
        browser.close()
        server.shutdown()


if __name__ == "__main__":
    main()
