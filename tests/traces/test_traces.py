"""Perfetto's trace processor imports what `--trace` of each command writes: no slice is lost, moved or misplaced."""

import concurrent.futures
import json
import os
import pathlib
import signal
import subprocess
import sys
import urllib.request

import pytest
from trace_processor import WasmTraceProcessor, compile_processor

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "server"))
from served import Server  # noqa: E402

PROGRAM = os.environ["RULLAMA_PROGRAM"]
MODEL = str(TESTS / "data/tiny-e2b-Q4_K_M.gguf")

# One row for each slice of a thread.
SLICES = """
    select process.pid, thread.tid, slice.name, category, ts, dur, depth
    from slice join thread_track on thread_track.id = slice.track_id join thread using (utid) join process using (upid)
"""
# The slices of requests, whose tracks belong to processes.
REQUESTS = """
    select process.pid, process_track.name as track, slice.name, ts, dur, depth
    from slice join process_track on process_track.id = slice.track_id join process using (upid) order by ts, depth
"""


@pytest.fixture(scope="session")
def processor():
    return compile_processor()


@pytest.fixture
def check(processor, tmp_path):
    """Runs a command with `--trace`, and returns its trace as the processor has it, when it has all that is there."""
    opened = []

    def run(*arguments):
        path = tmp_path / "trace.json"
        done = subprocess.run([PROGRAM, *arguments, "--trace", path], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return read(path)

    def read(path):
        opened.append(WasmTraceProcessor(processor, path))
        check_import(opened[-1], json.loads(path.read_text())["traceEvents"])
        return opened[-1]

    run.read = read
    yield run
    for trace in opened:
        trace.close()


def check_import(trace, events):
    faults = trace.query("select name, value from stats where severity in ('error', 'data_loss') and value > 0")
    assert [(row.name, row.value) for row in faults] == []
    written = sorted(
        (event["pid"], event["tid"], event["name"], event["cat"], round(event["ts"] * 1e3), round(event["dur"] * 1e3))
        for event in events
        if event["ph"] == "X"
    )
    assert written, "the trace is empty"
    slices = list(trace.query(SLICES))
    imported = sorted((row.pid, row.tid, row.name, row.category, row.ts, row.dur) for row in slices)
    assert imported == written
    assert len(list(trace.query(REQUESTS))) == sum(event["ph"] == "b" for event in events)
    # Parts of a step lie within it, and nothing else within another slice.
    assert {row.depth for row in slices} <= {0, 1}
    assert {row.category for row in slices if row.depth == 1} <= {"compile", "inputs", "copy", "read"}
    check_ops(trace)


def check_ops(trace):
    """Each op lies within a segment of its device."""
    outside = f"""
        with spans as ({SLICES})
        select count() as count from spans op where op.category = 'op' and not exists (
            select 1 from spans segment where segment.category = 'segment' and segment.pid = op.pid
            and segment.ts <= op.ts and op.ts + op.dur <= segment.ts + segment.dur)
    """
    (row,) = trace.query(outside)
    assert row.count == 0


def tracks(trace):
    """The names of the threads of each process."""
    found = {}
    for row in trace.query("select process.name as process, thread.name from thread join process using (upid)"):
        found.setdefault(row.process, set()).add(row.name)
    found.pop(None, None)  # the processor's own
    return found


def count(trace, category):
    (row,) = trace.query(f"select count() as count from slice where category = '{category}'")
    return row.count


def seconds(trace, category):
    (row,) = trace.query(f"select sum(dur) as sum from slice where category = '{category}'")
    return row.sum / 1e9


def test_run(check):
    trace = check("run", "-m", MODEL, "--backend", "cpu", "-t", "2", "-p", "The prince", "-n", "6", "--trace-ops")
    (process, names), = tracks(trace).items()
    # The caller is worker 0. The other takes part only if its core was free.
    assert (process, names - {"cpu worker 1"}) == (MODEL, {"session", "cpu", "cpu worker 0", "slot 0"})
    # The last row of the prompt runs the layers without a cache of their own as a segment.
    assert (count(trace, "step"), count(trace, "segment")) == (6, 7)
    assert seconds(trace, "segment") < seconds(trace, "step") < seconds(trace, "slot")
    assert seconds(trace, "op") < 2 * seconds(trace, "segment"), "of two workers"
    requests = list(trace.query(REQUESTS))
    assert [(row.track, row.name, row.depth) for row in requests] == [
        ("request 1", "request 1", 0),
        ("request 1", "wait", 1),
        ("request 1", "read", 1),
        ("request 1", "write", 1),
    ]
    assert sum(row.dur for row in requests[1:]) == requests[0].dur
    arguments = """
        select extract_arg(arg_set_id, 'args.shapes') as shapes, extract_arg(arg_set_id, 'args.bytes') as bytes,
            extract_arg(arg_set_id, 'args.operations') as operations
        from slice where category = 'op' and name = 'matmul blk.0.attn.out'
    """
    products = list(trace.query(arguments))
    assert products
    assert {row.shapes for row in products} == {"f32[T,256], q4_k[256,256] -> f32[T,256]"}
    assert all(row.bytes > 256 * 256 / 2 and row.operations >= 2 * 256 * 256 for row in products)


def test_bench_on_two_devices(check):
    options = ["--devices", "cpu,cpu", "-t", "1", "-p", "8", "-n", "3", "-r", "1", "--trace-ops"]
    trace = check("bench", "-m", MODEL, *options)
    devices = {f"device {index}: cpu{of}" for index in (0, 1) for of in ("", " worker 0")}
    assert tracks(trace) == {MODEL: {"session"} | devices}
    assert count(trace, "segment") == 2 * count(trace, "step")
    assert count(trace, "copy") >= count(trace, "step")


def test_diff_on_vulkan(check):
    trace = check("diff", "-m", MODEL, "--backends", "vulkan,cpu", "--device", "0", "-p", "The prince", "--trace-ops")
    assert tracks(trace)["vulkan"] >= {"session", "vulkan", "vulkan worker 0"}
    assert tracks(trace)["cpu"] >= {"session", "cpu", "cpu worker 0"}


def test_serve(check, tmp_path):
    path = tmp_path / "trace.json"

    def ask(prompt):
        body = json.dumps({"prompt": prompt, "max_tokens": 5, "ignore_eos": True}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{server.port}/v1/completions", body)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["usage"]["completion_tokens"]

    with Server(PROGRAM, ["-m", MODEL, "--backend", "cpu", "--slots", "2", "--trace", str(path)], tmp_path) as server:
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            list(pool.map(ask, ["The prince", "The count", "Natasha"]))
    trace = check.read(path)
    (names,) = tracks(trace).values()
    assert names >= {"session", "cpu", "slot 0"}
    assert count(trace, "slot") == 3
    assert {row.track for row in trace.query(REQUESTS)} == {f"request {number}" for number in (1, 2, 3)}


def test_finetune(check, tmp_path):
    (tmp_path / "data.jsonl").write_text('{"prompt":"Who is Andrew?","completion":"A prince."}\n')
    trace = check("finetune", "-m", MODEL, "--data", "data.jsonl", "-o", "adapter", "--iters", "2", "-t", "1")
    assert count(trace, "step") >= 2
