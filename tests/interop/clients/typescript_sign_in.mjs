// Signs in to a protected server as a client written with the official TypeScript SDK does, and reports what it saw.
//
// typescript_sign_in.mjs VERSION ADDRESS, where VERSION is v1 or v2. It writes the address that a browser has to open,
// and reads the address that the browser was redirected to.

import { once } from "node:events";
import { createInterface } from "node:readline";

const [version, address] = process.argv.slice(2);
const parts =
  version === "v2"
    ? ["@modelcontextprotocol/client"]
    : ["index", "auth", "streamableHttp"].map((name) => `@modelcontextprotocol/sdk/client/${name}.js`);
const sdk = Object.assign({}, ...(await Promise.all(parts.map((part) => import(part)))));

const kept = {};
const redirect = "http://127.0.0.1:17999/callback";
const provider = {
  redirectUrl: redirect,
  clientMetadata: {
    client_name: "visitor",
    redirect_uris: [redirect],
    application_type: "native",
    grant_types: ["authorization_code", "refresh_token"],
    response_types: ["code"],
    token_endpoint_auth_method: "none",
  },
  clientInformation: () => kept.client,
  saveClientInformation: (client) => (kept.client = client),
  tokens: () => kept.tokens,
  saveTokens: (tokens) => (kept.tokens = tokens),
  codeVerifier: () => kept.verifier,
  saveCodeVerifier: (verifier) => (kept.verifier = verifier),
  discoveryState: () => kept.discovery,
  saveDiscoveryState: (discovery) => (kept.discovery = discovery),
  redirectToAuthorization: (url) => console.log(url.href),
};

const connect = async () => {
  const client = new sdk.Client({ name: "visitor", version: "1.0.0" });
  const transport = new sdk.StreamableHTTPClientTransport(new URL(address), { authProvider: provider });
  try {
    await client.connect(transport);
  } catch (error) {
    return { error, transport };
  }
  return { client, transport };
};

const { error, transport } = await connect();
if (!(error instanceof sdk.UnauthorizedError)) throw error ?? new Error("It was let in without a token.");
const [line] = await once(createInterface({ input: process.stdin }), "line");
const { searchParams } = new URL(line);
await transport.finishAuth(version === "v2" ? searchParams : searchParams.get("code"));

const { client, error: refusal } = await connect();
if (refusal) throw refusal;
const result = await client.callTool({ name: "whoami", arguments: {} });
await client.close();
console.log(JSON.stringify({ said: result.content[0].text, scope: kept.tokens.scope }));
process.exit(0);
