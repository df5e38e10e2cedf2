"""Evaluates Python expressions with nvidia-ml-py on a simulated node: one per line on stdin, JSON answers on stdout.

Names: everything of pynvml, h (handles of the GPUs), m (MIG handles of GPU 0), c (ctypes), raw(symbol, *arguments) for
a call that nvidia-ml-py has no wrapper of, keep (a dict to remember things in), both(struct, code) for both at once.
"""
import ctypes as c
import json
import math
import sys

import pynvml
from pynvml import *  # noqa: F403

keep = {}


def raw(symbol, *arguments):
    return getattr(pynvml.nvmlLib, symbol)(*arguments)


def filled(struct, call):
    """The struct after call(struct); its return code goes first."""
    return [call(c.byref(struct)), struct]


def plain(value):
    if isinstance(value, (pynvml.c_nvmlDevice_t, pynvml.c_nvmlGpmSample_t, pynvml.c_nvmlEventSet_t)):
        return "handle"
    if isinstance(value, c.Structure):
        return {name[0]: plain(getattr(value, name[0])) for name in value._fields_}
    if isinstance(value, c._SimpleCData):
        return plain(value.value)
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, c.Union):
        return {name[0]: plain(getattr(value, name[0])) for name in value._fields_}
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, (list, tuple, c.Array)):
        return [plain(v) for v in value]
    if isinstance(value, c._Pointer):
        return "pointer"
    if hasattr(value, "__dict__"):
        return {k: plain(v) for k, v in vars(value).items()}
    return value


def evaluate(line):
    try:
        return {"value": plain(eval(line, globals()))}  # the test's own text
    except pynvml.NVMLError as error:
        return {"code": error.value}
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}"}


for line in sys.stdin:
    print(json.dumps(evaluate(line)), flush=True)
