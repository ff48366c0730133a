"""How a model of sentence-transformers makes one vector of a text: `pooling` of docs/format.md."""

from pathlib import Path
from typing import Optional

from .errors import ModelError
from .source import locate, parse_json, read_json, read_text, shown

# pooling_mode_… of the older files, pooling_mode of the newer ones, and our word.
MODES = {"lasttoken": "last", "mean_tokens": "mean", "mean": "mean", "cls_token": "first", "cls": "first"}


def read_pooling(model_dir: Path, end: Optional[int]) -> dict:
    """{} where the directory is not of sentence-transformers. end: the token that the tokenizer puts behind a text."""
    path = locate(model_dir, "modules.json")
    if path is None:
        return {}
    modules = parse_json(f'{{"modules": {read_text(path)}}}'.encode(), str(path))["modules"]
    if not isinstance(modules, list):
        raise ModelError(f"{path}: found {shown(modules)}, expected a list of modules")
    found: dict = {}
    for module in modules:
        kind = module.get("type") if isinstance(module, dict) else None
        name = kind.rsplit(".", 1)[-1] if isinstance(kind, str) else kind
        if name == "Pooling" and isinstance(module.get("path"), str):
            found = {"by": _mode(model_dir, f"{module['path']}/config.json"), "end": -1 if end is None else end}
        elif name not in ("Transformer", "Normalize"):
            raise ModelError(
                f"{path}: module {shown(kind)} is not supported, expected Transformer, Pooling and Normalize"
            )
    return {"pooling": found} if found else {}


def _mode(model_dir: Path, name: str) -> str:
    path = locate(model_dir, name)
    if path is None:
        raise ModelError(f"{model_dir}: no {name}, which modules.json names")
    settings = read_json(path)
    chosen = [
        key[len("pooling_mode_") :] for key, value in settings.items() if key.startswith("pooling_mode_") and value
    ]
    modes = chosen or [settings.get("pooling_mode")]
    if len(modes) != 1 or modes[0] not in MODES:
        raise ModelError(f"{path}: pooling by {shown(modes)} is not supported, expected one of {', '.join(MODES)}")
    return MODES[modes[0]]
