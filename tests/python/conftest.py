from pathlib import Path

import pytest

import rullama

SOURCE = Path(__file__).resolve().parents[2]
DATA = SOURCE / "tests/data"
E2B = DATA / "tiny-e2b-Q4_K_M.gguf"


def pytest_configure(config):
    config.addinivalue_line("markers", "search: takes seconds; a test of its own in CMake")


@pytest.fixture(scope="session")
def model():
    with rullama.Model(E2B, backend="cpu", context=512, slots=2) as opened:
        yield opened
