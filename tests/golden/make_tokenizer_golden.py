#!/usr/bin/env python3
"""Makes tokenizer.json.xz: the ids that the `tokenizers` and `sentencepiece` libraries give hard strings with real
vocabularies; and tokenizer_variants.json.xz: the same with the bundled vocabulary under other settings, and with
byte-level ones made here.

    make_tokenizer_golden.py DIR

DIR holds mistral_7b/ (v0.1's), llama3/ and mistral_nemo/, each with tokenizer.json (or .xz), mistral_7b/ with
tokenizer.model besides. Needs `pip install tokenizers sentencepiece`: development only. The strings come from a
seeded generator and are kept beside the ids, so that a test needs neither.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import random
import sys
from pathlib import Path

import numpy as np
import sentencepiece
import tokenizers
from make_long_texts import long_texts

VOCABULARIES = ("mistral_7b", "llama3", "mistral_nemo")
N_TEXTS = 2000
ROOT = Path(__file__).resolve().parents[2]

SCRIPTS = {
    "latin": [*range(0x41, 0x5B), *range(0x61, 0x7B), *range(0xC0, 0x180)],
    "greek and cyrillic": [*range(0x370, 0x3FF), *range(0x400, 0x500)],
    "han and kana": [*range(0x4E00, 0x9FFF), *range(0x3040, 0x30FF)],
    "hangul": [*range(0xAC00, 0xD7A4), *range(0x1100, 0x1200)],
    "thai": [*range(0xE01, 0xE5C)],
    "arabic and hebrew": [*range(0x600, 0x700), *range(0x5D0, 0x5EB), *range(0xFB50, 0xFE00)],
    "devanagari": [*range(0x900, 0x980)],
    "marks": [*range(0x300, 0x370), *range(0x1AB0, 0x1ACF), *range(0x20D0, 0x20F1), *range(0xFE00, 0xFE10)],
    "digits": [
        *range(0x30, 0x3A), *range(0x660, 0x66A), *range(0x966, 0x970), *range(0xE50, 0xE5A), *range(0xFF10, 0xFF1A),
        *range(0x2160, 0x2189), *range(0xB2, 0xB4), *range(0xBC, 0xBF), *range(0x1D7CE, 0x1D800),
    ],
    "spaces": [9, 10, 11, 12, 13, 0x20, 0x85, 0xA0, 0x1680, 0x180E, *range(0x2000, 0x2010), 0x2028, 0x2029, 0x202F, 0x205F,
               0x2060, 0x3000, 0xFEFF],
    "controls": [*range(0, 0x20), 0x7F, *range(0x80, 0xA0), 0x200D, 0x200E, 0xFFFD],
    "punctuation": [*range(0x21, 0x30), *range(0x3A, 0x41), *range(0x5B, 0x61), *range(0x7B, 0x7F), *range(0x2010, 0x2060)],
    "emoji": [*range(0x1F300, 0x1F650), *range(0x1F900, 0x1FA00), *range(0x1F3FB, 0x1F400), 0x200D, 0xFE0F, 0x20E3],
    "newer": [0x1C89, 0xA7CB, 0xA7DA, 0x10D50, 0x11F04, 0x11F50, 0x1E4D0, 0x2EBF0, 0x31350, 0x323AF, 0x16D43, 0x1CCF0, 0x1FAE9],
    "unassigned": [0x378, 0x530, 0xFFFE, 0x2FE0, 0x1F0FF, 0xE0080, 0x10FFFF, 0x3FFFF, 0xE000, 0xF0000],
}  # fmt: skip
SPECIAL = [
    "<s>", "</s>", "<unk>", "<0x0A>", "<|begin_of_text|>", "<|eot_id|>", "<|reserved_special_token_1|>", "[INST]", "[/INST]",
    "<|start_header_id|>", "<SPECIAL_20>", "<|end_of_text|>", "[TOOL_CALLS]", "<s", "s>", "<|", "|>",
    "<|reserved_special_token_",
    "<pad>", "[IMG]",
]  # fmt: skip
CONTRACTIONS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d"]
WORDS = [
    "Hello",
    "WORLD",
    "isn",
    "we",
    "iPhone",
    "café",
    "naïve",
    "Straße",
    "don",
    "HTTPServer",
    "x",
    "I",
    "they",
    "O",
    "you",
    "camelCaseIs",
]
FIXED = [
    "", " ", "  ", "\n", "\r\n", "\t", "\0", "a\0b", " a", "a ", "  a", "a  b", "\n\n \n", " \n a", "\u00a0", "\u3000 x", "▁",
    "▁a", "a▁b",
    "'ſ", "it'ſ", "I'M HE'S we'Ll y'ALL'D'VE", "1", "12", "123", "1234", "1234567890", "3.14159", "1,000,000", "x=1;y=22",
    "٣٤٥٦", "Ⅷ²½",
    "👩‍👩‍👧‍👦", "👍🏽👍🏿", "🏳️‍🌈", "🇩🇪🇫🇷", "1️⃣", "e\u0301e\u0301", "Z̷̢̛a̸l̵g̶o̷", "สวัสดีครับ", "नमस्ते दुनिया", "السلام عليكم",
    "你好，世界", "こんにちは世界",
    "안녕하세요", "Ünïcödé", "ﬁﬂ ﬀ", "\ufeffBOM", "a\u200bb", "\ud7ff\ue000", "\U0010ffff",
    "for(int i=0;i<n;i++){\n\t\tx[i] *= 2;\n}\n",
    "https://example.com/a?b=c&d=%20#e", "C:\\path\\to\\file.txt", "<html>\n  <body/>\n</html>", "/* */ // /", "a/b//c/\n/\n",
    "....", "!!!???\n\n",
    "<s>", "<s>a</s>", " <s> a </s> ", "<s><s></s>", "a<s>▁b", "[INST] hi [/INST] there</s>", "<|begin_of_text|>x<|eot_id|>",
    "<|eot_id|>\n\n",
]  # fmt: skip


def character(rng, script=None):
    if script is None and rng.random() < 0.1:
        point = rng.randrange(0x110000)
        return chr(point) if not 0xD800 <= point < 0xE000 else "?"
    return chr(rng.choice(SCRIPTS[script or rng.choice(list(SCRIPTS))]))


def part(rng):
    kind = rng.randrange(8)
    if kind == 0:
        text = rng.choice(WORDS) + rng.choice(CONTRACTIONS)
        return rng.choice([text, text.upper(), text.lower(), text.swapcase(), text.replace("'", "\u2019")])
    if kind == 1:
        return rng.choice([" ", "\n", "\t", "\r\n", "\u00a0"]) * rng.randint(1, 20)
    if kind == 2:
        return "".join(character(rng, "spaces") for _ in range(rng.randint(1, 8)))
    if kind == 3:
        return rng.choice(SPECIAL)
    if kind == 4:
        return "".join(character(rng) for _ in range(rng.randint(1, 12)))
    if kind == 5:
        return rng.choice(["", " "]) + rng.choice(WORDS)
    script = rng.choice(list(SCRIPTS))
    return "".join(character(rng, script) for _ in range(rng.randint(1, 15)))


def hard_texts():
    rng = random.Random(20)
    texts = [*FIXED, *(a + b for a in SPECIAL for b in ("", " ", "x", "\n"))]
    texts += [a + b for a in WORDS for b in CONTRACTIONS] + [a + b.upper() for a in WORDS for b in CONTRACTIONS]
    texts += ["".join(part(rng) for _ in range(rng.randint(1, 6))) for _ in range(N_TEXTS)]
    return list(dict.fromkeys(texts))[:N_TEXTS]


def digest(ids):
    return [len(ids), hashlib.sha256(np.array(ids, np.uint32).tobytes()).hexdigest()]


def load(directory):
    path = directory / "tokenizer.json"
    text = path.read_bytes() if path.exists() else lzma.decompress((directory / "tokenizer.json.xz").read_bytes())
    return tokenizers.Tokenizer.from_str(text.decode("utf-8"))


METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
ADDED = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}


def variants():
    """Settings by name: members that replace those of the bundled tokenizer.json, or a whole one."""
    fable = json.loads((ROOT / "models/fable-4m/tokenizer.json").read_text(encoding="utf-8"))
    added = [{**ADDED, "id": 4096 + i, "content": text} for i, text in enumerate(["[INST]", "[INST]]", " x"])]
    found = {"as it is": {}, "added tokens": {"added_tokens": fable["added_tokens"] + added}}
    for scheme in ("first", "always", "never"):
        for split in (False, True):
            changed = {"normalizer": None, "pre_tokenizer": {**METASPACE, "prepend_scheme": scheme, "split": split}}
            found[f"metaspace {scheme}{' split' if split else ''}"] = changed
    text = (ROOT / "models/fable-4m/heldout.txt").read_text(encoding="utf-8")[:100000]
    own = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    bare = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    digits = tokenizers.pre_tokenizers.Digits(individual_digits=True)
    split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(r"\s?\p{L}+|\P{L}"), "isolated")
    sequence = tokenizers.pre_tokenizers.Sequence
    for name, cut in {
        "own": own,
        "digits": sequence([digits, own]),
        "split": sequence([split, bare]),
        "bare": bare,
    }.items():
        trained = tokenizers.Tokenizer(tokenizers.models.BPE())
        trained.pre_tokenizer, trained.decoder = cut, tokenizers.decoders.ByteLevel()
        alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=600, special_tokens=["<s>", "</s>"], initial_alphabet=alphabet
        )
        # "bare" would make one word of each line; shorter pieces give merges that mean something.
        trained.train_from_iterator(text.split() if name == "bare" else text.splitlines(keepends=True), trainer)
        found[f"byte-level {name}"] = json.loads(trained.to_str())
    return found


def variant_ids(settings, texts):
    fable = json.loads((ROOT / "models/fable-4m/tokenizer.json").read_text(encoding="utf-8"))
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps({**fable, **settings}))
    golden = {"settings": settings}
    for key in ("plain", "special"):
        tokenizer.encode_special_tokens = key == "plain"
        golden[key] = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
    return golden


def write(name, made_with, value):
    text = json.dumps({"made_with": made_with, **value}, separators=(",", ":"))
    out = Path(__file__).with_name(name)
    out.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
    print(f"{name}: {out.stat().st_size} bytes")


def main():
    root = Path(sys.argv[1])
    texts, golden = hard_texts(), {}
    for name in VOCABULARIES:
        tokenizer = load(root / name)
        tokenizer.encode_special_tokens = True
        plain = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
        long = {key: digest(tokenizer.encode(text, add_special_tokens=False).ids) for key, text in long_texts().items()}
        tokenizer.encode_special_tokens = False
        special = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
        differs = {i: ids for i, ids in enumerate(special) if ids != plain[i]}
        golden[name] = {"plain": plain, "special": differs, "long": long}
    processor = sentencepiece.SentencePieceProcessor(model_file=str(root / "mistral_7b/tokenizer.model"))
    long = {key: digest(processor.encode(text)) for key, text in long_texts().items()}
    golden["mistral_7b tokenizer.model"] = {
        "plain": [processor.encode(text) for text in texts],
        "special": {},
        "long": long,
    }
    made_with = {library.__name__: library.__version__ for library in (tokenizers, sentencepiece)}
    write("tokenizer.json.xz", made_with, {"texts": texts, "ids": golden})
    some = [*FIXED, *texts[len(FIXED) :: 8]]
    ids = {name: variant_ids(settings, some) for name, settings in variants().items()}
    write("tokenizer_variants.json.xz", made_with, {"texts": some, "variants": ids})
    print(f"{len(texts)} texts; special parsing changes", end=" ")
    print(", ".join(f"{len(golden[name]['special'])} ({name})" for name in VOCABULARIES))


if __name__ == "__main__":
    main()
