"""Opens COUNT connections through the agent's proxy and then up to MORE to the host's port itself, until one is refused.
Prints what became of it; where it says "now", the host looks and sends a line, the first time COUNT and MORE."""

import os
import resource
import socket
import subprocess
import sys

AT_ONCE = 50
resource.setrlimit(resource.RLIMIT_NOFILE, (65536, 65536))


def say(*words):
    print(*words, flush=True)


def now(what):
    say("now", what)
    return sys.stdin.readline()


def agent_kib():
    with open("/proc/1/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))


def dial(through_agent):
    if through_agent:
        made = socket.create_connection(("127.0.0.1", 1080))
    else:
        made = socket.socket(socket.AF_VSOCK)
        made.connect((2, 1080))
    made.settimeout(600)
    made.sendall(b"CONNECT 44.128.0.2:9000 HTTP/1.1\r\nHost: 44.128.0.2:9000\r\n\r\n")
    return made


def answer(made):
    text = b""
    while b"\r\n\r\n" not in text and (part := made.recv(4096)):
        text += part
    return text.decode("latin-1")


def carry(connections):
    """A byte to the server and back on every one; not one that TLS begins with."""
    carried = 0
    for begin in range(0, len(connections), AT_ONCE):
        some = connections[begin:begin + AT_ONCE]
        for number, made in enumerate(some):
            made.sendall(bytes([65 + number]))
        carried += sum(made.recv(1) == bytes([65 + number]) for number, made in enumerate(some))
    return carried


held, before = [], agent_kib()
count, more = map(int, now("at rest").split())
while len(held) < count:
    some = [dial(True) for _ in range(AT_ONCE)]
    for made in some:
        assert answer(made).startswith("HTTP/1.1 200"), len(held)
    held += some
say("carried", carry(held), "agent", (agent_kib() - before) * 1024 // count, "bytes each")
now("crowded")
refusal = None
while refusal is None and len(held) < count + more:
    some = [dial(False) for _ in range(AT_ONCE)]
    for made in some:
        text = answer(made)
        if text.startswith("HTTP/1.1 200"):
            held.append(made)
        elif refusal is None:
            refusal = text
say("refused after", len(held), "with", refusal.split("\r\n")[0] if refusal else "nothing")
say([line for line in (refusal or "").split("\r\n") if line.startswith("x-anchorhold-reason")])
through_agent = answer(dial(True))
say("and the agent's:", through_agent.split("\r\n")[0])
say("a command:", subprocess.run(["echo", "runs"], capture_output=True, text=True).stdout.strip())
for made in held[::100]:
    made.close()
held = [made for made in held if made.fileno() >= 0]
say("still carried", carry(held), "of", len(held))
while not (text := answer(dial(False))).startswith("HTTP/1.1 200"):
    assert text.startswith("HTTP/1.1 503") or not text, text  # the closed ones are on their way
say("after some were closed:", os.popen("curl -sS --max-time 300 http://44.128.0.2/").read())
now("full")
for made in held:
    made.close()
say("after all were closed:", os.popen("curl -sS --max-time 300 http://44.128.0.2/").read())
now("empty")
