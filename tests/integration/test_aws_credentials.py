"""AWS credentials on the loop (tests/tools/aws_probe.c) against stub servers: environment, shared files, web identity,
container endpoints, instance metadata, roles; what is asked, in which order, and what is not."""
import json
import pathlib
import ssl
import subprocess
import sys

import pytest

from aws_stubs import (ROLE, ROLES, assert_signed, clean_environment, credentials, form, imds_environment, irsa, key_json,
                       key_text, keys, metadata, pod_identity, probe, serving, sts_error, sts_xml)

from harness import SLOW
from test_http_client import make_certificate

pytestmark = pytest.mark.faults

STATIC = {"AWS_ACCESS_KEY_ID": "AKENV", "AWS_SECRET_ACCESS_KEY": "secret/env"}


def write_files(tmp_path, credentials_text=None, config_text=None):
    (tmp_path / ".aws").mkdir(exist_ok=True)
    if credentials_text is not None:
        (tmp_path / ".aws" / "credentials").write_text(credentials_text)
    if config_text is not None:
        (tmp_path / ".aws" / "config").write_text(config_text)


# --- Environment and shared files ---

def test_keys_of_the_environment(tmp_path):
    answer = credentials(clean_environment(tmp_path, **STATIC, AWS_SESSION_TOKEN="tok/en=="))
    assert keys(answer) == ("AKENV", "secret/env", "tok/en==")
    assert answer["provider"] == "environment"
    older = clean_environment(tmp_path, AWS_ACCESS_KEY="AKOLD", AWS_SECRET_KEY="secret/old")
    assert keys(credentials(older)) == ("AKOLD", "secret/old", "")


def test_nobody_has_any_and_every_place_is_named(tmp_path):
    files = {"AWS_SHARED_CREDENTIALS_FILE": "/none/credentials", "AWS_CONFIG_FILE": "/none/config"}
    answer = credentials(clean_environment(tmp_path, **files))
    assert answer["result"] == "none" and answer["provider"] == ""
    assert answer["error"] == (
        "no AWS credentials: AWS_ACCESS_KEY_ID is not set; AWS_WEB_IDENTITY_TOKEN_FILE is not set; profile 'default' is "
        "in neither file (/none/credentials, /none/config); AWS_CONTAINER_CREDENTIALS_FULL_URI is "
        "not set; instance metadata at http://127.0.0.1:9: nothing answers")


def test_keys_of_a_profile(tmp_path):
    write_files(tmp_path, "[default]\naws_access_key_id = AKDEF\naws_secret_access_key = s1\n"
                          "[other]\naws_access_key_id=AKOTHER\naws_secret_access_key=s2\naws_session_token=t2\n")
    answer = credentials(clean_environment(tmp_path))
    assert keys(answer) == ("AKDEF", "s1", "") and answer["provider"] == "profile"
    assert keys(credentials(clean_environment(tmp_path, AWS_PROFILE="other"))) == ("AKOTHER", "s2", "t2")


def test_secrets_never_stand_in_an_error(tmp_path):
    write_files(tmp_path, "[default]\naws_access_key_id = AKDEF\naws_secret_access_key = hush hush\n")
    answer = credentials(clean_environment(tmp_path))
    assert answer["result"] == "failed" and "hush" not in json.dumps(answer)
    write_files(tmp_path, "[default]\naws_secret_access_key hush\n")
    answer = credentials(clean_environment(tmp_path))
    assert answer["result"] == "failed" and "hush" not in json.dumps(answer)


# --- Instance metadata ---

def test_metadata_of_version_2(tmp_path):
    with serving(metadata()) as server:
        answer = credentials(imds_environment(tmp_path, server))
        assert keys(answer) == key_text("IMDS") and answer["provider"] == "instance metadata"
        assert [repr(a) for a in server.asked] == ["PUT /latest/api/token", f"GET {ROLES}", f"GET {ROLES}node-role"]


@pytest.mark.parametrize("put", [404, 405, None])
def test_without_a_token_version_1_is_asked_once(tmp_path, put):
    with serving(metadata(put=put, wants_token=False)) as server:
        answer = credentials(imds_environment(tmp_path, server, IMDS_NUMBER_RETRY="0"))
        assert keys(answer) == key_text("IMDS")
        assert [repr(a) for a in server.asked] == ["PUT /latest/api/token", f"GET {ROLES}", f"GET {ROLES}node-role"]
        assert all("x-aws-ec2-metadata-token" not in a.headers for a in server.asked)


