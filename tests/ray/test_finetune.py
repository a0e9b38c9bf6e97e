"""Fine-tuning by several workers: the bytes of one process, also where a worker is killed."""

import os
import signal
from pathlib import Path

import pytest
from ray.train import UserCallback

import rullama
import rullama.ray
from conftest import E2B

NAMES = ["Pierre", "Andrew", "Natasha", "Boris"]
DATA = [{"prompt": f"Who is {name}?", "completion": f"It is {name}."} for name in NAMES]
STEPS = 40
FIRST_CHECKPOINT = 10
#: Steps of four examples, of which each goes through the device alone; a worker has two of them.
OPTIONS = {
    "backend": "cpu",
    "rank": 4,
    "learning_rate": 0.004,
    "iters": STEPS,
    "batch_size": 4,
    "max_seq_length": 24,
    "config": {
        "backend.options.threads": 1,
        "training.save_every": FIRST_CHECKPOINT,
        "training.steps_per_report": FIRST_CHECKPOINT,
    },
}


def workers():
    """Process ids of the workers of Ray Train."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes().startswith(b"ray::") and b"RayTrainWorker" in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            pass
    return found


class KillAWorker(UserCallback):
    """Writes what the controller of a run is told to a file, and kills a worker after the first checkpoint: workers
    cannot end meanwhile, because the controller has to take their next report first."""

    def __init__(self, path):
        self.path = path

    def after_report(self, run_context, metrics, checkpoint):
        if checkpoint is not None:
            same = metrics[0]["loss"] == metrics[1]["loss"]
            self.write(f"{metrics[0]['step']} {Path(checkpoint.path).name} {same}")
            if metrics[0]["step"] == FIRST_CHECKPOINT:
                os.kill(workers()[0], signal.SIGKILL)

    def after_exception(self, run_context, worker_exceptions):
        self.write("lost")

    def write(self, line):
        with open(self.path, "a") as file:
            file.write(line + "\n")


@pytest.mark.long
def test_a_killed_worker_does_not_change_the_bytes(cluster, tmp_path):
    rullama.finetune(E2B, DATA, tmp_path / "alone", **OPTIONS)
    output, log = tmp_path / "two", tmp_path / "log"
    callbacks = [KillAWorker(log)]
    result = rullama.ray.finetune(E2B, DATA, output, workers=2, num_cpus=2, callbacks=callbacks, **OPTIONS)
    assert result.step == STEPS and result.folder == output
    for name in ("adapter.gguf", "adapter_model.safetensors"):
        assert (output / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()
    for name in ("training_state.json", "training_state.safetensors"):
        last = Path(f"{STEPS:07}") / name
        assert (output / last).read_bytes() == (tmp_path / "alone" / last).read_bytes()
    # One worker was lost after a checkpoint, from which the run has continued.
    reports = [f"{step} {step:07} True" for step in range(FIRST_CHECKPOINT, STEPS + 1, FIRST_CHECKPOINT)]
    assert log.read_text().splitlines() == [reports[0], "lost", *reports[1:]]


@pytest.mark.nightly
def test_another_run_in_the_folder_is_refused_and_not_tried_again(cluster, tmp_path):
    run = OPTIONS | {"iters": 4, "config": {"training.save_every": 2}, "device": [0]}

    def finetune(**changes):
        return rullama.ray.finetune(E2B, DATA, tmp_path / "out", workers=2, **run | changes)

    result = finetune()
    adapter = (tmp_path / "out" / "adapter.gguf").read_bytes()
    with pytest.raises(rullama.UsageError, match="learning_rate = 0.004, this run has 0.002"):
        finetune(learning_rate=0.002, max_failures=-1)
    # The same call has nothing to do.
    assert finetune() == result
    assert (tmp_path / "out" / "adapter.gguf").read_bytes() == adapter


def test_arguments_are_checked_by_the_driver(tmp_path):
    with pytest.raises(TypeError, match="ranks"):
        rullama.ray.finetune(E2B, DATA, tmp_path, workers=2, ranks=4)
    with pytest.raises(TypeError, match="use callbacks"):
        rullama.ray.finetune(E2B, DATA, tmp_path, workers=2, on_report=print)
    with pytest.raises(ValueError, match="expected at least 1"):
        rullama.ray.finetune(E2B, DATA, tmp_path, workers=0)
