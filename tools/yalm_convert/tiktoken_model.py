"""tiktoken.model, Kimi's vocabulary: a line for each token, its bytes in base64 and its rank, which is its id. Two neighbours
merge whose joined bytes have the lowest rank. Each token is made of one pair alone (halves()), so ranks of pairs say the same.

How texts are cut, and that 256 ids for special tokens follow, stands in Kimi's own code, tokenization_kimi.py.
"""

import base64
import binascii
from pathlib import Path
from typing import Optional, Union

import numpy as np

from . import pattern as patterns
from .errors import ModelError
from .source import read_text, shown
from .tokenizer_json import TokenizerData
from .vocabulary import MAX_PIECE, NORMAL, Vocabulary

CLASS = "TikTokenTokenizer"  # tokenizer_class of tokenizer_config.json
UPPER, LOWER = (rf"[\p{{{case}}}\p{{Lm}}\p{{Lo}}\p{{M}}&&[^\p{{Han}}]]" for case in (r"Lu}\p{Lt", "Ll"))
BEFORE, BEHIND = r"[^\r\n\p{L}\p{N}]?", "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
PARTS = (
    r"[\p{Han}]+", f"{BEFORE}{UPPER}*{LOWER}+{BEHIND}", f"{BEFORE}{UPPER}+{LOWER}*{BEHIND}", r"\p{N}{1,3}",
    r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+",
)  # fmt: skip
PATTERN = "|".join(PARTS)
SPECIAL = 256
NEVER = 1 << 32  # above all ranks

Token = Union[bytes, str]  # a letter for each byte, as byte-level vocabularies write them, will do


def halves(token: Token, ranks: dict) -> Optional[tuple]:
    """The two tokens that `token` is of when merging makes it whole; None: it never does. A neighbour does not matter: merges
    within `token` are those that it has alone, unless one reaches across its ends, and then it is not made there."""
    parts = [token[i : i + 1] for i in range(len(token))]
    joined = [ranks.get(left + right, NEVER) for left, right in zip(parts, parts[1:])]
    while len(parts) > 2:
        rank = min(joined)
        if rank == NEVER:
            return None
        at = joined.index(rank)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
        del joined[at]
        for i in (at - 1, at):
            if 0 <= i < len(joined):
                joined[i] = ranks.get(parts[i] + parts[i + 1], NEVER)
    return tuple(parts) if len(parts) == 2 else None


def merges_of(ranks: dict) -> list:
    """The pairs that merge, best first. ranks: each token's, lowest first. Of tokens too long for a model file nothing is
    made: they are refused by their names."""
    found = (halves(token, ranks) for token in sorted(ranks, key=ranks.get) if len(token) <= MAX_PIECE)
    return [pair for pair in found if pair]


def from_tiktoken(path: Path, settings: dict) -> tuple:
    """(the tokenizer's data, its vocabulary)."""
    ranks = _ranks(path)
    vocabulary = Vocabulary()
    for token, rank in ranks.items():
        vocabulary.add(rank, token, NORMAL)
    missing = vocabulary.missing_bytes(NORMAL)
    if missing:
        raise ModelError(f"{path}: no token for byte 0x{missing[0]:02X}; all 256 are needed")
    named = {int(token): entry for token, entry in (settings.get("added_tokens_decoder") or {}).items()}
    first = len(ranks)
    for token in sorted(named):
        if not first <= token < first + SPECIAL:
            raise ModelError(f"{path}: tokenizer_config.json names token {token}, expected {first} to {first + 255}")
    for token in range(first, first + SPECIAL):
        entry = named.get(token, {"content": f"<|reserved_token_{token}|>", "special": True})
        vocabulary.add_spelled({**entry, "id": token, "normalized": False}, path.parent / "tokenizer_config.json")
    facts = {"type": "bpe", "patterns": [patterns.translate(PATTERN)], "ignore_merges": True, "add_bos": False}
    merges = np.array([[ranks[part] for part in pair] for pair in merges_of(ranks)], np.uint32).reshape(-1, 2)
    if not len(merges):
        raise ModelError(f"{path}: the tokenizer has no merges")
    data = TokenizerData(facts, [("tokenizer.merges", merges)])
    data.warnings += _other_patterns(path.parent)
    return data, vocabulary


def _ranks(path: Path) -> dict:
    ranks: dict = {}
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if not line.strip():
            continue
        try:
            text, rank = line.split()
            token = base64.b64decode(text, validate=True)
            ranks[token] = int(rank)
        except (ValueError, binascii.Error):
            raise ModelError(f"{path}: line {number}: found {shown(line)}, expected base64 and a rank") from None
    if sorted(ranks.values()) != list(range(len(ranks))) or not ranks:
        raise ModelError(f"{path}: ranks: expected each from 0 on once, and no token twice")
    return ranks


def _other_patterns(model_dir: Path) -> list:
    """A warning for code that lies beside the vocabulary and does not hold the pattern that is known."""
    codes = sorted(model_dir.glob("tokenization_*.py"))
    return [
        f"{code}: how it cuts texts is not how Kimi does, which is what holds here"
        for code in codes
        if not all(part in read_text(code) for part in PARTS)
    ]
