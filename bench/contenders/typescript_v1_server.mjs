// The two tools with version 1 of the official TypeScript SDK.

import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { z } from "zod";

const server = new McpServer({ name: "bench", version: "1.0.0" });
const text = (said) => ({ content: [{ type: "text", text: said }] });

server.registerTool("echo", { inputSchema: { text: z.string() } }, async (given) => text(given.text));
server.registerTool("add", { inputSchema: { a: z.number().int(), b: z.number().int() } }, async ({ a, b }) => text(`${a + b}`));

await server.connect(new StdioServerTransport());
