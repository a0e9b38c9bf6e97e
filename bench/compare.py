#!/usr/bin/env python3
"""Compares the speed of rullama with that of other engines on one model file.

    bench/compare.py -m e2b.gguf --rullama build/ci/bin/rullama \\
        --kernels-bench build/ci/bin/cpu_kernels_bench \\
        --peer "ik=ik_llama.cpp/build/bin/llama-bench -fa 1" \\
        --peer "ik-rtr=ik_llama.cpp/build/bin/llama-bench -fa 1 -rtr 1" \\
        --peer "llama.cpp=llama.cpp/build/bin/llama-bench -fa 1" \\
        -p 32,512,2048 -n 32 -d 0,4096 --rounds 5 --out bench/results/my-machine-e2b.json

A peer is a program that understands the flags of llama-bench. Every round runs each test once on
every engine, one engine after the other, and measures the machine's limits in between; the table
has the medians of the rounds, the ratio to the best peer of each test, and the share of the nearest
limit: the memory's bandwidth or the peak of int8 products. With --all-rows rullama computes the
logits of every token of a prompt, which peers do not: their column is the same test without them.
--out writes all runs as a result file of bench/report.py.
"""
import argparse
import datetime
import json
import os
import shlex
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import report


@dataclass(frozen=True)
class Test:
    prompt: int
    generate: int
    depth: int

    def __str__(self):
        name = f"pp{self.prompt}" if self.prompt else f"tg{self.generate}"
        return name + (f" after {self.depth:,} tokens" if self.depth else "")


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
        self.version = None  # and the device: what the program says with a measurement
        self.device = None

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
        # Builds before 0.2.0 do not say them.
        self.version = f"{record.get('version', '')} {record.get('commit', '')}".strip()
        self.device = record.get("device", "unknown device")
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
        self.version = "version unknown"

    def measure(self, test):
        sizes = ["-p", str(test.prompt), "-n", str(test.generate)]
        if test.depth and self.has_depth:
            sizes += ["-d", str(test.depth)]
        elif test.depth and test.prompt:
            return None  # not to be had
        elif test.depth:
            sizes = ["-p", "0", "-n", "0", "-gp", f"{test.depth},{test.generate}"]
        record = json.loads(run(self.command + sizes))[-1]
        self.version = record.get("build_commit", self.version)
        return record["avg_ts"]


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


def parse(arguments):
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
    parser.add_argument("--out", type=Path, help="result file to write, for bench/report.py")
    parser.add_argument("--title", help="heading of the result file")
    parser.add_argument("--machine", help="in place of the device's name and the threads")
    options = parser.parse_args(arguments)
    options.given = arguments
    return options


def tests_of(options):
    tests = [Test(prompt, 0, 0) for prompt in options.prompts if prompt]
    return tests + [Test(0, n, d) for d in options.depths for n in options.generate if n]


def rounded(rate):
    """A rate with as many digits as a measurement has."""
    value = float(f"{rate:.4g}")
    return int(value) if value >= 1000 else value


def sample(rates):
    """The median of an engine's rounds and the rounds, as report.py has them; None without any."""
    runs = [rate for rate in rates if rate is not None]
    if not runs:
        return None
    return {"median": rounded(statistics.median(runs)), "runs": [rounded(rate) for rate in runs]}


def nearest_limit(rate, bytes_per_token, flops_per_token, bandwidth, peak):
    """The limit of which `rate` is the larger share; None where no limit was measured."""
    shares = []
    if bandwidth:
        shares.append((rate * bytes_per_token / bandwidth, f"{bandwidth / 1e9:.1f} GB/s"))
    if peak:
        shares.append((rate * flops_per_token / peak, f"{peak / 1e12:.2f} TOPS of int8"))
    share, of = max(shares, default=(0, ""))
    return {"of": of, "share": round(share, 4)} if share > 0 else None


def result_of(test, rullama, peers, rates, limits):
    """What all engines did in one test, as a case of a result file."""
    own = sample(rates[rullama.name][test])
    samples = {peer.name: sample(rates[peer.name][test]) for peer in peers}
    result = {
        "case": f"{test}, all rows" if rullama.all_rows and test.prompt else str(test),
        "unit": "t/s",
        **own,
        "peers": {name: peer for name, peer in samples.items() if peer},
    }
    best = report.best_peer(result)
    if best:
        result["ratio"] = round(own["median"] / best, 3)
    traffic = rullama.bytes_per_token[test], rullama.flops_per_token[test]
    limit = nearest_limit(own["median"], *traffic, *limits)
    if limit:
        result["limit"] = limit
    return result


def report_of(options, rullama, peers, results):
    """A complete result file."""
    model = os.path.basename(options.model)
    commands = {"all engines": "bench/compare.py " + shlex.join(options.given)}
    commands |= {engine.name: shlex.join(engine.command) for engine in [rullama] + peers}
    return {
        "title": options.title or f"{model}, {options.threads} threads",
        "machine": options.machine or f"{rullama.device}, {options.threads} threads",
        "date": datetime.date.today().isoformat(),
        "build": rullama.version or "version unknown",
        "model": model,
        "rounds": options.rounds,
        "commands": {name: text.replace(options.model, "FILE") for name, text in commands.items()},
        "peers": [{"name": peer.name, "version": peer.version} for peer in peers],
        "results": results,
    }


def main(arguments):
    options = parse(arguments)
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
    measured = [[value for value in values if value] for values in zip(*limits)]
    limits = [statistics.median(values) if values else None for values in measured]
    results = [result_of(test, rullama, peers, rates, limits) for test in tests]
    result = report_of(options, rullama, peers, results)
    report.check(result, "the result")
    print(report.table(result), end="")
    if options.out:
        options.out.write_text(report.dump(result), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
