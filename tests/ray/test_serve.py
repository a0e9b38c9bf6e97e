"""The application on a cluster: dialect, routing, cancellation, full queues, lost replicas."""

import asyncio
import collections
import concurrent.futures
import contextlib
import dataclasses
import json
import os
import re
import resource
import signal
import threading
import time

import pytest
import requests
from ray import serve

from conftest import MAX_BODY_BYTES, ONGOING, PATIENCE_S, PROGRAM, QUEUED, REPORT, eventually
from rullama.ray import build_app
from rullama.ray._config import AppConfig
from rullama.ray._engine import Engine, EngineError

LONG = "It was in July, 1805, and the speaker was the well-known Anna Pavlovna. " * 24  # 579 tokens
# Settings of autoscaling for a test.
FAST = {"upscale_delay_s": 1, "downscale_delay_s": 1, "metrics_interval_s": 0.5, "look_back_period_s": 1}
# Tokens that end an answer of the tiny model.
NO_END = {"1": -100, "9": -100, "16": -100}  # <eos>, <|tool_response> and <turn|> of the tiny model


def runs(pid):
    """Whether a process is there, and no zombie."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")")[1].split()[0] != "Z"
    except OSError:
        return False


def content(answer):
    """What does not differ from answer to answer."""
    return {k: v for k, v in answer.items() if k not in ("id", "created", "timings")}


@pytest.mark.parametrize(
    "path, body",
    [
        ("/v1/completions", {"prompt": "The prince", "max_tokens": 6, "seed": 3}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Who?"}], "max_tokens": 6, "seed": 3}),
        ("/v1/embeddings", {"input": ["The prince", "Anna"]}),
        ("/v1/completions", {"prompt": 5}),
        ("/v1/chat/completions", {"model": "other", "messages": []}),
        ("/v1/nothing", {}),
    ],
)
def test_answers_and_errors_are_those_of_the_server(app, alone, path, body):
    ours = app.post(path, body)
    theirs = requests.post(alone + path, json=body, timeout=PATIENCE_S)
    assert ours.status_code == theirs.status_code
    assert content(ours.json()) == content(theirs.json())
    assert ours.headers["Content-Type"] == theirs.headers["Content-Type"]
    assert ours.headers["X-Rullama-Replica"]


def test_a_body_that_is_no_json_and_one_that_is_too_long_are_refused(app):
    broken = requests.post(app.url + "/v1/completions", data=b"{", timeout=PATIENCE_S)
    assert broken.status_code == 400 and broken.json()["error"]["type"] == "invalid_request_error"
    long = requests.post(app.url + "/v1/completions", data=b" " * (MAX_BODY_BYTES + 1), timeout=PATIENCE_S)
    assert long.status_code == 413 and long.json()["error"]["code"] == "body_too_large"


def test_a_request_that_names_a_foreign_host_is_refused_as_by_the_server(app):
    foreign = app.post("/v1/completions", {"prompt": "x"}, headers={"Host": "rebound.example"})
    assert foreign.status_code == 403 and foreign.json()["error"]["code"] == "host_forbidden"


def test_a_stream_arrives_in_parts_that_join_to_the_answer(app):
    body = {"prompt": "The prince", "max_tokens": 40, "seed": 3}
    whole = app.post("/v1/completions", body).json()["choices"][0]["text"]
    answer = app.post("/v1/completions", body | {"stream": True}, stream=True)
    assert answer.headers["Content-Type"].startswith("text/event-stream")
    events = [line[6:] for line in answer.iter_lines() if line.startswith(b"data: ")]
    assert events.pop() == b"[DONE]"
    assert "".join(json.loads(one)["choices"][0]["text"] for one in events) == whole


@pytest.mark.long
def test_prompts_with_the_same_beginning_go_to_the_replica_that_has_read_it(app):
    app.all_replicas()
    first = app.post("/v1/completions", {"prompt": LONG, "max_tokens": 1})
    home = first.headers["X-Rullama-Replica"]
    for i in range(8):
        answer = app.post("/v1/completions", {"prompt": f"{LONG} {i}", "max_tokens": 1})
        assert answer.headers["X-Rullama-Replica"] == home
        assert answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"] >= 512
    others = {
        app.post("/v1/completions", {"prompt": f"{i} {LONG}", "max_tokens": 1}).headers["X-Rullama-Replica"]
        for i in range(12)
    }
    assert len(others) == 2


def metric(state, name):
    text = requests.get(state["address"] + "/metrics", timeout=PATIENCE_S).text
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))


@contextlib.contextmanager
def slowed(states, stopped_s):
    """Engines that run for 10 ms after each ``stopped_s`` seconds, which is less than their health checks wait."""
    over = threading.Event()

    def slow_down():
        while not over.is_set():
            for signal_, seconds in ((signal.SIGSTOP, stopped_s), (signal.SIGCONT, 0.01)):
                for state in states:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(state["pid"], signal_)
                time.sleep(seconds)

    thread = threading.Thread(target=slow_down)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.long
def test_a_client_that_leaves_ends_its_answer(app):
    states = app.all_replicas().values()
    left = 'rullama_cancelled_total{reason="left"}'
    before = sum(metric(one, left) for one in states)
    body = {"prompt": "The prince", "max_tokens": 2000, "stream": True, "logit_bias": NO_END}
    # Slowed, the engine is still writing when Ray tells the replica, some tenths of a second later.
    with slowed(states, stopped_s=0.09):
        with app.post("/v1/completions", body, stream=True) as answer:
            next(answer.iter_lines())
        eventually(lambda: sum(metric(one, left) for one in states) == before + 1)
    eventually(lambda: sum(metric(one, "rullama_slots_busy") for one in states) == 0)


def many(app, requests_, tokens=8, clients=None, padding=0):
    with concurrent.futures.ThreadPoolExecutor(clients or requests_) as pool:
        return list(pool.map(lambda i: app.complete(i, tokens, padding), range(requests_)))


def expected_texts(alone, count, tokens=8):
    texts = []
    for i in range(count):
        body = {"prompt": f"The prince {i}", "max_tokens": tokens, "seed": i}
        answer = requests.post(alone + "/v1/completions", json=body, timeout=PATIENCE_S).json()
        texts.append(answer["choices"][0]["text"])
    return texts


def assert_each_answered(answers, alone, tokens=8):
    assert [a.status_code for a in answers] == [200] * len(answers)
    texts = [a.json()["choices"][0]["text"] for a in answers]
    assert texts == expected_texts(alone, len(answers), tokens)


def counts(name, answers):
    """Counts what happened to requests, for the report of the tests too."""
    answered = [one for one in answers if one.status_code == 200]
    found = {
        "sent": len(answers),
        "answered": len(answered),
        "asked again": sum(one.headers["X-Rullama-Attempts"] != "1" for one in answered),
        "failed": len(answers) - len(answered),
    }
    REPORT.append((name, found))
    return found


@pytest.mark.long
def test_more_requests_than_the_queue_holds_are_refused_and_the_others_are_answered(app):
    hold = 2 * ONGOING + QUEUED
    body = {"prompt": "The prince", "max_tokens": 500, "logit_bias": NO_END}
    states = app.all_replicas().values()
    with concurrent.futures.ThreadPoolExecutor(2 * hold) as pool:
        # The engines answer no request before the queue is full.
        with slowed(states, stopped_s=0.3):
            pending = [pool.submit(app.post, "/v1/completions", body) for _ in range(2 * hold)]

            def statuses():
                return collections.Counter(one.result().status_code for one in pending if one.done())

            eventually(lambda: statuses()[429], say=statuses)
        answers = [one.result() for one in pending]
    codes = [one.status_code for one in answers]
    assert set(codes) == {200, 429} and codes.count(200) >= hold
    refused = answers[codes.index(429)]
    assert refused.json()["error"]["code"] == "queue_full" and refused.headers["Retry-After"] == "1"
    assert all(one.json()["usage"]["completion_tokens"] == 500 for one in answers if one.status_code == 200)


def test_an_engine_that_is_killed_for_its_memory_loses_no_request(app, alone):
    states = app.all_replicas()
    victim = next(iter(states.values()))

    def kill_when_busy():
        eventually(lambda: metric(victim, "rullama_slots_busy") > 0)
        os.kill(victim["pid"], signal.SIGKILL)

    # Slowed, it has answered none of its requests when it is killed.
    with slowed([victim], stopped_s=0.09), concurrent.futures.ThreadPoolExecutor(1) as pool:
        killed = pool.submit(kill_when_busy)
        answers = many(app, 2 * ONGOING, tokens=400)
        killed.result()
    assert_each_answered(answers, alone, tokens=400)
    assert counts("engine killed", answers)["asked again"] > 0
    eventually(lambda: (now := app.replicas()) and len(now) == 2 and victim["id"] not in now)


def limit_memory(pid):
    """Leaves a process no memory beyond what it has: it gets no pages for an allocation or a thread."""
    with open(f"/proc/{pid}/status") as file:
        size = int(re.search(r"VmSize:\s+(\d+) kB", file.read())[1]) << 10
    resource.prlimit(pid, resource.RLIMIT_AS, (size, size))


@pytest.mark.long
def test_a_replica_out_of_memory_loses_no_request(app, alone):
    victim = next(iter(app.all_replicas().values()))
    limit_memory(victim["pid"])
    # No free part of a heap holds a body, also where the requests come one after the other.
    answers = many(app, 2 * ONGOING, tokens=400, padding=24 << 20)
    assert_each_answered(answers, alone, tokens=400)
    assert counts("replica out of memory", answers)["asked again"] > 0
    # It may answer shorter requests still.
    with contextlib.suppress(ProcessLookupError):
        os.kill(victim["pid"], signal.SIGKILL)
    eventually(lambda: victim["id"] not in app.replicas())


@pytest.mark.long
def test_a_slow_replica_gets_fewer_requests_and_answers_them(app, alone):
    victim = next(iter(app.all_replicas().values()))
    with slowed([victim], stopped_s=0.09):
        answers = many(app, 4 * ONGOING, clients=ONGOING, tokens=40)
    assert_each_answered(answers, alone, tokens=40)
    of_replica = collections.Counter(one.headers["X-Rullama-Replica"] for one in answers)
    counts("slow replica", answers)["of the slow one"] = of_replica[victim["id"]]
    assert of_replica[victim["id"]] < len(answers) / 2


@pytest.mark.long
def test_a_stream_whose_engine_is_killed_ends_with_an_error(app):
    states = app.all_replicas()
    body = {"prompt": "The prince", "max_tokens": 2000, "stream": True, "logit_bias": NO_END}
    answer = app.post("/v1/completions", body, stream=True)
    lines = answer.iter_lines()
    next(lines)
    os.kill(states[answer.headers["X-Rullama-Replica"]]["pid"], signal.SIGKILL)
    events = [line for line in lines if line]
    assert json.loads(events[-1][6:])["error"]["code"] == "replica_lost"
    assert b"data: [DONE]" not in events


@pytest.mark.long
def test_a_replica_that_hangs_is_replaced_and_its_requests_are_answered(app, alone):
    states = app.all_replicas()
    victim = next(iter(states.values()))
    os.kill(victim["pid"], signal.SIGSTOP)
    answers = many(app, 2 * ONGOING)
    assert_each_answered(answers, alone)
    counts("replica that hangs", answers)
    eventually(lambda: victim["id"] not in app.replicas())
    eventually(lambda: not runs(victim["pid"]))


@pytest.mark.long
def test_a_lost_node_loses_no_request_and_leaves_no_engine(app, alone, cluster):
    states = app.all_replicas()
    victim = next(iter(states.values()))
    node = next(one for one in cluster.nodes if one.node_id == victim["node"])
    thread = threading.Timer(0.2, lambda: cluster.remove_node(node, allow_graceful=False))
    thread.start()
    answers = many(app, 2 * ONGOING, tokens=400)
    assert_each_answered(answers, alone, tokens=400)
    counts("node lost", answers)
    thread.join()
    now = app.all_replicas()
    assert victim["id"] not in now and victim["node"] not in {one["node"] for one in now.values()}
    eventually(lambda: not runs(victim["pid"]))


@pytest.mark.nightly
def test_replicas_follow_the_load(app):
    serve.run(build_app(dataclasses.replace(app.config, min_replicas=1, autoscaling=FAST)))
    eventually(lambda: len(app.replicas()) == 1)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        over = threading.Event()

        def ask(i):
            codes = []
            while not over.is_set():
                codes.append(app.complete(i, tokens=100).status_code)
            return codes

        answers = [pool.submit(ask, i) for i in range(4)]
        eventually(lambda: len(app.replicas()) == 2)
        over.set()
        codes = [code for one in answers for code in one.result()]
    assert codes and set(codes) == {200}
    eventually(lambda: len(app.replicas()) == 1)


@pytest.mark.long
def test_running_answers_end_before_their_replica_does(app):
    serve.run(build_app(dataclasses.replace(app.config, drain_s=PATIENCE_S)))
    pids = [state["pid"] for state in app.replicas().values()]
    body = {"prompt": "The prince", "max_tokens": 900, "stream": True, "logit_bias": NO_END}
    with app.post("/v1/completions", body, stream=True) as answer:
        lines = answer.iter_lines()
        next(lines)
        thread = threading.Thread(target=serve.delete, args=("default",))
        thread.start()
        events = [line for line in lines if line]
        thread.join()
    assert events[-1] == b"data: [DONE]"
    eventually(lambda: not any(runs(pid) for pid in pids))


@pytest.mark.long
def test_an_engine_that_cannot_start_says_why(cluster):
    config = AppConfig.of({"model": "/nothing.gguf", "backend": "cpu", "program": PROGRAM})
    with pytest.raises(EngineError, match=r"exit code 6(.|\n)*\[io\."):
        asyncio.run(Engine(config).start())
    missing = AppConfig.of({"model": "m", "program": "/nothing"})
    with pytest.raises(EngineError, match="there is no program /nothing"):
        asyncio.run(Engine(missing).start())
