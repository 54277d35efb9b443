//! The test server, written with the official Rust SDK, with all features.
//!
//! server ERA stdio, or server ERA http PORT, where ERA is legacy or modern.

// The modern revision deprecates sampling, roots and logs, and replaces subscriptions.
#![allow(deprecated)]

use std::{
    borrow::Cow,
    collections::VecDeque,
    error::Error,
    fs,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rmcp::{
    ErrorData, RoleServer, ServerHandler, ServiceError, ServiceExt,
    model::*,
    service::{NotificationContext, Peer, RequestContext, SubscriptionContext},
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
    },
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::broadcast;

const NOTES: &str = "interop://notes";
const TRACE: &str = "interop/trace";
const TOOLS: [&str; 12] = [
    "greet",
    "forecast",
    "refuse",
    "hike",
    "announce",
    "rewrite",
    "open_bar",
    "sign",
    "book",
    "pay",
    "summarize",
    "look_around",
];

#[derive(Clone, Debug)]
enum Change {
    Notes,
    Tools,
}

/// What all sessions share.
struct State {
    is_modern: bool,
    page: Mutex<String>,
    has_bar: AtomicBool,
    /// For modern subscriptions, and what those that are accepted will receive.
    changes: broadcast::Sender<Change>,
    accepted: Mutex<VecDeque<broadcast::Receiver<Change>>>,
    /// The legacy clients, and those that subscribe to the notes.
    peers: Mutex<Vec<Peer<RoleServer>>>,
    subscribers: Mutex<Vec<Peer<RoleServer>>>,
}

#[derive(Clone)]
struct Inn(Arc<State>);

fn made<T: DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value).map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

fn refused(error: ServiceError) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}

fn text(said: impl Into<String>) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(said.into())])
}

fn page_of(params: &Option<PaginatedRequestParams>) -> usize {
    params.as_ref().and_then(|params| params.cursor.as_deref()?.parse().ok()).unwrap_or(0)
}

impl Inn {
    /// Returns the answer to a question, or the result that asks it.
    async fn ask(
        &self,
        request: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
        method: &str,
        params: Value,
    ) -> Result<Result<Value, CallToolResponse>, ErrorData> {
        if let Some(answer) = request.input_responses.as_ref().and_then(|responses| responses.get("answer")) {
            return Ok(Ok(answer.clone()));
        }
        if self.0.is_modern {
            let question = made(json!({"answer": {"method": method, "params": params}}))?;
            return Ok(Err(InputRequiredResult::new(Some(question), None).into()));
        }
        let peer = &context.peer;
        let answer = match method {
            "elicitation/create" => json!(peer.create_elicitation(made(params)?).await.map_err(refused)?),
            "sampling/createMessage" => json!(peer.create_message(made(params)?).await.map_err(refused)?),
            _ => json!(peer.list_roots().await.map_err(refused)?),
        };
        Ok(Ok(answer))
    }

    /// Reports each step, and then waits for a file: the next call may go to another process of the server.
    async fn hike(&self, arguments: &Value, context: &RequestContext<RoleServer>) -> Result<CallToolResult, ErrorData> {
        let steps = arguments["steps"].as_u64().unwrap_or(0);
        let folder = Path::new(arguments["folder"].as_str().unwrap_or_default());
        if let Some(token) = context.meta.get_progress_token() {
            for step in 1..=steps {
                let progress = ProgressNotificationParam::new(token.clone(), step as f64)
                    .with_total(steps as f64)
                    .with_message(format!("step {step}"));
                context.peer.notify_progress(progress).await.map_err(refused)?;
            }
        }
        let touch = |name: &str| {
            fs::write(folder.join(name), "").map_err(|error| ErrorData::internal_error(error.to_string(), None))
        };
        touch("begun")?;
        // Without the folder, everybody has gone.
        while folder.exists() && !folder.join("home").exists() {
            tokio::select! {
                () = context.ct.cancelled() => {
                    touch("stopped")?;
                    return Ok(text("stopped"));
                }
                () = tokio::time::sleep(Duration::from_millis(10)) => {}
            }
        }
        Ok(text(format!("hiked {steps} steps")))
    }

    /// Announces a change to the modern subscriptions, and to legacy clients.
    async fn announce(&self, change: Change) {
        // Nobody may listen.
        let _ = self.0.changes.send(change.clone());
        let peers = match change {
            Change::Notes => self.0.subscribers.lock().unwrap().clone(),
            Change::Tools => self.0.peers.lock().unwrap().clone(),
        };
        for peer in peers {
            // It may have gone.
            let _ = match change {
                Change::Notes => peer.notify_resource_updated(ResourceUpdatedNotificationParam::new(NOTES)).await,
                Change::Tools => peer.notify_tool_list_changed().await,
            };
        }
    }
}

