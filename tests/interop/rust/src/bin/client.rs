//! Tries each feature with the official Rust SDK, and prints what it observed.
//!
//! client REVISION SECONDS COMMAND [ARGUMENT ...]; instead of a command, the address of a server over Streamable HTTP.

// The modern revision deprecates sampling, roots and logs, and replaces subscriptions.
#![allow(deprecated)]

use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use rmcp::{
    ClientHandler, ClientLifecycleMode, ClientServiceExt, ErrorData, RoleClient, ServiceError,
    model::*,
    service::{NotificationContext, RequestContext, RunningService},
    transport::{StreamableHttpClientTransport, TokioChildProcess},
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tokio::{
    process::Command,
    sync::{
        Mutex as AsyncMutex,
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    },
    time::timeout,
};

const NOTES: &str = "interop://notes";
const TRACE: &str = "interop/trace";
/// In this order: those that a bad server does not end come last.
const FEATURES: [&str; 21] = [
    "introduction",
    "calls",
    "tool_errors",
    "protocol_errors",
    "structured_content",
    "metadata",
    "resources",
    "templates",
    "prompts",
    "pagination",
    "completion",
    "extension_methods",
    "logs",
    "subscriptions",
    "list_changes",
    "forms",
    "urls",
    "sampling",
    "roots",
    "cancellation",
    "progress",
];

type Failure = Box<dyn Error + Send + Sync>;

/// Keeps what comes until somebody waits for it.
struct Queue {
    sender: UnboundedSender<Value>,
    receiver: AsyncMutex<UnboundedReceiver<Value>>,
}

impl Default for Queue {
    fn default() -> Self {
        let (sender, receiver) = unbounded_channel();
        Self { sender, receiver: AsyncMutex::new(receiver) }
    }
}

impl Queue {
    fn put(&self, item: Value) {
        self.sender.send(item).expect("the queue is open");
    }

    async fn get(&self) -> Result<Value, Failure> {
        self.receiver.lock().await.recv().await.ok_or_else(|| "the queue is closed".into())
    }
}

/// What the server asks and says.
#[derive(Default)]
struct Heard {
    asked: Mutex<Vec<Value>>,
    logs: Queue,
    changes: Queue,
    list_changes: Queue,
    progress: Queue,
}

#[derive(Clone, Default)]
struct Visitor(Arc<Heard>);

fn made<T: DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value).map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

impl Visitor {
    fn ask(&self, question: impl Into<Value>) {
        self.0.asked.lock().unwrap().push(question.into());
    }

    fn asked(&self) -> Value {
        Value::Array(std::mem::take(&mut *self.0.asked.lock().unwrap()))
    }
}

