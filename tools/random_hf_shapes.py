"""The tensors of a Hugging Face model, by its config.json: names and shapes, in the order in which random_hf_model.py
fills them."""

import random_hf_mamba
from random_hf_classic import PLACES, classic_shapes


def kda_shapes(c, p):
    dim, own = c["hidden_size"], c["linear_attn_config"]
    heads, width, taps = own["num_heads"], own["head_dim"], own["short_conv_kernel_size"]
    rows = heads * width
    shapes = {p + f"{part}_proj.weight": (rows, dim) for part in "qkv"}
    shapes |= {p + f"{part}_conv1d.weight": (rows, 1, taps) for part in "qkv"}
    for part in "fg":
        shapes |= {p + f"{part}_a_proj.weight": (width, dim), p + f"{part}_b_proj.weight": (rows, width)}
    return shapes | {
        p + "b_proj.weight": (heads, dim),
        p + "dt_bias": (rows,),
        p + "A_log": (1, 1, heads, 1),
        p + "o_norm.weight": (width,),
        p + "o_proj.weight": (dim, rows),
    }


def recurrent_shapes(c, p):
    dim, heads, width = c["hidden_size"], c["linear_num_value_heads"], c["linear_conv_kernel_dim"]
    values = heads * c["linear_value_head_dim"]
    channels = 2 * c["linear_num_key_heads"] * c["linear_key_head_dim"] + values
    if c["model_type"] == "qwen3_next":
        products = {p + "in_proj_qkvz.weight": (channels + values, dim), p + "in_proj_ba.weight": (2 * heads, dim)}
    else:
        products = {
            p + "in_proj_qkv.weight": (channels, dim),
            p + "in_proj_z.weight": (values, dim),
            p + "in_proj_b.weight": (heads, dim),
            p + "in_proj_a.weight": (heads, dim),
        }
    return products | {
        p + "conv1d.weight": (channels, 1, width),
        p + "dt_bias": (heads,),
        p + "A_log": (heads,),
        p + "norm.weight": (c["linear_value_head_dim"],),
        p + "out_proj.weight": (dim, values),
    }


def gemma4_layer(c, i, p):
    dim, ffn, n = c["hidden_size"], c["intermediate_size"], c["hidden_size_per_layer_input"]
    full = c["layer_types"][i] == "full_attention" or i + 1 == c["num_hidden_layers"]  # the last one in any case
    keeps = i < c["num_hidden_layers"] - c["num_kv_shared_layers"]
    hd = c["global_head_dim"] if full else c["head_dim"]
    alike = full and c["attention_k_eq_v"]
    q, kv = c["num_attention_heads"] * hd, (c["num_global_key_value_heads"] if alike else c["num_key_value_heads"]) * hd
    norms = ["input", "post_attention", "pre_feedforward", "post_feedforward"]
    if c.get("enable_moe_block"):
        norms += ["post_feedforward_1", "post_feedforward_2", "pre_feedforward_2"]
    shapes = {
        p
        + "{}_layernorm{}.weight".format(
            *(which.rsplit("_", 1)[0], "_" + which[-1]) if which[-1].isdigit() else (which, "")
        ): (dim,)
        for which in norms
    }
    for name, rows, cols in (("q", q, dim), ("k", kv, dim), ("v", kv, dim), ("o", dim, q)):
        if name in "qo" or (keeps and not (name == "v" and alike)):
            shapes[p + f"self_attn.{name}_proj.weight"] = (rows, cols)
            if c["attention_bias"]:
                shapes[p + f"self_attn.{name}_proj.bias"] = (rows,)
    shapes |= {p + f"self_attn.{name}_norm.weight": (hd,) for name in ("qk" if keeps else "q")}
    ffn *= 2 if c["use_double_wide_mlp"] and not keeps else 1
    shapes |= {
        p + "mlp.gate_proj.weight": (ffn, dim),
        p + "mlp.up_proj.weight": (ffn, dim),
        p + "mlp.down_proj.weight": (dim, ffn),
        p + "layer_scalar": (1,),
    }
    if n:
        shapes |= {
            p + "per_layer_input_gate.weight": (n, dim),
            p + "per_layer_projection.weight": (dim, n),
            p + "post_per_layer_input_norm.weight": (dim,),
        }
    if c.get("enable_moe_block"):
        e, width = c["num_experts"], c["moe_intermediate_size"]
        shapes |= {
            p + "router.proj.weight": (e, dim),
            p + "router.scale": (dim,),
            p + "router.per_expert_scale": (e,),
            p + "experts.gate_up_proj": (e, 2 * width, dim),
            p + "experts.down_proj": (e, dim, width),
        }
    return shapes


