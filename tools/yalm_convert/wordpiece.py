"""WordPiece of tokenizer.json, as BERT has it, in the form of docs/format.md ("tokenizer")."""

from pathlib import Path

from .errors import ModelError
from .normalizer import read_step, refuse, sequence
from .source import shown
from .vocabulary import MAX_PIECES, NORMAL, UNKNOWN, UNUSED, Vocabulary

# Ideographs, each of which is a word; and signs that are words, too.
IDEOGRAPHS = (
    r"\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2B73F}\x{2B740}-\x{2B81F}\x{2B920}-\x{2CEAF}"
    r"\x{F900}-\x{FAFF}\x{2F800}-\x{2FA1F}"
)
FLAGS = ("clean_text", "handle_chinese_chars", "strip_accents", "lowercase")
MOST_CHARACTERS = 1 << 20  # of a word
SIGNS = r"!-/:-@\[-`{-~\p{P}"


def read_wordpiece(root: dict, path: Path) -> tuple:
    """(facts, vocabulary)."""
    model = root["model"]
    unknown, continuing = model.get("unk_token"), model.get("continuing_subword_prefix", "##")
    vocab = model.get("vocab")
    if not isinstance(vocab, dict) or unknown not in vocab:
        raise ModelError(f"{path}: model.vocab: expected an object with pieces, among them unk_token {unknown!r}")
    longest = model.get("max_input_chars_per_word", 100)
    if not isinstance(continuing, str):
        raise ModelError(f"{path}: continuing_subword_prefix: found {shown(continuing)}, expected a string")
    if not isinstance(longest, int) or isinstance(longest, bool) or not 1 <= longest <= MOST_CHARACTERS:
        raise ModelError(
            f"{path}: max_input_chars_per_word: found {shown(longest)}, expected an integer from 1 to {MOST_CHARACTERS}"
        )
    vocabulary = Vocabulary()
    for piece, token in vocab.items():
        if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token < MAX_PIECES:
            raise ModelError(f"{path}: piece {piece!r} has id {token!r}, expected 0 to {MAX_PIECES - 1}")
        if token < len(vocabulary.kinds) and vocabulary.kinds[token] != UNUSED:
            raise ModelError(f"{path}: two pieces have id {token}; one is {piece!r}")
        vocabulary.add(token, piece.encode("utf-8"), UNKNOWN if piece == unknown else NORMAL)
    steps, ideographs = _normalizers(root.get("normalizer"), path)
    stages = sequence(root.get("pre_tokenizer"), "pretokenizers")
    if [stage.get("type") for stage in stages] != ["BertPreTokenizer"]:
        raise refuse(path, "pre-tokenizer", root.get("pre_tokenizer") or {})
    alone = SIGNS + (IDEOGRAPHS if ideographs else "")
    facts = {
        "type": "wordpiece",
        "continuing": continuing,
        "longest_word": longest,
        "unknown": vocab[unknown],
        "patterns": [{"matches": rf"[{alone}]|[^\s{alone}]+"}],
    }
    for entry in root.get("added_tokens") or []:
        vocabulary.add_spelled(entry, path)
    return ({**facts, "normalizers": steps} if steps else facts), vocabulary


def _normalizers(normalizer, path: Path) -> tuple:
    """(steps, whether ideographs are words)."""
    steps, ideographs = [], False
    for part in sequence(normalizer, "normalizers"):
        if part.get("type") != "BertNormalizer":
            steps.append(read_step(part, path))
            continue
        if not all(part.get(flag) in (None, True, False) for flag in FLAGS):
            raise refuse(path, "normalizer", part)
        lowercase = part.get("lowercase", True)
        strips = lowercase if part.get("strip_accents") is None else part["strip_accents"]
        ideographs = ideographs or part.get("handle_chinese_chars", True)
        if part.get("clean_text", True):
            # Blanks and lines' ends become blanks; of other control characters nothing is left.
            steps.append({"type": "replace", "pattern": r"(?![\t\n\r])\p{C}|\x{FFFD}", "text": ""})
        if strips:
            steps += [{"type": "nfd"}, {"type": "replace", "pattern": r"\p{Mn}", "text": ""}]
        if lowercase:
            steps.append({"type": "lowercase"})
    return steps, ideographs
