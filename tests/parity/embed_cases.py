"""Small models that read whole texts, with random weights: directories as sentence-transformers writes them. Shared by the
script that makes the golden vectors and by the test that reads them."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import random_hf_model as generator  # noqa: E402

GOLDEN = ROOT / "tests/golden/embed"
DIM, FFN, LAYERS, HEADS, POSITIONS = 60, 88, 3, 5, 150  # nothing is a multiple of a vector's width

TEXTS = [
    "The fox ran",
    "",
    "Once upon a time an old owl told stories of wells, lamps and unbelievable foxes!",
    "Café RÉSUMÉ naïve Ångström ÉÉÉ",
    "雨が 降る中 the 東京 tower",
    "tabs\tand\u00a0blanks\u2003of   several   kinds",
    "control \x01\x02characters\x7f, \u200bzero\u200d width, \ufffd and soft\u00adhyphens",
    "punctuation: $5+5=10 <b>x^2</b> `a`|~b — «quoted» … ¡hola! 3.14 a_b",
    "emoji 🦊 and 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 letters",
    "a" * 120 + " is too long, " + "b" * 100 + " is not",
    "the fox and the owl " * 14 + "ran",  # past every window
    "İstanbul ŞIĞ straße ΑΒΓ ς Σ",
    "x",
]
QUERY = "the old fox"


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    config: dict
    pooling: str | None = "mean_tokens"  # None: it scores
    tokenizer: dict = dataclasses.field(default_factory=dict)  # of BertNormalizer
    dense: tuple = ()  # rows of each


def bert(**more):
    return dict(
        architectures=["BertModel"], model_type="bert", hidden_size=DIM, intermediate_size=FFN, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, vocab_size=len(pieces()), max_position_embeddings=POSITIONS, type_vocab_size=2,
        layer_norm_eps=1e-12, hidden_act="gelu", pad_token_id=0,
    ) | more  # fmt: skip


def xlmr(**more):
    """Unigram, and positions that begin at 2."""
    return bert() | dict(
        architectures=["XLMRobertaModel"], model_type="xlm-roberta", vocab_size=len(unigram()["vocab"]), type_vocab_size=1,
        max_position_embeddings=2 * POSITIONS + 2, layer_norm_eps=1e-5, pad_token_id=1, bos_token_id=0, eos_token_id=2,
    ) | more  # fmt: skip


def unigram():
    """What SentencePiece has learned of some lines of these documents, with a few rules of normalisation."""
    return json.loads((GOLDEN / "unigram.json").read_text(encoding="utf-8"))


def gemma3():
    """EmbeddingGemma: windows to both sides, and two dense layers behind the pooling."""
    config = generator.gemma3(
        DIM, FFN, 4, 3, 1, len(pieces()), POSITIONS, 1e6, head_dim=20, tied=True, window=23, pattern=2, pad_token_id=0
    )
    return config | dict(architectures=["Gemma3TextModel"], use_bidirectional_attention=True, query_pre_attn_scalar=16)


def modern_bert(**more):
    """Byte-level BPE, windows of 24 to both sides in two layers of four, no norm before the first, no biases."""
    return dict(
        architectures=["ModernBertModel"], model_type="modernbert", hidden_size=DIM, intermediate_size=FFN,
        num_hidden_layers=4, num_attention_heads=HEADS, vocab_size=len(byte_pieces()[0]), max_position_embeddings=400,
        local_attention=48, global_attn_every_n_layers=2, global_rope_theta=160000.0, local_rope_theta=10000.0,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2,
    ) | more  # fmt: skip


def nomic_bert(**more):
    """BERT with rotation and gates, without biases; under its own names, and under transformers', as in the release."""
    return dict(
        architectures=["NomicBertModel"], model_type="nomic_bert", vocab_size=len(pieces()), type_vocab_size=2, pad_token_id=0,
        n_embd=DIM, n_head=HEADS, n_inner=FFN, n_layer=LAYERS, n_positions=4 * POSITIONS, layer_norm_epsilon=1e-5,
        rotary_emb_base=1000, rotary_emb_fraction=1.0, rotary_scaling_factor=None, max_trained_positions=400,
        activation_function="swiglu", qkv_proj_bias=False, mlp_fc1_bias=False, mlp_fc2_bias=False, causal=False,
        hidden_size=DIM, num_attention_heads=HEADS, intermediate_size=FFN, num_hidden_layers=LAYERS, layer_norm_eps=1e-5,
        max_position_embeddings=400, hidden_act="silu", rope_parameters={"rope_type": "default", "rope_theta": 1000.0},
    ) | more  # fmt: skip


