#!/usr/bin/env python3
"""soak.py --program RULLAMA --model FILE: many clients for a long time; run by hand.

Starts `rullama serve` with 4 slots and lets clients send all kinds of requests until a number of tokens are generated or a number of seconds are over. One in ten leaves in the middle of its answer, and some ask for what does not exist. Fails if
an answer has another status than it should, if one of the requests that are repeated all the time gets other bytes than
alone, or if memory, descriptors or threads grow after the first tenth.
"""

import argparse
import http.client
import json
import math
import os
import random
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path

from served import Server

SCHEMA = {
    "type": "object",
    "properties": {"color": {"enum": ["red", "green"]}, "count": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["color", "count"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "paint", "parameters": SCHEMA}}
FORMAT = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
WORDS = "It was in July, 1805, and the speaker was the well-known Anna Pavlovna. ".split()
CHAT, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"


def turns(text):
    return [{"role": "user", "content": text}]


def some_text(rng):
    return " ".join(rng.choices(WORDS, k=rng.randint(3, 150)))


def any_request(rng, tokens):
    """A request whose answer has about ``tokens`` tokens: path, body and the status that is right."""
    chat = {"messages": turns(some_text(rng)), "max_tokens": tokens, "ignore_eos": True}
    ollama = {"model": "soak", "messages": turns(some_text(rng)), "options": {"num_predict": tokens}}
    return rng.choice(
        [
            (CHAT, chat, 200),
            (CHAT, {**chat, "stream": True}, 200),
            (CHAT, {**chat, "stream": True, "logprobs": True, "top_logprobs": 3}, 200),
            (CHAT, {**chat, "n": 2, "max_tokens": tokens // 2 + 1}, 200),
            (CHAT, {**chat, "ignore_eos": False, "response_format": FORMAT}, 200),
            (CHAT, {**chat, "ignore_eos": False, "tools": [TOOL], "tool_choice": "required", "stream": True}, 200),
            (COMPLETIONS, {"prompt": some_text(rng), "max_tokens": tokens, "stream": True, "ignore_eos": True}, 200),
            (RESPONSES, {"input": some_text(rng), "max_output_tokens": tokens, "stream": True}, 200),
            ("/api/chat", ollama, 200),
            ("/v1/embeddings", {"input": some_text(rng)}, 200),
            (CHAT, {**chat, "temperature": -1}, 400),
            (CHAT, {**chat, "model": "none"}, 404),
        ]
    )


def repeated_requests():
    """Requests with a seed, whose answers have to stay the same bytes."""
    settings = [{"temperature": 0}, {"temperature": 1}, {"temperature": 1.5, "top_k": 5}, {"response_format": FORMAT}]
    for seed, setting in enumerate(settings):
        yield {"messages": turns(" ".join(WORDS * (seed + 1))), "max_tokens": 60, "seed": seed, **setting}


class Soak:
    def __init__(self, port, pid, arguments):
        self.port, self.pid, self.arguments = port, pid, arguments
        self.lock = threading.Lock()
        self.faults = []
        self.counts = {"answers": 0, "left": 0, "refused": 0, "compared": 0}
        self.over = threading.Event()
        self.repeated = [(body, self.text_of(body)) for body in repeated_requests()]

    def open(self, path, body):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        return connection

    def ask(self, path, body):
        """Status and bytes of an answer."""
        connection = self.open(path, body)
        try:
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def text_of(self, body):
        status, answer = self.ask(CHAT, body)
        assert status == 200, answer
        return json.loads(answer)["choices"][0]["message"]

    def leave(self, rng, path, body):
        """Closes the connection at some moment between the request and the end of its answer."""
        connection = self.open(path, body)
        if rng.random() < 0.5:
            time.sleep(rng.random() * 0.05)
        else:
            connection.getresponse().read(rng.randint(1, 2000))
        if rng.random() < 0.5:
            connection.sock.shutdown(socket.SHUT_WR)
        connection.close()

    def count(self, name):
        with self.lock:
            self.counts[name] += 1

    def step(self, rng):
        if rng.random() < 0.05:
            body, expected = rng.choice(self.repeated)
            found = self.text_of({**body, "cache_prompt": rng.random() < 0.5})
            self.count("compared")
            if found != expected:
                self.faults.append(f"{body}: {found}, alone {expected}")
            return
        path, body, expected = any_request(rng, rng.randint(1, self.arguments.longest))
        if rng.random() < 0.1:
            self.leave(rng, path, {**body, "stream": True})
            self.count("left")
            return
        status, answer = self.ask(path, body)
        self.count("answers" if status == 200 else "refused")
        if status != expected or b'"error":{' in answer and status == 200:
            self.faults.append(f"{path} {json.dumps(body)[:300]}: {status}, expected {expected}: {answer[-300:]}")

    def client(self, seed):
        rng = random.Random(seed)
        while not self.over.is_set():
            try:
                self.step(rng)
            except OSError as error:
                self.faults.append(f"client {seed}: {error!r}")

    def generated(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        return float(text.split("\nrullama_generated_tokens_total ")[1].split("\n")[0])

    def usage(self):
        """Resident MiB, open descriptors, threads."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        kib = int(status.split("VmRSS:")[1].split()[0])
        threads = int(status.split("Threads:")[1].split()[0])
        return kib / 1024, len(list(Path(f"/proc/{self.pid}/fd").iterdir())), threads

    def run(self):
        """The samples (tokens, MiB, descriptors, threads) that were taken meanwhile."""
        threads = [threading.Thread(target=self.client, args=(seed,)) for seed in range(self.arguments.clients)]
        for thread in threads:
            thread.start()
        samples = []
        begin = time.monotonic()
        end = begin + self.arguments.seconds
        while not samples or samples[-1][0] < self.arguments.tokens and not self.faults and time.monotonic() < end:
            time.sleep(1)
            samples.append((self.generated(), *self.usage()))
            if len(samples) % 30 == 0:
                print("{:9.0f} tokens, {:7.1f} MiB, {:3d} descriptors, {:3d} threads".format(*samples[-1]), flush=True)
        self.over.set()
        for thread in threads:
            thread.join()
        print(f"{samples[-1][0]:.0f} tokens in {time.monotonic() - begin:.0f} s, {self.counts}")
        return samples


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def check_growth(samples, clients):
    """What has grown after the first tenth."""
    total = samples[-1][0]
    early = [s for s in samples if 0.1 * total <= s[0] < 0.2 * total]
    late = [s for s in samples if s[0] >= 0.9 * total]
    first, last = mean(s[1] for s in early), mean(s[1] for s in late)
    files, threads = ((max(s[i] for s in samples if s[0] < 0.2 * total), max(s[i] for s in late)) for i in (2, 3))
    print(f"memory {first:.1f} -> {last:.1f} MiB ({last / first - 1:+.1%}), descriptors at most {files[0]} -> {files[1]},")
    print(f"threads at most {threads[0]} -> {threads[1]}")
    if last > 1.02 * first:
        yield f"memory grows from {first:.1f} to {last:.1f} MiB"
    if files[1] > files[0] + clients:
        yield f"descriptors grow from {files[0]} to {files[1]}"
    if threads[1] > threads[0] + clients:
        yield f"threads grow from {threads[0]} to {threads[1]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, type=os.path.abspath)
    parser.add_argument("--model", required=True, type=os.path.abspath)
    parser.add_argument("--tokens", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=math.inf, help="end then, with fewer tokens")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--longest", type=int, default=250, help="most tokens of an answer")
    parser.add_argument("--backend", default="cpu")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        config = {"server": {"prefix_cache_mib": 64, "models": [{"name": "soak", "path": arguments.model}]}}
        Path(folder, "config.yaml").write_text(json.dumps(config))
        flags = ["--config", "config.yaml", "--slots", "4", "-c", "2048", "--backend", arguments.backend]
        with Server(arguments.program, flags, folder) as server:
            soak = Soak(server.port, server.process.pid, arguments)
            idle = soak.usage()
            samples = soak.run()
            time.sleep(2)
            faults = soak.faults + list(check_growth(samples, arguments.clients))
            after = soak.usage()
            if after[1] > idle[1]:
                faults.append(f"{after[1] - idle[1]} descriptors stay open")
            if after[2] > idle[2]:
                faults.append(f"{after[2] - idle[2]} threads stay")
    for fault in faults[:20]:
        print(fault)
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
