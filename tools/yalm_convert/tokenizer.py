"""The tokenizer of a Hugging Face directory, in the form of docs/format.md ("tokenizer").

tokenizer.json is what the `tokenizers` library reads, so it comes first; tokenizer.model is SentencePiece's own;
tiktoken.model is Kimi's. What is not understood is refused by name: a tokenizer that is nearly right gives a model that
is quietly wrong.
"""

from pathlib import Path
from typing import Optional

import numpy as np

from . import sentencepiece_model
from .errors import ModelError
from .pooling import scoring_templates
from .source import read_json, read_text
from .tiktoken_model import CLASS, from_tiktoken
from .tokenizer_json import SPACE, TokenizerData, add_chat, byte_token, from_json, refuse_missing_bytes
from .vocabulary import BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED, Vocabulary


def read_tokenizer(model_dir: Path, config: dict) -> TokenizerData:
    model_dir = Path(model_dir)
    settings = read_json(model_dir / "tokenizer_config.json") if (model_dir / "tokenizer_config.json").exists() else {}
    names = ["tokenizer.json", "tokenizer.model", *["tiktoken.model"] * (settings.get("tokenizer_class") == CLASS)]
    path = next((model_dir / name for name in names if (model_dir / name).exists()), None)
    if path is None:
        data = TokenizerData({"type": "none"})
        add_chat(data, scoring_templates(model_dir, _chat_templates(model_dir, settings)), settings, model_dir)
        return data
    try:
        data, vocabulary = READERS[path.name](path, settings)
    except (AttributeError, KeyError, TypeError, ValueError) as error:  # a list where an object should be, and the like
        raise ModelError(f"{path}: not of the form that is expected: {type(error).__name__}: {error}") from None
    data.tensors[:0] = vocabulary.tensors(path)
    data.facts["n_pieces"] = len(vocabulary.pieces)
    if data.facts["type"] == "spm":
        _prefix_by_settings(data, settings, path)
    add_chat(data, scoring_templates(model_dir, _chat_templates(model_dir, settings)), settings, model_dir)
    data.bos = _special_id(settings, "bos_token", vocabulary, data.warnings) if data.bos is None else data.bos
    eos = _special_id(settings, "eos_token", vocabulary, data.warnings)
    data.eos = [] if eos is None else [eos]
    if data.facts["add_bos"] and data.bos is None:
        raise ModelError(f"{path}: the tokenizer puts bos before a text, but names no bos token")
    if data.bos is not None and not data.facts["add_bos"]:
        data.warnings.append(f"{path}: the tokenizer has a bos token but does not put it before a text")
    _check_size(data, config, path)
    return data


def _check_size(data: TokenizerData, config: dict, path: Path) -> None:
    """Warns of tokens that a tool added to the tokenizer alone: they have no row of the embedding, so texts with them
    are refused."""
    rows, pieces = config.get("vocab_size"), data.facts["n_pieces"]
    if not isinstance(rows, int) or pieces <= rows:
        return
    if data.bos is not None and data.bos >= rows:
        raise ModelError(f"{path}: bos is token {data.bos}, but the model has {rows} tokens (vocab_size)")
    data.warnings.append(
        f"{path}: {pieces} tokens, but the model has {rows} (vocab_size): a text that has one from {rows} on will be refused"
    )
    for token in [token for token in data.eos if token >= rows]:
        data.eos.remove(token)
        data.warnings.append(f"{path}: eos is token {token}, which the model cannot give: it is left out")


def _chat_templates(model_dir: Path, settings: dict) -> dict:
    """Texts by name: a file for each, or members of tokenizer_config.json; most models have one, called default."""
    template = settings.get("chat_template")
    if isinstance(template, list):
        named = {t.get("name"): t.get("template") for t in template if isinstance(t, dict)}
    else:
        named = {"default": template}
    for name, file in (("default", "chat_template.jinja"), ("tool_use", "additional_chat_templates/tool_use.jinja")):
        if (model_dir / file).exists():
            named[name] = read_text(model_dir / file)
    return named


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


