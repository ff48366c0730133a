"""Presets of random_hf_model.py with Mamba-2's selective state spaces, and their tensors."""

TYPES = ("granitemoehybrid", "nemotron_h", "falcon_h1", "bamba")


def base(name, kind, layers, **more):
    config = dict(
        architectures=[name],
        model_type=kind,
        hidden_size=96,
        intermediate_size=136,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=512,
        max_position_embeddings=1024,
        hidden_act="silu",
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
        rms_norm_eps=1e-5,
        mamba_d_conv=4,
        mamba_d_state=20,
        mamba_n_heads=6,
        mamba_d_head=32,
        mamba_n_groups=2,
        mamba_expand=2,
        mamba_conv_bias=True,
    )
    return config | more


def granite(layers=4, **more):
    types = ["linear_attention", "linear_attention", "full_attention", "linear_attention"][:layers]
    given = dict(
        layer_types=types,
        intermediate_size=80,
        shared_intermediate_size=112,
        num_local_experts=6,
        num_experts_per_tok=2,
        embedding_multiplier=8.0,
        attention_multiplier=0.11,
        residual_multiplier=0.3,
        logits_scaling=0.7,
        position_embedding_type="nope",
    )
    return base("GraniteMoeHybridForCausalLM", "granitemoehybrid", layers, **given | more)


def nemotron(pattern, **more):
    """The names that its own config.json has. Real ones have time_step_min 0.001."""
    given = dict(
        hybrid_override_pattern=pattern,
        head_dim=40,
        ssm_state_size=16,
        mamba_num_heads=6,
        mamba_head_dim=36,
        n_groups=3,
        conv_kernel=4,
        use_conv_bias=True,
        layer_norm_epsilon=1e-5,
        mlp_hidden_act="relu2",
        time_step_min=0.2,
        n_routed_experts=8,
        num_experts_per_tok=2,
        moe_intermediate_size=72,
        n_shared_experts=1,
        moe_shared_expert_intermediate_size=100,
        routed_scaling_factor=1.5,
        n_group=4,
        topk_group=2,
        tie_word_embeddings=False,
    )
    config = base("NemotronHForCausalLM", "nemotron_h", len(pattern), **given | more)
    gone = ("hidden_act", "rms_norm_eps")
    return {
        key: value
        for key, value in config.items()
        if key not in gone
        and not key.startswith("mamba_d_")
        and key not in ("mamba_n_heads", "mamba_n_groups", "mamba_conv_bias", "mamba_expand")
    }


def falcon(**more):
    given = dict(
        mamba_d_ssm=168,
        mamba_d_head=28,
        mamba_rms_norm=False,
        mamba_norm_before_gate=True,
        head_dim=40,
        embedding_multiplier=3.0,
        lm_head_multiplier=1.7,
        key_multiplier=0.8,
        attention_in_multiplier=1.2,
        attention_out_multiplier=0.9,
        ssm_in_multiplier=1.3,
        ssm_out_multiplier=0.7,
        mlp_multipliers=[0.8, 1.4],
        ssm_multipliers=[0.7, 1.1, 0.9, 1.2, 0.6],
    )
    return base("FalconH1ForCausalLM", "falcon_h1", 3, **given | more)


def presets():
    return {
        "tiny-granite-hybrid": granite(),
        "tiny-granite-hybrid-dense": granite(
            num_local_experts=0,
            mamba_n_groups=1,
            position_embedding_type="rope",
            mamba_conv_bias=False,
            time_step_limit=[0.2, 0.9],
        ),
        "tiny-nemotron-h": nemotron("ME*EM-MM*-"),
        "tiny-nemotron-h-dense": nemotron("M-M*-M-"),
        "tiny-falcon-h1": falcon(),
        "tiny-falcon-h1-norm": falcon(mamba_rms_norm=True),
        "tiny-bamba": base("BambaForCausalLM", "bamba", 4, attn_layer_indices=[1]),
    }


