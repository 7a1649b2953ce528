"""python_clients.py LIBRARY HOST [TOKEN]: what one library of Python says it got from the site."""

import asyncio
import sys

library, host, *token = sys.argv[1:]
url = f"https://{host}/hello"
shown = {"Authorization": f"Bearer {token[0]}"} if token else {}


async def use_aiohttp():
    import aiohttp
    async with aiohttp.ClientSession(trust_env=True) as session:
        async with session.get(url, headers=shown) as response:
            print(await response.text())
        async with session.ws_connect(f"wss://{host}/socket", headers=shown) as connection:
            await connection.send_str("ping")
            print("echo", await connection.receive_str())


async def use_websockets():
    import websockets
    async with websockets.connect(f"wss://{host}/socket", extra_headers=shown) as connection:
        await connection.send("ping")
        print("echo", await connection.recv())


def use_grpc():
    import os

    import grpc
    roots = None
    if "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH" not in os.environ:  # it has no other place to look in
        with open("/etc/ssl/certs/ca-certificates.crt", "rb") as bundle:
            roots = bundle.read()
    metadata = [(name.lower(), value) for name, value in shown.items()]
    server = "grpc." + host.removeprefix("bearer.")
    with grpc.secure_channel(f"{server}:443", grpc.ssl_channel_credentials(roots)) as channel:
        answer, call = channel.unary_unary("/bed.Bed/Hello").with_call(b"guest", timeout=120, metadata=metadata)
        print(answer.decode(), dict(call.trailing_metadata())["x-after"])
        for part in channel.unary_stream("/bed.Bed/Count")(b"guest", timeout=120, metadata=metadata):
            print(part.decode())


def use_six():
    """By IPv6 alone, as getaddrinfo gives it."""
    import http.client
    import socket
    import ssl
    found = {family for family, *_ in socket.getaddrinfo(host, 443, type=socket.SOCK_STREAM)}
    assert found == {socket.AF_INET, socket.AF_INET6}, found
    (*_, address), = socket.getaddrinfo(host, 443, socket.AF_INET6, socket.SOCK_STREAM)
    connection = http.client.HTTPSConnection(host)
    with socket.create_connection(address[:2]) as plain:
        print("family", plain.family.name)
        connection.sock = ssl.create_default_context().wrap_socket(plain, server_hostname=host)
        connection.request("GET", "/hello", headers=shown)
        print(connection.getresponse().read().decode())


if library == "aiohttp":
    asyncio.run(use_aiohttp())
elif library == "websockets":
    asyncio.run(use_websockets())
elif library == "grpc":
    use_grpc()
elif library == "httpx":
    import httpx
    with httpx.Client(http2=True) as client:
        response = client.get(url, headers=shown)
        print(response.http_version, response.text)
elif library == "requests":
    import requests
    print(requests.get(url, headers=shown).text)
elif library == "six":
    use_six()
else:
    import urllib.request
    print(urllib.request.urlopen(urllib.request.Request(url, headers=shown)).read().decode())
