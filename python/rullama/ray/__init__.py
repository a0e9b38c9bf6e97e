"""rullama on Ray: a server of several replicas (Ray Serve) and jobs over many rows (Ray Data).

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

__all__ = ["AppConfig", "BatchResult", "EngineError", "build_app", "map_batches"]


def __getattr__(name: str) -> Any:
    # Ray Data takes a second to import; replicas of a server do without it.
    if name in ("BatchResult", "map_batches"):
        from . import _batch

        return getattr(_batch, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
