"""How each program puts one stream into a bucket, and gets it back."""

import os
import shlex

from . import peers
from .store import ACCESS_KEY, REGION, SECRET_KEY

ZEROS = "0" * 32
# What wal-g compresses with, as it has no plain streams, and the same of our program. Neither encrypts then.
WAL_G_CODECS = {"lz4": "lz4", "zstd": "zstd:3"}
# Names a server of MySQL or MariaDB: wal-g notes its position in each backup.
WAL_G_SERVER = "WALG_MYSQL_DATASOURCE_NAME"


class WalG:
    """The command lines of wal-g for a folder of a bucket."""

    def __init__(self, program, place, codec, endpoint, ca):
        self.program = program
        self.settings = {
            "WALG_S3_PREFIX": place, "WALG_COMPRESSION_METHOD": codec, "AWS_ENDPOINT": endpoint,
            "AWS_S3_FORCE_PATH_STYLE": "true", "WALG_S3_CA_CERT_FILE": ca, "SHELL": "/bin/sh",
        }

    def push(self, stream):
        """Stores a file."""
        return self._call({"WALG_STREAM_CREATE_COMMAND": shlex.join(["cat", str(stream)])}, "backup-push")

    def fetch(self, *command):
        """Passes what was stored last to a command."""
        restore = shlex.join(str(word) for word in command)
        return self._call({"WALG_STREAM_RESTORE_COMMAND": restore}, "backup-fetch", "LATEST")

    def _call(self, more, *words):
        variables = {**self.settings, **more}
        return ["env", *(f"{name}={value}" for name, value in variables.items()), self.program, *words]


class Clients:
    """The command lines of our program and its peers for one server."""

    def __init__(self, server, scratch, size):
        self.server, self.scratch, self.size = server, scratch, size
        found = {name: peers.find(name) for name in ("s5cmd", "rclone", "aws", "age", "age-keygen", "openssl", "zstd", "mbstream", "wal-g")}
        self.found = {name: path for name, path in found.items() if path}
        if self.has("wal-g") and WAL_G_SERVER not in os.environ:
            peers.note(f"without wal-g: set {WAL_G_SERVER}, such as root@unix(/run/mysqld/mysqld.sock)/mysql")
            del self.found["wal-g"]
        self.key = scratch / "key"
        with open(os.open(self.key, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as out:
            out.write(os.urandom(32))
        self.identity = scratch / "identity"
        if "age-keygen" in self.found:
            from .measure import run
            run([[self.found["age-keygen"], "-o", self.identity]])
            text = self.identity.read_text()
            self.recipient = next(line.split()[-1] for line in text.splitlines() if "public key" in line)

    def wal_g(self, scheme, place, codec):
        return WalG(self.found["wal-g"], place, codec, getattr(self.server, scheme), self.server.ca)

    def has(self, *names):
        return all(name in self.found for name in names)

    def env(self, scheme, who):
        """Environment for one run over http or https: every program reads what is its own."""
        endpoint = getattr(self.server, scheme)
        # rclone takes the authority from its own variable, and fails if it sees the common one.
        return {
            "AWS_CA_BUNDLE": None if "rclone" in who else str(self.server.ca),
            "AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY, "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION, "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
            "S3_ENDPOINT_URL": endpoint, "AWS_ENDPOINT_URL": endpoint,
            "RCLONE_CONFIG": "/dev/null", "RCLONE_CA_CERT": str(self.server.ca), "RCLONE_CONFIG_S_TYPE": "s3",
            "RCLONE_CONFIG_S_PROVIDER": self.server.provider, "RCLONE_CONFIG_S_ENV_AUTH": "true",
            "RCLONE_CONFIG_S_ENDPOINT": endpoint, "RCLONE_S3_NO_CHECK_BUCKET": "true",
        }

    def ours(self, command, scheme, *options):
        store = [f"--s3-endpoint={getattr(self.server, scheme)}"]
        if scheme == "https":
            store.append(f"--cacert={self.server.ca}")
        return [peers.ours("xbcloud-rs"), command, "--quiet", *store, *options]

    def sealed(self):
        return f"--encrypt-key-file={self.key}"

    def encrypt(self, program):
        if program == "age":
            return [self.found["age"], "-r", self.recipient]
        return self._openssl("-e")

    def decrypt(self, program):
        if program == "age":
            return [self.found["age"], "-d", "-i", self.identity]
        return self._openssl("-d")

    def _openssl(self, direction):
        key = self.key.read_bytes().hex()
        return [self.found["openssl"], "enc", direction, "-aes-256-ctr", "-K", key, "-iv", ZEROS]

    def upload(self, name, bucket, key="stream"):
        """The command of a peer that stores its standard input as one object."""
        if name == "s5cmd":
            return [self.found[name], "pipe", f"s3://{bucket}/{key}"]
        if name == "rclone":
            return [self.found[name], "rcat", f"s:{bucket}/{key}"]
        return [self.found[name], "s3", "cp", "--only-show-errors", "--expected-size", self.size, "-", f"s3://{bucket}/{key}"]

    def download(self, name, bucket, key="stream"):
        """The command of a peer that prints one object."""
        if name == "s5cmd":
            return [self.found[name], "cat", f"s3://{bucket}/{key}"]
        if name == "rclone":
            return [self.found[name], "cat", f"s:{bucket}/{key}"]
        return [self.found[name], "s3", "cp", "--only-show-errors", f"s3://{bucket}/{key}", "-"]
