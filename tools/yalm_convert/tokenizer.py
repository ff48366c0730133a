"""The tokenizer of a Hugging Face directory, in the form of docs/format.md ("tokenizer").

tokenizer.json is what the `tokenizers` library reads, so it comes first; tokenizer.model is SentencePiece's own. What is
not understood is refused by name: a tokenizer that is nearly right gives a model that is quietly wrong.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

import numpy as np

from . import pattern as patterns
from . import sentencepiece_model
from .errors import ModelError
from .source import read_json, read_text

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE, UNUSED = range(6)
MAX_PIECE = 1024  # bytes
SPACE = "\u2581"  # stands for a space in SentencePiece's vocabularies


@dataclass
class TokenizerData:
    facts: dict
    tensors: list = field(default_factory=list)  # of (name, array)
    chat_template: Optional[str] = None
    bos: Optional[int] = None
    eos: list = field(default_factory=list)
    warnings: list = field(default_factory=list)


@dataclass
class Vocabulary:
    """Pieces by id. Ids that no token has stay b"" and UNUSED."""

    pieces: list
    kinds: list

    def add(self, token: int, piece: bytes, kind: int) -> None:
        if token >= len(self.pieces):
            more = token + 1 - len(self.pieces)
            self.pieces += [b""] * more
            self.kinds += [UNUSED] * more
        self.pieces[token], self.kinds[token] = piece, kind


def read_tokenizer(model_dir: Path, config: dict) -> TokenizerData:
    model_dir = Path(model_dir)
    settings = read_json(model_dir / "tokenizer_config.json") if (model_dir / "tokenizer_config.json").exists() else {}
    limit = config.get("vocab_size")
    limit = limit if isinstance(limit, int) and limit > 0 else 1 << 24
    path = next((p for p in (model_dir / "tokenizer.json", model_dir / "tokenizer.model") if p.exists()), None)
    if path is None:
        return TokenizerData({"type": "none"}, chat_template=_chat_template(model_dir, settings))
    try:
        data, vocabulary = (_from_json if path.suffix == ".json" else _from_sentencepiece)(path, settings, limit)
    except (AttributeError, KeyError, TypeError, ValueError) as error:  # a list where an object should be, and the like
        raise ModelError(f"{path}: not of the form that is expected: {type(error).__name__}: {error}") from None
    _store_pieces(data, vocabulary, path)
    data.chat_template = _chat_template(model_dir, settings)
    data.bos = _special_id(settings, "bos_token", vocabulary, data.warnings) if data.bos is None else data.bos
    eos = _special_id(settings, "eos_token", vocabulary, data.warnings)
    data.eos = [] if eos is None else [eos]
    if data.facts["add_bos"] and data.bos is None:
        raise ModelError(f"{path}: the tokenizer puts bos before a text, but names no bos token")
    if data.bos is not None and not data.facts["add_bos"]:
        data.warnings.append(f"{path}: the tokenizer has a bos token but does not put it before a text")
    return data


# ------------------------------------------------------------------------------------ common parts


def _chat_template(model_dir: Path, settings: dict) -> Optional[str]:
    file = model_dir / "chat_template.jinja"
    if file.exists():
        return read_text(file)
    template = settings.get("chat_template")
    if isinstance(template, list):  # several, by name
        named = {t.get("name"): t.get("template") for t in template if isinstance(t, dict)}
        template = named.get("default")
    return template if isinstance(template, str) else None


def _special_id(settings: dict, key: str, vocabulary: Vocabulary, warnings: list) -> Optional[int]:
    value = settings.get(key)
    value = value.get("content") if isinstance(value, dict) else value
    if not isinstance(value, str):
        return None
    wanted = value.encode("utf-8")
    for token, (piece, kind) in enumerate(zip(vocabulary.pieces, vocabulary.kinds)):
        if piece == wanted and kind in (CONTROL, UNKNOWN, USER_DEFINED):
            return token
    warnings.append(f"tokenizer_config.json: {key} {value!r} is not among the special tokens")
    return None


def _store_pieces(data: TokenizerData, vocabulary: Vocabulary, path: Path) -> None:
    seen = {}
    for token, (piece, kind) in enumerate(zip(vocabulary.pieces, vocabulary.kinds)):
        if len(piece) > MAX_PIECE:
            raise ModelError(f"{path}: token {token} has {len(piece)} bytes, at most {MAX_PIECE} are possible")
        if kind != UNUSED and not piece:
            raise ModelError(f"{path}: token {token} is empty")
        group = "text" if kind == NORMAL else "byte" if kind == BYTE else "special"
        if kind != UNUSED and seen.setdefault((group, piece), token) != token:
            raise ModelError(f"{path}: tokens {seen[group, piece]} and {token} have the same bytes {piece!r}")
    blob = b"".join(vocabulary.pieces)
    offsets = np.zeros(len(vocabulary.pieces) + 1, np.uint32)
    np.cumsum([len(piece) for piece in vocabulary.pieces], out=offsets[1:])
    data.facts["n_pieces"] = len(vocabulary.pieces)
    data.tensors[:0] = [
        ("tokenizer.bytes", np.frombuffer(blob, np.uint8)),
        ("tokenizer.offsets", offsets),
        ("tokenizer.kinds", np.array(vocabulary.kinds, np.uint8)),
    ]


def _check_bytes(vocabulary: Vocabulary, kind: int, path: Path) -> None:
    """Without a token for each byte some texts would be lost."""
    found = {piece[0] for piece, k in zip(vocabulary.pieces, vocabulary.kinds) if k == kind and len(piece) == 1}
    if len(found) != 256:
        missing = min(set(range(256)) - found)
        raise ModelError(f"{path}: the vocabulary has no token for byte 0x{missing:02X}; all 256 are needed")


def _add_token(vocabulary: Vocabulary, entry: dict, path: Path, limit: int) -> None:
    """A token that is found in the text before anything else happens to it."""
    token, content = entry.get("id"), entry.get("content")
    if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token < limit:
        raise ModelError(f"{path}: added token {content!r} has id {token!r}, expected 0 to {limit - 1}")
    if not isinstance(content, str) or not content:
        raise ModelError(f"{path}: added token {token} has content {content!r}, expected text")
    for flag in ("lstrip", "rstrip", "single_word"):
        if entry.get(flag):
            raise ModelError(f"{path}: added token {content!r} has {flag}, which is not supported")
    if token < len(vocabulary.kinds) and vocabulary.kinds[token] == UNKNOWN:
        return
    vocabulary.add(token, content.encode("utf-8"), CONTROL if entry.get("special") else USER_DEFINED)


def _adds_bos(settings: dict, otherwise: bool) -> bool:
    value = settings.get("add_bos_token")
    return value if isinstance(value, bool) else otherwise


# ------------------------------------------------------------------------------------ tokenizer.json


def _from_json(path: Path, settings: dict, limit: int) -> tuple:
    root = read_json(path)
    model = root.get("model")
    if not isinstance(model, dict) or model.get("type", "BPE") != "BPE" or "merges" not in model:
        kind = model.get("type") if isinstance(model, dict) else model
        raise ModelError(f"{path}: model type {kind!r} is not supported, expected 'BPE'")
    for option in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(option):
            raise ModelError(f"{path}: model option {option} = {model[option]!r} is not supported")
    data = TokenizerData({})
    for option in ("truncation", "padding"):
        if root.get(option):
            data.warnings.append(f"{path}: {option} is ignored")

    stages = _sequence(root.get("pre_tokenizer"), "pretokenizers")
    byte_level = any(stage.get("type") == "ByteLevel" for stage in stages)
    read = _byte_level_facts if byte_level else _sentencepiece_facts
    data.facts = read(root, stages, path)
    vocabulary = _vocabulary(model, byte_level, path, limit)
    text_ids = _mark_added(root, model, vocabulary, path, limit)
    _check_bytes(vocabulary, NORMAL if byte_level else BYTE, path)
    data.facts["ignore_merges"] = bool(model.get("ignore_merges"))
    data.facts["add_bos"], data.bos = _template(root.get("post_processor"), settings, path, data.warnings)
    data.tensors.append(("tokenizer.merges", _merges(model, text_ids, path)))
    return data, vocabulary


def _sequence(part: Optional[dict], key: str) -> list:
    """A normalizer, pre-tokenizer or decoder as the list of its steps."""
    if part is None:
        return []
    if part.get("type") == "Sequence":
        return [step for child in part.get(key, []) for step in _sequence(child, key)]
    return [part]


def _refuse(path: Path, what: str, part: dict) -> ModelError:
    shown = json.dumps(part, ensure_ascii=False)
    return ModelError(f"{path}: {what} {shown[:200]} is not supported")


def _byte_level_facts(root: dict, stages: list, path: Path) -> dict:
    for part in _sequence(root.get("normalizer"), "normalizers"):
        raise _refuse(path, "normalizer", part)
    for part in _sequence(root.get("decoder"), "decoders") or [{}]:
        if part.get("type") != "ByteLevel":
            raise _refuse(path, "decoder", part)
    found = []
    for i, stage in enumerate(stages):
        kind = stage.get("type")
        if kind == "Split":
            regex = stage.get("pattern", {}).get("Regex")
            if not isinstance(regex, str) or stage.get("behavior") != "Isolated" or stage.get("invert"):
                raise _refuse(path, "pre-tokenizer", stage)
            found.append(regex)
        elif kind == "Digits":
            found.append(r"\p{N}" if stage.get("individual_digits") else r"\p{N}+")
        elif kind == "ByteLevel" and i == len(stages) - 1 and not stage.get("add_prefix_space", True):
            if stage.get("use_regex", True):
                found.append(patterns.GPT2)
        else:
            raise _refuse(path, "pre-tokenizer", stage)
    return {"type": "bpe", "patterns": [patterns.translate(p) for p in found]}


def _sentencepiece_facts(root: dict, stages: list, path: Path) -> dict:
    facts = {"type": "spm", "merge": "rank", "prefix_space": "never", "prefix_if_missing": False, "split_words": False}
    escapes = False
    for part in _sequence(root.get("normalizer"), "normalizers"):
        kind = part.get("type")
        if kind == "Prepend" and part.get("prepend") == SPACE and not escapes:
            facts["prefix_space"] = "segments"
        elif kind == "Replace" and part.get("pattern") == {"String": " "} and part.get("content") == SPACE:
            escapes = True
        else:
            raise _refuse(path, "normalizer", part)
    for stage in stages:
        if stage.get("type") != "Metaspace" or stage.get("replacement") != SPACE or len(stages) != 1:
            raise _refuse(path, "pre-tokenizer", stage)
        scheme = stage.get("prepend_scheme", "always" if stage.get("add_prefix_space", True) else "never")
        if scheme not in ("always", "first", "never") or escapes or facts["prefix_space"] != "never":
            raise _refuse(path, "pre-tokenizer", stage)
        facts["prefix_space"] = {"always": "segments"}.get(scheme, scheme)
        facts["prefix_if_missing"] = scheme != "never"
        facts["split_words"] = bool(stage.get("split", True))
        escapes = True
    if not escapes:
        raise ModelError(f"{path}: the tokenizer neither is byte-level nor writes spaces as {SPACE!r}: not supported")
    model = root["model"]
    if not model.get("byte_fallback"):
        raise ModelError(
            f"{path}: model option byte_fallback = false is not supported without a ByteLevel pre-tokenizer"
        )
    _check_decoder(root, facts, path)
    return facts


def _check_decoder(root: dict, facts: dict, path: Path) -> None:
    """Decoding undoes encoding; a decoder that does something else is refused."""
    for part in _sequence(root.get("decoder"), "decoders"):
        kind = part.get("type")
        known = (
            kind in ("ByteFallback", "Fuse")
            or (kind == "Replace" and part.get("pattern") == {"String": SPACE} and part.get("content") == " ")
            or (kind == "Strip" and part.get("content") == " " and part.get("start") in (0, 1) and not part.get("stop"))
            or (kind == "Metaspace" and part.get("replacement") == SPACE)
        )
        if not known:
            raise _refuse(path, "decoder", part)


def _byte_alphabet() -> dict:
    """Byte-level vocabularies write each byte as a visible character; this is the way back."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [b for b in range(256) if b not in visible]
    return {**{chr(b): b for b in visible}, **{chr(256 + i): b for i, b in enumerate(hidden)}}


