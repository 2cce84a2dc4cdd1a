"""Stores for the benches: SeaweedFS as a real S3 server, and a sink that discards everything."""

import json
import re
import socket
import subprocess
import time
import urllib.error
import urllib.request
import xml.etree.ElementTree as xml
from pathlib import Path

ACCESS_KEY, SECRET_KEY, REGION = "testkey", "testsecret123", "us-east-1"


def _end(process):
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_ports(number):
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


class Seaweed:
    """A SeaweedFS server over http and https. Requests without a signature may do everything: the
    benches make and list their buckets that way."""

    def __init__(self, weed, folder):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True)
        names = ["s3.port", "s3.port.https", "master.port", "volume.port", "filer.port", "metricsPort",
                 "s3.port.grpc", "master.port.grpc", "volume.port.grpc", "filer.port.grpc"]
        ports = dict(zip(names, _free_ports(len(names))))
        # The server leaves these behind, with fixed names.
        self.sockets = [Path(f"/tmp/seaweedfs-{name}-grpc-{ports[f'{name}.port.grpc']}.sock")
                        for name in ("s3", "master", "volume", "filer")]
        key = [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}]
        rights = ["Admin", "Read", "Write", "List", "Tagging"]
        config = {"identities": [{"name": "bench", "credentials": key, "actions": rights},
                                 {"name": "anonymous", "actions": rights}]}
        (self.folder / "s3.json").write_text(json.dumps(config))
        self._certify()
        data = self.folder / "data"
        data.mkdir()
        self.log = open(self.folder / "log", "wb")
        self.process = subprocess.Popen(
            [weed, f"-logdir={self.folder}", "server", f"-dir={data}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3",
             f"-s3.config={self.folder}/s3.json", "-s3.autoCreateBucket=false", "-s3.port.iceberg=0",
             "-s3.port.lance=0", f"-s3.cert.file={self.folder}/cert.pem", f"-s3.key.file={self.folder}/key.pem",
             f"-s3.localSocket={self.folder}/s3.sock", f"-filer.localSocket={self.folder}/filer.sock",
             "-master.telemetry=false", "-master.volumeSizeLimitMB=1024", "-volume.max=1000",
             *(f"-{name}={port}" for name, port in ports.items())],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, start_new_session=True)
        self.http = f"http://127.0.0.1:{ports['s3.port']}"
        self.https = f"https://127.0.0.1:{ports['s3.port.https']}"
        self.metrics = f"http://127.0.0.1:{ports['metricsPort']}/metrics"
        self._wait_ready()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        _end(self.process)
        self.log.close()
        for socket in self.sockets:
            socket.unlink(missing_ok=True)

    def _certify(self):
        """Makes an authority and a certificate that it has signed: some clients accept no other."""
        self.ca = self.folder / "ca.pem"
        new = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "7"]
        authority = ["-subj", "/CN=bench", "-keyout", self.folder / "ca.key", "-out", self.ca]
        server = ["-subj", "/CN=localhost", "-CA", self.ca, "-CAkey", self.folder / "ca.key",
                  "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE",
                  "-keyout", self.folder / "key.pem", "-out", self.folder / "cert.pem"]
        for words in (authority, server):
            subprocess.run([*new, *words], check=True, capture_output=True)

    def _wait_ready(self):
        # The port is open seconds before the server can create a bucket.
        for _ in range(900):
            if self.process.poll() is not None:
                raise SystemExit(f"SeaweedFS ended: {(self.folder / 'log').read_text()[-2000:]}")
            try:
                self.make("ready")
                return
            except OSError:
                time.sleep(0.1)
        raise SystemExit("SeaweedFS did not start within 90 s")

    def _ask(self, method, path):
        request = urllib.request.Request(self.http + path, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read()

    def make(self, bucket):
        """Creates a bucket."""
        self._ask("PUT", f"/{bucket}")

    def stored(self, bucket):
        """Returns the number of objects of a bucket and their bytes, and deletes none of them."""
        objects, size, token = 0, 0, ""
        while True:
            page = xml.fromstring(self._ask("GET", f"/{bucket}?list-type=2{token}"))
            space = page.tag[: page.tag.index("}") + 1] if "}" in page.tag else ""
            sizes = [int(one.find(f"{space}Size").text) for one in page.iter(f"{space}Contents")]
            objects, size = objects + len(sizes), size + sum(sizes)
            following = page.findtext(f"{space}NextContinuationToken")
            if not following:
                return objects, size
            token = f"&continuation-token={urllib.request.quote(following, safe='')}"

    def clear(self, bucket):
        """Deletes a bucket with all objects, which frees their space at once."""
        while True:
            page = xml.fromstring(self._ask("GET", f"/{bucket}?list-type=2"))
            space = page.tag[: page.tag.index("}") + 1] if "}" in page.tag else ""
            keys = [one.findtext(f"{space}Key") for one in page.iter(f"{space}Contents")]
            for key in keys:
                self._ask("DELETE", f"/{bucket}/{urllib.request.quote(key)}")
            if not keys:
                break
        try:
            self._ask("DELETE", f"/{bucket}")
        except urllib.error.HTTPError:
            pass  # An emptied bucket costs nothing.

    def requests(self, bucket):
        """Returns the number of S3 requests for a bucket, by the server's own count."""
        with urllib.request.urlopen(self.metrics, timeout=60) as answer:
            text = answer.read().decode()
        counts = re.findall(rf'^SeaweedFS_s3_request_total\{{bucket="{bucket}"[^}}]*\}} (\S+)', text, re.M)
        return int(sum(float(count) for count in counts))


class Sink:
    """The store of `xb-bench sink`, optionally in a network namespace."""

    def __init__(self, tool, address="127.0.0.1:0", net=None):
        prefix = ["ip", "netns", "exec", net] if net else []
        self.process = subprocess.Popen(
            prefix + [str(tool), "sink", address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.http = self.process.stdout.readline().strip()
        if not self.http:
            raise SystemExit(f"the sink did not start at {address}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()

    def requests(self):
        """Returns the number of requests by method since the last call."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())
