"""WordPiece tokenizers that strangers wrote: what is refused by name."""

import copy
import json
import sys

import pytest
from harness import ROOT

sys.path.insert(0, str(ROOT / "tools"))

from yalm_convert.errors import ModelError
from yalm_convert.tokenizer import read_tokenizer

PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "##b")
BERT = {
    "added_tokens": [],
    "normalizer": {"type": "BertNormalizer", "lowercase": True, "strip_accents": None},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]},
    "decoder": {"type": "WordPiece"},
    "model": {
        "type": "WordPiece",
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
        "vocab": {piece: i for i, piece in enumerate(PIECES)},
    },
}


def read(folder, root):
    (folder / "tokenizer.json").write_text(json.dumps(root), encoding="utf-8")
    return read_tokenizer(folder, {"vocab_size": len(PIECES)})


def test_as_it_should_be(tmp_path):
    data = read(tmp_path, BERT)
    assert (data.bos, data.end, data.between) == (2, 3, [3]) and data.facts["longest_word"] == 100


@pytest.mark.parametrize(
    ("part", "key", "value", "says"),
    [
        ("model", "continuing_subword_prefix", 3, "continuing_subword_prefix: found 3, expected a string"),
        ("model", "continuing_subword_prefix", float("nan"), "continuing_subword_prefix: found NaN, expected a string"),
        ("model", "max_input_chars_per_word", 0, "max_input_chars_per_word: found 0, expected an integer from 1 to"),
        ("model", "max_input_chars_per_word", True, "max_input_chars_per_word: found true, expected an integer"),
        ("model", "vocab", {"a": 0}, "expected an object with pieces, among them unk_token"),
        ("normalizer", "lowercase", "no", 'normalizer {"type": "BertNormalizer", "lowercase": "no"'),
        ("post_processor", "sep", ["[SEP]", 6], "post-processor: found token 6, expected an id from 0 to 5"),
        ("post_processor", "cls", ["[CLS]", True], "post-processor: found token true, expected an id from 0 to 5"),
        ("post_processor", "cls", ["[CLS]", -1], "post-processor: found token -1, expected an id from 0 to 5"),
        ("post_processor", "cls", "[CLS]", 'post-processor: found token "C", expected an id from 0 to 5'),
    ],
)
def test_refused(part, key, value, says, tmp_path):
    root = copy.deepcopy(BERT)
    root[part][key] = value
    with pytest.raises(ModelError) as refused:
        read(tmp_path, root)
    assert says in str(refused.value) and "\n" not in str(refused.value)
