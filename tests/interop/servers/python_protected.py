"""A protected server, written with the official Python SDK, either version: python_protected.py ISSUER PORT."""

import sys

import jwt
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings

issuer, port = sys.argv[1], int(sys.argv[2])
resource = f"http://127.0.0.1:{port}/mcp"
keys = jwt.PyJWKClient(f"{issuer}/jwks")


class Verifier:
    async def verify_token(self, token: str) -> AccessToken | None:
        try:
            key = keys.get_signing_key_from_jwt(token).key
            claims = jwt.decode(token, key, algorithms=["RS256"], audience=resource, issuer=issuer)
        except jwt.PyJWTError as error:
            print(f"refused: {error}", flush=True)
            return None
        return AccessToken(
            token=token,
            client_id=claims["client_id"],
            scopes=claims.get("scope", "").split(),
            expires_at=claims["exp"],
            resource=resource,
        )


settings = AuthSettings(
    issuer_url=issuer, resource_server_url=resource, required_scopes=["notes:read"], validate_token_resource=True
)
try:
    from mcp.server.mcpserver import MCPServer
except ModuleNotFoundError:
    from mcp.server.fastmcp import FastMCP

    server = FastMCP("protected", auth=settings, token_verifier=Verifier(), port=port)
    options = {}
else:
    server = MCPServer("protected", auth=settings, token_verifier=Verifier())
    options = {"port": port}


@server.tool()
def whoami() -> str:
    from mcp.server.auth.middleware.auth_context import get_access_token

    return " ".join(get_access_token().scopes)


server.run("streamable-http", **options)
