"""An adapter of PEFT's (LoRA), added to the model's matrices as they are converted: W + s B A, with A (r, columns), B
(rows, r) and s = alpha / r.

The sums are float32, and become what the matrix becomes without an adapter. Whatever the adapter has that would
change the model in another way is refused by name.
"""

import math
import re
from pathlib import Path

import numpy as np

from .checkpoint import NAMES, Checkpoint, Stored, Tensor, read_file
from .computed import Computed
from .errors import ModelError
from .multimodal import text_name
from .packed_integers import read_array
from .source import locate, read_json, shown

FILE, SETTINGS = "adapter_model.safetensors", "adapter_config.json"
PREFIX = "base_model.model."
# Settings that make it something else than W + s B A, unless they are unset or as here.
OTHERWISE = {
    "use_dora": (False,),
    "use_qalora": (False,),
    "lora_bias": (False,),
    "bias": ("none",),
    "target_parameters": ([],),
    "trainable_token_indices": ([], {}),
    "layer_replication": ([],),
    "alora_invocation_tokens": ([],),
    # Some ways to begin change the model's own weights too.
    "init_lora_weights": (True, False, "gaussian", "eva", "orthogonal"),
}


class Merged(Computed):
    """A matrix with an adapter's product added; for an embedding, whose rows are tokens, the product is (rows, r)
    times (r, columns) as well."""

    def __init__(self, base: Tensor, left: np.ndarray, right: np.ndarray, scale: float):
        self.name, self.path, self.shape = base.name, base.path, base.shape
        self.base, self.left, self.right = base, left * np.float32(scale), right
        self.form = f"{base.form} with an adapter" if base.form else ""

    @property
    def default(self) -> str:
        return "q8" if self.base.form else self.base.default

    def values(self, first: int, n: int) -> np.ndarray:
        return self.base.values(first, n).astype(np.float32) + self.left[first : first + n] @ self.right


def merge(tensors: Checkpoint, adapter: Path) -> int:
    """Changes `tensors`; returns of how many matrices."""
    settings, path = _settings(adapter)
    left = {_base_name(name): tensor for name, tensor in read_file(path).items()}
    lowered = [name for name in left if name.endswith((".lora_A.weight", ".lora_embedding_A"))]
    pairs = {
        name: name.replace(".lora_A", ".lora_B").replace(".lora_embedding_A", ".lora_embedding_B") for name in lowered
    }
    whole = [name for name in left if name not in {*pairs, *pairs.values()}]
    for name in whole:  # modules that were trained whole, and embeddings that were stored beside what is added to them
        tensor, target = left[name], text_name(name)
        if ".lora_" in name or target not in tensors or tensors[target].shape != tensor.shape:
            raise ModelError(
                f"{path}: tensor {shown(tensor.name)} of shape {list(tensor.shape)} does not fit: the model has"
                f" {list(tensors[target].shape) if target in tensors else 'none'} of that name"
            )
        tensors[target] = tensor
    for name, other in pairs.items():
        if other not in left:
            raise ModelError(f"{path}: tensor {shown(other)} is missing, beside {shown(name)}")
        module, _, kind = name.rpartition(".lora_")
        target = f"{text_name(module)}.weight"
        tensors[target] = _merged(tensors, target, left[name], left[other], settings, kind == "embedding_A")
    if not left:
        raise ModelError(f"{path}: the adapter has no tensors")
    return len(pairs) + len(whole)


def _settings(adapter: Path) -> tuple:
    """(adapter_config.json, the path of the tensors)."""
    path = locate(adapter, SETTINGS)
    if path is None:
        raise ModelError(f"{adapter}: no {SETTINGS}: not an adapter of PEFT's")
    settings = read_json(path)
    if settings.get("peft_type") != "LORA":
        raise ModelError(f"{path}: peft_type: {shown(settings.get('peft_type'))} is not supported, expected 'LORA'")
    for key, allowed in OTHERWISE.items():
        if settings.get(key) is not None and settings[key] not in allowed:
            raise ModelError(
                f"{path}: {key}: {shown(settings[key])} is not supported: merge it with peft (merge_and_unload())"
            )
    for key in ("r", "lora_alpha"):
        value = settings.get(key, 8)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e6:
            raise ModelError(f"{path}: {key}: found {shown(value)}, expected a number above 0")
    tensors = locate(adapter, FILE)
    if tensors is None:
        raise ModelError(f"{adapter}: no {FILE}: an adapter's weights are read from safetensors alone")
    return {**settings, "path": path}, tensors


def _base_name(name: str) -> str:
    """Without what PEFT puts around the module's own name."""
    name = name[len(PREFIX) :] if name.startswith(PREFIX) else name
    return name.replace(".default", "").replace(".modules_to_save", "").replace(".base_layer", "")


def _merged(tensors: Checkpoint, target: str, a: Stored, b: Stored, settings: dict, embedding: bool) -> Merged:
    base = tensors.get(target)
    if base is None:
        raise ModelError(f"{a.path}: tensor {shown(a.name)}: the model has no matrix {shown(target)}")
    for tensor in (a, b):
        if tensor.dtype not in NAMES or len(tensor.shape) != 2:
            raise ModelError(
                f"{tensor.path}: tensor {shown(tensor.name)}: found {tensor.dtype.name} of shape {list(tensor.shape)}"
            )
    left, right = (read_array(tensor).astype(np.float32) for tensor in (b, a))
    if embedding:  # (r, tokens) and (columns, r)
        left, right = right.T, left.T
    rank = right.shape[0]
    if left.shape[1] != rank or base.shape != (left.shape[0], right.shape[1]):
        raise ModelError(
            f"{a.path}: tensors {shown(a.name)} and {shown(b.name)} have shapes {list(a.shape)} and {list(b.shape)}, the "
            f"model's"
            f" {shown(target)} has {list(base.shape)}: an adapter of another model"
        )
    module = target[: -len(".weight")]
    stated = _of_module(settings, "rank_pattern", module, settings.get("r", 8))
    if rank != stated:
        raise ModelError(f"{a.path}: tensor {shown(a.name)} is of rank {rank}, {settings['path'].name} says {stated}")
    alpha = _of_module(settings, "alpha_pattern", module, settings.get("lora_alpha", 8))
    return Merged(base, left, right, alpha / (math.sqrt(rank) if settings.get("use_rslora") else rank))


def _of_module(settings: dict, key: str, module: str, default: float) -> float:
    """A setting that some modules have their own of: patterns, of which the first that the name ends in counts."""
    for pattern, value in (settings.get(key) or {}).items():
        try:
            if re.match(rf"(.*\.)?({pattern})$", module):
                return value
        except re.error as error:
            raise ModelError(f"{settings['path']}: {key}: pattern {shown(pattern)}: {error}") from None
    return default
