"""rullama on Ray: a server of several replicas (Ray Serve), jobs over many rows (Ray Data) and
fine-tuning by several workers (Ray Train).

    from ray import serve
    import rullama.ray

    serve.run(rullama.ray.build_app({"model": "gemma4:e2b", "max_replicas": 4}))

Needs the extra ``rullama[ray]``; docs/ray.md describes it.
"""

try:
    import ray as _ray  # noqa: F401
except ImportError as error:
    raise ImportError("rullama.ray needs Ray; install it with: pip install 'rullama[ray]'") from error

from typing import TYPE_CHECKING, Any

from ._app import build_app
from ._config import AppConfig
from ._engine import EngineError

if TYPE_CHECKING:
    from ._batch import BatchResult, map_batches
    from ._finetune import finetune

__all__ = ["AppConfig", "BatchResult", "EngineError", "build_app", "finetune", "map_batches"]


def __getattr__(name: str) -> Any:
    # Ray Data and Ray Train take a second to import; replicas of a server do without them.
    if name in ("BatchResult", "map_batches"):
        from . import _batch

        return getattr(_batch, name)
    if name == "finetune":
        from . import _finetune

        return _finetune.finetune
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
