// The client of version 1 of the official TypeScript SDK.

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";

import { obey } from "./typescript_orders.mjs";

await obey(async (_era, server) => {
  const client = new Client({ name: "example", version: "1.0.0" });
  await client.connect(new StdioClientTransport(server));
  return { call: (name, args) => client.callTool({ name, arguments: args }), close: () => client.close() };
});
