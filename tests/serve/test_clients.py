"""Clients from PyPI work unchanged. `make test-clients` makes the environment that they live in."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from harness import HANG, ROOT, convert_directory

from tests.cli.test_embed import sentence_model

from .conftest import HERMES, TEMPLATE, with_template

PYTHON = ROOT / "build/clients/bin/python"


@pytest.mark.parametrize("client", ["openai", "anthropic", "langchain", "litellm", "instructor", "llm", "ollama"])
def test_client(seeded_talker, client):
    if not PYTHON.exists():
        pytest.skip("build/clients is not there: `make test-clients` makes it")
    script = ROOT / f"tests/serve/clients/use_{client}.py"
    command = [str(PYTHON), str(script), f"http://127.0.0.1:{seeded_talker.port}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0 and done.stdout == "done\n", done.stderr


def test_an_agent_edits_a_file(start):
    """With a real model: Qwen2.5-Coder-0.5B, of the folder that REAL_MODELS names."""
    model = Path(os.environ.get("REAL_MODELS", ""), "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf")
    if "REAL_MODELS" not in os.environ or not model.exists():
        pytest.skip(f"REAL_MODELS names no folder with {model.name}")
    if not PYTHON.exists():
        pytest.skip("build/clients is not there: `make test-clients` makes it")
    server = start("-T", 8192, "--parallel", 1, model=model)
    command = [str(PYTHON), str(ROOT / "tests/serve/clients/use_agent.py"), f"http://127.0.0.1:{server.port}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0 and done.stdout.endswith("done\n"), done.stdout + done.stderr


def test_tools_of_mcp_servers(start, tmp_path):
    """Hundreds of them, each alone and all at once; nothing is generated."""
    python = ROOT / "build/mcp/bin/python"
    if not python.exists():
        pytest.skip("build/mcp is not there: `make test-clients` makes it")
    script = ROOT / "tests/serve/clients/use_mcp.py"
    server = with_template(start, tmp_path, TEMPLATE, "-T", 16384)
    command = [str(python), str(script), f"http://127.0.0.1:{server.port}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0 and done.stdout.endswith("done\n"), done.stderr


def test_no_request_of_the_description_is_the_servers_fault(start, tmp_path):
    """schemathesis makes requests of /openapi.json, good and bad ones: no answer is a 5xx, but for what is not offered."""
    program = PYTHON.parent / "schemathesis"
    if not program.exists():
        pytest.skip("build/clients is not there: `make test-clients` makes it")
    source = sentence_model(tmp_path / "sentences", "lasttoken")  # which makes vectors and generates
    config = json.loads((source / "tokenizer_config.json").read_text())
    (source / "tokenizer_config.json").write_text(
        json.dumps({**config, "chat_template": TEMPLATE.replace("CALL", HERMES)})
    )
    (tmp_path / "slots").mkdir()
    options = ("-T", 96, "--parallel", 3, "--set", f"serve.slot_dir={tmp_path / 'slots'}")
    server = start(*options, model=convert_directory(source, tmp_path / "model.bin"))
    (tmp_path / "schemathesis.toml").write_text(
        '[checks]\nnot_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", "501"]\n'
    )
    command = [str(program), "run", f"http://127.0.0.1:{server.port}/openapi.json"]
    command += ["--checks", "not_a_server_error", "--max-examples", "15", "--phases", "examples,coverage,fuzzing"]
    done = subprocess.run(
        [*command, "--seed", "1"], cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout
    assert int(re.search(r"(\d+) generated", done.stdout).group(1)) > 1000
