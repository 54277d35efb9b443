// The inn, written with version 1 of the official TypeScript SDK.

import { EventEmitter, once } from "node:events";

import { completable } from "@modelcontextprotocol/sdk/server/completable.js";
import { McpServer, ResourceTemplate } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { SubscribeRequestSchema, UnsubscribeRequestSchema } from "@modelcontextprotocol/sdk/types.js";
import { z } from "zod";

const NOTES = "interop://notes";
const CITIES = ["Oslo", "Osaka", "Paris"];

const server = new McpServer(
  { name: "inn", version: "1.0.0" },
  { capabilities: { logging: {}, resources: { subscribe: true } }, instructions: "A small inn, for trying clients." },
);
const pages = { [NOTES]: "Bring a coat." };
const subscribed = new Set();
const seen = new EventEmitter();
let stops = 0;

const text = (said) => ({ content: [{ type: "text", text: said }] });
const complete = (value) => CITIES.filter((city) => city.startsWith(value));

server.registerTool("greet", { inputSchema: { name: z.string() } }, ({ name }) => text(`Hello, ${name}!`));

server.registerTool(
  "forecast",
  {
    inputSchema: { city: z.string(), days: z.number().int().default(3) },
    outputSchema: { city: z.string(), celsius: z.array(z.number().int()) },
  },
  ({ city, days }) => {
    const structuredContent = { city, celsius: [...Array(days).keys()] };
    return { ...text(JSON.stringify(structuredContent)), structuredContent };
  },
);

server.registerTool("refuse", { inputSchema: { reason: z.string() } }, ({ reason }) => {
  throw new Error(reason);
});

// Reports each step, and then waits for "release".
server.registerTool("climb", { inputSchema: { steps: z.number().int() } }, async ({ steps }, extra) => {
  for (let step = 1; step <= steps; step++) {
    if (extra._meta?.progressToken === undefined) break;
    const params = { progressToken: extra._meta.progressToken, progress: step, total: steps, message: `step ${step}` };
    await extra.sendNotification({ method: "notifications/progress", params });
  }
  extra.signal.addEventListener("abort", () => {
    stops++;
    seen.emit("stop");
  });
  await once(seen, "release", { signal: extra.signal });
  return text(`climbed ${steps} steps`);
});

server.registerTool("release", {}, () => {
  seen.emit("release");
  return text("released");
});

// Says so when a climb has been cancelled.
server.registerTool("stopped", {}, async () => {
  if (!stops) await once(seen, "stop");
  return text("stopped");
});

server.registerTool("book", { inputSchema: { room: z.string() } }, async ({ room }) => {
  const { action, content } = await server.server.elicitInput({
    message: `How long do you stay in ${room}?`,
    requestedSchema: {
      type: "object",
      properties: { nights: { type: "integer" }, breakfast: { type: "boolean" } },
      required: ["nights", "breakfast"],
    },
  });
  if (action !== "accept") return text(`${room}: ${action}`);
  return text(`${room}: ${content.nights} nights, breakfast ${content.breakfast}`);
});

server.registerTool("announce", { inputSchema: { text: z.string() } }, async ({ text: data }) => {
  await server.server.sendLoggingMessage({ level: "info", data });
  return text("announced");
});

server.registerTool("rewrite", { inputSchema: { text: z.string() } }, async ({ text: said }) => {
  pages[NOTES] = said;
  if (subscribed.has(NOTES)) await server.server.sendResourceUpdated({ uri: NOTES });
  return text("rewritten");
});

server.registerResource("notes", NOTES, {}, ({ href }) => ({ contents: [{ uri: href, text: pages[NOTES] }] }));
server.registerResource("dot", "interop://dot", { mimeType: "image/png" }, ({ href }) => ({
  contents: [{ uri: href, mimeType: "image/png", blob: "iVBORw0K" }],
}));
const cities = new ResourceTemplate("interop://cities/{city}", { list: undefined, complete: { city: complete } });
server.registerResource("cities", cities, {}, ({ href }, { city }) => ({
  contents: [{ uri: href, text: `${city} is a city.` }],
}));

server.registerPrompt("plan", { argsSchema: { city: completable(z.string(), complete) } }, ({ city }) => ({
  messages: [{ role: "user", content: { type: "text", text: `Plan a day in ${city}.` } }],
}));

server.server.setRequestHandler(SubscribeRequestSchema, ({ params }) => {
  subscribed.add(params.uri);
  return {};
});
server.server.setRequestHandler(UnsubscribeRequestSchema, ({ params }) => {
  subscribed.delete(params.uri);
  return {};
});

await server.connect(new StdioServerTransport());
