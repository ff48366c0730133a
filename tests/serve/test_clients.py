"""Clients from PyPI work unchanged. `make test-clients` makes the environment that they live in."""

import subprocess

import pytest
from harness import ROOT

PYTHON = ROOT / "build/clients/bin/python"


@pytest.mark.parametrize("client", ["openai", "anthropic", "langchain", "litellm", "instructor", "llm"])
def test_client(talker, client):
    if not PYTHON.exists():
        pytest.skip("build/clients is not there: `make test-clients` makes it")
    script = ROOT / f"tests/serve/clients/use_{client}.py"
    command = [str(PYTHON), str(script), f"http://127.0.0.1:{talker.port}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0 and done.stdout == "done\n", done.stderr
