"""Models that read whole texts, both ways: BERT, its kin, and ModernBERT. What their rows in architectures.py cannot say:
facts, the names of tensors, and what stands before the first layer and behind the last."""

from .source import shown

# Parts of tensors' names, and what plan.py looks for in their place; the order counts.
BERT_NAMES = (
    ("roberta.", ""),
    ("bert.", ""),
    (".gamma", ".weight"),
    (".beta", ".bias"),
    ("encoder.layer.", "model.layers."),
    (".attention.self.query.", ".self_attn.q_proj."),
    (".attention.self.key.", ".self_attn.k_proj."),
    (".attention.self.value.", ".self_attn.v_proj."),
    (".attention.output.dense.", ".self_attn.o_proj."),
    (".attention.output.LayerNorm.", ".input_layernorm."),
    (".intermediate.dense.", ".mlp.up_proj."),
    (".output.dense.", ".mlp.down_proj."),
    (".output.LayerNorm.", ".post_attention_layernorm."),
    ("embeddings.word_embeddings.", "model.embed_tokens."),
)
BERT_FACTS = (
    "attention_bias", "mlp_bias", "bidirectional", "layer_norm", "norm_bias", "embedding_norm", "post_norm", "ungated",
    "learned_positions", "tied_embeddings",
)  # fmt: skip
# Nomic's own names, and transformers'.
NOMIC_NAMES = (
    ("nomic_bert.", ""),
    ("encoder.layers.", "layers."),
    ("model.layers.", "layers."),
    ("layers.", "model.layers."),
    (".attn.Wqkv.", ".self_attn.qkv_proj."),
    (".attn.out_proj.", ".self_attn.o_proj."),
    (".fc11.", ".up_proj."),
    (".fc12.", ".gate_proj."),
    (".fc2.", ".down_proj."),
    (".post_attention_layernorm.", ".norm1."),
    (".post_mlp_layernorm.", ".norm2."),
    (".norm1.", ".input_layernorm."),
    (".norm2.", ".post_attention_layernorm."),
    ("emb_ln.", "embeddings.LayerNorm."),
    ("embeddings.word_embeddings.", "model.embed_tokens."),
)
NOMIC_FACTS = ("bidirectional", "layer_norm", "norm_bias", "embedding_norm", "post_norm", "tied_embeddings")
NOMIC_KEYS = (
    ("layer_norm_epsilon", ("rms_norm_eps",)), ("layer_norm_eps", ("rms_norm_eps",)), ("n_embd", ("hidden_size",)),
    ("n_head", ("num_attention_heads",)), ("n_inner", ("intermediate_size",)), ("n_layer", ("num_hidden_layers",)),
    ("max_trained_positions", ("max_position_embeddings",)), ("rotary_emb_base", ("rope_theta",)),
)  # fmt: skip
NOMIC_TOLD = (
    ("activation_function", "swiglu"), ("causal", False), ("prenorm", False), ("parallel_block", False),
    ("use_rms_norm", False), ("rotary_emb_fraction", 1),
    ("rotary_emb_interleaved", False), ("rotary_emb_scale_base", None), ("rotary_scaling_factor", None),
    ("qkv_proj_bias", False), ("mlp_fc1_bias", False), ("mlp_fc2_bias", False), ("scale_attn_weights", True),
    ("scale_attn_by_inverse_layer_idx", False),
)  # fmt: skip
NOMIC: dict = {
    "NomicBertModel": dict(
        model_type="nomic_bert",
        defaults=dict(
            vocab_size=30528, hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12,
            num_key_value_heads=None, max_position_embeddings=2048, rms_norm_eps=1e-12, rope_theta=1000.0, sliding_window=None,
            type_vocab_size=2, hidden_act="silu", n_positions=8192,
        ),
        facts=NOMIC_FACTS, changes=dict(names=NOMIC_NAMES), keys=NOMIC_KEYS, told=NOMIC_TOLD,
    )
}  # fmt: skip
MODERN_NAMES = (
    ("model.", ""),
    ("layers.", "model.layers."),
    (".attn.Wqkv.", ".self_attn.qkv_proj."),
    (".attn.Wo.", ".self_attn.o_proj."),
    (".attn_norm.", ".input_layernorm."),
    (".mlp.Wi.", ".mlp.gate_up_proj."),
    (".mlp.Wo.", ".mlp.down_proj."),
    (".mlp_norm.", ".post_attention_layernorm."),
    ("embeddings.tok_embeddings.", "model.embed_tokens."),
    ("embeddings.norm.", "embeddings.LayerNorm."),
    ("final_norm.", "model.norm."),
)
MODERN_FACTS = ("bidirectional", "layer_norm", "embedding_norm", "bare_first", "tied_embeddings")
# What they were trained by, or make of a text where neither a vector nor a score is wanted.
UNUSED = ("cls.", "lm_head.", "pooler.", "embeddings.position_ids", "embeddings.token_type_ids", "head.", "decoder.")
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "relu2": "relu2",
    "silu": "silu",
    "xielu": "xielu",
    "swish": "silu",
}


