"""tiktoken.model, Kimi's: token ids against those of the library `tiktoken`, and files that are none.
tests/golden/make_tiktoken_golden.py made the file of ids."""

from __future__ import annotations

import json
import lzma

import pytest
import tokenizer_file
from harness import ROOT
from yalm_convert.errors import ModelError
from yalm_convert.tiktoken_model import PARTS, halves, merges_of
from yalm_convert.tokenizer import read_tokenizer

GOLDEN = json.loads(lzma.decompress((ROOT / "tests/golden/tokenizer_tiktoken.json.xz").read_bytes()))
FIRST = len(GOLDEN["model"])


def write(directory, lines=None, **settings):
    """Kimi's form of the golden vocabulary."""
    lines = lines or [f"{token} {rank}" for rank, token in enumerate(GOLDEN["model"])]
    (directory / "tiktoken.model").write_text("\n".join(lines) + "\n")
    named = {token: {"content": text, "special": True} for token, text in GOLDEN["named"].items()}
    written = {"tokenizer_class": "TikTokenTokenizer", "added_tokens_decoder": named, "eos_token": "[EOS]", **settings}
    (directory / "tokenizer_config.json").write_text(json.dumps(written))


@pytest.mark.parametrize("key", ["plain", "special"])
def test_ids_are_those_of_tiktoken(key, encoder, tmp_path):
    write(tmp_path)
    path = tmp_path / "golden-kimi.bin"
    data = tokenizer_file.write(path, tmp_path)
    assert (data.facts["n_pieces"], data.eos, data.warnings) == (FIRST + 256, [FIRST + 1], [])
    found = encoder(path, GOLDEN["texts"], key == "special")
    pairs = list(zip(GOLDEN["texts"], GOLDEN[key], found))
    assert [pair for pair in pairs if pair[1] != pair[2]][:3] == []


def test_what_a_token_is_made_of():
    """By the lowest rank first, even where another pair would do; not at all where merging ends elsewhere."""
    ranks = {text: rank for rank, text in enumerate(["x", "y", "z", "xy", "yz", "xyz", "zz", "zx", "yzx"])}
    assert (
        halves("xyz", ranks) == ("xy", "z")
        and halves("yzx", ranks) == ("yz", "x")
        and halves("xx", ranks) == ("x", "x")
    )
    assert halves("xyzx", ranks) == ("xyz", "x") and halves("xyyx", ranks) is None
    assert halves("zxy", ranks) == ("z", "xy")
    assert merges_of(ranks)[2:] == [("xy", "z"), ("z", "z"), ("z", "x"), ("yz", "x")]


def test_special_tokens(tmp_path):
    named = {FIRST: {"content": "<think>", "special": False}, FIRST + 255: {"content": "[PAD]", "special": True}}
    write(tmp_path, added_tokens_decoder=named, eos_token="[PAD]")
    data = read_tokenizer(tmp_path, {})
    kinds = dict(data.tensors)["tokenizer.kinds"]
    assert kinds[FIRST:].tolist() == [3, *[2] * 255] and data.eos == [FIRST + 255]
    assert b"<think><|reserved_token_%d|>" % (FIRST + 1) in dict(data.tensors)["tokenizer.bytes"].tobytes()


def test_code_with_another_pattern_is_named(tmp_path):
    write(tmp_path)
    code = tmp_path / "tokenization_kimi.py"
    code.write_text("\n".join(PARTS))
    assert read_tokenizer(tmp_path, {}).warnings == []
    code.write_text("\n".join(PARTS).replace("{1,3}", ""))
    assert "tokenization_kimi.py: how it cuts texts is not how Kimi does" in read_tokenizer(tmp_path, {}).warnings[0]


LINES = [f"{token} {rank}" for rank, token in enumerate(GOLDEN["model"])]


@pytest.mark.parametrize(
    ("lines", "settings", "text"),
    [
        (["IQ== 0", "?? 1"], {}, 'line 2: found "?? 1", expected base64 and a rank'),
        (["IQ=="], {}, "line 1: found"),
        (["IQ== 0", "Ig== 2"], {}, "expected each from 0 on once"),
        (["IQ== 0", "IQ== 1"], {}, "expected each from 0 on once"),
        (["IQ== 0"], {}, "no token for byte 0x00"),
        (LINES[:256], {"added_tokens_decoder": {}}, "the tokenizer has no merges"),
        (LINES, {"added_tokens_decoder": {"5": {"content": "x"}}}, "names token 5, expected"),
        (LINES, {"added_tokens_decoder": {"x": {"content": "x"}}}, "not of the form that is expected"),
    ],
)
def test_refused(lines, settings, text, tmp_path):
    write(tmp_path, lines, **settings)
    with pytest.raises(ModelError, match=r"tiktoken\.model") as refused:
        read_tokenizer(tmp_path, {})
    assert text in str(refused.value)


def test_of_other_models_it_is_left_alone(tmp_path):
    write(tmp_path, tokenizer_class="OtherTokenizer")
    assert read_tokenizer(tmp_path, {}).facts == {"type": "none"}
