"""A `rullama serve` as a process of a test."""

import re
import signal
import subprocess
import time
from pathlib import Path


def wait_until(condition, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("it did not happen in time")
        time.sleep(0.05)


class Server:
    """`rullama serve` with `flags`, on a free port, in `folder`, where its log lies."""

    def __init__(self, program, flags, folder):
        self.log = Path(folder) / "serve.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen([program, "serve", *flags, "--port", "0"], cwd=folder, stderr=log)
        self.port = self._wait_for_port()

    def _wait_for_port(self, seconds=60):
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.process.poll() is None:
            found = re.search(r"listening on http://[^:]*:(\d+)", self.log.read_text())
            if found:
                return int(found[1])
            time.sleep(0.01)
        self.process.kill()
        raise AssertionError("the server did not start: " + self.log.read_text())

    def __enter__(self):
        return self

    def __exit__(self, *error):
        """Ends it as systemd does; its exit code has to be 0."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=60)
        if error[0] is None and code != 0:
            raise AssertionError(f"the server ended with {code}: {self.log.read_text()[-2000:]}")
