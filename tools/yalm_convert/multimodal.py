"""Models that see: the part that reads text is one of the known architectures, and all that a text needs. The rest is left out.

Its settings are `text_config` of config.json, or in older files stand beside the rest; its weights mostly lie under a
prefix of their own. Positions of several dimensions (mRoPE) are all equal in a text, which makes them plain RoPE.
"""

from pathlib import Path

from .checkpoint import Checkpoint
from .errors import ModelError
from .source import shown

# By the whole's name: what kinds of text part it may have, and whose architecture each is.
WHOLES = {
    "Gemma3ForConditionalGeneration": {"gemma3_text": "Gemma3ForCausalLM"},
    "Gemma4ForConditionalGeneration": {"gemma4_text": "Gemma4ForCausalLM"},
    "Gemma4UnifiedForConditionalGeneration": {"gemma4_unified_text": "Gemma4UnifiedForCausalLM"},
    "KimiK25ForConditionalGeneration": {"kimi_k2": "DeepseekV3ForCausalLM", "deepseek_v3": "DeepseekV3ForCausalLM"},
    "LlavaForConditionalGeneration": {
        "llama": "LlamaForCausalLM",
        "mistral": "MistralForCausalLM",
        "qwen2": "Qwen2ForCausalLM",
    },
    "Mistral3ForConditionalGeneration": {
        "mistral": "MistralForCausalLM",
        "ministral3": "Ministral3ForCausalLM",
        "mistral4": "Mistral4ForCausalLM",
    },
    "Qwen2VLForConditionalGeneration": {"qwen2_vl_text": "Qwen2ForCausalLM", "qwen2_vl": "Qwen2ForCausalLM"},
    "Qwen2_5_VLForConditionalGeneration": {"qwen2_5_vl_text": "Qwen2ForCausalLM", "qwen2_5_vl": "Qwen2ForCausalLM"},
    "Qwen3_5ForConditionalGeneration": {"qwen3_5_text": "Qwen3_5ForCausalLM"},
    "Qwen3_5MoeForConditionalGeneration": {"qwen3_5_moe_text": "Qwen3_5MoeForCausalLM"},
    "Qwen3VLForConditionalGeneration": {"qwen3_vl_text": "Qwen3ForCausalLM"},
    "Qwen3VLMoeForConditionalGeneration": {"qwen3_vl_moe_text": "Qwen3VLMoeTextModel"},
}
PREFIXES = {
    "model.language_model.": "model.",
    "language_model.model.": "model.",
    "language_model.lm_head.": "lm_head.",
    "lm_head.": "lm_head.",
    **{f"model.{part}.": f"model.{part}." for part in ("layers", "embed_tokens", "norm")},
    "mtp.": "mtp.",
}
MROPE = {"mrope_section", "mrope_interleaved"}


def is_whole(values: dict) -> bool:
    names = values.get("architectures")
    return isinstance(names, list) and len(names) == 1 and isinstance(names[0], str) and names[0] in WHOLES


def text_config(values: dict, model_types: dict, path: Path) -> dict:
    """config.json of the text part alone. model_types: architecture -> its model_type."""
    name, text = values["architectures"][0], values.get("text_config")
    if text is None and values.get("model_type") in WHOLES[name]:
        pictures = {key for key in values if key.startswith(("image_", "video_", "vision_"))}
        text = {key: value for key, value in values.items() if key not in pictures}
    if not isinstance(text, dict):
        raise ModelError(f"{path}: text_config: found {shown(text)}, expected the settings of the part that reads text")
    kind = text.get("model_type")
    if not isinstance(kind, str) or kind not in WHOLES[name]:
        expected = ", ".join(WHOLES[name])
        raise ModelError(
            f"{path}: text_config.model_type {shown(kind)} of {name} is not supported, expected {expected}"
        )
    architecture = WHOLES[name][kind]
    part = {**text, "architectures": [architecture], "model_type": model_types[architecture]}
    for key in ("bos_token_id", "eos_token_id", "quantization_config", "tie_word_embeddings"):
        if part.get(key) is None and values.get(key) is not None:
            part[key] = values[key]
    for key in ("rope_scaling", "rope_parameters"):
        if isinstance(part.get(key), dict):
            rope = {inner: value for inner, value in part[key].items() if inner not in MROPE}
            part[key] = {inner: "default" if value == "mrope" else value for inner, value in rope.items()}
    return part


def text_name(name: str) -> str:
    """A tensor's name in the text part alone; of others, what it was."""
    prefix = next((prefix for prefix in PREFIXES if name.startswith(prefix)), None)
    return PREFIXES[prefix] + name[len(prefix) :] if prefix else name


def text_tensors(tensors: Checkpoint) -> tuple:
    """(the text part's tensors under the names that it has alone, how many are left out)."""
    found = Checkpoint()
    for name, tensor in tensors.items():
        if name.startswith(tuple(PREFIXES)):
            found[text_name(name)] = tensor
    return found, len(tensors) - len(found)
