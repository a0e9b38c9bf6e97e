#!/usr/bin/env python3
"""model_test.py --program RULLAMA --model FILE

Models that commands download when they need them: -hf, --pull, the question of `run` on a terminal, and /api/pull.
"""

import argparse
import json
import os
import pty
import select
import signal
import subprocess
import sys
import tempfile
import unittest
import urllib.error
import urllib.request
from pathlib import Path
from unittest import mock

from fake_hub import NAME, REPO, Fault, Hub

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "server"))
from served import Server  # noqa: E402

PROGRAM = None
MODEL = None
QUESTION = ["-p", "It was in July", "--raw", "--greedy", "-n", "4", "-t", "1", "--backend", "cpu"]


class ModelTest(unittest.TestCase):
    def setUp(self):
        self.home = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.hub = self.enterContext(Hub(Path(MODEL).read_bytes()))
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "HF_ENDPOINT": self.hub.url,
            "HF_HOME": str(self.home),
            "OLLAMA_MODELS": str(self.home / "ollama"),
        }
        expected = subprocess.run([PROGRAM, "run", "-m", MODEL, *QUESTION], capture_output=True, text=True, check=True)
        self.expected = expected.stdout

    def run_program(self, *arguments):
        return subprocess.run(
            [PROGRAM, *arguments], env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
        )

    def check_answer(self, *arguments):
        done = self.run_program(*arguments, *QUESTION)
        self.assertEqual((done.returncode, done.stdout), (0, self.expected), done.stderr)

    def test_run_fetches_once(self):
        self.check_answer("run", "-hf", REPO)
        self.hub.forget()
        self.check_answer("run", "-hf", f"{REPO}:Q4_K_M")
        self.check_answer("run", f"hf.co/{REPO}")
        self.assertEqual(self.hub.requests, [], "a model that is there needs no network")
        listed = json.loads(self.run_program("list", "--json").stdout)
        self.assertEqual((listed["name"], listed["type"]), (f"hf.co/{REPO}:Q4_K_M", "Q4_K_M"))
        for words in ([listed["name"]], ["-hf", REPO], ["-m", f"https://huggingface.co/{REPO}"]):
            shown = self.run_program("show", *words)
            self.assertEqual(shown.returncode, 0, shown.stderr)
            self.assertIn("gemma4", shown.stdout)
        self.assertEqual(self.run_program("rm", listed["name"]).returncode, 0)
        self.assertEqual(self.run_program("list", "--json").stdout, "")

    def test_names_are_fetched_when_asked(self):
        refused = self.run_program("run", f"hf.co/{REPO}", *QUESTION)
        self.assertEqual(refused.returncode, 4)
        self.assertIn(f"rullama pull hf.co/{REPO}", refused.stderr)
        self.assertEqual(self.hub.requests, [])
        self.check_answer("run", f"hf.co/{REPO}", "--pull")

    def test_show_and_inspect_fetch(self):
        refused = self.run_program("show", f"hf.co/{REPO}")
        self.assertEqual(refused.returncode, 4)
        self.assertIn(f"rullama pull hf.co/{REPO}", refused.stderr)
        self.assertEqual(self.hub.requests, [])
        shown = self.run_program("show", f"hf.co/{REPO}", "--pull")
        self.assertEqual(shown.returncode, 0, shown.stderr)
        self.assertEqual(self.run_program("rm", "-hf", REPO).returncode, 0)
        inspected = self.run_program("inspect", "-hf", f"https://hf.co/{REPO}:Q4_K_M", "--json")
        self.assertEqual(inspected.returncode, 0, inspected.stderr)
        facts = json.loads(inspected.stdout)
        self.assertEqual((facts["runnable"]["yes"], Path(facts["path"]).name), (True, NAME))

    def test_a_model_has_to_be_named(self):
        for command in ("show", "inspect"):
            nothing = self.run_program(command)
            self.assertEqual(nothing.returncode, 2)
            self.assertIn("[usage.model]", nothing.stderr)
            absent = self.run_program(command, "-hf", "no/body")
            self.assertIn("[pull.not_found]", absent.stderr)
            wrong = self.run_program(command, "-hf", "no-slash")
            self.assertEqual(wrong.returncode, 2)
            self.assertIn("[pull.name]", wrong.stderr)

    def test_two_models_are_too_many(self):
        for command in ("run", "serve", "show", "inspect"):
            question = QUESTION if command == "run" else []
            both = self.run_program(command, "-m", MODEL, "-hf", REPO, *question)
            self.assertEqual(both.returncode, 2)
            self.assertIn("-hf", both.stderr)

    def ask_on_terminal(self, *answers):
        """`run` on a terminal where its question gets the first of the answers, and its bar, if there is another one,
        the second; the exit code and what was shown."""
        child, terminal = pty.fork()
        if child == 0:
            os.execve(PROGRAM, [PROGRAM, "run", f"hf.co/{REPO}", *QUESTION], self.environment)
        shown, waiting = b"", list(zip((b"Download it?", b" left"), answers))
        while select.select([terminal], [], [], 30)[0]:
            try:
                shown += os.read(terminal, 65536)
            except OSError:
                break
            if waiting and waiting[0][0] in shown:
                os.write(terminal, waiting.pop(0)[1])
        os.close(terminal)
        self.assertEqual(waiting, [], shown)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), shown.decode()

    def test_the_question(self):
        code, shown = self.ask_on_terminal(b"n\n")
        self.assertEqual((code, self.hub.requests), (4, []), shown)
        code, shown = self.ask_on_terminal(b"\x04")
        self.assertEqual((code, self.hub.requests), (4, []), shown)
        code, shown = self.ask_on_terminal(b"\x03")
        self.assertEqual((code, self.hub.requests), (130, []), shown)
        code, shown = self.ask_on_terminal(b"\n")
        self.assertEqual(code, 0, shown)
        self.assertIn("100 %", shown)

    def test_an_interrupted_download_says_how_to_continue(self):
        self.hub.forget(Fault(times=99, rate=500_000))
        code, shown = self.ask_on_terminal(b"y\n", b"\x03")
        self.assertEqual(code, 130, shown)
        self.assertIn("run the same command again", shown)
        self.assertLess(self.hub.sent, len(self.hub.data))
        self.hub.forget()
        self.check_answer("run", "-hf", REPO)
        self.assertLess(self.hub.sent, len(self.hub.data), "what was there is not sent again")

    def test_interrupted_before_the_download(self):
        self.hub.answers.clear()
        self.addCleanup(self.hub.answers.set)
        process = subprocess.Popen(
            [PROGRAM, "run", "-hf", REPO, *QUESTION], env=self.environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        self.assertTrue(self.hub.asked.wait(30))
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 130, errors)
        self.assertIn("run the same command again", errors)

    def post(self, server, body):
        url, json_type = f"http://127.0.0.1:{server.port}/api/pull", {"Content-Type": "application/json"}
        request = urllib.request.Request(url, json.dumps(body).encode(), json_type)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.headers, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.headers, error.read().decode()

    def test_clients_of_the_server(self):
        flags = ["-m", MODEL, "--backend", "cpu", "--slots", "1", "-t", "1"]
        with mock.patch.dict(os.environ, self.environment):
            with Server(PROGRAM, flags, self.home) as server:
                status, headers, _ = self.post(server, {"model": f"hf.co/{REPO}"})
                self.assertEqual((status, headers["x-should-retry"]), (501, "false"))
                self.assertEqual(self.hub.requests, [])
            config = self.home / "allow.yaml"
            config.write_text("server:\n  allow_pull: true\n")
            with Server(PROGRAM, [*flags, "--config", str(config)], self.home) as server:
                self.assertEqual(self.post(server, {"model": "../x"})[0], 400)
                status, _, text = self.post(server, {"model": f"hf.co/{REPO}"})
                states = [json.loads(line) for line in text.splitlines()]
                self.assertEqual(status, 200)
                self.assertEqual([states[0]["status"], states[-1]["status"]], ["pulling manifest", "success"])
                self.assertEqual(states[-4]["completed"], len(self.hub.data))
                self.assertEqual(states[-4]["digest"], f"sha256:{self.hub.digest}")
                status, _, text = self.post(server, {"model": f"hf.co/{REPO}", "stream": False})
                self.assertEqual((status, json.loads(text)), (200, {"status": "success"}))
                status, _, text = self.post(server, {"model": "hf.co/no/body"})
                self.assertIn("pull.not_found", json.loads(text.splitlines()[-1])["error"])
        self.assertTrue(list(self.home.glob(f"hub/models--*/snapshots/*/{NAME}")))


def main():
    global PROGRAM, MODEL
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--model", required=True)
    arguments = parser.parse_args()
    PROGRAM, MODEL = arguments.program, arguments.model
    unittest.main(argv=["model_test"])


if __name__ == "__main__":
    main()
