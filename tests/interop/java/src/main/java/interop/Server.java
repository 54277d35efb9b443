package interop;

import io.modelcontextprotocol.json.McpJsonDefaults;
import io.modelcontextprotocol.server.McpServer;
import io.modelcontextprotocol.server.McpServerFeatures.SyncCompletionSpecification;
import io.modelcontextprotocol.server.McpServerFeatures.SyncPromptSpecification;
import io.modelcontextprotocol.server.McpServerFeatures.SyncResourceSpecification;
import io.modelcontextprotocol.server.McpServerFeatures.SyncResourceTemplateSpecification;
import io.modelcontextprotocol.server.McpServerFeatures.SyncToolSpecification;
import io.modelcontextprotocol.server.McpSyncServer;
import io.modelcontextprotocol.server.McpSyncServerExchange;
import io.modelcontextprotocol.server.transport.HttpServletStreamableServerTransportProvider;
import io.modelcontextprotocol.server.transport.StdioServerTransportProvider;
import io.modelcontextprotocol.spec.McpSchema.BlobResourceContents;
import io.modelcontextprotocol.spec.McpSchema.CallToolRequest;
import io.modelcontextprotocol.spec.McpSchema.CallToolResult;
import io.modelcontextprotocol.spec.McpSchema.CompleteReference;
import io.modelcontextprotocol.spec.McpSchema.CompleteResult;
import io.modelcontextprotocol.spec.McpSchema.CreateMessageRequest;
import io.modelcontextprotocol.spec.McpSchema.ElicitFormRequest;
import io.modelcontextprotocol.spec.McpSchema.ElicitResult;
import io.modelcontextprotocol.spec.McpSchema.ElicitUrlRequest;
import io.modelcontextprotocol.spec.McpSchema.GetPromptResult;
import io.modelcontextprotocol.spec.McpSchema.LoggingLevel;
import io.modelcontextprotocol.spec.McpSchema.LoggingMessageNotification;
import io.modelcontextprotocol.spec.McpSchema.ProgressNotification;
import io.modelcontextprotocol.spec.McpSchema.Prompt;
import io.modelcontextprotocol.spec.McpSchema.PromptArgument;
import io.modelcontextprotocol.spec.McpSchema.PromptMessage;
import io.modelcontextprotocol.spec.McpSchema.PromptReference;
import io.modelcontextprotocol.spec.McpSchema.ReadResourceResult;
import io.modelcontextprotocol.spec.McpSchema.Resource;
import io.modelcontextprotocol.spec.McpSchema.ResourceContents;
import io.modelcontextprotocol.spec.McpSchema.ResourceReference;
import io.modelcontextprotocol.spec.McpSchema.ResourceTemplate;
import io.modelcontextprotocol.spec.McpSchema.ResourcesUpdatedNotification;
import io.modelcontextprotocol.spec.McpSchema.Role;
import io.modelcontextprotocol.spec.McpSchema.Root;
import io.modelcontextprotocol.spec.McpSchema.SamplingMessage;
import io.modelcontextprotocol.spec.McpSchema.ServerCapabilities;
import io.modelcontextprotocol.spec.McpSchema.TextContent;
import io.modelcontextprotocol.spec.McpSchema.TextResourceContents;
import io.modelcontextprotocol.spec.McpSchema.Tool;
import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.function.BiFunction;
import java.util.function.Function;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.catalina.startup.Tomcat;

/**
 * The test server, written with the official Java SDK, with all features that it has.
 *
 * <p>Server legacy stdio, or Server legacy http PORT: the SDK knows no other era.
 */
public final class Server {

    private static final String NOTES = "interop://notes";

    private static final String TRACE = "interop/trace";

    private static final Map<String, Object> ANYTHING = Map.of("type", "object");

    private static volatile String page = "Bring a coat.";

    private static McpSyncServer server;

    private interface Handler extends BiFunction<McpSyncServerExchange, CallToolRequest, CallToolResult> {}

    private static CallToolResult text(String said) {
        return CallToolResult.builder().addTextContent(said).build();
    }

    private static SyncToolSpecification tool(String name, Handler handler) {
        return new SyncToolSpecification(Tool.builder().name(name).inputSchema(ANYTHING).build(), handler);
    }

