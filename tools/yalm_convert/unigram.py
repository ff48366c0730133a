"""Unigram of tokenizer.json, as XLM-R has it, in the form of docs/format.md ("tokenizer")."""

import base64
import binascii
from pathlib import Path

import numpy as np

from .errors import ModelError
from .normalizer import read_step, refuse, sequence
from .vocabulary import MAX_PIECES, NORMAL, UNKNOWN, UNUSED, Vocabulary

SPACE = "\u2581"
LONGEST = 64  # bytes of what a table of characters finds
MOST_READ = 1 << 22  # nodes and bytes of a table of characters; nmt_nfkc's has 0.9 million


def read_unigram(root: dict, path: Path) -> tuple:
    """(facts, vocabulary, scores)."""
    model = root["model"]
    vocab, unknown = model.get("vocab"), model.get("unk_id")
    if not isinstance(vocab, list) or type(unknown) is not int or not 0 <= unknown < len(vocab) <= MAX_PIECES:
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
    stores it), then the strings that its values point into. Nodes may share what is below them, as in nmt_nfkc's table
    they do: what a stranger's table makes of that is bounded. ValueError, IndexError: it is none."""
    size = int.from_bytes(blob[:4], "little")
    if size % 4 or not 4 <= size <= len(blob) - 4:
        raise ValueError("it ends too early")
    units, strings = np.frombuffer(blob[4 : 4 + size], "<u4"), blob[4 + size :]
    labels, letters, children = units & np.uint32(0x800000FF), np.arange(1, 256), {}

    def offset(unit: int) -> int:
        return (unit >> 10) << ((unit & 0x200) >> 6)

    def children_at(at: int) -> list:
        """(letter, its children's place, where its string begins or None) each."""
        places = at ^ letters
        inside = np.flatnonzero(places < len(units))
        mine = letters[inside[labels[places[inside]] == letters[inside]]].tolist()
        below = [at ^ letter ^ offset(int(units[at ^ letter])) for letter in mine]
        ends = [bool(units[at ^ letter] & 0x100) for letter in mine]
        return [(bytes([a]), to, int(units[to]) & 0x7FFFFFFF if end else None) for a, to, end in zip(mine, below, ends)]

    nodes, found, read = [(b"", offset(int(units[0])))], [], 0
    while nodes:
        before, at = nodes.pop()
        if at not in children:
            children[at] = children_at(at)
        for letter, below, start in children[at]:
            if start is not None:
                becomes = strings[start : strings.index(b"\0", start)]
                found.append(((before + letter).decode("utf-8"), becomes.decode("utf-8")))
                read += len(becomes)
            nodes.append((before + letter, below))
            read += 1
            if len(before) >= LONGEST or read > MOST_READ:
                raise ValueError("a trie that does not end")
    return sorted(found)
