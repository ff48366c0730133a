#!/usr/bin/env python3
"""Convert a Hugging Face model directory (Llama, Mistral, Mixtral, Qwen2, Qwen3, Phi-3, SmolLM3, Granite, Ministral 3, OLMo 2) to a file that yalm runs.

examples:
  tools/convert.py ~/models/Mistral-7B-v0.1 mistral.bin
  tools/convert.py ~/models/Llama-3.2-1B -o llama.bin --dtype fp16
  tools/convert.py ~/models/Mistral-7B-v0.1 mistral-q4.bin --dtype q4 --keep '*.down=q8'
  tools/convert.py ~/models/Mixtral-8x7B-v0.1 --dry-run
"""

import argparse
import errno
import math
import os
import shutil
import signal
import sys
import time
from pathlib import Path

HELP_END = "exit codes: 0 done, 1 failed at run time, 2 usage, 3 not a model that can be converted, 4 out of memory, 130 interrupted"
FAILED, USAGE, BAD_MODEL, NO_MEMORY = 1, 2, 3, 4
VERSION = "0.1.0"
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "added_tokens.json",
    "chat_template.jinja",
    "additional_chat_templates/tool_use.jinja",
)

try:
    from tqdm import tqdm
    from yalm_convert.checkpoint import PIECE, read_checkpoint
    from yalm_convert.config import read_config
    from yalm_convert.errors import ModelError
    from yalm_convert.multimodal import text_tensors
    from yalm_convert.plan import MATRIX_TYPES, UnknownName, data, make_plan, matrix_types
    from yalm_convert.source import follow_links, locate, model_name
    from yalm_convert.tokenizer import read_tokenizer
    from yalm_convert.writer import MAGIC, Layout, write_model
except ImportError as error:
    sys.exit(f"convert.py: {error}; install what it needs with: pip install -r tools/requirements.txt")

# The interpreter with its libraries, a piece as read, the same as fp32, and what the conversion makes on the way.
PEAK_MEMORY = (116 << 20) + 6 * PIECE


def main() -> int:
    arguments = parse_arguments()
    follow_links(arguments.follow_links)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
    try:
        return convert(arguments)
    except ModelError as error:
        return complain(error, BAD_MODEL)
    except UnknownName as error:
        return complain(f"option '--keep': {error}: the model has no matrix of that name", USAGE)
    except MemoryError:
        return complain("out of memory", NO_MEMORY)
    except KeyboardInterrupt as signalled:
        return complain(
            "interrupted; nothing was written", 128 + (signalled.args[0] if signalled.args else signal.SIGINT)
        )
    except OSError as error:
        path = error.filename or arguments.output
        return complain(f"{path}: {error.strerror}" if error.strerror else error, FAILED)


def interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt(number)


def complain(text: object, code: int) -> int:
    print("convert.py: " + " ".join(str(text).split("\n")), file=sys.stderr)
    return code


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="convert.py", description=__doc__, epilog=HELP_END, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "model_dir", type=Path, metavar="MODEL_DIR", help="with config.json, *.safetensors and the tokenizer's files"
    )
    parser.add_argument(
        "file", type=Path, nargs="?", metavar="FILE", help="the file to write, an existing one is replaced"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="the same, as an option")
    parser.add_argument(
        "--dtype",
        choices=MATRIX_TYPES,
        help="of the weight matrices (default: as stored); bf12 is bf16 without loss in 12 bits; with q4, embedding and classifier become q8",
    )
    parser.add_argument(
        "--keep",
        type=kept_type,
        action="append",
        default=[],
        metavar="NAME=DTYPE",
        help="another type for matrices of this name, which may be a pattern: classifier=q4, 'layers.0.*=bf16'; the last that matches counts",
    )
    parser.add_argument(
        "--follow-links",
        action="store_true",
        help="read files that symbolic links name outside the directory: where you made the links, not a stranger",
    )
    parser.add_argument("--check-finite", action="store_true", help="refuse weights that are NaN or infinite")
    parser.add_argument("--dry-run", action="store_true", help="print the plan, write nothing")
    parser.add_argument("--version", action="version", version=f"convert.py {VERSION}")
    arguments = parser.parse_args()
    if arguments.file and arguments.output:
        parser.error("the file to write is given twice")
    arguments.output = arguments.output or arguments.file
    if not arguments.output and not arguments.dry_run:
        parser.error("give the file to write: convert.py MODEL_DIR FILE")
    if not arguments.model_dir.is_dir():
        parser.error(f"{arguments.model_dir}: no such directory")
    if arguments.output:
        refusal = why_not_write(arguments.output.resolve(), arguments.model_dir.resolve())
        if refusal:
            parser.error(f"{arguments.output}: {refusal}")
    return arguments


def kept_type(text: str) -> tuple:
    name, found, dtype = text.rpartition("=")
    if not name or not found or dtype not in MATRIX_TYPES:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected NAME=DTYPE with one of {', '.join(MATRIX_TYPES)}")
    return name, dtype