def _prefix_by_settings(data: TokenizerData, settings: dict, path: Path) -> None:
    """`add_prefix_space` and `legacy`, where they say something that the file of pieces does not. transformers heeds
    them for its Llama tokenizer."""
    before, prefix = data.facts["prefix_space"], None
    if settings.get("add_prefix_space") is False:
        said, prefix = "add_prefix_space is false", {"prefix_space": "never", "prefix_if_missing": False}
    elif settings.get("legacy") is False and before == "segments":
        said, prefix = "legacy is false", {"prefix_space": "first", "prefix_if_missing": True}
    if prefix is None or prefix["prefix_space"] == before:
        return
    kind = settings.get("tokenizer_class") or "LlamaTokenizer"
    heeded = kind in ("LlamaTokenizer", "LlamaTokenizerFast")
    if heeded:
        data.facts.update(prefix)
    data.warnings.append(
        f"{path.parent / 'tokenizer_config.json'}: {said}, where {path.name} puts a space before"
        f" {'each text between special tokens' if before == 'segments' else 'the text'}:"
        f" {'the former holds' if heeded else f'the latter holds, as for every {kind}'}"
    )


# ------------------------------------------------------------------------------------ tokenizer.model


def _from_sentencepiece(path: Path, settings: dict) -> tuple:
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
    vocabulary = Vocabulary()
    kinds = {
        sentencepiece_model.NORMAL: NORMAL,
        sentencepiece_model.UNKNOWN: UNKNOWN,
        sentencepiece_model.CONTROL: CONTROL,
        sentencepiece_model.BYTE: BYTE,
    }
    for token, (text, _, kind) in enumerate(model.pieces):
        if kind not in kinds:
            raise ModelError(f"{path}: piece {token} ({text!r}) is user-defined or unused, which is not supported")
        byte = byte_token(text)
        if kind == sentencepiece_model.BYTE and byte is None:
            raise ModelError(f"{path}: piece {token} is {text!r}, expected a byte such as <0x0A>")
        if kind == sentencepiece_model.NORMAL:
            vocabulary.add(token, text.replace(SPACE, " ").encode("utf-8"), NORMAL)
        else:
            vocabulary.add(
                token, bytes([byte]) if kind == sentencepiece_model.BYTE else text.encode("utf-8"), kinds[kind]
            )
    refuse_missing_bytes(vocabulary, path)
    _add_from_settings(vocabulary, settings, path)

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
        "add_bos": settings.get("add_bos_token") is not False,
    }
    data = TokenizerData(facts, [("tokenizer.scores", scores)])
    if settings.get("add_eos_token") is True:
        data.warnings.append(f"{path}: the tokenizer puts its eos token after a text; here it is left out")
    if settings.get("bos_token") is None and b"<s>" in vocabulary.pieces:
        data.bos = vocabulary.pieces.index(b"<s>")
    return data, vocabulary


def _add_from_settings(vocabulary: Vocabulary, settings: dict, path: Path) -> None:
    """Adds tokens beyond tokenizer.model. They stand in tokenizer_config.json, in older models in
    added_tokens.json."""
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
        # SentencePiece's tokenizers look for these in the text as it is, whatever the flag says.
        vocabulary.add_spelled({**entry, "id": token, "normalized": False}, path.parent / "tokenizer_config.json")
    extra = path.parent / "added_tokens.json"
    for content, token in (read_json(extra) if extra.exists() else {}).items():
        inside = isinstance(token, int) and 0 <= token < len(vocabulary.pieces)
        if not inside or vocabulary.pieces[token] != content.encode("utf-8"):
            raise ModelError(f"{extra}: token {content!r} is not in tokenizer.model nor in tokenizer_config.json")


READERS = {
    "tokenizer.json": from_json,
    "tokenizer.model": _from_sentencepiece,
    "tiktoken.model": from_tiktoken,
}
