#!/usr/bin/env python3
"""What quantised forms of real models lose: yalm's beside llama.cpp's, with llama.cpp's importance matrix of yalm's
own calibration text.

Every form becomes a file of yalm's: llama.cpp's are dequantised to fp16, so that one program judges all, by the same
tokens and the same logits of the unrounded model. (llama.cpp itself loses a little more: it rounds tokens to 8 bits.)
bench/quantisation_quality.sh builds what this needs.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CALIBRATION = ROOT / "tools/yalm_convert/calibration.txt"
CONTEXT = "512"
FOLDER = "or a folder: of one GGUF file, or of its parts (part01.bin, …)"
FOUND = {
    "perplexity": r"PPL = ([0-9.]+)",
    "KL": r"KL divergence: mean ([0-9.]+)",
    "99.9 %": r"99.9 % quantile ([0-9.]+)",
    "same best": r"same top: ([0-9.]+)",
}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "models", nargs="+", type=Path, metavar="MODEL.gguf", help=f"with weights that are not quantised, {FOLDER}"
    )
    parser.add_argument(
        "--peer", type=Path, required=True, metavar="FOLDER", help="of llama-quantize and llama-imatrix"
    )
    parser.add_argument(
        "--text", type=Path, action="append", required=True, help="held-out text; may be given several times"
    )
    parser.add_argument("--tokens", default="8192", help="of each text (default: %(default)s)")
    parser.add_argument("--types", default="IQ4_XS,Q4_K_M", help="llama.cpp's (default: %(default)s)")
    parser.add_argument(
        "--form",
        action="append",
        metavar="OPTIONS",
        help="of tools/convert.py, for yalm's; may be given several times (default: --dtype q4)",
    )
    parser.add_argument(
        "--work", type=Path, default=ROOT / "build", help="where some GB of files lie meanwhile (default: build/)"
    )
    return parser.parse_args()


def run(*command: object) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"quality: {command[0]} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout


def whole(model: Path, place: Path) -> Path:
    """The GGUF file that a folder holds; or its parts, joined in `place`."""
    if not model.is_dir():
        return model
    files = sorted(model.rglob("*.gguf"))
    parts = [path for path in model.rglob("*") if re.search(r"part-?\d+(\.bin)?$", path.name) and path.is_file()]
    parts.sort(key=lambda path: int(re.findall(r"\d+", path.name)[-1]))
    if files or not parts or parts[0].open("rb").read(4) != b"GGUF":
        return (
            files[0] if len(files) == 1 else sys.exit(f"{model}: expected one GGUF file in it, or its parts in order")
        )
    joined = place / f"{model.name}.gguf"
    with open(joined, "wb") as file:
        for part in parts:
            shutil.copyfileobj(part.open("rb"), file)
    return joined


def convert(source: Path, output: Path, *options: str) -> int:
    """Writes one of yalm's files; returns its bytes."""
    run(sys.executable, ROOT / "tools/convert.py", source, output, *options)
    return output.stat().st_size


class Judge:
    """Knows the unrounded model's logits of each text."""

    def __init__(self, model: Path, texts: list, tokens: str, place: Path):
        self.texts, self.tokens, self.place = texts, tokens, place
        base = place / "base.bin"
        convert(model, base)
        for number, _ in enumerate(texts):
            found = self.measure(base, number, "--save-logits", place / f"logits.{number}")
            self.report("as it was", 0, number, found)
        base.unlink()

    def measure(self, file: Path, number: int, *options: object) -> dict:
        """FOUND by name, as it was printed; "" for what was not."""
        said = run(
            ROOT / "yalm",
            file,
            "-m",
            "perplexity",
            "-f",
            self.texts[number],
            "--ctx",
            CONTEXT,
            "--max-tokens",
            self.tokens,
            "-q",
            *options,
        )
        found = {name: re.search(pattern, said) for name, pattern in FOUND.items()}
        return {name: match.group(1) if match else "" for name, match in found.items()}

    def compared(self, file: Path, number: int) -> dict:
        return self.measure(file, number, "--kl-base", self.place / f"logits.{number}")

    def report(self, form: str, size: int, number: int, found: dict) -> None:
        bytes_ = f"{size / 1e6:.1f} MB" if size else ""
        cells = [self.texts[number].name, form, bytes_, *found.values()]
        print("| " + " | ".join(cells) + " |", flush=True)

    def judge(self, form: str, file: Path, size: int) -> None:
        for number, _ in enumerate(self.texts):
            self.report(form, size, number, self.compared(file, number))
        file.unlink()


def main() -> int:
    arguments = parse_arguments()
    for model in arguments.models:
        print(
            f"\n{model.name}\n\n| text | form | bytes | "
            + " | ".join(FOUND)
            + " |\n"
            + "| --- " * (3 + len(FOUND))
            + "|"
        )
        with tempfile.TemporaryDirectory(prefix="quality.", dir=arguments.work) as folder:
            place = Path(folder)
            model = whole(model, place)
            judge = Judge(model, arguments.text, arguments.tokens, place)
            for options in arguments.form or ["--dtype q4"]:
                file = place / "yalm.bin"
                judge.judge(f"yalm {options}", file, convert(model, file, *options.split()))
            importance = place / "imatrix.gguf"
            run(
                *(arguments.peer / "llama-imatrix", "-m", model, "-f", CALIBRATION, "-o", importance),
                *("-c", CONTEXT, "-b", CONTEXT, "--no-ppl"),
            )
            for kind in arguments.types.split(","):
                peer, file = place / f"{kind}.gguf", place / "peer.bin"
                run(arguments.peer / "llama-quantize", "--imatrix", importance, model, peer, kind)
                convert(peer, file, "--dtype", "fp16")
                judge.judge(f"llama.cpp {kind}", file, peer.stat().st_size)
                peer.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
