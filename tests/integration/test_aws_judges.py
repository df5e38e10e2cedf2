"""AWS credentials, look-ups and endpoints judged by others: botocore finds the same keys and the same endpoints, moto
answers the calls to STS and EC2."""
import contextlib
import json
import subprocess
import sys

import boto3
import botocore.endpoint_provider
import botocore.exceptions
import botocore.session
import pytest
from moto.server import ThreadedMotoServer

from aws_stubs import clean_environment, credentials, form, key_json, keys, lookup, metadata, serving, sts_xml

REGION = "eu-central-1"
STATIC = {"AWS_ACCESS_KEY_ID": "AKENV", "AWS_SECRET_ACCESS_KEY": "secret/env"}


# --- botocore's resolver ---

RESOLVE = """
import sys, json, botocore.session
try:
    c = botocore.session.Session().get_credentials()
    c = c and c.get_frozen_credentials()
    print(json.dumps([c.access_key, c.secret_key, c.token or ""] if c else None))
except Exception as e:
    print(json.dumps(["error", type(e).__name__]))
"""

CREDENTIALS = """
; the usual file
[default]
aws_access_key_id = AKDEF
aws_secret_access_key = s/def+=

[both]
aws_access_key_id=AKBOTH
aws_secret_access_key=sb
aws_session_token = tb==
  # indented
[upper]
AWS_ACCESS_KEY_ID = AKUP
AWS_Secret_Access_Key = su
[colon]
aws_access_key_id: AKCOLON
aws_secret_access_key: sc
[indent]
    aws_access_key_id = AKIND
    aws_secret_access_key = si
[nested]
aws_access_key_id = AKNEST
s3 =
    aws_access_key_id = WRONG
aws_secret_access_key = sn
[with space]
aws_access_key_id = AKSPACE
aws_secret_access_key = sp
[empty]
"""
CONFIG = """
[default]
region = eu-west-3
aws_access_key_id = AKCONF
aws_secret_access_key = conf
[profile conf]
aws_access_key_id = AKC
aws_secret_access_key = c
[profile "quoted name"]
aws_access_key_id = AKQ
aws_secret_access_key = q
[notaprofile]
aws_access_key_id = AKNO
aws_secret_access_key = no
[profile both]
aws_access_key_id = WRONG
aws_secret_access_key = wrong
[profile inst]
role_arn = arn:aws:iam::1:role/inst
credential_source = Ec2InstanceMetadata
[profile chain]
role_arn = arn:aws:iam::1:role/chain
source_profile = both
[profile web]
role_arn = arn:aws:iam::1:role/web
web_identity_token_file = {folder}/token
"""


@contextlib.contextmanager
def world(tmp_path):
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(CREDENTIALS)
    (tmp_path / ".aws" / "config").write_text(CONFIG.format(folder=tmp_path))
    (tmp_path / "token").write_text("a.b.c")
    (tmp_path / "pod").write_text("pod-token")

    def sts(asked):
        fields = form(asked)
        return 200, sts_xml(fields["RoleArn"].rsplit("/", 1)[1].upper(), fields["Action"])
    with serving(sts) as s, serving(metadata()) as i, serving(lambda asked: (200, key_json("POD"))) as p:
        yield clean_environment(tmp_path, AWS_ENDPOINT_URL_STS=s.url, AWS_EC2_METADATA_SERVICE_ENDPOINT=i.url + "/",
                                AWS_REGION=REGION, AWS_DEFAULT_REGION=REGION), p.url


NONE = {"AWS_SHARED_CREDENTIALS_FILE": "/none", "AWS_CONFIG_FILE": "/none"}
WEB = {"AWS_ROLE_ARN": "arn:aws:iam::1:role/irsa", "AWS_WEB_IDENTITY_TOKEN_FILE": "{folder}/token"}
POD = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "{pod}/v1", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": "{folder}/pod"}