impl ClientHandler for Visitor {
    fn get_info(&self) -> ClientConfig {
        let capabilities = json!({"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}});
        ClientConfig::new(
            serde_json::from_value(capabilities).expect("these are capabilities"),
            Implementation::new("visitor", "1.0.0"),
        )
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let question = json!(request);
        self.ask(question["message"].clone());
        if question["mode"] == "url" {
            self.ask(question["url"].clone());
            return made(json!({"action": "accept"}));
        }
        if question["message"].as_str().is_some_and(|message| message.contains("cellar")) {
            return made(json!({"action": "decline"}));
        }
        let answers = json!({"nights": 2, "breakfast": true, "sure": true});
        let fields = question["requestedSchema"]["properties"].as_object().cloned().unwrap_or_default();
        let content: Map<String, Value> = fields.keys().map(|name| (name.clone(), answers[name].clone())).collect();
        made(json!({"action": "accept", "content": content}))
    }

    async fn create_message(
        &self,
        params: CreateMessageRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        let content = json!(params.messages[0].content);
        self.ask(content.get(0).unwrap_or(&content)["text"].clone());
        let said = json!({"type": "text", "text": "It is short."});
        made(json!({"role": "assistant", "content": said, "model": "interop-model"}))
    }

    async fn list_roots(&self, _: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        made(json!({"roots": [{"uri": "file:///inn"}]}))
    }

    async fn on_logging_message(&self, params: LoggingMessageNotificationParam, _: NotificationContext<RoleClient>) {
        self.0.logs.put(json!([params.level, params.data]));
    }

    async fn on_progress(&self, params: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.0.progress.put(json!([params.progress, params.total, params.message]));
    }

    async fn on_resource_updated(&self, params: ResourceUpdatedNotificationParam, _: NotificationContext<RoleClient>) {
        self.0.changes.put(json!(params.uri));
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.0.list_changes.put(json!("tools"));
    }
}

struct Visit {
    client: RunningService<RoleClient, Visitor>,
    is_modern: bool,
}

fn params(name: &str, arguments: Value) -> CallToolRequestParams {
    let arguments = arguments.as_object().cloned().unwrap_or_default();
    CallToolRequestParams::new(name.to_owned()).with_arguments(arguments)
}

/// Returns the text of a result; after ``error:`` if the tool failed.
fn said(result: &CallToolResult) -> Value {
    let blocks = json!(result.content);
    let texts: Vec<&str> = blocks.as_array().into_iter().flatten().filter_map(|block| block["text"].as_str()).collect();
    let prefix = if result.is_error == Some(true) { "error: " } else { "" };
    json!(format!("{prefix}{}", texts.join("\n")))
}

/// Returns the code of a protocol error instead of a value.
fn or_code(result: Result<Value, Failure>) -> Result<Value, Failure> {
    match result {
        Err(error) => match error.downcast::<ServiceError>().map(|error| *error) {
            Ok(ServiceError::McpError(refused)) => Ok(json!(refused.code.0)),
            Ok(other) => Err(other.into()),
            Err(other) => Err(other),
        },
        value => value,
    }
}

/// Returns a new folder, where the server and this client leave files for each other.
fn new_folder(name: &str) -> Result<PathBuf, Failure> {
    let folder = Path::new(&std::env::var("HOME")?).join(name);
    fs::create_dir(&folder)?;
    Ok(folder)
}

async fn existing(path: PathBuf) {
    while !path.exists() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

impl Visit {
    fn heard(&self) -> &Heard {
        &self.client.service().0
    }

    async fn call(&self, name: &str, arguments: Value) -> Result<Value, Failure> {
        Ok(said(&self.client.call_tool(params(name, arguments)).await?))
    }

    async fn read(&self, uri: &str) -> Result<Value, Failure> {
        let result = json!(self.client.read_resource(ReadResourceRequestParams::new(uri)).await?);
        let part = &result["contents"][0];
        Ok(part.get("text").or(part.get("blob")).cloned().unwrap_or_default())
    }

    async fn has_drink(&self) -> Result<bool, Failure> {
        Ok(self.client.list_all_tools().await?.iter().any(|tool| tool.name == "drink"))
    }

    async fn try_feature(&self, name: &str) -> Result<Value, Failure> {
        let client = &self.client;
        match name {
            "introduction" => {
                let info = client.peer_info().ok_or("nobody introduced itself")?;
                Ok(json!([info.server_info.as_ref().map(|server| &server.name), info.instructions]))
            }
            "calls" => self.call("greet", json!({"name": "Åse"})).await,
            "tool_errors" => self.call("refuse", json!({"reason": "The inn is full."})).await,
            "protocol_errors" => or_code(self.read("interop://nowhere").await),
            "structured_content" => {
                let result = client.call_tool(params("forecast", json!({"city": "Oslo", "days": 2}))).await?;
                Ok(json!(result.structured_content))
            }
            "metadata" => {
                let mut signing = params("sign", json!({}));
                signing.meta = Some(made(json!({TRACE: "Åse"}))?);
                Ok(json!(client.call_tool(signing).await?)["_meta"][TRACE].clone())
            }
            "resources" => {
                let mut uris: Vec<String> =
                    client.list_all_resources().await?.into_iter().map(|resource| resource.uri.clone()).collect();
                uris.sort();
                Ok(json!([uris, self.read(NOTES).await?, self.read("interop://dot").await?]))
            }
            "templates" => {
                let found = client.list_all_resource_templates().await?;
                let templates: Vec<&String> = found.iter().map(|template| &template.uri_template).collect();
                Ok(json!([templates, self.read("interop://cities/Oslo").await?]))
            }
            "prompts" => {
                let asking = made::<GetPromptRequestParams>(json!({"name": "plan", "arguments": {"city": "Oslo"}}))?;
                let plan = json!(client.get_prompt(asking).await?);
                let messages = plan["messages"].as_array().ok_or("no messages")?;
                Ok(messages.iter().map(|message| json!([message["role"], message["content"]["text"]])).collect())
            }
            "pagination" => {
                let (mut pages, mut cursor) = (Vec::new(), None);
                loop {
                    let page = client.list_prompts(Some(made(json!({"cursor": cursor}))?)).await?;
                    pages.push(page.prompts.iter().map(|prompt| json!(prompt.name)).collect::<Value>());
                    cursor = page.next_cursor;
                    if cursor.is_none() {
                        return Ok(json!(pages));
                    }
                }
            }
            "completion" => Ok(json!([
                client.complete_prompt_simple("plan", "city", "Os").await?,
                client.complete_resource_simple("interop://cities/{city}", "city", "Os").await?,
            ])),
            "extension_methods" => {
                let request = CustomRequest::new("interop/echo", Some(json!({"text": "Åse"})));
                let answer = client.send_request(ClientRequest::CustomRequest(request)).await;
                or_code(match answer {
                    Ok(ServerResult::CustomResult(result)) => Ok(result.0["echo"].clone()),
                    Ok(other) => Ok(json!(other)),
                    Err(error) => Err(error.into()),
                })
            }
            "logs" => {
                let mut announcing = params("announce", json!({"text": "Dinner is served."}));
                if self.is_modern {
                    let mut meta = RequestMetaObject::new();
                    meta.set_log_level(LoggingLevel::Info);
                    announcing.meta = Some(meta);
                } else {
                    client.set_level(SetLevelRequestParams::new(LoggingLevel::Info)).await?;
                }
                client.call_tool(announcing).await?;
                self.heard().logs.get().await
            }
            "subscriptions" => {
                let rewriting = self.call("rewrite", json!({"text": "Bring a hat."}));
                let changed = if self.is_modern {
                    let filter = made(json!({"resourceSubscriptions": [NOTES]}))?;
                    let mut subscription = client.listen(filter).await?;
                    rewriting.await?;
                    let change = match subscription.next().await? {
                        Some(ServerNotification::ResourceUpdatedNotification(change)) => json!(change.params.uri),
                        other => json!(format!("{other:?}")),
                    };
                    subscription.cancel().await?;
                    change
                } else {
                    client.subscribe(made(json!({"uri": NOTES}))?).await?;
                    rewriting.await?;
                    self.heard().changes.get().await?
                };
                Ok(json!([changed, self.read(NOTES).await?]))
            }
            "list_changes" => {
                let before = self.has_drink().await?;
                if self.is_modern {
                    let mut subscription = client.listen(made(json!({"toolsListChanged": true}))?).await?;
                    self.call("open_bar", json!({})).await?;
                    subscription.next().await?.ok_or("the subscription ended")?;
                    subscription.cancel().await?;
                } else {
                    self.call("open_bar", json!({})).await?;
                    self.heard().list_changes.get().await?;
                }
                Ok(json!([before, self.has_drink().await?]))
            }
            "forms" => {
                client.service().asked();
                let mut booked = Vec::new();
                for room in ["the attic", "the cellar"] {
                    booked.push(self.call("book", json!({"room": room})).await?);
                }
                Ok(json!([client.service().asked(), booked]))
            }
            "urls" => {
                client.service().asked();
                let paid = self.call("pay", json!({})).await?;
                Ok(json!([paid, client.service().asked()]))
            }
            "sampling" => {
                client.service().asked();
                let summary = self.call("summarize", json!({"text": "a long text"})).await?;
                Ok(json!([summary, client.service().asked()]))
            }
            "roots" => self.call("look_around", json!({})).await,
            "cancellation" => {
                let folder = new_folder("cancelled")?;
                // The SDK cancels a call that nobody waits for any more.
                tokio::select! {
                    result = self.call("hike", json!({"steps": 0, "folder": folder})) => return result,
                    () = existing(folder.join("begun")) => {}
                }
                existing(folder.join("stopped")).await;
                Ok(json!("stopped"))
            }
            "progress" => {
                let folder = new_folder("hiked")?;
                let hike = self.call("hike", json!({"steps": 3, "folder": folder}));
                let steps = async {
                    let mut steps = Vec::new();
                    while steps.len() < 3 {
                        steps.push(self.heard().progress.get().await?);
                    }
                    fs::write(folder.join("home"), "")?;
                    Ok::<_, Failure>(steps)
                };
                let (hiked, steps) = tokio::try_join!(hike, steps)?;
                Ok(json!([steps, hiked]))
            }
            _ => Err(format!("there is no feature {name}").into()),
        }
    }
}

// The SDK handles each notification in a task of its own: several threads would mix up their order.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let (revision, seconds, place) = (&arguments[1], arguments[2].parse::<f64>()?, &arguments[3..]);
    let within = Duration::from_secs_f64(seconds);
    let is_modern = revision == ProtocolVersion::V_2026_07_28.as_str();
    let lifecycle = if is_modern {
        ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] }
    } else {
        ClientLifecycleMode::Initialize
    };
    let visitor = Visitor::default();
    let connecting = async {
        if place[0].starts_with("http") {
            let transport = StreamableHttpClientTransport::from_uri(place[0].as_str());
            Ok::<_, Box<dyn Error>>(visitor.serve_with_lifecycle(transport, lifecycle).await?)
        } else {
            let mut command = Command::new(&place[0]);
            command.args(&place[1..]);
            Ok(visitor.serve_with_lifecycle(TokioChildProcess::new(command)?, lifecycle).await?)
        }
    };
    let client = timeout(2 * within, connecting).await?.map_err(|error| format!("Error: {error}"))?;
    let agreed = client.peer_info().map(|info| info.protocol_version.to_string());
    if agreed.as_ref() != Some(revision) {
        return Err(format!("Error: agreed on {agreed:?} instead of {revision}").into());
    }
    let visit = Visit { client, is_modern };
    let mut observed = Map::new();
    for name in FEATURES {
        let seen = match timeout(within, visit.try_feature(name)).await {
            Ok(Ok(seen)) => seen,
            Ok(Err(error)) => json!({"failed": error.to_string()}),
            Err(_) => json!({"failed": format!("nothing came within {seconds} s")}),
        };
        observed.insert(name.to_owned(), seen);
    }
    println!("{}", Value::Object(observed));
    visit.client.cancel().await?;
    Ok(())
}
