#!/usr/bin/env python3
"""Tests bench/embed_load.py with a server that answers as it is told."""
import contextlib
import http.server
import io
import json
import sys
import tempfile
import threading
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import embed_load

TEXTS = ["one", "two", "three", "four", "five"]
TOKENS = 7  # of each text


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.asked.append(asked)
            number = len(self.server.asked)
        status, answer = self.server.answer(number, asked["input"])
        body = json.dumps(answer).encode()
        self.send_response(status)
        if not self.server.chunked:
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        else:
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for piece in (body[:9], body[9:]):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.write(b"0\r\n\r\n")
        if number % self.server.closes == 0:
            self.close_connection = True


def vectors(_, texts):
    data = [{"embedding": "AAAA", "index": i} for i in range(len(texts))]
    return 200, {"data": data, "usage": {"prompt_tokens": TOKENS * len(texts)}}


class EmbedLoadTest(unittest.TestCase):
    def setUp(self):
        self.texts = Path(self.enterContext(tempfile.TemporaryDirectory())) / "texts.json"
        self.texts.write_text(json.dumps(TEXTS), encoding="utf-8")
        self.server = self.enterContext(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        self.server.daemon_threads = True
        self.server.lock, self.server.asked, self.server.chunked, self.server.closes = threading.Lock(), [], False, 1000
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        self.addCleanup(self.server.shutdown)

    def load(self, answer, *options):
        """The exit status, and what the program printed and complained about."""
        self.server.answer = answer
        url = f"http://127.0.0.1:{self.server.server_address[1]}"
        out, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            status = embed_load.main([url, str(self.texts), *options])
        return status, out.getvalue(), errors.getvalue()

    def check_loads(self, requests, *options):
        status, out, errors = self.load(vectors, *options)
        self.assertEqual((status, errors), (0, ""))
        found = json.loads(out)
        self.assertEqual((found["requests"], found["tokens"]), (requests, TOKENS * len(TEXTS) * 2))

    def check_fails(self, message, answer, *options):
        status, out, errors = self.load(answer, "--at-once", "3", *options)
        self.assertEqual((status, out), (1, ""))
        self.assertIn(message, errors)

    def test_asks_for_each_text_as_often_as_told(self):
        self.check_loads(10, "--at-once", "3", "--repeat", "2")
        self.assertEqual(len(self.server.asked), 3 + 10)
        counted = sorted(asked["input"][0] for asked in self.server.asked[3:])
        self.assertEqual(counted, sorted(TEXTS * 2))
        self.assertNotIn("model", self.server.asked[0])

    def test_asks_for_texts_together_and_names_the_model(self):
        self.check_loads(4, "--at-once", "3", "--repeat", "2", "--together", "--model", "m")
        self.assertEqual([len(asked["input"]) for asked in self.server.asked], [3, 3, 2, 3, 2])
        self.assertEqual({asked["model"] for asked in self.server.asked}, {"m"})

    def test_reads_chunks(self):
        self.server.chunked = True
        self.check_loads(10, "--at-once", "3", "--repeat", "2")

    def test_connects_anew(self):
        self.server.closes = 2
        self.check_loads(10, "--at-once", "3", "--repeat", "2")

    def test_fails_if_an_answer_is_an_error(self):
        refused = (500, {"error": "so it was ordered"})
        self.check_fails("so it was ordered", lambda number, texts: refused)
        self.server.asked.clear()
        # After all clients were ready.
        self.check_fails("so it was ordered", lambda number, texts: refused if number == 8 else vectors(number, texts))

    def test_fails_if_vectors_or_counts_of_tokens_are_missing(self):
        self.check_fails("LoadError: 200", lambda number, texts: vectors(number, texts[1:]))
        self.check_fails("usage", lambda number, texts: (200, {"data": vectors(number, texts)[1]["data"]}))
        self.check_fails("TypeError", lambda number, texts: (200, vectors(number, texts)[1] | {"usage": None}))

    def test_fails_without_a_server_or_texts(self):
        with contextlib.redirect_stderr(io.StringIO()) as errors:
            self.assertEqual(embed_load.main(["http://127.0.0.1:1", str(self.texts), "--at-once", "2"]), 1)
            for url in ("nonsense", "https://127.0.0.1:1"):
                with self.assertRaises(SystemExit):
                    embed_load.main([url, str(self.texts)])
        self.assertIn("refused", errors.getvalue())
        self.assertIn("invalid http_url value: 'nonsense'", errors.getvalue())
        for text in ("[]", "{}", "[1]", "no JSON"):
            self.texts.write_text(text, encoding="utf-8")
            self.check_fails("", vectors)
        self.texts.unlink()
        self.check_fails("texts.json", vectors)
        self.assertEqual(self.server.asked, [])


if __name__ == "__main__":
    unittest.main()