def gemma4_shapes(c):
    dim, vocab, n = c["hidden_size"], c["vocab_size"], c["hidden_size_per_layer_input"]
    shapes, all_inputs = {"model.embed_tokens.weight": (vocab, dim)}, n * c["num_hidden_layers"]
    if n:
        shapes |= {
            "model.embed_tokens_per_layer.weight": (vocab, all_inputs),
            "model.per_layer_model_projection.weight": (all_inputs, dim),
            "model.per_layer_projection_norm.weight": (n,),
        }
    for i in range(c["num_hidden_layers"]):
        shapes |= gemma4_layer(c, i, f"model.layers.{i}.")
    return (
        shapes | {"model.norm.weight": (dim,)} | ({} if c["tie_word_embeddings"] else {"lm_head.weight": (vocab, dim)})
    )


def norms_before(c, p):
    dim, kind = c["hidden_size"], c["model_type"]
    names = ["post_feedforward" if kind in ("olmo2", "olmo3", "exaone4", "flex_olmo") else "input"]
    names += ["post_self_attn", "post_mlp"] if kind == "glm4" else []
    names += ["pre_feedforward", "post_feedforward"] if kind in ("gemma2", "gemma3_text") else []
    names += ["pre_mlp", "post_mlp"] if kind == "afmoe" else []
    return {p + f"{name}_layernorm.weight": (dim,) for name in names}


def latent_shapes(c, p):
    dim, heads, rank, rope = c["hidden_size"], c["num_attention_heads"], c["kv_lora_rank"], c["qk_rope_head_dim"]
    nope, v, q_rank = c["qk_nope_head_dim"], c["v_head_dim"], c["q_lora_rank"]
    shapes = {p + "q_proj.weight": (heads * (nope + rope), dim)}
    if q_rank:
        shapes = {
            p + "q_a_proj.weight": (q_rank, dim),
            p + "q_a_layernorm.weight": (q_rank,),
            p + "q_b_proj.weight": (heads * (nope + rope), q_rank),
        }
    return shapes | {
        p + "kv_a_proj_with_mqa.weight": (rank + rope, dim),
        p + "kv_a_layernorm.weight": (rank,),
        p + "kv_b_proj.weight": (heads * (nope + v), rank),
        p + "o_proj.weight": (dim, heads * v),
    }


