"""Decoders as they were before Llama: LayerNorm, biases, MLPs without a gate, blocks side by side, learned positions,
ALiBi. Their rows for architectures.py, and what rows cannot say: facts, and tensors that plan.py does not know."""

import numpy as np

from .errors import ModelError
from .source import shown

BASE = {
    "vocab_size": 50257, "hidden_size": 768, "intermediate_size": None, "num_hidden_layers": 12, "num_attention_heads": 12,
    "num_key_value_heads": None, "max_position_embeddings": 1024, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "sliding_window": None, "hidden_act": "gelu_new",
}  # fmt: skip
STARCODER2 = dict(
    BASE, vocab_size=49152, hidden_size=3072, intermediate_size=12288, num_hidden_layers=30, num_attention_heads=24,
    num_key_value_heads=2, max_position_embeddings=4096, hidden_act="gelu_pytorch_tanh", tie_word_embeddings=True,
    attention_bias=True, mlp_bias=True,
)  # fmt: skip
LAYER_NORM = ("layer_norm", "norm_bias")
ONE_NORM = ("parallel", "one_norm")
BIASES = ("attention_bias", "mlp_bias")
EPS = ("layer_norm_eps", ("rms_norm_eps",)), ("layer_norm_epsilon", ("rms_norm_eps",))
GPT_KEYS = (
    *EPS,
    ("n_embd", ("hidden_size",)),
    ("n_layer", ("num_hidden_layers",)),
    ("n_head", ("num_attention_heads",)),
    ("n_positions", ("max_position_embeddings",)),
    ("n_ctx", ("max_position_embeddings",)),
    ("n_inner", ("intermediate_size",)),
    ("activation_function", ("hidden_act",)),
)
ROWS: dict = {
    "Starcoder2ForCausalLM": dict(
        model_type="starcoder2", defaults=STARCODER2, window="always", biases=BIASES, facts=(*LAYER_NORM, "ungated"),
        changes=dict(names=((".mlp.c_fc.", ".mlp.up_proj."), (".mlp.c_proj.", ".mlp.down_proj."))),
        keys=(("norm_epsilon", ("rms_norm_eps",)), ("use_bias", BIASES)),
        told=(("mlp_type", "default"), ("norm_type", "layer_norm")),
    ),
    "PhiForCausalLM": dict(
        model_type="phi",
        defaults=dict(
            BASE, vocab_size=51200, hidden_size=2048, intermediate_size=8192, num_hidden_layers=24, num_attention_heads=32,
            max_position_embeddings=2048, partial_rotary_factor=0.5,
        ),
        facts=(*BIASES, *LAYER_NORM, *ONE_NORM, "ungated", "classifier_bias"), biases=BIASES,
        changes=dict(
            names=(
                (".self_attn.dense.", ".self_attn.o_proj."),
                (".mlp.fc1.", ".mlp.up_proj."),
                (".mlp.fc2.", ".mlp.down_proj."),
                ("model.final_layernorm.", "model.norm."),
            )
        ),
        keys=EPS, told=(("qk_layernorm", False),),
    ),
    "StableLmForCausalLM": dict(
        model_type="stablelm",
        defaults=dict(
            BASE, vocab_size=50304, hidden_size=2560, intermediate_size=6912, num_hidden_layers=32, num_attention_heads=32,
            num_key_value_heads=32, max_position_embeddings=4096, partial_rotary_factor=0.25, hidden_act="silu",
            qkv_bias=False, use_parallel_residual=False,
        ),
        facts=(*LAYER_NORM, "one_norm"), keys=(*EPS, ("use_qkv_bias", ("qkv_bias",))), told=(("qk_layernorm", False),),
    ),
    "ApertusForCausalLM": dict(
        model_type="apertus",
        defaults=dict(
            BASE, vocab_size=131072, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32,
            max_position_embeddings=65536, rope_theta=12e6, hidden_act="xielu", rope_parameters={
                "rope_type": "llama3", "rope_theta": 12e6, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8192,
            },
        ),
        biases=("attention_bias",), facts=("qk_norm", "ungated"),
        changes=dict(
            names=(
                (".attention_layernorm.", ".input_layernorm."),
                (".feedforward_layernorm.", ".post_attention_layernorm."),
            )
        ),
        told=(("qk_norm", True), ("post_norm", False)),
    ),
    "GPT2LMHeadModel": dict(
        model_type="gpt2", defaults=dict(BASE, tie_word_embeddings=True), biases=BIASES,
        facts=(*BIASES, *LAYER_NORM, "ungated", "learned_positions"),
        changes=dict(
            names=(
                ("transformer.", ""),
                ("h.", "model.layers."),
                (".ln_1.", ".input_layernorm."),
                (".ln_2.", ".post_attention_layernorm."),
                ("ln_f.", "model.norm."),
                ("wte.", "model.embed_tokens."),
                ("wpe.", "embeddings.position_embeddings."),
                (".attn.c_attn.", ".self_attn.qkv_proj."),
                (".attn.c_proj.", ".self_attn.o_proj."),
                (".attn.", ".self_attn."),
                (".mlp.c_fc.", ".mlp.up_proj."),
                (".mlp.c_proj.", ".mlp.down_proj."),
            ),
            turned=("c_attn.weight", "c_fc.weight", "c_proj.weight"),
        ),
        keys=GPT_KEYS,
        told=(("scale_attn_weights", True), ("scale_attn_by_inverse_layer_idx", False), ("add_cross_attention", False)),
    ),
    "GPTNeoXForCausalLM": dict(
        model_type="gpt_neox",
        defaults=dict(
            BASE, vocab_size=50432, hidden_size=6144, intermediate_size=24576, num_hidden_layers=44,
            num_attention_heads=64, max_position_embeddings=2048, hidden_act="gelu", partial_rotary_factor=0.25,
            attention_bias=True, use_parallel_residual=True,
        ),
        biases=BIASES, facts=(*LAYER_NORM, "mlp_bias", "ungated"),
        changes=dict(
            names=(
                ("gpt_neox.", "model."),
                ("model.embed_in.", "model.embed_tokens."),
                ("model.final_layer_norm.", "model.norm."),
                ("embed_out.", "lm_head."),
                (".attention.query_key_value.", ".self_attn.qkv_groups."),
                (".attention.dense.", ".self_attn.o_proj."),
                (".attention.", ".self_attn."),
                (".dense_h_to_4h.", ".up_proj."),
                (".dense_4h_to_h.", ".down_proj."),
            ),
        ),
        keys=(*EPS, ("rotary_pct", ("partial_rotary_factor",)), ("rotary_emb_base", ("rope_theta",))),
    ),
    "CohereForCausalLM": dict(
        model_type="cohere",
        defaults=dict(
            BASE, vocab_size=256000, hidden_size=8192, intermediate_size=22528, num_hidden_layers=40,
            num_attention_heads=64, max_position_embeddings=8192, rope_theta=500000.0, hidden_act="silu",
            logit_scale=0.0625, tie_word_embeddings=True,
        ),
        biases=BIASES[:1], facts=("layer_norm", *ONE_NORM), changes=dict(pairs=True), keys=EPS,
        told=(("use_qk_norm", False),),
    ),
    "Cohere2ForCausalLM": dict(
        model_type="cohere2",
        defaults=dict(
            BASE, vocab_size=256000, hidden_size=8192, intermediate_size=22528, num_hidden_layers=40,
            num_attention_heads=64, max_position_embeddings=8192, hidden_act="silu", logit_scale=0.0625,
            tie_word_embeddings=True, sliding_window=4096, sliding_window_pattern=4, full_unrotated=True,
        ),
        window="types", biases=BIASES[:1], facts=("layer_norm", *ONE_NORM), changes=dict(pairs=True), keys=EPS,
        told=(
            ("use_qk_norm", False), ("use_parallel_block", True), ("use_gated_activation", True), ("rotary_pct", 1.0),
            ("use_parallel_embedding", False), ("position_embedding_type", "rope_gptj"),
            ("order_of_interleaved_layers", "local_attn_first"),
        ),
    ),
    "ArceeForCausalLM": dict(
        model_type="arcee",
        defaults=dict(
            BASE, vocab_size=32000, hidden_size=2560, intermediate_size=18432, num_hidden_layers=32,
            num_attention_heads=32, max_position_embeddings=4096, hidden_act="relu2",
        ),
        biases=BIASES, facts=("ungated",),
    ),
    "FalconForCausalLM": dict(
        model_type="falcon",
        defaults=dict(
            BASE, vocab_size=65024, hidden_size=4544, num_hidden_layers=32, num_attention_heads=71,
            max_position_embeddings=2048, hidden_act="gelu", tie_word_embeddings=True, attention_bias=False,
            mlp_bias=False, use_parallel_residual=True, multi_query=True, new_decoder_architecture=False,
            num_ln_in_parallel_attn=None,
        ),
        biases=BIASES, facts=(*LAYER_NORM, "ungated", "one_norm"),
        changes=dict(
            names=(
                ("transformer.h.", "model.layers."),
                ("transformer.word_embeddings.", "model.embed_tokens."),
                ("transformer.ln_f.", "model.norm."),
                (".self_attention.query_key_value.", ".self_attn.qkv_groups."),
                (".self_attention.dense.", ".self_attn.o_proj."),
                (".ln_attn.", ".input_layernorm."),
                (".ln_mlp.", ".post_attention_layernorm."),
                (".dense_h_to_4h.", ".up_proj."),
                (".dense_4h_to_h.", ".down_proj."),
            ),
        ),
        keys=(
            *EPS, ("n_embed", ("hidden_size",)), ("n_head", ("num_attention_heads",)), ("n_layer", ("num_hidden_layers",)),
            ("bias", BIASES), ("parallel_attn", ("use_parallel_residual",)), ("ffn_hidden_size", ("intermediate_size",)),
            ("activation", ("hidden_act",)), ("num_kv_heads", ("num_key_value_heads",)),
        ),
        told=(("alibi", False),),
    ),
    "BloomForCausalLM": dict(
        model_type="bloom",
        defaults=dict(
            BASE, vocab_size=250880, hidden_size=64, num_hidden_layers=2, num_attention_heads=8,
            max_position_embeddings=2048, tie_word_embeddings=True,
        ),
        biases=BIASES, facts=(*BIASES, *LAYER_NORM, "ungated", "embedding_norm", "alibi"),
        changes=dict(
            names=(
                ("transformer.", ""),
                (".dense_h_to_4h.", ".up_proj."),
                (".dense_4h_to_h.", ".down_proj."),
                ("h.", "model.layers."),
                ("word_embeddings_layernorm.", "embeddings.LayerNorm."),
                ("word_embeddings.", "model.embed_tokens."),
                ("ln_f.", "model.norm."),
                (".self_attention.query_key_value.", ".self_attn.qkv_groups."),
                (".self_attention.dense.", ".self_attn.o_proj."),
            ),
        ),
        keys=(*GPT_KEYS, ("n_embed", ("hidden_size",)), ("seq_length", ("max_position_embeddings",))),
        told=(("apply_residual_connection_post_layernorm", False), ("slow_but_exact", False)),
    ),
    "MptForCausalLM": dict(
        model_type="mpt",
        defaults=dict(
            BASE, vocab_size=50368, hidden_size=2048, num_hidden_layers=24, num_attention_heads=16,
            max_position_embeddings=2048, hidden_act="gelu", tie_word_embeddings=True, attn_config={},
        ),
        facts=("layer_norm", "ungated", "alibi"),
        changes=dict(
            names=(
                ("transformer.blocks.", "model.layers."),
                ("transformer.wte.", "model.embed_tokens."),
                ("transformer.norm_f.", "model.norm."),
                (".norm_1.", ".input_layernorm."),
                (".norm_2.", ".post_attention_layernorm."),
                (".attn.Wqkv.", ".self_attn.qkv_proj."),
                (".attn.out_proj.", ".self_attn.o_proj."),
                (".ffn.", ".mlp."),
            )
        ),
        keys=(
            *EPS, ("d_model", ("hidden_size",)), ("n_heads", ("num_attention_heads",)), ("n_layers", ("num_hidden_layers",)),
            ("max_seq_len", ("max_position_embeddings",)),
        ),
        told=(("no_bias", True), ("expansion_ratio", 4), ("embedding_fraction", 1.0), ("logit_scale", None)),
    ),
    "GPTJForCausalLM": dict(
        model_type="gptj",
        defaults=dict(
            BASE, vocab_size=50400, hidden_size=4096, num_hidden_layers=28, num_attention_heads=16,
            max_position_embeddings=2048, partial_rotary_factor=1.0, rotary_dim=64,
        ),
        biases=BIASES, facts=("mlp_bias", *LAYER_NORM, *ONE_NORM, "ungated", "classifier_bias"),
        changes=dict(
            names=(
                ("transformer.h.", "model.layers."),
                ("transformer.wte.", "model.embed_tokens."),
                ("transformer.ln_f.", "model.norm."),
                (".ln_1.", ".input_layernorm."),
                (".attn.out_proj.", ".self_attn.o_proj."),
                (".attn.", ".self_attn."),
                (".mlp.fc_in.", ".mlp.up_proj."),
                (".mlp.fc_out.", ".mlp.down_proj."),
            ),
            pairs=True,
        ),
        keys=GPT_KEYS, told=(("scale_attn_weights", True),),
    ),
}  # fmt: skip
ROWS["MPTForCausalLM"] = ROWS["MptForCausalLM"]  # by its makers' own program
# GPT-2 with as many or one KV head, whose matrices lie as usual.
ROWS["GPTBigCodeForCausalLM"] = dict(
    ROWS["GPT2LMHeadModel"], model_type="gpt_bigcode",
    defaults=dict(BASE, hidden_act="gelu_pytorch_tanh", tie_word_embeddings=True, multi_query=True),
    changes=dict(
        names=((".attn.c_attn.", ".self_attn.qkv_groups."), *ROWS["GPT2LMHeadModel"]["changes"]["names"]),
    ),
)  # fmt: skip


