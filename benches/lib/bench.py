"""What all benches of whole programs share: options, scratch space, rounds, results, tables."""

import argparse
import datetime
import json
import os
import platform
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from . import peers
from .measure import Failed, raise_open_files, run, use_memory

# What the documents show. A run by hand leaves it alone, unless --out says otherwise.
RESULTS = peers.ROOT / "benches" / "results"
OWN_RESULTS = peers.TARGET / "bench-results"
GIB = 1 << 30


def size_of(text):
    """Returns the bytes of a size such as 256M."""
    match = re.fullmatch(r"(\d+)([KMGT]?)", text)
    if not match:
        raise argparse.ArgumentTypeError(f"{text} is no size; say 256M or 2G")
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}[match[2]]


class Bench:
    """One run of one bench: its options, a scratch folder, and its results. A `fixed` bench decides on
    its amounts of data itself and measures each once; `size` is then what its scratch folder must hold."""

    def __init__(self, name, doc, size="1G", rounds=3, more=None, fixed=False):
        parser = argparse.ArgumentParser(prog=f"benches/{name}", description=doc,
                                         formatter_class=argparse.RawDescriptionHelpFormatter)
        if not fixed:
            parser.add_argument("--size", type=size_of, default=size, help=f"bytes of data (default {size})")
            parser.add_argument("--rounds", type=int, default=rounds, help=f"rounds; medians count (default {rounds})")
            parser.add_argument("--at-most", type=float, default=0, metavar="S",
                                help="begin no further round after so many seconds (default: no limit)")
        parser.add_argument("--seed", type=int, default=1, help="another seed gives other data")
        parser.add_argument("--dir", help="scratch folder (default: /dev/shm if there is room)")
        parser.add_argument("--out", type=Path, default=OWN_RESULTS / f"{name}.jsonl",
                            help=f"file for all measurements (default: target/bench-results/{name}.jsonl; "
                                 "the documents show those in benches/results)")
        parser.add_argument("--no-build", action="store_true", help="use target/release as it is")
        if more:
            more(parser)
        self.name, self.options, self.rows = name, parser.parse_args(), []
        raise_open_files()
        # Ended from outside, a bench still stops its servers and removes its files.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        peers.find("time") or sys.exit("the benches need the program time")
        if not self.options.no_build:
            peers.build()
        self.scratch = Path(tempfile.mkdtemp(prefix="xb-bench.", dir=self.options.dir or self._scratch(size)))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.scratch, ignore_errors=True)

    def turns(self, works, share=1.0):
        """Yields round and work; in each round, another one is first. All works get one round, and
        further rounds begin while the share of --at-most lasts."""
        limit = self.options.at_most * share or float("inf")
        begin = time.monotonic()
        for number in range(self.options.rounds):
            if number and (time.monotonic() - begin) * (number + 1) / number > limit:
                return
            for turn in range(len(works)):
                yield number, works[(turn + number) % len(works)]

    def _scratch(self, size):
        shm = Path("/dev/shm")
        size = getattr(self.options, "size", size_of(size))
        return shm if shm.is_dir() and shutil.disk_usage(shm).free > 6 * size else None

    def stream(self, name="stream", size=None, files=16, kind="mixed"):
        """Generates a stream and returns its path and length."""
        path = self.scratch / name
        words = ["stream", "--size", size or self.options.size, "--files", files, "--seed", self.options.seed,
                 "--kind", kind]
        run([[peers.tool(), *words]], stdout=path)
        return path, path.stat().st_size

    def record(self, **facts):
        """Keeps a measurement and shows it at once."""
        self.rows.append(facts)
        shown = {key: round(value, 3) if isinstance(value, float) else value for key, value in facts.items()}
        print(json.dumps(shown), file=sys.stderr, flush=True)

    def measure(self, facts, chain, fresh=0, **how):
        """Runs a chain, records what it took beside `facts`; a failure is recorded, too. `fresh` is how many
        bytes of memory the chain will take, for its files and for itself."""
        use_memory(fresh)
        try:
            took = run(chain, **how)
        except Failed as error:
            self.record(**facts, failed=str(error)[-400:])
            return None
        facts.update(wall=took.wall, cpu=took.cpu, memory=took.memory)
        return took

    def medians(self, keys, values):
        """Returns one row per combination of `keys`, with the medians of `values`."""
        groups = {}
        for row in self.rows:
            if "failed" not in row:
                groups.setdefault(tuple(row.get(key) for key in keys), []).append(row)
        out = []
        for group, rows in groups.items():
            middle = {v: statistics.median(r[v] for r in rows) for v in values if all(v in r for r in rows)}
            out.append({**dict(zip(keys, group)), **middle})
        return out

    def save(self):
        """Writes the machine and all measurements, one JSON object a line."""
        path = self.options.out
        path.parent.mkdir(parents=True, exist_ok=True)
        given = vars(self.options)
        options = {key: given[key] for key in ("size", "rounds", "seed", "store") if key in given}
        head = {"bench": self.name, **options, **machine()}
        path.write_text("".join(json.dumps(row) + "\n" for row in [head, *self.rows]))
        print(f"\n{path}")


def machine():
    """Describes this machine and moment."""
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")),
               platform.machine())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=peers.ROOT, capture_output=True, text=True)
    return {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%MZ"), "cpu": cpu,
            "cores": len(os.sched_getaffinity(0)), "ram": memory, "kernel": platform.release().split("-")[0],
            "load": os.getloadavg()[0], "commit": commit.stdout.strip()}


def compare(bench, columns):
    """Prints a table of each kind of work: medians, and what ours takes of each peer's."""
    values = [key for key, _, _ in columns]
    rows = bench.medians(["work", "who"], values)
    for work in dict.fromkeys(row["work"] for row in rows):
        print(f"\n{work}\n\n| | " + " | ".join(name for _, name, _ in columns) + " |")
        print("|---" + "|---:" * len(columns) + "|")
        base = next((row for row in rows if row["work"] == work and row["who"] == "ours"), None)
        for row in (row for row in rows if row["work"] == work):
            cells = []
            for key, _, shown in columns:
                cell = shown(row[key]) if key in row else ""
                if base and row is not base and row.get(key) and key in base and not row["who"].startswith("ours"):
                    cell += f" ({base[key] / row[key]:.2f})"
                cells.append(cell)
            print(f"| {row['who']} | " + " | ".join(cells) + " |")
    print("\nIn brackets: what ours takes of it. Below 1 is better.")


def last_event(errors):
    """Returns the event `done` of our program, run with --json."""
    events = [json.loads(line) for line in errors.splitlines() if line.startswith("{")]
    return [event for event in events if "stored_bytes" in event or "stored_bytes" in event.get("done", {})][-1]


def mib(value):
    return f"{value / (1 << 20):.0f}"


def two(value):
    return f"{value:.2f}"


def whole(value):
    return f"{value:.0f}"
