// An authorization server, made with oidc-provider:
//   node oidc_provider.mjs PORT PATH CLIENTS
// Clients register themselves, tokens are JWTs for one resource (opaque ones for a resource whose address ends with
// "/opaque"), and refresh tokens are rotated. PATH is that of the issuer, and CLIENTS is JSON with clients that are known beforehand. Whoever signs in is let in, and agrees by a form.
import { createServer } from "node:http";

import Provider from "oidc-provider";

const [port, path, clients] = process.argv.slice(2);
const issuer = `http://127.0.0.1:${port}${path}`;

const provider = new Provider(issuer, {
  clients: JSON.parse(clients),
  claims: { openid: ["sub"] },
  scopes: ["openid", "offline_access", "notes:read", "notes:write"],
  cookies: { keys: [crypto.randomUUID()] },
  conformIdTokenClaims: true,
  findAccount: (_, sub) => ({ accountId: sub, claims: () => ({ sub }) }),
  // A client that may use refresh tokens gets one, whether or not it asks for offline_access.
  issueRefreshToken: (_, client) => client.grantTypeAllowed("refresh_token"),
  rotateRefreshToken: true,
  pkce: { required: () => true },
  clientAuthMethods: ["none", "client_secret_basic", "client_secret_post", "private_key_jwt"],
  features: {
    clientCredentials: { enabled: true },
    dPoP: { enabled: true },
    introspection: { enabled: true },
    registration: { enabled: true },
    resourceIndicators: {
      enabled: true,
      getResourceServerInfo: (_, resource) => ({
        audience: resource,
        scope: "notes:read notes:write",
        accessTokenFormat: resource.endsWith("/opaque") ? "opaque" : "jwt",
        jwt: { sign: { alg: "RS256" } },
      }),
      useGrantedResource: () => true,
    },
    revocation: { enabled: true },
  },
});

const answer = provider.callback();
createServer((request, response) => {
  // The provider finds the path below which it is mounted by comparing the two.
  request.originalUrl = request.url;
  if (request.url.startsWith(`${path}/`)) request.url = request.url.slice(path.length);
  answer(request, response);
}).listen(Number(port), "127.0.0.1", () => {
  console.log(`oidc-provider is listening on ${issuer}`);
});
