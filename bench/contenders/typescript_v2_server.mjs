// The two tools with version 2 of the official TypeScript SDK.

import { McpServer } from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";
import { z } from "zod";

const text = (said) => ({ content: [{ type: "text", text: said }] });

serveStdio(() => {
  const server = new McpServer({ name: "bench", version: "1.0.0" });
  server.registerTool("echo", { inputSchema: z.object({ text: z.string() }) }, async (given) => text(given.text));
  server.registerTool("add", { inputSchema: z.object({ a: z.number().int(), b: z.number().int() }) }, async ({ a, b }) =>
    text(`${a + b}`),
  );
  return server;
});
