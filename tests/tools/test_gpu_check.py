"""tools/gpu_check.py and gpu_deps.py, as far as they go without a GPU."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from harness import HANG, ROOT, patience

sys.path.insert(0, str(ROOT / "bench"))
from yalm_gpu_check import report, steps

PROGRAM = ROOT / "tools/gpu_check.py"


def run(*words, **environment):
    command = [sys.executable, *map(str, words)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=HANG, check=False, env={**os.environ, **environment}
    )


def found_in(folder):
    return json.loads((folder / "gpu-check.json").read_text())


def results_in(folder):
    return {step["name"]: step["result"] for step in found_in(folder)["steps"]}


def test_unknown_steps_are_refused(tmp_path):
    done = run(PROGRAM, "--output", tmp_path, "--only", "machine,biuld")
    assert done.returncode == 2 and "no step 'biuld'" in done.stderr


def test_ten_minutes_are_enough():
    assert sum(share for _, _, share in steps.STEPS) <= 600


def test_a_step_that_fails_is_reported_and_does_not_stop_the_others(tmp_path):
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a GPU")
    done = run(PROGRAM, "--output", tmp_path, "--only", "llama,sanitizer")
    assert done.returncode == 1
    results = results_in(tmp_path)
    assert set(results) == {"machine", "llama", "sanitizer"}
    assert results["machine"] == "FAILED: nvidia-smi finds no GPU" and results["llama"].startswith("FAILED")
    assert "FAILED: nvidia-smi finds no GPU" in (tmp_path / "gpu-check.md").read_text()


def test_no_time_left(tmp_path):
    run(PROGRAM, "--output", tmp_path, "--emulated", "--seconds", "0")
    assert set(results_in(tmp_path).values()) == {"skipped: no time left"}


# ------------------------------------------------------------------------------------------- with stand-ins for programs


@pytest.fixture
def stand_ins(tmp_path):
    """A folder for PATH; make(name, text) puts a shell script there."""
    folder = tmp_path / "bin"
    folder.mkdir()

    def make(name, text):
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)

    make("nvidia-smi", "echo 'Stand-in, 580.0, 1 MiB, 9.0, 1 MHz, 1 MHz, 1 W'")
    make.path = f"{folder}:{os.environ['PATH']}"
    return make


def test_a_step_ends_in_its_time_with_all_that_it_started(tmp_path, stand_ins):
    stand_ins("make", f"sleep 60 & echo $! >{tmp_path}/child; wait")
    began = time.monotonic()
    done = run(PROGRAM, "--output", tmp_path, "--only", "build", "--seconds", "3", PATH=stand_ins.path)
    assert time.monotonic() - began < patience(20) and done.returncode == 1
    assert "no end after" in results_in(tmp_path)["build"] and "build: FAILED" in done.stdout
    child = Path(f"/proc/{(tmp_path / 'child').read_text().strip()}/stat")
    assert (
        not child.exists() or child.read_text().rpartition(")")[2].split()[0] == "Z"
    )  # nobody has asked for its status yet


def test_a_run_that_is_stopped_leaves_what_it_had(tmp_path, stand_ins):
    stand_ins("make", f"echo 1 >{tmp_path}/began; sleep 60")
    command = [sys.executable, PROGRAM, "--output", tmp_path, "--only", "build"]
    process = subprocess.Popen(command, env={**os.environ, "PATH": stand_ins.path}, stdout=subprocess.PIPE, text=True)
    while not (tmp_path / "began").exists():
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    text, _ = process.communicate(timeout=HANG)
    assert process.returncode == 128 + signal.SIGTERM and "machine: ok" in text
    assert results_in(tmp_path) == {"machine": "ok"}
    assert "Stand-in, driver 580.0" in (tmp_path / "gpu-check.md").read_text()


def test_what_make_could_not_build_is_named(tmp_path, stand_ins):
    stand_ins("make", 'echo "make: *** [src/cuda/cuda.mk:9: build/cuda/tests/test_sample] Error 2" >&2; exit 2')
    run(PROGRAM, "--output", tmp_path, "--only", "build-programs", PATH=stand_ins.path)
    assert results_in(tmp_path)["build-programs"] == "FAILED: not built: test_sample"


def test_the_gpus_architecture_is_built_for(tmp_path, stand_ins):
    stand_ins("make", 'echo "$@"')
    run(PROGRAM, "--output", tmp_path, "--only", "build", PATH=stand_ins.path)
    assert "CUDA_ARCHS=90 cpu cuda" in (tmp_path / "logs/build.out").read_text()


# ------------------------------------------------------------------------------------------- the tables


def throughput_row(**more):
    row = {"n_prompt": 0, "n_gen": 64, "n_depth": 4096, "avg_ns": 64 * 5e6, "avg_ts": 200.0, "stddev_ts": 1.0}
    row |= {"gb_per_s": 3000.0, "gop_per_s": 10.0, "fraction_of_limit": 0.75}
    return {**row, "preset": "mistral-7b-v0.2", "dtype": "fp16", "how": "", **more}


def test_what_a_step_loses_between_its_kernels():
    kernel = {
        "model": "mistral-7b-v0.2 fp16",
        "phase": "decode",
        "length": 1,
        "bytes": 1e6,
        "gb_per_s": 1.0,
        "of_read": 0.5,
    }
    kernel |= {"gop_per_s": 1.0, "of_matrix": 0.1}
    kernels = [dict(kernel, kernel=name, seconds=2e-5) for name in report.LAYER_KERNELS]
    kernels += [
        dict(kernel, kernel="attention", length=4096, seconds=4e-5),
        dict(kernel, kernel="classifier", seconds=2e-4),
    ]
    found = {"emulated": False, "steps": [], "kernels": kernels, "models": [throughput_row()]}
    # 32 layers of 5 * 20 + 40 µs and 200 µs are 4.68 of a step's 5 ms
    assert "| decode at 4,096 | 200.0 ± 1.0 | 3000 | 10 | 75.0 % | 6.4 % |" in report.markdown(found)
    found["kernels"] = kernels[1:]
    assert "| 75.0 % |  |" in report.markdown(found)


def test_what_is_carried_is_enough_to_build_with(tmp_path):
    done = run(ROOT / "tools/gpu_deps.py", tmp_path)
    assert done.returncode == 0, done.stderr
    (tmp_path / "probe.c").write_text(
        "#include <cjson/cJSON.h>\n#define PCRE2_CODE_UNIT_WIDTH 8\n#include <pcre2.h>\n#include <utf8proc.h>\n"
        "#include <xxhash.h>\nint main(void) { return cJSON_Version() == 0 || pcre2_config(PCRE2_CONFIG_VERSION, 0) < 0 || "
        "XXH_versionNumber() == 0 || !*utf8proc_version(); }\n"
    )
    probe = ["cc", f"-I{tmp_path}/include", f"-L{tmp_path}/lib", "-o", tmp_path / "probe", tmp_path / "probe.c"]
    subprocess.run([*map(str, probe), "-lcjson", "-lpcre2-8", "-lutf8proc", "-lxxhash"], check=True)
    assert subprocess.run([tmp_path / "probe"], env={"LD_LIBRARY_PATH": f"{tmp_path}/lib"}, check=False).returncode == 0
