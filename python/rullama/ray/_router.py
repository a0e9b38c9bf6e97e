"""Chooses the replica of a request."""

from __future__ import annotations

import random
from collections.abc import Sequence

from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica

from ._message import Forward
from ._prefixes import PrefixTable


class PrefixRouter(RequestRouter):  # type: ignore[misc]
    """Prefers the replica that has read the longest beginning of the prompt, unless it is busier
    than others; else the better of two random ones. Replicas on which a request has failed come
    last."""

    def initialize_state(self, *, blocks: int, imbalance: int) -> None:
        """Called by Ray Serve with ``request_router_kwargs``."""
        self._table = PrefixTable(blocks)
        self._imbalance = imbalance

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> list[list[RunningReplica]]:
        """Ranks of replicas; Ray Serve takes the first that is not full."""
        if pending_request is None:
            return [candidate_replicas]
        pending_request.routing_context.should_backoff = True
        request = _forward_of(pending_request)
        if request is None:
            return [_two_of(candidate_replicas), candidate_replicas]
        fresh = [r for r in candidate_replicas if _id_of(r) not in request.tried]
        usable = fresh or candidate_replicas
        by_id = {_id_of(r): r for r in usable}
        known = self._table.best(request.prefix, by_id)
        ranks = [_two_of(usable), usable]
        if known is not None and not self._is_busier(by_id[known], usable):
            ranks.insert(0, [by_id[known]])
        return ranks

    def on_request_routed(
        self, pending_request: PendingRequest, replica_id: ReplicaID, result: object
    ) -> None:
        request = _forward_of(pending_request)
        if request is not None:
            self._table.put(request.prefix, replica_id.unique_id)

    def _is_busier(self, replica: RunningReplica, others: Sequence[RunningReplica]) -> bool:
        lengths = self.replica_queue_len_cache
        least = min(lengths.get(r.replica_id) or 0 for r in others)
        return (lengths.get(replica.replica_id) or 0) - least >= self._imbalance


def _forward_of(pending: PendingRequest) -> Forward | None:
    args = pending.args
    return args[0] if args and isinstance(args[0], Forward) else None


def _id_of(replica: RunningReplica) -> str:
    unique_id: str = replica.replica_id.unique_id
    return unique_id


def _two_of(replicas: list[RunningReplica]) -> list[RunningReplica]:
    return random.sample(replicas, min(2, len(replicas)))
