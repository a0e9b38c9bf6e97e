#!/usr/bin/env python3
"""Load of texts for a server of embeddings: so many at once, until each was asked for.

    bench/embed_load.py URL TEXTS [--at-once 32] [--repeat 4] [--together]

TEXTS is a JSON list of texts. As many clients as --at-once, each with a connection that it keeps, ask
POST /v1/embeddings for one text after another; with --together one client asks for that many texts in each request.
Vectors come as base64, as the library of OpenAI asks for them. Every text is asked for --repeat times, after one text
for each client that is not counted. Prints one JSON object: tokens per second, the time of a request in milliseconds,
and how busy this program was, which must not limit the server. Exit status 1 if a request failed.

Python 3.11 and its standard library.
"""
import argparse
import json
import queue
import socket
import statistics
import sys
import threading
import time
from urllib.parse import urlsplit

HEAD_BYTES = 1 << 16  # of an answer, at most
TIMEOUT_S = 600


class LoadError(Exception):
    """An answer that is no list of vectors. The text has its beginning."""


class ClosedError(Exception):
    """The server closed the connection before it answered."""


class Client:
    """Asks for vectors, on a connection that it keeps as long as the server does."""

    def __init__(self, url):
        self.address = urlsplit(url)
        self.host = self.address.netloc
        self._connect()

    def _connect(self):
        self.socket = socket.create_connection((self.address.hostname, self.address.port), timeout=TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def request(self, texts):
        """The bytes of a request."""
        body = json.dumps({"input": texts, "encoding_format": "base64"}).encode()
        head = (f"POST /v1/embeddings HTTP/1.1\r\nHost: {self.host}\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\n\r\n")
        return head.encode() + body

    def ask(self, request, count):
        """The body of the answer to a request for `count` vectors."""
        try:
            return self._exchange(request, count)
        except (ClosedError, ConnectionError):  # servers close connections that are idle for some seconds
            self._connect()
            return self._exchange(request, count)

    def _exchange(self, request, count):
        self.socket.sendall(request)
        data = self._more(HEAD_BYTES)
        while b"\r\n\r\n" not in data:
            data += self._more(HEAD_BYTES)
        head, _, body = data.partition(b"\r\n\r\n")
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        parts, left = [body], int(fields[b"content-length"]) - len(body)
        while left > 0:
            parts.append(self._more(left))
            left -= len(parts[-1])
        body = b"".join(parts)
        if head.split(b" ", 2)[1] != b"200" or body.count(b'"embedding":') != count:
            raise LoadError((head + b"\n" + body)[:600].decode(errors="replace"))
        return body

    def _more(self, most):
        data = self.socket.recv(most)
        if not data:
            raise ClosedError("the server closed the connection")
        return data


def tokens_of(body):
    return json.loads(body)["usage"]["prompt_tokens"]


def load(url, texts, clients, repeat, size):
    """Asks for all texts `repeat` times, `size` in a request. Returns the object to print."""
    groups = [texts[i:i + size] for i in range(0, len(texts), size)]
    waiting = queue.SimpleQueue()
    for _ in range(repeat):
        for group in groups:
            waiting.put(group)
    times, tokens, errors = [], [], []
    begin_together = threading.Barrier(clients + 1)

    def run(number):
        try:
            client = Client(url)
            group = groups[number % len(groups)]
            client.ask(client.request(group), len(group))
            begin_together.wait()
            while not errors:
                try:
                    group = waiting.get_nowait()
                except queue.Empty:
                    return
                request, sent = client.request(group), time.perf_counter()
                body = client.ask(request, len(group))
                times.append(time.perf_counter() - sent)
                tokens.append(tokens_of(body))
        except threading.BrokenBarrierError:
            pass  # another one failed
        except (OSError, LoadError, ClosedError, ValueError) as error:
            errors.append(str(error))
            begin_together.abort()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(clients)]
    for thread in threads:
        thread.start()
    try:
        begin_together.wait()
    except threading.BrokenBarrierError:
        pass
    begin, busy = time.perf_counter(), time.process_time()
    for thread in threads:
        thread.join()
    seconds, busy = time.perf_counter() - begin, time.process_time() - busy
    if errors:
        raise LoadError(errors[0])
    return {"requests": len(times), "tokens": sum(tokens), "seconds": round(seconds, 4),
            "tokens_per_second": round(sum(tokens) / seconds, 1),
            "request_ms": round(1000 * statistics.median(times), 2), "client_busy": round(busy / seconds, 3)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="http://HOST:PORT")
    parser.add_argument("texts", help="a JSON list of texts")
    parser.add_argument("--at-once", type=int, default=32)
    parser.add_argument("--repeat", type=int, default=4)
    parser.add_argument("--together", action="store_true")
    arguments = parser.parse_args()
    with open(arguments.texts, encoding="utf-8") as file:
        texts = json.load(file)
    clients, size = (1, arguments.at_once) if arguments.together else (arguments.at_once, 1)
    try:
        print(json.dumps(load(arguments.url, texts, clients, arguments.repeat, size)))
    except LoadError as error:
        print(f"embed_load.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
