"""What the llm package does with the server at the address in argv[1]: as a program, with a model of its file of further ones.
Fails where it does not work."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

MODELS = """- model_id: local
  model_name: any
  api_base: {url}/v1
  api_key_name: none
  supports_tools: true
- model_id: local-text
  model_name: any
  api_base: {url}/v1
  completion: true
"""


def run(*words):
    command = [str(Path(sys.executable).parent / "llm"), *words]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


with tempfile.TemporaryDirectory() as home:
    os.environ["LLM_USER_PATH"] = home
    (Path(home) / "extra-openai-models.yaml").write_text(MODELS.format(url=sys.argv[1]))
    fields = ["-o", "max_tokens", "12", "--key", "none"]
    assert run("-m", "local", "Hello", "-s", "Be brief.", *fields).strip()
    assert run("-m", "local", "Hello", "--no-stream", *fields).strip()
    assert run("-c", "And then?", *fields).strip()  # the conversation goes on
    look = 'def look(city: str) -> str:\n    "Looks at a city."\n    return city'
    assert run("-m", "local", "Hello", "--functions", look, *fields).strip()
    assert run("-m", "local-text", "Once upon a time", *fields).strip()
print("done")
