"""Unigram of tokenizer.json, as XLM-R has it, in the form of docs/format.md ("tokenizer")."""

import base64
import binascii
from pathlib import Path

import numpy as np

from .errors import ModelError
from .normalizer import read_step, refuse, sequence
from .vocabulary import MAX_PIECES, NORMAL, UNKNOWN, UNUSED, Vocabulary

SPACE = "\u2581"


def read_unigram(root: dict, path: Path) -> tuple:
    """(facts, vocabulary, scores)."""
    model = root["model"]
    vocab, unknown = model.get("vocab"), model.get("unk_id")
    if not isinstance(vocab, list) or not isinstance(unknown, int) or not 0 <= unknown < len(vocab) <= MAX_PIECES:
        raise ModelError(f"{path}: model.vocab: expected a list of pieces with scores, and unk_id among them")
    if model.get("byte_fallback"):
        raise ModelError(f"{path}: model option byte_fallback = true is not supported with Unigram")
    vocabulary = Vocabulary()
    for token, (piece, _) in enumerate(vocab):
        # A piece with a real space can never be found: spaces are written otherwise by then.
        kind = UNKNOWN if token == unknown else UNUSED if " " in piece or not piece else NORMAL
        vocabulary.add(token, piece.replace(SPACE, " ").encode("utf-8"), kind)
    for entry in root.get("added_tokens") or []:
        vocabulary.add_spelled(entry, path)
    scores = np.zeros(len(vocabulary.pieces), np.float32)
    scores[: len(vocab)] = [score for _, score in vocab]
    if not np.isfinite(scores).all():
        raise ModelError(f"{path}: piece {int(np.argmin(np.isfinite(scores)))} has a score that is not a number")
    steps = [_step(part, path) for part in sequence(root.get("normalizer"), "normalizers")]
    facts = {"type": "spm", "merge": "unigram", "unknown": unknown, **_words(root, steps, path)}
    return ({**facts, "normalizers": steps} if steps else facts), vocabulary, scores


def _words(root: dict, steps: list, path: Path) -> dict:
    stages = sequence(root.get("pre_tokenizer"), "pretokenizers")
    if stages and stages[0].get("type") == "WhitespaceSplit":  # blanks at either end are dropped, too
        steps += [{"type": "strip", "left": True, "right": True}, {"type": "replace", "pattern": r"\s+", "text": " "}]
        stages = stages[1:]
    if len(stages) != 1 or stages[0].get("type") != "Metaspace" or stages[0].get("replacement") != SPACE:
        raise refuse(path, "pre-tokenizer", root.get("pre_tokenizer") or {})
    stage = stages[0]
    scheme = stage.get("prepend_scheme", "always" if stage.get("add_prefix_space", True) else "never")
    if scheme not in ("always", "first", "never"):
        raise refuse(path, "pre-tokenizer", stage)
    return {
        "prefix_space": {"always": "segments"}.get(scheme, scheme),
        "prefix_if_missing": scheme != "never",
        "split_words": bool(stage.get("split", True)),
    }


def _step(part: dict, path: Path) -> dict:
    if part.get("type") != "Precompiled":
        return read_step(part, path)
    try:
        blob = base64.b64decode(part.get("precompiled_charsmap") or "", validate=True)
        pairs = read_charsmap(blob)
    except (binascii.Error, IndexError, UnicodeDecodeError, ValueError) as error:
        raise ModelError(f"{path}: normalizer Precompiled: not of the form that is expected: {error}") from None
    return {"type": "map", "pairs": [text for pair in pairs for text in pair]}


def read_charsmap(blob: bytes) -> list:
    """(characters, what they become) each, of SentencePiece's compiled table: a double-array trie (as darts-clone
    stores it), then the strings that its values point into."""
    size = int.from_bytes(blob[:4], "little")
    units, strings = np.frombuffer(blob[4 : 4 + size], "<u4"), blob[4 + size :]
    if len(blob) < 4 + size or not len(units):
        raise ValueError("it ends too early")
    labels, letters, found = units & np.uint32(0x800000FF), np.arange(1, 256), []

    def offset(unit: int) -> int:
        return (unit >> 10) << ((unit & 0x200) >> 6)

    nodes = [(b"", offset(int(units[0])))]
    while nodes:
        before, at = nodes.pop()
        if len(before) > 64:
            raise ValueError("an entry does not end")
        places = at ^ letters
        inside = places < len(units)
        for letter in letters[inside][labels[places[inside]] == letters[inside]]:
            unit = int(units[at ^ int(letter)])
            text, below = before + bytes([letter]), at ^ int(letter) ^ offset(unit)
            if unit & 0x100:
                start = int(units[below]) & 0x7FFFFFFF
                found.append((text.decode("utf-8"), strings[start : strings.index(b"\0", start)].decode("utf-8")))
            nodes.append((text, below))
    return sorted(found)