def _byte_token(piece: str) -> Optional[int]:
    """The byte that a piece "<0x0A>" stands for."""
    hexadecimal = piece[3:5] if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">") else ""
    return int(hexadecimal, 16) if hexadecimal and all(c in "0123456789ABCDEF" for c in hexadecimal) else None


def _vocabulary(model: dict, byte_level: bool, path: Path, limit: int) -> Vocabulary:
    vocab = model.get("vocab")
    if not isinstance(vocab, dict) or not vocab:
        raise ModelError(f"{path}: model.vocab: expected an object with pieces")
    vocabulary = Vocabulary([], [])
    alphabet = _byte_alphabet()
    unknown = model.get("unk_token")
    for piece, token in vocab.items():
        if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token < limit:
            raise ModelError(f"{path}: piece {piece!r} has id {token!r}, expected 0 to {limit - 1} (vocab_size - 1)")
        if token < len(vocabulary.kinds) and vocabulary.kinds[token] != UNUSED:
            raise ModelError(f"{path}: two pieces have id {token}; one is {piece!r}")
        byte = None if byte_level else _byte_token(piece)
        if piece == unknown:
            vocabulary.add(token, piece.encode("utf-8"), UNKNOWN)
        elif byte is not None:
            vocabulary.add(token, bytes([byte]), BYTE)
        elif not byte_level:
            # A piece with a real space can never be found: spaces are written otherwise by then.
            vocabulary.add(token, piece.replace(SPACE, " ").encode("utf-8"), UNUSED if " " in piece else NORMAL)
        elif all(c in alphabet for c in piece):
            vocabulary.add(token, bytes(alphabet[c] for c in piece), NORMAL)
        else:  # found in no text, since bytes never look like this; an added token may give it its meaning
            vocabulary.add(token, piece.encode("utf-8"), UNUSED)
    return vocabulary