def make_cases():
    scores = dict(architectures=["BertForSequenceClassification"], id2label={"0": "LABEL_0"})
    modern_scores = scores | dict(architectures=["ModernBertForSequenceClassification"])
    return {
        case.name: case
        for case in (
            Case("bert-mean", bert()),
            Case("bert-first", bert(hidden_act="gelu_new", layer_norm_eps=1e-3), "cls_token", dict(lowercase=False)),
            Case("bert-score", bert(**scores), None),
            Case("gemma3-mean", gemma3(), dense=(96, 40)),
            Case("modern-first", modern_bert(norm_bias=True, attention_bias=True, mlp_bias=True), "cls_token"),
            Case("modern-mean", modern_bert()),
            Case("modern-score", modern_bert(**modern_scores, classifier_pooling="mean"), None),
            Case("nomic-mean", nomic_bert()),
            Case("xlmr-first", xlmr(), "cls_token"),
            Case("xlmr-score", xlmr(**scores | dict(architectures=["XLMRobertaForSequenceClassification"])), None),
        )
    }


def pieces():
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFé0123456789"
    words = (
        "the fox owl ran and once upon a time old told un ##able ##believ ##es ##s ##ing of wells is not 東 雨".split()
    )
    signs = list("!$+=<>^`|~—«»…¡.,:_/-()")
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    return list(dict.fromkeys([*special, *letters, *("##" + letter for letter in letters), *words, *signs]))


