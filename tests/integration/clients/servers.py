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
    "grpc.site.test": [["44.128.0.5"]], "grpc.open.test": [["44.128.0.5"]],
    "six.site.test": [["2a0f:ac00::2"]],
    "rebind.site.test": [["44.128.0.2"], ["127.0.0.1"]],
    "mixed.site.test": [["44.128.0.2", "10.0.0.1"]],
    "metadata.site.test": [["169.254.169.254"]], "loop6.site.test": [["::1"]],
    "mapped.site.test": [["::ffff:169.254.169.254"]],
}
SILENT = {"silent.site.test"}


def question_of(query):
    labels, at = [], 12
    while query[at]:
        labels.append(query[at + 1:at + 1 + query[at]].decode("latin-1"))
        at += 1 + query[at]
    return ".".join(labels).lower(), query[at + 2], query[:at + 5]


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
                answers = []
                if name in NAMES:
                    turns = asked[name, kind] = asked.get((name, kind), -1) + 1
                    chosen = NAMES[name][min(turns, len(NAMES[name]) - 1)]
                    family = {1: socket.AF_INET, 28: socket.AF_INET6}.get(kind)
                    answers = [socket.inet_pton(family, address) for address in chosen
                               if family and (":" in address) == (kind == 28)]
                reply = query[:2] + bytes([0x81, 0x80 if name in NAMES else 0x83, 0, 1, 0, len(answers), 0, 0, 0, 0])
                reply += question[12:]
                for address in answers:
                    reply += struct.pack("!HHHIH", 0xc00c, kind, 1, 60, len(address)) + address
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


def serve_calls(certificates):
    """gRPC without a compiler of interfaces: one method, whose messages are bytes."""
    def hello(message, context):
        context.set_trailing_metadata((("x-after", "the call"),))
        return b"hello " + message

    def count(message, context):
        for number in range(3):
            yield message + b" %d" % number

    calls = grpc.method_handlers_generic_handler("bed.Bed", {
        "Hello": grpc.unary_unary_rpc_method_handler(hello), "Count": grpc.unary_stream_rpc_method_handler(count)})
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((calls,))
    key, chain = certificates.read("good")
    server.add_secure_port("44.128.0.5:443", grpc.ssl_server_credentials([(key, chain)]))
    server.start()
    return server


async def serve_sites(certificates):
    site = Site(FOLDER)
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
calls = serve_calls(certificates)
asyncio.run(serve_sites(certificates))
