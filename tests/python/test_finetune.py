"""Fine-tuning through the package: an adapter is learnt, read, and gone on with."""

import pytest

import rullama
from conftest import E2B

DATA = [
    {"prompt": "Who is Pierre?", "completion": "A count."},
    {"prompt": "Who is Andrew?", "completion": "A prince."},
]
OPTIONS = {"rank": 8, "learning_rate": 0.004, "batch_size": 2, "epochs": 20}
CONFIG = {"training.schedule": "constant", "training.warmup_steps": 0, "training.steps_per_report": 5}


def test_the_model_answers_with_what_it_learnt(tmp_path):
    reports = []
    result = rullama.finetune(
        E2B, DATA, tmp_path / "adapter", "cpu", config=CONFIG, on_report=reports.append, **OPTIONS
    )
    assert result.step == 20 and result.folder == tmp_path / "adapter"
    assert [report.step for report in reports] == [5, 10, 15, 20]
    assert reports[-1].loss < reports[0].loss
    assert reports[-1].kind == "train" and reports[-1].grad_norm > 0
    config = tmp_path / "adapted.yaml"
    config.write_text("model: {adapters: [adapter]}")
    with rullama.Model(E2B, "cpu", config=config) as model:
        messages = [{"role": "user", "content": "Who is Andrew?"}]
        answer = model.chat(messages, max_tokens=8, temperature=0)
    assert answer.text.startswith("A prince.")


def test_an_exception_of_the_report_leaves_a_checkpoint_to_go_on_from(tmp_path):
    def stop(report):
        raise KeyError(report.step)

    run = {"config": {**CONFIG, "training.steps_per_report": 1}, **OPTIONS, "epochs": 3}
    with pytest.raises(KeyError):
        rullama.finetune(E2B, DATA, tmp_path, "cpu", on_report=stop, **run)
    assert (tmp_path / "0000001/training_state.json").is_file()
    steps = []
    rullama.finetune(
        E2B, DATA, tmp_path, "cpu", resume=tmp_path, on_report=lambda r: steps.append(r.step), **run
    )
    assert steps == [2, 3]


def test_mistakes_are_errors(tmp_path):
    with pytest.raises(rullama.UsageError, match="training.rank"):
        rullama.finetune(E2B, DATA, tmp_path, "cpu", rank=0)
    with pytest.raises(rullama.UsageError, match="found none of the keys"):
        rullama.finetune(E2B, [{"other": "key"}], tmp_path, "cpu")
