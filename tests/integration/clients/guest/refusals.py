"""refusals.py: runs in the guest as root, which is as much as there is to be had in it. Tries to get out in every way
that must not work, by the agent's proxy and past the agent by the host's port itself, and prints what each was told: a
line of JSON each, with the status and the reason of the answer or how the connection ended, what that was to be, and
what the host is to have recorded (nothing: the reason itself)."""

import json
import os
import socket
import ssl
import struct
import sys

sys.path.insert(0, sys.argv[1] + "/usr/lib/python3/dist-packages")
AGENT, HOST = ("127.0.0.1", 1080), (2, 1080)
PUBLIC = "44.128.0.2"
CR = "\r\n"


def dial(agent=False):
    stream = socket.socket(socket.AF_INET if agent else socket.AF_VSOCK)
    stream.settimeout(120)
    stream.connect(AGENT if agent else HOST)
    return stream


def read_answer(stream):
    """The head and what there is of the body of one response, in a connection that may stay open."""
    text = b""
    while b"\r\n\r\n" not in text:
        part = stream.recv(65536)
        if not part:
            return text.decode("latin-1")
        text += part
    head, _, body = text.partition(b"\r\n\r\n")
    size = next((int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0)
    while len(body) < size:
        part = stream.recv(65536)
        if not part:
            break
        body += part
    return (head + b"\r\n\r\n" + body[:size]).decode("latin-1")


def attempt(name, expected, how, event=None):
    """`event`: "" for what the host need not have heard of."""
    try:
        answer = how() or ""
    except (OSError, EOFError) as error:
        answer = f"{type(error).__name__}: {error}"
    told = answer
    if answer.startswith("HTTP/1.1 "):
        reason = next((line.split(":", 1)[1].strip() for line in answer.split(CR)
                       if line.lower().startswith("x-anchorhold-reason")), "")
        told = f"{answer[9:12]} {reason}"
        # A header has "?" for what is not ASCII in what was recorded.
        event = reason.rpartition("?")[2] if event is None else event
    print(json.dumps({"name": name, "expected": expected, "told": told, "event": event or "", "answer": answer[-600:]}),
          flush=True)


def raw(text, agent=False):
    with dial(agent) as stream:
        stream.sendall(text.encode("latin-1"))
        return read_answer(stream)


def head(method, target, host, *fields):
    return CR.join([f"{method} {target} HTTP/1.1", f"Host: {host}", *fields, "", ""])


def connected(target, agent=False):
    stream = dial(agent)
    stream.sendall(head("CONNECT", target, target).encode())
    answer = read_answer(stream)
    if not answer.startswith("HTTP/1.1 200"):
        raise EOFError(answer)
    return stream


def connect(target, agent=False):
    return raw(head("CONNECT", target, target), agent)


def inside(target, text):
    """In a connection that is not opened and speaks plainly."""
    with connected(target) as stream:
        stream.sendall(text.encode("latin-1"))
        return read_answer(stream)


def encrypted(target, name, protocols=("http/1.1",)):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(list(protocols))
    return context.wrap_socket(connected(target), server_hostname=name)


def inside_tls(target, name, text, times=1):
    with encrypted(target, name) as stream:
        stream.sendall(text.encode("latin-1"))
        for _ in range(times - 1):
            read_answer(stream)
        return read_answer(stream)


def http2(*requests):
    """The status and reason that the last of these requests over one opened connection gets."""
    import h2.config
    import h2.connection
    import h2.events
    with encrypted("open.test:443", "open.test", ("h2",)) as stream:
        connection = h2.connection.H2Connection(h2.config.H2Configuration(validate_outbound_headers=False))
        connection.initiate_connection()
        for authority, method in requests:
            number = connection.get_next_available_stream_id()
            fields = [(":method", method), (":authority", authority)]
            if method != "CONNECT":
                fields += [(":scheme", "https"), (":path", "/hello")]
            connection.send_headers(number, fields, end_stream=True)
        stream.sendall(connection.data_to_send())
        while True:
            received = stream.recv(65536)
            if not received:
                raise EOFError("closed")
            for event in connection.receive_data(received):
                if isinstance(event, h2.events.ResponseReceived) and event.stream_id == number:
                    fields = {name.decode(): value.decode() for name, value in event.headers}
                    return f"HTTP/1.1 {fields[':status']} -{CR}x-anchorhold-reason: {fields.get('x-anchorhold-reason', '')}{CR}{CR}"
            stream.sendall(connection.data_to_send())


def datagram(address, payload):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as stream:
        stream.settimeout(2)
        stream.connect((address, 443))
        stream.send(payload)
        return stream.recv(100).decode("latin-1")


get = head("GET", "/hello", "open.test")

NO_RULE, NO_HOST, CLOSED = "403 no rule names", "400 ", "access denied"
LEADS = "403 {} leads to {}"

# What is allowed is reached by both: what follows is refused for what it is.
attempt("allowed, past the agent", "200 ", lambda: inside_tls("open.test:443", "open.test", get))
attempt("allowed, by the agent", "200 ", lambda: connect("site.test:443", agent=True))

DESTINATIONS = {
    "no rule": ("denied.test:443", NO_RULE), "another port": ("site.test:8443", NO_RULE),
    "a name that only begins so": ("site.test.evil.test:443", NO_RULE), "a name that only ends so": ("evilsite.test:443", NO_RULE),
    "a secret as a name": ("c2VjcmV0LWRhdGEtbGVhdmVz.leak.test:443", NO_RULE),
    "port 0": ("site.test:0", NO_HOST), "port 65536": ("site.test:65536", NO_HOST), "no port": ("site.test", NO_HOST),
    "a space": ("site .test:443", NO_HOST), "an empty label": ("site..test:443", NO_HOST), "percent": ("%73ite.test:443", NO_HOST),
    "a user": ("me@site.test:443", NO_HOST), "two dots at the end": ("site.test..:443", NO_HOST),
    "a label of 64": ("a" * 64 + ".site.test:443", NO_HOST), "a name of 263": ("a." * 127 + "site.test:443", NO_HOST),
    "NUL": ("site.test\0.evil.test:443", NO_HOST), "an underscore at an end": ("a_.site.test:443", NO_HOST),
    "loopback": ("127.0.0.1:80", NO_RULE), "loopback, decimal": ("2130706433:80", NO_RULE),
    "loopback, octal": ("0177.0.0.1:80", NO_RULE), "loopback, short": ("127.1:80", NO_RULE),
    "loopback, IPv6": ("[::1]:80", NO_RULE), "localhost": ("localhost:80", NO_RULE), "private": ("10.0.0.1:443", NO_RULE),
    "metadata": ("169.254.169.254:80", NO_RULE), "metadata, decimal": ("2852039166:80", NO_RULE),
    "metadata, hex": ("0xa9fea9fe:80", NO_RULE), "metadata, octal": ("0251.0376.0251.0376:80", NO_RULE),
    "metadata, mixed": ("0xa9.254.0251.254:80", NO_RULE), "metadata, short": ("169.254.43518:80", NO_RULE),
    "metadata, mapped": ("[::ffff:169.254.169.254]:80", NO_RULE), "metadata, mapped hex": ("[::ffff:a9fe:a9fe]:80", NO_RULE),
    "metadata, NAT64": ("[64:ff9b::a9fe:a9fe]:80", NO_HOST), "metadata, 6to4": ("[2002:a9fe:a9fe::]:80", NO_HOST),
    "metadata, IPv6": ("[fd00:ec2::254]:80", NO_RULE), "metadata, a zone": ("[fe80::a9fe:a9fe%25eth0]:80", NO_HOST),
    "the host's own": ("44.128.0.1:443", NO_RULE), "an address without a rule": (PUBLIC + ":443", NO_RULE),
    "a name of metadata": ("metadata.site.test:443", LEADS.format("metadata.site.test:443", "169.254.169.254")),
    "a name of ::1": ("loop6.site.test:443", LEADS.format("loop6.site.test:443", "::1")),
    "a name of a mapped address": ("mapped.site.test:443", LEADS.format("mapped.site.test:443", "169.254.169.254")),
    "one of two addresses is private": ("mixed.site.test:443", LEADS.format("mixed.site.test:443", "10.0.0.1")),
}
for by, agent in (("by the agent", True), ("past it", False)):
    for name, (target, expected) in DESTINATIONS.items():
        attempt(f"CONNECT {by}: {name}", expected, lambda: connect(target, agent))
    attempt(f"absolute form {by}: another Host", "400 the Host field says other.test:80",
            lambda: raw(head("GET", "http://site.test/hello", "other.test"), agent))
    attempt(f"absolute form {by}: no rule", NO_RULE, lambda: raw(head("GET", "http://denied.test/", "denied.test"), agent))
    attempt(f"absolute form {by}: port 443", "403 plain HTTP does not belong on port 443",
            lambda: raw(head("GET", "http://site.test:443/", "site.test:443"), agent))
    attempt(f"origin form {by}", "400 this is a proxy", lambda: raw(head("GET", "/", "site.test"), agent))

# An answer that changes: the first is public and the one that is dialled, the second leads to the host.
attempt("rebinding: at first", "200 ", lambda: connect("rebind.site.test:443"))
attempt("rebinding: then", LEADS.format("rebind.site.test:443", "127.0.0.1"), lambda: connect("rebind.site.test:443"))

# SNI, Host and CONNECT that do not agree, each pair of them.
IS_FOR = "403 the request is for {} on a connection to {}"
attempt("SNI is not CONNECT, tunnelled", CLOSED, lambda: inside_tls("site.test:443", "open.test", get),
        "the TLS connection is for open.test")
attempt("SNI is not CONNECT, opened", CLOSED, lambda: inside_tls("open.test:443", "other.test", get),
        "the TLS connection is for other.test")
attempt("SNI and Host are not CONNECT", CLOSED, lambda: inside_tls("open.test:443", "site.test", head("GET", "/hello", "site.test")),
        "the TLS connection is for site.test")
attempt("no SNI", CLOSED, lambda: inside_tls("site.test:443", None, get), "does not say that it is for site.test")
attempt("Host is not CONNECT and SNI", IS_FOR.format("site.test:443", "open.test:443"),
        lambda: inside_tls("open.test:443", "open.test", head("GET", "/hello", "site.test")))
attempt("Host names another port", IS_FOR.format("open.test:8443", "open.test:443"),
        lambda: inside_tls("open.test:443", "open.test", head("GET", "/hello", "open.test:8443")))
attempt("Host is not CONNECT, plain", IS_FOR.format("other.test:80", "site.test:80"),
        lambda: inside("site.test:80", head("GET", "/hello", "other.test")))
attempt("HTTP/2: another authority", IS_FOR.format("site.test:443", "open.test:443"),
        lambda: http2(("open.test", "GET"), ("site.test", "GET")))
attempt("HTTP/2: a name of the same certificate", IS_FOR.format("other.test:443", "open.test:443"),
        lambda: http2(("open.test", "GET"), ("other.test", "GET")))
attempt("HTTP/2: nested CONNECT", "403 ", lambda: http2(("open.test", "GET"), ("denied.test:443", "CONNECT")))
attempt("WebSocket to another host", IS_FOR.format("other.test:443", "open.test:443"),
        lambda: inside_tls("open.test:443", "open.test", head(
            "GET", "/socket", "other.test", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")))

# What the rule of an opened connection does not allow.
PATH = "403 the path is not allowed"
attempt("method", "403 the method DELETE is not allowed",
        lambda: inside_tls("open.test:443", "open.test", head("DELETE", "/hello", "open.test")))
for path in ("/secret/x", "/git/../secret/x", "/%73ecret/x", "/git/%2e%2e/secret/x", "//hello"):
    attempt("path " + path, "40", lambda: inside_tls("open.test:443", "open.test", head("GET", path, "open.test")))
attempt("header", "403 ", lambda: inside_tls("open.test:443", "open.test", head(
    "GET", "/hello", "open.test", "X-Fetch-Url: http://evil.test/")))
attempt("nested CONNECT", "there is one proxy", lambda: inside_tls("open.test:443", "open.test", head(
    "CONNECT", "denied.test:443", "denied.test:443")))
attempt("nested CONNECT, plain", "there is one proxy", lambda: inside("site.test:80", head(
    "CONNECT", "denied.test:443", "denied.test:443")))
attempt("pipelined second", PATH, lambda: inside_tls("open.test:443", "open.test", get + head("GET", "/secret/x", "open.test"), 2))
attempt("pipelined second to another", IS_FOR.format("site.test:443", "open.test:443"),
        lambda: inside_tls("open.test:443", "open.test", get + head("GET", "/hello", "site.test"), 2))
for name, fields, body in (
        ("both lengths", ("Content-Length: 3", "Transfer-Encoding: chunked"), "0\r\n\r\n"),
        ("two lengths", ("Content-Length: 3", "Content-Length: 4"), "abcd"),
        ("an unknown coding", ("Transfer-Encoding: xchunked",), "0\r\n\r\n"),
        ("a space before the colon", ("Content-Length : 3",), "abc"), ("a folded line", ("X-A: b", " Content-Length: 3"), "abc"),
        ("a signed length", ("Content-Length: +3",), "abc"), ("two hosts", ("Host: denied.test",), ""),
        ("a bare line feed", ("X-A: b\nTransfer-Encoding: chunked",), "0\r\n\r\n")):
    attempt("smuggling: " + name, "400 ", lambda: inside_tls("open.test:443", "open.test", head("POST", "/hello", "open.test", *fields) + body))

# Each port speaks its own protocol.
attempt("plain HTTP to 443", "403 only TLS belongs on port 443", lambda: inside("site.test:443", head("GET", "/hello", "site.test")))
attempt("TLS to 80", CLOSED, lambda: inside_tls("site.test:80", "site.test", get), "TLS")
attempt("SSH to 443", "403 only TLS belongs on port 443", lambda: inside("site.test:443", "SSH-2.0-OpenSSH_9.2\r\n"))
attempt("TLS to the proxy", "400 ", lambda: raw("\x16\x03\x01\x02\x00\x01\x00" * 40))
attempt("QUIC", "refused", lambda: datagram(PUBLIC, b"\xc3" + struct.pack("!I", 1) + bytes(1200)), "")
attempt("QUIC, IPv6", "OSError", lambda: datagram("2a0f:ac00::2", b"\xc3" + struct.pack("!I", 1) + bytes(1200)), "")

# Servers that are not who they should be, or not there.
attempt("certificate has expired", "502 ", lambda: inside_tls("expired.open.test:443", "expired.open.test", head("GET", "/hello", "expired.open.test")), "")
attempt("certificate is another's", "502 ", lambda: inside_tls("wrong.open.test:443", "wrong.open.test", head("GET", "/hello", "wrong.open.test")), "")
attempt("no name server answers", "502 silent.site.test could not", lambda: connect("silent.site.test:443"), "")
attempt("there is no such name", "502 there is no address", lambda: connect("none.site.test:443"), "")

# Nothing but the port that the host opened, and nothing of the host's own proxy.
for port in (22, 53, 80, 443, 1079, 1081, 8080):
    def knock():
        with socket.socket(socket.AF_VSOCK) as stream:
            stream.settimeout(60)
            stream.connect((2, port))
            return "connected"
    attempt(f"port {port} of the host", "Connection reset", knock, "")
seen = json.dumps(dict(os.environ))
for place in ("/proc/cmdline", "/etc/environment"):
    with open(place) as opened:
        seen += opened.read()
attempt("the host's own proxy", "unseen", lambda: "seen" if "hosts-proxy-password" in seen else "unseen", "")
