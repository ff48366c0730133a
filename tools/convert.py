#!/usr/bin/env python3
"""Converts a model to a file that yalm runs: a directory from Hugging Face, or a GGUF file.

Llama, Mistral, Mixtral, Qwen 2 to 3.5, Gemma 1 to 4, Phi-3 and 4, gpt-oss, GLM-4, Granite, Ministral, OLMo, ERNIE 4.5,
EXAONE 4, Seed-OSS, MiniMax-M2, SmolLM3 and others: README.md lists them.

examples:
  tools/convert.py ~/models/Mistral-7B-v0.1 mistral.bin
  tools/convert.py SmolLM2-135M-Instruct.Q4_K_M.gguf smollm2.bin
  tools/convert.py ~/models/Llama-3.2-1B -o llama.bin --dtype fp16
  tools/convert.py ~/models/Mistral-7B-v0.1 mistral-q4.bin --dtype q4 --keep '*.down=q8'
  tools/convert.py ~/models/Llama-3.2-1B --lora ~/adapters/poet poet.bin
  tools/convert.py ~/models/Mixtral-8x7B-v0.1 --dry-run
"""

import argparse
import contextlib
import dataclasses
import errno
import functools
import gc
import math
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Optional

HELP_END = (
    "exit codes: 0 done, 1 failed at run time, 2 usage, 3 not a model that can be converted, 4 out of memory, "
    "130 interrupted"
)
FAILED, USAGE, BAD_MODEL, NO_MEMORY = 1, 2, 3, 4
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until there is something to tidy up
    gc.disable()  # it would go through a vocabulary of hundreds of thousands again and again, and free nothing
VERSION = "0.2.0"
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "tiktoken.model",
    "tokenizer_config.json",
    "added_tokens.json",
    "chat_template.jinja",
    "additional_chat_templates/tool_use.jinja",
)


def how_to_install() -> str:
    """The command that helps where a package is missing: into the environment that yalm looks for."""
    here = Path(__file__).resolve().parent
    if (here / "setup.sh").is_file():
        return f"{here / 'setup.sh'} build"
    venv = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "yalm/venv"
    return f"python3 -m venv {venv} && {venv}/bin/pip install -r {here / 'requirements.txt'}"


os.environ["OPENBLAS_NUM_THREADS"] = "1"  # numpy's: sums that do not depend on how many threads there are
try:
    from yalm_convert import calibrate
    from yalm_convert.checkpoint import PIECE, Checkpoint, read_checkpoint
    from yalm_convert.config import ModelConfig, model_config, read_config
    from yalm_convert.costs import report
    from yalm_convert.errors import ModelError
    from yalm_convert.lora import merge
    from yalm_convert.mixture import DEFAULT_BITS, ENOUGH_BITS, LEAST_BITS, MOST_BITS
    from yalm_convert.multimodal import text_tensors
    from yalm_convert.plan import MATRIX_TYPES, UnknownName, data, make_plan, matrix_types
    from yalm_convert.pooling import read_pooling
    from yalm_convert.prequantised import unpack
    from yalm_convert.quantise import memory_of_moments
    from yalm_convert.source import follow_links, locate, model_name
    from yalm_convert.tokenizer import read_tokenizer
    from yalm_convert.tokenizer_json import TokenizerData
    from yalm_convert.writer import MAGIC, Layout, keep_memory, write_model
except ImportError as error:
    sys.exit(f"convert.py: {error}; this installs what is missing: {how_to_install()}")

# The interpreter with its libraries, a piece as read, the same as fp32, and what the conversion makes on the way.
PEAK_MEMORY = (116 << 20) + 6 * PIECE