def read_encoder(keys, facts: dict, name: str) -> None:
    """Completes the facts of BERT and its kin."""
    facts["n_token_types"] = keys.integer("type_vocab_size", keys.defaults["type_vocab_size"], 1, 256)
    if not facts.get("learned_positions"):  # Nomic's
        return
    facts["unrotated_layers"] = list(range(facts["n_layers"]))
    before = first_position(keys)
    if before >= facts["context_length"]:
        raise keys.error(f"max_position_embeddings is {facts['context_length']}, but positions begin at {before}")
    facts["context_length"] -= before
    if before:
        facts["first_position"] = before  # plan_encoder() takes it out again
    if name.endswith("ForSequenceClassification"):
        check_labels(keys)
        facts["score"] = {}


def read_modern(keys, facts: dict, name: str) -> None:
    """Completes the facts of ModernBERT."""
    facts["norm_bias"] = keys.flag("norm_bias", False)
    halve_windows(facts)
    if not name.endswith("ForSequenceClassification"):
        return
    check_labels(keys)
    by = keys.string("classifier_pooling", "cls")
    if by not in ("cls", "mean") or keys.flag("classifier_bias", False):
        raise keys.error(f"classifier_pooling {shown(by)}, or classifier_bias, is not supported")
    if keys.string("classifier_activation", "gelu") != "gelu":
        raise keys.error(f"classifier_activation: found {shown(keys.values['classifier_activation'])}, expected 'gelu'")
    facts["score"] = {"by": "mean" if by == "mean" else "first", "normed": True}


def check_labels(keys) -> None:
    labels = keys.object("id2label")
    n = len(labels) or keys.integer("num_labels", 2, 1)
    if n != 1:
        raise keys.error(f"id2label: found {n} labels, expected 1: a score of how well two texts go together")


def halve_windows(facts: dict) -> None:
    """Their files have the window of both directions together; ours is of one, the token itself included."""
    for kind in [facts, *facts.get("kinds", [])]:
        kind["sliding_window"] = kind["sliding_window"] // 2 + 1 if kind["sliding_window"] else 0


def first_position(keys) -> int:
    """RoBERTa's positions begin behind the padding token's id."""
    return keys.integer("pad_token_id", 1, 0) + 1 if keys.values.get("model_type") == "xlm-roberta" else 0


def activation(keys) -> str:
    key = "hidden_activation" if "hidden_activation" in keys.defaults else "hidden_act"
    name = keys.string(key, keys.defaults.get(key, "gelu"))
    if name not in ACTIVATIONS:
        raise keys.error(f"{key}: activation {shown(name)} is not supported, expected one of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def plan_encoder(planner) -> None:
    """What is added to the embedding, its norm, and the heads. planner: a Planner of plan.py."""
    c, dim = planner.config, planner.config["hidden_dim"]
    if c.get("learned_positions"):
        name, n = "embeddings.position_embeddings.weight", c["context_length"]
        before = c.pop("first_position", 0)
        planner.exact("positions", planner.take(name, (before + n, dim)).part(before * dim, (n, dim)))
    if c.get("n_token_types"):
        types = planner.take("embeddings.token_type_embeddings.weight", (c["n_token_types"], dim))
        planner.exact("token_types", types)
    if c.get("embedding_norm"):
        for kind in ("weight", "bias")[: 1 + c.get("norm_bias", False)]:
            norm = planner.take(f"embeddings.LayerNorm.{kind}", (dim,))
            planner.exact("embedding_norm" + ("_bias" if kind == "bias" else ""), norm)
    if "score" in c:
        plan_score(planner, dim)
    for i, rows in enumerate(c.get("pooling", {}).get("dense", ())):
        width = ([dim] + c["pooling"]["dense"])[i]
        planner.exact(f"dense.{i}", planner.take(f"dense.{i}.linear.weight", (rows, width)))
    for name in [name for name in planner.left if c.get("bidirectional") and name.startswith(UNUSED)]:
        del planner.left[name]


def plan_score(planner, dim: int) -> None:
    """BERT has the dense layer in its pooler, RoBERTa in the classifier, ModernBERT in a head with a norm."""
    if planner.config["score"].get("by") == "last":
        return
    if planner.config["score"].get("normed"):
        planner.exact("score.dense", planner.take("head.dense.weight", (dim, dim)))
        for kind, end in (("weight", ""), ("bias", "_bias"))[: 1 + planner.config["norm_bias"]]:
            planner.exact(f"score.norm{end}", planner.take(f"head.norm.{kind}", (dim,)))
        planner.exact("score.out", planner.take("classifier.weight", (1, dim)))
        planner.exact("score.out_bias", planner.take("classifier.bias", (1,)))
        return
    of_bert = "classifier.weight" in planner.left
    dense, out = ("pooler.dense", "classifier") if of_bert else ("classifier.dense", "classifier.out_proj")
    for name, stored, rows in (("score.dense", dense, dim), ("score.out", out, 1)):
        planner.exact(name, planner.take(f"{stored}.weight", (rows, dim)))
        planner.exact(f"{name}_bias", planner.take(f"{stored}.bias", (rows,)))
