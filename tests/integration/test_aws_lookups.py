"""Region and cluster (tests/tools/aws_probe.c): which place is asked, in which order, and that nobody is asked for what is
known."""
import json

import pytest

from aws_stubs import assert_signed, clean_environment, lookup, metadata, serving

pytestmark = pytest.mark.faults
STATIC = {"AWS_ACCESS_KEY_ID": "AKENV", "AWS_SECRET_ACCESS_KEY": "secret/env", "AWS_SESSION_TOKEN": "to/ken="}
REGION_PATH = "/latest/meta-data/placement/region"
DOCUMENT_PATH = "/latest/dynamic/instance-identity/document"
TASK = json.dumps({"Cluster": "arn:aws:ecs:eu-north-1:123456789012:cluster/production",
                   "TaskARN": "arn:aws:ecs:eu-north-1:123456789012:task/production/5f3b"})


def imds_at(server):
    return {"AWS_EC2_METADATA_SERVICE_ENDPOINT": server.url}


# --- Region ---

def test_the_region_is_looked_for_in_order_and_nobody_is_asked_for_what_is_known(tmp_path):
    (tmp_path / "config").write_text("[default]\nregion = eu-west-3\n[profile p]\nregion = eu-west-2\n")
    with serving(metadata(paths={REGION_PATH: "ap-south-1"})) as imds, serving(lambda asked: (200, TASK)) as task:
        layers = [
            ("us-west-1", ["--configured", "us-west-1"], {}, []),
            ("us-west-2", [], {"AWS_REGION": "us-west-2"}, []),
            ("us-east-2", [], {"AWS_DEFAULT_REGION": "us-east-2"}, []),
            ("eu-west-3", [], {"AWS_CONFIG_FILE": tmp_path / "config"}, []),
            ("eu-north-1", [], {"ECS_CONTAINER_METADATA_URI_V4": task.url + "/v4/id"}, [task]),
            ("ap-south-1", [], imds_at(imds), [imds]),
        ]
        for i, (region, args, _, asked) in enumerate(layers):
            env = {k: v for _, _, more, _ in layers[i:] for k, v in more.items()}
            answer = lookup(clean_environment(tmp_path, **env), "region", *args)
            assert answer == {"text": region, "error": ""}
            assert [s for s in (imds, task) if s.asked] == asked
            imds.asked.clear(), task.asked.clear()
        answer = lookup(clean_environment(tmp_path, AWS_CONFIG_FILE=tmp_path / "config", AWS_PROFILE="p"), "region")
        assert answer["text"] == "eu-west-2"


def test_older_ways_to_the_region(tmp_path):
    with serving(lambda asked: (200, TASK)) as task:
        answer = lookup(clean_environment(tmp_path, ECS_CONTAINER_METADATA_URI=task.url + "/v3"), "region")
        assert answer["text"] == "eu-north-1" and [repr(a) for a in task.asked] == ["GET /v3/task"]
    document = json.dumps({"accountId": "1", "region": "ca-west-1"})
    with serving(metadata(paths={DOCUMENT_PATH: document})) as imds:
        assert lookup(clean_environment(tmp_path, **imds_at(imds)), "region")["text"] == "ca-west-1"
        assert [a.path for a in imds.asked] == ["/latest/api/token", REGION_PATH, DOCUMENT_PATH]  # one token


def test_a_region_nowhere_names_every_place(tmp_path):
    answer = lookup(clean_environment(tmp_path), "region")
    assert answer == {"text": "", "error": (
        "region not found: not configured; AWS_REGION and AWS_DEFAULT_REGION are not set; the profile has none; "
        "ECS_CONTAINER_METADATA_URI_V4 is not set; instance metadata at http://127.0.0.1:9: nothing answers; "
        "its identity document: not asked for")}


@pytest.mark.parametrize("text", ["", "not a region", "a/b", "<html>"])
def test_what_is_no_region_is_not_taken_for_one(tmp_path, text):
    with serving(metadata(paths={REGION_PATH: text, DOCUMENT_PATH: json.dumps({"region": text})})) as imds:
        answer = lookup(clean_environment(tmp_path, **imds_at(imds)), "region")
        assert answer["text"] == "" and "no region" in answer["error"]


@pytest.mark.parametrize("answer", [(500, ""), (200, "no JSON"), (200, "[]"), (200, '{"TaskARN": "arn:aws"}'), (404, "")])
def test_ecs_metadata_that_does_not_help_is_passed_over(tmp_path, answer):
    with serving(lambda asked: answer) as task, serving(metadata(paths={REGION_PATH: "ap-south-1"})) as imds:
        env = clean_environment(tmp_path, ECS_CONTAINER_METADATA_URI_V4=task.url, **imds_at(imds))
        assert lookup(env, "region")["text"] == "ap-south-1"


# --- Cluster ---

def tags_xml(tags, next_token=None):
    items = "".join(f"<item><resourceId>i-1</resourceId><resourceType>instance</resourceType><key>{k}</key>"
                    f"<value>{v}</value></item>" for k, v in tags)
    more = f"<nextToken>{next_token}</nextToken>" if next_token else ""
    return ('<?xml version="1.0" encoding="UTF-8"?>\n<DescribeTagsResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">'
            f"<requestId>1</requestId><tagSet>{items}</tagSet>{more}</DescribeTagsResponse>")


def ec2_error(code, message="no"):
    return f"<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors></Response>"


def instance(**more):
    return metadata(paths={"/latest/meta-data/instance-id": "i-0abc123"}, **more)


