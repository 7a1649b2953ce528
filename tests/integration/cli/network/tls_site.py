"""A site on port 443 that says back what it got, one with a repository behind a password (FOLDER/git-secret), and one
that checks signatures of AWS (FOLDER/aws-secret); every request is written to FOLDER/requests. The certificate and its
key are FOLDER/tls.pem."""
import base64
import hashlib
import hmac
import http.server
import re
import ssl
import threading

GIT_USER = "x-access-token"


def judge_signature(request, body, secret):
    """Signature Version 4, for paths and queries that are written in the canonical way already."""
    parts = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/([^/]+)/aws4_request, "
                         r"SignedHeaders=([^,]+), Signature=([0-9a-f]{64})", request.headers["Authorization"] or "")
    if not parts:
        return "not signed"
    key_id, day, region, service, names, signature = parts.groups()
    path, _, query = request.path.partition("?")
    payload = request.headers["x-amz-content-sha256"] or hashlib.sha256(body).hexdigest()
    if len(payload) == 64 and payload != hashlib.sha256(body).hexdigest():
        return "another body"
    signed = [f"{name}:{request.headers[name].strip()}" for name in names.split(";")]
    canonical = "\n".join([request.command, path, query, *signed, "", names, payload])
    to_sign = "\n".join(["AWS4-HMAC-SHA256", request.headers["x-amz-date"], f"{day}/{region}/{service}/aws4_request",
                         hashlib.sha256(canonical.encode()).hexdigest()])
    key = ("AWS4" + secret).encode()
    for part in (day, region, service, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    good = hmac.new(key, to_sign.encode(), "sha256").hexdigest() == signature
    return f"{key_id} {'good' if good else 'SignatureDoesNotMatch'}"


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
            if self.headers["Host"].startswith("s3."):
                return self.answer(200, judge_signature(self, body, open(folder + "/aws-secret").read()))
            if not self.headers["Host"].startswith("git."):
                return self.answer(200, text)
            expected = base64.b64encode(f"{GIT_USER}:{open(folder + '/git-secret').read()}".encode()).decode()
            if self.headers["Authorization"] != "Basic " + expected:
                return self.answer(403, "another credential\n")
            return super().do_GET()

        do_POST = do_PUT = do_GET

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder + "/tls.pem")
    site = server_class((address, 443), Site)
    site.socket = context.wrap_socket(site.socket, server_side=True)
    threading.Thread(target=site.serve_forever, daemon=True).start()
