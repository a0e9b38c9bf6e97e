"""The examples write what the library says."""

import subprocess
import sys

import numpy as np
import pytest
import rullama
from conftest import E2B, SOURCE

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


def test_search(tmp_path):
    model = SHARED / "models/family/tiny-embeddinggemma-f32.gguf"
    pages = "\n".join((SOURCE / "docs" / page).read_text() for page in ("media.md", "drafts.md"))
    short = [part for part in pages.split("\n\n") if len(part) < 400]
    assert len(short) > 20
    text = tmp_path / "text"
    text.write_text("\n\n".join(short), encoding="utf-8")
    question = "Where do keys and values of a conversation stay?"
    result = run("search.py", model, text, question, "8")
    assert result.returncode == 0, result.stderr
    found = [line.split(maxsplit=2) for line in result.stdout.splitlines()]
    assert len(found) == 8
    lines = text.read_text(encoding="utf-8").split("\n")
    parts = {line: words for line, words in paragraphs_of(lines)}
    assert all(parts[int(line)].startswith(words.strip()) for _, line, words in found)
    # The order is that of the float64 reference.
    with rullama.Model(model, "reference") as reference:
        vectors = reference.embed(list(parts.values()), task="document")
        cosines = vectors @ reference.embed(question, task="query")
    best = np.argsort(-cosines, kind="stable")[:8]
    assert np.diff(cosines[best]).max() < -1e-5, "near ties would compare roundings"
    assert [int(line) for _, line, _ in found] == [list(parts)[i] for i in best]
    assert [float(cosine) for cosine, _, _ in found] == pytest.approx(cosines[best], abs=1e-4)
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
