#!/usr/bin/env python3
"""Makes tokenizer_kinds.json.xz: ids that the `tokenizers` library gives hard strings with one of each kind of
setting that real tokenizer.json files have: pre-tokenizers, normalisers, flags of added tokens, bytes that a
vocabulary lacks.

    make_kinds_golden.py

Needs `pip install tokenizers` and what make_tokenizer_golden.py needs: development only. Settings are kept as the
members that differ from one of two tokenizers: "bpe", trained here on the bundled model's held-out text, and "spm",
the bundled one.
"""

from __future__ import annotations

import json
import random

import tokenizers
from make_tokenizer_golden import FIXED, ROOT, hard_texts, write

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CASED = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+%s"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*%s"
)
PATTERNS = {
    "llama3": [rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{REST}"],
    "qwen2": [rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{REST}"],
    "qwen35": [
        rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    ],
    "tekken": [(CASED % ("", "")) + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"],
    "gpt-4o": [
        (CASED % (CONTRACTIONS + "?", CONTRACTIONS + "?"))
        + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ],
    "cl100k": [
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
    ],
    "deepseek-v3": [
        r"\p{N}{1,3}",
        "[一-龥\u3040-ゟ゠-ヿ]+",
        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
        r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ],
    "deepseek-coder": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", r"\s+$", r"\p{N}"],
    "caret in a class": [r"[!^_]+|[^!^_]+"],
    "any character": [r"a.|\.+$"],
}


def regex(pattern, **more):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False, **more}


def chain(kind, parts):
    return {"type": "Sequence", kind: parts}


OWN = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
BARE = {**OWN, "use_regex": False}


def pre_tokenizers():
    found = {f"pattern {name}": chain("pretokenizers", [*map(regex, cuts), BARE]) for name, cuts in PATTERNS.items()}
    digits = {"type": "Digits", "individual_digits": True}
    found["pattern smollm"] = chain("pretokenizers", [digits, OWN])
    llama3 = PATTERNS["llama3"][0]
    found["inverted"] = chain("pretokenizers", [regex(llama3, invert=True), BARE])
    removed = regex(r"\p{L}+|\p{N}", behavior="Removed", invert=True)
    found["only matches"] = chain("pretokenizers", [removed, BARE])
    found["a string"] = chain("pretokenizers", [{**regex(""), "pattern": {"String": "a.b "}}, BARE])
    return {name: {"pre_tokenizer": cut} for name, cut in found.items()}


def replace(content, **pattern):
    return {"type": "Replace", "pattern": pattern, "content": content}


GEMMA_SPLIT = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
GEMMA_DECODER = chain(
    "decoders",
    [{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}],
)
STRIP = {"type": "Strip", "strip_left": True, "strip_right": True}
NORMALIZERS = {
    "nothing": chain("normalizers", []),
    **{form: {"type": form} for form in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase")},
    "StripAccents": chain("normalizers", [{"type": "NFD"}, {"type": "StripAccents"}]),
    "Strip": STRIP,
    "Strip left": {**STRIP, "strip_right": False},
    "Prepend": chain("normalizers", [{"type": "Prepend", "prepend": "é "}, {"type": "NFD"}]),
    "Replace": chain("normalizers", [replace("\u2581", String=" "), replace("+", Regex=r"\p{N}{1,2}|\s+$")]),
    "all": chain("normalizers", [{"type": "NFKC"}, {"type": "Lowercase"}, replace(" ", Regex=r"\s+"), STRIP]),
}


def added(content, **flags):
    unset = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    return {**unset, "content": content, **flags}


ADDED = [
    added("<plain>"),
    added("<tool_call>", normalized=True),
    added("<L>", lstrip=True),
    added("<R>", rstrip=True),
    added("<both>", lstrip=True, rstrip=True, special=True),
    added("word", single_word=True),
    added("Ｗide", normalized=True),
    added("UPPER", normalized=True, single_word=True),
    added("<N L>", normalized=True, lstrip=True, rstrip=True),
    added("ßẞ", normalized=True, special=True),
    added(" x ", normalized=True),
]


def variants(trained):
    """name -> (which tokenizer, members that differ)."""
    found = {name: ("bpe", changed) for name, changed in pre_tokenizers().items()}
    for name, part in NORMALIZERS.items():
        found[f"normalizer {name}"] = ("bpe", {"normalizer": part})
    n = len(trained["model"]["vocab"])
    tokens = [{**token, "id": n + i} for i, token in enumerate(ADDED)]
    for name in (None, "nothing", "Lowercase", "NFKC", "Strip", "Prepend", "all"):
        part = NORMALIZERS[name] if name else None
        found[f"added tokens, {name}"] = ("bpe", {"normalizer": part, "added_tokens": trained["added_tokens"] + tokens})
    kept = {piece: i for piece, i in trained["model"]["vocab"].items() if not set(piece) & set("ñĠ\u0104Ãqz")}
    merges = [pair for pair in trained["model"]["merges"] if all(p in kept for p in (*pair, "".join(pair)))]
    for unknown in (None, "</s>"):
        model = {**trained["model"], "vocab": kept, "merges": merges, "unk_token": unknown, "fuse_unk": False}
        found[f"bytes that are not there, {unknown}"] = ("bpe", {"model": model})
    tokens = [{**token, "id": 4096 + i} for i, token in enumerate(ADDED)]
    fable = json.loads((ROOT / "models/fable-4m/tokenizer.json").read_text(encoding="utf-8"))
    prepend = fable["normalizer"]["normalizers"]
    for name, changed in {
        "as it is": {},
        "NFKC": {"normalizer": chain("normalizers", [{"type": "NFKC"}, *prepend])},
        "Strip": {"normalizer": chain("normalizers", [STRIP, *prepend])},
        "no prefix": {"normalizer": prepend[1]},
        "Gemma": {"normalizer": prepend[1], "pre_tokenizer": GEMMA_SPLIT, "decoder": GEMMA_DECODER},
        "first": {"normalizer": None, "pre_tokenizer": metaspace("first")},
        "always": {"normalizer": {"type": "Lowercase"}, "pre_tokenizer": metaspace("always")},
    }.items():
        found[f"spm, {name}"] = ("spm", {**changed, "added_tokens": fable["added_tokens"] + tokens})
    return found


def metaspace(scheme):
    return {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": False}


def train():
    """Bytes, and merges of a few hundred frequent pairs, across several scripts."""
    text = (ROOT / "models/fable-4m/heldout.txt").read_text(encoding="utf-8")[:60000]
    trained = tokenizers.Tokenizer(tokenizers.models.BPE())
    trained.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.decoder = tokenizers.decoders.ByteLevel()
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=500, special_tokens=["<s>", "</s>"], initial_alphabet=alphabet, show_progress=False
    )
    trained.train_from_iterator([*text.splitlines(keepends=True), *hard_texts()[::5]], trainer)
    return json.loads(trained.to_str())


def texts():
    rng = random.Random(7)
    pieces = [token["content"] for token in ADDED] + [token["content"].lower() for token in ADDED]
    pieces += [
        " ",
        "  ",
        "\n",
        "\u3000",
        "a",
        "word",
        "words",
        "Wide",
        "upper",
        "ss",
        "x",
        "é",
        ".",
        "_",
        "<",
        "tool_call>",
    ]
    made = ["".join(rng.choice(pieces) for _ in range(rng.randint(1, 7))) for _ in range(250)]
    return list(dict.fromkeys([*FIXED, *hard_texts()[len(FIXED) :: 10], *made]))


def main():
    bases = {"bpe": train()}
    bases["spm"] = json.loads((ROOT / "models/fable-4m/tokenizer.json").read_text(encoding="utf-8"))
    some, golden = texts(), {}
    for name, (base, changed) in variants(bases["bpe"]).items():
        tokenizer = tokenizers.Tokenizer.from_str(json.dumps({**bases[base], **changed}))
        golden[name] = {"base": base, "settings": changed}
        for key in ("plain", "special"):
            tokenizer.encode_special_tokens = key == "plain"
            golden[name][key] = [tokenizer.encode(text, add_special_tokens=False).ids for text in some]
        if golden[name]["special"] == golden[name]["plain"]:
            golden[name]["special"] = None
    made_with = {"tokenizers": tokenizers.__version__}
    write("tokenizer_kinds.json.xz", made_with, {"texts": some, "bpe": bases["bpe"], "variants": golden})


if __name__ == "__main__":
    main()
