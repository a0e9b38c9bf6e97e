"""Fine-tuning: trains a low-rank adapter (LoRA) of a model."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from . import _rullama
from ._model import log_lines, settings_of
from ._stream import on_main_thread

#: A file of JSON lines, a folder with ``train.jsonl``, or the examples themselves.
TrainingData: TypeAlias = str | os.PathLike[str] | Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class TrainingReport:
    """The loss of the steps since the last report (``train``), or of the validation set."""

    kind: Literal["train", "validation"]
    step: int  #: optimizer steps that were done
    loss: float  #: mean of -ln p over ``tokens``; exp of it is the perplexity
    tokens: int  #: that are learnt
    grad_norm: float = 0.0  #: of the last step, before it was clipped
    learning_rate: float = 0.0
    seconds: float = 0.0
    is_best: bool = False  #: of a validation: the lowest loss so far


@dataclass(frozen=True)
class TrainingResult:
    """What a run ended with."""

    folder: Path  #: with the adapter: for PEFT, and ``adapter.gguf`` for llama.cpp
    step: int  #: optimizer steps that were done
    loss: float  #: of the last step, before it
    test_loss: float | None  #: of ``test.jsonl``, if there is one


def finetune(
    model: str | os.PathLike[str],
    data: TrainingData,
    output: str | os.PathLike[str] = "adapters",
    backend: str = "auto",
    *,
    rank: int | None = None,
    alpha: float | None = None,
    learning_rate: float | None = None,
    epochs: int | None = None,
    iters: int | None = None,
    batch_size: int | None = None,
    max_seq_length: int | None = None,
    seed: int | None = None,
    device: int | str | None = None,
    config: str | os.PathLike[str] | Mapping[str, object] | None = None,
    plugin_paths: Sequence[str | os.PathLike[str]] = (),
    resume: str | os.PathLike[str] | None = None,
    first_adapter: str | os.PathLike[str] | None = None,
    on_report: Callable[[TrainingReport], object] | None = None,
) -> TrainingResult:
    """Trains an adapter on ``data`` and writes it to the folder ``output``, with checkpoints.

    ``data``: conversations ``{"messages": [...]}``, ``{"prompt": ..., "completion": ...}`` or
    ``{"text": ...}``. What is not given has the value of the block ``training`` in
    docs/configuration.md, or of ``config``, which is a YAML file or values by their names, such as
    ``{"training.save_every": 50, "training.targets": ["attn"]}``. ``resume``: a checkpoint, or the
    ``output`` of a run, to go on from. ``first_adapter``: an adapter to begin with. ``on_report``
    is called as the run goes on.

    Blocks and releases the GIL. Ctrl-C, and an exception of ``on_report``, end the run behind the
    current step with a checkpoint. Notes go to the logger ``rullama``.

    Raises ``rullama.Error``: ``train.*``, ``data.*``, ``adapter.*``, and as ``Model()``.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.jsonl"
        if isinstance(data, (str, os.PathLike)):
            path = Path(data)
        else:
            path.write_text("".join(json.dumps(dict(line)) + "\n" for line in data), "utf-8")
        config_file, settings = settings_of(
            config,
            {
                "backend.device": device,
                "training.data": os.fspath(path),
                "training.output": os.fspath(output),
                "training.rank": rank,
                "training.alpha": alpha,
                "training.learning_rate": learning_rate,
                "training.epochs": epochs,
                "training.iters": iters,
                "training.batch_size": batch_size,
                "training.max_seq_length": max_seq_length,
                "training.seed": seed,
            },
        )
        values = _rullama.finetune(
            os.fspath(model),
            backend,
            config_file,
            settings,
            [os.fspath(one) for one in plugin_paths],
            "" if resume is None else os.fspath(resume),
            "" if first_adapter is None else os.fspath(first_adapter),
            None if on_report is None else lambda report: on_report(TrainingReport(**report)),
            on_main_thread(),
        )
    log_lines(values["log"])
    return TrainingResult(
        folder=Path(values["folder"]),
        step=values["step"],
        loss=values["loss"],
        test_loss=values["test_loss"],
    )