def _mark_added(root: dict, model: dict, vocabulary: Vocabulary, path: Path, limit: int) -> dict:
    """Applies added_tokens. Returns piece -> id of what merging can reach."""
    vocab, added = model["vocab"], root.get("added_tokens") or []
    normalized = {bool(entry.get("normalized")) for entry in added}
    if len(normalized) > 1 or (True in normalized and root.get("normalizer")):
        shown = next(entry.get("content") for entry in added if entry.get("normalized"))
        raise ModelError(f"{path}: added token {shown!r} is matched after normalization, which is not supported")
    owners = {}
    for entry in added:
        content, token = entry.get("content"), entry.get("id")
        if vocab.get(content, token) != token:
            raise ModelError(f"{path}: added token {content!r} has id {token}, in the vocabulary {vocab[content]}")
        inside = isinstance(token, int) and 0 <= token < len(vocabulary.kinds)
        if content not in vocab and inside and (vocabulary.kinds[token] != UNUSED or token in owners):
            raise ModelError(f"{path}: added token {content!r} has id {token}, which another piece has")
        owners[token] = content
        _add_token(vocabulary, entry, path, limit)
    return {piece: token for piece, token in vocab.items() if vocabulary.kinds[token] == NORMAL}


def _merges(model: dict, text_ids: dict, path: Path) -> np.ndarray:
    """(n, 2) ids, best first. Merges of special tokens are left out: text never becomes one."""
    vocab, ranks = model["vocab"], {}
    for rank, merge in enumerate(model["merges"]):
        pair = merge.split(" ") if isinstance(merge, str) else merge
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(p, str) and p for p in pair):
            raise ModelError(f"{path}: merge {rank} is {merge!r}, expected two pieces")
        for piece in (*pair, "".join(pair)):
            if piece not in vocab:
                raise ModelError(f"{path}: merge {rank} ({merge!r}) names {piece!r}, which is not in the vocabulary")
        if all(piece in text_ids for piece in (*pair, "".join(pair))):
            ranks[text_ids[pair[0]], text_ids[pair[1]]] = rank  # the last of equals counts, as in `tokenizers`
    if not ranks:
        raise ModelError(f"{path}: the tokenizer has no merges")
    ordered = sorted(ranks, key=ranks.get)
    return np.array(ordered, np.uint32)