def usual_values(values: dict, defaults: dict) -> dict:
    """config.json's members, where one of them says how many KV heads there are without counting them."""
    counted = "num_key_value_heads" in values and "multi_query" not in values
    if "multi_query" not in defaults or values.get("new_decoder_architecture") or counted:
        return values
    one = values.get("multi_query", defaults["multi_query"]) is not False
    return {**values, "num_key_value_heads": 1 if one else None}


def read_classic(keys, facts: dict) -> float:
    """Completes the facts. Returns what logits are multiplied by."""
    layers = list(range(facts["n_layers"]))
    if "use_parallel_residual" in keys.defaults:
        _blocks(keys, facts)
    if facts.get("learned_positions") or facts.get("alibi"):
        facts["unrotated_layers"] = layers
    if "attn_config" in keys.defaults:
        _mpt(keys)
    scale = keys.defaults.get("logit_scale")
    return 1.0 if scale is None else keys.number("logit_scale", scale, 1e-6, 1e6)


def _blocks(keys, facts: dict) -> None:
    """Whether a layer's blocks stand side by side, and whether they read the same norm's."""
    parallel = keys.flag("use_parallel_residual", keys.defaults["use_parallel_residual"])
    if "multi_query" in keys.defaults:  # Falcon
        new = keys.flag("new_decoder_architecture", False)
        norms = keys.integer("num_ln_in_parallel_attn", 2 if new else 1, 1, 2)
        if (new and not parallel) or (norms == 2 and not new):
            raise keys.error("parallel_attn, num_ln_in_parallel_attn: found what no Falcon has")
        if norms == 2:
            facts.pop("one_norm")
    if parallel:
        facts["parallel"] = True
    else:
        facts.pop("one_norm", None)


