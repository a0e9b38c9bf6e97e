"""Fine-tuning by several workers of Ray Train that share each step."""

from __future__ import annotations

import asyncio
import inspect
import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ray
import ray.train
from ray.train import Checkpoint, CheckpointUploadMode
from ray.train.collective import broadcast_from_rank_zero
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

from .. import _finetune
from .._errors import Error
from .._finetune import GroupStep, PartGradient, TrainingData, TrainingReport, TrainingResult

#: What this module gives to ``rullama.finetune()`` itself.
_OWN = ("group", "on_report", "on_saved")


def finetune(
    model: str | os.PathLike[str],
    data: TrainingData,
    output: str | os.PathLike[str],
    backend: str = "auto",
    *,
    workers: int,
    num_cpus: float = 1,
    num_gpus: float = 0,
    resources: Mapping[str, float] | None = None,
    max_failures: int = 3,
    callbacks: Sequence[Any] = (),
    **options: Any,
) -> TrainingResult:
    """Trains an adapter as ``rullama.finetune()`` does, with the steps shared among ``workers``
    processes of Ray Train. Blocks until the run has ended.

    ``model``, ``data``, ``output``, ``backend``, ``options``: arguments of ``rullama.finetune()``,
    without ``on_report``, ``on_saved`` and ``group``. ``device`` may be a list, of which the
    workers of a node take one each, in turn. ``data`` and ``output`` are absolute or relative to
    the driver's folder, other paths absolute, and all the same on all nodes; ``output`` is in a
    file system that all nodes share. ``num_cpus``, ``num_gpus``, ``resources``: what Ray reserves
    for each worker. ``max_failures``: how often workers are replaced after one was lost or has
    failed; -1: without a limit.
    ``callbacks``: objects of ``ray.train.UserCallback``, which get the reports of all workers.

    A step is cut into parts of at most ``training.max_seq_length`` tokens, each of one or more
    examples. Part k is computed by worker k mod ``workers``, so workers beyond the number of parts
    have nothing to do. Gradients are added in the order of the parts. With equal devices the
    adapter and the checkpoints therefore have the bytes that ``rullama.finetune()`` writes, with
    any number of workers. Validation, test and writing are done by worker 0.

    Metrics of ``ray.train.report``: ``step``, ``loss``, ``tokens``, ``grad_norm``,
    ``learning_rate``, ``seconds`` every ``training.steps_per_report`` steps, with each checkpoint
    also ``validation_loss`` and ``is_best`` if there are validations. After a worker was lost, all
    workers continue from the last checkpoint (``training.save_every``), and end with the same bytes.
    After the driver was lost, the same call continues from there too; settings that differ from
    those of the run in ``output`` are refused (``train.resume``).

    Raises ``rullama.Error``: what ``rullama.finetune()`` raises before its first step;
    ``ray.train.TrainingFailedError`` with the text of the error if a worker has failed more than
    ``max_failures`` times later; ``TypeError``, ``ValueError`` for arguments.
    """
    if workers < 1:
        raise ValueError(f"workers is {workers}, expected at least 1")
    if options.get("device") in ([], ()):
        raise ValueError("device is an empty list, expected a device for each worker of a node")
    if unknown := [name for name in options if name in _OWN]:
        raise TypeError(f"{', '.join(unknown)} cannot be given; use callbacks for reports")
    folder = Path(output).absolute()
    arguments = {
        "model": os.fspath(model),
        "data": os.path.abspath(data) if isinstance(data, (str, os.PathLike)) else list(data),
        "output": str(folder),
        "backend": backend,
        **options,
    }
    inspect.signature(_finetune.finetune).bind(**arguments)
    trainer = DataParallelTrainer(
        _train,
        train_loop_config=arguments,
        scaling_config=ray.train.ScalingConfig(
            num_workers=workers,
            use_gpu=num_gpus > 0,
            resources_per_worker={"CPU": num_cpus, "GPU": num_gpus, **(resources or {})},
        ),
        run_config=ray.train.RunConfig(
            name=folder.name,
            storage_path=str(folder.parent),
            failure_config=ray.train.FailureConfig(max_failures=max_failures),
            callbacks=list(callbacks),
        ),
    )
    result = trainer.fit().return_value
    if isinstance(result, Error):
        raise result
    assert isinstance(result, TrainingResult)
    return result


