"""store_test.py MODULE_FOLDER: rullama_store.mjs in a page of headless Chromium: downloads that fail, stop and continue."""

import hashlib
import os
import pathlib
import sys
import threading

from browser import Browser, Server, serve
from local_page_test import Models

WRONG = "0" * 64


class Files(Models):
    """As Models, with files that are missing, empty, or that a server fails to send."""

    STATUS = {"/missing.gguf": 404, "/empty.gguf": 416, "/failing.gguf": 500}

    def do_GET(self):
        status = self.STATUS.get(self.path)
        if self.path == "/changing.gguf":
            self.send_half()
            return
        if status is None:
            super().do_GET()
            return
        type(self).ranges.append(self.path)
        self.send_response(status)
        self.send_header("Access-Control-Allow-Origin", "*")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def send_half(self):
        """Up to the middle of a file that is another one each time."""
        first = int(self.headers["Range"].removeprefix("bytes=").split("-")[0])
        type(self).ranges.append(first)
        size = len(self.data)
        end = max(size // 2, first + 1)
        self.send_response(206)
        for name, value in {"Access-Control-Allow-Origin": "*", "ETag": f'"{len(self.ranges)}"',
                            "Access-Control-Expose-Headers": "Content-Range, ETag",
                            "Content-Range": f"bytes {first}-{end - 1}/{size}",
                            "Content-Length": str(end - first)}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(self.data[first:end])


def reset(version, limit=None):
    """A new file, of which the server sends half, or all."""
    Files.data = os.urandom(1 << 20)
    Files.ranges, Files.version, Files.gate = [], version, threading.Event()
    Files.limit = len(Files.data) // 2 if limit else None
    return hashlib.sha256(Files.data).hexdigest()


def stop_in_the_middle(browser, url, digest):
    assert browser.call("stop", url, digest, {"part": 0.3}) == "AbortError"
    Files.gate.set()
    assert browser.call("file", url) == "io.open", "half a file was given"


def lists_in_spite_of_failures(browser, url):
    missing = f"{url}/missing.gguf"
    assert browser.call("download", missing, None) == "pull.not_found"
    browser.call("addEmptyDescription")
    models = browser.call("list")
    assert [(model["url"], model["bytes"], model["complete"]) for model in models] == [(missing, 0, False)], models
    assert browser.call("remove", missing) == "removed"


def remembers_the_expected_sum(browser, url):
    reset('"one"', limit=True)
    stop_in_the_middle(browser, f"{url}/wrong.gguf", WRONG)
    assert browser.call("download", f"{url}/wrong.gguf", None) == "pull.digest"
    assert Files.ranges[1] > 0, Files.ranges


def begins_again_without_a_version(browser, url):
    reset(None, limit=True)
    stop_in_the_middle(browser, f"{url}/replaced.gguf", None)
    digest = reset(None)
    assert browser.call("download", f"{url}/replaced.gguf", None) == digest
    assert Files.ranges == [0], Files.ranges
    # The sum tells, too.
    digest = reset(None, limit=True)
    stop_in_the_middle(browser, f"{url}/known.gguf", digest)
    assert browser.call("download", f"{url}/known.gguf", None) == digest
    assert Files.ranges[0] == 0 and Files.ranges[1] > 0, Files.ranges
    assert browser.call("file", f"{url}/known.gguf") == len(Files.data)


def stops_at_once(browser, url):
    """The files are free when the promise of a download that was stopped is rejected."""
    reset('"one"', limit=True)
    stop_in_the_middle(browser, f"{url}/stopped.gguf", None)
    assert browser.call("remove", f"{url}/stopped.gguf") == "removed"
    # In the pause of two seconds after the fourth request that failed.
    assert browser.call("stop", f"{url}/failing.gguf", None, {"milliseconds": 2000}) == "AbortError"
    assert browser.call("remove", f"{url}/failing.gguf") == "removed"


def takes_odd_files(browser, url):
    digest = reset('"one"')
    assert browser.call("download", f"{url}/100%.gguf", None) == digest
    reset('"one"')
    assert browser.call("download", f"{url}/empty.gguf", None) == "pull.size"
    assert Files.ranges == ["/empty.gguf"], Files.ranges
    reset('"one"')
    assert browser.call("download", f"{url}/blobs/sha256:{WRONG}", None) == "pull.digest"


def gives_up_a_file_that_changes_at_each_request(browser, url):
    reset('"one"')
    assert browser.call("download", f"{url}/changing.gguf", None) == "pull.protocol"
    assert [path for path in Files.ranges if path > 0] == [len(Files.data) // 2] * 3, Files.ranges
    # Its remains do not prevent another download.
    digest = reset('"two"')
    assert browser.call("remove", f"{url}/changing.gguf") == "removed"
    assert browser.call("download", f"{url}/whole.gguf", None) == digest


def main():
    module = pathlib.Path(sys.argv[1]).resolve()
    server = serve(module, extra={"/store.html": pathlib.Path(__file__).with_name("store_page.html")})
    models = Server(Files)
    browser = Browser()
    try:
        browser.open(f"{server.url}/store.html")
        browser.wait("return window.ready === true")
        for check in (lists_in_spite_of_failures, remembers_the_expected_sum, begins_again_without_a_version,
                      stops_at_once, takes_odd_files, gives_up_a_file_that_changes_at_each_request):
            check(browser, models.url)
    finally:
        browser.close()
        models.close()
        server.close()


if __name__ == "__main__":
    main()
