"""Answers, embeddings and scores of the rows of a Ray Dataset, each row once."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import pyarrow.fs
import pyarrow.parquet
import ray
import ray.data
from ray.data.checkpoint import CheckpointConfig

from .._errors import Error, UsageError
from .._model import Model
from .._stream import Stream
from .._types import Completion

Task: TypeAlias = Literal["generate", "chat", "embed", "score"]
#: A batch of Ray Data: columns of equal length.
Batch: TypeAlias = dict[str, Any]

_LOGGER = logging.getLogger("rullama")
#: Areas of errors that are the fault of one row; any other ends the job.
_ROW_AREAS = ("chat.", "context.", "text.")
#: The description of a job: a file next to its results.
_JOB_FILE = "job.json"


@dataclass(frozen=True)
class BatchResult:
    """What a job has written."""

    folder: str  #: of the Parquet files, ``OUTPUT/rows``
    rows: int  #: of all runs of the job together
    failed: int  #: of them: rows with an ``error``


@dataclass(frozen=True)
class _Job:
    """Everything that the values of a row depend on, besides the row."""

    model: str
    task: Task
    id_column: str
    input_column: str
    seed: int
    options: Mapping[str, Any]
    model_options: Mapping[str, Any]
    keep: tuple[str, ...]

    def text(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=1, sort_keys=True, default=str)


def map_batches(
    dataset: ray.data.Dataset,
    output: str,
    *,
    model: str,
    task: Task = "generate",
    id_column: str = "id",
    input_column: str = "prompt",
    keep: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
    model_options: Mapping[str, Any] | None = None,
    seed: int = 0,
    batch_size: int = 64,
    rows_per_file: int = 8192,
    workers: int | tuple[int, int] = 1,
    num_cpus: float = 1,
    num_gpus: float = 0,
    resume: bool = True,
) -> BatchResult:
    """Computes one output row for each row of ``dataset`` and writes them to ``OUTPUT/rows`` as
    Parquet. Blocks until all are written.

    ``dataset``: begins with a reader such as ``ray.data.read_parquet`` and has only operations on
    single rows or batches; ``id_column`` is unique, of integers or text. ``output``: an absolute
    path that all nodes share, or a URI such as ``s3://bucket/folder``. ``task`` and the columns it
    adds to ``id_column``, ``keep``, ``error``:

    - ``"generate"`` continues the text, ``"chat"`` answers the conversation (a list of messages, as
      JSON text): ``text``, ``reason``, ``seed``, ``prompt_tokens``, ``completion_tokens``
    - ``"embed"``: ``embedding``, float32 ``[width]`` of length 1
    - ``"score"``: ``log_likelihood``, the sum of ln p over the tokens after BOS, and ``tokens``,
      how many these are

    ``options``: those of ``Model.generate()`` or, for ``"embed"``, ``Model.embed()``. ``model_options``: arguments of ``Model()``; all
    workers use the same. ``rows_per_file``: rows that are written, and counted as done, together.
    ``workers``: processes with a model each, or the fewest and the most.
    ``num_cpus``, ``num_gpus``: what Ray reserves for each.

    The answer to a row depends on the row, the model and the options only: its random numbers
    follow from ``seed`` and its id, and with equal devices the bytes are the same whichever worker
    computes them. A row that the model cannot answer, such as one that is too long, has its
    ``error`` (an id of docs/errors.md and the message) and empty values. Lost workers and nodes are
    made up for by Ray Data. If the driver is lost or a worker fails, the same call continues after
    the rows that are written; with ``resume=False`` an ``output`` that exists is refused.

    Raises ``rullama.UsageError``: ``batch.output`` (``output`` belongs to another job or exists),
    ``batch.rows`` (rows are missing or there twice, because ids are not unique); else what
    ``Model()`` and Ray raise.
    """
    if task not in get_args(Task):
        raise ValueError(f"task is {task!r}, expected one of {', '.join(get_args(Task))}")
    job = _Job(
        model=model,
        task=task,
        id_column=id_column,
        input_column=input_column,
        seed=seed,
        options=dict(options or {}),
        model_options=dict(model_options or {}),
        keep=tuple(keep),
    )
    files, root = pyarrow.fs.FileSystem.from_uri(output)
    _claim(files, root, job, resume)
    pool = _pool(workers)
    _warn_if_full(pool.min_size * num_cpus)
    rows = f"{output.rstrip('/')}/rows"
    mapped = dataset.repartition(target_num_rows_per_block=rows_per_file).map_batches(
        _Worker,
        batch_size=batch_size,
        fn_constructor_args=(job,),
        compute=pool,
        num_cpus=num_cpus,
        num_gpus=num_gpus,
    )
    before = mapped.context.checkpoint_config
    mapped.context.checkpoint_config = CheckpointConfig(
        id_column, f"{output.rstrip('/')}/progress", delete_checkpoint_on_success=False
    )
    try:
        mapped.write_parquet(rows, mode="append")
    finally:
        mapped.context.checkpoint_config = before
    return _verified(files, f"{root}/rows", dataset.count())


class _Worker:
    """A process with a model; Ray Data makes it and hands it batches."""

    def __init__(self, job: _Job) -> None:
        self._job = job
        self._model = Model(job.model, **job.model_options)

    def __call__(self, batch: Batch) -> Batch:
        job = self._job
        ids = list(batch[job.id_column])
        inputs = list(batch[job.input_column])
        answer: Callable[[list[Any], list[Any]], list[dict[str, Any]]] = {
            "generate": self._generate,
            "chat": self._generate,
            "embed": self._embed,
            "score": self._score,
        }[job.task]
        rows = answer(ids, inputs)
        columns: Batch = {name: batch[name] for name in (job.id_column, *job.keep)}
        for name in rows[0] if rows else ():
            columns[name] = _column([row[name] for row in rows])
        return columns

    def _generate(self, ids: list[Any], inputs: list[Any]) -> list[dict[str, Any]]:
        # All requests of a batch share the slots; their order does not change their answers.
        started = [self._start(i, text) for i, text in zip(ids, inputs)]
        return [_answer_row(_wait(one)) for one in started]

    def _start(self, row_id: object, text: Any) -> Stream | Error:
        options = {**self._job.options, "seed": row_seed(self._job.seed, row_id)}
        try:
            if self._job.task == "chat":
                return self._model.chat(json.loads(text), stream=True, **options)
            return self._model.stream(str(text), **options)
        except Error as error:
            return _of_row(error)
        except json.JSONDecodeError as error:
            return UsageError("chat.json", f"the conversation is not JSON: {error}")

    def _embed(self, ids: list[Any], inputs: list[Any]) -> list[dict[str, Any]]:
        texts = [str(text) for text in inputs]
        try:
            vectors = self._model.embed(texts, **self._job.options)
        except Error:  # of some of the texts: each by itself
            return [self._each(self._embedding, text, {"embedding": None}) for text in texts]
        return [{"embedding": vector, "error": ""} for vector in vectors]

    def _score(self, ids: list[Any], inputs: list[Any]) -> list[dict[str, Any]]:
        empty = {"log_likelihood": float("nan"), "tokens": 0}
        return [self._each(self._likelihood, text, empty) for text in inputs]

    def _embedding(self, text: str) -> dict[str, Any]:
        return {"embedding": self._model.embed(text, **self._job.options)}

    def _likelihood(self, text: str) -> dict[str, Any]:
        ids = self._model.tokenize(text, parse_special=False, add_bos=True)
        if len(ids) < 2:
            return {"log_likelihood": 0.0, "tokens": 0}
        return {"log_likelihood": -self._model.negative_log_likelihood(ids), "tokens": len(ids) - 1}

    def _each(
        self, compute: Callable[[str], dict[str, Any]], text: Any, empty: dict[str, Any]
    ) -> dict[str, Any]:
        try:
            return compute(str(text)) | {"error": ""}
        except Error as error:
            return empty | {"error": str(_of_row(error))}


def _pool(workers: int | tuple[int, int]) -> ray.data.ActorPoolStrategy:
    fewest, most = workers if isinstance(workers, tuple) else (workers, workers)
    return ray.data.ActorPoolStrategy(min_size=fewest, max_size=most)


def _warn_if_full(cpus: float) -> None:
    there = ray.cluster_resources().get("CPU", 0)
    if there < cpus + 1:
        _LOGGER.warning(
            "workers reserve %g of the cluster's %g CPUs; unless it grows, the job waits for ever, "
            "because readers and writers need one more",
            cpus,
            there,
        )


def row_seed(seed: int, row_id: object) -> int:
    """The seed of a row: 63 bits that follow from ``seed`` and the id of the row."""
    digest = hashlib.blake2b(f"{seed}:{row_id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def _of_row(error: Error) -> Error:
    if not error.id.startswith(_ROW_AREAS):
        raise error
    return error


def _wait(started: Stream | Error) -> Completion | Error:
    if isinstance(started, Error):
        return started
    try:
        return started.wait()
    except Error as error:
        return _of_row(error)


def _answer_row(answer: Completion | Error) -> dict[str, Any]:
    if isinstance(answer, Error):
        answer, error = _NO_ANSWER, str(answer)
    else:
        error = ""
    return {
        "text": answer.text,
        "reason": answer.reason if not error else "",
        "seed": answer.seed,
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": len(answer.ids),
        "error": error,
    }


_NO_ANSWER = Completion("", "", (), (), (), "cancelled", 0, 0, 0, 0, 0, 0.0, 0.0, 0.0)


def _column(values: list[Any]) -> Any:
    if values and isinstance(values[0], (np.ndarray, type(None))):
        return values
    return np.asarray(values)


def _claim(files: pyarrow.fs.FileSystem, root: str, job: _Job, resume: bool) -> None:
    path = f"{root}/{_JOB_FILE}"
    if files.get_file_info(path).type == pyarrow.fs.FileType.NotFound:
        files.create_dir(root, recursive=True)
        with files.open_output_stream(path) as file:
            file.write(job.text().encode())
        return
    if not resume:
        raise UsageError("batch.output", f"{root} has results, expected an empty folder")
    with files.open_input_stream(path) as file:
        found = file.read().decode()
    if found != job.text():
        raise UsageError(
            "batch.output",
            f"{root} belongs to a job with another model, task, seed or options ({path})",
            "give another output, or the arguments of that job",
        )


def _verified(files: pyarrow.fs.FileSystem, folder: str, expected: int) -> BatchResult:
    selector = pyarrow.fs.FileSelector(folder, allow_not_found=True)
    rows = failed = 0
    for info in files.get_file_info(selector):
        if not info.path.endswith(".parquet"):
            continue
        with files.open_input_file(info.path) as file:
            errors = pyarrow.parquet.read_table(file, columns=["error"])["error"].to_pylist()
        rows += len(errors)
        failed += sum(1 for one in errors if one)
    if rows != expected:
        raise UsageError(
            "batch.rows",
            f"{folder} has {rows} rows, expected the {expected} of the dataset",
            "make the ids unique and begin with an empty output",
        )
    return BatchResult(folder, rows, failed)
