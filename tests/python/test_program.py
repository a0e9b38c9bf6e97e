"""The command ``rullama`` of the package. tests/python/install_test.sh runs the real one."""

import subprocess
import sys

RUN = "import sys; from rullama import _program as p; p.__file__ = sys.argv.pop(1); p.main()"


def run(package, *arguments):
    command = [sys.executable, "-c", RUN, str(package / "_program.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_the_command_becomes_the_program(tmp_path):
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "rullama"
    program.write_text('#!/bin/sh\necho "$@"\nexit 7\n')
    program.chmod(0o755)
    result = run(tmp_path, "-p", "a b", "--greedy")
    assert (result.stdout, result.returncode) == ("-p a b --greedy\n", 7), result.stderr


def test_a_package_without_the_program_says_so(tmp_path):
    result = run(tmp_path, "--version")
    assert result.returncode == 1
    assert "bin/rullama is missing" in result.stderr
