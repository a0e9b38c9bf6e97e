"""The examples write what the library says."""

import itertools
import json
import subprocess
import sys

import numpy as np
import pytest
import rullama
from conftest import E2B, SOURCE
from embedding_oracle import Oracle

EXAMPLES = SOURCE / "examples" / "python"
SHARED = SOURCE.parent / "shared"


def run(name, *arguments):
    return subprocess.run(
        [sys.executable, str(EXAMPLES / name), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_chat(model):
    messages = [{"role": "user", "content": "Who is Anna?"}]
    expected = model.chat(messages, max_tokens=64, temperature=0).text
    result = run("chat.py", E2B, "Who is Anna?", "cpu")
    assert (result.returncode, result.stdout) == (0, expected + "\n")
    missing = run("chat.py", "/nowhere.gguf", "Who?", "cpu")
    assert missing.returncode == 6 and "[io.open]" in missing.stderr


def test_together(model):
    prompts = ["The prince", "It was in July", "Well, my"]
    texts = [model.generate(p, max_tokens=16, temperature=0).text for p in prompts]
    assert run("together.py", E2B, *prompts).stdout == "".join(text + "\n" for text in texts)


def short_paragraphs(count):
    """Paragraphs of this project's documents that fit the tiny model."""
    folders = {page: page.relative_to(SOURCE).parts[:-1] for page in SOURCE.rglob("*.md")}
    # Without builds and what tools keep in the tree, such as environments of Python.
    own = (page for page, parts in folders.items() if not any(part.startswith((".", "build")) for part in parts))
    pages = sorted(own)
    parts = (part for page in pages for part in page.read_text(encoding="utf-8").split("\n\n"))
    return list(itertools.islice((part for part in parts if 20 <= len(part.strip()) <= 400), count))


@pytest.mark.search
def test_search(tmp_path):
    file = SHARED / "models/family/tiny-embeddinggemma-f32.gguf"
    oracle = Oracle(file)
    golden = json.loads((SHARED / "goldens/embeddinggemma/golden.json").read_text())
    for case in golden["cases"]:
        assert oracle.embed(case["ids"]) == pytest.approx(np.array(case["embedding"]), abs=1e-8), case["name"]
    text = tmp_path / "text"
    text.write_text("\n\n".join(short_paragraphs(1000)), encoding="utf-8")
    parts = dict(paragraphs_of(text.read_text(encoding="utf-8").split("\n")))
    assert len(parts) >= 1000
    question = "Where do keys and values of a conversation stay?"
    result = run("search.py", file, text, question, len(parts))
    assert result.returncode == 0, result.stderr
    found = [line.split(maxsplit=2) for line in result.stdout.splitlines()]
    assert all(parts[int(line)].startswith(words.strip()) for _, line, words in found)
    assert sorted(int(line) for _, line, _ in found) == list(parts)
    # The order is that of float64, but for paragraphs that are as near as the bound of the goldens.
    with rullama.Model(file, "cpu") as model:

        def exact(words):
            return oracle.embed([*model.tokenize(words, parse_special=False, add_bos=True), 1])

        query = exact(f"task: search result | query: {question}")
        cosines = {line: exact(f"title: none | text: {words}") @ query for line, words in parts.items()}
    ranked = np.array([cosines[int(line)] for _, line, _ in found])
    assert np.diff(ranked).max() <= 2e-5
    assert [float(cosine) for cosine, _, _ in found] == pytest.approx(ranked, abs=7e-5)
    missing = run("search.py", "/nowhere.gguf", text, question)
    assert missing.returncode == 6 and "[io.open]" in missing.stderr


def paragraphs_of(lines):
    """Paragraphs as (number of the first line, words); written without the example's pattern."""
    start = None
    for number, line in enumerate([*lines, ""], 1):
        if line.strip():
            start = number if start is None else start
        elif start is not None:
            yield start, " ".join(" ".join(lines[start - 1 : number - 1]).split())
            start = None
