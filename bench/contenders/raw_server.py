"""The server that clients are measured against: a loop written by hand, so that most of the time is the clients'."""

import os

import msgspec


class Arguments(msgspec.Struct):
    text: str = ""
    size: int = 0


class Params(msgspec.Struct):
    name: str = ""
    arguments: Arguments | None = None


class Request(msgspec.Struct):
    method: str
    #: As it was written. A notification has none.
    id: msgspec.Raw = msgspec.Raw()
    params: Params | None = None


ECHO = b'{"name":"echo","inputSchema":{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}}'
LARGE = b'{"name":"large","inputSchema":{"type":"object","properties":{"size":{"type":"integer"}},"required":["size"]}}'
FIXED = {
    "server/discover": (
        b'"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},'
        b'"ttlMs":0,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"bench","version":"1"}}'
    ),
    "initialize": (
        b'"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"bench","version":"1"}'
    ),
    "tools/list": b'"resultType":"complete","tools":[' + ECHO + b"," + LARGE + b'],"ttlMs":0,"cacheScope":"private"',
}
RESULT = b'{"jsonrpc":"2.0","id":%b,"result":{%b}}\n'
CONTENT = b'{"jsonrpc":"2.0","id":%b,"result":{"content":[{"type":"text","text":%b}],"resultType":"complete"}}\n'
REFUSAL = b'{"jsonrpc":"2.0","id":%b,"error":{"code":-32601,"message":"There is no such method."}}\n'


def main() -> None:
    decode = msgspec.json.Decoder(Request).decode
    rest = b""
    while chunk := os.read(0, 65536):
        *lines, rest = (rest + chunk).split(b"\n")
        answers = memoryview(b"".join([answer(decode(line)) for line in lines]))
        while answers:
            answers = answers[os.write(1, answers) :]


def answer(request: Request) -> bytes:
    if not bytes(request.id):
        return b""
    if request.method in FIXED:
        return RESULT % (request.id, FIXED[request.method])
    if request.params and (arguments := request.params.arguments):
        is_large = request.params.name == "large"
        text = b'"%b"' % (b"x" * arguments.size) if is_large else msgspec.json.encode(arguments.text)
        return CONTENT % (request.id, text)
    return REFUSAL % request.id


main()
