"""The most memory that programs have taken together, and the most room on a disk, while something runs."""

import os
import re
import threading
from pathlib import Path

# Seconds between two looks. What is there for less may be missed.
EVERY = 0.05
PAGE = os.sysconf("SC_PAGE_SIZE")


class Watch:
    """Looks at all that this process has started, but for the processes of `leave_out` and what these have
    started, and at the file system of a directory. Pages that two processes share count twice."""

    def __init__(self, place, leave_out=()):
        self.place, self.leave_out = place, set(leave_out)
        self.memory = self.disk = self.planned = 0
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._look_on)

    def __enter__(self):
        self.before = used(self.place)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        self.thread.join()
        self._look()

    def _look_on(self):
        while not self.done.wait(EVERY):
            self._look()

    def _look(self):
        self.disk = max(self.disk, used(self.place) - self.before)
        self.memory = max(self.memory, sum(map(self._resident, self._below(os.getpid()))))

    def _below(self, parent):
        for thread in Path(f"/proc/{parent}/task").iterdir():
            for child in read(thread / "children").split():
                if int(child) not in self.leave_out:
                    yield int(child)
                    try:
                        yield from self._below(int(child))
                    except OSError:
                        pass

    def _resident(self, pid):
        words = read(f"/proc/{pid}/cmdline")
        self.planned = max([self.planned, *map(int, re.findall(r"--use-memory=(\d+)", words))])
        fields = read(f"/proc/{pid}/statm").split()
        return int(fields[1]) * PAGE if fields else 0


def read(path):
    """A file of a process, which may have ended."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def used(place):
    """Bytes that are used on the file system of a directory."""
    found = os.statvfs(place)
    return (found.f_blocks - found.f_bfree) * found.f_frsize
