"""A site on port 443 that says back what it got, and one with a repository behind a password; every request is written
to FOLDER/requests. The certificate and its key are FOLDER/tls.pem."""
import base64
import http.server
import ssl
import threading

GIT_USER = "x-access-token"


def serve(server_class, folder, address):
    requests = open(folder + "/requests", "a")
    lock = threading.Lock()

    class Site(http.server.SimpleHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def __init__(self, *args):
            super().__init__(*args, directory=folder + "/site")

        def log_message(self, *args):
            pass

        def answer(self, status, text):
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            text = f"{self.command} {self.path}\n{self.headers}{body.decode('latin-1')}\n"
            with lock:
                print(text, file=requests, flush=True)
            if not self.headers["Host"].startswith("git."):
                return self.answer(200, text)
            expected = base64.b64encode(f"{GIT_USER}:{open(folder + '/git-secret').read()}".encode()).decode()
            if self.headers["Authorization"] != "Basic " + expected:
                return self.answer(403, "another credential\n")
            return super().do_GET()

        do_POST = do_GET

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder + "/tls.pem")
    site = server_class((address, 443), Site)
    site.socket = context.wrap_socket(site.socket, server_side=True)
    threading.Thread(target=site.serve_forever, daemon=True).start()
