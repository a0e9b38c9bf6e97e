"""The example of docs/server.md for the library of OpenAI.

pytest, run by clients_test.py with --file, in whose environment the address of the server is.
"""

import json
import os
import re
import urllib.request
from pathlib import Path

import pytest

pytestmark = pytest.mark.openai

URL = os.environ["BASE_URL"]
DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "server.md"


def test_the_python_example_prints_an_answer(capsys):
    (block,) = re.findall(r"^```python\n(.*?)^```", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    with urllib.request.urlopen(URL + "/v1/models", timeout=60) as answer:
        model = json.load(answer)["data"][0]["id"]
    exec(block.replace("http://127.0.0.1:11435", URL).replace("gemma4:e2b", model), {})
    assert capsys.readouterr().out.strip()