@pytest.mark.parametrize("more,access", [
    ({}, "AKDEF"),
    (STATIC, "AKENV"),
    ({**STATIC, "AWS_SESSION_TOKEN": "tt"}, "AKENV"),
    ({**STATIC, **WEB, **POD}, "AKENV"),
    ({"AWS_PROFILE": "both"}, "AKBOTH"),
    ({"AWS_DEFAULT_PROFILE": "both"}, "AKBOTH"),
    ({**STATIC, "AWS_PROFILE": "both"}, "AKENV"),
    ({"AWS_PROFILE": "upper"}, "AKUP"),
    ({"AWS_PROFILE": "colon"}, "AKCOLON"),
    ({"AWS_PROFILE": "indent"}, "AKIND"),
    ({"AWS_PROFILE": "nested"}, "AKNEST"),
    ({"AWS_PROFILE": "with space"}, "AKSPACE"),
    ({"AWS_PROFILE": "conf"}, "AKC"),
    ({"AWS_PROFILE": "quoted name"}, "AKQ"),
    ({"AWS_PROFILE": "empty"}, "AKIMDS"),
    ({"AWS_PROFILE": "inst"}, "AKINST"),
    ({"AWS_PROFILE": "chain"}, "AKCHAIN"),
    ({"AWS_PROFILE": "web"}, "AKWEB"),
    ({"AWS_SHARED_CREDENTIALS_FILE": "/none"}, "AKCONF"),
    ({**NONE}, "AKIMDS"),
    ({**NONE, **WEB}, "AKIRSA"),
    ({**NONE, **POD}, "AKPOD"),
    ({**NONE, **WEB, **POD}, "AKIRSA"),
    ({**NONE, "AWS_EC2_METADATA_DISABLED": "true"}, "nobody"),
    ({"AWS_PROFILE": "missing"}, "error"),
    ({"AWS_PROFILE": "notaprofile"}, "error"),
])
def test_botocore_finds_the_same_keys(tmp_path, more, access):
    with world(tmp_path) as (env, pod):
        env.update({k: v.format(folder=tmp_path, pod=pod) for k, v in more.items()})
        theirs = subprocess.run([sys.executable, "-c", RESOLVE], env=env, capture_output=True, text=True, check=True)
        theirs = json.loads(theirs.stdout)
        ours = credentials(env)
        if access == "error":
            assert theirs[0] == "error" and ours["result"] == "failed", (theirs, ours)
        elif access == "nobody":
            assert theirs is None and ours["result"] == "none", (theirs, ours)
        else:
            assert list(keys(ours)) == theirs and theirs[0] == access


# --- Endpoints ---

def endpoint(tmp_path, service, region, *args, **env):
    return lookup(clean_environment(tmp_path, **env), "endpoint", service, region, *args)["url"]


@pytest.mark.parametrize("region", ["us-east-1", "eu-central-1", "ap-southeast-4", "mx-central-1"])
def test_the_endpoints_of_the_table(tmp_path, region):
    fips, dual = {"AWS_USE_FIPS_ENDPOINT": "true"}, {"AWS_USE_DUALSTACK_ENDPOINT": "true"}
    for service in ("logs", "sts", "monitoring", "aps-workspaces"):
        assert endpoint(tmp_path, service, region) == f"https://{service}.{region}.amazonaws.com"
        assert endpoint(tmp_path, service, region, **dual) == f"https://{service}.{region}.api.aws"
        assert endpoint(tmp_path, service, region, "--dualstack") == f"https://{service}.{region}.api.aws"
        assert endpoint(tmp_path, service, region, **fips) == f"https://{service}-fips.{region}.amazonaws.com"
        assert endpoint(tmp_path, service, region, **fips, **dual) == f"https://{service}-fips.{region}.api.aws"


@pytest.mark.parametrize("region", ["us-east-1", "eu-central-1", "ca-central-1", "cn-north-1", "cn-northwest-1",
                                    "us-gov-west-1", "us-gov-east-1", "us-iso-east-1", "us-isob-east-1", "eusc-de-east-1",
                                    "us-isof-south-1", "eu-isoe-west-1"])
@pytest.mark.parametrize("fips,dual", [(False, False), (True, False), (False, True), (True, True)])
def test_endpoints_are_botocores(tmp_path, region, fips, dual):
    loader = botocore.session.Session().get_component("data_loader")
    for service in ("logs", "sts", "ec2"):
        rules = loader.load_service_model(service, "endpoint-rule-set-1")
        provider = botocore.endpoint_provider.EndpointProvider(rules, loader.load_data("partitions"))
        asked = {"Region": region, "UseFIPS": fips, "UseDualStack": dual}
        if service == "sts":
            asked["UseGlobalEndpoint"] = False
        try:
            theirs = provider.resolve_endpoint(**asked).url
        except botocore.exceptions.EndpointProviderError:  # there is no such endpoint
            continue
        env = {name: "true" for name, on in (("AWS_USE_FIPS_ENDPOINT", fips), ("AWS_USE_DUALSTACK_ENDPOINT", dual)) if on}
        assert endpoint(tmp_path, service, region, **env) == theirs, service


