"""Runs programs, alone or joined by pipes, and measures wall time, CPU time and peak memory."""

import os
import resource
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path


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
    namespace for all of them. After `limit` seconds, the chain has failed. However this function is
    left, also by Ctrl-C, none of the programs runs on."""
    variables = {name: value for name, value in {**os.environ, **(env or {})}.items() if value is not None}
    prefix = ["ip", "netns", "exec", net] if net else []
    name = " | ".join(" ".join(map(str, command)) for command in chain)
    # Errors go to files: a pipe could be full, and could be held open by what a program left behind.
    peaks, errors = ([tempfile.NamedTemporaryFile() for _ in chain] for _ in range(2))
    children = []

    def late(*_):
        raise Failed(f"{name}: not finished after {limit} s")

    signal.signal(signal.SIGALRM, late)
    try:
        with open(stdin or os.devnull, "rb") as first, open(stdout or os.devnull, "wb") as last:
            signal.setitimer(signal.ITIMER_REAL, limit)
            begin = time.monotonic()
            source = first
            for number, command in enumerate(chain):
                target = last if number == len(chain) - 1 else subprocess.PIPE
                # A process counts the memory of the one that started it, so a small one must do that.
                timed = ["time", "-q", "-f", "%M", "-o", peaks[number].name]
                # A session of its own is also a process group, which can be ended as a whole.
                child = subprocess.Popen(
                    prefix + timed + [str(word) for word in command],
                    stdin=source, stdout=target, stderr=errors[number],
                    env=variables, start_new_session=True,
                )
                children.append(child)
                if source is not first:
                    source.close()
                source = child.stdout
            usages = [_wait(child) for child in children]
            wall = time.monotonic() - begin
            signal.setitimer(signal.ITIMER_REAL, 0)
    except BaseException:
        signal.setitimer(signal.ITIMER_REAL, 0)
        _end(children)
        raise
    text = "".join(Path(one.name).read_text(errors="replace") for one in errors)
    codes = [child.returncode for child in children]
    if any(codes):
        raise Failed(f"{name}: exit {codes}: {text[-600:]}")
    cpu = sum(usage.ru_utime + usage.ru_stime for usage in usages)
    memory = sum(int(peak.read() or 0) for peak in peaks) * 1024
    return Run(wall, cpu, memory, text)


def use_memory(size):
    """Uses `size` bytes of memory once, at most half of what is free, and frees them. The host of a virtual
    machine takes unused memory back, and its next use can cost more than what is measured here."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    piece = bytes(1 << 20)
    with open(os.memfd_create("used"), "wb") as file:
        for _ in range(min(size, free // 2) >> 20):
            file.write(piece)


def _wait(child):
    """Waits for one child and returns its own resource usage."""
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    return usage


def _end(children):
    """Ends those children that still run, with all processes that they started."""
    running = [child for child in children if child.returncode is None]
    for child in running:
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    for child in running:
        child.wait()


def raise_open_files():
    """Raises the soft limit of open files, as the servers need many."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
