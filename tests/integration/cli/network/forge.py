"""Repositories of FOLDER/repositories by git http-backend at forge.site.test:443, behind a password; every request is
written to FOLDER/requests. The certificate and its key are FOLDER/forge.pem."""
import base64
import http.server
import os
import ssl
import subprocess
import threading


def serve(server_class, folder, address):
    requests = open(folder + "/requests", "a")
    lock = threading.Lock()
    password = open(folder + "/password").read()
    expected = "Basic " + base64.b64encode(f"x-access-token:{password}".encode()).decode()

    class Forge(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args):
            pass

        def body(self):
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length", 0)))
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)

        def answer(self, status, fields, body):
            self.send_response(status)
            for name, value in fields:
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self):
            body = self.body()
            with lock:
                print(self.command, self.path, len(body), file=requests, flush=True)
            if self.headers["Authorization"] != expected:
                return self.answer(401, [("WWW-Authenticate", "Basic realm=forge")], b"")
            path, _, query = self.path.partition("?")
            environment = {
                "PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": folder + "/repositories", "GIT_HTTP_EXPORT_ALL": "1",
                "REMOTE_USER": "guest", "PATH_INFO": path, "QUERY_STRING": query, "REQUEST_METHOD": self.command,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""), "CONTENT_LENGTH": str(len(body)),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                "GIT_PROTOCOL": self.headers.get("Git-Protocol", "")}
            command = ["git", "-c", "safe.directory=*", "http-backend"]
            said = subprocess.run(command, input=body, env=environment, stdout=subprocess.PIPE, check=True).stdout
            head, _, rest = said.partition(b"\r\n\r\n")
            fields = [tuple(line.split(": ", 1)) for line in head.decode().split("\r\n")]
            status = next((int(value[:3]) for name, value in fields if name == "Status"), 200)
            self.answer(status, [field for field in fields if field[0] != "Status"], rest)

        do_POST = do_GET

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder + "/forge.pem")
    forge = server_class((address, 443), Forge)
    forge.socket = context.wrap_socket(forge.socket, server_side=True)
    threading.Thread(target=forge.serve_forever, daemon=True).start()
