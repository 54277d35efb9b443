// Tries each feature with version 1 of the official TypeScript SDK, and prints what it observed.
//
// typescript_v1.mjs SECONDS COMMAND [ARGUMENT ...], or the address of a server over HTTP, which ends in /sse for
// HTTP+SSE.

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { SSEClientTransport } from "@modelcontextprotocol/sdk/client/sse.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import {
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  ListRootsRequestSchema,
  LoggingMessageNotificationSchema,
  ResourceUpdatedNotificationSchema,
  ResultSchema,
  ToolListChangedNotificationSchema,
} from "@modelcontextprotocol/sdk/types.js";

import * as steps from "./steps.mjs";

const [seconds, command, ...args] = process.argv.slice(2);
const client = new Client({ name: "visitor", version: "1.0.0" }, { capabilities: steps.capabilities });
client.setRequestHandler(ElicitRequestSchema, steps.answerElicitation);
client.setRequestHandler(CreateMessageRequestSchema, steps.answerSampling);
client.setRequestHandler(ListRootsRequestSchema, steps.answerRoots);
client.setNotificationHandler(LoggingMessageNotificationSchema, ({ params }) => steps.log.put([params.level, params.data]));
client.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ params }) => steps.changes.put(params.uri));
client.setNotificationHandler(ToolListChangedNotificationSchema, () => steps.listChanges.put("tools"));

const way = () => {
  if (!command.startsWith("http")) return new StdioClientTransport({ command, args });
  const url = new URL(command);
  return command.endsWith("/sse") ? new SSEClientTransport(url) : new StreamableHTTPClientTransport(url);
};
const transport = way();
await client.connect(transport, { timeout: Number(seconds) * 2000 });
const differences = {
  callTool: (params, options) => client.callTool(params, undefined, options),
  request: (method, params) => client.request({ method, params }, ResultSchema),
};
await steps.observe(client, differences, Number(seconds));
await Promise.race([transport.terminateSession?.().catch(() => {}), new Promise((resolve) => setTimeout(resolve, 2000))]);
await client.close();
process.exit();
