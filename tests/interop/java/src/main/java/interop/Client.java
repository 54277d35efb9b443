package interop;

import io.modelcontextprotocol.client.McpClient;
import io.modelcontextprotocol.client.McpSyncClient;
import io.modelcontextprotocol.client.transport.HttpClientStreamableHttpTransport;
import io.modelcontextprotocol.client.transport.ServerParameters;
import io.modelcontextprotocol.client.transport.StdioClientTransport;
import io.modelcontextprotocol.json.McpJsonDefaults;
import io.modelcontextprotocol.spec.McpClientTransport;
import io.modelcontextprotocol.spec.McpError;
import io.modelcontextprotocol.spec.McpSchema.BlobResourceContents;
import io.modelcontextprotocol.spec.McpSchema.CallToolRequest;
import io.modelcontextprotocol.spec.McpSchema.CallToolResult;
import io.modelcontextprotocol.spec.McpSchema.ClientCapabilities;
import io.modelcontextprotocol.spec.McpSchema.CompleteReference;
import io.modelcontextprotocol.spec.McpSchema.CompleteRequest;
import io.modelcontextprotocol.spec.McpSchema.CreateMessageRequest;
import io.modelcontextprotocol.spec.McpSchema.CreateMessageResult;
import io.modelcontextprotocol.spec.McpSchema.ElicitFormRequest;
import io.modelcontextprotocol.spec.McpSchema.ElicitResult;
import io.modelcontextprotocol.spec.McpSchema.ElicitUrlRequest;
import io.modelcontextprotocol.spec.McpSchema.GetPromptRequest;
import io.modelcontextprotocol.spec.McpSchema.Implementation;
import io.modelcontextprotocol.spec.McpSchema.ListPromptsResult;
import io.modelcontextprotocol.spec.McpSchema.LoggingLevel;
import io.modelcontextprotocol.spec.McpSchema.Prompt;
import io.modelcontextprotocol.spec.McpSchema.PromptReference;
import io.modelcontextprotocol.spec.McpSchema.ReadResourceRequest;
import io.modelcontextprotocol.spec.McpSchema.Resource;
import io.modelcontextprotocol.spec.McpSchema.ResourceContents;
import io.modelcontextprotocol.spec.McpSchema.ResourceReference;
import io.modelcontextprotocol.spec.McpSchema.ResourceTemplate;
import io.modelcontextprotocol.spec.McpSchema.Role;
import io.modelcontextprotocol.spec.McpSchema.Root;
import io.modelcontextprotocol.spec.McpSchema.SubscribeRequest;
import io.modelcontextprotocol.spec.McpSchema.TextContent;
import io.modelcontextprotocol.spec.McpSchema.TextResourceContents;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.stream.Collectors;

/**
 * Tries each feature with the official Java SDK, and prints what it observed.
 *
 * <p>Client REVISION SECONDS COMMAND [ARGUMENT ...]; instead of a command, the address of a server over Streamable HTTP.
 */
public final class Client {

    private static final String NOTES = "interop://notes";

    private static final String TRACE = "interop/trace";

    private static final Map<String, Object> ANSWERS = Map.of("nights", 2, "breakfast", true, "sure", true);

    /** What the server asks and says. */
    private final List<String> asked = new ArrayList<>();

    private final BlockingQueue<List<Object>> logs = new LinkedBlockingQueue<>();

    private final BlockingQueue<List<ResourceContents>> changes = new LinkedBlockingQueue<>();

    private final BlockingQueue<Boolean> listChanges = new LinkedBlockingQueue<>();

    private final BlockingQueue<List<Object>> progress = new LinkedBlockingQueue<>();

    private final McpSyncClient client;

    private Client(McpClientTransport transport, Duration within) {
        client = McpClient.sync(transport)
                .clientInfo(Implementation.builder("visitor", "1.0.0").build())
                .initializationTimeout(within.multipliedBy(2))
                .requestTimeout(within)
                .capabilities(ClientCapabilities.builder().elicitation(true, true).sampling().roots(false).build())
                .elicitation(this::fillIn)
                .urlElicitation(this::visit)
                .sampling(this::sample)
                .roots(Root.builder("file:///inn").build())
                .loggingConsumer(message ->
                        logs.add(List.of(message.level().name().toLowerCase(Locale.ROOT), message.data())))
                .resourcesUpdateConsumer(changes::add)
                .toolsChangeConsumer(tools -> listChanges.add(true))
                .progressConsumer(step -> progress.add(List.of(step.progress(), step.total(), step.message())))
                .build();
    }

