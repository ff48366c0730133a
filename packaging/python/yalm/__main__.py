"""The command yalm: the package's program in this process's place."""

import os
import sys
from pathlib import Path


def main():
    own = Path(__file__).resolve().parent / "bin/yalm"
    os.environ.setdefault("YALM_PYTHON", sys.executable)  # which has the converter's packages
    try:
        os.execv(own, ["yalm", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"yalm: {own}: {error.strerror}")


if __name__ == "__main__":
    main()
