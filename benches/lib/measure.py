"""Runs programs, alone or joined by pipes, and measures wall time, CPU time and peak memory."""

import os
import resource
import subprocess
import tempfile
import time
from dataclasses import dataclass


@dataclass
class Run:
    """What a chain of programs took; memory is the sum of the peaks."""

    wall: float
    cpu: float
    memory: int
    errors: str


class Failed(Exception):
    """A program of a chain failed."""


def run(chain, stdin=None, stdout=None, env=None, net=None, limit=1800):
    """Runs the commands of `chain`, each reading from the one before it. `stdin` and `stdout` are
    paths; without them, /dev/null. A variable that is None in `env` is removed. `net` names a network
    namespace for all of them."""
    variables = {name: value for name, value in {**os.environ, **(env or {})}.items() if value is not None}
    prefix = ["ip", "netns", "exec", net] if net else []
    children, peaks = [], [tempfile.NamedTemporaryFile() for _ in chain]
    with open(stdin or os.devnull, "rb") as first, open(stdout or os.devnull, "wb") as last:
        begin = time.monotonic()
        source = first
        for number, command in enumerate(chain):
            target = last if number == len(chain) - 1 else subprocess.PIPE
            # A process counts the memory of the one that started it, so a small one must do that.
            timed = ["time", "-q", "-f", "%M", "-o", peaks[number].name]
            child = subprocess.Popen(
                prefix + timed + [str(word) for word in command],
                stdin=source, stdout=target, stderr=subprocess.PIPE,
                env=variables, start_new_session=True,
            )
            if source is not first:
                source.close()
            source = child.stdout
            children.append(child)
        usages = [_wait(child, begin + limit) for child in children]
        wall = time.monotonic() - begin
    errors = "".join(text for _, text in usages)
    codes = [child.returncode for child in children]
    if any(codes):
        raise Failed(f"{' | '.join(' '.join(map(str, c)) for c in chain)}: exit {codes}: {errors[-600:]}")
    cpu = sum(usage.ru_utime + usage.ru_stime for usage, _ in usages)
    memory = sum(int(peak.read() or 0) for peak in peaks) * 1024
    return Run(wall, cpu, memory, errors)


def _wait(child, deadline):
    """Waits for one child and returns its own resource usage; a child that is late is ended."""
    text = b""
    try:
        text = child.stderr.read() if time.monotonic() < deadline else b"too late"
    finally:
        if time.monotonic() >= deadline:
            child.kill()
        child.stderr.close()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    return usage, text.decode(errors="replace")


def raise_open_files():
    """Raises the soft limit of open files, as the servers need many."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