def why_not_write(output: Path, model_dir: Path) -> str:
    if output.is_dir():
        return "a directory, expected a file to write"
    if output.exists() and not output.is_file():
        return "not a file"
    if not output.parent.is_dir():
        return "there is no such directory to write in"
    if output.exists():
        with open(output, "rb") as file:
            converted = file.read(len(MAGIC)) == MAGIC
        ours = any(output.samefile(p) for p in model_dir.rglob("*") if p.is_file())
        if ours and not converted:
            return "one of the model's own files, which are not overwritten"
    return ""


def convert(arguments: argparse.Namespace) -> int:
    started = time.monotonic()
    model_dir = arguments.model_dir
    config = read_config(model_dir)
    tensors = read_checkpoint(model_dir)
    if config.part:
        tensors, others = text_tensors(tensors)
        config.facts["tied_embeddings"] = "lm_head.weight" not in tensors
        config.warnings.append(
            f"{model_dir}: the part that reads text is converted; {others} tensors of the others are left out"
        )
    for name in TOKENIZER_FILES:
        locate(model_dir, name)
    tokenizer = read_tokenizer(model_dir, config.facts)
    config.finish(tokenizer)
    plan = make_plan(
        config.facts, tensors, tokenizer.tensors, str(model_dir), arguments.dtype, arguments.keep, config.logits_scale
    )
    metadata = {"config": config.facts, "tokenizer": tokenizer.facts}
    if tokenizer.chat_template is not None:
        metadata["chat_template"] = tokenizer.chat_template
        metadata["chat"] = tokenizer.chat
    metadata["source"] = {"name": model_name(model_dir), "converter": VERSION}
    layout = Layout(metadata, plan)

    types = matrix_types(plan)
    warnings = config.warnings + tokenizer.warnings
    if tokenizer.facts["type"] == "none":
        warnings.append(f"{model_dir}: no tokenizer.json or tokenizer.model: the model will take token ids only")
    if len(types) > 1 and not arguments.dtype and not arguments.keep:
        warnings.append(
            f"{model_dir}: the matrices are stored as {' and '.join(types)}, and stay so; --dtype makes them one type"
        )
    warnings += bf12_warnings(model_dir, plan)
    for warning in warnings:
        complain(f"warning: {warning}", 0)
    if arguments.dry_run:
        print_plan(layout, config.facts, types)
        return 0

    output = arguments.output.resolve()
    free = shutil.disk_usage(output.parent).free
    if free < layout.length:
        raise OSError(
            errno.ENOSPC, f"no space: {layout.length} bytes are needed, {free} are free", str(arguments.output)
        )
    quiet = not sys.stderr.isatty() or "NO_COLOR" in os.environ
    total = 2 * sum(p.size for p in plan)  # written, then read back
    with tqdm(
        total=total, unit="B", unit_scale=True, desc=output.name, disable=quiet, leave=False, file=sys.stderr
    ) as bar:
        write_model(output, layout, lambda planned: data(planned, arguments.check_finite), bar.update)
    seconds = time.monotonic() - started
    print(
        f"{arguments.output}: {len(plan)} tensors, {'/'.join(types)}, {layout.length / 1e9:.3f} GB, verified, in {seconds:.1f} s",
        file=sys.stderr,
    )
    return 0


def bf12_warnings(model_dir: Path, plan: list) -> list:
    """What of a model that is to be bf12 is not, or is so only by rounding."""
    warnings = []
    unfit = [planned.name for planned in plan if planned.unfit]
    if unfit:
        names = ", ".join(unfit[:3]) + (", …" if len(unfit) > 3 else "")
        warnings.append(f"{model_dir}: {len(unfit)} of the matrices stay bf16, for 12 bits do not hold them: {names}")
    rounded = sum(planned.rounded for planned in plan)
    if rounded:
        total = sum(math.prod(planned.shape) for planned in plan if planned.unfit or planned.quantised == "bf12")
        warnings.append(
            f"{model_dir}: bf12 keeps bfloat16 numbers; {rounded} of the {total} weights ({100 * rounded / total:.3g} %) are none, and are rounded"
        )
    return warnings


def print_plan(layout: Layout, config: dict, types: list) -> None:
    print(f"{config['architecture']}, {config['n_layers']} layers, weights {'/'.join(types)}")
    for planned, offset in zip(layout.plan, layout.offsets):
        shape = " x ".join(str(n) for n in planned.shape)
        print(f"{offset:>14} {planned.size:>12}  {planned.dtype_name:<8}  {planned.name:<32} {shape}")
    peak = PEAK_MEMORY + max(p.size // 9 if p.quantised else 0 for p in layout.plan)  # the scales of a matrix come last
    print(
        f"{len(layout.plan)} tensors, {layout.length} bytes ({layout.length / 1e9:.3f} GB); memory at most {peak >> 20} MiB"
    )


if __name__ == "__main__":
    sys.exit(main())
