"""Token ids against those of the libraries that the models were made with: the bundled model's everywhere, other vocabularies
where they lie beside the checkout. tests/golden/make_tokenizer_golden.py made the file of ids."""

from __future__ import annotations

import functools
import hashlib
import json
import lzma
import random
import shutil
import struct
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/text"), str(ROOT / "tests/golden")]

import tokenizer_file  # noqa: E402
from make_long_texts import long_texts  # noqa: E402

VOCABULARIES = ["mistral_7b", "llama3", "mistral_nemo", "mistral_7b tokenizer.model"]
FOLDERS = {"mistral_7b": "llama2"}  # what the folder beside some checkouts calls Mistral 7B v0.1's vocabulary


@pytest.fixture(scope="session")
def golden():
    return json.loads(lzma.decompress((ROOT / "tests/golden/tokenizer.json.xz").read_bytes()))


def convert(tmp_path, source, only):
    """Converts the tokenizer of `source` from tokenizer.json or tokenizer.model alone; ../shared holds the former packed."""
    directory = tmp_path / "source"
    directory.mkdir()
    if (source / f"{only}.xz").exists():
        (directory / only).write_bytes(lzma.decompress((source / f"{only}.xz").read_bytes()))
    else:
        shutil.copy(source / only, directory)
    shutil.copy(source / "tokenizer_config.json", directory)
    path = tmp_path / "plain.bin"
    data = tokenizer_file.write(path, directory)
    return path.rename(tmp_path / f"golden-{data.facts['type']}.bin")


@pytest.fixture(scope="module")
def converted(tmp_path_factory, shared):
    """Of a vocabulary the path of its file, which is made when first asked for."""

    @functools.cache
    def get(vocabulary):
        name, _, only = vocabulary.partition(" ")
        source = shared / "tokenizers" / FOLDERS.get(name, name)
        return convert(tmp_path_factory.mktemp("vocabulary"), source, only or "tokenizer.json")

    return get


@pytest.fixture(params=VOCABULARIES)
def vocabulary(request, converted):
    return request.param, converted(request.param)


def differing(texts, expected, found):
    return [(text, e, f) for text, e, f in zip(texts, expected, found) if e != f][:3]


@pytest.mark.parametrize("only", ["tokenizer.json", "tokenizer.model"])
@pytest.mark.parametrize("place", ["models/fable-4m", "../shared/models/stories260k"])
def test_reference_ids(encoder, tmp_path, place, only):
    source = ROOT / place
    if not source.is_dir():
        pytest.skip(f"{place} is not there")
    cases = json.loads((source / "reference/tokenizer.json").read_text(encoding="utf-8"))["cases"]
    texts = [case["text"] for case in cases]
    found = encoder(convert(tmp_path, source, only), texts)
    assert differing(texts, [case["ids"] for case in cases], found) == []


@pytest.mark.parametrize("special", [False, True])
def test_other_settings(encoder, tmp_path, special):
    """The bundled vocabulary under other settings, and byte-level ones of 600 pieces."""
    golden = json.loads(lzma.decompress((ROOT / "tests/golden/tokenizer_variants.json.xz").read_bytes()))
    fable = json.loads((ROOT / "models/fable-4m/tokenizer.json").read_text(encoding="utf-8"))
    assert len(golden["variants"]) == 12
    for name, variant in golden["variants"].items():
        directory = tmp_path / name
        directory.mkdir()
        (directory / "tokenizer.json").write_text(json.dumps({**fable, **variant["settings"]}), encoding="utf-8")
        path = tmp_path / f"golden-{'bpe' if 'byte-level' in name else 'spm'}.bin"
        tokenizer_file.write(path, directory)
        # Metaspace adds no space where there is one, so that one is lost; "first" cannot tell it after a bos that is spelled.
        lossy = "always" in name or "first" in name
        found = encoder(path, golden["texts"], special, may_change=lossy)
        assert (name, differing(golden["texts"], variant["special" if special else "plain"], found)) == (name, [])


def test_hard_strings(encoder, golden, vocabulary):
    name, path = vocabulary
    texts, ids = golden["texts"], golden["ids"][name]
    assert len(texts) == 2000
    assert differing(texts, ids["plain"], encoder(path, texts)) == []


@pytest.mark.parametrize("vocabulary", VOCABULARIES[:3], indirect=True)  # sentencepiece parses no special tokens
def test_hard_strings_with_special_tokens(encoder, golden, vocabulary):
    name, path = vocabulary
    texts, ids = golden["texts"], golden["ids"][name]
    expected = [ids["special"].get(str(i), plain) for i, plain in enumerate(ids["plain"])]
    assert sum(a != b for a, b in zip(expected, ids["plain"])) > 50
    assert differing(texts, expected, encoder(path, texts, special=True)) == []


def test_a_megabyte_without_a_space(encoder, golden, vocabulary):
    name, path = vocabulary
    texts = long_texts()
    start = time.monotonic()
    found = encoder(path, texts.values())
    took = time.monotonic() - start
    digests = {
        key: [len(ids), hashlib.sha256(struct.pack(f"<{len(ids)}I", *ids)).hexdigest()]
        for key, ids in zip(texts, found)
    }
    assert digests == golden["ids"][name]["long"]
    # About 2 s on a slow core; with quadratic time the first of the six alone would take an hour.
    assert took < 120


def test_invalid_utf8_comes_back(encoder, vocabulary):
    rng = random.Random(22)
    whole = "naïve 你好 👍🏽 e\u0301\n".encode()
    texts = [bytes([b]) for b in range(256)] + [
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xc0\x80",
        b"\xf0\x9f\x91",
        b"a\xffb",
    ]
    for _ in range(500):
        text = bytearray(whole * rng.randint(1, 3))
        for _ in range(rng.randint(1, 8)):
            text[rng.randrange(len(text))] = rng.randrange(256)
        texts.append(bytes(text[: rng.randint(1, len(text))]))
    assert (
        differing(
            texts, texts, [None if ids is None else text for text, ids in zip(texts, encoder(vocabulary[1], texts))]
        )
        == []
    )


def test_words_beside_invalid_utf8(encoder, vocabulary):
    """Bytes that are no character leave the words around them as they are."""
    (word,), (broken,) = encoder(vocabulary[1], [" house"]), encoder(vocabulary[1], [b"\xff house \xfe house"])
    tail = word[-1:]
    assert broken.count(tail[0]) == 2
