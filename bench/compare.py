#!/usr/bin/env python3
"""Compares the speed of rullama with that of other engines on one model file.

    bench/compare.py -m e2b.gguf --rullama build/ci/bin/rullama \\
        --kernels-bench build/ci/bin/cpu_kernels_bench \\
        --peer "ik=ik_llama.cpp/build/bin/llama-bench -fa 1" \\
        --peer "ik-rtr=ik_llama.cpp/build/bin/llama-bench -fa 1 -rtr 1" \\
        --peer "llama.cpp=llama.cpp/build/bin/llama-bench -fa 1" \\
        -p 32,512,2048 -n 32 -d 0,4096 --rounds 5

A peer is a program that understands the flags of llama-bench. Every round runs each test once on
every engine, one engine after the other, and measures the machine's limits in between; the table
has the medians of the rounds, the ratio to the best peer of each test, and what share that is of
the memory's bandwidth and of the peak of int8 products. With --all-rows rullama computes the logits
of every token of a prompt, which peers do not: their column is the same test without them.
"""
import argparse
import json
import shlex
import statistics
import subprocess
import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class Test:
    prompt: int
    generate: int
    depth: int

    def __str__(self):
        name = f"pp{self.prompt}" if self.prompt else f"tg{self.generate}"
        return name + (f" @ d{self.depth}" if self.depth else "")


def run(command):
    """The standard output of a command; ends the program if it fails."""
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"{shlex.join(command)} failed with {result.returncode}:\n{result.stderr[-2000:]}")
    return result.stdout


class Rullama:
    """rullama bench; also tells what a token has to read and compute."""

    name = "rullama"

    def __init__(self, command, options):
        self.command = command + ["bench", "-m", options.model, "-t", str(options.threads)]
        self.all_rows = options.all_rows
        self.bytes_per_token = {}
        self.flops_per_token = {}

    def measure(self, test):
        rows = ["--all-rows"] if self.all_rows and test.prompt else []
        record = json.loads(
            run(
                self.command + rows
                + ["-p", str(test.prompt), "-n", str(test.generate), "-d", str(test.depth)]
                + ["-r", "1", "--json"]
            )
        )
        self.bytes_per_token[test] = record["bytes_per_token"]
        self.flops_per_token[test] = record["flops_per_token"]
        return record["median_per_s"]


class LlamaBench:
    """A program with the flags of llama-bench; older ones have -gp where newer ones have -d."""

    def __init__(self, text, options):
        self.name, _, command = text.partition("=")
        self.command = shlex.split(command)
        if not self.command:
            sys.exit(f"--peer is '{text}', expected NAME=COMMAND")
        help_text = subprocess.run(
            self.command + ["--help"], capture_output=True, text=True, check=False
        )
        self.has_depth = "--n-depth" in help_text.stdout + help_text.stderr
        self.command += ["-m", options.model, "-t", str(options.threads), "-r", "1", "-o", "json"]

    def measure(self, test):
        sizes = ["-p", str(test.prompt), "-n", str(test.generate)]
        if test.depth and self.has_depth:
            sizes += ["-d", str(test.depth)]
        elif test.depth and test.prompt:
            return None  # not to be had
        elif test.depth:
            sizes = ["-p", "0", "-n", "0", "-gp", f"{test.depth},{test.generate}"]
        return json.loads(run(self.command + sizes))[-1]["avg_ts"]


def measure_limits(options):
    """Bytes and int8 operations per second of all threads; None where they are not to be had."""
    if not options.kernels_bench:
        return None, None
    report = json.loads(
        run(
            [options.kernels_bench, "--benchmark_format=json"]
            + [f"--benchmark_filter=^(PlainRead|Int8Peak)/.*threads:{options.threads}$"]
        )
    )
    by_name = {entry["name"].split("/")[0]: entry for entry in report["benchmarks"]}
    return (
        by_name.get("PlainRead", {}).get("bytes_per_second"),
        by_name.get("Int8Peak", {}).get("ops"),
    )


def numbers(text):
    return [int(part) for part in text.split(",")]


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-m", "--model", required=True, help="GGUF file")
    parser.add_argument("--rullama", required=True, help="program, with options if need be")
    parser.add_argument("--kernels-bench", help="cpu_kernels_bench, for the machine's limits")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND")
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("-p", "--prompts", type=numbers, default=[512])
    parser.add_argument("-n", "--generate", type=numbers, default=[32])
    parser.add_argument("-d", "--depths", type=numbers, default=[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--all-rows", action="store_true")
    return parser.parse_args()


def tests_of(options):
    tests = [Test(prompt, 0, 0) for prompt in options.prompts if prompt]
    return tests + [Test(0, n, d) for d in options.depths for n in options.generate if n]


def median(values):
    values = [value for value in values if value is not None]
    return statistics.median(values) if values else None


def share(part, whole):
    return f"{100 * part / whole:.0f} %" if whole else ""


def print_table(tests, rullama, peers, rates, bandwidth, peak):
    peer_names = " | ".join(peer.name for peer in peers)
    print(f"| test | rullama t/s | {peer_names} | ratio | of bandwidth | of int8 peak |")
    print("|---" * (5 + len(peers)) + "|")
    for test in tests:
        own = median(rates[rullama.name][test])
        others = [median(rates[peer.name][test]) for peer in peers]
        cells = [f"{rate:.2f}" if rate else "" for rate in others]
        best = max((rate for rate in others if rate), default=None)
        print(
            f"| {test} | {own:.2f} | {' | '.join(cells)} | {f'{own / best:.2f}' if best else ''} "
            f"| {share(own * rullama.bytes_per_token[test], bandwidth)} "
            f"| {share(own * rullama.flops_per_token[test], peak)} |"
        )
    if bandwidth:
        print(f"\nReading memory: {bandwidth / 1e9:.1f} GB/s.", end="")
    if peak:
        print(f" Products of int8: {peak / 1e12:.2f} TOPS.", end="")
    print()


def main():
    options = parse()
    tests = tests_of(options)
    rullama = Rullama(shlex.split(options.rullama), options)
    peers = [LlamaBench(text, options) for text in options.peer]
    engines = [rullama] + peers
    rates = {engine.name: {test: [] for test in tests} for engine in engines}
    limits = []
    for number in range(options.rounds):
        limits.append(measure_limits(options))
        for test in tests:
            for engine in engines:
                rate = engine.measure(test)
                rates[engine.name][test].append(rate)
                text = "none" if rate is None else f"{rate:.2f} t/s"
                print(f"round {number + 1}: {test}: {engine.name}: {text}", file=sys.stderr)
    bandwidth, peak = (median(values) for values in zip(*limits))
    print_table(tests, rullama, peers, rates, bandwidth, peak)


if __name__ == "__main__":
    main()
