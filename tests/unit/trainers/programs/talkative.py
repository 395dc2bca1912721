"""Says its secret in every way: by Python, by a child, from C, in pieces, and in its last words."""

import atexit
import base64
import ctypes
import json
import logging
import os
import signal
import subprocess
import sys
import urllib.parse


def says():
    secret = os.environ["TOKEN"]
    sys.stdout.write(f"plain {secret}\n")
    logging.error("logged %s", secret)
    forms = (json.dumps({"token": secret}), repr(secret), urllib.parse.quote(secret, safe=""), secret.encode().hex())
    sys.stdout.write(f"{forms}\n")
    sys.stdout.write(f"{base64.b64encode(secret.encode())!r} {base64.urlsafe_b64encode(b'me:' + secret.encode())!r}\n")
    sys.stdout.write("in pieces " + secret[:9])
    sys.stdout.flush()
    os.write(1, secret[9:].encode() + b"\n")
    subprocess.run(["sh", "-c", 'echo "child $TOKEN" >&2'], check=True)
    ctypes.CDLL(None).write(1, b"from C " + secret.encode() + b"\n", len(secret) + 8)
    return secret


def raises():
    secret = says()
    atexit.register(lambda: os.write(1, f"at exit {secret}\n".encode()))
    raise ValueError(f"401 for https://me:{urllib.parse.quote(secret, safe='')}@host with {secret}")


def dies():
    secret = says()
    for number in range(2000):
        sys.stdout.write(f"line {number}\n")
    sys.stdout.write(f"last word {secret} end")
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)
