#!/usr/bin/env python3
"""Compiles the common GPU kernels as CUDA C++ for sm_90, with NVIDIA's run-time compiler.

For machines without a CUDA toolkit, where the build leaves the cuda backend out. Constants have their values before
specialisation.

  .venv/bin/python tools/check-cuda.py BUILD    the build folder has bin/write_kernel_headers
"""
import ctypes
import importlib.util
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

OPTIONS = ["-arch=sm_90", "--device-as-default-execution-space", "-fmad=false", "-DTHREADS=256", "-w"]
GPU = pathlib.Path(__file__).resolve().parent.parent / "backends" / "gpu"


def compiler() -> ctypes.CDLL:
    """The library of the package nvidia-cuda-nvrtc (tools/requirements.txt)."""
    spec = importlib.util.find_spec("nvidia")
    folders = list(spec.submodule_search_locations) if spec is not None else []
    found = [file for folder in folders for file in pathlib.Path(folder).glob("*/lib/libnvrtc.so.*")]
    if not found:
        sys.exit("no libnvrtc in this Python's packages; tools/install-deps.sh installs nvidia-cuda-nvrtc")
    return ctypes.CDLL(str(found[0]))


def headers(build: pathlib.Path) -> dict[str, bytes]:
    """All files that a kernel may include, by name."""
    files = [GPU / "dialect.cuh", *(GPU / "kernels").glob("*.kernel")]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([build / "bin" / "write_kernel_headers", folder, "cuda"], check=True)
        files += pathlib.Path(folder).iterdir()
        return {file.name: file.read_bytes() for file in files}


def log_of(nvrtc: ctypes.CDLL, program: ctypes.c_void_p) -> str:
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, text)
    return text.value.decode()


def strings(texts: list[bytes]) -> ctypes.Array:
    return (ctypes.c_char_p * len(texts))(*texts)


def constants(header: bytes) -> list[str]:
    """Options that fix the constants of a kernel, as words."""
    rows = re.findall(r"^#ifndef C(\d+)  // before specialisation (.*)$", header.decode(), re.MULTILINE)
    words = {number: struct.unpack("<I", struct.pack("<f", float(value)))[0] if "." in value else int(value)
             for number, value in rows}
    return [f"-DC{number}={word}u" for number, word in words.items()]


def host_numbers() -> list[str]:
    """Options with the numbers that the CUDA backend gives all kernels (backends/cuda/forms.h)."""
    text = (GPU.parent / "cuda" / "forms.h").read_text()
    options = []
    for option in ("CONSTANT_WORDS", "OVERLAPS_LAST", "NEXT_OVERLAPS"):
        name = "k" + "".join(word.capitalize() for word in option.split("_"))
        found = re.search(rf"\b{name} = (\d+)", text)
        if found is None:
            sys.exit(f"backends/cuda/forms.h does not define {name}")
        options.append(f"-D{option}={found[1]}u")
    return options


def compiles(nvrtc: ctypes.CDLL, kernel: str, included: dict[str, bytes]) -> bool:
    names = ["dialect.cuh", "types.args.cuh", f"{kernel}.args.cuh", f"{kernel}.kernel"]
    source = "".join(f'#include "{name}"\n' for name in names)
    program = ctypes.c_void_p()
    created = nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), f"{kernel}.cu".encode(), len(included),
                                       strings(list(included.values())),
                                       strings([name.encode() for name in included]))
    if created != 0:
        sys.exit(f"nvrtcCreateProgram of {kernel} returns {created}")
    options = OPTIONS + host_numbers() + constants(included[f"{kernel}.args.cuh"])
    result = nvrtc.nvrtcCompileProgram(program, len(options), strings([option.encode() for option in options]))
    if result != 0:
        print(log_of(nvrtc, program), file=sys.stderr)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return result == 0


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    nvrtc, included = compiler(), headers(pathlib.Path(sys.argv[1]))
    names = re.findall(r"^RL_KERNEL\((\w+),", (GPU / "kernels.def").read_text(), re.MULTILINE)
    kernels = [name for name in names if f"{name}.kernel" in included]
    failed = [kernel for kernel in kernels if not compiles(nvrtc, kernel, included)]
    if failed or not kernels:
        sys.exit(f"{len(failed)} of {len(kernels)} kernels do not compile as CUDA C++: {' '.join(failed)}")
    print(f"{len(kernels)} kernels compile as CUDA C++")


if __name__ == "__main__":
    main()