def _template(processor: Optional[dict], settings: dict, path: Path, warnings: list) -> tuple:
    """(does the post-processor put bos before a text, its id)."""
    adds, bos = False, None
    for part in _sequence(processor, "processors"):
        if part.get("type") == "ByteLevel":
            continue
        if part.get("type") != "TemplateProcessing":
            raise _refuse(path, "post-processor", part)
        single = part.get("single", [])
        names = [next(iter(step.values()), {}).get("id") if "SpecialToken" in step else None for step in single]
        if None not in names or names.index(None) > 1 or names.count(None) != 1:
            raise _refuse(path, "post-processor", part)
        if names[-1] is not None:
            warnings.append(f"{path}: the tokenizer puts {names[-1]!r} after a text; here it is left out")
        if names[0] is not None:
            ids = part.get("special_tokens", {}).get(names[0], {}).get("ids", [])
            if len(ids) != 1 or not isinstance(ids[0], int):
                raise _refuse(path, "post-processor", part)
            adds, bos = True, ids[0]
    return _adds_bos(settings, adds), bos


# ------------------------------------------------------------------------------------ tokenizer.model


def _from_sentencepiece(path: Path, settings: dict, limit: int) -> tuple:
    model = sentencepiece_model.read(path)
    expected = {
        "model_type": "bpe",
        "byte_fallback": True,
        "suffix_whitespace": False,
        "charsmap": b"",
        "remove_extra_whitespaces": False,
        "escape_whitespaces": True,
    }
    for option, value in expected.items():
        found = getattr(model, option)
        if found != value:
            shown = f"normalizer {model.normalizer!r}" if option == "charsmap" else f"{option} = {found!r}"
            raise ModelError(f"{path}: {shown} is not supported")
    if len(model.pieces) > limit:
        raise ModelError(f"{path}: {len(model.pieces)} pieces, but vocab_size is {limit}")
    vocabulary = Vocabulary([], [])
    kinds = {
        sentencepiece_model.NORMAL: NORMAL,
        sentencepiece_model.UNKNOWN: UNKNOWN,
        sentencepiece_model.CONTROL: CONTROL,
        sentencepiece_model.BYTE: BYTE,
    }
    for token, (text, _, kind) in enumerate(model.pieces):
        if kind not in kinds:
            raise ModelError(f"{path}: piece {token} ({text!r}) is user-defined or unused, which is not supported")
        byte = _byte_token(text)
        if kind == sentencepiece_model.BYTE and byte is None:
            raise ModelError(f"{path}: piece {token} is {text!r}, expected a byte such as <0x0A>")
        if kind == sentencepiece_model.NORMAL:
            vocabulary.add(token, text.replace(SPACE, " ").encode("utf-8"), NORMAL)
        else:
            vocabulary.add(
                token, bytes([byte]) if kind == sentencepiece_model.BYTE else text.encode("utf-8"), kinds[kind]
            )
    _check_bytes(vocabulary, BYTE, path)
    _add_from_settings(vocabulary, settings, path, limit)

    scores = np.zeros(len(vocabulary.pieces), np.float32)
    scores[: len(model.pieces)] = [score for _, score, _ in model.pieces]
    if not np.isfinite(scores).all():
        raise ModelError(f"{path}: piece {int(np.argmin(np.isfinite(scores)))} has a score that is not a number")
    facts = {
        "type": "spm",
        "merge": "score",
        "prefix_space": "segments" if model.add_dummy_prefix else "never",
        "prefix_if_missing": False,
        "split_words": False,
        "ignore_merges": False,
        "add_bos": _adds_bos(settings, True),
    }
    data = TokenizerData(facts, [("tokenizer.scores", scores)])
    if settings.get("bos_token") is None and b"<s>" in vocabulary.pieces:
        data.bos = vocabulary.pieces.index(b"<s>")
    return data, vocabulary