def test_metadata_is_left_alone_when_it_is_disabled_or_not_needed(tmp_path):
    with serving(metadata()) as server:
        disabled = credentials(imds_environment(tmp_path, server, AWS_EC2_METADATA_DISABLED="TRUE"))
        assert disabled["result"] == "none" and "AWS_EC2_METADATA_DISABLED is true" in disabled["error"]
        assert keys(credentials(imds_environment(tmp_path, server, **STATIC)))[0] == "AKENV"
        assert server.asked == []


def test_a_token_that_ran_out_is_renewed_once(tmp_path):
    given = []

    def answer(asked):
        if asked.path == "/latest/api/token":
            given.append(f"token-{len(given)}")
            return 200, given[-1]
        if asked.headers["x-aws-ec2-metadata-token"] != "token-1":
            return 401, ""
        return 200, "r" if asked.path == ROLES else key_json("IMDS")
    with serving(answer) as server:
        assert keys(credentials(imds_environment(tmp_path, server))) == key_text("IMDS")
        assert len(given) == 2
    with serving(metadata(token="never-right", paths={})) as server:
        server.answer = lambda asked: (200, "t") if asked.method == "PUT" else (401, "")
        answer = credentials(imds_environment(tmp_path, server))
        assert answer["result"] == "failed" and "status 401" in answer["error"]
        assert [a.method for a in server.asked] == ["PUT", "GET", "PUT", "GET"]


@pytest.mark.parametrize("server_answer,result,says,asked", [
    (metadata(put=403), "none", "it is turned off (403)", 1),
    (metadata(put=400), "failed", "status 400", 1),
    (metadata(role=None), "none", "the instance has no role", 2),
    (metadata(role="../../etc"), "failed", "what it gave is no role's name", 2),
    (metadata(put=404), "none", "it wants a token and gives none", 2),
    (lambda asked: (500, "oops"), "failed", "status 500", 2),
    (lambda asked: (200, "a token with spaces"), "failed", "what it gave is not a token", 1),
    (lambda asked: (200, "t" * 70000), "failed", "", 1),
    (metadata(paths={ROLES + "node-role": "no JSON"}), "failed", "the answer is not JSON", 3),
    (metadata(paths={ROLES + "node-role": '{"Code": "AssumeRoleUnauthorizedAccess"}'}), "failed", "Code is not Success", 3),
    (metadata(paths={ROLES + "node-role": '{"Code": "Success"}'}), "failed", "no access key", 3),
    (metadata(expires_s=-5), "failed", "expired when they came", 3),
])
def test_metadata_that_has_no_keys(tmp_path, server_answer, result, says, asked):
    with serving(server_answer) as server:
        answer = credentials(imds_environment(tmp_path, server))
        assert answer["result"] == result and says in answer["error"], answer
        assert len(server.asked) == asked, server.asked


def test_a_hanging_put_with_version_1_turned_off(tmp_path):
    with serving(metadata(put=None, wants_token=False)) as server:
        answer = credentials(imds_environment(tmp_path, server, AWS_EC2_METADATA_V1_DISABLED="true"))
        assert answer["result"] == "none" and "is the instance's hop limit 1?" in answer["error"]
        assert [a.method for a in server.asked] == ["PUT", "PUT"]  # one more try


# --- Web identity ---

def test_web_identity(tmp_path):
    with serving(lambda asked: (200, sts_xml("WEB"))) as server:
        answer = credentials(irsa(tmp_path, server, AWS_ROLE_SESSION_NAME="my session"))
        assert keys(answer) == key_text("WEB") and answer["provider"] == "web identity"
        [asked] = server.asked
        assert (asked.method, asked.path) == ("POST", "/")
        assert asked.headers["content-type"] == "application/x-www-form-urlencoded"
        assert "authorization" not in asked.headers and "x-amz-security-token" not in asked.headers
        assert form(asked) == {"Action": "AssumeRoleWithWebIdentity", "Version": "2011-06-15", "RoleArn": ROLE,
                               "RoleSessionName": "my session", "WebIdentityToken": "header.pay-load.sig_nature"}