def main() -> int:
    arguments = parse_arguments()
    keep_memory()
    follow_links(arguments.follow_links)
    for number in ENDS:
        signal.signal(number, interrupt)
    try:
        return convert(arguments)
    except ModelError as error:
        return complain(error, BAD_MODEL)
    except calibrate.Failed as error:
        return complain(f"calibration: {error}", FAILED)
    except UnknownName as error:
        return complain(f"option '--keep': {error}: the model has no matrix of that name", USAGE)
    except ImportError as error:
        return complain(f"{error}; this installs what is missing: {how_to_install()}", FAILED)
    except MemoryError:
        return complain("out of memory", NO_MEMORY)
    except KeyboardInterrupt as signalled:
        return complain(
            "interrupted; nothing was written", 128 + (signalled.args[0] if signalled.args else signal.SIGINT)
        )
    except OSError as error:
        path = error.filename or arguments.output
        advice = ""
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            advice = "; free some, or write elsewhere"
            if arguments.into_cache:
                advice = "; `yalm cache clear` empties the cache, XDG_CACHE_HOME names another place for it"
        return complain(f"{path}: {error.strerror}{advice}" if error.strerror else error, FAILED)


def interrupt(number: int, frame: object) -> None:
    for other in ENDS:  # a terminal and yalm both tell of a ^C: the second one must not disturb the tidying up
        signal.signal(other, lambda *_: None)  # by SIG_IGN, Python complains of one that has just come
    raise KeyboardInterrupt(number)


def complain(text: object, code: int) -> int:
    """One line on stderr. In yalm's name where yalm has called it."""
    print(f"{CALLED} " + " ".join(str(text).split("\n")), file=sys.stderr)
    return code


def remark(text: object) -> None:
    """What is no mistake: --quiet leaves it out."""
    if not QUIET:
        complain(text, 0)


class Parser(argparse.ArgumentParser):
    """Says a mistake in the arguments in one line, like any other mistake."""

    def error(self, message: str):
        sys.exit(complain(f"{message} (--help lists the options)", 2))


CALLED, QUIET = "convert.py:", False


def parse_arguments() -> argparse.Namespace:
    global CALLED, QUIET
    CALLED = "yalm:" if "--into-cache" in sys.argv else CALLED  # before a mistake in the arguments is said
    parser = Parser(
        prog="convert.py", description=__doc__, epilog=HELP_END, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "model",
        type=Path,
        metavar="MODEL",
        help="a directory with config.json, *.safetensors and the tokenizer's files; or a GGUF file, of several the first",
    )
    parser.add_argument(
        "file", type=Path, nargs="?", metavar="FILE", help="the file to write, an existing one is replaced"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="the same, as an option")
    parser.add_argument(
        "--dtype",
        choices=MATRIX_TYPES,
        help="of the weight matrices (default: as stored; what is quantised already keeps its values or comes near them, "
        "which is said); bf12 is bf16 without loss in 12 bits; q4 is a mixture, of --bits; with q5, q3 and q2 "
        "the classifier becomes q6",
    )
    parser.add_argument(
        "--keep",
        type=kept_type,
        action="append",
        default=[],
        metavar="NAME=DTYPE",
        help="another type for matrices of this name, which may be a pattern: classifier=q4, 'layers.0.*=bf16'; the last "
        "that matches counts",
    )
    parser.add_argument(
        "--bits",
        type=bits_a_weight,
        metavar="N",
        help=f"with --dtype q4: bits a weight of the layers' matrices, from {LEAST_BITS} to {MOST_BITS}, whose bytes and the "
        f"classifier's and embedding's are shared out among all: above {ENOUGH_BITS} some are q5, q6 and q8, below it q3 and "
        f"q2, the most sensitive the finest (default: {DEFAULT_BITS})",
    )
    parser.add_argument(
        "--lora",
        type=Path,
        metavar="DIR",
        help="an adapter of PEFT's (adapter_config.json, adapter_model.safetensors), which is added to the weights",
    )
    parser.add_argument(
        "--follow-links",
        action="store_true",
        help="read files that symbolic links name outside the directory: where you made the links, not a stranger",
    )
    parser.add_argument(
        "--calibration",
        metavar="FILE|none",
        help="text by which the scales of q6 and less are chosen, with the weights that matter in it (default: one that "
        "comes with yalm); none: all weights alike, which is faster",
    )
    parser.add_argument("--check-finite", action="store_true", help="refuse weights that are NaN or infinite")
    parser.add_argument("--dry-run", action="store_true", help="print the plan, write nothing")
    parser.add_argument("--quiet", action="store_true", help="say nothing on stderr but errors")
    parser.add_argument("--into-cache", action="store_true", help=argparse.SUPPRESS)  # as yalm calls it
    parser.add_argument("--version", action="version", version=f"convert.py {VERSION}")
    arguments = parser.parse_args()
    QUIET = arguments.quiet
    if arguments.bits and arguments.dtype != "q4":
        parser.error("--bits: needs --dtype q4")
    if arguments.file and arguments.output:
        parser.error("the file to write is given twice")
    arguments.output = arguments.output or arguments.file
    if not arguments.output and not arguments.dry_run:
        parser.error("give the file to write: convert.py MODEL FILE")
    if not arguments.model.is_dir() and not arguments.model.is_file():
        parser.error(f"{arguments.model}: no such directory or file")
    if arguments.calibration not in (None, "none") and not Path(arguments.calibration).is_file():
        parser.error(f"--calibration {arguments.calibration}: no such file")
    if arguments.lora and not arguments.lora.is_dir():
        parser.error(f"--lora {arguments.lora}: no such directory")
    if arguments.output:
        refusal = why_not_write(arguments.output.resolve(), arguments.model.resolve())
        if refusal:
            parser.error(f"{arguments.output}: {refusal}")
    return arguments


