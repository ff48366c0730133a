"""Token ids against those of the `tokenizers` library for each kind of setting that tokenizer.json files have: pre-tokenizers,
normalisers, added tokens' flags, vocabularies that lack bytes. tests/golden/make_kinds_golden.py made the file of ids."""

from __future__ import annotations

import json
import lzma

import pytest
import tokenizer_file
from harness import ROOT

GOLDEN = json.loads(lzma.decompress((ROOT / "tests/golden/tokenizer_kinds.json.xz").read_bytes()))
FABLE = json.loads((ROOT / "models/fable-4m/tokenizer.json").read_text(encoding="utf-8"))


def test_all_kinds_are_there():
    kinds = [name.split(" ")[0].rstrip(",") for name in GOLDEN["variants"]]
    assert {kind: kinds.count(kind) for kind in ("pattern", "normalizer", "added", "bytes", "spm")} == {
        "pattern": 11,
        "normalizer": 12,
        "added": 7,
        "bytes": 2,
        "spm": 7,
    }


@pytest.mark.parametrize("name", GOLDEN["variants"])
def test_ids_are_those_of_tokenizers(encoder, tmp_path, name):
    variant = GOLDEN["variants"][name]
    root = {**(GOLDEN["bpe"] if variant["base"] == "bpe" else FABLE), **variant["settings"]}
    (tmp_path / "tokenizer.json").write_text(json.dumps(root), encoding="utf-8")
    path = tmp_path / "golden-kinds.bin"
    tokenizer_file.write(path, tmp_path)
    for key in ("plain", "special"):
        found = encoder(path, GOLDEN["texts"], key == "special", may_change=True)
        pairs = zip(GOLDEN["texts"], variant[key] or variant["plain"], found)
        assert [pair for pair in pairs if pair[1] != pair[2]][:3] == [], key
