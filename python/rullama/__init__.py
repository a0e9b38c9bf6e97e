"""Gemma 3 and 4 on plugin backends, from GGUF files.

    import rullama

    with rullama.Model("gemma4:e2b") as model:
        for event in model.chat([{"role": "user", "content": "Why?"}], stream=True):
            print(event.text, end="", flush=True)
"""

from ._diff import Difference, diff
from ._errors import (
    BackendError,
    Error,
    FileError,
    ModelFileError,
    OutOfMemoryError,
    RunError,
    ThresholdError,
    UsageError,
)
from ._finetune import (
    GroupStep,
    PartGradient,
    TrainingData,
    TrainingGroup,
    TrainingReport,
    TrainingResult,
    finetune,
)
from ._model import Model
from ._rullama import __version__
from ._stream import AsyncStream, Stream
from ._types import (
    Completion,
    Event,
    LogprobStep,
    ModelInfo,
    RequestOptions,
    TokenLogprob,
    ToolCall,
)

__all__ = [
    "AsyncStream",
    "BackendError",
    "Completion",
    "Difference",
    "Error",
    "Event",
    "FileError",
    "GroupStep",
    "LogprobStep",
    "Model",
    "ModelFileError",
    "ModelInfo",
    "OutOfMemoryError",
    "PartGradient",
    "RequestOptions",
    "RunError",
    "Stream",
    "ThresholdError",
    "TokenLogprob",
    "ToolCall",
    "TrainingData",
    "TrainingGroup",
    "TrainingReport",
    "TrainingResult",
    "UsageError",
    "__version__",
    "diff",
    "finetune",
]
