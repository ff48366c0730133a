"""tools/gpu_check.py and gpu_deps.py, as far as they go without a GPU."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from harness import ROOT


def run(*words):
    command = [sys.executable, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)


def test_unknown_steps_are_refused(tmp_path):
    done = run(ROOT / "tools/gpu_check.py", "--output", tmp_path, "--only", "machine,biuld")
    assert done.returncode == 2 and "no step 'biuld'" in done.stderr


def test_a_step_that_fails_is_reported_and_does_not_stop_the_others(tmp_path):
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a GPU")
    done = run(ROOT / "tools/gpu_check.py", "--output", tmp_path, "--only", "bench-models,sanitizer")
    assert done.returncode == 1
    found = json.loads((tmp_path / "gpu-check.json").read_text())
    results = {step["name"]: step["result"] for step in found["steps"]}
    assert set(results) == {"machine", "bench-models", "sanitizer"}
    assert results["machine"] == "FAILED: nvidia-smi finds no GPU" and "was not made" in results["bench-models"]
    assert "FAILED: nvidia-smi finds no GPU" in (tmp_path / "gpu-check.md").read_text()


def test_no_time_left(tmp_path):
    run(ROOT / "tools/gpu_check.py", "--output", tmp_path, "--emulated", "--seconds", "0")
    found = json.loads((tmp_path / "gpu-check.json").read_text())
    assert {step["result"] for step in found["steps"]} == {"skipped: no time left"}


def test_what_is_carried_is_enough_to_build_with(tmp_path):
    done = run(ROOT / "tools/gpu_deps.py", tmp_path)
    assert done.returncode == 0, done.stderr
    (tmp_path / "probe.c").write_text(
        "#include <cjson/cJSON.h>\n#define PCRE2_CODE_UNIT_WIDTH 8\n#include <pcre2.h>\n#include <xxhash.h>\n"
        "int main(void) { return cJSON_Version() == 0 || pcre2_config(PCRE2_CONFIG_VERSION, 0) < 0 || XXH_versionNumber() == 0; }\n"
    )
    probe = ["cc", f"-I{tmp_path}/include", f"-L{tmp_path}/lib", "-o", tmp_path / "probe", tmp_path / "probe.c"]
    subprocess.run([*map(str, probe), "-lcjson", "-lpcre2-8", "-lxxhash"], check=True)
    assert subprocess.run([tmp_path / "probe"], env={"LD_LIBRARY_PATH": f"{tmp_path}/lib"}, check=False).returncode == 0
