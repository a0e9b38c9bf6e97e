"""A replica: one engine, to which it hands requests."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
from collections.abc import AsyncIterator

import ray
from ray import serve

from ._config import AppConfig
from ._engine import Engine, EngineError
from ._message import Forward, Head

_LOGGER = logging.getLogger("rullama")


class ReplicaError(EngineError):
    """The engine of ``replica`` did not answer a request."""

    def __init__(self, replica: str, message: str) -> None:
        super().__init__(replica, message)  # as it is pickled
        self.replica = replica

    def __str__(self) -> str:
        return f"replica {self.replica}: {self.args[1]}"


class Replica:
    """The deployment class that the ingress calls. Ray Serve makes, checks and ends it."""

    async def __init__(self, config: AppConfig) -> None:  # type: ignore[misc]
        self._id = serve.get_replica_context().replica_id.unique_id
        self._engine = Engine(config)
        await self._engine.start()
        self._watch = asyncio.create_task(self._end_with_engine())

    async def check_health(self) -> None:
        """Raises if the engine has ended or does not answer; Ray Serve calls it."""
        await self._engine.check_health()

    async def forward(self, request: Forward) -> AsyncIterator[Head | bytes]:
        """The answer of the engine: a ``Head``, then parts of the body."""
        try:
            async for part in self._engine.forward(request):
                yield dataclasses.replace(part, replica=self._id) if isinstance(part, Head) else part
        except EngineError as error:
            raise ReplicaError(self._id, str(error)) from error

    async def engine_state(self) -> dict[str, object]:
        """The ``id`` of the replica, its ``node``, and the ``pid`` and ``address`` of its engine there."""
        return {
            "id": self._id,
            "node": ray.get_runtime_context().get_node_id(),
            "pid": self._engine.pid,
            "address": self._engine.address,
        }

    async def _end_with_engine(self) -> None:
        # A replica that stayed without an engine would be the least busy one and attract requests
        # until the next health check. Routers drop a replica whose process has ended at once.
        how = await self._engine.ended()
        _LOGGER.error("%s", how)
        logging.shutdown()
        os._exit(1)

    async def __del__(self) -> None:
        self._watch.cancel()
        await self._engine.stop()
