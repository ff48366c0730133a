"""Texts of a megabyte or so, where a careless algorithm takes quadratic time. The golden file has digests of their ids."""

import random

LONG = 1 << 20


def long_texts():
    rng = random.Random(21)
    return {
        "one letter": "a" * LONG,
        "spaces": " " * LONG,
        "newlines": "\n" * LONG,
        "no space": "".join(rng.choice("etaoinshrdlu") for _ in range(LONG)),
        "one ideograph": "的" * (LONG // 3),
        "angle brackets": "<" * LONG,
    }
