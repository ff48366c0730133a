"""tokenizer.json, which is the `tokenizers` library's, in the form of docs/format.md ("tokenizer")."""

import codecs
import itertools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

import numpy as np

from . import pattern as patterns
from .errors import ModelError
from .normalizer import read_step, refuse, regex, sequence
from .source import read_json, shown
from .unigram import read_unigram
from .vocabulary import BYTE, MAX_PIECES, NORMAL, UNKNOWN, UNUSED, Vocabulary
from .wordpiece import read_wordpiece

SPACE = "\u2581"  # stands for a space in SentencePiece's vocabularies


@dataclass
class TokenizerData:
    facts: dict
    tensors: list = field(default_factory=list)  # of (name, array)
    chat_template: Optional[str] = None
    chat: Optional[dict] = None  # its syntax tree (chat_template.py)
    bos: Optional[int] = None
    eos: list = field(default_factory=list)
    end: Optional[int] = None  # what the post-processor puts behind a text: for vectors of texts alone
    between: list = field(default_factory=list)  # and between two
    warnings: list = field(default_factory=list)


def add_chat(data: TokenizerData, templates: dict, settings: dict, where: object) -> None:
    """The text and the tree of a model's template; `settings` names bos_token and its kin."""
    templates = {name: text for name, text in templates.items() if isinstance(text, str)}
    if "default" not in templates:
        return
    from .chat_template import read_chat  # with it jinja2, which only templates need

    data.chat_template = templates["default"]
    data.chat = read_chat(templates, settings)
    if "refused" in data.chat:
        data.warnings.append(
            f"{where}: chat template: {data.chat['refused']}: the model can complete text, but -m chat will refuse it"
        )


def from_json(path: Path, settings: dict) -> tuple:
    return from_root(read_json(path), settings, path)


def from_root(root: dict, settings: dict, path: Path) -> tuple:
    """(the tokenizer's data, its vocabulary), of what tokenizer.json has; `path` is where it stands."""
    model = root.get("model")
    if isinstance(model, dict) and (model.get("type") == "WordPiece" or "max_input_chars_per_word" in model):
        return _encoder(root, *read_wordpiece(root, path), None, path)
    if isinstance(model, dict) and (model.get("type") == "Unigram" or isinstance(model.get("vocab"), list)):
        return _encoder(root, *read_unigram(root, path), path)
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

    stages = sequence(root.get("pre_tokenizer"), "pretokenizers")
    byte_level = any(stage.get("type") == "ByteLevel" for stage in stages)
    read = _byte_level_facts if byte_level else _sentencepiece_facts
    data.facts = read(root, stages, path)
    vocabulary = _vocabulary(model, byte_level, path)
    text_ids = _mark_added(root, model, vocabulary, path)
    if byte_level:
        _note_missing_bytes(data, model, vocabulary, path)
    else:
        refuse_missing_bytes(vocabulary, path)
    data.facts["ignore_merges"] = bool(model.get("ignore_merges"))
    data.facts["add_bos"], data.bos, data.end = _template(root.get("post_processor"), path, data.warnings)
    data.between = _between(root.get("post_processor"))
    _check_ends(data, vocabulary, path)
    _compare_settings(data, settings, path)
    data.tensors.append(("tokenizer.merges", _merges(model, text_ids, path)))
    return data, vocabulary


def _encoder(root: dict, facts: dict, vocabulary: Vocabulary, scores: Optional[np.ndarray], path: Path) -> tuple:
    data = TokenizerData({**facts, "ignore_merges": False})
    if scores is not None:
        data.tensors.append(("tokenizer.scores", scores))
    data.facts["add_bos"], data.bos, data.end, data.between = _ends(root.get("post_processor"), path)
    _check_ends(data, vocabulary, path)
    return data, vocabulary


def _check_ends(data: TokenizerData, vocabulary: Vocabulary, path: Path) -> None:
    n = len(vocabulary.pieces)
    for token in (data.bos, data.end, *data.between):
        if token is not None and (type(token) is not int or not 0 <= token < n):
            raise ModelError(f"{path}: post-processor: found token {shown(token)}, expected an id from 0 to {n - 1}")


