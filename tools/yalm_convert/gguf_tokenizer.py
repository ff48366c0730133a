"""The tokenizer that a GGUF file carries, in the form of docs/format.md ("tokenizer").

Byte-level ones are written as the tokenizer.json that they came from. The file has it in pieces: tokens and merges as
they were, and a name for the pre-tokenizer, whose patterns PRE_TOKENIZERS knows. So is Gemma 4's, which merges
characters by rank. Those of SentencePiece have their scores.
"""

from dataclasses import dataclass
from typing import Optional

import numpy as np

from . import gguf_encoders, tiktoken_model
from . import pattern as patterns
from .errors import ModelError
from .gguf_file import GgufFile
from .source import shown
from .tokenizer_json import SPACE, TokenizerData, add_chat, byte_token, from_root, refuse_missing_bytes
from .vocabulary import BYTE, CONTROL, FLAGS, NORMAL, UNKNOWN, UNUSED, USER_DEFINED, Vocabulary

PHI3_PLAIN = (
    "<unk>",
    "<s>",
    "<|endoftext|>",
)  # Phi-3's other tokens take the white space behind them, which no setting says
TOKEN_KINDS = {1: NORMAL, 2: UNKNOWN, 3: CONTROL, 4: USER_DEFINED, 5: UNUSED, 6: BYTE}

# As the models' own tokenizer.json have them.
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace("{1,3}", "")
QWEN35 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
CASES = rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+@|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*@|"
SIGNS = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
TEKKEN = CASES.replace("@", "") + r"\p{N}" + SIGNS
GPT4O = CASES.replace("@", r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?") + r"\p{N}{1,3}" + SIGNS
DEEPSEEK3 = (
    r"\p{N}{1,3}",
    r"[一-龥぀-ゟ゠-ヿ]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)
ASIAN = (
    "4e00-9fff 3400-4dbf f900-faff 3040-309f 30a0-30ff ff65-ff9f 2f00-2fdf e40-e7f e80-eff 1780-17ff 1000-109f "
    "aa60-aa7f a9e0-a9ff ac00-d7af 1100-11ff"
)
# Digits by threes from the end of a number.
TRINITY = (r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))", rf"[{patterns.characters(ASIAN)}]+", DEEPSEEK3[2])
DEEPSEEK_CODER = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"[一-龥ࠀ-一가-퟿]+", r"\p{N}")
# DeepSeek's first pattern lists the letters that have two cases.
CASED = (
    "41-5a 61-7a b5 c0-d6 d8-f6 f8-1ba 1bc-1bf 1c4-293 295-2af 370-373 376 377 37b-37d 37f 386 388-38a 38c "
    "38e-3a1 3a3-3f5 3f7-481 48a-52f 531-556 10a0-10c5 13a0-13f5 13f8-13fd 1c90-1cba 1cbd-1cbf 1d00-1d2b "
    "1d6b-1d77 1d79-1d9a 1e00-1f15 1f18-1f1d 1f20-1f45 1f48-1f4d 1f50-1f57 1f59 1f5b 1f5d 1f5f-1f7d 1f80-1fb4 "
    "1fb6-1fbc 1fbe 1fc2-1fc4 1fc6-1fcc 1fd0-1fd3 1fd6-1fdb 1fe0-1fec 1ff2-1ff4 1ff6-1ffc 2102 2107 210a-2113 "
    "2115 2119-211d 2124 2126 2128 212a-212d 212f-2134 2139 213c-213f 2145-2149 214e 2183 2184 2c00-2c7b "
    "2c7e-2ce4 2ceb-2cee 2cf2 2cf3 a640-a66d a680-a69b a722-a76f a771-a787 a78b-a78e ab70-abbf fb00-fb06 "
    "fb13-fb17 ff21-ff3a ff41-ff5a 10400-1044f 104b0-104d3 104d8-104fb 10c80-10cb2 10cc0-10cf2 118a0-118df "
    "1e900-1e943"
)
DEEPSEEK_LLM = (
    r"[\r\n]", rf"\s?[{patterns.characters(CASED)}]+", r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
    r"\s+$", r"[一-龥ࠀ-一가-퟿]+", r"\p{N}",
)  # fmt: skip
SEED = QWEN2.replace(r" ?[^\s\p{L}\p{N}]+[\r\n]*", r" ?[^\s\p{L}\p{N}\r\n]+")
BLOOM = r" ?[^(\s|.,!?…。，、।۔،)]+"
DIGITS_APART = (r"\p{N}", patterns.GPT2)