def kept_type(text: str) -> tuple:
    name, found, dtype = text.rpartition("=")
    if not name or not found or dtype not in MATRIX_TYPES:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected NAME=DTYPE with one of {', '.join(MATRIX_TYPES)}")
    return name, dtype


def bits_a_weight(text: str) -> float:
    try:
        bits = float(text)
    except ValueError:
        bits = 0.0
    if not LEAST_BITS <= bits <= MOST_BITS:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a number from {LEAST_BITS} to {MOST_BITS}")
    return bits


def why_not_write(output: Path, model: Path) -> str:
    if output.is_dir():
        return "a directory, expected a file to write"
    if output.exists() and not output.is_file():
        return "not a file"
    if not output.parent.is_dir():
        return "there is no such directory to write in"
    if output.exists():
        with open(output, "rb") as file:
            converted = file.read(len(MAGIC)) == MAGIC
        files = model.rglob("*") if model.is_dir() else [model]
        ours = any(output.samefile(p) for p in files if p.is_file())
        if ours and not converted:
            return "one of the model's own files, which are not overwritten"
    return ""


@dataclasses.dataclass
class Source:
    """A model as it was given, in the terms of Hugging Face's form of it."""

    path: Path
    name: str
    config: ModelConfig
    tensors: Checkpoint
    tokenizer: TokenizerData


@contextlib.contextmanager
def form_expected(where: object) -> Iterator[None]:
    """Turns a mistake in settings that are not checked one by one, such as a text where a number should be, into a
    ModelError."""
    try:
        yield
    except (AttributeError, LookupError, TypeError, ValueError, ArithmeticError) as error:
        raise ModelError(f"{where}: not of the form that is expected: {type(error).__name__}: {error}") from None


def read_directory(model_dir: Path) -> Source:
    config = read_config(model_dir)
    tensors = read_checkpoint(model_dir)
    if config.part:
        tensors, others = text_tensors(tensors)
        config.facts["tied_embeddings"] = "lm_head.weight" not in tensors
        config.warnings.append(
            f"{model_dir}: the part that reads text is converted; {others} tensors of the others are left out"
        )
    if config.quantization:
        with form_expected(f"{config.keys.path}: quantization_config"):
            tensors = unpack(tensors, config.quantization, str(config.keys.path))
    for name in TOKENIZER_FILES:
        locate(model_dir, name)
    tokenizer = read_tokenizer(model_dir, config.facts)
    with form_expected(model_dir):
        config.facts.update(read_pooling(model_dir, tokenizer.end, tensors, config))
        if config.facts.get("score", {}).get("by") == "last":  # the template has all
            config.facts["score"]["end"] = -1
        elif "score" in config.facts:
            config.facts["score"] |= {
                "between": tokenizer.between,
                "end": -1 if tokenizer.end is None else tokenizer.end,
            }
    if config.facts.get("bidirectional") and not {"pooling", "score"} & set(config.facts):
        raise ModelError(
            f"{model_dir}: no modules.json, which says how the model's vectors are made (sentence-transformers')"
        )
    return Source(model_dir, model_name(model_dir), config, tensors, tokenizer)


