# SPDX-License-Identifier: Apache-2.0
"""Protobuf of the kubelet's Pods API (k8s.io/kubelet/pkg/apis/pods/v1alpha1) and of the Pods in it: field numbers of
k8s.io/api/core/v1 and k8s.io/apimachinery/pkg/apis/meta/v1, for google.protobuf."""
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

import pods

FIELD = descriptor_pb2.FieldDescriptorProto
KINDS = {"string": FIELD.TYPE_STRING, "bytes": FIELD.TYPE_BYTES, "bool": FIELD.TYPE_BOOL, "int32": FIELD.TYPE_INT32,
         "int64": FIELD.TYPE_INT64}

# message: {number: (name, type)}; "*" in front of a type: repeated.
SHAPES = {
    "Entry": {1: ("key", "string"), 2: ("value", "string")},
    "Time": {1: ("seconds", "int64"), 2: ("nanos", "int32")},
    "OwnerReference": {1: ("kind", "string"), 3: ("name", "string"), 4: ("uid", "string"), 5: ("apiVersion", "string"),
                       6: ("controller", "bool"), 7: ("blockOwnerDeletion", "bool")},
    "ObjectMeta": {1: ("name", "string"), 3: ("namespace", "string"), 5: ("uid", "string"),
                   6: ("resourceVersion", "string"), 8: ("creationTimestamp", "Time"), 11: ("labels", "*Entry"),
                   12: ("annotations", "*Entry"), 13: ("ownerReferences", "*OwnerReference")},
    "EnvVar": {1: ("name", "string"), 2: ("value", "string")},
    "Container": {1: ("name", "string"), 2: ("image", "string"), 7: ("env", "*EnvVar"), 24: ("restartPolicy", "string")},
    "PodResourceClaim": {1: ("name", "string"), 4: ("resourceClaimTemplateName", "string")},
    "PodSpec": {2: ("containers", "*Container"), 10: ("nodeName", "string"), 20: ("initContainers", "*Container"),
                39: ("resourceClaims", "*PodResourceClaim")},
    "ContainerStatus": {1: ("name", "string"), 4: ("ready", "bool"), 5: ("restartCount", "int32"), 6: ("image", "string"),
                        7: ("imageID", "string"), 8: ("containerID", "string")},
    "PodResourceClaimStatus": {1: ("name", "string"), 2: ("resourceClaimName", "string")},
    "PodStatus": {1: ("phase", "string"), 8: ("containerStatuses", "*ContainerStatus"), 9: ("qosClass", "string"),
                  10: ("initContainerStatuses", "*ContainerStatus"),
                  15: ("resourceClaimStatuses", "*PodResourceClaimStatus")},
    "Pod": {1: ("metadata", "ObjectMeta"), 2: ("spec", "PodSpec"), 3: ("status", "PodStatus")},
    "ListPodsResponse": {1: ("pods", "*bytes")},
    "GetPodRequest": {1: ("podUID", "string")},
    "GetPodResponse": {1: ("pod", "bytes")},
    "WatchPodsEvent": {1: ("type", "int32"), 2: ("pod", "bytes")},
}
ADDED, MODIFIED, DELETED, INITIAL_SYNC_COMPLETE = 1, 2, 3, 4


def _classes():
    f = descriptor_pb2.FileDescriptorProto(name="sim/pods.proto", package="sim.pods", syntax="proto3")
    for name, fields in SHAPES.items():
        message = f.message_type.add(name=name)
        for number, (field, kind) in fields.items():
            label = FIELD.LABEL_REPEATED if kind[0] == "*" else FIELD.LABEL_OPTIONAL
            kind = kind.lstrip("*")
            added = message.field.add(name=field, number=number, label=label, type=KINDS.get(kind, FIELD.TYPE_MESSAGE))
            if kind not in KINDS:
                added.type_name = f".sim.pods.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(f)
    factory = message_factory.MessageFactory(pool)
    return {name: factory.GetPrototype(pool.FindMessageTypeByName(f"sim.pods.{name}")) for name in SHAPES}


MESSAGES = _classes()


def _fill(out, body, shape):
    """A JSON object into a message, field by field; what the shape doesn't know is left out."""
    for field, kind in SHAPES[shape].values():
        value = body.get(field)
        if value is None:
            continue
        if kind == "Time":
            out.creationTimestamp.seconds = pods.created_seconds()
        elif kind == "*Entry":
            for key, text in value.items():
                getattr(out, field).add(key=key, value=text)
        elif kind[0] == "*":
            for item in value:
                _fill(getattr(out, field).add(), item, kind[1:])
        elif kind in KINDS:
            setattr(out, field, value)
        else:
            getattr(out, field).SetInParent()
            _fill(getattr(out, field), value, kind)


def pod_bytes(body):
    """A Pod as JSON has it, as bare protobuf."""
    out = MESSAGES["Pod"]()
    _fill(out, body, "Pod")
    return out.SerializeToString(deterministic=True)