@dataclass(frozen=True)
class PreTokenizer:
    patterns: tuple
    nfc: bool = False
    ignore_merges: bool = False
    add_bos: bool = False  # where the file does not say
    ranked: bool = False  # ids are ranks, which say what merges where the file does not


def _named(found: PreTokenizer, *names: str) -> dict:
    return dict.fromkeys(names, found)


PRE_TOKENIZERS = {
    **_named(
        PreTokenizer((LLAMA3,), ignore_merges=True, add_bos=True),
        "llama3",
        "llama-v3",
        "llama-bpe",
        "falcon3",
        "falcon-h1",
        "lfm2",
        "pixtral",
    ),
    **_named(PreTokenizer((LLAMA3,), ignore_merges=True), "glm4"),
    **_named(PreTokenizer((LLAMA3,)), "dbrx", "smaug-bpe", "chatglm-bpe"),
    **_named(PreTokenizer((QWEN2,), nfc=True), "qwen2", "stablelm2"),
    **_named(PreTokenizer((QWEN2,)), "deepseek-r1-qwen", "megrez", "hunyuan"),
    **_named(PreTokenizer((QWEN35,), nfc=True), "qwen35"),
    **_named(PreTokenizer((TEKKEN,), ignore_merges=True, add_bos=True), "tekken"),
    **_named(PreTokenizer((GPT4O,)), "gpt-4o", "llama4", "minimax-m2"),
    **_named(PreTokenizer((SEED,)), "seed-coder"),
    **_named(PreTokenizer((BLOOM,)), "bloom"),
    **_named(PreTokenizer(DEEPSEEK_LLM), "deepseek-llm"),
    **_named(PreTokenizer(DEEPSEEK3), "deepseek-v3", "hunyuan-dense"),
    **_named(PreTokenizer(TRINITY), "afmoe"),
    **_named(PreTokenizer((tiktoken_model.PATTERN,), ignore_merges=True, ranked=True), "kimi-k2"),
    **_named(PreTokenizer(DEEPSEEK_CODER), "deepseek-coder"),
    **_named(
        PreTokenizer(DIGITS_APART), "smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"
    ),
    **_named(PreTokenizer((patterns.GPT2,)), "gpt-2", "phi-2", "olmo", "mpt", "gigachat", "exaone4", "mellum"),
}


def _of_ranks(file: GgufFile) -> Optional[str]:
    """The template of a model that scores a document beside a query, as one of messages with these roles."""
    text = file.get("tokenizer.chat_template.rerank")
    if "cls.output.weight" not in file.entries or file.get("bert.pooling_type") is not None:
        return None
    if (
        not isinstance(text, str)
        or not all(part in text for part in ("{query}", "{document}"))
        or "{{" in text
        or "{%" in text
    ):
        raise ModelError(
            f"{file.path}: tensor 'cls.output.weight' without tokenizer.chat_template.rerank of a {{query}} and a {{document}}:"
            " how texts are compared is not known"
        )
    for number, part in enumerate(("query", "document")):
        text = text.replace(f"{{{part}}}", f"{{{{ messages[{number}]['content'] }}}}")
    return text + "\n" * text.endswith("\n")  # Jinja takes one away


