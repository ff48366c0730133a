"""A tokenizer's pieces by id, as docs/format.md has them: bytes, kinds and flags."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from .errors import ModelError

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE, UNUSED = range(6)
FLAGS = {"lstrip": 1, "rstrip": 2, "single_word": 4, "normalized": 8}
MAX_PIECE = 1024  # bytes
MAX_PIECES = 1 << 22


@dataclass
class Vocabulary:
    """Ids that no token has stay b"" and UNUSED."""

    pieces: list = field(default_factory=list)
    kinds: list = field(default_factory=list)
    flags: list = field(default_factory=list)

    def add(self, token: int, piece: bytes, kind: int, flags: int = 0) -> None:
        if token >= len(self.pieces):
            more = token + 1 - len(self.pieces)
            self.pieces += [b""] * more
            self.kinds += [UNUSED] * more
            self.flags += [0] * more
        self.pieces[token], self.kinds[token], self.flags[token] = piece, kind, flags

    def add_spelled(self, entry: dict, path: Path, reached_by_merges: bool = False) -> None:
        """Adds an entry of added_tokens: a token that is found in the text before anything else happens to it."""
        token, content = entry.get("id"), entry.get("content")
        if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token < MAX_PIECES:
            raise ModelError(f"{path}: added token {content!r} has id {token!r}, expected 0 to {MAX_PIECES - 1}")
        if not isinstance(content, str) or not content:
            raise ModelError(f"{path}: added token {token} has content {content!r}, expected text")
        if reached_by_merges and entry.get("single_word"):
            raise ModelError(
                f"{path}: added token {content!r} is found as a single word only, and made by merging too, which is not"
                " supported; without single_word it converts"
            )
        flags = sum(bit for flag, bit in FLAGS.items() if entry.get(flag))
        if token < len(self.kinds) and self.kinds[token] == UNKNOWN:
            self.flags[token] = flags
        else:
            self.add(token, content.encode("utf-8"), CONTROL if entry.get("special") else USER_DEFINED, flags)

    def missing_bytes(self, kind: int) -> list:
        found = {piece[0] for piece, k in zip(self.pieces, self.kinds) if k == kind and len(piece) == 1}
        return sorted(set(range(256)) - found)

    def tensors(self, path: Path) -> list:
        """(name, array) of each; ModelError where two pieces cannot be told apart."""
        seen: dict = {}
        for token, (piece, kind) in enumerate(zip(self.pieces, self.kinds)):
            if len(piece) > MAX_PIECE:
                raise ModelError(f"{path}: token {token} has {len(piece)} bytes, at most {MAX_PIECE} are possible")
            if kind != UNUSED and not piece:
                raise ModelError(f"{path}: token {token} is empty")
            group = "text" if kind == NORMAL else "byte" if kind == BYTE else "special"
            if kind != UNUSED and seen.setdefault((group, piece), token) != token:
                raise ModelError(f"{path}: tokens {seen[group, piece]} and {token} have the same bytes {piece!r}")
        offsets = np.zeros(len(self.pieces) + 1, np.uint32)
        np.cumsum([len(piece) for piece in self.pieces], out=offsets[1:])
        tensors = [
            ("tokenizer.bytes", np.frombuffer(b"".join(self.pieces), np.uint8)),
            ("tokenizer.offsets", offsets),
            ("tokenizer.kinds", np.array(self.kinds, np.uint8)),
        ]
        if any(self.flags):
            tensors.append(("tokenizer.flags", np.array(self.flags, np.uint8)))
        return tensors
