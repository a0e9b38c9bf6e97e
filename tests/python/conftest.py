from pathlib import Path

import pytest

import rullama

DATA = Path(__file__).resolve().parents[1] / "data"
E2B = DATA / "tiny-e2b-Q4_K_M.gguf"


@pytest.fixture(scope="session")
def model():
    with rullama.Model(E2B, backend="cpu", context=512, slots=2) as opened:
        yield opened
