#!/usr/bin/env python3
"""pull_test.py --program RULLAMA [--kills N --mib M]

`rullama pull` against a Hub on loopback that fails in every way that can be ordered. With --kills the program is killed
N times while it pulls a file of M MiB, and the store is looked at each time.
"""

import argparse
import os
import random
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from fake_hub import COMMIT, NAME, REPO, Fault, Hub

PROGRAM = None
KILLS = 0
MIB = 0
TOKEN = "hf_token"


class StoreTest(unittest.TestCase):
    """A store of its own for each test."""

    def setUp(self):
        self.home = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.repo = self.home / "hub" / ("models--" + REPO.replace("/", "--"))

    def environment(self, hub, **more):
        return {"PATH": os.environ["PATH"], "HOME": str(self.home), "HF_ENDPOINT": hub.url, "HF_HOME": str(self.home), **more}

    def command(self, *arguments):
        return [PROGRAM, "pull", "-hf", REPO, *arguments]

    def pull(self, hub, *arguments, **environment):
        return subprocess.run(
            self.command(*arguments), env=self.environment(hub, **environment), capture_output=True, text=True, timeout=60
        )

    def check_whole(self, hub, done):
        self.assertEqual(done.returncode, 0, done.stderr)
        path = Path(done.stdout.strip())
        self.assertEqual(path, self.repo / "snapshots" / COMMIT / NAME)
        self.assertEqual(path.read_bytes(), hub.data)
        self.assertEqual([p.name for p in (self.repo / "blobs").iterdir()], [hub.digest])

    def check_refused(self, done, error):
        self.assertEqual(done.returncode, 6, done.stderr)
        self.assertTrue(done.stderr.rstrip().endswith(f"[{error}]"), done.stderr)
        self.assertEqual(done.stdout, "")
        self.check_nothing_final()

    def check_nothing_final(self):
        self.assertEqual(list(self.repo.glob("snapshots/*/*")) + list(self.repo.glob("refs/*")), [])


class PullTest(StoreTest):
    def test_cut_at_every_tenth(self):
        data = random.Random(1).randbytes(3_000_000)
        with Hub(data) as hub:
            for tenth in range(10):
                hub.forget(Fault(cut=len(data) * tenth // 10))
                self.check_whole(hub, self.pull(hub))
                self.assertLess(hub.sent, len(data) * 1.05, "what was there is not fetched again")
                subprocess.run([PROGRAM, "rm", "-hf", REPO], env=self.environment(hub), check=True)
                self.assertFalse(self.repo.exists())

    def test_several_connections(self):
        with Hub(random.Random(2).randbytes(18 << 20)) as hub:
            self.check_whole(hub, self.pull(hub))
            self.assertGreater(len(hub.requests), 2)
            self.assertEqual(hub.sent, len(hub.data))

    def test_wrong_bytes_and_sizes(self):
        with Hub(random.Random(3).randbytes(50_000)) as hub:
            hub.forget(Fault(flip=10_000))
            self.check_refused(self.pull(hub), "pull.digest")
            hub.forget()
            hub.tree = [hub.entry(NAME, size=len(hub.data) + 10)]
            self.check_refused(self.pull(hub), "pull.size")
            for path in ("../evil-Q4_K_M.gguf", "/evil-Q4_K_M.gguf", "a/../../evil.gguf"):
                hub.tree = [hub.entry(path)]
                self.check_refused(self.pull(hub), "pull.protocol")
            hub.tree = [hub.entry(NAME)]
            self.check_whole(hub, self.pull(hub))

    def test_a_busy_server(self):
        with Hub(random.Random(4).randbytes(50_000)) as hub:
            hub.forget(Fault(status=429, headers={"Retry-After": "1"}))
            began = time.monotonic()
            self.check_whole(hub, self.pull(hub))
            self.assertGreater(time.monotonic() - began, 0.9)
            subprocess.run([PROGRAM, "rm", "-hf", REPO], env=self.environment(hub), check=True)
            hub.forget(Fault(times=9, status=429, headers={"Retry-After": "3600"}))
            self.check_refused(self.pull(hub), "pull.rate_limited")
            hub.forget(Fault(status=503))
            self.check_whole(hub, self.pull(hub))

    def test_a_token_stays_with_its_host(self):
        with Hub(random.Random(5).randbytes(50_000)) as hub:
            hub.forget(Fault(to=f"http://localhost:{hub.port}/elsewhere"))
            self.check_whole(hub, self.pull(hub, "-v", HF_TOKEN=TOKEN))
            self.assertEqual(hub.requests[0][1], f"Bearer {TOKEN}")
            self.assertEqual(hub.requests[1][:2], ("/elsewhere", None))

    def test_interrupted_and_continued(self):
        with Hub(random.Random(6).randbytes(12 << 20)) as hub:
            for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
                hub.forget(Fault(times=99, rate=8_000_000))
                process = subprocess.Popen(
                    self.command(), env=self.environment(hub), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
                )
                while hub.sent < 2 << 20 and process.poll() is None:
                    time.sleep(0.01)
                process.send_signal(number)
                _, errors = process.communicate(timeout=60)
                self.assertEqual(process.returncode, code)
                self.assertIn("again", errors)
                self.check_nothing_final()
            sent = hub.sent
            hub.forget()
            self.check_whole(hub, self.pull(hub))
            self.assertLess(hub.sent, len(hub.data) - sent + (2 << 20))


class KilledTest(StoreTest):
    def test_killed_again_and_again(self):
        draw = random.Random(7)
        with Hub(draw.randbytes(MIB << 20)) as hub:
            for _ in range(KILLS):
                process = subprocess.Popen(
                    self.command(), env=self.environment(hub), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
                hub.fault = Fault(times=1000, rate=8_000_000)
                time.sleep(draw.uniform(0.02, 0.4))
                process.kill()
                process.wait()
                for blob in self.repo.glob("blobs/" + hub.digest):
                    self.assertEqual(blob.read_bytes(), hub.data, "a final name has the right bytes")
            hub.fault = None
            self.check_whole(hub, self.pull(hub))
            self.assertLess(hub.sent, len(hub.data) * 1.2 + KILLS * (4 << 20))


def main():
    global PROGRAM, KILLS, MIB
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--mib", type=int, default=200)
    arguments = parser.parse_args()
    PROGRAM, KILLS, MIB = arguments.program, arguments.kills, arguments.mib
    unittest.main(argv=["pull_test"], defaultTest="KilledTest" if KILLS else "PullTest")


if __name__ == "__main__":
    main()
