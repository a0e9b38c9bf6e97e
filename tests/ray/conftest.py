"""A Ray cluster of several nodes on this machine."""

import os
from pathlib import Path

import pytest
import ray
from ray.cluster_utils import Cluster

import rullama

ROOT = Path(__file__).resolve().parents[2]
E2B = ROOT / "tests" / "data" / "tiny-e2b-Q4_K_M.gguf"
PROGRAM = os.environ["RULLAMA_PROGRAM"]
STORE_BYTES = 80 << 20


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
