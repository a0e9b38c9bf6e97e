"""The examples write what the library says."""

import subprocess
import sys

from conftest import DATA, E2B

EXAMPLES = DATA.parents[1] / "examples" / "python"


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
