"""CloudWatch Logs on a port of its own: checks each signature with botocore's signer, holds batches to the limits of
PutLogEvents, keeps what was delivered, and fails as a test says.

    with FakeLogs() as logs:
        logs.fail("PutLogEvents", "ThrottlingException", times=2)
        ... run something with endpoint logs.url and the keys of KEYS ...
        assert logs.messages("group", "stream") == [...]
"""
import contextlib
import datetime
import email.utils
import gzip
import http.server
import json
import re
import socket
import socketserver
import struct
import threading
import time
import urllib.parse

KEYS = ("AKIDEXAMPLE", "a/secret+key", None)  # access key, secret key, session token
OLDEST_MS, NEWEST_MS, SPAN_MS = 14 * 86400000, 2 * 3600000, 86400000
BATCH_BYTES, BATCH_EVENTS, EVENT_BYTES, OVERHEAD = 1048576, 10000, 1048576, 26
RETENTIONS = {1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653}
TOLERANCE_S = 300  # between the date of a signature and the service's clock


class Refused(Exception):
    """An answer with an error code."""

    def __init__(self, code, message="", status=400, headers=None):
        super().__init__(code)
        self.code, self.message, self.status, self.headers = code, message, status, headers or {}


class Request:
    """One request as it came."""

    def __init__(self, handler, raw):
        self.headers = {k.lower(): v for k, v in handler.headers.items()}
        self.method, self.path = handler.command, handler.path  # a proxy is asked for a whole URL
        self.route = urllib.parse.urlsplit(self.path).path
        self.operation = self.headers.get("x-amz-target", "").removeprefix("Logs_20140328.")
        self.raw, self.is_gzip = raw, self.headers.get("content-encoding") == "gzip"
        self.connection = handler.connection_number
        self.error = None  # the code it was answered with
        self.is_answered = False
        with contextlib.suppress(ValueError, OSError, EOFError):
            self.body = json.loads(gzip.decompress(raw) if self.is_gzip else raw)

    body = None

    @property
    def authorization(self):
        fields = self.headers.get("authorization", "").partition(" ")[2]
        return dict(f.strip().split("=", 1) for f in fields.split(",") if "=" in f)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # one write an answer
    disable_nagle_algorithm = True

    def log_message(self, *args):
        pass

    def setup(self):
        super().setup()
        with self.server.fake.lock:
            self.server.fake.connections += 1
            self.connection_number = self.server.fake.connections

    def date_time_string(self, timestamp=None):
        return email.utils.formatdate(self.server.fake.now(), usegmt=True)

    def do_POST(self):
        fake = self.server.fake
        request = Request(self, self.rfile.read(int(self.headers.get("Content-Length", 0))))
        with fake.lock:
            fake.requests.append(request)
            fault = fake.take_fault(request.operation)
        if fault:
            fault(self, request)
        else:
            self.answer(*fake.serve(request))
        request.is_answered = True

    do_GET = do_PUT = do_POST

    def do_CONNECT(self):
        """As a proxy that lets nobody through."""
        with self.server.fake.lock:
            self.server.fake.tunnels.append(self.path)
        self.answer(502)

    def answer(self, status=200, body=b"", headers=None):
        headers = {"Content-Type": "application/x-amz-json-1.1", "x-amzn-RequestId": "6e1f4c1b", **(headers or {})}
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def reset(self):
        """RST instead of an answer."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def server_bind(self):
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "localhost", self.socket.getsockname()[1]

    def handle_error(self, request, client_address):
        pass  # clients leave in the middle


class FakeLogs:
    """groups: {name: {"retention": days or None, "streams": {name: [(timestamp, message)]}}}, in order of arrival."""

    def __init__(self, keys=KEYS, region="us-west-2", context=None, clock_offset_s=0):
        self.lock = threading.RLock()
        self.region, self.clock_offset_s = region, clock_offset_s
        self.keys = {keys[0]: keys[1:]}
        self.expired = set()
        self.reads_gzip = True
        self.sends_sequence_tokens = False
        self.requests, self.faults, self.batches, self.groups = [], [], [], {}
        self.tunnels = []  # asked for, where it was a proxy
        self.connections = 0
        self.stopping = threading.Event()
        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.fake = self
        self.port = self.server.server_port
        self.url = f"{'https' if context else 'http'}://127.0.0.1:{self.port}"
        if context:
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True,
                                                     do_handshake_on_connect=False)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def start(self):
        self.thread.start()
        return self

    def stop(self):
        self.stopping.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    __enter__ = start

    def __exit__(self, *exc):
        self.stop()

    def now(self):
        return time.time() + self.clock_offset_s

    # --- What a test asks ---

    def operations(self):
        with self.lock:
            return [r.operation for r in self.requests]

    def seen(self, operation):
        with self.lock:
            return [r for r in self.requests if r.operation == operation]

    def events(self, group, stream):
        """[(timestamp, message)] in order of delivery."""
        with self.lock:
            return list(self.groups.get(group, {"streams": {}})["streams"].get(stream, []))

    def messages(self, group, stream):
        return [message for _, message in self.events(group, stream)]

    def add_stream(self, group, stream=None, retention=None):
        with self.lock:
            made = self.groups.setdefault(group, {"retention": retention, "streams": {}})
            if stream:
                made["streams"].setdefault(stream, [])

    # --- Faults: each for the next requests of that operation, "" for any; in order ---

    def inject(self, operation, fault, times=1):
        with self.lock:
            self.faults += [(operation, fault)] * times

    def take_fault(self, operation):
        for i, (wanted, fault) in enumerate(self.faults):
            if wanted in ("", operation):
                del self.faults[i]
                return fault
        return None

    def fail(self, operation, code, message="no", status=400, headers=None, times=1, as_header=False):
        def fault(handler, request):
            request.error = code
            handler.answer(*error_answer(Refused(code, message, status, headers), as_header))
        self.inject(operation, fault, times)

    def answer(self, operation, status=200, body=b"", headers=None, times=1):
        self.inject(operation, lambda handler, request: handler.answer(status, body, headers), times)

    def answer_after_storing(self, operation, body, times=1):
        def fault(handler, request):
            self.serve(request)
            handler.answer(200, body)
        self.inject(operation, fault, times)

    def reset(self, operation, stores=True, times=1):
        """The whole request is read, kept or not, and the connection breaks."""
        def fault(handler, request):
            if stores:
                self.serve(request)
            handler.reset()
        self.inject(operation, fault, times)

    def hang(self, operation, times=1):
        def fault(handler, request):
            self.stopping.wait(60)
            handler.close_connection = True
        self.inject(operation, fault, times)

    def drip(self, operation, seconds=60, times=1):
        """A head at once and a body that does not end within that time."""
        def fault(handler, request):
            handler.send_response(200)
            handler.send_header("Content-Length", "1000000")
            handler.end_headers()
            end = time.monotonic() + seconds
            while time.monotonic() < end and not self.stopping.wait(0.05):
                handler.wfile.write(b" ")
                handler.wfile.flush()
            handler.close_connection = True
        self.inject(operation, fault, times)

    def hold(self, operation, times=1):
        """Served, but not before the event that this returns is set."""
        gate = threading.Event()

        def fault(handler, request):
            gate.wait(60)
            handler.answer(*self.serve(request))
        self.inject(operation, fault, times)
        return gate

    # --- The service ---

    def serve(self, request):
        """(status, body, headers)"""
        try:
            self.check_signature(request)
            if request.headers.get("content-type") != "application/x-amz-json-1.1":
                raise Refused("SerializationException", "content type")
            if request.is_gzip and not self.reads_gzip or not isinstance(request.body, dict):
                raise Refused("SerializationException", "Start of structure or map found where not expected.")
            with self.lock:
                return 200, self.operate(request), {}
        except Refused as refused:
            request.error = refused.code
            return error_answer(refused)

    def operate(self, request):
        operations = {"PutLogEvents": self.put, "CreateLogGroup": self.create_group,
                      "CreateLogStream": self.create_stream, "PutRetentionPolicy": self.put_retention}
        if request.operation not in operations:
            raise Refused("UnknownOperationException")
        return operations[request.operation](request)

    def check_signature(self, request):
        fields = request.authorization
        credential = fields.get("Credential", "////").split("/")
        if len(credential) != 5 or not fields.get("Signature"):
            raise Refused("MissingAuthenticationTokenException", "Missing Authentication Token")
        access, day, region, service, _ = credential
        if access in self.expired:
            raise Refused("ExpiredTokenException", "The security token included in the request is expired")
        token = request.headers.get("x-amz-security-token")
        if access not in self.keys or self.keys[access][1] != token:
            raise Refused("UnrecognizedClientException", "The security token included in the request is invalid.")
        moment = request.headers.get("x-amz-date", "")
        self.check_date(moment)
        if (region, service) != (self.region, "logs") or not moment.startswith(day):
            raise Refused("InvalidSignatureException", "Credential should be scoped to a valid region.")
        signed = fields["SignedHeaders"].split(";")
        needed = {"host", "x-amz-date", "content-type", "x-amz-target"} | ({"x-amz-security-token"} if token else set())
        if not needed <= set(signed) or {"user-agent", "connection", "expect"} & set(signed):
            raise Refused("InvalidSignatureException", "wrong set of signed headers")
        if fields["Signature"] != signature(request, signed, access, self.keys[access], moment, region):
            raise Refused("InvalidSignatureException",
                          "The request signature we calculated does not match the signature you provided.\n\n"
                          f"The Canonical String for this request should have been\n'{request.method}\n{token}'")

    def check_date(self, text):
        try:
            moment = datetime.datetime.strptime(text, "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.timezone.utc)
        except ValueError:
            raise Refused("InvalidSignatureException", "X-Amz-Date") from None
        if abs(moment.timestamp() - self.now()) > TOLERANCE_S:
            raise Refused("InvalidSignatureException", f"Signature expired: {text} is now earlier than others")

    def name_of_group(self, body):
        name = body.get("logGroupName", "")
        if not re.fullmatch(r"[A-Za-z0-9_/.#-]{1,512}", name):
            raise Refused("InvalidParameterException", "logGroupName")
        return name

    def group_of(self, body):
        name = self.name_of_group(body)
        if name not in self.groups:
            raise Refused("ResourceNotFoundException", "The specified log group does not exist.")
        return self.groups[name]

    def create_group(self, request):
        name = self.name_of_group(request.body)
        if name in self.groups:
            raise Refused("ResourceAlreadyExistsException", "The specified log group already exists")
        self.groups[name] = {"retention": None, "streams": {}}
        return b""

    def create_stream(self, request):
        streams = self.group_of(request.body)["streams"]
        name = request.body.get("logStreamName", "")
        if not re.fullmatch(r"[^:*]{1,512}", name):
            raise Refused("InvalidParameterException", "logStreamName")
        if name in streams:
            raise Refused("ResourceAlreadyExistsException", "The specified log stream already exists")
        streams[name] = []
        return b""

    def put_retention(self, request):
        group = self.group_of(request.body)
        if request.body.get("retentionInDays") not in RETENTIONS:
            raise Refused("InvalidParameterException", "retentionInDays")
        group["retention"] = request.body["retentionInDays"]
        return b""

    def put(self, request):
        if request.headers.get("x-amzn-logs-format") != "json/emf":
            raise Refused("InvalidParameterException", "not in Embedded Metric Format")
        streams = self.group_of(request.body)["streams"]
        name = request.body.get("logStreamName", "")
        if name not in streams:
            raise Refused("ResourceNotFoundException", "The specified log stream does not exist.")
        events = [(e["timestamp"], e["message"]) for e in request.body.get("logEvents", [])]
        check_events(events)
        now_ms = self.now() * 1000
        old = sum(t < now_ms - OLDEST_MS for t, _ in events)
        new = sum(t > now_ms + NEWEST_MS for t, _ in events)
        streams[name] += events[old:len(events) - new]
        self.batches.append((request.body["logGroupName"], name, events))
        rejected = {**({"tooOldLogEventEndIndex": old} if old else {}),
                    **({"tooNewLogEventStartIndex": len(events) - new} if new else {})}
        answer = {"rejectedLogEventsInfo": rejected} if rejected else {}
        if self.sends_sequence_tokens:
            answer["nextSequenceToken"] = f"{len(self.batches):056d}"
        return json.dumps(answer).encode()


def check_events(events):
    """The limits of PutLogEvents."""
    if not 1 <= len(events) <= BATCH_EVENTS:
        raise Refused("InvalidParameterException", "logEvents")
    sizes = [len(message.encode()) + OVERHEAD for _, message in events]
    if min(sizes) == OVERHEAD or max(sizes) > EVENT_BYTES:
        raise Refused("InvalidParameterException", "Log event size")
    if sum(sizes) > BATCH_BYTES:
        raise Refused("InvalidParameterException", "Upload too large")
    times = [t for t, _ in events]
    if times != sorted(times):
        raise Refused("InvalidParameterException",
                      "Log events in a single PutLogEvents request must be in chronological order.")
    if times[-1] - times[0] > SPAN_MS:
        raise Refused("InvalidParameterException", "The batch of log events in a single PutLogEvents request cannot span"
                                                   " more than 24 hours.")


def error_answer(refused, as_header=False):
    headers = dict(refused.headers)
    body = {"message": refused.message}
    if as_header:
        headers["x-amzn-ErrorType"] = f"{refused.code}:http://internal.amazon.com/coral/com.amazonaws.logs/"
    else:
        body["__type"] = f"com.amazonaws.logs#{refused.code}"
    return refused.status, json.dumps(body).encode(), headers


def signature(request, signed, access, secret_and_token, moment, region):
    """As botocore makes it of what came."""
    import botocore.auth
    import botocore.awsrequest
    import botocore.credentials
    url = f"http://{request.headers['host']}{request.route}"
    headers = {name: request.headers.get(name, "") for name in signed}
    asked = botocore.awsrequest.AWSRequest(request.method, url, data=request.raw, headers=headers)
    asked.context["timestamp"] = moment
    signer = botocore.auth.SigV4Auth(botocore.credentials.Credentials(access, *secret_and_token), "logs", region)
    return signer.signature(signer.string_to_sign(asked, signer.canonical_request(asked)), asked)
