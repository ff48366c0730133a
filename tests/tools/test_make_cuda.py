"""What plain `make` makes of the CUDA half: by which compiler and which GPUs it finds. Compiler and nvidia-smi are
stand-ins, and nothing is built."""

from __future__ import annotations

import os
import re
import subprocess

import pytest
from harness import HANG, ROOT, THOROUGH

KNOWN = ("75", "80", "86", "87", "89", "90", "100", "103", "110", "120", "121")
EVERY = ["80", "86", "89", "90", "100", "120"]


def script(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def dry_run(tmp_path):
    """(what nvidia-smi prints, words for make) -> what make would run"""

    def run(capabilities, *words, nvcc=True):
        script(tmp_path / "nvidia-smi", f"printf '{capabilities}'" if capabilities else "echo No devices >&2; exit 9")
        if nvcc:
            listed = "\\n".join(f"compute_{arch}" for arch in KNOWN)
            script(tmp_path / "nvcc", f"[ \"$1\" = --list-gpu-arch ] && printf '{listed}\\n'")
        environment = {
            key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS", "CUDA_"))
        }
        environment.update(PATH=f"{tmp_path}:{environment['PATH']}", **({} if nvcc else {"NVCC": ""}))
        done = subprocess.run(
            ["make", "-n", *words], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=HANG, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def built_for(text):
    """The architectures that the CUDA library would be linked for; None: it would not be."""
    links = [line for line in text.splitlines() if "nvcc -shared" in line]
    return re.findall(r"code=sm_(\d+)", links[0]) if links else None


@pytest.mark.parametrize(
    "capabilities, expected",
    [
        ("9.0\\n", ["90"]),
        ("12.0\\n8.6\\n8.6\\n10.0\\n", ["86", "100", "120"]),
        ("7.5\\n8.0\\n", ["80"]),  # one of two is too old
        ("13.7\\n", EVERY),  # newer than the toolkit
    ],
)
def test_a_gpu_is_built_for(dry_run, capabilities, expected):
    text = dry_run(capabilities)
    assert built_for(text) == expected and "no GPU was found" not in text
    assert f"arch=compute_{expected[-1]},code=compute_{expected[-1]}" in text  # what newer ones can compile
    if THOROUGH or expected == ["80"]:
        assert built_for(dry_run(capabilities, "cuda")) == expected
        assert built_for(dry_run(capabilities, "cuda", "CUDA_ARCHS=all")) == EVERY


@pytest.mark.parametrize("capabilities", ["", "7.0\\n", "[N/A]\\n"])
def test_without_a_gpu_the_cpu_engine_is_built(dry_run, capabilities):
    text = dry_run(capabilities)
    assert built_for(text) is None and "make: no GPU was found: this build runs on the CPU only" in text
    if THOROUGH or not capabilities:
        assert built_for(dry_run(capabilities, "cuda")) == EVERY
        assert built_for(dry_run(capabilities, "CUDA_ARCHS=86 90")) == ["86", "90"]  # asked for


def test_without_nvcc_the_cpu_engine_is_built(dry_run):
    text = dry_run("9.0\\n", nvcc=False)
    assert built_for(text) is None and "make: nvcc was not found: this build runs on the CPU only" in text


@pytest.mark.parametrize("goal", ["cpu", "demo", "install"])
def test_what_needs_no_cuda_does_not_wait_for_it(dry_run, goal):
    text = dry_run("9.0\\n", goal)
    assert built_for(text) is None and "nvcc -std" not in text


def test_the_tests_are_of_every_architecture(dry_run):
    assert built_for(dry_run("9.0\\n", "cuda-test-builds", "VARIANT=release")) == EVERY
