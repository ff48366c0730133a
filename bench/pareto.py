#!/usr/bin/env python3
"""Speed against quality: yalm's and llama.cpp's forms of one real model, timed on this machine in turns, judged by KL
divergence from the unrounded model (as bench/quantisation_quality.py judges them). Prints a table, and draws decode
and prompt against what is lost. bench/pareto.sh builds what this needs.

Each engine takes its own defaults and as many threads as the other. KL is that of the weights and of what yalm itself
adds; llama.cpp, which rounds tokens to 8 bits besides, loses a little more than is counted here.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

import plot
from compare import Peer, Yalm
from quantisation_quality import CALIBRATION, CONTEXT, FOLDER, ROOT, Judge, convert, run, whole

OURS = ("bf16", "bf12", "q8", "q6", "q5", "q4")
THEIRS = ("BF16", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "IQ4_XS", "Q4_0")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, metavar="MODEL.gguf", help=f"with weights that are not quantised, {FOLDER}")
    parser.add_argument(
        "--peer", type=Path, required=True, metavar="FOLDER", help="of llama-bench, llama-quantize, llama-imatrix"
    )
    parser.add_argument("--text", type=Path, required=True, help="held-out text")
    parser.add_argument("--tokens", default="2048", help="of it (default: %(default)s)")
    parser.add_argument(
        "--form", action="append", metavar="OPTIONS", help="of tools/convert.py; may be given several times"
    )
    parser.add_argument("--types", default=",".join(THEIRS), help="llama.cpp's (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="in turns; medians are printed (default: %(default)s)")
    parser.add_argument("--prompt", type=int, default=256, help="tokens (default: %(default)s)")
    parser.add_argument("--generate", type=int, default=64, help="tokens (default: %(default)s)")
    parser.add_argument("--plot", type=Path, metavar="PREFIX", help="writes PREFIX-decode.svg and PREFIX-prompt.svg")
    parser.add_argument(
        "--work", type=Path, default=ROOT / "build", help="where some GB of files lie meanwhile (default: build/)"
    )
    return parser.parse_args()


class Form:
    """A file that an engine runs, what it loses, and what each round took."""

    def __init__(self, engine: str, name: str, file: Path, kl: float):
        self.engine, self.name, self.file, self.kl = engine, name, file, kl
        self.size = file.stat().st_size
        self.rates: dict = {"decode": [], "prompt": []}

    def rate(self, of: str) -> float:
        return statistics.median(self.rates[of])


def our_forms(arguments: argparse.Namespace, judge: Judge, place: Path) -> list:
    forms = []
    for number, options in enumerate(arguments.form or [f"--dtype {kind}" for kind in OURS]):
        file = place / f"yalm.{number}.bin"
        convert(arguments.model, file, *options.split())
        forms.append(Form("yalm", options.removeprefix("--dtype "), file, float(judge.compared(file, 0)["KL"])))
    return forms


def their_forms(arguments: argparse.Namespace, judge: Judge, place: Path) -> list:
    importance, judged, forms = place / "imatrix.gguf", place / "judged.bin", []
    run(
        *(arguments.peer / "llama-imatrix", "-m", arguments.model, "-f", CALIBRATION, "-o", importance),
        *("-c", CONTEXT, "-b", CONTEXT, "--no-ppl"),
    )
    for kind in arguments.types.split(","):
        file = place / f"{kind}.gguf"
        run(arguments.peer / "llama-quantize", "--imatrix", importance, arguments.model, file, kind)
        convert(file, judged, "--dtype", "bf16" if kind == "BF16" else "fp16")
        forms.append(Form("llama.cpp", kind, file, float(judge.compared(judged, 0)["KL"])))
        judged.unlink()
    return forms


def time_forms(arguments: argparse.Namespace, forms: list) -> None:
    engines = {"yalm": Yalm(ROOT / "yalm"), "llama.cpp": Peer("llama.cpp", arguments.peer)}
    threads = 0
    for number in range(arguments.rounds):
        print(f"pareto: round {number + 1} of {arguments.rounds}", file=sys.stderr)
        for form in forms:  # yalm's first: they say how many threads there are
            rows = engines[form.engine].run(form.file, arguments.prompt, arguments.generate, threads=threads)
            threads = threads or rows[0]["n_threads"]
            for row in rows:
                form.rates["decode" if row["n_gen"] else "prompt"].append(row["avg_ts"])


def as_good(form: Form, forms: list, of: str) -> Form | None:
    """The fastest of llama.cpp's forms that lose no more."""
    others = [other for other in forms if other.engine == "llama.cpp" and other.kl <= form.kl]
    return max(others, key=lambda other: other.rate(of), default=None)


def beside(form: Form, forms: list, of: str) -> str:
    other = as_good(form, forms, of)
    return f"{form.rate(of) / other.rate(of):.2f} ({other.name})" if other and form.engine == "yalm" else ""


def print_table(arguments: argparse.Namespace, forms: list) -> None:
    print("| engine | form | MB | KL | decode, tok/s | times the fastest as good | prompt, tok/s | likewise |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for form in sorted(forms, key=lambda form: form.kl):
        cells = [form.engine, form.name, f"{form.size / 1e6:.1f}", f"{form.kl:.5f}"]
        for of in ("decode", "prompt"):
            cells += [f"{form.rate(of):.1f}", beside(form, forms, of)]
        print("| " + " | ".join(cells) + " |")


def draw(arguments: argparse.Namespace, forms: list) -> None:
    for of in ("decode", "prompt"):
        series: dict = {"yalm": [], "llama.cpp": []}
        for form in forms:
            series[form.engine].append((max(form.kl, 1e-6), form.rate(of), form.name))
        title = f"{arguments.model.stem}: {of}, and what is lost"
        picture = plot.trade(title, "KL divergence, nats a token", "tokens a second", series)
        arguments.plot.with_name(f"{arguments.plot.name}-{of}.svg").write_text(picture, encoding="utf-8")


def main() -> int:
    arguments = parse_arguments()
    with tempfile.TemporaryDirectory(prefix="pareto.", dir=arguments.work) as folder:
        place = Path(folder)
        arguments.model = whole(arguments.model, place)
        judge = Judge(arguments.model, [arguments.text], arguments.tokens, place)
        forms = our_forms(arguments, judge, place) + their_forms(arguments, judge, place)
        time_forms(arguments, forms)
        print_table(arguments, forms)
        if arguments.plot:
            draw(arguments, forms)
    return 0


if __name__ == "__main__":
    sys.exit(main())
