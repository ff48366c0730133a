"""Encoders of GGUF files: Nomic's, EmbeddingGemma, BERT, and XLM-R, which stands there under BERT's name, without the rows
of positions that no token has. Their tokenizers are written as the tokenizer.json that they came from. And what any model
makes of a text."""

import base64
from typing import Optional

from .errors import ModelError
from .gguf_file import GgufFile
from .pooling import shortened
from .source import shown
from .tokenizer_json import SPACE, from_root
from .vocabulary import CONTROL, UNKNOWN, USER_DEFINED

SETTINGS = {"attention.layer_norm_epsilon": "layer_norm_eps"}
NAMES = {"attn_output_norm": "input_layernorm", "layer_output_norm": "post_attention_layernorm"}
NOMIC_NAMES = {"attn_output_norm": "norm1", "layer_output_norm": "norm2"}
WHOLE = {
    "position_embd": "embeddings.position_embeddings",
    "token_types": "embeddings.token_type_embeddings",
    "token_embd_norm": "embeddings.LayerNorm",
    "cls": "classifier.dense",
    "cls.output": "classifier.out_proj",
}
DENSE = {"dense_2": "dense.0.linear", "dense_3": "dense.1.linear"}  # EmbeddingGemma's, behind the pooling
POOLINGS = {1: "mean", 2: "first", 3: "last"}
NOTHING, SCORES = 0, 4  # pooling_type, where each token has a vector, and where two texts have a score


def pooling_type(file: GgufFile) -> str:
    return f"{file.get('general.architecture')}.pooling_type"


def complete(file: GgufFile, values: dict) -> None:
    """What config.json has besides."""
    if "token_types.weight" in file.entries:
        values["type_vocab_size"] = file.entries["token_types.weight"].shape[0]
    if file.get(pooling_type(file)) == SCORES:
        if "cls.output.weight" not in file.entries or "cls.weight" not in file.entries:
            raise ModelError(f"{file.path}: the head that scores is not whole: expected tensors cls and cls.output")
        values.update(architectures=["BertForSequenceClassification"], id2label={"0": "score"})


def purpose(file: GgufFile, tokenizer, facts: dict) -> dict:
    """The facts of what comes behind the last layer; of decoders that go on with texts, and no more, none."""
    end = -1 if tokenizer.end is None else tokenizer.end
    kind, decoder = file.get(pooling_type(file)), not facts.get("bidirectional")
    if kind is not None and type(kind) is not int:  # true would pass as 1
        raise ModelError(f"{file.path}: {pooling_type(file)} is {shown(kind)}, expected an integer")
    if decoder and file.get(f"{file.get('general.architecture')}.attention.causal") is False:
        raise ModelError(f"{file.path}: attention.causal is false: {facts['architecture']} both ways is not supported")
    if decoder and "cls.output.weight" in file.entries:
        return {"score": {"by": "last", "end": -1}}
    if decoder and kind in (None, NOTHING):
        return {}
    if kind == SCORES and decoder:
        raise ModelError(f"{file.path}: {pooling_type(file)} is {kind}, a score's, without tensor 'cls.output.weight'")
    if kind == SCORES:
        return {"score": {"between": tokenizer.between, "end": end}}
    if kind not in POOLINGS:
        raise ModelError(
            f"{file.path}: {pooling_type(file)} is {shown(kind)}, expected 1 to 4: how the model's vectors are made"
        )
    found: dict = {"by": POOLINGS[kind], "end": end}
    if facts["architecture"] == "Gemma3TextModel":
        found["dense"] = [file.entries[f"{name}.weight"].shape[0] for name in DENSE if f"{name}.weight" in file.entries]
        if not found["dense"]:
            tokenizer.warnings.append(
                f"{file.path}: the dense layers behind the pooling are not in the file: vectors lack them"
            )
    if found["by"] == "last" and end == -1:
        tokenizer.warnings.append(
            f"{file.path}: vectors are the last token's, but none is put behind a text (add_eos_token)"
        )
    return {"pooling": shortened(found, facts)}