def byte_pieces():
    """(tokens, merges) of byte-level BPE: each byte, and a few words letter by letter."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in visible]
    found, merges = ["[PAD]", "[CLS]", "[SEP]", *map(chr, visible), *(chr(256 + n) for n in range(len(hidden)))], []
    for word in ("Ġthe", "Ġfox", "Ġowl", "Ġand", "ing"):
        for n in range(1, len(word)):
            found.append(word[: n + 1])
            merges.append([word[:n], word[n]])
    return found, merges


def bpe_json():
    tokens, merges = byte_pieces()
    ends = {name: {"id": name, "ids": [i], "tokens": [name]} for name, i in (("[CLS]", 1), ("[SEP]", 2))}
    first, last = ({"SpecialToken": {"id": name, "type_id": 0}} for name in ends)
    text, other = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    added = [
        dict(id=i, content=name, special=True, single_word=False, lstrip=False, rstrip=False, normalized=False)
        for i, name in enumerate(tokens[:3])
    ]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": {"type": "NFC"}, "pre_tokenizer": level, "decoder": level,
        "post_processor": {
            "type": "TemplateProcessing", "single": [first, text, last], "pair": [first, text, last, other, last],
            "special_tokens": ends,
        },
        "model": {"type": "BPE", "vocab": {token: i for i, token in enumerate(tokens)}, "merges": merges},
    }  # fmt: skip


def special(name):
    return {"id": name, "ids": [pieces().index(name)], "tokens": [name]}


def unigram_json():
    learned, ends = (
        unigram(),
        {name: {"id": name, "ids": [i], "tokens": [name]} for name, i in (("<s>", 0), ("</s>", 2))},
    )
    first, last = ({"SpecialToken": {"id": name, "type_id": 0}} for name in ends)
    text, other = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    added = [
        dict(id=i, content=name, special=True, single_word=False, lstrip=False, rstrip=False, normalized=False)
        for i, (name, _) in enumerate(learned["vocab"][:4])
    ]
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": {
            "type": "Sequence", "normalizers": [
                {"type": "Precompiled", "precompiled_charsmap": learned["charsmap"]},
                {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
            ],
        },
        "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True},
        "post_processor": {
            "type": "TemplateProcessing", "single": [first, text, last], "pair": [first, text, last, last, other, last],
            "special_tokens": ends,
        },
        "decoder": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True},
        "model": {"type": "Unigram", "unk_id": 3, "vocab": learned["vocab"], "byte_fallback": False},
    }  # fmt: skip


def tokenizer_json(case):
    if case.config["model_type"] == "xlm-roberta":
        return unigram_json()
    if case.config["model_type"] == "modernbert":
        return bpe_json()
    normalizer = dict(clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=True) | case.tokenizer
    mark, a, b = ({"SpecialToken": {"id": name, "type_id": 0}} for name in ("[SEP]", "[CLS]", "[SEP]"))
    text, other = ({"Sequence": {"id": name, "type_id": i}} for i, name in enumerate("AB"))
    end = {"SpecialToken": {"id": "[SEP]", "type_id": 1}}
    added = [
        dict(id=i, content=name, special=True, single_word=False, lstrip=False, rstrip=False, normalized=False)
        for i, name in enumerate(pieces()[:5])
    ]
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": {"type": "BertNormalizer", **normalizer},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing", "single": [a, text, mark], "pair": [a, text, b, other, end],
            "special_tokens": {name: special(name) for name in ("[CLS]", "[SEP]")},
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
            "vocab": {piece: i for i, piece in enumerate(pieces())},
        },
    }  # fmt: skip


def modern_shapes(config):
    dim, ffn, bias = config["hidden_size"], config["intermediate_size"], config.get("norm_bias")
    norms, linear = ["embeddings.norm", "final_norm"], {}
    for n in range(config["num_hidden_layers"]):
        norms += [f"layers.{n}.attn_norm"] * (n > 0) + [f"layers.{n}.mlp_norm"]
        linear |= {f"layers.{n}.attn.Wqkv": (3 * dim, dim), f"layers.{n}.attn.Wo": (dim, dim)}
        linear |= {f"layers.{n}.mlp.Wi": (2 * ffn, dim), f"layers.{n}.mlp.Wo": (dim, ffn)}
    scores = config["architectures"][0].endswith("Classification")
    if scores:
        norms, linear = [*norms, "head.norm"], linear | {"head.dense": (dim, dim), "classifier": (1, dim)}
    found = {"embeddings.tok_embeddings.weight": (config["vocab_size"], dim)}
    for name, shape in (dict.fromkeys(norms, (dim,)) | linear).items():
        found[f"{name}.weight"] = shape
        if bias:
            found[f"{name}.bias"] = shape[:1]
    if scores:
        inner = ("embeddings.", "layers.", "final_norm.")
        found = {f"model.{name}" if name.startswith(inner) else name: shape for name, shape in found.items()}
        found["classifier.bias"] = (1,)
    return found


def nomic_shapes(config):
    dim, ffn, norms = config["hidden_size"], config["intermediate_size"], ["emb_ln"]
    found = {
        "embeddings.word_embeddings.weight": (config["vocab_size"], dim),
        "embeddings.token_type_embeddings.weight": (config["type_vocab_size"], dim),
    }
    for layer in (f"encoder.layers.{n}" for n in range(config["num_hidden_layers"])):
        norms += [f"{layer}.norm1", f"{layer}.norm2"]
        found |= {f"{layer}.attn.Wqkv.weight": (3 * dim, dim), f"{layer}.attn.out_proj.weight": (dim, dim)}
        found |= {f"{layer}.mlp.fc11.weight": (ffn, dim), f"{layer}.mlp.fc12.weight": (ffn, dim)}
        found[f"{layer}.mlp.fc2.weight"] = (dim, ffn)
    return found | {f"{norm}.{kind}": (dim,) for norm in norms for kind in ("weight", "bias")}


def shapes(config):
    if config["model_type"] in ("modernbert", "nomic_bert"):
        return (modern_shapes if config["model_type"] == "modernbert" else nomic_shapes)(config)
    dim, ffn = config["hidden_size"], config["intermediate_size"]
    scores = config["architectures"][0].endswith("Classification")
    of_roberta = config["model_type"] == "xlm-roberta"
    prefix = ("roberta." if of_roberta else "bert.") if scores else ""
    found = {
        f"{prefix}embeddings.word_embeddings.weight": (config["vocab_size"], dim),
        f"{prefix}embeddings.position_embeddings.weight": (config["max_position_embeddings"], dim),
        f"{prefix}embeddings.token_type_embeddings.weight": (config["type_vocab_size"], dim),
    }
    norms, linear = [f"{prefix}embeddings.LayerNorm"], {}
    if not (of_roberta and scores):
        linear[f"{prefix}pooler.dense"] = (dim, dim)
    for n in range(config["num_hidden_layers"]):
        layer = f"{prefix}encoder.layer.{n}"
        norms += [f"{layer}.attention.output.LayerNorm", f"{layer}.output.LayerNorm"]
        linear |= {f"{layer}.attention.self.{part}": (dim, dim) for part in ("query", "key", "value")}
        linear |= {f"{layer}.attention.output.dense": (dim, dim), f"{layer}.intermediate.dense": (ffn, dim)}
        linear |= {f"{layer}.output.dense": (dim, ffn)}
    if scores and of_roberta:
        linear |= {"classifier.dense": (dim, dim), "classifier.out_proj": (1, dim)}
    elif scores:
        linear["classifier"] = (1, dim)
    for name in norms:
        found |= {f"{name}.weight": (dim,), f"{name}.bias": (dim,)}
    for name, shape in linear.items():
        found |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    return found


def write(case, folder):
    """Norms' weights lie around 1, biases are far from 0, and attention is far from uniform."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(7)

    def make(name, shape):
        drawn = rng.standard_normal(int(np.prod(shape)), dtype=np.float32)
        if "norm" in name.lower() or name.startswith("emb_ln"):
            return 0.3 * drawn + np.float32(name.endswith("weight"))
        if name.endswith("bias"):
            return 0.2 * drawn
        return drawn * np.float32(0.6 if "embeddings" in name else 1.8 / shape[-1] ** 0.5)

    bert_like = case.config["model_type"] != "gemma3_text"
    own, make = (shapes(case.config), make) if bert_like else (generator.tensor_shapes(case.config), filled(case))
    (folder / "config.json").write_text(json.dumps(case.config))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_json(case)))
    generator.write_shard(folder / "model.safetensors", own, make, "fp32")
    if case.pooling:
        kinds = ("Transformer", "Pooling", *["Dense"] * len(case.dense), "Normalize")
        modules = [{"path": f"{i}_{kind}" if i else "", "type": f"sentence_transformers.models.{kind}"}
                   for i, kind in enumerate(kinds)]  # fmt: skip
        (folder / "modules.json").write_text(json.dumps(modules))
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling/config.json").write_text(json.dumps({f"pooling_mode_{case.pooling}": True}))
    width = case.config["hidden_size"]
    for i, rows in enumerate(case.dense, 2):
        dense = folder / f"{i}_Dense"
        dense.mkdir()
        settings = dict(in_features=width, out_features=rows, bias=False)
        identity = "torch.nn.modules.linear.Identity"
        (dense / "config.json").write_text(json.dumps(settings | dict(activation_function=identity)))
        generator.write_shard(
            dense / "model.safetensors",
            {"linear.weight": (rows, width)},
            lambda name, shape: rng.standard_normal(int(np.prod(shape)), dtype=np.float32)
            / np.float32(shape[1] ** 0.5),
            "fp32",
        )
        width = rows
    return folder


def filled(case):
    return generator.filler(case.config, "fp32", 0)
