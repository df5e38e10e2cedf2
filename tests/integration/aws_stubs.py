"""Stub servers of AWS for the tests of credentials: the instance metadata, STS, container endpoints, EC2. Each is a
table of answers, and keeps what it was asked."""
import contextlib
import datetime
import http.server
import json
import os
import socketserver
import subprocess
import threading
import urllib.parse

import botocore.auth
import botocore.awsrequest
import botocore.credentials

from harness import BUILD, SLOW

PROBE = BUILD / "tests" / "tools" / "aws_probe"


def clean_environment(tmp_path, **more):
    """Nothing of this machine's own AWS configuration, and no way to any metadata."""
    keep = {k: v for k, v in os.environ.items()
            if not k.startswith(("AWS_", "AMZ_", "ECS_", "K8S_")) and not k.lower().endswith("_proxy")}
    base = {"HOME": str(tmp_path), "AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:9"}
    return {**keep, **base, **{k: str(v) for k, v in more.items() if v is not None}}


def probe(env, *args, code=0):
    done = subprocess.run([PROBE, *map(str, args)], capture_output=True, text=True, timeout=90 * SLOW, env=env)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def credentials(env, *args):
    lines, _ = probe(env, "credentials", *args)
    assert len(lines) == 1, lines
    return lines[0]


def keys(answer):
    assert answer["result"] == "ok", answer
    return answer["access_key"], answer["secret_key"], answer["session_token"]


def lookup(env, *args):
    lines, _ = probe(env, *args)
    assert len(lines) == 1, lines
    return lines[0]


def in_seconds(seconds):
    moment = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


class Asked:
    def __init__(self, method, path, headers, body):
        self.method, self.path, self.headers, self.body = method, path, headers, body

    def __repr__(self):
        return f"{self.method} {self.path}"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def address_string(self):
        return "peer"

    def any(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        asked = Asked(self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body)
        with self.server.lock:
            self.server.asked.append(asked)
        answer = self.server.answer(asked)
        if answer is None:  # never
            self.server.let_go.wait(60)
            self.close_connection = True
            return
        status, text = answer[0], answer[1]
        data = text if isinstance(text, bytes) else text.encode()
        self.send_response(status)
        for name, value in (answer[2] if len(answer) > 2 else {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = any


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def server_bind(self):
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "localhost", 0

    def handle_error(self, request, client_address):
        pass


@contextlib.contextmanager
def serving(answer, context=None):
    """answer(asked) gives (status, text[, headers]); None: no answer at all. context: of TLS."""
    server = Server(("127.0.0.1", 0), Handler)
    server.answer, server.asked, server.lock = answer, [], threading.Lock()
    server.let_go = threading.Event()
    server.url = f"{'https' if context else 'http'}://127.0.0.1:{server.socket.getsockname()[1]}"
    if context:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.let_go.set()
        server.shutdown()
        thread.join()
        server.server_close()


def key_json(name, expires_s=3600, token=True, **more):
    return json.dumps({"Code": "Success", "AccessKeyId": f"AK{name}", "SecretAccessKey": f"secret/{name}+",
                       **({"Token": f"token/{name}=="} if token else {}),
                       **({"Expiration": in_seconds(expires_s)} if expires_s is not None else {}), **more})


def key_text(name):
    return (f"AK{name}", f"secret/{name}+", f"token/{name}==")


ROLES = "/latest/meta-data/iam/security-credentials/"


def metadata(role="node-role", token="the-token==", put=200, paths=None, expires_s=3600, wants_token=True):
    """An instance's metadata of version 2; put: the status of a request for a token, None: no answer."""
    table = {ROLES: role, ROLES + role: key_json("IMDS", expires_s)} if role else {}
    table.update(paths or {})

    def answer(asked):
        if asked.path == "/latest/api/token":
            if asked.method != "PUT" or "x-aws-ec2-metadata-token-ttl-seconds" not in asked.headers:
                return 400, "bad"
            return None if put is None else (put, token if put == 200 else "no")
        if wants_token and asked.headers.get("x-aws-ec2-metadata-token") != token:
            return 401, "who?"
        return (200, table[asked.path]) if asked.path in table else (404, "not here")
    return answer


def sts_xml(name, action="AssumeRoleWithWebIdentity", expires_s=3600):
    access, secret, token = key_text(name)
    return f"""<{action}Response xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
  <{action}Result>
    <AssumedRoleUser><Arn>arn:aws:sts::123456789012:assumed-role/r/s</Arn><AssumedRoleId>A:s</AssumedRoleId></AssumedRoleUser>
    <Credentials>
      <AccessKeyId>{access}</AccessKeyId>
      <SecretAccessKey>{secret}</SecretAccessKey>
      <SessionToken>{token}</SessionToken>
      <Expiration>{in_seconds(expires_s)}</Expiration>
    </Credentials>
  </{action}Result>
  <ResponseMetadata><RequestId>1</RequestId></ResponseMetadata>
</{action}Response>"""


def sts_error(code, message="no"):
    return (f'<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error><Type>Sender</Type>'
            f"<Code>{code}</Code><Message>{message}</Message></Error><RequestId>1</RequestId></ErrorResponse>")


def form(asked):
    return {k: v[0] for k, v in urllib.parse.parse_qs(asked.body.decode(), strict_parsing=True).items()}


def assert_signed(asked, url, names, service, region, must_sign=()):
    """The signature is the one that botocore makes for the request that came, with the same date and keys."""
    access, secret, token = names
    scheme, fields = asked.headers["authorization"].split(" ", 1)
    fields = dict(field.strip().split("=", 1) for field in fields.split(","))
    date = asked.headers["x-amz-date"]
    assert scheme == "AWS4-HMAC-SHA256"
    assert fields["Credential"] == f"{access}/{date[:8]}/{region}/{service}/aws4_request"
    signed = fields["SignedHeaders"].split(";")
    wanted = {"host", "x-amz-date", "content-type", *must_sign, *(["x-amz-security-token"] if token else [])}
    assert wanted <= set(signed), signed
    assert asked.headers.get("x-amz-security-token", "") == token
    request = botocore.awsrequest.AWSRequest(asked.method, url + asked.path, data=asked.body,
                                             headers={name: asked.headers[name] for name in signed})
    request.context["timestamp"] = date
    signer = botocore.auth.SigV4Auth(botocore.credentials.Credentials(access, secret, token or None), service, region)
    canonical = signer.canonical_request(request)
    assert fields["Signature"] == signer.signature(signer.string_to_sign(request, canonical), request)


# Environments that lead to a stub.

def imds_environment(tmp_path, server, **more):
    return clean_environment(tmp_path, AWS_EC2_METADATA_SERVICE_ENDPOINT=server.url + "/", **more)


ROLE = "arn:aws:iam::123456789012:role/podgpu"


def irsa(tmp_path, server, **more):
    token = tmp_path / "token"
    if not token.exists():
        token.write_text("header.pay-load.sig_nature")
    return clean_environment(tmp_path, AWS_ROLE_ARN=ROLE, AWS_WEB_IDENTITY_TOKEN_FILE=token,
                             AWS_ENDPOINT_URL_STS=server.url, AWS_REGION="eu-central-1", **more)


def pod_identity(tmp_path, server, **more):
    token = tmp_path / "pod-token"
    if not token.exists():
        token.write_text("pod.tok-en.x")
    return clean_environment(tmp_path, AWS_CONTAINER_CREDENTIALS_FULL_URI=server.url + "/v1/credentials",
                             AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE=token, **more)
