#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The simulated Kubernetes API server: lists and watches of a few kinds of objects over HTTP or HTTPS.

usage: apiserver.py [--port PORT] [--token TOKEN] FIXTURE...

Answers as kubernetes.io/docs/reference/using-api/api-concepts says: lists with limit and continue tokens, watches from a
resourceVersion with bookmarks, 410 for versions that are gone, label selectors and the field selectors metadata.name,
metadata.namespace, spec.nodeName, spec.driver and status.phase; JSON only. ResourceSlices are served in the versions of
resource.k8s.io that the server is told to have. Fixtures are YAML or JSON, objects or lists of them, as
the real server gives them. Tests use class ApiServer: put, delete, and what may go wrong.
"""
import argparse
import base64
import contextlib
import http.server
import json
import re
import socket
import socketserver
import ssl
import threading
import time
import urllib.parse
import uuid

RESOURCES = {  # plural: group, version, kind, namespaced
    "pods": ("", "v1", "Pod", True),
    "services": ("", "v1", "Service", True),
    "endpoints": ("", "v1", "Endpoints", True),
    "nodes": ("", "v1", "Node", False),
    "namespaces": ("", "v1", "Namespace", False),
    "endpointslices": ("discovery.k8s.io", "v1", "EndpointSlice", True),
    "ingresses": ("networking.k8s.io", "v1", "Ingress", True),
}
PLURALS = {kind: plural for plural, (_, _, kind, _) in RESOURCES.items()}
# ResourceSlices are kept once for each version they are served in: their objects differ.
SLICE_GROUP = "resource.k8s.io"
SLICE_VERSIONS = ("v1", "v1beta2", "v1beta1")
RESOURCES |= {f"resourceslices@{v}": (SLICE_GROUP, v, "ResourceSlice", False) for v in SLICE_VERSIONS}
USER = "system:serviceaccount:monitoring:podgpu-agent"


class Refusal(Exception):
    """An answer that is a Status object."""

    def __init__(self, code, reason, message, **headers):
        super().__init__(message)
        self.code, self.headers = code, headers
        self.status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
                       "reason": reason, "code": code}


GONE = "The resourceVersion for the provided watch is too old."


def label_matcher(text):
    """A function of a label map for a label selector."""
    tests = []
    for part in re.split(r",(?![^(]*\))", text):
        part = part.strip()
        if not part:
            continue
        if m := re.fullmatch(r"(\S+)\s+(in|notin)\s+\(([^)]*)\)", part):
            key, how, values = m[1], m[2], {v.strip() for v in m[3].split(",")}
            tests.append(lambda l, k=key, v=values, n=how == "in": (l.get(k) in v) == n)
        elif m := re.fullmatch(r"([^=!\s]+)\s*(==|=|!=)\s*(\S*)", part):
            tests.append(lambda l, k=m[1], v=m[3], n=m[2] != "!=": (l.get(k) == v) == n)
        elif m := re.fullmatch(r"(!?)\s*([^=!\s]+)", part):
            tests.append(lambda l, k=m[2], n=not m[1]: (k in l) == n)
        else:
            raise Refusal(400, "BadRequest", f"unable to parse requirement: {part}")
    return lambda labels: all(t(labels) for t in tests)


FIELDS = {"metadata.name", "metadata.namespace", "spec.nodeName", "spec.driver", "status.phase"}


def slice_in(body, version):
    """A v1 ResourceSlice in another version: v1beta1 has a device's attributes under basic."""
    out = json.loads(json.dumps(body)) | {"apiVersion": f"{SLICE_GROUP}/{version}"}
    if version == "v1beta1":
        devices = out["spec"].get("devices", [])
        out["spec"]["devices"] = [{"name": d["name"], "basic": {k: v for k, v in d.items() if k != "name"}} for d in devices]
    return out


def field_matcher(text):
    tests = []
    for part in text.split(","):
        if not part:
            continue
        m = re.fullmatch(r"([^=!]+)(==|=|!=)(.*)", part)
        if not m or m[1] not in FIELDS:
            raise Refusal(400, "BadRequest", f"field label not supported: {part}")
        tests.append((m[1].split("."), m[3], m[2] != "!="))
    return lambda o: all((o.get(path[0], {}).get(path[1], "") == value) == wanted for path, value, wanted in tests)


