"""The command ``rullama`` of an installed package: the program that lies next to its library."""

import os
import sys
from pathlib import Path
from typing import NoReturn


def main() -> NoReturn:
    """Becomes the program, with the arguments of this process."""
    program = Path(__file__).parent / "bin" / "rullama"
    if not program.exists():
        sys.exit(f"rullama: {program} is missing; install the package with `pip install .` again")
    os.execv(program, ["rullama", *sys.argv[1:]])
