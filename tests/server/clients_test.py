#!/usr/bin/env python3
"""clients_test.py --program RULLAMA --suite FOLDER --environments FOLDER --model FILE --group EXPRESSION [--suites LIST]
    [--file NAME] [--keys]

Runs the client suite, which asks a server through the libraries that people use and through a browser, against
`rullama serve` on the processor. The suite makes its Python environments from pinned lists, in --environments; its
pages need chromium and chromium-driver. --group names the part to run as `pytest -m` does, --suites its environments,
--file the one file that the group is in, so that the others and their libraries are not imported; it may be none of the
suite. With --keys the server has two keys, and a queue that a test can fill.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from served import Server

KEYS = {"API_KEY": "key-of-the-first-client", "API_KEY_2": "key-of-the-second-client"}


def flags_with_keys(folder):
    """Flags of a server with KEYS, and a queue of 64 requests."""
    keys, config = Path(folder, "keys"), Path(folder, "config.yaml")
    keys.write_text("".join(f"{name}:{key}\n" for name, key in KEYS.items()))
    keys.chmod(0o600)
    config.write_text("server: {max_queue: 64}\n")
    return ["--api-key-file", str(keys), "--config", str(config)]


def main():
    parser = argparse.ArgumentParser()
    for name in ("program", "suite", "environments", "model"):
        parser.add_argument(f"--{name}", required=True, type=Path)
    parser.add_argument("--group", required=True)
    parser.add_argument("--suites", default="1 2")
    parser.add_argument("--file", action="append", default=[])
    parser.add_argument("--keys", action="store_true")
    arguments = parser.parse_args()
    flags = ["-m", str(arguments.model), "--backend", "cpu", "--slots", "4"]
    with tempfile.TemporaryDirectory() as folder:
        if arguments.keys:
            flags += flags_with_keys(folder)
        with Server(str(arguments.program), flags, folder) as server:
            return run_suite(arguments, server)


def run_suite(arguments, server):
    suite = ["bash", str(arguments.suite / "run.sh"), f"http://127.0.0.1:{server.port}"]
    return subprocess.run(
        [*suite, "-m", arguments.group, *arguments.file],
        env={
            **os.environ,
            **({**KEYS, "KEYED": "1"} if arguments.keys else {}),
            "PIP_NO_COMPILE": "0",  # pip inverts it: few of the modules are ever imported
            "PYTEST_PLUGINS": "suite_mends",
            "PYTHONPATH": str(Path(__file__).resolve().parent),
            "PYTHONPYCACHEPREFIX": str(arguments.environments / "pycache"),
            "CLIENTS_VENV": str(arguments.environments),
            "SUITES": arguments.suites,
            "RULLAMA": str(arguments.program),
            "MODEL_FILE": str(arguments.model),
        },
        check=False,
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
