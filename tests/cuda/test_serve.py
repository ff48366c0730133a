"""-m serve on the GPU: the same batching, and the same reuse of what a session holds."""

from __future__ import annotations

import concurrent.futures
import json
import subprocess
import urllib.request

import pytest
from harness import HANG, VARIANT

pytestmark = pytest.mark.skipif(VARIANT != "emulated", reason="of the emulated GPU")


@pytest.fixture(scope="module")
def complete(yalm, fable):
    command = [yalm, fable, "-m", "serve", "-d", "cuda", "--port", "0", "--parallel", "2", "-T", "128"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    lines = []
    for line in server.stderr:
        lines.append(line)
        if line.startswith("listening on"):
            break
    assert any(line.startswith("cuda: Emulated GPU, ") for line in lines), lines
    address = lines[-1].split()[-1]

    def ask(prompt, **fields):
        body = json.dumps({"prompt": prompt, "max_tokens": 3, "seed": 4, **fields}).encode()
        with urllib.request.urlopen(address + "/v1/completions", body, timeout=HANG) as answer:
            return json.load(answer)

    yield ask
    server.terminate()
    assert server.wait(60) == 0


def text(answer):
    return answer["choices"][0]["text"]


def test_two_at_once_and_again(yalm, fable, complete):
    prompts = ["Once upon a time", "The king said to"]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        together = [text(answer) for answer in pool.map(complete, prompts)]
    assert together == [text(complete(prompt, cache_prompt=False)) for prompt in prompts]
    command = [yalm, fable, "-d", "cuda", "-i", prompts[0], "-n", "3", "--seed", "4", "--no-echo", "-q"]
    assert together[0] == subprocess.run(command, capture_output=True, text=True, timeout=HANG, check=True).stdout
    again = complete(prompts[0])
    assert text(again) == together[0]
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == again["usage"]["prompt_tokens"] - 1


def test_a_form(complete):
    answer = complete("x", max_tokens=8, json_schema={"enum": [12, 34]})
    assert json.loads(text(answer)) in (12, 34)
