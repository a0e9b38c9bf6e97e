"""Fine-tuning: trains a low-rank adapter (LoRA) of a model."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

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

    folder: Path  #: with the adapter: for PEFT, ``adapter.gguf`` for llama.cpp, and ``loss.svg``
    step: int  #: optimizer steps that were done
    loss: float  #: of the last step, before it
    test_loss: float | None  #: of ``test.jsonl``, if there is one
    #: Of each step of the whole run, before it, also of steps before the run was resumed: what
    #: ``loss.svg`` draws.
    losses: tuple[float, ...] = ()
    validations: tuple[tuple[int, float], ...] = ()  #: steps and losses, in their order


@dataclass(frozen=True)
class PartGradient:
    """The gradient of a part of an optimizer step: of the examples that go through the device
    together, at most ``training.max_seq_length`` rows."""

    loss_sum: float  #: of -ln p over ``tokens``
    tokens: int  #: of the part that are learnt
    #: The gradient of the mean loss over the tokens of the whole step, float32 ``[parameters]``: A
    #: ``[rank, inputs]`` and B ``[outputs, rank]`` of each weight one after another, in the order
    #: of layers.
    values: NDArray[np.float32]


@dataclass(frozen=True)
class GroupStep:
    """The result of a step, which rank 0 sends to the others."""

    loss_sum: float  #: of -ln p over ``tokens``, before the step
    tokens: int  #: of the whole step that are learnt
    grad_norm: float  #: before it was clipped
    last: bool  #: the run was cancelled on rank 0 and ends after this step
    adapter: NDArray[np.float32]  #: A and B after the step, as in ``PartGradient``


class TrainingGroup(Protocol):
    """Processes that train one adapter together, each with a ``finetune()`` of the same settings
    and data. Part k of a step is computed by rank k mod ``size``. Rank 0 adds up the gradients of
    all parts in their order, changes the adapter, validates and writes files; the others take the
    adapter from it. So the files of the run have the bytes that one process writes, with any number
    of ranks, where equal devices compute the parts.

    The functions are called on the thread of ``finetune()``, or on one of its own where that is the
    main thread, and block until what they wait for is there. Steps are counted from 1. An exception
    ends the run on this rank and passes on. When another rank has ended with an error, those that
    wait must raise too, which is the duty of the implementation.
    """

    rank: int  #: of this process, from 0
    size: int

    def send_part(self, step: int, part: int, gradient: PartGradient) -> None:
        """On other ranks than 0: hands over a part that was computed here."""

    def receive_step(self, step: int) -> GroupStep:
        """On other ranks than 0: takes what rank 0 has made of the step."""

    def receive_part(self, step: int, part: int) -> PartGradient:
        """On rank 0: takes a part of another rank; each once, in their order."""

    def send_step(self, step: int, result: GroupStep) -> None:
        """On rank 0: hands over the result of the step to all others."""


class _NativeGroup:
    """A group as the native module calls it."""

    def __init__(self, group: TrainingGroup) -> None:
        self._group = group
        self.rank = group.rank
        self.size = group.size
        if not 0 <= self.rank < self.size:
            raise ValueError(f"the rank is {self.rank}, expected 0 to {self.size - 1}")

    def send_part(self, step: int, part: int, *members: Any) -> None:
        self._group.send_part(step, part, PartGradient(*members))

    def receive_step(self, step: int) -> tuple[Any, ...]:
        one = self._group.receive_step(step)
        return (one.loss_sum, one.tokens, one.grad_norm, one.last, one.adapter)

    def receive_part(self, step: int, part: int) -> tuple[Any, ...]:
        one = self._group.receive_part(step, part)
        return (one.loss_sum, one.tokens, one.values)

    def send_step(self, step: int, *members: Any) -> None:
        self._group.send_step(step, GroupStep(*members))


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
    raw: bool | None = None,
    device: int | str | None = None,
    config: str | os.PathLike[str] | Mapping[str, object] | None = None,
    plugin_paths: Sequence[str | os.PathLike[str]] = (),
    resume: str | os.PathLike[str] | None = None,
    first_adapter: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    on_report: Callable[[TrainingReport], object] | None = None,
    on_saved: Callable[[Path], object] | None = None,
    group: TrainingGroup | None = None,
) -> TrainingResult:
    """Trains an adapter on ``data`` and writes it to the folder ``output``, with checkpoints.

    ``data``: conversations ``{"messages": [...]}``, ``{"prompt": ..., "completion": ...}`` or
    ``{"text": ...}``, and the forms that docs/finetuning.md lists. ``raw``: prompts and completions
    are plain text. Other settings have the values of the block ``training`` in
    docs/configuration.md, or of ``config``, which is a YAML file or values by their names, such as
    ``{"training.save_every": 50, "training.targets": ["attn"]}``. ``resume``: a checkpoint, or the
    ``output`` of a run, to continue from; settings that are not given are those of that run.
    ``first_adapter``: an adapter to begin with. ``overwrite``: replace a run that ``output`` has,
    which is the error ``train.exists`` otherwise. ``on_report`` is called during the run,
    ``on_saved`` with the folder of each checkpoint. ``group``: other processes that do the steps of
    this run together with this one; all ranks are given the same arguments, and call ``on_report``
    for ``train`` and ``on_saved`` after the same steps.

    Blocks and releases the GIL. Ctrl-C, and an exception of ``on_report`` or ``on_saved``, end the
    run after the current step with a checkpoint; in a group those of rank 0. Notes go to the logger
    ``rullama``.

    Raises ``rullama.Error``: ``train.*``, ``data.*``, ``adapter.*``, and as ``Model()``.
    """
    for name, path_given in (("resume", resume), ("first_adapter", first_adapter)):
        if path_given is not None and not os.fspath(path_given):
            raise ValueError(f"{name} is empty, expected a path; leave it out to do without")
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
                "training.raw": raw,
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
            overwrite,
            lambda report: _pass_on(report, on_report, on_saved),
            None if group is None else _NativeGroup(group),
            on_main_thread(),
        )
    log_lines(values["log"])
    return TrainingResult(
        folder=Path(values["folder"]),
        step=values["step"],
        loss=values["loss"],
        test_loss=values["test_loss"],
        losses=tuple(values["losses"]),
        validations=tuple(values["validations"]),
    )


def _pass_on(
    report: dict[str, Any],
    on_report: Callable[[TrainingReport], object] | None,
    on_saved: Callable[[Path], object] | None,
) -> None:
    if report["kind"] == "saved":
        if on_saved is not None:
            on_saved(Path(report["folder"]))
    elif on_report is not None:
        on_report(TrainingReport(**report))
