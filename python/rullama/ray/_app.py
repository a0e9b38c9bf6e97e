"""Puts a Ray Serve application together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray import serve
from ray.serve.config import RequestRouterConfig

from ._config import AppConfig
from ._ingress import Ingress
from ._replica import Replica
from ._router import PrefixRouter


def build_app(config: AppConfig | Mapping[str, Any]) -> serve.Application:
    """A Ray Serve application that answers as ``rullama serve`` does (docs/server.md), by any number
    of replicas. For ``serve.run()``, or as the ``import_path`` ``rullama.ray:build_app`` of a Serve
    configuration, whose ``args`` are ``config``.

    Raises ``TypeError`` for an unknown setting, ``ValueError`` for a value out of its range. A model
    that cannot be loaded makes ``serve.run()`` fail with the last lines of the engine.
    """
    values = AppConfig.of(config)
    replicas = serve.deployment(Replica, name="replica").options(**_replica_options(values))
    ingress = serve.deployment(Ingress, name="ingress").options(
        num_replicas=values.ingress_replicas,
        max_ongoing_requests=values.max_queued_requests + values.max_replicas * values.ongoing + 64,
        ray_actor_options={
            "num_cpus": values.ingress_num_cpus,
            "resources": dict(values.ingress_resources),
        },
        graceful_shutdown_timeout_s=values.drain_s + 10,
    )
    return ingress.bind(values, replicas.bind(values))


def _replica_options(config: AppConfig) -> dict[str, Any]:
    imbalance = config.slots if config.prefix_imbalance is None else config.prefix_imbalance
    return {
        "autoscaling_config": {
            "min_replicas": config.min_replicas,
            "max_replicas": config.max_replicas,
            "target_ongoing_requests": config.target_ongoing_requests or config.slots,
            **config.autoscaling,
        },
        "max_ongoing_requests": config.ongoing,
        "max_queued_requests": config.max_queued_requests,
        "ray_actor_options": {
            "num_cpus": config.num_cpus,
            "num_gpus": config.num_gpus,
            "resources": dict(config.resources),
        },
        "health_check_period_s": config.health_check_period_s,
        "health_check_timeout_s": config.health_check_timeout_s,
        "graceful_shutdown_timeout_s": config.drain_s + 10,
        "graceful_shutdown_wait_loop_s": 0.5,
        "request_router_config": RequestRouterConfig(
            request_router_class=PrefixRouter,
            request_router_kwargs={"blocks": config.prefix_blocks, "imbalance": imbalance},
        ),
    }
