"""Which replica has read the beginning of a prompt."""

from __future__ import annotations

import collections
import hashlib
import json
from collections.abc import Collection, Mapping
from typing import Any

#: Characters of a block. A prompt that differs within its first block has no known prefix.
BLOCK = 512
#: Blocks of a chain; what follows them does not change the choice.
MOST_BLOCKS = 128
_PARTS = ("instructions", "system", "tools", "messages", "input", "prompt")


def prefix_chain(body: Mapping[str, Any], key: str = "") -> tuple[int, ...]:
    """One number of 64 bits for each whole block of the prompt of ``body``, a request of the OpenAI
    or Ollama API. Numbers agree as far as the texts and ``key`` do: clients with different keys
    share no prefix."""
    parts = [body.get("model")] + [body[name] for name in _PARTS if body.get(name)]
    text = "\n".join(one if isinstance(one, str) else json.dumps(one) for one in parts if one)
    chain = []
    last = hashlib.blake2b(key.encode(), digest_size=8)
    for first in range(0, min(len(text), BLOCK * MOST_BLOCKS) - BLOCK + 1, BLOCK):
        last = last.copy()
        last.update(text[first : first + BLOCK].encode("utf-8", "surrogatepass"))
        chain.append(int.from_bytes(last.digest(), "little"))
    return tuple(chain)


class PrefixTable:
    """The replica that last read each block, for the blocks used most recently. Not thread-safe."""

    def __init__(self, blocks: int) -> None:
        """``blocks``: how many are remembered, at least 1."""
        self._blocks = blocks
        self._replicas: collections.OrderedDict[int, str] = collections.OrderedDict()

    def __len__(self) -> int:
        return len(self._replicas)

    def put(self, chain: tuple[int, ...], replica: str) -> None:
        """Notes that ``replica`` reads the blocks of ``chain``."""
        # The first block is the most recent one, so that a chain is forgotten from its end.
        for one in reversed(chain):
            self._replicas[one] = replica
            self._replicas.move_to_end(one)
        while len(self._replicas) > self._blocks:
            self._replicas.popitem(last=False)

    def best(self, chain: tuple[int, ...], replicas: Collection[str]) -> str | None:
        """The one of ``replicas`` that has read the longest beginning of ``chain``."""
        for one in reversed(chain):
            replica = self._replicas.get(one)
            if replica is not None and replica in replicas:
                return replica
        return None
