"""Reads a SentencePiece model (tokenizer.model): a protocol buffer, of which a few fields are needed."""

import struct
from dataclasses import dataclass, field
from pathlib import Path

from .errors import ModelError

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
MODEL_TYPES = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}


@dataclass
class SentencePieceModel:
    pieces: list = field(default_factory=list)  # of (text, score, type)
    model_type: str = "unigram"
    byte_fallback: bool = False
    suffix_whitespace: bool = False
    normalizer: str = ""
    charsmap: bytes = b""
    add_dummy_prefix: bool = True
    remove_extra_whitespaces: bool = True
    escape_whitespaces: bool = True


def _varint(data: bytes, at: int) -> tuple:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
        if shift > 63:
            raise ValueError("a number does not end")


def _fields(data: bytes):
    """(field number, value) of one message: int for numbers, bytes for the rest."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(data, at)
        elif kind in (1, 2, 5):
            length, at = _varint(data, at) if kind == 2 else (8 if kind == 1 else 4, at)
            if length > len(data) - at:
                raise ValueError("a field reaches past the end")
            value, at = data[at : at + length], at + length
        else:
            raise ValueError(f"wire type {kind}")
        yield key >> 3, value


def _piece(data: bytes) -> tuple:
    text, score, kind = "", 0.0, NORMAL
    for number, value in _fields(data):
        if number == 1:
            text = value.decode("utf-8")
        elif number == 2:
            score = struct.unpack("<f", value)[0]
        elif number == 3:
            kind = value
    return text, score, kind


def _read(data: bytes) -> SentencePieceModel:
    model = SentencePieceModel()
    for number, value in _fields(data):
        if number == 1:
            model.pieces.append(_piece(value))
        elif number == 2:
            trainer = dict(_fields(value))
            model.model_type = MODEL_TYPES.get(trainer.get(3, 1), str(trainer.get(3)))
            model.byte_fallback = bool(trainer.get(35, 0))
            model.suffix_whitespace = bool(trainer.get(24, 0))
        elif number == 3:
            normalizer = dict(_fields(value))
            model.normalizer = normalizer.get(1, b"").decode("utf-8")
            model.charsmap = normalizer.get(2, b"")
            model.add_dummy_prefix = bool(normalizer.get(3, 1))
            model.remove_extra_whitespaces = bool(normalizer.get(4, 1))
            model.escape_whitespaces = bool(normalizer.get(5, 1))
    return model


def read(path: Path) -> SentencePieceModel:
    try:
        model = _read(path.read_bytes())
    except (ValueError, IndexError, struct.error, TypeError, AttributeError) as error:
        raise ModelError(f"{path}: not a SentencePiece model: {error}") from None
    if not model.pieces:
        raise ModelError(f"{path}: not a SentencePiece model: it has no pieces")
    return model
