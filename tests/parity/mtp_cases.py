"""The models of the tests of MTP heads. Shared by the script that makes the golden guesses and by the test that reads them."""

from cases import ROOT, Case, generator

GOLDEN = ROOT / "tests/golden/mtp"
GUESSES = 3  # each behind the one before
CASES = {name: Case(name, config, n_tokens=72) for name, config in generator.PRESETS.items() if name.startswith("mtp-")}
CASES["bundled-hybrid"] = Case("bundled-hybrid", None, "bf16", 72)
