"""Stores that scripts/false-stores tries, a proxy that makes them lie, and the lies."""

import base64
import hashlib
import hmac
import http.client
import http.server
import re
import shutil
import socket
import subprocess
import threading
import time
import urllib.parse
from email.utils import formatdate, parsedate_to_datetime
from pathlib import Path

USER, SECRET, BUCKET = "testkey", "testsecret123", "bucket"
ACCOUNT = "devstoreaccount1"
# The key of every emulator of Azure, from its documentation.
ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
# Seconds until a server must answer.
START = 60


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def mac(key, text):
    return hmac.new(key, text.encode(), "sha256").digest()


class Folder:
    """A local directory. It has no requests that a proxy could change: its objects are changed between commands."""

    def __init__(self, folder):
        self.top = folder / BUCKET
        (self.top / "f").mkdir(parents=True)
        self.url = f"file://{self.top}"

    def options(self, _port):
        return []

    def state(self):
        files = (path for path in self.top.rglob("*") if path.is_file())
        return {str(path.relative_to(self.top)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

    def read(self, key):
        return (self.top / key).read_bytes()

    def write(self, key, content):
        (self.top / key).parent.mkdir(parents=True, exist_ok=True)
        (self.top / key).write_bytes(content)

    def remove(self, key):
        (self.top / key).unlink()
        for folder in (self.top / key).parents:
            if folder.parent == self.top or any(folder.iterdir()):
                return
            folder.rmdir()

    def stop(self):
        pass


class Server:
    """A store behind HTTP, as a process of its own with one bucket."""

    def start(self, words, environment=None):
        self.process = subprocess.Popen(
            words, env=environment, stdin=subprocess.DEVNULL, start_new_session=True,
            stdout=open(self.folder / "server.log", "w"), stderr=subprocess.STDOUT,
        )  # fmt: skip
        for _ in range(START * 5):
            try:
                if self.create_bucket() in (200, 201, 409):
                    return
            except OSError:
                pass
            time.sleep(0.2)
        raise SystemExit(f"{words[0]} does not start: {self.folder}/server.log")

    def stop(self):
        self.process.kill()
        self.process.wait()

    def send(self, method, path, query="", headers=None, body=b""):
        """Status and body of a signed request."""
        path, headers = self.signed(method, urllib.parse.quote(path, safe="/~"), query, headers or {}, body)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=START)
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, content

    def must(self, *words, **more):
        status, content = self.send(*words, **more)
        if status >= 300:
            raise SystemExit(f"{words[:2]}: {status} {content[:300]}")
        return content

    def read(self, key):
        return self.must("GET", f"{self.path}/{key}")

    def remove(self, key):
        self.must("DELETE", f"{self.path}/{key}")

    def state(self):
        """The tag of each object."""
        text = self.must("GET", self.path, self.listing).decode()
        return {name_of(entry): re.search("(?i)<etag>(.*?)</", entry)[1] for _, entry in entries(text)}


class S3(Server):
    path = f"/{BUCKET}"
    listing = "list-type=2&max-keys=1000"

    def __init__(self, name, folder, tools):
        self.folder, self.port, self.url = folder, free_port(), f"s3://{BUCKET}"
        data, address = folder / "data", f"127.0.0.1:{self.port}"
        data.mkdir()
        program = shutil.which(name, path=tools) or name
        match name:
            case "weed":
                keys = f'[{{"accessKey": "{USER}", "secretKey": "{SECRET}"}}]'
                actions = '["Admin", "Read", "Write", "List", "Tagging"]'
                (folder / "s3.json").write_text(
                    f'{{"identities": [{{"name": "test", "credentials": {keys}, "actions": {actions}}}]}}'
                )
                others = ("-master.port", "-volume.port", "-filer.port")
                ports = [f"{option}={free_port()}" for option in others]
                ports += [f"{option}.grpc={free_port()}" for option in others]
                words = ["server", f"-dir={data}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3", *ports]
                words += [f"-s3.port={self.port}", f"-s3.port.grpc={free_port()}", f"-s3.config={folder}/s3.json"]
                words += ["-s3.autoCreateBucket=false", "-s3.port.iceberg=0", "-volume.max=30"]
                self.start([program, *words, "-master.volumeSizeLimitMB=64"])
            case "minio":
                keys = {"MINIO_ROOT_USER": USER, "MINIO_ROOT_PASSWORD": SECRET, "HOME": str(folder)}
                console = f"127.0.0.1:{free_port()}"
                words = ["server", "--quiet", "--address", address, "--console-address", console, data]
                self.start([program, *words], keys)
            case "versitygw":
                keys = {"ROOT_ACCESS_KEY": USER, "ROOT_SECRET_KEY": SECRET}
                self.start([program, "--quiet", "--port", address, "posix", data], keys)
            case "rclone":
                words = ["serve", "s3", f"--auth-key={USER},{SECRET}", "--addr", address, "--config="]
                self.start([program, *words, data])

    def create_bucket(self):
        return self.send("PUT", self.path)[0]

    def options(self, port):
        return [
            f"--s3-endpoint=http://127.0.0.1:{port}", "--s3-region=us-east-1", f"--s3-access-key={USER}",
            f"--s3-secret-key={SECRET}", "--s3-bucket-lookup=path",
        ]  # fmt: skip

    def write(self, key, content):
        self.must("PUT", f"{self.path}/{key}", body=content)

    def signed(self, method, path, query, headers, body):
        """Path and headers with a signature of version 4."""
        moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        content = hashlib.sha256(body).hexdigest()
        headers = {name: text for name, text in headers.items() if name not in ("authorization", "host")}
        headers |= {"host": f"127.0.0.1:{self.port}", "x-amz-date": moment, "x-amz-content-sha256": content}
        names = sorted(name for name in headers if name == "host" or name.startswith("x-amz-"))
        lines = [method, path, query, *(f"{name}:{headers[name]}" for name in names), "", ";".join(names), content]
        scope = f"{moment[:8]}/us-east-1/s3/aws4_request"
        digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
        key = f"AWS4{SECRET}".encode()
        for word in scope.split("/"):
            key = mac(key, word)
        signature = mac(key, f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{digest}").hex()
        credential = f"Credential={USER}/{scope}, SignedHeaders={';'.join(names)}, Signature={signature}"
        return path + (f"?{query}" if query else ""), headers | {"authorization": f"AWS4-HMAC-SHA256 {credential}"}


class Azure(Server):
    path = f"/{ACCOUNT}/{BUCKET}"
    listing = "restype=container&comp=list"

    def __init__(self, folder, tools):
        self.folder, self.port, self.url = folder, free_port(), f"azure://{BUCKET}"
        fields = [ACCOUNT, "rwdlacup", "b", "sco", "", "2036-01-01T00:00:00Z", "", "https,http", "2019-12-12", ""]
        signature = base64.b64encode(mac(base64.b64decode(ACCOUNT_KEY), "\n".join(fields))).decode()
        names = dict(zip(("sp", "ss", "srt", "se", "spr", "sv"), fields[1:4] + fields[5:6] + fields[7:9]))
        self.token = urllib.parse.urlencode(names | {"sig": signature})
        program = shutil.which("azurite-blob", path=tools) or "azurite-blob"
        words = ["--disableTelemetry", "--silent", "--skipApiVersionCheck", "--inMemoryPersistence"]
        self.start([program, *words, "--blobHost", "127.0.0.1", "--blobPort", str(self.port)])

    def create_bucket(self):
        return self.send("PUT", self.path, "restype=container")[0]

    def options(self, port):
        endpoint = f"--azure-endpoint=http://127.0.0.1:{port}/{ACCOUNT}"
        return [endpoint, f"--azure-storage-account={ACCOUNT}", f"--azure-sas-token={self.token}"]

    def write(self, key, content):
        self.must("PUT", f"{self.path}/{key}", headers={"x-ms-blob-type": "BlockBlob"}, body=content)

    def signed(self, _method, path, query, headers, body):
        query = "&".join(filter(None, [query, self.token if "sig=" not in query else ""]))
        return f"{path}?{query}", headers | {"content-length": str(len(body)), "x-ms-version": "2021-08-06"}


def open_store(name, folder, tools):
    match name:
        case "folder":
            return Folder(folder)
        case "azurite":
            return Azure(folder, tools)
        case _:
            return S3(name, folder, tools)


# Listings.

ENTRY = re.compile(r"<(Contents|CommonPrefixes|Blob|BlobPrefix)>(.*?)</\1>", re.S)


def entries(text):
    return ENTRY.findall(text)


def name_of(entry):
    return urllib.parse.unquote(re.search("<(?:Key|Prefix|Name)>(.*?)</", entry)[1])


def each_entry(body, change):
    """A listing with the texts that `change` returns for each entry in place of it."""
    return ENTRY.sub(lambda found: change(found[0]), body.decode()).encode()


def hide(pattern):
    def lie(answer, _world):
        return each_entry(answer, lambda entry: "" if re.search(pattern, name_of(entry)) else entry)

    return lie


def twice(answer, _world):
    return each_entry(answer, lambda entry: entry * 2)


def twice_of_other_size(answer, _world):
    size = re.compile(r"<(Size|Content-Length)>(\d+)<")
    return each_entry(answer, lambda entry: entry + size.sub(r"<\1>\g<2>7<", entry))


def half(answer, _world):
    count = [len(entries(answer.decode())) // 2]

    def change(entry):
        count[0] -= 1
        return entry if count[0] >= 0 else ""

    return each_entry(answer, change)


def stale(answer, world):
    def is_old(name):
        return any(key.startswith(name) for key in world.old)

    return each_entry(answer, lambda entry: entry if is_old(name_of(entry)) else "")


def truncated(answer, _world):
    return answer.replace(b"<IsTruncated>false<", b"<IsTruncated>true<")


ERROR = b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>InternalError</Code><Message>false</Message></Error>'

# What a listing, and a read, is changed to: a body, or a status.
LISTINGS = {
    "empty": lambda answer, world: b"",
    "none": lambda answer, world: each_entry(answer, lambda entry: ""),
    "html": lambda answer, world: b"<html><body>Welcome</body></html>",
    "error": lambda answer, world: ERROR,
    "truncated": truncated, "twice": twice, "other-size": twice_of_other_size, "half": half, "stale": stale,
    "hide-newest": hide(r"\.xb-catalog/[cm]3$"), "hide-middle": hide(r"\.xb-catalog/[cm]2$"),
    "hide-base": hide(r"\.xb-catalog/[cm]1$"), "hide-folder": hide("/[cm]3/"), "hide-data": hide(r"/[cm]1/.*\d{9}$"),
    "hide-records": hide("@verified|@pins|@accepted"), "hide-claims": hide("@claims|/claim$"),
    "hide-log": hide(r"\.xb-binlog/.*(head|end)$"),
}  # fmt: skip
READS = {
    "404": lambda answer, key, world: 404,
    "altered": lambda answer, key, world: answer[: len(answer) // 2] + bytes([answer[len(answer) // 2] ^ 1])
    + answer[len(answer) // 2 + 1 :] if answer else answer,
    "short": lambda answer, key, world: answer[: len(answer) // 2],
    "empty": lambda answer, key, world: b"",
    "other": lambda answer, key, world: world.other(key, answer),
}  # fmt: skip
TARGETS = {
    "newest": r"\.xb-catalog/[cm]3$", "base": r"\.xb-catalog/[cm]1$", "data": r"/[cm]\d/.*\d{9}$", "keys": "/keys$",
    "sums": "/sums$|@sums", "records": "@verified|@pins|@accepted", "claims": "@claims|/claim$", "log": r"\.xb-binlog/",
}  # fmt: skip
WRITES = {"swallow": "", "unconditional": "", "late-503": "", "swallow-catalog": r"\.xb-catalog/[^@]"}


class Lie:
    """One kind of lie: which requests it is told for, and what it makes of them."""

    def __init__(self, kind, name, pattern="", change=None):
        self.kind, self.name, self.pattern, self.change = kind, name, re.compile(pattern), change

    def fits(self, request):
        if request["kind"] != self.kind or (self.kind != "LIST" and not self.pattern.search(request["key"])):
            return False
        if self.name == "unconditional":
            return "if-none-match" in request["headers"]
        if self.kind in ("LIST", "READ"):
            return request["status"] in (200, 206) and self.told(request) != request["answer"]
        return True

    def told(self, request, world=None):
        world = world or request["world"]
        if self.kind == "LIST":
            return self.change(request["answer"], world)
        changed = self.change(request["answer"], request["key"], world)
        # A HEAD has no bytes that could be false.
        return request["answer"] if request["method"] == "HEAD" and changed != 404 else changed


LIES = [
    *(Lie("LIST", f"list-{name}", change=change) for name, change in LISTINGS.items()),
    *(Lie("READ", f"{how}-{what}", TARGETS[what], READS[how]) for how in READS for what in TARGETS),
    *(Lie("PUT", name, pattern) for name, pattern in WRITES.items()),
    Lie("DELETE", "kept"), Lie("DELETE", "late-503-delete"),
    Lie("RULES", "rules-404"), Lie("RULES", "rules-empty"),
]  # fmt: skip


class Proxy(http.server.ThreadingHTTPServer):
    """Passes requests on to a store, and lies as it is told."""

    daemon_threads = True

    def __init__(self, store, world):
        super().__init__(("127.0.0.1", 0), Handler)
        self.store, self.world, self.lock = store, world, threading.Lock()
        self.tell()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def tell(self, lie=None, first=0, times=1 << 30, ahead=0):
        """Lies from the match with this number on; the clock of the store is ahead by so many seconds."""
        self.lie, self.first, self.times, self.ahead = lie, first, times, ahead
        self.matches, self.told, self.seen, self.since = 0, 0, [], time.time()

    def handle_error(self, *_):
        """A client that has seen enough closes its connection."""

    def lies(self, request):
        if not self.lie or not self.lie.fits(request):
            return False
        with self.lock:
            self.matches += 1
            told = self.first < self.matches <= self.first + self.times
            self.told += told
            return told


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body leave together.
    wbufsize, disable_nagle_algorithm = 1 << 16, True
    upstream = None

    def log_message(self, *_):
        pass

    def kind(self, method, key, query):
        if not key and query.get("comp", query.get("list-type")) in ("list", "2"):
            return "LIST"
        if not key and method == "GET":
            return "RULES" if "lifecycle" in query else "OTHER"
        if method == "DELETE" or method == "POST" and ("delete" in query or query.get("comp") == "batch"):
            return "DELETE"
        return {"GET": "READ", "HEAD": "READ", "PUT": "PUT"}.get(method, "OTHER")

    def forward(self, request, body):
        store = self.server.store
        path, headers = self.path, dict(request["headers"])
        if request.get("unconditional"):
            headers.pop("if-none-match")
            path, headers = store.signed(self.command, *request["place"], headers, body)
        if not self.upstream:
            self.upstream = http.client.HTTPConnection("127.0.0.1", store.port, timeout=START)
        self.upstream.request(self.command, path, body, headers)
        answer = self.upstream.getresponse()
        request["status"], request["answer"] = answer.status, answer.read()
        return [(name, text) for name, text in answer.getheaders() if name.lower() not in HOP]

    def handle_one(self):
        place, _, query = self.path.partition("?")
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        key = urllib.parse.unquote(place[len(self.server.store.path) :]).strip("/")
        fields = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        headers = {name.lower(): text for name, text in self.headers.items()}
        request = {"method": self.command, "key": key, "headers": headers, "place": (place, query)}
        request |= {"kind": self.kind(self.command, key, fields), "world": self.server.world}
        kind, lie = request["kind"], self.server.lie
        is_before = kind not in ("LIST", "READ") and self.server.lies(request)
        request["unconditional"] = is_before and lie.name == "unconditional"
        if is_before and lie.name not in ("unconditional", "late-503", "late-503-delete"):
            return self.reply(*instead(lie, request, body))
        answer_headers = self.forward(request, body)
        self.server.seen.append(request)
        if is_before and lie.name.startswith("late-503"):
            return self.reply(503, ERROR)
        status, answer = request["status"], request["answer"]
        if kind in ("LIST", "READ") and self.server.lies(request):
            told = lie.told(request)
            status, answer = (told, ERROR) if isinstance(told, int) else (status, told)
        self.reply(status, answer, answer_headers)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_one

    def reply(self, status, body, headers=()):
        self.send_response_only(status)
        length = str(len(body))
        ahead, since = self.server.ahead, self.server.since
        for name, text in headers:
            if ahead and name.lower() in ("date", "last-modified"):
                then = parsedate_to_datetime(text).timestamp()
                is_new = name.lower() == "date" or then >= since - 1
                text = formatdate(then + ahead * is_new, usegmt=True)
            if name.lower() == "content-length" and self.command == "HEAD" and status < 300:
                length = text
            elif name.lower() != "content-length":
                self.send_header(name, text)
        self.send_header("Content-Length", length if status != 204 else "0")
        self.end_headers()
        if self.command != "HEAD" and status != 204:
            self.wfile.write(body)


HOP = ("transfer-encoding", "connection", "keep-alive")


def instead(lie, request, body):
    """Status, body and headers of what a store that does nothing answers."""
    if lie.name == "rules-404":
        return 404, ERROR.replace(b"InternalError", b"NoSuchLifecycleConfiguration"), []
    if lie.kind == "RULES":
        return 200, b"", []
    if lie.kind == "PUT":
        md5 = hashlib.md5(body)
        tags = [("ETag", f'"{md5.hexdigest()}"'), ("Last-Modified", formatdate(usegmt=True))]
        return 201 if "x-ms-version" in request["headers"] else 200, b"", tags
    if request["method"] == "DELETE":
        return 202 if "x-ms-version" in request["headers"] else 204, b"", [("Date", formatdate(usegmt=True))]
    keys = re.findall(b"<Key>.*?</Key>", body)
    deleted = b"".join(b"<Deleted>" + key + b"</Deleted>" for key in keys)
    return 200, b'<?xml version="1.0"?><DeleteResult>' + deleted + b"</DeleteResult>", []
