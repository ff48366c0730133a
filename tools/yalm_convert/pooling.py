"""How a model of sentence-transformers makes one vector of a text: `pooling` of docs/format.md."""

from pathlib import Path
from typing import Optional

from .checkpoint import read_checkpoint
from .errors import ModelError
from .source import locate, parse_json, read_json, read_text, shown

# pooling_mode_… of the older files, pooling_mode of the newer ones, and our word.
MODES = {"lasttoken": "last", "mean_tokens": "mean", "mean": "mean", "cls_token": "first", "cls": "first"}


def read_pooling(model_dir: Path, end: Optional[int], tensors: dict, context: int, warnings: list) -> dict:
    """{} where the directory is not of sentence-transformers. end: the token that the tokenizer puts behind a text.
    tensors: the model's, to which come those of dense layers behind the pooling. context: tokens that the model reads.
    warnings: to which comes what sentence-transformers would do to a text first."""
    path = locate(model_dir, "modules.json")
    if path is None:
        return {}
    modules = parse_json(f'{{"modules": {read_text(path)}}}'.encode(), str(path))["modules"]
    if not isinstance(modules, list):
        raise ModelError(f"{path}: found {shown(modules)}, expected a list of modules")
    path_of_texts = locate(model_dir, "sentence_bert_config.json")
    if path_of_texts:
        warnings += [f"{path_of_texts}: {text}" for text in _of_texts(read_json(path_of_texts), context)]
    found: dict = {}
    dense: list = []
    for module in modules:
        kind = module.get("type") if isinstance(module, dict) else None
        name = kind.rsplit(".", 1)[-1] if isinstance(kind, str) else kind
        if name == "Pooling" and isinstance(module.get("path"), str):
            found = {
                "by": _mode(model_dir, f"{module['path']}/config.json", warnings),
                "end": -1 if end is None else end,
            }
        elif name == "Dense" and found and isinstance(module.get("path"), str):
            dense.append(_dense(model_dir, module["path"], len(dense), tensors))
        elif name not in ("Transformer", "Normalize"):
            raise ModelError(
                f"{path}: module {shown(kind)} is not supported, expected Transformer, Pooling, Dense and Normalize"
            )
    if dense:
        found["dense"] = dense
    return {"pooling": found} if found else {}


def _of_texts(settings: dict, context: int) -> list:
    found, longest = [], settings.get("max_seq_length")
    if isinstance(longest, int) and longest < context:
        found.append(f"sentence-transformers cuts texts to {longest} tokens; here {context} are read")
    if settings.get("do_lower_case"):
        found.append("sentence-transformers writes texts in lower case first; here they are read as they are")
    return found


def _dense(model_dir: Path, name: str, number: int, tensors: dict) -> int:
    """Takes a dense layer's weights. Returns how many rows they have."""
    folder, settings = model_dir / name, _settings(model_dir, f"{name}/config.json")
    activation = str(settings.get("activation_function", "torch.nn.modules.activation.Tanh")).rsplit(".", 1)[-1]
    if settings.get("bias", True) or activation != "Identity":
        raise ModelError(f"{folder}: a dense layer with a bias, or with {shown(activation)}, is not supported")
    weights = read_checkpoint(folder)
    if set(weights) != {"linear.weight"}:
        raise ModelError(f"{folder}: found tensors {shown(sorted(weights))}, expected linear.weight")
    tensors[f"dense.{number}.linear.weight"] = weights["linear.weight"]
    return weights["linear.weight"].shape[0]


def _settings(model_dir: Path, name: str) -> dict:
    path = locate(model_dir, name)
    if path is None:
        raise ModelError(f"{model_dir}: no {name}, which modules.json names")
    return read_json(path)


def _mode(model_dir: Path, name: str, warnings: list) -> str:
    path, settings = model_dir / name, _settings(model_dir, name)
    chosen = [
        key[len("pooling_mode_") :] for key, value in settings.items() if key.startswith("pooling_mode_") and value
    ]
    modes = chosen or [settings.get("pooling_mode")]
    if len(modes) != 1 or modes[0] not in MODES:
        raise ModelError(f"{path}: pooling by {shown(modes)} is not supported, expected one of {', '.join(MODES)}")
    if not settings.get("include_prompt", True):
        warnings.append(f"{path}: include_prompt is false, but a prompt is part of its text here, and counts")
    return MODES[modes[0]]
