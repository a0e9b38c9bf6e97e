#!/usr/bin/env python3
"""Measures a server of embeddings: clients ask for the vectors of texts until each text was asked for.

    bench/embed_load.py URL TEXTS [--model NAME] [--at-once 32] [--repeat 4] [--together]

TEXTS is a JSON list of texts. As many clients as --at-once, each with a connection that it keeps, ask
POST /v1/embeddings for one text after another; with --together one client asks for that many texts in each request.
Vectors come as base64, as the library of OpenAI asks for them. Every text is asked for --repeat times, after one text
for each client that is not counted. Prints one JSON object: tokens per second, the time of a request in milliseconds,
and how busy this program was, which must not limit the server. Exit status 1 if a request failed.

Python 3.11 and its standard library.
"""
import argparse
import contextlib
import http.client
import json
import queue
import statistics
import sys
import threading
import time
from urllib.parse import urlsplit

TIMEOUT_S = 600
HEADERS = {"Content-Type": "application/json"}
SHOWN_BYTES = 600  # of an answer that is not a list of vectors


class LoadError(Exception):
    """An answer that is not a list of vectors. The message is its beginning."""


class Client:
    """Asks for vectors, on a connection that it keeps as long as the server does."""

    def __init__(self, url, model):
        self.fields = {"encoding_format": "base64"} | ({"model": model} if model else {})
        self.connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=TIMEOUT_S)

    def close(self):
        self.connection.close()

    def request(self, texts):
        """The body of a request."""
        return json.dumps({"input": texts, **self.fields}).encode()

    def ask(self, request, count):
        """The body of the answer to a request for `count` vectors."""
        try:
            return self._exchange(request, count)
        except ConnectionError:  # servers close connections that are idle for some seconds
            self.connection.close()
            return self._exchange(request, count)

    def _exchange(self, request, count):
        self.connection.request("POST", "/v1/embeddings", request, HEADERS)
        answer = self.connection.getresponse()
        body = answer.read()
        if answer.status != 200 or body.count(b'"embedding":') != count:
            shown = body[:SHOWN_BYTES].decode(errors="replace")
            raise LoadError(f"{answer.status} {answer.reason}: {shown}")
        return body


def tokens_of(body):
    """How many tokens the server read for an answer."""
    return int(json.loads(body)["usage"]["prompt_tokens"])


def load(url, model, texts, clients, repeat, size):
    """Asks for all texts `repeat` times, `size` in a request. Returns the object to print; LoadError."""
    groups = [texts[i:i + size] for i in range(0, len(texts), size)]
    waiting = queue.SimpleQueue()
    for _ in range(repeat):
        for group in groups:
            waiting.put(group)
    times, tokens, errors = [], [], []
    begin_together = threading.Barrier(clients + 1)

    def work(client, number):
        group = groups[number % len(groups)]
        tokens_of(client.ask(client.request(group), len(group)))
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

    def run(number):
        try:
            with contextlib.closing(Client(url, model)) as client:
                work(client, number)
        except threading.BrokenBarrierError:
            return  # another client failed
        except Exception as error:  # any other failure too has to end the other clients
            errors.append(f"{type(error).__name__}: {error}")
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
    if len(times) != repeat * len(groups):
        raise LoadError(f"{len(times)} of {repeat * len(groups)} requests were answered")
    return {"requests": len(times), "tokens": sum(tokens), "seconds": round(seconds, 4),
            "tokens_per_second": round(sum(tokens) / seconds, 1),
            "request_ms": round(1000 * statistics.median(times), 2), "client_busy": round(busy / seconds, 3)}


def texts_of(path):
    """The texts of a file. ValueError if it is not a list of texts or has none."""
    with open(path, encoding="utf-8") as file:
        texts = json.load(file)
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"{path} is not a JSON list of one or more texts")
    return texts


def http_url(text):
    address = urlsplit(text)
    if address.scheme != "http" or not address.hostname:
        raise ValueError
    return text


def positive(text):
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def main(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", type=http_url, help="http://HOST:PORT")
    parser.add_argument("texts", help="a JSON list of texts")
    parser.add_argument("--model", help="the model as the server names it; left out, requests name none")
    parser.add_argument("--at-once", type=positive, default=32)
    parser.add_argument("--repeat", type=positive, default=4)
    parser.add_argument("--together", action="store_true")
    arguments = parser.parse_args(words)
    clients, size = (1, arguments.at_once) if arguments.together else (arguments.at_once, 1)
    try:
        texts = texts_of(arguments.texts)
        print(json.dumps(load(arguments.url, arguments.model, texts, clients, arguments.repeat, size)))
    except (OSError, ValueError, LoadError) as error:
        print(f"embed_load.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
