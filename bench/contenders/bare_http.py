"""The floor: an application written by hand for these two tools, which checks nothing and can do nothing else."""

import sys
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import uvicorn


class Arguments(msgspec.Struct):
    text: str = ""
    a: int = 0
    b: int = 0


class Params(msgspec.Struct):
    name: str
    arguments: Arguments


class Call(msgspec.Struct):
    id: int
    params: Params


CONTENT = b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":%b}],"resultType":"complete"}}'

Event = dict[str, Any]
decode = msgspec.json.Decoder(Call).decode
encode = msgspec.json.encode


async def app(scope: Event, receive: Callable[[], Awaitable[Event]], send: Callable[[Event], Awaitable[None]]) -> None:
    event = await receive()
    body = event["body"]
    while event["more_body"]:
        event = await receive()
        body += event["body"]
    call = decode(body)
    arguments = call.params.arguments
    text = arguments.text if call.params.name == "echo" else str(arguments.a + arguments.b)
    answer = CONTENT % (call.id, encode(text))
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


uvicorn.run(app, port=int(sys.argv[1]), http="httptools", lifespan="off", log_level="warning")