def test_each_session_has_a_name_of_its_own(tmp_path):
    with serving(lambda asked: (200, sts_xml("WEB"))) as server:
        for _ in range(2):
            keys(credentials(irsa(tmp_path, server)))
        names = {form(asked)["RoleSessionName"] for asked in server.asked}
        assert len(names) == 2 and all(name.startswith("podgpu-agent-") and len(name) <= 64 for name in names)


@pytest.mark.parametrize("faults", [
    [(500, "<html>")], [(503, ""), (503, "")], [(429, "")], [(400, sts_error("IDPCommunicationError"))],
    [(400, sts_error("InvalidIdentityToken")), (400, sts_error("InvalidIdentityToken"))],
    [(400, sts_error("Throttling"))],
])
def test_sts_is_asked_again_when_it_may_help(tmp_path, faults):
    left = [*faults, (200, sts_xml("WEB"))]
    with serving(lambda asked: left.pop(0)) as server:
        assert keys(credentials(irsa(tmp_path, server))) == key_text("WEB")
        assert len(server.asked) == len(faults) + 1


@pytest.mark.parametrize("status,code,message", [
    (400, "ExpiredTokenException", "Token expired: current date/time 1 must be before the expiration date/time 0"),
    (403, "AccessDenied", "Not authorized to perform sts:AssumeRoleWithWebIdentity"),
    (400, "IDPRejectedClaim", "no"),
])
def test_sts_that_refuses_is_asked_once_and_told(tmp_path, status, code, message):
    with serving(lambda asked: (status, sts_error(code, message))) as server:
        answer = credentials(irsa(tmp_path, server))
        assert answer["result"] == "failed"
        assert answer["error"] == f"STS in eu-central-1 for role {ROLE}: status {status} {code}: {message}"
        assert len(server.asked) == 1


@pytest.mark.parametrize("body,says", [
    ("", "not XML"), ("<a>", "not XML"), ("<a/>", "no Credentials"),
    ('<!DOCTYPE a [<!ENTITY b "c">]>' + sts_xml("WEB"), "not XML"),
    (sts_xml("WEB").replace("AKWEB", "AK\nWEB"), "the access key has a space"),
    (sts_xml("WEB", expires_s=-10), "expired when they came"),
    ("<a>" + "x" * 70000 + "</a>", "STS"),
], ids=["empty", "cut", "no answer", "doctype", "a space", "expired", "too long"])  # the texts hold the time
def test_answers_that_are_no_keys(tmp_path, body, says):
    with serving(lambda asked: (200, body)) as server:
        answer = credentials(irsa(tmp_path, server))
        assert answer["result"] == "failed" and says in answer["error"], answer


def test_a_token_file_that_is_missing_empty_or_alone(tmp_path):
    with serving(lambda asked: (200, sts_xml("WEB"))) as server:
        env = irsa(tmp_path, server)
        (tmp_path / "token").unlink()
        answer = credentials(env)
        assert answer["result"] == "failed" and f"cannot read '{tmp_path}/token'" in answer["error"]
        (tmp_path / "token").write_text("\n")
        assert "is empty" in credentials(env)["error"]
        answer = credentials({k: v for k, v in env.items() if k != "AWS_ROLE_ARN"})
        assert answer["result"] == "failed" and "without AWS_ROLE_ARN" in answer["error"]
        assert server.asked == []


# --- Roles on top ---

def test_a_role_on_top_is_signed_as_botocore_signs(tmp_path):
    with serving(lambda asked: (200, sts_xml("TOP", "AssumeRole"))) as server:
        env = clean_environment(tmp_path, **STATIC, AWS_SESSION_TOKEN="to/ken+==", AWS_ENDPOINT_URL_STS=server.url,
                                AMZ_SOURCE_ACCOUNT="123456789012", AMZ_SOURCE_ARN="arn:aws:logs:x:1:log-group/a b")
        answer = credentials(env, "--role", ROLE, "--region", "us-west-2")
        assert keys(answer) == key_text("TOP") and answer["provider"] == "environment, assumed role"
        [asked] = server.asked
        fields = form(asked)
        assert fields.pop("RoleSessionName").startswith("podgpu-agent-")
        assert fields == {"Action": "AssumeRole", "Version": "2011-06-15", "RoleArn": ROLE, "DurationSeconds": "900"}
        assert asked.headers["x-amz-source-account"] == "123456789012"
        assert asked.headers["x-amz-source-arn"] == "arn:aws:logs:x:1:log-group/a b"
        assert_signed(asked, server.url, ("AKENV", "secret/env", "to/ken+=="), "sts", "us-west-2",
                      must_sign=["x-amz-source-account", "x-amz-source-arn"])


