"""What the converter makes of a directory's tokenizer files, and what it refuses by name."""

from __future__ import annotations

import json
import shutil
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
import tokenizer_file

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from yalm_convert.errors import ModelError  # noqa: E402
from yalm_convert.pattern import GPT2, translate  # noqa: E402
from yalm_convert.tokenizer import read_tokenizer  # noqa: E402

FABLE = ROOT / "models/fable-4m"
SPLIT = {"type": "Split", "pattern": {"Regex": "a+"}, "behavior": "Isolated", "invert": False}
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}


@pytest.fixture
def directory(tmp_path):
    for name in ("tokenizer.json", "tokenizer.model", "tokenizer_config.json"):
        shutil.copy(FABLE / name, tmp_path)
    return tmp_path


def edit(path, change):
    value = json.loads(path.read_text(encoding="utf-8"))
    change(value)
    path.write_text(json.dumps(value), encoding="utf-8")


def byte_level(root, **members):
    """Turns the bundled tokenizer into a byte-level one with 256 pieces and a merge."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters = [chr(b) for b in visible] + [chr(256 + i) for i in range(256 - len(visible))]
    vocab = {letter: i for i, letter in enumerate([*letters, "ab"])}
    root["model"] = {"type": "BPE", "vocab": vocab, "merges": ["a b"]}
    root.update(
        normalizer=None, added_tokens=[], post_processor=None, pre_tokenizer=BYTE_LEVEL, decoder={"type": "ByteLevel"}
    )
    root.update(members)


def test_the_bundled_tokenizer():
    data = read_tokenizer(FABLE, {"vocab_size": 4096})
    tensors = dict(data.tensors)
    assert data.facts == {
        "type": "spm",
        "merge": "rank",
        "prefix_space": "segments",
        "prefix_if_missing": False,
        "split_words": False,
        "ignore_merges": False,
        "add_bos": True,
        "n_pieces": 4096,
    }
    assert (data.bos, data.eos, data.chat_template, data.warnings) == (1, [2], None, [])
    assert {name: (array.dtype.name, array.ndim) for name, array in tensors.items()} == {
        "tokenizer.bytes": ("uint8", 1),
        "tokenizer.offsets": ("uint32", 1),
        "tokenizer.kinds": ("uint8", 1),
        "tokenizer.merges": ("uint32", 2),
    }
    blob, offsets = tensors["tokenizer.bytes"].tobytes(), tensors["tokenizer.offsets"]
    pieces = [blob[offsets[i] : offsets[i + 1]] for i in range(4096)]
    assert pieces[:4] == [b"<unk>", b"<s>", b"</s>", b"\0"]
    assert pieces[4001] == b" "
    assert tensors["tokenizer.kinds"][:4].tolist() == [1, 2, 2, 4]


def test_byte_level_pieces_are_raw_bytes(directory):
    edit(directory / "tokenizer.json", byte_level)
    (directory / "tokenizer_config.json").unlink()
    data = read_tokenizer(directory, {})
    assert data.facts == {"type": "bpe", "patterns": [], "ignore_merges": False, "add_bos": False, "n_pieces": 257}
    blob = dict(data.tensors)["tokenizer.bytes"].tobytes()
    assert sorted(blob[:256]) == list(range(256))
    assert blob[256:] == b"ab"


def test_tokenizer_model_alone(directory):
    (directory / "tokenizer.json").unlink()
    data = read_tokenizer(directory, {"vocab_size": 4096})
    assert (data.facts["merge"], data.facts["add_bos"], data.bos, data.eos) == ("score", True, 1, [2])
    assert dict(data.tensors)["tokenizer.scores"].dtype == np.float32


def test_no_tokenizer(tmp_path):
    data = read_tokenizer(tmp_path, {"vocab_size": 4096})
    assert (data.facts, data.tensors, data.bos, data.eos) == ({"type": "none"}, [], None, [])


def test_chat_template(directory):
    edit(directory / "tokenizer_config.json", lambda c: c.update(chat_template="one"))
    assert read_tokenizer(directory, {}).chat_template == "one"
    named = [{"name": "tools", "template": "x"}, {"name": "default", "template": "two"}]
    edit(directory / "tokenizer_config.json", lambda c: c.update(chat_template=named))
    assert read_tokenizer(directory, {}).chat_template == "two"
    (directory / "chat_template.jinja").write_text("three", encoding="utf-8")
    data = read_tokenizer(directory, {})
    assert data.chat_template == "three" and data.warnings == []
    assert data.chat["templates"] == {
        "default": [["data", 1, "three"], ["output", 1, None, [0]], ["template", 1, None, [1]]]
    }
    (directory / "chat_template.jinja").write_text("three\n{{ 3 | round }}", encoding="utf-8")
    data = read_tokenizer(directory, {})
    assert data.chat["refused"] == "line 2: the filter 'round' is not supported" and "templates" not in data.chat
    assert "line 2: the filter 'round' is not supported: the model can complete text" in data.warnings[0]


def test_bos_as_the_files_say(directory):
    """The post-processor decides where there is one; else add_bos_token does. transformers (5.24) does the same."""
    edit(directory / "tokenizer_config.json", lambda c: c.update(add_bos_token=False))
    data = read_tokenizer(directory, {})
    assert data.facts["add_bos"] is True
    assert data.warnings[0].endswith("puts bos before a text, which holds")
    edit(directory / "tokenizer.json", lambda t: t.update(post_processor=None))
    data = read_tokenizer(directory, {})
    assert data.facts["add_bos"] is False
    assert "does not put it before a text" in data.warnings[0]
    (directory / "tokenizer.json").unlink()
    assert read_tokenizer(directory, {}).facts["add_bos"] is False
    edit(directory / "tokenizer_config.json", lambda c: c.update(add_bos_token=True, add_eos_token=True))
    data = read_tokenizer(directory, {})
    assert data.facts["add_bos"] is True
    assert "puts its eos token after a text" in data.warnings[0]


PREFIXES = [
    # settings, what holds of the space before a text
    ({}, ("segments", False)),
    ({"legacy": True}, ("segments", False)),
    ({"legacy": None, "add_prefix_space": None}, ("segments", False)),
    ({"legacy": False}, ("first", True)),
    ({"add_prefix_space": True}, ("segments", False)),
    ({"add_prefix_space": False}, ("never", False)),
    ({"add_prefix_space": False, "legacy": False}, ("never", False)),
    ({"add_prefix_space": False, "tokenizer_class": "PreTrainedTokenizerFast"}, ("segments", False)),
]


@pytest.mark.parametrize("only", ["tokenizer.json", "tokenizer.model"])
@pytest.mark.parametrize(("settings", "holds"), PREFIXES)
def test_prefix_space_as_the_settings_say(directory, only, settings, holds):
    (directory / ({"tokenizer.json", "tokenizer.model"} - {only}).pop()).unlink()
    edit(directory / "tokenizer_config.json", lambda c: c.pop("legacy"))
    edit(directory / "tokenizer_config.json", lambda c: c.update(settings))
    data = read_tokenizer(directory, {})
    assert (data.facts["prefix_space"], data.facts["prefix_if_missing"]) == holds
    told = any(value is False for value in settings.values())
    assert len(data.warnings) == told and (not told or " holds" in data.warnings[0])


@pytest.mark.parametrize("only", ["tokenizer.json", "tokenizer.model"])
def test_prefix_space_in_ids(encoder, directory, tmp_path, only):
    """Ids by transformers 5.24 of the bundled vocabulary."""
    (directory / ({"tokenizer.json", "tokenizer.model"} - {only}).pop()).unlink()
    texts = ["Hello", " Hello", "</s>hello", "</s> hello"]
    hello = [374, 418, 4005]
    for settings, ids in {
        "add_prefix_space": [[4032, *hello[1:]], hello, [2, 260, 284, 4005], [2, 283, 284, 4005]],
        "legacy": [hello, hello, [2, 260, 284, 4005], [2, 283, 284, 4005]],
    }.items():
        edit(directory / "tokenizer_config.json", lambda c, settings=settings: c.update({settings: False}))
        tokenizer_file.write(tmp_path / "golden-spm.bin", directory)
        assert encoder(tmp_path / "golden-spm.bin", texts, special=True, may_change=True) == ids
        edit(directory / "tokenizer_config.json", lambda c, settings=settings: c.pop(settings))


def test_more_tokens_than_the_model_has(directory):
    edit(directory / "tokenizer.json", lambda t: t["added_tokens"].append({**ADDED, "content": "<pad>"}))
    data = read_tokenizer(directory, {"vocab_size": 4096})
    assert data.facts["n_pieces"] == 4097
    assert "4097 tokens, but the model has 4096 (vocab_size)" in data.warnings[0]
    edit(directory / "tokenizer_config.json", lambda c: c.update(eos_token="<pad>"))
    data = read_tokenizer(directory, {"vocab_size": 4096})
    assert data.eos == [] and "eos is token 4096" in data.warnings[1]
    edit(directory / "tokenizer.json", lambda t: t["post_processor"].update(single=[{"Sequence": {"id": "A"}}]))
    edit(directory / "tokenizer_config.json", lambda c: c.update(bos_token="<pad>"))
    with pytest.raises(ModelError, match="bos is token 4096"):
        read_tokenizer(directory, {"vocab_size": 4096})


def test_bytes_that_are_not_there_are_told(directory):
    def change(root):
        byte_level(root)
        for letter in "ab\u0104":
            del root["model"]["vocab"][letter]
        root["model"]["merges"] = ["c d", "e f"]
        root["model"]["vocab"].update(cd=257, ef=258)

    edit(directory / "tokenizer.json", change)
    data = read_tokenizer(directory, {})
    assert "no token for 3 of the 256 bytes (0x04, 0x61, 0x62): they are left out" in data.warnings[0]
    assert "unknown" not in data.facts
    edit(directory / "tokenizer.json", lambda t: t["model"].update(unk_token="cd"))
    data = read_tokenizer(directory, {})
    assert data.facts["unknown"] == 257 and "they are token 257" in data.warnings[0]
    for option in ("byte_fallback", "fuse_unk"):
        edit(directory / "tokenizer.json", lambda t, option=option: t["model"].update({option: True}))
        with pytest.raises(ModelError, match=option):
            read_tokenizer(directory, {})
        edit(directory / "tokenizer.json", lambda t, option=option: t["model"].update({option: False}))


GEMMA = {
    "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
    "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False},
    "decoder": {
        "type": "Sequence",
        "decoders": [
            {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
        ],
    },
}


def test_gemma_splits_at_spaces_that_are_not_there(directory):
    edit(directory / "tokenizer.json", lambda t: t.update(GEMMA))
    facts = read_tokenizer(directory, {}).facts
    assert (facts["type"], facts["prefix_space"], facts["split_words"]) == ("spm", "never", False)
    # Where they are, it is another tokenizer.
    edit(directory / "tokenizer.json", lambda t: t.update(normalizer=None))
    with pytest.raises(ModelError, match="pre-tokenizer"):
        read_tokenizer(directory, {})


ADDED = {
    "id": 4096,
    "content": "<new>",
    "single_word": False,
    "lstrip": False,
    "rstrip": False,
    "normalized": False,
    "special": True,
}
REFUSED = {
    "model type 'WordLevel'": lambda t: t["model"].update(type="WordLevel"),
    "expected a list of pieces with scores": lambda t: t["model"].update(type="Unigram"),
    "pre-tokenizer {} is not supported": lambda t: t["model"].update(type="WordPiece", continuing_subword_prefix="##"),
    "dropout": lambda t: t["model"].update(dropout=0.1),
    "end_of_word_suffix": lambda t: t["model"].update(end_of_word_suffix="</w>"),
    "continuing_subword_prefix": lambda t: t["model"].update(continuing_subword_prefix="##"),
    "byte_fallback": lambda t: t["model"].update(byte_fallback=False),
    'normalizer {"type": "Nmt"}': lambda t: t.update(normalizer={"type": "Nmt"}),
    'normalizer {"type": "NFKC"}': lambda t: t["normalizer"]["normalizers"].append({"type": "NFKC"}),
    'normalizer {"type": "Replace"}': lambda t: t.update(normalizer={"type": "Replace"}),
    'pre-tokenizer {"type": "Whitespace"}': lambda t: t.update(pre_tokenizer={"type": "Whitespace"}),
    'decoder {"type": "WordPiece"}': lambda t: t.update(decoder={"type": "WordPiece"}),
    'post-processor {"type": "BertProcessing"}': lambda t: t.update(post_processor={"type": "BertProcessing"}),
    "is found as a single word only, and made by merging too": lambda t: t["added_tokens"].append(
        {**ADDED, "content": "ing", "id": t["model"]["vocab"]["ing"], "single_word": True}
    ),
    "added token '<new>' has id 300, which another piece has": lambda t: t["added_tokens"].append({**ADDED, "id": 300}),
    "added token '<s>' has id 7, in the vocabulary 1": lambda t: t["added_tokens"][1].update(id=7),
    "added token '<new>' has id 4194304, expected 0 to 4194303": lambda t: t["added_tokens"].append(
        {**ADDED, "id": 1 << 22}
    ),
    "which is not in the vocabulary": lambda t: t["model"]["merges"].append("qqq zzz"),
    "expected two pieces": lambda t: t["model"]["merges"].append("a b c"),
    "two pieces have id 300": lambda t: t["model"]["vocab"].update(zzzz=300),
    "'zzzz' has id 4194304, expected 0 to 4194303": lambda t: t["model"]["vocab"].update(zzzz=1 << 22),
    "no token for byte 0x41": lambda t: t["model"]["vocab"].pop("<0x41>"),
    "no merges": lambda t: t["model"].update(merges=[]),
    "has 1025 bytes": lambda t: t["model"]["vocab"].update({"z" * 1025: 4096}),
    "neither is byte-level": lambda t: t.update(normalizer=None),
    '"add_prefix_space": true': lambda t: byte_level(t, pre_tokenizer={**BYTE_LEVEL, "add_prefix_space": True}),
    '"behavior": "Removed"': lambda t: byte_level(
        t, pre_tokenizer={"type": "Sequence", "pretokenizers": [{**SPLIT, "behavior": "Removed"}, BYTE_LEVEL]}
    ),
    'normalizer {"type": "Precompiled"}': lambda t: byte_level(t, normalizer={"type": "Precompiled"}),
    'decoder {"type": "Fuse"}': lambda t: byte_level(t, decoder={"type": "Fuse"}),
}


@pytest.mark.parametrize("says", REFUSED)
def test_refused_by_name(directory, says):
    edit(directory / "tokenizer.json", REFUSED[says])
    with pytest.raises(ModelError) as refused:
        read_tokenizer(directory, {"vocab_size": 5000})
    assert says in str(refused.value)
    assert "tokenizer.json" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["", "[]", "{", "<html>", '{"model": 1}', "\ufffd" * 10])
def test_broken_json(directory, text):
    (directory / "tokenizer.json").write_text(text, encoding="utf-8")
    with pytest.raises(ModelError, match=r"tokenizer\.json"):
        read_tokenizer(directory, {})


@pytest.mark.parametrize("spoiled", [5, [1], {"type": 3}, {"a": "\ud800"}, "x", [{"id": [], "content": {}}], [[]]])
def test_json_of_another_form(directory, spoiled):
    """Whatever stands in a member's place, the answer is a ModelError or a tokenizer, never another exception."""
    for key in json.loads((FABLE / "tokenizer.json").read_text(encoding="utf-8")):
        shutil.copy(FABLE / "tokenizer.json", directory)
        edit(directory / "tokenizer.json", lambda t, key=key: t.update({key: spoiled}))
        try:
            read_tokenizer(directory, {})
        except ModelError as error:
            assert "tokenizer.json" in str(error)
    for key in ("vocab", "merges", "unk_token", "byte_fallback"):
        shutil.copy(FABLE / "tokenizer.json", directory)
        edit(directory / "tokenizer.json", lambda t, key=key: t["model"].update({key: spoiled}))
        try:
            read_tokenizer(directory, {})
        except ModelError as error:
            assert "tokenizer.json" in str(error)