def _mpt(keys) -> None:
    """MPT's settings of attention."""
    config = keys.inner("attn_config", keys.object("attn_config"))
    told = {
        "attn_type": "multihead_attention", "clip_qkv": None, "softmax_scale": None, "prefix_lm": False, "qk_ln": False,
        "attn_uses_sequence_id": False, "alibi": True, "alibi_bias_max": 8,
    }  # fmt: skip
    for key, value in told.items():
        if config.values.get(key, value) != value:
            raise config.error(f"{key}: found {shown(config.values[key])}, expected {shown(value)}")


def slopes(n: int) -> np.ndarray:
    """(n) ALiBi's, of each head. Where n is no power of two, every second one of the next power's comes first."""
    above = 1 << (n - 1).bit_length()
    found = 2.0 ** (-8.0 / above * np.arange(1, above + 1))
    return found if above == n else np.concatenate([found[1::2], found[::2]])[:n]


def plan_xielu(planner, name: str, stored: str) -> None:
    """Apertus's: p, n and b of each layer, which are kept as what softplus makes them of. eps, 1e-6, bounds what differs from 0
    by less than float32 tells. planner: a Planner of plan.py."""
    found = {}
    for part in ("alpha_p", "alpha_n", "beta", "eps"):
        tensor = planner.left.get(f"{stored}.{part}")
        if tensor is not None or part.startswith("alpha"):
            shape = () if tensor is not None and tensor.shape == () else (1,)
            found[part] = float(planner.take(f"{stored}.{part}", shape).part(0, (1,)).values(0, 1)[0, 0])
    p, n = (np.log1p(np.exp(found[part])) for part in ("alpha_p", "alpha_n"))
    b = found.get("beta", 0.5)
    if abs(found.get("eps", 0.0)) > 1e-5:
        raise ModelError(f"{planner.where}: {stored}.eps: found {found['eps']:g}, expected -1e-6")
    planner.array(f"{name.removesuffix('.mlp')}.xielu", np.array([p, b + n, b]))


def plan_classic(planner) -> None:
    """planner: a Planner of plan.py."""
    c = planner.config
    if c.get("classifier_bias"):
        planner.exact("classifier_bias", planner.take("lm_head.bias", (c["vocab_size"],)))
    if c.get("alibi"):
        planner.array("alibi_slopes", slopes(c["n_heads"]))
