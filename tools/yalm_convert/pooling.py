"""How a model of sentence-transformers makes one vector of a text: `pooling` of docs/format.md."""

import json
from pathlib import Path
from typing import Optional

import numpy as np

from .checkpoint import read_checkpoint
from .errors import ModelError
from .source import locate, parse_json, read_json, read_text, shown

# pooling_mode_… of the older files, pooling_mode of the newer ones, and our word.
MODES = {"lasttoken": "last", "mean_tokens": "mean", "mean": "mean", "cls_token": "first", "cls": "first"}


# The least width that vectors of models of a form may be cut to, where their files do not say it: Qwen3-Embedding's,
# EmbeddingGemma's.
LEAST = {"Qwen3ForCausalLM": 32, "Gemma3TextModel": 128}


def read_pooling(model_dir: Path, end: Optional[int], tensors: dict, config) -> dict:
    """{} where the directory is not of sentence-transformers. end: the token that the tokenizer puts behind a text.
    tensors: the model's, to which come those of dense layers behind the pooling. config: a ModelConfig of config.py, to whose
    warnings comes what sentence-transformers would do besides."""
    context, warnings = config.facts["context_length"], config.warnings
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
        elif name == "LogitScore" and not found and isinstance(module.get("path"), str):
            return {"score": {"by": "last", **_tokens(model_dir, f"{module['path']}/config.json")}}
        elif name == "Dense" and found and isinstance(module.get("path"), str):
            dense.append(_dense(model_dir, module["path"], len(dense), tensors))
        elif name not in ("Transformer", "Normalize"):
            raise ModelError(
                f"{path}: module {shown(kind)} is not supported, expected Transformer, Pooling, Dense, Normalize, LogitScore"
            )
    if dense:
        found["dense"] = dense
    least = _least(model_dir, config.keys.values, warnings)
    return {"pooling": shortened(found, config.facts, least)} if found else {}


def shortened(found: dict, facts: dict, least: int = 0) -> dict:
    """`pooling` with the least width that vectors may be cut to; 0: the files do not say it."""
    least = least or LEAST.get(facts["architecture"], 0)
    shorter = 0 < least < [facts["hidden_dim"], *found.get("dense", ())][-1]
    return {**found, "matryoshka": least} if shorter else found


def _least(model_dir: Path, values: dict, warnings: list) -> int:
    """What config.json (values) or config_sentence_transformers.json says of shorter vectors; 0: nothing."""
    path = locate(model_dir, "config_sentence_transformers.json")
    settings = {**values, **(read_json(path) if path else {})}
    listed, cut = settings.get("matryoshka_dimensions") or [], settings.get("truncate_dim")
    numbers = listed + [cut] * (cut is not None) if isinstance(listed, list) else [None]
    if not all(type(number) is int and number > 0 for number in numbers):
        raise ModelError(
            f"{model_dir}: matryoshka_dimensions, truncate_dim: found {shown([listed, cut])}, expected widths of vectors"
        )
    if cut:
        warnings.append(
            f"{model_dir}: sentence-transformers cuts vectors to {cut}; here they are whole where none is asked"
        )
    return 1 if settings.get("is_matryoshka") is True else min(numbers, default=0)


def _tokens(model_dir: Path, name: str) -> dict:
    """The tokens whose logits are compared, which plan_last() takes out again."""
    settings = _settings(model_dir, name)
    yes, no = settings.get("true_token_id"), settings.get("false_token_id")
    if not isinstance(yes, int) or not (no is None or isinstance(no, int)):
        raise ModelError(f"{model_dir / name}: found {shown([yes, no])}, expected true_token_id and false_token_id")
    return {"yes": yes, "no": no}


def scoring_templates(model_dir: Path, templates: dict) -> dict:
    """The chat templates; of a model that scores by a token's logit with what sentence-transformers gives them besides a query
    and a document: the default prompt, as a system's message, and add_generation_prompt."""
    path = locate(model_dir, "modules.json")
    if path is None or "LogitScore" not in read_text(path):
        return templates
    if not all(role in str(templates.get("default")) for role in ("query", "document")):
        raise ModelError(
            f"{model_dir}: modules.json has LogitScore, but no chat template has the roles 'query' and 'document':"
            " give the model's, as chat_template.jinja"
        )
    settings = [locate(model_dir, f"{name}.json") for name in ("config_sentence_transformers", "sentence_bert_config")]
    prompts, texts = (read_json(path) if path else {} for path in settings)
    name = prompts.get("default_prompt_name")
    prompt = (prompts.get("prompts") or {}).get(name) if name else None
    more = ((texts.get("processing_kwargs") or {}).get("chat_template") or {}).get("add_generation_prompt")
    before = "{%- set add_generation_prompt = true -%}" if more else ""
    if prompt:
        message = f"[{{'role': 'system', 'content': {json.dumps(prompt)}}}]"
        before += f"{{%- set messages = {message} + messages -%}}"
    return {**templates, "default": before + templates["default"]}


def plan_last(planner, classifier) -> None:
    """What gives a score of the last token's h: a token's row of the classifier, less another's. planner: a Planner of
    plan.py."""
    c = planner.config
    if c.get("score", {}).get("by") != "last":
        return
    if c.get("logits_softcap"):
        raise ModelError(f"{planner.where}: a score by logits that are capped is not supported")
    yes, no = c["score"].pop("yes", None), c["score"].pop("no", None)
    if yes is None:  # of GGUF files
        rows = planner.take("cls.output.weight", (2, c["hidden_dim"])).values(0, 2).astype(np.float32)
        planner.array("score.out", rows[:1] - rows[1:])
        return
    if not all(token is None or 0 <= token < c["vocab_size"] for token in (yes, no)):
        raise ModelError(
            f"{planner.where}: LogitScore: found tokens {shown([yes, no])}, expected 0 to {c['vocab_size'] - 1}"
        )
    out = classifier.values(yes, 1).astype(np.float32)
    planner.array("score.out", out if no is None else out - classifier.values(no, 1).astype(np.float32))


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