def read_gguf_tokenizer(file: GgufFile, vocab_size: Optional[int]) -> TokenizerData:
    model = file.get("tokenizer.ggml.model")
    templates = {
        "default": _of_ranks(file) or file.get("tokenizer.chat_template"),
        "tool_use": file.get("tokenizer.chat_template.tool_use"),
    }
    if model in (None, "none", "no_vocab"):
        data = TokenizerData({"type": "none"})
        add_chat(data, templates, {}, file.path)
        return data
    readers = {
        "gpt2": _byte_level,
        "llama": _sentencepiece,
        "gemma4": _ranked_characters,
        "bert": gguf_encoders.wordpiece,
        "t5": gguf_encoders.unigram,
    }
    if model not in readers:
        raise ModelError(
            f"{file.path}: tokenizer.ggml.model {shown(model)} is not supported, expected one of {', '.join(readers)}"
        )
    tokens, kinds = _tokens(file)
    data, vocabulary = readers[model](file, tokens, kinds)
    data.tensors[:0] = vocabulary.tensors(file.path)
    data.facts["n_pieces"] = len(vocabulary.pieces)
    if data.bos is None:
        data.bos = _token(file, "bos", len(tokens))
    add_chat(data, templates, _special_tokens(file, tokens), file.path)
    if data.facts["add_bos"] and data.bos is None:
        raise ModelError(f"{file.path}: the tokenizer puts bos before a text, but names no bos token")
    if file.get("tokenizer.ggml.add_eos_token") is True and data.end is None:
        data.end = _token(file, "eos", len(tokens))
    if vocab_size is not None and len(tokens) > vocab_size:
        raise ModelError(f"{file.path}: {len(tokens)} tokens, but the embedding has {vocab_size} rows")
    return data


def _tokens(file: GgufFile) -> tuple:
    """(texts, kinds)."""
    tokens, kinds = file.get("tokenizer.ggml.tokens"), file.get("tokenizer.ggml.token_type")
    if not isinstance(tokens, list) or not tokens or not all(isinstance(token, str) for token in tokens):
        raise ModelError(f"{file.path}: tokenizer.ggml.tokens: found {shown(tokens)}, expected texts")
    kinds = [1] * len(tokens) if kinds is None else kinds
    if not isinstance(kinds, list) or len(kinds) != len(tokens) or not set(kinds) <= set(TOKEN_KINDS):
        raise ModelError(
            f"{file.path}: tokenizer.ggml.token_type: expected one of 1 to 6 for each of {len(tokens)} tokens"
        )
    return tokens, [TOKEN_KINDS[kind] for kind in kinds]


def _token(file: GgufFile, name: str, n_tokens: int) -> Optional[int]:
    token = file.get(f"tokenizer.ggml.{name}_token_id")
    if token is not None and not (isinstance(token, int) and 0 <= token < n_tokens):
        raise ModelError(f"{file.path}: {name} is token {shown(token)}, expected 0 to {n_tokens - 1}")
    return token


def _special_tokens(file: GgufFile, tokens: list) -> dict:
    """By the names of tokenizer_config.json."""
    names = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    found = {name: _token(file, kind, len(tokens)) for name, kind in names.items()}
    return {name: tokens[token] for name, token in found.items() if token is not None}


def _added(tokens: list, kinds: list) -> list:
    """tokenizer.json's added_tokens."""
    return [
        {"id": token, "content": text, "special": kind != USER_DEFINED}
        for token, (text, kind) in enumerate(zip(tokens, kinds))
        if kind in (CONTROL, USER_DEFINED, UNKNOWN)
    ]


def _refuse_twins(file: GgufFile, vocab: dict, n_tokens: int) -> None:
    if len(vocab) != n_tokens:
        raise ModelError(f"{file.path}: two of the tokenizer's tokens are the same text")