def _ends(processor: Optional[dict], path: Path) -> tuple:
    """(does the post-processor put bos before a text, its id, the id of what it puts behind one, ids between two)."""
    kind = (processor or {}).get("type")
    if kind in ("BertProcessing", "RobertaProcessing"):
        bos, end = processor["cls"][1], processor["sep"][1]
        return True, bos, end, [end] * (1 + (kind == "RobertaProcessing"))
    return (*_template(processor, path, []), _between(processor))


def _between(processor: Optional[dict]) -> list:
    """The ids that the post-processor puts between two texts."""
    templates = [part for part in sequence(processor, "processors") if part.get("type") == "TemplateProcessing"]
    template = templates[0] if templates else {}
    names = [
        next(iter(step.values()), {}).get("id") if "SpecialToken" in step else None
        for step in template.get("pair") or []
    ]
    at = [i for i, name in enumerate(names) if name is None]
    ids = {name: of.get("ids", []) for name, of in template.get("special_tokens", {}).items()}
    return [token for name in names[at[0] + 1 : at[1]] for token in ids.get(name, [])] if len(at) == 2 else []


def _byte_level_facts(root: dict, stages: list, path: Path) -> dict:
    for part in sequence(root.get("decoder"), "decoders") or [{}]:
        if part.get("type") != "ByteLevel":
            raise refuse(path, "decoder", part)
    found = []
    for i, stage in enumerate(stages):
        kind = stage.get("type")
        if kind == "Split":
            found.append(_split(stage, path))
        elif kind == "Digits":
            found.append(patterns.translate(r"\p{N}" if stage.get("individual_digits") else r"\p{N}+"))
        elif kind == "ByteLevel" and i == len(stages) - 1 and not stage.get("add_prefix_space", True):
            if stage.get("use_regex", True):
                found.append(patterns.translate(patterns.GPT2))
        else:
            raise refuse(path, "pre-tokenizer", stage)
    facts = {"type": "bpe", "patterns": found}
    steps = [read_step(part, path) for part in sequence(root.get("normalizer"), "normalizers")]
    return {**facts, "normalizers": steps} if steps else facts


def _split(stage: dict, path: Path) -> object:
    """A pattern; {"matches": pattern} where what lies between its matches is thrown away."""
    pattern = regex(stage.get("pattern") or {})
    behavior, inverted = stage.get("behavior"), bool(stage.get("invert"))
    if pattern is not None and behavior == "Isolated":  # whichever of the two is called a match
        return pattern
    if pattern is not None and behavior == "Removed" and inverted:
        return {"matches": pattern}
    raise refuse(path, "pre-tokenizer", stage)


def _sentencepiece_facts(root: dict, stages: list, path: Path) -> dict:
    facts = {"type": "spm", "merge": "rank", "prefix_space": "never", "prefix_if_missing": False, "split_words": False}
    escapes, steps = False, []
    for part in sequence(root.get("normalizer"), "normalizers"):
        kind = part.get("type")
        if kind == "Prepend" and part.get("prepend") == SPACE and not escapes:
            facts["prefix_space"] = "segments"
        elif kind == "Replace" and part.get("pattern") == {"String": " "} and part.get("content") == SPACE:
            escapes = True
        elif escapes or facts["prefix_space"] != "never":  # here spaces are still spaces when the other steps see them
            raise refuse(path, "normalizer", part)
        else:
            steps.append(read_step(part, path))
    if steps:
        facts["normalizers"] = steps
    for stage in stages:
        if escapes and stage.get("type") == "Split" and stage.get("pattern") == {"String": " "}:
            continue  # Gemma's: there are no spaces left to split at
        if stage.get("type") != "Metaspace" or stage.get("replacement") != SPACE or len(stages) != 1:
            raise refuse(path, "pre-tokenizer", stage)
        scheme = stage.get("prepend_scheme", "always" if stage.get("add_prefix_space", True) else "never")
        if scheme not in ("always", "first", "never") or escapes or facts["prefix_space"] != "never":
            raise refuse(path, "pre-tokenizer", stage)
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
    for part in sequence(root.get("decoder"), "decoders"):
        kind = part.get("type")
        known = (
            kind in ("ByteFallback", "Fuse")
            or (kind == "Replace" and part.get("pattern") == {"String": SPACE} and part.get("content") == " ")
            or (kind == "Strip" and part.get("content") == " " and part.get("start") in (0, 1) and not part.get("stop"))
            or (kind == "Metaspace" and part.get("replacement") == SPACE)
        )
        if not known:
            raise refuse(path, "decoder", part)


