"""Fine-tuning through the package: an adapter is learnt, read, and trained further."""

import queue
import threading

import numpy as np
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
    assert "<svg" in (result.folder / "loss.svg").read_text()
    assert len(result.losses) == 20 and result.losses[-1] == result.loss < result.losses[0]
    assert result.validations == ()
    assert reports[-1].kind == "train" and reports[-1].grad_norm > 0
    config = tmp_path / "adapted.yaml"
    config.write_text("model: {adapters: [adapter]}")
    messages = [{"role": "user", "content": "Who is Andrew?"}]
    ways = ({"config": config}, {"adapters": [result.folder]}, {"adapters": [(result.folder, 1)]})
    for way in ways:
        with rullama.Model(E2B, "cpu", **way) as model:
            answer = model.chat(messages, max_tokens=8, temperature=0)
        assert answer.text.startswith("A prince."), way
    with rullama.Model(E2B, "cpu", adapters=[(result.folder, 0)]) as model:
        assert not model.chat(messages, max_tokens=8, temperature=0).text.startswith("A prince.")
    # Another run in the folder is refused, and replaced if that is asked for.
    run = {"config": CONFIG, **OPTIONS, "epochs": 1}
    with pytest.raises(rullama.UsageError, match="another run"):
        rullama.finetune(E2B, DATA, tmp_path / "adapter", "cpu", **run)
    assert rullama.finetune(E2B, DATA, tmp_path / "adapter", "cpu", overwrite=True, **run).step == 1


def test_an_exception_of_the_report_leaves_a_checkpoint_to_go_on_from(tmp_path):
    def stop(report):
        raise KeyError(report.step)

    run = {"config": {**CONFIG, "training.steps_per_report": 1}, **OPTIONS, "epochs": 3}
    with pytest.raises(KeyError):
        rullama.finetune(E2B, DATA, tmp_path, "cpu", on_report=stop, **run)
    assert (tmp_path / "0000001/training_state.json").is_file()
    steps = []
    # The settings are those of the run.
    result = rullama.finetune(
        E2B, DATA, tmp_path, "cpu", resume=tmp_path, on_report=lambda r: steps.append(r.step)
    )
    assert steps == [2, 3]
    assert len(result.losses) == 3, "also of the step before"


class QueueGroup:
    """Two ranks in threads of one process."""

    def __init__(self, rank, parts, steps):
        self.rank, self.size, self.parts, self.steps = rank, 2, parts, steps

    def send_part(self, step, part, gradient):
        assert gradient.values.dtype == np.float32 and gradient.values.ndim == 1
        self.parts.put(((step, part), gradient))

    def receive_part(self, step, part):
        key, gradient = self.parts.get(timeout=60)
        assert key == (step, part)
        return gradient

    def send_step(self, step, result):
        self.steps.put((step, result))

    def receive_step(self, step):
        number, result = self.steps.get(timeout=60)
        assert number == step
        return result


def test_two_ranks_write_what_one_process_writes(tmp_path):
    run = {**OPTIONS, "epochs": 3, "max_seq_length": 32, "config": CONFIG}
    rullama.finetune(E2B, DATA, tmp_path / "alone", "cpu", **run)
    parts, steps, saved = queue.Queue(), queue.Queue(), []

    def second():
        group = QueueGroup(1, parts, steps)
        rullama.finetune(E2B, DATA, tmp_path / "two", "cpu", group=group, on_saved=saved.append, **run)

    thread = threading.Thread(target=second)
    thread.start()
    rullama.finetune(E2B, DATA, tmp_path / "two", "cpu", group=QueueGroup(0, parts, steps), **run)
    thread.join()
    assert saved == [tmp_path / "two/0000003"] and parts.empty() and steps.empty()
    for name in ("adapter_model.safetensors", "0000003/training_state.safetensors"):
        assert (tmp_path / "two" / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()

    class Broken(QueueGroup):
        def receive_part(self, step, part):
            raise KeyError("the network")

    with pytest.raises(KeyError, match="the network"):
        rullama.finetune(E2B, DATA, tmp_path, "cpu", group=Broken(0, parts, steps), **run)


def test_mistakes_are_errors(tmp_path):
    with pytest.raises(rullama.UsageError, match="training.rank"):
        rullama.finetune(E2B, DATA, tmp_path, "cpu", rank=0)
    with pytest.raises(rullama.UsageError, match="found none of the keys"):
        rullama.finetune(E2B, [{"other": "key"}], tmp_path, "cpu")
    with pytest.raises(rullama.UsageError, match="which the chat template renders"):
        turns = [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "A prince."}]
        rullama.finetune(E2B, [{"messages": turns}], tmp_path, "cpu", raw=True)
    with pytest.raises(ValueError, match="resume is empty"):
        rullama.finetune(E2B, DATA, tmp_path, "cpu", resume="")
