# servers.py FOLDER ADDRESS: DNS and HTTP; prints a line when both listen.
import functools
import http.server
import os
import socket
import socketserver
import sys
import threading
import time

folder, address = sys.argv[1:]


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_GET(self):
        if self.path != "/stream":
            return super().do_GET()
        self.send_response(200)
        self.end_headers()
        try:
            while True:
                self.wfile.write(b"more\n")
                time.sleep(0.1)
        except OSError:
            pass  # it was cut


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True


web = Server((address, 80), functools.partial(Quiet, directory=folder + "/site"))
threading.Thread(target=web.serve_forever, daemon=True).start()
if os.path.exists(folder + "/tls.pem"):
    sys.dont_write_bytecode = True
    import tls_site
    tls_site.serve(Server, folder, address)
if os.path.exists(folder + "/forge.pem"):
    sys.dont_write_bytecode = True
    import forge
    forge.serve(Server, folder, address)
dns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
dns.bind((address, 53))
print("ready", flush=True)
with open(folder + "/queries", "a") as queries:
    while True:
        query, client = dns.recvfrom(4096)
        labels, at = [], 12
        while query[at]:
            labels.append(query[at + 1:at + 1 + query[at]].decode("latin-1"))
            at += 1 + query[at]
        name, kind = ".".join(labels).lower(), query[at + 2]
        print(name, file=queries, flush=True)
        known = name == "site.test" or name.endswith(".site.test")
        found = known and kind == 1
        reply = query[:2] + bytes([0x81, 0x80 if known else 0x83, 0, 1, 0, int(found), 0, 0, 0, 0]) + query[12:at + 5]
        if found:
            reply += bytes([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]) + socket.inet_aton(address)
        dns.sendto(reply, client)
