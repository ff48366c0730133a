"""-m serve on the GPU: the same batching, and the same reuse of what a session holds."""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import subprocess
import urllib.request

import embed_cases
import numpy as np
import pytest
from harness import HANG, ROOT, VARIANT, convert_directory

pytestmark = pytest.mark.skipif(VARIANT != "emulated", reason="of the emulated GPU")


@contextlib.contextmanager
def serving(*command, named="cuda: Emulated GPU, "):
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    lines = []
    for line in server.stderr:
        lines.append(line)
        if line.startswith("listening on"):
            break
    assert any(line.startswith(named) for line in lines), lines
    address = lines[-1].split()[-1]

    def ask(prompt=None, path="completions", **fields):
        more = {"prompt": prompt, "max_tokens": 3, "seed": 4} if prompt else {}
        with urllib.request.urlopen(f"{address}/v1/{path}", json.dumps(more | fields).encode(), timeout=HANG) as answer:
            return json.load(answer)

    yield ask
    server.terminate()
    assert server.wait(60) == 0


@pytest.fixture(scope="module")
def complete(yalm, fable):
    with serving(yalm, fable, "-m", "serve", "-d", "cuda", "--port", "0", "--parallel", "2", "-T", "128") as ask:
        yield ask


def cached(answer):
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


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
    assert cached(again) == again["usage"]["prompt_tokens"] - 1


def test_a_conversation_that_gave_up_its_session(yalm, tmp_path):
    """Its keys, values and recurrent states are kept: it is not read again, and the text stays."""
    model = convert_directory(ROOT / "models/hybrid-6m", tmp_path / "hybrid.bin")
    command = [yalm, model, "-m", "serve", "-d", "cuda", "--port", "0", "--parallel", "1", "-T", "128"]
    talk = "Once upon a time there was a king who had a golden apple tree" + ", and a cat" * 16
    with serving(*command) as ask:
        first = ask(talk, temperature=0)
        assert cached(ask("The fox and the hare.", temperature=0)) < 16
        again = ask(talk, temperature=0)
        assert first["usage"]["prompt_tokens"] > 64 and cached(again) > first["usage"]["prompt_tokens"] - 40
        assert text(again) == text(first)


@pytest.mark.parametrize(("name", "path"), [("bert-mean", "embeddings"), ("bert-score", "rerank")])
def test_texts(yalm, tmp_path, name, path):
    """As on the CPU: nothing but the device is another."""
    source = embed_cases.write(embed_cases.make_cases()[name], tmp_path / "source")
    model = convert_directory(source, tmp_path / "model.bin")
    query = (
        {"input": embed_cases.TEXTS[:4]} if path == "embeddings" else {"query": "fox", "documents": ["the owl", "x"]}
    )
    found = []
    for device, named in (("auto", "cuda: Emulated GPU"), ("cpu", "cpu: ")):
        with serving(yalm, model, "-m", "serve", "-d", device, "--port", "0", named=named) as ask:
            found.append(ask(path=path, **query))
    if path == "rerank":
        scores = [[result["relevance_score"] for result in answer["results"]] for answer in found]
    else:
        scores = [[entry["embedding"] for entry in answer["data"]] for answer in found]
    assert np.abs(np.subtract(*scores)).max() < 2e-3


def test_a_form(complete):
    answer = complete("x", max_tokens=8, json_schema={"enum": [12, 34]})
    assert json.loads(text(answer)) in (12, 34)