@pytest.mark.parametrize("region,elsewhere", [
    ("ap-east-1", "us-east-1"), ("cn-northwest-1", "cn-north-1"), ("us-gov-east-1", "us-gov-west-1"),
    ("us-iso-west-1", "us-iso-east-1"), ("us-isob-west-1", "us-isob-east-1"),
])
def test_a_region_that_is_turned_off_sends_us_to_the_partitions_own(tmp_path, region, elsewhere):
    def answer(asked):
        if f"/{region}/sts/" in asked.headers["authorization"]:
            return 403, sts_error("RegionDisabledException", "STS is not activated in this region")
        return 200, sts_xml("TOP", "AssumeRole")
    with serving(answer) as server:
        env = clean_environment(tmp_path, **STATIC, AWS_ENDPOINT_URL_STS=server.url)
        assert keys(credentials(env, "--role", ROLE, "--region", region)) == key_text("TOP")
        assert len(server.asked) == 2
        assert_signed(server.asked[1], server.url, ("AKENV", "secret/env", ""), "sts", elsewhere)


def test_everywhere_turned_off_ends(tmp_path):
    with serving(lambda asked: (403, sts_error("RegionDisabledException"))) as server:
        env = clean_environment(tmp_path, **STATIC, AWS_ENDPOINT_URL_STS=server.url)
        answer = credentials(env, "--role", ROLE, "--region", "ap-east-1")
        assert answer["result"] == "failed" and "STS in us-east-1" in answer["error"]
        assert len(server.asked) == 2


def test_a_role_on_top_of_web_identity(tmp_path):
    def answer(asked):
        action = form(asked)["Action"]
        return 200, sts_xml("WEB" if "Web" in action else "TOP", action)
    with serving(answer) as server:
        answer = credentials(irsa(tmp_path, server), "--role", ROLE + "/top")
        assert keys(answer) == key_text("TOP") and answer["provider"] == "web identity, assumed role"
        assert_signed(server.asked[1], server.url, key_text("WEB"), "sts", "eu-central-1")


def test_a_role_on_top_that_is_refused_fails_with_all(tmp_path):
    with serving(lambda asked: (403, sts_error("AccessDenied", "no"))) as server:
        env = clean_environment(tmp_path, **STATIC, AWS_ENDPOINT_URL_STS=server.url)
        answer = credentials(env, "--role", ROLE)
        assert answer["result"] == "failed" and "AccessDenied: no" in answer["error"]


# --- Roles of profiles ---

PROFILES = """
[default]
role_arn = arn:aws:iam::1:role/outer
source_profile = middle
external_id = the id
[profile middle]
role_arn = arn:aws:iam::1:role/inner
source_profile = base
duration_seconds = 1800
role_session_name = mid
[profile env]
role_arn = arn:aws:iam::1:role/e
credential_source = Environment
[profile imds]
role_arn = arn:aws:iam::1:role/i
credential_source = Ec2InstanceMetadata
[profile web]
role_arn = arn:aws:iam::1:role/w
web_identity_token_file = {folder}/token
[profile round]
role_arn = arn:aws:iam::1:role/r
source_profile = trip
[profile trip]
role_arn = arn:aws:iam::1:role/t
source_profile = round
[profile process]
credential_process = touch {folder}/ran
[profile single]
sso_session = x
[profile self]
role_arn = arn:aws:iam::1:role/s
source_profile = self
aws_access_key_id = AKSELF
aws_secret_access_key = ss
[profile nowhere]
role_arn = arn:aws:iam::1:role/n
source_profile = gone
[profile code]
role_arn = arn:aws:iam::1:role/n
source_profile = base
mfa_serial = arn:aws:iam::1:mfa/me
"""
BASE = "[base]\naws_access_key_id = AKBASE\naws_secret_access_key = bs\n"


def by_role(asked):
    fields = form(asked)
    return 200, sts_xml(fields["RoleArn"].rsplit("/", 1)[1], fields["Action"])