    @SuppressWarnings("unchecked")
    private ElicitResult fillIn(ElicitFormRequest form) {
        asked.add(form.message());
        if (form.message().contains("cellar")) {
            return ElicitResult.builder(ElicitResult.Action.DECLINE).build();
        }
        var fields = (Map<String, Object>) form.requestedSchema().get("properties");
        Map<String, Object> content = fields.keySet().stream().collect(Collectors.toMap(name -> name, ANSWERS::get));
        return ElicitResult.builder(ElicitResult.Action.ACCEPT).content(content).build();
    }

    private ElicitResult visit(ElicitUrlRequest web) {
        asked.addAll(List.of(web.message(), web.url()));
        return ElicitResult.builder(ElicitResult.Action.ACCEPT).build();
    }

    private CreateMessageResult sample(CreateMessageRequest request) {
        asked.add(((TextContent) request.messages().get(0).content()).text());
        return CreateMessageResult.builder(Role.ASSISTANT, "It is short.", "interop-model").build();
    }

    private static String said(CallToolResult result) {
        String text = result.content().stream()
                .filter(TextContent.class::isInstance)
                .map(block -> ((TextContent) block).text())
                .collect(Collectors.joining("\n"));
        return Boolean.TRUE.equals(result.isError()) ? "error: " + text : text;
    }

    private String call(String name, Map<String, Object> arguments) {
        return said(client.callTool(CallToolRequest.builder(name).arguments(arguments).build()));
    }

    private String read(String uri) {
        ResourceContents part = client.readResource(new ReadResourceRequest(uri)).contents().get(0);
        return part instanceof TextResourceContents text ? text.text() : ((BlobResourceContents) part).blob();
    }

    private boolean hasDrink() {
        return client.listTools().tools().stream().anyMatch(tool -> tool.name().equals("drink"));
    }

    private Object nowhere() {
        try {
            return read("interop://nowhere");
        } catch (McpError error) {
            return error.getJsonRpcError().code();
        }
    }

    private Object pages() {
        List<List<String>> pages = new ArrayList<>();
        ListPromptsResult page = null;
        while (page == null || page.nextCursor() != null) {
            page = client.listPrompts(page == null ? null : page.nextCursor());
            pages.add(page.prompts().stream().map(Prompt::name).toList());
        }
        return pages;
    }

    private List<String> complete(CompleteReference reference) {
        var argument = new CompleteRequest.CompleteArgument("city", "Os");
        return client.completeCompletion(new CompleteRequest(reference, argument)).completion().values();
    }

    private Object changed() throws InterruptedException {
        client.subscribeResource(new SubscribeRequest(NOTES));
        call("rewrite", Map.of("text", "Bring a hat."));
        // The SDK reads a resource that has changed by itself.
        var read = (TextResourceContents) changes.take().get(0);
        return List.of(read.uri(), read.text());
    }

    private Object hike() throws Exception {
        Path folder = Files.createTempDirectory(Path.of(System.getenv("HOME")), "hike-");
        Map<String, Object> arguments = Map.of("steps", 3, "folder", folder.toString());
        var request = CallToolRequest.builder("hike").arguments(arguments).progressToken("hike-1").build();
        CompletableFuture<String> hiked = CompletableFuture.supplyAsync(() -> said(client.callTool(request)));
        List<List<Object>> steps = new ArrayList<>();
        while (steps.size() < 3) {
            steps.add(progress.take());
        }
        // The SDK handles notifications at the same time, and mixes up their order.
        steps.sort(Comparator.comparing(step -> (Double) step.get(0)));
        Files.createFile(folder.resolve("home"));
        return List.of(steps, hiked.get());
    }

    private Object asking(Callable<Object> answered, boolean isFirst) throws Exception {
        asked.clear();
        Object answer = answered.call();
        return isFirst ? List.of(List.copyOf(asked), answer) : List.of(answer, List.copyOf(asked));
    }

    private static Object missing(String what) {
        throw new UnsupportedOperationException("the SDK has no way to " + what);
    }

