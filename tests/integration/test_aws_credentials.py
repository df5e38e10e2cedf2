"""AWS credentials on the loop (tests/tools/aws_probe.c) against stub servers: environment, shared files, web identity,
container endpoints, instance metadata, roles; what is asked, in which order, and what is not."""
import json

import pytest

from aws_stubs import (ROLES, clean_environment, credentials, key_json, key_text, keys, metadata, probe, serving)

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
    answer = credentials(clean_environment(tmp_path))
    assert answer["result"] == "none" and answer["provider"] == ""
    assert answer["error"] == (
        "no AWS credentials: AWS_ACCESS_KEY_ID is not set; AWS_WEB_IDENTITY_TOKEN_FILE is not set; profile 'default' is "
        f"in neither file ({tmp_path}/.aws/credentials, {tmp_path}/.aws/config); AWS_CONTAINER_CREDENTIALS_FULL_URI and "
        "_RELATIVE_URI are not set; instance metadata at http://127.0.0.1:9: nothing answers")


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

def imds_environment(tmp_path, server, **more):
    return clean_environment(tmp_path, AWS_EC2_METADATA_SERVICE_ENDPOINT=server.url + "/", **more)


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
