"""What GGUF files say of Kimi Linear (kimi-linear): most layers have Kimi Delta Attention, the others latents."""

import math

SETTINGS = {"ssm.conv_kernel": "linear_conv_kernel_dim", "kda.head_dim": "linear_head_dim"}
NAMES = {
    **{f"ssm_conv1d_{part}": f"self_attn.{part}_conv1d" for part in "qkv"},
    **{f"ssm_{part}": f"self_attn.{part}_proj" for part in ("f_a", "f_b", "g_a", "g_b")},
    "ssm_beta": "self_attn.b_proj", "ssm_dt": "self_attn.dt", "ssm_a": "self_attn.A", "ssm_norm": "self_attn.o_norm",
}  # fmt: skip


def is_kda(family) -> bool:
    return "kda.head_dim" in family.settings


def shaped(name: str, tensor):
    """Taps and rates in the shapes of Hugging Face's form, with or without dimensions of 1."""
    if ".ssm_conv1d_" in name:
        taps = tensor.shape[-1]
        return tensor.part(0, (math.prod(tensor.shape) // taps, 1, taps))
    return tensor.part(0, (1, 1, math.prod(tensor.shape), 1)) if name.endswith(".ssm_a") else tensor


def complete(file, prefix: str, values: dict) -> None:
    """Layers without KV heads are recurrent; their heads are as many as attention's."""
    heads, layers = values.get("num_key_value_heads"), values["num_hidden_layers"]
    heads = heads if isinstance(heads, list) else [heads] * layers
    values["layer_types"] = ["full_attention" if n else "linear_attention" for n in heads]
    values["num_key_value_heads"] = None
    values["linear_num_heads"] = values.get("num_attention_heads")
    if file.get(f"{prefix}expert_gating_func") != 2:
        values["moe_router_activation_func"] = "softmax"