def read_file(path: Path) -> Source:
    from yalm_convert import gguf_config, gguf_encoders, gguf_file, gguf_tokenizer  # here, for gguf takes long to load

    file, warnings = gguf_file.read_gguf(path), []
    with form_expected(path):
        config = model_config(gguf_config.config_values(file, warnings), path)
        tokenizer = gguf_tokenizer.read_gguf_tokenizer(file, config.facts["vocab_size"])
        tensors = gguf_config.model_tensors(file)
        config.facts.update(gguf_encoders.purpose(file, tokenizer, config.facts))
        if tokenizer.end is not None and not {"pooling", "score"} & set(config.facts):
            warnings.append(f"{path}: the tokenizer puts its eos token after a text; here it is left out")
    config.warnings += warnings
    config.changes = dataclasses.replace(config.changes, norm_plus=0.0)  # norms are stored there as they are
    name = file.get("general.name")
    return Source(path, name if isinstance(name, str) else path.stem, config, tensors, tokenizer)


def convert(arguments: argparse.Namespace) -> int:
    started = time.monotonic()
    source = (read_directory if arguments.model.is_dir() else read_file)(arguments.model)
    config, tokenizer, where = source.config, source.tokenizer, str(source.path)
    config.finish(tokenizer)
    if arguments.lora:
        with form_expected(arguments.lora):
            merged = merge(source.tensors, arguments.lora)
        remark(f"{arguments.lora}: added to {merged} tensors")
    bits = arguments.bits or (DEFAULT_BITS if arguments.dtype == "q4" else None)
    plan = plan_of(source, arguments.dtype, arguments.keep, bits)
    metadata = {"config": config.facts, "tokenizer": tokenizer.facts}
    if tokenizer.chat_template is not None:
        metadata["chat_template"] = tokenizer.chat_template
        metadata["chat"] = tokenizer.chat
    metadata["source"] = {"name": source.name, "converter": VERSION}
    if arguments.lora:
        metadata["source"]["adapter"] = model_name(arguments.lora)
    layout = Layout(metadata, plan)

    types = matrix_types(plan)
    warnings = config.warnings + tokenizer.warnings
    if tokenizer.facts["type"] == "none":
        kimi = " (tiktoken.model is read where tokenizer_class is TikTokenTokenizer)"
        unread = kimi if (source.path / "tiktoken.model").exists() else ""
        warnings.append(f"{where}: no tokenizer.json or tokenizer.model{unread}: the model will take token ids only")
    costs = report(plan)
    if len(types) > 1 and not arguments.dtype and not arguments.keep and not costs:
        warnings.append(
            f"{where}: the matrices are stored as {' and '.join(types)}, and stay so; --dtype makes them one type"
        )
    warnings += bf12_warnings(where, plan)
    for warning in warnings:
        remark(f"warning: {warning}")
    if costs:
        remark(f"{where}: {costs}")
    weighed = calibrate.asked_for(plan) if arguments.calibration != "none" else []
    if arguments.dry_run:
        print_plan(
            layout, config.facts, types, max([memory_of_moments(planned.shape) for planned in weighed], default=0)
        )
        if weighed:
            print(
                f"calibration: yalm adds up second moments in {calibrate.size_of_sums(plan) >> 20} MiB, of which it takes "
                "at most half the memory that is free"
            )
        return 0

    output = arguments.output.resolve()
    free = shutil.disk_usage(output.parent).free
    if free < layout.length:
        raise OSError(
            errno.ENOSPC, f"no space: {layout.length} bytes are needed, {free} are free", str(arguments.output)
        )
    quiet = QUIET or not sys.stderr.isatty()
    if weighed:
        layout.plan = calibrated(arguments, source, plan, metadata, quiet)
    with progress("converting" if arguments.into_cache else output.name, plan, quiet) as bar:
        write_model(
            output, layout, lambda planned: data(planned, arguments.check_finite), functools.partial(advance, bar)
        )
    name = "converted" if arguments.into_cache else arguments.output
    if not QUIET:
        print(
            f"{name}: {len(plan)} tensors, {'/'.join(types)}, {layout.length / 1e9:.3f} GB, "
            f"verified, in {time.monotonic() - started:.1f} s",
            file=sys.stderr,
        )
    return 0


