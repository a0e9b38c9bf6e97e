"""A Ray cluster of several nodes on this machine, and an application on it."""

import contextlib
import json
import os
import socket
import subprocess
import time
from pathlib import Path

import pytest
import ray
import requests
from ray import serve
from ray._private import services
from ray.cluster_utils import Cluster
from ray.serve._private import api as serve_api
from ray.serve._private import client as serve_client

import rullama
from rullama.ray import AppConfig, build_app

ROOT = Path(__file__).resolve().parents[2]
E2B = ROOT / "tests" / "data" / "tiny-e2b-Q4_K_M.gguf"
PROGRAM = os.environ["RULLAMA_PROGRAM"]
STORE_BYTES = 80 << 20
SLOTS = 2
ONGOING = 4  # of a replica
QUEUED = 8
MAX_BODY_BYTES = 32 << 20
#: Seconds after which something hangs. No test depends on how soon something happens.
PATIENCE_S = 600


def patient(get_node):
    """``get_node()``, which raises ``RuntimeError`` until a node has registered, as one that waits for it."""

    def get(gcs_address, node_id):
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                return get_node(gcs_address, node_id)
            except RuntimeError:
                if time.monotonic() > end:
                    raise
            time.sleep(0.1)

    return get


# Limits of Ray that no variable sets (run.sh has the others): 30 s for a node, 60 s for the proxy of Serve.
services.get_node = patient(services.get_node)
serve_api.HTTP_PROXY_TIMEOUT = serve_client.HTTP_PROXY_TIMEOUT = PATIENCE_S


@pytest.fixture(scope="session")
def cluster():
    """A head without CPUs for tasks, and two nodes with two each, ``cluster.nodes``."""
    cluster = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 0,
            "object_store_memory": STORE_BYTES,
            "include_dashboard": False,
        },
    )
    cluster.nodes = [cluster.add_node(num_cpus=2, object_store_memory=STORE_BYTES) for _ in range(2)]
    ray.init(address=cluster.address, logging_level="warning", log_to_driver=False)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture(scope="session")
def model():
    with rullama.Model(E2B, "cpu", slots=2, context=256) as opened:
        yield opened


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def eventually(what, say=lambda: "no more is known", every_s=0.1):
    """Asks until ``what()`` is true and returns it. A failure quotes ``say()``."""
    end = time.monotonic() + PATIENCE_S
    while not (value := what()):
        assert time.monotonic() < end, f"it did not happen in {PATIENCE_S} s: {say()}"
        time.sleep(every_s)
    return value


#: What failures did to requests, in the order of the tests: a name and counts.
REPORT = []


def pytest_terminal_summary(terminalreporter):
    """Shows the counts of requests next to the failures that were made."""
    for name, counts in REPORT:
        line = ", ".join(f"{count} {what}" for what, count in counts.items())
        terminalreporter.write_line(f"{name}: {line}")


class App:
    """The running application."""

    def __init__(self, url, handle, config):
        self.url = url
        self.handle = handle
        self.config = config

    def post(self, path, body, **options):
        return requests.post(self.url + path, json=body, timeout=PATIENCE_S, **options)

    def complete(self, i, tokens=8, padding=0):
        """Completes prompt ``i``; the body has ``padding`` spaces after it."""
        body = json.dumps({"prompt": f"The prince {i}", "max_tokens": tokens, "seed": i}) + padding * " "
        return requests.post(
            self.url + "/v1/completions", data=body, headers={"Content-Type": "application/json"}, timeout=PATIENCE_S
        )

    def replicas(self):
        """The engines of replicas that run and answer: id -> state."""
        found = {}
        for _ in range(8):
            with contextlib.suppress(ray.exceptions.RayError, TimeoutError):  # asked of a replica that ends
                state = self.handle.engine_state.remote().result(timeout_s=30)
                found[state["id"]] = state
        return found

    def all_replicas(self):
        return eventually(lambda: (found := self.replicas()) and len(found) == 2 and found)


@pytest.fixture(scope="session")
def app(cluster):
    port = free_port()
    serve.start(proxy_location="HeadOnly", http_options={"host": "127.0.0.1", "port": port})
    config = {
        "model": str(E2B),
        "backend": "cpu",
        "context": 2048,
        "slots": SLOTS,
        "config": {"server.max_body_bytes": MAX_BODY_BYTES},
        "program": PROGRAM,
        "min_replicas": 2,
        "max_replicas": 2,
        "max_ongoing_requests": ONGOING,
        "max_queued_requests": QUEUED,
        "health_check_period_s": 1,
        "health_check_timeout_s": 10,  # of an engine that is slowed; three failures end a replica that hangs
        "prefix_imbalance": 2,
        "drain_s": 1,
        "ingress_resources": {"node:__internal_head__": 0.001},  # the node that is lost is another
    }
    config = AppConfig.of(config)
    serve.run(build_app(config))
    yield App(f"http://127.0.0.1:{port}", serve.get_deployment_handle("replica", "default"), config)
    serve.shutdown()


@pytest.fixture(scope="session")
def alone():
    """A server without Ray, for comparison."""
    server = subprocess.Popen(
        [PROGRAM, "serve", "-m", E2B, "--backend", "cpu", "-t", "1", "-c", "1024", "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
    )
    ready = next(line for line in server.stderr if line.startswith("listening on "))
    yield ready.split()[2]
    server.terminate()
    server.wait()
