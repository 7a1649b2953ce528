"""servers.py FOLDER: the machine that is the whole internet. Its names, sites and packages; everything it is asked and
every packet that comes in is written to FOLDER/queries and FOLDER/packets. Prints a line when it serves."""

import asyncio
import concurrent.futures
import socket
import ssl
import struct
import sys
import threading

import grpc

import packages
from certificates import Certificates
from web_site import Site

FOLDER = sys.argv[1]
# What each name leads to, one answer after another; the last one stays.
PUBLIC = [["44.128.0.2"]]
NAMES = {
    "site.test": PUBLIC, "open.test": PUBLIC, "credential.test": PUBLIC, "other.test": PUBLIC,
    "expired.site.test": [["44.128.0.3"]], "expired.open.test": [["44.128.0.3"]],
    "wrong.site.test": [["44.128.0.4"]], "wrong.open.test": [["44.128.0.4"]],
    "grpc.site.test": [["44.128.0.5"]], "grpc.open.test": [["44.128.0.6"]],
    "bearer.open.test": PUBLIC, "basic.open.test": PUBLIC, "header.open.test": PUBLIC, "git.open.test": PUBLIC,
    "six.site.test": [["2a0f:ac00::2"]],
    "rebind.site.test": [["44.128.0.2"], ["127.0.0.1"]],
    "mixed.site.test": [["44.128.0.2", "10.0.0.1"]],
    "metadata.site.test": [["169.254.169.254"]], "loop6.site.test": [["::1"]],
    "mapped.site.test": [["::ffff:169.254.169.254"]],
    "to-nothing.site.test": [["::"]], "small.open.test": PUBLIC, "x.open.test": PUBLIC, "seven.site.test": [["44.128.0.7"]],
    # Where no name may lead: "to-10-0-0-1.site.test", "to-fd00--1.site.test".
    **{f"to-{address.replace('.', '-').replace(':', '-')}.site.test": [[address]] for address in (
        "10.0.0.1", "172.16.0.1", "192.168.0.1", "100.64.0.1", "127.0.0.1", "169.254.1.1", "224.0.0.251", "0.0.0.0",
        "255.255.255.255", "240.0.0.1", "192.0.2.1", "198.18.1.0", "44.128.0.1", "fd00::1", "fe80::1", "ff02::fb",
        "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "2001:db8::1", "fd61:6e63:686f:7264::c612:100", "2a0f:ac00::1")},
}
# Other names of these, one after another (CNAME).
ALIASES = {"alias.site.test": "alias2.site.test", "alias2.site.test": "site.test", "inward.site.test": "inward2.site.test",
           "inward2.site.test": "to-10-0-0-1.site.test", "outward.site.test": "denied.test"}
SILENT = {"silent.site.test"}


def question_of(query):
    labels, at = [], 12
    while query[at]:
        labels.append(query[at + 1:at + 1 + query[at]].decode("latin-1"))
        at += 1 + query[at]
    return ".".join(labels).lower(), query[at + 2], query[:at + 5]


def wire_name(name):
    return b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"


def serve_names():
    dns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    dns.bind(("44.128.0.53", 53))
    asked = {}

    def run():
        with open(FOLDER + "/queries", "a", buffering=1) as queries:
            while True:
                query, client = dns.recvfrom(4096)
                name, kind, question = question_of(query)
                print(name, file=queries)
                if name in SILENT:
                    continue
                answers, known = [], name in NAMES or name in ALIASES
                while name in ALIASES:
                    alias, name = name, ALIASES[name]
                    answers.append((alias, 5, wire_name(name)))
                if name in NAMES:
                    turns = asked[name, kind] = asked.get((name, kind), -1) + 1
                    chosen = NAMES[name][min(turns, len(NAMES[name]) - 1)]
                    family = {1: socket.AF_INET, 28: socket.AF_INET6}.get(kind)
                    answers += [(name, kind, socket.inet_pton(family, address)) for address in chosen
                                if family and (":" in address) == (kind == 28)]
                reply = query[:2] + bytes([0x81, 0x80 if known else 0x83, 0, 1, 0, len(answers), 0, 0, 0, 0])
                reply += question[12:]
                for owner, what, value in answers:
                    reply += wire_name(owner) + struct.pack("!HHIH", what, 1, 60, len(value)) + value
                dns.sendto(reply, client)

    threading.Thread(target=run, daemon=True).start()


def watch_packets():
    """Everything that arrives but TCP, the questions of the cable's two ends about each other, and the echo of our own."""
    cable = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
    cable.bind(("cable", 0))

    def run():
        with open(FOLDER + "/packets", "a", buffering=1) as packets:
            while True:
                packet, (_, protocol, kind, _, _) = cable.recvfrom(4096)
                if kind == socket.PACKET_OUTGOING:
                    continue
                if protocol == 0x0800 and packet[9] != socket.IPPROTO_TCP:
                    head = (packet[0] & 0xf) * 4
                    port = int.from_bytes(packet[head + 2:head + 4], "big") if packet[9] == socket.IPPROTO_UDP else 0
                    print(f"protocol {packet[9]} to {socket.inet_ntoa(packet[16:20])} port {port}", file=packets)
                elif protocol == 0x86dd and packet[6] not in (socket.IPPROTO_TCP, socket.IPPROTO_ICMPV6, 0):
                    print(f"IPv6 protocol {packet[6]}", file=packets)
                elif protocol == 0x86dd and packet[6] == socket.IPPROTO_ICMPV6 and packet[40] == 128:
                    print("IPv6 echo", file=packets)

    threading.Thread(target=run, daemon=True).start()


def serve_calls(certificates, site):
    """gRPC without a compiler of interfaces: one method, whose messages are bytes."""
    def hello(message, context):
        context.set_trailing_metadata((("x-after", "the call"),))
        return b"hello " + message

    def count(message, context):
        for number in range(3):
            yield message + b" %d" % number

    calls = grpc.method_handlers_generic_handler("bed.Bed", {
        "Hello": grpc.unary_unary_rpc_method_handler(hello), "Count": grpc.unary_stream_rpc_method_handler(count)})
    class WithCredential(grpc.ServerInterceptor):
        def intercept_service(self, proceed, call):
            shown = dict(call.invocation_metadata)
            if site.refuses("grpc.open.test", shown):
                return grpc.unary_unary_rpc_method_handler(
                    lambda message, context: context.abort(grpc.StatusCode.UNAUTHENTICATED, "another credential"))
            return proceed(call)

    servers = []
    key, chain = certificates.read("good")
    for address, interceptors in (("44.128.0.5", ()), ("44.128.0.6", (WithCredential(),))):
        server = grpc.server(concurrent.futures.ThreadPoolExecutor(4), interceptors=interceptors)
        server.add_generic_rpc_handlers((calls,))
        server.add_secure_port(address + ":443", grpc.ssl_server_credentials([(key, chain)]))
        server.start()
        servers.append(server)
    return servers


async def serve_sites(certificates, site):
    for address, leaf in (("44.128.0.2", "good"), ("44.128.0.3", "expired"), ("44.128.0.4", "wrong"),
                          ("2a0f:ac00::2", "good")):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates.path(leaf, "pem"), certificates.path(leaf, "key"))
        context.set_alpn_protocols(["h2", "http/1.1"])
        await asyncio.start_server(site.serve, address, 443, ssl=context, limit=1 << 20, backlog=1024)
        await asyncio.start_server(site.serve, address, 80, limit=1 << 20, backlog=1024)
    print("ready", flush=True)
    await asyncio.Event().wait()


certificates = Certificates(FOLDER)
packages.make(FOLDER)
serve_names()
watch_packets()
site = Site(FOLDER)
calls = serve_calls(certificates, site)
asyncio.run(serve_sites(certificates, site))
