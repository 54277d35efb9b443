"""The floor: a blocking loop written by hand for these two tools, which checks nothing and can do nothing else."""

import os
import sys

import msgspec


class Arguments(msgspec.Struct):
    text: str = ""
    a: int = 0
    b: int = 0


class Params(msgspec.Struct):
    name: str = ""
    arguments: Arguments | None = None


class Request(msgspec.Struct):
    method: str
    id: int = 0
    params: Params | None = None


ECHO = b'{"name":"echo","inputSchema":{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}}'
ADD = (
    b'{"name":"add","inputSchema":{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},'
    b'"required":["a","b"]}}'
)
FIXED = {
    "server/discover": (
        b'"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},'
        b'"ttlMs":0,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"bench","version":"1"}}'
    ),
    "initialize": (
        b'"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"bench","version":"1"}'
    ),
    "tools/list": b'"resultType":"complete","tools":[' + ECHO + b"," + ADD + b'],"ttlMs":0,"cacheScope":"private"',
}
RESULT = b'{"jsonrpc":"2.0","id":%d,"result":{%b}}\n'
CONTENT = b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":%b}],"resultType":"complete"}}\n'


def main() -> None:
    decode = msgspec.json.Decoder(Request).decode
    encode = msgspec.json.encode
    for line in sys.stdin.buffer:
        request = decode(line)
        if request.method == "tools/call" and request.params and (arguments := request.params.arguments):
            text = arguments.text if request.params.name == "echo" else str(arguments.a + arguments.b)
            os.write(1, CONTENT % (request.id, encode(text)))
        elif request.method in FIXED:
            os.write(1, RESULT % (request.id, FIXED[request.method]))


main()
