"""-d auto, cpu and cuda: which device a session runs on, and what is said where it cannot. The CUDA half is a library that is opened when
it is wanted, so most of what can go wrong is shown by libraries made here."""

import subprocess
from pathlib import Path

import pytest

RUN = ["-i", "Once upon a time", "-n", "3", "--temp", "0"]


def has_gpu():
    return Path("/proc/driver/nvidia/version").exists() or Path("/dev/nvidiactl").exists()


def library(folder, source):
    (folder / "half.c").write_text(source)
    path = folder / "libhalf.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", path, folder / "half.c"], check=True)
    return {"YALM_CUDA_LIBRARY": str(path)}


def test_cuda_without_a_gpu(program):
    """Whether or not the CUDA half was built: one line, and the exit code of a failure at run time."""
    if has_gpu():
        pytest.skip("this machine has a GPU")
    assert program.fails(1, *RUN, "-d", "cuda").startswith("yalm: device cuda: ")


def test_auto_runs_on_the_cpu_where_there_is_no_gpu(program):
    if has_gpu():
        pytest.skip("this machine has a GPU")
    done = program(*RUN, "-d", "auto")
    assert done.returncode == 0 and b"\ncpu: " in done.stderr and b"cuda" not in done.stderr
    assert done.stdout == program.ok(*RUN, "-d", "cpu") == program.ok(*RUN)


def test_a_library_that_is_not_there(program, tmp_path):
    missing = {"YALM_CUDA_LIBRARY": str(tmp_path / "none.so")}
    text = program.fails(1, *RUN, "-d", "cuda", env=missing)
    assert "YALM_CUDA_LIBRARY cannot be loaded" in text and "none.so" in text
    assert program(*RUN, env=missing).returncode == 0


def test_a_library_that_cannot_be_loaded(program, tmp_path):
    """As where a library that it needs is missing: the loader's own words name it."""
    text = program.fails(
        1, *RUN, "-d", "cuda", env=library(tmp_path, "extern int nowhere(void); int f(void) { return nowhere(); }")
    )
    assert "cannot be loaded" in text and "nowhere" in text


def test_a_library_of_something_else(program, tmp_path):
    assert "is not yalm's" in program.fails(1, *RUN, "-d", "cuda", env=library(tmp_path, "int f(void) { return 1; }"))


def test_a_library_of_another_commit(program, bare, tmp_path):
    source = """
        const char *yalm_version(void) { return "0.0.9 (commit 0000000, gcc)"; }
        const void *yalm_cuda_backend(void *error) { __builtin_trap(); }
    """
    text = program.fails(1, *RUN, "-d", "cuda", env=library(tmp_path, source))
    ours = bare("--version").stdout.decode().split(",")[0].removeprefix("yalm ")
    assert text.endswith(f"is of yalm 0.0.9 (commit 0000000), this program of {ours})")
    assert program(*RUN, env=library(tmp_path, source)).returncode == 0


def test_a_named_instruction_set_means_the_cpu(program):
    done = program(*RUN, "-d", "auto", "--isa", "scalar")
    assert done.returncode == 0 and b"\ncpu: " in done.stderr and b"scalar" in done.stderr
