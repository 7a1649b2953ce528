"""What the other machine serves over HTTP: one site with everything a client may want of one, in HTTP/1.1 and HTTP/2."""

import asyncio
import base64
import hashlib
import json
import os

import h2.config
import h2.connection
import h2.events

GREETING = b"hello from outside\n"


async def git_backend(folder, method, path, query, fields, body):
    environment = {
        "PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": folder + "/git", "GIT_HTTP_EXPORT_ALL": "1",
        "PATH_INFO": path.removeprefix("/git"), "QUERY_STRING": query, "REQUEST_METHOD": method,
        "CONTENT_TYPE": fields.get("content-type", ""), "CONTENT_LENGTH": str(len(body)),
        "GIT_PROTOCOL": fields.get("git-protocol", ""), "REMOTE_USER": "guest", "REMOTE_ADDR": "guest",
        "HTTP_CONTENT_ENCODING": fields.get("content-encoding", ""), "GIT_CONFIG_NOSYSTEM": "1", "HOME": folder}
    backend = await asyncio.create_subprocess_exec(
        "git", "-c", "safe.directory=*", "http-backend", env=environment,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
    output, _ = await backend.communicate(body)
    head, _, answer = output.partition(b"\r\n\r\n")
    lines = [line.split(": ", 1) for line in head.decode().split("\r\n")]
    status = next((value for name, value in lines if name == "Status"), "200 OK")
    return status, [(name, value) for name, value in lines if name != "Status"], answer


def basic(user, password):
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


class Site:
    """FOLDER/secrets.json: what the names with a credential want to see. What is refused is written to FOLDER/refused."""
    def __init__(self, folder):
        self.folder = folder
        self.files = folder + "/site"
        self.wanted = {}
        if os.path.exists(folder + "/secrets.json"):
            with open(folder + "/secrets.json") as file:
                secrets = json.load(file)
            self.wanted = {"bearer.open.test": ("authorization", "Bearer " + secrets["bearer"]),
                           "grpc.open.test": ("authorization", "Bearer " + secrets["bearer"]),
                           "credential.test": ("authorization", "Bearer " + secrets["bearer"]),
                           "basic.open.test": ("authorization", basic("guest", secrets["basic"])),
                           "git.open.test": ("authorization", basic("x-access-token", secrets["git"])),
                           "header.open.test": ("x-api-key", secrets["header"])}

    def refuses(self, host, fields):
        name, value = self.wanted.get(host.partition(":")[0], ("", None))
        if value is None or fields.get(name) == value:
            return False
        with open(self.folder + "/refused", "a") as refused:
            print(host, fields, file=refused)
        return True

    async def answer(self, method, target, fields, body):
        """Status, fields and body of everything that is not special to HTTP/1.1."""
        path, _, query = target.partition("?")
        host = fields.get("host", "")
        if self.refuses(host, fields):
            return "401 Unauthorized", [], b"another credential\n"
        if path.startswith("/git/"):
            return await git_backend(self.folder, method, path, query, fields, body)
        if path == "/hello":
            return "200 OK", [("Content-Type", "text/plain")], GREETING
        if path == "/size":
            return "200 OK", [], b"%d bytes\n" % len(body)
        if path == "/headers":
            return "200 OK", [], "".join(f"{name}: {value}\n" for name, value in fields.items()).encode()
        if path == "/redirect":
            return "302 Found", [("Location", "/hello")], b""
        if path == "/away":
            return "302 Found", [("Location", "https://denied.test/hello")], b""
        file = os.path.normpath(self.files + path)
        if os.path.isdir(file):
            file += "/index.json" if path.startswith("/npm/") else "/index.html"
        if file.startswith(self.files + "/") and os.path.isfile(file):
            with open(file, "rb") as opened:
                text = opened.read()
            if file.endswith(".json"):
                text = text.replace(b"@HOST@", host.encode())
            kind = "application/json" if file.endswith(".json") else "text/html" if file.endswith(".html") else \
                "application/octet-stream"
            return "200 OK", [("Content-Type", kind)], text
        return "404 Not Found", [], b"not here\n"

    async def serve(self, reader, writer):
        tls = writer.get_extra_info("ssl_object")
        try:
            if tls and tls.selected_alpn_protocol() == "h2":
                await Http2(self, reader, writer).run()
            else:
                while await self.serve_request(reader, writer):
                    pass
        except (OSError, asyncio.IncompleteReadError, h2.exceptions.ProtocolError):
            pass
        finally:
            writer.close()

    async def serve_request(self, reader, writer):
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return False
        lines = head.decode("latin-1").split("\r\n")
        method, target, version = lines[0].split(" ")
        fields = {line.split(":", 1)[0].lower(): line.split(":", 1)[1].strip() for line in lines[1:] if ":" in line}
        path = target.partition("?")[0]
        if fields.get("expect", "").lower() == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = await self.body_of(fields, reader)
        if self.refuses(fields.get("host", ""), fields):
            writer.write(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")
            return True
        if fields.get("upgrade", "").lower() == "websocket":
            await self.web_socket(fields, reader, writer)
            return False
        if path == "/events":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
            for number in range(3):
                writer.write(b"data: %d\n\n" % number)
                await writer.drain()
                await asyncio.sleep(0.05)
            return False
        if path == "/upgrade":
            writer.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\nupgraded")
            return False
        if path == "/trailers":
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-After\r\n\r\n"
                         b"6\r\nhello \r\nd\r\nfrom outside\n\r\n0\r\nX-After: the body\r\n\r\n")
            return True
        if path == "/reset":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nonly this")
            await writer.drain()
            writer.transport.abort()
            return False
        if path == "/large":
            size = int(target.partition("?")[2])
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
            piece = bytes(1 << 18)
            while size > 0:
                writer.write(piece[:size])
                size -= len(piece)
                await writer.drain()
            return True
        status, answered, text = await self.answer(method, target, fields, body)
        head = f"HTTP/1.1 {status}\r\n" + "".join(f"{name}: {value}\r\n" for name, value in answered)
        writer.write(head.encode() + b"Content-Length: %d\r\n\r\n" % len(text) + (b"" if method == "HEAD" else text))
        await writer.drain()
        return version == "HTTP/1.1" and fields.get("connection", "").lower() != "close"

    @staticmethod
    async def body_of(fields, reader):
        if "chunked" in fields.get("transfer-encoding", ""):
            body = bytearray()
            while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
                body += (await reader.readexactly(size + 2))[:-2]
            while await reader.readuntil(b"\r\n") != b"\r\n":
                pass
            return bytes(body)
        size = int(fields.get("content-length", "0"))
        if size <= 1 << 26:
            return await reader.readexactly(size)
        left = size
        while left > 0:
            left -= len(await reader.readexactly(min(left, 1 << 18)))
        return range(size)  # counted, not kept

    @staticmethod
    async def web_socket(fields, reader, writer):
        """RFC 6455: says hello, sends back what short messages it gets, until it is told to close."""
        key = fields["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest())
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                     b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n")
        while True:
            kind, size = await reader.readexactly(2)
            mask = await reader.readexactly(4)
            text = bytes(byte ^ mask[i % 4] for i, byte in enumerate(await reader.readexactly(size & 0x7f)))
            writer.write(bytes([kind, len(text)]) + text)
            await writer.drain()
            if kind & 0xf == 8:
                return


class Http2:
    def __init__(self, site, reader, writer):
        self.site, self.reader, self.writer = site, reader, writer
        self.connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
        self.requests, self.waiting = {}, {}

    async def run(self):
        self.connection.initiate_connection()
        self.send()
        while bytes_read := await self.reader.read(1 << 16):
            for event in self.connection.receive_data(bytes_read):
                if isinstance(event, h2.events.RequestReceived):
                    self.requests[event.stream_id] = (dict(event.headers), bytearray())
                elif isinstance(event, h2.events.DataReceived):
                    self.requests[event.stream_id][1].extend(event.data)
                    self.connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                elif isinstance(event, h2.events.StreamEnded):
                    await self.answer(event.stream_id)
                elif isinstance(event, h2.events.WindowUpdated):
                    for stream in list(self.waiting):
                        self.pump(stream)
            self.send()

    async def answer(self, stream):
        fields, body = self.requests.pop(stream)
        fields["host"] = fields.get(":authority", "")
        status, answered, text = await self.site.answer(fields[":method"], fields[":path"], fields, bytes(body))
        self.connection.send_headers(stream, [(":status", status[:3])] + [(name.lower(), value) for name, value in answered])
        self.waiting[stream] = memoryview(b"" if fields[":method"] == "HEAD" else text)
        self.pump(stream)

    def pump(self, stream):
        text = self.waiting.pop(stream)
        while True:
            size = min(len(text), self.connection.local_flow_control_window(stream), self.connection.max_outbound_frame_size)
            self.connection.send_data(stream, bytes(text[:size]), end_stream=size == len(text))
            text = text[size:]
            if not text:
                return
            if size == 0:
                self.waiting[stream] = text
                return

    def send(self):
        self.writer.write(self.connection.data_to_send())