def wordpiece(file: GgufFile, tokens: list, kinds: list) -> tuple:
    """A word's first piece has SentencePiece's sign of a blank there, and the others nothing where ours have ##. No
    setting says that letters' case does not count: then no piece has a capital letter."""
    texts = [
        text if kind in (CONTROL, UNKNOWN) else text[1:] if text.startswith(SPACE) else f"##{text}"
        for text, kind in zip(tokens, kinds)
    ]
    cased = any(
        text != text.lower() for text, kind in zip(texts, kinds) if kind not in (CONTROL, UNKNOWN) and "[" not in text
    )
    first, last, unknown = (_marked(file, name, tokens) for name in ("cls", "seperator", "unknown"))
    root = {
        "normalizer": {"type": "BertNormalizer", "lowercase": not cased},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "model": {"type": "WordPiece", "unk_token": texts[unknown], "vocab": {text: i for i, text in enumerate(texts)}},
    }
    return _read(file, root, texts, kinds, (first, last), [last])


def unigram(file: GgufFile, tokens: list, kinds: list) -> tuple:
    """Blanks that are many become one, as XLM-R has it: remove_extra_whitespaces is not asked, since some files have
    another setting there, clean_up_tokenization_spaces."""
    scores = file.get("tokenizer.ggml.scores")
    if not isinstance(scores, list) or len(scores) != len(tokens):
        raise ModelError(f"{file.path}: tokenizer.ggml.scores: expected a number for each of {len(tokens)} tokens")
    charsmap = file.get("tokenizer.ggml.precompiled_charsmap") or []
    first, last, unknown = (_marked(file, name, tokens) for name in ("cls", "seperator", "unknown"))
    steps = (
        [{"type": "Precompiled", "precompiled_charsmap": base64.b64encode(bytes(charsmap)).decode()}]
        if charsmap
        else []
    )
    prefixed = file.get("tokenizer.ggml.add_space_prefix") is not False
    root = {
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "WhitespaceSplit"},
                {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "always" if prefixed else "never"},
            ],
        },
        "model": {"type": "Unigram", "unk_id": unknown, "vocab": [list(pair) for pair in zip(tokens, scores)]},
    }
    return _read(file, root, tokens, kinds, (first, last), [last, last])


def _marked(file: GgufFile, name: str, tokens: list) -> int:
    """The id that a setting names; else the one that all of the kind have."""
    usual = {"cls": ("[CLS]", "<s>"), "seperator": ("[SEP]", "</s>"), "unknown": ("[UNK]", "<unk>")}[name]
    found: Optional[int] = file.get(f"tokenizer.ggml.{name}_token_id")
    if found is None:
        found = next((tokens.index(text) for text in usual if text in tokens), None)
    if not isinstance(found, int) or not 0 <= found < len(tokens):
        raise ModelError(f"{file.path}: tokenizer.ggml.{name}_token_id: found {shown(found)}, expected a token's id")
    return found


def _read(file: GgufFile, root: dict, texts: list, kinds: list, ends: tuple, between: list) -> tuple:
    """ends: the ids that stand before a text and behind one; between: those between two."""
    if len(set(texts)) != len(texts):
        raise ModelError(f"{file.path}: two of the tokenizer's tokens are the same text")
    root["added_tokens"] = [
        {
            "id": i,
            "content": text,
            "special": kind != USER_DEFINED,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
        }
        for i, (text, kind) in enumerate(zip(texts, kinds))
        if kind in (CONTROL, UNKNOWN, USER_DEFINED)
    ]
    first, *behind = ({"SpecialToken": {"id": texts[token]}} for token in (*ends, *between))
    last, *middle = behind
    a, b = ({"Sequence": {"id": name}} for name in "AB")
    root["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [first, a, last],
        "pair": [first, a, *middle, b, last],
        "special_tokens": {texts[token]: {"ids": [token]} for token in ends},
    }
    return from_root(root, {}, file.path)
