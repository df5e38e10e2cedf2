"""The agent's discovery and scraper alone (tests/tools/scrape_probe.c), and targets that answer with any bytes."""
import contextlib
import gzip
import json
import os
import queue
import socket
import ssl
import struct
import subprocess
import threading
import time

from harness import BUILD, SLOW, wait_until

PROBE = BUILD / "tests" / "tools" / "scrape_probe"
# What a proxy variable of the machine would change.
ENV = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
TEXT = "text/plain; version=0.0.4"


def answer(body, kind=TEXT, status="200 OK", **headers):
    body = body.encode() if isinstance(body, str) else body
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}"]
    if kind:
        lines.append(f"Content-Type: {kind}")
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class Request:
    def __init__(self, text):
        head = text.decode("latin-1").split("\r\n")
        self.method, self.path = head[0].split(" ")[:2]
        self.headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in head[1:] if ": " in line)}
        self.when = time.monotonic()


class Peer:
    """A server on 127.0.0.1. pages: path -> bytes to send, or a function(request, connection) that does what it likes;
    connections are kept while a page is bytes."""

    def __init__(self, pages, context=None):
        self.pages, self.context = dict(pages), context
        self.requests, self.connections = [], 0
        self.ended = threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port = self.listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self.open = set()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while not self.ended.is_set():
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        self.open.add(connection)
        try:
            connection.settimeout(60 * SLOW)
            if self.context:
                connection = self.context.wrap_socket(connection, server_side=True)
            while self.serve_one(connection):
                pass
        except (OSError, ValueError):
            pass
        finally:
            self.open.discard(connection)
            with contextlib.suppress(OSError):
                connection.close()

    def serve_one(self, connection):
        text = b""
        while b"\r\n\r\n" not in text:
            piece = connection.recv(65536)
            if not piece:
                return False
            text += piece
        request = Request(text)
        self.requests.append(request)
        page = self.pages.get(request.path.split("?")[0], answer("", status="404 Not Found"))
        if callable(page):
            page = page(request, connection)
        if page is None:
            return False
        connection.sendall(page)
        return True

    def asked(self, path):
        return [r for r in self.requests if r.path.split("?")[0] == path]

    def close(self):
        self.ended.set()
        # shutdown wakes accept(); close() alone does not.
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for connection in list(self.open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def peer(pages, context=None):
    server = Peer(pages, context)
    try:
        yield server
    finally:
        server.close()


def reset(connection):
    """Closes with RST."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


class Probe:
    """scrape_probe on a configuration, spoken to in lines."""

    def __init__(self, config, *args, env=None):
        self.log_path = config.parent / "probe.log"
        self.samples = []
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen([PROBE, config, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            stderr=log, env={**ENV, **(env or {})}, text=True)
        self.lines = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            found = json.loads(line)
            if "sample" in found:
                self.samples.append(found["sample"])
            else:
                self.lines.put(found)
        self.lines.put(None)

    def log(self):
        return self.log_path.read_text()

    def take(self, seconds=20):
        try:
            found = self.lines.get(timeout=seconds * SLOW)
        except queue.Empty:
            raise AssertionError(f"no answer: {self.log()}") from None
        assert found is not None, self.log()
        return found

    def command(self, text):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def view(self):
        self.command("view")
        return self.take()

    def view_when(self, condition, what, seconds=20):
        def look():
            view = self.view()
            return view if condition(view) else None
        try:
            return wait_until(look, seconds, what)
        except AssertionError as e:
            raise AssertionError(f"{e}\n{json.dumps(self.view(), indent=1)}\n{self.log()}") from None

    def reload(self):
        self.command("reload")
        assert self.take() == {"reload": 0}, self.log()

    def close(self):
        if self.process.poll() is None:
            self.process.stdin.close()
        try:
            status = self.process.wait(20 * SLOW)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        assert status == 0, (status, self.log())
        assert "Sanitizer" not in self.log() and "runtime error" not in self.log(), self.log()


@contextlib.contextmanager
def probing(config, *args, env=None):
    probe = Probe(config, *args, env=env)
    try:
        yield probe
    except BaseException:
        probe.process.kill()
        probe.process.wait()
        raise
    probe.close()


def scrape_once(config, *args, seconds=60, env=None):
    """(view, samples, log) after each target was asked once."""
    with probing(config, "--once", *args, env=env) as probe:
        assert probe.take(seconds) == {"done": True}
        view = probe.view()
        return view, list(probe.samples), probe.log()


def by_label(view, label="name"):
    return {t["labels"].get(label): t for t in view["targets"] if not t["dropped"]}


def zipped(body):
    return answer(gzip.compress(body.encode() if isinstance(body, str) else body, 1), Content_Encoding="gzip")
