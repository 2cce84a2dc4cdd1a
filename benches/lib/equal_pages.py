"""Prints how much of the files of tables in a data directory is equal in an older one: OLD NEW."""

import sys
from pathlib import Path

PAGE = 16 << 10
KINDS = {".ibd", ".ibu", ".MYD", ".MYI", ".MAD", ".MAI", ".ARZ"}


def is_table(path):
    """Whether a state transfer may find its blocks in old data."""
    return path.suffix in KINDS or path.name.startswith(("ibdata", "undo0"))


def pages(path):
    """Yields the pages of a file, none if there is no such file."""
    if path.is_file():
        with open(path, "rb") as file:
            while page := file.read(PAGE):
                yield page


def main():
    """Compares page by page, at the same offset of the file of the same name."""
    old, new = map(Path, sys.argv[1:])
    total = equal = 0
    for path in sorted(new.rglob("*")):
        if not (path.is_file() and is_table(path)):
            continue
        there = pages(old / path.relative_to(new))
        for page in pages(path):
            total += len(page)
            equal += len(page) if next(there, None) == page else 0
    print(f"{total / 2**20:.1f} MiB of tables, {(total - equal) / 2**20:.1f} MiB differ: "
          f"{100 * equal / max(total, 1):.1f} % of the pages are equal")


main()
