"""Port 9000 sends back what it gets, port 80 answers requests. Holds as many connections as there are."""

import asyncio
import resource

limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))


class Echo(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.transport.write(data)


class Hello(Echo):
    def data_received(self, data):
        self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 18\r\nConnection: close\r\n\r\nhello from outside")
        self.transport.close()


async def serve():
    loop = asyncio.get_running_loop()
    await loop.create_server(Echo, "44.128.0.2", 9000, backlog=4096)
    await loop.create_server(Hello, "44.128.0.2", 80)
    print("ready", flush=True)
    await asyncio.Event().wait()


asyncio.run(serve())