def cluster(tmp_path, ec2, imds, *args, **more):
    env = clean_environment(tmp_path, **{**STATIC, "AWS_ENDPOINT_URL_EC2": ec2.url, **imds_at(imds), **more})
    return lookup(env, "cluster", "--region", "eu-central-1", *args)


def test_the_cluster_that_is_known_is_not_asked_for(tmp_path):
    with serving(lambda asked: (500, "")) as ec2, serving(instance()) as imds:
        assert cluster(tmp_path, ec2, imds, "--configured", "mine", K8S_CLUSTER_NAME="other")["text"] == "mine"
        assert cluster(tmp_path, ec2, imds, K8S_CLUSTER_NAME="other")["text"] == "other"
        assert ec2.asked == [] and imds.asked == []


def test_the_cluster_by_the_instances_tags_signed_as_botocore_signs(tmp_path):
    with serving(lambda asked: (200, tags_xml([("Name", "x"), ("kubernetes.io/cluster/train", "owned")]))) as ec2, \
            serving(instance()) as imds:
        assert cluster(tmp_path, ec2, imds) == {"text": "train", "error": ""}
        [asked] = ec2.asked
        assert asked.body == (b"Action=DescribeTags&Version=2016-11-15&MaxResults=50&Filter.1.Name=resource-id"
                              b"&Filter.1.Value.1=i-0abc123")
        assert_signed(asked, ec2.url, ("AKENV", "secret/env", "to/ken="), "ec2", "eu-central-1")


def test_pages_of_tags_are_followed_to_the_one(tmp_path):
    def answer(asked):
        page = len(ec2.asked)
        return 200, tags_xml([("kubernetes.io/cluster/train", "owned" if page == 3 else "shared")],
                             f"tok/{page}=&amp;+" if page < 5 else None)
    with serving(answer) as ec2, serving(instance()) as imds:
        assert cluster(tmp_path, ec2, imds)["text"] == "train"
        assert [a.body.decode().partition("&NextToken=")[2] for a in ec2.asked] == ["", "tok%2F1%3D%26%2B", "tok%2F2%3D%26%2B"]
        for asked in ec2.asked:
            assert_signed(asked, ec2.url, ("AKENV", "secret/env", "to/ken="), "ec2", "eu-central-1")


def test_endless_pages_end(tmp_path):
    with serving(lambda asked: (200, tags_xml([], "again"))) as ec2, serving(instance()) as imds:
        answer = cluster(tmp_path, ec2, imds)
        assert answer["text"] == "" and "has no tag" in answer["error"]
        assert len(ec2.asked) == 16


@pytest.mark.parametrize("fault", [(500, ""), (503, ec2_error("RequestLimitExceeded")), (400, ec2_error("RequestLimitExceeded"))])
def test_tags_are_asked_for_again_when_it_may_help(tmp_path, fault):
    left = [fault, (200, tags_xml([("kubernetes.io/cluster/c", "owned")]))]
    with serving(lambda asked: left.pop(0)) as ec2, serving(instance()) as imds:
        assert cluster(tmp_path, ec2, imds)["text"] == "c"


def test_tags_that_are_refused_are_asked_for_once_and_ecs_is_next(tmp_path):
    with serving(lambda asked: (403, ec2_error("UnauthorizedOperation", "You may not"))) as ec2, \
            serving(instance()) as imds, serving(lambda asked: (200, TASK)) as task:
        answer = cluster(tmp_path, ec2, imds)
        assert answer["text"] == "" and "DescribeTags: UnauthorizedOperation: You may not" in answer["error"]
        assert len(ec2.asked) == 1
        assert cluster(tmp_path, ec2, imds, ECS_CONTAINER_METADATA_URI_V4=task.url)["text"] == "production"


def test_ec2_that_is_down_is_asked_five_times(tmp_path):
    with serving(lambda asked: (500, "")) as ec2, serving(instance()) as imds:
        answer = cluster(tmp_path, ec2, imds)
        assert answer["text"] == "" and len(ec2.asked) == 5


def test_without_metadata_or_keys_the_reasons_are_told(tmp_path):
    with serving(lambda asked: (500, "")) as ec2, serving(instance(role=None)) as imds:
        answer = cluster(tmp_path, ec2, imds, AWS_EC2_METADATA_DISABLED="true")
        assert answer["error"] == ("cluster not found: not configured; K8S_CLUSTER_NAME is not set; instance metadata: "
                                   "AWS_EC2_METADATA_DISABLED is true; ECS_CONTAINER_METADATA_URI_V4 is not set")
        answer = cluster(tmp_path, ec2, imds, AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY="")
        assert "DescribeTags: no AWS credentials: " in answer["error"]
        assert ec2.asked == []


@pytest.mark.parametrize("body", ["", "<a/>", "no XML", tags_xml([]).replace("</tagSet>", "")])
def test_answers_that_are_no_tags(tmp_path, body):
    with serving(lambda asked: (200, body)) as ec2, serving(instance()) as imds:
        assert cluster(tmp_path, ec2, imds)["text"] == ""


def test_keys_of_the_instance_are_waited_for(tmp_path):
    with serving(lambda asked: (200, tags_xml([("kubernetes.io/cluster/c", "owned")]))) as ec2, \
            serving(instance()) as imds:
        answer = cluster(tmp_path, ec2, imds, AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY="", AWS_SESSION_TOKEN="")
        assert answer["text"] == "c"
        assert "Credential=AKIMDS/" in ec2.asked[0].headers["authorization"]
