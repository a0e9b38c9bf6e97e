#!/usr/bin/env python3
"""Finds places of product code in different folders that share six lines or more, which want one home. Lines without
words, includes, rows of tables and comments do not count.

    tools/check-copies.py          prints each pair; exit status 1 if there are more than MOST
    tools/check-copies.py LINES    for another number of lines
"""

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
MOST = 4  # pairs
LINES = 6
NOT_PRODUCT = {"tests", "docs", "examples", "bench", "tools", "cmake", "configs"}
SUFFIXES = {".h", ".cc", ".c", ".kernel", ".comp", ".glsl", ".cl", ".cuh", ".py"}
# Lines that do not count, without their spaces.
TRIVIAL = re.compile(
    r"#include|#pragmaonce|#endif|#else|namespace|using[A-Za-z:]+;$|\}?else\{?$|return;|break;|(public|private|default):"
    r"|import|from")
ROW_OF_TABLE = re.compile(r"\{.*\},?$|&rows::k|(RL|RULLAMA)_[A-Z_]+\(.*\)\\?$")


class Line(NamedTuple):
    number: int
    text: str  # without spaces


def is_product(path):
    name = path.name
    return (path.suffix in SUFFIXES and path.parts[0] not in NOT_PRODUCT and "_test" not in name
            and "test_util" not in name)


def lines_of(path):
    text = (ROOT / path).read_text(errors="replace")
    if path.suffix == ".py":
        text = re.sub(r"#[^\n]*", "", text)
    else:
        text = re.sub(r"/\*.*?\*/", lambda comment: "\n" * comment.group().count("\n"), text, flags=re.DOTALL)
        text = re.sub(r"//[^\n]*", "", text)
    lines = []
    for number, line in enumerate(text.split("\n"), 1):
        line = re.sub(r"\s+", "", line)
        if re.search(r"\w", line) and not TRIVIAL.match(line) and not ROW_OF_TABLE.match(line):
            lines.append(Line(number, line))
    return lines


def pairs_of(files, count):
    """The longest common runs of at least `count` lines: length, and each end's path and first line."""
    places = defaultdict(list)
    for path, lines in files.items():
        for first in range(len(lines) - count + 1):
            places[tuple(line.text for line in lines[first:first + count])].append((path, first))
    for same in places.values():
        for i, (a, at_a) in enumerate(same):
            for b, at_b in same[i + 1:]:
                one, other = files[a], files[b]
                if a.parent == b.parent or (at_a and at_b and one[at_a - 1].text == other[at_b - 1].text):
                    continue
                length = count
                while (at_a + length < len(one) and at_b + length < len(other)
                       and one[at_a + length].text == other[at_b + length].text):
                    length += 1
                yield length, f"{a}:{one[at_a].number}", f"{b}:{other[at_b].number}"


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else LINES
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    paths = [Path(name) for name in listed.splitlines()]
    files = {path: lines_of(path) for path in paths if is_product(path) and (ROOT / path).is_file()}
    pairs = sorted(pairs_of(files, count), reverse=True)
    for length, a, b in pairs:
        print(f"{length} lines: {a} and {b}")
    print(f"{len(pairs)} pairs in {len(files)} files share {count} lines or more")
    if count == LINES and len(pairs) > MOST:
        sys.exit(f"more than {MOST}: give what they share one place")


if __name__ == "__main__":
    main()
