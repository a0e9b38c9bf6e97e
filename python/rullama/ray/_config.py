"""The configuration of a Ray Serve application."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: Longest body of a request if ``server.max_body_bytes`` is not set, as in `rullama serve`.
_MAX_BODY_BYTES = 64 << 20


@dataclass(frozen=True)
class AppConfig:
    """What ``build_app()`` runs. Paths are those of the nodes that run replicas."""

    #: A GGUF file or a model of Ollama (``"gemma4:e2b"``).
    model: str
    #: The name of one, such as ``"cpu"`` or ``"vulkan"``, or ``"auto"``.
    backend: str = "auto"
    #: The number of a device or a part of its name; a replica uses one device.
    device: int | str | None = None
    #: Tokens per slot.
    context: int | None = None
    #: Requests that run at once in a replica.
    slots: int = 4
    #: A YAML file, or values by their names in docs/configuration.md, such as
    #: ``{"server.prefix_cache_mib": 4096, "server.api_keys": ["/etc/rullama/keys"]}``.
    config: str | Mapping[str, Any] | None = None
    #: The program that each replica runs, found on ``PATH`` unless it is a path.
    program: str = "rullama"
    #: Files of plugins, searched before all others.
    plugin_paths: tuple[str, ...] = ()

    #: Replicas without load, at least 1, and under full load.
    min_replicas: int = 1
    max_replicas: int = 1
    #: Requests per replica that autoscaling aims at; by default ``slots``.
    target_ongoing_requests: float | None = None
    #: More fields of Ray Serve's ``AutoscalingConfig``, such as ``{"upscale_delay_s": 10}``.
    autoscaling: Mapping[str, Any] = field(default_factory=dict)
    #: Requests that a replica takes before it counts as full; by default twice ``slots``.
    max_ongoing_requests: int | None = None
    #: Requests that each ingress keeps waiting while all replicas are full; more get 429.
    max_queued_requests: int = 64
    #: Replicas that a request is tried on before it fails.
    attempts: int = 3

    #: What Ray reserves for a replica. With the backend ``cpu``, ``num_cpus`` is also the number of
    #: threads.
    num_cpus: float = 1
    num_gpus: float = 0
    resources: Mapping[str, float] = field(default_factory=dict)

    #: Processes that take requests and choose replicas, and what Ray reserves for each:
    #: ``{"node:__internal_head__": 0.001}`` keeps them on the head, away from nodes that come and go.
    ingress_replicas: int = 1
    ingress_num_cpus: float = 0
    ingress_resources: Mapping[str, float] = field(default_factory=dict)

    #: Seconds between health checks, and for an answer to one. Three failures end a replica.
    health_check_period_s: float = 10
    health_check_timeout_s: float = 30
    #: Seconds that running answers have when a replica is removed.
    drain_s: int = 30
    #: Seconds for loading the model.
    start_timeout_s: float = 600

    #: Blocks of prompts that each ingress remembers, 512 characters each, to choose replicas by.
    prefix_blocks: int = 65536
    #: The replica with the longest known prefix is passed over if it has this many requests more
    #: than another one; by default ``slots``.
    prefix_imbalance: int | None = None

    @classmethod
    def of(cls, values: AppConfig | Mapping[str, Any]) -> AppConfig:
        """Checks ``values``. Raises ``TypeError`` for an unknown name, ``ValueError`` for a value."""
        if not isinstance(values, AppConfig):
            known = {one.name for one in dataclasses.fields(cls)}
            unknown = sorted(set(values) - known)
            if unknown:
                raise TypeError(
                    f"there is no setting {', '.join(unknown)}, expected those of rullama.ray.AppConfig"
                )
            if "model" not in values:
                raise TypeError("the setting model is missing")
            values = cls(**values)
        values.check()
        return values

    def check(self) -> None:
        """Raises ``ValueError`` for a value out of its range."""
        for name in ("slots", "min_replicas", "attempts", "ingress_replicas", "prefix_blocks"):
            _require(name, getattr(self, name), 1)
        _require("max_replicas", self.max_replicas, self.min_replicas)
        _require("max_ongoing_requests", self.ongoing, 1)
        _require("max_queued_requests", self.max_queued_requests, 0)

    @property
    def ongoing(self) -> int:
        """Requests that a replica takes."""
        return self.max_ongoing_requests or 2 * self.slots

    @property
    def max_body_bytes(self) -> int:
        """Bytes of the longest body that is read."""
        settings = self.config if isinstance(self.config, Mapping) else {}
        return int(settings.get("server.max_body_bytes", _MAX_BODY_BYTES))

    def engine_settings(self) -> dict[str, Any]:
        """What the configuration file of a replica's program contains, as nested blocks."""
        values: dict[str, Any] = {
            "server.max_queue": max(64, self.ongoing),
            "server.max_queue_per_key": max(64, self.ongoing),
            "server.drain_s": self.drain_s,
        }
        if isinstance(self.config, Mapping):
            values.update(self.config)
        nested: dict[str, Any] = {}
        for name, value in values.items():
            *blocks, key = name.split(".")
            block = nested
            for one in blocks:
                block = block.setdefault(one, {})
            block[key] = value
        return nested

    def engine_flags(self) -> list[str]:
        """The flags of a replica's program besides ``--config``."""
        flags = ["--model", self.model, "--backend", self.backend, "--slots", str(self.slots)]
        if self.device is not None:
            flags += ["--device", str(self.device)]
        if self.context is not None:
            flags += ["--ctx-size", str(self.context)]
        if self.backend == "cpu":
            flags += ["--threads", str(max(1, int(self.num_cpus)))]
        for path in self.plugin_paths:
            flags += ["--plugin", os.fspath(path)]
        return flags


def _require(name: str, value: float, least: float) -> None:
    if value < least:
        raise ValueError(f"{name} is {value}, expected at least {least}")
