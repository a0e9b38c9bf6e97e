#!/usr/bin/env python3
"""Checks that the tests of each change (preset ci) execute nearly all lines that all tests together do.

    tools/check-coverage.py [--least PERCENT]

Builds the preset coverage, runs the tests of ci and then the long ones there, and prints for each folder how many lines
its sources have and how many of them are executed by each. Exit status 1 if a test fails, or if the tests of ci execute
less than 90 % (or PERCENT) of what all tests execute. Uses llvm-profdata and llvm-cov of the compiler's own version.
"""

import argparse
import collections
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "coverage"
PRODUCT = ("backends", "cli", "core", "downloads", "engine", "media", "models", "python", "samplers", "server", "web")
TEST_CODE = re.compile(r"_test(_\w+)?\.(cc|h)$|/testdata/")


def llvm(name):
    """The path of a program of LLVM in the version of clang: profiles have no other reader."""
    text = subprocess.run(["clang", "--version"], check=True, capture_output=True, text=True).stdout
    version = re.search(r"version (\d+)", text).group(1)
    path = shutil.which(f"{name}-{version}") or shutil.which(name, path=f"/usr/lib/llvm-{version}/bin")
    if path is None:
        sys.exit(f"there is no {name}-{version}: tools/install-deps.sh --all installs it")
    return path


def run_tests(preset):
    """Runs a test preset; its programs write profiles into a folder of their own. Returns the folder and success."""
    folder = BUILD / "profiles" / preset
    shutil.rmtree(folder, ignore_errors=True)
    # %m: one file for each program or library, into which its processes add up; four, so that they wait less.
    environment = os.environ | {"LLVM_PROFILE_FILE": str(folder / "%4m.profraw")}
    return folder, subprocess.run(["ctest", "--preset", preset], cwd=ROOT, env=environment).returncode == 0


def lines_executed(folders, name):
    """For each product source: how many lines have code, and how many of them the profiles in `folders` saw."""
    profile = BUILD / f"{name}.profdata"
    raw = [str(file) for folder in folders for file in sorted(folder.glob("*.profraw"))]
    subprocess.run([llvm("llvm-profdata"), "merge", "-sparse", "-o", profile, *raw], check=True)
    objects = [BUILD / "bin" / "rullama", BUILD / "bin" / "rullama-conformance", *sorted(BUILD.glob("lib/**/*.so")),
               *sorted(BUILD.glob("python/**/*.so"))]
    arguments = [str(objects[0])] + [f"-object={path}" for path in objects[1:]]
    text = subprocess.run([llvm("llvm-cov"), "export", "-summary-only", f"-instr-profile={profile}", *arguments],
                          check=True, capture_output=True, text=True).stdout
    found = {}
    for file in json.loads(text)["data"][0]["files"]:
        path = os.path.relpath(file["filename"], ROOT)
        if path.split("/")[0] in PRODUCT and not TEST_CODE.search(path):
            found[path] = file["summary"]["lines"]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--least", type=float, default=90, metavar="PERCENT")
    least = parser.parse_args().least

    subprocess.run(["cmake", "--preset", "coverage"], cwd=ROOT, check=True)
    subprocess.run(["cmake", "--build", "--preset", "coverage"], cwd=ROOT, check=True)
    ci, ci_passed = run_tests("coverage")
    long, long_passed = run_tests("coverage-long")

    of_ci, of_all = lines_executed([ci], "ci"), lines_executed([ci, long], "all")
    folders = collections.defaultdict(lambda: [0, 0, 0])
    for path, lines in of_all.items():
        for key in ("/".join(path.split("/")[:-1]), "all"):
            row = folders[key]
            row[0] += lines["count"]
            row[1] += of_ci[path]["covered"] if path in of_ci else 0
            row[2] += lines["covered"]
    print(f"{'folder':32} {'lines':>8} {'ci':>8} {'all':>8} {'ci of all':>10}")
    for key in sorted(folders, key=lambda key: (key == "all", key)):
        count, seen, total = folders[key]
        print(f"{key:32} {count:8} {seen:8} {total:8} {100 * seen / max(total, 1):9.1f}%")
    _, seen, total = folders["all"]
    if 100 * seen < least * total:
        print(f"the tests of ci execute less than {least:g} % of the lines that all tests execute", file=sys.stderr)
        return 1
    return 0 if ci_passed and long_passed else 1


if __name__ == "__main__":
    sys.exit(main())
