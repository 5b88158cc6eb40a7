"""Makes the installed BlazeFL run on a Python older than the one it asks for.

Its release uses one thing that Python 3.11 lacks, type parameters of functions (`def name[T](…)`).
They are taken out; what the functions do is untouched.
"""

import re
from pathlib import Path

import blazefl

FUTURE = "from __future__ import annotations\n"


def main() -> None:
    for file in Path(blazefl.__path__[0]).rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        plain, found = re.subn(r"^(\s*def \w+)\[[^\]]+\]\(", r"\1(", text, flags=re.MULTILINE)
        if found:
            file.write_text(FUTURE + plain, encoding="utf-8")


if __name__ == "__main__":
    main()
