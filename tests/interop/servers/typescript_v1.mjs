// The test server, written with version 1 of the official TypeScript SDK.

import { randomUUID } from "node:crypto";
import { EventEmitter, once } from "node:events";
import { existsSync, writeFileSync } from "node:fs";
import { setTimeout } from "node:timers/promises";

import { InMemoryEventStore } from "@modelcontextprotocol/sdk/examples/shared/inMemoryEventStore.js";
import { completable } from "@modelcontextprotocol/sdk/server/completable.js";
import { createMcpExpressApp } from "@modelcontextprotocol/sdk/server/express.js";
import { McpServer, ResourceTemplate } from "@modelcontextprotocol/sdk/server/mcp.js";
import { SSEServerTransport } from "@modelcontextprotocol/sdk/server/sse.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { ListPromptsRequestSchema, SubscribeRequestSchema, UnsubscribeRequestSchema } from "@modelcontextprotocol/sdk/types.js";
import { z } from "zod";

const NOTES = "interop://notes";
const CITIES = ["Oslo", "Osaka", "Paris"];

const [way = "stdio", port, full] = process.argv.slice(2);
const isFull = full === "full";
const pages = { [NOTES]: "Bring a coat." };
const seen = new EventEmitter().setMaxListeners(0);
let stops = 0;

const text = (said) => ({ content: [{ type: "text", text: said }] });
const complete = (value) => CITIES.filter((city) => city.startsWith(value));

function open() {
  const server = new McpServer(
    { name: "inn", version: "1.0.0" },
    { capabilities: { logging: {}, resources: { subscribe: true } }, instructions: "A small inn, for trying clients." },
  );
  const subscribed = new Set();

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
    stops = 0;
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
    seen.emit("rewrite");
    return text("rewritten");
  });
  seen.on("rewrite", () => {
    if (subscribed.has(NOTES)) server.server.sendResourceUpdated({ uri: NOTES });
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
  server.server.onclose = () => subscribed.clear();
  if (isFull) addMore(server);
  return server;
}

const Echo = z.object({ method: z.literal("interop/echo"), params: z.object({ text: z.string() }) });

// Adds what the table of the bridge needs, too.
function addMore(server) {
  // Reports each step, and then waits for a file: the next call may go to another process of the server.
  server.registerTool("hike", { inputSchema: { steps: z.number().int(), folder: z.string() } }, async ({ steps, folder }, extra) => {
    for (let step = 1; step <= steps; step++) {
      if (extra._meta?.progressToken === undefined) break;
      const params = { progressToken: extra._meta?.progressToken, progress: step, total: steps, message: `step ${step}` };
      await extra.sendNotification({ method: "notifications/progress", params });
    }
    writeFileSync(`${folder}/begun`, "");
    // Without the folder, everybody has gone.
    while (existsSync(folder) && !existsSync(`${folder}/home`)) {
      await setTimeout(10);
      if (extra.signal.aborted) {
        writeFileSync(`${folder}/stopped`, "");
        throw new Error("stopped");
      }
    }
    return text(`hiked ${steps} steps`);
  });

  server.registerTool("pay", {}, async (extra) => {
    const { action } = await server.server.elicitInput(
      { mode: "url", message: "Pay for the room.", url: "https://inn.example/pay", elicitationId: randomUUID() },
      { relatedRequestId: extra.requestId },
    );
    return text(`payment: ${action}`);
  });

  server.registerTool("summarize", { inputSchema: { text: z.string() } }, async ({ text: said }, extra) => {
    const content = { type: "text", text: `Summarize: ${said}` };
    const answer = await server.server.createMessage(
      { messages: [{ role: "user", content }], maxTokens: 100 },
      { relatedRequestId: extra.requestId },
    );
    return text(`${answer.model}: ${answer.content.text}`);
  });

  server.registerTool("look_around", {}, async (extra) => {
    const { roots } = await server.server.listRoots({}, { relatedRequestId: extra.requestId });
    return text(roots.map((root) => root.uri).join(" "));
  });

  server.registerTool("open_bar", {}, () => {
    server.registerTool("drink", {}, () => text("Cheers!"));
    return text("open");
  });

  server.registerTool("sign", {}, (extra) => ({
    content: [],
    _meta: { "interop/trace": extra._meta?.["interop/trace"] },
  }));

  server.server.setRequestHandler(ListPromptsRequestSchema, ({ params }) => {
    if (params?.cursor === "page 2") return { prompts: [{ name: "pack" }] };
    return { prompts: [{ name: "plan", arguments: [{ name: "city", required: true }] }], nextCursor: "page 2" };
  });
  server.server.setRequestHandler(Echo, ({ params }) => ({ echo: params.text }));
}

// The ids of the example's store end with a random word, so it replays events of the same millisecond in any order.
class OrderedEventStore extends InMemoryEventStore {
  #stored = 0;

  generateEventId(streamId) {
    return `${streamId}_${String(this.#stored++).padStart(10, "0")}`;
  }
}

async function openSession(isJson) {
  const transport = new StreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    enableJsonResponse: isJson,
    eventStore: new OrderedEventStore(),
    onsessioninitialized: (id) => sessions.set(id, transport),
    onsessionclosed: (id) => sessions.delete(id),
  });
  await open().connect(transport);
  return transport;
}

const sessions = new Map();

if (way === "stdio") {
  await open().connect(new StdioServerTransport());
} else {
  const app = createMcpExpressApp();
  app.use(({ method, path }, _response, next) => {
    console.log(method, path);
    next();
  });
  app.all("/mcp", async (request, response) => {
    if (way === "sse") return response.sendStatus(404);
    const id = request.headers["mcp-session-id"];
    if (id !== undefined && !sessions.has(id)) return response.sendStatus(404);
    const transport = sessions.get(id) ?? (await openSession(way === "http-json"));
    await transport.handleRequest(request, response, request.body);
  });
  app.get("/sse", async (_request, response) => {
    const transport = new SSEServerTransport("/messages", response);
    sessions.set(transport.sessionId, transport);
    response.on("close", () => sessions.delete(transport.sessionId));
    await open().connect(transport);
  });
  app.post("/messages", async (request, response) => {
    await sessions.get(request.query.sessionId).handlePostMessage(request, response, request.body);
  });
  app.listen(Number(port), "127.0.0.1", (error) => {
    if (error) throw error;
    console.log(`Listening on port ${port}`);
  });
}