def test_roles_of_profiles_are_assumed_from_the_inside_out(tmp_path):
    write_files(tmp_path, BASE, PROFILES.format(folder=tmp_path))
    with serving(by_role) as server:
        answer = credentials(clean_environment(tmp_path, AWS_ENDPOINT_URL=server.url), "--region", "us-east-1")
        assert keys(answer) == key_text("outer") and answer["provider"] == "profile, assumed role"
        inner, outer = server.asked
        assert_signed(inner, server.url, ("AKBASE", "bs", ""), "sts", "us-east-1")
        assert_signed(outer, server.url, key_text("inner"), "sts", "us-east-1")
        assert form(inner)["RoleSessionName"] == "mid" and form(inner)["DurationSeconds"] == "1800"
        assert form(outer)["ExternalId"] == "the id" and "DurationSeconds" not in form(outer)


@pytest.mark.parametrize("profile,names", [("env", ("AKENV", "secret/env", "")), ("self", ("AKSELF", "ss", ""))])
def test_other_sources_of_a_profiles_role(tmp_path, profile, names):
    write_files(tmp_path, BASE, PROFILES.format(folder=tmp_path))
    with serving(by_role) as server:
        env = clean_environment(tmp_path, AWS_ENDPOINT_URL=server.url, AWS_PROFILE=profile)
        if profile == "env":  # the environment itself goes first, so a role is only seen on top of it
            answer = credentials({**env, **STATIC})
            assert keys(answer) == ("AKENV", "secret/env", "") and server.asked == []
            return
        assert keys(credentials(env)) == key_text("s")
        assert_signed(server.asked[0], server.url, names, "sts", "us-east-1")


def test_a_profile_with_a_token_file(tmp_path):
    write_files(tmp_path, BASE, PROFILES.format(folder=tmp_path))
    (tmp_path / "token").write_text("a.b.c")
    with serving(by_role) as server:
        answer = credentials(clean_environment(tmp_path, AWS_ENDPOINT_URL=server.url, AWS_PROFILE="web"))
        assert keys(answer) == key_text("w")
        assert form(server.asked[0])["WebIdentityToken"] == "a.b.c"


def test_a_profile_that_names_the_instance(tmp_path):
    write_files(tmp_path, BASE, PROFILES.format(folder=tmp_path))
    with serving(by_role) as sts, serving(metadata()) as imds:
        env = imds_environment(tmp_path, imds, AWS_ENDPOINT_URL=sts.url, AWS_PROFILE="imds")
        assert keys(credentials(env)) == key_text("i")
        assert_signed(sts.asked[0], sts.url, key_text("IMDS"), "sts", "us-east-1")
        answer = credentials({**env, "AWS_EC2_METADATA_DISABLED": "true"})
        assert answer["result"] == "failed" and "AWS_EC2_METADATA_DISABLED is true" in answer["error"]


@pytest.mark.parametrize("profile,says", [
    ("round", "profile 'trip': source_profile leads back to a profile before it"),
    ("process", "profile 'process': credential_process is not supported"),
    ("single", "profile 'single': single sign-on (sso_*) is not supported"),
    ("nowhere", "profile 'nowhere': source_profile is in neither file"),
    ("code", "profile 'code': mfa_serial needs a person, which is not supported"),
    ("missing", "profile 'missing' is in neither file"),
])
def test_profiles_that_cannot_be_followed(tmp_path, profile, says):
    write_files(tmp_path, BASE, PROFILES.format(folder=tmp_path))
    with serving(metadata()) as server:
        answer = credentials(imds_environment(tmp_path, server, AWS_PROFILE=profile))
        assert answer["result"] == "failed" and answer["error"].startswith(says), answer
        assert server.asked == [] and not (tmp_path / "ran").exists()


def test_a_malformed_file_is_named_with_its_line(tmp_path):
    write_files(tmp_path, None, "[default]\nregion = x\n[profile\n")
    answer = credentials(clean_environment(tmp_path))
    assert answer["result"] == "failed" and answer["error"] == (
        f"{tmp_path}/.aws/config:3:1: expected ']' at the end of a section's name")


# --- Container endpoints ---