    private static String argument(CallToolRequest request, String name) {
        return (String) request.arguments().get(name);
    }

    private static List<SyncToolSpecification> tools() {
        return List.of(
                tool("greet", (exchange, request) -> text("Hello, " + argument(request, "name") + "!")),
                new SyncToolSpecification(
                        Tool.builder()
                                .name("forecast")
                                .inputSchema(ANYTHING)
                                .outputSchema(Map.of(
                                        "type", "object",
                                        "properties", Map.of(
                                                "city", Map.of("type", "string"),
                                                "celsius", Map.of("type", "array", "items", Map.of("type", "integer"))),
                                        "required", List.of("city", "celsius")))
                                .build(),
                        (exchange, request) -> {
                            int days = ((Number) request.arguments().getOrDefault("days", 3)).intValue();
                            Map<String, Object> forecast = Map.of(
                                    "city", argument(request, "city"),
                                    "celsius", IntStream.range(0, days).boxed().toList());
                            return CallToolResult.builder().structuredContent(forecast).build();
                        }),
                tool("refuse", (exchange, request) ->
                        CallToolResult.builder().addTextContent(argument(request, "reason")).isError(true).build()),
                tool("hike", Server::hike),
                tool("announce", (exchange, request) -> {
                    exchange.loggingNotification(
                            LoggingMessageNotification.builder(LoggingLevel.INFO, argument(request, "text")).build());
                    return text("announced");
                }),
                tool("rewrite", (exchange, request) -> {
                    page = argument(request, "text");
                    server.notifyResourcesUpdated(new ResourcesUpdatedNotification(NOTES));
                    return text("rewritten");
                }),
                tool("open_bar", (exchange, request) -> {
                    server.addTool(tool("drink", (each, drinking) -> text("Cheers!")));
                    return text("open");
                }),
                tool("sign", (exchange, request) ->
                        CallToolResult.builder().content(List.of()).meta(Map.of(TRACE, request.meta().get(TRACE))).build()),
                tool("book", Server::book),
                tool("pay", (exchange, request) -> {
                    ElicitResult answer = exchange.createElicitation(
                            ElicitUrlRequest.builder("Pay for the room.", "https://inn.example/pay", "pay-1").build());
                    return text("payment: " + answer.action().name().toLowerCase(Locale.ROOT));
                }),
                tool("summarize", (exchange, request) -> {
                    var question = new TextContent("Summarize: " + argument(request, "text"));
                    var answer = exchange.createMessage(
                            CreateMessageRequest.builder(List.of(new SamplingMessage(Role.USER, question)), 100).build());
                    return text(answer.model() + ": " + ((TextContent) answer.content()).text());
                }),
                tool("look_around", (exchange, request) ->
                        text(exchange.listRoots().roots().stream().map(Root::uri).collect(Collectors.joining(" ")))));
    }

    private static CallToolResult book(McpSyncServerExchange exchange, CallToolRequest request) {
        String room = argument(request, "room");
        Map<String, Object> form = Map.of(
                "type", "object",
                "properties", Map.of("nights", Map.of("type", "integer"), "breakfast", Map.of("type", "boolean")),
                "required", List.of("nights", "breakfast"));
        ElicitResult stay = exchange.createElicitation(
                ElicitFormRequest.builder("How long do you stay in " + room + "?", form).build());
        if (stay.action() != ElicitResult.Action.ACCEPT) {
            return text(room + ": " + stay.action().name().toLowerCase(Locale.ROOT));
        }
        return text(room + ": " + stay.content().get("nights") + " nights, breakfast " + stay.content().get("breakfast"));
    }