def plan_of(source: Source, dtype: Optional[str], keep: list, bits: Optional[float] = None) -> list:
    config, tokenizer = source.config, source.tokenizer
    return make_plan(
        config.facts,
        source.tensors,
        tokenizer.tensors,
        str(source.path),
        dtype,
        keep,
        config.changes,
        bits,
        config.warnings,
    )


def progress(what: str, plan: list, quiet: bool) -> contextlib.AbstractContextManager:
    if quiet:
        return contextlib.nullcontext()  # there is no bar
    from tqdm import tqdm  # here, for it takes long to load

    return tqdm(total=sum(p.size for p in plan), unit="B", unit_scale=True, desc=what, leave=False, file=sys.stderr)


def next_stage(bar: object, what: str) -> None:
    bar.reset()
    bar.set_description(f"{bar.desc.partition(',')[0]}, {what}")


def advance(bar: object, n: int) -> None:
    """For write_model(): what is written, and from the beginning again what is read back."""
    if bar is not None:
        if bar.n + n > bar.total:
            next_stage(bar, "verifying")
        bar.update(n)


def advance_text(bar: object, part: float) -> None:
    if bar is not None:
        if bar.unit:
            next_stage(bar, "reading the text")
            bar.unit, bar.unit_scale, bar.total = "", False, 100
        bar.update(round(100 * part) - bar.n)


def calibrated(arguments: argparse.Namespace, source: Source, plan: list, metadata: dict, quiet: bool) -> list:
    """The plan with importance. Where none can be had and no text was named: the plan as it was, and why."""
    started = time.monotonic()
    text = Path(arguments.calibration or calibrate.TEXT)
    try:
        if source.tokenizer.facts["type"] == "none":
            raise calibrate.Failed("the model has no tokenizer to read a text by")
        whole = plan_of(source, "bf16", [])
        with progress("calibration", whole, quiet) as bar:
            output, told = arguments.output.resolve(), functools.partial(advance_text, bar)
            plan = calibrate.weighed(plan, whole, metadata, output, text, functools.partial(advance, bar), told)
    except calibrate.Failed as error:
        if arguments.calibration:
            raise
        remark(f"quantised without calibration, all weights alike: {error}")
        return plan
    alone = calibrate.without_moments(plan)
    but = f"; not enough memory for second moments of {alone} matrices" if alone else ""
    remark(f"calibrated by {text.name} in {time.monotonic() - started:.1f} s{but}")
    return plan


def bf12_warnings(where: str, plan: list) -> list:
    """Warns of matrices that cannot be bf12, and of weights that bf12 rounds."""
    warnings = []
    unfit = [planned.name for planned in plan if planned.unfit]
    if unfit:
        names = ", ".join(unfit[:3]) + (", …" if len(unfit) > 3 else "")
        warnings.append(f"{where}: {len(unfit)} of the matrices stay bf16, for 12 bits do not hold them: {names}")
    rounded = sum(planned.rounded for planned in plan)
    if rounded:
        total = sum(math.prod(planned.shape) for planned in plan if planned.unfit or planned.quantised == "bf12")
        warnings.append(
            f"{where}: bf12 keeps bfloat16 numbers; {rounded} of the {total} weights ({100 * rounded / total:.3g} %) are "
            f"none, and are rounded"
        )
    return warnings


def print_plan(layout: Layout, config: dict, types: list, of_moments: int) -> None:
    print(f"{config['architecture']}, {config['n_layers']} layers, weights {'/'.join(types)}")
    for planned, offset in zip(layout.plan, layout.offsets):
        shape = " x ".join(str(n) for n in planned.shape)
        print(f"{offset:>14} {planned.size:>12}  {planned.dtype_name:<8}  {planned.name:<32} {shape}")
    scales = max(p.size // 9 if p.quantised else 0 for p in layout.plan)  # of a matrix, which come last
    peak = PEAK_MEMORY + scales + of_moments
    print(
        f"{len(layout.plan)} tensors, {layout.length} bytes ({layout.length / 1e9:.3f} GB); memory at most {peak >> 20} MiB"
    )


if __name__ == "__main__":
    sys.exit(main())