def _add_from_settings(vocabulary: Vocabulary, settings: dict, path: Path, limit: int) -> None:
    """Tokens beyond tokenizer.model stand in tokenizer_config.json, or, of old, in added_tokens.json."""
    entries = settings.get("added_tokens_decoder") or {}
    known = len(vocabulary.pieces)
    for token, entry in sorted(entries.items(), key=lambda item: int(item[0]) if item[0].isdigit() else -1):
        token = int(token) if token.isdigit() else -1
        if token < known and token >= 0 and vocabulary.pieces[token] == str(entry.get("content")).encode("utf-8"):
            continue
        if 0 <= token < known:
            raise ModelError(
                f"{path}: token {token} is {vocabulary.pieces[token]!r}, but {entry.get('content')!r} in "
                "tokenizer_config.json"
            )
        _add_token(vocabulary, {**entry, "id": token}, path.parent / "tokenizer_config.json", limit)
    extra = path.parent / "added_tokens.json"
    for content, token in (read_json(extra) if extra.exists() else {}).items():
        inside = isinstance(token, int) and 0 <= token < len(vocabulary.pieces)
        if not inside or vocabulary.pieces[token] != content.encode("utf-8"):
            raise ModelError(f"{extra}: token {content!r} is not in tokenizer.model nor in tokenizer_config.json")