def lfm2_shapes(c, i, p):
    """A layer's."""
    dim, ffn, width = c["hidden_size"], c["intermediate_size"], c["conv_L_cache"]
    hd = dim // c["num_attention_heads"]
    kv = c["num_key_value_heads"] * hd
    shapes = {p + "operator_norm.weight": (dim,), p + "ffn_norm.weight": (dim,)}
    if c["layer_types"][i] == "conv":
        own = {
            "conv.conv.weight": (dim, 1, width),
            "conv.in_proj.weight": (3 * dim, dim),
            "conv.out_proj.weight": (dim, dim),
        }
        if c["conv_bias"]:
            own |= {name.replace(".weight", ".bias"): shape[:1] for name, shape in own.items()}
    else:
        own = {
            f"self_attn.{name}_proj.weight": (rows, dim)
            for name, rows in (("q", dim), ("k", kv), ("v", kv), ("out", dim))
        }
        own |= {f"self_attn.{name}_layernorm.weight": (hd,) for name in "qk"}
    shapes |= {p + name: shape for name, shape in own.items()}
    parts, names = ["feed_forward."], ("w1", "w2", "w3")
    if "num_experts" in c and i >= c["num_dense_layers"]:
        n, ffn = c["num_experts"], c["moe_intermediate_size"]
        shapes |= {p + "feed_forward.gate.weight": (n, dim), p + "feed_forward.expert_bias": (n,)}
        parts = [f"feed_forward.experts.{e}." for e in range(n)]
    elif c.get("block_auto_adjust_ff_dim"):
        step = c["block_multiple_of"]
        ffn = -(-int(c["block_ffn_dim_multiplier"] * int(2 * ffn / 3)) // step) * step
    return shapes | {
        p + part + name + ".weight": (dim, ffn) if name == "w2" else (ffn, dim) for part in parts for name in names
    }


def attention_shapes(c, p, recurrent):
    dim, kind, shapes = c["hidden_size"], c["model_type"], {}
    if "kv_lora_rank" in c:
        return (kda_shapes if recurrent else latent_shapes)(c, p + "self_attn.")
    hd = c.get("head_dim") or dim // c["num_attention_heads"]
    q, kv = c["num_attention_heads"] * hd, c["num_key_value_heads"] * hd
    fused = kind == "phi3"
    if recurrent:
        return recurrent_shapes(c, p + "linear_attn.")
    if fused:
        shapes[p + "self_attn.qkv_proj.weight"] = (q + 2 * kv, dim)
    for name, rows, cols in (("q", q, dim), ("k", kv, dim), ("v", kv, dim), ("o", dim, q)):
        if fused and name != "o":
            continue
        if (
            kind.startswith(("qwen3_5", "qwen3_next")) and name == "q"
        ):  # and a gate for each component of what comes out
            rows *= 2
        shapes[p + f"self_attn.{name}_proj.weight"] = (rows, cols)
        biased = "qkv" if kind.startswith(("qwen2", "glm", "seed_oss", "helium", "solar_open")) else "qkvo"
        if (c.get("attention_bias") or c.get("use_bias") or kind.startswith("qwen2")) and name in biased:
            shapes[p + f"self_attn.{name}_proj.bias"] = (rows,)
    if kind == "afmoe":
        shapes[p + "self_attn.gate_proj.weight"] = (q, dim)
    if kind == "granite_swa":
        shapes[p + "self_attn.sinks"] = (c["num_attention_heads"],)
    if kind in ("olmo2", "olmo3", "olmoe", "flex_olmo", "minimax_m2"):
        shapes |= {p + "self_attn.q_norm.weight": (q,), p + "self_attn.k_norm.weight": (kv,)}
    elif kind.startswith("hunyuan"):
        shapes |= {p + f"self_attn.{name}_layernorm.weight": (hd,) for name in ("query", "key")}
    elif kind.startswith(("qwen3", "gemma3", "exaone", "mellum", "dots1", "hy_v3", "afmoe")) or c.get("use_qk_norm"):
        shapes |= {p + f"self_attn.{name}_norm.weight": (hd,) for name in "qk"}
    return shapes


def gate_up_down(p, ffn, dim):
    return {
        p + "gate_proj.weight": (ffn, dim),
        p + "up_proj.weight": (ffn, dim),
        p + "down_proj.weight": (dim, ffn),
    }


def gpt_oss_experts(c, p):
    dim, ffn, n = c["hidden_size"], c["intermediate_size"], c["num_local_experts"]
    return {
        p + "self_attn.sinks": (c["num_attention_heads"],),
        p + "mlp.router.weight": (n, dim),
        p + "mlp.router.bias": (n,),
        p + "mlp.experts.gate_up_proj": (n, dim, 2 * ffn),
        p + "mlp.experts.gate_up_proj_bias": (n, 2 * ffn),
        p + "mlp.experts.down_proj": (n, ffn, dim),
        p + "mlp.experts.down_proj_bias": (n, dim),
    }


def glm4_experts(c, p):
    dim, n, width = c["hidden_size"], c["n_routed_experts"], c["moe_intermediate_size"]
    shapes = {p + "mlp.gate.weight": (n, dim)}
    if c["model_type"] not in ("deepseek_v2", "mistral4"):
        shapes[p + "mlp.gate.e_score_correction_bias"] = (n,)
    if c["model_type"] == "mistral4":
        shapes |= {p + "mlp.experts.gate_up_proj": (n, 2 * width, dim), p + "mlp.experts.down_proj": (n, dim, width)}
        n = 0
    for e in range(n):
        shapes |= gate_up_down(p + f"mlp.experts.{e}.", width, dim)
    return shapes | gate_up_down(p + "mlp.shared_experts.", width * c["n_shared_experts"], dim)


def ernie_experts(c, p):
    """The same under names of their own, and a row that all biases are."""
    usual = dict(n_routed_experts=c["moe_num_experts"], n_shared_experts=c["moe_num_shared_experts"])
    shapes = glm4_experts(c | usual, p)
    return shapes | {
        p + "mlp.moe_statics.e_score_correction_bias": (1, *shapes.pop(p + "mlp.gate.e_score_correction_bias"))
    }


def kimi_experts(c, p):
    """As Mixtral's, beside some that all tokens go through."""
    width, block, n = c["moe_intermediate_size"], p + "block_sparse_moe.", c["num_experts"]
    shapes = mixtral_experts(c | {"num_local_experts": n, "intermediate_size": width}, p)
    shapes[block + "gate.e_score_correction_bias"] = (n,)
    return shapes | gate_up_down(block + "shared_experts.", width * c["num_shared_experts"], c["hidden_size"])


def hy_v3_experts(c, p):
    dim, n, width = c["hidden_size"], c["num_experts"], c["moe_intermediate_size"]
    shapes = {p + "mlp.router.gate.weight": (n, dim), p + "mlp.expert_bias": (n,)}
    for e in range(n):
        shapes |= gate_up_down(p + f"mlp.experts.{e}.", width, dim)
    return shapes | gate_up_down(p + "mlp.shared_mlp.", width * c["num_shared_experts"], dim)


def hunyuan_experts(c, p):
    dim, ffn, n = c["hidden_size"], c["intermediate_size"], c["num_experts"]
    shapes = {p + "mlp.gate.wg.weight": (n, dim)} | gate_up_down(p + "mlp.shared_mlp.", ffn, dim)
    for e in range(n):
        shapes |= gate_up_down(p + f"mlp.experts.{e}.", ffn, dim)
    return shapes


def granite_experts(c, p):
    dim, ffn, n = c["hidden_size"], c["intermediate_size"], c["num_local_experts"]
    shared = c.get("shared_intermediate_size")
    beside = (
        {p + "shared_mlp.input_linear.weight": (2 * shared, dim), p + "shared_mlp.output_linear.weight": (dim, shared)}
        if shared
        else {}
    )
    return beside | {
        p + "block_sparse_moe.router.layer.weight": (n, dim),
        p + "block_sparse_moe.input_linear.weight": (n, 2 * ffn, dim),
        p + "block_sparse_moe.output_linear.weight": (n, dim, ffn),
    }


def mixtral_experts(c, p):
    dim, ffn, shapes = c["hidden_size"], c["intermediate_size"], {}
    shapes[p + "block_sparse_moe.gate.weight"] = (c["num_local_experts"], dim)
    for e in range(c["num_local_experts"]):
        for name, rows, cols in (("w1", ffn, dim), ("w2", dim, ffn), ("w3", ffn, dim)):
            shapes[p + f"block_sparse_moe.experts.{e}.{name}.weight"] = (rows, cols)
    if c["model_type"] == "minimax_m2":
        shapes[p + "block_sparse_moe.e_score_correction_bias"] = (c["num_local_experts"],)
    return shapes


def qwen3_experts(c, p):
    dim, n, width = c["hidden_size"], c["num_experts"], c.get("moe_intermediate_size", c["intermediate_size"])
    shapes = {p + "mlp.gate.weight": (n, dim)}
    if "shared_expert_intermediate_size" not in c or c["model_type"] == "qwen2_moe":
        for e in range(n):
            shapes |= gate_up_down(p + f"mlp.experts.{e}.", width, dim)
        if "shared_expert_intermediate_size" not in c:
            return shapes
    else:
        shapes |= {p + "mlp.experts.gate_up_proj": (n, 2 * width, dim), p + "mlp.experts.down_proj": (n, dim, width)}
    shapes[p + "mlp.shared_expert_gate.weight"] = (1, dim)
    return shapes | gate_up_down(p + "mlp.shared_expert.", c["shared_expert_intermediate_size"], dim)


def ffn_shapes(c, p, i):
    dim, ffn, kind = c["hidden_size"], c["intermediate_size"], c["model_type"]
    if kind == "gpt_oss":
        return gpt_oss_experts(c, p)
    if kind == "kimi_linear":
        return gate_up_down(p + "mlp.", ffn, dim) if i < c["first_k_dense_replace"] else kimi_experts(c, p)
    if (kind in ("glm4_moe", "solar_open", "dots1") or "kv_lora_rank" in c) and i >= (
        c.get("first_k_dense_replace", i + 1) or 0
    ):
        return glm4_experts(c, p)
    if kind.startswith("granitemoe"):
        return granite_experts(c, p)
    if kind == "hunyuan_v1_moe":
        return hunyuan_experts(c, p)
    if kind == "ernie4_5_moe":
        routed = c["moe_layer_start_index"] <= i <= c["moe_layer_end_index"] and (i + 1) % c["moe_layer_interval"] == 0
        return ernie_experts(c, p) if routed else gate_up_down(p + "mlp.", ffn, dim)
    if kind == "hy_v3" and i > 0:
        return hy_v3_experts(c, p)
    if kind == "afmoe" and i >= c["num_dense_layers"]:
        shapes = hy_v3_experts(c, p)
        return {name.replace("shared_mlp", "shared_experts"): shape for name, shape in shapes.items()}
    if kind == "exaone_moe" and i > 0:
        usual = dict(n_routed_experts=c["num_experts"], n_shared_experts=c["num_shared_experts"])
        shapes = glm4_experts(c | usual, p)
        return shapes | {p + "mlp.e_score_correction_bias": shapes.pop(p + "mlp.gate.e_score_correction_bias")}
    if "num_local_experts" in c:
        return mixtral_experts(c, p)
    if c.get("mlp_layer_types", ["dense" if kind in ("hy_v3", "afmoe") else "sparse"] * (i + 1))[i] == "dense":
        pass
    elif (
        "num_experts" in c and i not in c.get("mlp_only_layers", []) and (i + 1) % c.get("decoder_sparse_step", 1) == 0
    ):
        return qwen3_experts(c, p)
    if kind in ("phi3", "glm", "glm4"):
        return {p + "mlp.gate_up_proj.weight": (2 * ffn, dim), p + "mlp.down_proj.weight": (dim, ffn)}
    shapes = {}
    for name, shape in gate_up_down(p + "mlp.", ffn, dim).items():
        shapes[name] = shape
        if c.get("mlp_bias") or c.get("use_bias"):
            shapes[name.replace(".weight", ".bias")] = shape[:1]
    return shapes


def mtp_shapes(c):
    """A head that guesses a token further, under either family's names."""
    dim, n, layer = c["hidden_size"], c["num_hidden_layers"], "mtp.layers.0."
    names = ["mtp.fc", "mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden", "mtp.norm"]
    if c.get("num_nextn_predict_layers"):
        layer = f"model.layers.{n}."
        names = [layer + part for part in ("eh_proj", "enorm", "hnorm", "shared_head.norm")]
    shapes = norms_before(c, layer) | attention_shapes(c, layer, False)
    shapes |= {layer + "post_attention_layernorm.weight": (dim,)} | ffn_shapes(c, layer, n)
    shapes[names[0] + ".weight"] = (dim, 2 * dim)
    return shapes | {name + ".weight": (dim,) for name in names[1:]}


def tensor_shapes(c):
    if c["model_type"] == "gemma4_text":
        return gemma4_shapes(c)
    if c["model_type"] in PLACES:
        return classic_shapes(c)
    if c["model_type"] in random_hf_mamba.TYPES:
        return random_hf_mamba.mamba_shapes(c)
    dim, vocab = c["hidden_size"], c["vocab_size"]
    shapes = {"model.embed_tokens.weight": (vocab, dim)}
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        if c["model_type"].startswith("lfm2"):
            shapes |= lfm2_shapes(c, i, p)
            continue
        recurrent = c.get("layer_types", ["full_attention"] * (i + 1))[i] == "linear_attention"
        recurrent |= i + 1 in c.get("linear_attn_config", {}).get("kda_layers", ())
        shapes |= norms_before(c, p) | attention_shapes(c, p, recurrent)
        second = "pre_feedforward" if c["model_type"] == "vaultgemma" else "post_attention"
        shapes |= {p + f"{second}_layernorm.weight": (dim,)} | ffn_shapes(c, p, i)
    shapes["model.embedding_norm.weight" if c["model_type"].startswith("lfm2") else "model.norm.weight"] = (dim,)
    if not c["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (vocab, dim)
    if c.get("mtp_num_hidden_layers") or c.get("num_nextn_predict_layers"):
        shapes |= mtp_shapes(c)
    return shapes
