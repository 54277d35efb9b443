// Tries each feature with version 2 of the official TypeScript SDK, and prints what it observed.
//
// typescript_v2.mjs MODE SECONDS COMMAND [ARGUMENT ...], where MODE is legacy or a modern revision; instead of a
// command, the address of a server over HTTP, which ends in /sse for HTTP+SSE.

import { Client, SSEClientTransport, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { z } from "zod";

import * as steps from "./steps.mjs";

const [mode, seconds, command, ...args] = process.argv.slice(2);
const client = new Client(
  { name: "visitor", version: "1.0.0" },
  {
    capabilities: steps.capabilities,
    versionNegotiation: { mode: mode === "legacy" ? mode : { pin: mode } },
  },
);
client.setRequestHandler("elicitation/create", steps.answerElicitation);
client.setRequestHandler("sampling/createMessage", steps.answerSampling);
client.setRequestHandler("roots/list", steps.answerRoots);
client.setNotificationHandler("notifications/message", ({ params }) => steps.log.put([params.level, params.data]));
client.setNotificationHandler("notifications/resources/updated", ({ params }) => steps.changes.put(params.uri));
client.setNotificationHandler("notifications/tools/list_changed", () => steps.listChanges.put("tools"));

const way = () => {
  if (!command.startsWith("http")) return new StdioClientTransport({ command, args });
  const url = new URL(command);
  return command.endsWith("/sse") ? new SSEClientTransport(url) : new StreamableHTTPClientTransport(url);
};
const transport = way();
await client.connect(transport, { timeout: Number(seconds) * 2000 });
const differences = {
  callTool: (params, options) => client.callTool(params, options),
  request: (method, params) => client.request({ method, params }, z.looseObject({})),
  listen: client.getProtocolEra() === "modern" ? (filter) => client.listen(filter) : undefined,
};
await steps.observe(client, differences, Number(seconds));
await Promise.race([transport.terminateSession?.().catch(() => {}), new Promise((resolve) => setTimeout(resolve, 2000))]);
await client.close();
process.exit();
