// The client of version 2 of the official TypeScript SDK.

import { Client } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

import { obey } from "./typescript_orders.mjs";

await obey(async (era, server) => {
  const mode = era === "legacy" ? "legacy" : { pin: "2026-07-28" };
  const client = new Client({ name: "example", version: "1.0.0" }, { versionNegotiation: { mode } });
  await client.connect(new StdioClientTransport(server));
  return { call: (name, args) => client.callTool({ name, arguments: args }), close: () => client.close() };
});
