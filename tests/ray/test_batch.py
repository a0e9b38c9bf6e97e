"""Jobs over rows: each row once, whatever is killed."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rullama
from batch_driver import MODEL_OPTIONS, OPTIONS, run
from conftest import E2B, eventually
from rullama.ray._batch import _Job, _warn_if_full, _Worker, row_seed

ROWS = 320
TOO_LONG = 7  # the id of a row that does not fit


def write_input(folder):
    (folder / "in").mkdir()
    for first in range(0, ROWS, 80):
        ids = list(range(first, first + 80))
        prompts = [f"The prince {i}" if i != TOO_LONG else "word " * 2000 for i in ids]
        table = pa.table({"id": ids, "prompt": prompts, "tag": [f"t{i}" for i in ids]})
        pq.write_table(table, folder / "in" / f"{first}.parquet")


def done(folder):
    """Files of rows that count as written."""
    return [p for p in folder.glob("out/progress/*.parquet") if ".pending" not in p.name]


def workers():
    """Process ids of the workers of jobs."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes().startswith(b"ray::") and b"_Worker" in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            pass
    return found


@pytest.mark.nightly
def test_each_row_is_written_once_although_the_driver_and_a_worker_are_killed(cluster, tmp_path):
    write_input(tmp_path)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    driver = subprocess.Popen(
        [sys.executable, "batch_driver.py", cluster.address, str(tmp_path)],
        env=environment,
        cwd=Path(__file__).parent,
    )
    eventually(lambda: len(done(tmp_path)) >= 2 or driver.poll() is not None, every_s=0.02)
    assert driver.poll() is None, "the driver ended before it could be killed"
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    first = {p: p.read_bytes() for p in done(tmp_path)}
    rows_before = sum(pq.read_metadata(p).num_rows for p in first)
    assert 0 < rows_before < ROWS

    killed = []

    def kill_a_worker():
        # A worker that outlived the first driver may write a file before the second job has workers.
        pid = eventually(lambda: len(done(tmp_path)) > len(first) and workers(), every_s=0.02)[0]
        os.kill(pid, signal.SIGKILL)
        killed.append(pid)

    killer = threading.Thread(target=kill_a_worker)
    killer.start()
    result = run(tmp_path)
    killer.join()
    assert killed, "the job was over before a worker could be killed"
    assert (result.rows, result.failed) == (ROWS, 1)
    assert all(p.read_bytes() == content for p, content in first.items())

    rows = pq.read_table(result.folder).to_pylist()
    assert sorted(row["id"] for row in rows) == list(range(ROWS))
    assert all(row["tag"] == f"t{row['id']}" for row in rows)
    by_id = {row["id"]: row for row in rows}
    assert "context.overflow" in by_id[TOO_LONG]["error"] and by_id[TOO_LONG]["text"] == ""
    with rullama.Model(E2B, **MODEL_OPTIONS) as model:
        for i in range(0, ROWS, 40):
            alone = model.generate(f"The prince {i}", seed=row_seed(5, i), **OPTIONS)
            assert by_id[i]["text"] == alone.text and by_id[i]["seed"] == alone.seed

    # A job that is over is over: nothing is computed again; another job does not mix with it.
    again = {p: p.stat().st_mtime_ns for p in tmp_path.glob("out/rows/*.parquet")}
    assert run(tmp_path) == result
    assert {p: p.stat().st_mtime_ns for p in tmp_path.glob("out/rows/*.parquet")} == again
    with pytest.raises(rullama.UsageError, match="another model, task, seed or options"):
        run(tmp_path, seed=6)
    with pytest.raises(rullama.UsageError, match="expected an empty folder"):
        run(tmp_path, resume=False)


def worker(task, **options):
    return _Worker(
        _Job(
            model=str(E2B),
            task=task,
            id_column="id",
            input_column="prompt",
            seed=0,
            options=options,
            model_options=MODEL_OPTIONS,
            keep=(),
        )
    )


def batch(*texts):
    return {"id": np.arange(len(texts)), "prompt": np.array(texts, dtype=object)}


def test_embeddings_and_scores_are_those_of_the_model(model):
    texts = ["The prince", "Anna Pavlovna smiled"]
    columns = worker("embed")(batch(*texts, "word " * 2000))
    np.testing.assert_array_equal(np.stack(columns["embedding"][:2]), model.embed(texts))
    assert columns["embedding"][2] is None and "context.overflow" in columns["error"][2]
    scores = worker("score")(batch(*texts, ""))
    for i, text in enumerate(texts):
        ids = model.tokenize(text, parse_special=False, add_bos=True)
        assert scores["log_likelihood"][i] == pytest.approx(-model.negative_log_likelihood(ids))
        assert scores["tokens"][i] == len(ids) - 1
    assert scores["tokens"][2] == 0 and list(scores["error"]) == [""] * 3


def test_conversations_are_answered_and_broken_ones_have_their_error(model):
    messages = [{"role": "user", "content": "Who is Anna?"}]
    columns = worker("chat", max_tokens=6)(batch(json.dumps(messages), "{", '[{"role": "x"}]'))
    alone = model.chat(messages, max_tokens=6, seed=row_seed(0, 0))
    assert columns["text"][0] == alone.text and columns["error"][0] == ""
    assert "chat.json" in columns["error"][1] and "chat." in columns["error"][2]


def test_workers_that_leave_no_cpu_for_readers_are_warned_of(monkeypatch, caplog):
    monkeypatch.setattr("ray.cluster_resources", lambda: {"CPU": 4.0})
    _warn_if_full(3)
    assert not caplog.records
    _warn_if_full(4)
    assert "reserve 4 of the cluster's 4 CPUs" in caplog.text


def test_seeds_of_rows_differ_and_do_not_change():
    assert row_seed(0, 1) == row_seed(0, np.int64(1)) != row_seed(0, 2)
    assert row_seed(0, "a") != row_seed(1, "a")
    assert 0 <= min(row_seed(0, i) for i in range(1000)) and max(row_seed(0, i) for i in range(1000)) < 2**63