def field(number, value):
    """One field of a protocol buffer; numbers below 128 and strings below 128 bytes."""
    if isinstance(value, int):
        return bytes([*varint(number << 3), value])
    kind = 5 if isinstance(value, float) else 2
    body = struct.pack("<f", value) if kind == 5 else bytes([*varint(len(value))]) + value
    return bytes(varint(number << 3 | kind)) + body


def varint(value):
    return [value] if value < 128 else [value & 127 | 128, value >> 7]


def sentencepiece(pieces=(), trainer=b"", normalizer=b""):
    """A model with <unk>, <s>, all bytes, "a" and the pieces given as (text, score, type)."""
    every = [
        (b"<unk>", 0.0, 2),
        (b"<s>", 0.0, 3),
        *((b"<0x%02X>" % b, 0.0, 6) for b in range(256)),
        (b"a", -1.0, 1),
        *pieces,
    ]
    body = b"".join(field(1, field(1, text) + field(2, score) + field(3, kind)) for text, score, kind in every)
    return body + field(2, field(3, 2) + field(35, 1) + trainer) + field(3, field(4, 0) + normalizer)


SENTENCEPIECE_REFUSED = {
    "model_type = 'unigram'": sentencepiece(trainer=field(3, 1)),
    "byte_fallback = False": sentencepiece(trainer=field(35, 0)),
    "suffix_whitespace = True": sentencepiece(trainer=field(24, 1)),
    "normalizer 'nmt_nfkc'": sentencepiece(normalizer=field(1, b"nmt_nfkc") + field(2, b"map")),
    "remove_extra_whitespaces = True": sentencepiece(normalizer=field(4, 1)),
    "escape_whitespaces = False": sentencepiece(normalizer=field(5, 0)),
    "('x') is user-defined or unused": sentencepiece([(b"x", 0.0, 4)]),
    "('y') is user-defined or unused": sentencepiece([(b"y", 0.0, 5)]),
    "tokens 258 and 259 have the same bytes": sentencepiece([(b"a", 0.0, 1)]),
    "token 259 is empty": sentencepiece([(b"", 0.0, 1)]),
    "a score that is not a number": sentencepiece([(b"b", float("nan"), 1)]),
    "it has no pieces": b"",
    "reaches past the end": sentencepiece()[:100],
    "not a SentencePiece model": b"<!DOCTYPE html><html>",
}


