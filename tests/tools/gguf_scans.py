"""What gguf_files.py writes of models with Mamba-2's scans, and of Apertus, whose activations have numbers of their own."""

import hf
import numpy as np


def as_floats(kind, data):
    if kind == "BF16":
        return (data.astype(np.uint32) << 16).view(np.float32)
    return data.astype(np.float32)


def add_scans(writer, config):
    bamba, layers = config["architectures"] == ["BambaForCausalLM"], range(config["num_hidden_layers"])
    types = config.get("layer_types") or list(config.get("hybrid_override_pattern", ""))
    types = types or ["*" if n in config.get("attn_layer_indices", layers) else "M" for n in layers]
    heads = config.get("mamba_num_heads") or config["mamba_n_heads"]
    writer.add_ssm_conv_kernel(4)
    writer.add_ssm_state_size(config.get("ssm_state_size") or config["mamba_d_state"])
    writer.add_ssm_group_count(config.get("n_groups") or config["mamba_n_groups"])
    writer.add_ssm_inner_size(heads * (config.get("mamba_head_dim") or config["mamba_d_head"]))
    writer.add_ssm_time_step_rank(heads)
    attends = [kind in ("full_attention", "*") for kind in types]
    writer.add_head_count_kv([config["num_key_value_heads"] * one for one in attends])
    if writer.arch != "falcon-h1":
        writer.add_rope_scaling_finetuned(bamba)
    if "moe_shared_expert_intermediate_size" in config:
        writer.add_expert_shared_feed_forward_length(config["moe_shared_expert_intermediate_size"])
        writer.add_expert_group_count(config["n_group"])
        writer.add_expert_group_used_count(config["topk_group"])


def as_scans(config, kind, name, array):
    """(type, name, array) of a model with scans as those files have them."""
    layer = next((part for part in name.split(".") if part.isdecimal()), "")
    if name.endswith("A_log"):
        return "F32", f"blk.{layer}.ssm_a", -np.exp(as_floats(kind, array))[:, None]
    if name.endswith(".D"):
        return "F32", f"blk.{layer}.ssm_d", as_floats(kind, array)[:, None]
    if name.endswith(("mamba.norm.weight", "mixer.norm.weight")):
        groups = config.get("n_groups") or config["mamba_n_groups"]
        return "F32", f"blk.{layer}.ssm_norm.weight", as_floats(kind, array).reshape(groups, -1)
    if name.endswith("conv1d.weight"):
        return "F32", f"blk.{layer}.ssm_conv1d.weight", as_floats(kind, array).squeeze(1)
    if name.endswith("shared_mlp.output_linear.weight"):
        return kind, f"blk.{layer}.ffn_down{'_shexp' if config['num_local_experts'] else ''}.weight", array
    return kind, name.replace("dt_bias", "dt_proj.bias"), array


def add_xielu(writer, directory, config):
    """As settings; no tensors."""
    tensors, layers = hf.read_tensors(directory), range(config["num_hidden_layers"])
    for part in ("alpha_p", "alpha_n", "beta", "eps") if writer.arch == "apertus" else ():
        kinds, found = {"F32": np.float32, "BF16": np.uint16}, []
        for n in layers:
            kind, _, data = tensors[f"model.layers.{n}.mlp.act_fn.{part}"]
            found.append(float(as_floats(kind, np.frombuffer(data, kinds[kind]))[0]))
        getattr(writer, f"add_xielu_{part}")(found)
