"""Runs programs, alone or joined by pipes, and measures wall time, CPU time and peak memory."""

import os
import resource
import subprocess
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
    paths; without them, /dev/null. `net` names a network namespace for all of them."""
    prefix = ["ip", "netns", "exec", net] if net else []
    children = []
    with open(stdin or os.devnull, "rb") as first, open(stdout or os.devnull, "wb") as last:
        begin = time.monotonic()
        source = first
        for number, command in enumerate(chain):
            target = last if number == len(chain) - 1 else subprocess.PIPE
            child = subprocess.Popen(
                prefix + [str(word) for word in command],
                stdin=source, stdout=target, stderr=subprocess.PIPE,
                env={**os.environ, **(env or {})}, start_new_session=True,
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
    return Run(wall, cpu, sum(usage.ru_maxrss for usage, _ in usages) * 1024, errors)


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
