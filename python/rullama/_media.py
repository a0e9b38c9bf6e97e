"""Pictures and sounds of a request."""

from __future__ import annotations

import json
import operator
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

#: A picture or a sound: the name of its file, or the bytes of one.
File: TypeAlias = str | os.PathLike[str] | bytes

_MARKER = re.compile(r"<\|(image|audio)\|>")
_KINDS = {"image": 0, "audio": 1}


def files_of(value: File | Sequence[File] | None) -> list[File]:
    """One file, or several, as a list."""
    if value is None:
        return []
    if isinstance(value, (str, bytes, os.PathLike)):
        return [value]
    return list(value)


def _places(messages: list[dict[str, Any]]) -> Iterator[str]:
    for message in messages:
        content = message.get("content")
        for part in content if isinstance(content, list) else []:
            if isinstance(part, dict) and part.get("type") in _KINDS:
                yield part["type"]


def _put_in_front(message: dict[str, Any], places: list[str]) -> None:
    content = message.get("content")
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else list(content or [])
    message["content"] = [{"type": kind} for kind in places] + parts


def add_media(values: dict[str, Any]) -> None:
    """Makes the member ``media`` of a native request of ``images``, ``audio`` and ``image_tokens``.

    They fill the parts {"type": "image"} and {"type": "audio"} of the messages, or the markers of a
    prompt, in order. Messages without such parts get them before the text of the last one.
    """
    files = {"image": files_of(values.pop("images", None)), "audio": files_of(values.pop("audio", None))}
    image_tokens = operator.index(values.pop("image_tokens", 0))
    if not any(files.values()):
        return
    if "messages" in values:
        messages = json.loads(values["messages"])
        places = list(_places(messages))
        if not places and messages:
            places = [kind for kind in _KINDS for _ in files[kind]]
            _put_in_front(messages[-1], places)
            values["messages"] = json.dumps(messages)
    else:
        places = _MARKER.findall(values.get("prompt", ""))
    for kind, given in files.items():
        if places.count(kind) != len(given):
            raise ValueError(f"there are places for {places.count(kind)} {kind}, but {len(given)} are given")
    left = {kind: iter(given) for kind, given in files.items()}
    values["media"] = [_native(kind, next(left[kind]), image_tokens) for kind in places]


def _native(kind: str, file: File, image_tokens: int) -> tuple[int, str, bytes, int]:
    tokens = image_tokens if kind == "image" else 0
    if isinstance(file, bytes):
        return _KINDS[kind], "", file, tokens
    return _KINDS[kind], os.fspath(file), b"", tokens
