"""Normalisers of tokenizer.json, as the steps of docs/format.md ("normalizers")."""

import json
from pathlib import Path
from typing import Optional

from . import pattern as patterns
from .errors import ModelError

FORMS = {
    "NFC": "nfc", "NFD": "nfd", "NFKC": "nfkc", "NFKD": "nfkd", "Lowercase": "lowercase", "StripAccents": "strip_accents",
}  # fmt: skip


def sequence(part: Optional[dict], key: str) -> list:
    """A normalizer, pre-tokenizer, post-processor or decoder as the list of its steps; an empty sequence is none."""
    if part is None:
        return []
    if part.get("type") == "Sequence":
        return [step for child in part.get(key, []) for step in sequence(child, key)]
    return [part]


def refuse(path: Path, what: str, part: dict) -> ModelError:
    shown = json.dumps(part, ensure_ascii=False)
    return ModelError(f"{path}: {what} {shown[:200]} is not supported")


def regex(given: dict) -> Optional[str]:
    """{"Regex": …} or {"String": …} as PCRE2's; None for anything else."""
    if isinstance(given.get("Regex"), str) and given["Regex"]:
        return patterns.translate(given["Regex"])
    return patterns.literal(given["String"]) if isinstance(given.get("String"), str) and given["String"] else None


def read_step(part: dict, path: Path) -> dict:
    kind = part.get("type")
    if kind in FORMS:
        return {"type": FORMS[kind]}
    if kind == "Strip":
        return {"type": "strip", "left": part.get("strip_left") is True, "right": part.get("strip_right") is True}
    if kind == "Prepend" and isinstance(part.get("prepend"), str):
        return {"type": "prepend", "text": part["prepend"]}
    if kind == "Replace" and isinstance(part.get("content"), str):
        pattern = regex(part.get("pattern") or {})
        if pattern is not None:
            return {"type": "replace", "pattern": pattern, "text": part["content"]}
    raise refuse(path, "normalizer", part)