def test_endpoints_that_are_given(tmp_path):
    mine = "http://127.0.0.1:4566"
    for service, variable in (("logs", "AWS_ENDPOINT_URL_CLOUDWATCH_LOGS"), ("sts", "AWS_ENDPOINT_URL_STS"),
                              ("ec2", "AWS_ENDPOINT_URL_EC2"), ("logs", "AWS_ENDPOINT_URL")):
        assert endpoint(tmp_path, service, REGION, **{variable: mine + "/"}) == mine
        assert endpoint(tmp_path, service, REGION, **{variable: mine, "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"}) == \
            f"https://{service}.{REGION}.amazonaws.com"
    both = {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_ENDPOINT_URL_STS": mine}
    assert endpoint(tmp_path, "sts", REGION, **both) == mine
    assert endpoint(tmp_path, "ec2", REGION, **both) == "http://127.0.0.1:1"


@pytest.mark.parametrize("region", ["", "-a", "a/b", "x@y", "a.b", "UP", "x" * 64])
def test_what_is_no_region_makes_no_endpoint(tmp_path, region):
    assert endpoint(tmp_path, "sts", region) == ""


# --- moto ---

@pytest.fixture(scope="module")
def moto():
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


def test_moto_gives_a_role(tmp_path, moto):
    env = clean_environment(tmp_path, **STATIC, AWS_ENDPOINT_URL_STS=moto)
    answer = credentials(env, "--role", "arn:aws:iam::123456789012:role/podgpu", "--region", REGION)
    access, secret, token = keys(answer)
    who = boto3.client("sts", endpoint_url=moto, region_name=REGION, aws_access_key_id=access,
                       aws_secret_access_key=secret, aws_session_token=token).get_caller_identity()
    assert who["Arn"].startswith("arn:aws:sts::123456789012:assumed-role/podgpu/podgpu-agent-")


def test_moto_gives_a_role_for_a_token(tmp_path, moto):
    (tmp_path / "token").write_text("a.b.c")
    env = clean_environment(tmp_path, AWS_ROLE_ARN="arn:aws:iam::123456789012:role/web", AWS_REGION=REGION,
                            AWS_WEB_IDENTITY_TOKEN_FILE=tmp_path / "token", AWS_ENDPOINT_URL_STS=moto)
    access, secret, token = keys(credentials(env))
    assert access.startswith("ASIA") and len(secret) == 40 and len(token) > 100


@pytest.mark.parametrize("tags,cluster", [
    ([("kubernetes.io/cluster/training", "owned"), ("Name", "n")], "training"),
    ([("Name", "n"), ("kubernetes.io/cluster/a<b>&c", "owned")], "a<b>&c"),
    ([("kubernetes.io/cluster/shared", "shared"), ("kubernetes.io/cluster/", "owned")], ""),
    ([("Name", "n")], ""),
])
def test_moto_tells_the_cluster(tmp_path, moto, tags, cluster):
    ec2 = boto3.client("ec2", endpoint_url=moto, region_name=REGION, aws_access_key_id="a", aws_secret_access_key="b")
    image = ec2.describe_images()["Images"][0]["ImageId"]
    instance = ec2.run_instances(ImageId=image, MinCount=1, MaxCount=1)["Instances"][0]["InstanceId"]
    ec2.create_tags(Resources=[instance], Tags=[{"Key": k, "Value": v} for k, v in tags])
    with serving(metadata(paths={"/latest/meta-data/instance-id": instance})) as imds:
        env = clean_environment(tmp_path, **STATIC, AWS_ENDPOINT_URL_EC2=moto,
                                AWS_EC2_METADATA_SERVICE_ENDPOINT=imds.url)
        answer = lookup(env, "cluster", "--region", REGION)
        assert answer["text"] == cluster
        assert (answer["error"] == "") == (cluster != "")
        if not cluster:
            assert "the instance has no tag kubernetes.io/cluster/NAME = owned" in answer["error"]