class Stored:
    """An object and its JSON, made once."""

    def __init__(self, body, text=None):
        self.body = body
        self.text = text or json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def address_string(self):
        return "client"

    def setup(self):
        super().setup()
        with self.server.api.lock:
            self.server.api.sockets.add(self.connection)

    def finish(self):
        with self.server.api.lock:
            self.server.api.sockets.discard(self.connection)
        with contextlib.suppress(OSError):
            super().finish()

    def send_json(self, code, body, headers=()):
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, value in dict(headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def do_GET(self):
        api = self.server.api
        url = urllib.parse.urlsplit(self.path)
        query = {k: v[-1] for k, v in urllib.parse.parse_qs(url.query, keep_blank_values=True).items()}
        api.note(url.path, query, dict(self.headers.items()))
        try:
            api.check(self.headers)
            if url.path == "/version":
                self.send_json(200, b'{"major":"1","minor":"31","gitVersion":"v1.31.0"}')
                return
            if url.path == f"/apis/{SLICE_GROUP}" and api.slice_versions:
                self.send_json(200, json.dumps(api.slice_group()).encode())
                return
            plural, namespace = api.resource_of(url.path)
            watching = query.get("watch") in ("1", "true")
            api.authorize("watch" if watching else "list", plural, namespace)
            select = api.selector(query, namespace)
            if watching:
                api.serve_watch(self, plural, select, query)
            else:
                api.serve_list(self, plural, select, query)
        except Refusal as r:
            self.send_json(r.code, json.dumps(r.status).encode(), {k.replace("_", "-"): v for k, v in r.headers.items()})
        except (BrokenPipeError, ConnectionResetError, ssl.SSLError):
            self.close_connection = True


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 128
    allow_reuse_address = True

    def server_bind(self):
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "localhost", self.server_address[1]

    def handle_error(self, request, client_address):
        pass


class ApiServer:
    def __init__(self, certificate=None, token=None, port=0, watch_cache=False, slice_versions=SLICE_VERSIONS):
        """certificate: (file, key file) for HTTPS. token: the only one that is taken, None: none is asked for.
        watch_cache: lists with resourceVersion=0 are answered whole, whatever the limit, as from the real one's cache.
        slice_versions: those of resource.k8s.io that are served, the preferred one first."""
        self.slice_versions = slice_versions
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.certificate, self.token, self.watch_cache = certificate, token, watch_cache
        self.objects = {plural: {} for plural in RESOURCES}
        self.history = {plural: [] for plural in RESOURCES}  # (version, before, after)
        self.version = 1000
        self.compacted = 0  # versions up to here are gone
        self.tokens = {}
        self.requests = []
        self.denied = set()  # (verb, plural)
        self.failures = []  # refusals for the next requests
        self.raw = []  # sent to each watch as they are; None: a bookmark
        self.generation = 0
        self.silent = False  # requests are taken and not answered
        self.sockets = set()
        self.server = None
        self.start(port)

    # --- Life ---

    def start(self, port=None):
        self.server = Server(("127.0.0.1", self.port if port is None else port), Handler)
        self.server.api = self
        self.port = self.server.server_port
        if self.certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self.certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True,
                                                     do_handshake_on_connect=False)
        self.stopping = False
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self):
        """Gone: connections are reset, the port refuses."""
        self.stopping = True
        self.server.shutdown()
        self.server.server_close()
        self.drop()

    def drop(self):
        """Breaks every connection."""
        with self.lock:
            self.generation += 1
            self.changed.notify_all()
            for s in list(self.sockets):
                with contextlib.suppress(OSError):
                    s.shutdown(socket.SHUT_RDWR)

    @property
    def url(self):
        return f"{'https' if self.certificate else 'http'}://127.0.0.1:{self.port}"

    # --- Objects ---

    @staticmethod
    def key(body):
        return (body["metadata"].get("namespace", ""), body["metadata"]["name"])

    def put(self, *bodies):
        with self.lock:
            for body in bodies:
                self._put(json.loads(json.dumps(body)))  # a copy
            self.changed.notify_all()

    def _put(self, body):
        if body["kind"] == "ResourceSlice":
            for version in SLICE_VERSIONS:
                self._store(f"resourceslices@{version}", slice_in(body, version))
        else:
            self._store(PLURALS[body["kind"]], body)

    def _store(self, plural, body):
        self.version += 1
        meta = body["metadata"]
        meta["resourceVersion"] = str(self.version)
        meta.setdefault("uid", str(uuid.uuid5(uuid.NAMESPACE_URL, "/".join((plural.split("@")[0],) + self.key(body)))))
        meta.setdefault("creationTimestamp", "2026-01-02T03:04:05Z")
        before = self.objects[plural].get(self.key(body))
        after = Stored(body)
        self.objects[plural][self.key(body)] = after
        self.history[plural].append((self.version, before, after))

    def fill(self, plural, bodies, template=None):
        """As put, for very many before anyone watches: taken as they are. template: their JSON, with %(name)s,
        %(namespace)s, %(node)s, %(ip)s; the bodies then need only what selectors look at."""
        with self.lock:
            for body in bodies:
                self.version += 1
                meta, spec, status = body["metadata"], body.get("spec", {}), body.get("status", {})
                meta["resourceVersion"] = str(self.version)
                text = template and (template % {
                    "name": meta["name"], "namespace": meta.get("namespace"), "node": spec.get("nodeName"),
                    "ip": status.get("podIP"), "version": self.version}).encode()
                self.objects[plural][self.key(body)] = Stored(body, text)

    def delete(self, kind, name, namespace=""):
        with self.lock:
            for plural in self.stores(kind):
                before = self.objects[plural].pop((namespace, name))
                self.version += 1
                last = json.loads(before.text)
                last["metadata"]["resourceVersion"] = str(self.version)
                self.history[plural].append((self.version, Stored(last), None))
            self.changed.notify_all()

    @staticmethod
    def stores(kind):
        if kind == "ResourceSlice":
            return [f"resourceslices@{version}" for version in SLICE_VERSIONS]
        return [PLURALS[kind]]

    def get(self, kind, name, namespace=""):
        with self.lock:
            return json.loads(self.objects[self.stores(kind)[0]][(namespace, name)].text)

    def load(self, *paths):
        import yaml
        for path in paths:
            with open(path, encoding="utf-8") as f:
                for document in yaml.safe_load_all(f):
                    self.put(*(document["items"] if document["kind"].endswith("List") else [document]))

    # --- What may go wrong ---

    def compact(self):
        """Versions before now are gone: watches from them and continue tokens get 410."""
        with self.lock:
            self.compacted = self.version
            self.tokens.clear()
            for events in self.history.values():
                events.clear()

    def expire_tokens(self):
        with self.lock:
            self.tokens.clear()

    def fail(self, code, reason, message="as told", count=1, **headers):
        with self.lock:
            self.failures += [Refusal(code, reason, message, **headers)] * count

    def deny(self, plural, *verbs):
        with self.lock:
            self.denied |= {(v, plural) for v in verbs or ("list", "watch")}

    def allow(self):
        with self.lock:
            self.denied.clear()

    def send_raw(self, data):
        """Sends bytes to each watch that is open."""
        with self.lock:
            self.raw.append(data)
            self.changed.notify_all()

    def tell_gone(self):
        """Sends each watch that is open the event that its versions are gone."""
        self.send_raw(self.event("ERROR", json.dumps(Refusal(410, "Expired", GONE).status).encode()))

    def bookmark(self):
        """Sends a bookmark to each watch that asked for them."""
        self.send_raw(None)

    def note(self, path, query, headers):
        with self.lock:
            self.requests.append((path, query, headers))

    def asked(self, path_end, **query):
        """Requests with that end of the path and these parameters."""
        with self.lock:
            return [r for r in self.requests if r[0].endswith(path_end) and query.items() <= r[1].items()]

    # --- Requests ---

    def check(self, headers):
        while self.silent and not self.stopping:
            time.sleep(0.02)
        with self.lock:
            if self.failures:
                raise self.failures.pop(0)
            if self.token and headers.get("Authorization") != f"Bearer {self.token}":
                raise Refusal(401, "Unauthorized", "Unauthorized")

    def resource_of(self, path):
        m = re.fullmatch(r"/(?:api/(?P<core>v1)|apis/(?P<group>[^/]+)/(?P<version>[^/]+))"
                         r"(?:/namespaces/(?P<ns>[^/]+))?/(?P<plural>[^/]+)", path)
        group = (m["group"] or "") if m else None
        if m and (group, m["plural"]) == (SLICE_GROUP, "resourceslices") and m["version"] in self.slice_versions:
            return f"resourceslices@{m['version']}", None
        if not m or m["plural"] not in RESOURCES or RESOURCES[m["plural"]][0] != group or \
                RESOURCES[m["plural"]][1] != (m["version"] or "v1"):
            raise Refusal(404, "NotFound", "the server could not find the requested resource")
        return m["plural"], urllib.parse.unquote(m["ns"]) if m["ns"] else None

    def slice_group(self):
        """The group's versions, for who asks which to take."""
        versions = [{"groupVersion": f"{SLICE_GROUP}/{v}", "version": v} for v in self.slice_versions]
        return {"kind": "APIGroup", "apiVersion": "v1", "name": SLICE_GROUP, "versions": versions,
                "preferredVersion": versions[0]}

    def authorize(self, verb, plural, namespace):
        plural = plural.split("@")[0]
        with self.lock:
            if (verb, plural) in self.denied:
                group = RESOURCES[plural][0] if plural in RESOURCES else SLICE_GROUP
                where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
                raise Refusal(403, "Forbidden", f'{plural} is forbidden: User "{USER}" cannot {verb} resource '
                              f'"{plural}" in API group "{group}" {where}')

    def selector(self, query, namespace):
        labels = label_matcher(query.get("labelSelector", ""))
        fields = field_matcher(query.get("fieldSelector", ""))

        def select(stored):
            body = stored.body
            return (namespace is None or body["metadata"].get("namespace") == namespace) and fields(body) and \
                labels(body["metadata"].get("labels") or {})
        return select

    def serve_list(self, handler, plural, select, query):
        group, version, kind, _ = RESOURCES[plural]
        limit = int(query.get("limit", 0))
        with self.lock:
            if token := query.get("continue"):
                if token not in self.tokens:
                    raise Refusal(410, "Expired", "The provided continue parameter is too old to display a consistent "
                                  "list result. You can start a new list without the continue parameter.")
                found, at = self.tokens[token]
            else:
                found = [o for _, o in sorted(self.objects[plural].items()) if select(o)]
                at = self.version
            if self.watch_cache and query.get("resourceVersion") == "0":
                limit = 0
            rest = found[limit:] if limit else []
            page = found[:limit] if limit else found
            meta = {"resourceVersion": str(at)}
            if rest:
                meta["continue"] = base64.b64encode(f"{at} {plural} {len(rest)} {len(self.tokens)}/+=".encode()).decode()
                meta["remainingItemCount"] = len(rest)
                self.tokens[meta["continue"]] = (rest, at)
        head = json.dumps({"kind": kind + "List", "apiVersion": f"{group}/{version}" if group else version,
                           "metadata": meta}, separators=(",", ":"))
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        handler.chunk(head[:-1].encode() + b',"items":[')
        for i in range(0, len(page), 100):
            handler.chunk((b"," if i else b"") + b",".join(o.text for o in page[i:i + 100]))
        handler.chunk(b"]}\n")
        handler.wfile.write(b"0\r\n\r\n")

    @staticmethod
    def event(kind, text):
        return b'{"type":"%s","object":%s}\n' % (kind.encode(), text)

    def events_since(self, plural, version, select):
        """Lines for what happened after a version, and the version reached."""
        lines = []
        events = self.history[plural]
        first = len(events)
        while first and events[first - 1][0] > version:
            first -= 1
        for _, before, after in events[first:]:
            was, is_now = before and select(before), after and select(after)
            if is_now:
                lines.append(self.event("MODIFIED" if was else "ADDED", after.text))
            elif was:
                lines.append(self.event("DELETED", (after or before).text))
        return lines, events[-1][0] if events else version

    def bookmark_line(self, plural):
        group, version, kind, _ = RESOURCES[plural]
        return self.event("BOOKMARK", json.dumps({
            "kind": kind, "apiVersion": f"{group}/{version}" if group else version,
            "metadata": {"resourceVersion": str(self.version), "creationTimestamp": None}}).encode())

    def serve_watch(self, handler, plural, select, query):
        version = int(query.get("resourceVersion") or 0) or self.version
        until = time.monotonic() + int(query.get("timeoutSeconds", 1800))
        with self.lock:
            if version < self.compacted:
                raise Refusal(410, "Expired", GONE)
            generation, raw_at = self.generation, len(self.raw)
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        while True:
            with self.lock:
                if self.generation != generation:
                    handler.close_connection = True
                    return
                lines, version = self.events_since(plural, version, select)
                for data in self.raw[raw_at:]:
                    lines.append(self.bookmark_line(plural) if data is None else data)
                    if data is None:
                        version = self.version
                raw_at = len(self.raw)
                if not lines and time.monotonic() >= until:
                    break
                if not lines:
                    self.changed.wait(min(0.5, max(0.01, until - time.monotonic())))
                    continue
            for i in range(0, len(lines), 200):
                handler.chunk(b"".join(lines[i:i + 200]))
        handler.wfile.write(b"0\r\n\r\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--token")
    parser.add_argument("fixtures", nargs="*")
    options = parser.parse_args()
    server = ApiServer(token=options.token, port=options.port)
    server.load(*options.fixtures)
    print(server.url, flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        threading.Event().wait()


if __name__ == "__main__":
    main()
