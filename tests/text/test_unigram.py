"""Tables of characters that strangers wrote (tokenizer.json's normalizer Precompiled): each is read to its end or refused."""

import base64
import json
import sys

import numpy as np
import pytest
from harness import ROOT

sys.path.insert(0, str(ROOT / "tools"))

from yalm_convert.errors import ModelError
from yalm_convert.tokenizer import read_tokenizer
from yalm_convert.unigram import read_charsmap

LETTERS = np.arange(256, dtype=np.uint32)
VALUE, ENDS = 1 << 31, 1 << 8


def table(units, strings=b""):
    units = np.asarray(units, "<u4").tobytes()
    return len(units).to_bytes(4, "little") + units + strings


def level(here, below):
    """Units of 256 places from `here` on: every letter leads to the place `below`."""
    return np.where(LETTERS, LETTERS | (LETTERS ^ here ^ below) << 10, 0)


def test_nodes_may_share_what_is_below_them():
    """ab and cb, of which one node stands for both b."""
    units = np.zeros(1024, np.uint32)
    for letter in b"ac":
        units[letter] = letter | (letter ^ 512) << 10
    units[512 ^ ord("b")] = ord("b") | ENDS | (512 ^ ord("b") ^ 768) << 10
    units[768] = VALUE | 2
    assert read_charsmap(table(units, b"x\0yes\0")) == [("ab", "yes"), ("cb", "yes")]


TABLES = {
    "leads back to its beginning": table(level(0, 0)),
    "has 255 ways at each of 40 levels": table(np.concatenate([level(256 * i, 256 * i + 256) for i in range(40)])),
    "has a value beyond its end": table(level(0, 1 << 20) | ENDS),
    "is of no units": table([]),
    "is cut": table(level(0, 256))[:-1],
    "is no whole number of units": b"\5\0\0\0" + bytes(8),
    "is nothing": b"",
}


@pytest.mark.parametrize("what", TABLES)
def test_refused(what, tmp_path):
    tokenizer = json.loads((ROOT / "models/fable-4m/tokenizer.json").read_text(encoding="utf-8"))
    tokenizer["model"] = {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["a", -1.0]]}
    blob = base64.b64encode(TABLES[what]).decode()
    tokenizer |= {
        "added_tokens": [],
        "normalizer": {"type": "Precompiled", "precompiled_charsmap": blob},
        "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581"},
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    with pytest.raises(ModelError, match=r"tokenizer\.json: normalizer Precompiled: not of the form") as refused:
        read_tokenizer(tmp_path, {"vocab_size": 2})
    assert "\n" not in str(refused.value)


def test_strings_are_bounded():
    """A long one that many nodes share is not copied for each."""
    units = np.concatenate([level(0, 256), level(256, 512) | ENDS, np.full(256, VALUE, np.uint32)])
    units[128:256] = units[384:512] = 0  # ASCII alone
    with pytest.raises(ValueError, match="does not end"):
        read_charsmap(table(units, b"a" * 5000 + b"\0"))
