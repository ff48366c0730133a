"""A model without a tokenizer takes token ids in every mode, and says so where it is given text."""

import json
import re

import pytest
from harness import THOROUGH

IDS = b"1 2613 597 261 541"
TEXT = [
    (["-i", "x"], "cannot read text"),
    (["-m", "perplexity", "-i", "x"], "cannot read text"),
    (["-m", "tokenize", "-i", "x"], "cannot read text"),
    (["--detokenize", "-i", "1 5"], "cannot turn ids into text"),
    (["-m", "passkey"], "cannot read the test's text"),
    (["--tokens", "-", "--stop", "x"], "cannot find stop strings"),
]


@pytest.mark.parametrize("args, words", TEXT, ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_text_is_a_clear_error(ids_only, args, words):
    line = ids_only.fails(2, *args, stdin=IDS)
    assert f"the model has no tokenizer, so it {words} (it takes token ids: --tokens FILE)" in line


def test_completion_writes_ids(ids_only, program, tmp_path):
    (tmp_path / "ids").write_bytes(IDS)
    args = ("--tokens", tmp_path / "ids", "--temp", "0", "-n", 12, "-q")
    text = ids_only.ok(*args)
    assert re.match(rb"1 2613 597 261 541( \d+){12}\n$", text)
    assert program.ok("--detokenize", "-f", "-", stdin=text) == program.ok(*args)
    assert ids_only.ok(*args, "--no-echo") == b" ".join(text.split()[5:]) + b"\n"


def test_measures_take_ids(ids_only):
    if THOROUGH:  # it measures the machine for seconds
        table = ids_only.ok("-m", "throughput", "-t", 1, "--tokens", "-", "-p", 4, "-n", 0, "-r", 1, stdin=IDS).decode()
        assert len(table.splitlines()) == 3 and "plain reading" not in table  # a prompt alone says nothing of reading
    assert b"over 4 tokens" in ids_only.ok("-m", "perplexity", "--tokens", "-", stdin=IDS)
    assert ids_only.ok("-m", "tokenize", "--tokens", "-", stdin=IDS) == IDS + b"\n"
    assert json.loads(ids_only.ok("-m", "info", "-o", "json"))["tokenizer"] == "none"


def test_passkey_of_ids(ids_only, program):
    """The last five ids of a line are what must be found: here those that greedy decoding gives."""
    answer = ids_only.ok("--tokens", "-", "--temp", "0", "-n", 5, "-q", stdin=IDS).strip()
    done = ids_only("-m", "passkey", "--tokens", "-", stdin=answer + b"\n\n" + answer + b"\n")
    assert done.returncode == 0 and done.stdout.endswith(b"found 2/2, 100.0 %\n")
    assert "expected a prompt and 5 ids" in ids_only.fails(2, "-m", "passkey", "--tokens", "-", stdin=b"1 2 3\n")
