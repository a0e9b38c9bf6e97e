#!/usr/bin/env python3
"""Runs rullama on thousands of damaged copies of the small models and checks how it answers.

Each file is a model with one to three changes: cut off, bits flipped, numbers overwritten, a
metadata value or a field of a tensor replaced. A seed decides all of them. Checks of each run: no signal ended it, it kept to its limits of time and memory, an error has an id, and no control
character reaches the terminal. Exits with 1 if a check failed; the files concerned are kept.

  tests/mutations/mutate.py --program build/release/bin/rullama --count 3000
  tests/mutations/mutate.py --program ... --drafter tiny-mtp.gguf tiny.gguf
"""
import argparse
import collections
import os
import random
import re
import resource
import struct
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
MODELS = [os.path.join(HERE, "..", "data", name) for name in (
    "tiny-e2b-Q4_K_M.gguf", "tiny-moe-Q4_K_M.gguf", "tiny-diffusion-Q4_K_M.gguf")]
SCALAR_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
STRING, ARRAY = 8, 9
NUMBERS = [0, 1, 2, 3, 7, 31, 32, 33, 255, 256, 2**15, 2**16, 2**24, 2**24 + 1, 2**31 - 1, 2**31,
           2**32 - 1, 2**32, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64 - 32]
TEXTS = [b"\x1b[2J\x1b]0;x\x07", b"\xff\xfe", b"\0", b"\n", b"%s%n{}", "\u009b2J\u202e".encode()]
ERROR = re.compile(r"error: .* \[[a-z0-9_]+\.[a-z0-9_]+\]$", re.M)
MAX_ERROR_BYTES = 8192