def test_pod_identity(tmp_path):
    with serving(lambda asked: (200, key_json("POD", AccountId="1"))) as server:
        env = pod_identity(tmp_path, server, AWS_CONTAINER_AUTHORIZATION_TOKEN="the file wins")
        answer = credentials(env)
        assert keys(answer) == key_text("POD") and answer["provider"] == "container"
        [asked] = server.asked
        assert (asked.method, asked.path, asked.headers["authorization"]) == ("GET", "/v1/credentials", "pod.tok-en.x")
        del env["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"]
        keys(credentials(env))
        assert server.asked[1].headers["authorization"] == "the file wins"
        del env["AWS_CONTAINER_AUTHORIZATION_TOKEN"]
        keys(credentials(env))
        assert "authorization" not in server.asked[2].headers


@pytest.mark.parametrize("faults", [[(429, "{}")], [(500, ""), (503, "no")], [(429, ""), (502, "")]])
def test_container_faults_that_pass(tmp_path, faults):
    left = [*faults, (200, key_json("POD"))]
    with serving(lambda asked: left.pop(0)) as server:
        assert keys(credentials(pod_identity(tmp_path, server))) == key_text("POD")


def test_container_refusals_are_told_and_the_metadata_is_not_asked_instead(tmp_path):
    refusal = json.dumps({"code": "AccessDeniedException", "message": "no association"})
    with serving(lambda asked: (403, refusal)) as server, serving(metadata()) as imds:
        env = pod_identity(tmp_path, server, AWS_EC2_METADATA_SERVICE_ENDPOINT=imds.url)
        answer = credentials(env)
        assert answer["result"] == "failed"
        assert answer["error"] == "container credentials: status 403 AccessDeniedException: no association"
        assert len(server.asked) == 1 and imds.asked == []


@pytest.mark.parametrize("token,says", [("a\nb", "has a line break"), ("a\r", "has a line break")])
def test_a_token_with_a_line_break_is_refused(tmp_path, token, says):
    (tmp_path / "pod-token").write_bytes(token.encode())
    with serving(lambda asked: (200, key_json("POD"))) as server:
        answer = credentials(pod_identity(tmp_path, server))
        assert answer["result"] == "failed" and says in answer["error"]
        assert server.asked == []


def test_a_token_file_that_is_missing_is_named(tmp_path):
    with serving(lambda asked: (200, key_json("POD"))) as server, serving(metadata()) as imds:
        env = pod_identity(tmp_path, server, AWS_EC2_METADATA_SERVICE_ENDPOINT=imds.url)
        (tmp_path / "pod-token").unlink()
        answer = credentials(env)
        assert answer["result"] == "failed" and f"cannot read '{tmp_path}/pod-token'" in answer["error"]
        assert server.asked == [] and imds.asked == []


@pytest.mark.parametrize("url", ["http://169.254.169.254/x", "http://example.com/", "http://127.0.0.1@evil/x",
                                 "http://2130706433/", "ftp://127.0.0.1/", "http://0.0.0.0/"])
def test_container_urls_that_are_refused(tmp_path, url):
    answer = credentials(clean_environment(tmp_path, AWS_CONTAINER_CREDENTIALS_FULL_URI=url))
    assert answer["result"] == "failed" and "AWS_CONTAINER_CREDENTIALS_FULL_URI" in answer["error"]


