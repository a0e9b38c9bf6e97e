"""What docs/server.md says to Claude Code and lm-evaluation-harness, as it stands there but for address and model.

pytest, run by clients_test.py with --file, in whose environment the address of the server is.
"""

import json
import os
import re
import shlex
import urllib.request
from pathlib import Path

import anthropic
import lm_eval
import pytest

pytestmark = pytest.mark.lmeval

URL = os.environ["BASE_URL"]
DOCUMENT = (Path(__file__).resolve().parents[2] / "docs" / "server.md").read_text()


def block_with(text):
    blocks = re.findall(r"^```sh\n(.*?)^```", DOCUMENT, re.MULTILINE | re.DOTALL)
    return next(block for block in blocks if text in block).replace("\\\n", " ").replace("http://127.0.0.1:11435", URL)


@pytest.fixture
def model():
    with urllib.request.urlopen(URL + "/v1/models", timeout=60) as answer:
        return json.load(answer)["data"][0]["id"]


def test_variables_of_claude_code(model, monkeypatch):
    """Its library reads the address and the key from them."""
    values = dict(word.split("=", 1) for word in shlex.split(block_with("ANTHROPIC_BASE_URL")) if "=" in word)
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    messages = [{"role": "user", "content": "Why is the sky blue?"}]
    for name in ("ANTHROPIC_MODEL", "ANTHROPIC_SMALL_FAST_MODEL"):
        asked = values[name].replace("gemma4:e2b", model)
        answer = anthropic.Anthropic(max_retries=0).messages.create(model=asked, max_tokens=4, messages=messages)
        assert answer.model == model and answer.usage.output_tokens == 4


def test_command_of_the_harness(model, tmp_path):
    words = shlex.split(block_with("lm_eval "))
    options = dict(zip(words[1::2], words[2::2], strict=True))
    assert set(options) == {"--model", "--tasks", "--model_args"}
    arguments = options["--model_args"].replace("model=NAME", f"model={model}")
    items = [{"question": "The prince came into the", "choices": ["room", "war and peace"], "gold": 0}]
    (tmp_path / "items").write_text("".join(json.dumps(item) + "\n" for item in items))
    task = {"task": "ours", "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(tmp_path / "items")}},
            "test_split": "test", "output_type": "multiple_choice", "doc_to_text": "{{question}}",
            "doc_to_choice": "{{choices}}", "doc_to_target": "{{gold}}", "metric_list": [{"metric": "acc"}]}
    found = lm_eval.simple_evaluate(model=options["--model"], model_args=arguments, tasks=[task], bootstrap_iters=0, log_samples=True)
    (sample,) = found["samples"]["ours"]
    scores = [response[0] if isinstance(response, (list, tuple)) else response for response in sample["filtered_resps"]]
    assert len(scores) == 2 and all(float(score) < 0 for score in scores)