    /** Reports each step, and then waits for a file: the next call may go to another process of the server. */
    private static CallToolResult hike(McpSyncServerExchange exchange, CallToolRequest request) {
        int steps = ((Number) request.arguments().get("steps")).intValue();
        Path folder = Path.of(argument(request, "folder"));
        Object token = request.meta() == null ? null : request.meta().get("progressToken");
        for (int step = 1; step <= steps && token != null; step++) {
            exchange.progressNotification(new ProgressNotification(token, step, (double) steps, "step " + step));
        }
        try {
            Files.createFile(folder.resolve("begun"));
            // Without the folder, everybody has gone. The SDK cannot tell that the call is cancelled.
            while (Files.exists(folder) && !Files.exists(folder.resolve("home"))) {
                Thread.sleep(10);
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
        return text("hiked " + steps + " steps");
    }

    private static ReadResourceResult contents(ResourceContents contents) {
        return new ReadResourceResult(List.of(contents));
    }

    private static SyncPromptSpecification prompt(
            String name, List<PromptArgument> arguments, Function<Map<String, Object>, String> say) {
        return new SyncPromptSpecification(new Prompt(name, null, arguments), (exchange, request) -> {
            var said = new TextContent(say.apply(request.arguments()));
            return new GetPromptResult(null, List.of(new PromptMessage(Role.USER, said)));
        });
    }

    private static SyncCompletionSpecification completion(CompleteReference reference) {
        return new SyncCompletionSpecification(reference, (exchange, request) -> {
            List<String> found = List.of("Oslo", "Osaka", "Paris").stream()
                    .filter(city -> city.startsWith(request.argument().value()))
                    .toList();
            return new CompleteResult(new CompleteResult.CompleteCompletion(found, found.size(), false));
        });
    }

    private static McpSyncServer configured(McpServer.SyncSpecification<?> specification) {
        String cities = "interop://cities/{city}";
        return specification
                .serverInfo("inn", "1.0.0")
                .instructions("A small inn, for trying clients.")
                .capabilities(ServerCapabilities.builder()
                        .completions()
                        .logging()
                        .prompts(true)
                        .resources(true, true)
                        .tools(true)
                        .build())
                .tools(tools())
                .resources(
                        new SyncResourceSpecification(
                                Resource.builder(NOTES, "notes").build(),
                                (exchange, request) -> contents(new TextResourceContents(NOTES, "text/plain", page))),
                        new SyncResourceSpecification(
                                Resource.builder("interop://dot", "dot").mimeType("image/png").build(),
                                (exchange, request) ->
                                        contents(new BlobResourceContents(request.uri(), "image/png", "iVBORw0K"))))
                .resourceTemplates(new SyncResourceTemplateSpecification(
                        ResourceTemplate.builder(cities, "cities").build(), (exchange, request) -> {
                            String city = request.uri().substring("interop://cities/".length());
                            return contents(new TextResourceContents(request.uri(), "text/plain", city + " is a city."));
                        }))
                .prompts(
                        prompt("plan", List.of(new PromptArgument("city", null, true)),
                                arguments -> "Plan a day in " + arguments.get("city") + "."),
                        prompt("pack", List.of(), arguments -> "Pack a bag."))
                .completions(completion(new PromptReference("plan")), completion(new ResourceReference(cities)))
                .build();
    }

    private static void remove(File file) {
        File[] inside = file.listFiles();
        for (File each : inside == null ? new File[0] : inside) {
            remove(each);
        }
        file.delete();
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments[1].equals("stdio")) {
            server = configured(McpServer.sync(new StdioServerTransportProvider(McpJsonDefaults.getMapper())));
            return;
        }
        var transport = HttpServletStreamableServerTransportProvider.builder().mcpEndpoint("/mcp").build();
        server = configured(McpServer.sync(transport));
        var tomcat = new Tomcat();
        Path folder = Files.createTempDirectory("tomcat");
        Runtime.getRuntime().addShutdownHook(new Thread(() -> remove(folder.toFile())));
        tomcat.setBaseDir(folder.toString());
        tomcat.setHostname("127.0.0.1");
        tomcat.setPort(Integer.parseInt(arguments[2]));
        tomcat.getConnector().setProperty("address", "127.0.0.1");
        var context = tomcat.addContext("", null);
        var servlet = Tomcat.addServlet(context, "mcp", transport);
        servlet.setAsyncSupported(true);
        context.addServletMappingDecoded("/mcp", "mcp");
        tomcat.start();
        System.out.println("listening on 127.0.0.1:" + arguments[2]);
        tomcat.getServer().await();
    }
}
