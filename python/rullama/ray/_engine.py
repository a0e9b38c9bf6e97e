"""The program ``rullama serve`` as a child of a replica."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import ctypes
import json
import logging
import re
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp

from ._config import AppConfig
from ._message import Forward, Head

_LOGGER = logging.getLogger("rullama")
_LISTENING = re.compile(rb"listening on (http://127\.0\.0\.1:\d+)")
_PR_SET_PDEATHSIG = 1
#: Lines of the program that an error quotes.
_LAST_LINES = 12
#: Fields that belong to one connection (RFC 9110, 7.6.1), or that the client library sets.
_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-connection te trailer transfer-encoding "
    b"upgrade content-length accept-encoding expect".split()
)


class EngineError(RuntimeError):
    """The program of a replica did not start, has ended or does not answer."""


def _end_with_parent() -> None:
    # A replica that is killed must not leave a program that holds the device.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Engine:
    """One running ``rullama serve``. For one event loop."""

    def __init__(self, config: AppConfig) -> None:
        self._config = config
        self._folder = tempfile.TemporaryDirectory(prefix="rullama-ray-")
        self._process: asyncio.subprocess.Process | None = None
        self._session: aiohttp.ClientSession | None = None
        self._log: asyncio.Task[None] | None = None
        self._address = ""
        self._last: collections.deque[str] = collections.deque(maxlen=_LAST_LINES)

    @property
    def address(self) -> str:
        """Where the program listens, on this node only: ``http://127.0.0.1:PORT``."""
        return self._address

    @property
    def pid(self) -> int:
        """The process id of the program; 0 before ``start()``."""
        return self._process.pid if self._process else 0

    async def start(self) -> None:
        """Starts the program and waits until it listens. Raises ``EngineError``."""
        program = shutil.which(self._config.program)
        if program is None:
            raise EngineError(
                f"there is no program {self._config.program} on this node; install rullama "
                "(docs/packages.md) or give its path as `program`"
            )
        self._process = await asyncio.create_subprocess_exec(
            program,
            "serve",
            "--port=0",
            "--host=127.0.0.1",
            "--color=never",
            f"--config={self._config_file()}",
            *self._config.engine_flags(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            preexec_fn=_end_with_parent,
        )
        try:
            async with asyncio.timeout(self._config.start_timeout_s):
                await self._wait_until_listening()
        except TimeoutError:
            await self.stop()
            raise EngineError(
                f"{program} did not listen within {self._config.start_timeout_s} s; raise "
                "start_timeout_s if the model takes longer to load"
            ) from None
        # The limits of time are those of the server; the pool is as large as the replica.
        self._session = aiohttp.ClientSession(
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(total=None),
            connector=aiohttp.TCPConnector(limit=0),
        )
        self._log = asyncio.create_task(self._pass_on_log())

    async def ended(self) -> str:
        """Waits until the program ends and says how it did. Unless ``stop()`` ends it, that is a
        failure."""
        process, _ = self._running()
        await process.wait()
        return self._how_it_ended()

    async def check_health(self) -> None:
        """Raises ``EngineError`` if the program has ended or its ``/health`` is not 200."""
        process, session = self._running()
        if process.returncode is not None:
            raise EngineError(self._how_it_ended())
        try:
            async with session.get(self._address + "/health") as answer:
                if answer.status != 200:
                    raise EngineError(f"the engine is not healthy: {await answer.text()}")
        except aiohttp.ClientError as error:
            raise EngineError(f"the engine does not answer: {error}") from error

    async def forward(self, request: Forward) -> AsyncIterator[Head | bytes]:
        """The answer to a request: its head, then its body in parts as they come. Closing the
        iterator closes the connection, which cancels the answer. Raises ``EngineError``."""
        _, session = self._running()
        try:
            async with session.request(
                request.method,
                self._address + request.target,
                data=request.body or None,
                headers=[(k.decode("latin-1"), v.decode("latin-1")) for k, v in _kept(request.headers)],
                skip_auto_headers=("Content-Type", "User-Agent", "Accept", "Accept-Encoding"),
                allow_redirects=False,
            ) as answer:
                yield Head(answer.status, tuple(_kept(answer.raw_headers)))
                async for part in answer.content.iter_any():
                    yield part
        except (aiohttp.ClientError, ConnectionError) as error:
            raise EngineError(f"the engine did not answer: {error}") from error

    async def stop(self) -> None:
        """Ends the program: running answers have ``drain_s`` seconds."""
        process = self._process
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            try:
                async with asyncio.timeout(self._config.drain_s + 5):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
        if self._log is not None:
            await self._log
        if self._session is not None:
            await self._session.close()
        self._folder.cleanup()

    def _config_file(self) -> str:
        config = self._config.config
        if isinstance(config, str):
            return config
        path = Path(self._folder.name) / "config.yaml"
        path.write_text(json.dumps(self._config.engine_settings()), "utf-8")  # JSON is YAML
        return str(path)

    async def _wait_until_listening(self) -> None:
        async for line in self._lines():
            found = _LISTENING.search(line)
            if found:
                self._address = found[1].decode()
                return
        assert self._process is not None
        await self._process.wait()
        raise EngineError(self._how_it_ended())

    async def _pass_on_log(self) -> None:
        async for line in self._lines():
            _LOGGER.info("%s", line.decode("utf-8", "replace").rstrip())

    async def _lines(self) -> AsyncIterator[bytes]:
        assert self._process is not None and self._process.stderr is not None
        async for line in self._process.stderr:
            self._last.append(line.decode("utf-8", "replace").rstrip())
            yield line

    def _running(self) -> tuple[asyncio.subprocess.Process, aiohttp.ClientSession]:
        if self._process is None or self._session is None:
            raise EngineError("the engine is not running")
        return self._process, self._session

    def _how_it_ended(self) -> str:
        code = self._process.returncode if self._process else None
        lines = "\n".join(self._last)
        return f"the engine ended with exit code {code} (docs/errors.md); its last lines:\n{lines}"


def _kept(headers: tuple[tuple[bytes, bytes], ...]) -> list[tuple[bytes, bytes]]:
    return [(name, value) for name, value in headers if name.lower() not in _HOP]
