"""-d auto, cpu and cuda: which device a session runs on, and what is said where it cannot. The CUDA half is a library that is
opened when it is wanted, so most of what can go wrong is shown by libraries made here."""

import shutil
import subprocess
from pathlib import Path

import pytest

RUN = ["-i", "Once upon a time", "-n", "3", "--temp", "0"]


def has_gpu():
    return Path("/proc/driver/nvidia/version").exists() or Path("/dev/nvidiactl").exists()


def compiled(path, source):
    path.with_suffix(".c").write_text(source)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", path, path.with_suffix(".c")], check=True)
    return str(path)


def library(folder, source):
    return {"YALM_CUDA_LIBRARY": compiled(folder / "libhalf.so", source)}


def said_of_cuda(done):
    """What the line about the machine says of a GPU that was not taken."""
    assert done.returncode == 0, done.stderr
    (line,) = (line for line in done.stderr.decode().splitlines() if line.startswith("cpu: "))
    return line.partition("(not cuda: ")[2]


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
    assert said_of_cuda(program(*RUN, env=missing)).startswith("YALM_CUDA_LIBRARY cannot be loaded: ")


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
    said = said_of_cuda(program(*RUN, env=library(tmp_path, source)))
    assert said.startswith(f"libyalm-cuda.so is of yalm 0.0.9 (commit 0000000), this program of {ours}))")


def test_nothing_is_loaded_where_there_is_no_driver(program, yalm, fable, tmp_path):
    """Nor is a word said of it on auto. With a driver (here one that does nothing) the half beside the program is opened, and
    judged."""
    if has_gpu():
        pytest.skip("this machine has a GPU")
    program = type(program)(shutil.copy(yalm, tmp_path / "yalm"), fable)
    mark = tmp_path / "loaded"
    opens = f'#include <stdio.h>\n__attribute__((constructor)) static void f(void) {{ fclose(fopen("{mark}", "w")); }}'
    compiled(tmp_path / "libyalm-cuda.so", opens)
    assert "no NVIDIA driver is installed" in program.fails(1, *RUN, "-d", "cuda")
    assert said_of_cuda(program(*RUN)) == "" and not mark.exists()

    (tmp_path / "driver").mkdir()
    compiled(tmp_path / "driver/libcuda.so.1", "int nothing;")
    driver = {"LD_LIBRARY_PATH": str(tmp_path / "driver")}
    assert "is not yalm's" in program.fails(1, *RUN, "-d", "cuda", env=driver) and mark.exists()
    assert said_of_cuda(program(*RUN, env=driver)).startswith("libyalm-cuda.so is not yalm's")


def test_a_named_instruction_set_means_the_cpu(program):
    done = program(*RUN, "-d", "auto", "--set", "machine.isa=scalar")
    assert done.returncode == 0 and b"\ncpu: " in done.stderr and b"scalar" in done.stderr
