"""media_test.py MODULE_FOLDER SHARED_FOLDER: a picture and a sound in a page of headless Chromium, which decodes them, give
the texts that transformers gives.
"""

import base64
import json
import pathlib
import sys

from browser import Browser, serve

MARKERS = {"image": ("<|image|>", "picture"), "audio": ("<|audio|>", "sound")}


def main():
    module, shared = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
    goldens = shared / "goldens/tiny-media"
    golden = json.loads((goldens / "e2b.golden.json").read_text())
    media = {medium["name"]: medium for medium in golden["media"]}
    cases = [case for case in golden["cases"] if case["name"] in ("image", "audio")]
    assert len(cases) == 2 and min(min(case["margins"]) for case in cases) > 0.5, cases
    page = pathlib.Path(__file__).with_name("media_page.html")
    models = {f"/{golden[key]}": shared / "models" / golden[key] for key in ("model", "towers")}
    server = serve(module, extra={"/page.html": page, **models})
    browser = Browser()
    try:
        browser.open(f"{server.url}/page.html")
        browser.wait("return window.ready === true")
        browser.call("openModel", golden["model"], golden["towers"])
        for case in cases:
            first, medium, last = case["parts"]
            medium = media[medium["media"]]
            marker, kind = MARKERS[medium["kind"]]
            data = base64.b64encode((goldens / medium["file"]).read_bytes()).decode()
            text = browser.call("complete", first.removeprefix("<bos>") + marker + last, kind, data, len(case["greedy"]))
            assert text == case["text"].removesuffix("<turn|>"), (case["name"], text)
    finally:
        browser.close()
        server.close()


if __name__ == "__main__":
    main()
