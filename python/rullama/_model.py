"""A model that answers requests."""

from __future__ import annotations

import difflib
import json
import logging
import math
import operator
import os
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, TypeAlias, Unpack, overload

import numpy as np
from numpy.typing import NDArray

from . import _rullama
from ._media import File, add_media, files_of
from ._stream import AsyncStream, Stream, on_main_thread
from ._types import Completion, ModelInfo, RequestOptions

#: A text to be continued as it is (markers of the template are recognised), or token ids.
Prompt: TypeAlias = str | Sequence[int]
#: A conversation in the form of the OpenAI chat API.
Messages: TypeAlias = Sequence[Mapping[str, Any]]
Tools: TypeAlias = Sequence[Mapping[str, Any]]
#: A low-rank adapter: a file or a folder, alone or with the factor of its effect.
AdapterPath: TypeAlias = str | os.PathLike[str] | tuple[str | os.PathLike[str], float]

_LOGGER = logging.getLogger("rullama")
_LEVELS = (logging.ERROR, logging.WARNING, logging.INFO)


def _yaml(value: object) -> str:
    # JSON is YAML; a text by itself has no quotes.
    if isinstance(value, (bool, list, tuple, dict)):
        return json.dumps(value, ensure_ascii=False, default=os.fspath)
    return str(value)


def settings_of(
    config: str | os.PathLike[str] | Mapping[str, object] | None, values: Mapping[str, object]
) -> tuple[str, list[tuple[str, str]]]:
    """The configuration file and the settings that ``config`` and named values mean."""
    settings: list[tuple[str, str]] = []
    config_file = ""
    if isinstance(config, Mapping):
        settings += [(key, _yaml(value)) for key, value in config.items()]
    elif config is not None:
        config_file = os.fspath(config)
    settings += [(key, _yaml(value)) for key, value in values.items() if value is not None]
    return config_file, settings


def log_lines(lines: Sequence[tuple[int, str]]) -> None:
    """Passes lines of the native module on to the logger."""
    for level, line in lines:
        _LOGGER.log(_LEVELS[level], "%s", line)


def _adapter(adapter: AdapterPath) -> dict[str, object]:
    if not isinstance(adapter, tuple):
        return {"path": os.fspath(adapter)}
    if len(adapter) != 2 or isinstance(adapter[1], str):
        raise TypeError(f"an adapter is {adapter!r}, expected a path or a tuple (path, scale)")
    return {"path": os.fspath(adapter[0]), "scale": float(adapter[1])}


def _adapters(adapters: Sequence[AdapterPath]) -> list[dict[str, object]] | None:
    """The adapters as the setting ``model.adapters`` has them."""
    if isinstance(adapters, (str, bytes, os.PathLike)):
        raise TypeError(f"adapters is one {type(adapters).__name__}, expected a list of adapters")
    return [_adapter(one) for one in adapters] or None


def _check_names(options: RequestOptions) -> None:
    names = sorted(RequestOptions.__annotations__)
    for name in sorted(set(options) - set(names)):
        near = difflib.get_close_matches(name, names, n=1) or [one for one in names if name in one]
        hint = f" (did you mean '{near[0]}'?)" if near else ""
        raise TypeError(f"there is no option '{name}'{hint}; there are {', '.join(names)}")


def _options(values: dict[str, Any], options: RequestOptions) -> dict[str, Any]:
    _check_names(options)
    result = {k: v for k, v in values.items() if v is not None}
    result.update((k, v) for k, v in options.items() if v is not None)
    if isinstance(result.get("stop"), str):
        result["stop"] = [result["stop"]]
    if not isinstance(result.get("json_schema", ""), str):
        result["json_schema"] = json.dumps(result["json_schema"])
    add_media(result)
    return result