@pytest.mark.parametrize("says", SENTENCEPIECE_REFUSED)
def test_sentencepiece_refused_by_name(tmp_path, says):
    (tmp_path / "tokenizer.model").write_bytes(SENTENCEPIECE_REFUSED[says])
    with pytest.raises(ModelError) as refused:
        read_tokenizer(tmp_path, {"vocab_size": 5000})
    assert says in str(refused.value)
    assert "tokenizer.model" in str(refused.value)


def test_sentencepiece_with_added_tokens(tmp_path):
    (tmp_path / "tokenizer.model").write_bytes(sentencepiece([(b"\xe2\x96\x81a", -2.0, 1)]))
    decoder = {"0": {"content": "<unk>", "special": True}, "260": {"content": "<pad>", "special": True}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": decoder, "bos_token": "<s>"}))
    data = read_tokenizer(tmp_path, {"vocab_size": 261})
    tensors = dict(data.tensors)
    assert data.facts["n_pieces"] == 261
    assert tensors["tokenizer.kinds"][-3:].tolist() == [0, 0, 2]
    assert tensors["tokenizer.bytes"].tobytes().endswith(b"a a<pad>")
    (tmp_path / "added_tokens.json").write_text('{"<other>": 261}')
    with pytest.raises(ModelError, match="<other>"):
        read_tokenizer(tmp_path, {"vocab_size": 300})


def test_patterns_are_spelled_out():
    assert translate("a|b?") == "a|b?"
    assert r"\x{180e}" not in translate(r"\s")
    assert translate(r"\s") == "[" + translate(r"[^\s]")[2:]
    assert translate(r"\p{L}+").startswith(r"[\p{L}\x{")
    assert r"\x{31350}-\x{323af}" in translate(r"[^\r\n\p{L}]")
    assert translate(r"\P{N}").startswith(r"[^\p{N}")
    assert "(?!" in translate(GPT2)
    assert translate("a.$") == r"a[^\n](?=\n|\z)"
    assert translate("[^!^_]") == "[^!^_]"
    assert translate(r"[\p{Lu}x&&[^yz]]+").startswith(r"(?:(?![yz])[\p{Lu}")
    assert translate("[^(a[.,b])]+") == "[^(a.,b)]+"
    assert translate(r"\p{Han}").startswith(r"[\x{2e80}-\x{2e99}")


UNKNOWN_PATTERNS = (
    r"^a \w+ \bx a{2}+ $* (a)\1 [a[^b]] [a[b&&[^c]]] [a&&b] [a&&[b]] [^a&&[^b]] [&&[^b]] \p{Greek} \p{Cn} (?<=a)b (?i)a "
    r"[a[b[c]]] [a-[z]] [[a]-z] [a[-z]] [a[y-]z] [a[]b]] [[:alpha:]] [a[:digit:]] "
    r"(?i:ß) (?i:\p{L}) [a \x41 (?>a) \h [\S]"
)


@pytest.mark.parametrize(
    "pattern",
    [
        *UNKNOWN_PATTERNS.split(),
        "a{,3}",
        "(?<n>a)",
        "a|*b",
        "(+a)",
        "?",
        "(*UTF)a",
        "(?:+a)",
        "[" * 5000,
        "[a&&[^" * 2000,
    ],
)
def test_patterns_refused(pattern):
    with pytest.raises(ModelError) as refused:
        translate(pattern)
    assert repr(pattern) in str(refused.value)