def scan_shapes(c, p):
    dim, heads = c["hidden_size"], c.get("mamba_num_heads") or c["mamba_n_heads"]
    values = heads * (c.get("mamba_head_dim") or c["mamba_d_head"])
    state, groups = c.get("ssm_state_size") or c["mamba_d_state"], c.get("n_groups") or c["mamba_n_groups"]
    channels = values + 2 * groups * state
    shapes = {
        p + "in_proj.weight": (values + channels + heads, dim),
        p + "conv1d.weight": (channels, 1, 4),
        p + "dt_bias": (heads,),
        p + "A_log": (heads,),
        p + "D": (heads,),
        p + "out_proj.weight": (dim, values),
    }
    if c.get("mamba_rms_norm", True):
        shapes[p + "norm.weight"] = (values,)
    if c.get("mamba_conv_bias", c.get("use_conv_bias")):
        shapes[p + "conv1d.bias"] = (channels,)
    return shapes


def attention_shapes(c, p):
    dim, hd = c["hidden_size"], c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    q, kv = c["num_attention_heads"] * hd, c["num_key_value_heads"] * hd
    return {
        p + f"{name}_proj.weight": shape
        for name, shape in dict(q=(q, dim), k=(kv, dim), v=(kv, dim), o=(dim, q)).items()
    }


def mlp_shapes(c, p, ffn, gated=True):
    names = ("gate", "up", "down") if gated else ("up", "down")
    return {
        p + f"{name}_proj.weight": (c["hidden_size"], ffn) if name == "down" else (ffn, c["hidden_size"])
        for name in names
    }


def nemotron_block(c, p, block):
    mixer, n = p + "mixer.", c["n_routed_experts"]
    shapes = {p + "norm.weight": (c["hidden_size"],)}
    if block in "M*":
        return shapes | (scan_shapes if block == "M" else attention_shapes)(c, mixer)
    if block == "-":
        return shapes | mlp_shapes(c, mixer, c["intermediate_size"], False)
    shapes |= {mixer + "gate.weight": (n, c["hidden_size"]), mixer + "gate.e_score_correction_bias": (n,)}
    for e in range(n):
        shapes |= mlp_shapes(c, mixer + f"experts.{e}.", c["moe_intermediate_size"], False)
    return shapes | mlp_shapes(c, mixer + "shared_experts.", c["moe_shared_expert_intermediate_size"], False)


def layer_shapes(c, p, i):
    dim, kind = c["hidden_size"], c["model_type"]
    types = c.get("layer_types") or [
        "full_attention" if n in c.get("attn_layer_indices", ()) else "linear_attention"
        for n in range(c["num_hidden_layers"])
    ]
    shapes = {p + "input_layernorm.weight": (dim,)}
    if kind == "falcon_h1" or types[i] == "linear_attention":
        shapes |= scan_shapes(c, p + "mamba.")
    if kind == "falcon_h1" or types[i] == "full_attention":
        shapes |= attention_shapes(c, p + "self_attn.")
    if kind != "granitemoehybrid":
        shapes[p + "pre_ff_layernorm.weight"] = (dim,)
        return shapes | mlp_shapes(c, p + "feed_forward.", c["intermediate_size"])
    n, ffn, shared = c["num_local_experts"], c["intermediate_size"], c["shared_intermediate_size"]
    shapes |= {
        p + "post_attention_layernorm.weight": (dim,),
        p + "shared_mlp.input_linear.weight": (2 * shared, dim),
        p + "shared_mlp.output_linear.weight": (dim, shared),
    }
    if n:
        moe = p + "block_sparse_moe."
        shapes |= {
            moe + "router.layer.weight": (n, dim),
            moe + "input_linear.weight": (n, 2 * ffn, dim),
            moe + "output_linear.weight": (n, dim, ffn),
        }
    return shapes


def mamba_shapes(c):
    dim, vocab, nemotron_h = c["hidden_size"], c["vocab_size"], c["model_type"] == "nemotron_h"
    first = "backbone." if nemotron_h else "model."
    shapes = {first + ("embeddings" if nemotron_h else "embed_tokens") + ".weight": (vocab, dim)}
    for i in range(c["num_hidden_layers"]):
        p = first + f"layers.{i}."
        shapes |= nemotron_block(c, p, c["hybrid_override_pattern"][i]) if nemotron_h else layer_shapes(c, p, i)
    last = {"nemotron_h": "norm_f", "granitemoehybrid": "norm"}.get(c["model_type"], "final_layernorm")
    shapes[first + last + ".weight"] = (dim,)
    if not c["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (vocab, dim)
    return shapes
