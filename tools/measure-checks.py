#!/usr/bin/env python3
"""Measures what a build and its tests cost: seconds of processors and by the clock, of each compilation, each link and
each test, without a compiler cache.

    tools/measure-checks.py PRESET FILE.tsv [--built] [--tests PRESET]

Removes build/PRESET, configures and builds it, and with --tests runs the tests of a test preset one after the other,
pinned as ctest pins them. With --built it is built already. Writes a row for each: what (configure, compile, link,
test, and build and tests for all of them), seconds of processors of the program and of all that it waited for, seconds
by the clock, most memory of one process in MiB, exit status, name. Exit status 1 if something failed.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def run(log, what, name, command, **options):
    """Runs the command, appends its row to the file `log`, and returns its exit status."""
    began = time.monotonic()
    process = subprocess.Popen(command, **options)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    row = (what, f"{usage.ru_utime + usage.ru_stime:.2f}", f"{time.monotonic() - began:.2f}",
           str(usage.ru_maxrss // 1024), str(process.returncode), name)
    with open(log, "a") as file:
        file.write("\t".join(row) + "\n")
    return process.returncode


def launch(arguments):
    """What CMake puts before each compiler and linker: LOG, what, and the command."""
    log, what, *command = arguments
    output = command[command.index("-o") + 1] if "-o" in command else command[-1]
    status = run(log, what, output, command)
    return status if status >= 0 else 128 - status


def environment_of(preset):
    """The environment that a test preset and those it inherits give to its tests."""
    presets = {p["name"]: p for p in json.loads((ROOT / "CMakePresets.json").read_text())["testPresets"]}
    own = presets[preset]
    inherited = environment_of(own["inherits"]) if "inherits" in own else {}
    return inherited | {k: v.replace("${sourceDir}", str(ROOT)) for k, v in own.get("environment", {}).items()}


def tests_of(preset):
    """The tests of a test preset: name, command, folder, environment, and how many cores it is pinned to (0: none)."""
    listed = subprocess.run(["ctest", "--preset", preset, "--show-only=json-v1"],
                            cwd=ROOT, check=True, capture_output=True, text=True)
    text = listed.stdout[listed.stdout.index("{"):]  # after "Preset environment variables"
    for test in json.loads(text)["tests"]:
        properties = {p["name"]: p["value"] for p in test.get("properties", [])}
        environment = dict(e.split("=", 1) for e in properties.get("ENVIRONMENT", []))
        for change in properties.get("ENVIRONMENT_MODIFICATION", []):
            name, value = change.split("=set:", 1)
            environment[name] = value
        cores = properties.get("PROCESSORS", 1) if properties.get("PROCESSOR_AFFINITY") else 0
        yield test["name"], test["command"], properties["WORKING_DIRECTORY"], environment, cores


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("preset")
    parser.add_argument("file", type=Path)
    parser.add_argument("--built", action="store_true")
    parser.add_argument("--tests", metavar="PRESET")
    options = parser.parse_args()
    log = options.file.resolve()
    log.write_text("what\tcpu_s\twall_s\trss_mib\tstatus\tname\n")
    if not options.built:
        shutil.rmtree(ROOT / "build" / options.preset, ignore_errors=True)
        launcher = ";".join([sys.executable, "-I", "-S", str(Path(__file__).resolve()), "--launch", str(log)])
        environment = os.environ | {
            f"CMAKE_{language}_{program}_LAUNCHER": f"{launcher};{what}"
            for language in ("C", "CXX")
            for program, what in (("COMPILER", "compile"), ("LINKER", "link"))
        }
        for what, command in (("configure", ["cmake", "--preset", options.preset]),
                              ("build", ["cmake", "--build", "--preset", options.preset])):
            if run(log, what, options.preset, command, cwd=ROOT, env=environment):
                return 1
    if not options.tests:
        return 0
    shared = os.environ | environment_of(options.tests)
    cores = sorted(os.sched_getaffinity(0))
    failed = 0
    for name, command, folder, variables, pinned in tests_of(options.tests):
        os.sched_setaffinity(0, cores[:pinned] if pinned else cores)
        failed += run(log, "test", name, command, cwd=folder, env=shared | variables,
                      stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) != 0
    print(f"{failed} tests failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(launch(sys.argv[2:]) if sys.argv[1:2] == ["--launch"] else main())
