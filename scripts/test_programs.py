#!/usr/bin/env python3
"""Runs the workspace's test programs, several at a time, and prints the output of each when it ends.

    test_programs.py --jobs N --built FILE [cargo test arguments] [-- arguments of the programs]

Creates FILE once nothing is left to build. Most of these programs wait for servers, so that one at
a time leaves the processors idle. Each runs in its package's directory, as `cargo test` runs it. One
of several files is linked once and runs once for each file, beside the others. What runs for more
than LIMIT seconds is ended, with all processes of its group.
"""

import copy
import itertools
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

LIMIT = 15 * 60
# Programs of which the processor time is printed, and the time.
DEAREST = 20
RUNNING = set()


def main():
    if len(sys.argv) < 5 or (sys.argv[1], sys.argv[3]) != ("--jobs", "--built"):
        sys.exit(__doc__)
    jobs, built = int(sys.argv[2]), Path(sys.argv[4])
    build, programs = split(sys.argv[5:])
    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, end_all)
    waiting = queue.SimpleQueue()
    found = list(executables(build))
    built.touch()
    for part in sorted((part for program in found for part in by_file(program, programs)), key=rank):
        waiting.put(part)
    failed, used, took, printing = [], [], [], threading.Lock()

    def work():
        while True:
            try:
                program = waiting.get_nowait()
            except queue.Empty:
                return
            begin = time.monotonic()
            status, output, seconds = run(program)
            with printing:
                used.append((seconds, program.name))
                took.append((time.monotonic() - begin, program.name))
                print(f"     Running {program.name}", flush=True)
                sys.stdout.buffer.write(output)
                sys.stdout.buffer.flush()
                if status != 0:
                    failed.append(program.name)
                    print(f"{program.name} ended with status {status}", flush=True)

    workers = [threading.Thread(target=work) for _ in range(max(1, jobs))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print(f"processor time: {sum(seconds for seconds, _ in used):.0f} s, of which {longest(used)}")
    print(f"longest: {longest(took)}")
    if failed:
        print(f"failed: {', '.join(sorted(failed))}")
    return 1 if failed else 0


def longest(times):
    return ", ".join(f"{name} {seconds:.0f} s" for seconds, name in sorted(times, reverse=True)[:DEAREST])


def split(arguments):
    """Arguments of cargo, and those of the programs."""
    if "--" not in arguments:
        return arguments, []
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


class Program:
    def __init__(self, message):
        self.path = message["executable"]
        self.directory = Path(message["manifest_path"]).parent
        self.target = message["target"]["name"]
        self.name = f"{self.directory.name}/{self.target}"
        self.has_files = message["target"]["kind"] == ["test"] and message["target"]["src_path"].endswith("/main.rs")
        self.arguments = []

    def with_arguments(self, arguments, file=None):
        part = copy.copy(self)
        part.arguments = arguments
        part.name = f"{self.name}/{file}" if file else self.name
        return part


def executables(build):
    """Builds the test programs."""
    command = ["cargo", "test", "--no-run", "--message-format=json-render-diagnostics", *build]
    built = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if built.returncode != 0:
        sys.exit(built.returncode)
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable") and message["profile"]["test"]:
            yield Program(message)


def by_file(program, arguments):
    """The program, or a part for each of its files, which runs the tests of this file."""
    if not program.has_files:
        return [program.with_arguments(arguments)]
    command = [program.path, "--list", "--format=terse", *arguments]
    listed = subprocess.run(command, cwd=program.directory, stdout=subprocess.PIPE, text=True, check=True).stdout
    tests = sorted(line.removesuffix(": test") for line in listed.splitlines() if line.endswith(": test"))
    files = itertools.groupby(tests, key=lambda test: test.partition("::")[0])
    return [program.with_arguments(["--exact", *names], file) for file, names in files]


def rank(program):
    """Programs that start servers take longest, so they come first."""
    return (not program.target.startswith("live"), program.name)


def run(program):
    """Runs one program; returns its exit status, its output, and its processor time in seconds."""
    environment = {**os.environ, "CARGO_MANIFEST_DIR": str(program.directory)}
    running = subprocess.Popen(
        [program.path, *program.arguments],
        cwd=program.directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    RUNNING.add(running.pid)
    limit = threading.Timer(LIMIT, os.killpg, (running.pid, signal.SIGKILL))
    limit.start()
    # The output ends when all processes that have it end.
    output = running.stdout.read()
    _, status, used = os.wait4(running.pid, 0)
    is_in_time = limit.is_alive()
    limit.cancel()
    RUNNING.discard(running.pid)
    running.returncode = os.waitstatus_to_exitcode(status)
    return running.returncode if is_in_time else f"{LIMIT} s exceeded", output, used.ru_utime + used.ru_stime


def end_all(number, _frame):
    """Ends all programs when this script is ended."""
    for leader in list(RUNNING):
        os.killpg(leader, signal.SIGKILL)
    os._exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