def _byte_alphabet() -> dict:
    """Byte-level vocabularies write each byte as a visible character; this is the way back."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [b for b in range(256) if b not in visible]
    return {**{chr(b): b for b in visible}, **{chr(256 + i): b for i, b in enumerate(hidden)}}


def byte_token(piece: str) -> Optional[int]:
    """The byte that a piece "<0x0A>" stands for."""
    hexadecimal = piece[3:5] if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">") else ""
    return int(hexadecimal, 16) if hexadecimal and all(c in "0123456789ABCDEF" for c in hexadecimal) else None


def _vocabulary(model: dict, byte_level: bool, path: Path) -> Vocabulary:
    vocab = model.get("vocab")
    if not isinstance(vocab, dict) or not vocab:
        raise ModelError(f"{path}: model.vocab: expected an object with pieces")
    vocabulary = Vocabulary()
    alphabet = {ord(c): byte for c, byte in _byte_alphabet().items()}
    unknown = model.get("unk_token")
    for piece, token in vocab.items():
        if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token < MAX_PIECES:
            raise ModelError(f"{path}: piece {piece!r} has id {token!r}, expected 0 to {MAX_PIECES - 1}")
        if token < len(vocabulary.kinds) and vocabulary.kinds[token] != UNUSED:
            raise ModelError(f"{path}: two pieces have id {token}; one is {piece!r}")
        byte = None if byte_level else byte_token(piece)
        if piece == unknown:
            vocabulary.add(token, piece.encode("utf-8"), UNKNOWN)
        elif byte is not None:
            vocabulary.add(token, bytes([byte]), BYTE)
        elif not byte_level:
            # A piece with a real space can never be found: spaces are written otherwise by then.
            vocabulary.add(token, piece.replace(SPACE, " ").encode("utf-8"), UNUSED if " " in piece else NORMAL)
        else:
            try:
                vocabulary.add(token, codecs.charmap_encode(piece, "strict", alphabet)[0], NORMAL)
            except (
                UnicodeEncodeError
            ):  # found in no text, since bytes never look like this; an added token may give it its meaning
                vocabulary.add(token, piece.encode("utf-8"), UNUSED)
    return vocabulary


def _mark_added(root: dict, model: dict, vocabulary: Vocabulary, path: Path) -> dict:
    """Applies added_tokens. Returns piece -> id of what merging can reach."""
    vocab, added = model["vocab"], root.get("added_tokens") or []
    contents = {entry.get("content") for entry in added if isinstance(entry.get("content"), str)}
    joined = (
        merge.replace(" ", "") if isinstance(merge, str) else "".join(map(str, merge)) for merge in model["merges"]
    )
    made = {text for text in joined if text in contents} if contents else ()
    owners = {}
    for entry in added:
        content, token = entry.get("content"), entry.get("id")
        if vocab.get(content, token) != token:
            raise ModelError(f"{path}: added token {content!r} has id {token}, in the vocabulary {vocab[content]}")
        inside = isinstance(token, int) and 0 <= token < len(vocabulary.kinds)
        if content not in vocab and inside and (vocabulary.kinds[token] != UNUSED or token in owners):
            raise ModelError(f"{path}: added token {content!r} has id {token}, which another piece has")
        owners[token] = content
        vocabulary.add_spelled(entry, path, content in made)
    return {piece: token for piece, token in vocab.items() if vocabulary.kinds[token] == NORMAL}


def _merges(model: dict, text_ids: dict, path: Path) -> np.ndarray:
    """(n, 2) ids, best first. Merges of special tokens are left out: text never becomes one."""
    vocab, ranks = model["vocab"], {}
    for rank, merge in enumerate(model["merges"]):
        pair = merge.split(" ") if isinstance(merge, str) else merge
        if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str) or not isinstance(pair[1], str):
            raise ModelError(f"{path}: merge {rank} is {merge!r}, expected two pieces")
        left, right = pair
        if not left or not right:
            raise ModelError(f"{path}: merge {rank} is {merge!r}, expected two pieces")
        ids = text_ids.get(left), text_ids.get(right)
        if None not in ids and left + right in text_ids:
            ranks[ids] = rank  # the last of equals counts, as in `tokenizers`
            continue
        for piece in (left, right, left + right):
            if piece not in vocab:
                raise ModelError(f"{path}: merge {rank} ({merge!r}) names {piece!r}, which is not in the vocabulary")
    if not ranks:
        raise ModelError(f"{path}: the tokenizer has no merges")
    ordered = itertools.chain.from_iterable(sorted(ranks, key=ranks.get))
    return np.fromiter(ordered, np.uint32, 2 * len(ranks)).reshape(-1, 2)


def refuse_missing_bytes(vocabulary: Vocabulary, path: Path) -> None:
    """Refuses byte fallback without a token for each byte: it would lose parts of characters."""
    missing = vocabulary.missing_bytes(BYTE)
    if missing:
        raise ModelError(f"{path}: the vocabulary has no token for byte 0x{missing[0]:02X}; all 256 are needed")


# Printable ASCII, a tab, lines' ends, and what UTF-8 has of assigned characters.
ORDINARY_BYTES = frozenset([9, 10, 13, *range(32, 127), *range(0x80, 0xC0), *range(0xC2, 0xF1), 0xF3])


def _note_missing_bytes(data: TokenizerData, model: dict, vocabulary: Vocabulary, path: Path) -> None:
    """Of a byte that the vocabulary lacks, `tokenizers` makes the unknown token, or nothing."""
    missing = vocabulary.missing_bytes(NORMAL)
    if not missing:
        return
    unknown = model["vocab"].get(model.get("unk_token"))
    if model.get("byte_fallback") or (unknown is not None and model.get("fuse_unk")):
        option = "byte_fallback" if model.get("byte_fallback") else "fuse_unk"
        raise ModelError(f"{path}: model option {option} is not supported with a vocabulary that lacks bytes")
    if unknown is not None:
        data.facts["unknown"] = unknown
    shown = ", ".join(f"0x{byte:02X}" for byte in missing[:4]) + (", …" if len(missing) > 4 else "")
    made = "left out of a text" if unknown is None else f"token {unknown}"
    rare = (
        "" if ORDINARY_BYTES.intersection(missing) else ", as the model was trained; ordinary texts have none of them"
    )
    data.warnings.append(
        f"{path}: the vocabulary has no token for {len(missing)} of the 256 bytes ({shown}): they are {made}{rare}"
    )


def _template(processor: Optional[dict], path: Path, warnings: list) -> tuple:
    """(does the post-processor put bos before a text, its id, the id of what it puts behind one)."""
    adds, bos, end = False, None, None

    def id_of(part: dict, name: str) -> int:
        ids = part.get("special_tokens", {}).get(name, {}).get("ids", [])
        if len(ids) != 1 or not isinstance(ids[0], int):
            raise refuse(path, "post-processor", part)
        return ids[0]

    for part in sequence(processor, "processors"):
        if part.get("type") == "ByteLevel":
            continue
        if part.get("type") != "TemplateProcessing":
            raise refuse(path, "post-processor", part)
        single = part.get("single", [])
        names = [next(iter(step.values()), {}).get("id") if "SpecialToken" in step else None for step in single]
        if None not in names or names.index(None) > 1 or names.count(None) != 1:
            raise refuse(path, "post-processor", part)
        if names[-1] is not None:
            warnings.append(
                f"{path}: the tokenizer puts {names[-1]!r} after a text; here it is left out, but for vectors"
            )
            end = id_of(part, names[-1])
        if names[0] is not None:
            adds, bos = True, id_of(part, names[0])
    return adds, bos, end


def _compare_settings(data: TokenizerData, settings: dict, path: Path) -> None:
    """Compares settings that transformers does not read from tokenizer_config.json where there is a
    tokenizer.json."""
    stated = settings.get("add_bos_token")
    if isinstance(stated, bool) and stated != data.facts["add_bos"]:
        does = "puts" if data.facts["add_bos"] else "does not put"
        data.warnings.append(
            f"{path.parent / 'tokenizer_config.json'}: add_bos_token is {str(stated).lower()}, but the post-processor of"
            f" {path.name} {does} bos before a text, which holds"
        )
