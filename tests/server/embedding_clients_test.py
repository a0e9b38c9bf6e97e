"""Libraries get the vectors of ../shared/goldens from a server of an embedding model, each in its own form of the request.

pytest, run by clients_test.py with --file, in whose environment the address of the server and its model are.
"""

import json
import math
import os
import urllib.request
from pathlib import Path

import langchain_ollama
import langchain_openai
import litellm
import ollama
import openai
import pytest

pytestmark = pytest.mark.openai

URL = os.environ["BASE_URL"]
GOLDENS = Path(os.environ["MODEL_FILE"]).resolve().parents[2] / "goldens" / "embeddinggemma" / "golden.json"
# An empty text has a vector in the library and the program; the server refuses one.
CASES = [case for case in json.loads(GOLDENS.read_text())["cases"] if case.get("prompt", "") + case.get("text", "")]
TEXTS = [case["prompt"] + case["text"] for case in CASES]
SHORT = 16
BOUND = 2e-5  # the goldens' own for float32


@pytest.fixture(scope="module")
def model():
    with urllib.request.urlopen(URL + "/v1/models", timeout=60) as answer:
        return json.load(answer)["data"][0]["id"]


@pytest.fixture(scope="module")
def sdk():
    return openai.OpenAI(base_url=URL + "/v1", api_key="any", max_retries=0)


def check(vectors, of=lambda case: case["embedding"]):
    assert len(vectors) == len(CASES)
    for vector, case in zip(vectors, CASES, strict=True):
        assert math.dist(vector, of(case)) < BOUND, case["name"]


def check_short(vectors):
    check(vectors, of=lambda case: case["truncated"][str(SHORT)])


def test_openai(sdk, model):
    for form in ({}, {"encoding_format": "float"}):  # without, the library asks for base64
        check([item.embedding for item in sdk.embeddings.create(model=model, input=TEXTS, **form).data])
        short = sdk.embeddings.create(model=model, input=TEXTS, dimensions=SHORT, **form)
        check_short([item.embedding for item in short.data])
    check([item.embedding for item in sdk.embeddings.create(model=model, input=[case["ids"] for case in CASES]).data])
    task = sdk.embeddings.create(model=model, input=CASES[0]["text"], extra_body={"prompt_name": "query"})
    assert math.dist(task.data[0].embedding, CASES[0]["embedding"]) < BOUND
    with pytest.raises(openai.BadRequestError, match="check_embedding_ctx_length"):
        sdk.embeddings.create(model=model, input=[[15339, 1917]])  # ids as langchain-openai sends them unless told otherwise


def test_langchain_openai(model):
    common = {"base_url": URL + "/v1", "api_key": "any", "model": model, "check_embedding_ctx_length": False}
    embeddings = langchain_openai.OpenAIEmbeddings(**common)
    check(embeddings.embed_documents(TEXTS))
    check([embeddings.embed_query(text) for text in TEXTS])
    check_short(langchain_openai.OpenAIEmbeddings(dimensions=SHORT, **common).embed_documents(TEXTS))


def test_ollama(model):
    client = ollama.Client(URL)
    check(client.embed(model, TEXTS)["embeddings"])
    check_short(client.embed(model, TEXTS, dimensions=SHORT)["embeddings"])
    check([client.embeddings(model, text)["embedding"] for text in TEXTS])


def test_langchain_ollama(model):
    embeddings = langchain_ollama.OllamaEmbeddings(base_url=URL, model=model)
    check(embeddings.embed_documents(TEXTS))
    check([embeddings.embed_query(text) for text in TEXTS])


def test_litellm(model):
    address = {"api_base": URL + "/v1", "api_key": "any", "encoding_format": "float"}
    check([item["embedding"] for item in litellm.embedding(f"openai/{model}", input=TEXTS, **address).data])
    check([item["embedding"] for item in litellm.embedding(f"ollama/{model}", input=TEXTS, api_base=URL).data])