impl ServerHandler for Inn {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_completions()
            .enable_logging()
            .enable_prompts()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_tools()
            .enable_tool_list_changed()
            .build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("inn", "1.0.0"))
            .with_instructions("A small inn, for trying clients.")
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(if self.0.is_modern {
            &[ProtocolVersion::V_2026_07_28]
        } else {
            &[ProtocolVersion::V_2025_11_25]
        })
    }

    // --- Tools ---

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let bar: &[&str] = if self.0.has_bar.load(Ordering::SeqCst) { &["drink"] } else { &[] };
        let tools: Vec<Value> = TOOLS
            .iter()
            .chain(bar)
            .map(|name| match *name {
                "forecast" => json!({
                    "name": name,
                    "inputSchema": {"type": "object"},
                    "outputSchema": {
                        "type": "object",
                        "properties": {
                            "city": {"type": "string"},
                            "celsius": {"type": "array", "items": {"type": "integer"}},
                        },
                        "required": ["city", "celsius"],
                    },
                }),
                _ => json!({"name": name, "inputSchema": {"type": "object"}}),
            })
            .collect();
        made(json!({"tools": tools}))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = Value::Object(request.arguments.clone().unwrap_or_default());
        let argument = |name: &str| arguments[name].as_str().unwrap_or_default().to_owned();
        let result = match request.name.as_ref() {
            "greet" => text(format!("Hello, {}!", argument("name"))),
            "forecast" => {
                let days: Vec<u64> = (0..arguments["days"].as_u64().unwrap_or(3)).collect();
                CallToolResult::structured(json!({"city": argument("city"), "celsius": days}))
            }
            "refuse" => CallToolResult::error(vec![ContentBlock::text(argument("reason"))]),
            "hike" => self.hike(&arguments, &context).await?,
            "announce" => {
                let is_wanted = !self.0.is_modern || context.meta.log_level().is_some();
                if is_wanted {
                    let message = LoggingMessageNotificationParam::new(LoggingLevel::Info, json!(argument("text")));
                    context.peer.notify_logging_message(message).await.map_err(refused)?;
                }
                text("announced")
            }
            "rewrite" => {
                *self.0.page.lock().unwrap() = argument("text");
                self.announce(Change::Notes).await;
                text("rewritten")
            }
            "open_bar" => {
                self.0.has_bar.store(true, Ordering::SeqCst);
                self.announce(Change::Tools).await;
                text("open")
            }
            "drink" => text("Cheers!"),
            "sign" => made(json!({"content": [], "_meta": {TRACE: context.meta.0.get(TRACE)}}))?,
            "book" => {
                let question = json!({
                    "mode": "form",
                    "message": format!("How long do you stay in {}?", argument("room")),
                    "requestedSchema": {
                        "type": "object",
                        "properties": {"nights": {"type": "integer"}, "breakfast": {"type": "boolean"}},
                        "required": ["nights", "breakfast"],
                    },
                });
                match self.ask(&request, &context, "elicitation/create", question).await? {
                    Err(asking) => return Ok(asking),
                    Ok(stay) if stay["action"] == "accept" => {
                        let (nights, breakfast) = (&stay["content"]["nights"], &stay["content"]["breakfast"]);
                        text(format!("{}: {nights} nights, breakfast {breakfast}", argument("room")))
                    }
                    Ok(stay) => text(format!("{}: {}", argument("room"), stay["action"].as_str().unwrap_or("?"))),
                }
            }
            "pay" => {
                let question = json!({
                    "mode": "url",
                    "message": "Pay for the room.",
                    "url": "https://inn.example/pay",
                    "elicitationId": "pay-1",
                });
                match self.ask(&request, &context, "elicitation/create", question).await? {
                    Err(asking) => return Ok(asking),
                    Ok(answer) => text(format!("payment: {}", answer["action"].as_str().unwrap_or("?"))),
                }
            }
            "summarize" => {
                let said = format!("Summarize: {}", argument("text"));
                let question = json!({
                    "maxTokens": 100,
                    "messages": [{"role": "user", "content": {"type": "text", "text": said}}],
                });
                match self.ask(&request, &context, "sampling/createMessage", question).await? {
                    Err(asking) => return Ok(asking),
                    Ok(answer) => {
                        let (model, said) = (&answer["model"], &answer["content"]["text"]);
                        text(format!("{}: {}", model.as_str().unwrap_or("?"), said.as_str().unwrap_or("?")))
                    }
                }
            }
            "look_around" => match self.ask(&request, &context, "roots/list", json!({})).await? {
                Err(asking) => return Ok(asking),
                Ok(answer) => {
                    let roots = answer["roots"].as_array().cloned().unwrap_or_default();
                    let uris: Vec<&str> = roots.iter().filter_map(|root| root["uri"].as_str()).collect();
                    text(uris.join(" "))
                }
            },
            name => return Err(ErrorData::invalid_params(format!("There is no tool {name:?}."), None)),
        };
        Ok(result.into())
    }

    // --- Resources, prompts, completion ---

    async fn list_resources(
        &self,
        params: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        match page_of(&params) {
            0 => made(json!({"resources": [{"name": "notes", "uri": NOTES}], "nextCursor": "1"})),
            _ => made(json!({"resources": [{"name": "dot", "uri": "interop://dot", "mimeType": "image/png"}]})),
        }
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        made(json!({"resourceTemplates": [{"name": "cities", "uriTemplate": "interop://cities/{city}"}]}))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = request.uri;
        let contents = match (uri.as_str(), uri.strip_prefix("interop://cities/")) {
            (NOTES, _) => json!({"uri": uri, "text": *self.0.page.lock().unwrap()}),
            ("interop://dot", _) => json!({"uri": uri, "mimeType": "image/png", "blob": "iVBORw0K"}),
            (_, Some(city)) => json!({"uri": uri, "text": format!("{city} is a city.")}),
            _ => return Err(ErrorData::resource_not_found("There is no such resource.", Some(json!({"uri": uri})))),
        };
        Ok(made::<ReadResourceResult>(json!({"contents": [contents]}))?.into())
    }

    async fn list_prompts(
        &self,
        params: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let plan = json!({"name": "plan", "arguments": [{"name": "city", "required": true}]});
        match page_of(&params) {
            0 => made(json!({"prompts": [plan], "nextCursor": "1"})),
            _ => made(json!({"prompts": [{"name": "pack"}]})),
        }
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let arguments = json!(request.arguments);
        let said = match request.name.as_str() {
            "plan" => format!("Plan a day in {}.", arguments["city"].as_str().unwrap_or_default()),
            "pack" => "Pack a bag.".to_owned(),
            name => return Err(ErrorData::invalid_params(format!("There is no prompt {name:?}."), None)),
        };
        let message = json!({"role": "user", "content": {"type": "text", "text": said}});
        Ok(made::<GetPromptResult>(json!({"messages": [message]}))?.into())
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let cities = ["Oslo", "Osaka", "Paris"];
        let found: Vec<&str> = cities.into_iter().filter(|city| city.starts_with(&request.argument.value)).collect();
        made(json!({"completion": {"values": found}}))
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        if request.method != "interop/echo" {
            return Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, request.method, None));
        }
        Ok(CustomResult::new(json!({"echo": request.params.unwrap_or_default()["text"]})))
    }

    async fn set_level(&self, _: SetLevelRequestParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        Ok(())
    }

    // --- Changes ---

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        // The SDK acknowledges the subscription before it calls `listen`, and a change may come in between.
        self.0.accepted.lock().unwrap().push_back(self.0.changes.subscribe());
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let accepted = self.0.accepted.lock().unwrap().pop_front();
        let mut changes = accepted.unwrap_or_else(|| self.0.changes.subscribe());
        loop {
            let change = tokio::select! {
                () = context.cancelled() => return Ok(()),
                change = changes.recv() => change,
            };
            // What was not asked for is refused by the SDK.
            let _ = match change {
                Ok(Change::Notes) => context.sink().notify_resource_updated(NOTES).await,
                Ok(Change::Tools) => context.sink().notify_tool_list_changed().await,
                Err(_) => return Ok(()),
            };
        }
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        self.0.peers.lock().unwrap().push(context.peer);
    }

    async fn subscribe(&self, _: SubscribeRequestParams, context: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        self.0.subscribers.lock().unwrap().push(context.peer);
        Ok(())
    }

    async fn unsubscribe(&self, _: UnsubscribeRequestParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let inn = Inn(Arc::new(State {
        is_modern: arguments[1] == "modern",
        page: Mutex::new("Bring a coat.".to_owned()),
        has_bar: AtomicBool::new(false),
        changes: broadcast::Sender::new(100),
        accepted: Mutex::default(),
        peers: Mutex::default(),
        subscribers: Mutex::default(),
    }));
    if arguments[2] == "stdio" {
        inn.serve(rmcp::transport::stdio()).await?.waiting().await?;
        return Ok(());
    }
    let service: StreamableHttpService<Inn, LocalSessionManager> =
        StreamableHttpService::new(move || Ok(inn.clone()), Default::default(), StreamableHttpServerConfig::default());
    let router = axum::Router::new().nest_service("/mcp", service);
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{}", arguments[3])).await?;
    println!("listening on {}", listener.local_addr()?);
    axum::serve(listener, router).await?;
    Ok(())
}
