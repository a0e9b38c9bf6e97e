"""Takes requests, chooses replicas for them and passes their answers on."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import ray.exceptions
from ray import serve
from ray.serve.exceptions import BackPressureError, ReplicaUnavailableError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse

from ._config import AppConfig
from ._engine import EngineError
from ._message import Forward, Head
from ._prefixes import prefix_chain

_LOGGER = logging.getLogger("rullama")
#: What a lost replica leads to; another one may answer.
_LOST = (ray.exceptions.RayActorError, ReplicaUnavailableError, EngineError)
#: Codes of errors of one replica that another one may not have.
_ELSEWHERE = frozenset({"out_of_memory", "device_lost", "shutting_down", "model_loading"})
_STREAMS = (b"text/event-stream", b"application/x-ndjson")
#: Seconds between two attempts.
_PAUSE_S = 0.05


class _Lost(Exception):
    """A replica did not answer; ``head`` and ``body`` are what it said instead, if anything."""

    def __init__(self, cause: str, replica: str = "", answer: Response | None = None) -> None:
        super().__init__(cause)
        self.replica = replica
        self.answer = answer


class Ingress:
    """The deployment class in front. Any number of requests at a time, on one event loop."""

    def __init__(self, config: AppConfig, replicas: Any) -> None:
        self._config = config
        self._replicas = replicas.options(stream=True)

    async def __call__(self, request: Request) -> Response:
        """Answers a request of the OpenAI or Ollama API."""
        if request.url.path == "/metrics":
            return _error(
                request.url.path,
                404,
                "route_not_found",
                "metrics of replicas are those of Ray Serve, on the metrics port of each node",
            )
        try:
            body = await self._body(request)
        except ClientDisconnect:
            return Response(status_code=499)
        if body is None:
            message = f"the body is longer than {self._config.max_body_bytes} bytes; send less"
            return _error(request.url.path, 413, "body_too_large", message)
        return await self._answer(_forward_of(request, body), request.url.path)

    async def _body(self, request: Request) -> bytes | None:
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > self._config.max_body_bytes:
                return None
        return bytes(body)

    async def _answer(self, forward: Forward, path: str) -> Response:
        asked = 0  # replicas
        lost: _Lost | None = None
        full = False
        for _ in range(self._config.attempts):
            try:
                return _counted(await self._attempt(forward, path), asked + 1)
            except BackPressureError:
                # Ray Serve counts requests as queued while they are handed out, so a burst may find
                # the queue full although replicas are free.
                full = True
            except _Lost as error:
                asked += 1
                full = False
                _LOGGER.warning("a replica did not answer, another one is asked: %s", error)
                lost = error
                forward = dataclasses.replace(forward, tried=forward.tried | {error.replica})
            await asyncio.sleep(_PAUSE_S)
        if full:
            message = "all replicas are busy and the queue is full; try again later"
            return _error(path, 429, "queue_full", message)
        if lost is not None and lost.answer is not None:
            return _counted(lost.answer, asked)
        message = f"{self._config.attempts} replicas did not answer; try again later"
        return _counted(_error(path, 503, "replica_unavailable", message), asked)

    async def _attempt(self, forward: Forward, path: str) -> Response:
        # No byte reaches the client before the replica has written the first of a stream, or the
        # last of any other answer: up to then another replica can answer instead.
        parts = _Parts(self._replicas.forward.remote(forward))
        try:
            head = await parts.head()
            if _is_stream(head):
                first = await parts.next()
                return StreamingResponse(
                    parts.rest(first, path), status_code=head.status, headers=_headers(head)
                )
            body = b"".join([part async for part in parts])
        except asyncio.CancelledError:
            parts.cancel()
            raise
        answer = Response(body, status_code=head.status, headers=_headers(head))
        if head.status == 503 and _code_of(body) in _ELSEWHERE:
            raise _Lost(_code_of(body), head.replica, answer)
        return answer


class _Parts:
    """The answer of one replica as it comes. Raises ``_Lost`` and ``BackPressureError``."""

    def __init__(self, response: Any) -> None:
        self._response = response
        self._replica = ""

    async def head(self) -> Head:
        head = await self.next()
        assert isinstance(head, Head)
        self._replica = head.replica
        return head

    async def next(self) -> Any:
        """The next part, or ``None`` at the end."""
        try:
            return await anext(self._response)
        except StopAsyncIteration:
            return None
        except _LOST as error:
            replica = getattr(error, "replica", self._replica)
            raise _Lost(str(error).strip() or type(error).__name__, replica) from error

    def __aiter__(self) -> _Parts:
        return self

    async def __anext__(self) -> bytes:
        part: bytes | None = await self.next()
        if part is None:
            raise StopAsyncIteration
        return part

    async def rest(self, first: bytes | None, path: str) -> AsyncIterator[bytes]:
        """A stream from ``first`` on. One that breaks off ends with an error, as the server's do."""
        ended = False
        try:
            if first is not None:
                yield first
            async for part in self:
                yield part
            ended = True
        except _Lost as error:
            ended = True
            yield _stream_error(path, f"the replica was lost while it answered: {error}")
        finally:
            if not ended:  # the client has left
                self.cancel()

    def cancel(self) -> None:
        with contextlib.suppress(Exception):
            self._response.cancel()


def _forward_of(request: Request, body: bytes) -> Forward:
    target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    prefix: tuple[int, ...] = ()
    if request.method == "POST":
        with contextlib.suppress(ValueError, RecursionError):  # the engine reports the fault
            values = json.loads(body)
            if isinstance(values, dict):
                prefix = prefix_chain(values, request.headers.get("authorization", ""))
    return Forward(request.method, target, tuple(request.headers.raw), body, prefix)


def _is_stream(head: Head) -> bool:
    kind = next((value for name, value in head.headers if name.lower() == b"content-type"), b"")
    return head.status == 200 and kind.startswith(_STREAMS)


def _headers(head: Head) -> dict[str, str]:
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
    return headers | {"X-Rullama-Replica": head.replica}


def _counted(answer: Response, asked: int) -> Response:
    """The answer, with how many replicas were asked for it."""
    answer.headers["X-Rullama-Attempts"] = str(asked)
    return answer


def _code_of(body: bytes) -> str:
    with contextlib.suppress(ValueError, AttributeError, TypeError):
        values = json.loads(body)
        return str(values.get("code") or values["error"]["code"])
    return ""


def _error_body(path: str, status: int, code: str, message: str) -> str:
    kinds = {404: "not_found_error", 413: "invalid_request_error", 429: "rate_limit_error"}
    if path.startswith("/api/"):
        return json.dumps({"error": message, "code": code})
    kind = kinds.get(status, "unavailable_error")
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}})


def _error(path: str, status: int, code: str, message: str) -> Response:
    headers = {"Retry-After": "1"} if status in (429, 503) else {}
    body = _error_body(path, status, code, message)
    return Response(body, status, headers, media_type="application/json")


def _stream_error(path: str, message: str) -> bytes:
    body = _error_body(path, 503, "replica_lost", message)
    return (body + "\n" if path.startswith("/api/") else f"data: {body}\n\n").encode()