class Model:
    """A model, open on a device. All functions may be called from any thread at any time; what
    blocks releases the GIL. Requests of all threads share ``slots`` and run in steps together.

    Use it in a ``with`` statement or call ``close()``.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        backend: str = "auto",
        *,
        device: int | str | None = None,
        context: int | None = None,
        slots: int | None = None,
        adapters: Sequence[AdapterPath] = (),
        config: str | os.PathLike[str] | Mapping[str, object] | None = None,
        plugin_paths: Sequence[str | os.PathLike[str]] = (),
    ) -> None:
        """Opens a GGUF file or a model of Ollama (``"gemma4:e2b"``). Blocks until requests can run;
        Ctrl-C takes effect then.

        ``backend``: the name of one, such as ``"cpu"`` or ``"vulkan"``, or ``"auto"``. ``device``: its number or a
        part of its name. ``context``: tokens per slot. ``slots``: requests that run at once.
        ``adapters``: low-rank adapters (LoRA), which add up: paths, such as the folder that
        ``finetune()`` wrote, or tuples ``(path, 0.5)`` with a factor of the effect. ``config``: a
        YAML file, or values by their names in docs/configuration.md, such as
        ``{"context.slots": 4, "generation.stop": ["a", "b"]}``. ``plugin_paths``: folders or files
        of plugins, searched first. Warnings and notes go to the logger ``rullama``.

        Raises ``rullama.Error``: ``config.*``, ``gguf.*``, ``store.*``, ``model.*``, ``adapter.*``,
        ``tokenizer.*``, ``io.*``, ``plugin.*``, ``backend.*``, ``memory.*``.
        """
        config_file, settings = settings_of(
            config,
            {
                "backend.device": device,
                "context.capacity": context,
                "context.slots": slots,
                "model.adapters": _adapters(adapters),
            },
        )
        self._native = _rullama.Model(
            os.fspath(model),
            backend,
            config_file,
            settings,
            [os.fspath(path) for path in plugin_paths],
            on_main_thread(),
        )
        self._pass_on_log()
        self._info = ModelInfo(**self._native.info())

    @property
    def info(self) -> ModelInfo:
        return self._info

    def close(self) -> None:
        """Closes the model. Answers that still run keep their device until they are over; any other
        use of the model raises ``usage.request`` from now on."""
        self._native.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def generate(self, prompt: Prompt, **options: Unpack[RequestOptions]) -> Completion:
        """Continues a prompt and returns the whole answer. Blocks. Ctrl-C cancels it. ``options``
        are those of ``rullama.RequestOptions``: ``max_tokens``, ``temperature``, ``stop``, ...

        Raises ``rullama.Error``: ``usage.request`` (an option out of range), ``sampler.*``,
        ``text.utf8``, ``context.overflow``, ``backend.*``.
        """
        return self.stream(prompt, **options).wait()

    def stream(self, prompt: Prompt, **options: Unpack[RequestOptions]) -> Stream:
        """Starts to continue a prompt; does not wait for a slot. Raises as ``generate()``."""
        return Stream(self._submit(_prompt(prompt), options))

    @overload
    def chat(
        self,
        messages: Messages,
        *,
        tools: Tools | None = None,
        thinking: bool | None = None,
        stream: Literal[False] = False,
        **options: Unpack[RequestOptions],
    ) -> Completion: ...
    @overload
    def chat(
        self,
        messages: Messages,
        *,
        tools: Tools | None = None,
        thinking: bool | None = None,
        stream: Literal[True],
        **options: Unpack[RequestOptions],
    ) -> Stream: ...
    def chat(
        self,
        messages: Messages,
        *,
        tools: Tools | None = None,
        thinking: bool | None = None,
        stream: bool = False,
        **options: Unpack[RequestOptions],
    ) -> Completion | Stream:
        """Answers a conversation: ``[{"role": "user", "content": "Why?"}]``. ``tools``: functions
        that the model may call, in OpenAI's form. Raises as ``generate()``, and ``chat.*``."""
        answer = Stream(self._submit(_chat(messages, tools, thinking), options))
        return answer if stream else answer.wait()

    async def agenerate(self, prompt: Prompt, **options: Unpack[RequestOptions]) -> Completion:
        """``generate()`` for asyncio. Cancelling the task cancels the answer."""
        async with self.astream(prompt, **options) as answer:
            return await answer.wait()

    def astream(self, prompt: Prompt, **options: Unpack[RequestOptions]) -> AsyncStream:
        """``stream()`` for asyncio; to be called while an event loop runs."""
        return AsyncStream(self._submit(_prompt(prompt), options))

    def achat(
        self,
        messages: Messages,
        *,
        tools: Tools | None = None,
        thinking: bool | None = None,
        **options: Unpack[RequestOptions],
    ) -> AsyncStream:
        """``chat(stream=True)`` for asyncio; to be called while an event loop runs."""
        return AsyncStream(self._submit(_chat(messages, tools, thinking), options))

    def tokenize(
        self, text: str, *, parse_special: bool = True, add_bos: bool = False
    ) -> list[int]:
        """The token ids of a text. ``parse_special``: recognise markers such as ``<|turn>``."""
        return self._native.tokenize(text, parse_special, add_bos)

    def detokenize(self, ids: Sequence[int], *, show_control: bool = False) -> str:
        """The text of token ids; ``show_control``: with markers. Raises ``tokenizer.id``."""
        return self._native.detokenize(_ids(ids), show_control)

    def chat_tokens(
        self, messages: Messages, *, tools: Tools | None = None, thinking: bool = False
    ) -> list[int]:
        """The token ids of a conversation, ready for the model's turn."""
        functions = "" if tools is None else _objects("tools", tools)
        return self._native.chat_tokens(_objects("messages", messages), functions, thinking)

    @overload
    def embed(
        self,
        text: str,
        *,
        task: str = "",
        dimensions: int = 0,
        images: File | Sequence[File] | None = None,
        audio: File | Sequence[File] | None = None,
        image_tokens: int = 0,
    ) -> NDArray[np.float32]: ...
    @overload
    def embed(
        self, text: Sequence[str], *, task: str = "", dimensions: int = 0
    ) -> NDArray[np.float32]: ...
    def embed(
        self,
        text: str | Sequence[str],
        *,
        task: str = "",
        dimensions: int = 0,
        images: File | Sequence[File] | None = None,
        audio: File | Sequence[File] | None = None,
        image_tokens: int = 0,
    ) -> NDArray[np.float32]:
        """The embedding of a text, float32 ``[embedding_width]``, or of several, ``[texts,
        embedding_width]``, each of length 1. ``task``: what the vectors of an embedding model are
        for, such as ``query`` or ``document``, whose prompt comes before each text.
        ``dimensions``: the first numbers of each vector, 0 for all. ``images``, ``audio`` and
        ``image_tokens`` as of ``chat()``: pictures and sounds that come before one text, which may
        be empty, for an embedding model that takes them.

        An embedding model reads several texts in a step. Blocks; Ctrl-C takes effect after the step
        that runs. Raises ``context.overflow``, ``usage.request``, ``media.*``, and ``model.canvas``
        for a model that denoises."""
        if image_tokens and not files_of(images):
            raise TypeError("image_tokens go with images, of which there are none")
        if files_of(images) or files_of(audio):
            if not isinstance(text, str):
                raise TypeError("images and audio go with one text")
            messages = json.dumps([{"role": "user", "content": text}])
            content: dict[str, Any] = {
                "messages": messages,
                "images": images,
                "audio": audio,
                "image_tokens": image_tokens,
            }
            add_media(content)
            rows = self._native.embed_content(content, task, dimensions, on_main_thread())
        else:
            texts = [text] if isinstance(text, str) else list(text)
            rows = self._native.embed(texts, task, dimensions, on_main_thread())
        if not isinstance(text, str):
            return rows
        one: NDArray[np.float32] = rows[0]
        return one

    def save_slot(self, slot: int, path: str | os.PathLike[str]) -> int:
        """Stores what a slot holds of its last answer, prompt included, in a file that only its
        owner may read, for models of the same file, device and configuration. Returns the number of
        tokens. Waits until the slot has no request. Raises ``slot.empty``, ``slot.no_space``,
        ``usage.request``, ``io.*``."""
        return self._native.save_slot(operator.index(slot), os.fspath(path), on_main_thread())

    def restore_slot(self, slot: int, path: str | os.PathLike[str]) -> int:
        """Puts into a slot what ``save_slot()`` stored: a request that begins with the same tokens
        reads only what follows. Returns the number of tokens. Raises ``slot.not_found``,
        ``slot.corrupt``, ``slot.mismatch``, ``slot.too_long``, ``io.*``; the slot then holds what it
        held."""
        return self._native.restore_slot(operator.index(slot), os.fspath(path), on_main_thread())

    def erase_slot(self, slot: int) -> int:
        """Forgets what a slot holds. Returns the number of tokens."""
        return self._native.erase_slot(operator.index(slot), on_main_thread())

    def logits(self, ids: Sequence[int]) -> NDArray[np.float32]:
        """The logits that follow each of ``ids``: float32 ``[len(ids), vocabulary]``, 1 MiB a row
        for a vocabulary of 262,144. Blocks; Ctrl-C takes effect within a step. Raises
        ``context.overflow``, ``tokenizer.id``, ``backend.nan``, ``model.canvas``."""
        return self._native.logits(_ids(ids), on_main_thread())

    def logits_parts(self, ids: Sequence[int]) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """``logits()`` in parts: ``(first, rows)`` with the rows that follow ``ids[first]``,
        ``ids[first + 1]``, ... At most two parts are computed ahead. Closing the iterator cancels."""
        parts = self._native.logits_parts(_ids(ids))
        try:
            while (part := parts.next(on_main_thread())) is not None:
                yield part
        finally:
            parts.cancel()

    def negative_log_likelihood(self, ids: Sequence[int]) -> float:
        """The sum of -ln p over the tokens after the first, each predicted from those before it, in
        nats. Raises as ``logits()``, and ``ValueError`` for fewer than two ids."""
        tokens = np.asarray(_ids(ids), dtype=np.int64)
        if len(tokens) < 2:
            raise ValueError(f"there are {len(tokens)} tokens, expected at least 2")
        total = 0.0
        for first, rows in self.logits_parts(ids):
            for row, target in zip(rows, tokens[first + 1 :]):
                largest = float(row.max())
                sum_exp = float(np.exp(row.astype(np.float64) - largest).sum())
                total += largest + math.log(sum_exp) - float(row[target])
        return total

    def perplexity(self, text: str | Sequence[int]) -> float:
        """exp of the mean of -ln p over the tokens of a text, BOS in front, or of token ids."""
        ids = self.tokenize(text, parse_special=False, add_bos=True) if isinstance(text, str) else text
        return math.exp(self.negative_log_likelihood(ids) / (len(ids) - 1))

    def _submit(self, values: dict[str, Any], options: RequestOptions) -> _rullama.Answer:
        self._pass_on_log()
        return self._native.submit(_options(values, options))

    def _pass_on_log(self) -> None:
        log_lines(self._native.take_log())


def _ids(ids: Sequence[int]) -> list[int]:
    if isinstance(ids, (str, bytes)):
        raise TypeError(f"the token ids are a {type(ids).__name__}, expected a list of ints")
    return [operator.index(one) for one in ids]


def _objects(name: str, values: Sequence[Mapping[str, Any]]) -> str:
    """A list of objects as JSON."""
    if isinstance(values, (str, bytes, Mapping)):
        raise TypeError(f"{name} is a {type(values).__name__}, expected a list of dicts")
    objects = list(values)
    for i, one in enumerate(objects):
        if not isinstance(one, Mapping):
            raise TypeError(f"{name}[{i}] is a {type(one).__name__}, expected a dict")
    return json.dumps([dict(one) for one in objects])


def _prompt(prompt: Prompt) -> dict[str, Any]:
    return {"prompt": prompt} if isinstance(prompt, str) else {"ids": _ids(prompt)}


def _chat(messages: Messages, tools: Tools | None, thinking: bool | None) -> dict[str, Any]:
    return {
        "messages": _objects("messages", messages),
        "tools": None if tools is None else _objects("tools", tools),
        "thinking": thinking,
    }
