"""What the ingress and the replicas send each other."""

from __future__ import annotations

from dataclasses import dataclass

Headers = tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True)
class Forward:
    """A request on its way to a replica."""

    method: str
    target: str  #: path and query
    headers: Headers
    body: bytes
    prefix: tuple[int, ...] = ()  #: of ``prefix_chain()``
    tried: frozenset[str] = frozenset()  #: ids of replicas that did not answer it


@dataclass(frozen=True)
class Head:
    """The beginning of an answer."""

    status: int
    headers: Headers
    replica: str = ""  #: id of the replica, or empty where it is not known
