"""The server that clients are measured against: a loop written by hand, so that most of the time is the clients'.

``raw_server.py SECONDS ERA`` sleeps for so long before it reads anything, and knows only that era.
"""

import os
import sys
import time

import msgspec


class Arguments(msgspec.Struct):
    text: str


class Params(msgspec.Struct):
    name: str = ""
    arguments: Arguments | None = None


class Request(msgspec.Struct):
    method: str
    #: As it was written. A notification has none.
    id: msgspec.Raw = msgspec.Raw()
    params: Params | None = None


ECHO = b'{"name":"echo","inputSchema":{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}}'
FIXED = {
    "server/discover": (
        b'"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},'
        b'"ttlMs":0,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"bench","version":"1"}}'
    ),
    "initialize": (
        b'"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"bench","version":"1"}'
    ),
    "tools/list": b'"resultType":"complete","tools":[' + ECHO + b'],"ttlMs":0,"cacheScope":"private"',
}
RESULT = b'{"jsonrpc":"2.0","id":%b,"result":{%b}}\n'
CONTENT = b'{"jsonrpc":"2.0","id":%b,"result":{"content":[{"type":"text","text":%b}],"resultType":"complete"}}\n'
REFUSAL = b'{"jsonrpc":"2.0","id":%b,"error":{"code":-32601,"message":"There is no such method."}}\n'


#: The request that a server of one era does not know.
UNKNOWN = {"modern": "initialize", "legacy": "server/discover"}


def main() -> None:
    if sys.argv[1:]:
        seconds, era = sys.argv[1:]
        del FIXED[UNKNOWN[era]]
        time.sleep(float(seconds))
    decode = msgspec.json.Decoder(Request).decode
    pieces = []
    while chunk := os.read(0, 65536):
        pieces.append(chunk)
        # A large line comes in many pieces, which are joined once.
        if b"\n" not in chunk:
            continue
        *lines, rest = b"".join(pieces).split(b"\n")
        pieces = [rest]
        answers = memoryview(b"".join([answer(decode(line)) for line in lines]))
        while answers:
            answers = answers[os.write(1, answers) :]


def answer(request: Request) -> bytes:
    if not bytes(request.id):
        return b""
    if request.method in FIXED:
        return RESULT % (request.id, FIXED[request.method])
    if request.params and (arguments := request.params.arguments):
        return CONTENT % (request.id, msgspec.json.encode(arguments.text))
    return REFUSAL % request.id


main()
