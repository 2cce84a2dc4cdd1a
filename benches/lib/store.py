"""Stores for the benches: SeaweedFS and MinIO as real S3 servers, and a sink that discards everything."""

import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
import xml.etree.ElementTree as xml
from pathlib import Path

from . import peers

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


def certify(folder):
    """Makes an authority and a certificate that it has signed: some clients accept no other. Returns the
    authority's path; the certificate is in cert.pem and key.pem."""
    authority = folder / "ca.pem"
    new = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "7"]
    self_signed = ["-subj", "/CN=bench", "-keyout", folder / "ca.key", "-out", authority]
    server = ["-subj", "/CN=localhost", "-CA", authority, "-CAkey", folder / "ca.key",
              "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE",
              "-keyout", folder / "key.pem", "-out", folder / "cert.pem"]
    for words in (self_signed, server):
        subprocess.run([*new, *words], check=True, capture_output=True)
    return authority


def store_option(parser):
    """Adds the option --store to a bench."""
    parser.add_argument("--store", choices=("seaweedfs", "minio"), default="seaweedfs",
                        help="real S3 server (default seaweedfs); minio takes a third of its CPU time, and minutes to build")


def open_store(name, folder):
    """Starts the server of this name, or ends the bench with a word if it cannot be installed."""
    program = peers.find({"seaweedfs": "weed"}.get(name, name))
    if not program:
        raise SystemExit(f"this bench needs {name}")
    return {"seaweedfs": Seaweed, "minio": Minio}[name](program, folder)


class Seaweed:
    """A SeaweedFS server over http and https. Requests without a signature may do everything: the
    benches make and list their buckets that way."""

    provider = "SeaweedFS"
    schemes = ("http",)  # Where to put what is read over either: it is the same server.

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
        self.ca = certify(self.folder)
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
        try:
            self._wait_ready()
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        _end(self.process)
        self.log.close()
        for socket in self.sockets:
            socket.unlink(missing_ok=True)

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


class Minio:
    """MinIO, once over http and once over https: one server cannot do both. Buckets are folders, so
    that everything but the measured requests goes past the servers."""

    provider = "Minio"
    schemes = ("http", "https")

    def __init__(self, program, folder):
        self.folder = Path(folder)
        certificates = self.folder / "certificates"
        certificates.mkdir(parents=True)
        self.ca = certify(self.folder)
        shutil.copy(self.folder / "cert.pem", certificates / "public.crt")
        shutil.copy(self.folder / "key.pem", certificates / "private.key")
        self.folders = {scheme: self.folder / scheme for scheme in self.schemes}
        self.log = open(self.folder / "log", "wb")
        env = {**os.environ, "MINIO_ROOT_USER": ACCESS_KEY, "MINIO_ROOT_PASSWORD": SECRET_KEY,
               "MINIO_UPDATE": "off"}
        for folder in self.folders.values():
            folder.mkdir()
        ports = dict(zip(self.schemes, zip(*[iter(_free_ports(4))] * 2)))
        self.http, self.https = (f"{scheme}://127.0.0.1:{ports[scheme][0]}" for scheme in self.schemes)
        self.opener = urllib.request.build_opener(
            urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=self.ca)))
        self.processes = []
        try:
            for scheme in self.schemes:
                own = certificates if scheme == "https" else self.folder / "none"
                address, console = (f"127.0.0.1:{port}" for port in ports[scheme])
                self.processes.append(subprocess.Popen(
                    [program, "server", "--quiet", "--address", address, "--console-address", console,
                     "--certs-dir", own, self.folders[scheme]],
                    stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, start_new_session=True, env=env))
            for url in (self.http, self.https):
                self._wait_ready(url)
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            _end(process)
        self.log.close()

    def _wait_ready(self, url):
        for _ in range(900):
            if any(process.poll() is not None for process in self.processes):
                raise SystemExit(f"MinIO ended: {(self.folder / 'log').read_text()[-2000:]}")
            try:
                self.opener.open(f"{url}/minio/health/ready", timeout=5).close()
                return
            except OSError:
                time.sleep(0.1)
        raise SystemExit(f"MinIO did not start within 90 s: {(self.folder / 'log').read_text()[-2000:]}")

    def make(self, bucket):
        """Creates a bucket."""
        for folder in self.folders.values():
            (folder / bucket).mkdir()

    def stored(self, bucket):
        """Returns the number of objects of a bucket and their bytes."""
        files = [path for folder in self.folders.values() for path in (folder / bucket).rglob("*") if path.is_file()]
        return sum(path.name == "xl.meta" for path in files), sum(path.stat().st_size for path in files)

    def clear(self, bucket):
        """Deletes a bucket with all objects, which frees their space at once."""
        for folder in self.folders.values():
            shutil.rmtree(folder / bucket)

    def requests(self, _bucket):
        """Returns None: MinIO counts its requests, but tells only every ten seconds."""
        return None


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