    private Map<String, Callable<Object>> features() {
        Map<String, Callable<Object>> features = new LinkedHashMap<>();
        features.put("introduction", () -> List.of(client.getServerInfo().name(), client.getServerInstructions()));
        features.put("calls", () -> call("greet", Map.of("name", "Åse")));
        features.put("tool_errors", () -> call("refuse", Map.of("reason", "The inn is full.")));
        features.put("protocol_errors", this::nowhere);
        features.put("structured_content", () -> client.callTool(
                CallToolRequest.builder("forecast").arguments(Map.of("city", "Oslo", "days", 2)).build())
                .structuredContent());
        features.put("metadata", () -> client.callTool(
                CallToolRequest.builder("sign").meta(Map.of(TRACE, "Åse")).build()).meta().get(TRACE));
        features.put("resources", () -> List.of(
                client.listResources().resources().stream().map(Resource::uri).sorted().toList(),
                read(NOTES),
                read("interop://dot")));
        features.put("templates", () -> List.of(
                client.listResourceTemplates().resourceTemplates().stream().map(ResourceTemplate::uriTemplate).toList(),
                read("interop://cities/Oslo")));
        features.put("prompts", () -> client.getPrompt(new GetPromptRequest("plan", Map.of("city", "Oslo")))
                .messages().stream()
                .map(message -> List.of(
                        message.role().name().toLowerCase(Locale.ROOT), ((TextContent) message.content()).text()))
                .toList());
        features.put("pagination", this::pages);
        features.put("completion", () -> List.of(
                complete(new PromptReference("plan")), complete(new ResourceReference("interop://cities/{city}"))));
        features.put("extension_methods", () -> missing("send a request of an extension"));
        features.put("logs", () -> {
            client.setLoggingLevel(LoggingLevel.INFO);
            call("announce", Map.of("text", "Dinner is served."));
            return logs.take();
        });
        features.put("subscriptions", this::changed);
        features.put("list_changes", () -> {
            boolean before = hasDrink();
            call("open_bar", Map.of());
            listChanges.take();
            return List.of(before, hasDrink());
        });
        features.put("forms", () -> asking(
                () -> List.of(call("book", Map.of("room", "the attic")), call("book", Map.of("room", "the cellar"))),
                true));
        features.put("urls", () -> asking(() -> call("pay", Map.of()), false));
        features.put("sampling", () -> asking(() -> call("summarize", Map.of("text", "a long text")), false));
        features.put("roots", () -> call("look_around", Map.of()));
        features.put("cancellation", () -> missing("cancel a request"));
        features.put("progress", this::hike);
        return features;
    }

    private Map<String, Object> observe(ExecutorService pool, double seconds) throws InterruptedException {
        Map<String, Object> observed = new LinkedHashMap<>();
        for (var feature : features().entrySet()) {
            Future<Object> seen = pool.submit(feature.getValue());
            try {
                observed.put(feature.getKey(), seen.get((long) (seconds * 1000), TimeUnit.MILLISECONDS));
            } catch (TimeoutException error) {
                seen.cancel(true);
                observed.put(feature.getKey(), Map.of("failed", "nothing came within " + seconds + " s"));
            } catch (ExecutionException error) {
                observed.put(feature.getKey(), Map.of("failed", String.valueOf(error.getCause().getMessage())));
            }
        }
        return observed;
    }

    public static void main(String[] arguments) throws Exception {
        String revision = arguments[0];
        double seconds = Double.parseDouble(arguments[1]);
        String[] place = Arrays.copyOfRange(arguments, 2, arguments.length);
        McpClientTransport transport;
        if (place[0].startsWith("http")) {
            URI address = URI.create(place[0]);
            String host = address.getScheme() + "://" + address.getAuthority();
            transport = HttpClientStreamableHttpTransport.builder(host).endpoint(address.getPath()).build();
        } else {
            var parameters = ServerParameters.builder(place[0])
                    .args(Arrays.copyOfRange(place, 1, place.length))
                    .env(System.getenv())
                    .build();
            transport = new StdioClientTransport(parameters, McpJsonDefaults.getMapper());
        }
        var visit = new Client(transport, Duration.ofMillis((long) (seconds * 1000)));
        String agreed = visit.client.initialize().protocolVersion();
        if (!agreed.equals(revision)) {
            throw new IllegalStateException("Error: agreed on " + agreed + " instead of " + revision);
        }
        ExecutorService pool = Executors.newCachedThreadPool();
        System.out.println(McpJsonDefaults.getMapper().writeValueAsString(visit.observe(pool, seconds)));
        visit.client.closeGracefully();
        System.exit(0);
    }
}