def _train(arguments: dict[str, Any]) -> TrainingResult | Error:
    """A worker's part of the run. Returns errors that Ray Train is not to try again."""
    checkpoint = ray.train.get_checkpoint()
    if checkpoint is not None:
        arguments = {**arguments, "resume": checkpoint.path, "first_adapter": None}
    if isinstance(devices := arguments.get("device"), (list, tuple)):
        local_rank = ray.train.get_context().get_local_rank()
        arguments = {**arguments, "device": devices[local_rank % len(devices)]}
    worker = _Worker()
    try:
        return _finetune.finetune(
            **arguments, on_report=worker.on_report, on_saved=worker.on_saved, group=worker
        )
    except Error as error:
        if worker.has_begun:
            raise
        worker.refuse(error)
        return error


class _Mailbox:
    """An actor that passes objects from one worker to others. It ends with worker 0, its owner."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._ready = 0
        self._error: Error | None = None
        self._kept: dict[tuple[Any, ...], tuple[list[ray.ObjectRef], int]] = {}
        self._changed = asyncio.Condition()

    async def begin(self, error: Error | None) -> Error | None:
        """Waits until each worker has come here, or until one has with an error; returns that."""
        async with self._changed:
            self._ready += 1
            self._error = self._error or error
            self._changed.notify_all()
            await self._changed.wait_for(lambda: self._ready == self._workers or self._error)
            return self._error

    async def put(self, key: tuple[Any, ...], refs: list[ray.ObjectRef], readers: int) -> None:
        async with self._changed:
            self._kept[key] = (refs, readers)
            self._changed.notify_all()

    async def take(self, key: tuple[Any, ...]) -> list[ray.ObjectRef]:
        async with self._changed:
            await self._changed.wait_for(lambda: key in self._kept)
            refs, readers = self._kept.pop(key)
            if readers > 1:
                self._kept[key] = (refs, readers - 1)
            return refs


class _Worker:
    """This worker's end of the exchange (``rullama.TrainingGroup``), and its reports."""

    def __init__(self) -> None:
        context = ray.train.get_context()
        self.rank: int = context.get_world_rank()
        self.size: int = context.get_world_size()
        name = f"rullama-{uuid.uuid4().hex}"
        if self.rank == 0:
            self._own = ray.remote(_Mailbox).options(num_cpus=0, name=name).remote(self.size)
        self._mailbox = ray.get_actor(broadcast_from_rank_zero(name))
        self._asked = False
        self._metrics: dict[str, Any] = {}
        self.has_begun = False

    def _begin(self) -> None:
        """Before the first step: continues once all workers have opened model and data."""
        if self.has_begun:
            return
        self._asked = True
        error = ray.get(self._mailbox.begin.remote(None))
        if error is not None:
            raise error
        self.has_begun = True

    def refuse(self, error: Error) -> None:
        """Ends all workers with an error of this one; before the first step."""
        if not self._asked:
            self._asked = True
            ray.get(self._mailbox.begin.remote(error))

    def send_part(self, step: int, part: int, gradient: PartGradient) -> None:
        self._put((step, part), gradient, 1)

    def receive_part(self, step: int, part: int) -> PartGradient:
        found: PartGradient = self._take((step, part))
        return found

    def send_step(self, step: int, result: GroupStep) -> None:
        self._put((step,), result, self.size - 1)

    def receive_step(self, step: int) -> GroupStep:
        found: GroupStep = self._take((step,))
        return found

    def _put(self, key: tuple[int, ...], value: object, readers: int) -> None:
        self._begin()
        # The reference travels in a list; on its own it would be replaced by the object.
        ray.get(self._mailbox.put.remote(key, [ray.put(value)], readers))

    def _take(self, key: tuple[int, ...]) -> Any:
        self._begin()
        (ref,) = ray.get(self._mailbox.take.remote(key))
        return ray.get(ref)

    # Each worker reports as often as the others, because ray.train.report waits for all of them.

    def on_report(self, report: TrainingReport) -> None:
        if report.kind == "validation":
            self._metrics |= {"validation_loss": report.loss, "is_best": report.is_best}
            return
        self._begin()
        self._metrics |= {
            "step": report.step,
            "loss": report.loss,
            "tokens": report.tokens,
            "grad_norm": report.grad_norm,
            "learning_rate": report.learning_rate,
            "seconds": report.seconds,
        }
        ray.train.report(dict(self._metrics))

    def on_saved(self, folder: Path) -> None:
        self._begin()
        ray.train.report(
            self._metrics | {"step": int(folder.name)},
            checkpoint=Checkpoint.from_directory(folder) if self.rank == 0 else None,
            checkpoint_upload_mode=CheckpointUploadMode.NO_UPLOAD,
        )
