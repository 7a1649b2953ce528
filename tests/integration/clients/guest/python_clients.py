"""python_clients.py LIBRARY HOST: what one library of Python says it got from the site."""

import asyncio
import sys

library, host = sys.argv[1:]
url = f"https://{host}/hello"


async def use_aiohttp():
    import aiohttp
    async with aiohttp.ClientSession(trust_env=True) as session:
        async with session.get(url) as response:
            print(await response.text())
        async with session.ws_connect(f"wss://{host}/socket") as connection:
            await connection.send_str("ping")
            print("echo", await connection.receive_str())


async def use_websockets():
    import websockets
    async with websockets.connect(f"wss://{host}/socket") as connection:
        await connection.send("ping")
        print("echo", await connection.recv())


def use_grpc():
    import os

    import grpc
    roots = None
    if "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH" not in os.environ:  # it has no other place to look in
        with open("/etc/ssl/certs/ca-certificates.crt", "rb") as bundle:
            roots = bundle.read()
    with grpc.secure_channel(f"grpc.{host}:443", grpc.ssl_channel_credentials(roots)) as channel:
        answer, call = channel.unary_unary("/bed.Bed/Hello").with_call(b"guest", timeout=120)
        print(answer.decode(), dict(call.trailing_metadata())["x-after"])
        for part in channel.unary_stream("/bed.Bed/Count")(b"guest", timeout=120):
            print(part.decode())


if library == "aiohttp":
    asyncio.run(use_aiohttp())
elif library == "websockets":
    asyncio.run(use_websockets())
elif library == "grpc":
    use_grpc()
elif library == "httpx":
    import httpx
    with httpx.Client(http2=True) as client:
        response = client.get(url)
        print(response.http_version, response.text)
elif library == "requests":
    import requests
    print(requests.get(url).text)
else:
    import urllib.request
    print(urllib.request.urlopen(url).read().decode())
