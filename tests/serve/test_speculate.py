"""Speculation changes no answer of the server's, of one conversation or of several at a time, nor with a draft model."""

import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from harness import HANG, ROOT, convert_directory

PROMPT = "The little fox was happy. The little fox was sad. The little fox"
CASES = [
    {"temperature": 0, "max_tokens": 150},
    {"temperature": 0, "max_tokens": 60, "logprobs": 3, "ignore_eos": True},
    {"seed": 3, "max_tokens": 120, "repeat_penalty": 1.1},
    {"seed": 4, "max_tokens": 120, "stop": ["fox w"], "n": 2},
    {"seed": 5, "max_tokens": 80, "grammar": 'root ::= ("the fox and the hen, " | "a fox, ")+ "."'},
]


@pytest.fixture(scope="module")
def plain(start):
    return start("--speculate", "off")


def choices(server, fields):
    """All of the prompt read as a prompt: what a session has written itself has other bits."""
    return server.complete(PROMPT, cache_prompt=False, **fields)["choices"]


@pytest.mark.parametrize("how", ["suffix", "draft"])
def test_answers_are_the_same(start, plain, fable, how):
    server = start("--speculate", f"draft={fable}" if how == "draft" else how)
    for _ in range(2 if how == "suffix" else 1):  # the second time its sessions know the text
        for fields in CASES:
            assert choices(server, fields) == choices(plain, fields)
    with ThreadPoolExecutor(len(CASES)) as pool:
        together = list(pool.map(lambda fields: choices(server, fields), CASES))
    assert together == [choices(plain, fields) for fields in CASES]


def test_the_models_own_head(start, tmp_path_factory):
    model = convert_directory(ROOT / "models/hybrid-6m", tmp_path_factory.mktemp("mtp") / "hybrid.bin")
    plain, server = (start("--speculate", how, model=model) for how in ("off", "mtp"))
    cases = [{**fields, "max_tokens": 60} for fields in CASES[:4]]
    for _ in range(2):
        for fields in cases:
            assert choices(server, fields) == choices(plain, fields)
    with ThreadPoolExecutor(len(cases)) as pool:
        together = list(pool.map(lambda fields: choices(server, fields), cases))
    assert together == [choices(plain, fields) for fields in cases]


def test_a_draft_that_no_session_can_use_is_refused(yalm, fable):
    command = [yalm, fable, "-m", "serve", "--port", "0", "--attention", "sparq", "--speculate", f"draft={fable}"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 2 and "a draft is of no use where tokens are evaluated one by one" in done.stderr
