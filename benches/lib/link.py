"""A link of a given rate between two network namespaces: a veth pair, shaped by tc's token buckets."""

import argparse
import os
import re
import subprocess

CLIENT, SERVER = "10.99.0.1", "10.99.0.2"
# Time that a bucket covers at full rate: more than the kernel needs between two looks at it.
BURST_SECONDS = 0.004
LEAST_BURST = 256 << 10


def bits(text):
    """Returns the bits per second of a rate such as 300M or 10G."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMG])", text)
    rate = match and int(float(match[1]) * {"K": 1e3, "M": 1e6, "G": 1e9}[match[2]])
    if not rate:
        raise argparse.ArgumentTypeError(f"{text!r} is no rate; say 500K, 300M or 10G, or none for no limit")
    return rate


def rates(text):
    """Returns the rates of a list such as 300M,10G,none."""
    found = text.split(",")
    for rate in found:
        rate == "none" or bits(rate)
    return found


class Link:
    """Two namespaces, `client` and `server`, which exist as long as this does. Needs root."""

    def __init__(self):
        self.client, self.server = f"xb-client-{os.getpid()}", f"xb-server-{os.getpid()}"
        self.made = []
        try:
            for name in (self.client, self.server):
                self._ip("netns", "add", name)
                self.made.append(name)
            self._ip("-n", self.client, "link", "add", "eth", "type", "veth",
                     "peer", "name", "eth", "netns", self.server)
            for name, address in ((self.client, CLIENT), (self.server, SERVER)):
                self._ip("-n", name, "link", "set", "lo", "up")
                self._ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth")
                self._ip("-n", name, "link", "set", "eth", "up")
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for name in self.made:
            subprocess.run(["ip", "netns", "del", name], check=False)

    def shape(self, rate):
        """Limits both directions to a rate such as 300M; `none` for no limit."""
        for name in (self.client, self.server):
            subprocess.run(["ip", "netns", "exec", name, "tc", "qdisc", "del", "dev", "eth", "root"],
                           check=False, capture_output=True)
            if rate == "none":
                continue
            burst = max(LEAST_BURST, int(bits(rate) / 8 * BURST_SECONDS))
            self._ip("netns", "exec", name, "tc", "qdisc", "add", "dev", "eth", "root", "tbf",
                     "rate", f"{bits(rate)}bit", "burst", str(burst), "latency", "50ms")

    @staticmethod
    def _ip(*words):
        subprocess.run(["ip", *words], check=True)