def _byte_level(file: GgufFile, tokens: list, kinds: list) -> tuple:
    name = file.get("tokenizer.ggml.pre")
    if name is None or name == "default":
        raise ModelError(
            f"{file.path}: the file names no pre-tokenizer (tokenizer.ggml.pre), as those of before May 2024: how it cuts texts"
            " into words is not known; a newer file of the same model says it"
        )
    if name not in PRE_TOKENIZERS:
        raise ModelError(
            f"{file.path}: tokenizer.ggml.pre: {shown(name)} is not supported, expected one of {', '.join(PRE_TOKENIZERS)}"
        )
    found = PRE_TOKENIZERS[name]
    added = _added(tokens, kinds)
    vocab = {text: token for token, (text, kind) in enumerate(zip(tokens, kinds)) if kind == NORMAL}
    _refuse_twins(file, vocab, kinds.count(NORMAL))
    merges = file.get("tokenizer.ggml.merges") or []
    if found.ranked and not merges:
        merges = [list(pair) for pair in tiktoken_model.merges_of(vocab)]
    contents, joined = {entry["content"] for entry in added}, (m.replace(" ", "") for m in merges if isinstance(m, str))
    reached = {text for text in joined if text in contents}
    vocab.update({entry["content"]: entry["id"] for entry in added if entry["content"] in reached})
    splits = [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        for pattern in found.patterns
    ]
    root = {
        "added_tokens": added,
        "normalizer": {"type": "NFC"} if found.nfc else None,
        "decoder": {"type": "ByteLevel"},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [*splits, {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}],
        },
        "model": {"type": "BPE", "vocab": vocab, "merges": merges, "ignore_merges": found.ignore_merges},
    }
    data, vocabulary = from_root(root, {}, file.path)
    data.facts["add_bos"] = file.get("tokenizer.ggml.add_bos_token", found.add_bos) is True
    return data, vocabulary


def _ranked_characters(file: GgufFile, tokens: list, kinds: list) -> tuple:
    """Gemma 4's. llama.cpp cuts texts at newlines first; no piece has a newline and something else, so that changes nothing."""
    vocab = {text: token for token, (text, kind) in enumerate(zip(tokens, kinds)) if kind != UNUSED}
    _refuse_twins(file, vocab, len(kinds) - kinds.count(UNUSED))
    root = {
        "added_tokens": _added(tokens, kinds),
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": SPACE},
        "model": {
            "type": "BPE",
            "vocab": vocab,
            "merges": file.get("tokenizer.ggml.merges") or [],
            "unk_token": _special_tokens(file, tokens).get("unk_token"),
            "byte_fallback": True,
        },
    }
    data, vocabulary = from_root(root, {}, file.path)
    data.facts["add_bos"] = True  # llama.cpp puts it before a text whatever the file says
    return data, vocabulary


def _sentencepiece(file: GgufFile, tokens: list, kinds: list) -> tuple:
    vocabulary = Vocabulary()
    trims = file.get("general.architecture") == "phi3"
    for token, (text, kind) in enumerate(zip(tokens, kinds)):
        byte = byte_token(text) if kind == BYTE else None
        if kind == BYTE and byte is None:
            raise ModelError(f"{file.path}: token {token} is {text!r}, expected a byte such as <0x0A>")
        piece = text.replace(SPACE, " ") if kind in (NORMAL, USER_DEFINED) else text
        flags = FLAGS["rstrip"] if trims and kind in (CONTROL, USER_DEFINED) and text not in PHI3_PLAIN else 0
        vocabulary.add(token, piece.encode("utf-8") if byte is None else bytes([byte]), kind, flags)
    refuse_missing_bytes(vocabulary, file.path)
    scores = np.array(file.get("tokenizer.ggml.scores") or [], np.float32)
    if scores.shape != (len(tokens),) or not np.isfinite(scores).all():
        raise ModelError(f"{file.path}: tokenizer.ggml.scores: expected a number for each of {len(tokens)} tokens")
    facts = {
        "type": "spm",
        "merge": "score",
        "prefix_space": "never" if file.get("tokenizer.ggml.add_space_prefix") is False else "segments",
        "prefix_if_missing": False,
        "split_words": False,
        "ignore_merges": False,
        "add_bos": file.get("tokenizer.ggml.add_bos_token", True) is True,
    }
    if file.get("tokenizer.ggml.remove_extra_whitespaces") is True or file.get("tokenizer.ggml.precompiled_charsmap"):
        raise ModelError(f"{file.path}: a tokenizer that changes white space or characters (charsmap) is not supported")
    return TokenizerData(facts, [("tokenizer.scores", scores)]), vocabulary
