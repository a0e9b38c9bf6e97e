"""The errors of the library as exceptions; docs/errors.md lists their ids."""

from __future__ import annotations

from typing import ClassVar

from . import _rullama


class Error(Exception):
    """What went wrong, what was expected and what to do."""

    #: One word for what failed, the same for all errors of a class.
    kind: ClassVar[str] = "run"
    #: With which the program ``rullama`` would exit.
    exit_code: ClassVar[int] = 1

    #: Stable, for programs to compare with: ``"gguf.bad_magic"``.
    id: str
    #: What was found and what was expected.
    message: str
    #: What to do; may be empty.
    hint: str

    def __init__(self, id: str, message: str, hint: str = "") -> None:
        super().__init__(id, message, hint)
        self.id = id
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        hint = f"; {self.hint}" if self.hint else ""
        return f"{self.message}{hint} [{self.id}]"


class RunError(Error):
    """Failure while running: logits that are not numbers, work that was cancelled."""


class UsageError(Error):
    """An argument or a configuration is wrong."""

    kind = "usage"
    exit_code = 2


class BackendError(Error):
    """A plugin, device or driver cannot be used."""

    kind = "backend"
    exit_code = 3


class ModelFileError(Error):
    """The model file, its tokenizer or the model store is invalid or unsupported."""

    kind = "model_file"
    exit_code = 4


class OutOfMemoryError(Error, MemoryError):
    """The host or the device has no memory left. Also a ``MemoryError``."""

    kind = "memory"
    exit_code = 5


class FileError(Error):
    """Reading or writing a file failed."""

    kind = "io"
    exit_code = 6


class ThresholdError(Error):
    """A comparison exceeded its threshold."""

    kind = "threshold"
    exit_code = 7


_CLASSES: dict[int, type[Error]] = {
    c.exit_code: c
    for c in (
        RunError,
        UsageError,
        BackendError,
        ModelFileError,
        OutOfMemoryError,
        FileError,
        ThresholdError,
    )
}


def make_error(kind: int, id: str, message: str) -> Error:
    """The exception for an error of the library. The native module calls this."""
    return _CLASSES.get(kind, RunError)(id, *_rullama.split_message(message))
