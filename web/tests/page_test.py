"""page_test.py MODULE_FOLDER SOURCE_FOLDER: rullama.mjs in a page of headless Chromium: picks a model, compares its text
with README.md, stops an answer, and looks at errors.
"""

import pathlib
import re
import sys

from browser import Browser, serve


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
    server = serve(module, extra={"/page.html": pathlib.Path(__file__).with_name("page.html")})
    browser = Browser()
    try:
        browser.open(f"{server.url}/page.html")
        browser.wait("return window.ready === true")
        browser.type("input", source / "tests/data/tiny-e2b-Q4_K_M.gguf")
        answer = browser.call("complete", {**settings, "context.capacity": "2048"}, prompt, tokens)
        assert answer["text"] == text, answer
        assert answer["again"] == text, answer
        assert answer["reason"] == "length", answer
        print(f"{answer['milliseconds']:.2f} ms per token")
        stopped = browser.call("abort", prompt)
        assert 3 <= stopped["texts"] < 100, stopped
        assert stopped["reason"] == "AbortError" and stopped["next"] == 4, stopped
        media = browser.call("media")
        white = [255, 255, 255, 255]
        assert media["pixels"] == [255, 0, 0, 255, 0, 128, 255, 255, *white, *(3 * white)], media
        assert media["bytes"] == 54 + 2 * 12 and media["samples"] == 1600 and media["difference"] < 1e-6, media
        assert browser.call("refuse") == ["gguf.truncated", "gguf.bad_magic", "config.unknown_key"], browser.call("refuse")
    finally:
        browser.close()
        server.close()


if __name__ == "__main__":
    main()
