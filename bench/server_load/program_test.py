#!/usr/bin/env python3
"""server_load against a server of a tiny model: what it counts is what it asked for."""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "server"))
from served import Server  # noqa: E402


def load(arguments, *more, status=0):
    """The object that server_load prints, or what it says of an error."""
    done = subprocess.run([arguments.load, *map(str, more)], capture_output=True, text=True, timeout=60)
    assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
    return json.loads(done.stdout) if done.stdout.startswith("{") else done.stderr


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("load", "program", "model"):
        parser.add_argument(f"--{name}", required=True)
    arguments = parser.parse_args()
    flags = ["-m", arguments.model, "--backend", "cpu", "--slots", "4"]
    with tempfile.TemporaryDirectory() as folder, Server(arguments.program, flags, folder) as server:
        url = f"http://127.0.0.1:{server.port}"
        short = ("--requests", 3, "--tokens", 5, "--prompt-words", 8)
        found = load(arguments, url, "--clients", 1, 6, *short)
        assert [row["clients"] for row in found["results"]] == [1, 6]
        for row in found["results"]:
            asked = 3 * row["clients"]
            assert (row["requests"], row["failed"], row["tokens"]) == (asked, 0, 5 * asked), row
            assert 0 < row["ttft_ms"]["p50"] <= row["request_ms"]["max"], row
        (row,) = load(arguments, url, "--rate", 50, "--requests", 10, "--tokens", 3)["results"]
        assert (row["requests"], row["failed"], row["tokens"]) == (10, 0, 30), row
        assert row["late_ms"]["p50"] < 1000 * row["seconds"], row

        # Clients take turns with several models: every third of six asks for the one that is not there.
        name = Path(arguments.model).stem
        (row,) = load(arguments, url, "--clients", 6, *short, "--model", name, name, "of-nobody", status=1)["results"]
        assert (row["requests"], row["failed"], row["tokens"]) == (18, 6, 5 * 12), row

        # A request that fails is counted and named, and the exit status says so.
        (row,) = load(arguments, url, "--clients", 1, "--requests", 2, "--model", "of-nobody", status=1)["results"]
        assert row["failed"] == 2 and "of-nobody" in row["errors"][0], row
    assert "this machine" in load(arguments, "http://192.0.2.1:1", status=1)
    assert "--rate" in load(arguments, "http://127.0.0.1:1", "--rate", "-1", status=2)
    (row,) = load(arguments, "http://127.0.0.1:1", "--clients", 1, "--model", "x", status=1)["results"]
    assert "refused" in row["errors"][0], row


if __name__ == "__main__":
    main()
