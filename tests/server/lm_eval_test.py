"""lm-evaluation-harness has the scores over HTTP that follow from the file of `rullama logits`: sums of the logarithms of
the probabilities of tokens, of which it says where they begin.

pytest, run by clients_test.py with --file, in whose environment the address of the server, its program and its model are.
"""

import array
import json
import math
import os
import subprocess
import urllib.request

import lm_eval
import pytest

pytestmark = pytest.mark.lmeval

URL = os.environ["BASE_URL"]
# A sum of some ten logarithms loses up to this much as a number in JSON, and by other sizes of steps.
TOLERANCE = 2e-4

CHOICES = [
    {"question": "The prince came into the room and", "choices": ["looked at his wife.", "a horse of snow", "war"], "gold": 0},
    {"question": "Pierre did not know what to", "choices": ["say", "say to the general, and was silent."], "gold": 1},
    {"question": "Napoleon rode past the army;", "choices": ["the soldiers shouted", "it was", "Natasha, Natasha!"], "gold": 0},
]


def ask(path, **body):
    request = urllib.request.Request(URL + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


@pytest.fixture(scope="module")
def model():
    with urllib.request.urlopen(URL + "/v1/models", timeout=60) as answer:
        return json.load(answer)["data"][0]["id"]


@pytest.fixture
def score_of(tmp_path):
    def score(ids, first):
        """The logarithm of the probability of ids[first:] after ids[:first]."""
        (tmp_path / "ids.json").write_text(json.dumps(ids))
        file = tmp_path / "logits.f32"
        program = [os.environ["RULLAMA"], "logits", "-m", os.environ["MODEL_FILE"], "--backend", "cpu"]
        subprocess.run([*program, "--tokens-file", tmp_path / "ids.json", "--out", file], check=True, capture_output=True)
        logits = array.array("f", file.read_bytes())
        vocabulary = len(logits) // len(ids)
        total = 0.0
        for i in range(first, len(ids)):
            row = logits[(i - 1) * vocabulary:i * vocabulary]
            most = max(row)
            total += row[ids[i]] - most - math.log(math.fsum(math.exp(x - most) for x in row))
        return total

    return score


def evaluate(task, items, path, model, **arguments):
    """The texts that the harness asked for, and the score of each."""
    path.write_text("".join(json.dumps(item) + "\n" for item in items))
    task = {"task": "ours", "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(path)}}, "test_split": "test", **task}
    server = {"model": model, "base_url": URL + "/v1/completions", "max_retries": 1, "tokenizer_backend": "remote", **arguments}
    found = lm_eval.simple_evaluate(model="local-completions", model_args=server, tasks=[task], bootstrap_iters=0, log_samples=True)
    for sample in found["samples"]["ours"]:
        responses = [r[0] if isinstance(r, (list, tuple)) else r for r in sample["filtered_resps"]]
        for asked, response in zip(sample["arguments"], responses, strict=True):
            yield asked, float(response)


CHOICE = {"output_type": "multiple_choice", "doc_to_text": "{{question}}", "doc_to_choice": "{{choices}}",
          "doc_to_target": "{{gold}}", "target_delimiter": " ", "metric_list": [{"metric": "acc"}]}


def tokens_of(text, special=False):
    return ask("/tokenize", content=text, add_special=special)["tokens"]


def test_choices_as_texts(model, score_of, tmp_path):
    """A text is read after BOS, which the harness does not see."""
    asked = list(evaluate(CHOICE, CHOICES, tmp_path / "items", model, tokenized_requests=False, batch_size=3))
    assert len(asked) == sum(len(item["choices"]) for item in CHOICES)
    for (context, continuation), score in asked:
        first = len(tokens_of(context))
        ids = tokens_of(context + continuation, special=True)
        assert len(ids) == 1 + len(tokens_of(context + continuation))
        assert score == pytest.approx(score_of(ids, first + 1), abs=TOLERANCE), (context, continuation)


def test_choices_as_token_ids(model, score_of, tmp_path):
    """Ids are read as they are."""
    asked = list(evaluate(CHOICE, CHOICES, tmp_path / "items", model, batch_size=4))
    assert len(asked) == sum(len(item["choices"]) for item in CHOICES)
    for (context, continuation), score in asked:
        first, ids = len(tokens_of(context)), tokens_of(context + continuation)
        assert score == pytest.approx(score_of(ids, first), abs=TOLERANCE), (context, continuation)
