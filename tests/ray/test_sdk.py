"""The example of docs/server.md with the SDK of OpenAI, against a server and against the application."""

import subprocess
import sys

from conftest import E2B, PATIENCE_S, ROOT


def example(url):
    """What the example prints, sent to ``url``."""
    text = (ROOT / "docs" / "server.md").read_text()
    (code,) = [one.split("```")[0] for one in text.split("```python\n")[1:]]
    code = code.replace("http://127.0.0.1:11435", url).replace("gemma4:e2b", E2B.stem)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_example_is_answered_by_a_server(alone):
    assert example(alone).strip()


def test_the_example_is_answered_by_the_application(app):
    assert example(app.url).strip()