class Model:
    """The bytes of a model and where the fields of its header lie."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = file.read()
        self.lengths = []   # offsets of u64 lengths and counts
        self.types = []     # offsets of u32 types and ranks
        self.values = []    # (offset, bytes) of metadata values
        self.texts = []     # (offset, bytes) of keys, names and strings
        self.fields = []    # offsets of u64 dimensions and offsets of tensors
        self.at = 8
        tensors, entries = self.u64(), self.u64()
        for _ in range(entries):
            self.text()
            self.value(self.u32())
        for _ in range(tensors):
            self.text()
            for _ in range(self.u32()):
                self.fields.append(self.at)
                self.at += 8
            self.u32()
            self.fields.append(self.at)
            self.at += 8
        self.header_end = self.at

    def u32(self):
        self.types.append(self.at)
        self.at += 4
        return struct.unpack_from("<I", self.data, self.at - 4)[0]

    def u64(self):
        self.lengths.append(self.at)
        self.at += 8
        return struct.unpack_from("<Q", self.data, self.at - 8)[0]

    def text(self):
        size = self.u64()
        self.texts.append((self.at, size))
        self.at += size

    def value(self, kind):
        if kind == STRING:
            self.text()
        elif kind == ARRAY:
            element, count = self.u32(), self.u64()
            for i in range(count):
                if element == STRING:
                    size = struct.unpack_from("<Q", self.data, self.at)[0]
                    if i < 8:
                        self.lengths.append(self.at)
                        self.texts.append((self.at + 8, size))
                    self.at += 8 + size
                else:
                    if i < 8:
                        self.values.append((self.at, SCALAR_BYTES[element]))
                    self.at += SCALAR_BYTES[element]
        else:
            self.values.append((self.at, SCALAR_BYTES[kind]))
            self.at += SCALAR_BYTES[kind]

    def mutate(self, rng):
        """Returns a damaged copy and what was done to it."""
        data = bytearray(self.data)
        done = []
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            change = rng.choice((self.cut, self.flip, self.stomp, self.length, self.kind, self.number,
                                 self.number, self.field, self.field, self.rename))
            done.append(change(data, rng))
        return bytes(data), "; ".join(done)

    def cut(self, data, rng):
        size = rng.choice((rng.randrange(len(data)), rng.randrange(min(self.header_end, len(data)) or 1)))
        del data[size:]
        return f"cut to {size}"

    def put(self, data, at, new):
        if at + len(new) <= len(data):
            data[at:at + len(new)] = new

    def flip(self, data, rng):
        at = rng.randrange(rng.choice((self.header_end, len(data))) or 1) if data else 0
        bit = rng.randrange(8)
        if at < len(data):
            data[at] ^= 1 << bit
        return f"bit {bit} of byte {at}"

    def stomp(self, data, rng):
        at, number = rng.randrange(self.header_end), rng.choice(NUMBERS)
        self.put(data, at, struct.pack("<Q", number))
        return f"byte {at} = u64 {number}"

    def length(self, data, rng):
        at, number = rng.choice(self.lengths), rng.choice(NUMBERS)
        self.put(data, at, struct.pack("<Q", number))
        return f"length at {at} = {number}"

    def kind(self, data, rng):
        at, number = rng.choice(self.types), rng.choice((rng.randrange(48), rng.choice(NUMBERS)))
        self.put(data, at, struct.pack("<I", number & 0xFFFFFFFF))
        return f"type at {at} = {number}"

    def number(self, data, rng):
        at, size = rng.choice(self.values)
        if size >= 4 and rng.random() < 0.3:
            value = rng.choice((float("nan"), float("inf"), -1.0, 0.0, 3e38, 1e-40))
            new = struct.pack("<f" if size == 4 else "<d", value)
        else:
            value = rng.choice(NUMBERS)
            new = struct.pack("<Q", value)[:size]
        self.put(data, at, new)
        return f"value at {at} = {value}"

    def field(self, data, rng):
        at, number = rng.choice(self.fields), rng.choice((rng.choice(NUMBERS), rng.randrange(4096)))
        self.put(data, at, struct.pack("<Q", number))
        return f"tensor field at {at} = {number}"

    def rename(self, data, rng):
        at, size = rng.choice(self.texts)
        new = rng.choice(TEXTS)[:size]
        self.put(data, at, new)
        return f"text at {at} = {new!r}"


def commands(index, path, ids, out, target):
    yield "inspect", ["inspect", path]
    if target:
        if index % 3 == 0:
            yield "drafts", ["-m", target, "--draft", path, "--draft-mtp", "true", "--raw",
                             "-p", "The", "-n", "8", "--backend", "cpu"]
        return
    if index % 3 == 0:
        yield "logits", ["logits", "-m", path, "--tokens-file", ids, "--out", out]
    if index % 6 == 1:
        yield "run", ["-m", path, "--raw", "-p", "The", "-n", "2", "--diffusion-steps", "1"]
    if index % 30 == 2:
        yield "tokenize", ["tokenize", "-m", path, "-p", "The"]


def run(options, words):
    def limit():
        if options.memory_mib:
            size = options.memory_mib << 20
            resource.setrlimit(resource.RLIMIT_AS, (size, size))
    process = subprocess.Popen([options.program, *words], stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=limit)
    started = time.monotonic()
    try:
        out, err = process.communicate(timeout=options.seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return None, b"", b"", time.monotonic() - started
    return process.returncode, out, err, time.monotonic() - started


def faults(code, out, err):
    """The faults of the answer."""
    if code is None:
        return ["took too long"]
    found = []
    if code < 0 or code > 8:
        found.append(f"ended with {code}")
    for name, stream in (("stdout", out), ("stderr", err)):
        # Text that a model writes is its own; messages about a file are not.
        if name == "stderr" and re.search(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]", stream):
            found.append("control characters on stderr")
    text = err.decode("utf-8", "replace")
    if code != 0 and not ERROR.search(text):
        found.append("an error without an id")
    if code == 5 and "refused more memory" in text:
        found.append("asked for more memory than the limit")
    if code != 0 and len(err) > MAX_ERROR_BYTES:
        found.append(f"{len(err)} bytes on stderr")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--program", required=True)
    parser.add_argument("--count", type=int, default=10000, help="files")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="index of the first file, to repeat one")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=60, help="limit of one run")
    parser.add_argument("--memory-mib", type=int, default=4096,
                        help="limit of the address space; 0: none, for sanitizers")
    parser.add_argument("--keep", default="", help="folder for files that failed a check")
    parser.add_argument("--drafter", nargs=2, metavar=("DRAFTER", "MODEL"), default=(None, None),
                        help="damage this drafter, and let it guess for its model")
    options = parser.parse_args()
    drafter, target = options.drafter
    models = [Model(path) for path in ([drafter] if drafter else MODELS)]
    lock = threading.Lock()
    codes = collections.Counter()
    failed, slowest = [], (0.0, "")
    pending = iter(range(options.first, options.first + options.count))
    keep = options.keep or tempfile.mkdtemp(prefix="rullama_mutations_failed_")

    def work(folder, worker):
        nonlocal slowest
        path, out = os.path.join(folder, f"{worker}.gguf"), os.path.join(folder, f"{worker}.out")
        while True:
            with lock:
                index = next(pending, None)
            if index is None:
                return
            rng = random.Random(f"{options.seed}:{index}")
            data, done = models[index % len(models)].mutate(rng)
            with open(path, "wb") as file:
                file.write(data)
            for name, words in commands(index // len(models), path, os.path.join(folder, "ids"), out,
                                        target):
                code, stdout, stderr, seconds = run(options, words)
                wrong = faults(code, stdout, stderr)
                with lock:
                    codes[name, code] += 1
                    slowest = max(slowest, (seconds, f"{name} of file {index}"))
                    if not wrong:
                        continue
                    failed.append(index)
                    with open(os.path.join(keep, f"{options.seed}-{index}.gguf"), "wb") as file:
                        file.write(data)
                    print(f"file {index} ({done}): {name}: {', '.join(wrong)}\n"
                          f"  {stderr[-400:]!r}", flush=True)

    with tempfile.TemporaryDirectory(prefix="rullama_mutations_") as folder:
        with open(os.path.join(folder, "ids"), "w") as file:
            file.write("2,5,9,17")
        workers = [threading.Thread(target=work, args=(folder, i)) for i in range(options.jobs)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    for (name, code), count in sorted(codes.items(), key=str):
        print(f"{name}: {count} runs ended with {code}")
    print(f"{options.count} files, {sum(codes.values())} runs, slowest {slowest[0]:.1f} s "
          f"({slowest[1]}), {len(failed)} runs failed a check")
    if failed:
        print(f"files are kept in {keep}")
        return 1
    if not options.keep:
        os.rmdir(keep)
    return 0


if __name__ == "__main__":
    sys.exit(main())