def test_local_addresses_are_never_asked_through_a_proxy(tmp_path):
    with serving(lambda asked: (500, "a proxy")) as proxy:
        via = {name: proxy.url for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy")}
        with serving(lambda asked: (200, key_json("POD"))) as server:
            assert keys(credentials({**pod_identity(tmp_path, server), **via})) == key_text("POD")
        with serving(metadata()) as server:
            assert keys(credentials({**imds_environment(tmp_path, server), **via})) == key_text("IMDS")
        assert proxy.asked == []


# --- Precedence ---

def test_the_first_in_the_order_of_the_sdks_is_taken_and_no_other_is_asked(tmp_path):
    write_files(tmp_path, "[default]\naws_access_key_id = AKFILE\naws_secret_access_key = fs\n")
    (tmp_path / "token").write_text("t")
    with serving(lambda a: (200, sts_xml("WEB"))) as sts, serving(lambda a: (200, key_json("POD"))) as pod, \
            serving(metadata()) as imds:
        layers = [
            ("environment", "AKENV", STATIC, []),
            ("web identity", "AKWEB", {"AWS_ROLE_ARN": ROLE, "AWS_WEB_IDENTITY_TOKEN_FILE": tmp_path / "token",
                                       "AWS_ENDPOINT_URL_STS": sts.url}, [sts]),
            ("profile", "AKFILE", {}, []),
            ("container", "AKPOD", {"AWS_CONTAINER_CREDENTIALS_FULL_URI": pod.url + "/"}, [pod]),
            ("instance metadata", "AKIMDS", {"AWS_EC2_METADATA_SERVICE_ENDPOINT": imds.url}, [imds]),
        ]
        for i, (provider, access, _, asked) in enumerate(layers):
            for server in (sts, pod, imds):
                server.asked.clear()
            env = {k: v for _, _, more, _ in layers[i:] for k, v in more.items()}
            if i > 2:
                env["AWS_SHARED_CREDENTIALS_FILE"] = tmp_path / "none"
            answer = credentials(clean_environment(tmp_path, **env))
            assert (answer["provider"], answer["access_key"]) == (provider, access)
            assert [s for s in (sts, pod, imds) if s.asked] == asked, provider


# --- Clocks ---

def test_an_issuers_clock_may_differ_from_ours(tmp_path):
    """Expiration and Date are of one clock: what is an hour there is an hour here."""
    with serving(lambda asked: (200, sts_xml("SKEW").replace(
            sts_xml("SKEW").split("<Expiration>")[1].split("<")[0], "2021-01-01T01:00:00Z"))) as server:
        class Skewed(server.RequestHandlerClass):
            def date_time_string(self, timestamp=None):
                return "Fri, 01 Jan 2021 00:00:00 GMT"
        server.RequestHandlerClass = Skewed
        assert keys(credentials(irsa(tmp_path, server))) == key_text("SKEW")


def test_keys_for_ever_are_keys(tmp_path):
    far = key_json("POD", expires_s=None, Expiration="9999-12-31T23:59:59Z")
    with serving(lambda asked: (200, far)) as server:
        assert keys(credentials(pod_identity(tmp_path, server))) == key_text("POD")
    with serving(lambda asked: (200, key_json("POD", expires_s=None))) as server:
        assert keys(credentials(pod_identity(tmp_path, server))) == key_text("POD")


def test_a_clock_that_is_wrong_costs_one_more_request(tmp_path):
    """A signature must carry the service's date: here it lives in 2021."""
    def answer(asked):
        if not asked.headers["x-amz-date"].startswith("20210101T0000"):
            return 403, sts_error("SignatureDoesNotMatch", "Signature expired")
        return 200, sts_xml("TOP", "AssumeRole").replace(
            sts_xml("TOP").split("<Expiration>")[1].split("<")[0][:10], "2021-01-02")
    with serving(answer) as server:
        class Skewed(server.RequestHandlerClass):
            def date_time_string(self, timestamp=None):
                return "Fri, 01 Jan 2021 00:00:30 GMT"
        server.RequestHandlerClass = Skewed
        env = clean_environment(tmp_path, **STATIC, AWS_ENDPOINT_URL_STS=server.url)
        assert keys(credentials(env, "--role", ROLE, "--region", "eu-west-1")) == key_text("TOP")
        assert len(server.asked) == 2
        assert_signed(server.asked[1], server.url, ("AKENV", "secret/env", ""), "sts", "eu-west-1")
        server.asked.clear()
        server.answer = lambda asked: (403, sts_error("SignatureDoesNotMatch"))
        assert credentials(env, "--role", ROLE, "--region", "eu-west-1")["result"] == "failed"
        assert len(server.asked) == 2  # once more, not for ever


def test_what_hangs_is_left_at_once_when_we_end(tmp_path):
    with serving(lambda asked: None) as server:
        assert probe(irsa(tmp_path, server), "credentials", "--watch-ms", 300)[0] == []
        assert probe(pod_identity(tmp_path, server), "credentials", "--watch-ms", 300)[0] == []
        assert probe(imds_environment(tmp_path, server), "credentials", "--watch-ms", 300)[0] == []
        assert probe(imds_environment(tmp_path, server), "region", "--watch-ms", 300)[0] == []
        assert len(server.asked) == 4


def test_sts_is_asked_through_the_proxy_of_the_environment(tmp_path):
    with serving(lambda asked: (200, sts_xml("WEB"))) as proxy:
        env = irsa(tmp_path, proxy)
        env.update(AWS_ENDPOINT_URL_STS="http://sts.example.invalid", http_proxy=proxy.url)
        assert keys(credentials(env)) == key_text("WEB")
        assert proxy.asked[0].path == "http://sts.example.invalid/"
        assert proxy.asked[0].headers["host"] == "sts.example.invalid"


def test_https_is_held_to_the_bundle_that_is_named(tmp_path):
    make_certificate(tmp_path, "ca", extension="basicConstraints=critical,CA:TRUE")
    make_certificate(tmp_path, "server", "ca", "subjectAltName=IP:127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    with serving(lambda asked: (200, sts_xml("WEB")), context) as server:
        env = irsa(tmp_path, server)
        answer = credentials(env)
        assert answer["result"] == "failed" and "certificate" in answer["error"]
        assert server.asked == []
        assert keys(credentials({**env, "AWS_CA_BUNDLE": str(tmp_path / "ca.pem")})) == key_text("WEB")


def test_the_region_of_sts_is_the_first_that_is_said(tmp_path):
    write_files(tmp_path, None, "[default]\nregion = eu-west-3\nrole_arn = arn:aws-cn:iam::1:role/x\n"
                                "source_profile = b\n[profile b]\naws_access_key_id=A\naws_secret_access_key=s\n")
    with serving(by_role) as server:
        env = clean_environment(tmp_path, AWS_ENDPOINT_URL=server.url)
        for more, args, region in [({}, ["--region", "us-west-1"], "us-west-1"), ({"AWS_REGION": "us-west-2"}, [], "us-west-2"),
                                   ({"AWS_DEFAULT_REGION": "us-east-2"}, [], "us-east-2"), ({}, [], "eu-west-3")]:
            keys(credentials({**env, **more}, *args))
            assert f"/{region}/sts/" in server.asked[-1].headers["authorization"]
        config = tmp_path / ".aws" / "config"
        config.write_text(config.read_text().replace("region = eu-west-3", ""))
        keys(credentials(env))
        assert "/cn-north-1/sts/" in server.asked[-1].headers["authorization"]  # the partition of the role's ARN


# --- At their real addresses ---

REAL = """
import sys, threading, http.server
sys.path.insert(0, sys.argv[1])
from aws_stubs import Handler, Server, credentials, clean_environment, lookup, key_json, metadata
import pathlib, json
def serve(address, answer):
    server = Server((address, 80), Handler)
    server.answer, server.asked, server.lock, server.let_go = answer, [], threading.Lock(), threading.Event()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
imds = serve("169.254.169.254", metadata(paths={"/latest/meta-data/placement/region": "eu-west-1"}))
ecs = serve("169.254.170.2", lambda asked: (200, key_json("ECS")))
pod = serve("169.254.170.23", lambda asked: (200, key_json("POD")))
folder = pathlib.Path(sys.argv[2])
def env(**more):
    e = clean_environment(folder, http_proxy="http://127.0.0.1:9", HTTP_PROXY="http://127.0.0.1:9", **more)
    del e["AWS_EC2_METADATA_SERVICE_ENDPOINT"]
    return e
print(credentials(env())["access_key"], lookup(env(), "region")["text"])
print(credentials(env(AWS_CONTAINER_CREDENTIALS_RELATIVE_URI="/v2/x"))["access_key"], ecs.asked)
print(credentials(env(AWS_CONTAINER_CREDENTIALS_FULL_URI="http://169.254.170.23/v1/credentials"))["access_key"], pod.asked)
"""
SETUP = "ip link set lo up && for a in 169.254.169.254 169.254.170.2 169.254.170.23; do ip addr add $a/32 dev lo; done && " \
        'exec "$@"'


def test_the_real_addresses_in_a_network_of_our_own(tmp_path):
    there = subprocess.run(["unshare", "-n", "sh", "-c", SETUP, "sh", "true"], capture_output=True)
    if there.returncode != 0:
        pytest.skip("no network namespaces here")
    done = subprocess.run(["unshare", "-n", "sh", "-c", SETUP, "sh", sys.executable, "-c", REAL,
                           pathlib.Path(__file__).parent, tmp_path], capture_output=True, text=True, timeout=60 * SLOW)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "AKIMDS eu-west-1\nAKECS [GET /v2/x]\nAKPOD [GET /v1/credentials]\n"
