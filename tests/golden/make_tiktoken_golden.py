#!/usr/bin/env python3
"""Makes tokenizer_tiktoken.json.xz: ids that the library `tiktoken` gives hard strings with Kimi's pattern and a vocabulary
made here, whose merges go across all boundaries, so that another cut shows.

    make_tiktoken_golden.py

Needs `pip install tiktoken tokenizers` and what make_tokenizer_golden.py needs: development only. The pattern is
written in Rust's dialect, as Kimi's own code has it.
"""

from __future__ import annotations

import base64
import random

import tiktoken
import tokenizers
from make_tokenizer_golden import FIXED, hard_texts, write

LETTERS = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]%s[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]%s"
PATTERN = "|".join(
    (
        r"[\p{Han}]+",
        LETTERS % ("*", "+") + "(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        LETTERS % ("+", "*") + "(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)
PIECES = [
    "中文", "漢字", "々", "〇", "〡", "〸", "⺀", "⼀", "𠀀", "丽", "的", "ー", "カナ",
    "ひらがな", "한글", "ไทย", "ابجد", "hello", "World", "ABC", "ß", "ǅ", "é", "e\u0301", "'s",
    "'LL", "don't", "’s", "1", "12", "2024", "Ⅷ", "²", ".", ",", "，", "。", "!?", "()", " ", "  ", "   ",
    "\n", "\r\n", "\t", "\u3000", "\u00a0", "👍🏽", "👩‍👩‍👧", "🇩🇪", "\u200d", "\ufe0f",
    "\u0300", "[EOS]", "<|im_end|>",
]  # fmt: skip
UNMERGED = ["乙丙丁戊己", " Qwrtzkj", "hello漢", "カナ\n"]  # no two tokens make these; the first two are words
WHOLE_WORDS = ["x乙丙丁戊己 乙丙丁戊己庚", "a Qwrtzkj Qwrtzkjq"]
NAMED = {0: "[BOS]", 1: "[EOS]", 2: "<|im_end|>", 17: "<|im_middle|>", 255: "[PAD]"}  # by their distance from the first


def texts():
    rng = random.Random(11)
    made = ["".join(rng.choice(PIECES) for _ in range(rng.randint(1, 9))) for _ in range(500)]
    return list(dict.fromkeys([*FIXED, *hard_texts()[len(FIXED) :: 12], *made]))


def train(some):
    """Tokens by rank: bytes, then what merges of whole texts make, and some that no merge does."""
    trained = tokenizers.Tokenizer(tokenizers.models.BPE())
    trained.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=1400, initial_alphabet=alphabet, show_progress=False)
    trained.train_from_iterator([text for text in some for _ in range(2)], trainer)
    ordered = sorted(trained.get_vocab().items(), key=lambda item: item[1])
    found = [bytes(map(byte_of, piece)) for piece, _ in ordered]
    return list(dict.fromkeys([*found, *(text.encode() for text in UNMERGED)]))


def byte_of(letter):
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return ord(letter) if ord(letter) < 256 else hidden[ord(letter) - 256]


def main():
    some = texts()
    tokens = train(some)
    some += WHOLE_WORDS
    first = len(tokens)
    special = {NAMED.get(i, f"<|reserved_token_{first + i}|>"): first + i for i in range(256)}
    ranks = {token: rank for rank, token in enumerate(tokens)}
    model = tiktoken.Encoding("kimi", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens=special)
    golden = {
        "texts": some,
        "model": [base64.b64encode(token).decode() for token in tokens],
        "named": {first + i: name for i, name in NAMED.items()},
        "plain": [model.encode(text, disallowed_special=()) for text in some],
        "special": [model.encode(text, allowed_special="all") for text in some],
    }
    write("tokenizer_tiktoken.json.xz", {"tiktoken": tiktoken.__version__}, golden)


if __name__ == "__main__":
    main()
